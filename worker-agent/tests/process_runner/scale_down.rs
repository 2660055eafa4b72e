//! Scale-downs of running gangs.

use super::*;

/// Pods that run until a file appears, and write their starts and signals. The fourth ignores the stop
/// signal, and so does a process that it leaves behind outside its group.
fn scalable(bench: &Bench) -> Start {
    let script = r#"cd DATA; trap 'echo signalled >> signalled-$JOB_COMPLETION_INDEX; exit 0' TERM
        test $JOB_COMPLETION_INDEX = 3 && trap '' TERM \
            && (setsid sh -c 'trap "" TERM; while ! test -f done-3; do sleep 0.01; done' &)
        echo $MERIDIAN_NODE >> at-$JOB_COMPLETION_INDEX
        while ! test -f done-$JOB_COMPLETION_INDEX; do sleep 0.01; done"#;
    let script = script.replace("DATA", bench.data.path().to_str().unwrap());
    start(
        &job(
            &script,
            json!({"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimit": 0}),
        ),
        4,
        LONG,
    )
}

fn two() -> Size {
    Size { parallelism: 2, completions: Some(2) }
}

impl Bench {
    fn scale_down(&mut self, run: &Start, size: Size) {
        self.runner().scale_down(run.uid, run.fence, size);
    }

    /// Waits until these positions are reclaimable, and checks that no process runs in a position when it is
    /// reported.
    fn until_reclaimable(&mut self, run: &Start, wanted: &[u32]) {
        loop {
            let event = self.next();
            let RunnerEvent::Reclaimable { places, .. } = event else { panic!("{event:?}") };
            let reported: Vec<u32> = places.into_iter().map(|(_, place)| place).collect();
            for place in &reported {
                let mut marks = processes::marks(run.uid, run.fence);
                marks.push(format!("MERIDIAN_POD_SLOT={place}"));
                assert_eq!(
                    processes::marked(&marks),
                    [0; 0],
                    "something runs in the reclaimable position {place}"
                );
            }
            if reported == wanted {
                return;
            }
        }
    }

    /// The first two pods of [`scalable`] ran undisturbed, and their success completes the job.
    fn complete_first_two(&mut self, run: &Start) {
        for index in 0..2 {
            assert_eq!(wrote(self, &format!("at-{index}"), 1), [format!("n{index}")]);
            assert!(!self.data.path().join(format!("signalled-{index}")).exists());
            std::fs::write(self.data.path().join(format!("done-{index}")), "").unwrap();
        }
        let end = self.until_ended();
        assert_eq!((end.result, end.pod_failures), (EndResult::Succeeded, 0));
        assert_eq!(
            end.pods.iter().map(|pod| (pod.index, pod.attempt, pod.exit_code)).collect::<Vec<_>>(),
            [(0, 0, 0), (1, 0, 0)]
        );
        assert!(left(run).is_empty());
    }
}

#[test]
fn a_scale_down_ends_surplus_pods_only() {
    both(|mut bench| {
        let run = scalable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..4 {
            wrote(&bench, &format!("at-{index}"), 1);
        }
        bench.scale_down(&run, two());
        bench.scale_down(&run, two());
        bench.until_reclaimable(&run, &[2, 3]);
        assert_eq!(wrote(&bench, "signalled-2", 1), ["signalled"]);
        bench.scale_down(&run, two());
        bench.scale_down(&run, Size { parallelism: 3, completions: Some(3) });
        bench.complete_first_two(&run);

        // A size is ignored for an ended run and for an unknown one.
        let unknown = start(&run.spec, 4, LONG);
        bench.scale_down(&run, Size { parallelism: 1, completions: Some(1) });
        bench.scale_down(&unknown, two());
        bench.runner().start(run.clone(), clock::now());
        assert_eq!(bench.until_ended().pods.len(), 2);
        assert!(!bench.dir(&unknown).path().exists());
        assert_eq!(
            bench.dir(&run).resize().unwrap().unwrap().size,
            two(),
            "the smallest size that was ordered while it ran"
        );
    });
}

#[test]
fn a_scale_down_survives_a_restart_of_the_agent() {
    for repeated in [true, false] {
        both(|mut bench| {
            let run = scalable(&bench);
            bench.runner().start(run.clone(), clock::now());
            bench.until_running();
            wrote(&bench, "at-3", 1);
            bench.scale_down(&run, two());
            bench.restart();
            bench.adopt();
            if repeated {
                bench.scale_down(&run, two());
            }
            bench.until_reclaimable(&run, &[2, 3]);
            bench.restart();
            bench.adopt();
            bench.until_reclaimable(&run, &[2, 3]);
            bench.complete_first_two(&run);
        });
    }
}

#[test]
fn a_moved_surplus_pod_is_not_started_again() {
    both(|mut bench| {
        let run = scalable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..4 {
            wrote(&bench, &format!("at-{index}"), 1);
        }
        let mut placement = run.placement.clone();
        for place in &mut placement[2..] {
            place.node = "m".into();
        }
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        bench.scale_down(&run, two());
        // Both are reported once the last pod has ended, in any order.
        let (mut moved, mut reclaimable) = (false, false);
        while !(moved && reclaimable) {
            match bench.next() {
                RunnerEvent::Moved { number: 1, .. } => moved = true,
                RunnerEvent::Reclaimable { places, .. } => reclaimable = places.len() == 2,
                event => panic!("{event:?}"),
            }
            let alive = left(&run).len();
            assert!(!moved || alive <= 4, "{alive} processes: only the two kept pods and their children");
        }
        bench.complete_first_two(&run);
        assert_eq!(
            (wrote(&bench, "at-2", 1), wrote(&bench, "at-3", 1)),
            (vec!["n2".to_owned()], vec!["n3".to_owned()])
        );
    });
}

#[test]
fn a_scale_down_of_parallelism_keeps_all_completions() {
    both(|mut bench| {
        // The directory exists while a pod works, so that two pods at once are noticed.
        let script = r#"cd DATA; echo x >> up-$JOB_COMPLETION_INDEX
            while ! test -f go; do sleep 0.01; done
            mkdir alone || echo "$JOB_COMPLETION_INDEX" >> together; ls > listing; rmdir alone"#;
        let script = script.replace("DATA", bench.data.path().to_str().unwrap());
        let run = start(
            &job(
                &script,
                json!({"parallelism": 3, "completions": 6, "completionMode": "Indexed", "backoffLimit": 0}),
            ),
            3,
            LONG,
        );
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..3 {
            wrote(&bench, &format!("up-{index}"), 1);
        }
        bench.scale_down(&run, Size { parallelism: 1, completions: None });
        bench.until_reclaimable(&run, &[1, 2]);
        std::fs::write(bench.data.path().join("go"), "").unwrap();
        let end = bench.until_ended();
        assert_eq!((end.result, end.pod_failures), (EndResult::Succeeded, 0));
        let tries: Vec<_> = end.pods.iter().map(|pod| (pod.index, pod.attempt, pod.exit_code)).collect();
        assert_eq!(tries, [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0)]);
        assert!(!bench.data.path().join("together").exists(), "two at once");
        assert!(left(&run).is_empty());
    });
}

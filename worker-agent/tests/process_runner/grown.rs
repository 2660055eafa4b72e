//! Gangs that grow while they run: what is added starts, and what runs is never touched.

use super::*;

/// Pods that run until they are told, each noting its starts and that it is told to stop.
fn growing(bench: &Bench, pods: u32) -> Start {
    let script = r#"cd DATA; trap 'echo told >> told-$JOB_COMPLETION_INDEX; exit 0' TERM
        echo "$MERIDIAN_NODE $CUDA_VISIBLE_DEVICES $MERIDIAN_POD_SLOT" >> at-$JOB_COMPLETION_INDEX
        while ! test -f done-$JOB_COMPLETION_INDEX; do sleep 0.01; done"#;
    let script = script.replace("DATA", bench.data.path().to_str().unwrap());
    start(
        &job(
            &script,
            json!({"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0}),
        ),
        pods,
        LONG,
    )
}

fn size(pods: u32) -> Size {
    Size { parallelism: pods, completions: Some(pods) }
}

/// The places of a run with some added behind them.
fn places(run: &Start, count: u32) -> Vec<PodPlacement> {
    let place = |index| PodPlacement {
        pod_set: "main".into(),
        index,
        node: format!("n{index}"),
        accelerators: vec![2 * index, 2 * index + 1],
    };
    let known = u32::try_from(run.placement.len()).unwrap();
    run.placement.iter().cloned().chain((known..count).map(place)).collect()
}

impl Bench {
    fn grow(&mut self, run: &Start, number: u32, count: u32, to: u32) {
        self.runner().grow(run.uid, run.fence, number, places(run, count), size(to));
    }

    fn until_moved(&mut self, run: &Start, number: u32) {
        loop {
            match self.next() {
                RunnerEvent::Moved { uid, number: told, .. } if uid == run.uid => {
                    return assert_eq!(told, number);
                }
                RunnerEvent::Spare { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }

    fn let_go(&self, indexes: std::ops::Range<u32>) {
        indexes.for_each(|index| std::fs::write(self.data.path().join(format!("done-{index}")), "").unwrap());
    }

    fn was_told(&self, index: u32) -> bool {
        self.data.path().join(format!("told-{index}")).exists()
    }
}

#[test]
fn pods_that_are_added_run_and_the_others_are_not_started_anew() {
    both(|mut bench| {
        let run = growing(&bench, 2);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..2 {
            wrote(&bench, &format!("at-{index}"), 1);
        }
        let before = left(&run);
        bench.grow(&run, 1, 4, 4);
        bench.until_moved(&run, 1);
        for index in 0..4 {
            assert_eq!(
                wrote(&bench, &format!("at-{index}"), 1),
                [format!("n{index} {},{} {index}", 2 * index, 2 * index + 1)]
            );
        }
        bench.grow(&run, 1, 4, 4);
        bench.until_moved(&run, 1);
        assert!((0..4).all(|index| !bench.was_told(index)));
        assert!(
            before.iter().filter(|pid| left(&run).contains(pid)).count() >= 2,
            "the guard and the pods of before are there still"
        );
        bench.let_go(0..4);
        let end = bench.until_ended();
        assert_eq!((end.result, end.failures), (RunResult::Succeeded, 0));
        assert_eq!(
            end.pods.iter().map(|pod| (pod.index, pod.attempt)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (2, 0), (3, 0)]
        );
        assert!(left(&run).is_empty());
    });
}

#[test]
fn sizes_go_up_and_down_in_the_order_in_which_they_are_said() {
    for restarted in [false, true] {
        both(|mut bench| {
            let run = growing(&bench, 3);
            bench.runner().start(run.clone(), clock::now());
            bench.until_running();
            wrote(&bench, "at-2", 1);
            // Smaller, and at once larger: the index that is ended runs again in a new place, never twice at once.
            bench.runner().shrink(run.uid, run.fence, size(2));
            bench.grow(&run, 1, 4, 3);
            if restarted {
                bench.restart();
                bench.runner().adopt();
                bench.grow(&run, 1, 4, 3);
            }
            bench.until_moved(&run, 1);
            assert_eq!(wrote(&bench, "at-2", 2), ["n2 4,5 2", "n3 6,7 3"]);
            assert!(bench.was_told(2) && bench.dir(&run).resize().unwrap().is_none());
            // Smaller again than it was then, and this time it stays so over restarts.
            bench.runner().shrink(run.uid, run.fence, size(2));
            let spare = within(|| bench.dir(&run).state().unwrap().filter(|state| state.spare == [2, 3]));
            assert!(spare.end.is_none());
            if restarted {
                bench.restart();
                bench.runner().adopt();
                bench.runner().shrink(run.uid, run.fence, size(2));
            }
            bench.let_go(0..2);
            let end = bench.until_ended();
            assert_eq!((end.result, end.failures), (RunResult::Succeeded, 0));
            assert_eq!((0..2).filter(|index| bench.was_told(*index)).count(), 0);
            assert!(left(&run).is_empty());
        });
    }
}

#[test]
fn a_gang_that_has_grown_moves_and_ends_whole() {
    both(|mut bench| {
        let run = growing(&bench, 1);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        bench.grow(&run, 1, 2, 2);
        bench.until_moved(&run, 1);
        wrote(&bench, "at-1", 1);
        let mut placement = places(&run, 2);
        placement[1].node = "m".into();
        bench.runner().move_pods(run.uid, run.fence, 2, placement);
        bench.until_moved(&run, 2);
        assert_eq!(wrote(&bench, "at-1", 2), ["n1 2,3 1", "m 2,3 1"]);
        assert_eq!(wrote(&bench, "at-0", 1).len(), 1);
        bench.runner().stop(run.uid, run.fence);
        assert_eq!(bench.until_ended().result, RunResult::Stopped);
        assert!(left(&run).is_empty());
        bench.grow(&run, 3, 3, 3);
        bench.runner().stop(run.uid, run.fence);
        bench.until_ended();
    });
}

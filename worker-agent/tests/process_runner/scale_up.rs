//! Scale-ups of running gangs.

use super::*;

/// Pods that run until a file appears, and write their starts and signals.
fn elastic(bench: &Bench, pods: u32) -> Start {
    let script = r#"cd DATA; trap 'echo signalled >> signalled-$JOB_COMPLETION_INDEX; exit 0' TERM
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

/// The placement of a run with added pods.
fn places(run: &Start, count: u32) -> Vec<PodPlacement> {
    let place = |index| PodPlacement {
        pod_set: "main".into(),
        index,
        node: format!("n{index}"),
        accelerators: gpus(&[2 * index, 2 * index + 1]),
    };
    let known = u32::try_from(run.placement.len()).unwrap();
    run.placement.iter().cloned().chain((known..count).map(place)).collect()
}

impl Bench {
    fn scale_up(&mut self, run: &Start, number: u32, count: u32, to: u32) {
        self.runner().scale_up(run.uid, run.fence, number, places(run, count), size(to));
    }

    fn until_moved(&mut self, run: &Start, number: u32) {
        loop {
            match self.next() {
                RunnerEvent::Moved { uid, number: reported, .. } if uid == run.uid => {
                    return assert_eq!(reported, number);
                }
                RunnerEvent::Reclaimable { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }

    fn finish_pods(&self, indexes: std::ops::Range<u32>) {
        indexes.for_each(|index| std::fs::write(self.data.path().join(format!("done-{index}")), "").unwrap());
    }

    fn was_signalled(&self, index: u32) -> bool {
        self.data.path().join(format!("signalled-{index}")).exists()
    }
}

#[test]
fn only_added_pods_are_started() {
    both(|mut bench| {
        let run = elastic(&bench, 2);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        for index in 0..2 {
            wrote(&bench, &format!("at-{index}"), 1);
        }
        let before = left(&run);
        bench.scale_up(&run, 1, 4, 4);
        bench.until_moved(&run, 1);
        for index in 0..4 {
            assert_eq!(
                wrote(&bench, &format!("at-{index}"), 1),
                [format!("n{index} {},{} {index}", 2 * index, 2 * index + 1)]
            );
        }
        bench.scale_up(&run, 1, 4, 4);
        bench.until_moved(&run, 1);
        assert!((0..4).all(|index| !bench.was_signalled(index)));
        assert!(
            before.iter().filter(|pid| left(&run).contains(pid)).count() >= 2,
            "the guard and the first pods still run"
        );
        bench.finish_pods(0..4);
        let end = bench.until_ended();
        assert_eq!((end.result, end.pod_failures), (EndResult::Succeeded, 0));
        assert_eq!(
            end.pods.iter().map(|pod| (pod.index, pod.attempt)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (2, 0), (3, 0)]
        );
        assert!(left(&run).is_empty());
    });
}

#[test]
fn sizes_change_in_the_order_of_the_commands() {
    for restarted in [false, true] {
        both(|mut bench| {
            let run = elastic(&bench, 3);
            bench.runner().start(run.clone(), clock::now());
            bench.until_running();
            wrote(&bench, "at-2", 1);
            // Down, then up at once: the ended index runs again in a new position, never twice at once.
            bench.runner().scale_down(run.uid, run.fence, size(2));
            bench.scale_up(&run, 1, 4, 3);
            if restarted {
                bench.restart();
                bench.adopt();
                bench.scale_up(&run, 1, 4, 3);
            }
            bench.until_moved(&run, 1);
            assert_eq!(wrote(&bench, "at-2", 2), ["n2 4,5 2", "n3 6,7 3"]);
            assert!(bench.was_signalled(2) && bench.dir(&run).resize().unwrap().is_none());
            // Down again; the size survives restarts.
            bench.runner().scale_down(run.uid, run.fence, size(2));
            let state =
                within(|| bench.dir(&run).state().unwrap().filter(|state| state.reclaimable == [2, 3]));
            assert!(state.end.is_none());
            if restarted {
                bench.restart();
                bench.adopt();
                bench.runner().scale_down(run.uid, run.fence, size(2));
            }
            bench.finish_pods(0..2);
            let end = bench.until_ended();
            assert_eq!((end.result, end.pod_failures), (EndResult::Succeeded, 0));
            assert_eq!((0..2).filter(|index| bench.was_signalled(*index)).count(), 0);
            assert!(left(&run).is_empty());
        });
    }
}

#[test]
fn a_scaled_up_gang_moves_and_stops_whole() {
    both(|mut bench| {
        let run = elastic(&bench, 1);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        bench.scale_up(&run, 1, 2, 2);
        bench.until_moved(&run, 1);
        wrote(&bench, "at-1", 1);
        let mut placement = places(&run, 2);
        placement[1].node = "m".into();
        bench.runner().move_pods(run.uid, run.fence, 2, placement);
        bench.until_moved(&run, 2);
        assert_eq!(wrote(&bench, "at-1", 2), ["n1 2,3 1", "m 2,3 1"]);
        assert_eq!(wrote(&bench, "at-0", 1).len(), 1);
        bench.runner().stop(run.uid, run.fence);
        assert_eq!(bench.until_ended().result, EndResult::Stopped);
        assert!(left(&run).is_empty());
        bench.scale_up(&run, 3, 3, 3);
        bench.runner().stop(run.uid, run.fence);
        bench.until_ended();
    });
}

//! Moves of pods to other nodes.

use super::*;

/// Two pods that write their node, and whether their earlier process is still alive. The second pod ignores
/// the stop signal.
fn movable(bench: &Bench) -> Start {
    let script = r#"cd DATA; echo "$MERIDIAN_NODE $CUDA_VISIBLE_DEVICES" >> at-$MERIDIAN_POD_INDEX
        test -f pid-$MERIDIAN_POD_INDEX && kill -0 $(cat pid-$MERIDIAN_POD_INDEX) 2>/dev/null \
            && echo twice >> twice
        echo $$ > pid-$MERIDIAN_POD_INDEX
        test $MERIDIAN_POD_INDEX = 1 && trap '' TERM
        while ! test -f done; do sleep 0.01; done"#;
    let script = script.replace("DATA", bench.data.path().to_str().unwrap());
    start(&job(&script, json!({"parallelism": 2, "completions": 2, "backoffLimit": 0})), 2, LONG)
}

#[test]
fn moved_pods_start_again_after_they_ended() {
    both(|mut bench| {
        let run = movable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        wrote(&bench, "at-0", 1);
        wrote(&bench, "at-1", 1);
        let mut placement = run.placement.clone();
        placement[1] = PodPlacement { node: "m".into(), accelerators: gpus(&[6, 7]), ..placement[1].clone() };
        bench.runner().move_pods(run.uid, run.fence, 1, placement.clone());
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        assert_eq!(wrote(&bench, "at-1", 2), ["n1 2,3", "m 6,7"]);
        assert_eq!(wrote(&bench, "at-0", 1), ["n0 0,1"]);
        assert!(!bench.data.path().join("twice").exists(), "the pod ran twice at once");
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        assert_eq!(
            bench.next(),
            RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 },
            "a repeated move is only answered"
        );
        std::fs::write(bench.data.path().join("done"), "").unwrap();
        let end = bench.until_ended();
        assert_eq!((end.result, end.pod_failures), (EndResult::Succeeded, 0));
        assert_eq!(wrote(&bench, "at-1", 2).len(), 2);
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_move_survives_a_restart_of_the_agent() {
    both(|mut bench| {
        let run = movable(&bench);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        wrote(&bench, "at-1", 1);
        let mut placement = run.placement.clone();
        placement[1].node = "m".into();
        bench.runner().move_pods(run.uid, run.fence, 1, placement.clone());
        bench.restart();
        let found = bench.adopt();
        assert!(found.iter().any(|f| f.uid == run.uid && f.state == LIVE), "{found:?}");
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        assert_eq!(wrote(&bench, "at-1", 2), ["n1 2,3", "m 2,3"]);
        assert!(!bench.data.path().join("twice").exists(), "the pod ran twice at once");
        bench.restart();
        assert_eq!(bench.adopt()[0].nodes, ["n0", "m"], "the new placement is on disk");
        bench.runner().stop(run.uid, run.fence);
        assert_eq!(bench.until_ended().result, EndResult::Stopped);
        assert!(left(&run).is_empty());
    });
}

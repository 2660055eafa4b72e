//! Stops: no process of a gang is left, and a stopped name is never started.

use super::*;

#[test]
fn a_stop_ends_the_whole_tree_with_daemons() {
    both(|mut bench| {
        // The daemon leaves its parent, its group and its session, and ignores the signal.
        let ready = bench.data.path().join("ready");
        let daemon = format!("trap '' TERM; echo $$ > {}; while :; do sleep 1; done", ready.display());
        let script = format!(
            "(setsid sh -c \"{}\" &) ; trap 'exit 0' TERM; while :; do sleep 0.01; done",
            daemon.replace('$', "\\$")
        );
        let run = start(&job(&script, json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        within(|| std::fs::read_to_string(&ready).ok().filter(|t| t.ends_with('\n')));
        assert!(left(&run).len() >= 2);
        bench.runner().stop(run.uid, run.fence);
        let end = bench.until_ended();
        assert_eq!(end.result, EndResult::Stopped, "a pod that exits 0 on a stop has not completed the job");
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_stop_for_an_unknown_fence_forbids_its_start() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({})), 1, LONG);
    bench.runner().stop(run.uid, run.fence);
    assert_eq!(bench.until_ended().result, EndResult::Stopped);
    bench.runner().start(run.clone(), clock::now());
    assert_eq!(bench.until_ended().result, EndResult::Stopped);
    assert!(left(&run).is_empty() && bench.dir(&run).identity().unwrap().is_none(), "no guard was started");
    bench.restart();
    let found = bench.adopt();
    assert!(matches!(&found[0].state, FoundState::Ended { result: EndResult::Stopped, .. }));
}

#[test]
fn a_stop_is_confirmed_only_once_it_is_on_disk() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({})), 1, LONG);
    // Nothing can be created below a file, as on a full or broken disk.
    let in_the_way = bench.data.path().join("runs").join(run.uid.to_string());
    std::fs::write(&in_the_way, "").unwrap();
    bench.runner().stop(run.uid, run.fence);
    // The start comes after the stop in the same queue, so the name is occupied by then.
    bench.runner().start(run.clone(), clock::now());
    let other = start(&job("exit 0", json!({})), 1, LONG);
    bench.runner().start(other.clone(), clock::now());
    loop {
        match bench.next() {
            RunnerEvent::Ended { uid, .. } if uid == other.uid => break,
            event => assert_eq!(
                event,
                RunnerEvent::Running { uid: other.uid, fence: other.fence },
                "only a durable stop is confirmed"
            ),
        }
    }
    std::fs::remove_file(&in_the_way).unwrap();
    assert_eq!(bench.until_ended().result, EndResult::Stopped);
    assert!(left(&run).is_empty() && bench.dir(&run).start_forbidden());
}

//! Guards that are killed, stuck or lost.

use super::*;

#[test]
fn a_guard_without_its_directory_ends_with_its_gang() {
    both(|mut bench| {
        let run = start(&job("exec sleep 600", json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let dir = bench.dir(&run);
        let guard = guard_pid(&dir);
        std::fs::remove_dir_all(dir.path()).unwrap();
        bench.runner().stop(run.uid, run.fence);
        within(|| (!Path::new(&format!("/proc/{guard}")).exists()).then_some(()));
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_killed_guard_ends_its_gang() {
    both(|mut bench| {
        let script = "(setsid sh -c 'while :; do sleep 0.01; done' &); while :; do sleep 0.01; done";
        let run = start(&job(script, json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        within(|| (left(&run).len() >= 2).then_some(()));
        kill9(guard_pid(&bench.dir(&run)));
        let end = bench.until_ended();
        assert!(matches!(end.result, EndResult::NodeLost { .. }), "{end:?}");
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_killed_guard_ends_its_namespace_without_an_agent() {
    let mut bench = Bench::new(true);
    if bench.runner().enforcement() != Enforcement::Guarded {
        return;
    }
    let run = start(&job("(setsid sleep 600 &); exec sleep 600", json!({})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    drop(bench.runner.take());
    kill9(guard_pid(&bench.dir(&run)));
    within(|| left(&run).is_empty().then_some(()));
}

#[test]
fn the_next_agent_ends_a_run_without_a_guard() {
    let mut bench = Bench::new(false);
    let run = start(&job("(setsid sleep 600 &); sleep 600", json!({})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    within(|| (left(&run).len() >= 2).then_some(()));
    drop(bench.runner.take());
    kill9(guard_pid(&bench.dir(&run)));
    bench.restart();
    let found = bench.adopt();
    if !matches!(found[0].state, FoundState::Ended { .. }) {
        assert!(matches!(bench.until_ended().result, EndResult::NodeLost { .. }));
    }
    assert!(left(&run).is_empty());
}

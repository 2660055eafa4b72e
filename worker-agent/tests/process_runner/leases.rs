//! Deadlines and renewals.

use super::*;

#[test]
fn the_deadline_ends_a_gang_without_any_agent() {
    both(|mut bench| {
        // Both pods ignore the signal, and write the boot time in seconds while they run.
        let script = format!(
            "trap '' TERM; while :; do cat /proc/uptime >> {}/beat-$MERIDIAN_POD_INDEX; done",
            bench.data.path().display()
        );
        let mut run = start(&job(&script, json!({"parallelism": 2, "completions": 2})), 2, Millis(2_500));
        run.stop_budget = Millis(1_600);
        bench.runner.as_mut().unwrap().start(run.clone(), clock::now());
        assert!(matches!(bench.next(), RunnerEvent::Running { .. }));
        drop(bench.runner.take());
        let dir = bench.dir(&run);
        let end = within(|| dir.end().unwrap());
        assert_eq!(end.result, EndResult::LeaseLapsed);
        assert!(left(&run).is_empty());
        for pod in 0..2 {
            let beats = std::fs::read_to_string(bench.data.path().join(format!("beat-{pod}"))).unwrap();
            let last: f64 = beats
                .rsplit_once('\n')
                .unwrap()
                .0
                .lines()
                .last()
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let deadline = run.lapses().0 as f64 / 1_000.0;
            assert!(last < deadline, "pod {pod} still ran at {last}, and nothing may run at {deadline}");
            assert!(last > deadline - 1.6, "pod {pod} was cut off at {last}, before its stop was due");
        }
        bench.restart();
        let found = bench.adopt();
        let is_end =
            |state: &FoundState| matches!(state, FoundState::Ended { result, .. } if *result == end.result);
        assert!(matches!(&found[..], [f] if is_end(&f.state)), "{found:?}");
    });
}

#[test]
fn a_renewal_extends_the_deadline_after_a_restart() {
    for restarted in [false, true] {
        let mut bench = Bench::new(true);
        let script = format!(
            "while test $(cut -d. -f1 /proc/uptime) -le {}; do sleep 0.02; done",
            clock::now().mono.0 / 1_000 + 3
        );
        let run = start(&job(&script, json!({})), 1, Millis(2_000));
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        if restarted {
            bench.restart();
            bench.adopt();
        }
        bench.runner().renew(run.uid, run.fence, run.lapses() + LONG, clock::now());
        assert_eq!(bench.until_ended().result, EndResult::Succeeded);
        assert!(clock::now().mono > run.lapses());
    }
}

#[test]
fn a_stuck_guard_is_killed_at_its_deadline() {
    let mut bench = Bench::new(true);
    let run = start(&job("while :; do sleep 0.01; done", json!({})), 1, Millis(1_500));
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    let guard = guard_pid(&bench.dir(&run)).to_string();
    assert!(std::process::Command::new("kill").args(["-STOP", &guard]).status().unwrap().success());
    assert_eq!(bench.until_ended().result, EndResult::LeaseLapsed);
    assert!(left(&run).is_empty());
}

#[test]
fn lapsed_grants_and_unrunnable_jobs_start_nothing() {
    let mut bench = Bench::new(true);
    let late = start(&job("touch ran", json!({})), 1, BUDGET);
    bench.runner().start(late.clone(), clock::now());
    assert_eq!(
        bench.next(),
        RunnerEvent::Ended {
            uid: late.uid,
            fence: late.fence,
            result: EndResult::LeaseLapsed,
            pod_failures: 0,
            ran: Millis(0),
        }
    );

    // The lease is valid by boot time, but the machine was paused since it was computed.
    let paused = start(&job("touch ran", json!({})), 1, LONG);
    let now = clock::now();
    bench.runner().start(paused.clone(), Now { wall: Wall(now.wall.0 - 120_000), ..now });
    let end = bench.until_ended();
    assert!(end.result == EndResult::LeaseLapsed && end.pods.is_empty(), "{end:?}");

    let no_command =
        start(r#"{"spec":{"template":{"spec":{"containers":[{"image":"x","args":["120s"]}]}}}}"#, 1, LONG);
    let spec = JobSpec::parse(&no_command.spec).unwrap();
    assert!(bench.runner().accepts(&spec).unwrap_err().contains("`command`"));
    bench.runner().start(no_command, clock::now());
    let end = bench.until_ended();
    assert!(
        matches!(
            &end.result,
            EndResult::Failed { reason, message } if reason == "NotRunnable" && message.contains("`command`")
        ),
        "{end:?}"
    );
}

//! Gangs from start to end, retries, output, and what the next agent finds.

use super::*;

#[test]
fn a_gang_of_three_runs_with_output_and_devices() {
    both(|mut bench| {
        let script = concat!(
            r#"echo "pod $JOB_COMPLETION_INDEX of $MERIDIAN_JOB in $MERIDIAN_REGION "#,
            r#"sees $CUDA_VISIBLE_DEVICES in $PWD"; echo oops >&2"#
        );
        let run = start(
            &job(script, json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"})),
            3,
            LONG,
        );
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let end = bench.until_ended();
        assert_eq!(end.result, EndResult::Succeeded);
        assert_eq!(
            end.pods.iter().map(|p| (p.index, p.exit_code)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (2, 0)]
        );
        let log = bench.logs(&run, Some(1));
        assert!(
            log.starts_with("pod 1 of train in europe-west4 sees 2,3 in ")
                && log.contains("/pod-1-0/work\noops\n"),
            "{log}"
        );
        assert_eq!(bench.logs(&run, None).lines().count(), 6);
        assert!(left(&run).is_empty());

        // A repeated start starts nothing and reports the end.
        bench.runner().start(run.clone(), clock::now());
        assert_eq!(bench.until_ended(), end);
        bench.runner().forget(run.uid, run.fence);
        let dir = bench.dir(&run);
        within(|| (!dir.path().exists()).then_some(()));
    });
}

#[test]
fn failed_pods_are_retried_until_the_limit() {
    let mut bench = Bench::new(true);
    // The third try finds the files of the first two and succeeds.
    let counter = bench.data.path().join("tries");
    let script = format!("echo x >> {0}; test $(wc -l < {0}) -ge 3 || exit 9", counter.display());
    let run = start(&job(&script, json!({"backoffLimit": 2})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    for count in 1..=2 {
        assert!(matches!(bench.next(), RunnerEvent::PodsFailed { failures, .. } if failures == count));
    }
    let end = bench.until_ended();
    assert_eq!((end.result, end.pod_failures, end.pods[0].attempt), (EndResult::Succeeded, 2, 2));

    let mut hopeless = start(&job("exit 7", json!({"backoffLimit": 3})), 1, LONG);
    hopeless.pod_failures = 2;
    bench.runner().start(hopeless, clock::now());
    let end = bench.until_ended();
    assert!(
        matches!(&end.result, EndResult::Failed { reason, .. } if reason == "BackoffLimitExceeded"),
        "{end:?}"
    );
    assert_eq!((end.pod_failures, end.pods[0].exit_code, end.pods[0].attempt), (4, 7, 1));

    let template = json!({"spec": {"containers": [{"command": ["/no/such/program"]}]}});
    let missing = json!({"spec": {"backoffLimit": 0, "template": template}}).to_string();
    bench.runner().start(start(&missing, 1, LONG), clock::now());
    let end = bench.until_ended();
    assert_eq!(end.pods[0].exit_code, 127);
    assert!(end.pods[0].message.as_ref().unwrap().contains("/no/such/program"), "{end:?}");
}

#[test]
fn a_job_over_its_run_time_ends() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({"activeDeadlineSeconds": 1})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    let end = bench.until_ended();
    assert!(
        matches!(&end.result, EndResult::Failed { reason, .. } if reason == "DeadlineExceeded"),
        "{end:?}"
    );
    assert_eq!(end.pods[0].exit_code, 143);
    assert!(left(&run).is_empty());
}

#[test]
fn succeeded_pods_become_reclaimable() {
    both(|mut bench| {
        // The first pod ends at once, the others on a file. The first position runs a second pod.
        let data = bench.data.path().display().to_string();
        let script = format!(
            "echo > {data}/began-$JOB_COMPLETION_INDEX; while test $JOB_COMPLETION_INDEX != 0 && ! test -f \
             {data}/done-$JOB_COMPLETION_INDEX; do sleep 0.01; done"
        );
        let run = start(
            &job(&script, json!({"parallelism": 3, "completions": 4, "completionMode": "Indexed"})),
            3,
            LONG,
        );
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let done = |index: u32| std::fs::write(format!("{data}/done-{index}"), "").unwrap();
        let reclaimable = |places: &[u32]| RunnerEvent::Reclaimable {
            uid: run.uid,
            fence: run.fence,
            places: places.iter().map(|at| ("main".to_owned(), *at)).collect(),
        };
        wrote(&bench, "began-3", 1);
        done(2);
        assert_eq!(bench.next(), reclaimable(&[2]), "the first position is in use again");
        bench.restart();
        bench.adopt();
        assert_eq!(bench.next(), reclaimable(&[2]), "the next agent may not know it");
        // The other pods can still be moved, and the reclaimable one is not started again.
        let mut placement = run.placement.clone();
        placement[1].node = "m".into();
        bench.runner().move_pods(run.uid, run.fence, 1, placement);
        assert_eq!(bench.next(), RunnerEvent::Moved { uid: run.uid, fence: run.fence, number: 1 });
        done(1);
        assert_eq!(bench.next(), reclaimable(&[1, 2]));
        done(3);
        let end = bench.until_ended();
        assert_eq!((end.result, end.pods.len(), end.pod_failures), (EndResult::Succeeded, 4, 0));
        assert!(left(&run).is_empty());
    });
}

#[test]
fn a_restarted_agent_adopts_its_gangs() {
    both(|mut bench| {
        let go = bench.data.path().join("go");
        let script = format!("while ! test -e {}; do sleep 0.01; done; echo done; exit 0", go.display());
        let run = start(&job(&script, json!({})), 1, LONG);
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        let guard = guard_pid(&bench.dir(&run));
        bench.restart();
        let found = bench.adopt();
        assert!(
            matches!(&found[..], [f] if (f.uid, f.fence) == (run.uid, run.fence) && f.state == LIVE),
            "{found:?}"
        );
        bench.runner().renew(run.uid, run.fence, run.lapses() + LONG, clock::now());
        // A repeated start reports the state of the run.
        bench.runner().start(run.clone(), clock::now());
        bench.until_running();
        assert_eq!(guard_pid(&bench.dir(&run)), guard);
        std::fs::write(&go, "").unwrap();
        assert_eq!(bench.until_ended().result, EndResult::Succeeded);
        assert_eq!(bench.logs(&run, None), "done\n");
    });
}

#[test]
fn a_reboot_loses_every_run() {
    let mut bench = Bench::new(true);
    let run = start(&job("exec sleep 600", json!({})), 1, LONG);
    bench.runner().start(run.clone(), clock::now());
    bench.until_running();
    bench.runner().stop(run.uid, run.fence);
    bench.until_ended();
    drop(bench.runner.take());
    // The files as they are after a crash of the machine in mid-run.
    let dir = bench.dir(&run);
    let mut plan = dir.plan().unwrap().unwrap();
    plan.boot_id = "another boot".into();
    dir.write_plan(&plan).unwrap();
    for gone in ["state.json", "stop"] {
        std::fs::remove_file(dir.path().join(gone)).unwrap();
    }
    bench.restart();
    let found = bench.adopt();
    assert!(
        matches!(
            &found[0].state,
            FoundState::Ended { result: EndResult::NodeLost { message }, .. } if message.contains("restarted")
        ),
        "{found:?}"
    );
}

#[test]
fn a_disabled_runner_starts_nothing() {
    let data = tempfile::tempdir().unwrap();
    let (sender, mut events) = channel(4);
    let mut settings = Settings::new(false, data.path().to_owned(), "eu".into(), "r".into());
    settings.guard = PathBuf::from(env!("CARGO_BIN_EXE_meridian-agent"));
    let mut runner = ProcessRunner::open(settings, sender).unwrap();
    let run = start(&job("true", json!({})), 1, LONG);
    assert!(runner.accepts(&JobSpec::parse(&run.spec).unwrap()).unwrap_err().contains("enable"));
    runner.start(run, clock::now());
    let event = within(|| events.try_recv().ok());
    assert!(matches!(event, RunnerEvent::Ended { result: EndResult::Failed { .. }, .. }), "{event:?}");
}

#[test]
fn completed_indexes_are_reported_and_not_run_again() {
    both(|mut bench| {
        let data = bench.data.path().display().to_string();
        let script = format!(
            "echo > {data}/began-$JOB_COMPLETION_INDEX; test $JOB_COMPLETION_INDEX != 3 || sleep 600"
        );
        let spec = job(&script, json!({"parallelism": 2, "completions": 4, "completionMode": "Indexed"}));
        let run = Start { completed: "1".parse().unwrap(), ..start(&spec, 2, LONG) };
        bench.runner().start(run.clone(), clock::now());
        let reported = within(|| match bench.events.try_recv().ok()? {
            RunnerEvent::Completed { indexes, .. } if indexes.to_string() == "0-2" => Some(indexes),
            _ => None,
        });
        assert!(!bench.data.path().join("began-1").exists(), "it succeeded in an earlier attempt");
        bench.runner().stop(run.uid, run.fence);
        assert_eq!(bench.until_ended().completed, reported);
        assert_eq!(bench.adopt()[0].completed, reported);
    });
}

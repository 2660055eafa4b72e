//! The engine on a faulty disk: acknowledged changes survive, others are never published, and the engine goes
//! on.

use crate::rig::{DEADLINE, FastClock, Rig, Worker, apply, delete, job, put, submit, until};
use meridian_manager::engine::{Error, Unavailable, WatchEventType};
use meridian_manager::host::replay::ReplayError;
use meridian_manager::journal::{Batch, Journal, RedbJournal};
use meridian_objects::Kind;
use meridian_shared::ids::Leadership;
use meridian_views::asker::Asker;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn epoch(recovery: &serde_json::Value) -> u64 {
    recovery["leadership"].as_str().unwrap().split('-').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn only_durable_submissions_are_published_over_a_power_loss() {
    for (round, operations) in [0, 3, 10, 40, 90].into_iter().enumerate() {
        let rig = Rig::new().await;
        rig.create_queues(&[]).await;
        let mut watch = rig.handle.reads().watch(rig.handle.reads().version(), Asker::unlimited()).unwrap();
        rig.disk.power_off_after(operations);
        let submits: Vec<_> = (0..200)
            .map(|i| {
                let handle = rig.handle.clone();
                tokio::spawn(
                    async move { submit(&handle, &format!("job-{i}")).await.map(|_| format!("job-{i}")) },
                )
            })
            .collect();
        let mut acknowledged = BTreeSet::new();
        for submitted in submits {
            acknowledged.extend(submitted.await.unwrap().ok());
        }
        let disk = rig.disk.crash();
        let handle = rig.handle.clone();
        let (disk, clock, _) = rig.die(disk).await;
        // the engine has ended, so this is all that a watcher could see
        let mut published = BTreeSet::new();
        while let Some(Ok(change)) = value_if_ready(watch.next()) {
            if change.view.key.kind == Kind::Job && change.event == WatchEventType::Added {
                published.insert(change.view.key.name.to_string());
            }
        }
        drop(handle);
        let marks = std::sync::Arc::new(tempfile::tempdir().unwrap());
        let rig = Rig::open(disk, clock, marks);
        let (jobs, _) = rig.handle.reads().list(Kind::Job, None, None, &Asker::unlimited());
        let durable: BTreeSet<String> = jobs.iter().map(|view| view.key.name.to_string()).collect();
        assert!(
            acknowledged.is_subset(&durable),
            "round {round}: lost {:?}",
            acknowledged.difference(&durable)
        );
        assert!(
            published.is_subset(&durable),
            "round {round}: published and lost {:?}",
            published.difference(&durable)
        );
        assert!(acknowledged.len() < 200 || operations > 0, "round {round}: the power was cut");
        // stopped before it leads, so it leaves no mark
        rig.stop().await;
    }
}

#[tokio::test]
async fn every_caller_is_answered_while_the_disk_stays_broken() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    rig.disk.power_off_after(0);
    // more at once than a batch takes, so that some have left the queue and are in no batch when the commit
    // fails
    let inputs: Vec<_> = (0..3_000).map(|i| apply(vec![job(&format!("job-{i}"), 1)])).collect();
    let answers = futures::future::join_all(inputs.into_iter().map(|input| rig.handle.ask(input)));
    let answers = tokio::time::timeout(DEADLINE, answers).await.expect("every caller is answered");
    for answer in answers {
        assert!(matches!(answer, Err(Unavailable::NotCommitted | Unavailable::NotLeading)), "{answer:?}");
    }
    let disk = rig.disk.crash();
    rig.die(disk).await;
}

/// The value of a future, if it is ready now.
fn value_if_ready<T>(future: impl Future<Output = T>) -> Option<T> {
    futures::FutureExt::now_or_never(future)
}

#[tokio::test]
async fn a_failed_commit_is_reported_and_loses_nothing() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    let before = rig.handle.recovery(Asker::unlimited()).await;
    let mut tried = 0;
    // a heartbeat may run into the fault instead
    let mut failed = None;
    until("a commit fails", async || {
        tried += 1;
        rig.disk.fail_syncs(1);
        failed = submit(&rig.handle, &format!("tried-{tried}")).await.err();
        failed == Some(Unavailable::NotCommitted)
    })
    .await;
    // a repetition is harmless, whether or not the first try is durable
    let name = format!("tried-{tried}");
    until("it continues", async || submit(&rig.handle, &name).await.is_ok()).await;
    assert_eq!(rig.state_of(&name).as_deref().map(|s| s != "Finished"), Some(true));
    let after = rig.handle.recovery(Asker::unlimited()).await;
    assert!(epoch(&after) > epoch(&before), "a higher epoch: {before} {after}");
    assert_eq!(after["open"], false, "no other manager can have led, so recovery is skipped");
    // the gang kept running, and its agent continues with the new leadership
    assert_eq!(rig.state_of("runs").as_deref(), Some("Running"));
    worker
        .until(&rig.handle, "the other runs too", |_| rig.state_of(&name).as_deref() == Some("Running"))
        .await;
    assert!(worker.runs.len() >= 2 && worker.starts == worker.runs.len(), "nothing was started twice");
    worker.finish();
    worker.until(&rig.handle, "finished", |_| rig.state_of("runs").as_deref() == Some("Finished")).await;
    rig.stop().await;
}

/// Number of jobs that the engine has accepted, durable or not.
fn taken(rig: &Rig) -> usize {
    let text = rig.handle.metrics().render(&["meridian_submissions_total".to_owned()]);
    let line =
        text.lines().find_map(|line| line.strip_prefix("meridian_submissions_total{result=\"accepted\"} "));
    line.map_or(0, |n| n.parse().unwrap())
}

/// Number of pending workloads by the gauges.
fn waiting(rig: &Rig) -> u64 {
    let text = rig.handle.metrics().render(&["kueue_pending_workloads".to_owned()]);
    let number = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
    text.lines().filter(|line| line.starts_with("kueue_pending_workloads{")).filter_map(number).sum()
}

/// Submits `first` and then `second` while the disk stalls. Once the engine has accepted both, the disk
/// answers or fails.
async fn submit_two_to_a_stalled_disk(rig: &Rig, fails: bool) -> [Result<(), Unavailable>; 2] {
    let before = taken(rig);
    let waited = waiting(rig);
    let mut stalled = rig.disk.stall();
    let ask = |name: &'static str| {
        let handle = rig.handle.clone();
        tokio::spawn(async move { submit(&handle, name).await.map(|_| ()) })
    };
    let first = ask("first");
    until("the first is accepted", async || taken(rig) == before + 1).await;
    let second = ask("second");
    until("the second is accepted meanwhile", async || taken(rig) == before + 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "no reply before the commit");
    assert!(rig.job("first").is_none() && rig.job("second").is_none(), "not published before the commit");
    assert_eq!(waiting(rig), waited, "not counted before the commit");
    stalled.fail_syncs(u32::from(fails));
    drop(stalled);
    [first.await.unwrap(), second.await.unwrap()]
}

#[tokio::test]
async fn the_next_batch_is_decided_during_a_commit() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    assert_eq!(submit_two_to_a_stalled_disk(&rig, false).await, [Ok(()), Ok(())]);
    assert!(rig.job("first").is_some() && rig.job("second").is_some());
    until("gauges follow", async || waiting(&rig) == 2).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_failed_batch_voids_the_next_one() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    let failed = Err(Unavailable::NotCommitted);
    assert_eq!(submit_two_to_a_stalled_disk(&rig, true).await, [failed, failed]);
    rig.led().await;
    assert!(rig.job("second").is_none(), "it was never written");
    for name in ["first", "second"] {
        until("a repetition succeeds", async || submit(&rig.handle, name).await.is_ok()).await;
        assert!(rig.job(name).is_some());
    }
    rig.stop().await;
}

/// The state of recovery, once the manager leads.
async fn recovery(rig: &Rig) -> serde_json::Value {
    let mut state = serde_json::Value::Null;
    until("the manager leads", async || {
        state = rig.handle.recovery(Asker::unlimited()).await;
        !state.is_null()
    })
    .await;
    state
}

#[tokio::test]
async fn a_full_disk_accepts_ends_only_and_does_not_loop() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    for name in ["runs", "goes"] {
        submit(&rig.handle, name).await.unwrap();
    }
    worker
        .until(&rig.handle, "running", |w| {
            w.runs.len() == 2 && rig.state_of("runs").as_deref() == Some("Running")
        })
        .await;
    rig.disk.set_capacity(rig.disk.used_bytes());
    let mut number = 0;
    let mut acknowledged = Vec::new();
    until("the disk is full", async || {
        number += 1;
        let mut large = crate::rig::job(&format!("large-{number}"), 1);
        large["metadata"]["annotations"] = serde_json::json!({"a": "x".repeat(200_000)});
        match put(&rig.handle, vec![large]).await {
            Ok(_) => acknowledged.push(format!("large-{number}")),
            // the batch that didn't fit is refused with this reason too
            Err(Unavailable::Full) => return true,
            Err(Unavailable::NotLeading) => {}
            Err(other) => panic!("{other}"),
        }
        false
    })
    .await;
    until("it is reported", async || {
        let _ = recovery(&rig).await;
        rig.handle.problems().iter().any(|problem| problem.contains("journal is full"))
    })
    .await;
    let full = recovery(&rig).await;
    assert_eq!(full["open"], false);
    // also between two attempts to store new work
    let reported = Instant::now();
    while reported.elapsed() < Duration::from_secs(3) {
        let problems = rig.handle.problems();
        let leads = rig.handle.leading();
        assert!(!leads || problems.iter().any(|one| one.contains("journal is full")), "{problems:?}");
        let _ = submit(&rig.handle, "more").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // ends and deletions are accepted
    until("a deletion", async || delete(&rig.handle, "goes").await.is_ok()).await;
    worker.until(&rig.handle, "it was stopped", |w| w.runs.len() == 1 && rig.job("goes").is_none()).await;
    worker.finish();
    worker.until(&rig.handle, "finished", |_| rig.state_of("runs").as_deref() == Some("Finished")).await;
    for _ in 0..50 {
        let refused = submit(&rig.handle, "more").await;
        assert!(refused.is_err() || acknowledged.is_empty(), "{refused:?}");
    }
    let still = recovery(&rig).await;
    assert_eq!(still["open"], false);
    assert!(epoch(&still) <= epoch(&full) + 3, "no loop of reloads: {full} {still}");
    for name in &acknowledged {
        assert!(rig.job(name).is_some(), "{name} was acknowledged");
    }
    rig.disk.set_capacity(u64::MAX);
    until("there is space again", async || submit(&rig.handle, "more").await.is_ok()).await;
    until("nothing is wrong", async || {
        let _ = recovery(&rig).await;
        rig.handle.problems().is_empty()
    })
    .await;
    rig.stop().await;
}

#[tokio::test]
async fn an_idle_manager_reports_a_disk_without_free_space() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let is_full = || rig.handle.problems().iter().any(|problem| problem.contains("journal is full"));
    assert!(!is_full());
    rig.disk.set_capacity(rig.disk.used_bytes());
    until("it is reported", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        is_full()
    })
    .await;
    rig.disk.set_capacity(u64::MAX);
    until("there is space again", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        !is_full()
    })
    .await;
    rig.stop().await;
}

#[tokio::test]
async fn on_a_full_disk_leases_lapse_and_retention_ends() {
    let rig = Rig::with_clock(FastClock::of(20)).await;
    rig.create_queues(&["eu"]).await;
    let policy = serde_json::json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "short"},
        "spec": {"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Fence", "term": "1m"}},
    });
    let mut kept = crate::rig::job("kept", 1);
    kept["spec"]["ttlSecondsAfterFinished"] = serde_json::json!(400);
    put(&rig.handle, vec![policy, kept]).await.unwrap();
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    worker.until(&rig.handle, "running", |_| rig.state_of("kept").as_deref() == Some("Running")).await;
    worker.finish();
    worker.until(&rig.handle, "finished", |_| rig.state_of("kept").as_deref() == Some("Finished")).await;
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    rig.disk.set_capacity(rig.disk.used_bytes());
    let mut number = 0;
    let mut another = |bytes: usize| {
        number += 1;
        let mut job = crate::rig::job(&format!("another-{number}"), 1);
        job["metadata"]["annotations"] = serde_json::json!({"a": "x".repeat(bytes)});
        vec![job]
    };
    // after a large job doesn't fit, smaller ones may
    for bytes in [200_000, 2_000, 1] {
        until("the disk is full", async || {
            // the agent stays in contact until then; a refused exchange is repeated
            let _ = worker.exchange(&rig.handle).await;
            put(&rig.handle, another(bytes)).await == Err(Unavailable::Full)
        })
        .await;
    }
    assert_eq!(
        (rig.state_of("kept").as_deref(), rig.state_of("runs").as_deref()),
        (Some("Finished"), Some("Running"))
    );
    until("both are over", async || {
        // use up pages that the journal itself frees
        while put(&rig.handle, another(1)).await.is_ok() {}
        rig.job("kept").is_none() && rig.state_of("runs").as_deref() == Some("Pending")
    })
    .await;
    rig.disk.set_capacity(u64::MAX);
    until("there is space again", async || submit(&rig.handle, "more").await.is_ok()).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_detached_volume_stops_the_engine_from_leading() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    rig.disk.attach_elsewhere();
    // every write and every reload fails from now on
    until("it no longer leads", async || submit(&rig.handle, "x").await.is_err() && !rig.handle.leading())
        .await;
    let disk = rig.disk.clone();
    rig.die(disk).await;
}

#[tokio::test]
async fn a_foreign_writer_ends_the_engine() {
    let rig = Rig::new().await;
    rig.create_queues(&[]).await;
    // as on a filesystem with unreliable locks
    rig.disk.break_lock();
    let mut second = RedbJournal::open_on(rig.disk.clone()).unwrap();
    let leadership = Leadership { epoch: second.leadership().epoch + 1, id: 99 };
    let led = Batch { records: vec![b"{}".to_vec()], ..Batch::new(leadership, second.last()) };
    second.commit(&led).unwrap();
    drop(second);
    rig.disk.fail_syncs(1);
    let ended = rig.running.ended();
    until("it ends", async || submit(&rig.handle, "x").await == Err(Unavailable::Stopping)).await;
    tokio::time::timeout(DEADLINE, ended.cancelled()).await.expect("the end is signalled");
    assert!(!rig.handle.leading());
    let running = rig.running;
    let result = tokio::task::spawn_blocking(move || running.stop()).await.unwrap();
    // two writers may have made the store unreadable; in either case the engine ends
    assert!(matches!(result, Err(Error::Foreign | Error::Replay(ReplayError::Journal(_)))), "{result:?}");
}

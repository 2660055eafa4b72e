//! The engine on a disk that fails: what was acknowledged stays, what wasn't is never shown, and it goes on.

use crate::rig::{DEADLINE, FastClock, Rig, Worker, delete, put, submit, until};
use meridian_manager::engine::{Error, Event, Unavailable};
use meridian_manager::journal::{Batch, Journal, RedbJournal};
use meridian_objects::Kind;
use meridian_shared::ids::Leadership;
use std::collections::BTreeSet;

fn epoch(recovery: &serde_json::Value) -> u64 {
    recovery["leadership"].as_str().unwrap().split('-').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn acknowledged_submissions_survive_a_power_loss_and_readers_never_saw_others() {
    for (round, operations) in [0, 3, 10, 40, 90].into_iter().enumerate() {
        let rig = Rig::new().await;
        rig.lay_out(&[]).await;
        let mut watch = rig.handle.reads().watch(rig.handle.reads().version()).unwrap();
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
        // Whatever a watcher could have seen, it saw: the engine is gone.
        let mut shown = BTreeSet::new();
        while let Some(Ok(change)) = futures_now(watch.next()) {
            if change.view.key.kind == Kind::Job && change.event == Event::Added {
                shown.insert(change.view.key.name.to_string());
            }
        }
        drop(handle);
        let marks = std::sync::Arc::new(tempfile::tempdir().unwrap());
        let rig = Rig::open(disk, clock, marks);
        let (jobs, _) = rig.handle.reads().list(Kind::Job, None, None);
        let durable: BTreeSet<String> = jobs.iter().map(|view| view.key.name.to_string()).collect();
        assert!(
            acknowledged.is_subset(&durable),
            "round {round}: lost {:?}",
            acknowledged.difference(&durable)
        );
        assert!(shown.is_subset(&durable), "round {round}: shown and gone {:?}", shown.difference(&durable));
        assert!(acknowledged.len() < 200 || operations > 0, "round {round}: the power went");
        // It is asked to stop before it leads: nothing is left behind that vouches for it.
        rig.stop().await;
    }
}

/// The value of a future that is ready now.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    futures::FutureExt::now_or_never(future)
}

#[tokio::test]
async fn a_failed_commit_is_said_and_loses_nothing() {
    let rig = Rig::new().await;
    rig.lay_out(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    let before = rig.handle.recovery().await;
    let mut tried = 0;
    // A heartbeat may take the failure for itself.
    let mut failed = None;
    until("a commit fails", async || {
        tried += 1;
        rig.disk.fail_syncs(1);
        failed = submit(&rig.handle, &format!("tried-{tried}")).await.err();
        failed == Some(Unavailable::NotCommitted)
    })
    .await;
    // Repeating it is always right, whether or not it is durable.
    let name = format!("tried-{tried}");
    until("it goes on", async || submit(&rig.handle, &name).await.is_ok()).await;
    assert_eq!(rig.state_of(&name).as_deref().map(|s| s != "Finished"), Some(true));
    let after = rig.handle.recovery().await;
    assert!(epoch(&after) > epoch(&before), "a higher epoch: {before} {after}");
    assert_eq!(after["open"], false, "nobody else can have led: nothing is to be found out");
    // The gang went on all the time, and its agent goes on with the new leadership.
    assert_eq!(rig.state_of("runs").as_deref(), Some("Running"));
    worker
        .until(&rig.handle, "the other runs too", |_| rig.state_of(&name).as_deref() == Some("Running"))
        .await;
    assert!(worker.runs.len() >= 2 && worker.starts == worker.runs.len(), "nothing was started twice");
    worker.finish();
    worker.until(&rig.handle, "finished", |_| rig.state_of("runs").as_deref() == Some("Finished")).await;
    rig.stop().await;
}

/// How many jobs the engine has taken, durable or not.
fn taken(rig: &Rig) -> usize {
    let text = rig.handle.metrics().render(&["meridian_submissions_total".to_owned()]);
    let line =
        text.lines().find_map(|line| line.strip_prefix("meridian_submissions_total{result=\"accepted\"} "));
    line.map_or(0, |n| n.parse().unwrap())
}

/// How many wait, as gauges show it.
fn waiting(rig: &Rig) -> u64 {
    let text = rig.handle.metrics().render(&["kueue_pending_workloads".to_owned()]);
    let number = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
    text.lines().filter(|line| line.starts_with("kueue_pending_workloads{")).filter_map(number).sum()
}

/// Submits `first` and then `second` while the disk answers nobody, and once the engine has taken both lets it answer, or fail.
async fn submit_two_to_a_stalled_disk(rig: &Rig, fails: bool) -> [Result<(), Unavailable>; 2] {
    let before = taken(rig);
    let waited = waiting(rig);
    let mut stalled = rig.disk.stall();
    let ask = |name: &'static str| {
        let handle = rig.handle.clone();
        tokio::spawn(async move { submit(&handle, name).await.map(|_| ()) })
    };
    let first = ask("first");
    until("the first is on its way to the disk", async || taken(rig) == before + 1).await;
    let second = ask("second");
    until("the second is decided on meanwhile", async || taken(rig) == before + 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "nothing is said before it is durable");
    assert!(rig.job("first").is_none() && rig.job("second").is_none(), "nor shown");
    assert_eq!(waiting(rig), waited, "nor counted");
    stalled.fail_syncs(u32::from(fails));
    drop(stalled);
    [first.await.unwrap(), second.await.unwrap()]
}

#[tokio::test]
async fn while_one_batch_is_written_the_next_is_decided_and_neither_is_shown() {
    let rig = Rig::new().await;
    rig.lay_out(&[]).await;
    assert_eq!(submit_two_to_a_stalled_disk(&rig, false).await, [Ok(()), Ok(())]);
    assert!(rig.job("first").is_some() && rig.job("second").is_some());
    until("gauges follow", async || waiting(&rig) == 2).await;
    rig.stop().await;
}

#[tokio::test]
async fn with_a_batch_that_fails_the_next_one_is_void_too() {
    let rig = Rig::new().await;
    rig.lay_out(&[]).await;
    let failed = Err(Unavailable::NotCommitted);
    assert_eq!(submit_two_to_a_stalled_disk(&rig, true).await, [failed, failed]);
    rig.led().await;
    assert!(rig.job("second").is_none(), "it was never written");
    for name in ["first", "second"] {
        until("repeating it is right", async || submit(&rig.handle, name).await.is_ok()).await;
        assert!(rig.job(name).is_some());
    }
    rig.stop().await;
}

/// How recovery stands, once somebody leads who can say it.
async fn recovery(rig: &Rig) -> serde_json::Value {
    let mut said = serde_json::Value::Null;
    until("somebody leads", async || {
        said = rig.handle.recovery().await;
        !said.is_null()
    })
    .await;
    said
}

#[tokio::test]
async fn a_full_disk_takes_ends_refuses_new_work_and_does_not_go_round() {
    let rig = Rig::new().await;
    rig.lay_out(&["eu"]).await;
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
            // Whose batch it was that didn't fit is told so too.
            Err(Unavailable::Full) => return true,
            Err(Unavailable::NotLeading) => {}
            Err(other) => panic!("{other}"),
        }
        false
    })
    .await;
    let full = recovery(&rig).await;
    assert_eq!(full["open"], false);
    // Ends and deletions are taken.
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
    assert!(epoch(&still) <= epoch(&full) + 3, "it doesn't go round: {full} {still}");
    for name in &acknowledged {
        assert!(rig.job(name).is_some(), "{name} was acknowledged");
    }
    rig.disk.set_capacity(u64::MAX);
    until("there is space again", async || submit(&rig.handle, "more").await.is_ok()).await;
    rig.stop().await;
}

#[tokio::test]
async fn on_a_full_disk_leases_lapse_and_what_was_kept_long_enough_is_forgotten() {
    let rig = Rig::with_clock(FastClock::of(20)).await;
    rig.lay_out(&["eu"]).await;
    let policy = serde_json::json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "short"}, "spec": {
        "applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Fence", "term": "1m"}}});
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
    // What is too much for the disk leaves room for less.
    for bytes in [200_000, 2_000, 1] {
        until("the disk is full", async || {
            // Its agent is heard until then; whoever isn't led now asks again.
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
        // Pages that the journal itself lets go of are taken at once.
        while put(&rig.handle, another(1)).await.is_ok() {}
        rig.job("kept").is_none() && rig.state_of("runs").as_deref() == Some("Pending")
    })
    .await;
    rig.disk.set_capacity(u64::MAX);
    until("there is space again", async || submit(&rig.handle, "more").await.is_ok()).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_that_was_taken_away_silences_the_engine() {
    let rig = Rig::new().await;
    rig.lay_out(&[]).await;
    rig.disk.attach_elsewhere();
    // From now on every write fails, and so does every reload: it is silent, and waits to be stopped.
    until("silence", async || submit(&rig.handle, "x").await.is_err() && !rig.handle.leading()).await;
    let disk = rig.disk.clone();
    rig.die(disk).await;
}

#[tokio::test]
async fn a_foreign_writer_ends_the_engine() {
    let rig = Rig::new().await;
    rig.lay_out(&[]).await;
    // A filesystem whose locks lie lets a second manager in.
    rig.disk.break_lock();
    let mut second = RedbJournal::open_on(rig.disk.clone()).unwrap();
    let leadership = Leadership { epoch: second.leadership().epoch + 1, id: 99 };
    let led = Batch { records: vec![b"{}".to_vec()], ..Batch::new(leadership, second.last()) };
    second.commit(&led).unwrap();
    drop(second);
    rig.disk.fail_syncs(1);
    let ended = rig.running.ended();
    until("it ends", async || submit(&rig.handle, "x").await == Err(Unavailable::Stopping)).await;
    tokio::time::timeout(DEADLINE, ended.cancelled()).await.expect("others are told");
    assert!(!rig.handle.leading());
    let running = rig.running;
    let result = tokio::task::spawn_blocking(move || running.stop()).await.unwrap();
    // What two writers leave of a store may be beyond reading; either way this one is over.
    assert!(matches!(result, Err(Error::Foreign | Error::Journal(_))), "{result:?}");
}

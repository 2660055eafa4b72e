//! Starts: without a wait if the journal is proved to be the one that was left; otherwise with a wait and
//! recovery.

use crate::rig::{FastClock, Rig, Worker, put, submit, until};
use meridian_manager::engine::Unavailable;
use meridian_manager::journal::faulty::{Faults, FaultyDisk};
use meridian_manager::journal::{Journal, RedbJournal};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use meridian_objects::Kind;
use meridian_shared::ids::JournalId;
use meridian_shared::time::Wall;
use meridian_views::asker::Asker;
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn a_restart_with_a_mark_skips_the_wait() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    let (disk, clock, marks) = rig.stop().await;
    let rig = Rig::open(disk, clock, marks);
    rig.led().await;
    let recovery = rig.handle.recovery(Asker::unlimited()).await;
    assert_eq!(recovery["open"], false, "{recovery}");
    assert!(rig.handle.metrics().render(&[]).lines().any(|l| l == "meridian_recoveries_total 0"));
    assert_eq!(rig.state_of("runs").as_deref(), Some("Running"));
    submit(&rig.handle, "next").await.unwrap();
    worker.until(&rig.handle, "the next runs", |_| rig.state_of("next").as_deref() == Some("Running")).await;
    assert_eq!((worker.runs.len(), worker.starts), (2, 2), "nothing was stopped or started twice");
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_without_a_mark_waits_and_recovers() {
    let rig = Rig::with_clock(FastClock::of(4)).await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    // killed: the page cache survives, and the shared memory was cleared
    let disk = rig.disk.kill();
    let (disk, clock, _) = rig.die(disk).await;
    let rig = Rig::open(disk, clock, Arc::new(tempfile::tempdir().unwrap()));
    assert_eq!(submit(&rig.handle, "early").await.unwrap_err(), Unavailable::NotLeading);
    assert!(rig.job("runs").is_some(), "committed state can be read meanwhile");
    rig.led().await;
    let recovery = rig.handle.recovery(Asker::unlimited()).await;
    assert_eq!(
        (recovery["open"].as_bool(), recovery["awaited"][0].as_str()),
        (Some(true), Some("eu")),
        "{recovery}"
    );
    worker.exchange(&rig.handle).await.unwrap();
    let mut open = true;
    until("recovery ends", async || {
        let _ = worker.exchange(&rig.handle).await;
        open = rig.handle.recovery(Asker::unlimited()).await["open"] != false;
        !open
    })
    .await;
    assert_eq!(rig.state_of("runs").as_deref(), Some("Running"));
    assert_eq!((worker.runs.len(), worker.starts), (1, 1));
    rig.stop().await;
}

#[tokio::test]
async fn a_start_that_was_stopped_during_its_wait_leaves_no_mark() {
    let rig = Rig::with_clock(FastClock::of(4)).await;
    rig.create_queues(&["eu"]).await;
    let disk = rig.disk.kill();
    let (disk, clock, _) = rig.die(disk).await;
    let marks = Arc::new(tempfile::tempdir().unwrap());
    let rig = Rig::open(disk, clock, marks);
    let (disk, clock, marks) = rig.stop().await;
    let rig = Rig::open(disk, clock, marks);
    assert_eq!(
        submit(&rig.handle, "early").await.unwrap_err(),
        Unavailable::NotLeading,
        "it waits as the previous start did"
    );
    rig.led().await;
    rig.stop().await;
}

#[tokio::test]
async fn a_snapshot_and_later_records_give_the_same_world() {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    // records hold whole objects, so these make a snapshot due
    for round in 0..180 {
        let annotations = json!({"round": round.to_string(), "text": "x".repeat(200_000)});
        let class = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": {"name": "large", "annotations": annotations}, "value": 1,
        });
        put(&rig.handle, vec![class]).await.unwrap();
    }
    submit(&rig.handle, "after").await.unwrap();
    worker.until(&rig.handle, "both run", |_| rig.state_of("after").as_deref() == Some("Running")).await;
    let all = |rig: &Rig| -> Vec<_> {
        let kinds = [Kind::Job, Kind::Workload, Kind::WorkloadPriorityClass];
        kinds
            .into_iter()
            .flat_map(|kind| rig.handle.reads().list(kind, None, None, &Asker::unlimited()).0)
            .map(|v| (v.key.clone(), v.version, v.value.clone()))
            .collect()
    };
    let before = all(&rig);
    let (disk, clock, marks) = rig.stop().await;
    let journal = RedbJournal::open_on(disk.clone()).unwrap();
    let snapshot = journal.snapshot().unwrap().expect("a snapshot was due");
    assert!(snapshot.through < journal.last(), "records follow the snapshot");
    drop(journal);
    let rig = Rig::open(disk.kill(), clock, marks);
    assert_eq!(before, all(&rig));
    rig.led().await;
    worker.finish();
    worker.until(&rig.handle, "finished", |_| rig.state_of("runs").as_deref() == Some("Finished")).await;
    rig.stop().await;
}

async fn confirm_rules(rig: &Rig) {
    let reply = rig
        .handle
        .ask(Input::Operator { actor: Actor::user("op"), action: Operator::ConfirmRules })
        .await
        .unwrap();
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
}

#[tokio::test]
async fn a_confirmed_copy_is_used_as_the_journal() {
    let rig = Rig::with_clock(FastClock::of(4)).await;
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "runs").await.unwrap();
    worker.until(&rig.handle, "running", |_| rig.state_of("runs").as_deref() == Some("Running")).await;
    let (disk, clock, _) = rig.stop().await;
    let copy = FaultyDisk::from_image(disk.image(), 1, 8, Faults::default());
    let rig = Rig::open(copy, clock, Arc::new(tempfile::tempdir().unwrap()));
    rig.led().await;
    assert_eq!(rig.handle.recovery(Asker::unlimited()).await["restored"], true);
    submit(&rig.handle, "waits").await.unwrap();
    worker.until(&rig.handle, "it continues there", |w| w.runs.len() == 1).await;
    until("recovery ends", async || {
        let _ = worker.exchange(&rig.handle).await;
        rig.handle.recovery(Asker::unlimited()).await["open"] == false
    })
    .await;
    // without a confirmation the next start recovers again
    let (disk, clock, marks) = rig.stop().await;
    assert!(RedbJournal::open_on(disk.clone()).unwrap().identity_changed());
    let rig = Rig::open(disk.kill(), clock, marks);
    rig.led().await;
    until("recovery ends", async || {
        let _ = worker.exchange(&rig.handle).await;
        rig.handle.recovery(Asker::unlimited()).await["open"] == false
    })
    .await;
    assert_eq!(rig.state_of("waits").as_deref(), Some("Pending"));
    confirm_rules(&rig).await;
    worker
        .until(&rig.handle, "the waiting job runs", |_| rig.state_of("waits").as_deref() == Some("Running"))
        .await;
    // after the confirmation it starts without recovery
    let (disk, clock, marks) = rig.stop().await;
    let rig = Rig::open(disk, clock, marks);
    rig.led().await;
    assert_eq!(rig.handle.recovery(Asker::unlimited()).await["open"], false);
    submit(&rig.handle, "next").await.unwrap();
    worker.until(&rig.handle, "the next runs", |_| rig.state_of("next").as_deref() == Some("Running")).await;
    rig.stop().await;
}

#[tokio::test]
async fn an_empty_journal_may_replace_a_lost_one() {
    let rig = Rig::with_clock(FastClock::of(4)).await;
    let (_, clock, marks) = rig.stop().await;
    // created by `init --recover`, which was killed during its wait for claims
    let disk = FaultyDisk::new(1, 9, Faults::default());
    drop(RedbJournal::init_on(disk.clone(), JournalId(43), Wall(0)).unwrap());
    let rig = Rig::open(disk.kill(), clock, marks);
    rig.led().await;
    let recovery = rig.handle.recovery(Asker::unlimited()).await;
    assert_eq!(
        (recovery["open"].as_bool(), recovery["membersUnknown"].as_bool()),
        (Some(true), Some(true)),
        "{recovery}"
    );
    rig.create_queues(&["eu"]).await;
    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    submit(&rig.handle, "waits").await.unwrap();
    for _ in 0..20 {
        let _ = worker.exchange(&rig.handle).await;
    }
    assert_eq!(
        (worker.starts, rig.state_of("waits").as_deref()),
        (0, Some("Pending")),
        "the rules are not confirmed"
    );
    confirm_rules(&rig).await;
    worker.until(&rig.handle, "it runs", |_| rig.state_of("waits").as_deref() == Some("Running")).await;
    rig.stop().await;
}

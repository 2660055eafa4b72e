//! The journal is lost, and what takes its place is a backup: every gang goes on where it runs, and nothing happens that only a
//! person may decide.

use super::crew::{CLUSTERS, Crew, KUBECONFIG, MANAGER};
use super::door::Door;
use super::gangs::{self, JOBS, QUEUE};
use super::leases::{STARTS_WITHIN, job, set_up};
use super::stage::{Stage, until};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Nothing that the cluster runs ends because its manager is away: the test may take its time.
const PATIENT: &str = "\
apiVersion: meridian.dev/v1alpha1
kind: DispatchPolicy
metadata: {name: default}
spec: {applies: {queues: ['*']}, onClusterLoss: {mode: Wait, term: 8s}}
";
/// Long enough for all that happens meanwhile.
const LONG_MILLIS: u64 = 25_000;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Submits one gang and waits until all of it runs.
async fn run_one(door: &Door, number: usize, proofs: &Path) {
    submit(door, number, LONG_MILLIS, proofs).await;
    until("the gang runs", STARTS_WITHIN, async || state(door, number, "Running").await).await;
}

async fn submit(door: &Door, number: usize, millis: u64, proofs: &Path) {
    let (status, made) = door.post(JOBS, &gangs::lasting(number, millis, proofs)).await.unwrap();
    assert_eq!(status, 201, "{made}");
}

async fn state(door: &Door, number: usize, wanted: &str) -> Result<(), String> {
    let status = job(door, number).await?["status"]["meridian"].clone();
    if status["state"] == wanted && status["attempts"] == 1 { Ok(()) } else { Err(status.to_string()) }
}

async fn recovery(stage: &Stage) -> Value {
    stage.meridian(&["journal", "recovery", "-o", "json"]).await.json()
}

/// The journal as it was before the second gang comes back; returns what the first start without any journal said.
async fn lose_the_journal(stage: &Stage, crew: &mut Crew<'_>, journal: &str, backup: &str) -> String {
    crew.kill(MANAGER, Duration::from_secs(600)).await;
    std::fs::rename(journal, stage.path("lost.redb")).unwrap();
    let data = stage.path(MANAGER);
    let refused = stage
        .meridian(&["manager", "--term", "8s", "--term-min", "8s", "--data-dir", data.to_str().unwrap()])
        .await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    stage.meridian(&["journal", "restore", backup, journal]).await.ok();
    crew.heal();
    refused.err
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for its gangs: cargo test -p meridian --test real -- --ignored"]
async fn a_restored_journal_keeps_every_gang_and_asks_a_person() {
    let stage = Stage::begin(KUBECONFIG).await;
    let (mut crew, door, proofs) = set_up(&stage).await;
    stage.meridian(&["apply", "-f", &stage.write("patient.yaml", PATIENT)]).await.ok();
    let text = |below: &str| stage.path(below).to_str().unwrap().to_owned();
    let (journal, backup) = (text("manager/journal.redb"), text("backup.redb"));
    let busy = stage.meridian(&["journal", "backup", &journal, &backup]).await;
    assert!(busy.code == Some(1) && busy.err.contains("holds the journal at"), "{busy:?}");

    // One gang that the backup knows, and one that it doesn't.
    run_one(&door, 0, &proofs).await;
    crew.ask_to_end(MANAGER).await;
    stage.meridian(&["journal", "backup", &journal, &backup]).await.ok();
    crew.call_back(MANAGER);
    let door = crew.door().await;
    run_one(&door, 1, &proofs).await;
    let said = lose_the_journal(&stage, &mut crew, &journal, &backup).await;
    assert!(said.contains("journal restore") && said.contains("--init --recover"), "{said}");

    let door = crew.door().await;
    let orphan = until("every cluster has shown what it runs", STARTS_WITHIN, async || {
        let now = recovery(&stage).await;
        if now["open"] == false && now["orphans"].as_array().is_some_and(|o| o.len() == 1) {
            Ok(now["orphans"][0].clone())
        } else {
            Err(now.to_string())
        }
    })
    .await;
    state(&door, 0, "Running").await.unwrap();
    // The copy's policies and quotas are as old as it is: nothing starts before somebody has looked at them.
    submit(&door, 2, 200, &proofs).await;
    let why = stage.meridian(&["why", &gangs::name(2)]).await.ok();
    assert!(why.contains("an operator must confirm policies and quotas"), "{why}");
    stage.meridian(&["journal", "confirm", "--yes"]).await.ok();

    // The orphan gets its own job back, and no other.
    let uid = orphan["uid"].as_str().unwrap();
    let file = |millis| stage.write("gang.json", &gangs::lasting(1, millis, &proofs).to_string());
    let wrong = stage.meridian(&["orphan", "adopt", uid, "-f", &file(LONG_MILLIS + 1)]).await;
    assert!(wrong.code == Some(1) && wrong.err.contains("isn't the job that runs there"), "{wrong:?}");
    stage.meridian(&["orphan", "adopt", uid, "-f", &file(LONG_MILLIS)]).await.ok();

    for number in 0..3 {
        until("the gang ends well", ENDS_WITHIN, async || state(&door, number, "Finished").await).await;
        assert!(
            gangs::ends(&proofs, number).values().all(|times| *times == 1),
            "gang {number} ran to its end once"
        );
    }
    assert_eq!(gangs::overlaps(&proofs), "");
    stage.meridian(&["audit", "verify"]).await.ok();
    crew.stop().await;
    stage.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for its gangs: cargo test -p meridian --test real -- --ignored"]
async fn a_journal_that_is_gone_for_good_is_begun_anew_and_what_runs_is_adopted() {
    let stage = Stage::begin(KUBECONFIG).await;
    let (mut crew, door, proofs) = set_up(&stage).await;
    let patient = stage.write("patient.yaml", PATIENT);
    stage.meridian(&["apply", "-f", &patient]).await.ok();
    run_one(&door, 0, &proofs).await;
    crew.strike(MANAGER).await;
    for file in ["manager/journal.redb", "manager/journal.reserve"] {
        std::fs::remove_file(stage.path(file)).unwrap();
    }
    crew.call_back_with(MANAGER, &["--init", "--recover"]);
    let door = crew.door().await;

    // Nothing is known any more: not the clusters, not the rules. What is declared again calls by itself.
    for (name, region, jurisdiction) in CLUSTERS {
        stage
            .meridian(&["cluster", "join", name, "--region", region, "--jurisdiction", jurisdiction])
            .await
            .ok();
    }
    stage.meridian(&["apply", "-f", &stage.write("queue.yaml", QUEUE), "-f", &patient]).await.ok();
    let orphan = until("its orphan is seen", STARTS_WITHIN, async || {
        let now = recovery(&stage).await;
        if now["orphans"].as_array().is_some_and(|o| o.len() == 1) {
            Ok(now["orphans"][0]["uid"].as_str().unwrap().to_owned())
        } else {
            Err(now.to_string())
        }
    })
    .await;
    stage.meridian(&["journal", "confirm", "--yes"]).await.ok();
    until("recovery is over", STARTS_WITHIN, async || {
        let now = recovery(&stage).await;
        if now["open"] == false { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    let file = stage.write("gang.json", &gangs::lasting(0, LONG_MILLIS, &proofs).to_string());
    stage.meridian(&["orphan", "adopt", &orphan, "-f", &file]).await.ok();
    submit(&door, 1, 200, &proofs).await;
    for number in 0..2 {
        until("the gang ends well", ENDS_WITHIN, async || state(&door, number, "Finished").await).await;
        assert!(
            gangs::ends(&proofs, number).values().all(|times| *times == 1),
            "gang {number} ran to its end once"
        );
    }
    assert_eq!(gangs::overlaps(&proofs), "");
    stage.meridian(&["audit", "verify"]).await.ok();
    crew.stop().await;
    stage.nothing_left().await;
}

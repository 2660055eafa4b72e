//! The journal is lost and restored from a backup, or begun anew: every gang keeps running, and an operator
//! decides what only an operator may.

use super::fleet::{CLUSTERS, KUBECONFIG, MANAGER, TestFleet};
use super::gangs::{self, JOBS, QUEUE};
use super::leases::{START_WITHIN, job, start_fleet};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A policy under which gangs don't end while the manager is away, however long the test takes.
const PATIENT: &str = "\
apiVersion: meridian.dev/v1alpha1
kind: DispatchPolicy
metadata: {name: default}
spec: {applies: {queues: ['*']}, onClusterLoss: {mode: Wait, term: 8s}}
";
/// Longer than the rest of the test.
const LONG_RUN_MS: u64 = 25_000;
const END_WITHIN: Duration = Duration::from_secs(60);

/// Submits a gang and waits until it runs.
async fn run_one(rest: &RestClient, number: usize, proofs: &Path) {
    submit(rest, number, LONG_RUN_MS, proofs).await;
    wait_until("the gang runs", START_WITHIN, async || state(rest, number, "Running").await).await;
}

async fn submit(rest: &RestClient, number: usize, millis: u64, proofs: &Path) {
    let (status, made) = rest.post(JOBS, &gangs::lasting(number, millis, proofs)).await.unwrap();
    assert_eq!(status, 201, "{made}");
}

async fn state(rest: &RestClient, number: usize, wanted: &str) -> Result<(), String> {
    let status = job(rest, number).await?["status"]["meridian"].clone();
    if status["state"] == wanted && status["attempts"] == 1 { Ok(()) } else { Err(status.to_string()) }
}

async fn recovery(sandbox: &Sandbox) -> Value {
    sandbox.meridian(&["journal", "recovery", "-o", "json"]).await.json()
}

/// Replaces the journal by the backup; returns the error of a start without any journal.
async fn lose_the_journal(
    sandbox: &Sandbox,
    fleet: &mut TestFleet<'_>,
    journal: &str,
    backup: &str,
) -> String {
    fleet.kill(MANAGER, Duration::from_secs(600)).await;
    std::fs::rename(journal, sandbox.path("lost.redb")).unwrap();
    let data = sandbox.path(MANAGER);
    let refused = sandbox
        .meridian(&["manager", "--term", "8s", "--term-min", "8s", "--data-dir", data.to_str().unwrap()])
        .await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    sandbox.meridian(&["journal", "restore", backup, journal]).await.ok();
    fleet.restore_all();
    refused.err
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_restored_journal_keeps_gangs_and_asks_an_operator() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    sandbox.meridian(&["apply", "-f", &sandbox.write("patient.yaml", PATIENT)]).await.ok();
    let text = |below: &str| sandbox.path(below).to_str().unwrap().to_owned();
    let (journal, backup) = (text("manager/journal.redb"), text("backup.redb"));
    let busy = sandbox.meridian(&["journal", "backup", &journal, &backup]).await;
    assert!(busy.code == Some(1) && busy.err.contains("holds the journal at"), "{busy:?}");

    // The backup knows the first gang, and not the second.
    run_one(&rest, 0, &proofs).await;
    fleet.terminate(MANAGER).await;
    sandbox.meridian(&["journal", "backup", &journal, &backup]).await.ok();
    fleet.start_again(MANAGER);
    let rest = fleet.rest().await;
    run_one(&rest, 1, &proofs).await;
    let output = lose_the_journal(&sandbox, &mut fleet, &journal, &backup).await;
    assert!(output.contains("journal restore") && output.contains("--init --recover"), "{output}");

    let rest = fleet.rest().await;
    let orphan = wait_until("every cluster has shown what it runs", START_WITHIN, async || {
        let now = recovery(&sandbox).await;
        if now["open"] == false && now["orphans"].as_array().is_some_and(|o| o.len() == 1) {
            Ok(now["orphans"][0].clone())
        } else {
            Err(now.to_string())
        }
    })
    .await;
    state(&rest, 0, "Running").await.unwrap();
    // Policies and quotas are as old as the backup: nothing starts before an operator has confirmed them.
    submit(&rest, 2, 200, &proofs).await;
    let why = sandbox.meridian(&["why", &gangs::name(2)]).await.ok();
    assert!(why.contains("confirm"), "{why}");
    sandbox.meridian(&["journal", "confirm", "--yes"]).await.ok();

    // The orphan is adopted with its own job only.
    let uid = orphan["uid"].as_str().unwrap();
    let file = |millis| sandbox.write("gang.json", &gangs::lasting(1, millis, &proofs).to_string());
    let wrong = sandbox.meridian(&["orphan", "adopt", uid, "-f", &file(LONG_RUN_MS + 1)]).await;
    assert!(wrong.code == Some(1) && wrong.err.contains("isn't the job that runs there"), "{wrong:?}");
    sandbox.meridian(&["orphan", "adopt", uid, "-f", &file(LONG_RUN_MS)]).await.ok();

    for number in 0..3 {
        wait_until("the gang ends well", END_WITHIN, async || state(&rest, number, "Finished").await).await;
        assert!(
            gangs::ends(&proofs, number).values().all(|times| *times == 1),
            "gang {number} ran to its end once"
        );
    }
    assert_eq!(gangs::overlaps(&proofs), "");
    sandbox.meridian(&["audit", "verify"]).await.ok();
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_new_journal_adopts_the_gangs_of_a_lost_one() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    let patient = sandbox.write("patient.yaml", PATIENT);
    sandbox.meridian(&["apply", "-f", &patient]).await.ok();
    run_one(&rest, 0, &proofs).await;
    fleet.kill_for_good(MANAGER).await;
    for file in ["manager/journal.redb", "manager/journal.reserve"] {
        std::fs::remove_file(sandbox.path(file)).unwrap();
    }
    fleet.start_again_with(MANAGER, &["--init", "--recover"]);
    let rest = fleet.rest().await;

    // The new journal knows no clusters and no policies. Once they are declared again, the agents connect by
    // themselves.
    for (name, region, jurisdiction) in CLUSTERS {
        sandbox
            .meridian(&["cluster", "join", name, "--region", region, "--jurisdiction", jurisdiction])
            .await
            .ok();
    }
    sandbox.meridian(&["apply", "-f", &sandbox.write("queue.yaml", QUEUE), "-f", &patient]).await.ok();
    let orphan = wait_until("its orphan is seen", START_WITHIN, async || {
        let now = recovery(&sandbox).await;
        if now["orphans"].as_array().is_some_and(|o| o.len() == 1) {
            Ok(now["orphans"][0]["uid"].as_str().unwrap().to_owned())
        } else {
            Err(now.to_string())
        }
    })
    .await;
    sandbox.meridian(&["journal", "confirm", "--yes"]).await.ok();
    wait_until("recovery is over", START_WITHIN, async || {
        let now = recovery(&sandbox).await;
        if now["open"] == false { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    let file = sandbox.write("gang.json", &gangs::lasting(0, LONG_RUN_MS, &proofs).to_string());
    sandbox.meridian(&["orphan", "adopt", &orphan, "-f", &file]).await.ok();
    submit(&rest, 1, 200, &proofs).await;
    for number in 0..2 {
        wait_until("the gang ends well", END_WITHIN, async || state(&rest, number, "Finished").await).await;
        assert!(
            gangs::ends(&proofs, number).values().all(|times| *times == 1),
            "gang {number} ran to its end once"
        );
    }
    assert_eq!(gangs::overlaps(&proofs), "");
    sandbox.meridian(&["audit", "verify"]).await.ok();
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

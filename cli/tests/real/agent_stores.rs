//! Agents' stores that are lost or copied, and agents with a rival: a gang restarts elsewhere only after its
//! old run has ended.

use super::fleet::{CLUSTERS, KUBECONFIG, TERM};
use super::gangs;
use super::leases::{ELSEWHERE_WITHIN, ENDLESS_RUN_MS, job, run_one, start_fleet};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Waits until a gang runs in attempt `attempts`; returns its cluster.
pub(super) async fn runs_again(rest: &RestClient, number: usize, attempts: u64) -> String {
    wait_until("it runs again", TERM + ELSEWHERE_WITHIN, async || {
        let status = job(rest, number).await?["status"]["meridian"].clone();
        let again = status["state"] == "Running" && status["attempts"] == attempts;
        if again { Ok(status["cluster"].as_str().unwrap().to_owned()) } else { Err(status.to_string()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn an_agent_without_its_store_starts_over() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    let cluster = run_one(&sandbox, &rest, 0, ENDLESS_RUN_MS, &proofs).await;
    fleet.kill(cluster, Duration::from_secs(600)).await;
    std::fs::remove_file(fleet.agent_dir(cluster).join("agent.redb")).unwrap();
    fleet.restore_all();
    wait_until("its loss is reported", TERM, async || {
        let status = job(&rest, 0).await?["status"].clone();
        let lost = status["meridian"]["state"] == "ClusterLost" && status["ready"] == 0;
        if lost { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    runs_again(&rest, 0, 2).await;
    assert_eq!(gangs::overlaps(&proofs), "");
    let deleted = sandbox.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn of_two_agents_with_one_name_only_one_works() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (fleet, rest, proofs) = start_fleet(&sandbox).await;
    let cluster = run_one(&sandbox, &rest, 0, ENDLESS_RUN_MS, &proofs).await;
    let (_, region, jurisdiction) = CLUSTERS.into_iter().find(|(name, _, _)| *name == cluster).unwrap();

    // A second agent with a copy of the first one's directory.
    let copy = sandbox.path("copy");
    copy_dir(&fleet.agent_dir(cluster), &copy);
    let fleet_file = sandbox.path("fleet.yaml");
    let words = |dir: &Path| {
        [
            "agent",
            "run",
            "--runner",
            "process",
            "--fleet",
            fleet_file.to_str().unwrap(),
            "--data-dir",
            dir.to_str().unwrap(),
        ]
        .map(str::to_owned)
    };
    let output = sandbox.meridian(&words(&copy).each_ref().map(String::as_str)).await;
    assert!(output.code == Some(1) && output.err.contains("is a copy"), "{output:?}");
    let status = job(&rest, 0).await.unwrap()["status"]["meridian"].clone();
    assert!(status["state"] == "Running" && status["attempts"] == 1, "{status}");

    // An agent that an operator has let in: the first one is locked out, and its gang ends with its lease.
    let join = ["cluster", "join", cluster, "--region", region, "--jurisdiction", jurisdiction];
    let output = sandbox.meridian(&join).await;
    assert!(output.code == Some(1) && output.err.contains("--replace"), "{output:?}");
    let printed = sandbox.meridian(&[&join[..], &["--replace"]].concat()).await.ok();
    let rival = sandbox.path("rival");
    sandbox.join(&printed, Some(&rival)).await.ok();
    let mut child = sandbox
        .command()
        .args(words(&rival))
        .stdout(Stdio::null())
        .stderr(sandbox.log("rival.log"))
        .spawn()
        .unwrap();
    wait_for_lock_out(&sandbox, cluster).await;
    runs_again(&rest, 0, 2).await;
    assert_eq!(gangs::overlaps(&proofs), "");
    assert!(child.try_wait().unwrap().is_none(), "the rival serves");
    sandbox.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await.ok();
    child.kill().await.unwrap();
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_revoked_agent_is_locked_out_until_it_joins_again() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    let cluster = run_one(&sandbox, &rest, 0, ENDLESS_RUN_MS, &proofs).await;
    let (_, region, jurisdiction) = CLUSTERS.into_iter().find(|(name, _, _)| *name == cluster).unwrap();
    let output = sandbox.meridian(&["cluster", "revoke", cluster]).await;
    assert!(output.code == Some(1) && output.err.contains("--confirm"), "{output:?}");
    sandbox.meridian(&["cluster", "revoke", cluster, "--confirm", cluster]).await.ok();
    wait_for_lock_out(&sandbox, cluster).await;

    // The same machine joins again, with its store.
    let join = ["cluster", "join", cluster, "--region", region, "--jurisdiction", jurisdiction, "--replace"];
    let printed = sandbox.meridian(&join).await.ok();
    fleet.terminate(cluster).await;
    std::fs::remove_file(fleet.agent_dir(cluster).join("identity.json")).unwrap();
    sandbox.join(&printed, None).await.ok();
    let again = sandbox.join(&printed, Some(&sandbox.path("thief"))).await;
    assert!(again.code == Some(1) && again.err.contains("was used"), "{again:?}");
    fleet.start_again(cluster);
    wait_until("it is connected", TERM, async || {
        let listed = sandbox.meridian(&["get", "cluster", cluster, "-o", "json"]).await.json();
        if listed["status"]["state"] == "Connected" { Ok(()) } else { Err(listed["status"].to_string()) }
    })
    .await;
    wait_until("the gang runs", TERM + ELSEWHERE_WITHIN, async || {
        let status = job(&rest, 0).await?["status"]["meridian"].clone();
        if status["state"] == "Running" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(gangs::overlaps(&proofs), "");
    sandbox.meridian(&["audit", "verify"]).await.ok();
    sandbox.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await.ok();
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

/// Waits until the agent's log says that its certificate was revoked, and what to do.
async fn wait_for_lock_out(sandbox: &Sandbox, cluster: &str) {
    wait_until("the agent is told to join again", TERM, async || {
        let remedy = format!("meridian cluster join {cluster} --replace");
        let lines = sandbox.log_lines("was revoked");
        if lines.iter().any(|(_, line)| line.contains(&remedy)) { Ok(()) } else { Err(format!("{lines:?}")) }
    })
    .await;
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let there = to.join(entry.file_name());
        if kind.is_dir() {
            copy_dir(&entry.path(), &there);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), there).unwrap();
        }
    }
}

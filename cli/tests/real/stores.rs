//! Agents' stores that are lost, copied, or have a rival: what ran goes on elsewhere only once nothing of it is left.

use super::crew::{CLUSTERS, KUBECONFIG, TERM};
use super::door::Door;
use super::gangs;
use super::leases::{ELSEWHERE_WITHIN, FOR_EVER_MILLIS, job, run_one, set_up};
use super::stage::{Stage, until};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Waits until a gang runs in its next attempt, and says where.
pub(super) async fn runs_again(door: &Door, number: usize, attempts: u64) -> String {
    until("it runs again", TERM + ELSEWHERE_WITHIN, async || {
        let status = job(door, number).await?["status"]["meridian"].clone();
        let again = status["state"] == "Running" && status["attempts"] == attempts;
        if again { Ok(status["cluster"].as_str().unwrap().to_owned()) } else { Err(status.to_string()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for a lease to lapse: cargo test -p meridian --test real -- --ignored"]
async fn an_agent_that_lost_its_store_is_another_one() {
    let stage = Stage::begin(KUBECONFIG).await;
    let (mut crew, door, proofs) = set_up(&stage).await;
    let place = run_one(&stage, &door, 0, FOR_EVER_MILLIS, &proofs).await;
    crew.kill(place, Duration::from_secs(600)).await;
    std::fs::remove_file(crew.agent_dir(place).join("agent.redb")).unwrap();
    crew.heal();
    runs_again(&door, 0, 2).await;
    assert_eq!(gangs::overlaps(&proofs), "");
    let deleted = stage.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    crew.stop().await;
    stage.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for a lease to lapse: cargo test -p meridian --test real -- --ignored"]
async fn of_two_agents_of_one_name_one_runs_what_there_is() {
    let stage = Stage::begin(KUBECONFIG).await;
    let (mut crew, door, proofs) = set_up(&stage).await;
    let place = run_one(&stage, &door, 0, FOR_EVER_MILLIS, &proofs).await;
    let (_, region, jurisdiction) = CLUSTERS.into_iter().find(|(name, _, _)| *name == place).unwrap();

    // A copy of all that it has.
    let copy = stage.path("copy");
    copy_dir(&crew.agent_dir(place), &copy);
    let fleet = stage.path("fleet.yaml");
    let words = |dir: &Path| {
        [
            "agent",
            "run",
            "--runner",
            "process",
            "--fleet",
            fleet.to_str().unwrap(),
            "--data-dir",
            dir.to_str().unwrap(),
        ]
        .map(str::to_owned)
    };
    let said = stage.meridian(&words(&copy).each_ref().map(String::as_str)).await;
    assert!(said.code == Some(1) && said.err.contains("is a copy"), "{said:?}");
    let status = job(&door, 0).await.unwrap()["status"]["meridian"].clone();
    assert!(status["state"] == "Running" && status["attempts"] == 1, "{status}");

    // A rival that an operator has let in: the first one is out, and what it ran is over before it runs again.
    let join = ["cluster", "join", place, "--region", region, "--jurisdiction", jurisdiction];
    let said = stage.meridian(&join).await;
    assert!(said.code == Some(1) && said.err.contains("--replace"), "{said:?}");
    let printed = stage.meridian(&[&join[..], &["--replace"]].concat()).await.ok();
    let rival = stage.path("rival");
    let mut joins: Vec<&str> = printed.split_whitespace().skip(1).collect();
    if let Some(at) = joins.iter().position(|word| *word == "--data-dir") {
        joins.drain(at..at + 2);
    }
    stage.meridian(&[&joins[..], &["--data-dir", rival.to_str().unwrap()]].concat()).await.ok();
    let mut child = stage
        .command()
        .args(words(&rival))
        .stdout(Stdio::null())
        .stderr(stage.log("rival.log"))
        .spawn()
        .unwrap();
    crew.gives_up(place).await;
    runs_again(&door, 0, 2).await;
    assert_eq!(gangs::overlaps(&proofs), "");
    assert!(child.try_wait().unwrap().is_none(), "the rival serves");
    stage.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await.ok();
    child.kill().await.unwrap();
    crew.stop().await;
    stage.nothing_left().await;
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

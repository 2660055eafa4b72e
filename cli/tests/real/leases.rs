//! What a lease means for real processes: who is asked to end leaves its gangs to their guards, and a guard ends what nobody
//! renews. The last test breaks that on purpose, so that the proof of overlaps is known to prove something.

use super::crew::{CLUSTERS, Crew, KUBECONFIG, MANAGER, TERM};
use super::door::Door;
use super::gangs::{self, FLEET, JOBS, QUEUE};
use super::processes::{self, Process};
use super::stage::{Stage, until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// From a submission to its processes, on a busy machine.
pub(super) const STARTS_WITHIN: Duration = Duration::from_secs(15);
/// How long the manager may take beyond the term until a lapsed gang runs elsewhere: drift, a poll, a start.
pub(super) const ELSEWHERE_WITHIN: Duration = Duration::from_secs(15);
/// Longer than any test: it ends because something ends it.
pub(super) const FOR_EVER_MILLIS: u64 = 600_000;

/// A crew with its queue, and the manager's door.
pub(super) async fn set_up(stage: &Stage) -> (Crew<'_>, Door, PathBuf) {
    let proofs = stage.path("proofs");
    gangs::prepare(&proofs);
    let crew = Crew::start(stage, FLEET).await;
    let door = crew.door().await;
    let queue = stage.write("queue.yaml", QUEUE);
    stage.meridian(&["apply", "-f", &queue]).await.ok();
    (crew, door, proofs)
}

/// Submits one gang and waits until it runs; says where.
pub(super) async fn run_one(
    stage: &Stage,
    door: &Door,
    number: usize,
    millis: u64,
    proofs: &Path,
) -> &'static str {
    let (status, made) = door.post(JOBS, &gangs::lasting(number, millis, proofs)).await.unwrap();
    assert_eq!(status, 201, "{made}");
    until("the gang runs", STARTS_WITHIN, async || {
        let job = job(door, number).await?;
        let place = CLUSTERS.iter().find(|(name, _, _)| job["status"]["meridian"]["cluster"] == *name);
        match place {
            Some((name, _, _)) if !of_gangs(stage).is_empty() => Ok(*name),
            _ => Err(job["status"].to_string()),
        }
    })
    .await
}

pub(super) async fn job(door: &Door, number: usize) -> Result<Value, String> {
    Ok(door.get(&format!("{JOBS}/{}", gangs::name(number))).await?.1)
}

/// The processes that do a gang's work.
fn of_gangs(stage: &Stage) -> Vec<Process> {
    stage.processes().into_iter().filter(|p| p.name == "sleep").collect()
}

fn guards(stage: &Stage) -> Vec<Process> {
    stage.processes().into_iter().filter(|p| p.name == "meridian-guard").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy for minutes: cargo test -p meridian --test real -- --ignored"]
async fn what_is_asked_to_end_leaves_its_gangs_to_their_guards() {
    let stage = Stage::begin(KUBECONFIG).await;
    let (mut crew, door, proofs) = set_up(&stage).await;
    let place = run_one(&stage, &door, 0, 5_000, &proofs).await;
    let before = of_gangs(&stage);
    crew.ask_to_end(place).await;
    crew.ask_to_end(MANAGER).await;
    assert!(!guards(&stage).is_empty() && of_gangs(&stage) == before, "the gang goes on under its guard");
    crew.call_back(MANAGER);
    crew.call_back(place);
    let door = crew.door().await;
    let ended = until("the gang ends where it ran", STARTS_WITHIN, async || {
        let job = job(&door, 0).await?;
        if job["status"]["conditions"].is_null() {
            Err(job["status"].to_string())
        } else {
            Ok(job["status"].clone())
        }
    })
    .await;
    assert!(ended["conditions"][0]["type"] == "Complete" && ended["meridian"]["attempts"] == 1, "{ended}");
    assert_eq!(gangs::ends(&proofs, 0).into_iter().collect::<Vec<_>>(), [(0, 1)]);

    // Nobody comes back for this one: its guard ends it before the manager may start it elsewhere.
    let place = run_one(&stage, &door, 1, FOR_EVER_MILLIS, &proofs).await;
    let before = of_gangs(&stage);
    crew.ask_to_end(place).await;
    until("its guard ends it", TERM, async || {
        match of_gangs(&stage).into_iter().filter(|p| before.contains(p)).collect::<Vec<_>>() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    until("it runs elsewhere", ELSEWHERE_WITHIN, async || {
        if of_gangs(&stage).is_empty() { Err("it doesn't".into()) } else { Ok(()) }
    })
    .await;
    assert_eq!(gangs::overlaps(&proofs), "");
    crew.stop().await;
    stage.nothing_left().await;
}

/// A guard that stands still while its agent is gone lets its gang outlive the lease, which no promise covers: the whole
/// machine would have to stand still, and then the gang would too. The next run must find the lock taken and say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for a lease to lapse: cargo test -p meridian --test real -- --ignored"]
async fn a_gang_that_outlives_its_lease_is_proved_to_overlap() {
    let stage = Stage::begin(KUBECONFIG).await;
    let (mut crew, door, proofs) = set_up(&stage).await;
    let place = run_one(&stage, &door, 0, FOR_EVER_MILLIS, &proofs).await;
    guards(&stage).into_iter().for_each(|guard| processes::send(guard.pid, Signal::STOP));
    crew.kill(place, Duration::from_secs(600)).await;
    let proof =
        until("the overlap is proved", TERM + ELSEWHERE_WITHIN, async || match gangs::overlaps(&proofs) {
            proof if proof.is_empty() => Err("nothing overlapped".into()),
            proof => Ok(proof),
        })
        .await;
    assert!(proof.starts_with(&gangs::name(0)) && !proof.contains(&format!("in {place}")), "{proof}");
    assert_eq!(
        job(&door, 0).await.unwrap()["status"]["meridian"]["attempts"],
        2,
        "the manager had done as it should"
    );
}

//! Leases and real processes: a terminated agent leaves its gangs to their guards, and a guard ends what
//! isn't renewed. The last test breaks a lease on purpose, to show that an overlap would be found.

use super::fleet::{CLUSTERS, KUBECONFIG, MANAGER, TERM, TestFleet};
use super::gangs::{self, FLEET, JOBS, QUEUE};
use super::processes::{self, Process};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time from a submission to its processes, on a busy machine.
pub(super) const START_WITHIN: Duration = Duration::from_secs(15);
/// Longest time from the lapse of a lease to the start elsewhere: drift, a poll, a start.
pub(super) const ELSEWHERE_WITHIN: Duration = Duration::from_secs(15);
/// Longer than any test: something must end it.
pub(super) const ENDLESS_RUN_MS: u64 = 600_000;

/// A fleet with its queue applied; the administrator's client; the directory of proofs.
pub(super) async fn start_fleet(sandbox: &Sandbox) -> (TestFleet<'_>, RestClient, PathBuf) {
    let proofs = sandbox.path("proofs");
    gangs::prepare(&proofs);
    let fleet = TestFleet::start(sandbox, FLEET).await;
    let rest = fleet.rest().await;
    let queue = sandbox.write("queue.yaml", QUEUE);
    sandbox.meridian(&["apply", "-f", &queue]).await.ok();
    (fleet, rest, proofs)
}

/// Submits a gang and waits until it runs; returns its cluster.
pub(super) async fn run_one(
    sandbox: &Sandbox,
    rest: &RestClient,
    number: usize,
    millis: u64,
    proofs: &Path,
) -> &'static str {
    let (status, made) = rest.post(JOBS, &gangs::lasting(number, millis, proofs)).await.unwrap();
    assert_eq!(status, 201, "{made}");
    wait_until("the gang runs", START_WITHIN, async || {
        let job = job(rest, number).await?;
        let found = CLUSTERS.iter().find(|(name, _, _)| job["status"]["meridian"]["cluster"] == *name);
        match found {
            Some((name, _, _)) if !of_gangs(sandbox).is_empty() => Ok(*name),
            _ => Err(job["status"].to_string()),
        }
    })
    .await
}

pub(super) async fn job(rest: &RestClient, number: usize) -> Result<Value, String> {
    Ok(rest.get(&format!("{JOBS}/{}", gangs::name(number))).await?.1)
}

/// The working processes of gangs.
fn of_gangs(sandbox: &Sandbox) -> Vec<Process> {
    sandbox.processes().into_iter().filter(|p| p.name == "sleep").collect()
}

fn guards(sandbox: &Sandbox) -> Vec<Process> {
    sandbox.processes().into_iter().filter(|p| p.name == "meridian-guard").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn terminated_agents_leave_gangs_to_their_guards() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    let cluster = run_one(&sandbox, &rest, 0, 5_000, &proofs).await;
    let before = of_gangs(&sandbox);
    fleet.terminate(cluster).await;
    fleet.terminate(MANAGER).await;
    assert!(
        !guards(&sandbox).is_empty() && of_gangs(&sandbox) == before,
        "the gang continues under its guard"
    );
    fleet.start_again(MANAGER);
    fleet.start_again(cluster);
    let rest = fleet.rest().await;
    let ended = wait_until("the gang ends where it ran", START_WITHIN, async || {
        let job = job(&rest, 0).await?;
        if job["status"]["conditions"].is_null() {
            Err(job["status"].to_string())
        } else {
            Ok(job["status"].clone())
        }
    })
    .await;
    assert!(ended["conditions"][0]["type"] == "Complete" && ended["meridian"]["attempts"] == 1, "{ended}");
    assert_eq!(gangs::ends(&proofs, 0).into_iter().collect::<Vec<_>>(), [(0, 1)]);

    // This agent doesn't return: the guard ends the gang before the manager may start it elsewhere.
    let cluster = run_one(&sandbox, &rest, 1, ENDLESS_RUN_MS, &proofs).await;
    let before = of_gangs(&sandbox);
    fleet.terminate(cluster).await;
    wait_until("its guard ends it", TERM, async || {
        match of_gangs(&sandbox).into_iter().filter(|p| before.contains(p)).collect::<Vec<_>>() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    wait_until("it runs elsewhere", ELSEWHERE_WITHIN, async || {
        if of_gangs(&sandbox).is_empty() { Err("it doesn't".into()) } else { Ok(()) }
    })
    .await;
    assert_eq!(gangs::overlaps(&proofs), "");
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

/// With its agent dead and its guard stopped, a gang outlives its lease. No promise covers that: on a machine
/// that stands still, the gang would too. The next run must find the lock taken and report it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_gang_that_outlives_its_lease_is_found_to_overlap() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    let cluster = run_one(&sandbox, &rest, 0, ENDLESS_RUN_MS, &proofs).await;
    guards(&sandbox).into_iter().for_each(|guard| processes::send(guard.pid, Signal::STOP));
    fleet.kill(cluster, Duration::from_secs(600)).await;
    let proof =
        wait_until("the overlap is proved", TERM + ELSEWHERE_WITHIN, async || {
            match gangs::overlaps(&proofs) {
                proof if proof.is_empty() => Err("nothing overlapped".into()),
                proof => Ok(proof),
            }
        })
        .await;
    assert!(proof.starts_with(&gangs::name(0)) && !proof.contains(&format!("in {cluster}")), "{proof}");
    assert_eq!(
        job(&rest, 0).await.unwrap()["status"]["meridian"]["attempts"],
        2,
        "the manager had done as it should"
    );
}

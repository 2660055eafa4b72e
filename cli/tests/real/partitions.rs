//! Clusters that are cut off from their manager, one way or both: their gangs are over before they run elsewhere.

use super::crew::{CLUSTERS, Crew, KUBECONFIG};
use super::door::Door;
use super::gangs::{self, FLEET, QUEUE};
use super::leases::{FOR_EVER_MILLIS, run_one};
use super::stage::{Stage, until};
use super::stores::runs_again;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const BACK_WITHIN: Duration = Duration::from_secs(30);

/// What passes between an agent and its manager.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Passes {
    All,
    /// The manager hears the agent, and the agent hears nothing.
    Requests,
    Nothing,
}

/// The way of one agent to its manager.
struct Way {
    passes: watch::Sender<Passes>,
}

impl Way {
    /// A way to `manager`, and where an agent finds it.
    async fn open(manager: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (passes, seen) = watch::channel(Passes::All);
        let manager = manager.to_owned();
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                // Who isn't there is for the agent to find out.
                let Ok(there) = TcpStream::connect(&manager).await else { continue };
                let ((from_agent, to_agent), (from_manager, to_manager)) =
                    (agent.into_split(), there.into_split());
                tokio::spawn(carry(from_agent, to_manager, seen.clone(), |passes| passes != Passes::Nothing));
                tokio::spawn(carry(from_manager, to_agent, seen.clone(), |passes| passes == Passes::All));
            }
        });
        (Self { passes }, address)
    }
}

/// Carries bytes one way, as long as they pass.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut seen: watch::Receiver<Passes>,
    may: fn(Passes) -> bool,
) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if seen.wait_for(|passes| may(*passes)).await.is_err() || to.write_all(&bytes[..read]).await.is_err()
        {
            return;
        }
    }
}

async fn connected(door: &Door, place: &str) {
    until("it is connected again", BACK_WITHIN, async || {
        let clusters = door.list("/apis/meridian.dev/v1alpha1/clusters").await?;
        let cluster = clusters
            .into_iter()
            .find(|cluster| cluster["metadata"]["name"] == place)
            .ok_or("it isn't there")?;
        if cluster["status"]["state"] == "Connected" { Ok(()) } else { Err(cluster["status"].to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for leases to lapse: cargo test -p meridian --test real -- --ignored"]
async fn what_is_cut_off_one_way_or_both_is_over_before_it_runs_elsewhere() {
    let stage = Stage::begin(KUBECONFIG).await;
    let proofs = stage.path("proofs");
    gangs::prepare(&proofs);
    let mut ways: BTreeMap<&str, Way> = BTreeMap::new();
    let crew = Crew::start_by_way(&stage, FLEET, async |name, manager| {
        let (way, address) = Way::open(manager).await;
        ways.insert(name, way);
        address
    })
    .await;
    assert_eq!(ways.len(), CLUSTERS.len());
    let door = crew.door().await;
    stage.meridian(&["apply", "-f", &stage.write("queue.yaml", QUEUE)]).await.ok();
    for (number, passes) in [Passes::Requests, Passes::Nothing].into_iter().enumerate() {
        let place = run_one(&stage, &door, number, FOR_EVER_MILLIS, &proofs).await;
        ways[place].passes.send(passes).unwrap();
        let elsewhere = runs_again(&door, number, 2).await;
        assert_ne!(elsewhere, place, "{passes:?}");
        assert_eq!(gangs::overlaps(&proofs), "", "{passes:?}");
        ways[place].passes.send(Passes::All).unwrap();
        connected(&door, place).await;
        let deleted = stage.meridian(&["delete", "job", &gangs::name(number), "--wait"]).await;
        assert_eq!(deleted.code, Some(0), "{deleted:?}");
    }
    crew.stop().await;
    stage.nothing_left().await;
}

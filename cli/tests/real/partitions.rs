//! Clusters that are cut off from their manager in one direction or both: their gangs end before they run
//! elsewhere.

use super::agent_stores::runs_again;
use super::fleet::{CLUSTERS, KUBECONFIG, TestFleet};
use super::gangs::{self, FLEET, QUEUE};
use super::leases::{ENDLESS_RUN_MS, run_one};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const BACK_WITHIN: Duration = Duration::from_secs(30);

/// What a proxy lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Passes {
    All,
    /// Only requests: the manager gets them, and the agent gets no answer.
    Requests,
    Nothing,
}

/// A proxy between one agent and the manager.
struct Proxy {
    passes: watch::Sender<Passes>,
}

impl Proxy {
    /// Starts a proxy to `manager`; also returns its address.
    async fn open(manager: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (passes, seen) = watch::channel(Passes::All);
        let manager = manager.to_owned();
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                // A missing manager shows as a closed connection.
                let Ok(upstream) = TcpStream::connect(&manager).await else { continue };
                let ((from_agent, to_agent), (from_manager, to_manager)) =
                    (agent.into_split(), upstream.into_split());
                tokio::spawn(carry(from_agent, to_manager, seen.clone(), |passes| passes != Passes::Nothing));
                tokio::spawn(carry(from_manager, to_agent, seen.clone(), |passes| passes == Passes::All));
            }
        });
        (Self { passes }, address)
    }
}

/// Copies bytes in one direction while `may_pass`.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut seen: watch::Receiver<Passes>,
    may_pass: fn(Passes) -> bool,
) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if seen.wait_for(|passes| may_pass(*passes)).await.is_err()
            || to.write_all(&bytes[..read]).await.is_err()
        {
            return;
        }
    }
}

async fn wait_until_connected(rest: &RestClient, name: &str) {
    wait_until("it is connected again", BACK_WITHIN, async || {
        let clusters = rest.list("/apis/meridian.dev/v1alpha1/clusters").await?;
        let cluster = clusters
            .into_iter()
            .find(|cluster| cluster["metadata"]["name"] == name)
            .ok_or("it isn't there")?;
        if cluster["status"]["state"] == "Connected" { Ok(()) } else { Err(cluster["status"].to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn partitioned_gangs_end_before_they_run_elsewhere() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let proofs = sandbox.path("proofs");
    gangs::prepare(&proofs);
    let mut proxies: BTreeMap<&str, Proxy> = BTreeMap::new();
    let fleet = TestFleet::start_through(&sandbox, FLEET, async |name, manager| {
        let (proxy, address) = Proxy::open(manager).await;
        proxies.insert(name, proxy);
        address
    })
    .await;
    assert_eq!(proxies.len(), CLUSTERS.len());
    let rest = fleet.rest().await;
    sandbox.meridian(&["apply", "-f", &sandbox.write("queue.yaml", QUEUE)]).await.ok();
    for (number, passes) in [Passes::Requests, Passes::Nothing].into_iter().enumerate() {
        let cluster = run_one(&sandbox, &rest, number, ENDLESS_RUN_MS, &proofs).await;
        proxies[cluster].passes.send(passes).unwrap();
        let elsewhere = runs_again(&rest, number, 2).await;
        assert_ne!(elsewhere, cluster, "{passes:?}");
        assert_eq!(gangs::overlaps(&proofs), "", "{passes:?}");
        proxies[cluster].passes.send(Passes::All).unwrap();
        wait_until_connected(&rest, cluster).await;
        let deleted = sandbox.meridian(&["delete", "job", &gangs::name(number), "--wait"]).await;
        assert_eq!(deleted.code, Some(0), "{deleted:?}");
    }
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}

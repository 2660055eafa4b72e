//! Agents in the manager's process, for clusters that the manager reaches by a kubeconfig.
//!
//! Such an agent runs the same code as an agent in its cluster, and joins and syncs over the same port. It
//! can't end gangs while this process is down, so with `Config::hosts_agents` jobs wait for a lost cluster.

use crate::engine::Handle;
use crate::random;
use crate::tls::{Authorities, token};
use anyhow::Context as _;
use meridian_agent::{HostedAgent, identity, run_hosted, with_causes};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use meridian_manager_kubernetes::hosting::{HostedCluster, HostedClusters};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Pause before an agent that ended is started again.
const PAUSE: Duration = Duration::from_secs(10);
/// Run time after which an agent's earlier failure counts as over.
const SETTLED: Duration = Duration::from_secs(60);
/// Validity of a join token, which is used at once.
const TOKEN_TTL: Millis = Millis::mins(1);

/// Parts of this manager that hosted agents need.
pub(super) struct Host {
    pub(super) engine: Handle,
    pub(super) authorities: Arc<Authorities>,
    /// This manager's own URL.
    pub(super) url: String,
    /// Directory with a subdirectory for each cluster.
    pub(super) dir: PathBuf,
    /// Why an agent can't run, by the name of its cluster.
    pub(super) failures: watch::Sender<BTreeMap<String, String>>,
}

struct Running {
    cluster: HostedCluster,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Host {
    /// Runs an agent for each of the clusters, until `stop` is cancelled.
    pub(super) async fn run(
        self: Arc<Self>,
        mut clusters: watch::Receiver<HostedClusters>,
        stop: CancellationToken,
    ) {
        let mut running: BTreeMap<String, Running> = BTreeMap::new();
        loop {
            let wanted = clusters.borrow_and_update().clone();
            let changed = running.extract_if(.., |name, agent| wanted.get(name) != Some(&agent.cluster));
            let changed: Vec<Running> = changed.map(|(_, agent)| agent).collect();
            end(changed).await;
            for (name, cluster) in wanted {
                let start = || {
                    let (host, cluster, stop) = (Arc::clone(&self), cluster.clone(), stop.child_token());
                    let task = tokio::spawn(host.keep(name.clone(), cluster.clone(), stop.clone()));
                    Running { cluster, stop, task }
                };
                running.entry(name.clone()).or_insert_with(start);
            }
            tokio::select! {
                () = stop.cancelled() => break,
                changed = clusters.changed() => if changed.is_err() { break },
            }
        }
        end(running.into_values().collect()).await;
    }

    /// Runs the agent, and starts it again whenever it ends.
    async fn keep(self: Arc<Self>, name: String, cluster: HostedCluster, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let life = self.live(&name, &cluster, &stop);
            tokio::pin!(life);
            let end = tokio::select! {
                end = &mut life => end,
                () = tokio::time::sleep(SETTLED) => {
                    self.failures.send_if_modified(|failures| failures.remove(&name).is_some());
                    life.await
                }
            };
            if let Err(error) = end {
                let why = with_causes(error.as_ref());
                self.failures.send_if_modified(|failures| {
                    failures.insert(name.clone(), why.clone()).is_none_or(|before| before != why)
                });
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    async fn live(
        &self,
        name: &str,
        cluster: &HostedCluster,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let data_dir = self.dir.join(name);
        if !identity::is_joined(&data_dir) {
            self.join(name, cluster, &data_dir).await?;
        }
        let agent = HostedAgent { data_dir, kubeconfig: cluster.kubeconfig.clone() };
        let stop = stop.clone();
        tracing::info!(cluster = name, "runs the agent of a cluster in this process");
        tokio::task::spawn_blocking(move || run_hosted(agent, &stop)).await?
    }

    /// Joins like an agent in the cluster. May replace an earlier agent of this manager. Fails if the last
    /// agent that joined runs elsewhere.
    async fn join(&self, name: &str, cluster: &HostedCluster, dir: &std::path::Path) -> anyhow::Result<()> {
        let (token, hash) = token::mint(random::bytes()?);
        let action = Operator::MintToken {
            hash: hash.to_string(),
            cluster: ClusterName::new(name),
            region: Region::new(&cluster.region),
            jurisdiction: Jurisdiction::new(&cluster.jurisdiction),
            ttl: TOKEN_TTL,
            replace: false,
        };
        match self.engine.ask(Input::Operator { actor: Actor::System, action }).await? {
            Reply::Rejected(why) => {
                let first = why.into_iter().next().map(|why| why.message).unwrap_or_default();
                anyhow::bail!("the manager doesn't let its own agent join: {first}");
            }
            _ => identity::join(&self.url, &token, self.authorities.ca_pin(), None, dir)
                .await
                .map(drop)
                .context("the manager's own agent can't join"),
        }
    }
}

/// Stops agents, and waits until they have ended.
async fn end(agents: Vec<Running>) {
    agents.iter().for_each(|agent| agent.stop.cancel());
    for agent in agents {
        if agent.task.await.is_err() {
            tracing::error!("an agent in this process ended by a panic");
        }
    }
}

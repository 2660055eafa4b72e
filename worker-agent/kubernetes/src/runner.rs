//! Runs gangs as jobs of the cluster.
//!
//! [`run`] decides for one run and is pure, [`supervisor`] keeps all runs in a task of its own, `perform`
//! talks to the API server. Orders go to the supervisor through a channel, so that no command waits for the
//! network.

use crate::copies::Copies;
use crate::error::Error;
use crate::facts;
use crate::hub::{Hub, TouchedRuns};
use crate::labels::RunKey;
use meridian_agent_core::runtime::{
    self, Answer, Enforcement, Found, LogSource, PodPlacement, Runner, RunnerEvent, Start,
};
use meridian_kubernetes::Connection;
use meridian_kubernetes::election::Leader;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{RunnerKind, Size};
use meridian_shared::time::{Mono, Now};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

mod guard;
mod logs;
mod manifest;
mod notes;
mod perform;
mod perform_group;
mod pod_group;
mod positions;
mod request;
mod run;
mod supervisor;
#[cfg(test)]
mod tests;

pub use guard::GuardSettings;
pub(crate) use notes::noted_nodes;
use perform::Performer;
use supervisor::{Order, Supervisor};

/// Reads both clocks.
pub type NowSource = Arc<dyn Fn() -> Now + Send + Sync>;

/// Dependencies of a runner.
pub struct RunnerParts {
    pub connection: Connection,
    pub hub: Arc<Hub>,
    pub touched: TouchedRuns,
    /// `None` if the agent has no other replicas.
    pub leader: Option<Leader>,
    /// The cluster's name at the manager.
    pub cluster: String,
    pub guard: GuardSettings,
    /// `None`: nothing is copied.
    pub copies: Option<Copies>,
    pub events: mpsc::Sender<RunnerEvent>,
    pub clock: NowSource,
}

impl std::fmt::Debug for RunnerParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunnerParts").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The runner interface to the jobs of one cluster.
#[derive(Debug)]
pub struct JobRunner {
    connection: Connection,
    orders: mpsc::UnboundedSender<Order>,
    runtime: tokio::runtime::Handle,
    /// Whether gangs get guards in their pods.
    guards: bool,
}

impl JobRunner {
    /// Opens the runner; its task ends with `tasks`.
    pub fn open(parts: RunnerParts, tasks: &mut JoinSet<()>) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let connection = parts.connection.clone();
        let guards = parts.guard.image.is_some();
        let (leader, hub, copies) = (parts.leader.clone(), Arc::clone(&parts.hub), parts.copies.clone());
        let performer = Performer::new(connection.client.clone(), leader, hub, copies);
        tasks.spawn(Supervisor::new(parts, performer, received).serve());
        Self { connection, orders, runtime: tokio::runtime::Handle::current(), guards }
    }

    fn order(&self, order: Order) {
        // Fails only when the agent ends; its successor adopts the runs.
        let _ = self.orders.send(order);
    }
}

impl Runner for JobRunner {
    fn kind(&self) -> RunnerKind {
        RunnerKind::Kubernetes
    }

    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn enforcement(&self) -> Enforcement {
        // The agent and the API server end pods; without guards a node that is cut off from them can outlive
        // a lease.
        if self.guards { Enforcement::Guarded } else { Enforcement::Supervised }
    }

    fn adopt(&mut self) -> Answer<'_, Result<Vec<Found>, runtime::Error>> {
        Box::pin(async {
            let (reply, found) = oneshot::channel();
            self.order(Order::Adopt { reply });
            found.await.map_err(|_| runtime::Error::new("the runner has ended"))
        })
    }

    fn start(&mut self, start: Start, decided: Now) {
        self.order(Order::Start { start: Box::new(start), decided });
    }

    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now) {
        self.order(Order::Renew { key: (uid, fence), deadline, decided });
    }

    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>) {
        self.order(Order::Place { key: (uid, fence), number, placement, size: None });
    }

    fn scale_down(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.order(Order::ScaleDown { key: (uid, fence), size });
    }

    fn scale_up(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size) {
        self.order(Order::Place { key: (uid, fence), number, placement, size: Some(size) });
    }

    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.order(Order::Stop { key: (uid, fence) });
    }

    fn settle(&mut self, uid: Uid, fence: Fence) {
        self.order(Order::Settle { key: (uid, fence) });
    }

    fn forget(&mut self, uid: Uid, fence: Fence) {
        self.order(Order::Forget { key: (uid, fence) });
    }

    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<Box<dyn LogSource>, runtime::Error> {
        let orders = self.orders.clone();
        let source = logs::follow(&self.runtime, self.connection.client.clone(), orders, (uid, fence), pod);
        Ok(Box::new(source))
    }
}

/// A run that the supervisor shows to a log reader.
#[derive(Clone, Debug, Default)]
struct Shown {
    namespace: String,
    /// Name and index of each pod, the oldest first.
    pods: Vec<(String, u32)>,
    has_ended: bool,
}

/// The job that an earlier agent left, by attempt.
fn jobs_by_run(jobs: impl Iterator<Item = facts::JobFacts>) -> Vec<(RunKey, facts::JobFacts)> {
    jobs.filter_map(|job| Some((job.run?, job))).collect()
}

/// The error for a run that isn't known here.
fn unknown((uid, fence): RunKey) -> Error {
    Error::UnknownRun { uid: uid.to_string(), fence: fence.to_string() }
}

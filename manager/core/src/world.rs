//! The world of one manager, the absorbing of records into it, and the turn of one input.

pub mod absorb;
pub mod actors;
mod fingerprint;
pub mod gangs;
mod job_names;
pub mod keys;
pub mod lifecycle;
pub mod loads;
pub mod pending_reasons;
pub mod recovery_hold;
pub mod snapshot;
pub mod turn;

use crate::config::Config;
use crate::facts::reason::Why;
use crate::live::Live;
use crate::queue::classes::Queues;
use crate::queue::counts::QueueCounts;
use crate::queue::mirror::QueueMirror;
use crate::state::State;
use crate::state::workload::Workload;
use job_names::JobNames;
use loads::Loads;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::collections::BTreeMap;

/// All state of one manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Durable: rebuilt from the journal.
    state: State,
    /// Volatile: lost by a restart.
    live: Live,
    config: Config,
    /// Cache over `state`, as are all fields below.
    queues: Queues,
    names: JobNames,
    loads: Loads,
    counts_by_queue: QueueCounts,
    mirror: QueueMirror,
}

/// The parts of a world, for functions that read some and change others.
pub(crate) struct Parts<'w> {
    pub(crate) state: &'w State,
    pub(crate) config: &'w Config,
    pub(crate) queues: &'w Queues,
    pub(crate) live: &'w mut Live,
    pub(crate) mirror: &'w mut QueueMirror,
}

impl World {
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        let Self { state, config, queues, live, mirror, .. } = self;
        Parts { state, config, queues, live, mirror }
    }

    /// Everything that the journal keeps. Only absorbed records change it.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Everything that a restart loses.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Public for tests that set up a rare situation; other crates don't change it otherwise.
    pub fn live_mut(&mut self) -> &mut Live {
        &mut self.live
    }

    /// Loses the volatile state, as a restart does.
    pub fn forget_volatile(&mut self) {
        self.live = Live::default();
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings, for tests that change them between two inputs.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Classes, waiting workloads and charged quota.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    pub fn counts_by_queue(&self) -> &QueueCounts {
        &self.counts_by_queue
    }

    pub fn mirror(&self) -> &QueueMirror {
        &self.mirror
    }

    pub(crate) fn mirror_mut(&mut self) -> &mut QueueMirror {
        &mut self.mirror
    }

    /// Extends the claim to lead after a durable write that was begun at `begun`.
    pub fn committed(&mut self, begun: Mono) {
        let renewed = begun + meridian_shared::lease::claim(self.config.term_min);
        self.live.extend_claim(renewed);
    }

    /// Sets until when this manager may act as the leader. The host keeps the
    /// [`Claim`](meridian_shared::lease::Claim).
    pub fn set_claim(&mut self, valid_until: Mono) {
        self.live.set_claim(valid_until);
    }

    /// Workloads with open or granted legs, by cluster.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Whether open recovery keeps a workload from being dispatched now.
    pub fn held_back(&self, workload: &Workload, now: Mono) -> bool {
        if self.config.planted.has(meridian_shared::planted::Bug::RecoveryDispatches) {
            return false;
        }
        self.recovery_hold(workload, now).is_some()
    }

    /// Whether the journal is a copy, and a manager with the original may still renew this workload's lease.
    /// Such a lease is neither renewed nor ended here. No other manager knows workloads that this leadership
    /// accepted.
    pub(crate) fn disputed(&self, workload: &Workload) -> bool {
        self.state.recovery().as_ref().is_some_and(|r| r.restored)
            && workload.is_older_than(self.state.led_since())
    }

    /// The workload of a job, by the job's kind and name.
    pub fn uid_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Uid> {
        self.names.find(kind, namespace, name)
    }

    /// Names of every cluster that ever had a session.
    pub fn members(&self) -> Vec<ClusterName> {
        self.state.members().keys().cloned().collect()
    }

    /// The latest reasons why the workload's class is pending: before any cluster is evaluated, and at each
    /// cluster.
    pub fn reasons(&self, workload: &Workload) -> (Option<&Why>, Option<&BTreeMap<ClusterName, Why>>) {
        (
            self.live.pending_reasons().before(workload.class()),
            self.live.pending_reasons().at_clusters(workload.class()),
        )
    }

    pub(crate) fn has_open_legs(&self, cluster: &ClusterName) -> bool {
        let uids = self.loads.get(cluster).into_iter().flatten();
        uids.filter_map(|(uid, _)| self.state.workloads().get(uid))
            .any(|w| w.legs().values().any(|l| *l.cluster() == *cluster && l.state().open()))
    }
}

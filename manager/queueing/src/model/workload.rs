//! Workloads, pending or with quota.

use crate::amount::Amount;
use crate::model::{FlavorScan, QueueId, Requests, ShapeId, Target};
use crate::names::{FlavorId, ResourceId, id};
use crate::quota::CellId;
use meridian_shared::gang::Toleration;
use meridian_topology::Assignment as TopologyAssignment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Milliseconds since the Unix epoch.
pub type Moment = i64;

/// Stands for a missing timestamp; earlier than all others.
pub const NO_MOMENT: Moment = i64::MIN;

/// A pending workload, or one that holds quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadId(pub u32);

id!(WorkloadId);

/// State of a delayed topology assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Delayed {
    Pending,
    Ready,
}

/// The admission of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodSetAdmission {
    pub flavors: BTreeMap<ResourceId, FlavorId>,
    /// Quota usage of all pods.
    pub usage: Requests,
    pub count: u32,
    /// The topology assignment.
    pub placement: Option<TopologyAssignment>,
    /// Set if the topology assignment is delayed or was delayed.
    pub delayed: Option<Delayed>,
}

/// Quota usage by flavor and resource.
pub type Usage = Vec<((FlavorId, ResourceId), Amount)>;

/// Quota usage by cells of one tree.
pub type Charge = Vec<(CellId, Amount)>;

/// The quota reservation of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub given: Vec<PodSetAdmission>,
    /// When the quota was reserved.
    pub since: Moment,
    /// The workload is stopping. It holds its quota until it has stopped.
    pub evicted: bool,
    /// The workload may run: all checks are done.
    pub admitted: bool,
    /// Derived from `given`.
    pub(crate) charge: Charge,
}

/// Node constraints that a ready admission check added to a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
}

/// Optional properties of a workload that few workloads have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The older slice that this workload replaces.
    pub replaces: Option<Arc<str>>,
    /// A preemption gate of the workload is closed.
    pub gated: bool,
    /// Lost nodes of its assignment.
    pub lost_nodes: Vec<String>,
    /// Admission checks that have a state.
    pub checks: Vec<Arc<str>>,
    /// There are checks, and all are ready.
    pub checks_ready: bool,
    /// A check asks for a retry or rejects the workload.
    pub checks_failed: bool,
    /// The parent of this variant, and the variant's flavor.
    pub variant_of: Option<(Arc<str>, Arc<str>)>,
    /// The workload can scale up and down while it runs.
    pub elastic: bool,
    /// The workload is a single pod, which can't move.
    pub single_pod: bool,
    /// Node constraints added by checks, by pod set name.
    pub updates: BTreeMap<Arc<str>, Update>,
    /// The queue doesn't accept the workload's namespace.
    pub wrong_namespace: bool,
    /// Why the workload's specification can't be admitted.
    pub unfit: Option<Arc<str>>,
    /// The only allowed flavors, because the workload adds pods to a gang that has these flavors.
    pub pinned: Vec<FlavorId>,
}

/// State that earlier evaluations of a workload left for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Where the flavor search continues.
    pub(crate) scan: Option<Box<FlavorScan>>,
    /// The flavor search continued although an earlier flavor may fit now: workloads that came first may not
    /// have used it, or quota was released since.
    pub(crate) overtaken: bool,
    /// Quota was available for some flavor, or without some victims, but no cluster had capacity.
    pub(crate) short_of_capacity: bool,
    /// All its victims stopped, but the workload didn't fit, because the capacity estimate was wrong. A
    /// further preemption could be in vain too, so the workload waits for free capacity.
    pub(crate) preempted_in_vain: bool,
    /// The last preemption that it started.
    pub(crate) pending_preemption: Option<Box<PendingPreemption>>,
}

impl Progress {
    /// Drops what no longer applies once quota is reserved.
    pub(crate) fn clear_after_reservation(&mut self) {
        (self.scan, self.pending_preemption) = (None, None);
        (self.short_of_capacity, self.preempted_in_vain) = (false, false);
    }
}

/// A preemption that a workload waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingPreemption {
    /// Flavors per pod set and resource.
    pub(crate) flavors: Vec<Vec<(ResourceId, FlavorId)>>,
    /// The victims with their uids, because workload numbers are reused.
    pub(crate) victims: Vec<(Target, Arc<str>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Namespace and name.
    pub key: Arc<str>,
    /// Breaks ties between otherwise equal workloads.
    pub uid: Arc<str>,
    pub queue: QueueId,
    /// Namespace and name of the local queue.
    pub local_queue: Arc<str>,
    pub shape: ShapeId,
    /// Position in time within the queue.
    pub since: Moment,
    /// Boxed, because most workloads have none.
    pub marks: Option<Box<Marks>>,
    /// Set while it holds quota.
    pub holding: Option<Box<Holding>>,
    pub(crate) progress: Progress,
}

impl Workload {
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The marks, or default ones.
    pub fn marks(&self) -> &Marks {
        const USUAL: &Marks = &Marks {
            replaces: None,
            gated: false,
            lost_nodes: Vec::new(),
            checks: Vec::new(),
            checks_ready: false,
            checks_failed: false,
            variant_of: None,
            elastic: false,
            single_pod: false,
            updates: BTreeMap::new(),
            wrong_namespace: false,
            unfit: None,
            pinned: Vec::new(),
        };
        self.marks.as_deref().unwrap_or(USUAL)
    }

    /// The flavors that it holds quota of.
    pub(crate) fn assigned_flavors(&self) -> BTreeSet<FlavorId> {
        let given = self.holding.iter().flat_map(|holding| &holding.given);
        given.flat_map(|given| given.flavors.values().copied()).collect()
    }

    /// Whether it is stopping but still holds quota.
    pub fn evicted(&self) -> bool {
        self.holding.as_ref().is_some_and(|h| h.evicted)
    }
}

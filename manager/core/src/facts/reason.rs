//! Why a workload can't start: the reason at one cluster, or one that applies to all clusters.

use crate::facts::key::Key;
use meridian_queueing::model::Inactive;
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RefuseReason;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Why the workloads of a class can't start, at one cluster or at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// The job's local queue doesn't lead to a cluster queue that admits it.
    Route(NoRoute),
    Quota(NoQuota),
    /// Residency forbids the cluster.
    Forbidden(Denied),
    /// No cluster exists that the cluster queue may use.
    NoCluster,
    /// The MultiKueueConfig of the cluster queue doesn't list this cluster.
    NotInQueue,
    /// An admission check names a MultiKueueConfig that doesn't exist.
    NoWorkersConfig {
        check: String,
        config: String,
    },
    Cordoned,
    /// The cluster never joined, or hasn't been in contact lately.
    NotConnected,
    /// The cluster is connected, but its inventory isn't complete yet.
    Recovering,
    /// The cluster is new, and no other member has acknowledged its name yet.
    NotAdmitted,
    /// The agent detected a location that differs from the cluster's declared one.
    Quarantined {
        /// Region in which the agent is.
        located: String,
    },
    /// The agent hasn't reported its capacity yet.
    NoReport,
    /// The dispatch policy requires gangs that end by themselves when the lease lapses; the runner there
    /// can't do that.
    NotGuarded,
    /// The workload would exceed a limit that operators set for the cluster, whatever capacity it reports.
    Capped {
        resource: String,
        /// Amount that the gang requests.
        asks: i64,
        /// Amount not used yet under the cap.
        left: i64,
        cap: i64,
    },
    /// The reported capacity doesn't suffice.
    NoCapacity(Misfit),
    /// The capacity suffices, but is reserved for another workload.
    CapacityReserved {
        /// The job of that workload. Readers see its name only if they may read the job.
        reserved_for: Option<Key>,
        /// The capacity is reserved by the starvation guard. Otherwise workloads are being preempted to free
        /// it.
        starves: bool,
    },
    /// Quota suffices, but the starvation guard reserves it for a workload that has waited too long.
    ReservedForStarved,
    /// The agent refused an offer, and nothing has changed since that could have removed the obstacle.
    Refused {
        reason: RefuseReason,
        /// The agent's explanation.
        text: String,
    },
    /// Earlier workloads got capacity there but didn't reach running, so the cluster is skipped for a while.
    BackedOff,
    /// The capacity suffices, but a better cluster was chosen.
    NotChosen {
        chosen: ClusterName,
    },
    /// Recovery is open: it isn't known yet what still runs.
    RecoveryOpen,
    /// An agent knows newer rules than this journal: an operator must confirm policies and quotas.
    RulesDoubted,
    /// Clusters that haven't reported to this leadership may know newer rules than this journal.
    RulesUnheard,
    /// Other workloads are being preempted for it.
    Preempts {
        /// Number of preempted workloads.
        victims: usize,
    },
    /// In this scheduling cycle another workload of the cohort came first.
    Overtaken,
    /// The workload's cluster queue admits nothing.
    Inactive {
        queue: String,
        why: Inactive,
    },
    /// The workload waits for the end of its requeue backoff.
    BackOff,
    /// The workload's stored manifest can't be read.
    Damaged,
}

impl Why {
    /// Rank and metric label of an obstacle at one cluster. The lower the rank, the sooner the obstacle is
    /// likely to go away. Reasons that aren't about one cluster have the last rank and no label.
    pub const fn cluster_obstacle(&self) -> (u8, &'static str) {
        match self {
            Self::NoCapacity(_) => (0, "NoCapacity"),
            Self::CapacityReserved { .. } => (0, "CapacityReserved"),
            Self::Capped { .. } => (1, "Capped"),
            Self::Refused { .. } => (2, "Refused"),
            Self::BackedOff => (3, "BackedOff"),
            Self::NotConnected
            | Self::NoReport
            | Self::Recovering
            | Self::NotAdmitted
            | Self::RecoveryOpen => (4, "NotConnected"),
            Self::Cordoned => (5, "Cordoned"),
            Self::Quarantined { .. } => (6, "Quarantined"),
            Self::NotGuarded => (7, "NotGuarded"),
            Self::Forbidden(_) => (8, "Residency"),
            Self::NotInQueue | Self::NoWorkersConfig { .. } | Self::NoCluster => (9, "NoCluster"),
            Self::Route(_)
            | Self::Quota(_)
            | Self::NotChosen { .. }
            | Self::Preempts { .. }
            | Self::Overtaken
            | Self::ReservedForStarved
            | Self::Inactive { .. }
            | Self::RulesDoubted
            | Self::RulesUnheard
            | Self::BackOff
            | Self::Damaged => (10, ""),
        }
    }
}

/// Quota of one flavor and resource that doesn't suffice now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shortage {
    pub flavor: String,
    pub resource: String,
    /// Amount that the gang requests.
    pub asks: i64,
    /// Amount available to the queue, including what it may borrow.
    pub free: i64,
    /// Nominal quota of the queue.
    pub nominal: i64,
    /// Part of the nominal quota that is available.
    pub own: i64,
    /// Part of the nominal quota that other queues have borrowed.
    pub lent: i64,
    /// The cohort from which the queue borrows.
    pub cohort: Option<String>,
    /// The workloads that use the quota may not be preempted for this one.
    pub no_victims: bool,
    /// The smallest nominal quota with which the workload would fit.
    pub raise_to: i64,
    /// Other resources that are short as well.
    pub also: Vec<String>,
}

/// Why quota doesn't suffice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoQuota {
    /// No resource group of the queue covers the resource.
    NotCovered { resource: String },
    /// No flavor matches the pods: node selector, affinity, taints.
    NoMatchingFlavor {
        /// An explanation for each flavor.
        why: String,
    },
    /// The request exceeds what the queue could ever use, borrowing included.
    ExceedsQuota {
        flavor: String,
        resource: String,
        /// Amount that the gang requests.
        asks: i64,
        /// The most that the queue could ever use.
        nominal: i64,
        /// The smallest nominal quota with which the workload would fit.
        raise_to: i64,
    },
    /// The queue's quota is large enough, but too much of it is in use.
    Used(Box<Shortage>),
}

/// Why a job's local queue leads to no cluster queue that admits it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoRoute {
    /// The namespace has no such local queue.
    NoLocalQueue { namespace: Arc<str>, queue: Arc<str> },
    /// The local queue points to a cluster queue that doesn't exist.
    NoClusterQueue { cluster_queue: String },
    /// The namespace selector of the cluster queue doesn't match.
    NamespaceNotSelected { cluster_queue: String, namespace: Arc<str> },
    /// The cluster queue has no namespace selector, so it selects no namespace.
    SelectsNoNamespace { cluster_queue: String },
    /// The local queue or the cluster queue is stopped.
    Stopped {
        /// Kind and name of the stopped queue.
        what: String,
    },
}

/// Why residency forbids a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Denied {
    /// A policy's deny list names the cluster.
    Listed { policy: String, version: RecordNumber },
    /// A policy's allow list doesn't contain the cluster.
    NotAllowed { policy: String, version: RecordNumber },
    /// The submitter asked for other regions.
    NotRequested,
    /// Region or jurisdiction of the cluster isn't declared.
    UnknownPlace,
    /// No policy matches, and the manager runs with `--residency=required`.
    NoPolicy,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed { policy, version } => {
                write!(f, "residency policy `{policy}` (version {version}) denies this cluster")
            }
            Self::NotAllowed { policy, version } => {
                write!(f, "residency policy `{policy}` (version {version}) doesn't allow this cluster")
            }
            Self::NotRequested => f.write_str("the job requests other regions"),
            Self::UnknownPlace => f.write_str("the cluster's region and jurisdiction are unknown"),
            Self::NoPolicy => f.write_str("no residency policy matches, and the manager requires one"),
        }
    }
}

impl Denied {
    /// The rule that forbids the cluster, with its version if it has one. For the audit log.
    pub fn rule(&self) -> String {
        match self {
            Self::Listed { policy, version } | Self::NotAllowed { policy, version } => {
                format!("{policy}@{version}")
            }
            Self::NotRequested => "job-regions".into(),
            Self::UnknownPlace => "unknown-place".into(),
            Self::NoPolicy => "required".into(),
        }
    }
}

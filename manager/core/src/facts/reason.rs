//! Where a workload may be known at all.
//!
//! A cluster is allowed when no matching policy denies it and every matching policy that allows anything allows it. Deny
//! beats allow. Policies match by namespace, by the namespace's labels, by queue, and by the workload's own labels; because
//! the first two *bind* whatever the workload says, its own labels and queue can only bring further policies in, never
//! take one out. The submitter's wish narrows. An unknown region or jurisdiction matches no allow list: fail closed.

use meridian_queueing::model::Inactive;
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RefuseReason;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Why a class can't start, at one cluster or at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// Its queue leads nowhere.
    Route(NoRoute),
    /// Quota isn't there.
    Quota(NoQuota),
    /// A residency rule forbids it.
    Forbidden(Denied),
    /// No cluster is declared or allowed by the queue.
    NoCluster,
    /// The queue doesn't use this cluster.
    NotInQueue,
    /// The list of the clusters that the queue may use isn't there.
    NoWorkersConfig {
        /// The admission check that names it.
        check: String,
        /// Its name.
        config: String,
    },
    /// An operator keeps new work away.
    Cordoned,
    /// It never joined, or hasn't been heard of.
    NotConnected,
    /// It is connected, but its inventory isn't complete yet.
    Recovering,
    /// It joined just now: no other cluster has acknowledged its name yet.
    NotAdmitted,
    /// The agent finds itself somewhere else than it was declared.
    Quarantined {
        /// Where.
        located: String,
    },
    /// It hasn't reported its room yet.
    NoReport,
    /// The policy requires guarded gangs and its runner only supervises.
    NotGuarded,
    /// What it may be believed to have is used up.
    Capped {
        /// Resource.
        resource: String,
        /// Asked for.
        asks: i64,
        /// Left under the cap.
        left: i64,
        /// The cap.
        cap: i64,
    },
    /// No room by its report.
    NoRoom(Misfit),
    /// There is room, and it is kept for another workload.
    Kept {
        /// Its namespace and name.
        for_whom: String,
        /// It waits too long; otherwise others stop for it.
        starves: bool,
    },
    /// Quota is there, and it is kept for a workload that waits too long.
    GivesWay,
    /// The agent said no, and nothing that it named has changed since.
    Refused {
        /// From the closed list.
        reason: RefuseReason,
        /// Its words.
        text: String,
    },
    /// Holds there did not reach running: it is left out for a while.
    BackedOff,
    /// Another cluster was better; it would have had room.
    NotChosen {
        /// Which.
        chosen: ClusterName,
    },
    /// Recovery is open: what may still run isn't known.
    RecoveryOpen,
    /// Rules newer than the journal's were shown; an operator must confirm them.
    RulesDoubted,
    /// Others were told to stop for it.
    Preempts {
        /// How many.
        victims: usize,
    },
    /// Another queue's head came first.
    Overtaken,
    /// Its cluster queue admits nothing.
    Inactive {
        /// Which.
        queue: String,
        /// Why.
        why: Inactive,
    },
    /// It waits a moment before the next attempt.
    BackOff,
}

/// What is short of a flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shortage {
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Asked for.
    pub asks: i64,
    /// Free, borrowed or not.
    pub free: i64,
    /// Nominal quota.
    pub nominal: i64,
    /// Of which its own are free.
    pub own: i64,
    /// And so much isn't, as others have borrowed it.
    pub lent: i64,
    /// The cohort that lends the rest.
    pub cohort: Option<String>,
    /// Others use it, and may not be displaced.
    pub no_victims: bool,
    /// The nominal quota that would do.
    pub raise_to: i64,
    /// Other resources are short too.
    pub also: Vec<String>,
}

/// Why quota isn't there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoQuota {
    /// No resource group covers the resource.
    NotCovered {
        /// Resource.
        resource: String,
    },
    /// No flavor serves the pods (node selector, affinity, taints).
    NoMatchingFlavor {
        /// Per flavor, in words.
        why: String,
    },
    /// More than the queue could ever use, borrowed or not.
    ExceedsQuota {
        /// Flavor.
        flavor: String,
        /// Resource.
        resource: String,
        /// Asked for.
        asks: i64,
        /// The most that it could use.
        nominal: i64,
        /// The nominal quota that would do.
        raise_to: i64,
    },
    /// Not enough of it is free now.
    Used(Box<Shortage>),
}

/// Why a job's queue leads nowhere, in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoRoute {
    /// There is no such local queue in the namespace.
    NoLocalQueue {
        /// Namespace.
        namespace: Arc<str>,
        /// Queue.
        queue: Arc<str>,
    },
    /// It names a cluster queue that doesn't exist.
    NoClusterQueue {
        /// Its name.
        cluster_queue: String,
    },
    /// The cluster queue doesn't admit this namespace.
    NamespaceNotSelected {
        /// Cluster queue.
        cluster_queue: String,
        /// Namespace.
        namespace: Arc<str>,
    },
    /// One of them is stopped.
    Stopped {
        /// Which, in words.
        what: String,
    },
}

/// Why a cluster is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Denied {
    /// A policy's deny list names it.
    Listed {
        /// Policy.
        policy: String,
        /// Its version.
        version: RecordNumber,
    },
    /// A policy allows other places only.
    NotAllowed {
        /// Policy.
        policy: String,
        /// Its version.
        version: RecordNumber,
    },
    /// The submitter asked for other regions.
    NotWished,
    /// Nobody declared the cluster: its place is unknown.
    UnknownPlace,
    /// No policy matches, and the manager requires one.
    NoPolicy,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed { policy, version } => {
                write!(f, "residency policy `{policy}` (version {version}) denies this cluster")
            }
            Self::NotAllowed { policy, version } => {
                write!(f, "residency policy `{policy}` (version {version}) allows other places only")
            }
            Self::NotWished => f.write_str("the job asks for other regions"),
            Self::UnknownPlace => f.write_str("the cluster's region and jurisdiction are unknown"),
            Self::NoPolicy => f.write_str("no residency policy matches, and the manager requires one"),
        }
    }
}

impl Denied {
    /// The rule and its version, for the audit log.
    pub fn rule(&self) -> String {
        match self {
            Self::Listed { policy, version } | Self::NotAllowed { policy, version } => {
                format!("{policy}@{version}")
            }
            Self::NotWished => "wish".into(),
            Self::UnknownPlace => "unknown-place".into(),
            Self::NoPolicy => "required".into(),
        }
    }
}

//! Lifecycle events of workloads, for metrics: quota, admission, readiness, eviction, end.
//!
//! They are part of an input's outcome; the shell counts them after the commit. No decision depends on them.
//! Where the meaning is Kueue's, so is the name.

use crate::facts::end::{EvictionCause, PreemptionReason};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Millis;
use std::sync::Arc;

/// Queues and priority class of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Empty if the local queue points to no cluster queue.
    pub cluster_queue: Arc<str>,
    /// Namespace of the local queue.
    pub namespace: Arc<str>,
    pub local_queue: Arc<str>,
    /// Workload priority class of the job, if it existed at submission; empty if the job named none.
    pub priority_class: Arc<str>,
}

/// In every event, `waited` counts from the submission or, if later, from the last requeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    QuotaReserved {
        waited: Millis,
    },
    /// A cluster got the right to run the workload.
    Admitted {
        cluster: ClusterName,
        waited: Millis,
        /// Time since quota was reserved, if known: Kueue's wait for admission checks.
        checked: Option<Millis>,
    },
    /// All pods run.
    Ready {
        waited: Millis,
        /// Time since admission.
        started: Millis,
    },
    /// The workload lost its quota or its right to run before its job ended.
    Evicted {
        cause: EvictionCause,
        /// Whether the workload is evicted for this cause for the first time.
        first: bool,
        /// How long all pods had run, if they did.
        ran: Option<Millis>,
        /// Cluster that had the right to run.
        cluster: Option<ClusterName>,
        /// Cluster queue of the preemptor and the reason, if the workload was preempted.
        preempted: Option<(Arc<str>, PreemptionReason)>,
    },
    /// An ordered stop is confirmed, or the lease has lapsed.
    Stopped {
        cause: EvictionCause,
        /// Time since the order.
        took: Millis,
    },
    /// A running workload got more pods. In Kueue a new workload slice replaces the old one.
    Replaced,
    /// The job ended for good.
    Finished {
        /// Run time over all attempts.
        ran: Millis,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleEvent {
    pub uid: Uid,
    pub owner: Owner,
    pub event: Event,
}

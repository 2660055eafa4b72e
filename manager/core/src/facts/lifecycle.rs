//! What happened to a workload that dashboards count: quota, admission, readiness, eviction, the end.
//!
//! Told with the outcome of the input that brought it about, and counted by the shell once that is committed; nothing is
//! decided by it. The words are Kueue's where the meaning is.

use meridian_shared::ids::ClusterName;
use meridian_shared::time::Millis;
use std::sync::Arc;

/// Whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The cluster queue; empty where the local queue leads to none.
    pub cluster_queue: Arc<str>,
    /// The local queue's namespace.
    pub namespace: Arc<str>,
    /// The local queue.
    pub local_queue: Arc<str>,
    /// The workload priority class, which existed when the job was submitted; empty where it named none.
    pub priority_class: Arc<str>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Quota was reserved.
    QuotaReserved {
        /// Since it was submitted, or came back to the queue.
        waited: Millis,
    },
    /// A cluster got the right to run it.
    Admitted {
        /// Which.
        cluster: ClusterName,
        /// Since it was submitted, or came back to the queue.
        waited: Millis,
        /// Since quota was reserved, where that is known.
        checked: Option<Millis>,
    },
    /// All its pods run.
    Ready {
        /// Since it was submitted, or came back to the queue.
        waited: Millis,
        /// Since it was admitted.
        started: Millis,
    },
    /// It lost its right to run, or its quota, without having ended.
    Evicted {
        /// Kueue's word.
        reason: String,
        /// Ours, where Kueue's says less.
        cause: String,
        /// It never did before for this reason.
        first: bool,
        /// How long all its pods had run.
        ran: Option<Millis>,
        /// The cluster where it was admitted.
        cluster: Option<ClusterName>,
        /// The cluster queue for whose workload it was displaced, and by which right.
        displaced: Option<(Arc<str>, String)>,
    },
    /// Who was told to stop has stopped, or its lease has lapsed.
    Stopped {
        /// Kueue's word for why.
        reason: String,
        /// Since it was told.
        took: Millis,
    },
    /// It was given more pods while it runs: Kueue's new slice in place of the old one.
    Replaced,
    /// It ended for good.
    Finished {
        /// Run time over all attempts.
        ran: Millis,
    },
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// Whose.
    pub whose: Whose,
    /// What.
    pub event: Event,
}

//! Backoff after failed starts: workloads that got capacity on a cluster and didn't reach running in time.
//!
//! After one failed start, the workload tries that cluster last. After repeated ones, the workload skips the
//! cluster for a while. If different workloads fail there and none reaches running in between, the cluster
//! itself is at fault, and all workloads skip it. A single workload that can't start anywhere therefore takes
//! no cluster away from others.

use crate::sessions::LiveCluster;
use meridian_shared::backoff;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;

/// Consecutive failed starts before a cluster is skipped.
pub(crate) const IN_A_ROW: u32 = 2;

/// Time until the second attempt. It grows with each further failed start.
const WAIT: Millis = Millis::secs(30);

/// Longest time between two attempts.
const WAIT_MAX: Millis = Millis::mins(10);

/// Failed starts of a workload on a cluster, and the end of its backoff there.
pub(crate) type FailedStarts = BTreeMap<(Uid, ClusterName), (u32, Mono)>;

/// End of the backoff after this many failed starts.
pub(crate) fn wait(times: u32, now: Mono) -> Mono {
    now + backoff::wait(WAIT, WAIT_MAX, times.saturating_sub(IN_A_ROW), now.0)
}

impl LiveCluster {
    /// Consecutive failed starts, or zero while they are too few to blame the cluster.
    pub(crate) fn fails(&self) -> u32 {
        if self.failed_starts >= IN_A_ROW { self.failed_starts } else { 0 }
    }
}

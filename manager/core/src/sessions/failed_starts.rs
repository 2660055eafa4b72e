//! Gangs that had room and didn't reach running there in time (the protocol's section 5).
//!
//! For the workload itself that cluster comes last from then on, and is left out for a while when it happened again. Where it
//! happened to several workloads in a row, and to none that ran in between, it is the cluster: it is left out for everybody. One
//! workload that can't start anywhere takes no cluster from the others.

use crate::sessions::LiveCluster;
use meridian_shared::backoff;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;

/// In a row, before a cluster is left out.
pub(crate) const IN_A_ROW: u32 = 2;

/// How long it is left out, at first and at most.
const WAIT: Millis = Millis::secs(30);

const WAIT_MAX: Millis = Millis::mins(10);

/// How often a workload didn't reach running in a cluster, and until when it isn't tried there again.
pub(crate) type FailedStarts = BTreeMap<(Uid, ClusterName), (u32, Mono)>;

pub(crate) fn wait(times: u32, now: Mono) -> Mono {
    now + backoff::wait(WAIT, WAIT_MAX, times.saturating_sub(IN_A_ROW), now.0)
}

impl LiveCluster {
    /// How often it failed in a row, where that is held against it.
    pub(crate) fn fails(&self) -> u32 {
        if self.failed_starts >= IN_A_ROW { self.failed_starts } else { 0 }
    }
}

//! Gangs that had room and didn't reach running there in time (the protocol's section 5).
//!
//! For the workload itself that cluster comes last from then on, and is left out for a while when it happened again. Where it
//! happened to several workloads in a row, and to none that ran in between, it is the cluster: it is left out for everybody. One
//! workload that can't start anywhere takes no cluster from the others.

use crate::record::Class;
use crate::turn::Turn;
use crate::{LiveCluster, World};
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

fn wait(times: u32, now: Mono) -> Mono {
    now + backoff::wait(WAIT, WAIT_MAX, times.saturating_sub(IN_A_ROW), now.0)
}

impl LiveCluster {
    /// How often it failed in a row, where that is held against it.
    pub(crate) fn fails(&self) -> u32 {
        if self.failed_starts >= IN_A_ROW { self.failed_starts } else { 0 }
    }
}

impl Turn<'_> {
    /// A hold or grant there did not reach running.
    pub(crate) fn failed_start(&mut self, uid: Uid, cluster: &ClusterName) {
        let now = self.now.mono;
        let (times, until) = self.world.live.failed_starts.entry((uid, cluster.clone())).or_default();
        *times = times.saturating_add(1);
        if *times >= IN_A_ROW {
            *until = wait(*times, now);
        }
        if let Some(live) = self.world.live.clusters.get_mut(cluster)
            && live.failed_last.replace(uid) != Some(uid)
        {
            live.failed_starts = live.failed_starts.saturating_add(1);
            if live.failed_starts >= IN_A_ROW {
                live.backed_off = wait(live.failed_starts, now);
            }
        }
    }

    /// One runs there.
    pub(crate) fn started(&mut self, uid: Uid, cluster: &ClusterName) {
        self.world.live.failed_starts.remove(&(uid, cluster.clone()));
        if let Some(live) = self.world.live.clusters.get_mut(cluster) {
            (live.failed_starts, live.failed_last) = (0, None);
        }
    }
}

impl World {
    /// Whether the wait of anybody is over.
    pub(crate) fn end_waits_after_failed_starts(&mut self, now: Mono) -> bool {
        let of_workloads = self.live.failed_starts.values_mut().map(|(_, until)| until);
        let all = of_workloads.chain(self.live.clusters.values_mut().map(|live| &mut live.backed_off));
        all.filter(|until| **until > Mono(0) && **until <= now).map(|until| *until = Mono(0)).count() > 0
    }

    /// When the next of these waits is over.
    pub(crate) fn next_wait_after_failed_starts(&self) -> Option<Mono> {
        let of_workloads = self.live.failed_starts.values().map(|(_, until)| *until);
        of_workloads
            .chain(self.live.clusters.values().map(|live| live.backed_off))
            .filter(|until| *until > Mono(0))
            .min()
    }

    /// How often a workload didn't reach running in a cluster, and whether it is left out for it now.
    pub(crate) fn failed_to_start(&self, uid: Uid, cluster: &ClusterName, now: Mono) -> (u32, bool) {
        self.live
            .failed_starts
            .get(&(uid, cluster.clone()))
            .map_or((0, false), |(times, until)| (*times, *until > now))
    }

    /// Whether a cluster is left out for this workload alone: it was refused there, or didn't start.
    pub(crate) fn is_set_back(&self, uid: Uid, now: Mono) -> bool {
        let first = (uid, ClusterName::from(""));
        let of = |key: &(Uid, ClusterName)| key.0 == uid;
        let mut refused = self.live.refused.range(&first..).take_while(|(key, _)| of(key));
        let mut failed = self.live.failed_starts.range(&first..).take_while(|(key, _)| of(key));
        refused.any(|(_, (until, ..))| *until > now) || failed.any(|(_, (_, until))| *until > now)
    }

    /// How long a gang of this class may take from its grant to running.
    pub(crate) fn start_timeout(&self, class: &Class) -> Millis {
        let queue = self.state.catalog.local_queue(&class.namespace, &class.queue);
        let policy = queue.and_then(|queue| self.state.catalog.dispatch_policy(&queue.cluster_queue));
        policy.map_or(self.config.start_timeout, |policy| policy.start_timeout)
    }
}

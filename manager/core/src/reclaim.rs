//! Pods of a running gang that have succeeded and won't be needed again (Kueue's reclaimable pods): what they had goes to others
//! while the rest runs on. And those that have failed, which the next attempt goes on counting from.
//!
//! Agents say how many they are; they only become more, and never more than the gang was given. The next attempt, if there is
//! one, asks for the whole gang anew.

use crate::record::{Class, Record};
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{Workload, World};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{Run, SPARE_MAX, Spare};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Turn<'_> {
    pub(crate) fn take_spare(&mut self, cluster: &ClusterName, spare: Vec<Spare>) {
        for Spare { uid, fence, pods, failures } in spare.into_iter().take(SPARE_MAX) {
            if self.own_leg(cluster, uid, fence).is_some_and(|leg| leg.fence == Some(fence)) {
                self.reclaim(uid, fence, &pods);
                self.count_failures(cluster, uid, fence, failures);
            }
        }
    }

    /// Pods' failures are the job's: the next attempt goes on with their count, wherever this one is lost.
    fn count_failures(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence, failures: u32) {
        if self.workload(uid).is_some_and(|w| w.phase.granted() && w.pod_failures < failures)
            && !self.is_spent(cluster)
        {
            self.record(Record::PodsFailed { uid, fence, failures });
            self.spend(cluster, 0);
        }
    }

    /// Takes what an agent says of one run. Who is being stopped keeps what it has until it has stopped.
    pub(crate) fn reclaim(&mut self, uid: Uid, fence: Fence, pods: &BTreeMap<String, u32>) {
        let Some(workload) = self.workload(uid).filter(|w| w.phase == Phase::Running) else { return };
        let told = spare_of(&workload.given_gang(self.world.queues.class(workload.class)), pods);
        let before = workload.spare.clone().unwrap_or_else(|| vec![0; told.len()]);
        let pods: Vec<u32> = told.iter().zip(&before).map(|(told, before)| *told.max(before)).collect();
        if pods != before {
            self.record(Record::Reclaimed { uid, fence, pods });
            self.world.live.counts.reclaimed += 1;
            self.stir();
        }
    }
}

/// How many pods of each pod set are spare, no more than there are.
pub(crate) fn spare_of(gang: &Gang, pods: &BTreeMap<String, u32>) -> Vec<u32> {
    gang.pod_sets.iter().map(|set| pods.get(&set.name).copied().unwrap_or(0).min(set.count)).collect()
}

impl Workload {
    /// Its gang as it is charged: what it was given, less what it doesn't need any more.
    pub(crate) fn gang(&self, class: &Class) -> Arc<Gang> {
        let given = self.given_gang(class);
        let Some(spare) = &self.spare else { return given };
        let left: Vec<u32> =
            given.pod_sets.iter().zip(spare).map(|(set, spare)| set.count.saturating_sub(*spare)).collect();
        Arc::new(given.of_counts(&left))
    }

    /// How many of its pods gave back what they had.
    pub(crate) fn spare_pods(&self) -> u32 {
        self.spare.iter().flatten().sum()
    }
}

impl World {
    /// How many pods of each pod set a run has that is taken over.
    pub(crate) fn counts_of_adopted(&self, run: &Run) -> Vec<u32> {
        let gang =
            self.state.workloads.get(&run.uid).map(|w| w.adopted_gang(self.queues.class(w.class), run));
        gang.iter().flat_map(|gang| &gang.pod_sets).map(|set| set.count).collect()
    }

    /// Spare pods of a run that is taken over, as it was reported.
    pub(crate) fn spare_of_adopted(&self, run: &Run) -> Option<Vec<u32>> {
        let workload = self.state.workloads.get(&run.uid).filter(|_| !run.spare.is_empty())?;
        Some(spare_of(&workload.adopted_gang(self.queues.class(workload.class), run), &run.spare))
    }
}

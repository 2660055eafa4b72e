//! P4: clusters are granted no more than they may be believed to have. P3: quota returns only for pods that
//! have exited.

use crate::sim::clusters::is_hostile;
use crate::sim::invariants::Invariants;
use crate::sim::invariants::observation::Observation;
use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{ClusterName, Fence, Uid};

impl Invariants {
    /// Everything that a cluster is offered or granted is within its limit.
    pub(super) fn check_limit(&self, world: &World, uid: Uid, cluster: &ClusterName) -> Verdict {
        let Some(limit) = self.limit_of(cluster) else { return Ok(()) };
        let is_there = |w: &Workload| {
            w.legs()
                .values()
                .any(|leg| *leg.cluster() == *cluster && (leg.state().open() || leg.state().granted()))
        };
        let gpus = |(uid, w): (&Uid, &Workload)| {
            let Some(job) = self.jobs.get(uid).filter(|_| is_there(w)) else { return 0 };
            let class = world.queues().class(w.class());
            let requested: Vec<u32> = class.gang.pod_sets.iter().map(|set| set.count).collect();
            job.gpus_left(w.counts().or(Some(&requested)), w.spare())
        };
        let used: i64 = world.state().workloads().iter().map(gpus).sum();
        if used > limit {
            let details = format!(
                "{uid} is dispatched to `{cluster}`, which may have {limit} accelerators, and {used} are \
                 offered or granted there"
            );
            return violation("P4", details);
        }
        Ok(())
    }

    /// Quota returns only for pods that have exited, except on the hostile cluster.
    pub(super) fn check_reclaimed(
        &self,
        observation: &Observation<'_>,
        uid: Uid,
        fence: Fence,
        pods: &[u32],
    ) -> Verdict {
        let workload = observation.world.state().workloads().get(&uid);
        let leg = workload.and_then(|w| w.leg_of(fence)).map(|(_, leg)| leg);
        let honest = leg.is_some_and(|leg| !is_hostile(leg.cluster().as_str()));
        let (returned, exited) = (pods.iter().sum::<u32>() as usize, self.attempts.exited(uid, fence));
        if returned > exited && honest {
            let details = format!(
                "quota of {returned} pods of {uid} (fence {fence}) returns, and {exited} have exited"
            );
            return violation("P3", details);
        }
        Ok(())
    }
}

//! Answers to clusters: leases count from them, and a denied cluster gets nothing about a workload.

use crate::sim::clock::HostClock;
use crate::sim::invariants::Invariants;
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::reference_model::residency;
use meridian_manager_core::World;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{Command, SyncResponse};
use meridian_shared::time::{Millis, Mono};

impl Invariants {
    /// An answer to a cluster is composed.
    pub(crate) fn check_answer(
        &mut self,
        clock: &HostClock,
        now: Mono,
        world: &World,
        cluster: &ClusterName,
        answer: &SyncResponse,
    ) -> Verdict {
        let leadership = answer.leadership;
        let (jobs, leases) = (&self.jobs, &mut self.leases);
        let mut carry_lease = |uid: Uid, fence: Fence| {
            let term = jobs.get(&uid).map_or(Millis(0), |j| j.term);
            leases.answered(fence, leadership, term, clock, now);
        };
        answer.renewals.iter().for_each(|(uid, fence)| carry_lease(*uid, *fence));
        for command in &answer.commands {
            match command {
                Command::Offer(offer) => check_residency(world, offer.uid, cluster, "an offer")?,
                Command::Grant(grant) => {
                    carry_lease(grant.uid, grant.fence);
                    check_residency(world, grant.uid, cluster, "a grant")?;
                    if (grant.fence.epoch, grant.fence.leadership) != (leadership.epoch, leadership.id) {
                        let details = format!(
                            "{leadership} sends the grant of {} (fence {}) again",
                            grant.uid, grant.fence
                        );
                        return violation("recovery", details);
                    }
                }
                Command::ScaleDown { uid, .. } | Command::ScaleUp { uid, .. } => {
                    check_residency(world, *uid, cluster, "a size")?;
                }
                Command::SetPriority { uid, .. } => check_residency(world, *uid, cluster, "a priority")?,
                Command::Withdraw { .. } | Command::Stop { .. } => {}
            }
        }
        Ok(())
    }
}

/// P5: residency allows this cluster to know of this workload.
fn check_residency(world: &World, uid: Uid, cluster: &ClusterName, what: &str) -> Verdict {
    residency::allows(world, uid, cluster).or_else(|rule| {
        violation("P5", format!("{what} of {uid} goes to `{cluster}`, which is forbidden by {rule}"))
    })
}

//! What clusters report: every run becomes a leg or is stopped, and no end is forgotten.

use crate::sim::invariants::Invariants;
use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::{End, EndResult, Run};

impl Invariants {
    /// A reported run of a known workload becomes its leg in the transaction that records the report, or is
    /// stopped. A job that was reported as finished doesn't start again.
    pub(crate) fn check_reported(
        &self,
        world: &World,
        cluster: &ClusterName,
        runs: &[Run],
        ends: &[End],
    ) -> Verdict {
        if world.live().cluster(cluster).is_none_or(|l| !l.inventory().is_taken()) {
            return Ok(());
        }
        runs.iter().try_for_each(|run| self.check_run(world, cluster, run))?;
        let by_itself = |end: &&End| matches!(end.result, EndResult::Succeeded | EndResult::Failed { .. });
        ends.iter().filter(by_itself).try_for_each(|end| check_end(world, cluster, end))
    }

    fn check_run(&self, world: &World, cluster: &ClusterName, run: &Run) -> Verdict {
        let Some(w) = undeleted(world, run.uid).filter(|w| w.finished().is_none()) else { return Ok(()) };
        let is_newest = w.fence().is_none_or(|known| run.fence >= known);
        if is_newest && w.leg_of(run.fence).is_none() && !self.attempts.is_over(run.uid, run.fence) {
            let details = format!(
                "`{cluster}` reports a run of {} (fence {}), and it is no leg: {:?}",
                run.uid,
                run.fence,
                w.legs()
            );
            return violation("adoption", details);
        }
        Ok(())
    }
}

fn check_end(world: &World, cluster: &ClusterName, end: &End) -> Verdict {
    match undeleted(world, end.uid).filter(|w| w.fence() <= Some(end.fence)) {
        Some(w) if w.finished().is_none() && w.learned().is_none() => {
            let details = format!(
                "`{cluster}` reports the end of {} (fence {}), and it is {:?}",
                end.uid,
                end.fence,
                w.phase()
            );
            violation("end", details)
        }
        _ => Ok(()),
    }
}

/// The workload, unless its deletion was requested.
fn undeleted(world: &World, uid: Uid) -> Option<&Workload> {
    world.state().workloads().get(&uid).filter(|w| w.deletion().is_none())
}

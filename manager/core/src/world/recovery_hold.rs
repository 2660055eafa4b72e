//! How long open recovery holds back workloads of earlier leaderships, which may run in a cluster that hasn't
//! sent its inventory.

use crate::facts::reason::Why;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::World;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::Mono;

/// Condition that ends a hold before all awaited clusters have reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// `Fence`: the time by which every lease that the workload may hold has lapsed. If the journal may be a
    /// copy and no operator has confirmed it, the time counts from now, as if an operator confirmed it now.
    At(Mono),
    /// `Wait`: only `declare-lost` of each awaited cluster ends the hold.
    DeclareLost,
}

/// A workload that can't start elsewhere while recovery is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryHold<'w> {
    pub uid: Uid,
    pub workload: &'w Workload,
    /// The awaited cluster that has the right to run it, if the journal names one.
    pub cluster: Option<&'w ClusterName>,
    pub end: HoldEnd,
}

impl World {
    /// All workloads that recovery holds: pending ones, and those granted to a cluster that is still awaited.
    pub fn recovery_holds(&self, now: Mono) -> impl Iterator<Item = RecoveryHold<'_>> {
        let workloads = self.state.recovery().into_iter().flat_map(|_| self.state.workloads().iter());
        workloads.filter(|(_, workload)| workload.phase() != Phase::Finished).filter_map(
            move |(uid, workload)| {
                let (cluster, end) = match workload.right() {
                    None => (None, self.recovery_hold(workload, now)?),
                    Some((_, leg)) if !self.live.recovery().awaited().contains(leg.cluster()) => return None,
                    Some((_, leg)) => (Some(leg.cluster()), self.lease_end(workload, now)),
                };
                Some(RecoveryHold { uid: *uid, workload, cluster, end })
            },
        )
    }

    /// Why nothing is offered: policies and quotas may be outdated.
    pub fn rules_doubt(&self) -> Option<Why> {
        self.state.rules_doubted()?;
        Some(if self.state.rules_doubted_until_heard() { Why::RulesUnheard } else { Why::RulesDoubted })
    }

    /// Condition that ends the hold of a workload that no known cluster has the right to run. `None` if it
    /// isn't held.
    pub(crate) fn recovery_hold(&self, workload: &Workload, now: Mono) -> Option<HoldEnd> {
        let recovery = self.state.recovery()?;
        if !workload.is_older_than(self.state.led_since()) {
            return None;
        }
        let counted_from = if recovery.restored { now } else { self.live.recovery().sole_since() };
        let lease = ManagerLease::from_composed(counted_from, workload.term());
        match workload.on_loss() {
            OnLoss::Wait => Some(HoldEnd::DeclareLost),
            OnLoss::Fence => (!lease.lapsed(now)).then_some(HoldEnd::At(lease.deadline)),
        }
    }

    fn lease_end(&self, workload: &Workload, now: Mono) -> HoldEnd {
        let lease =
            workload.fence().and_then(|fence| self.live.leases().get(fence)).map(|lease| lease.lease());
        let mut lease =
            lease.unwrap_or(ManagerLease::from_composed(self.live.recovery().sole_since(), workload.term()));
        if self.disputed(workload) {
            lease.compose(now);
        }
        match workload.on_loss() {
            OnLoss::Wait => HoldEnd::DeclareLost,
            OnLoss::Fence => HoldEnd::At(lease.deadline),
        }
    }
}

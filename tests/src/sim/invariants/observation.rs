//! One input of a manager as the checks see it: the world before, the outcome, the world after.

use crate::sim::invariants::quota::snapshot::QuotaSnapshot;
use meridian_manager_core::World;
use meridian_manager_core::facts::outcome::Outcome;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_shared::ids::{ClusterName, Leadership, LedgerId, RecordNumber, Uid};
use meridian_shared::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// What was true of a world before an input.
#[derive(Clone, Debug)]
pub(crate) struct WorldBefore {
    pub(crate) leadership: Leadership,
    pub(crate) recovery: Option<RecoveryStart>,
    pub(crate) led_since: RecordNumber,
    /// Ledgers of all members.
    pub(crate) ledgers: BTreeMap<ClusterName, LedgerId>,
    pub(crate) inactive: BTreeSet<Uid>,
    pub(crate) cordoned: BTreeSet<ClusterName>,
    pub(crate) quota: QuotaSnapshot,
}

impl WorldBefore {
    pub(crate) fn of(world: &World) -> Self {
        let state = world.state();
        let inactive = state.workloads().iter().filter(|(_, w)| w.inactive().is_some()).map(|(uid, _)| *uid);
        Self {
            leadership: state.leadership(),
            recovery: state.recovery().cloned(),
            led_since: state.led_since(),
            ledgers: state.members().iter().map(|(c, m)| (c.clone(), m.ledger())).collect(),
            inactive: inactive.collect(),
            cordoned: cordoned(world),
            quota: QuotaSnapshot::of(world),
        }
    }
}

/// Clusters that take nothing new.
pub(crate) fn cordoned(world: &World) -> BTreeSet<ClusterName> {
    world.state().catalog().clusters().filter(|(_, spec)| spec.cordoned).map(|(name, _)| name).collect()
}

/// One input's outcome, and its circumstances.
#[derive(Debug)]
pub(crate) struct Observation<'a> {
    /// Boot time of the manager.
    pub(crate) now: Mono,
    pub(crate) before: &'a WorldBefore,
    /// The world after the input.
    pub(crate) world: &'a World,
    pub(crate) outcome: &'a Outcome,
}

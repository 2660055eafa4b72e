//! Requests of users to deactivate or activate workloads, and the acknowledged state that must not be lost.

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::ids::Uid;
use std::collections::BTreeMap;

/// Requests about one workload.
#[derive(Clone, Copy, Debug, Default)]
struct Requested {
    /// Number of the newest request.
    newest: u64,
    /// A request was sent more than once, and may arrive again at any time.
    repeated: bool,
    /// The newest acknowledged state, if it is certain.
    acknowledged: Option<bool>,
    /// The state that was requested last.
    active: bool,
}

/// Requests to deactivate or activate, per workload.
#[derive(Debug, Default)]
pub(crate) struct ActivityRequests(BTreeMap<Uid, Requested>);

impl ActivityRequests {
    /// A request is made.
    pub(crate) fn requested(&mut self, uid: Uid, id: u64, active: bool) {
        let requested = self.0.entry(uid).or_default();
        (requested.newest, requested.acknowledged, requested.active) = (id, None, active);
    }

    /// A request is sent once more.
    pub(crate) fn repeated(&mut self, uid: Uid) {
        self.0.entry(uid).or_default().repeated = true;
    }

    /// A request was acknowledged, and no other one is under way.
    pub(crate) fn acknowledged(&mut self, uid: Uid, id: u64) {
        let requested = self.0.get_mut(&uid);
        if let Some(requested) = requested.filter(|known| known.newest == id && !known.repeated) {
            requested.acknowledged = Some(requested.active);
        }
    }

    /// An older copy of the journal is in use.
    pub(crate) fn history_lost(&mut self) {
        self.0.values_mut().for_each(|requested| requested.acknowledged = None);
    }

    /// P1: an acknowledged state is remembered until the workload is over.
    pub(crate) fn check_durability(&self, world: &World) -> Verdict {
        for (uid, requested) in &self.0 {
            let workload = world.state().workloads().get(uid);
            let open = workload.filter(|w| w.finished().is_none() && w.deletion().is_none());
            if let Some((w, active)) = open.zip(requested.acknowledged)
                && w.inactive().is_none() != active
            {
                let state = if active { "activation" } else { "deactivation" };
                return violation("P1", format!("the {state} of {uid} was acknowledged and is forgotten"));
            }
        }
        Ok(())
    }

    /// Whether a workload needn't end: it is deactivated and doesn't run, and no activation was acknowledged.
    pub(crate) fn may_stay_inactive(&self, world: &World, uid: Uid) -> bool {
        let is_parked =
            world.state().workloads().get(&uid).is_some_and(|w| {
                w.inactive().is_some() && w.phase() == Phase::Pending && w.legs().is_empty()
            });
        is_parked && self.0.get(&uid).is_some_and(|requested| requested.acknowledged != Some(true))
    }

    /// The state that was requested last; `None` without a request.
    pub(crate) fn requested_state(&self, uid: Uid) -> Option<bool> {
        self.0.get(&uid).map(|requested| requested.active)
    }
}

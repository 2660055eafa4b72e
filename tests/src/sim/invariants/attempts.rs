//! Attempts of workloads: fences increase, and an attempt that is over is never continued.

use crate::sim::invariants::observation::{Observation, cordoned};
use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_shared::ids::{Fence, Leadership, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// Attempts, by the managers' records and on honest machines.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// The largest fence ever granted, per workload.
    fences: BTreeMap<Uid, Fence>,
    /// Fences that only a lost history contains.
    lost_fences: BTreeSet<(Uid, Fence)>,
    /// Attempts that are over for good, and how they ended.
    over: BTreeMap<(Uid, Fence), &'static str>,
    /// The most places that an attempt was granted by scale-ups.
    places: BTreeMap<(Uid, Fence), u32>,
    /// Pods that have exited, as seen on an honest machine.
    exited: BTreeMap<(Uid, Fence), usize>,
}

impl Attempts {
    /// An older copy of the journal is in use.
    pub(crate) fn history_lost(&mut self, world: &World) {
        let is_of = |fence: &Fence, leadership: &Leadership| {
            (fence.epoch, fence.leadership) == (leadership.epoch, leadership.id)
        };
        let is_known = |fence: &Fence| world.state().ranges().iter().any(|(led, ..)| is_of(fence, led));
        let lost = self.fences.iter().filter(|(_, fence)| !is_known(fence));
        self.lost_fences.extend(lost.map(|(uid, fence)| (*uid, *fence)));
    }

    /// Whether a workload was ever granted, in whatever history.
    pub(crate) fn was_granted(&self, uid: Uid) -> bool {
        self.fences.contains_key(&uid)
    }

    /// Pods of an attempt were seen to have exited on a machine.
    pub(crate) fn pods_exited(&mut self, uid: Uid, fence: Fence, pods: usize) {
        let exited = self.exited.entry((uid, fence)).or_default();
        *exited = pods.max(*exited);
    }

    /// Pods of an attempt that have exited.
    pub(crate) fn exited(&self, uid: Uid, fence: Fence) -> usize {
        self.exited.get(&(uid, fence)).copied().unwrap_or(0)
    }

    /// An attempt is granted more places.
    pub(crate) fn scaled_up(&mut self, uid: Uid, fence: Fence, places: u32) {
        let most = self.places.entry((uid, fence)).or_default();
        *most = places.max(*most);
    }

    /// The most places that an attempt was granted by scale-ups.
    pub(crate) fn places_granted(&self, uid: Uid, fence: Fence) -> u32 {
        self.places.get(&(uid, fence)).copied().unwrap_or(0)
    }

    /// A grant carries a larger fence of this leadership, and goes to a cluster that takes new work.
    pub(crate) fn check_grant(&mut self, observation: &Observation<'_>, uid: Uid, fence: Fence) -> Verdict {
        let world = observation.world;
        let leadership = world.state().leadership();
        if (fence.epoch, fence.leadership) != (leadership.epoch, leadership.id) {
            return violation("fence", format!("{uid} is granted (fence {fence}) by {leadership}"));
        }
        let workload = world.state().workloads().get(&uid);
        // The fences of a lost history are unknown if the agent's store is lost, too.
        let is_known =
            |known: &Fence| workload.is_some_and(|w| w.history().iter().any(|past| past.fence == *known));
        if let Some(known) = self.fences.insert(uid, fence)
            && known >= fence
            && (is_known(&known) || !self.lost_fences.contains(&(uid, known)))
        {
            return violation("fence", format!("{uid} is granted (fence {fence}) after fence {known}"));
        }
        let leg = workload.and_then(|w| w.leg_of(fence));
        if leg.is_some_and(|(_, leg)| {
            observation.before.cordoned.contains(leg.cluster()) && cordoned(world).contains(leg.cluster())
        }) {
            return violation("cordon", format!("{uid} is granted to a cordoned cluster"));
        }
        Ok(())
    }

    /// A manager records that an attempt is over, and may grant the workload again: nothing of the attempt is
    /// alive.
    pub(crate) fn over(
        &mut self,
        uid: Uid,
        fence: Fence,
        how: &'static str,
        is_alive: &dyn Fn(Uid, Fence) -> bool,
    ) -> Verdict {
        self.over.insert((uid, fence), how);
        if is_alive(uid, fence) {
            let details = format!("{uid} (fence {fence}) has {how} at the manager, and its pods run");
            return violation("freed while running", details);
        }
        Ok(())
    }

    /// Whether a manager recorded that an attempt is over.
    pub(crate) fn is_over(&self, uid: Uid, fence: Fence) -> bool {
        self.over.contains_key(&(uid, fence))
    }

    /// P2: an attempt that is over does nothing any more.
    pub(crate) fn check_not_over(&self, uid: Uid, fence: Fence, does: &str) -> Verdict {
        match self.over.get(&(uid, fence)) {
            Some(how) => violation("P2", format!("{uid} (fence {fence}) {does} after it has {how}")),
            None => Ok(()),
        }
    }
}

//! Numbers of pods that users requested for elastic jobs, and the acknowledged size that must not be lost.

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_shared::ids::Uid;
use std::collections::BTreeMap;

/// Requests about the size of one job.
#[derive(Clone, Copy, Debug, Default)]
struct Requested {
    /// Number of the newest request.
    newest: u64,
    /// A request was sent more than once, and may arrive again at any time.
    repeated: bool,
    /// The newest acknowledged number of pods, if it is certain.
    acknowledged: Option<usize>,
}

/// Requests for other numbers of pods, per job.
#[derive(Debug, Default)]
pub(crate) struct ResizeRequests(BTreeMap<Uid, Requested>);

impl ResizeRequests {
    /// A request is made.
    pub(crate) fn requested(&mut self, uid: Uid, id: u64) {
        let requested = self.0.entry(uid).or_default();
        (requested.newest, requested.acknowledged) = (id, None);
    }

    /// A request is sent once more.
    pub(crate) fn repeated(&mut self, uid: Uid) {
        self.0.entry(uid).or_default().repeated = true;
    }

    /// A request was acknowledged, and no other one is under way.
    pub(crate) fn acknowledged(&mut self, uid: Uid, id: u64, pods: usize) {
        let requested = self.0.get_mut(&uid);
        if let Some(requested) = requested.filter(|known| known.newest == id && !known.repeated) {
            requested.acknowledged = Some(pods);
        }
    }

    /// An older copy of the journal is in use.
    pub(crate) fn history_lost(&mut self) {
        self.0.values_mut().for_each(|requested| requested.acknowledged = None);
    }

    /// P1: an acknowledged size is remembered until the workload is over.
    pub(crate) fn check_durability(&self, world: &World) -> Verdict {
        for (uid, requested) in &self.0 {
            let workload = world.state().workloads().get(uid);
            let open = workload.filter(|w| w.finished().is_none() && w.deletion().is_none());
            let Some((w, pods)) = open.zip(requested.acknowledged) else { continue };
            let has: u32 = world.queues().class(w.class()).gang.pod_sets.iter().map(|set| set.count).sum();
            if has as usize != pods {
                let details = format!("a size of {pods} pods was acknowledged for {uid}, and it has {has}");
                return violation("P1", details);
            }
        }
        Ok(())
    }
}

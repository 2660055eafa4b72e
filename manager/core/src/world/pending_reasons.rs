//! Pending reasons as displayed to users.

use crate::facts::reason::Why;
use crate::facts::submission::ClassId;
use crate::queue::pending_reasons::{Changed, PendingReason};
use crate::world::World;
use meridian_shared::ids::ClusterName;
use std::collections::BTreeMap;

impl World {
    /// Why a class is pending; `None` if no reason is known.
    pub fn pending_reason(&self, class: ClassId) -> Option<PendingReason> {
        let known = self.live.pending_reasons();
        // If some cluster can start the class, the obstacles at the other clusters aren't why it is pending.
        let all = known.at_clusters(class).filter(|_| !known.is_able(class));
        let nowhere = || all.filter(|all| all.is_empty()).map(|_| Why::NoCluster);
        let before = known.before(class).cloned().or_else(nowhere);
        let nearest =
            all.and_then(|all| nearest(all).map(|(cluster, why)| (cluster.clone(), all.len(), why.clone())));
        (before.is_some() || nearest.is_some()).then_some(PendingReason { before, nearest })
    }

    /// Classes whose reason has changed since the previous call, with the new reason.
    pub fn take_changed_reasons(&mut self) -> Changed {
        let changed = self.live.pending_reasons_mut().take_changed();
        changed.into_iter().map(|class| (class, self.pending_reason(class))).collect()
    }

    /// The reasons of all classes.
    pub fn all_pending_reasons(&self) -> Changed {
        let known = self.live.pending_reasons();
        known.classes().into_iter().map(|class| (class, self.pending_reason(class))).collect()
    }
}

/// The cluster with the smallest obstacle.
fn nearest(at_clusters: &BTreeMap<ClusterName, Why>) -> Option<(&ClusterName, &Why)> {
    at_clusters
        .iter()
        .min_by_key(|(_, why)| why.cluster_obstacle().0)
        .filter(|(_, why)| !why.cluster_obstacle().1.is_empty())
}

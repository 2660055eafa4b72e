use crate::facts::reason::Why;
use crate::facts::submission::ClassId;
use crate::queue::pending_reasons::{Changed, PendingReason};
use crate::views::metrics;
use crate::world::World;
use std::collections::BTreeSet;

impl World {
    /// What keeps a class, if anything does.
    pub fn pending_reason(&self, class: ClassId) -> Option<PendingReason> {
        let known = &self.live.pending_reasons;
        // Who could be started somewhere waits for something else.
        let all = known.at_clusters(class).filter(|_| !known.able.contains(&class));
        let nowhere = || all.filter(|all| all.is_empty()).map(|_| Why::NoCluster);
        let before = known.before(class).cloned().or_else(nowhere);
        let nearest = all.and_then(|all| {
            metrics::nearest(all).map(|(cluster, why)| (cluster.clone(), all.len(), why.clone()))
        });
        (before.is_some() || nearest.is_some()).then_some(PendingReason { before, nearest })
    }

    /// Of which classes that changed since this was last asked.
    pub fn take_changed_reasons(&mut self) -> Changed {
        let changed = std::mem::take(&mut self.live.pending_reasons.changed);
        changed.into_iter().map(|class| (class, self.pending_reason(class))).collect()
    }

    /// Those of all classes.
    pub fn all_pending_reasons(&self) -> Changed {
        let known = &self.live.pending_reasons;
        let classes: BTreeSet<ClassId> =
            known.before.keys().chain(known.at_clusters.keys()).copied().collect();
        classes.into_iter().map(|class| (class, self.pending_reason(class))).collect()
    }
}

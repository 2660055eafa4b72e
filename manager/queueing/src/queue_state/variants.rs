//! Workloads that belong together: slices that replace older slices, and variants of one workload on several
//! flavors.

use crate::model::{Delayed, Workload, WorkloadId};
use crate::names::FlavorId;
use crate::queue_state::QueueState;
use std::sync::Arc;

impl QueueState {
    /// The older slice that a workload replaces, if it holds quota of the same queue.
    pub(crate) fn replaced_slice(&self, workload: WorkloadId) -> Option<WorkloadId> {
        if !self.settings.gates.elastic_slices {
            return None;
        }
        let of = &self.workloads[&workload];
        let old = self.find(of.marks().replaces.as_ref()?)?;
        let slice = &self.workloads[&old];
        (old != workload
            && slice.queue == of.queue
            && slice.holding.is_some()
            && slice.namespace() == of.namespace())
        .then_some(old)
    }

    fn flavor_index(&self, workload: WorkloadId) -> Option<usize> {
        let of = &self.workloads[&workload];
        let (_, flavor) = of.marks().variant_of.as_ref()?;
        let group = self.queue(of.queue).setup.groups.first()?;
        group.flavors.iter().position(|f| self.flavor_name(*f) == flavor)
    }

    /// An admitted variant of the same workload with a better, or a worse, flavor.
    pub(crate) fn sibling(&self, workload: WorkloadId, better: bool) -> Option<WorkloadId> {
        let of = &self.workloads[&workload];
        let (parent, _) = of.marks().variant_of.as_ref()?;
        let mine = self.flavor_index(workload)?;
        self.queues.get(of.queue).holders.iter().copied().find(|id| {
            let other = &self.workloads[id];
            let related =
                other.uid != of.uid && other.marks().variant_of.as_ref().is_some_and(|(p, _)| p == parent);
            let admitted = other.holding.as_ref().is_some_and(|h| h.admitted);
            related
                && admitted
                && self
                    .flavor_index(*id)
                    .is_some_and(|theirs| if better { theirs < mine } else { theirs > mine })
        })
    }

    /// Whether the flavor of a variant is acceptable for migration.
    pub(crate) fn may_migrate(&self, workload: WorkloadId) -> bool {
        let setup = &self.queue(self.workloads[&workload].queue).setup;
        let Some(last) = setup.last_acceptable_flavor else { return true };
        let last = setup.groups.first().and_then(|g| g.flavors.iter().position(|f| *f == last));
        self.flavor_index(workload).zip(last).is_some_and(|(mine, last)| mine <= last)
    }

    /// Whether all checks of a holder are done.
    pub(super) fn checks_are_done(&self, workload: WorkloadId) -> bool {
        let of = &self.workloads[&workload];
        let Some(holding) = &of.holding else { return false };
        let marks = of.marks();
        let is_delayed =
            holding.given.iter().any(|g| g.placement.is_none() && g.delayed == Some(Delayed::Pending));
        let stated = (marks.checks.is_empty() || marks.checks_ready)
            && self.checks_of(workload).all(|check| marks.checks.contains(check));
        stated && !is_delayed
    }

    /// The admission checks that apply to a holder's flavors. A check for all flavors doesn't apply to a
    /// holder without any.
    pub fn checks_of(&self, workload: WorkloadId) -> impl Iterator<Item = &Arc<str>> {
        let of = &self.workloads[&workload];
        let setup = &self.queue(of.queue).setup;
        let given = of.holding.as_ref().map(|h| h.given.as_slice()).unwrap_or_default();
        let uses = |flavor: &FlavorId| given.iter().any(|g| g.flavors.values().any(|f| f == flavor));
        let any = move || setup.groups.iter().flat_map(|group| &group.flavors).any(uses);
        setup
            .checks
            .iter()
            .filter(move |(_, flavors)| if flavors.is_empty() { any() } else { flavors.iter().any(uses) })
            .map(|(name, _)| name)
    }

    /// Whether a node of its topology assignment is lost.
    pub(crate) fn has_lost_node(&self, workload: &Workload) -> bool {
        let lost = &workload.marks().lost_nodes;
        let Some(holding) = workload.holding.as_ref().filter(|_| !lost.is_empty()) else { return false };
        let mut domains = holding.given.iter().filter_map(|g| g.placement.as_ref()).flat_map(|p| &p.domains);
        domains.any(|domain| domain.values.last().is_some_and(|node| lost.contains(node)))
    }
}

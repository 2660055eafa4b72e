//! Workloads that stand for others: slices that replace older ones, variants of one workload on several flavors.

use crate::brain::Brain;
use crate::model::WorkloadId;
use crate::names::Id;

impl Brain {
    /// The older slice that a workload replaces, while it holds quota of the same queue.
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

    fn flavor_place(&self, workload: WorkloadId) -> Option<usize> {
        let of = &self.workloads[&workload];
        let (_, flavor) = of.marks().variant_of.as_ref()?;
        let group = self.queue(of.queue).setup.groups.first()?;
        group.flavors.iter().position(|f| self.flavor_name(*f) == flavor)
    }

    /// An admitted variant of the same workload: with a better flavor, or with a worse one.
    pub(crate) fn sibling(&self, workload: WorkloadId, better: bool) -> Option<WorkloadId> {
        let of = &self.workloads[&workload];
        let (parent, _) = of.marks().variant_of.as_ref()?;
        let mine = self.flavor_place(workload)?;
        self.queues[of.queue.index()].holders.iter().copied().find(|id| {
            let other = &self.workloads[id];
            let related =
                other.uid != of.uid && other.marks().variant_of.as_ref().is_some_and(|(p, _)| p == parent);
            let admitted = other.holding.as_ref().is_some_and(|h| h.admitted);
            related
                && admitted
                && self
                    .flavor_place(*id)
                    .is_some_and(|theirs| if better { theirs < mine } else { theirs > mine })
        })
    }

    /// Whether a variant's flavor is good enough to move to.
    pub(crate) fn may_migrate(&self, workload: WorkloadId) -> bool {
        let setup = &self.queue(self.workloads[&workload].queue).setup;
        let Some(last) = setup.last_acceptable_flavor else { return true };
        let last = setup.groups.first().and_then(|g| g.flavors.iter().position(|f| *f == last));
        self.flavor_place(workload).zip(last).is_some_and(|(mine, last)| mine <= last)
    }

    /// Whether nothing is left to be checked before a holder may run.
    pub(crate) fn nothing_to_check(&self, workload: WorkloadId) -> bool {
        let of = &self.workloads[&workload];
        let Some(holding) = &of.holding else { return false };
        let marks = of.marks();
        let to_come = holding
            .given
            .iter()
            .any(|g| g.placement.is_none() && g.delayed == Some(crate::model::Delayed::Pending));
        let stated = (marks.checks.is_empty() || marks.checks_ready)
            && self.checks_of(workload).all(|check| marks.checks.contains(check));
        stated && !to_come
    }

    /// Names of the admission checks that apply to a holder, by its flavors: a check for all of them asks nothing of who has none.
    pub fn checks_of(&self, workload: WorkloadId) -> impl Iterator<Item = &std::sync::Arc<str>> {
        let of = &self.workloads[&workload];
        let setup = &self.queue(of.queue).setup;
        let given = of.holding.as_ref().map(|h| h.given.as_slice()).unwrap_or_default();
        let uses =
            |flavor: &crate::names::FlavorId| given.iter().any(|g| g.flavors.values().any(|f| f == flavor));
        let any = move || setup.groups.iter().flat_map(|group| &group.flavors).any(uses);
        setup
            .checks
            .iter()
            .filter(move |(_, flavors)| if flavors.is_empty() { any() } else { flavors.iter().any(uses) })
            .map(|(name, _)| name)
    }
}

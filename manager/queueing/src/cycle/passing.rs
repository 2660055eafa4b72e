//! Heads that are passed by: what is short for them is as short as before, and nobody may be displaced for it.
//!
//! A change wakes whoever waits in its tree, and for most nothing has changed. For the usual head that can be told from three
//! numbers of its queue, and its class sleeps on. Whoever isn't passed by is looked at as ever, so that what isn't covered here
//! costs time and changes no decision.

use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::{Displaces, Group, QueueId, Requests, Shape, WorkloadId};
use crate::names::{FlavorId, Id, ResourceId};
use crate::pending::Pending;
use crate::tree::NodeId;

/// A head that was passed by, and what is short for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Who.
    pub workload: WorkloadId,
    /// Its queue.
    pub queue: QueueId,
    /// How much is missing of flavors and resources, in the order in which it would have been given them.
    pub short: Vec<(FlavorId, ResourceId, Amount)>,
}

impl Brain {
    /// Puts classes of a queue to sleep again as long as its head would be looked at in vain.
    pub(super) fn pass_by(&mut self, queue: QueueId, all: &mut Vec<Passed>) {
        while let Some(passed) = self.looked_at_in_vain(queue) {
            self.pending[queue.index()].sleep(self.workloads[&passed.workload].shape);
            self.note_active(queue);
            self.queues[queue.index()].cycles += 1;
            all.push(passed);
        }
    }

    /// The head of a queue where a cycle would come to nothing but that it has no candidates: nobody of its queue may give way,
    /// others needn't as it would borrow, and it keeps nothing from others.
    pub fn looked_at_in_vain(&self, queue: QueueId) -> Option<Passed> {
        let of = self.queue(queue);
        let setup = &of.setup;
        let node = of.node.filter(|_| setup.inactive.is_none() && !setup.strict)?;
        let usual = self.settings.fair_sharing.is_none()
            && self.settings.gates.scheduling_equivalence
            && !self.settings.gates.topology;
        let policies = setup.preemption.reclaim_within_cohort == Displaces::Any
            && setup.preemption.borrow_within_cohort.is_none();
        // In a cohort of cohorts a subtree may have the advantage over others.
        let flat = self.forest.node(node).parent.is_none_or(|above| self.forest.node(above).parent.is_none());
        if !(usual && policies && flat) || self.starving(queue).is_some() {
            return None;
        }
        let (place, _) = self.ordered(queue, Pending::head)?;
        let workload = &self.workloads[&place.workload];
        let shape = self.shape_of(workload.shape);
        let plain = workload.marks.is_none()
            && workload.scan.is_none()
            && !workload.placeless
            && !workload.in_vain
            && !self.is_preemptor(place.workload);
        if !plain || shape.may_shrink() || shape.allowed_flavors.is_some() || shape.pod_sets.len() != 1 {
            return None;
        }
        if self
            .displaceable(queue, setup.preemption.within_queue, (shape.priority, workload.since))
            .next()
            .is_some()
        {
            return None;
        }
        let short = self.short_in_every_flavor(queue, node, shape)?;
        Some(Passed { workload: place.workload, queue, short })
    }

    /// What there isn't enough of, where that is so in every flavor that there is to choose from, and nobody else's end can be
    /// brought about for it.
    fn short_in_every_flavor(
        &self,
        queue: QueueId,
        node: NodeId,
        shape: &Shape,
    ) -> Option<Vec<(FlavorId, ResourceId, Amount)>> {
        let of = self.queue(queue);
        let (set, count, tree) = (&shape.pod_sets[0], i64::from(shape.count(0)), self.forest.node(node).tree);
        let mut asks: Requests = set
            .per_pod
            .iter()
            .map(|(resource, amount)| (*resource, amount.max(&0).saturating_mul(count)))
            .collect();
        if let Some(pods) = self.pods_resource().filter(|pods| of.setup.group_of(*pods).is_some()) {
            self.put(&mut asks, pods, count);
        }
        let (mut by_group, mut in_vain) = (Vec::new(), false);
        let mut groups: Vec<&Group> = Vec::with_capacity(of.setup.groups.len());
        for (resource, _) in self.walked(&asks) {
            // What nothing covers is another obstacle.
            let group = of.setup.group_of(resource)?;
            if groups.iter().any(|known| std::ptr::eq(*known, group)) {
                continue;
            }
            groups.push(group);
            let mut short = Vec::new();
            let (mut hopeless, mut too_much) = (!group.flavors.is_empty(), !group.flavors.is_empty());
            for flavor in &group.flavors {
                if self.unsuitable(queue, shape, &[0], group, *flavor).is_some() {
                    continue;
                }
                let (mut displaces, mut holds) = (true, true);
                for (resource, amount) in
                    asks.iter().filter(|(resource, _)| group.resources.contains(resource))
                {
                    let cell = self.forest.find_cell(tree, (*flavor, *resource))?;
                    let (here, available, asks) =
                        (self.forest.cell(node, cell), self.forest.available(node, cell), Amount(*amount));
                    if asks > here.potential {
                        return None;
                    }
                    if asks > available {
                        short.push((*flavor, *resource, asks - available));
                        displaces &= here.quota.nominal >= here.usage + asks;
                        holds &= here.quota.nominal >= asks;
                    }
                }
                hopeless &= !displaces;
                too_much &= !holds;
            }
            if too_much {
                // No other group is looked at. Where no flavor suits, that is another obstacle.
                return (!short.is_empty()).then_some(short);
            }
            if !hopeless && group.flavors.len() > 1 {
                // Which of them is looked at next depends on where the last look ended.
                return None;
            }
            in_vain |= hopeless;
            by_group.push((group.first_among(&asks), short));
        }
        by_group.sort_by_key(|(first, _)| *first);
        let short: Vec<_> = by_group.into_iter().flat_map(|(_, short)| short).collect();
        (in_vain && !short.is_empty()).then_some(short)
    }
}

//! Heads that are skipped because their shortage is unchanged and they may not preempt.
//!
//! A change requeues all workloads of a tree, but most of them aren't affected. For a typical head, a few
//! numbers of its queue show that it would be parked again, so its class is parked without evaluation. All
//! other heads are evaluated: a case that isn't covered here costs time, but changes no decision.

use crate::amount::Amount;
use crate::flavors::flavor_mismatch;
use crate::model::{PreemptionRule, QueueId, Requests, ResourceGroup, Shape, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::pending::Pending;
use crate::queue_state::QueueState;
use crate::quota::NodeId;

/// A head that was skipped, and its shortage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedHead {
    pub workload: WorkloadId,
    pub queue: QueueId,
    /// Missing amounts by flavor and resource, in the order of the search for flavors.
    pub short: Vec<(FlavorId, ResourceId, Amount)>,
}

/// Parks the classes of a queue as long as its head has an unchanged shortage.
pub(super) fn skip_unchanged(state: &mut QueueState, queue: QueueId, all: &mut Vec<SkippedHead>) {
    while let Some(skipped) = unchanged_shortage(state, queue) {
        let shape = state.get(&skipped.workload).shape;
        state.pending_mut(queue).park_shape(shape);
        state.update_active(queue);
        state.count_cycle(queue);
        all.push(skipped);
    }
}

/// The head of a queue, if its evaluation would find a shortage and no candidates: no holder of its queue has
/// a lower priority, the head may not reclaim because it would borrow, and it reserves no quota.
pub fn unchanged_shortage(state: &QueueState, queue: QueueId) -> Option<SkippedHead> {
    let of = state.queue(queue);
    let setup = &of.setup;
    let node = of.node.filter(|_| setup.inactive.is_none() && !setup.strict)?;
    let is_usual = state.settings().fair_sharing.is_none()
        && state.settings().gates.scheduling_equivalence
        && !state.settings().gates.topology;
    let policies = setup.preemption.reclaim_within_cohort == PreemptionRule::Any
        && setup.preemption.borrow_within_cohort.is_none();
    // In a hierarchy, the head's subtree may have a hierarchical advantage, which isn't covered here.
    let flat =
        state.forest().node(node).parent.is_none_or(|above| state.forest().node(above).parent.is_none());
    if !(is_usual && policies && flat) || state.starved_head(queue).is_some() {
        return None;
    }
    let (position, _) = state.ask_ordered(queue, Pending::head)?;
    let workload = state.get(&position.workload);
    let shape = state.shape_of(workload.shape);
    let plain = workload.marks.is_none()
        && workload.progress.scan.is_none()
        && !workload.progress.short_of_capacity
        && !workload.progress.preempted_in_vain
        && !state.is_preemptor(position.workload);
    if !plain || shape.may_shrink() || shape.allowed_flavors.is_some() || shape.pod_sets.len() != 1 {
        return None;
    }
    let rule = setup.preemption.within_queue;
    if state.candidates_of(queue, rule, shape.priority, workload.since).next().is_some() {
        return None;
    }
    let short = short_in_every_flavor(state, queue, node, shape)?;
    Some(SkippedHead { workload: position.workload, queue, short })
}

/// The shortage of a shape, if there is one in every suitable flavor and the shape may reclaim in none.
fn short_in_every_flavor(
    state: &QueueState,
    queue: QueueId,
    node: NodeId,
    shape: &Shape,
) -> Option<Vec<(FlavorId, ResourceId, Amount)>> {
    let setup = &state.queue(queue).setup;
    let (set, count) = (&shape.pod_sets[0], i64::from(shape.count(0)));
    let mut asks: Requests = set
        .per_pod
        .iter()
        .map(|(resource, amount)| (*resource, amount.max(&0).saturating_mul(count)))
        .collect();
    let catalog = state.catalog();
    if let Some(pods) = catalog.pods_resource().filter(|pods| setup.group_of(*pods).is_some()) {
        catalog.put(&mut asks, pods, count);
    }
    let (mut by_group, mut may_not_reclaim) = (Vec::new(), false);
    let mut groups: Vec<&ResourceGroup> = Vec::with_capacity(setup.groups.len());
    for (resource, _) in catalog.in_evaluation_order(&asks) {
        // An uncovered resource is another obstacle, which isn't covered here.
        let group = setup.group_of(resource)?;
        if groups.iter().any(|known| std::ptr::eq(*known, group)) {
            continue;
        }
        groups.push(group);
        let shortage = shortage_in_group(state, queue, node, shape, &asks, group)?;
        if shortage.exceeds_nominal {
            // The other groups aren't evaluated. If no flavor is suitable, that is another obstacle.
            return (!shortage.short.is_empty()).then_some(shortage.short);
        }
        if !shortage.may_not_reclaim && group.flavors.len() > 1 {
            // The next flavor to evaluate depends on the flavor at which the last search ended.
            return None;
        }
        may_not_reclaim |= shortage.may_not_reclaim;
        by_group.push((group.first_among(&asks), shortage.short));
    }
    by_group.sort_by_key(|(first, _)| *first);
    let short: Vec<_> = by_group.into_iter().flat_map(|(_, short)| short).collect();
    (may_not_reclaim && !short.is_empty()).then_some(short)
}

/// The shortage in a resource group. `None` if a request exceeds the maximum, which is another obstacle.
fn shortage_in_group(
    state: &QueueState,
    queue: QueueId,
    node: NodeId,
    shape: &Shape,
    asks: &Requests,
    group: &ResourceGroup,
) -> Option<GroupShortage> {
    let (forest, has_flavors) = (state.forest(), !group.flavors.is_empty());
    let tree = forest.node(node).tree;
    let mut shortage =
        GroupShortage { short: Vec::new(), may_not_reclaim: has_flavors, exceeds_nominal: has_flavors };
    for flavor in &group.flavors {
        if flavor_mismatch(state, queue, shape, &[0], group, *flavor).is_some() {
            continue;
        }
        let (mut within_nominal, mut nominal_suffices) = (true, true);
        for (resource, amount) in asks.iter().filter(|(resource, _)| group.resources.contains(resource)) {
            let cell = forest.find_cell(tree, (*flavor, *resource))?;
            let (here, available) = (forest.cell(node, cell), forest.available(node, cell));
            let asks = Amount(*amount);
            if asks > here.potential {
                return None;
            }
            if asks > available {
                shortage.short.push((*flavor, *resource, asks - available));
                within_nominal &= here.quota.nominal >= here.usage + asks;
                nominal_suffices &= here.quota.nominal >= asks;
            }
        }
        shortage.may_not_reclaim &= !within_nominal;
        shortage.exceeds_nominal &= !nominal_suffices;
    }
    Some(shortage)
}

/// Shortage of one resource group.
struct GroupShortage {
    short: Vec<(FlavorId, ResourceId, Amount)>,
    /// The request would borrow in every suitable flavor.
    may_not_reclaim: bool,
    /// The request alone exceeds the nominal quota in every suitable flavor.
    exceeds_nominal: bool,
}

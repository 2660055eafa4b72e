//! Replacing the lost node of an admitted workload: what it held goes elsewhere, everything else stays.

use crate::assignment::{Assignment, DomainCount};
use crate::misfit::Misfit;
use crate::place::{self, Question};
use crate::request::{Lost, PodSetRequest};
use crate::snapshot::{Outcome, Topology};
use crate::tree::{DomainId, Tree};
use crate::usage::Taken;
use meridian_shared::topology::TopologyRequest;
use std::collections::BTreeMap;

/// Repairs the pod sets of one group; whether all have a place. A pod set without an assignment is passed over.
pub(crate) fn group(
    topology: &Topology,
    requests: &[PodSetRequest],
    group: &[usize],
    lost: &Lost<'_>,
    taken: &mut Taken<'_>,
    outcomes: &mut [Outcome],
) -> bool {
    let Some(node) = lost.nodes.first() else { return true };
    for member in group {
        let request = &requests[*member];
        let Some(existing) = lost.admitted.get(&request.name) else { continue };
        if lost.pinned {
            outcomes[*member] = Some(Ok(existing.clone()));
            continue;
        }
        match replace(topology, request, existing, node, taken) {
            Ok((whole, fresh)) => {
                taken.add(&fresh, &request.per_pod);
                outcomes[*member] = Some(Ok(whole));
            }
            Err(misfit) => {
                outcomes[*member] = Some(Err(misfit));
                return false;
            }
        }
    }
    true
}

/// The repaired assignment, and what of it is new.
fn replace(
    topology: &Topology,
    request: &PodSetRequest,
    existing: &Assignment,
    node: &str,
    taken: &Taken<'_>,
) -> Result<(Assignment, Assignment), Misfit> {
    let tree = topology.tree();
    let (kept, missing) = without(existing, node);
    if let Some(stale) = stale(tree, &kept) {
        return Err(Misfit::Stale { domain: stale });
    }
    let mut part = PodSetRequest { count: missing, ..request.clone() };
    let within = region(tree, &part, &kept);
    let slice_size = request.slices().first().map_or(1, |layer| layer.size);
    if slice_size == 0 {
        return Err(Misfit::SliceSizeMissing);
    }
    if within.is_some() && missing % slice_size != 0 {
        part.topology = part.topology.map(|shape| whole_slices(shape, missing));
    }
    let question = Question { workers: &part, leader: None, simulate_empty: false, within };
    let fresh = place::find(topology, &question, taken)?.workers;
    if fresh.domains.is_empty() {
        return Err(Misfit::NoReplacement { node: node.to_owned() });
    }
    Ok((merged(tree, &fresh, &kept), fresh))
}

/// The assignment without the domains of `node`, and how many pods those held.
fn without(assignment: &Assignment, node: &str) -> (Assignment, u32) {
    let is_lost = |domain: &DomainCount| domain.values.last().is_some_and(|value| value == node);
    let missing = assignment.domains.iter().rfind(|domain| is_lost(domain)).map_or(0, |domain| domain.count);
    let domains = assignment.domains.iter().filter(|domain| !is_lost(domain)).cloned().collect();
    (Assignment { levels: assignment.levels.clone(), domains }, missing)
}

/// The first domain that the tree doesn't have (any more).
pub(crate) fn stale(tree: &Tree, assignment: &Assignment) -> Option<String> {
    let gone = assignment.domains.iter().find(|domain| tree.leaf(&domain.values).is_none())?;
    Some(gone.values.first().cloned().unwrap_or_default())
}

/// Both assignments as one.
pub(crate) fn merged(tree: &Tree, fresh: &Assignment, kept: &Assignment) -> Assignment {
    let mut counts: BTreeMap<(Option<DomainId>, &[String]), u32> = BTreeMap::new();
    for domain in fresh.domains.iter().chain(&kept.domains) {
        let count = counts.entry((tree.leaf(&domain.values), domain.values.as_slice())).or_insert(0);
        *count = count.saturating_add(domain.count);
    }
    let domains = counts
        .into_iter()
        .map(|((_, values), count)| DomainCount { values: values.to_vec(), count })
        .collect();
    Assignment { levels: fresh.levels.clone(), domains }
}

/// The shape for a part that doesn't make up whole slices: the narrowest layer whose slices it does make up.
fn whole_slices(shape: TopologyRequest, missing: u32) -> TopologyRequest {
    let layer = shape.slices.into_iter().rfind(|layer| layer.size > 0 && missing.is_multiple_of(layer.size));
    TopologyRequest { constraint: shape.constraint, slices: layer.into_iter().collect() }
}

/// The domain in which the replacement must be, if there is one: that of the slice which the loss broke, or that in which
/// all pods must be. With nothing kept there is nothing to stay with.
fn region(tree: &Tree, part: &PodSetRequest, kept: &Assignment) -> Option<DomainId> {
    let depth = tree.depth(part.level(tree.levels())?)?;
    let first = kept.domains.first()?;
    if let Some(widest) = part.slices().first() {
        let broken = |size: u32| part.count.checked_rem(size);
        if broken(widest.size)? != 0 {
            let narrowest = part
                .slices()
                .iter()
                .rfind(|layer| broken(layer.size).is_some_and(|rest| rest != 0))
                .unwrap_or(widest);
            return incomplete(tree, kept, part.count, narrowest.size, tree.depth(&narrowest.level)?);
        }
    }
    if !part.is_required() {
        return None;
    }
    Some(tree.ancestor(tree.leaf(&first.values)?, depth))
}

/// The first domain of `depth` whose pods make up whole slices once the missing ones are back.
fn incomplete(tree: &Tree, kept: &Assignment, missing: u32, size: u32, depth: usize) -> Option<DomainId> {
    let mut counts: BTreeMap<DomainId, u64> = BTreeMap::new();
    for domain in &kept.domains {
        if let Some(leaf) = tree.leaf(&domain.values) {
            *counts.entry(tree.ancestor(leaf, depth)).or_insert(0) += u64::from(domain.count);
        }
    }
    let whole = |count: u64| (count + u64::from(missing)).checked_rem(u64::from(size)) == Some(0);
    counts.into_iter().find(|(_, count)| whole(*count)).map(|(domain, _)| domain)
}

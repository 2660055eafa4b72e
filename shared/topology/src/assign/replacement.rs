//! Replacement of a lost node: the pods on it move, all other pods of the workload stay.

use crate::assignment::PodSetResult;
use crate::assignment::{Assignment, DomainCount};
use crate::placement::{self, Query};
use crate::placement_error::PlacementError;
use crate::request::{LostNodes, PodSetRequest};
use crate::topology::Topology;
use crate::tree::{DomainId, Tree};
use crate::usage::Taken;
use meridian_shared::topology::TopologyRequest;
use std::collections::BTreeMap;

/// Repairs the pod sets of one group. Returns whether all fit. Pod sets without an assignment are skipped.
pub(super) fn assign_group(
    topology: &Topology,
    requests: &[PodSetRequest],
    group: &[usize],
    lost: &LostNodes<'_>,
    taken: &mut Taken<'_>,
    results: &mut [PodSetResult],
) -> bool {
    let Some(node) = lost.nodes.first() else { return true };
    for member in group {
        let request = &requests[*member];
        let Some(existing) = lost.admitted.get(&request.name) else { continue };
        if lost.pinned {
            results[*member] = Some(Ok(existing.clone()));
            continue;
        }
        match replace(topology, request, existing, node, taken) {
            Ok((whole, fresh)) => {
                taken.add(&fresh, &request.per_pod);
                results[*member] = Some(Ok(whole));
            }
            Err(error) => {
                results[*member] = Some(Err(error));
                return false;
            }
        }
    }
    true
}

/// The repaired assignment and its new part. Fails if the existing assignment is invalid or the pods of the
/// lost node fit nowhere.
fn replace(
    topology: &Topology,
    request: &PodSetRequest,
    existing: &Assignment,
    node: &str,
    taken: &Taken<'_>,
) -> Result<(Assignment, Assignment), PlacementError> {
    let tree = topology.tree();
    let (kept, missing) = without(existing, node);
    if let Some(stale) = stale(tree, &kept) {
        return Err(PlacementError::Stale { domain: stale });
    }
    let mut part = PodSetRequest { count: missing, ..request.clone() };
    let within = region(tree, &part, &kept);
    let slice_size = request.slices().first().map_or(1, |layer| layer.size);
    if slice_size == 0 {
        return Err(PlacementError::SliceSizeMissing);
    }
    if within.is_some() && missing % slice_size != 0 {
        part.topology = part.topology.map(|shape| whole_slices(shape, missing));
    }
    let query = Query { workers: &part, leader: None, simulate_empty: false, within };
    let fresh = placement::find(topology, &query, taken)?.workers;
    if fresh.domains.is_empty() {
        return Err(PlacementError::NoReplacement { node: node.to_owned() });
    }
    Ok((merged(tree, &fresh, &kept), fresh))
}

/// The assignment without the domains of `node`, and the number of pods in these domains.
fn without(assignment: &Assignment, node: &str) -> (Assignment, u32) {
    let is_lost = |domain: &DomainCount| domain.values.last().is_some_and(|value| value == node);
    let missing = assignment.domains.iter().rfind(|domain| is_lost(domain)).map_or(0, |domain| domain.count);
    let domains = assignment.domains.iter().filter(|domain| !is_lost(domain)).cloned().collect();
    (Assignment { levels: assignment.levels.clone(), domains }, missing)
}

/// The first domain of the assignment that isn't in the tree.
pub(super) fn stale(tree: &Tree, assignment: &Assignment) -> Option<String> {
    let gone = assignment.domains.iter().find(|domain| tree.leaf(&domain.values).is_none())?;
    Some(gone.values.first().cloned().unwrap_or_default())
}

/// The sum of both assignments.
pub(super) fn merged(tree: &Tree, fresh: &Assignment, kept: &Assignment) -> Assignment {
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

/// The shape for a number of pods that isn't a multiple of the widest slice: slices of the narrowest layer
/// whose size divides it.
fn whole_slices(shape: TopologyRequest, missing: u32) -> TopologyRequest {
    let layer = shape.slices.into_iter().rfind(|layer| layer.size > 0 && missing.is_multiple_of(layer.size));
    TopologyRequest { constraint: shape.constraint, slices: layer.into_iter().collect() }
}

/// The domain that must contain the replacement, if any: the domain of the incomplete slice, or the domain
/// that all pods must share. `None` if no pods are left.
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

/// The first domain of `depth` with whole slices once the missing pods are added.
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

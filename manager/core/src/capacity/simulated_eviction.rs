//! Simulated evictions: what a cluster would have free if some of its workloads were gone. A search for
//! victims changes the set of evicted workloads step by step, and each step costs only the pods that it
//! changes.
//!
//! A capacity report counts nodes by free capacity, without naming them. Agents also report the node of each
//! pod, and the kind of that node. Together these give the usage of each named node, and a node of the same
//! kind and usage in the report is taken for it. So a node becomes free, in its own domain, when its last pod
//! is evicted.
//!
//! Uncertain cases are decided so that no victim is preempted in vain:
//!
//! - Nodes can't be told apart, because their kinds aren't reported or have changed. Then the node that is
//!   least useful to the gang is assumed, in any domain.
//! - The report doesn't show the node. Then nothing is freed.
//! - Some pods of a set have ended. The agent doesn't report where they ran, so all nodes of the set count as
//!   unknown.
//! - The node of a pod is unknown. Then the fullest node that could hold the pod is assumed, in the pod's
//!   domain if that is reported.
//!
//! Reported nodes are used for nothing else, so a false report can only stop runs in the agent's own cluster.

#[cfg(test)]
mod tests;

use crate::capacity::caps::{self, CapsWithout, Totals};
use crate::capacity::reserved;
use crate::capacity::topology::{self, DomainCounts, Gone};
use crate::state::workload::Workload;
use crate::world::{World, gangs};
use meridian_placement::cluster_capacity::HypotheticalCapacity;
use meridian_placement::reservations::ReservedCapacity;
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL};
use meridian_shared::placement::{PlacedDomain, PlacedPodSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Usage of each node of a cluster, as far as the nodes of pods are known.
#[derive(Clone, Debug, Default)]
pub struct NodeUsage {
    nodes: BTreeMap<String, Node>,
    /// Kinds of the nodes in the report, by the empty node.
    kinds: BTreeMap<Block, u64>,
    counts: UsageCounts,
}

/// Number of nodes by kind and used amounts. Without a kind: of all kinds together.
type UsageCounts = BTreeMap<(Option<u64>, Amounts), u32>;

#[derive(Clone, Debug, Default)]
struct Node {
    used: Amounts,
    /// `None` if it isn't reported, or not the same for all pods.
    kind: Option<u64>,
    /// Some of its pods may have ended, so `used` may be too high.
    is_uncertain: bool,
}

impl NodeUsage {
    fn add(&mut self, pods: PodsOnNode<'_>, set: &PodSet) {
        let node = self
            .nodes
            .entry(pods.node.to_owned())
            .or_insert_with(|| Node { kind: pods.kind, ..Node::default() });
        node.kind = node.kind.filter(|kind| pods.kind == Some(*kind));
        add_scaled(&mut node.used, &set.per_pod, i64::from(pods.pods));
    }

    /// Adds the pods of a set that still run, given how many have ended.
    fn add_running(&mut self, placed: &PlacedPodSet, set: &PodSet, ended: u32) {
        let mut nodes = nodes_of(placed);
        match (nodes.next(), nodes.next()) {
            (Some(only), None) if placed.is_whole() => {
                self.add(PodsOnNode { pods: only.pods.saturating_sub(ended), ..only }, set)
            }
            _ => nodes_of(placed).for_each(|pods| {
                self.add(pods, set);
                self.nodes.entry(pods.node.to_owned()).and_modify(|node| node.is_uncertain |= ended > 0);
            }),
        }
    }

    fn add_kinds(&mut self, report: &[Block]) {
        for block in report {
            self.kinds.entry(emptied(block)).or_insert_with(|| block.node_kind());
        }
    }

    /// Updates the counts. Call this after the last pods were added.
    fn count(&mut self) {
        self.counts.clear();
        for node in self.nodes.values_mut() {
            node.used.retain(|_, amount| *amount != 0);
            if !node.is_uncertain {
                count_nodes(&mut self.counts, node.kind, &node.used, 1);
            }
        }
    }
}

/// Counts nodes among those of their kind, if it is known, and among all.
fn count_nodes(counts: &mut UsageCounts, kind: Option<u64>, used: &Amounts, nodes: u32) {
    for kind in [None, kind].into_iter().take(if kind.is_some() { 2 } else { 1 }) {
        let count = counts.entry((kind, used.clone())).or_insert(0);
        *count = count.saturating_add(nodes);
    }
}

/// Pods of one set on a named node.
#[derive(Clone, Copy, Debug)]
struct PodsOnNode<'a> {
    node: &'a str,
    kind: Option<u64>,
    pods: u32,
}

/// Amounts in use on each node of a block.
fn used(block: &Block) -> Amounts {
    let of = |(resource, all): (&String, &i64)| {
        (resource.clone(), all.saturating_sub(block.free.get(resource).copied().unwrap_or(0)))
    };
    block.capacity.iter().map(of).filter(|(_, amount)| *amount != 0).collect()
}

/// Usage of a cluster's nodes, and usage that counts against its caps if it has any.
pub type ClusterUsage = (Arc<NodeUsage>, Option<Arc<Totals>>);

/// A cluster without some of its workloads, to find out whether a gang would fit.
pub(crate) struct SimulatedEviction {
    gang: Arc<Gang>,
    node_usage: Arc<NodeUsage>,
    free: Vec<Block>,
    /// Counts of the nodes in the report, before any eviction.
    reported: UsageCounts,
    /// Current state of each node from which pods were evicted. `None` if the report doesn't show the node.
    changed_nodes: BTreeMap<String, Option<Block>>,
    /// Number of changed nodes by their current state.
    changed_counts: BTreeMap<Block, u32>,
    /// The nodes of some evicted pods were guessed, so returning workloads may not restore the previous
    /// state.
    is_guessed: bool,
    /// The domains of some freed nodes are unknown.
    has_unknown_domains: bool,
    /// The gang's topology constraints could be satisfied if the cluster were empty.
    has_domains: bool,
    /// Pods that fit per domain. Present only if they alone decide whether the gang fits, and as long as
    /// nothing was guessed.
    domain_counts: Option<DomainCounts>,
    /// Amounts that the evicted workloads used.
    freed: Amounts,
    /// Capacity reserved for others. The victims of those reservations are evicted from the start.
    reserved: ReservedCapacity,
    /// Number of evicted workloads, without the victims of reservations.
    gone: usize,
    caps: Option<CapsWithout>,
}

impl SimulatedEviction {
    /// Starts with the victims of other workloads' reservations evicted. `None` if the cluster isn't
    /// connected.
    pub(crate) fn new(
        world: &World,
        cluster: &ClusterName,
        (node_usage, totals): ClusterUsage,
        uid: Uid,
        gang: Arc<Gang>,
    ) -> Option<Self> {
        let reserved = reserved::reserved_capacity(world, cluster, uid);
        let capacity = world.live().cluster(cluster)?.capacity();
        let mut simulation = Self::of(capacity.estimate(), node_usage, gang);
        for victim in &reserved.victims {
            simulation.change(world, *victim, true);
        }
        let gang = &simulation.gang;
        simulation.has_domains = topology::has_domains(world, gang, cluster, Gone::All);
        let counts_decide = reserved.uids.is_empty() && !capacity.could_grow(gang);
        simulation.domain_counts =
            if counts_decide { DomainCounts::of(world, gang, &simulation.free) } else { None };
        (simulation.reserved, simulation.gone, simulation.freed) = (reserved, 0, Amounts::new());
        simulation.caps = totals.and_then(|totals| caps::caps_without(world, uid, cluster, &totals));
        Some(simulation)
    }

    fn of(free: &[Block], node_usage: Arc<NodeUsage>, gang: Arc<Gang>) -> Self {
        let (mut reported, mut merged) = (UsageCounts::new(), BTreeMap::new());
        for block in free {
            let count = merged.entry(Block { nodes: 1, ..block.clone() }).or_insert(0_u32);
            *count = count.saturating_add(block.nodes);
        }
        let free: Vec<Block> = merged.into_iter().map(|(block, nodes)| Block { nodes, ..block }).collect();
        for block in &free {
            let kind = node_usage.kinds.get(&emptied(block)).copied();
            count_nodes(&mut reported, kind, &used(block), block.nodes);
        }
        let (changed_nodes, changed_counts, freed, reserved) = Default::default();
        Self {
            gang,
            node_usage,
            free,
            reported,
            changed_nodes,
            changed_counts,
            is_guessed: false,
            has_unknown_domains: false,
            has_domains: true,
            domain_counts: None,
            freed,
            reserved,
            gone: 0,
            caps: None,
        }
    }

    /// Free nodes after the evictions.
    pub(crate) fn free(&self) -> &[Block] {
        &self.free
    }

    pub(crate) fn is_for(&self, gang: &Arc<Gang>) -> bool {
        self.gang == *gang
    }

    /// Whether any workload is evicted in addition to the victims of reservations.
    pub(crate) fn any_gone(&self) -> bool {
        self.gone > 0
    }

    /// Evicts a workload (`leaves`) or returns it. False if the result of a return is only a guess.
    pub(crate) fn change(&mut self, world: &World, uid: Uid, leaves: bool) -> bool {
        if self.reserved.victims.contains(&uid) {
            self.gone = if leaves { self.gone + 1 } else { self.gone.saturating_sub(1) };
            return true;
        }
        let Some(gang) = gangs::asked_gang(world, uid) else { return true };
        let is_expected = self.reserved.expected.contains(&uid);
        self.caps.iter_mut().for_each(|caps| caps.change(world, uid, leaves, is_expected));
        let placement = world
            .state()
            .workloads()
            .get(&uid)
            .and_then(Workload::right)
            .and_then(|(_, leg)| leg.placement().map(|placement| &**placement));
        add_scaled(&mut self.freed, &gang.total(), if leaves { 1 } else { -1 });
        self.gone = if leaves { self.gone + 1 } else { self.gone.saturating_sub(1) };
        let mut is_exact = leaves || !self.is_guessed;
        for (at, set) in gang.pod_sets.iter().enumerate() {
            let mut left = set.count;
            let placed = placement.and_then(|placement| placement.pod_sets.get(at));
            let is_certain = |pods: &PodsOnNode<'_>| {
                !self.node_usage.nodes.get(pods.node).is_some_and(|node| node.is_uncertain)
            };
            let certain: Vec<PodsOnNode<'_>> =
                placed.into_iter().flat_map(nodes_of).filter(is_certain).collect();
            for pods in certain {
                for _ in 0..pods.pods.min(left) {
                    left -= 1;
                    is_exact &= self.change_pod(pods.node, set, leaves);
                }
            }
            if leaves && left > 0 {
                self.release_guessed(set, placed, left);
            }
        }
        is_exact
    }

    /// Releases pods on unknown nodes: within their reported domains first, then anywhere.
    fn release_guessed(&mut self, set: &PodSet, placed: Option<&PlacedPodSet>, pods: u32) {
        (self.is_guessed, self.domain_counts) = (true, None);
        let mut left = pods;
        for (domain, pods) in placed.into_iter().flat_map(domains_of) {
            let is_in = |block: &Block| {
                domain
                    .iter()
                    .all(|(level, value)| block.labels.get(*level).map(String::as_str) == Some(value))
            };
            (0..pods.min(left)).for_each(|_| packing::release_where(&mut self.free, set, is_in));
            left -= pods.min(left);
        }
        self.has_unknown_domains |= left > 0;
        (0..left).for_each(|_| packing::release(&mut self.free, set));
    }

    /// Evicts a pod from a node (`leaves`) or returns it. Does nothing if the node isn't found in the report.
    /// False if the change contradicts the report, so that the state is only a guess from now on.
    fn change_pod(&mut self, node: &str, set: &PodSet, leaves: bool) -> bool {
        if !self.changed_nodes.contains_key(node) {
            let found = self.find(node, set);
            found.iter().for_each(|block| *self.changed_counts.entry(block.clone()).or_insert(0) += 1);
            self.changed_nodes.insert(node.to_owned(), found);
        }
        let Some(before) = self.changed_nodes.get(node).cloned().flatten() else { return true };
        let Some(after) = packing::change(&mut self.free, &before, set, leaves) else {
            (self.is_guessed, self.domain_counts) = (true, None);
            return false;
        };
        self.domain_counts.iter_mut().for_each(|counts| counts.change(&before, &after));
        if let Some(count) = self.changed_counts.get_mut(&before) {
            *count = count.saturating_sub(1);
        }
        *self.changed_counts.entry(after.clone()).or_insert(0) += 1;
        self.changed_nodes.insert(node.to_owned(), Some(after));
        true
    }

    /// Finds a named node in the report, by its usage and, if known, its kind. `None` if the report has fewer
    /// nodes of that usage than agents named: then some named node isn't in the report, perhaps this one. If
    /// several nodes match, takes the one that is least useful to the gang.
    fn find(&mut self, node: &str, set: &PodSet) -> Option<Block> {
        let Node { used: node_used, kind, .. } =
            self.node_usage.nodes.get(node).filter(|node| !node.is_uncertain)?;
        let reports_too_few = |kind: Option<u64>| {
            let key = (kind, node_used.clone());
            self.reported.get(&key) < self.node_usage.counts.get(&key)
        };
        if reports_too_few(None) {
            return None;
        }
        // If too few nodes of this kind are reported, labels or taints of some nodes have changed since the
        // pods were placed.
        let is_kind_certain = kind.is_some_and(|kind| !reports_too_few(Some(kind)));
        let is_available = |block: &Block| {
            block.nodes > self.changed_counts.get(&Block { nodes: 1, ..block.clone() }).copied().unwrap_or(0)
        };
        let is_of_kind =
            |block: &Block| kind.is_some() && self.node_usage.kinds.get(&emptied(block)) == kind.as_ref();
        let is_possible = |block: &&Block| {
            used(block) == *node_used
                && (!is_kind_certain || is_of_kind(block))
                && packing::accepts(block, set)
                && is_available(block)
        };
        let possible: Vec<&Block> = self.free.iter().filter(is_possible).collect();
        let usefulness = |block: &&Block| {
            let empty = emptied(block);
            self.gang.pod_sets.iter().map(|set| packing::takes(&empty, set)).fold(0, u32::saturating_add)
        };
        let found = possible
            .iter()
            .min_by_key(|block| (!is_of_kind(block), usefulness(block)))
            .map(|block| Block { nodes: 1, ..(*block).clone() });
        self.has_unknown_domains |= possible.iter().any(|block| block.labels != possible[0].labels);
        found
    }

    /// Whether the gang would fit after the evictions, beside the reserved gangs of preemptors, and leave
    /// enough for starved heads.
    pub(crate) fn fits(&self, world: &World, cluster: &ClusterName, gang: &Arc<Gang>) -> bool {
        if !self.has_domains || self.caps.as_ref().is_some_and(|caps| !caps.fits(gang)) {
            return false;
        }
        if let Some(counts) = self.domain_counts.as_ref().filter(|_| !self.has_unknown_domains) {
            let fits = counts.any();
            debug_assert_eq!(
                fits,
                packing::fits(&self.free, gang).is_ok()
                    && topology::has_domains(world, gang, cluster, Gone::Leaving(&self.free))
            );
            return fits;
        }
        let gone = |free| {
            if self.has_unknown_domains { Gone::Having(&self.freed) } else { Gone::Leaving(free) }
        };
        if self.reserved.uids.is_empty() {
            return packing::fits(&self.free, gang).is_ok()
                && topology::has_domains(world, gang, cluster, gone(&self.free));
        }
        let mut free = self.free.clone();
        // A reserved gang that doesn't fit yet takes nothing.
        self.reserved
            .gangs
            .iter()
            .zip(&self.reserved.domains)
            .for_each(|(other, domains)| topology::place(&mut free, other, domains));
        if packing::fits(&free, gang).is_err() || !topology::has_domains(world, gang, cluster, gone(&free)) {
            return false;
        }
        let expected: Vec<Arc<Gang>> =
            self.reserved.expected.iter().filter_map(|uid| gangs::asked_gang(world, *uid)).collect();
        // Runs that are expected to end later count as gone for the starved heads, but not for this gang.
        self.reserved.starving.is_empty()
            || HypotheticalCapacity(free).leaves(gang, &expected, &self.reserved.starving)
    }
}

/// One node of a block, empty.
fn emptied(block: &Block) -> Block {
    Block { nodes: 1, free: block.capacity.clone(), ..block.clone() }
}

/// Pods of a set per node. Empty if the agent reports wider domains instead.
fn nodes_of(placed: &PlacedPodSet) -> impl Iterator<Item = PodsOnNode<'_>> {
    let nodes = if names_nodes(placed) { &*placed.domains } else { &[] };
    nodes.iter().filter_map(|domain| {
        Some(PodsOnNode { node: domain.values.last()?, kind: placed.kind(domain), pods: domain.pods })
    })
}

/// Pods of a set per domain, given by levels and values. Empty if the agent reports nodes instead.
fn domains_of<'a>(placed: &'a PlacedPodSet) -> impl Iterator<Item = (Vec<(&'a str, &'a str)>, u32)> {
    let domains = if names_nodes(placed) { &[] } else { &*placed.domains };
    let levels_of = |domain: &'a PlacedDomain| {
        placed
            .levels
            .iter()
            .zip(&domain.values)
            .map(|(level, value)| (level.as_str(), value.as_str()))
            .collect()
    };
    domains.iter().map(move |domain| (levels_of(domain), domain.pods))
}

fn names_nodes(set: &PlacedPodSet) -> bool {
    set.levels.last().is_none_or(|level| level == HOSTNAME_LABEL)
}

/// Whether a gang would fit in a cluster if the workloads in `gone` were evicted.
pub fn would_fit_without(
    world: &World,
    cluster: &ClusterName,
    usage: ClusterUsage,
    uid: Uid,
    gang: &Arc<Gang>,
    gone: &[Uid],
) -> bool {
    let Some(mut simulation) = SimulatedEviction::new(world, cluster, usage, uid, gang.clone()) else {
        return false;
    };
    for other in gone {
        simulation.change(world, *other, true);
    }
    simulation.fits(world, cluster, gang)
}

pub(crate) fn node_usage_in(world: &World, cluster: &ClusterName) -> Arc<NodeUsage> {
    let mut usage = NodeUsage::default();
    world.live().cluster(cluster).into_iter().for_each(|live| usage.add_kinds(live.capacity().estimate()));
    let here = world.loads().get(cluster).into_iter().flatten().map(|(uid, _)| *uid);
    for (uid, leg) in here.filter_map(|uid| Some((uid, world.state().workloads().get(&uid)?.right()?.1))) {
        let Some((gang, placement)) = gangs::gang_of(world, uid)
            .zip(leg.placement().map(|placement| &**placement))
            .filter(|_| *leg.cluster() == *cluster)
        else {
            continue;
        };
        let ended = world
            .state()
            .workloads()
            .get(&uid)
            .and_then(|workload| workload.spare().cloned())
            .unwrap_or_default();
        let ended = ended.into_iter().chain(std::iter::repeat(0));
        // A set without pods left uses no nodes.
        for ((set, placed), ended) in
            gang.pod_sets.iter().zip(&placement.pod_sets).zip(ended).filter(|((set, _), _)| set.count > 0)
        {
            usage.add_running(placed, set, ended);
        }
    }
    usage.count();
    Arc::new(usage)
}

/// Usage of a cluster's nodes, and usage that counts against its caps.
pub fn cluster_usage(world: &World, cluster: &ClusterName) -> ClusterUsage {
    (node_usage_in(world, cluster), Some(caps::totals_in(world, cluster)))
}

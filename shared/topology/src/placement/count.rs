//! First pass: pods and whole slices that each domain can hold, counted at the leaves and summed up to the
//! roots.

use super::capacity::{DomainCapacity, sum_up};
use super::node_filter::{Exclusion, NodeFilter};
use super::search::{Query, Search};
use crate::exclusions::Exclusions;
use crate::resources::Demand;
use crate::topology::Topology;
use crate::tree::DomainId;
use crate::usage::Taken;

impl Search<'_> {
    /// Counts the leaves and sums them up.
    pub(super) fn count_leaves(&mut self, query: &Query<'_>, filter: &NodeFilter<'_>, taken: &Taken<'_>) {
        let tree = self.topology.tree();
        let counter = Counter {
            topology: self.topology,
            query,
            taken,
            workers: Demand::of(&query.workers.per_pod, self.topology.resources()),
            leader: query.leader.map(|leader| Demand::of(&leader.per_pod, self.topology.resources())),
        };
        let region = query.within.map(|region| counter.region(region));
        let mut left = Vec::new();
        for leaf in tree.leaves().iter() {
            self.exclusions.total += 1;
            let affinity = match tree
                .leaf_node(leaf)
                .map_or(Ok(0), |leaf_node| filter.evaluate(&leaf_node.labels, &leaf_node.taints))
            {
                Ok(affinity) => affinity,
                Err(exclusion) => {
                    self.exclusions.count(exclusion);
                    continue;
                }
            };
            let capacity = &mut self.table[leaf.at()];
            capacity.affinity = affinity;
            if region.as_ref().is_some_and(|region| !region.contains(&leaf.at())) {
                self.exclusions.topology_domain += 1;
                continue;
            }
            if let Some(short) = counter.leaf(leaf, capacity, &mut left) {
                *self.exclusions.resources.entry(short.to_owned()).or_insert(0) += 1;
            }
        }
        for root in tree.level(0).iter() {
            sum_up(tree, &self.shape, &mut self.table, root, 0, true);
        }
    }
}

impl Exclusions {
    fn count(&mut self, against: Exclusion) {
        match against {
            Exclusion::Taint(taint) => *self.taints.entry(taint).or_insert(0) += 1,
            Exclusion::Selector => self.node_selector += 1,
            Exclusion::Affinity => self.affinity += 1,
        }
    }
}

struct Counter<'a> {
    topology: &'a Topology,
    query: &'a Query<'a>,
    taken: &'a Taken<'a>,
    workers: Demand,
    leader: Option<Demand>,
}

impl Counter<'_> {
    /// Counts one leaf. Returns the limiting resource if not even one pod fits.
    fn leaf(&self, leaf: DomainId, capacity: &mut DomainCapacity, left: &mut Vec<i64>) -> Option<&str> {
        self.topology.left_into(leaf, self.query.simulate_empty, left);
        if let Some(row) = self.taken.row(leaf) {
            for (left, taken) in left.iter_mut().zip(row) {
                *left = left.saturating_sub(*taken);
            }
        }
        let (pods, limit) = self.workers.fits(left);
        capacity.pods = pods;
        capacity.pods_with_leader = pods;
        if let Some(leader) = &self.leader
            && leader.fits(left).0 > 0
        {
            capacity.leaders = 1;
            leader.take(left);
            capacity.pods_with_leader = self.workers.fits(left).0;
        }
        limit.filter(|_| pods == 0)
    }

    /// The index range of the leaves in `domain`. Empty for a host of a topology with several levels: as in
    /// Kueue, a replacement is searched in domains above hosts, never in a host.
    fn region(&self, domain: DomainId) -> std::ops::Range<usize> {
        let tree = self.topology.tree();
        let depth = tree.depth_of(domain);
        if depth == tree.lowest() && depth > 0 && tree.is_by_host() {
            return 0..0;
        }
        let within = |leaf: &DomainId| tree.ancestor(*leaf, depth) == domain;
        let mut leaves = tree.leaves().iter().filter(within).map(DomainId::at);
        let first = leaves.next().unwrap_or(0);
        first..leaves.next_back().unwrap_or(first) + 1
    }
}

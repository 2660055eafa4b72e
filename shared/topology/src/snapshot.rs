//! The topology of one flavor: its tree, what is free in it, and the doors to asking and to counting.

use crate::assignment::Assignment;
use crate::misfit::Misfit;
use crate::node::Node;
use crate::request::{Options, PodSetRequest, Profile};
use crate::tree::{DomainId, Tree};
use crate::usage::{Assumed, Demand, Resources, Taken, Usage};
use crate::{elastic, place, replace};
use meridian_shared::gang::{Amounts, Toleration};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a flavor says about its topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Name of the topology, for messages.
    pub topology: String,
    /// Node labels of the levels, from the widest to the narrowest.
    pub levels: Vec<String>,
    /// Labels that a node of the flavor has.
    pub node_labels: BTreeMap<String, String>,
    /// Tolerations that pods of the flavor get.
    pub tolerations: Vec<Toleration>,
    /// By which rules places are chosen.
    pub profile: Profile,
}

/// The answer for one pod set. `None` where it wasn't reached because one before it has no place, where nothing of it was
/// lost, and for a third member of a group: a group is a leader and workers.
pub type Outcome = Option<Result<Assignment, Misfit>>;

/// The topology of one flavor and what is free in it. A clone shares the tree and copies only the amounts.
#[derive(Clone, Debug)]
pub struct Topology {
    flavor: Arc<Flavor>,
    tree: Arc<Tree>,
    resources: Arc<Resources>,
    /// Per leaf and resource: what its nodes give, less what runs beside the topology.
    free: Vec<i64>,
    /// Per leaf and resource: what placed pods take.
    used: Vec<i64>,
}

impl Topology {
    /// The topology of `flavor` over those of `nodes` that are ready, schedulable, of the flavor, and have every level.
    pub fn new(flavor: Flavor, nodes: &[Node]) -> Self {
        let taking_part =
            |node: &&Node| !flavor.levels.is_empty() && node.takes_part(&flavor.levels, &flavor.node_labels);
        let nodes: Vec<&Node> = nodes.iter().filter(taking_part).collect();
        let (tree, capacities) = Tree::new(&flavor.levels, &nodes);
        let resources = Resources::of(&capacities);
        let mut free = vec![0; capacities.len() * resources.len()];
        if !free.is_empty() {
            for (row, capacity) in free.chunks_exact_mut(resources.len()).zip(&capacities) {
                resources.add(row, capacity, 1);
            }
        }
        let used = vec![0; free.len()];
        Self { flavor: Arc::new(flavor), tree: Arc::new(tree), resources: Arc::new(resources), free, used }
    }

    /// What the flavor says.
    pub fn flavor(&self) -> &Flavor {
        &self.flavor
    }

    /// Whether the lowest level is the host, so that assignments name nodes and flavors may share them.
    pub fn is_by_host(&self) -> bool {
        self.tree.is_by_host()
    }

    /// Whether the topology has every level that `request` names.
    pub fn has_levels(&self, request: &PodSetRequest) -> bool {
        request.asks_within(self.tree.levels())
    }

    /// Counts one pod on `node` that no topology placed. It stays even where [`Options::simulate_empty`] clears the rest.
    pub fn occupy(&mut self, node: &str, per_pod: &Amounts) {
        if let Some(leaf) = self.tree.leaf_of_node(node) {
            let row = self.row(leaf);
            self.resources.add_pods(&mut self.free[row], per_pod, -1);
        }
    }

    /// Counts placed pods. Domains that aren't there (their node is gone or not ready) are passed over.
    pub fn add_usage(&mut self, usage: Usage<'_>) {
        self.count(usage, 1);
    }

    /// Takes back what [`Self::add_usage`] counted.
    pub fn remove_usage(&mut self, usage: Usage<'_>) {
        self.count(usage, -1);
    }

    /// Counts pods placed by another flavor, where both may share hosts and the profile heeds it.
    pub fn add_sibling_usage(&mut self, usage: Usage<'_>) {
        if self.is_by_host() && self.flavor.profile.overlapping_flavors {
            self.count(usage, 1);
        }
    }

    /// Takes back what [`Self::add_sibling_usage`] counted.
    pub fn remove_sibling_usage(&mut self, usage: Usage<'_>) {
        if self.is_by_host() && self.flavor.profile.overlapping_flavors {
            self.count(usage, -1);
        }
    }

    /// Names of the nodes that take part, by the values by which an assignment names their domain.
    pub fn nodes_by_domain(&self) -> BTreeMap<Vec<String>, Vec<&str>> {
        self.tree.nodes_by_leaf()
    }

    /// What placed pods take in a domain, with those of other flavors that count there. `None` where the domain isn't there.
    pub fn used_in(&self, values: &[String]) -> Option<Amounts> {
        let row = self.row(self.tree.leaf(values)?);
        self.used.get(row).map(|used| self.resources.named(used))
    }

    /// Whether all of `usages` still fit together, each in the very domains that it names. Every pod counts as one of `pods`
    /// and all usages count at once, which Kueue leaves out at this point.
    pub fn has_fit(&self, usages: &[Usage<'_>]) -> bool {
        let mut rows: BTreeMap<DomainId, Vec<i64>> = BTreeMap::new();
        for usage in usages {
            let demand = Demand::of(usage.per_pod, &self.resources);
            for domain in &usage.assignment.domains {
                let Some(leaf) = self.tree.leaf(&domain.values) else { return false };
                let left = rows.entry(leaf).or_insert_with(|| self.left(leaf, false));
                if demand.fits(left).0 < i64::from(domain.count) {
                    return false;
                }
                self.resources.add_pods(left, usage.per_pod, -i64::from(domain.count));
            }
        }
        true
    }

    /// Where the pod sets of `requests` go, all of them together; the answers are in the order of the requests.
    pub fn assign(&self, requests: &[PodSetRequest], options: Options<'_>) -> Vec<Outcome> {
        self.assign_beside(requests, options, &mut Assumed::default())
    }

    /// The same beside what earlier calls for other flavors of the same workload took; what is taken now is added to it.
    pub fn assign_beside(
        &self,
        requests: &[PodSetRequest],
        options: Options<'_>,
        assumed: &mut Assumed,
    ) -> Vec<Outcome> {
        let shared = (self.is_by_host() && self.flavor.profile.overlapping_flavors).then_some(assumed);
        let mut taken = Taken::new(&self.tree, &self.resources, shared);
        let mut outcomes: Vec<Outcome> = vec![None; requests.len()];
        for group in groups(requests) {
            let whole = match options.lost {
                Some(lost) if !lost.nodes.is_empty() => {
                    replace::group(self, requests, &group, &lost, &mut taken, &mut outcomes)
                }
                _ => self.assign_group(requests, &group, options, &mut taken, &mut outcomes),
            };
            if !whole {
                break;
            }
        }
        outcomes
    }

    /// Answers one group; whether it has a place.
    fn assign_group(
        &self,
        requests: &[PodSetRequest],
        group: &[usize],
        options: Options<'_>,
        taken: &mut Taken<'_>,
        outcomes: &mut [Outcome],
    ) -> bool {
        let Some((workers, leader)) = roles(requests, group) else { return true };
        if self.flavor.profile.elastic
            && let Some(whole) = elastic::group(self, requests, (workers, leader), options, taken, outcomes)
        {
            return whole;
        }
        let search = place::Question {
            workers: &requests[workers],
            leader: leader.map(|leader| &requests[leader]),
            simulate_empty: options.simulate_empty,
            within: None,
        };
        match place::find(self, &search, taken) {
            Err(misfit) => {
                for member in group {
                    outcomes[*member] = Some(Err(misfit.clone()));
                }
                false
            }
            Ok(found) => {
                taken.add(&found.workers, &requests[workers].per_pod);
                outcomes[workers] = Some(Ok(found.workers));
                if let (Some(leader), Some(assignment)) = (leader, found.leader) {
                    taken.add(&assignment, &requests[leader].per_pod);
                    outcomes[leader] = Some(Ok(assignment));
                }
                true
            }
        }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// What is left of a leaf.
    pub(crate) fn left(&self, leaf: DomainId, simulate_empty: bool) -> Vec<i64> {
        let mut left = Vec::with_capacity(self.resources.len());
        self.left_into(leaf, simulate_empty, &mut left);
        left
    }

    /// The same in a buffer that is used again.
    pub(crate) fn left_into(&self, leaf: DomainId, simulate_empty: bool, left: &mut Vec<i64>) {
        let row = self.row(leaf);
        left.clear();
        left.extend_from_slice(&self.free[row.clone()]);
        if !simulate_empty {
            for (left, used) in left.iter_mut().zip(&self.used[row]) {
                *left = left.saturating_sub(*used);
            }
        }
    }

    fn count(&mut self, usage: Usage<'_>, sign: i64) {
        for domain in &usage.assignment.domains {
            if let Some(leaf) = self.tree.leaf(&domain.values) {
                let row = self.row(leaf);
                self.resources.add_pods(
                    &mut self.used[row],
                    usage.per_pod,
                    sign.saturating_mul(i64::from(domain.count)),
                );
            }
        }
    }

    fn row(&self, leaf: DomainId) -> std::ops::Range<usize> {
        let start = self.tree.leaf_at(leaf) * self.resources.len();
        start..start + self.resources.len()
    }
}

/// The requests that are placed together, each group where its first member stands.
fn groups(requests: &[PodSetRequest]) -> Vec<Vec<usize>> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        match &request.group {
            None => groups.push(vec![index]),
            Some(name) if seen.insert(name) => {
                groups.push(
                    (index..requests.len())
                        .filter(|other| requests[*other].group.as_ref() == Some(name))
                        .collect(),
                );
            }
            Some(_) => {}
        }
    }
    groups
}

/// Who of the first two members works, and who leads: the one with fewer pods, the second of equals.
fn roles(requests: &[PodSetRequest], group: &[usize]) -> Option<(usize, Option<usize>)> {
    match group {
        [] => None,
        [only] => Some((*only, None)),
        [first, second, ..] if requests[*second].count > requests[*first].count => {
            Some((*second, Some(*first)))
        }
        [first, second, ..] => Some((*first, Some(*second))),
    }
}

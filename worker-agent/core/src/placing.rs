//! Chooses a node for every pod of a gang.
//!
//! A gang without a topology request is packed. A gang with one is placed by the topology crate, the same
//! function that `plan` uses, over the nodes as they are free now. Its answer names domains; the pods of a
//! domain are packed into the nodes of that domain.
//!
//! ```text
//!   nodes, gang ──► no topology request ──────────────────────────► pack
//!               └─► Topology::assign per flavor ──► pack each domain ──► pack the pod sets without a request
//! ```
//!
//! Invariants: every pod of the gang gets a node, or the result is a misfit; no node gets more than it has
//! free; the same input gives the same result.

use meridian_shared::gang::{Amounts, Gang, PodSet, Taint, add_scaled};
use meridian_shared::packing::{self, BlockView, HOSTNAME_LABEL, PackedPods};
use meridian_shared::topology::FlavorTopology;
use meridian_topology::{
    Assignment, Assumed, DomainCount, Flavor, Node, Options, PODS, PodSetRequest, PodSetResult, Profile,
    Topology,
};
use std::collections::BTreeMap;
use std::fmt;

mod replacement;

pub use replacement::{RemainingPods, replace};

/// Pod capacity of a node that does not report one.
pub(crate) const PODS_UNSTATED: i64 = i32::MAX as i64;

/// A node with what is free on it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub taints: &'a [Taint],
    pub capacity: &'a Amounts,
    /// Negative where the node lost capacity under running pods.
    pub free: &'a Amounts,
    /// Number of further pods that the node may run, by its limit of pods.
    pub pods_free: i64,
}

impl NodeView<'_> {
    /// The node without any usage.
    fn emptied(self) -> Self {
        Self {
            free: self.capacity,
            pods_free: self.capacity.get(PODS).copied().unwrap_or(PODS_UNSTATED),
            ..self
        }
    }

    /// Free amounts, with the number of further pods as a resource.
    fn left(&self) -> Amounts {
        let mut left = self.free.clone();
        left.insert(PODS.to_owned(), self.pods_free);
        left
    }

    /// The node as the topology crate expects it.
    fn node(&self, by_host: bool) -> Node {
        let mut labels = self.labels.clone();
        if by_host {
            labels.entry(HOSTNAME_LABEL.to_owned()).or_insert_with(|| self.name.to_owned());
        }
        Node {
            name: self.name.to_owned(),
            labels,
            taints: self.taints.to_vec(),
            ready: true,
            unschedulable: false,
            allocatable: self.left(),
        }
    }
}

/// A number of pods of one set on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePods {
    /// Index into the gang's pod sets.
    pub pod_set: usize,
    /// Index into the nodes.
    pub node: usize,
    pub pods: u32,
}

/// Why a gang does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The first obstacle.
    pub obstacle: Obstacle,
    /// Whether the whole gang would fit if the nodes were empty.
    pub fits_empty: bool,
}

/// Obstacle to placing a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The nodes have too little capacity, whatever the topology.
    Packing(packing::Misfit),
    /// The pod set requests a topology, and its flavors don't name exactly one.
    NoTopology { pod_set: String },
    /// The topology has no fitting domain.
    Topology { pod_set: String, misfit: Box<meridian_topology::PlacementError> },
    /// The group of the pod set has more members than a leader and workers.
    GroupTooLarge {
        /// The third member.
        pod_set: String,
    },
    /// The topology left pods out: a leader is one pod, and slices must divide the pods.
    Incomplete {
        pod_set: String,
        /// Pods that were placed.
        placed: u32,
        /// Pods of the set.
        count: u32,
    },
    /// A domain has enough capacity in total, but not node by node.
    Undivided {
        /// Values of the domain's levels.
        domain: String,
        misfit: packing::Misfit,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packing(misfit) => misfit.fmt(f),
            Self::NoTopology { pod_set } => {
                write!(
                    f,
                    "pod set `{pod_set}` requests a topology, but not exactly one of its flavors names a \
                     Topology that exists"
                )
            }
            Self::GroupTooLarge { pod_set } => {
                write!(f, "pod set `{pod_set}` is the third of its group; a group is a leader and workers")
            }
            Self::Incomplete { pod_set, placed, count } => {
                write!(
                    f,
                    "only {placed} of {count} pods of `{pod_set}` can be placed; a leader is one pod, and \
                     slices must divide the pods"
                )
            }
            Self::Topology { pod_set, misfit } => write!(f, "pod set `{pod_set}`: {misfit}"),
            Self::Undivided { domain, misfit } => {
                write!(f, "domain `{domain}` has enough in total, but not on single nodes: {misfit}")
            }
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.obstacle.fmt(f)?;
        let needs_remark = !self.fits_empty
            && matches!(self.obstacle, Obstacle::Topology { .. } | Obstacle::Undivided { .. });
        if needs_remark { f.write_str(", even with nothing else running") } else { Ok(()) }
    }
}

/// Places the whole gang on `nodes`. Fails if it does not fit.
pub fn place(nodes: &[NodeView<'_>], gang: &Gang) -> Result<Vec<NodePods>, Misfit> {
    if !gang.requests_topology() {
        return pack(nodes, gang).map_err(|misfit| {
            let fits_empty = matches!(misfit, packing::Misfit::NotEnoughCapacity { fits_empty: true, .. });
            Misfit { obstacle: Obstacle::Packing(misfit), fits_empty }
        });
    }
    place_near(nodes, gang).map_err(|obstacle| {
        let empty: Vec<NodeView<'_>> = nodes.iter().map(|node| node.emptied()).collect();
        Misfit { obstacle, fits_empty: place_near(&empty, gang).is_ok() }
    })
}

fn pack(nodes: &[NodeView<'_>], gang: &Gang) -> Result<Vec<NodePods>, packing::Misfit> {
    let views: Vec<BlockView<'_>> = nodes
        .iter()
        .map(|n| BlockView {
            nodes: 1,
            free: n.free,
            capacity: n.capacity,
            labels: n.labels,
            taints: n.taints,
        })
        .collect();
    // Each block is one node.
    let node_pods = |(node, part): (usize, PackedPods)| NodePods {
        pod_set: part.pod_set,
        node,
        pods: part.pods_per_node,
    };
    Ok(packing::plan(&views, gang)?.into_iter().map(node_pods).collect())
}

fn place_near(nodes: &[NodeView<'_>], gang: &Gang) -> Result<Vec<NodePods>, Obstacle> {
    match GangPlacer::new(nodes, gang, false).run() {
        // Host by host, every domain is one node.
        Err(Obstacle::Undivided { .. }) => GangPlacer::new(nodes, gang, true).run(),
        result => result,
    }
}

/// Pods that go to one domain.
struct Domain {
    values: Vec<String>,
    /// Each with the index of its pod set.
    parts: Vec<(usize, PodSet)>,
}

/// Places one pod set after another, and counts what is left on the nodes.
struct GangPlacer<'a> {
    nodes: &'a [NodeView<'a>],
    gang: &'a Gang,
    /// Use single hosts as the narrowest level, whatever the topology's levels are.
    by_host: bool,
    /// Free amounts of each node, with the number of further pods as a resource.
    left: Vec<Amounts>,
    pods_by_node: Vec<NodePods>,
}

impl<'a> GangPlacer<'a> {
    fn new(nodes: &'a [NodeView<'a>], gang: &'a Gang, by_host: bool) -> Self {
        Self {
            nodes,
            gang,
            by_host,
            left: nodes.iter().map(NodeView::left).collect(),
            pods_by_node: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Vec<NodePods>, Obstacle> {
        let mut flavors: BTreeMap<&FlavorTopology, Vec<usize>> = BTreeMap::new();
        let mut anywhere = Vec::new();
        for (at, set) in self.gang.pod_sets.iter().enumerate() {
            match &set.within {
                Some(within) => flavors.entry(within).or_default().push(at),
                None if set.topology.is_some() => {
                    return Err(Obstacle::NoTopology { pod_set: set.name.clone() });
                }
                None => anywhere.push((at, set.clone())),
            }
        }
        let mut assumed = Assumed::default();
        for (within, sets) in flavors {
            self.place_flavor(within, &sets, &mut assumed)?;
        }
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.fill(&all, anywhere).map_err(Obstacle::Packing)?;
        Ok(self.pods_by_node)
    }

    /// Places the pod sets of one flavor.
    fn place_flavor(
        &mut self,
        within: &FlavorTopology,
        sets: &[usize],
        assumed: &mut Assumed,
    ) -> Result<(), Obstacle> {
        let topology = self.topology(within);
        let requests: Vec<PodSetRequest> =
            sets.iter().map(|at| request(&self.gang.pod_sets[*at], within)).collect();
        let outcomes = topology.assign_with_assumed(&requests, Options::default(), assumed);
        // An outcome is missing after one that failed, and for the third member of a group.
        for (at, outcome) in sets.iter().zip(&outcomes) {
            if let Some(Err(misfit)) = outcome {
                return Err(Obstacle::Topology {
                    pod_set: self.gang.pod_sets[*at].name.clone(),
                    misfit: Box::new(misfit.clone()),
                });
            }
        }
        let mut domains: Vec<Domain> = Vec::new();
        let mut numbers: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for ((at, request), outcome) in sets.iter().zip(&requests).zip(outcomes) {
            for DomainCount { values, count } in complete(request, outcome)?.domains {
                let number = *numbers.entry(values.clone()).or_insert_with(|| {
                    domains.push(Domain { values, parts: Vec::new() });
                    domains.len() - 1
                });
                domains[number].parts.push((*at, part(&self.gang.pod_sets[*at], request, count)));
            }
        }
        let numbers: BTreeMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(number, node)| (node.name, number)).collect();
        let members = topology.nodes_by_domain();
        for domain in domains {
            let names = members.get(&domain.values).into_iter().flatten();
            let inside: Vec<usize> = names.filter_map(|name| numbers.get(name).copied()).collect();
            self.fill_domain(&inside, domain)?;
        }
        Ok(())
    }

    /// Packs the pods of a domain into its nodes.
    fn fill_domain(&mut self, inside: &[usize], domain: Domain) -> Result<(), Obstacle> {
        let Domain { values, parts } = domain;
        self.fill(inside, parts).map_err(|misfit| Obstacle::Undivided { domain: values.join("/"), misfit })
    }

    fn topology(&self, within: &FlavorTopology) -> Topology {
        let FlavorTopology { flavor: _, name, levels, node_labels } = within;
        let mut levels = levels.clone();
        if self.by_host && levels.last().is_none_or(|level| level != HOSTNAME_LABEL) {
            levels.push(HOSTNAME_LABEL.to_owned());
        }
        let nodes: Vec<Node> = self.nodes.iter().map(|node| node.node(self.by_host)).collect();
        // The pods' tolerations contain those of the flavor already.
        let flavor = Flavor {
            topology: name.clone(),
            levels,
            node_labels: node_labels.clone(),
            tolerations: Vec::new(),
            profile: Profile::default(),
        };
        Topology::new(flavor, &nodes)
    }

    /// Packs pods into the nodes with the indexes `inside`.
    fn fill(&mut self, inside: &[usize], parts: Vec<(usize, PodSet)>) -> Result<(), packing::Misfit> {
        let (numbers, pod_sets): (Vec<usize>, Vec<PodSet>) = parts.into_iter().unzip();
        let gang = Gang { pod_sets, ..Gang::default() };
        let views: Vec<NodeView<'_>> =
            inside.iter().map(|at| NodeView { free: &self.left[*at], ..self.nodes[*at] }).collect();
        for placed in pack(&views, &gang)? {
            let node = inside[placed.node];
            add_scaled(&mut self.left[node], &gang.pod_sets[placed.pod_set].per_pod, -i64::from(placed.pods));
            self.pods_by_node.push(NodePods { pod_set: numbers[placed.pod_set], node, pods: placed.pods });
        }
        Ok(())
    }
}

/// The assignment of a pod set. Fails if the topology placed none or only some of its pods.
fn complete(request: &PodSetRequest, outcome: PodSetResult) -> Result<Assignment, Obstacle> {
    let pod_set = || request.name.clone();
    match outcome {
        Some(Ok(whole)) if whole.pods() == request.count => Ok(whole),
        Some(Ok(part)) => {
            Err(Obstacle::Incomplete { pod_set: pod_set(), placed: part.pods(), count: request.count })
        }
        Some(Err(misfit)) => Err(Obstacle::Topology { pod_set: pod_set(), misfit: Box::new(misfit) }),
        None => Err(Obstacle::GroupTooLarge { pod_set: pod_set() }),
    }
}

/// The topology request of a pod set. Its node selector contains the labels of the flavor's nodes; they are
/// removed, because they aren't requests of its own.
fn request(set: &PodSet, within: &FlavorTopology) -> PodSetRequest {
    let mut request = PodSetRequest::of(set);
    request.node_selector.retain(|key, value| within.node_labels.get(key) != Some(value));
    request
}

/// The pods of a set that go to one domain. Each of them also uses one unit of the node's pod capacity.
fn part(set: &PodSet, request: &PodSetRequest, count: u32) -> PodSet {
    let mut per_pod = set.per_pod.clone();
    add_scaled(&mut per_pod, &Amounts::from([(PODS.to_owned(), 1)]), 1);
    PodSet { count, per_pod, node_selector: request.node_selector.clone(), ..set.clone() }
}

#[cfg(test)]
mod tests;

//! Where the pods of a gang go: on which nodes, how many each.
//!
//! A gang that asks for nothing is packed. One that asks for nearness is placed by the topology crate, the same pure function
//! that `plan` foretells by, over the nodes as they are free now. What it answers are domains; where a domain has more than
//! one node, its pods are packed into it.
//!
//! ```text
//!   nodes, gang ──► no wish ────────────────────────────────────► pack
//!               └─► Topology::assign per flavor ──► domains ──► pack each domain ──► pack who has no topology
//! ```
//!
//! Invariants: every pod of the gang has a node, or the answer is a misfit; no node gets more than it has free; same input,
//! same answer.

use meridian_shared::gang::{Amounts, Gang, PodSet, Taint, add_scaled};
use meridian_shared::packing::{self, HOSTNAME_LABEL, Nodes, Part};
use meridian_shared::topology::FlavorTopology;
use meridian_topology::{
    Assumed, DomainCount, Flavor, Node, Options, PODS, PodSetRequest, Profile, Topology,
};
use std::collections::BTreeMap;
use std::fmt;

mod replacing;

pub use replacing::{Standing, replace};

/// Pods that a node takes which doesn't say how many.
pub(crate) const PODS_UNSTATED: i64 = i32::MAX as i64;

/// A node with what is free on it.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its taints.
    pub taints: &'a [Taint],
    /// What it has in all.
    pub capacity: &'a Amounts,
    /// What it has free; below zero where it lost capacity under running pods.
    pub free: &'a Amounts,
    /// Pods that it still takes, whatever they ask for.
    pub pods_free: i64,
}

impl Site<'_> {
    /// The same with nothing on it.
    fn emptied(self) -> Self {
        Self {
            free: self.capacity,
            pods_free: self.capacity.get(PODS).copied().unwrap_or(PODS_UNSTATED),
            ..self
        }
    }

    /// What is free, the pods that it still takes included.
    fn left(&self) -> Amounts {
        let mut left = self.free.clone();
        left.insert(PODS.to_owned(), self.pods_free);
        left
    }

    /// As the topology crate looks at it.
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

/// Pods of one set on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Index into the gang's pod sets.
    pub pod_set: usize,
    /// Index into the nodes.
    pub node: usize,
    /// How many.
    pub pods: u32,
}

/// Why a gang has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The first obstacle.
    pub why: Why,
    /// Whether the whole gang would have a place if nothing else ran here.
    pub fits_empty: bool,
}

/// The first obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The nodes have no room for it, wherever its pods would be.
    Packing(packing::Misfit),
    /// It asks for a place in a topology, and its flavors don't say which.
    NoTopology {
        /// The pod set.
        pod_set: String,
    },
    /// The topology has no such place.
    Topology {
        /// The pod set.
        pod_set: String,
        /// Why not.
        misfit: Box<meridian_topology::Misfit>,
    },
    /// Its group has more members than a leader and workers.
    GroupTooLarge {
        /// The pod set that is left over.
        pod_set: String,
    },
    /// The answer left pods out: a leader is one pod, and slices must divide the pods.
    Incomplete {
        /// The pod set.
        pod_set: String,
        /// Pods that have a place.
        placed: u32,
        /// Pods of the set.
        count: u32,
    },
    /// A domain has room for the pods in sum, and its nodes don't have it one by one.
    Undivided {
        /// The domain's values.
        domain: String,
        /// The first obstacle there.
        misfit: packing::Misfit,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packing(misfit) => misfit.fmt(f),
            Self::NoTopology { pod_set } => {
                write!(
                    f,
                    "pod set `{pod_set}` asks for a place in a topology, and not exactly one of its flavors names a Topology that exists"
                )
            }
            Self::GroupTooLarge { pod_set } => {
                write!(f, "pod set `{pod_set}` is the third of its group; a group is a leader and workers")
            }
            Self::Incomplete { pod_set, placed, count } => {
                write!(
                    f,
                    "only {placed} of {count} pods of `{pod_set}` would have a place; a leader is one pod, and slices must divide the pods"
                )
            }
            Self::Topology { pod_set, misfit } => write!(f, "pod set `{pod_set}`: {misfit}"),
            Self::Undivided { domain, misfit } => {
                write!(f, "domain `{domain}` has room in sum, and not on its nodes: {misfit}")
            }
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        let says_nothing =
            !self.fits_empty && matches!(self.why, Why::Topology { .. } | Why::Undivided { .. });
        if says_nothing { f.write_str(", even with nothing else running") } else { Ok(()) }
    }
}

/// Places the whole gang on `nodes`, or says why not.
pub fn place(nodes: &[Site<'_>], gang: &Gang) -> Result<Vec<Share>, Misfit> {
    if !gang.wants_topology() {
        return pack(nodes, gang).map_err(|misfit| {
            let fits_empty = matches!(misfit, packing::Misfit::NotEnoughRoom { fits_empty: true, .. });
            Misfit { why: Why::Packing(misfit), fits_empty }
        });
    }
    place_near(nodes, gang).map_err(|why| {
        let empty: Vec<Site<'_>> = nodes.iter().map(|site| site.emptied()).collect();
        Misfit { why, fits_empty: place_near(&empty, gang).is_ok() }
    })
}

fn pack(nodes: &[Site<'_>], gang: &Gang) -> Result<Vec<Share>, packing::Misfit> {
    let views: Vec<Nodes<'_>> = nodes
        .iter()
        .map(|n| Nodes { nodes: 1, free: n.free, capacity: n.capacity, labels: n.labels, taints: n.taints })
        .collect();
    let share = |(node, part): (usize, Part)| Share {
        pod_set: part.pod_set,
        node,
        pods: part.pods_per_node * part.nodes,
    };
    Ok(packing::plan(&views, gang)?.into_iter().map(share).collect())
}

fn place_near(nodes: &[Site<'_>], gang: &Gang) -> Result<Vec<Share>, Why> {
    match Attempt::new(nodes, gang, false).run() {
        // Host by host every answer can be divided.
        Err(Why::Undivided { .. }) => Attempt::new(nodes, gang, true).run(),
        answer => answer,
    }
}

/// Pods that go to one domain.
struct Domain {
    values: Vec<String>,
    /// By the number of their pod set.
    parts: Vec<(usize, PodSet)>,
}

/// One way through all pod sets of a gang, and what it has taken so far.
struct Attempt<'a> {
    nodes: &'a [Site<'a>],
    gang: &'a Gang,
    /// Every host is looked at by itself, whatever the topology's narrowest level is.
    by_host: bool,
    /// Per node what is left, with the pods that it still takes.
    left: Vec<Amounts>,
    shares: Vec<Share>,
}

impl<'a> Attempt<'a> {
    fn new(nodes: &'a [Site<'a>], gang: &'a Gang, by_host: bool) -> Self {
        Self { nodes, gang, by_host, left: nodes.iter().map(Site::left).collect(), shares: Vec::new() }
    }

    fn run(mut self) -> Result<Vec<Share>, Why> {
        let mut flavors: BTreeMap<&FlavorTopology, Vec<usize>> = BTreeMap::new();
        let mut anywhere = Vec::new();
        for (at, set) in self.gang.pod_sets.iter().enumerate() {
            match &set.within {
                Some(within) => flavors.entry(within).or_default().push(at),
                None if set.topology.is_some() => return Err(Why::NoTopology { pod_set: set.name.clone() }),
                None => anywhere.push((at, set.clone())),
            }
        }
        let mut assumed = Assumed::default();
        for (within, sets) in flavors {
            self.place_flavor(within, &sets, &mut assumed)?;
        }
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.fill(&all, anywhere).map_err(Why::Packing)?;
        Ok(self.shares)
    }

    /// Places the pod sets whose nodes are of one flavor.
    fn place_flavor(
        &mut self,
        within: &FlavorTopology,
        sets: &[usize],
        assumed: &mut Assumed,
    ) -> Result<(), Why> {
        let topology = self.topology(within);
        let requests: Vec<PodSetRequest> =
            sets.iter().map(|at| request(&self.gang.pod_sets[*at], within)).collect();
        let outcomes = topology.assign_beside(&requests, Options::default(), assumed);
        let mut domains: Vec<Domain> = Vec::new();
        let mut numbers: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        // An outcome is missing behind one that has no place, and where a group has a third member.
        for outcome in outcomes.iter().zip(sets) {
            if let (Some(Err(misfit)), at) = outcome {
                return Err(Why::Topology {
                    pod_set: self.gang.pod_sets[*at].name.clone(),
                    misfit: Box::new(misfit.clone()),
                });
            }
        }
        for ((at, request), outcome) in sets.iter().zip(&requests).zip(outcomes) {
            let pod_set = || request.name.clone();
            let Some(Ok(assignment)) = outcome else { return Err(Why::GroupTooLarge { pod_set: pod_set() }) };
            if assignment.pods() != request.count {
                return Err(Why::Incomplete {
                    pod_set: pod_set(),
                    placed: assignment.pods(),
                    count: request.count,
                });
            }
            for DomainCount { values, count } in assignment.domains {
                let number = *numbers.entry(values.clone()).or_insert_with(|| {
                    domains.push(Domain { values, parts: Vec::new() });
                    domains.len() - 1
                });
                domains[number].parts.push((*at, part(&self.gang.pod_sets[*at], request, count)));
            }
        }
        let numbers: BTreeMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(number, site)| (site.name, number)).collect();
        let members = topology.nodes_by_domain();
        for Domain { values, parts } in domains {
            let inside: Vec<usize> = members
                .get(&values)
                .into_iter()
                .flatten()
                .filter_map(|name| numbers.get(name).copied())
                .collect();
            self.fill(&inside, parts)
                .map_err(|misfit| Why::Undivided { domain: values.join("/"), misfit })?;
        }
        Ok(())
    }

    fn topology(&self, within: &FlavorTopology) -> Topology {
        let FlavorTopology { flavor: _, name, levels, node_labels } = within;
        let mut levels = levels.clone();
        if self.by_host && levels.last().is_none_or(|level| level != HOSTNAME_LABEL) {
            levels.push(HOSTNAME_LABEL.to_owned());
        }
        let nodes: Vec<Node> = self.nodes.iter().map(|site| site.node(self.by_host)).collect();
        // The flavor's own tolerations are among those of the pods already.
        let flavor = Flavor {
            topology: name.clone(),
            levels,
            node_labels: node_labels.clone(),
            tolerations: Vec::new(),
            profile: Profile::default(),
        };
        Topology::new(flavor, &nodes)
    }

    /// Packs pods into the nodes `inside`.
    fn fill(&mut self, inside: &[usize], parts: Vec<(usize, PodSet)>) -> Result<(), packing::Misfit> {
        let (numbers, pod_sets): (Vec<usize>, Vec<PodSet>) = parts.into_iter().unzip();
        let gang = Gang { pod_sets, max_run: None };
        let sites: Vec<Site<'_>> =
            inside.iter().map(|at| Site { free: &self.left[*at], ..self.nodes[*at] }).collect();
        for share in pack(&sites, &gang)? {
            let node = inside[share.node];
            add_scaled(&mut self.left[node], &gang.pod_sets[share.pod_set].per_pod, -i64::from(share.pods));
            self.shares.push(Share { pod_set: numbers[share.pod_set], node, pods: share.pods });
        }
        Ok(())
    }
}

/// What a pod set asks of a topology. The labels of its flavor's nodes were added to its own wishes, and are none of them.
fn request(set: &PodSet, within: &FlavorTopology) -> PodSetRequest {
    let mut request = PodSetRequest::of(set);
    request.node_selector.retain(|key, value| within.node_labels.get(key) != Some(value));
    request
}

/// The pods of a set that go to one domain. Each is one of the pods that a node takes.
fn part(set: &PodSet, request: &PodSetRequest, count: u32) -> PodSet {
    let mut per_pod = set.per_pod.clone();
    add_scaled(&mut per_pod, &Amounts::from([(PODS.to_owned(), 1)]), 1);
    PodSet { count, per_pod, node_selector: request.node_selector.clone(), ..set.clone() }
}

#[cfg(test)]
mod tests;

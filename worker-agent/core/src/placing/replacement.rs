//! New nodes for the pods of a lost node; every other pod stays (KEP-2724's node replacement).
//!
//! Pods with a topology request are always placed host by host, because the lost node is a host. Other pods
//! are packed into the free capacity.

use super::{Domain, GangPlacer, HOSTNAME_LABEL, NodePods, NodeView, Obstacle, complete, part, request};
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::topology::FlavorTopology;
use meridian_topology::{Assignment, Assumed, DomainCount, LostNodes, Options, PodSetRequest};
use std::collections::BTreeMap;

/// The pods of one pod set after the loss of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingPods<'a> {
    /// Pods that stay, by the name of their node.
    pub kept: BTreeMap<&'a str, u32>,
    /// Pods that need a new node.
    pub missing: u32,
}

impl RemainingPods<'_> {
    /// Number of all pods.
    pub fn pods(&self) -> u32 {
        self.kept.values().sum::<u32>() + self.missing
    }
}

/// Nodes for the missing pods. `standing` has one entry per pod set of `gang`. `nodes` lacks the node `lost`
/// (a topology replaces one node at a time), and what the kept pods take is not free. Fails if the missing
/// pods do not fit.
pub fn replace(
    nodes: &[NodeView<'_>],
    gang: &Gang,
    standing: &[RemainingPods<'_>],
    lost: &str,
) -> Result<Vec<NodePods>, Obstacle> {
    GangPlacer::new(nodes, gang, true).replace(standing, lost)
}

impl<'a> GangPlacer<'a> {
    fn replace(mut self, standing: &[RemainingPods<'_>], lost: &str) -> Result<Vec<NodePods>, Obstacle> {
        let mut flavors: BTreeMap<&FlavorTopology, Vec<usize>> = BTreeMap::new();
        let mut anywhere: Vec<(usize, PodSet)> = Vec::new();
        let requests_topology = self.gang.requests_topology();
        for (at, (set, standing)) in self
            .gang
            .pod_sets
            .iter()
            .zip(standing)
            .enumerate()
            .filter(|(_, (_, standing))| standing.missing > 0)
        {
            match set.within.as_ref().filter(|_| requests_topology) {
                Some(within) => flavors.entry(within).or_default().push(at),
                None => anywhere.push((at, PodSet { count: standing.missing, ..set.clone() })),
            }
        }
        let hosts = Hosts::of(self.nodes);
        let mut assumed = Assumed::default();
        for (within, sets) in flavors {
            let loss = Loss { sets: &sets, standing, lost };
            self.replace_in_flavor(within, &hosts, &loss, &mut assumed)?;
        }
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.fill(&all, anywhere).map_err(Obstacle::Packing)?;
        Ok(self.pods_by_node)
    }

    fn replace_in_flavor(
        &mut self,
        within: &FlavorTopology,
        hosts: &Hosts<'_>,
        loss: &Loss<'_>,
        assumed: &mut Assumed,
    ) -> Result<(), Obstacle> {
        let topology = self.topology(within);
        let requests: Vec<PodSetRequest> =
            loss.sets.iter().map(|at| request(&self.gang.pod_sets[*at], within)).collect();
        let admitted: BTreeMap<String, Assignment> = loss
            .sets
            .iter()
            .map(|at| {
                let before = former_assignment(&hosts.kept(loss, *at), loss.lost, loss.standing[*at].missing);
                (self.gang.pod_sets[*at].name.clone(), before)
            })
            .collect();
        let lost = [loss.lost.to_owned()];
        let options = Options {
            simulate_empty: false,
            lost: Some(LostNodes { admitted: &admitted, nodes: &lost, pinned: false }),
        };
        let outcomes = topology.assign_with_assumed(&requests, options, assumed);
        let mut domains: Vec<Domain> = Vec::new();
        for ((at, request), outcome) in loss.sets.iter().zip(&requests).zip(outcomes) {
            let before = hosts.kept(loss, *at);
            for DomainCount { values, count } in complete(request, outcome)?.domains {
                let stays = values.last().and_then(|host| before.get(host.as_str())).copied().unwrap_or(0);
                if count > stays {
                    let added = part(&self.gang.pod_sets[*at], request, count - stays);
                    domains.push(Domain { values, parts: vec![(*at, added)] });
                }
            }
        }
        for domain in domains {
            let inside: Vec<usize> =
                domain.values.last().and_then(|host| hosts.index_of(host)).into_iter().collect();
            self.fill_domain(&inside, domain)?;
        }
        Ok(())
    }
}

/// The pod sets of one flavor, with the loss of each.
struct Loss<'a> {
    /// Indexes of the pod sets.
    sets: &'a [usize],
    /// The pods that keep their nodes, one entry per pod set of the gang.
    standing: &'a [RemainingPods<'a>],
    /// Name of the lost node.
    lost: &'a str,
}

/// Host names of the nodes.
struct Hosts<'a> {
    by_node: BTreeMap<&'a str, &'a str>,
    indexes: BTreeMap<&'a str, usize>,
}

impl<'a> Hosts<'a> {
    fn of(nodes: &'a [NodeView<'a>]) -> Self {
        let host = |node: &NodeView<'a>| node.labels.get(HOSTNAME_LABEL).map_or(node.name, String::as_str);
        Self {
            by_node: nodes.iter().map(|node| (node.name, host(node))).collect(),
            indexes: nodes.iter().enumerate().map(|(index, node)| (host(node), index)).collect(),
        }
    }

    fn index_of(&self, host: &str) -> Option<usize> {
        self.indexes.get(host).copied()
    }

    /// The kept pods of a pod set, by host.
    fn kept<'k>(&self, loss: &Loss<'k>, pod_set: usize) -> BTreeMap<&'k str, u32>
    where
        'a: 'k,
    {
        loss.standing[pod_set]
            .kept
            .iter()
            .map(|(node, pods)| (self.by_node.get(node).copied().unwrap_or(node), *pods))
            .collect()
    }
}

/// The assignment before the loss.
fn former_assignment(kept: &BTreeMap<&str, u32>, lost: &str, missing: u32) -> Assignment {
    let domain = |(host, count): (&str, u32)| DomainCount { values: vec![host.to_owned()], count };
    let all = kept.iter().map(|(host, pods)| (*host, *pods)).chain(std::iter::once((lost, missing)));
    Assignment { levels: vec![HOSTNAME_LABEL.to_owned()], domains: all.map(domain).collect() }
}

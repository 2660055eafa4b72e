//! Another place for the pods of a lost node: everything else stays where it is (KEP-2724's node replacement).
//!
//! Always host by host, whatever the topology's narrowest level is: what is lost is a host. Pods that no topology placed are
//! packed into what is free.

use super::{Attempt, Domain, HOSTNAME_LABEL, Share, Site, Why, part, request};
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::topology::FlavorTopology;
use meridian_topology::{Assignment, Assumed, DomainCount, Lost, Options, PodSetRequest};
use std::collections::BTreeMap;

/// What became of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing<'a> {
    /// Pods that stay, by the name of their node.
    pub kept: BTreeMap<&'a str, u32>,
    /// Pods that need another place.
    pub missing: u32,
}

impl Standing<'_> {
    /// All of them.
    pub fn pods(&self) -> u32 {
        self.kept.values().sum::<u32>() + self.missing
    }
}

/// Where the missing pods go; `standing` says of every pod set of `gang` what became of it. The node `lost`, of which a topology
/// makes good one at a time, is none of `nodes`, and what the kept pods take is no longer free on theirs.
pub fn replace(
    nodes: &[Site<'_>],
    gang: &Gang,
    standing: &[Standing<'_>],
    lost: &str,
) -> Result<Vec<Share>, Why> {
    Attempt::new(nodes, gang, true).replace(standing, lost)
}

impl<'a> Attempt<'a> {
    fn replace(mut self, standing: &[Standing<'_>], lost: &str) -> Result<Vec<Share>, Why> {
        let mut flavors: BTreeMap<&FlavorTopology, Vec<usize>> = BTreeMap::new();
        let mut anywhere: Vec<(usize, PodSet)> = Vec::new();
        let near = self.gang.wants_topology();
        for (at, (set, standing)) in self
            .gang
            .pod_sets
            .iter()
            .zip(standing)
            .enumerate()
            .filter(|(_, (_, standing))| standing.missing > 0)
        {
            match set.within.as_ref().filter(|_| near) {
                Some(within) => flavors.entry(within).or_default().push(at),
                None => anywhere.push((at, PodSet { count: standing.missing, ..set.clone() })),
            }
        }
        let mut assumed = Assumed::default();
        for (within, sets) in flavors {
            self.replace_in_flavor(within, &sets, standing, lost, &mut assumed)?;
        }
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.fill(&all, anywhere).map_err(Why::Packing)?;
        Ok(self.shares)
    }

    fn replace_in_flavor(
        &mut self,
        within: &FlavorTopology,
        sets: &[usize],
        standing: &[Standing<'_>],
        lost: &str,
        assumed: &mut Assumed,
    ) -> Result<(), Why> {
        let topology = self.topology(within);
        let hosts: Vec<&str> = self
            .nodes
            .iter()
            .map(|site| site.labels.get(HOSTNAME_LABEL).map_or(site.name, String::as_str))
            .collect();
        let by_name: BTreeMap<&str, &str> =
            self.nodes.iter().zip(&hosts).map(|(site, host)| (site.name, *host)).collect();
        let kept = |at: usize| -> BTreeMap<&str, u32> {
            standing[at]
                .kept
                .iter()
                .map(|(node, pods)| (by_name.get(node).copied().unwrap_or(node), *pods))
                .collect()
        };
        let requests: Vec<PodSetRequest> =
            sets.iter().map(|at| request(&self.gang.pod_sets[*at], within)).collect();
        let admitted: BTreeMap<String, Assignment> = sets
            .iter()
            .map(|at| {
                (self.gang.pod_sets[*at].name.clone(), assignment(&kept(*at), lost, standing[*at].missing))
            })
            .collect();
        let lost = [lost.to_owned()];
        let options = Options {
            simulate_empty: false,
            lost: Some(Lost { admitted: &admitted, nodes: &lost, pinned: false }),
        };
        let outcomes = topology.assign_beside(&requests, options, assumed);
        let mut domains: Vec<Domain> = Vec::new();
        for ((at, request), outcome) in sets.iter().zip(&requests).zip(outcomes) {
            let pod_set = || request.name.clone();
            let whole = match outcome {
                Some(Ok(whole)) => whole,
                Some(Err(misfit)) => {
                    return Err(Why::Topology { pod_set: pod_set(), misfit: Box::new(misfit) });
                }
                None => return Err(Why::GroupTooLarge { pod_set: pod_set() }),
            };
            if whole.pods() != request.count {
                return Err(Why::Incomplete {
                    pod_set: pod_set(),
                    placed: whole.pods(),
                    count: request.count,
                });
            }
            let before = kept(*at);
            for DomainCount { values, count } in whole.domains {
                let stays = values.last().and_then(|host| before.get(host.as_str())).copied().unwrap_or(0);
                if count > stays {
                    domains.push(Domain {
                        values,
                        parts: vec![(*at, part(&self.gang.pod_sets[*at], request, count - stays))],
                    });
                }
            }
        }
        let numbers: BTreeMap<&str, usize> =
            hosts.iter().enumerate().map(|(number, host)| (*host, number)).collect();
        for Domain { values, parts } in domains {
            let inside: Vec<usize> =
                values.last().and_then(|host| numbers.get(host.as_str())).copied().into_iter().collect();
            self.fill(&inside, parts)
                .map_err(|misfit| Why::Undivided { domain: values.join("/"), misfit })?;
        }
        Ok(())
    }
}

/// The assignment of before.
fn assignment(kept: &BTreeMap<&str, u32>, lost: &str, missing: u32) -> Assignment {
    let domain = |(host, count): (&str, u32)| DomainCount { values: vec![host.to_owned()], count };
    let all = kept.iter().map(|(host, pods)| (*host, *pods)).chain(std::iter::once((lost, missing)));
    Assignment { levels: vec![HOSTNAME_LABEL.to_owned()], domains: all.map(domain).collect() }
}

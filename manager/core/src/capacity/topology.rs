//! Whether a topology domain of a cluster can hold pods that must be placed together.
//!
//! Agents assign pods to nodes. The manager only rules out what is impossible, for two reasons: no victim is
//! preempted for a gang that wouldn't fit afterwards, and users learn if no domain is ever large enough. If
//! it isn't known on which nodes leaving workloads run, every domain counts as if they all left it. So the
//! check may accept a gang that the agent can't place, but it doesn't reject for long a gang that the agent
//! can place.
//!
//! Only required levels and slices of each pod set are checked. Pod set groups and preferred levels are left
//! to the agent.

use crate::world::World;
use meridian_placement::cluster_capacity::ClusterCapacity;
use meridian_placement::reservations::Domain;
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::{self, Block, BlockView, HOSTNAME_LABEL, Misfit};
use meridian_shared::topology::Constraint;
use std::collections::BTreeMap;

/// Which workloads of a cluster are assumed to be gone.
#[derive(Clone, Copy, Debug)]
pub enum Gone<'a> {
    Nobody,
    /// Some workloads; these nodes are free afterwards.
    Leaving(&'a [Block]),
    /// Some workloads, which use these amounts in total, on unknown nodes.
    Having(&'a Amounts),
    All,
}

/// Fails if the required levels or slices of a pod set can't be satisfied in this cluster once others are
/// gone.
pub fn check_domains(
    world: &World,
    gang: &Gang,
    cluster: &ClusterName,
    gone: Gone<'_>,
) -> Result<(), Misfit> {
    let Some(live) = world.live().cluster(cluster).filter(|_| gang.requests_topology()) else {
        return Ok(());
    };
    if live.capacity().could_grow(gang) {
        return Ok(());
    }
    gang.pod_sets
        .iter()
        .filter_map(|set| constraint_of(world, set))
        .try_for_each(|constraint| constraint.check(live.capacity(), gone))
}

/// Like [`check_domains`], without the reason.
pub(crate) fn has_domains(world: &World, gang: &Gang, cluster: &ClusterName, gone: Gone<'_>) -> bool {
    let Some(live) = world.live().cluster(cluster).filter(|_| gang.requests_topology()) else {
        return true;
    };
    live.capacity().could_grow(gang)
        || gang
            .pod_sets
            .iter()
            .filter_map(|set| constraint_of(world, set))
            .all(|constraint| constraint.fit(live.capacity(), gone).is_ok())
}

/// The preemptor that has closed a domain which the gang might enter. The agent may use any free node, so a
/// gang might enter any closed domain in which one node fits it.
pub(crate) fn owner_of_closed_domain(
    world: &World,
    uid: Uid,
    gang: &Gang,
    cluster: &ClusterName,
) -> Option<Uid> {
    let capacity = world.live().cluster(cluster)?.capacity();
    let is_in = |block: &Block, domain: &Domain| {
        domain.iter().all(|(label, value)| block.labels.get(label) == Some(value))
    };
    let fits_pod =
        |block: &Block| gang.pod_sets.iter().any(|set| set.count > 0 && packing::takes(block, set) > 0);
    let may_enter = |domain: &Domain| {
        capacity.estimate().iter().any(|block| block.nodes > 0 && is_in(block, domain) && fits_pod(block))
    };
    world
        .live()
        .reservations()
        .domains_of_others(cluster, uid)
        .find(|(_, domain)| may_enter(domain))
        .map(|(owner, _)| owner)
}

/// For each pod set that requires a domain, one domain of these nodes that fits it.
pub(crate) fn domains_for(world: &World, gang: &Gang, free: &[Block]) -> Vec<Domain> {
    let nodes: Vec<BlockView<'_>> = free.iter().map(Block::view).collect();
    let domain_for = |constraint: SetConstraint<'_>| {
        let path = constraint.within.as_ref()?;
        let (domain, _) = domains(&nodes, path)
            .into_iter()
            .find(|(domain, _)| constraint.takes(domain, &constraint.slices) >= constraint.set.count)?;
        // Reports don't name nodes.
        let labels = path.iter().filter(|label| **label != HOSTNAME_LABEL);
        let found: Domain = labels
            .filter_map(|label| Some(((*label).to_owned(), domain.first()?.labels.get(*label)?.clone())))
            .collect();
        Some(found).filter(|found| !found.is_empty())
    };
    gang.pod_sets.iter().filter_map(|set| domain_for(constraint_of(world, set)?)).collect()
}

fn constraint_of<'a>(world: &'a World, set: &'a PodSet) -> Option<SetConstraint<'a>> {
    let request = set.topology.as_ref()?;
    let within = match &request.constraint {
        Some(Constraint::Required(level)) => Some(path_to(world, set, level)),
        Some(Constraint::Preferred(_) | Constraint::Unconstrained) | None => None,
    };
    let slices: Vec<_> = request
        .slices
        .iter()
        .filter(|layer| layer.size > 0)
        .map(|layer| (path_to(world, set, &layer.level), layer.size))
        .collect();
    (within.is_some() || !slices.is_empty()).then_some(SetConstraint { set, within, slices })
}

/// Labels that identify a domain of a level: those of all wider levels, then that of the level, because racks
/// in different blocks may have the same name. Until a flavor is chosen, the topology is unknown, so only
/// levels that are wider in every topology count.
fn path_to<'a>(world: &'a World, set: &'a PodSet, level: &'a str) -> Vec<&'a str> {
    let catalog = &world.state().catalog();
    let above = |levels: &'a [String]| levels.iter().position(|other| other == level).map(|at| &levels[..at]);
    if let Some(above) = set.within.as_ref().and_then(|within| above(&within.levels)) {
        return above.iter().map(String::as_str).chain([level]).collect();
    }
    let topologies = catalog.flavors().filter_map(|(_, spec)| catalog.topology(spec.topology_name.as_ref()?));
    let mut paths = topologies.filter_map(|topology| above(&topology.levels));
    let first: Vec<&str> = paths.next().into_iter().flatten().map(String::as_str).collect();
    let common = paths.fold(first, |common, other| {
        common.into_iter().filter(|label| other.iter().any(|o| o == label)).collect()
    });
    common.into_iter().chain([level]).collect()
}

/// Pods of one set that fit in each domain of the required level. Updated node by node, which is cheaper than
/// a full check.
pub(crate) struct DomainCounts {
    set: PodSet,
    path: Vec<String>,
    fitting: BTreeMap<Vec<String>, i64>,
    /// Number of domains that fit all pods of the set.
    large_enough: usize,
}

impl DomainCounts {
    /// `None` unless the gang has exactly one pod set, which requires a level above nodes and has no slices.
    pub(crate) fn of(world: &World, gang: &Gang, free: &[Block]) -> Option<Self> {
        let [set] = &*gang.pod_sets else { return None };
        let SetConstraint { within: Some(path), slices, .. } = constraint_of(world, set)? else {
            return None;
        };
        if !slices.is_empty() || path.last() == Some(&HOSTNAME_LABEL) || set.count == 0 {
            return None;
        }
        let path = path.into_iter().map(str::to_owned).collect();
        let mut counts = Self { set: set.clone(), path, fitting: BTreeMap::new(), large_enough: 0 };
        free.iter().for_each(|block| {
            counts.add(block, i64::from(packing::takes(block, set)).saturating_mul(i64::from(block.nodes)))
        });
        Some(counts)
    }

    /// Replaces one node.
    pub(crate) fn change(&mut self, before: &Block, after: &Block) {
        let [old, new] = [before, after].map(|block| i64::from(packing::takes(block, &self.set)));
        self.add(before, -old);
        self.add(after, new);
    }

    fn add(&mut self, block: &Block, pods: i64) {
        let values: Option<Vec<String>> =
            self.path.iter().map(|label| block.labels.get(label).cloned()).collect();
        let Some(values) = values.filter(|_| pods != 0) else { return };
        let (fitting, count) = (self.fitting.entry(values).or_insert(0), i64::from(self.set.count));
        let was_enough = *fitting >= count;
        *fitting = fitting.saturating_add(pods);
        self.large_enough = self.large_enough + usize::from(*fitting >= count) - usize::from(was_enough);
    }

    /// Whether any domain fits all pods of the set.
    pub(crate) fn any(&self) -> bool {
        self.large_enough > 0
    }
}

/// Places a gang on free nodes: in its reserved domains if it fits there, otherwise anywhere. Changes nothing
/// if it doesn't fit.
pub(crate) fn place(free: &mut Vec<Block>, gang: &Gang, domains: &[Domain]) {
    let is_in = |block: &Block| {
        domains
            .iter()
            .any(|domain| domain.iter().all(|(label, value)| block.labels.get(label) == Some(value)))
    };
    let (mut inside, outside): (Vec<Block>, Vec<Block>) = free.iter().cloned().partition(is_in);
    if packing::place(&mut inside, gang).is_ok() {
        inside.extend(outside);
        *free = inside;
    } else {
        // Fails if the gang doesn't fit anywhere.
        let _ = packing::place(free, gang);
    }
}

/// Which pods of a set must be in one domain. A level is given by its path, see [`path_to`].
struct SetConstraint<'a> {
    set: &'a PodSet,
    /// Required level of all pods together.
    within: Option<Vec<&'a str>>,
    /// Required level of each slice, and the number of pods per slice, widest level first.
    slices: Vec<(Vec<&'a str>, u32)>,
}

impl SetConstraint<'_> {
    fn check(&self, capacity: &ClusterCapacity, gone: Gone<'_>) -> Result<(), Misfit> {
        let Err(fitting) = self.fit(capacity, gone) else { return Ok(()) };
        let if_empty = self.fit(capacity, Gone::All);
        let (level, slice) = match (&self.within, self.slices.first()) {
            (None, Some((path, size))) => (path.last(), Some(*size)),
            (within, _) => (within.as_ref().and_then(|path| path.last()), None),
        };
        let level = level.map_or_else(String::new, |level| (*level).to_owned());
        let count = match if_empty {
            Ok(()) => self.set.count,
            Err(_) => self.set.min_count.unwrap_or(self.set.count),
        };
        let fit = if_empty.map_or_else(|fitting_if_empty| fitting_if_empty, |()| fitting).min(count);
        Err(Misfit::NoDomain {
            pod_set: self.set.name.clone(),
            level,
            slice,
            fit,
            count,
            fits_empty: if_empty.is_ok(),
        })
    }

    /// Fails with the number of pods that fit if fewer fit than are needed. All pods are needed, but for
    /// [`Gone::All`] only the minimum of partial admission, so that a gang counts as impossible only if no
    /// admissible size fits.
    fn fit(&self, capacity: &ClusterCapacity, gone: Gone<'_>) -> Result<(), u32> {
        // The estimate guesses nodes for gangs that were offered since the report. Use the report, so that a
        // wrong guess excludes no domain.
        let now = if capacity.is_asked() { capacity.reported() } else { capacity.estimate() };
        let (blocks, is_emptied) = match gone {
            Gone::Nobody => (now, false),
            Gone::Leaving(free) => (free, false),
            Gone::Having(_) | Gone::All => (capacity.estimate(), true),
        };
        let count = match gone {
            Gone::All => self.set.min_count.unwrap_or(self.set.count),
            _ => self.set.count,
        };
        let views =
            blocks.iter().map(Block::view).map(|nodes| if is_emptied { nodes.emptied() } else { nodes });
        let fitting = self.fits_most(views.filter(|nodes| nodes.takes(self.set) > 0).collect());
        let is_enough = match gone {
            Gone::Having(freed) if fitting >= count => {
                self.has_enough_in_sum(now.iter().map(Block::view).collect(), freed)
            }
            _ => true,
        };
        if fitting >= count && is_enough { Ok(()) } else { Err(fitting) }
    }

    /// Pods that fit in the domain with the most capacity.
    fn fits_most(&self, nodes: Vec<BlockView<'_>>) -> u32 {
        match &self.within {
            None => self.takes(&nodes, &self.slices),
            Some(path) => domains(&nodes, path)
                .iter()
                .map(|(domain, _)| self.takes(domain, &self.slices))
                .max()
                .unwrap_or(0),
        }
    }

    /// Pods that fit in a domain, in whole slices.
    fn takes(&self, nodes: &[BlockView<'_>], slices: &[(Vec<&str>, u32)]) -> u32 {
        let Some(((path, size), narrower)) = slices.split_first() else {
            return nodes
                .iter()
                .map(|nodes| nodes.takes(self.set).saturating_mul(nodes.nodes))
                .fold(0, u32::saturating_add);
        };
        let in_whole_slices = |(domain, times): &(Vec<BlockView<'_>>, u32)| {
            (self.takes(domain, narrower) / size * size).saturating_mul(*times)
        };
        domains(nodes, path).iter().map(in_whole_slices).fold(0, u32::saturating_add)
    }

    /// Whether the free amounts of one domain, plus all that is freed, are enough in sum.
    fn has_enough_in_sum(&self, nodes: Vec<BlockView<'_>>, freed: &Amounts) -> bool {
        let all = match &self.within {
            None => vec![(nodes, 1)],
            Some(path) => domains(&nodes, path),
        };
        let total = |per_pod: i64| per_pod.saturating_mul(i64::from(self.set.count));
        all.iter().any(|(domain, _)| {
            let mut free = freed.clone();
            domain.iter().for_each(|nodes| add_scaled(&mut free, nodes.free, i64::from(nodes.nodes)));
            self.set
                .per_pod
                .iter()
                .all(|(resource, per_pod)| total(*per_pod) <= free.get(resource).copied().unwrap_or(0))
        })
    }
}

/// Groups nodes by domain. Each item has the number of equal domains that it stands for. It is above one only
/// for the hostname level, since reports don't name nodes. Nodes without one of the labels are in no domain.
fn domains<'a>(nodes: &[BlockView<'a>], path: &[&str]) -> Vec<(Vec<BlockView<'a>>, u32)> {
    let (labels, by_host) = match path.split_last() {
        Some((last, wider)) if *last == HOSTNAME_LABEL => (wider, true),
        _ => (path, false),
    };
    let has_labels = |nodes: &&BlockView<'a>| labels.iter().all(|label| nodes.labels.contains_key(*label));
    let existing = nodes.iter().filter(|nodes| nodes.nodes > 0).filter(has_labels);
    if by_host {
        return existing.map(|nodes| (vec![nodes.one()], nodes.nodes)).collect();
    }
    let mut domains: BTreeMap<Vec<&str>, Vec<BlockView<'a>>> = BTreeMap::new();
    for nodes in existing {
        let values = labels.iter().filter_map(|label| nodes.labels.get(*label)).map(String::as_str).collect();
        domains.entry(values).or_default().push(*nodes);
    }
    domains.into_values().map(|domain| (domain, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::topology::TopologyRequest;

    const GPU: &str = "nvidia.com/gpu";

    fn gang(count: u32, gpus: i64, level: &str) -> Gang {
        let topology = Some(TopologyRequest::required(level));
        let set = PodSet {
            name: "main".into(),
            count,
            per_pod: Amounts::from([(GPU.into(), gpus)]),
            topology,
            ..PodSet::default()
        };
        Gang { pod_sets: vec![set], ..Gang::default() }
    }

    /// Nodes of one rack with 4 accelerators each, of which `free` are free on each node.
    fn rack(block: &str, rack: &str, nodes: u32, free: i64) -> Block {
        let labels =
            [("block", block), ("rack", rack)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Block {
            nodes,
            free: Amounts::from([(GPU.into(), free)]),
            capacity: Amounts::from([(GPU.into(), 4)]),
            labels,
            ..Block::default()
        }
    }

    /// Fails with the pods that fit and the pods needed.
    fn check(blocks: &[Block], gang: &Gang, path: &[&str], gone: Gone<'_>) -> Result<(), (u32, u32)> {
        let constraint =
            SetConstraint { set: &gang.pod_sets[0], within: Some(path.to_vec()), slices: Vec::new() };
        check_misfit(blocks, &constraint, gone).map_err(|(fit, count, _)| (fit, count))
    }

    /// Fails with the pods that fit, the pods needed, and whether all would fit in the empty cluster.
    fn check_misfit(
        blocks: &[Block],
        constraint: &SetConstraint<'_>,
        gone: Gone<'_>,
    ) -> Result<(), (u32, u32, bool)> {
        constraint.check(&ClusterCapacity::of(blocks.to_vec()), gone).map_err(|misfit| match misfit {
            Misfit::NoDomain { fit, count, fits_empty, .. } => (fit, count, fits_empty),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_gang_too_large_for_any_domain_is_refused_with_the_pods_that_fit() {
        let blocks = [rack("b0", "r0", 2, 0), rack("b0", "r1", 3, 0), rack("b1", "r0", 2, 4)];
        let rack = ["block", "rack"];
        for (pods, gpus, path, expect) in [
            (12, 1, &rack[..], Ok(())),
            (13, 1, &rack[..], Err((12, 13))),
            (13, 1, &["block"][..], Ok(())),
            // Without the block label, two racks of the same name count as one.
            (13, 1, &["rack"][..], Ok(())),
            (17, 1, &["rack"][..], Err((16, 17))),
            (4, 3, &rack[..], Err((3, 4))),
            (1, 5, &rack[..], Err((0, 1))),
            (4, 1, &["block", HOSTNAME_LABEL][..], Ok(())),
            (5, 1, &["block", HOSTNAME_LABEL][..], Err((4, 5))),
            (1, 1, &["zone"][..], Err((0, 1))),
        ] {
            assert_eq!(
                check(&blocks, &gang(pods, gpus, path[path.len() - 1]), path, Gone::All),
                expect,
                "{pods} of {gpus} in {path:?}"
            );
        }
        let fewer = Gang {
            pod_sets: vec![PodSet { min_count: Some(12), ..gang(13, 1, "rack").pod_sets.remove(0) }],
            ..Gang::default()
        };
        assert_eq!(check(&blocks, &fewer, &rack, Gone::All), Ok(()));
    }

    #[test]
    fn freed_amounts_count_in_every_domain() {
        let blocks = [rack("b0", "r0", 2, 1), rack("b0", "r1", 2, 0)];
        let (six, path) = (gang(6, 1, "rack"), ["block", "rack"]);
        let [four, three] = [4, 3].map(|gpus| Amounts::from([(GPU.into(), gpus)]));
        assert_eq!(check(&blocks, &six, &path, Gone::Having(&four)), Ok(()));
        assert_eq!(check(&blocks, &six, &path, Gone::Having(&three)), Err((6, 6)));
    }

    #[test]
    fn free_capacity_counts_per_domain() {
        let blocks = [rack("b0", "r0", 2, 2), rack("b0", "r1", 2, 1), rack("b1", "r0", 1, 3)];
        let (path, five) = (["block", "rack"], gang(5, 1, "rack"));
        let constraint = |level: &'static str| SetConstraint {
            set: &five.pod_sets[0],
            within: Some(vec!["block", level]),
            slices: Vec::new(),
        };
        assert_eq!(check(&blocks, &gang(4, 1, "rack"), &path, Gone::Nobody), Ok(()));
        assert_eq!(check_misfit(&blocks, &constraint("rack"), Gone::Nobody), Err((4, 5, true)));
        let after =
            [rack("b0", "r0", 1, 2), rack("b0", "r0", 1, 4), rack("b0", "r1", 2, 1), rack("b1", "r0", 1, 3)];
        assert_eq!(check_misfit(&blocks, &constraint("rack"), Gone::Leaving(&after)), Ok(()));
    }

    #[test]
    fn slices_fit_as_a_whole_and_nest() {
        let blocks = [rack("b0", "r0", 1, 3), rack("b0", "r1", 3, 2), rack("b1", "r0", 2, 4)];
        let pods = gang(12, 1, "block");
        let (block, rack, host) =
            (vec!["block"], vec!["block", "rack"], vec!["block", "rack", HOSTNAME_LABEL]);
        let takes = |within: Option<&Vec<&'static str>>, slices: &[(&Vec<&'static str>, u32)]| {
            let slices = slices.iter().map(|(path, size)| ((*path).clone(), *size)).collect();
            SetConstraint { set: &pods.pod_sets[0], within: within.cloned(), slices }
                .fits_most(blocks.iter().map(Block::view).collect())
        };
        assert_eq!(takes(None, &[]), 17);
        assert_eq!(takes(Some(&block), &[]), 9);
        assert_eq!(takes(None, &[(&rack, 4)]), 4 + 8);
        assert_eq!(takes(None, &[(&rack, 6)]), 6 + 6);
        assert_eq!(takes(Some(&block), &[(&rack, 3)]), 3 + 6);
        assert_eq!(takes(None, &[(&host, 2)]), 2 + 6 + 8);
        assert_eq!(takes(None, &[(&rack, 4), (&host, 2)]), 4 + 8);
        assert_eq!(takes(None, &[(&rack, 6), (&host, 3)]), 6, "three on each of two hosts, in one rack only");
        let constraint = SetConstraint {
            set: &pods.pod_sets[0],
            within: None,
            slices: vec![(rack.clone(), 6), (host, 3)],
        };
        assert_eq!(check_misfit(&blocks, &constraint, Gone::Nobody), Err((6, 12, true)));
        let misfit = constraint.check(&ClusterCapacity::of(blocks.to_vec()), Gone::Nobody).unwrap_err();
        assert_eq!(
            misfit.to_string(),
            "each slice of 6 pods of pod set `main` must be in one `rack`: 6 of 12 pods fit now"
        );
    }
}

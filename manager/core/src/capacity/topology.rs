//! Whether a domain of a cluster could hold pods that must be together: as far as its report says so, and at best.
//!
//! Agents place; here only what can't be is ruled out, so that nobody is told to stop for a gang that would find no place
//! afterwards, and so that one which no domain could ever hold is told so. Where it isn't known on which nodes those stand who go
//! or have just come, they are counted in every domain as if they left all of it. So this says yes to some of what an agent can't
//! place, and never for long no to what it can.
//!
//! Required levels count, and slices, pod set by pod set. Groups, and wishes that may be given up, are the agent's.

use crate::placement::capacity::ClusterCapacity;
use crate::placement::reservations::Domain;
use crate::world::World;
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL, Misfit, Nodes};
use meridian_shared::topology::Constraint;
use std::collections::BTreeMap;

/// Who is thought to be gone.
#[derive(Clone, Copy)]
pub(crate) enum Gone<'a> {
    /// Nobody.
    Nobody,
    /// Some who leave this.
    Leaving(&'a [Block]),
    /// Some who have so much together, from wherever they are.
    Having(&'a Amounts),
    /// Everybody.
    All,
}

/// Whether each pod set of the gang that must be in one domain, or have its slices in such, could be in this cluster once
/// others are gone.
pub(crate) fn judge_domains(
    world: &World,
    gang: &Gang,
    cluster: &ClusterName,
    gone: Gone<'_>,
) -> Result<(), Misfit> {
    let Some(live) = world.live.clusters.get(cluster).filter(|_| gang.wants_topology()) else {
        return Ok(());
    };
    if live.capacity.could_grow(gang) {
        return Ok(());
    }
    gang.pod_sets
        .iter()
        .filter_map(|set| shape_of(world, set))
        .try_for_each(|shape| shape.judge(&live.capacity, gone))
}

/// The same, without why not.
pub(crate) fn has_domains(world: &World, gang: &Gang, cluster: &ClusterName, gone: Gone<'_>) -> bool {
    let Some(live) = world.live.clusters.get(cluster).filter(|_| gang.wants_topology()) else {
        return true;
    };
    live.capacity.could_grow(gang)
        || gang
            .pod_sets
            .iter()
            .filter_map(|set| shape_of(world, set))
            .all(|shape| shape.fit(&live.capacity, gone).is_ok())
}

/// For whom a domain comes free in a cluster of which a gang might take a part: its agent may put it on any node that is free.
pub(crate) fn breaks_into(world: &World, uid: Uid, gang: &Gang, cluster: &ClusterName) -> Option<Uid> {
    let capacity = &world.live.clusters.get(cluster)?.capacity;
    let is_in = |block: &Block, domain: &Domain| {
        domain.iter().all(|(label, value)| block.labels.get(label) == Some(value))
    };
    let takes =
        |block: &Block| gang.pod_sets.iter().any(|set| set.count > 0 && packing::takes(block, set) > 0);
    let enters = |domain: &Domain| {
        capacity.estimate().iter().any(|block| block.nodes > 0 && is_in(block, domain) && takes(block))
    };
    world
        .live
        .reservations
        .domains_of_others(cluster, uid)
        .find(|(_, domain)| enters(domain))
        .map(|(other, _)| other)
}

/// Domains in which a gang would have room among these nodes, one for each pod set that must be in one.
pub(crate) fn domains_for(world: &World, gang: &Gang, free: &[Block]) -> Vec<Domain> {
    let nodes: Vec<Nodes<'_>> = free.iter().map(Block::view).collect();
    let of = |shape: Shape<'_>| {
        let path = shape.within.as_ref()?;
        let (domain, _) = domains(&nodes, path)
            .into_iter()
            .find(|(domain, _)| shape.takes(domain, &shape.slices) >= shape.set.count)?;
        // Nodes are known by name to their agent only.
        let labels = path.iter().filter(|label| **label != HOSTNAME_LABEL);
        let found: Domain = labels
            .filter_map(|label| Some(((*label).to_owned(), domain.first()?.labels.get(*label)?.clone())))
            .collect();
        Some(found).filter(|found| !found.is_empty())
    };
    gang.pod_sets.iter().filter_map(|set| of(shape_of(world, set)?)).collect()
}

fn shape_of<'a>(world: &'a World, set: &'a PodSet) -> Option<Shape<'a>> {
    let wish = set.topology.as_ref()?;
    let within = match &wish.constraint {
        Some(Constraint::Required(level)) => Some(path_to(world, set, level)),
        Some(Constraint::Preferred(_) | Constraint::Unconstrained) | None => None,
    };
    let slices: Vec<_> = wish
        .slices
        .iter()
        .filter(|layer| layer.size > 0)
        .map(|layer| (path_to(world, set, &layer.level), layer.size))
        .collect();
    (within.is_some() || !slices.is_empty()).then_some(Shape { set, within, slices })
}

/// Labels by which domains of a level are surely told apart, that of the level last: those of the wider levels of its flavor's
/// topology, or where no flavor is chosen yet of those that it has in every topology.
fn path_to<'a>(world: &'a World, set: &'a PodSet, level: &'a str) -> Vec<&'a str> {
    let catalog = &world.state.catalog();
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

/// How many pods the domains of a level take of a set that must be in one, kept up node by node.
pub(crate) struct Counted {
    set: PodSet,
    path: Vec<String>,
    takes: BTreeMap<Vec<String>, i64>,
    /// How many domains take all.
    enough: usize,
}

impl Counted {
    /// Of the one set of a gang that has no more than one, and no slices.
    pub(crate) fn of(world: &World, gang: &Gang, free: &[Block]) -> Option<Self> {
        let [set] = &*gang.pod_sets else { return None };
        let Shape { within: Some(path), slices, .. } = shape_of(world, set)? else { return None };
        if !slices.is_empty() || path.last() == Some(&HOSTNAME_LABEL) || set.count == 0 {
            return None;
        }
        let path = path.into_iter().map(str::to_owned).collect();
        let mut this = Self { set: set.clone(), path, takes: BTreeMap::new(), enough: 0 };
        free.iter().for_each(|block| {
            this.add(block, i64::from(packing::takes(block, set)).saturating_mul(i64::from(block.nodes)))
        });
        Some(this)
    }

    /// A node has become another.
    pub(crate) fn change(&mut self, before: &Block, after: &Block) {
        let [had, has] = [before, after].map(|block| i64::from(packing::takes(block, &self.set)));
        self.add(before, -had);
        self.add(after, has);
    }

    fn add(&mut self, block: &Block, pods: i64) {
        let values: Option<Vec<String>> =
            self.path.iter().map(|label| block.labels.get(label).cloned()).collect();
        let Some(values) = values.filter(|_| pods != 0) else { return };
        let (takes, count) = (self.takes.entry(values).or_insert(0), i64::from(self.set.count));
        let before = *takes >= count;
        *takes = takes.saturating_add(pods);
        self.enough = self.enough + usize::from(*takes >= count) - usize::from(before);
    }

    /// Whether any takes all.
    pub(crate) fn any(&self) -> bool {
        self.enough > 0
    }
}

/// Takes from free nodes what a gang asks for, in its domains where it is to be in some and they have the room.
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
        // What doesn't fit takes nothing.
        let _ = packing::place(free, gang);
    }
}

/// How near to each other the pods of a set must be.
struct Shape<'a> {
    set: &'a PodSet,
    /// The level of which one domain holds them all.
    within: Option<Vec<&'a str>>,
    /// Levels of which each slice is in one domain, from the widest, and pods of a slice.
    slices: Vec<(Vec<&'a str>, u32)>,
}

impl Shape<'_> {
    fn judge(&self, capacity: &ClusterCapacity, gone: Gone<'_>) -> Result<(), Misfit> {
        let Err(most) = self.fit(capacity, gone) else { return Ok(()) };
        let could = self.fit(capacity, Gone::All);
        let (level, slice) = match (&self.within, self.slices.first()) {
            (None, Some((path, size))) => (path.last(), Some(*size)),
            (within, _) => (within.as_ref().and_then(|path| path.last()), None),
        };
        let level = level.map_or_else(String::new, |level| (*level).to_owned());
        let count = match could {
            Ok(()) => self.set.count,
            Err(_) => self.set.min_count.unwrap_or(self.set.count),
        };
        let fit = could.map_or_else(|could| could, |()| most).min(count);
        Err(Misfit::NoDomain {
            pod_set: self.set.name.clone(),
            level,
            slice,
            fit,
            count,
            fits_empty: could.is_ok(),
        })
    }

    /// Whether it fits, or how many pods do. Fewer than all are another gang, but what never fits never fits with the fewest.
    fn fit(&self, capacity: &ClusterCapacity, gone: Gone<'_>) -> Result<(), u32> {
        // What was asked for since the report may come to stand elsewhere than the estimate has it.
        let now = if capacity.is_asked() { capacity.reported() } else { capacity.estimate() };
        let (blocks, emptied) = match gone {
            Gone::Nobody => (now, false),
            Gone::Leaving(free) => (free, false),
            Gone::Having(_) | Gone::All => (capacity.estimate(), true),
        };
        let count = match gone {
            Gone::All => self.set.min_count.unwrap_or(self.set.count),
            _ => self.set.count,
        };
        let views = blocks.iter().map(Block::view).map(|some| if emptied { some.emptied() } else { some });
        let most = self.most(views.filter(|some| some.takes(self.set) > 0).collect());
        let left = match gone {
            Gone::Having(gone) if most >= count => {
                self.leaves_enough(now.iter().map(Block::view).collect(), gone)
            }
            _ => true,
        };
        if most >= count && left { Ok(()) } else { Err(most) }
    }

    /// Pods that the domain takes which takes most.
    fn most(&self, nodes: Vec<Nodes<'_>>) -> u32 {
        match &self.within {
            None => self.takes(&nodes, &self.slices),
            Some(path) => domains(&nodes, path)
                .iter()
                .map(|(domain, _)| self.takes(domain, &self.slices))
                .max()
                .unwrap_or(0),
        }
    }

    /// Pods that a domain takes, in whole slices.
    fn takes(&self, nodes: &[Nodes<'_>], slices: &[(Vec<&str>, u32)]) -> u32 {
        let Some(((path, size), narrower)) = slices.split_first() else {
            return nodes
                .iter()
                .map(|some| some.takes(self.set).saturating_mul(some.nodes))
                .fold(0, u32::saturating_add);
        };
        let whole = |(domain, times): &(Vec<Nodes<'_>>, u32)| {
            (self.takes(domain, narrower) / size * size).saturating_mul(*times)
        };
        domains(nodes, path).iter().map(whole).fold(0, u32::saturating_add)
    }

    /// Whether in one domain what is free, and what those leave who go, is enough in sum.
    fn leaves_enough(&self, nodes: Vec<Nodes<'_>>, gone: &Amounts) -> bool {
        let all = match &self.within {
            None => vec![(nodes, 1)],
            Some(path) => domains(&nodes, path),
        };
        let asks = |amount: i64| amount.saturating_mul(i64::from(self.set.count));
        all.iter().any(|(domain, _)| {
            let mut left = gone.clone();
            domain.iter().for_each(|some| add_scaled(&mut left, some.free, i64::from(some.nodes)));
            self.set
                .per_pod
                .iter()
                .all(|(resource, each)| asks(*each) <= left.get(resource).copied().unwrap_or(0))
        })
    }
}

/// Nodes by the domain that they are in, and how many domains are like that; none of those that lack a label. Nodes that are alike
/// are domains of one node each where those are told apart by name.
fn domains<'a>(nodes: &[Nodes<'a>], path: &[&str]) -> Vec<(Vec<Nodes<'a>>, u32)> {
    let (labels, by_host) = match path.split_last() {
        Some((last, wider)) if *last == HOSTNAME_LABEL => (wider, true),
        _ => (path, false),
    };
    let has_all = |some: &&Nodes<'a>| labels.iter().all(|label| some.labels.contains_key(*label));
    let there = nodes.iter().filter(|some| some.nodes > 0).filter(has_all);
    if by_host {
        return there.map(|some| (vec![some.one()], some.nodes)).collect();
    }
    let mut domains: BTreeMap<Vec<&str>, Vec<Nodes<'a>>> = BTreeMap::new();
    for some in there {
        let values = labels.iter().filter_map(|label| some.labels.get(*label)).map(String::as_str).collect();
        domains.entry(values).or_default().push(*some);
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
        Gang { pod_sets: vec![set], max_run: None }
    }

    /// So many nodes of four accelerators each in a rack, with so many free on each.
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

    fn check(blocks: &[Block], gang: &Gang, path: &[&str], gone: Gone<'_>) -> Result<(), (u32, u32)> {
        let shape = Shape { set: &gang.pod_sets[0], within: Some(path.to_vec()), slices: Vec::new() };
        judge(blocks, &shape, gone).map_err(|(fit, count, _)| (fit, count))
    }

    /// Pods that fit, of how many, and whether all could.
    fn judge(blocks: &[Block], shape: &Shape<'_>, gone: Gone<'_>) -> Result<(), (u32, u32, bool)> {
        shape.judge(&ClusterCapacity::of(blocks.to_vec()), gone).map_err(|misfit| match misfit {
            Misfit::NoDomain { fit, count, fits_empty, .. } => (fit, count, fits_empty),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn what_no_domain_could_ever_hold_is_told_by_how_much() {
        let blocks = [rack("b0", "r0", 2, 0), rack("b0", "r1", 3, 0), rack("b1", "r0", 2, 4)];
        let rack = ["block", "rack"];
        for (pods, gpus, path, expect) in [
            (12, 1, &rack[..], Ok(())),
            (13, 1, &rack[..], Err((12, 13))),
            (13, 1, &["block"][..], Ok(())),
            // Without the block the two racks of one name are one.
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
            max_run: None,
        };
        assert_eq!(check(&blocks, &fewer, &rack, Gone::All), Ok(()));
    }

    #[test]
    fn whoever_goes_may_have_been_anywhere() {
        let blocks = [rack("b0", "r0", 2, 1), rack("b0", "r1", 2, 0)];
        let (six, path) = (gang(6, 1, "rack"), ["block", "rack"]);
        let [four, three] = [4, 3].map(|gpus| Amounts::from([(GPU.into(), gpus)]));
        assert_eq!(check(&blocks, &six, &path, Gone::Having(&four)), Ok(()));
        assert_eq!(check(&blocks, &six, &path, Gone::Having(&three)), Err((6, 6)));
    }

    #[test]
    fn what_is_free_is_counted_by_domain() {
        let blocks = [rack("b0", "r0", 2, 2), rack("b0", "r1", 2, 1), rack("b1", "r0", 1, 3)];
        let (path, five) = (["block", "rack"], gang(5, 1, "rack"));
        let shape = |gang: &'static str| Shape {
            set: &five.pod_sets[0],
            within: Some(vec!["block", gang]),
            slices: Vec::new(),
        };
        assert_eq!(check(&blocks, &gang(4, 1, "rack"), &path, Gone::Nobody), Ok(()));
        assert_eq!(judge(&blocks, &shape("rack"), Gone::Nobody), Err((4, 5, true)));
        let after =
            [rack("b0", "r0", 1, 2), rack("b0", "r0", 1, 4), rack("b0", "r1", 2, 1), rack("b1", "r0", 1, 3)];
        assert_eq!(judge(&blocks, &shape("rack"), Gone::Leaving(&after)), Ok(()));
    }

    #[test]
    fn slices_are_whole_in_their_domains_and_in_each_other() {
        let blocks = [rack("b0", "r0", 1, 3), rack("b0", "r1", 3, 2), rack("b1", "r0", 2, 4)];
        let pods = gang(12, 1, "block");
        let (block, rack, host) =
            (vec!["block"], vec!["block", "rack"], vec!["block", "rack", HOSTNAME_LABEL]);
        let takes = |within: Option<&Vec<&'static str>>, slices: &[(&Vec<&'static str>, u32)]| {
            let slices = slices.iter().map(|(path, size)| ((*path).clone(), *size)).collect();
            Shape { set: &pods.pod_sets[0], within: within.cloned(), slices }
                .most(blocks.iter().map(Block::view).collect())
        };
        assert_eq!(takes(None, &[]), 17);
        assert_eq!(takes(Some(&block), &[]), 9);
        assert_eq!(takes(None, &[(&rack, 4)]), 4 + 8);
        assert_eq!(takes(None, &[(&rack, 6)]), 6 + 6);
        assert_eq!(takes(Some(&block), &[(&rack, 3)]), 3 + 6);
        assert_eq!(takes(None, &[(&host, 2)]), 2 + 6 + 8);
        assert_eq!(takes(None, &[(&rack, 4), (&host, 2)]), 4 + 8);
        assert_eq!(takes(None, &[(&rack, 6), (&host, 3)]), 6, "three on each of two hosts, in one rack only");
        let shape =
            Shape { set: &pods.pod_sets[0], within: None, slices: vec![(rack.clone(), 6), (host, 3)] };
        assert_eq!(judge(&blocks, &shape, Gone::Nobody), Err((6, 12, true)));
        let words = shape.judge(&ClusterCapacity::of(blocks.to_vec()), Gone::Nobody).unwrap_err().to_string();
        assert_eq!(
            words,
            "each slice of 6 pods of pod set `main` must be in one `rack`, and there is such room for 6 of its 12 pods now"
        );
    }
}

//! Whether a domain of a cluster could hold pods that must be together: as far as its report says so, and at best.
//!
//! Agents place; here only what can't be is ruled out, so that nobody is told to stop for a gang that would find no place
//! afterwards, and so that one which no domain could ever hold is told so. Reports don't name hosts, and a host's name doesn't tell
//! its domain: whoever is to go is counted in every domain as if all of him stood there. So this never says no to what an
//! agent could place, and often says yes to what it can't.
//!
//! Only required levels count. Slices, groups and wishes that may be given up are the agent's.

use crate::World;
use crate::rooms::Rooms;
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::ClusterName;
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL, Misfit, Nodes};
use meridian_shared::topology::Constraint;
use std::collections::BTreeMap;

/// Who is thought to be gone.
#[derive(Clone, Copy)]
pub(crate) enum Gone<'a> {
    /// Some who have so much together, from wherever they are.
    Having(&'a Amounts),
    /// Everybody.
    All,
}

impl World {
    /// Whether each pod set of the gang that must be in one domain could be in one of this cluster once others are gone.
    pub(crate) fn judge_domains(&self, gang: &Gang, cluster: &ClusterName, gone: Gone<'_>) -> Result<(), Misfit> {
        let Some(live) = self.live.clusters.get(cluster).filter(|_| gang.wants_topology()) else { return Ok(()) };
        if live.rooms.can_grow() {
            return Ok(());
        }
        gang.pod_sets.iter().filter_map(|set| Some((set, required(set)?))).try_for_each(|(set, level)| judge(&live.rooms, set, &self.path_to(level), gone))
    }

    /// Labels by which domains of a level are surely told apart, that of the level last: those of wider levels that it has in
    /// every topology. A flavor isn't chosen yet.
    fn path_to<'a>(&'a self, level: &'a str) -> Vec<&'a str> {
        let catalog = &self.state.catalog;
        let topologies = catalog.flavors().filter_map(|(_, spec)| catalog.topology(spec.topology_name.as_ref()?));
        let above = |levels: &'a [String]| levels.iter().position(|other| other == level).map(|at| &levels[..at]);
        let mut paths = topologies.filter_map(|topology| above(&topology.levels));
        let first: Vec<&str> = paths.next().into_iter().flatten().map(String::as_str).collect();
        let common = paths.fold(first, |common, other| common.into_iter().filter(|label| other.iter().any(|o| o == label)).collect());
        common.into_iter().chain([level]).collect()
    }
}

fn required(set: &PodSet) -> Option<&str> {
    match &set.topology.as_ref()?.constraint {
        Some(Constraint::Required(level)) => Some(level),
        Some(Constraint::Preferred(_) | Constraint::Unconstrained) | None => None,
    }
}

fn judge(rooms: &Rooms, set: &PodSet, path: &[&str], gone: Gone<'_>) -> Result<(), Misfit> {
    let count = set.min_count.unwrap_or(set.count);
    let alone = Gang { pod_sets: vec![PodSet { count, min_count: None, ..set.clone() }], max_run: None };
    let mut most = 0;
    for domain in domains(rooms.blocks(), path) {
        // Who is gone may leave its pods' room on whichever nodes suit best.
        match packing::plan(&domain.iter().map(Nodes::emptied).collect::<Vec<_>>(), &alone) {
            Ok(_) if leaves_enough(&domain, &alone, gone) => return Ok(()),
            Ok(_) => most = count,
            Err(Misfit::NotEnoughRoom { fit, .. }) => most = most.max(fit),
            Err(_) => {}
        }
    }
    let level = path.last().map_or_else(String::new, |level| (*level).to_owned());
    Err(Misfit::NoDomain { pod_set: set.name.clone(), level, fit: most, count })
}

/// Nodes by the domain that they are in; none of those that lack a label.
fn domains<'a>(blocks: &'a [Block], path: &[&str]) -> Vec<Vec<Nodes<'a>>> {
    let (labels, by_host) = match path.split_last() {
        Some((last, wider)) if *last == HOSTNAME_LABEL => (wider, true),
        _ => (path, false),
    };
    let mut domains: BTreeMap<(Vec<&str>, Option<usize>), Vec<Nodes<'a>>> = BTreeMap::new();
    for (at, block) in blocks.iter().enumerate() {
        let values: Option<Vec<&str>> = labels.iter().map(|label| block.labels.get(*label).map(String::as_str)).collect();
        if let Some(values) = values {
            // Of alike nodes one stands for each.
            let nodes = if by_host { block.view().one() } else { block.view() };
            domains.entry((values, by_host.then_some(at))).or_default().push(nodes);
        }
    }
    domains.into_values().collect()
}

/// Whether what is free in a domain and what those leave who go is enough in sum.
fn leaves_enough(domain: &[Nodes<'_>], gang: &Gang, gone: Gone<'_>) -> bool {
    let Gone::Having(gone) = gone else { return true };
    let mut left = Amounts::new();
    domain.iter().for_each(|nodes| add_scaled(&mut left, nodes.free, i64::from(nodes.nodes)));
    add_scaled(&mut left, gone, 1);
    gang.total().iter().all(|(resource, asks)| *asks <= left.get(resource).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::topology::TopologyRequest;

    const GPU: &str = "nvidia.com/gpu";

    fn gang(count: u32, gpus: i64, level: &str) -> Gang {
        let topology = Some(TopologyRequest::required(level));
        let set = PodSet { name: "main".into(), count, per_pod: Amounts::from([(GPU.into(), gpus)]), topology, ..PodSet::default() };
        Gang { pod_sets: vec![set], max_run: None }
    }

    /// So many nodes of four accelerators each in a rack, with so many free on each.
    fn rack(block: &str, rack: &str, nodes: u32, free: i64) -> Block {
        let labels = [("block", block), ("rack", rack)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Block { nodes, free: Amounts::from([(GPU.into(), free)]), capacity: Amounts::from([(GPU.into(), 4)]), labels, ..Block::default() }
    }

    fn check(blocks: &[Block], gang: &Gang, path: &[&str], gone: Gone<'_>) -> Result<(), (u32, u32)> {
        let rooms = Rooms::of(blocks.to_vec());
        judge(&rooms, &gang.pod_sets[0], path, gone).map_err(|misfit| match misfit {
            Misfit::NoDomain { fit, count, .. } => (fit, count),
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
            assert_eq!(check(&blocks, &gang(pods, gpus, path[path.len() - 1]), path, Gone::All), expect, "{pods} of {gpus} in {path:?}");
        }
        let fewer = Gang { pod_sets: vec![PodSet { min_count: Some(12), ..gang(13, 1, "rack").pod_sets.remove(0) }], max_run: None };
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
}

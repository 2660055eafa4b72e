//! Where the pods of a gang were placed, in the form in which the manager is told: counted by domain of the topology that
//! its pod sets were placed in, or by node.
//!
//! It is made when pods get their places and kept with the run: later the labels of a node may be gone with it.

use crate::ledger::{Ledger, PodPlacement};
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::packing::HOSTNAME_LABEL;
use meridian_shared::placement::{KINDS_MAX, PlacedDomain, PlacedPodSet, Placement};
use std::collections::BTreeMap;

/// What is told of `placement`, which changed `revision` times so far.
pub(crate) fn told(revision: u32, gang: &Gang, placement: &[PodPlacement], ledger: &Ledger) -> Placement {
    let mut by_set: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    for pod in placement {
        *by_set.entry(&pod.pod_set).or_default().entry(&pod.node).or_default() += 1;
    }
    let nothing = BTreeMap::new();
    let pod_sets = gang
        .pod_sets
        .iter()
        .map(|set| pod_set(set, by_set.get(set.name.as_str()).unwrap_or(&nothing), ledger))
        .collect();
    Placement { revision, pod_sets, ..Placement::default() }.bounded()
}

fn pod_set(set: &PodSet, nodes: &BTreeMap<&str, u32>, ledger: &Ledger) -> PlacedPodSet {
    let by_levels = set
        .within
        .as_ref()
        .filter(|within| !within.levels.is_empty())
        .and_then(|within| by_domain(&within.levels, nodes, ledger));
    let (levels, mut domains) = by_levels.unwrap_or_else(|| {
        let domain = |(node, pods): (&&str, &u32)| PlacedDomain {
            values: vec![(*node).to_owned()],
            pods: *pods,
            kind: 0,
        };
        (Vec::new(), nodes.iter().map(domain).collect())
    });
    let are_nodes = levels.last().is_none_or(|level| level == HOSTNAME_LABEL);
    let kinds = if are_nodes { tell_kinds(&mut domains, ledger).unwrap_or_default() } else { Vec::new() };
    PlacedPodSet { name: set.name.clone(), levels, domains, kinds, ..PlacedPodSet::default() }
}

/// The kinds of nodes, where there are few enough of them and all are known; each node is told its own.
fn tell_kinds(nodes: &mut [PlacedDomain], ledger: &Ledger) -> Option<Vec<u64>> {
    let of = |node: &PlacedDomain| ledger.kind(node.values.last()?);
    let found: Vec<u64> = nodes.iter().map(of).collect::<Option<_>>()?;
    let mut places: BTreeMap<u64, u32> = found.iter().map(|kind| (*kind, 0)).collect();
    if places.len() > KINDS_MAX {
        return None;
    }
    places.values_mut().zip(0..).for_each(|(place, at)| *place = at);
    nodes.iter_mut().zip(&found).for_each(|(node, kind)| node.kind = places.get(kind).copied().unwrap_or(0));
    Some(places.into_keys().collect())
}

/// By the values of `levels`, in the order of the topology's tree; by the host alone where that is the narrowest level.
/// `None` where a node lacks one of the labels.
fn by_domain(
    levels: &[String],
    nodes: &BTreeMap<&str, u32>,
    ledger: &Ledger,
) -> Option<(Vec<String>, Vec<PlacedDomain>)> {
    let mut counts: BTreeMap<Vec<&str>, u32> = BTreeMap::new();
    for (node, pods) in nodes {
        let labels = ledger.labels(node)?;
        let values: Option<Vec<&str>> =
            levels.iter().map(|level| labels.get(level).map(String::as_str)).collect();
        *counts.entry(values?).or_default() += pods;
    }
    let by_host = levels.last().is_some_and(|level| level == HOSTNAME_LABEL);
    let from = if by_host { levels.len() - 1 } else { 0 };
    let domain = |(values, pods): (Vec<&str>, u32)| PlacedDomain {
        values: values[from..].iter().map(|value| (*value).to_owned()).collect(),
        pods,
        kind: 0,
    };
    Some((levels[from..].to_vec(), counts.into_iter().map(domain).collect()))
}

//! The placement of a gang as it is reported: pods counted by domain of their topology, or by node.
//!
//! It is computed when the pods are placed and kept with the run, because the labels of a lost node are lost
//! with it.

use crate::ledger::Ledger;
use crate::runtime::PodPlacement;
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::packing::HOSTNAME_LABEL;
use meridian_shared::placement::{KINDS_MAX, PlacedDomain, PlacedPodSet, Placement};
use std::collections::BTreeMap;

/// The report of `placement`, which changed `revision` times so far.
pub(crate) fn report(revision: u32, gang: &Gang, placement: &[PodPlacement], ledger: &Ledger) -> Placement {
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
    let kinds = if are_nodes { set_kinds(&mut domains, ledger).unwrap_or_default() } else { Vec::new() };
    PlacedPodSet { name: set.name.clone(), levels, domains, kinds, ..PlacedPodSet::default() }
}

/// Sets the kind of each node and returns the kinds. `None` if there are too many, or one is unknown.
fn set_kinds(nodes: &mut [PlacedDomain], ledger: &Ledger) -> Option<Vec<u64>> {
    let of = |node: &PlacedDomain| ledger.kind(node.values.last()?);
    let found: Vec<u64> = nodes.iter().map(of).collect::<Option<_>>()?;
    let mut indexes: BTreeMap<u64, u32> = found.iter().map(|kind| (*kind, 0)).collect();
    if indexes.len() > KINDS_MAX {
        return None;
    }
    indexes.values_mut().zip(0..).for_each(|(index, at)| *index = at);
    nodes.iter_mut().zip(&found).for_each(|(node, kind)| node.kind = indexes.get(kind).copied().unwrap_or(0));
    Some(indexes.into_keys().collect())
}

/// Pods by the values of `levels`, in the order of the topology's tree; by host only, if that is the
/// narrowest level. `None` if a node lacks one of the labels.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::NodeSpec;
    use meridian_shared::gang::Amounts;
    use meridian_shared::packing::node_kind;
    use meridian_shared::topology::FlavorTopology;

    /// The report of one pod on each of these nodes; node 7 has 7 accelerators, in a rack of its own.
    fn placed(nodes: std::ops::RangeInclusive<usize>, levels: &[&str]) -> PlacedPodSet {
        let spec = |number: usize| NodeSpec {
            name: format!("n{number:03}"),
            labels: [("rack", format!("r{number:03}")), (HOSTNAME_LABEL, format!("n{number:03}"))]
                .map(|(key, value)| (key.to_owned(), value))
                .into(),
            capacity: Amounts::from([("nvidia.com/gpu".into(), number as i64)]),
            ..NodeSpec::default()
        };
        let mut ledger = Ledger::default();
        ledger.set_nodes(nodes.clone().map(spec).collect(), Vec::new());
        let on_node = |number: usize| PodPlacement {
            pod_set: "main".into(),
            index: number as u32,
            node: spec(number).name,
            accelerators: BTreeMap::new(),
        };
        let placement: Vec<PodPlacement> = nodes.map(on_node).collect();
        let levels = levels.iter().map(|level| (*level).to_owned()).collect();
        let within =
            FlavorTopology { flavor: "f".into(), name: "t".into(), levels, node_labels: BTreeMap::new() };
        let set = PodSet { name: "main".into(), count: 1, within: Some(within), ..PodSet::default() };
        let gang = Gang { pod_sets: vec![set], ..Gang::default() };
        report(3, &gang, &placement, &ledger).pod_sets.remove(0)
    }

    fn kind_of(number: i64) -> u64 {
        let labels = BTreeMap::from([("rack".to_owned(), format!("r{number:03}"))]);
        node_kind(&Amounts::from([("nvidia.com/gpu".into(), number)]), &labels, &[])
    }

    #[test]
    fn each_node_has_its_kind_as_the_manager_computes_it() {
        for levels in [&[][..], &[HOSTNAME_LABEL], &["rack", HOSTNAME_LABEL]] {
            let set = placed(1..=3, levels);
            let kinds: Vec<u64> = set.domains.iter().map(|node| set.kinds[node.kind as usize]).collect();
            assert_eq!(kinds, [1, 2, 3].map(kind_of), "{levels:?}");
        }
        let by_rack = placed(1..=3, &["rack"]);
        assert_eq!(
            (by_rack.levels.as_slice(), by_rack.kinds.len()),
            (&["rack".to_owned()][..], 0),
            "a rack has no kind"
        );
    }

    #[test]
    fn too_many_kinds_are_left_out() {
        assert_eq!(placed(1..=KINDS_MAX, &[]).kinds.len(), KINDS_MAX);
        assert_eq!(placed(1..=KINDS_MAX + 1, &[]).kinds.len(), 0);
    }
}

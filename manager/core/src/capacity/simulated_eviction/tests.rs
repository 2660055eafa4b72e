//! Evictions on nodes with and without reported kinds.

use super::*;
use meridian_placement::cluster_capacity::ClusterCapacity;
use meridian_shared::backoff::splitmix;

const GPU: &str = "nvidia.com/gpu";

fn set(gpus: i64) -> PodSet {
    PodSet {
        name: "main".into(),
        count: 1,
        per_pod: Amounts::from([(GPU.into(), gpus)]),
        ..PodSet::default()
    }
}

fn nodes_free(free: &[i64]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for free in free {
        blocks.push(Block {
            nodes: 1,
            free: Amounts::from([(GPU.into(), *free)]),
            capacity: Amounts::from([(GPU.into(), 8)]),
            ..Block::default()
        });
    }
    ClusterCapacity::of(blocks).estimate().to_vec()
}

/// Pods by node number and accelerators.
fn node_usage(pods: &[(usize, i64)]) -> Arc<NodeUsage> {
    let mut usage = NodeUsage::default();
    pods.iter().for_each(|(node, gpus)| {
        usage.add(PodsOnNode { node: &node.to_string(), kind: None, pods: 1 }, &set(*gpus))
    });
    usage.count();
    Arc::new(usage)
}

/// Number of nodes by free accelerators.
fn counted(blocks: &[Block]) -> BTreeMap<i64, u32> {
    let mut counted = BTreeMap::new();
    blocks.iter().for_each(|block| *counted.entry(block.free[GPU]).or_insert(0) += block.nodes);
    counted
}

#[test]
fn evictions_and_returns_cancel_out_in_any_order() {
    for seed in 0..200 {
        let mut dice = seed;
        let mut roll = |sides: u64| {
            dice = splitmix(dice);
            dice % sides
        };
        let mut used = [0_i64; 5];
        let mut pods: Vec<(usize, i64)> = Vec::new();
        for _ in 0..20 {
            let (node, gpus) = (usize::try_from(roll(5)).unwrap(), 1 << roll(3));
            if used[node] + gpus <= 8 {
                used[node] += gpus;
                pods.push((node, gpus));
            }
        }
        let mut simulation =
            SimulatedEviction::of(&nodes_free(&used.map(|used| 8 - used)), node_usage(&pods), Arc::default());
        let mut is_there = vec![true; pods.len()];
        for _ in 0..60 {
            let at = usize::try_from(roll(pods.len() as u64)).unwrap();
            let (node, gpus) = pods[at];
            assert!(simulation.change_pod(&node.to_string(), &set(gpus), is_there[at]), "seed {seed}");
            used[node] += if is_there[at] { -gpus } else { gpus };
            is_there[at] = !is_there[at];
            assert_eq!(
                counted(&simulation.free),
                counted(&nodes_free(&used.map(|used| 8 - used))),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn nodes_that_contradict_the_report_free_nothing() {
    // Three nodes have 4 in use by their pods, but the report shows only two such nodes. The third is
    // closed, and it isn't known which of the three that is.
    let mut simulation =
        SimulatedEviction::of(&nodes_free(&[4, 4, 8]), node_usage(&[(0, 4), (1, 4), (2, 4)]), Arc::default());
    assert!(simulation.change_pod("0", &set(4), true) && simulation.change_pod("9", &set(1), true));
    assert_eq!(counted(&simulation.free), [(4, 2), (8, 1)].into());
    assert!(simulation.change_pod("0", &set(4), false), "returning it changes nothing either");
    assert_eq!(counted(&simulation.free), [(4, 2), (8, 1)].into());
}

#[test]
fn of_different_nodes_the_least_useful_is_taken_and_kept() {
    let node = |free: i64, all: i64, zone: &str| Block {
        nodes: 1,
        free: Amounts::from([(GPU.into(), free)]),
        capacity: Amounts::from([(GPU.into(), all)]),
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        ..Block::default()
    };
    let gang = |gpus: i64, zone: &str| {
        let set = PodSet { node_selector: [("zone".to_owned(), zone.to_owned())].into(), ..set(gpus) };
        Arc::new(Gang { pod_sets: vec![set], ..Gang::default() })
    };
    // Both nodes are full, and it isn't known which of them is in the requested zone.
    let mut simulation = SimulatedEviction::of(
        &[node(0, 8, "x"), node(0, 8, "y")],
        node_usage(&[(0, 8), (1, 8)]),
        gang(8, "x"),
    );
    assert!(simulation.change_pod("0", &set(8), true));
    assert!(
        packing::fits(&simulation.free, &gang(8, "x")).is_err()
            && packing::fits(&simulation.free, &gang(8, "y")).is_ok()
    );
    assert!(simulation.change_pod("1", &set(8), true));
    assert!(packing::fits(&simulation.free, &gang(8, "x")).is_ok(), "both nodes are empty");
    // After an eviction, the node isn't confused with a larger one that has the same usage.
    let mut simulation = SimulatedEviction::of(
        &[node(2, 8, "x"), node(14, 16, "x")],
        node_usage(&[(0, 4), (0, 2), (1, 2)]),
        gang(7, "x"),
    );
    assert!(simulation.change_pod("0", &set(4), true));
    assert!(simulation.change_pod("0", &set(4), false));
    assert_eq!(counted(&simulation.free), [(2, 1), (14, 1)].into());
}

#[test]
fn reported_kinds_identify_the_node() {
    let node = |free: i64, rack: &str| Block {
        nodes: 1,
        free: Amounts::from([(GPU.into(), free)]),
        capacity: Amounts::from([(GPU.into(), 8)]),
        labels: [("rack".to_owned(), rack.to_owned())].into(),
        ..Block::default()
    };
    let report = [node(0, "a"), node(0, "a"), node(0, "b"), node(4, "b")];
    let kinds = [&report[0], &report[2]].map(Block::node_kind);
    let node_usage = |kinds: &[Option<u64>]| {
        let mut usage = NodeUsage::default();
        usage.add_kinds(&report);
        let pods = [8, 8, 8, 4].iter().enumerate().zip(kinds);
        pods.for_each(|((node, gpus), kind)| {
            usage.add(PodsOnNode { node: &node.to_string(), kind: *kind, pods: 1 }, &set(*gpus))
        });
        usage.count();
        Arc::new(usage)
    };
    let free_in = |simulation: &SimulatedEviction, rack: &str| {
        let there = simulation.free.iter().filter(|block| block.labels["rack"] == rack);
        there.map(|block| i64::from(block.nodes) * block.free[GPU]).sum::<i64>()
    };
    let [a, b] = kinds.map(Some);
    let gone = |kinds: &[Option<u64>], node: &str| {
        let mut simulation = SimulatedEviction::of(&report, node_usage(kinds), Arc::default());
        assert!(simulation.change_pod(node, &set(8), true));
        assert_eq!(simulation.has_unknown_domains, kinds != [a, a, b, b], "it may be in either rack");
        (free_in(&simulation, "a"), free_in(&simulation, "b"))
    };
    assert_eq!(gone(&[a, a, b, b], "1"), (8, 4));
    assert_eq!(gone(&[a, a, b, b], "2"), (0, 12));
    // The report has fewer nodes of a kind: some have changed. A kind that the report never had counts as
    // unknown.
    assert_eq!(gone(&[a, b, b, b], "2"), (0, 12));
    let strange = Some(7);
    assert_eq!(
        gone(&[strange, strange, strange, strange], "2").0
            + gone(&[strange, strange, strange, strange], "2").1,
        12
    );
    // Two pods on one node report different kinds.
    let mut both = NodeUsage::default();
    [a, b].into_iter().for_each(|kind| both.add(PodsOnNode { node: "0", kind, pods: 1 }, &set(4)));
    assert_eq!(both.nodes["0"].kind, None);
}

#[test]
fn domains_are_nodes_only_at_the_hostname_level() {
    let placed = |levels: &[&str]| PlacedPodSet {
        levels: levels.iter().map(|level| (*level).to_owned()).collect(),
        domains: vec![PlacedDomain { values: vec!["x".into()], pods: 3, kind: 0 }],
        ..PlacedPodSet::default()
    };
    let sets = [placed(&[]), placed(&[HOSTNAME_LABEL]), placed(&["rack"])];
    let counts: Vec<(usize, usize)> =
        sets.iter().map(|set| (nodes_of(set).count(), domains_of(set).count())).collect();
    assert_eq!(counts, [(1, 0), (1, 0), (0, 1)]);
}

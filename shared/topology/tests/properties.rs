//! Properties of every placement, independent of the placement rules.

use meridian_shared::gang::Amounts;
use meridian_topology::{
    Assignment, Assumed, Constraint, DomainCount, Flavor, LostNodes, Node, Options, PODS, PodSetRequest,
    PodSetResult, Profile, Topology, TopologyRequest, Usage,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const HOST: &str = "kubernetes.io/hostname";
const LEVELS: [&str; 3] = ["block", "rack", HOST];

/// A small cluster: number of GPUs per block, rack and host.
type Cluster = Vec<Vec<Vec<i64>>>;

fn cluster() -> impl Strategy<Value = Cluster> {
    prop::collection::vec(prop::collection::vec(prop::collection::vec(0_i64..9, 1..4), 1..4), 1..4)
}

fn profile() -> impl Strategy<Value = Profile> {
    any::<[bool; 2]>().prop_map(|[mixed, balanced]| Profile {
        mixed,
        balanced,
        elastic: true,
        ..Profile::default()
    })
}

fn shape() -> impl Strategy<Value = Option<TopologyRequest>> {
    let constraint = prop_oneof![
        Just(None),
        Just(Some(Constraint::Unconstrained)),
        prop::sample::select(LEVELS.to_vec()).prop_map(|level| Some(Constraint::Required(level.to_owned()))),
        prop::sample::select(LEVELS.to_vec()).prop_map(|level| Some(Constraint::Preferred(level.to_owned()))),
    ];
    let slices = prop_oneof![
        Just(vec![]),
        (prop::sample::select(LEVELS.to_vec()), 1_u32..4).prop_map(|(level, size)| vec![(level, size)]),
        (1_u32..3, 1_u32..3).prop_map(|(inner, times)| vec![("rack", inner * times), (HOST, inner)]),
        Just(vec![("block", 4), ("rack", 2), (HOST, 1)]),
    ];
    (constraint, slices).prop_map(|(constraint, slices)| {
        let shape = TopologyRequest { constraint, slices: Vec::new() };
        let shape = slices.into_iter().fold(shape, |shape, (level, size)| shape.sliced(level, size));
        (shape != TopologyRequest::default()).then_some(shape)
    })
}

/// Pods of one or two GPUs in whole slices.
fn pod_set(name: &'static str) -> impl Strategy<Value = PodSetRequest> {
    (shape(), 1_u32..7, 1_i64..3).prop_map(move |(topology, times, gpus)| {
        let size = topology.as_ref().and_then(|shape| shape.slices.first()).map_or(1, |layer| layer.size);
        PodSetRequest {
            name: name.into(),
            count: times * size,
            per_pod: gpu(gpus),
            topology,
            ..PodSetRequest::default()
        }
    })
}

fn gpu(amount: i64) -> Amounts {
    Amounts::from([("gpu".to_owned(), amount)])
}

fn nodes(cluster: &Cluster) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (b, racks) in cluster.iter().enumerate() {
        for (r, hosts) in racks.iter().enumerate() {
            for (h, gpus) in hosts.iter().enumerate() {
                let name = format!("b{b}-r{r}-h{h}");
                let values = [format!("b{b}"), format!("r{r}"), name.clone()];
                let labels = LEVELS.iter().map(|level| (*level).to_owned()).zip(values).collect();
                let allocatable = Amounts::from([("gpu".to_owned(), *gpus), (PODS.to_owned(), 6)]);
                nodes.push(Node { name, labels, ready: true, allocatable, ..Node::default() });
            }
        }
    }
    nodes
}

fn topology(profile: Profile, nodes: &[Node]) -> Topology {
    let levels = LEVELS.iter().map(|level| (*level).to_owned()).collect();
    Topology::new(Flavor { topology: "default".into(), levels, profile, ..Flavor::default() }, nodes)
}

/// Pods per domain of `level`, from the names of the hosts.
fn pods_at(assignment: &Assignment, level: &str) -> BTreeMap<String, u32> {
    let parts = LEVELS.iter().position(|own| *own == level).expect("one of the levels") + 1;
    let mut pods = BTreeMap::new();
    for domain in &assignment.domains {
        let name: Vec<&str> = domain.values[0].split('-').take(parts).collect();
        *pods.entry(name.join("-")).or_insert(0) += domain.count;
    }
    pods
}

/// Whether all placements together fit into the cluster.
fn within_capacity(nodes: &[Node], placed: &[(&Assignment, &Amounts)]) -> bool {
    let mut left: BTreeMap<&str, (i64, i64)> = nodes
        .iter()
        .map(|node| (node.name.as_str(), (node.allocatable["gpu"], node.allocatable[PODS])))
        .collect();
    for (assignment, per_pod) in placed {
        for domain in &assignment.domains {
            let (gpus, pods) = left.get_mut(domain.values[0].as_str()).expect("a host of the cluster");
            *gpus -= per_pod["gpu"] * i64::from(domain.count);
            *pods -= i64::from(domain.count);
        }
    }
    left.values().all(|(gpus, pods)| *gpus >= 0 && *pods >= 0)
}

fn placed<'a>(
    requests: &'a [PodSetRequest],
    results: &'a [PodSetResult],
) -> Vec<(&'a Assignment, &'a Amounts)> {
    let pairs = requests.iter().zip(results);
    pairs
        .filter_map(|(request, result)| {
            result.as_ref().and_then(|o| o.as_ref().ok()).map(|assignment| (assignment, &request.per_pod))
        })
        .collect()
}

/// The placement of the only request.
fn only(results: &[PodSetResult]) -> Option<&Assignment> {
    results.first()?.as_ref()?.as_ref().ok()
}

proptest! {
    #[test]
    fn placements_are_whole_and_within_capacity(
        cluster in cluster(),
        profile in profile(),
        first in pod_set("a"),
        second in pod_set("b"),
        together: bool,
    ) {
        let nodes = nodes(&cluster);
        let group = together.then(|| "g".to_owned());
        let leader =
            PodSetRequest { count: if together { 1 } else { first.count }, group: group.clone(), ..first };
        // On a tie the first pod set would be the workers.
        let workers =
            PodSetRequest { count: if together { 2 * second.count } else { second.count }, group, ..second };
        let requests = [leader, workers];
        let topology = topology(profile, &nodes);
        let results = topology.assign(&requests, Options::default());
        let placed = placed(&requests, &results);
        for (request, result) in requests.iter().zip(&results) {
            if let Some(Ok(assignment)) = result {
                prop_assert_eq!(assignment.pods(), request.count);
                prop_assert!(assignment.domains.iter().all(|domain| domain.count > 0));
                prop_assert!(assignment.domains.is_sorted_by(|a, b| a.values < b.values));
            }
        }
        prop_assert!(within_capacity(&nodes, &placed), "{placed:?}");
        let usages: Vec<Usage<'_>> =
            placed.iter().map(|(assignment, per_pod)| Usage { assignment, per_pod }).collect();
        prop_assert!(topology.fit_together(&usages));
    }

    #[test]
    fn shapes_are_respected(cluster in cluster(), profile in profile(), request in pod_set("a")) {
        let results =
            topology(profile, &nodes(&cluster)).assign(std::slice::from_ref(&request), Options::default());
        let (Some(assignment), Some(shape)) = (only(&results), &request.topology) else { return Ok(()) };
        if let Some(Constraint::Required(level)) = &shape.constraint {
            prop_assert_eq!(pods_at(assignment, level).len(), 1);
        }
        for layer in &shape.slices {
            prop_assert!(
                pods_at(assignment, &layer.level).values().all(|pods| pods % layer.size == 0),
                "{layer:?}: {assignment:?}"
            );
        }
    }

    #[test]
    fn order_of_nodes_does_not_matter(
        cluster in cluster(),
        profile in profile(),
        requests in prop::collection::vec(pod_set("a"), 1..3),
        turn: usize,
    ) {
        let mut nodes = nodes(&cluster);
        let results = topology(profile, &nodes).assign(&requests, Options::default());
        nodes.reverse();
        let turn = turn % nodes.len();
        nodes.rotate_left(turn);
        prop_assert_eq!(topology(profile, &nodes).assign(&requests, Options::default()), results);
    }

    #[test]
    fn required_level_is_refused_only_without_capacity(
        cluster in cluster(),
        profile in profile(),
        count in 1_u32..9,
        level in prop::sample::select(LEVELS.to_vec()),
    ) {
        let request = PodSetRequest {
            count,
            per_pod: gpu(1),
            topology: Some(TopologyRequest::required(level)),
            ..PodSetRequest::default()
        };
        let nodes = nodes(&cluster);
        let results = topology(profile, &nodes).assign(&[request], Options::default());
        let capacities = nodes.iter().map(|node| DomainCount {
            values: vec![node.name.clone()],
            count: u32::try_from(node.allocatable["gpu"].min(6)).unwrap_or(0),
        });
        let most =
            pods_at(&Assignment { levels: vec![], domains: capacities.collect() }, level).into_values().max();
        prop_assert_eq!(only(&results).is_some(), most >= Some(count));
    }

    #[test]
    fn replacement_keeps_all_other_pods(
        cluster in cluster(),
        profile in profile(),
        request in pod_set("a"),
        which: usize,
    ) {
        let nodes = nodes(&cluster);
        let mut topology = topology(profile, &nodes);
        let results = topology.assign(std::slice::from_ref(&request), Options::default());
        let Some(before) = only(&results) else { return Ok(()) };
        topology.add_usage(Usage { assignment: before, per_pod: &request.per_pod });
        let gone = before.domains[which % before.domains.len()].values[0].clone();
        let survivors: Vec<Node> = nodes.iter().filter(|node| node.name != gone).cloned().collect();
        let mut shrunk = self::topology(profile, &survivors);
        shrunk.add_usage(Usage { assignment: before, per_pod: &request.per_pod });
        let admitted = BTreeMap::from([("a".to_owned(), before.clone())]);
        let lost = LostNodes { admitted: &admitted, nodes: std::slice::from_ref(&gone), pinned: false };
        let results =
            shrunk.assign(std::slice::from_ref(&request), Options { lost: Some(lost), ..Options::default() });
        if let Some(after) = only(&results) {
            prop_assert_eq!(after.pods(), before.pods());
            prop_assert!(!after.has_node(&gone));
            for kept in before.domains.iter().filter(|domain| domain.values[0] != gone) {
                prop_assert!(
                    after
                        .domains
                        .iter()
                        .any(|domain| domain.values == kept.values && domain.count >= kept.count)
                );
            }
            prop_assert!(within_capacity(&survivors, &[(after, &request.per_pod)]));
        }
        let pinned = shrunk.assign(
            std::slice::from_ref(&request),
            Options { lost: Some(LostNodes { pinned: true, ..lost }), ..Options::default() },
        );
        prop_assert_eq!(only(&pinned), Some(before));
    }

    #[test]
    fn elastic_pods_stay_in_their_domains(
        cluster in cluster(),
        profile in profile(),
        before in 1_u32..9,
        after in 1_u32..9,
    ) {
        let nodes = nodes(&cluster);
        let topology = topology(profile, &nodes);
        let small = PodSetRequest { count: before, per_pod: gpu(1), ..PodSetRequest::default() };
        let results = topology.assign(std::slice::from_ref(&small), Options::default());
        let Some(previous) = only(&results) else { return Ok(()) };
        let large = PodSetRequest { count: after, previous: Some(previous.clone()), ..small };
        let results = topology.assign(std::slice::from_ref(&large), Options::default());
        let Some(now) = only(&results) else { return Ok(()) };
        prop_assert_eq!(now.pods(), after);
        prop_assert!(within_capacity(&nodes, &[(now, &large.per_pod)]));
        let kept = |values: &Vec<String>| {
            now.domains.iter().find(|domain| domain.values == *values).map_or(0, |domain| domain.count)
        };
        if after >= before {
            prop_assert!(previous.domains.iter().all(|domain| kept(&domain.values) >= domain.count));
        } else {
            let is_kept = |domain: &DomainCount| {
                previous.domains.iter().any(|p| p.values == domain.values && p.count >= domain.count)
            };
            prop_assert!(now.domains.iter().all(is_kept));
        }
    }

    #[test]
    fn removed_usage_leaves_no_trace(
        cluster in cluster(),
        profile in profile(),
        first in pod_set("a"),
        second in pod_set("b"),
    ) {
        let mut topology = topology(profile, &nodes(&cluster));
        let before = topology.assign(std::slice::from_ref(&second), Options::default());
        let results = topology.assign(std::slice::from_ref(&first), Options::default());
        let Some(assignment) = only(&results) else { return Ok(()) };
        let usage = Usage { assignment, per_pod: &first.per_pod };
        let empty = Options { simulate_empty: true, ..Options::default() };
        topology.add_usage(usage);
        prop_assert_eq!(&topology.assign(std::slice::from_ref(&second), empty), &before);
        // One call with both pod sets gives the same result as two calls.
        let second_after_first = topology.assign(std::slice::from_ref(&second), Options::default());
        topology.remove_usage(usage);
        let both = topology.assign(&[first.clone(), second.clone()], Options::default());
        prop_assert_eq!(&both[1], &second_after_first[0]);
        let mut assumed = Assumed::default();
        assumed.add(usage);
        prop_assert_eq!(
            &topology.assign_with_assumed(std::slice::from_ref(&second), Options::default(), &mut assumed),
            &second_after_first
        );
        prop_assert_eq!(topology.assign(std::slice::from_ref(&second), Options::default()), before);
    }
}

use super::*;
use crate::ledger::Ledger;
use crate::runtime::NodeSpec;
use meridian_shared::ids::OfferId;
use meridian_shared::topology::{Constraint, TopologyRequest};
use meridian_topology::Usage;
use proptest::prelude::*;
use std::collections::BTreeSet;

const GPU: &str = "nvidia.com/gpu";

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 1, counter }
}

/// Two blocks of two racks of `hosts` hosts with four accelerators each: `b0-r0-h0` to `b1-r1-hN`.
fn fleet(hosts: usize) -> Vec<NodeSpec> {
    let mut nodes = Vec::new();
    for (block, rack, host) in
        (0..2).flat_map(|b| (0..2).flat_map(move |r| (0..hosts).map(move |h| (b, r, h))))
    {
        let name = format!("b{block}-r{rack}-h{host}");
        let labels = [
            ("block", format!("b{block}")),
            ("rack", format!("r{rack}")),
            (HOSTNAME_LABEL, name.clone()),
            ("pool", "a".into()),
        ];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        nodes.push(NodeSpec {
            name,
            labels,
            capacity: Amounts::from([(GPU.into(), 4), (PODS.into(), 16)]),
            ..NodeSpec::default()
        });
    }
    nodes
}

fn ledger(nodes: Vec<NodeSpec>) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.set_nodes(nodes, Vec::new());
    ledger
}

fn levels(levels: &[&str]) -> FlavorTopology {
    let levels = levels.iter().map(|level| (*level).to_owned()).collect();
    FlavorTopology {
        flavor: "f".into(),
        name: "default".into(),
        levels,
        node_labels: BTreeMap::from([("pool".into(), "a".into())]),
    }
}

fn by_host() -> FlavorTopology {
    levels(&["block", "rack", HOSTNAME_LABEL])
}

fn set(count: u32, gpus: i64, topology: Option<TopologyRequest>) -> PodSet {
    PodSet {
        name: "main".into(),
        count,
        per_pod: Amounts::from([(GPU.into(), gpus)]),
        topology,
        within: Some(by_host()),
        ..PodSet::default()
    }
}

fn gang(pod_sets: Vec<PodSet>) -> Gang {
    Gang { pod_sets, ..Gang::default() }
}

/// `node=pods …` in the order of the pods.
fn summary(ledger: &Ledger, offer: OfferId) -> String {
    let mut counts: Vec<(String, u32)> = Vec::new();
    for pod in ledger.placement(offer) {
        match counts.last_mut() {
            Some((node, count)) if *node == pod.node => *count += 1,
            _ => counts.push((pod.node, 1)),
        }
    }
    counts.iter().map(|(node, count)| format!("{node}={count}")).collect::<Vec<_>>().join(" ")
}

/// Holds `sets` in a fleet of two hosts per rack, of which the hosts `taken` are in use.
fn check(taken: &[&str], sets: Vec<PodSet>, expect: &str) {
    let mut ledger = ledger(fleet(2));
    for (number, node) in taken.iter().enumerate() {
        let mut whole = set(1, 4, None);
        (whole.within, whole.node_selector) =
            (None, BTreeMap::from([(HOSTNAME_LABEL.into(), (*node).into())]));
        ledger.hold(offer(100 + number as u64), &gang(vec![whole])).unwrap();
    }
    let result = match ledger.hold(offer(1), &gang(sets)) {
        Ok(()) => summary(&ledger, offer(1)),
        Err(misfit) => misfit.to_string(),
    };
    ledger.check().unwrap();
    assert_eq!(result, expect);
}

#[test]
fn a_topology_without_hosts_needs_no_label_for_them() {
    let mut nodes = fleet(2);
    nodes.iter_mut().for_each(|node| drop(node.labels.remove(HOSTNAME_LABEL)));
    let mut ledger = ledger(nodes);
    let racks = Some(levels(&["block", "rack"]));
    let pods = PodSet { within: racks, ..set(8, 1, Some(TopologyRequest::required("rack"))) };
    ledger.hold(offer(1), &gang(vec![pods])).unwrap();
    assert_eq!(summary(&ledger, offer(1)), "b0-r0-h0=4 b0-r0-h1=4");
}

#[test]
fn a_required_gang_is_in_one_domain_or_refused() {
    let required = |count, level| vec![set(count, 1, Some(TopologyRequest::required(level)))];
    check(&[], required(8, "rack"), "b0-r0-h0=4 b0-r0-h1=4");
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1"], required(8, "rack"), "b1-r1-h0=4 b1-r1-h1=4");
    let short = "pod set `main`: topology \"default\" allows to fit only 4 out of 8 pod(s). Total nodes: 8; \
                 excluded: resource \"nvidia.com/gpu\": 4";
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1", "b1-r1-h0"], required(8, "rack"), short);
    check(
        &[],
        required(9, "rack"),
        "pod set `main`: topology \"default\" allows to fit only 8 out of 9 pod(s), even with nothing else \
         running",
    );
    check(
        &[],
        required(1, "zone"),
        "pod set `main`: no requested topology level: zone, even with nothing else running",
    );
}

#[test]
fn preferred_and_unconstrained_gangs_widen() {
    let preferred = |count| vec![set(count, 1, Some(TopologyRequest::preferred("rack")))];
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1"], preferred(4), "b0-r0-h1=4");
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1", "b1-r1-h0"], preferred(6), "b0-r0-h1=4 b0-r1-h0=2");
    let anywhere = TopologyRequest { constraint: Some(Constraint::Unconstrained), slices: Vec::new() };
    check(&["b0-r0-h0", "b0-r1-h1"], vec![set(2, 4, Some(anywhere))], "b0-r0-h1=1 b0-r1-h0=1");
}

#[test]
fn slices_are_each_in_one_domain() {
    let sliced = TopologyRequest::required("block").sliced(HOSTNAME_LABEL, 2);
    check(&[], vec![set(4, 2, Some(sliced.clone()))], "b0-r0-h0=2 b0-r0-h1=2");
    check(&[], vec![set(4, 2, Some(TopologyRequest::default().sliced("rack", 4)))], "b0-r0-h0=2 b0-r0-h1=2");
    let layered = TopologyRequest::preferred("block").sliced("rack", 4).sliced(HOSTNAME_LABEL, 2);
    check(&["b0-r0-h0"], vec![set(8, 2, Some(layered))], "b1-r0-h0=2 b1-r0-h1=2 b1-r1-h0=2 b1-r1-h1=2");
    let uneven =
        "only 4 of 5 pods of `main` can be placed; a leader is one pod, and slices must divide the pods";
    check(&[], vec![set(5, 1, Some(sliced))], uneven);
}

#[test]
fn a_leader_and_its_workers_share_a_domain() {
    let member = |name: &str, count| PodSet {
        name: name.into(),
        group: Some("g".into()),
        ..set(count, 2, Some(TopologyRequest::required("rack")))
    };
    let mut ledger = ledger(fleet(2));
    ledger.hold(offer(1), &gang(vec![member("leader", 1), member("workers", 3)])).unwrap();
    let racks: BTreeSet<String> =
        ledger.placement(offer(1)).into_iter().map(|pod| pod.node[..5].to_owned()).collect();
    assert_eq!((ledger.pods(offer(1)), racks.len()), (4, 1));
    let third = "pod set `c` is the third of its group; a group is a leader and workers";
    check(&[], vec![member("a", 1), member("b", 2), member("c", 1)], third);
    let several =
        "only 1 of 2 pods of `a` can be placed; a leader is one pod, and slices must divide the pods";
    check(&[], vec![member("a", 2), member("b", 3)], several);
}

#[test]
fn a_flavor_without_topology_is_named() {
    let without = PodSet { within: None, ..set(1, 1, Some(TopologyRequest::required("rack"))) };
    check(
        &[],
        vec![without],
        "pod set `main` requests a topology, but not exactly one of its flavors names a Topology that exists",
    );
}

#[test]
fn a_selector_beside_the_labels_of_the_flavor_counts() {
    let mut nodes = fleet(2);
    for (node, disk) in nodes.iter_mut().zip(["ssd", "hdd"].into_iter().cycle()) {
        node.labels.insert("disk".into(), disk.into());
    }
    let mut asked = set(2, 4, Some(TopologyRequest::preferred("rack")));
    asked.node_selector = BTreeMap::from([("pool".into(), "a".into()), ("disk".into(), "ssd".into())]);
    let mut ledger = ledger(nodes);
    ledger.hold(offer(1), &gang(vec![asked])).unwrap();
    let used: BTreeSet<String> = ledger.placement(offer(1)).into_iter().map(|pod| pod.node).collect();
    assert!(used.len() == 2 && used.iter().all(|node| node.ends_with("h0")), "{used:?}");
}

#[test]
fn pods_without_a_request_are_packed() {
    let near = set(8, 1, Some(TopologyRequest::required("rack")));
    let free = PodSet { name: "free".into(), within: None, ..set(3, 4, None) };
    let mut ledger = ledger(fleet(2));
    ledger.hold(offer(1), &gang(vec![near, free])).unwrap();
    ledger.check().unwrap();
    assert_eq!((ledger.pods(offer(1)), ledger.overcommitted()), (11, false));
}

#[test]
fn domains_are_divided_into_nodes() {
    // Racks are the narrowest level. A rack has two nodes with four accelerators each, so it can't hold pods
    // of three, three and two.
    let racks = |count, gpus, request| PodSet {
        within: Some(levels(&["block", "rack"])),
        ..set(count, gpus, Some(request))
    };
    check(&[], vec![racks(2, 4, TopologyRequest::required("rack"))], "b0-r0-h0=1 b0-r0-h1=1");
    check(
        &[],
        vec![racks(4, 3, TopologyRequest::required("block"))],
        "b0-r0-h0=1 b0-r0-h1=1 b0-r1-h0=1 b0-r1-h1=1",
    );
    let refusal = "pod set `main`: topology \"default\" allows to fit only 4 out of 5 pod(s), even with \
                   nothing else running";
    check(&[], vec![racks(5, 3, TopologyRequest::required("block"))], refusal);
    // The first rack has enough for a pod of two in total, but not on one node.
    let mut ledger = ledger(fleet(2));
    let three = |number, node: &str| {
        let pinned = PodSet {
            node_selector: BTreeMap::from([(HOSTNAME_LABEL.into(), node.into())]),
            within: None,
            ..set(1, 3, None)
        };
        (offer(number), gang(vec![pinned]))
    };
    for (offer, gang) in [three(1, "b0-r0-h0"), three(2, "b0-r0-h1")] {
        ledger.hold(offer, &gang).unwrap();
    }
    ledger.hold(offer(3), &gang(vec![racks(1, 2, TopologyRequest::required("rack"))])).unwrap();
    ledger.check().unwrap();
    assert!(!ledger.overcommitted());
    assert_eq!(summary(&ledger, offer(3)), "b0-r1-h0=1");
}

#[test]
fn pod_capacity_of_nodes_counts() {
    let tiny = set(64, 0, Some(TopologyRequest::required("rack")));
    check(
        &[],
        vec![tiny],
        "pod set `main`: topology \"default\" allows to fit only 32 out of 64 pod(s), even with nothing else \
         running",
    );
    let mut shared = ledger(fleet(1));
    let on_one_host = |pods| {
        let mut set = set(pods, 0, Some(TopologyRequest::required("rack")));
        set.node_selector = BTreeMap::from([(HOSTNAME_LABEL.into(), "b0-r0-h0".into())]);
        gang(vec![set])
    };
    shared.hold(offer(1), &on_one_host(10)).unwrap();
    let refused = shared.hold(offer(2), &on_one_host(7)).unwrap_err();
    assert!(refused.fits_empty, "6 of 16 are left");
    shared.hold(offer(3), &on_one_host(6)).unwrap();
    let racks = PodSet {
        within: Some(levels(&["block", "rack"])),
        ..set(20, 0, Some(TopologyRequest::required("rack")))
    };
    let mut divided = ledger(fleet(2));
    divided.hold(offer(1), &gang(vec![racks])).unwrap();
    assert_eq!(summary(&divided, offer(1)), "b0-r0-h0=16 b0-r0-h1=4", "each host takes 16 pods");
    let mut unstated = fleet(1);
    unstated.iter_mut().for_each(|node| node.capacity.retain(|resource, _| resource != PODS));
    let mut ledger = ledger(unstated);
    ledger.hold(offer(1), &gang(vec![set(4, 1, Some(TopologyRequest::required("rack")))])).unwrap();
    assert_eq!(summary(&ledger, offer(1)), "b0-r0-h0=4");
}

/// The assignment of the topology crate, over whole nodes and what runs on them, as `plan` requests it.
fn expected(nodes: &[NodeSpec], held: &[(Assignment, Amounts)], sets: &[PodSet]) -> Vec<PodSetResult> {
    let node = |spec: &NodeSpec| Node {
        name: spec.name.clone(),
        labels: spec.labels.clone(),
        taints: spec.taints.clone(),
        ready: true,
        unschedulable: false,
        allocatable: spec.capacity.clone(),
    };
    let FlavorTopology { name, levels, node_labels, .. } = by_host();
    let flavor = Flavor { topology: name, levels, node_labels, ..Flavor::default() };
    let mut topology = Topology::new(flavor, &nodes.iter().map(node).collect::<Vec<_>>());
    for (assignment, per_pod) in held {
        topology.add_usage(Usage { assignment, per_pod });
    }
    topology.assign(&sets.iter().map(PodSetRequest::of).collect::<Vec<_>>(), Options::default())
}

fn request_strategy() -> impl Strategy<Value = TopologyRequest> {
    let constraint = prop_oneof![
        Just(TopologyRequest::required("block")),
        Just(TopologyRequest::required("rack")),
        Just(TopologyRequest::required(HOSTNAME_LABEL)),
        Just(TopologyRequest::preferred("rack")),
        Just(TopologyRequest::preferred(HOSTNAME_LABEL)),
        Just(TopologyRequest { constraint: Some(Constraint::Unconstrained), slices: Vec::new() }),
        Just(TopologyRequest::default()),
    ];
    (constraint, prop::option::of((prop_oneof![Just("rack"), Just(HOSTNAME_LABEL)], 1_u32..4))).prop_map(
        |(request, slice)| match slice {
            Some((level, size)) => request.sliced(level, size),
            None => request,
        },
    )
}

type Request = (u32, i64, TopologyRequest, bool);
type OptionalRequest = (u32, i64, Option<TopologyRequest>, bool);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec((1_u32..9, 0_i64..5, request_strategy(), any::<bool>()), 1..12)
}

fn optional_requests() -> impl Strategy<Value = Vec<OptionalRequest>> {
    let request = prop::option::of(request_strategy());
    prop::collection::vec((1_u32..7, 1_i64..5, request, any::<bool>()), 1..14)
}

/// Number of blocks (2), or of racks (5), by a prefix of the node names.
fn domains(pods: &BTreeMap<String, u32>, prefix: usize) -> usize {
    pods.keys().map(|node| &node[..prefix]).collect::<BTreeSet<_>>().len()
}

proptest! {
    #[test]
    fn the_agent_places_like_the_topology_crate(requests in requests()) {
        let nodes = fleet(2);
        let mut ledger = ledger(nodes.clone());
        let mut held: BTreeMap<OfferId, (Assignment, Amounts)> = BTreeMap::new();
        for (number, (count, gpus, request, leaves)) in requests.into_iter().enumerate() {
            let (offer, requested) = (offer(number as u64), set(count, gpus, Some(request.clone())));
            let held_before: Vec<(Assignment, Amounts)> = held.values().cloned().collect();
            let expected = expected(&nodes, &held_before, std::slice::from_ref(&requested)).remove(0);
            let mut twin = ledger.clone();
            let result = ledger.hold(offer, &gang(vec![requested.clone()]));
            prop_assert_eq!(&result, &twin.hold(offer, &gang(vec![requested.clone()])));
            prop_assert_eq!(&ledger, &twin, "deterministic");
            ledger.check().unwrap();
            prop_assert!(!ledger.overcommitted());
            let mut pods: BTreeMap<String, u32> = BTreeMap::new();
            for pod in ledger.placement(offer) {
                *pods.entry(pod.node).or_default() += 1;
            }
            match (result, expected.expect("the only request has an outcome")) {
                (Ok(()), Ok(assignment)) => {
                    prop_assert_eq!(ledger.pods(offer), count as usize, "all pods");
                    let assigned = assignment.domains.iter().map(|d| (d.values[0].clone(), d.count));
                    prop_assert_eq!(&pods, &assigned.collect::<BTreeMap<String, u32>>());
                    match &request.constraint {
                        Some(Constraint::Required(level)) if level == "block" => {
                            prop_assert_eq!(domains(&pods, 2), 1)
                        }
                        Some(Constraint::Required(level)) if level == "rack" => {
                            prop_assert_eq!(domains(&pods, 5), 1)
                        }
                        Some(Constraint::Required(_)) => prop_assert_eq!(pods.len(), 1),
                        _ => {}
                    }
                    held.insert(offer, (assignment, requested.per_pod.clone()));
                }
                (Err(Misfit { obstacle: Obstacle::Topology { misfit, .. }, .. }), Err(expected)) => {
                    prop_assert_eq!(*misfit, expected)
                }
                (Err(Misfit { obstacle: Obstacle::Incomplete { placed, .. }, .. }), Ok(assignment)) => {
                    prop_assert_eq!(placed, assignment.pods())
                }
                (result, expected) => prop_assert!(false, "{:?} is not {:?}", result, expected),
            }
            prop_assert!(ledger.is_allocated(offer) || pods.is_empty(), "all pods or none");
            if leaves && let Some((first, _)) = held.pop_first() {
                ledger.release(first);
                ledger.check().unwrap();
            }
        }
    }

    /// For any levels, with and without topology requests.
    #[test]
    fn no_node_gives_more_than_it_has(requests in optional_requests()) {
        let mut ledger = ledger(fleet(2));
        for (number, (count, gpus, request, coarse)) in requests.into_iter().enumerate() {
            let within = if coarse { levels(&["block", "rack"]) } else { by_host() };
            let requested = PodSet {
                within: request.is_some().then_some(within),
                ..set(count, gpus, request)
            };
            let whole = ledger.hold(offer(number as u64), &gang(vec![requested])).is_ok();
            prop_assert_eq!(ledger.pods(offer(number as u64)), if whole { count as usize } else { 0 });
            ledger.check().unwrap();
            prop_assert!(!ledger.overcommitted());
        }
    }
}

use super::*;
use crate::ledger::{Ledger, NodeSpec};
use meridian_shared::ids::OfferId;
use meridian_shared::topology::{Constraint, TopologyRequest};
use meridian_topology::{Assignment, Outcome, Usage};
use proptest::prelude::*;

const GPU: &str = "nvidia.com/gpu";

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 1, counter }
}

/// Two blocks of two racks of `hosts` hosts with four accelerators each: `b0-r0-h0` and so on.
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
    Gang { pod_sets, max_run: None }
}

/// `node=pods …` in the order of the pods' numbers.
fn shown(ledger: &Ledger, offer: OfferId) -> String {
    let mut counts: Vec<(String, u32)> = Vec::new();
    for pod in ledger.placement(offer) {
        match counts.last_mut() {
            Some((node, count)) if *node == pod.node => *count += 1,
            _ => counts.push((pod.node, 1)),
        }
    }
    counts.iter().map(|(node, count)| format!("{node}={count}")).collect::<Vec<_>>().join(" ")
}

/// Holds `sets` in a fresh fleet of two hosts per rack beside `taken` whole hosts.
fn check(taken: &[&str], sets: Vec<PodSet>, expect: &str) {
    let mut ledger = ledger(fleet(2));
    for (number, node) in taken.iter().enumerate() {
        let mut whole = set(1, 4, None);
        (whole.within, whole.node_selector) =
            (None, BTreeMap::from([(HOSTNAME_LABEL.into(), (*node).into())]));
        ledger.hold(offer(100 + number as u64), &gang(vec![whole])).unwrap();
    }
    let answer = match ledger.hold(offer(1), &gang(sets)) {
        Ok(()) => shown(&ledger, offer(1)),
        Err(misfit) => misfit.to_string(),
    };
    ledger.check().unwrap();
    assert_eq!(answer, expect);
}

#[test]
fn a_required_gang_is_in_one_domain_or_refused_in_words() {
    let required = |count, level| vec![set(count, 1, Some(TopologyRequest::required(level)))];
    check(&[], required(8, "rack"), "b0-r0-h0=4 b0-r0-h1=4");
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1"], required(8, "rack"), "b1-r1-h0=4 b1-r1-h1=4");
    let short = "pod set `main`: topology \"default\" allows to fit only 4 out of 8 pod(s). Total nodes: 8; excluded: resource \"nvidia.com/gpu\": 4";
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1", "b1-r1-h0"], required(8, "rack"), short);
    check(
        &[],
        required(9, "rack"),
        "pod set `main`: topology \"default\" allows to fit only 8 out of 9 pod(s), even with nothing else running",
    );
    check(
        &[],
        required(1, "zone"),
        "pod set `main`: no requested topology level: zone, even with nothing else running",
    );
}

#[test]
fn a_preferred_gang_widens_and_an_unconstrained_one_goes_anywhere() {
    let preferred = |count| vec![set(count, 1, Some(TopologyRequest::preferred("rack")))];
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1"], preferred(4), "b0-r0-h1=4");
    check(&["b0-r0-h0", "b0-r1-h1", "b1-r0-h1", "b1-r1-h0"], preferred(6), "b0-r0-h1=4 b0-r1-h0=2");
    let anywhere = TopologyRequest { constraint: Some(Constraint::Unconstrained), slices: Vec::new() };
    check(&["b0-r0-h0", "b0-r1-h1"], vec![set(2, 4, Some(anywhere))], "b0-r0-h1=1 b0-r1-h0=1");
}

#[test]
fn slices_are_each_in_one_domain_in_one_layer_and_in_two() {
    let sliced = TopologyRequest::required("block").sliced(HOSTNAME_LABEL, 2);
    check(&[], vec![set(4, 2, Some(sliced.clone()))], "b0-r0-h0=2 b0-r0-h1=2");
    check(&[], vec![set(4, 2, Some(TopologyRequest::default().sliced("rack", 4)))], "b0-r0-h0=2 b0-r0-h1=2");
    let layered = TopologyRequest::preferred("block").sliced("rack", 4).sliced(HOSTNAME_LABEL, 2);
    check(&["b0-r0-h0"], vec![set(8, 2, Some(layered))], "b1-r0-h0=2 b1-r0-h1=2 b1-r1-h0=2 b1-r1-h1=2");
    let uneven =
        "only 4 of 5 pods of `main` would have a place; a leader is one pod, and slices must divide the pods";
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
    let racks: std::collections::BTreeSet<String> =
        ledger.placement(offer(1)).into_iter().map(|pod| pod.node[..5].to_owned()).collect();
    assert_eq!((ledger.pods(offer(1)), racks.len()), (4, 1));
    let third = "pod set `c` is the third of its group; a group is a leader and workers";
    check(&[], vec![member("a", 1), member("b", 2), member("c", 1)], third);
    let several =
        "only 1 of 2 pods of `a` would have a place; a leader is one pod, and slices must divide the pods";
    check(&[], vec![member("a", 2), member("b", 3)], several);
}

#[test]
fn a_flavor_without_topology_is_said() {
    let homeless = PodSet { within: None, ..set(1, 1, Some(TopologyRequest::required("rack"))) };
    check(
        &[],
        vec![homeless],
        "pod set `main` asks for a place in a topology, and not exactly one of its flavors names a Topology that exists",
    );
}

#[test]
fn pods_without_a_wish_are_packed_beside_those_with_one() {
    let near = set(8, 1, Some(TopologyRequest::required("rack")));
    let free = PodSet { name: "free".into(), within: None, ..set(3, 4, None) };
    let mut ledger = ledger(fleet(2));
    ledger.hold(offer(1), &gang(vec![near, free])).unwrap();
    ledger.check().unwrap();
    assert_eq!((ledger.pods(offer(1)), ledger.overcommitted()), (11, false));
}

#[test]
fn a_domain_is_never_more_than_its_nodes() {
    // Racks are the narrowest level, and have eight accelerators on two nodes: not twice three and once two.
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
    let word = "pod set `main`: topology \"default\" allows to fit only 4 out of 5 pod(s), even with nothing else running";
    check(&[], vec![racks(5, 3, TopologyRequest::required("block"))], word);
    // In sum the first rack has room for two pods of two, on no node for one of them.
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
    assert_eq!(shown(&ledger, offer(3)), "b0-r1-h0=1");
}

#[test]
fn nodes_say_how_many_pods_they_take() {
    let tiny = set(64, 0, Some(TopologyRequest::required("rack")));
    check(
        &[],
        vec![tiny],
        "pod set `main`: topology \"default\" allows to fit only 32 out of 64 pod(s), even with nothing else running",
    );
    let mut unstated = fleet(1);
    unstated.iter_mut().for_each(|node| node.capacity.retain(|resource, _| resource != PODS));
    let mut ledger = ledger(unstated);
    ledger.hold(offer(1), &gang(vec![set(4, 1, Some(TopologyRequest::required("rack")))])).unwrap();
    assert_eq!(shown(&ledger, offer(1)), "b0-r0-h0=4");
}

/// What the topology crate says by itself, over whole nodes and what runs on them: as `plan` asks it.
fn foretold(nodes: &[NodeSpec], held: &[(Assignment, Amounts)], sets: &[PodSet]) -> Vec<Outcome> {
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

fn wish() -> impl Strategy<Value = TopologyRequest> {
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
        |(wish, slice)| match slice {
            Some((level, size)) => wish.sliced(level, size),
            None => wish,
        },
    )
}

proptest! {
    #[test]
    fn the_agent_places_as_the_topology_crate_foretells(asks in prop::collection::vec((1_u32..9, 0_i64..5, wish(), any::<bool>()), 1..12)) {
        let nodes = fleet(2);
        let mut ledger = ledger(nodes.clone());
        let mut held: BTreeMap<OfferId, (Assignment, Amounts)> = BTreeMap::new();
        for (number, (count, gpus, wish, leaves)) in asks.into_iter().enumerate() {
            let (offer, asked) = (offer(number as u64), set(count, gpus, Some(wish.clone())));
            let beside: Vec<(Assignment, Amounts)> = held.values().cloned().collect();
            let foretold = foretold(&nodes, &beside, std::slice::from_ref(&asked)).remove(0).expect("the only request is answered");
            let mut twin = ledger.clone();
            let answer = ledger.hold(offer, &gang(vec![asked.clone()]));
            prop_assert_eq!(&answer, &twin.hold(offer, &gang(vec![asked.clone()])));
            prop_assert_eq!(&ledger, &twin, "the same again");
            ledger.check().unwrap();
            prop_assert!(!ledger.overcommitted());
            let mut there: BTreeMap<String, u32> = BTreeMap::new();
            for pod in ledger.placement(offer) {
                *there.entry(pod.node).or_default() += 1;
            }
            match (answer, foretold) {
                (Ok(()), Ok(assignment)) => {
                    prop_assert_eq!(ledger.pods(offer), count as usize, "all of it");
                    let expect: BTreeMap<String, u32> = assignment.domains.iter().map(|d| (d.values[0].clone(), d.count)).collect();
                    prop_assert_eq!(&there, &expect);
                    let within = |chars: usize| there.keys().map(|node| &node[..chars]).collect::<std::collections::BTreeSet<_>>().len();
                    match &wish.constraint {
                        Some(Constraint::Required(level)) if level == "block" => prop_assert_eq!(within(2), 1),
                        Some(Constraint::Required(level)) if level == "rack" => prop_assert_eq!(within(5), 1),
                        Some(Constraint::Required(_)) => prop_assert_eq!(there.len(), 1),
                        _ => {}
                    }
                    held.insert(offer, (assignment, asked.per_pod.clone()));
                }
                (Err(Misfit { why: Why::Topology { misfit, .. }, .. }), Err(expect)) => prop_assert_eq!(*misfit, expect),
                (Err(Misfit { why: Why::Incomplete { placed, .. }, .. }), Ok(assignment)) => prop_assert_eq!(placed, assignment.pods()),
                (answer, expect) => prop_assert!(false, "{:?} is not {:?}", answer, expect),
            }
            prop_assert!(ledger.has_room(offer) || there.is_empty(), "never half");
            if leaves && let Some((first, _)) = held.pop_first() {
                ledger.release(first);
                ledger.check().unwrap();
            }
        }
    }

    /// Whatever the levels are, and whatever runs already without a wish.
    #[test]
    fn no_node_gives_more_than_it_has(asks in prop::collection::vec((1_u32..7, 1_i64..5, prop::option::of(wish()), any::<bool>()), 1..14)) {
        let mut ledger = ledger(fleet(2));
        for (number, (count, gpus, wish, coarse)) in asks.into_iter().enumerate() {
            let within = if coarse { levels(&["block", "rack"]) } else { by_host() };
            let asked = PodSet { within: wish.is_some().then_some(within), ..set(count, gpus, wish) };
            let whole = ledger.hold(offer(number as u64), &gang(vec![asked])).is_ok();
            prop_assert_eq!(ledger.pods(offer(number as u64)), if whole { count as usize } else { 0 });
            ledger.check().unwrap();
            prop_assert!(!ledger.overcommitted());
        }
    }
}

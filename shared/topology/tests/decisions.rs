//! Placement decisions as tables. The rules are those of Kueue (v1beta2, August 2026).

use meridian_shared::gang::{Amounts, Operator, Requirement, Taint, TaintEffect, Toleration};
use meridian_topology::{
    Assignment, Constraint, DomainCount, Flavor, LostNodes, Node, Options, PODS, PodSetRequest, PodSetResult,
    PreferredTerm, Profile, Topology, TopologyRequest, Usage,
};
use std::collections::BTreeMap;

const HOST: &str = "kubernetes.io/hostname";

/// Two blocks; the first has two racks.
const PLAIN: [&str; 6] = ["b1 r1 x1 1", "b1 r1 x2 2", "b1 r2 x3 3", "b1 r2 x4 1", "b2 r1 x5 4", "b2 r1 x6 2"];

/// Nodes written as block, rack, host and cpus.
fn nodes(lines: &[&str]) -> Vec<Node> {
    lines.iter().map(|line| node(line)).collect()
}

fn node(line: &str) -> Node {
    let words: Vec<&str> = line.split(' ').collect();
    let labels = ["block", "rack", HOST]
        .iter()
        .zip(&words)
        .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
    let allocatable = Amounts::from([
        ("cpu".to_owned(), 1_000 * words[3].parse::<i64>().expect("a number of cpus")),
        (PODS.to_owned(), 10),
    ]);
    Node {
        name: format!("node-{}", words[2]),
        labels: labels.collect(),
        ready: true,
        allocatable,
        ..Node::default()
    }
}

fn topology(levels: &[&str], profile: Profile, nodes: &[Node]) -> Topology {
    let levels = levels.iter().map(|level| (*level).to_owned()).collect();
    Topology::new(Flavor { topology: "default".into(), levels, profile, ..Flavor::default() }, nodes)
}

fn by_host(profile: Profile, lines: &[&str]) -> Topology {
    topology(&["block", "rack", HOST], profile, &nodes(lines))
}

/// Pods of one cpu.
fn pods(count: u32, topology: TopologyRequest) -> PodSetRequest {
    PodSetRequest {
        name: "main".into(),
        count,
        per_pod: cpu(1),
        topology: Some(topology),
        ..PodSetRequest::default()
    }
}

fn cpu(cpus: i64) -> Amounts {
    Amounts::from([("cpu".to_owned(), 1_000 * cpus)])
}

fn unconstrained() -> TopologyRequest {
    TopologyRequest { constraint: Some(Constraint::Unconstrained), slices: Vec::new() }
}

fn hosts(domains: &[(&str, u32)]) -> Assignment {
    let domains =
        domains.iter().map(|(host, count)| DomainCount { values: vec![(*host).to_owned()], count: *count });
    Assignment { levels: vec![HOST.to_owned()], domains: domains.collect() }
}

/// The placements, each as `values=count …` or as the error.
fn placements(topology: &Topology, requests: &[PodSetRequest], options: Options<'_>) -> Vec<String> {
    let domain = |domain: &DomainCount| format!("{}={}", domain.values.join("/"), domain.count);
    let text = |result: PodSetResult| match result {
        None => "not reached".to_owned(),
        Some(Ok(Assignment { domains, .. })) => domains.iter().map(domain).collect::<Vec<_>>().join(" "),
        Some(Err(error)) => error.to_string(),
    };
    topology.assign(requests, options).into_iter().map(text).collect()
}

fn check(topology: &Topology, request: PodSetRequest, expect: &str) {
    assert_eq!(
        placements(topology, std::slice::from_ref(&request), Options::default()),
        [expect],
        "{request:?}"
    );
}

#[test]
fn required_level_is_best_fit_or_refused() {
    let topology = by_host(Profile::default(), &PLAIN);
    check(&topology, pods(3, TopologyRequest::required("rack")), "x1=1 x2=2");
    check(&topology, pods(6, TopologyRequest::required("block")), "x5=4 x6=2");
    check(&topology, pods(2, TopologyRequest::required(HOST)), "x2=2");
    check(&topology, pods(5, TopologyRequest::required("rack")), "x5=4 x6=1");
    check(
        &topology,
        pods(5, TopologyRequest::required(HOST)),
        "topology \"default\" allows to fit only 4 out of 5 pod(s)",
    );
    check(&topology, pods(1, TopologyRequest::required("zone")), "no requested topology level: zone");
}

#[test]
fn preferred_level_widens_before_it_spreads() {
    let topology = by_host(Profile::default(), &PLAIN);
    check(&topology, pods(4, TopologyRequest::preferred(HOST)), "x5=4");
    check(&topology, pods(5, TopologyRequest::preferred(HOST)), "x5=4 x6=1");
    check(&topology, pods(7, TopologyRequest::preferred(HOST)), "x1=1 x2=2 x3=3 x4=1");
    check(&topology, pods(8, TopologyRequest::preferred("rack")), "x2=2 x5=4 x6=2");
    check(
        &topology,
        pods(14, TopologyRequest::preferred("rack")),
        "topology \"default\" allows to fit only 13 out of 14 pod(s)",
    );
}

#[test]
fn unconstrained_pods_fill_the_fullest_domains_first() {
    let topology = by_host(Profile::default(), &PLAIN);
    check(&topology, pods(5, unconstrained()), "x1=1 x2=2 x4=1 x6=1");
    check(&topology, PodSetRequest { topology: None, ..pods(5, unconstrained()) }, "x1=1 x2=2 x4=1 x6=1");
    check(&topology, pods(2, unconstrained()), "x2=2");
    let emptiest = by_host(Profile { mixed: false, ..Profile::default() }, &PLAIN);
    check(&emptiest, pods(5, unconstrained()), "x1=1 x5=4");
}

#[test]
fn slices_stay_whole() {
    let topology = by_host(Profile::default(), &PLAIN);
    check(&topology, pods(4, TopologyRequest::required("block").sliced(HOST, 2)), "x2=2 x3=2");
    check(&topology, pods(6, TopologyRequest::preferred("block").sliced("rack", 3)), "x5=4 x6=2");
    check(
        &topology,
        pods(8, TopologyRequest::preferred("block").sliced("rack", 4).sliced(HOST, 2)),
        "topology \"default\" doesn't allow to fit; 1/2 slice(s) fit on level rack; \
         3/4 slice(s) fit on level kubernetes.io/hostname",
    );
    check(
        &topology,
        pods(2, TopologyRequest::required(HOST).sliced("rack", 2)),
        "podset slice topology rack is above the podset topology kubernetes.io/hostname",
    );
    check(
        &topology,
        pods(2, TopologyRequest::required("block").sliced("rack", 0)),
        "slice topology requested, but slice size not provided",
    );
    check(
        &topology,
        pods(6, TopologyRequest::required("block").sliced("rack", 3).sliced(HOST, 2)),
        "additional slice layer size 2 must evenly divide parent layer size 3",
    );
    check(
        &topology,
        pods(4, TopologyRequest::required("block").sliced("rack", 2).sliced("block", 1)),
        "additional slice layer topology block must be at a lower level than rack",
    );
}

#[test]
fn without_host_level_node_constraints_are_ignored() {
    let mut nodes = nodes(&PLAIN);
    nodes[4].taints = vec![Taint { key: "t".into(), value: String::new(), effect: TaintEffect::NoSchedule }];
    let topology = topology(&["block", "rack"], Profile::default(), &nodes);
    check(&topology, pods(6, TopologyRequest::required("rack")), "b2/r1=6");
    check(&topology, pods(7, TopologyRequest::preferred("rack")), "b1/r1=3 b1/r2=4");
}

#[test]
fn leader_and_workers_are_placed_together() {
    let group = |name: &str, count, each: i64, shape: TopologyRequest| PodSetRequest {
        name: name.into(),
        per_pod: cpu(each),
        group: Some("g".into()),
        ..pods(count, shape)
    };
    let topology = by_host(Profile::default(), &PLAIN);
    let requests = [
        group("leader", 1, 2, TopologyRequest::required("rack")),
        group("workers", 4, 1, TopologyRequest::required("rack")),
    ];
    assert_eq!(placements(&topology, &requests, Options::default()), ["x5=1", "x5=2 x6=2"]);
    let requests = [
        group("leader", 1, 5, TopologyRequest::preferred("rack")),
        group("workers", 2, 1, TopologyRequest::preferred("rack")),
        pods(1, unconstrained()),
    ];
    let reason = "topology \"default\" doesn't allow to fit any of 2 pod(s)";
    assert_eq!(placements(&topology, &requests, Options::default()), [reason, reason, "not reached"]);
}

#[test]
fn balanced_placement_is_even() {
    let lines = ["b1 r1 x1 6", "b1 r1 x2 6", "b1 r1 x3 1"];
    let filled = by_host(Profile::default(), &lines);
    check(&filled, pods(8, TopologyRequest::preferred(HOST)), "x1=6 x2=2");
    let balanced = by_host(Profile { balanced: true, ..Profile::default() }, &lines);
    check(&balanced, pods(8, TopologyRequest::preferred(HOST)), "x1=4 x2=4");
}

#[test]
fn balanced_placement_yields_to_narrow_slices() {
    // Eight pods fit one by one, but only six in pairs. Kueue returns no domain at all here.
    let balanced = by_host(
        Profile { balanced: true, ..Profile::default() },
        &["b1 r1 x1 3", "b1 r1 x2 3", "b1 r1 x3 2", "b1 r2 x4 2"],
    );
    check(
        &balanced,
        pods(8, TopologyRequest::preferred("block").sliced("rack", 2).sliced(HOST, 2)),
        "x1=2 x2=2 x3=2 x4=2",
    );
}

#[test]
fn excluded_nodes_are_counted_by_reason() {
    let mut nodes = nodes(&PLAIN);
    nodes[0].ready = false;
    nodes[1].unschedulable = true;
    nodes[2].taints = vec![Taint { key: "t".into(), value: "v".into(), effect: TaintEffect::NoExecute }];
    nodes[3].taints =
        vec![Taint { key: "t".into(), value: "v".into(), effect: TaintEffect::PreferNoSchedule }];
    for number in [3, 5] {
        nodes[number].labels.insert("gpu".into(), "a".into());
    }
    let topology = topology(&["block", "rack", HOST], Profile::default(), &nodes);
    let with_selector = PodSetRequest {
        node_selector: BTreeMap::from([("gpu".to_owned(), "a".to_owned())]),
        ..pods(2, TopologyRequest::required(HOST))
    };
    check(&topology, with_selector.clone(), "x6=2");
    let requirement = Requirement { key: "block".into(), operator: Operator::In, values: vec!["b1".into()] };
    let elsewhere = PodSetRequest { affinity: vec![vec![requirement.clone()]], ..with_selector };
    let reason = "topology \"default\" allows to fit only 1 out of 2 pod(s). Total nodes: 4; \
                  excluded: affinity: 1, nodeSelector: 1, taint \"t=v:NoExecute\": 1";
    check(&topology, elsewhere.clone(), reason);
    let toleration =
        Toleration { key: Some("t".into()), exists: true, value: String::new(), effect: None, seconds: None };
    check(
        &topology,
        PodSetRequest { tolerations: vec![toleration], node_selector: BTreeMap::new(), ..elsewhere.clone() },
        "x3=2",
    );
    let garbled =
        PodSetRequest { node_selector: BTreeMap::from([("a b".to_owned(), String::new())]), ..elsewhere };
    check(&topology, garbled, "invalid node selectors: a b=");
    let too_large = PodSetRequest { per_pod: cpu(9), ..pods(1, TopologyRequest::required("block")) };
    check(
        &topology,
        too_large,
        "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 4; \
         excluded: resource \"cpu\": 3, taint \"t=v:NoExecute\": 1",
    );
}

#[test]
fn preferred_nodes_come_first_if_the_profile_says_so() {
    let preferred = vec![PreferredTerm {
        weight: 10,
        requirements: vec![Requirement {
            key: "block".into(),
            operator: Operator::In,
            values: vec!["b1".into()],
        }],
    }];
    let request = PodSetRequest { preferred, ..pods(4, TopologyRequest::preferred("rack")) };
    check(&by_host(Profile::default(), &PLAIN), PodSetRequest { count: 5, ..request.clone() }, "x5=4 x6=1");
    check(&by_host(Profile { preferred_affinity: true, ..Profile::default() }, &PLAIN), request, "x3=3 x4=1");
}

#[test]
fn usage_counts_until_removed_or_ignored() {
    let mut topology = by_host(Profile::default(), &PLAIN);
    topology.occupy("node-x5", &cpu(1));
    let placed = hosts(&[("x5", 2), ("x6", 1)]);
    let usage = Usage { assignment: &placed, per_pod: &cpu(1) };
    assert!(topology.fit_together(&[usage]));
    assert!(!topology.fit_together(&[usage, usage]), "only one of x5 would be left");
    topology.add_usage(usage);
    check(&topology, pods(3, TopologyRequest::required(HOST)), "x3=3");
    check(
        &topology,
        pods(4, TopologyRequest::required(HOST)),
        "topology \"default\" allows to fit only 3 out of 4 pod(s)",
    );
    let empty = Options { simulate_empty: true, ..Options::default() };
    let four = [pods(4, TopologyRequest::required(HOST))];
    assert_eq!(
        placements(&topology, &four, empty),
        ["topology \"default\" allows to fit only 3 out of 4 pod(s)"],
        "pods outside topologies still count"
    );
    let five = [pods(5, TopologyRequest::required("rack"))];
    assert_eq!(placements(&topology, &five, empty), ["x5=3 x6=2"]);
    topology.remove_usage(usage);
    assert_eq!(placements(&topology, &five, Options::default()), ["x5=3 x6=2"]);
    assert!(!topology.fit_together(&[Usage { assignment: &hosts(&[("gone", 1)]), per_pod: &cpu(1) }]));
}

#[test]
fn usage_of_other_flavors_counts_on_shared_hosts() {
    let placed = hosts(&[("x5", 4)]);
    let usage = Usage { assignment: &placed, per_pod: &cpu(1) };
    for (overlapping_flavors, expect) in [(true, "x3=3"), (false, "x5=3")] {
        let mut topology =
            by_host(Profile { overlapping_flavors, ..Profile::default() }, &["b1 r1 x3 4", "b2 r1 x5 3"]);
        topology.add_sibling_usage(usage);
        check(&topology, pods(3, TopologyRequest::required(HOST)), expect);
    }
}

#[test]
fn lost_node_is_replaced_within_its_slice() {
    let lines = ["b1 r1 x1 2", "b1 r1 x2 2", "b1 r1 x3 2", "b1 r2 x4 2", "b1 r2 x5 8"];
    let before = hosts(&[("x1", 2), ("x2", 2), ("x4", 2), ("x5", 2)]);
    let mut whole = by_host(Profile::default(), &lines);
    whole.add_usage(Usage { assignment: &before, per_pod: &cpu(1) });
    let admitted = BTreeMap::from([("main".to_owned(), before)]);
    let repair = |topology: &Topology, shape: TopologyRequest, node: &str| {
        let lost = LostNodes { admitted: &admitted, nodes: &[node.to_owned()], pinned: false };
        placements(topology, &[pods(8, shape)], Options { lost: Some(lost), ..Options::default() })
    };
    let slices = || TopologyRequest::required("block").sliced("rack", 4);
    assert_eq!(repair(&whole, slices(), "x2"), ["x1=2 x3=2 x4=2 x5=2"]);
    assert_eq!(repair(&whole, slices(), "x4"), ["x1=2 x2=2 x5=4"]);
    assert_eq!(repair(&whole, TopologyRequest::required("rack"), "x2"), ["x1=2 x3=2 x4=2 x5=2"]);
    assert_eq!(repair(&whole, slices(), "x3"), ["cannot find replacement assignment for unhealthy node: x3"]);
    let mut smaller = by_host(Profile::default(), &lines[..4]);
    smaller.add_usage(Usage { assignment: &admitted["main"], per_pod: &cpu(1) });
    let stale = "Cannot replace the node, because the existing topologyAssignment is invalid, \
                 as it contains the stale domain x5";
    assert_eq!(repair(&smaller, slices(), "x2"), [stale]);
    let reason = "topology \"default\" doesn't allow to fit any of 1 slice(s). Total nodes: 4; \
                  excluded: resource \"cpu\": 3";
    let shape = TopologyRequest::required("block").sliced(HOST, 2);
    let lone = hosts(&[("x4", 2)]);
    let mut full = by_host(Profile::default(), &lines[..4]);
    full.add_usage(Usage {
        assignment: &hosts(&[("x1", 1), ("x2", 2), ("x3", 2), ("x4", 2)]),
        per_pod: &cpu(1),
    });
    let admitted = BTreeMap::from([("main".to_owned(), lone)]);
    let lost = LostNodes { admitted: &admitted, nodes: &["x4".to_owned()], pinned: false };
    assert_eq!(
        placements(&full, &[pods(2, shape)], Options { lost: Some(lost), ..Options::default() }),
        [reason]
    );
}

#[test]
fn scale_up_places_only_new_pods() {
    let elastic = by_host(Profile { elastic: true, ..Profile::default() }, &PLAIN);
    let resized = |count, previous: &[(&str, u32)]| PodSetRequest {
        previous: Some(hosts(previous)),
        ..pods(count, unconstrained())
    };
    check(&elastic, resized(5, &[("x3", 1), ("x5", 2)]), "x2=2 x3=1 x5=2");
    check(&elastic, resized(2, &[("x3", 1), ("x5", 2)]), "x3=1 x5=1");
    check(&elastic, resized(3, &[("x3", 1), ("x5", 2)]), "x3=1 x5=2");
    check(&elastic, resized(3, &[("gone", 2)]), "x3=3");
    check(&by_host(Profile::default(), &PLAIN), resized(5, &[("x3", 1), ("x5", 2)]), "x1=1 x2=2 x4=1 x6=1");
}

#[test]
fn invalid_requests_are_refused() {
    check(
        &by_host(Profile::default(), &[]),
        pods(1, TopologyRequest::required("rack")),
        "no topology domains at level: rack",
    );
    check(
        &topology(&[], Profile::default(), &nodes(&PLAIN)),
        pods(1, unconstrained()),
        "topology level not specified",
    );
    check(&by_host(Profile::default(), &PLAIN), pods(0, unconstrained()), "");
    check(
        &by_host(Profile { balanced: true, ..Profile::default() }, &PLAIN),
        pods(0, TopologyRequest::preferred("rack")),
        "",
    );
    check(
        &by_host(Profile::default(), &PLAIN),
        pods(u32::MAX, unconstrained()),
        "topology \"default\" allows to fit only 13 out of 4294967295 pod(s)",
    );
    let nothing = PodSetRequest { per_pod: Amounts::new(), ..pods(60, unconstrained()) };
    check(&by_host(Profile::default(), &PLAIN), nothing, "x1=10 x2=10 x3=10 x4=10 x5=10 x6=10");
    let extreme =
        PodSetRequest { per_pod: Amounts::from([("cpu".to_owned(), i64::MIN)]), ..pods(1, unconstrained()) };
    let reason = "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 6; \
                  excluded: resource \"cpu\": 6";
    check(&by_host(Profile::default(), &PLAIN), extreme, reason);
}

//! Topology-aware scheduling: topology requests of jobs reach the agent, which places the pods and reports
//! where.

use super::*;
use meridian_manager_core::facts::end::AttemptEnd;
use meridian_manager_core::live::counts::Count;
use meridian_shared::gang::Gang;
use meridian_shared::placement::{PlacedDomain, Placement};

pub(super) const BLOCK: &str = "cloud.provider.com/topology-block";
pub(super) const RACK: &str = "cloud.provider.com/topology-rack";
pub(super) const HOST: &str = "kubernetes.io/hostname";

/// One cluster of two blocks with two racks each, and two hosts of four GPUs in each rack. The flavor names
/// the topology.
pub(super) fn fleet() -> Fleet {
    let mut f = Fleet::new(EU);
    f.agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes: hosts(), pools: Vec::new() });
    let levels: Vec<Value> = [BLOCK, RACK, HOST].iter().map(|label| json!({"nodeLabel": label})).collect();
    f.apply(vec![
        kueue_object("Topology", "default", json!({"levels": levels})),
        kueue_object(
            "ResourceFlavor",
            "any",
            json!({"nodeLabels": {"pool": "a"}, "topologyName": "default"}),
        ),
    ]);
    f.settle();
    f
}

pub(super) fn hosts() -> Vec<NodeSpec> {
    let mut nodes = Vec::new();
    for (block, rack, host) in (0..8).map(|i| (i / 4, i / 2 % 2, i % 2)) {
        let name = format!("b{block}-r{rack}-h{host}");
        let labels = [
            ("pool", "a".to_owned()),
            (BLOCK, format!("b{block}")),
            (RACK, format!("r{rack}")),
            (HOST, name.clone()),
        ];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        nodes.push(NodeSpec {
            name,
            labels,
            capacity: Amounts::from([(GPU.into(), 4), ("pods".into(), 110)]),
            ..NodeSpec::default()
        });
    }
    nodes
}

fn submit(f: &mut Fleet, name: &str, pods: u32, annotations: &Value) -> Uid {
    let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["spec"]["template"]["metadata"] = json!({"annotations": annotations});
    let uid = match f.apply(vec![job]) {
        Reply::Written(written) => written[0].uid,
        other => panic!("not submitted: {other:?}"),
    };
    f.settle();
    uid
}

/// The node of each pod, from the agent's ledger.
pub(super) fn nodes(f: &Fleet, uid: Uid) -> Vec<String> {
    let ledger = f.agents.values().next().unwrap().ledger();
    let offers = f.world.state().workloads()[&uid].legs().keys();
    offers.flat_map(|offer| ledger.placement(*offer)).map(|pod| pod.node).collect()
}

/// The racks of a running gang.
pub(super) fn racks(f: &Fleet, uid: Uid) -> Vec<String> {
    let mut racks: Vec<String> = nodes(f, uid).into_iter().map(|node| node[..5].to_owned()).collect();
    racks.sort();
    racks.dedup();
    racks
}

#[test]
fn a_gang_that_requires_a_rack_starts_in_one_or_stays_pending() {
    let mut f = fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let uids: Vec<Uid> = (0..4).map(|i| submit(&mut f, &format!("near-{i}"), 5, &rack)).collect();
    let mut all: Vec<Vec<String>> = uids.iter().map(|uid| racks(&f, *uid)).collect();
    assert!(all.iter().all(|racks| racks.len() == 1), "{all:?}");
    all.dedup();
    assert_eq!(all.len(), 4, "each rack fits one gang");
    // Five more pods fit, but not in one rack. The manager knows that without an offer.
    let fifth = submit(&mut f, "near-4", 5, &rack);
    assert_eq!(f.phase(fifth), Some(Phase::Pending));
    let why = f.why(fifth);
    let reason = why["clusters"][0]["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "pod set `main` must be in one `cloud.provider.com/topology-rack`: \
         the domain with the most free capacity fits 3 of 5 pods"
    );
    assert!(
        why["wouldHelp"].as_str().unwrap().starts_with("in cluster `eu`: wait until workload `default/near-"),
        "{why:#}"
    );
    // A gang that only prefers a rack takes the remaining capacity.
    let anywhere = submit(&mut f, "anywhere", 5, &json!({"kueue.x-k8s.io/podset-preferred-topology": RACK}));
    assert_eq!(f.phase(anywhere), Some(Phase::Running), "{:#}", f.why(anywhere));
    assert_eq!(racks(&f, anywhere).len(), 2);
    f.end(uids[0], EndResult::Succeeded);
    f.advance(Millis(5_000));
    assert_eq!(f.phase(fifth), Some(Phase::Running), "{:#}", f.why(fifth));
    assert_eq!(racks(&f, fifth).len(), 1);
}

#[test]
fn the_placement_of_pods_is_reported_recorded_and_shown() {
    let mut f = fleet();
    let near = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let plain = f.submit("plain", 2);
    f.settle();
    let workload = |f: &Fleet, uid| {
        let shown = meridian_views::workloads::shown(&f.world, uid, now(f.now).mono);
        shown.unwrap().workload(None, &Asker::unlimited())
    };
    let rendered = workload(&f, near);
    let topology = &rendered["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    let values = json!([{"individual": {"prefix": "b0-r0-h", "roots": ["0", "1"]}}]);
    let slices = json!([
        {"domainCount": 2, "valuesPerLevel": values, "podCounts": {"individual": [4, 1]}},
    ]);
    assert_eq!(*topology, json!({"levels": [HOST], "slices": slices}));
    assert_eq!(f.why(near)["placement"], json!(["main: b0-r0-h0 4, b0-r0-h1 1"]));
    // A workload without a topology request has no assignment. Its nodes are known too.
    let other = workload(&f, plain);
    assert_eq!(other["status"]["admission"]["podSetAssignments"][0].get("topologyAssignment"), None);
    assert!(
        other["status"]["meridian"]["placement"][0]["domains"][0]["values"][0]
            .as_str()
            .unwrap()
            .starts_with('b'),
        "{other:#}"
    );
    // The placement is in the journal: the next leadership knows it before any agent reports.
    f.restart(5, None);
    assert_eq!(workload(&f, near), rendered);
    f.settle();
    assert_eq!(workload(&f, near)["status"]["admission"], rendered["status"]["admission"]);
    f.end(near, EndResult::Succeeded);
    assert_eq!(workload(&f, near)["status"]["admission"], Value::Null);
}

fn placement(f: &Fleet, uid: Uid) -> Placement {
    let leg = f.world.state().workloads()[&uid].legs().values().next().unwrap();
    leg.placement().unwrap().as_ref().clone()
}

#[test]
fn an_adopted_run_brings_its_placement() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let reported = placement(&f, uid);
    assert_eq!(reported.pod_sets[0].pods(), 3);
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.world.live().counts().of(Count::Adoptions), 1);
    assert_eq!(placement(&f, uid), reported);
}

#[test]
fn an_outdated_or_mismatched_placement_is_ignored() {
    let mut f = fleet();
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let (reported, fence) = (placement(&f, uid), f.world.state().workloads()[&uid].fence().unwrap());
    let moved = |revision, pods| {
        let mut moved = Placement { revision, ..reported.clone() };
        moved.pod_sets[0].domains = vec![PlacedDomain { values: vec!["b1-r1-h1".into()], pods, kind: 0 }];
        moved
    };
    let name: ClusterName = "eu".into();
    let report = |f: &mut Fleet, placement: Placement| {
        let mut request = f.agents.get_mut(&name).unwrap().compose(now(f.now), Lane::News);
        request.events = vec![Event::Running { uid, fence, placement: Some(Arc::new(placement)) }];
        request.events_from = f.world.live().clusters()[&name].events_through() + 1;
        f.input(Input::Sync { cluster: name.clone(), request: Box::new(request), may_park: false });
    };
    for invalid in [moved(0, 5), moved(1, 4), Placement { revision: 1, ..Placement::default() }] {
        report(&mut f, invalid);
        assert_eq!(placement(&f, uid), reported);
    }
    report(&mut f, moved(2, 5));
    assert_eq!(placement(&f, uid), moved(2, 5));
    report(&mut f, moved(1, 5));
    assert_eq!(placement(&f, uid), moved(2, 5), "the older revision arrives later");
}

#[test]
fn pods_of_a_lost_node_move_and_the_new_placement_is_recorded() {
    let mut f = fleet();
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": BLOCK}));
    assert_eq!(placement(&f, uid).to_string(), "main: b0-r0-h0 4, b0-r0-h1 1");
    let fence = f.world.state().workloads()[&uid].fence();
    let lose = |f: &mut Fleet, lost: &[&str]| {
        let name: ClusterName = "eu".into();
        let nodes = hosts()
            .into_iter()
            .map(|node| NodeSpec { unready: lost.contains(&node.name.as_str()), ..node })
            .collect();
        let out = f
            .agents
            .get_mut(&name)
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
        f.perform(&name, out.into_effects());
        f.settle();
    };
    lose(&mut f, &["b0-r0-h1"]);
    let moved = placement(&f, uid);
    assert_eq!((moved.revision, moved.pod_sets[0].domains.len()), (1, 2));
    assert!(!moved.to_string().contains("b0-r0-h1") && moved.to_string().contains("b0-r0-h0 4"), "{moved}");
    assert_eq!(
        (f.phase(uid), f.world.state().workloads()[&uid].fence()),
        (Some(Phase::Running), fence),
        "it is the same attempt"
    );
    f.restart(5, None);
    assert_eq!(placement(&f, uid), moved);
    // The block still fits the gang with one rack lost. With three of four hosts lost it doesn't: the attempt
    // ends, and the next one runs in the other block.
    lose(&mut f, &["b0-r0-h0", "b0-r0-h1"]);
    f.advance(Millis(5_000));
    let workload = &f.world.state().workloads()[&uid];
    assert_eq!(workload.history().len(), 1, "the pods fit in the other rack: {:?}", workload.history());
    lose(&mut f, &["b0-r0-h0", "b0-r0-h1", "b0-r1-h0"]);
    f.advance(Millis(5_000));
    let workload = &f.world.state().workloads()[&uid];
    assert!(
        matches!(workload.history()[0].end, Some(AttemptEnd::Reported(EndResult::NodeLost { .. }))),
        "{:?}",
        workload.history()
    );
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert!(placement(&f, uid).to_string().contains("b1-r"), "{}", placement(&f, uid));
}

#[test]
fn unhealthy_nodes_of_a_gang_are_shown() {
    let mut f = fleet();
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": BLOCK}));
    let (reported, fence) = (placement(&f, uid), f.world.state().workloads()[&uid].fence().unwrap());
    let report = |f: &mut Fleet, revision, unhealthy: &[&str]| {
        let name: ClusterName = "eu".into();
        let unhealthy = unhealthy.iter().map(|node| (*node).to_owned()).collect();
        let mut request = f.agents.get_mut(&name).unwrap().compose(now(f.now), Lane::News);
        request.events = vec![Event::Running {
            uid,
            fence,
            placement: Some(Arc::new(Placement { revision, unhealthy, ..reported.clone() })),
        }];
        request.events_from = f.world.live().clusters()[&name].events_through() + 1;
        f.input(Input::Sync { cluster: name.clone(), request: Box::new(request), may_park: false });
    };
    let unhealthy = |f: &Fleet| {
        let shown = meridian_views::workloads::shown(&f.world, uid, now(f.now).mono);
        shown.unwrap().workload(None, &Asker::unlimited())["status"]["unhealthyNodes"].clone()
    };
    assert_eq!(unhealthy(&f), Value::Null);
    report(&mut f, 1, &["b0-r0-h1"]);
    assert_eq!(unhealthy(&f), json!([{"name": "b0-r0-h1"}]));
    assert_eq!(f.why(uid)["placement"][1], "waiting for replacement of pods on lost nodes: b0-r0-h1");
    report(&mut f, 2, &["n"; 9]);
    assert_eq!(unhealthy(&f), json!([{"name": "b0-r0-h1"}]), "a report over the limit of nodes is ignored");
    report(&mut f, 2, &[]);
    assert_eq!(unhealthy(&f), Value::Null);
}

#[test]
fn topology_slices_and_layers_reach_the_agent() {
    let mut f = fleet();
    let layers = json!([{"topology": RACK, "size": 6}, {"topology": HOST, "size": 3}]).to_string();
    let annotations = json!({
        "kueue.x-k8s.io/podset-required-topology": BLOCK,
        "kueue.x-k8s.io/podset-slice-required-topology-constraints": layers,
    });
    let uid = submit(&mut f, "layers", 12, &annotations);
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    let mut hosts: BTreeMap<String, u32> = BTreeMap::new();
    for node in nodes(&f, uid) {
        *hosts.entry(node).or_default() += 1;
    }
    let expected = ["b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1"].map(|host| (host.to_owned(), 3));
    assert_eq!(hosts, BTreeMap::from(expected), "three per host, six per rack, all in one block");
}

#[test]
fn a_topology_request_names_the_missing_topology_until_it_exists() {
    let mut f = fleet();
    let flavor = |spec: Value| kueue_object("ResourceFlavor", "any", spec);
    f.apply(vec![flavor(json!({"nodeLabels": {"pool": "a"}}))]);
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    let why = |f: &Fleet| f.why(uid)["summary"].as_str().unwrap().to_owned();
    assert_eq!(why(&f), "pending: no flavor of cluster queue `cq` fits the pods: flavor any has no topology");
    f.apply(vec![flavor(json!({"nodeLabels": {"pool": "a"}, "topologyName": "none"}))]);
    assert_eq!(
        why(&f),
        "pending: no flavor of cluster queue `cq` fits the pods: the topology of flavor any isn't known"
    );
    let topology = |name: &str, levels: &[&str]| {
        let levels: Vec<Value> = levels.iter().map(|label| json!({"nodeLabel": label})).collect();
        kueue_object("Topology", name, json!({"levels": levels}))
    };
    f.apply(vec![topology("none", &[BLOCK, HOST])]);
    assert_eq!(
        why(&f),
        "pending: no flavor of cluster queue `cq` fits the pods: \
         flavor any doesn't have the requested topology level"
    );
    f.apply(vec![flavor(json!({"nodeLabels": {"pool": "a"}, "topologyName": "default"}))]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert_eq!(racks(&f, uid).len(), 1);
}

#[test]
fn each_gang_gets_a_flavor_with_its_topology_level() {
    let mut f = fleet();
    let flavor = |name: &str, topology: Value| {
        kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"pool": "a"}, "topologyName": topology}))
    };
    let blocks =
        kueue_object("Topology", "blocks", json!({"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": HOST}]}));
    let quotas = ["blocks", "none", "any"].map(|flavor| flavor_quota(flavor, 16));
    let groups = json!([{"coveredResources": [GPU], "flavors": quotas}]);
    f.apply(vec![
        blocks,
        flavor("blocks", json!("blocks")),
        flavor("none", Value::Null),
        kueue_object("ClusterQueue", "cq", json!({"namespaceSelector": {}, "resourceGroups": groups})),
    ]);
    let rack = submit(&mut f, "rack", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let block = submit(&mut f, "block", 5, &json!({"kueue.x-k8s.io/podset-required-topology": BLOCK}));
    let plain = submit(&mut f, "plain", 2, &json!({}));
    let flavors = [rack, block, plain].map(|uid| {
        (
            f.phase(uid),
            f.world.state().workloads()[&uid]
                .flavors()
                .names()
                .iter()
                .map(|flavor| flavor.to_string())
                .collect::<String>(),
        )
    });
    let expected = ["any", "blocks", "none"].map(|flavor| (Some(Phase::Running), flavor.to_owned()));
    assert_eq!(flavors, expected, "each flavor has the requested level");
}

#[test]
fn a_gang_without_a_topology_request_has_no_topology_fields() {
    let mut f = fleet();
    let uid = f.submit("plain", 5);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let gang: &Gang = &f.world.queues().class(f.world.state().workloads()[&uid].class()).gang;
    let written = serde_json::to_value(gang).unwrap();
    assert_eq!(
        written["pod_sets"][0].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["count", "name", "per_pod"]
    );
}

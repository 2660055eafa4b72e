//! Gangs that want their pods near each other: the wish travels from the Job to the agent, which places by it.

use super::queues::{priorities, teams};
use super::*;
use meridian_manager_core::facts::end::AttemptEnd;
use meridian_shared::gang::Gang;
use meridian_shared::packing::Block;
use meridian_shared::placement::{PlacedDomain, Placement};

const BLOCK: &str = "cloud.provider.com/topology-block";
const RACK: &str = "cloud.provider.com/topology-rack";
const HOST: &str = "kubernetes.io/hostname";

/// One cluster: two blocks with two racks each, in every rack two hosts with four accelerators. Its flavor names the topology.
fn fleet() -> Fleet {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes: hosts(), pools: Vec::new() });
    let levels: Vec<Value> = [BLOCK, RACK, HOST].iter().map(|label| json!({"nodeLabel": label})).collect();
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": levels}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "a"}, "topologyName": "default"}}),
    ]);
    f.settle();
    f
}

fn hosts() -> Vec<NodeSpec> {
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

/// The node of every pod, as the agent holds them.
fn nodes(f: &Fleet, uid: Uid) -> Vec<String> {
    let ledger = f.agents.values().next().unwrap().ledger();
    let offers = f.world.state.workloads()[&uid].legs().keys();
    offers.flat_map(|offer| ledger.placement(*offer)).map(|pod| pod.node).collect()
}

/// The racks of a running gang.
fn racks(f: &Fleet, uid: Uid) -> Vec<String> {
    let mut racks: Vec<String> = nodes(f, uid).into_iter().map(|node| node[..5].to_owned()).collect();
    racks.sort();
    racks.dedup();
    racks
}

#[test]
fn a_gang_that_requires_a_rack_gets_one_or_waits_for_one() {
    let mut f = fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let uids: Vec<Uid> = (0..4).map(|i| submit(&mut f, &format!("near-{i}"), 5, &rack)).collect();
    let mut all: Vec<Vec<String>> = uids.iter().map(|uid| racks(&f, *uid)).collect();
    assert!(all.iter().all(|racks| racks.len() == 1), "{all:?}");
    all.dedup();
    assert_eq!(all.len(), 4, "each rack has room for one");
    // There is room for five more pods, on no rack: no agent needs to be asked for that.
    let fifth = submit(&mut f, "near-4", 5, &rack);
    assert_eq!(f.phase(fifth), Some(Phase::Pending));
    let why = f.why(fifth);
    let reason = why["clusters"][0]["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "pod set `main` must be in one `cloud.provider.com/topology-rack`, and the one with the most room has it for 3 of its 5 pods now"
    );
    assert!(why["wouldHelp"].as_str().unwrap().starts_with("at `eu`: the end of `default/near-"), "{why:#}");
    // Who doesn't mind where takes what is left.
    let anywhere = submit(&mut f, "anywhere", 5, &json!({"kueue.x-k8s.io/podset-preferred-topology": RACK}));
    assert_eq!(f.phase(anywhere), Some(Phase::Running), "{:#}", f.why(anywhere));
    assert_eq!(racks(&f, anywhere).len(), 2);
    f.end(uids[0], EndResult::Succeeded);
    f.pass(Millis(5_000));
    assert_eq!(f.phase(fifth), Some(Phase::Running), "{:#}", f.why(fifth));
    assert_eq!(racks(&f, fifth).len(), 1);
}

#[test]
fn where_the_pods_are_is_told_journaled_and_shown() {
    let mut f = fleet();
    let near = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let plain = f.submit("plain", 2);
    f.settle();
    let workload = |f: &Fleet, uid| f.world.shown(uid).unwrap().workload(None);
    let shown = workload(&f, near);
    let topology = &shown["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    let values = json!([{"individual": {"prefix": "b0-r0-h", "roots": ["0", "1"]}}]);
    assert_eq!(
        *topology,
        json!({"levels": [HOST], "slices": [{"domainCount": 2, "valuesPerLevel": values, "podCounts": {"individual": [4, 1]}}]})
    );
    assert_eq!(f.why(near)["placement"], json!(["main: b0-r0-h0 4, b0-r0-h1 1"]));
    // Who asked for no place in a topology has none there, and stands on nodes all the same.
    let other = workload(&f, plain);
    assert_eq!(other["status"]["admission"]["podSetAssignments"][0].get("topologyAssignment"), None);
    assert!(
        other["status"]["meridian"]["placement"][0]["domains"][0]["values"][0]
            .as_str()
            .unwrap()
            .starts_with('b'),
        "{other:#}"
    );
    // It is a fact of the journal: the next leadership knows it before any agent has spoken.
    f.restart(5, None);
    assert_eq!(workload(&f, near), shown);
    f.settle();
    assert_eq!(workload(&f, near)["status"]["admission"], shown["status"]["admission"]);
    f.end(near, EndResult::Succeeded);
    assert_eq!(workload(&f, near)["status"]["admission"], Value::Null);
}

fn placement(f: &Fleet, uid: Uid) -> Placement {
    let leg = f.world.state.workloads()[&uid].legs().values().next().unwrap();
    leg.placement.as_deref().unwrap().clone()
}

#[test]
fn a_run_that_an_older_journal_does_not_know_brings_its_places_along() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let copy = f.world.snapshot();
    f.settle();
    let told = placement(&f, uid);
    assert_eq!(told.pod_sets[0].pods(), 3);
    f.lead_with_copy(&copy);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.world.live.counts.adoptions, 1);
    assert_eq!(placement(&f, uid), told);
}

#[test]
fn words_about_places_that_are_old_or_of_other_pods_change_nothing() {
    let mut f = fleet();
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let (told, fence) = (placement(&f, uid), f.world.state.workloads()[&uid].fence().unwrap());
    let moved = |revision, pods| {
        let mut moved = Placement { revision, ..told.clone() };
        moved.pod_sets[0].domains = vec![PlacedDomain { values: vec!["b1-r1-h1".into()], pods, kind: 0 }];
        moved
    };
    let name: ClusterName = "eu".into();
    let say = |f: &mut Fleet, placement: Placement| {
        let mut request = f.agents.get_mut(&name).unwrap().compose(now(f.now), Lane::News);
        request.events = vec![Event::Running { uid, fence, placement: Some(Arc::new(placement)) }];
        request.events_from = request.events_last + 1;
        f.world.live.clusters.get_mut(&name).unwrap().events_through = request.events_last;
        f.input(Input::Sync { cluster: name.clone(), request: Box::new(request), may_park: false });
    };
    for nonsense in [moved(0, 5), moved(1, 4), Placement { revision: 1, ..Placement::default() }] {
        say(&mut f, nonsense);
        assert_eq!(placement(&f, uid), told);
    }
    say(&mut f, moved(2, 5));
    assert_eq!(placement(&f, uid), moved(2, 5));
    say(&mut f, moved(1, 5));
    assert_eq!(placement(&f, uid), moved(2, 5), "the older word came later");
}

#[test]
fn pods_of_a_lost_node_move_and_everybody_is_told_where_to() {
    let mut f = fleet();
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": BLOCK}));
    assert_eq!(placement(&f, uid).to_string(), "main: b0-r0-h0 4, b0-r0-h1 1");
    let fence = f.world.state.workloads()[&uid].fence();
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
        f.perform(&name, out.effects);
        f.settle();
    };
    lose(&mut f, &["b0-r0-h1"]);
    let told = placement(&f, uid);
    assert_eq!((told.revision, told.pod_sets[0].domains.len()), (1, 2));
    assert!(!told.to_string().contains("b0-r0-h1") && told.to_string().contains("b0-r0-h0 4"), "{told}");
    assert_eq!(
        (f.phase(uid), f.world.state.workloads()[&uid].fence()),
        (Some(Phase::Running), fence),
        "it is the same attempt"
    );
    f.restart(5, None);
    assert_eq!(placement(&f, uid), told);
    // With both racks of its block half gone there is no place, and the attempt ends; the next one is elsewhere.
    lose(&mut f, &["b0-r0-h0", "b0-r0-h1"]);
    f.pass(Millis(5_000));
    let workload = &f.world.state.workloads()[&uid];
    assert_eq!(workload.history().len(), 1, "there was a place: {:?}", workload.history());
    lose(&mut f, &["b0-r0-h0", "b0-r0-h1", "b0-r1-h0"]);
    f.pass(Millis(5_000));
    let workload = &f.world.state.workloads()[&uid];
    assert!(
        matches!(workload.history()[0].end, Some(AttemptEnd::Reported(EndResult::NodeLost { .. }))),
        "{:?}",
        workload.history()
    );
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert!(placement(&f, uid).to_string().contains("b1-r"), "{}", placement(&f, uid));
}

#[test]
fn nodes_whose_pods_wait_for_another_place_are_shown() {
    let mut f = fleet();
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": BLOCK}));
    let (told, fence) = (placement(&f, uid), f.world.state.workloads()[&uid].fence().unwrap());
    let say = |f: &mut Fleet, revision, unhealthy: &[&str]| {
        let name: ClusterName = "eu".into();
        let unhealthy = unhealthy.iter().map(|node| (*node).to_owned()).collect();
        let mut request = f.agents.get_mut(&name).unwrap().compose(now(f.now), Lane::News);
        request.events = vec![Event::Running {
            uid,
            fence,
            placement: Some(Arc::new(Placement { revision, unhealthy, ..told.clone() })),
        }];
        request.events_from = request.events_last + 1;
        f.world.live.clusters.get_mut(&name).unwrap().events_through = request.events_last;
        f.input(Input::Sync { cluster: name.clone(), request: Box::new(request), may_park: false });
    };
    let shown = |f: &Fleet| f.world.shown(uid).unwrap().workload(None)["status"]["unhealthyNodes"].clone();
    assert_eq!(shown(&f), Value::Null);
    say(&mut f, 1, &["b0-r0-h1"]);
    assert_eq!(shown(&f), json!([{"name": "b0-r0-h1"}]));
    assert_eq!(f.why(uid)["placement"][1], "lost, and its pods wait for another place: b0-r0-h1");
    say(&mut f, 2, &["n"; 9]);
    assert_eq!(shown(&f), json!([{"name": "b0-r0-h1"}]), "more than may be told is not believed");
    say(&mut f, 2, &[]);
    assert_eq!(shown(&f), Value::Null);
}

#[test]
fn slices_and_layers_reach_the_agent() {
    let mut f = fleet();
    let layers = json!([{"topology": RACK, "size": 6}, {"topology": HOST, "size": 3}]).to_string();
    let annotations = json!({"kueue.x-k8s.io/podset-required-topology": BLOCK, "kueue.x-k8s.io/podset-slice-required-topology-constraints": layers});
    let uid = submit(&mut f, "layers", 12, &annotations);
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    let mut hosts: BTreeMap<String, u32> = BTreeMap::new();
    for node in nodes(&f, uid) {
        *hosts.entry(node).or_default() += 1;
    }
    let expect = ["b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1"].map(|host| (host.to_owned(), 3));
    assert_eq!(hosts, BTreeMap::from(expect), "three to a host, six to a rack, all in one block");
}

#[test]
fn a_wish_without_a_topology_is_refused_in_words_and_starts_once_there_is_one() {
    let mut f = fleet();
    let flavor = |spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": spec});
    f.apply(vec![flavor(json!({"nodeLabels": {"pool": "a"}}))]);
    let uid = submit(&mut f, "near", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    let why = |f: &Fleet| f.why(uid)["summary"].as_str().unwrap().to_owned();
    assert_eq!(why(&f), "waits: no flavor of cluster queue `cq` serves the pods: flavor any has no topology");
    f.apply(vec![flavor(json!({"nodeLabels": {"pool": "a"}, "topologyName": "none"}))]);
    assert_eq!(
        why(&f),
        "waits: no flavor of cluster queue `cq` serves the pods: the topology of flavor any isn't known"
    );
    let topology = |name: &str, levels: &[&str]| {
        let levels: Vec<Value> = levels.iter().map(|label| json!({"nodeLabel": label})).collect();
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}})
    };
    f.apply(vec![topology("none", &[BLOCK, HOST])]);
    assert_eq!(
        why(&f),
        "waits: no flavor of cluster queue `cq` serves the pods: flavor any doesn't have the requested topology level"
    );
    f.apply(vec![flavor(json!({"nodeLabels": {"pool": "a"}, "topologyName": "default"}))]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert_eq!(racks(&f, uid).len(), 1);
}

#[test]
fn of_several_flavors_each_serves_whom_its_topology_suits() {
    let mut f = fleet();
    let flavor = |name: &str, topology: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"pool": "a"}, "topologyName": topology}});
    let blocks = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "blocks"}, "spec": {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": HOST}]}});
    let quota = |name: &str| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": 16}]});
    f.apply(vec![
        blocks,
        flavor("blocks", json!("blocks")),
        flavor("none", Value::Null),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [quota("blocks"), quota("none"), quota("any")]}]}}),
    ]);
    let rack = submit(&mut f, "rack", 5, &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let block = submit(&mut f, "block", 5, &json!({"kueue.x-k8s.io/podset-required-topology": BLOCK}));
    let plain = submit(&mut f, "plain", 2, &json!({}));
    let flavors = [rack, block, plain].map(|uid| {
        (
            f.phase(uid),
            f.world.state.workloads()[&uid]
                .flavors()
                .values()
                .map(|flavor| flavor.to_string())
                .collect::<String>(),
        )
    });
    let expect = ["any", "blocks", "none"].map(|flavor| (Some(Phase::Running), flavor.to_owned()));
    assert_eq!(flavors, expect, "none is parked in a flavor that can't serve it");
}

#[test]
fn a_gang_without_a_wish_is_asked_for_as_ever() {
    let mut f = fleet();
    let uid = f.submit("plain", 5);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let gang: &Gang = &f.world.queues.class(f.world.state.workloads()[&uid].class()).gang;
    let written = serde_json::to_value(gang).unwrap();
    assert_eq!(
        written["pod_sets"][0].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["count", "name", "per_pod"]
    );
}

/// A cluster whose queue lets higher priorities displace lower ones.
fn ranked() -> Fleet {
    let mut f = fleet();
    teams(&mut f, [32, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priorities(&mut f, 9);
    f
}

fn submit_ranked(f: &mut Fleet, name: &str, pods: u32, class: &str, annotations: &Value) -> Uid {
    submit_in(f, "a", name, pods, class, annotations)
}

fn submit_in(f: &mut Fleet, queue: &str, name: &str, pods: u32, class: &str, annotations: &Value) -> Uid {
    let mut job = job(
        "default",
        name,
        pods,
        &json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": class}),
        "",
    );
    job["spec"]["template"]["metadata"] = json!({"annotations": annotations});
    match f.apply(vec![job]) {
        Reply::Written(written) => written[0].uid,
        other => panic!("not submitted: {other:?}"),
    }
}

#[test]
fn nobody_stops_for_a_gang_that_no_domain_could_ever_hold() {
    let mut f = ranked();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let low: Vec<Uid> = (0..4).map(|i| submit_ranked(&mut f, &format!("low-{i}"), 8, "low", &rack)).collect();
    f.settle();
    assert_eq!(f.phases(&low), [Some(Phase::Running); 4]);
    let nine = submit_ranked(&mut f, "nine", 9, "high", &rack);
    f.pass(Millis::secs(30));
    assert_eq!(f.phases(&low), [Some(Phase::Running); 4]);
    let reason = "pod set `main` must be in one `cloud.provider.com/topology-rack`, and the largest takes 8 of its 9 pods even with nothing else running";
    assert_eq!(f.why(nine)["clusters"][0]["reason"], reason, "{:#}", f.why(nine));
    let help = "more room within one `cloud.provider.com/topology-rack` there, or fewer or smaller pods, or a topology that is preferred instead of required and more room that comes free there";
    assert_eq!(f.why(nine)["clusters"][0]["wouldHelp"], help);
    // Eight fit into a rack whose gang goes, and only that one goes.
    let eight = submit_ranked(&mut f, "eight", 8, "high", &rack);
    f.settle();
    f.settle();
    assert_eq!(f.phase(eight), Some(Phase::Running), "{:#}", f.why(eight));
    assert_eq!(low.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(), 3);
    // A rack with a third host comes: now others stop for it.
    let third = NodeSpec { name: "b0-r0-h2".into(), ..hosts().remove(0) };
    let third = NodeSpec {
        labels: third
            .labels
            .into_iter()
            .map(|(k, v)| if k == HOST { (k, "b0-r0-h2".to_owned()) } else { (k, v) })
            .collect(),
        ..third
    };
    let nodes = hosts().into_iter().chain([third]).collect();
    f.end(eight, EndResult::Succeeded);
    let out = f
        .agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.perform(&ClusterName::new("eu"), out.effects);
    for _ in 0..10 {
        f.settle();
        f.pass(Millis::secs(5));
    }
    assert_eq!(f.phase(nine), Some(Phase::Running), "{:#}", f.why(nine));
}

#[test]
fn nobody_stops_where_all_of_them_together_would_not_leave_a_domain() {
    let mut f = ranked();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    // In every rack of eight: six that stay, one that could go, and one that is free.
    let six: Vec<Uid> =
        (0..4).map(|i| submit_ranked(&mut f, &format!("six-{i}"), 6, "high", &rack)).collect();
    f.settle();
    let low: Vec<Uid> =
        (0..4).map(|i| submit_ranked(&mut f, &format!("low-{i}"), 1, "low", &json!({}))).collect();
    f.settle();
    assert_eq!(
        (f.phases(&six), f.phases(&low)),
        (vec![Some(Phase::Running); 4], vec![Some(Phase::Running); 4])
    );
    let eight = submit_ranked(&mut f, "eight", 8, "high", &rack);
    f.pass(Millis::secs(30));
    assert_eq!((f.phase(eight), f.phases(&low)), (Some(Phase::Pending), vec![Some(Phase::Running); 4]));
    // By count alone they would have stopped for it, as they do for one that may be anywhere.
    let anywhere = submit_ranked(&mut f, "anywhere", 8, "high", &json!({}));
    f.pass(Millis::secs(5));
    assert_eq!((f.phase(anywhere), f.phases(&low)), (Some(Phase::Running), vec![Some(Phase::Pending); 4]));
}

/// The racks of workloads that were told to stop, and how many those are.
fn stopping(f: &Fleet, all: &[Uid]) -> (Vec<String>, usize) {
    let victims: Vec<Uid> =
        all.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    let mut racks: Vec<String> = victims.iter().flat_map(|uid| racks(f, *uid)).collect();
    racks.sort();
    racks.dedup();
    (racks, victims.len())
}

/// Jobs of one accelerator on all of them. In turn one of each rack is the newest, so that by age alone all racks would lose some.
fn scattered(f: &mut Fleet, annotations: &Value) -> Vec<Uid> {
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_ranked(f, &format!("low-{i}"), 1, "low", annotations));
        f.settle();
    }
    for turn in 0..2 {
        for rack in ["b1-r0", "b0-r1", "b0-r0", "b1-r1"] {
            let at = (0..32)
                .find(|at| {
                    racks(f, low[*at]) == [rack]
                        && f.world.state.workloads()[&low[*at]].name().starts_with("low")
                })
                .unwrap();
            f.end(low[at], EndResult::Succeeded);
            low[at] = submit_ranked(f, &format!("new-{turn}-{rack}"), 1, "low", annotations);
            f.settle();
        }
    }
    assert_eq!(f.phases(&low), [Some(Phase::Running); 32]);
    low
}

/// Other nodes, or pools that can grow.
fn refit(f: &mut Fleet, nodes: Vec<NodeSpec>, pools: Vec<Block>) {
    let out = f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools });
    f.perform(&ClusterName::new("eu"), out.effects);
    f.settle();
}

#[test]
fn those_stop_who_stand_in_one_domain_and_nobody_else() {
    let near = || json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let levels: Vec<Value> = [BLOCK, RACK].iter().map(|label| json!({"nodeLabel": label})).collect();
    let without_hosts = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": levels}});
    let some = || Amounts::from([("cpu".to_owned(), 4_000)]);
    let pool = Block { nodes: 5, free: some(), capacity: some(), ..Block::default() };
    for (pods, topology, low, pools) in [
        (2, None, json!({}), vec![]),
        (8, None, json!({}), vec![]),
        // Only the rack is told.
        (8, Some(without_hosts), json!({"kueue.x-k8s.io/podset-preferred-topology": RACK}), vec![]),
        // The pool has no accelerators.
        (8, None, json!({}), vec![pool]),
    ] {
        let mut f = ranked();
        f.apply(topology.into_iter().collect());
        let told = pools.clone();
        refit(&mut f, hosts(), pools);
        let low = scattered(&mut f, &low);
        let near = submit_ranked(&mut f, "near", pods, "high", &near());
        let victims: Vec<Uid> =
            low.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
        let hit = racks_of_all(&f, &victims);
        assert_eq!((hit.len(), victims.len()), (1, pods as usize), "{hit:?} {told:?}");
        f.settle();
        f.settle();
        assert_eq!(f.phase(near), Some(Phase::Running), "{:#}", f.why(near));
        assert_eq!(racks(&f, near), hit);
        f.pass(Millis::secs(30));
        assert_eq!(
            low.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(),
            32 - pods as usize,
            "nobody went in vain"
        );
    }
}

#[test]
fn an_offer_that_is_under_way_confuses_nobody() {
    let mut f = ranked();
    let low = scattered(&mut f, &json!({}));
    f.end(low[5], EndResult::Succeeded);
    f.settle();
    // It is asked for, and no report has it yet.
    submit_ranked(&mut f, "other", 1, "low", &json!({}));
    let near =
        submit_ranked(&mut f, "near", 8, "high", &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let (hit, victims) = stopping(&f, &low);
    assert_eq!((hit.len(), victims), (1, 8), "{hit:?}");
    f.settle();
    f.settle();
    assert_eq!((f.phase(near), racks(&f, near)), (Some(Phase::Running), hit), "{:#}", f.why(near));
}

fn racks_of_all(f: &Fleet, all: &[Uid]) -> Vec<String> {
    let mut racks: Vec<String> = all.iter().flat_map(|uid| racks(f, *uid)).collect();
    racks.sort();
    racks.dedup();
    racks
}

#[test]
fn nodes_that_change_their_labels_are_found_all_the_same() {
    // One of many that were alike, and a gang that doesn't mind where.
    let mut f = ranked();
    let plain = |node: NodeSpec| NodeSpec {
        labels: node.labels.into_iter().filter(|(label, _)| label == "pool" || label == HOST).collect(),
        ..node
    };
    let mut nodes: Vec<NodeSpec> = hosts().into_iter().map(plain).collect();
    refit(&mut f, nodes.clone(), Vec::new());
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_ranked(&mut f, &format!("low-{i}"), 1, "low", &json!({})));
        f.settle();
    }
    nodes[3].labels.insert("feature".into(), "x".into());
    refit(&mut f, nodes, Vec::new());
    let high = submit_ranked(&mut f, "high", 4, "high", &json!({}));
    assert_eq!(
        low.iter().filter(|uid| f.phase(**uid) == Some(Phase::Stopping)).count(),
        4,
        "{:#}",
        f.why(high)
    );

    // All of them, and a gang that must be in one rack: only one has somebody in it who may go.
    let mut f = ranked();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let mut gangs: Vec<Uid> = Vec::new();
    for (name, pods, class) in
        [("seven", 7, "high"), ("one", 8, "high"), ("other", 8, "high"), ("low", 8, "low")]
    {
        gangs.push(submit_ranked(&mut f, name, pods, class, &rack));
        f.settle();
    }
    assert_eq!(f.phases(&gangs), [Some(Phase::Running); 4]);
    let version = |mut node: NodeSpec| {
        node.labels.insert("version".into(), "2".into());
        node
    };
    refit(&mut f, hosts().into_iter().map(version).collect(), Vec::new());
    let near = submit_ranked(&mut f, "near", 8, "high", &rack);
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(near), f.phase(gangs[3])),
        (Some(Phase::Running), Some(Phase::Pending)),
        "{:#}",
        f.why(near)
    );
}

#[test]
fn of_two_gangs_that_displace_at_once_each_empties_a_domain_of_its_own() {
    let mut f = fleet();
    teams(&mut f, [64, 64], &json!({"withinClusterQueue": "LowerPriority"}));
    priorities(&mut f, 9);
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_in(
            &mut f,
            if i % 2 == 0 { "a" } else { "b" },
            &format!("low-{i}"),
            1,
            "low",
            &json!({}),
        ));
        f.settle();
    }
    for rack in ["b1-r0", "b0-r1", "b0-r0", "b1-r1"] {
        let at = (0..32).find(|at| at % 2 == 1 && racks(&f, low[*at]) == [rack]).unwrap();
        f.end(low[at], EndResult::Succeeded);
        low[at] = submit_in(&mut f, "b", &format!("new-{rack}"), 1, "low", &json!({}));
        f.settle();
    }
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    f.hold_ends = true;
    let one = submit_in(&mut f, "a", "one", 4, "high", &rack);
    f.settle();
    let other = submit_in(&mut f, "b", "other", 4, "high", &rack);
    f.settle();
    for (queue, from) in [("a", 0), ("b", 1)] {
        let stop: Vec<Uid> = low
            .iter()
            .copied()
            .skip(from)
            .step_by(2)
            .filter(|uid| f.phase(*uid) == Some(Phase::Stopping))
            .collect();
        assert_eq!((racks_of_all(&f, &stop).len(), stop.len()), (1, 4), "{queue}");
    }
    let stop: Vec<Uid> = low.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    f.hold_ends = false;
    stop.into_iter().for_each(|uid| f.end(uid, EndResult::Stopped));
    f.settle();
    assert_eq!(f.phases(&[one, other]), [Some(Phase::Running); 2], "{:#}", f.why(other));
}

#[test]
fn a_domain_that_comes_free_is_kept_from_other_queues_too_and_not_for_ever() {
    for hangs in [false, true] {
        let mut f = fleet();
        teams(&mut f, [64, 64], &json!({"withinClusterQueue": "LowerPriority"}));
        priorities(&mut f, 9);
        let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
        // Every rack has two free; only the gang in the first may go.
        let mut six: Vec<Uid> = Vec::new();
        for i in 0..4 {
            six.push(submit_ranked(
                &mut f,
                &format!("six-{i}"),
                6,
                if i == 0 { "low" } else { "high" },
                &rack,
            ));
            f.settle();
        }
        let eight = submit_ranked(&mut f, "eight", 8, "high", &rack);
        f.hold_ends = true;
        f.settle();
        assert_eq!(f.phase(six[0]), Some(Phase::Stopping));
        let small = f.submit_to("b", "small", 1, Some("low"));
        f.settle();
        assert_eq!(f.phase(small), Some(Phase::Pending));
        assert!(
            f.why(small)["clusters"][0]["reason"].as_str().unwrap().contains("default/eight"),
            "{:#}",
            f.why(small)
        );
        if hangs {
            // A stop that takes long keeps nobody else out of the cluster.
            f.pass(Millis::secs(125));
            assert_eq!(
                f.phases(&[eight, small]),
                [Phase::Pending, Phase::Running].map(Some),
                "{:#}",
                f.why(small)
            );
            continue;
        }
        f.hold_ends = false;
        f.end(six[0], EndResult::Stopped);
        f.settle();
        assert_eq!(f.phases(&[eight, small]), [Some(Phase::Running); 2], "{:#}", f.why(eight));
        assert_eq!(
            (racks(&f, eight), six.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count()),
            (vec!["b0-r0".to_owned()], 3)
        );
    }
}

#[test]
fn who_makes_do_with_fewer_is_asked_for_as_many_as_a_domain_has_room_for() {
    let mut f = ranked();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    for i in 0..4 {
        submit_ranked(&mut f, &format!("five-{i}"), 5, "high", &rack);
        f.settle();
    }
    let mut job = job(
        "default",
        "part",
        8,
        &json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": "low"}),
        "",
    );
    job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "3"});
    job["spec"]["template"]["metadata"] = json!({"annotations": rack});
    let Reply::Written(written) = f.apply(vec![job]) else { panic!("not submitted") };
    f.settle();
    assert_eq!(
        (f.phase(written[0].uid), nodes(&f, written[0].uid).len()),
        (Some(Phase::Running), 3),
        "{:#}",
        f.why(written[0].uid)
    );
}

#[test]
fn slices_have_their_domains_made_free_too() {
    let mut f = ranked();
    let low: Vec<Uid> = (0..32)
        .map(|i| {
            let uid = submit_ranked(&mut f, &format!("low-{i}"), 1, "low", &json!({}));
            f.settle();
            uid
        })
        .collect();
    let slices = json!({"kueue.x-k8s.io/podset-slice-required-topology": HOST, "kueue.x-k8s.io/podset-slice-size": "3"});
    let sliced = submit_ranked(&mut f, "sliced", 6, "high", &slices);
    assert_eq!(stopping(&f, &low).1, 6, "{:#}", f.why(sliced));
    f.settle();
    f.settle();
    assert_eq!(f.phase(sliced), Some(Phase::Running), "{:#}", f.why(sliced));
    let mut hosts: BTreeMap<String, u32> = BTreeMap::new();
    nodes(&f, sliced).into_iter().for_each(|node| *hosts.entry(node).or_default() += 1);
    assert_eq!(hosts.into_values().collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn room_that_lies_in_no_one_domain_is_none() {
    let mut f = ranked();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    // In every rack of eight six are taken: by count there is room for eight, and in no rack.
    let six: Vec<Uid> = (0..4).map(|i| submit_ranked(&mut f, &format!("six-{i}"), 6, "low", &rack)).collect();
    f.settle();
    assert_eq!(f.phases(&six), [Some(Phase::Running); 4]);
    let four = submit_ranked(&mut f, "four", 4, "high", &rack);
    assert_eq!(stopping(&f, &six).1, 1, "the rack of one has to come free: {:#}", f.why(four));
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(four), six.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count()),
        (Some(Phase::Running), 3)
    );
}

#[test]
fn nobody_takes_a_part_of_the_domain_that_comes_free_for_another() {
    let mut f = ranked();
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_ranked(&mut f, &format!("low-{i}"), 1, "low", &json!({})));
        f.settle();
    }
    // Those of the first rack are the newest.
    for (i, uid) in low.iter_mut().enumerate().take(8) {
        f.end(*uid, EndResult::Succeeded);
        *uid = submit_ranked(&mut f, &format!("new-{i}"), 1, "low", &json!({}));
        f.settle();
    }
    let near =
        submit_ranked(&mut f, "near", 8, "high", &json!({"kueue.x-k8s.io/podset-required-topology": RACK}));
    let (hit, victims) = stopping(&f, &low);
    assert_eq!((hit.as_slice(), victims), (&["b0-r0".to_owned()][..], 8));
    // One of them ends before the others, and so does somebody elsewhere: whoever comes now fits in either place.
    f.end_unheard(low[0], EndResult::Succeeded);
    f.end_unheard(low[20], EndResult::Succeeded);
    let small = submit_ranked(&mut f, "small", 1, "low", &json!({}));
    for _ in 0..4 {
        f.settle();
    }
    assert_eq!((f.phase(near), racks(&f, near)), (Some(Phase::Running), hit), "{:#}", f.why(near));
    let running =
        |f: &Fleet| low.iter().chain([&small]).filter(|uid| f.phase(**uid) == Some(Phase::Running)).count();
    assert_eq!(running(&f), 24, "what is free elsewhere is taken");
    f.pass(Millis::secs(30));
    assert_eq!((f.phase(near), running(&f)), (Some(Phase::Running), 24));
}

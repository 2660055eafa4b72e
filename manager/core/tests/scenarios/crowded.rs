//! Quota is free, and the clusters are full: others give way by the rights by which they would for quota.

use super::queues::{priorities, teams};
use super::why::{cluster_queue, local_queue};
use super::*;
use meridian_manager_core::facts::record::WorkloadFact;

const LOWER: &str = "LowerPriority";

impl Fleet {
    /// Jobs of one pod each that run in a cluster, one accelerator each.
    fn fill(&mut self, queue: &str, region: &str, jobs: usize) -> Vec<Uid> {
        let one = |i| {
            let uid = self.bound(queue, &format!("{queue}-{region}-{i}"), 1, "low", region);
            self.settle();
            uid
        };
        let all: Vec<Uid> = (0..jobs).map(one).collect();
        assert!(all.iter().all(|uid| self.phase(*uid) == Some(Phase::Running)), "{:?}", self.phases(&all));
        all
    }

    /// A job that may run in one region only.
    fn bound(&mut self, queue: &str, name: &str, pods: u32, class: &str, region: &str) -> Uid {
        let labels = json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": class});
        let mut job = job("default", name, pods, &labels, "");
        job["metadata"]["annotations"] = json!({"meridian.dev/region": region});
        match self.apply(vec![job]) {
            Reply::Written(written) => written[0].uid,
            other => panic!("not submitted: {other:?}"),
        }
    }

    fn running_of(&self, uids: &[Uid]) -> usize {
        uids.iter().filter(|uid| self.phase(**uid) == Some(Phase::Running)).count()
    }
}

#[test]
fn a_full_region_is_no_wall_to_a_higher_priority() {
    let mut f = Fleet::regions();
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
    priorities(&mut f, 9);
    let there = f.fill("a", "europe-west4", 4);
    let elsewhere = f.fill("a", "us-east4", 1);
    let high = f.bound("a", "high", 2, "high", "europe-west4");
    // As few as have to, of the one cluster that it may run in, the newest first.
    assert_eq!(
        f.phases(&there),
        [Phase::Running, Phase::Running, Phase::Stopping, Phase::Stopping].map(Some)
    );
    let stop = "`default/a-europe-west4-2` and `default/a-europe-west4-3` stop for it";
    assert_eq!(
        f.why(high)["summary"],
        format!("waits: 2 workloads were told to stop for it, and it starts when they have; {stop}")
    );
    let stops = "stopping in cluster `eu`: it gives way to `default/high` (priority 9); its room and quota are kept until the stop is confirmed";
    assert_eq!(f.why(there[3])["summary"], stops);
    f.settle();
    assert_eq!((f.at(high).as_deref(), f.running_of(&elsewhere)), (Some("eu"), 1));
    // Those who gave way may run elsewhere, and don't: they are bound to where they were.
    f.pass(Millis::secs(30));
    assert_eq!((f.running_of(&there), f.phase(high)), (2, Some(Phase::Running)));
    let gave_way = f.why(there[3])["summary"].as_str().unwrap().to_owned();
    assert!(
        gave_way.starts_with("waits: ") && gave_way.ends_with("; it gave way to `default/high` (priority 9)"),
        "{gave_way}"
    );
    f.end(high, EndResult::Succeeded);
    f.settle();
    assert_eq!(f.running_of(&there), 4);
}

#[test]
fn nobody_gives_way_who_need_not() {
    for policy in ["Never", LOWER] {
        let mut f = Fleet::regions();
        teams(&mut f, [12, 0], &json!({"withinClusterQueue": policy}));
        priorities(&mut f, 9);
        let there = f.fill("a", "europe-west4", 4);
        // A gang that no cluster could ever hold, one of no higher priority, and one that has room elsewhere.
        let (huge, same) =
            (f.bound("a", "huge", 5, "high", "europe-west4"), f.bound("a", "same", 1, "low", "europe-west4"));
        let free = f.submit_to("a", "free", 4, Some("high"));
        f.settle();
        assert_eq!(
            f.phases(&[huge, same, free]),
            [Phase::Pending, Phase::Pending, Phase::Running].map(Some),
            "{policy}"
        );
        if policy == "Never" {
            let one = f.bound("a", "one", 1, "high", "europe-west4");
            f.settle();
            let why = f.why(one)["summary"].as_str().unwrap().to_owned();
            assert!(why.contains("`default/a-europe-west4-0` (priority 1) were preempted, which `withinClusterQueue: Never` forbids"), "{why}");
        }
        assert_eq!(f.running_of(&there), 4, "{policy}");
    }
}

#[test]
fn room_is_taken_back_from_who_borrows_and_from_nobody_else() {
    let mut f = Fleet::regions();
    teams(&mut f, [6, 2], &json!({"reclaimWithinCohort": "Any"}));
    priorities(&mut f, 9);
    let owned = f.fill("b", "us-east4", 2);
    let early = f.bound("a", "early", 4, "low", "us-east4");
    f.settle();
    assert_eq!((f.phase(early), f.running_of(&owned)), (Some(Phase::Pending), 2), "it has what is its own");
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "early"), uid: None }]);
    let borrowed = f.fill("b", "asia-southeast1", 2);
    // Two of the four are borrowed. Only one that is in the region makes room.
    let mine = f.bound("a", "mine", 3, "low", "us-east4");
    f.settle();
    f.settle();
    assert_eq!(f.phase(mine), Some(Phase::Running), "{:#}", f.why(mine));
    assert_eq!((f.running_of(&owned), f.running_of(&borrowed)), (1, 2));
}

#[test]
fn who_waits_for_room_takes_it_back_as_soon_as_somebody_there_borrows() {
    let mut f = Fleet::regions();
    teams(&mut f, [6, 2], &json!({"reclaimWithinCohort": "Any"}));
    priorities(&mut f, 9);
    let owned = f.fill("b", "us-east4", 2);
    let mine = f.bound("a", "mine", 4, "low", "us-east4");
    f.settle();
    let borrowed = f.bound("b", "borrowed-0", 1, "low", "asia-southeast1");
    f.settle();
    assert_eq!(
        (f.phase(mine), f.running_of(&owned), f.phase(borrowed)),
        (Some(Phase::Pending), 2, Some(Phase::Running)),
        "one of the two is its own"
    );
    // No room comes free, and no object changes.
    f.bound("b", "borrowed-1", 1, "low", "asia-southeast1");
    f.settle();
    f.settle();
    assert_eq!((f.phase(mine), f.running_of(&owned)), (Some(Phase::Running), 0), "{:#}", f.why(mine));
}

#[test]
fn the_room_that_counts_is_that_of_the_flavor() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let node = |name: &str, pool: &str| NodeSpec {
        name: name.into(),
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    let nodes = vec![node("old", "old"), node("new", "new")];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    let flavor = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"pool": name}}});
    let queue = |name: &str, flavors: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {"namespaceSelector": {},
            "preemption": {"withinClusterQueue": LOWER}, "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}})
    };
    let local = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}});
    let quota = |name: &str, nominal: i64| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": nominal}]});
    f.apply(vec![
        flavor("old"),
        flavor("new"),
        queue("other", json!([quota("new", 4)])),
        queue("both", json!([quota("new", 8), quota("old", 4)])),
        local("other"),
        local("both"),
    ]);
    priorities(&mut f, 9);
    f.settle();
    // The new nodes are full, half of them by another queue. Its own has the old ones, too.
    let others = f.submit_to("other", "others", 2, Some("low"));
    f.settle();
    let new = f.submit_to("both", "new", 2, Some("low"));
    f.settle();
    let first = f.submit_to("both", "first", 2, Some("high"));
    f.settle();
    assert_eq!(f.phases(&[others, new, first]), [Some(Phase::Running); 3], "the old nodes are free");
    let second = f.submit_to("both", "second", 4, Some("high"));
    f.settle();
    assert_eq!(
        f.phases(&[others, new, first, second]),
        [Phase::Running, Phase::Running, Phase::Running, Phase::Pending].map(Some),
        "no flavor has four"
    );
    let third = f.submit_to("both", "third", 2, Some("high"));
    f.settle();
    assert_eq!(
        f.phases(&[others, new, third]),
        [Phase::Running, Phase::Running, Phase::Running].map(Some),
        "there are two more of the old ones"
    );
    let fourth = f.submit_to("both", "fourth", 2, Some("high"));
    f.settle();
    f.settle();
    assert_eq!(
        f.phases(&[others, new, fourth]),
        [Phase::Running, Phase::Pending, Phase::Running].map(Some),
        "{:#}",
        f.why(fourth)
    );
}

#[test]
fn a_gang_that_makes_do_with_fewer_pods_comes_before_who_may_give_way_all_the_same() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
    priorities(&mut f, 9);
    let low = f.fill("a", "europe-west4", 3);
    let mut gang = job(
        "default",
        "gang",
        4,
        &json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    gang["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
    f.apply(vec![gang]);
    f.settle();
    // As for quota: all of its pods by displacing others before fewer of them beside the others.
    assert_eq!(f.running_of(&low), 0);
}

#[test]
fn whole_nodes_come_free_and_nobody_else_stops() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let node = |at: u32| NodeSpec {
        name: format!("n{at}"),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    let nodes = (0..4).map(node).collect();
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.quota(100);
    teams(&mut f, [100, 0], &json!({"withinClusterQueue": LOWER}));
    priorities(&mut f, 9);
    f.settle();
    let mut all = f.fill("a", "europe-west4", 16);
    // The newest stand on different nodes.
    for at in [12, 8, 4, 0] {
        f.end(all[at], EndResult::Succeeded);
        all[at] = f.bound("a", &format!("late-{at}"), 1, "low", "europe-west4");
        f.settle();
    }
    assert_eq!(f.running_of(&all), 16);
    let mut whole = job(
        "default",
        "whole",
        1,
        &json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    whole["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 4}, "limits": {GPU: 4}});
    f.apply(vec![whole]);
    let victims: Vec<Uid> =
        all.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    let stands_on = |uid: &Uid| {
        f.world.state.workloads()[uid].legs().values().next().unwrap().placement.as_deref().unwrap().pod_sets
            [0]
        .domains[0]
            .values
            .clone()
    };
    let nodes: std::collections::BTreeSet<Vec<String>> = victims.iter().map(stands_on).collect();
    assert_eq!((victims.len(), nodes.len()), (4, 1), "{nodes:?}");
    f.settle();
    assert_eq!(f.running_of(&all), 12);
}

#[test]
fn nobody_stops_while_another_cluster_is_about_to_say_what_it_has() {
    let mut f = Fleet::without_agents(&[("asia", "asia-southeast1", "SG"), ("eu", "europe-west4", "EU")]);
    f.add_agent("asia", 1_000);
    f.settle();
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
    priorities(&mut f, 9);
    let low = f.fill("a", "asia-southeast1", 4);
    // It has a session, and shows its inventory next.
    f.add_agent("eu", 1_001);
    f.exchange();
    let high = f.submit_to("a", "high", 2, Some("high"));
    f.settle();
    assert_eq!((f.running_of(&low), f.at(high).as_deref()), (4, Some("eu")));
}

#[test]
fn a_pool_is_told_of_where_no_node_has_changed() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let nodes = vec![NodeSpec {
        name: "n".into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    }];
    let refit = |f: &mut Fleet, grows: bool| {
        let room = || Amounts::from([(GPU.to_owned(), 8)]);
        let pool = meridian_shared::packing::Block {
            nodes: 2,
            free: room(),
            capacity: room(),
            ..Default::default()
        };
        let pools = if grows { vec![pool] } else { Vec::new() };
        let out = f
            .agents
            .values_mut()
            .next()
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes: nodes.clone(), pools });
        f.perform(&ClusterName::new("eu"), out.effects);
        f.settle();
    };
    refit(&mut f, false);
    f.quota(100);
    let large = f.submit("large", 8);
    f.settle();
    let asked = |f: &Fleet| f.why(large)["clusters"][0]["verdict"].clone();
    let before = asked(&f);
    refit(&mut f, true);
    f.pass(Millis::secs(10));
    assert_ne!(asked(&f), before, "its pool can grow now: {:#}", f.why(large));
    refit(&mut f, false);
    f.pass(Millis::secs(30));
    let after = f.submit("after", 8);
    f.settle();
    assert_eq!(f.why(after)["clusters"][0]["verdict"], before, "and now it can't");
}

#[test]
fn nodes_are_known_beside_a_gang_of_which_some_pods_have_ended() {
    // Of the gang that goes on no node is told apart where it stands on several; where it stands on one, that is known.
    for gpus in [1, 4] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        let node = |i| NodeSpec {
            name: format!("n{i}"),
            capacity: Amounts::from([(GPU.into(), gpus)]),
            ..NodeSpec::default()
        };
        let nodes = (0..12 / gpus).map(node).collect();
        f.agents
            .values_mut()
            .next()
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
        teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
        priorities(&mut f, 9);
        let gang = f.submit_to("a", "gang", 4, Some("high"));
        f.settle();
        let low = f.fill("a", "europe-west4", 8);
        f.succeed(gang, 1);
        let high = f.submit_to("a", "first", 3, Some("high"));
        f.settle();
        f.settle();
        assert_eq!(
            (f.phase(high), f.running_of(&low), f.phase(gang)),
            (Some(Phase::Running), 6, Some(Phase::Running)),
            "{gpus}: {:#}",
            f.why(high)
        );
    }
}

/// Nobody says on which of its nodes pods have ended.
#[test]
fn a_gang_of_which_some_pods_have_ended_gives_way_too() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let node = |i| NodeSpec {
        name: format!("n{i}"),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    f.agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes: (0..3).map(node).collect(), pools: Vec::new() });
    teams(&mut f, [40, 0], &json!({"withinClusterQueue": LOWER}));
    priorities(&mut f, 9);
    let low = [f.submit_to("a", "six", 6, Some("low")), f.submit_to("a", "five", 5, Some("low"))];
    f.settle();
    f.succeed(low[0], 1);
    let high = f.submit_to("a", "high", 8, Some("high"));
    f.settle();
    f.settle();
    assert_eq!(f.phase(high), Some(Phase::Running), "{:#}", f.why(high));
}

/// Many start in one moment: who gives way among them is who came last, and nobody gives way in turn.
#[test]
fn of_those_who_started_at_once_the_last_to_come_gives_way() {
    for names in [["a", "b", "c", "d"], ["d", "c", "b", "a"]] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        teams(
            &mut f,
            [2, 2],
            &json!({"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}),
        );
        let jobs = names.map(|name| job("default", name, 1, &json!({"kueue.x-k8s.io/queue-name": "a"}), ""));
        let Reply::Written(written) = f.apply(jobs.to_vec()) else { panic!("not submitted") };
        let uids: Vec<Uid> = written.iter().map(|w| w.uid).collect();
        f.settle();
        assert_eq!(f.running_of(&uids), 4);
        let mine = f.submit_to("b", "mine", 2, None);
        let stopping = |f: &Fleet| {
            uids.iter().filter(|uid| f.phase(**uid) == Some(Phase::Stopping)).copied().collect::<Vec<_>>()
        };
        assert_eq!(stopping(&f), uids[2..]);
        for _ in 0..5 {
            f.settle();
        }
        assert_eq!((f.phase(mine), f.running_of(&uids[..2])), (Some(Phase::Running), 2));
        let stops = f
            .records
            .iter()
            .filter(|(_, record)| {
                matches!(record, Record::Workload { fact: WorkloadFact::StopOrdered { .. }, .. })
            })
            .count();
        assert_eq!(stops, 2, "nobody else stopped");
    }
}

/// No node is of two flavors whose labels contradict each other.
#[test]
fn flavors_that_contradict_each_other_are_not_given_together() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let node = |kind: &str| NodeSpec {
        name: kind.into(),
        capacity: Amounts::from([(GPU.into(), 4), ("cpu".into(), 8_000)]),
        labels: [("kind".to_owned(), kind.to_owned())].into(),
        ..NodeSpec::default()
    };
    f.agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes: vec![node("x"), node("y")], pools: Vec::new() });
    let flavor = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"kind": &name[..1]}}});
    let given = |flavor: &str, resource: &str| json!({"name": flavor, "resources": [{"name": resource, "nominalQuota": 8}]});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "both"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": [GPU], "flavors": [given("x-gpu", GPU), given("y-gpu", GPU)]}, {"coveredResources": ["cpu"], "flavors": [given("y-cpu", "cpu")]}]}});
    f.apply(vec![flavor("x-gpu"), flavor("y-gpu"), flavor("y-cpu"), queue, local_queue("both", "both")]);
    let mut one = job("default", "one", 1, &json!({"kueue.x-k8s.io/queue-name": "both"}), "");
    one["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 1, "cpu": 1}, "limits": {GPU: 1}});
    let Reply::Written(written) = f.apply(vec![one]) else { panic!("not submitted") };
    f.settle();
    let given: Vec<&str> =
        f.world.state.workloads()[&written[0].uid].flavors().values().map(|flavor| &**flavor).collect();
    assert_eq!(given, ["y-cpu", "y-gpu"], "{:#}", f.why(written[0].uid));
}

#[test]
fn of_who_stops_already_nothing_else_is_said() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    teams(&mut f, [4, 2], &json!({"withinClusterQueue": LOWER}));
    priorities(&mut f, 9);
    let [_, other] =
        [("a", "low"), ("b", "high")].map(|(queue, class)| f.submit_to(queue, class, 2, Some(class)));
    f.settle();
    f.world.config.starvation_guard = Some(Millis::secs(30));
    let first = f.submit_to("a", "first", 4, Some("high"));
    f.pass(Millis::secs(62));
    f.hold_ends = true;
    f.end(other, EndResult::Succeeded);
    let summary = f.why(first)["summary"].as_str().unwrap().to_owned();
    assert!(
        summary.contains("it would fit if `default/low` (priority 1) were preempted, which was told to stop already; `default/low` stops for it"),
        "{summary}"
    );
}

/// By quota others could give way in its second flavor, whose nodes are too small whoever leaves them.
#[test]
fn who_would_displace_others_in_vain_borrows_instead() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let node = |name: &str, gpus: i64| NodeSpec {
        name: name.to_owned(),
        labels: BTreeMap::from([("kind".to_owned(), name[..1].to_owned())]),
        capacity: Amounts::from([(GPU.into(), gpus)]),
        ..NodeSpec::default()
    };
    let nodes =
        ["b0", "b1", "b2", "b3"].map(|name| node(name, 1)).into_iter().chain([node("a0", 4)]).collect();
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    let flavor = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"kind": name}}});
    let of = |name: &str, nominal: u32| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": nominal}]});
    let queue = |name: &str, flavors: Value| {
        let group = json!([{"coveredResources": [GPU], "flavors": flavors}]);
        let fungibility = json!({"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing"});
        cluster_queue(
            name,
            0,
            &json!({"cohortName": "all", "resourceGroups": group, "flavorFungibility": fungibility, "preemption": {"withinClusterQueue": LOWER}}),
        )
    };
    f.apply(vec![
        flavor("a"),
        flavor("b"),
        queue("mine", json!([of("a", 0), of("b", 4)])),
        queue("lends", json!([of("a", 4)])),
        local_queue("mine", "mine"),
    ]);
    priorities(&mut f, 9);
    let low = f.submit_to("mine", "low", 4, Some("low"));
    f.settle();
    assert_eq!(f.phase(low), Some(Phase::Running), "{:#}", f.why(low));
    let mut large = job(
        "default",
        "large",
        1,
        &json!({"kueue.x-k8s.io/queue-name": "mine", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    for part in ["requests", "limits"] {
        large["spec"]["template"]["spec"]["containers"][0]["resources"][part] = json!({GPU: 2});
    }
    let Reply::Written(written) = f.apply(vec![large]) else { panic!("refused") };
    f.settle();
    assert_eq!(f.phases(&[low, written[0].uid]), [Some(Phase::Running); 2], "{:#}", f.why(written[0].uid));
}

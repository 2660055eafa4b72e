//! A head that smaller ones always pass by: after a while it is passed by nobody, and room is kept for it.

use super::*;

/// One cluster of four GPUs that two jobs share, and a gang that needs them all, which has waited for a minute.
fn passed_by(clusters: &[(&str, &str, &str)], guard: Option<Millis>) -> (Fleet, Uid, [Uid; 2]) {
    let mut f = Fleet::new(clusters);
    f.world.config.starvation_guard = guard;
    let (a, b) = (f.submit("a", 2), f.submit("b", 2));
    f.settle();
    let gang = f.submit("gang", 4);
    f.pass(Millis::secs(62));
    (f, gang, [a, b])
}

/// Submits to a queue that shares nothing with the first one but the clusters.
fn submit_to_other(f: &mut Fleet, name: &str, pods: u32) -> Uid {
    let written = f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "other"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 100}]}]}]}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "other", "namespace": "default"}, "spec": {"clusterQueue": "other"}}),
        job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "other"}), ""),
    ]);
    match written {
        Reply::Written(written) => written[2].uid,
        other => panic!("not submitted: {other:?}"),
    }
}

const GUARD: Option<Millis> = Some(Millis::secs(30));
const EU: &[(&str, &str, &str)] = &[("eu", "europe-west4", "EU")];

#[test]
fn a_gang_is_passed_by_as_long_as_the_guard_says() {
    for guard in [None, Some(Millis::mins(60)), GUARD] {
        let (mut f, gang, [a, b]) = passed_by(EU, guard);
        let small = f.submit("small", 2);
        f.end(a, EndResult::Succeeded);
        assert_eq!(
            f.phase(small),
            Some(if guard == GUARD { Phase::Pending } else { Phase::Running }),
            "{guard:?}"
        );
        assert_eq!(f.phase(gang), Some(Phase::Pending));
        if guard == GUARD {
            assert_eq!(
                f.why(gang)["summary"],
                "waits: the only cluster can't start it now: room for 2 of 4 pods of `main` now; it would fit if `default/b` (priority 0) were preempted, which `withinClusterQueue: Never` forbids; it has waited so long that nobody \
                 passes it by: room is kept for it in `eu`, and one workload has to end there first"
            );
            f.end(b, EndResult::Succeeded);
            assert_eq!((f.phase(gang), f.phase(small)), (Some(Phase::Running), Some(Phase::Pending)));
            f.end(gang, EndResult::Succeeded);
            assert_eq!(f.phase(small), Some(Phase::Running));
        }
    }
}

#[test]
fn a_queue_that_is_opened_again_still_passes_nobody_by() {
    let (mut f, gang, [a, _]) = passed_by(EU, GUARD);
    let small = f.submit("small", 2);
    f.end(a, EndResult::Succeeded);
    let queue = |stop: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "stopPolicy": stop,
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 100}]}]}]}})
    };
    for stop in ["Hold", "None"] {
        f.apply(vec![queue(stop)]);
        f.settle();
        assert_eq!((f.phase(gang), f.phase(small)), (Some(Phase::Pending), Some(Phase::Pending)), "{stop}");
    }
}

/// A pod set is of one flavor: what two flavors have together is of no use.
#[test]
fn room_is_kept_where_one_flavor_has_it() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.world.config.starvation_guard = GUARD;
    let node = |name: &str, kind: &str, gpus: i64| NodeSpec {
        name: name.into(),
        capacity: Amounts::from([(GPU.into(), gpus)]),
        labels: [("kind".to_owned(), kind.to_owned())].into(),
        ..NodeSpec::default()
    };
    for (cluster, nodes) in
        [("eu", vec![node("x", "x", 4), node("y", "y", 4)]), ("us", vec![node("z", "x", 8)])]
    {
        f.agents
            .get_mut(&ClusterName::new(cluster))
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    }
    let flavor = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"kind": name}}});
    let given = |flavor: &str| json!({"name": flavor, "resources": [{"name": GPU, "nominalQuota": 100}]});
    f.apply(vec![
        flavor("x"),
        flavor("y"),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [given("x"), given("y")]}]}}),
    ]);
    f.settle();
    let there = f.submit("there", 6);
    f.settle();
    assert_eq!(f.at(there).as_deref(), Some("us"));
    let gang = f.submit("gang", 8);
    f.pass(Millis::secs(62));
    assert!(
        f.why(gang)["summary"].as_str().unwrap().contains("room is kept for it in `us`"),
        "{:#}",
        f.why(gang)
    );
    let elsewhere = submit_to_other(&mut f, "elsewhere", 3);
    f.settle();
    assert_eq!(f.at(elsewhere).as_deref(), Some("eu"), "{:#}", f.why(elsewhere));
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.at(gang).as_deref(), Some("us"));
}

#[test]
fn room_is_kept_in_one_cluster_and_other_queues_dont_take_it() {
    let (mut f, gang, [a, b]) = passed_by(EU, GUARD);
    f.apply(vec![
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}}),
    ]);
    let elsewhere = submit_to_other(&mut f, "elsewhere", 2);
    f.end(a, EndResult::Succeeded);
    assert_eq!(f.phase(elsewhere), Some(Phase::Pending));
    let words = f.why(elsewhere)["clusters"][0]["reason"].clone();
    assert_eq!(words, "its room is kept for `default/gang`, which waits too long");
    // Another cluster serves both: the gang is first there, and what was kept for it is free.
    f.add_agent("us", 2_000);
    f.settle();
    f.settle();
    assert_eq!((f.at(gang).as_deref(), f.at(elsewhere).as_deref()), (Some("us"), Some("eu")));
    assert_eq!(f.phase(b), Some(Phase::Running));
}

#[test]
fn what_it_wont_need_is_used_meanwhile() {
    let mut f = Fleet::new(EU);
    f.world.config.starvation_guard = GUARD;
    // The first two are expected to end first: the gang waits for their room, and the third one's isn't needed.
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let uid = f.submit(name, if name == "c" { 2 } else { 1 });
        f.settle();
        uid
    });
    let gang = f.submit("gang", 2);
    f.pass(Millis::secs(62));
    let small = f.submit("small", 1);
    f.end(a, EndResult::Succeeded);
    assert_eq!(
        (f.phase(gang), f.phase(small)),
        (Some(Phase::Pending), Some(Phase::Pending)),
        "what came free is the gang's"
    );
    f.end(c, EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.phase(small)), (Some(Phase::Running), Some(Phase::Running)));
    assert_eq!(f.phase(b), Some(Phase::Running));
}

#[test]
fn who_could_never_start_holds_nobody_up() {
    let (mut f, _, [a, b]) = passed_by(EU, GUARD);
    for uid in [a, b] {
        f.end(uid, EndResult::Succeeded);
    }
    // No cluster is large enough for this one, whoever ends; with a higher priority it is the queue's head.
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100})]);
    let huge = f.submit_in("default", "huge", 5, json!({"kueue.x-k8s.io/priority-class": "high"}));
    f.pass(Millis::secs(40));
    let small = f.submit("small", 1);
    f.end(f.running[0].1, EndResult::Succeeded);
    assert_eq!((f.phase(huge), f.phase(small)), (Some(Phase::Pending), Some(Phase::Running)));
}

#[test]
fn of_two_the_one_that_waits_longer_comes_first() {
    let (mut f, first, [a, b]) = passed_by(EU, GUARD);
    let second = submit_to_other(&mut f, "second", 4);
    f.pass(Millis::secs(32));
    f.end(a, EndResult::Succeeded);
    f.end(b, EndResult::Succeeded);
    assert_eq!((f.phase(first), f.phase(second)), (Some(Phase::Running), Some(Phase::Pending)));
    f.restart(2, Some(RecoveryStart { restored: false, members_unknown: false }));
    f.settle();
    f.settle();
    f.end(first, EndResult::Succeeded);
    assert_eq!(f.phase(second), Some(Phase::Running));
}

/// A job of six pods that makes do with four, while a stream of small ones never leaves four free at once.
fn makes_do_with_fewer(quota: u32, clusters: &[(&str, &str, &str)]) {
    let mut f = Fleet::new(clusters);
    f.world.config.starvation_guard = GUARD;
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": quota}]}]}]}}),
    ]);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let mut small: Vec<Uid> = (0..quota).map(|at| f.submit(&format!("small-{at}"), 1)).collect();
    f.settle();
    let mut gang = job("default", "gang", 6, &labels, "");
    gang["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "4"});
    let Reply::Written(written) = f.apply(vec![gang]) else { panic!("refused") };
    let gang = written[0].uid;
    for round in 0..60 {
        if f.phase(gang) == Some(Phase::Running) {
            assert!(f.now > 31_000, "it was passed by at first");
            return;
        }
        small.push(f.submit(&format!("later-{round}"), 1));
        if let Some(at) = small.iter().position(|uid| f.phase(*uid) == Some(Phase::Running)) {
            f.end(small.remove(at), EndResult::Succeeded);
        }
        f.pass(Millis::secs(2));
    }
    panic!("smaller ones passed it by for two minutes: {}", f.why(gang)["summary"]);
}

#[test]
fn room_for_the_fewest_pods_that_do_is_kept_where_there_is_never_room_for_all() {
    makes_do_with_fewer(4, EU);
    makes_do_with_fewer(
        12,
        &[("eu", "europe-west4", "EU"), ("us", "us-east4", "US"), ("asia", "asia-southeast1", "SG")],
    );
}

/// A cluster of five GPUs of which four are used, and a gang for which four are kept as others end.
fn four_of_five_are_kept(pools: Vec<meridian_shared::packing::Block>) -> (Fleet, Uid, [Uid; 2]) {
    let mut f = Fleet::new(EU);
    let nodes = vec![NodeSpec {
        name: "n".into(),
        capacity: Amounts::from([(GPU.into(), 5)]),
        ..NodeSpec::default()
    }];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools });
    f.world.config.starvation_guard = GUARD;
    f.quota(100);
    let two = [f.submit("a", 2), f.submit("b", 2)];
    f.settle();
    let gang = f.submit("gang", 4);
    f.pass(Millis::secs(62));
    f.end(two[0], EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.phase(two[1])), (Some(Phase::Pending), Some(Phase::Running)));
    (f, gang, two)
}

#[test]
fn who_makes_do_with_fewer_takes_what_is_left_beside_what_is_kept() {
    // Two pods would fit the three that are free, and break into what is kept. That nodes could be made for two changes nothing:
    // the agent would place them where there is room.
    for grows in [false, true] {
        let room = || Amounts::from([(GPU.to_owned(), 2)]);
        let pool = meridian_shared::packing::Block {
            nodes: 1,
            free: room(),
            capacity: room(),
            ..Default::default()
        };
        let (mut f, gang, [_, b]) = four_of_five_are_kept(if grows { vec![pool] } else { Vec::new() });
        let mut fewer = job("default", "fewer", 2, &json!({"kueue.x-k8s.io/queue-name": "other"}), "");
        fewer["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
        submit_to_other(&mut f, "large", 90);
        let Reply::Written(written) = f.apply(vec![fewer]) else { panic!("refused") };
        let fewer = written[0].uid;
        f.settle();
        assert_eq!(f.phase(fewer), Some(Phase::Running), "it grows: {grows}; {:#}", f.why(fewer));
        f.end(b, EndResult::Succeeded);
        assert_eq!(f.phase(gang), Some(Phase::Running), "it grows: {grows}");
    }
}

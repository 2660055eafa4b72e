//! The starvation guard: after a time limit nothing starts before a head that smaller workloads keep
//! overtaking, and capacity is reserved for it.

use super::*;
use meridian_shared::packing::Block;

/// Clusters of four GPUs: two jobs use one of them, and a gang that needs all four GPUs has been pending for
/// a minute.
fn starved_gang(clusters: &[(&str, &str, &str)], guard: Option<Millis>) -> (Fleet, Uid, [Uid; 2]) {
    let mut f = Fleet::new(clusters);
    f.world.config_mut().starvation_guard = guard;
    let (a, b) = (f.submit("a", 2), f.submit("b", 2));
    f.settle();
    let gang = f.submit("gang", 4);
    f.advance(Millis::secs(62));
    (f, gang, [a, b])
}

/// Submits to a queue that shares nothing with the first one but the clusters.
fn submit_to_other(f: &mut Fleet, name: &str, pods: u32) -> Uid {
    let written = f.apply(vec![
        cluster_queue("other", 100, &json!({})),
        local_queue("other", "other"),
        job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "other"}), ""),
    ]);
    match written {
        Reply::Written(written) => written[2].uid,
        other => panic!("not submitted: {other:?}"),
    }
}

const GUARD: Option<Millis> = Some(Millis::secs(30));

#[test]
fn a_gang_is_overtaken_until_the_guard_applies() {
    for guard in [None, Some(Millis::mins(60)), GUARD] {
        let (mut f, gang, [a, b]) = starved_gang(EU, guard);
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
                "pending: the only cluster, `eu`, has no room: 2 of 4 pods of `main` fit now; preempting \
                 workload `default/b` (priority 0) would be enough, but `withinClusterQueue: Never` forbids \
                 it; it has waited too long, so capacity is reserved for it in cluster `eu`, where 1 \
                 workload has to end first"
            );
            f.end(b, EndResult::Succeeded);
            assert_eq!((f.phase(gang), f.phase(small)), (Some(Phase::Running), Some(Phase::Pending)));
            f.end(gang, EndResult::Succeeded);
            assert_eq!(f.phase(small), Some(Phase::Running));
        }
    }
}

#[test]
fn the_guard_still_applies_after_a_queue_was_on_hold() {
    let (mut f, gang, [a, _]) = starved_gang(EU, GUARD);
    let small = f.submit("small", 2);
    f.end(a, EndResult::Succeeded);
    let queue = |stop: &str| cluster_queue("cq", 100, &json!({"stopPolicy": stop}));
    for stop in ["Hold", "None"] {
        f.apply(vec![queue(stop)]);
        f.settle();
        assert_eq!((f.phase(gang), f.phase(small)), (Some(Phase::Pending), Some(Phase::Pending)), "{stop}");
    }
}

/// A pod set gets one flavor, so the sum of two flavors doesn't help.
#[test]
fn capacity_is_reserved_where_a_single_flavor_has_enough() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.world.config_mut().starvation_guard = GUARD;
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
    let flavor = |name: &str| kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"kind": name}}));
    let flavors = [flavor_quota("x", 100), flavor_quota("y", 100)];
    let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
    f.apply(vec![flavor("x"), flavor("y"), cluster_queue("cq", 0, &json!({"resourceGroups": groups}))]);
    f.settle();
    let running = f.submit("there", 6);
    f.settle();
    assert_eq!(f.cluster_of(running).as_deref(), Some("us"));
    let gang = f.submit("gang", 8);
    f.advance(Millis::secs(62));
    assert!(
        f.why(gang)["summary"].as_str().unwrap().contains("capacity is reserved for it in cluster `us`"),
        "{:#}",
        f.why(gang)
    );
    let elsewhere = submit_to_other(&mut f, "elsewhere", 3);
    f.settle();
    assert_eq!(f.cluster_of(elsewhere).as_deref(), Some("eu"), "{:#}", f.why(elsewhere));
    f.end(running, EndResult::Succeeded);

    assert_eq!(f.cluster_of(gang).as_deref(), Some("us"));
}

#[test]
fn other_queues_dont_take_the_capacity_reserved_for_a_starved_gang() {
    let (mut f, gang, [a, b]) = starved_gang(EU, GUARD);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    let elsewhere = submit_to_other(&mut f, "elsewhere", 2);
    f.end(a, EndResult::Succeeded);
    assert_eq!(f.phase(elsewhere), Some(Phase::Pending));
    let words = f.why(elsewhere)["clusters"][0]["reason"].clone();
    assert_eq!(words, "its free capacity is reserved for workload `default/gang`, which has waited too long");
    // A second cluster joins. The gang starts there, and its reservation ends.
    f.add_agent("us", 2_000);
    f.settle();
    f.settle();
    assert_eq!((f.cluster_of(gang).as_deref(), f.cluster_of(elsewhere).as_deref()), (Some("us"), Some("eu")));
    assert_eq!(f.phase(b), Some(Phase::Running));
}

#[test]
fn capacity_that_a_starved_gang_doesnt_need_is_used() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().starvation_guard = GUARD;
    // `a` and `b` are expected to end first, and their capacity is reserved for the gang. That of `c` isn't
    // needed.
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let uid = f.submit(name, if name == "c" { 2 } else { 1 });
        f.settle();
        uid
    });
    let gang = f.submit("gang", 2);
    f.advance(Millis::secs(62));
    let small = f.submit("small", 1);
    f.end(a, EndResult::Succeeded);
    assert_eq!(
        (f.phase(gang), f.phase(small)),
        (Some(Phase::Pending), Some(Phase::Pending)),
        "the freed capacity is reserved for the gang"
    );
    f.end(c, EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.phase(small)), (Some(Phase::Running), Some(Phase::Running)));
    assert_eq!(f.phase(b), Some(Phase::Running));
}

#[test]
fn a_head_that_could_never_start_blocks_nothing() {
    let (mut f, _, [a, b]) = starved_gang(EU, GUARD);
    for uid in [a, b] {
        f.end(uid, EndResult::Succeeded);
    }
    // No cluster is large enough for `huge`. With its high priority it is the head of the queue.
    f.apply(vec![priority_class("high", 100)]);
    let huge = f.submit_in("default", "huge", 5, json!({"kueue.x-k8s.io/priority-class": "high"}));
    f.advance(Millis::secs(40));
    let small = f.submit("small", 1);
    f.end(f.running[0].1, EndResult::Succeeded);
    assert_eq!((f.phase(huge), f.phase(small)), (Some(Phase::Pending), Some(Phase::Running)));
}

#[test]
fn among_two_starved_gangs_the_older_starts_first() {
    let (mut f, first, [a, b]) = starved_gang(EU, GUARD);
    let second = submit_to_other(&mut f, "second", 4);
    f.advance(Millis::secs(32));
    f.end(a, EndResult::Succeeded);
    f.end(b, EndResult::Succeeded);
    assert_eq!((f.phase(first), f.phase(second)), (Some(Phase::Running), Some(Phase::Pending)));
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    f.end(first, EndResult::Succeeded);
    assert_eq!(f.phase(second), Some(Phase::Running));
}

/// A job of six pods with a minimum of four, while a stream of small jobs never leaves four GPUs free at
/// once.
fn check_partial_admission(quota: u32, clusters: &[(&str, &str, &str)]) {
    let mut f = Fleet::new(clusters);
    f.world.config_mut().starvation_guard = GUARD;
    f.apply(vec![cluster_queue("cq", quota, &json!({}))]);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let mut small: Vec<Uid> = (0..quota).map(|at| f.submit(&format!("small-{at}"), 1)).collect();
    f.settle();
    let mut gang = job("default", "gang", 6, &labels, "");
    gang["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "4"});
    let gang = f.create(gang);
    for round in 0..60 {
        if f.phase(gang) == Some(Phase::Running) {
            assert!(f.now > 31_000, "small jobs overtake it until the guard applies");
            return;
        }
        small.push(f.submit(&format!("later-{round}"), 1));
        if let Some(at) = small.iter().position(|uid| f.phase(*uid) == Some(Phase::Running)) {
            f.end(small.remove(at), EndResult::Succeeded);
        }
        f.advance(Millis::secs(2));
    }
    panic!("small jobs overtook the gang for two minutes: {}", f.why(gang)["summary"]);
}

#[test]
fn capacity_is_reserved_for_the_minimum_if_not_for_all_pods() {
    check_partial_admission(4, EU);
    check_partial_admission(
        12,
        &[("eu", "europe-west4", "EU"), ("us", "us-east4", "US"), ("asia", "asia-southeast1", "SG")],
    );
}

/// A cluster of five GPUs, of which two jobs use four. Four are being reserved for a gang, and one of the
/// jobs ended.
fn reservation_of_four_in_five(pools: Vec<Block>) -> (Fleet, Uid, [Uid; 2]) {
    let mut f = Fleet::new(EU);
    let nodes = vec![NodeSpec {
        name: "n".into(),
        capacity: Amounts::from([(GPU.into(), 5)]),
        ..NodeSpec::default()
    }];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools });
    f.world.config_mut().starvation_guard = GUARD;
    f.quota(100);
    let two = [f.submit("a", 2), f.submit("b", 2)];
    f.settle();
    let gang = f.submit("gang", 4);
    f.advance(Millis::secs(62));
    f.end(two[0], EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.phase(two[1])), (Some(Phase::Pending), Some(Phase::Running)));
    (f, gang, two)
}

#[test]
fn partial_admission_uses_only_capacity_that_isnt_reserved() {
    // Three GPUs are free and one of them isn't reserved, so two pods don't fit. A growable pool for two pods
    // changes nothing, because the agent places pods on free nodes first.
    for growable in [false, true] {
        let gpus = || Amounts::from([(GPU.to_owned(), 2)]);
        let pool = Block { nodes: 1, free: gpus(), capacity: gpus(), ..Block::default() };
        let (mut f, gang, [_, b]) =
            reservation_of_four_in_five(if growable { vec![pool] } else { Vec::new() });
        let mut fewer = job("default", "fewer", 2, &json!({"kueue.x-k8s.io/queue-name": "other"}), "");
        fewer["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
        submit_to_other(&mut f, "large", 90);
        let fewer = f.create(fewer);
        f.settle();
        assert_eq!(f.phase(fewer), Some(Phase::Running), "growable pool: {growable}; {:#}", f.why(fewer));
        f.end(b, EndResult::Succeeded);
        assert_eq!(f.phase(gang), Some(Phase::Running), "growable pool: {growable}");
    }
}

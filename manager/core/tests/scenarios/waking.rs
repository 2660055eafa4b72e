//! What wakes whom: whoever waits is looked at again once what it waits for may be there.

use super::*;

fn queue(quotas: &[(&str, i64)], strategy: &str) -> Vec<Value> {
    let of = |(name, quota): &(&str, i64)| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": quota}]});
    let flavors: Vec<Value> = quotas.iter().map(of).collect();
    let mut objects: Vec<Value> =
        quotas.iter().map(|(name, _)| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}})).collect();
    objects.push(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100}));
    objects.push(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "queueingStrategy": strategy, "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}}));
    objects
}

#[test]
fn a_cluster_that_comes_back_lets_priority_displace() {
    for strategy in ["BestEffortFIFO", "StrictFIFO"] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        f.apply(queue(&[("any", 4)], strategy));
        let low = f.submit("low", 4);
        f.settle();
        assert_eq!(f.phase(low), Some(Phase::Running));
        // Nobody is displaced for the sake of room in a cluster that takes no work.
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
        let high = f.submit_in("default", "high", 4, json!({"kueue.x-k8s.io/priority-class": "high"}));
        f.settle();
        assert_eq!((f.phase(low), f.phase(high)), (Some(Phase::Running), Some(Phase::Pending)));
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
        f.settle();
        assert_eq!((f.phase(low), f.phase(high)), (Some(Phase::Pending), Some(Phase::Running)), "{strategy}");
    }
}

#[test]
fn whoever_found_room_for_no_flavor_is_looked_at_when_there_is_room() {
    for (strategy, second) in
        [("BestEffortFIFO", 0), ("StrictFIFO", 0), ("BestEffortFIFO", 8), ("StrictFIFO", 8)]
    {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        f.apply(queue(&[("any", 8), ("other", second)], strategy));
        let first = f.submit("first", 3);
        f.settle();
        let next = f.submit("next", 3);
        f.settle();
        assert_eq!((f.phase(first), f.phase(next)), (Some(Phase::Running), Some(Phase::Pending)));
        // A second cluster joins: nothing of the queue's own has changed.
        f.apply(vec![
            json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}}),
        ]);
        f.settle();
        assert_eq!(f.phase(next), Some(Phase::Pending));
        f.add_agent("us", 2_000);
        f.settle();
        f.settle();
        assert_eq!(
            (f.phase(next), f.at(next).as_deref()),
            (Some(Phase::Running), Some("us")),
            "{strategy} {second}"
        );
    }
}

#[test]
fn a_silent_cluster_that_is_heard_again_is_used() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.cut.push("eu".into());
    f.pass(meridian_shared::lease::silence(TERM));
    let waits = f.submit("waits", 1);
    assert_eq!(f.phase(waits), Some(Phase::Pending));
    f.cut.clear();
    f.settle();
    assert_eq!(f.phase(waits), Some(Phase::Running));
}

#[test]
fn what_a_turn_leaves_undecided_is_decided_in_the_next_at_once() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.world.config.heads_max = 1;
    let jobs = (0..4).map(|i| Change::Put {
        object: object(job(
            "default",
            &format!("job-{i}"),
            1,
            &json!({"kueue.x-k8s.io/queue-name": "lq"}),
            "",
        )),
        scope: None,
        uid: Uid(9_000 + i),
        mode: PutMode::Create,
    });
    f.write(jobs.collect());
    let reserved = |f: &Fleet| f.world.state.workloads().values().filter(|w| w.phase().charged()).count();
    assert_eq!(reserved(&f), 1);
    for decided in 2..=4 {
        assert!(f.world.undecided());
        let at = now(f.now);
        assert_eq!(f.world.next_deadline(at), Some(at.mono), "nobody has to say anything");
        f.input(Input::Turn);
        assert_eq!(reserved(&f), decided);
    }
    f.input(Input::Turn);
    assert!(!f.world.undecided());
    assert_eq!(f.world.live.counts.cut_short, 4);
}

#[test]
fn whoever_is_woken_again_and_again_hides_nobody() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.world.config.heads_max = 1;
    // Ten that no cluster has the room for, each of a kind of its own, before the one that fits.
    let pods = (0..10).map(|i| (format!("large-{i}"), 10 + i)).chain([("small".to_owned(), 1)]);
    let jobs = pods.enumerate().map(|(i, (name, pods))| Change::Put {
        object: object(job("default", &name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "")),
        scope: None,
        uid: Uid(9_000 + i as u128),
        mode: PutMode::Create,
    });
    f.write(jobs.collect());
    let mut turns = 1;
    while f.phase(Uid(9_010)) == Some(Phase::Pending) {
        // Whatever happens in between wakes them all, so that each turn begins with the first.
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
        f.input(Input::Turn);
        turns += 1;
        assert!(turns <= 5, "the turns that follow look at 2, 4, 8 and 16");
    }
}

#[test]
fn fewer_pods_start_whatever_flavors_come_after_the_one_that_has_the_quota() {
    for second in [None, Some(0), Some(8)] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        let quotas: Vec<(&str, i64)> =
            [("any", 8)].into_iter().chain(second.map(|quota| ("other", quota))).collect();
        f.apply(queue(&quotas, "BestEffortFIFO"));
        f.submit("first", 2);
        f.settle();
        let mut gang = job("default", "gang", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        gang["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
        let Reply::Written(written) = f.apply(vec![gang]) else { panic!("refused") };
        f.settle();
        assert_eq!(f.phase(written[0].uid), Some(Phase::Running), "{second:?}: {:#}", f.why(written[0].uid));
    }
}

#[test]
fn whoever_recovery_held_back_is_looked_at_when_its_own_term_has_passed() {
    for members_unknown in [false, true] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        let first = f.submit("first", 4);
        f.settle();
        let next = f.submit("next", 2);
        f.restart(2, Some(RecoveryStart { restored: false, members_unknown }));
        if members_unknown {
            f.confirm_rules();
        }
        f.settle();
        f.end(first, EndResult::Succeeded);
        assert_eq!(
            f.phase(next),
            Some(if members_unknown { Phase::Pending } else { Phase::Running }),
            "{:#}",
            f.why(next)
        );
        // Nothing else happens.
        f.pass(TERM + Millis::secs(4));
        assert_eq!(
            f.phase(next),
            Some(Phase::Running),
            "members are unknown: {members_unknown}; {:#}",
            f.why(next)
        );
    }
}

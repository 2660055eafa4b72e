//! Requeueing: an inadmissible workload is evaluated again once the capacity or quota that it lacks may be
//! there.

use super::*;
use meridian_manager_core::live::counts::Count;

fn queue(quotas: &[(&str, i64)], strategy: &str) -> Vec<Value> {
    let flavors: Vec<Value> = quotas.iter().map(|(name, quota)| flavor_quota(name, *quota)).collect();
    let mut objects: Vec<Value> = quotas.iter().map(|(name, _)| resource_flavor(name)).collect();
    objects.push(priority_class("high", 100));
    let spec = json!({
        "namespaceSelector": {}, "queueingStrategy": strategy,
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
    });
    objects.push(kueue_object("ClusterQueue", "cq", spec));
    objects
}

#[test]
fn a_workload_preempts_once_its_cluster_is_uncordoned() {
    for strategy in ["BestEffortFIFO", "StrictFIFO"] {
        let mut f = Fleet::new(EU);
        f.apply(queue(&[("any", 4)], strategy));
        let low = f.submit("low", 4);
        f.settle();
        assert_eq!(f.phase(low), Some(Phase::Running));
        // A cordoned cluster takes no work, so preemption there would be useless.
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
fn a_workload_without_capacity_starts_once_a_cluster_joins() {
    for (strategy, second) in
        [("BestEffortFIFO", 0), ("StrictFIFO", 0), ("BestEffortFIFO", 8), ("StrictFIFO", 8)]
    {
        let mut f = Fleet::new(EU);
        f.apply(queue(&[("any", 8), ("other", second)], strategy));
        let first = f.submit("first", 3);
        f.settle();
        let next = f.submit("next", 3);
        f.settle();
        assert_eq!((f.phase(first), f.phase(next)), (Some(Phase::Running), Some(Phase::Pending)));
        // A second cluster joins. Nothing changes in the queue.
        f.apply(vec![cluster_object("us", "us-east4", "US")]);
        f.settle();
        assert_eq!(f.phase(next), Some(Phase::Pending));
        f.add_agent("us", 2_000);
        f.settle();
        f.settle();
        assert_eq!(
            (f.phase(next), f.cluster_of(next).as_deref()),
            (Some(Phase::Running), Some("us")),
            "{strategy} {second}"
        );
    }
}

#[test]
fn a_workload_starts_once_its_cluster_reconnects() {
    let mut f = Fleet::new(EU);
    f.disconnected.push("eu".into());
    f.advance(meridian_shared::lease::disconnect_after(TERM));
    let uid = f.submit("waits", 1);
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    f.disconnected.clear();
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn heads_over_the_limit_of_a_turn_are_evaluated_in_the_next() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().heads_max = 1;
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
    let reserved = |f: &Fleet| f.world.state().workloads().values().filter(|w| w.phase().charged()).count();
    assert_eq!(reserved(&f), 1);
    for decided in 2..=4 {
        assert!(f.world.undecided());
        let at = now(f.now);
        assert_eq!(
            f.world.next_deadline(at),
            Some(at.mono),
            "the next turn is due now, without another input"
        );
        f.input(Input::Turn);
        assert_eq!(reserved(&f), decided);
    }
    f.input(Input::Turn);
    assert!(!f.world.undecided());
    assert_eq!(f.world.live().counts().of(Count::CutShort), 4);
}

#[test]
fn repeated_requeueing_doesnt_starve_heads_at_the_end() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().heads_max = 1;
    // Ten workloads of different classes that fit in no cluster, before the one that fits.
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
        // Each event requeues all of them, so that each turn begins with the first.
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
        f.input(Input::Turn);
        turns += 1;
        assert!(turns <= 5, "the next turns evaluate 2, 4, 8 and 16 heads");
    }
}

#[test]
fn partial_admission_doesnt_depend_on_later_flavors() {
    for second in [None, Some(0), Some(8)] {
        let mut f = Fleet::new(EU);
        let quotas: Vec<(&str, i64)> =
            [("any", 8)].into_iter().chain(second.map(|quota| ("other", quota))).collect();
        f.apply(queue(&quotas, "BestEffortFIFO"));
        f.submit("first", 2);
        f.settle();
        let mut gang = job("default", "gang", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        gang["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
        let gang = f.create(gang);
        f.settle();
        assert_eq!(f.phase(gang), Some(Phase::Running), "{second:?}: {:#}", f.why(gang));
    }
}

#[test]
fn a_workload_held_by_recovery_starts_after_the_lease_term() {
    for members_unknown in [false, true] {
        let mut f = Fleet::new(EU);
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
        // Only time passes.
        f.advance(TERM + Millis::secs(4));
        assert_eq!(
            f.phase(next),
            Some(Phase::Running),
            "members are unknown: {members_unknown}; {:#}",
            f.why(next)
        );
    }
}

//! Cluster queues that share quota: borrowing, reclaiming, preemption, fair sharing, draining.

use super::*;
use meridian_queueing::settings::FairSharing;
use meridian_shared::protocol::StopReason;

#[test]
fn a_queue_borrows_unused_quota_and_no_more() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({}));
    let borrower = f.submit_to("a", "borrower", 4, None);
    let more = f.submit_to("a", "more", 4, None);
    let late = f.submit_to("a", "late", 1, None);
    f.settle();
    assert_eq!(
        f.phases(&[borrower, more, late]),
        [Some(Phase::Running), Some(Phase::Running), Some(Phase::Pending)]
    );
    assert!(f.world.over_quota().is_empty());
    // The owner may not preempt. It stays pending, and its reason names the borrowed quota.
    let owner = f.submit_to("b", "owner", 2, None);
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Pending));
    assert_eq!(
        f.why(owner)["summary"],
        "pending: needs 2 nvidia.com/gpu; cluster queue `team-b` has 0 of 4 free in flavor `any` (4 lent to \
         other queues) and can borrow 0 from cohort `all`; preempting workload `default/more` (priority 0) \
         would be enough, but `reclaimWithinCohort: Never` forbids it"
    );
    f.end(more, EndResult::Succeeded);
    assert_eq!(f.phase(owner), Some(Phase::Running));
}

#[test]
fn reclaim_preempts_whole_gangs_and_no_more_than_needed() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({"reclaimWithinCohort": "Any"}));
    let gangs: Vec<Uid> = (0..4).map(|i| f.submit_to("a", &format!("gang-{i}"), 2, None)).collect();
    f.settle();
    assert_eq!(f.phases(&gangs), [Some(Phase::Running); 4]);
    let owner = f.submit_to("b", "owner", 2, None);
    // Until the victim has stopped, its quota is charged, and the owner waits for it.
    let stopping: Vec<&Uid> = gangs.iter().filter(|uid| f.phase(**uid) == Some(Phase::Stopping)).collect();
    assert_eq!(stopping.len(), 1, "one gang of two is enough");
    let victim = *stopping[0];
    assert_eq!(f.world.state().workloads()[&victim].stopping(), Some(StopReason::Evicted));
    let preempted = f.world.state().workloads()[&victim].preempted().expect("the preemption is recorded");
    assert_eq!((preempted.by, preempted.reason.as_str()), (owner, "InCohortReclamation"));
    assert_eq!(f.phase(owner), Some(Phase::Pending));
    assert!(f.world.over_quota().is_empty());
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Running));
    assert_eq!(f.phase(victim), Some(Phase::Pending), "the victim is pending again, and preempts nothing");
    assert_eq!(gangs.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(), 3);
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Running), "the preemption isn't reversed");
}

#[test]
fn a_raised_priority_preempts_within_the_queue() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priority_classes(&mut f, 1);
    let first = f.submit_to("a", "first", 4, Some("low"));
    f.settle();
    let second = f.submit_to("a", "second", 4, Some("high"));
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Running), Some(Phase::Pending)]);
    priority_classes(&mut f, 50);
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Pending), Some(Phase::Running)]);
    assert_eq!(f.world.state().workloads()[&second].priority(), 50);
}

#[test]
fn all_victims_are_in_one_cluster() {
    let mut f = Fleet::regions();
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priority_classes(&mut f, 9);
    // Pairs fill three clusters of four GPUs. A gang of four needs the capacity of two pairs in one cluster.
    let pairs: Vec<Uid> = (0..6).map(|i| f.submit_to("a", &format!("pair-{i}"), 2, Some("low"))).collect();
    f.settle();
    assert_eq!(f.phases(&pairs), [Some(Phase::Running); 6]);
    let four = f.submit_to("a", "four", 4, Some("high"));
    let victims: Vec<Uid> =
        pairs.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    assert_eq!(victims.len(), 2);
    assert_eq!(f.cluster_of(victims[0]), f.cluster_of(victims[1]), "both in one cluster");
    f.settle();
    assert_eq!(f.phase(four), Some(Phase::Running));
}

/// A cluster of four GPUs: a victim with two of them stops for a preemptor that needs all four, and a third
/// workload would fit in the two that are free now. Returns the victim, the preemptor and the third workload.
fn preemption_in_progress() -> (Fleet, [Uid; 3]) {
    let mut f = Fleet::new(EU);
    teams(&mut f, [4, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priority_classes(&mut f, 9);
    let victim = f.submit_to("a", "victim", 2, Some("low"));
    f.settle();
    let preemptor = f.submit_to("a", "four", 4, Some("high"));
    let third = f.submit_to("lq", "thief", 2, None);
    assert_eq!(
        f.phases(&[victim, preemptor, third]),
        [Some(Phase::Stopping), Some(Phase::Pending), Some(Phase::Pending)]
    );
    (f, [victim, preemptor, third])
}

#[test]
fn freed_capacity_is_reserved_for_the_preemptor() {
    let (mut f, [victim, preemptor, third]) = preemption_in_progress();
    let eu = &f.why(third)["clusters"][0];
    assert_eq!(
        eu["reason"],
        "its free capacity is reserved for workload `default/four`, which is preempting others"
    );
    assert_eq!(eu["wouldHelp"], "wait until workload `default/four` has started and capacity is free");
    f.settle();
    assert_eq!(
        f.phases(&[victim, preemptor, third]),
        [Some(Phase::Pending), Some(Phase::Running), Some(Phase::Pending)]
    );
    // The reservation has ended with the preemptor's start.
    f.end(preemptor, EndResult::Succeeded);
    assert_eq!(f.phases(&[victim, third]), [Some(Phase::Running); 2]);
}

#[test]
fn a_deleted_preemptor_has_no_reservation() {
    let (mut f, [_, _, third]) = preemption_in_progress();
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "four"),
        uid: None,
        force: false,
    }]);
    assert_ne!(f.phase(third), Some(Phase::Pending));
}

#[test]
fn a_victim_doesnt_preempt_its_preemptor() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let preemption = json!({
        "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    });
    teams(&mut f, [2, 4], &preemption);
    priority_classes(&mut f, 9);
    let owner = f.submit_to("b", "own", 4, Some("low"));
    let other = f.submit_to("b", "beside", 2, None);
    f.settle();
    assert_eq!(f.phases(&[owner, other]), [Some(Phase::Running); 2]);
    // `high` borrows, and preempts by priority. By policy the victim could reclaim its quota, and both would
    // preempt each other forever.
    let high = f.submit_to("a", "high", 4, Some("high"));
    for _ in 0..10 {
        f.settle();
        f.advance(Millis::secs(5));
    }
    assert_eq!(
        f.phases(&[owner, other, high]),
        [Some(Phase::Pending), Some(Phase::Running), Some(Phase::Running)]
    );
    assert_eq!(f.world.state().workloads()[&owner].attempts(), 1);
    f.end(high, EndResult::Succeeded);
    assert_eq!(f.phase(owner), Some(Phase::Running));
}

#[test]
fn the_preemption_history_survives_a_restart() {
    let (mut f, [victim, preemptor, _]) = preemption_in_progress();
    f.settle();
    assert_eq!(f.phases(&[victim, preemptor]), [Some(Phase::Pending), Some(Phase::Running)]);
    let history = |f: &Fleet| {
        let of = |victim: &Uid| {
            f.world.state().preemption_history()[victim]
                .iter()
                .map(|other| (other.by, other.times))
                .collect::<Vec<_>>()
        };
        f.world.state().preemption_history().keys().map(|uid| (*uid, of(uid))).collect::<Vec<_>>()
    };
    assert_eq!(history(&f), [(victim, vec![(preemptor, 1)])]);
    let protected = |f: &Fleet| f.world.live().reservations().pairs().0.keys().copied().collect::<Vec<_>>();
    let before = protected(&f);
    f.restart(2, None);
    assert_eq!((protected(&f), before.len()), (before, 1), "neither preempts the other back");
    f.settle();
    assert_eq!(history(&f), [(victim, vec![(preemptor, 1)])]);
    // A changed priority reverses the preemption, and the old history no longer counts.
    f.apply(vec![priority_class("low", 99)]);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[victim, preemptor]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert_eq!(history(&f), [(preemptor, vec![(victim, 1)])]);
    f.advance(Millis::mins(11));
    f.restart(3, None);
    assert_eq!(history(&f), [], "entries expire after ten minutes");
}

#[test]
fn a_victim_may_preempt_its_preemptor_after_a_quota_change() {
    let mut f = Fleet::new(EU);
    let policy = json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"});
    teams(&mut f, [4, 0], &policy);
    let in_b = f.submit_to("b", "borrows", 4, None);
    f.settle();
    let in_a = f.submit_to("a", "owns", 4, None);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[in_b, in_a]), [Some(Phase::Pending), Some(Phase::Running)]);
    teams(&mut f, [0, 4], &policy);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[in_b, in_a]), [Some(Phase::Running), Some(Phase::Pending)], "{:#}", f.why(in_b));
}

#[test]
fn fair_sharing_gives_both_queues_the_same_share() {
    let mut f = Fleet::regions();
    f.world.config_mut().fair_sharing = Some(FairSharing::default());
    teams(&mut f, [0, 0], &json!({"reclaimWithinCohort": "Any"}));
    f.apply(vec![kueue_object("Cohort", "all", json!({"resourceGroups": gpu_quota(8)}))]);
    let of_a: Vec<Uid> = (0..8).map(|i| f.submit_to("a", &format!("a-{i}"), 1, None)).collect();
    f.settle();
    assert_eq!(f.phases(&of_a), [Some(Phase::Running); 8]);
    for i in 0..8 {
        f.submit_to("b", &format!("b-{i}"), 1, None);
    }
    for _ in 0..12 {
        f.settle();
    }
    let running = |queue: &str| {
        let workloads = f.world.state().workloads().values();
        workloads
            .filter(|w| w.phase() == Phase::Running && &*f.world.queues().class(w.class()).queue == queue)
            .count()
    };
    assert_eq!((running("a"), running("b")), (4, 4));
    assert!(f.world.over_quota().is_empty());
}

#[test]
fn a_drained_queue_evicts_all_and_restarts_them_later() {
    let mut f = Fleet::regions();
    let running = f.submit("running", 3);
    f.settle();
    let queue = |stop_policy: &str| cluster_queue("cq", 100, &json!({"stopPolicy": stop_policy}));
    f.apply(vec![queue("Hold")]);
    let held = f.submit("held", 1);
    f.settle();
    assert_eq!(f.phases(&[running, held]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert_eq!(f.why(held)["summary"], "pending: cluster queue `cq` is stopped");
    f.apply(vec![queue("HoldAndDrain")]);
    f.settle();
    assert_eq!(f.phases(&[running, held]), [Some(Phase::Pending), Some(Phase::Pending)]);
    f.apply(vec![queue("None")]);
    f.settle();
    assert_eq!(f.phases(&[running, held]), [Some(Phase::Running), Some(Phase::Running)]);
}

#[test]
fn a_cycle_of_cohorts_is_refused() {
    let mut f = Fleet::regions();
    let cohort = |name: &str, parent: &str| kueue_object("Cohort", name, json!({"parentName": parent}));
    assert!(matches!(f.apply(vec![cohort("a", "b"), cohort("b", "c")]), Reply::Written(_)));
    let Reply::Rejected(why) = f.apply(vec![cohort("c", "a")]) else { panic!("accepted") };
    assert_eq!(
        why[0].message,
        "cohort `c` would be its own ancestor through `a`: name another parent, or none"
    );
    assert_eq!(why[0].field.as_deref(), Some("spec.parentName"));
}

#[test]
fn borrowed_quota_can_be_reclaimed_after_a_restart() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({"reclaimWithinCohort": "Any"}));
    let gangs: Vec<Uid> = (0..4).map(|i| f.submit_to("a", &format!("gang-{i}"), 2, None)).collect();
    f.settle();
    let snapshot = f.world.snapshot();
    f.world = World::restore(&snapshot, config()).expect("the snapshot is valid");
    f.world.lead(start(2, f.now, None, false), &f.bodies);
    f.world.committed(Mono(f.now));
    f.settle();
    f.settle();
    assert_eq!(f.phases(&gangs), [Some(Phase::Running); 4]);
    let owner = f.submit_to("b", "owner", 4, None);
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Running));
    assert!(f.world.over_quota().is_empty());
}

#[test]
fn a_charge_stays_in_its_cluster_queue_when_the_local_queue_moves() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({}));
    let uid = f.submit_to("a", "moves", 3, None);
    f.settle();
    f.apply(vec![local_queue("a", "team-b")]);
    let charged = |f: &Fleet| f.world.queues().charged_to(uid).map(ToString::to_string);
    assert_eq!(charged(&f).as_deref(), Some("team-a"));
    f.restart(2, RECOVERY);
    assert_eq!(charged(&f).as_deref(), Some("team-a"));
}

#[test]
fn among_equals_the_last_admitted_is_preempted_also_after_a_restart() {
    for restarts in [false, true] {
        let mut f = Fleet::new(EU);
        priority_classes(&mut f, 100);
        f.apply(vec![cluster_queue(
            "cq",
            4,
            &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}),
        )]);
        let all: Vec<Uid> = (0..4)
            .map(|at| {
                let uid = f.submit_to("lq", &format!("low-{at}"), 1, Some("low"));
                f.settle();
                f.advance(Millis::secs(1));
                uid
            })
            .collect();
        // The second workload is older than its followers, and is admitted again after them.
        f.end(all[1], EndResult::NodeLost { message: "gone".into() });
        f.advance(Millis::secs(5));
        assert_eq!(f.phases(&all), [Some(Phase::Running); 4]);
        if restarts {
            f.restart(2, RECOVERY);
            f.settle();
            f.settle();
        }
        for victim in [1, 3, 2, 0] {
            f.submit_to("lq", &format!("high-{victim}"), 1, Some("high"));
            f.settle();
            f.settle();
            assert_eq!(
                f.phase(all[victim]),
                Some(Phase::Pending),
                "{victim} of {:?}, restarted: {restarts}",
                f.phases(&all)
            );
        }
    }
}

#[test]
fn a_preemptor_starts_even_if_a_queue_left_the_cohort_meanwhile() {
    let preemption = json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"});
    let without_cohort = |name: &str| cluster_queue(name, 4, &json!({"preemption": preemption}));
    for leaving in ["team-a", "team-b"] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
        teams(&mut f, [4, 4], &preemption);
        let lent: Vec<Uid> = (0..4).map(|i| f.submit_to("b", &format!("lent-{i}"), 2, None)).collect();
        f.settle();
        assert_eq!(f.phases(&lent), [Some(Phase::Running); 4]);
        f.hold_stops = true;
        let owner = f.submit_to("a", "owner", 3, None);
        f.settle();
        let stopping = |f: &Fleet| {
            lent.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect::<Vec<_>>()
        };
        assert_eq!(stopping(&f).len(), 2);
        f.apply(vec![without_cohort(leaving)]);
        f.settle();
        f.hold_stops = false;
        for uid in stopping(&f) {
            f.end(uid, EndResult::Stopped);
        }
        f.settle();
        assert_eq!(f.phase(owner), Some(Phase::Running), "{leaving} left: {:#}", f.why(owner));
    }
}

#[test]
fn a_skipped_workload_is_evaluated_for_every_flavor() {
    let mut f = Fleet::new(EU);
    let two_flavors = json!([
        {"coveredResources": [GPU], "flavors": [flavor_quota("any", 0), flavor_quota("other", 0)]},
    ]);
    f.apply(vec![
        resource_flavor("other"),
        kueue_object("Cohort", "co", json!({"resourceGroups": gpu_quota(2)})),
        cluster_queue(
            "s",
            2,
            &json!({"cohortName": "co", "preemption": {"reclaimWithinCohort": "LowerPriority"}}),
        ),
        cluster_queue("p", 0, &json!({"cohortName": "co", "resourceGroups": two_flavors})),
        local_queue("s", "s"),
        local_queue("p", "p"),
    ]);
    let running = f.submit_to("s", "runs", 3, None);
    f.settle();
    assert_eq!(f.phase(running), Some(Phase::Running));
    // `head` would have to preempt and can't, but reserves the last GPU for one cycle.
    let changes = [("head", "s", 2), ("small", "p", 1)].map(|(name, queue, pods)| {
        f.next_uid += 1;
        let job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": queue}), "");
        Change::Put { object: object(job), scope: None, uid: Uid(f.next_uid), mode: PutMode::Apply }
    });
    let Reply::Written(written) = f.write(changes.into()) else { panic!("not submitted") };
    f.settle();
    assert_eq!(
        f.phases(&[written[0].uid, written[1].uid]),
        [Some(Phase::Pending), Some(Phase::Running)],
        "{:#}",
        f.why(written[1].uid)
    );
}

//! `spec.limits` of a cluster caps the capacity that the manager uses there, whatever the agent reports.

use super::*;

const LOWER: &str = "LowerPriority";

fn limited_cluster(gpus: i64) -> Value {
    let limits = json!({GPU: gpus.to_string()});
    meridian_object(
        "Cluster",
        "eu",
        json!({"region": "europe-west4", "jurisdiction": "EU", "limits": limits}),
    )
}

/// One cluster of four GPUs with this limit.
fn limited_fleet(gpus: i64) -> Fleet {
    let mut f = Fleet::new(EU);
    f.apply(vec![limited_cluster(gpus)]);
    f
}

#[test]
fn a_cluster_gets_no_more_than_its_limit() {
    let mut f = limited_fleet(3);
    let all: Vec<Uid> = (0..4).map(|i| f.submit(&format!("one-{i}"), 1)).collect();
    f.settle();
    assert_eq!(all.iter().filter(|uid| f.cluster_of(**uid).is_some()).count(), 3);
    let pending = *all.iter().find(|uid| f.cluster_of(**uid).is_none()).unwrap();
    let why = f.why(pending)["summary"].as_str().unwrap().to_owned();
    assert!(why.contains("needs 1 nvidia.com/gpu, 0 of 3 free"), "{why}");
    let running = *all.iter().find(|uid| f.cluster_of(**uid).is_some()).unwrap();
    f.end(running, EndResult::Succeeded);
    assert_eq!(f.cluster_of(pending).as_deref(), Some("eu"));
    // A limit below the current usage stops nothing. Nothing more starts.
    f.apply(vec![limited_cluster(1)]);
    let next = f.submit("next", 1);
    f.settle();
    assert_eq!((f.running.len(), f.phase(next)), (3, Some(Phase::Pending)));
}

#[test]
fn preemption_frees_a_used_up_limit() {
    for limit in [4, 2] {
        let mut f = limited_fleet(limit);
        teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
        priority_classes(&mut f, 9);
        let low: Vec<Uid> =
            (0..limit).map(|i| f.submit_to("a", &format!("low-{i}"), 1, Some("low"))).collect();
        f.settle();
        assert_eq!(f.running.len(), low.len(), "limit {limit}");
        let high = f.submit_to("a", "high", 1, Some("high"));
        f.settle();
        f.settle();
        assert_eq!(f.cluster_of(high).as_deref(), Some("eu"), "limit {limit}: {:#}", f.why(high));
        assert_eq!(f.running.len(), low.len(), "limit {limit}: one was preempted");
    }
}

#[test]
fn lent_quota_is_reclaimed_in_a_cluster_with_a_limit() {
    let mut f = limited_fleet(4);
    teams(&mut f, [2, 2], &json!({"reclaimWithinCohort": "Any"}));
    priority_classes(&mut f, 9);
    let lent: Vec<Uid> = (0..4).map(|i| f.submit_to("b", &format!("b-{i}"), 1, None)).collect();
    f.settle();
    assert_eq!(f.running.len(), 4);
    let owner = f.submit_to("a", "mine", 2, None);
    f.settle();
    f.settle();
    assert_eq!(f.cluster_of(owner).as_deref(), Some("eu"), "{:#}", f.why(owner));

    assert_eq!(lent.iter().filter(|uid| f.cluster_of(**uid).is_some()).count(), 2);
}

#[test]
fn a_higher_limit_is_the_whole_remedy_only_if_the_nodes_are_there() {
    let mut f = limited_fleet(2);
    let (large, huge) = (f.submit("large", 3), f.submit("huge", 6));
    f.settle();
    let help = |f: &Fleet, uid| f.why(uid)["clusters"][0]["wouldHelp"].as_str().unwrap().to_owned();
    let raise = |to: u32| format!("raise the cluster's limit of `nvidia.com/gpu` to {to}");
    assert_eq!(help(&f, large), raise(3));
    assert!(
        help(&f, huge).starts_with(&format!("{}, and add or enlarge nodes", raise(6))),
        "{}",
        help(&f, huge)
    );
    f.apply(vec![limited_cluster(6)]);
    f.settle();
    assert_eq!(f.phases(&[large, huge]), [Some(Phase::Running), Some(Phase::Pending)]);
}

/// Limits `team-a` to this many accelerators in the cluster.
fn cap_of_team_a(f: &mut Fleet, gpus: i64) {
    let capped = object(cluster_queue("team-a", gpus, &json!({})));
    f.next_uid += 1;
    let (scope, uid) = (Some("eu".into()), Uid(f.next_uid));
    f.write(vec![Change::Put { object: capped, scope, uid, mode: PutMode::Apply }]);
}

fn placed(f: &Fleet, all: &[Uid]) -> usize {
    all.iter().filter(|uid| f.cluster_of(**uid).is_some()).count()
}

#[test]
fn a_queue_gets_no_more_than_its_own_quota_in_a_cluster() {
    let mut f = Fleet::new(EU);
    teams(&mut f, [4, 4], &json!({}));
    cap_of_team_a(&mut f, 2);
    let of_a: Vec<Uid> = (0..3).map(|i| f.submit_to("a", &format!("a-{i}"), 1, None)).collect();
    f.settle();
    assert_eq!(placed(&f, &of_a), 2);
    let waits = *of_a.iter().find(|uid| f.cluster_of(**uid).is_none()).unwrap();
    let why = f.why(waits)["summary"].as_str().unwrap().to_owned();
    assert!(why.contains("needs 1 nvidia.com/gpu, 0 of 2 free"), "{why}");
    // Another queue has no such quota there.
    let of_b: Vec<Uid> = (0..2).map(|i| f.submit_to("b", &format!("b-{i}"), 1, None)).collect();
    f.settle();
    assert_eq!(placed(&f, &of_b), 2);
    f.end(of_b[0], EndResult::Succeeded);
    f.settle();
    assert_eq!(f.cluster_of(waits), None, "what another queue leaves doesn't count");
    f.end(of_a.iter().copied().find(|uid| *uid != waits).unwrap(), EndResult::Succeeded);
    f.settle();
    assert_eq!(f.cluster_of(waits).as_deref(), Some("eu"));
}

#[test]
fn preemption_frees_a_queues_own_quota_in_a_cluster() {
    let mut f = Fleet::new(EU);
    teams(&mut f, [4, 4], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    cap_of_team_a(&mut f, 2);
    let of_b = f.submit_to("b", "b", 1, Some("low"));
    let low: Vec<Uid> = (0..2).map(|i| f.submit_to("a", &format!("low-{i}"), 1, Some("low"))).collect();
    f.settle();
    let high = f.submit_to("a", "high", 2, Some("high"));
    f.settle();
    f.settle();
    assert_eq!(f.cluster_of(high).as_deref(), Some("eu"), "{:#}", f.why(high));
    assert_eq!((placed(&f, &low), placed(&f, &[of_b])), (0, 1), "only its own queue makes room");
}

#[test]
fn what_a_preemptor_frees_below_a_limit_is_kept_for_it() {
    let mut f = limited_fleet(2);
    teams(&mut f, [4, 4], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    let low = f.submit_to("a", "low", 2, Some("low"));
    f.settle();
    let high = f.submit_to("a", "high", 2, Some("high"));
    let small = f.submit_to("b", "small", 1, None);
    f.settle();
    f.settle();
    assert_eq!((placed(&f, &[low]), placed(&f, &[high])), (0, 1), "{:#}", f.why(high));
    assert_eq!(f.cluster_of(small), None);
    f.end(high, EndResult::Succeeded);
    f.settle();
    assert_eq!(placed(&f, &[low, small]), 1, "one of them fits now");
}

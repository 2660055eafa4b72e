//! Granted gangs that don't reach running: start timeouts, backoffs of clusters, and tokens with which
//! clusters join.

use super::*;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_shared::ids::{Jurisdiction, Region};
use meridian_shared::protocol::{Command, RefuseReason};

const HOUR: Millis = Millis::mins(60);

/// Applies a policy with a start timeout of an hour.
fn apply_long_start_timeout(f: &mut Fleet) {
    let spec = json!({"applies": {"queues": ["cq"]}, "startTimeout": "1h", "onClusterLoss": {"term": "8s"}});
    f.apply(vec![meridian_object("DispatchPolicy", "patient", spec)]);
}

#[test]
fn the_start_timeout_of_a_policy_applies_after_a_restart() {
    for recovery in [None, RECOVERY] {
        let mut f = Fleet::new(EU);
        apply_long_start_timeout(&mut f);
        f.hold_starts = true;
        let slow = f.submit("slow", 2);
        f.settle();
        assert_eq!(f.phase(slow), Some(Phase::Granted));
        f.restart(2, recovery);
        // The manager's own start timeout is 30 seconds.
        f.advance(Millis::mins(5));
        assert_eq!((f.phase(slow), f.world.state().workloads()[&slow].attempts()), (Some(Phase::Granted), 1));
        f.advance(HOUR);
        assert!(f.world.state().workloads()[&slow].attempts() > 1, "{:?}", f.phase(slow));
    }
}

#[test]
fn a_workload_that_starts_nowhere_blocks_no_cluster_for_others() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.hold_starts = true;
    let stuck = f.submit("stuck", 2);
    f.settle();
    let first = f.cluster_of(stuck).unwrap();
    f.advance(Millis::secs(31));
    f.settle();
    let second = f.cluster_of(stuck).unwrap();
    assert_ne!(first, second, "the cluster where it didn't start comes last");
    // The workload fails to start in both clusters, repeatedly.
    f.advance(Millis::secs(150));
    assert!(f.world.live().clusters().values().all(|live| live.starts().backoff_end().is_none()));
    while f.phase(stuck) != Some(Phase::Pending) {
        f.advance(Millis::secs(1));
    }
    f.hold_starts = false;
    // An equivalent workload starts: the backoff is of the stuck workload only.
    let equivalent = f.submit("alike", 2);
    f.settle();
    assert_eq!(
        (f.phase(equivalent), f.phase(stuck)),
        (Some(Phase::Running), Some(Phase::Pending)),
        "{:#}",
        f.why(equivalent)
    );
    let larger = f.submit("fine", 4);
    f.settle();
    assert_eq!(f.phase(larger), Some(Phase::Running), "{:#}", f.why(larger));
}

#[test]
fn a_cluster_where_several_workloads_dont_start_backs_off() {
    let mut f = Fleet::new(EU);
    f.hold_starts = true;
    let two = [f.submit("one", 1), f.submit("other", 1)];
    f.settle();
    f.advance(Millis::secs(31));
    let late = f.submit("late", 1);
    f.settle();
    let why = f.why(late);
    assert!(why["clusters"][0]["reason"].as_str().unwrap().contains("did not reach running"), "{why:#}");
    f.hold_starts = false;
    f.running.clear();
    f.advance(Millis::mins(2));
    assert_eq!(
        (f.phase(late), f.world.live().clusters().values().next().unwrap().starts().in_a_row()),
        (Some(Phase::Running), 0)
    );
    assert_eq!(two.map(|uid| f.phase(uid)), [Some(Phase::Running); 2]);
}

#[test]
fn new_nodes_get_an_offer_for_a_gang_that_was_too_large_before() {
    let mut f = Fleet::new(EU);
    let nodes = |n: i64| {
        (0..n)
            .map(|i| NodeSpec {
                name: format!("n{i}"),
                capacity: Amounts::from([(GPU.into(), 2)]),
                ..NodeSpec::default()
            })
            .collect()
    };
    let set_nodes = |f: &mut Fleet, n| {
        let out = f
            .agents
            .values_mut()
            .next()
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes: nodes(n), pools: Vec::new() });
        f.perform(&ClusterName::new("eu"), out.into_effects());
    };
    set_nodes(&mut f, 2);
    f.settle();
    // A node is lost while the offer is open.
    f.disconnected = vec!["eu".into()];
    let gang = f.submit("gang", 4);
    set_nodes(&mut f, 1);
    f.disconnected.clear();
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Pending), "{:#}", f.why(gang));
    let is_never_fits = |(_, record): &(RecordNumber, Record)| {
        matches!(
            record,
            Record::Workload { fact: WorkloadFact::Refused { reason: RefuseReason::NeverFits, .. }, .. }
        )
    };
    assert!(f.records.iter().any(is_never_fits));
    set_nodes(&mut f, 3);
    f.settle();
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Running), "{:#}", f.why(gang));
}

#[test]
fn a_lease_term_outside_the_managers_bounds_is_refused() {
    let mut f = Fleet::new(EU);
    let policy =
        |term: &str| meridian_object("DispatchPolicy", "p", json!({"onClusterLoss": {"term": term}}));
    for (term, words) in
        [("4s", "shorter than the manager's bound of 8s"), ("48h", "longer than the longest")]
    {
        let Reply::Rejected(why) = f.apply(vec![policy(term)]) else { panic!("{term} was accepted") };
        assert_eq!(why[0].field.as_deref(), Some("spec.onClusterLoss.term"));
        assert!(why[0].message.contains(words), "{}", why[0].message);
    }
    assert!(matches!(f.apply(vec![policy("24h")]), Reply::Written(_)));
}

#[test]
fn a_join_token_is_valid_once_for_one_cluster_and_region() {
    let mut f = Fleet::new(EU);
    let operator = |f: &mut Fleet, action| f.input(Input::Operator { actor: Actor::user("op"), action });
    let mint = |f: &mut Fleet, hash: &str, cluster: &str, (region, jurisdiction): (&str, &str), replace| {
        let (cluster, region, jurisdiction) =
            (ClusterName::new(cluster), Region::new(region), Jurisdiction::new(jurisdiction));
        operator(
            f,
            Operator::MintToken {
                hash: hash.into(),
                cluster,
                region,
                jurisdiction,
                ttl: Millis::mins(10),
                replace,
            },
        )
    };
    let join = |f: &mut Fleet, hash: &str| operator(f, Operator::UseToken { hash: hash.into() });
    let refused = |reply: Reply| match reply {
        Reply::Rejected(why) => why[0].message.clone(),
        other => panic!("accepted: {other:?}"),
    };
    let (us_region, eu_region) = (("us-east4", "US"), ("europe-west4", "EU"));
    let why = refused(mint(&mut f, "x", "eu", us_region, true));
    assert!(why.contains("is declared in region `europe-west4`, jurisdiction `EU`"), "{why}");
    assert!(refused(mint(&mut f, "x", "eu", eu_region, false)).contains("--replace"));
    assert!(matches!(mint(&mut f, "a", "us", us_region, false), Reply::Done(_)));
    assert!(matches!(join(&mut f, "a"), Reply::Joined { .. }));
    assert!(refused(join(&mut f, "a")).contains("was used"), "once");
    // With its first session the cluster has joined.
    assert!(matches!(mint(&mut f, "b", "us", us_region, false), Reply::Done(_)));
    f.add_agent("us", 77);
    f.settle();
    assert!(refused(join(&mut f, "b")).contains("has joined before"));
    assert!(matches!(mint(&mut f, "c", "us", us_region, true), Reply::Done(_)));
    assert!(matches!(join(&mut f, "c"), Reply::Joined { .. }));
    // The cluster is declared in another region after the token was created.
    assert!(matches!(mint(&mut f, "d", "us", us_region, true), Reply::Done(_)));
    f.apply(vec![cluster_object("us", "us-west1", "US")]);
    assert!(refused(join(&mut f, "d")).contains("us-west1"));
    assert!(matches!(mint(&mut f, "late", "us", ("us-west1", "US"), true), Reply::Done(_)));
    f.now += 11 * 60_000;
    assert!(refused(join(&mut f, "late")).contains("has expired"));
}

#[test]
fn a_grant_that_no_inventory_contains_is_stopped_when_recovery_closes() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 2);
    // The answer with the grant is lost, and so is the manager.
    let lost = loop {
        f.now += 20;
        let request = f.compose("eu", Lane::News);
        let answer = f.answer("eu", request);
        f.input(Input::Turn);
        f.world.committed(Mono(f.now));
        let SyncAnswer::Ok(response) = &*answer else { panic!("{answer:?}") };
        if response.commands.iter().any(|command| matches!(command, Command::Grant(_))) {
            break answer;
        }
        f.deliver("eu", answer);
    };
    assert_eq!(f.phase(uid), Some(Phase::Granted));
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    assert!(f.world.state().recovery().is_none());
    assert_eq!((f.phase(uid), f.world.state().workloads()[&uid].attempts()), (Some(Phase::Running), 2));
    f.deliver("eu", lost);
    assert_eq!(f.running.len(), 1, "the grant comes late and starts nothing");
}

//! Gangs that were granted and don't reach running: how long that is waited for, and what follows for whom.

use super::*;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_shared::ids::{Jurisdiction, Region};
use meridian_shared::protocol::RefuseReason;

const HOUR: Millis = Millis::mins(60);

fn patient(f: &mut Fleet) {
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "patient"}, "spec": {
        "applies": {"queues": ["cq"]}, "startTimeout": "1h", "onClusterLoss": {"term": "8s"}}})]);
}

#[test]
fn the_policys_time_to_start_counts_after_a_restart_and_a_recovery_too() {
    for recovery in [None, Some(RecoveryStart { restored: false, members_unknown: false })] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        patient(&mut f);
        f.hold_starts = true;
        let slow = f.submit("slow", 2);
        f.settle();
        assert_eq!(f.phase(slow), Some(Phase::Granted));
        f.restart(2, recovery);
        // The manager's own time for that is half a minute.
        f.pass(Millis::mins(5));
        assert_eq!((f.phase(slow), f.world.state.workloads()[&slow].attempts()), (Some(Phase::Granted), 1));
        f.pass(HOUR);
        assert!(f.world.state.workloads()[&slow].attempts() > 1, "{:?}", f.phase(slow));
    }
}

#[test]
fn a_workload_that_starts_nowhere_takes_no_cluster_from_the_others() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.hold_starts = true;
    let stuck = f.submit("stuck", 2);
    f.settle();
    let first = f.at(stuck).unwrap();
    f.pass(Millis::secs(31));
    f.settle();
    let second = f.at(stuck).unwrap();
    assert_ne!(first, second, "where it didn't start comes last for it");
    // It failed everywhere, and again.
    f.pass(Millis::secs(150));
    assert!(f.world.live.clusters.values().all(|live| live.backed_off == Mono(0)));
    while f.phase(stuck) != Some(Phase::Pending) {
        f.pass(Millis::secs(1));
    }
    f.hold_starts = false;
    // Nor from who is alike: what keeps the other one out is its own.
    let alike = f.submit("alike", 2);
    f.settle();
    assert_eq!(
        (f.phase(alike), f.phase(stuck)),
        (Some(Phase::Running), Some(Phase::Pending)),
        "{:#}",
        f.why(alike)
    );
    let fine = f.submit("fine", 4);
    f.settle();
    assert_eq!(f.phase(fine), Some(Phase::Running), "{:#}", f.why(fine));
}

#[test]
fn where_one_after_the_other_fails_it_is_the_cluster() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.hold_starts = true;
    let two = [f.submit("one", 1), f.submit("other", 1)];
    f.settle();
    f.pass(Millis::secs(31));
    let late = f.submit("late", 1);
    f.settle();
    let why = f.why(late);
    assert!(why["clusters"][0]["reason"].as_str().unwrap().contains("did not reach running"), "{why:#}");
    f.hold_starts = false;
    f.running.clear();
    f.pass(Millis::mins(2));
    assert_eq!(
        (f.phase(late), f.world.live.clusters.values().next().unwrap().failed_starts),
        (Some(Phase::Running), 0)
    );
    assert_eq!(two.map(|uid| f.phase(uid)), [Some(Phase::Running); 2]);
}

#[test]
fn machines_that_come_are_asked_for_what_was_too_large_before() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let nodes = |n: i64| {
        (0..n)
            .map(|i| NodeSpec {
                name: format!("n{i}"),
                capacity: Amounts::from([(GPU.into(), 2)]),
                ..NodeSpec::default()
            })
            .collect()
    };
    let refit = |f: &mut Fleet, n| {
        let out = f
            .agents
            .values_mut()
            .next()
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes: nodes(n), pools: Vec::new() });
        f.perform(&ClusterName::new("eu"), out.effects);
    };
    refit(&mut f, 2);
    f.settle();
    // The offer is on its way when the nodes go.
    f.cut = vec!["eu".into()];
    let gang = f.submit("gang", 4);
    refit(&mut f, 1);
    f.cut.clear();
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Pending), "{:#}", f.why(gang));
    let never = |(_, record): &(RecordNumber, Record)| {
        matches!(
            record,
            Record::Workload { fact: WorkloadFact::Refused { reason: RefuseReason::NeverFits, .. }, .. }
        )
    };
    assert!(f.records.iter().any(never));
    refit(&mut f, 3);
    f.settle();
    f.settle();
    assert_eq!(f.phase(gang), Some(Phase::Running), "{:#}", f.why(gang));
}

#[test]
fn a_term_that_no_manager_keeps_is_refused() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let policy = |term: &str| json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "p"}, "spec": {"onClusterLoss": {"term": term}}});
    for (term, words) in
        [("4s", "shorter than the manager's bound of 8s"), ("48h", "longer than the longest")]
    {
        let Reply::Rejected(why) = f.apply(vec![policy(term)]) else { panic!("{term} was taken") };
        assert_eq!(why[0].field.as_deref(), Some("spec.onClusterLoss.term"));
        assert!(why[0].message.contains(words), "{}", why[0].message);
    }
    assert!(matches!(f.apply(vec![policy("24h")]), Reply::Written(_)));
}

#[test]
fn a_token_is_for_one_agent_of_one_place() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
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
        other => panic!("taken: {other:?}"),
    };
    let (there, elsewhere) = (("us-east4", "US"), ("europe-west4", "EU"));
    let why = refused(mint(&mut f, "x", "eu", there, true));
    assert!(why.contains("is declared in region `europe-west4`, jurisdiction `EU`"), "{why}");
    assert!(refused(mint(&mut f, "x", "eu", elsewhere, false)).contains("--replace"));
    for hash in ["a", "b", "late"] {
        assert!(matches!(mint(&mut f, hash, "us", there, false), Reply::Done(_)));
    }
    assert!(matches!(join(&mut f, "a"), Reply::Joined { .. }));
    assert!(refused(join(&mut f, "a")).contains("was used"), "once");
    // Its first session is what makes it known.
    f.add_agent("us", 77);
    f.settle();
    assert!(refused(join(&mut f, "b")).contains("has joined before"));
    assert!(matches!(mint(&mut f, "c", "us", there, true), Reply::Done(_)));
    assert!(matches!(join(&mut f, "c"), Reply::Joined { .. }));
    // Since a token was made its cluster was declared elsewhere.
    assert!(matches!(mint(&mut f, "d", "us", there, true), Reply::Done(_)));
    f.apply(vec![
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-west1", "jurisdiction": "US"}}),
    ]);
    assert!(refused(join(&mut f, "d")).contains("us-west1"));
    f.now += 11 * 60_000;
    assert!(refused(join(&mut f, "late")).contains("has expired"));
}

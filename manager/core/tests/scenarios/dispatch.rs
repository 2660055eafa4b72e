//! Dispatching gangs: placement, quota, offers, races, draining, and the order of messages.

use super::elastic::elastic;
use super::*;
use meridian_manager_core::facts::audit::Action;
use std::collections::BTreeSet;

#[test]
fn a_gang_without_a_cluster_is_pending_with_a_reason_per_cluster() {
    let mut f = Fleet::regions();
    let uids: Vec<Uid> = (0..4).map(|i| f.submit(&format!("job-{i}"), 3)).collect();
    f.settle();
    let mut clusters: Vec<Option<String>> = uids.iter().map(|u| f.cluster_of(*u)).collect();
    assert_eq!(clusters.pop().unwrap(), None);
    clusters.sort();
    assert_eq!(clusters, [Some("asia".into()), Some("eu".into()), Some("us".into())]);
    assert_eq!(f.phase(uids[3]), Some(Phase::Pending));
    let why = f.why(uids[3]);
    for cluster in why["clusters"].as_array().unwrap() {
        assert_eq!(cluster["reason"], "1 of 3 pods of `main` fit now", "{why:#}");
    }
    assert_eq!(why["position"], json!({"queue": "lq", "place": 1, "of": 1}));
    f.end(uids[0], EndResult::Succeeded);
    assert_eq!(f.phase(uids[0]), Some(Phase::Finished));
    assert_eq!(f.phase(uids[3]), Some(Phase::Running), "{:#}", f.why(uids[3]));
}

#[test]
fn a_deleted_workload_leaves_nothing_in_any_phase() {
    let mut f = Fleet::regions();
    let uids: Vec<Uid> = (0..4).map(|i| f.submit(&format!("job-{i}"), 3)).collect();
    let early = f.submit("early", 1);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "early"),
        uid: None,
        force: false,
    }]);
    assert_eq!(f.phase(early), None);
    f.settle();
    for i in 0..4 {
        f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", &format!("job-{i}")),
            uid: None,
            force: false,
        }]);
    }
    f.settle();
    assert!(f.running.is_empty());
    assert!(uids.iter().all(|u| f.phase(*u).is_none()));
    assert!(f.world.queues().usage("cq").is_none_or(|u| u.is_empty()));
    for agent in f.agents.values() {
        assert_eq!(agent.held().count() + agent.runs().count(), 0);
    }
}

#[test]
fn recovery_keeps_running_gangs_and_then_dispatches_the_others() {
    let mut f = Fleet::regions();
    let running = f.submit("running", 3);
    f.settle();
    let big: Vec<Uid> = (0..3).map(|i| f.submit(&format!("waits-{i}"), 4)).collect();
    f.restart(2, RECOVERY);
    let fresh = f.submit("fresh", 1);
    assert!(f.world.state().recovery().is_some());
    f.settle();
    assert!(f.world.state().recovery().is_none(), "every cluster has reported");
    assert_eq!(f.phase(running), Some(Phase::Running));
    assert_eq!(f.world.state().workloads()[&running].attempts(), 1, "the gang was never moved");
    f.settle();
    assert_eq!(big.iter().filter(|u| f.phase(**u) == Some(Phase::Running)).count(), 2);
    assert_eq!(f.phase(fresh), Some(Phase::Running));
}

#[test]
fn a_workload_over_quota_is_pending_and_names_the_shortage() {
    let mut f = Fleet::regions();
    f.apply(vec![cluster_queue("cq", 5, &json!({}))]);
    let first = f.submit("a", 3);
    let second = f.submit("b", 3);
    f.settle();
    assert_eq!(f.phase(first), Some(Phase::Running));
    assert_eq!(f.phase(second), Some(Phase::Pending));
    assert!(f.world.over_quota().is_empty());
    assert_eq!(
        f.why(second)["summary"],
        "pending: needs 3 nvidia.com/gpu; cluster queue `cq` has 2 of 5 free in flavor `any`; preempting \
         workload `default/a` (priority 0) would be enough, but `withinClusterQueue: Never` forbids it"
    );
    f.end(first, EndResult::Succeeded);
    assert_eq!(f.phase(second), Some(Phase::Running));
}

#[test]
fn the_first_hold_wins_a_race_and_other_clusters_release_theirs() {
    let mut f = Fleet::regions();
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "race",
        json!({
        "applies": {"queues": ["*"]}, "mode": "Race", "onClusterLoss": {"mode": "Fence", "term": "8s"}}),
    )]);
    let uid = f.submit("job", 3);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(f.running.len(), 1);
    for agent in f.agents.values() {
        assert_eq!(agent.held().count(), 0, "the other clusters hold nothing");
    }
}

#[test]
fn an_agent_that_restarts_loses_only_its_own_offer_of_a_race() {
    let mut f = Fleet::regions();
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "race",
        json!({"applies": {"queues": ["*"]}, "mode": "Race"}),
    )]);
    let uid = f.submit("job", 3);
    let open = |f: &Fleet| {
        let legs = f.world.state().workloads()[&uid].legs().values();
        let open: BTreeSet<String> =
            legs.filter(|leg| leg.state().open()).map(|leg| leg.cluster().to_string()).collect();
        open.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(open(&f), "asia eu us");
    let store = f.agents[&ClusterName::new("eu")].durable().clone();
    f.start_agent("eu", store, None);
    f.disconnected = vec!["asia".into(), "us".into()];
    f.exchange();
    assert_eq!(open(&f), "asia us");
    f.disconnected.clear();
    f.settle();
    assert_eq!((f.phase(uid), f.running.len()), (Some(Phase::Running), 1));
}

impl Fleet {
    fn offer_to(&self, uid: Uid, cluster: &str) -> OfferId {
        let legs = self.world.state().workloads()[&uid].legs();
        *legs.iter().find(|(_, leg)| leg.cluster().as_str() == cluster).expect("it is offered there").0
    }
}

/// A gang that is offered to three clusters, and one that waits for what the offer to `eu` uses.
fn gang_behind_a_race() -> (Fleet, Uid, Uid) {
    let mut f = Fleet::regions();
    f.apply(vec![
        meridian_object("DispatchPolicy", "race", json!({"applies": {"queues": ["*"]}, "mode": "Race"})),
        meridian_object(
            "ResidencyPolicy",
            "eu-only",
            json!({"applies": {"namespaces": ["personal"]}, "allow": {"jurisdictions": ["EU"]}}),
        ),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "personal"}}),
        local_queue_in("personal", "lq", "cq"),
    ]);
    let racer = f.submit("racer", 3);
    let waiter = f.submit_in("personal", "waiter", 3, json!({}));
    assert_eq!(f.phases(&[racer, waiter]), [Some(Phase::Dispatching), Some(Phase::Pending)]);
    (f, racer, waiter)
}

/// The cluster `us` holds capacity for the gang, and reports nothing else that would make the manager look at
/// the queue.
fn win(f: &mut Fleet, racer: Uid) {
    let offer = f.offer_to(racer, "us");
    let request = f.compose("us", Lane::News);
    let answer = f.answer("us", request);
    f.deliver("us", answer);
    let mut request = f.compose("us", Lane::News);
    assert_eq!(request.events, [Event::Held { offer, uid: racer }]);
    request.capacity = None;
    f.answer("us", request);
    f.input(Input::Turn);
    assert_eq!(f.phase(racer), Some(Phase::Granted), "{:#}", f.why(racer));
}

#[test]
fn the_room_of_a_lost_race_goes_to_the_next_gang_at_once() {
    let (mut f, racer, waiter) = gang_behind_a_race();
    win(&mut f, racer);
    assert_eq!(f.phase(waiter), Some(Phase::Dispatching), "{:#}", f.why(waiter));
}

#[test]
fn the_part_of_a_limit_that_a_lost_race_used_goes_to_the_next_gang_at_once() {
    let (mut f, racer, waiter) = gang_behind_a_race();
    let limited = json!({"region": "europe-west4", "jurisdiction": "EU", "limits": {GPU: "4"}});
    f.apply(vec![meridian_object("Cluster", "eu", limited)]);
    // The agent asks its provider for nodes. So its own nodes stay free, and only the limit is in use.
    let request = f.compose("eu", Lane::News);
    let answer = f.answer("eu", request);
    f.deliver("eu", answer);
    let mut request = f.compose("eu", Lane::News);
    let capacity = request.capacity.as_mut().expect("it took the offer in");
    assert!(capacity.base.is_some(), "a delta");
    capacity.blocks.clear();
    let (offer, reason) = (f.offer_to(racer, "eu"), "asked the provider".to_owned());
    request.events = vec![Event::Waiting { offer, uid: racer, reason, estimate: None }];
    f.answer("eu", request);
    f.input(Input::Turn);
    let why = f.why(waiter)["summary"].to_string();
    assert!(why.contains("needs 3 nvidia.com/gpu, 1 of 4 free"), "{why}");
    win(&mut f, racer);
    assert_eq!(f.phase(waiter), Some(Phase::Dispatching), "{:#}", f.why(waiter));
}

#[test]
fn an_offer_that_leaves_the_race_alone_leaves_its_room_to_the_next_gang() {
    for expired in [true, false] {
        let (mut f, racer, waiter) = gang_behind_a_race();
        let gone = Event::Gone { offer: f.offer_to(racer, "eu"), uid: racer, expired };
        let mut request = f.compose("eu", Lane::News);
        (request.events, request.events_from) = (vec![gone], 1);
        f.answer("eu", request);
        f.input(Input::Turn);
        assert_eq!(f.phases(&[racer, waiter]), [Some(Phase::Dispatching); 2], "{:#}", f.why(waiter));
    }
}

#[test]
fn draining_a_cluster_moves_its_gangs() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.cluster_of(uid).unwrap().as_str().into();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Drain(home.clone()) });
    f.settle();
    f.settle();
    assert_ne!(f.cluster_of(uid), Some(home.to_string()));
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn a_rejected_write_changes_nothing() {
    let mut f = Fleet::regions();
    let before = f.world.clone();
    let reply = f.apply(vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        local_queue_in("n", "x", "missing"),
    ]);
    let Reply::Rejected(why) = reply else { panic!("a missing queue must be refused") };
    assert!(why[0].message.contains("`missing`"), "{why:?}");
    assert_eq!(f.world.state(), before.state());
}

#[test]
fn an_offer_to_a_cluster_that_disconnects_is_withdrawn() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    let offered: Vec<ClusterName> =
        f.world.state().workloads()[&uid].legs().values().map(|l| l.cluster().clone()).collect();
    assert_eq!(offered.len(), 1, "the offer is made at submission");
    f.disconnected.push(offered[0].clone());
    f.advance(Millis(6_000));
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert_ne!(f.cluster_of(uid), Some(offered[0].to_string()));
    f.disconnected.clear();
    f.settle();
    assert_eq!(f.agents[&offered[0]].held().count(), 0, "the late hold is withdrawn");
}

#[test]
fn a_joining_cluster_gets_no_offer_before_another_stores_its_name() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    f.add_agent("us", 77);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    f.disconnected.push("eu".into());
    let first = f.submit("first", 4);
    f.settle();
    assert_eq!(f.cluster_of(first), None);
    let why = f.why(first);
    assert!(
        why["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["reason"].as_str().unwrap().contains("joined just now")),
        "{why:#}"
    );
    f.disconnected.clear();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    f.settle();
    let second = f.submit("second", 4);
    f.settle();
    assert!(f.cluster_of(first).is_some() && f.cluster_of(second).is_some());
    assert!(f.world.state().members().values().all(|m| m.admitted()));
}

#[test]
fn large_jobs_are_sent_in_several_answers() {
    let mut f = Fleet::new(EU);
    // The worst case of JSON: each quote takes four bytes in the answer.
    let argument = "\"".repeat(1_400_000);
    let uids: Vec<Uid> =
        ["a", "b", "c", "d"].map(|name| f.submit_with("default", name, 1, json!({}), &argument)).into();
    f.settle();
    assert!(uids.iter().all(|uid| f.phase(*uid) == Some(Phase::Running)));
}

#[test]
fn no_offer_is_lost_when_answers_arrive_out_of_order() {
    let mut f = Fleet::new(EU);
    let eu = ClusterName::new("eu");
    // A request of each lane is open. Each answer brings an offer, and the later answer arrives first.
    let (mut answers, mut uids) = (Vec::new(), Vec::new());
    for (lane, name) in [(Lane::News, "first"), (Lane::Poll, "second")] {
        uids.push(f.submit(name, 1));
        let request = Box::new(f.agents.get_mut(&eu).unwrap().compose(now(f.now), lane));
        match f.input(Input::Sync { cluster: eu.clone(), request, may_park: false }) {
            Reply::Sync(answer) => answers.push(answer),
            other => panic!("{other:?}"),
        }
    }
    for answer in answers.into_iter().rev() {
        let out = f.agents.get_mut(&eu).unwrap().apply(now(f.now), AgentInput::Answer(answer));
        f.perform(&eu, out.into_effects());
    }
    assert_eq!(f.agents[&eu].held().count(), 2, "both offers are held, and none was repeated");
    f.settle();
    assert!(uids.iter().all(|uid| f.phase(*uid) == Some(Phase::Running)));
}

#[test]
fn the_audit_log_names_the_cluster_and_the_fence_of_a_grant() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 1);
    f.settle();
    let fence = f.world.state().workloads()[&uid].fence().unwrap();
    let [(_, entry)] = &f.audit_lines(Action::Grant)[..] else { panic!("one grant") };
    assert_eq!((entry.cluster.clone(), entry.detail.clone()), (f.cluster_of(uid), Some(fence.to_string())));
}

#[test]
fn the_audit_log_names_the_cluster_and_the_sizes_of_a_scale_up() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    let [(_, entry)] = &f.audit_lines(Action::ScaleUp)[..] else { panic!("one scale-up") };
    assert_eq!(
        (entry.cluster.clone(), entry.detail.as_deref()),
        (f.cluster_of(gang), Some("from 1 to 4 pods"))
    );
}

//! Agents that report what they may not: their reports harm no other cluster.

use super::*;
use meridian_manager_core::live::counts::Count;
use meridian_shared::ids::Session;
use meridian_shared::protocol::{OnLoss, Run};

/// The end of an attempt that was never granted.
pub(super) fn invented_end(uid: Uid, counter: u64) -> End {
    let fence = Fence { epoch: 1, leadership: 1, counter };
    End {
        uid,
        fence,
        result: EndResult::Succeeded,
        pod_failures: 0,
        ran: Millis(1),
        completed: meridian_shared::indexes::Indexes::default(),
        proof: None,
    }
}

#[test]
fn a_reported_run_without_the_managers_mac_is_not_adopted() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 4);
    f.settle();
    let home = f.cluster_of(uid);
    assert_ne!(home.as_deref(), Some("us"));
    f.submit("fills-1", 4);
    f.submit("fills-2", 4);
    f.settle();
    let pending = f.submit("waits", 4);
    f.settle();
    // One agent reports both workloads as its runs, with a fence that was never granted.
    let hostile: ClusterName = "us".into();
    let session = f.agents[&hostile].session();
    let ledger = f.agents[&hostile].durable().ledger();
    let leadership = f.world.state().leadership();
    let fence = Fence { epoch: u64::MAX, leadership: 1, counter: 1 };
    let run = |uid| Run {
        uid,
        fence,
        offer: OfferId { epoch: 9, leadership: 9, counter: 9 },
        attempt: 9,
        running: true,
        stopping: false,
        term: Millis(u64::MAX),
        on_loss: OnLoss::Fence,
        spec: ContentHash(1),
        mac: None,
        placement: None,
        spare: BTreeMap::new(),
        job: None,
        scale_up: None,
        priority: None,
    };
    let mut request: SyncRequest = f.agents.get_mut(&hostile).unwrap().compose(now(f.now), Lane::News);
    assert_eq!(request.session, Session { counter: 1, id: 1 });
    request.ledger = ledger;
    request.inventory = Some(Inventory {
        for_leadership: Some(leadership),
        runs: vec![run(uid), run(pending)],
        ..Inventory::default()
    });
    assert_eq!(request.session, session);
    f.input(Input::Sync { cluster: hostile, request: Box::new(request), may_park: false });
    f.settle();
    f.end(uid, EndResult::Succeeded);
    assert_ne!(home, None);
    assert_eq!(f.world.live().counts().of(Count::Adoptions), 0);
    assert_eq!(f.phase(pending), Some(Phase::Running), "the report delays no other workload");
}

#[test]
fn an_attempt_with_a_recorded_end_takes_no_second_end() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 3);
    f.settle();
    let eu = ClusterName::new("eu");
    f.apply(vec![meridian_object(
        "ResidencyPolicy",
        "no-eu",
        json!({
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}}),
    )]);
    f.settle();
    assert_eq!((f.phase(uid), f.cluster_of(uid)), (Some(Phase::Pending), None));
    let recorded = f.agents[&eu].durable().tombstones().values().next().unwrap().end.clone();
    assert!(recorded.proof.is_some() && recorded.result == EndResult::Stopped);
    let second = End { result: EndResult::Succeeded, ..recorded };
    let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
    let request = Box::new(SyncRequest {
        events_from: composed.events_last + 1,
        events: vec![Event::Ended(second)],
        ..composed
    });
    f.input(Input::Sync { cluster: eu, request, may_park: false });
    assert_eq!(f.phase(uid), Some(Phase::Pending), "the workload was evicted, and waits for another cluster");
}

#[test]
fn an_end_with_proof_replaces_one_without() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 3);
    f.settle();
    let eu = ClusterName::new("eu");
    f.disconnected.push(eu.clone());
    f.apply(vec![meridian_object(
        "ResidencyPolicy",
        "no-eu",
        json!({
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}}),
    )]);
    let mut sent = 0;
    let mut report = |f: &mut Fleet, end: End| {
        sent += 1;
        let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let request = Box::new(SyncRequest {
            events_from: composed.events_last + sent,
            events: vec![Event::Ended(end)],
            ..composed
        });
        f.input(Input::Sync { cluster: eu.clone(), request, may_park: false });
    };
    // The agent runs on a ledger from before the grant, and finds no run.
    let fence = f.world.state().workloads()[&uid].fence().unwrap();
    report(
        &mut f,
        End {
            uid,
            fence,
            result: EndResult::Stopped,
            pod_failures: 0,
            ran: Millis(0),
            completed: meridian_shared::indexes::Indexes::default(),
            proof: None,
        },
    );
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    // The ledger that has the grant comes back, and proves that the job succeeded.
    f.end_unreported(uid, EndResult::Succeeded);
    let end = f.agents[&eu].durable().tombstones().values().next().unwrap().end.clone();
    assert!(end.proof.is_some() && end.result == EndResult::Succeeded);
    report(&mut f, end);
    assert_eq!(f.phase(uid), Some(Phase::Finished), "the job doesn't run again");
}

#[test]
fn invented_offers_and_ends_take_bounded_memory() {
    let mut f = Fleet::new(EU);
    let eu = ClusterName::new("eu");
    for round in 1..=8 {
        let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let offers = (0..20_000)
            .map(|i| {
                (OfferId { epoch: 1, leadership: 1, counter: 1_000_000 * round + i }, Uid(u128::from(i)))
            })
            .collect();
        let inventory = Some(Inventory {
            for_leadership: Some(f.world.state().leadership()),
            offers,
            ..Inventory::default()
        });
        f.input(Input::Sync {
            cluster: eu.clone(),
            request: Box::new(SyncRequest { inventory, ..composed }),
            may_park: false,
        });
    }
    let end = |n: u64| End { result: EndResult::Stopped, ..invented_end(Uid(n.into()), n) };
    for round in 0..40 {
        let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let events_from = f.world.live().clusters()[&eu].events_through() + 1;
        let events = (0..1_024).map(|i| Event::Ended(end(1_024 * round + i))).collect();
        let request = Box::new(SyncRequest {
            events_from,
            events_last: events_from + 1_023,
            events,
            answered: 0,
            ..composed
        });
        f.input(Input::Sync { cluster: eu.clone(), request, may_park: false });
    }
    let live = &f.world.live().clusters()[&eu];
    assert!(live.outbox().waiting() <= 8_192 && live.answers().ends_waiting() <= 32_768);
}

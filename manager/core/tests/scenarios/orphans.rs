//! Runs of jobs that a journal doesn't know: that they are stopped, and how they go where nobody can tell of them any more.

use super::*;

/// A journal from before a job with this lease term was submitted; where that runs.
fn orphaned(term: &str) -> (Fleet, Uid, Fence, ClusterName) {
    let mut f = Fleet::regions();
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "term"}, "spec": {
        "applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Fence", "term": term}}})]);
    let copy = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    let home = ClusterName::new(f.at(lost).unwrap());
    f.lead_with_copy(&copy);
    f.confirm_rules();
    f.settle();
    f.settle();
    let (uid, fence) = *f.world.state.orphans().keys().next().unwrap();
    assert_eq!((uid, f.world.state.recovery().is_some()), (lost, false));
    (f, uid, fence, home)
}

impl Fleet {
    fn operate(&mut self, action: Operator) -> Reply {
        self.input(Input::Operator { actor: Actor::user("op"), action })
    }

    fn submit_again(&mut self, uid: Uid) -> Reply {
        let object = object(job("default", "lost", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""));
        self.write(vec![Change::Put { object, scope: None, uid, mode: PutMode::Apply }])
    }
}

#[test]
fn an_orphan_whose_agent_is_away_is_stopped_once_it_is_back() {
    let (mut f, uid, fence, home) = orphaned("15m");
    f.cut.push(home);
    f.restart(3, RECOVERY);
    f.settle();
    assert!(matches!(f.operate(Operator::StopOrphan { uid, fence }), Reply::Done(_)));
    f.settle();
    assert!(f.at(uid).is_some(), "its agent hasn't heard of it");
    // Nobody has to say it again, not even to the next leadership.
    f.restart(4, RECOVERY);
    f.cut.clear();
    f.settle();
    f.settle();
    assert_eq!((f.at(uid), f.world.state.orphans().len()), (None, 0));
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn an_orphan_that_is_being_stopped_isnt_adopted() {
    let (mut f, uid, fence, home) = orphaned("8s");
    f.cut.push(home);
    f.operate(Operator::StopOrphan { uid, fence });
    let job = object(job("default", "lost", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""));
    let adopted = f.operate(Operator::AdoptOrphan { uid, fence, job });
    assert!(
        matches!(&adopted, Reply::Rejected(why) if why[0].message.contains("is being stopped")),
        "{adopted:?}"
    );
}

#[test]
fn the_orphans_of_a_ledger_that_is_declared_lost_go_with_it() {
    let (mut f, uid, _, home) = orphaned("8s");
    f.cut.push(home.clone());
    f.running.clear();
    assert!(matches!(f.submit_again(uid), Reply::Rejected(_)));
    f.operate(Operator::DeclareLost { cluster: home, ledger: None });
    assert!(f.world.state.orphans().is_empty());
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn the_orphans_of_a_store_that_was_deleted_go_once_their_leases_have_lapsed() {
    let (mut f, uid, _, home) = orphaned("8s");
    f.add_agent(home.as_str(), 9_999);
    f.settle();
    f.pass(Millis(TERM.0 - 1_000));
    assert!(matches!(f.submit_again(uid), Reply::Rejected(_)), "it may run to the end of its lease");
    f.pass(Millis::secs(32));
    f.running.clear();
    assert!(f.world.state.orphans().is_empty());
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn what_ended_since_an_inventory_was_composed_is_no_orphan() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let eu = ClusterName::new("eu");
    let uid = f.submit("job", 3);
    f.settle();
    f.restart(2, RECOVERY);
    f.exchange();
    let late = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::Poll);
    assert!(late.inventory.as_ref().is_some_and(|inventory| inventory.runs.len() == 1));
    f.settle();
    f.end(uid, EndResult::Succeeded);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "job"), uid: None }]);
    assert_eq!(f.phase(uid), None);
    f.input(Input::Sync { cluster: eu, request: Box::new(late), may_park: false });
    assert!(f.world.state.orphans().is_empty());
}

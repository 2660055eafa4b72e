//! Orphans (runs of jobs that the journal doesn't know): stopping them, and when they are forgotten.

use super::*;

/// A fleet with a journal that is restored from before a job was submitted. The job has this lease term and
/// still runs. Returns the orphan, its fence and its cluster.
fn orphaned(term: &str) -> (Fleet, Uid, Fence, ClusterName) {
    orphaned_by(&json!({"mode": "Fence", "term": term}))
}

/// The same with this `onClusterLoss`.
fn orphaned_by(on_loss: &Value) -> (Fleet, Uid, Fence, ClusterName) {
    let mut f = Fleet::regions();
    let spec = json!({"applies": {"queues": ["*"]}, "onClusterLoss": on_loss});
    f.apply(vec![meridian_object("DispatchPolicy", "term", spec)]);
    let backup = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    let home = ClusterName::new(f.cluster_of(lost).unwrap());
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    let (uid, fence) = *f.world.state().orphans().keys().next().unwrap();
    assert_eq!((uid, f.world.state().recovery().is_some()), (lost, false));
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
fn an_orphan_has_the_name_of_its_job_and_rules_in_doubt_are_named_as_the_obstacle() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    f.submit("lost", 3);
    f.settle();
    f.lead_from_backup(&backup);
    f.settle();
    f.settle();
    let state = |f: &Fleet| meridian_views::recovery::recovery(&f.world, now(f.now), &Asker::unlimited());
    let (before, why) = (state(&f), f.submit("new", 1));
    assert_eq!((&before["open"], &before["orphans"][0]["job"]), (&json!(false), &json!("default/lost")));
    let message = before["message"].as_str().unwrap();
    assert!(
        message.starts_with("no job starts: ") && message.contains("`meridian journal confirm`"),
        "{message}"
    );
    assert!(f.why(why)["wouldHelp"].as_str().unwrap().contains("`meridian journal confirm`"));
    f.confirm_rules();
    f.settle();
    assert_eq!((&state(&f)["message"], f.phase(why)), (&Value::Null, Some(Phase::Running)));
}

#[test]
fn a_stopped_orphan_ends_once_its_agent_is_back() {
    let (mut f, uid, fence, home) = orphaned("15m");
    f.disconnected.push(home);
    f.restart(3, RECOVERY);
    f.settle();
    assert!(matches!(f.operate(Operator::StopOrphan { uid, fence }), Reply::Done(_)));
    f.settle();
    assert!(f.cluster_of(uid).is_some(), "the agent is disconnected");
    // The next leadership still knows that the orphan is to be stopped.
    f.restart(4, RECOVERY);
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.cluster_of(uid), f.world.state().orphans().len()), (None, 0));
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn an_orphan_that_is_being_stopped_cant_be_adopted() {
    let (mut f, uid, fence, home) = orphaned("8s");
    f.disconnected.push(home);
    f.operate(Operator::StopOrphan { uid, fence });
    let job = object(job("default", "lost", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""));
    let adopted = f.operate(Operator::AdoptOrphan { uid, fence, job });
    assert!(
        matches!(&adopted, Reply::Rejected(why) if why[0].message.contains("is being stopped")),
        "{adopted:?}"
    );
}

#[test]
fn orphans_of_a_ledger_declared_lost_are_forgotten() {
    let (mut f, uid, _, home) = orphaned("8s");
    f.disconnected.push(home.clone());
    f.running.clear();
    assert!(matches!(f.submit_again(uid), Reply::Rejected(_)));
    f.operate(Operator::DeclareLost { cluster: home, ledger: None });
    assert!(f.world.state().orphans().is_empty());
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn a_ledger_that_is_declared_lost_takes_only_its_own_orphans() {
    let (mut f, _, _, home) = orphaned("15m");
    let old = f.world.state().orphans().values().next().unwrap().ledger();
    f.add_agent(home.as_str(), 9_999);
    f.settle();
    f.operate(Operator::DeclareLost { cluster: home.clone(), ledger: Some(LedgerId(9_999)) });
    assert_eq!(f.world.state().orphans().len(), 1, "its machine may still run");
    f.operate(Operator::DeclareLost { cluster: home, ledger: Some(old) });
    assert!(f.world.state().orphans().is_empty());
}

#[test]
fn an_orphan_without_a_lease_or_with_its_ledger_is_not_forgotten_by_time() {
    let (mut f, _, _, home) = orphaned("8s");
    f.disconnected.push(home);
    f.advance(Millis(8 * TERM.0));
    assert_eq!(f.world.state().orphans().len(), 1, "the cluster is only disconnected");

    let (mut f, _, _, home) = orphaned_by(&json!({"mode": "Wait"}));
    f.add_agent(home.as_str(), 9_999);
    f.advance(Millis(8 * TERM.0));
    assert_eq!(f.world.state().orphans().len(), 1, "nothing ends it but a person who looked");
}

#[test]
fn orphans_of_a_deleted_ledger_are_forgotten_after_their_leases() {
    let (mut f, uid, _, home) = orphaned("8s");
    f.add_agent(home.as_str(), 9_999);
    f.settle();
    f.advance(Millis(TERM.0 - 1_000));
    assert!(matches!(f.submit_again(uid), Reply::Rejected(_)), "the orphan may run until its lease ends");
    f.advance(Millis::secs(32));
    f.running.clear();
    assert!(f.world.state().orphans().is_empty());
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn a_manager_without_its_claim_forgets_no_orphan() {
    let (mut f, uid, _, home) = orphaned("8s");
    f.add_agent(home.as_str(), 9_999);
    f.settle();
    // No commit succeeds any more: another manager may lead, and renew the lease.
    for _ in 0..3 {
        f.now += 3 * TERM.0;
        f.input(Input::Turn);
    }
    assert_eq!(f.world.state().orphans().len(), 1);
    // From the next commit on the lease counts in full.
    f.advance(Millis(TERM.0 - 1_000));
    assert_eq!(f.world.state().orphans().len(), 1);
    f.advance(Millis::secs(32));
    f.running.clear();
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn no_orphan_is_forgotten_while_another_copy_of_the_journal_may_lead() {
    let (mut f, uid, _, home) = orphaned("8s");
    f.add_agent(home.as_str(), 9_999);
    f.settle();
    let copy = f.world.snapshot();
    f.disconnected = f.agents.keys().filter(|name| **name != home).take(1).cloned().collect();
    f.lead_from_backup(&copy);
    f.advance(Millis(6 * TERM.0));
    assert!(f.world.state().recovery().is_some());
    assert_eq!(f.world.state().orphans().len(), 1, "a manager with the original may renew its lease");
    f.operate(Operator::ConfirmRecovery);
    f.advance(Millis(TERM.0 + 32_000));
    f.running.clear();
    assert!(f.world.state().orphans().is_empty());
    assert!(matches!(f.submit_again(uid), Reply::Written(_)));
}

#[test]
fn a_run_that_ended_after_the_inventory_was_composed_is_no_orphan() {
    let mut f = Fleet::new(EU);
    let eu = ClusterName::new("eu");
    let uid = f.submit("job", 3);
    f.settle();
    f.restart(2, RECOVERY);
    f.exchange();
    let late = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::Poll);
    assert!(late.inventory.as_ref().is_some_and(|inventory| inventory.runs.len() == 1));
    f.settle();
    f.end(uid, EndResult::Succeeded);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "job"),
        uid: None,
        force: false,
    }]);
    assert_eq!(f.phase(uid), None);
    f.input(Input::Sync { cluster: eu, request: Box::new(late), may_park: false });
    assert!(f.world.state().orphans().is_empty());
}

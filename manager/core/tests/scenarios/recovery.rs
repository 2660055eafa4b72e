//! How long recovery waits for clusters that report nothing, and what it holds back meanwhile.

use super::*;
use meridian_shared::lease::TERM_MAX;

/// A policy for all queues with this reaction to the loss of a cluster.
fn policy(on_loss: &Value) -> Value {
    meridian_object("DispatchPolicy", "all", json!({"applies": {"queues": ["*"]}, "onClusterLoss": on_loss}))
}

/// A workload waits in the journal, `eu` is silent, and the manager starts again. An operator has confirmed
/// the rules.
fn waiting_for_eu(on_loss: &Value) -> (Fleet, Uid) {
    let mut f = Fleet::regions();
    f.apply(vec![policy(on_loss)]);
    f.disconnected = vec!["eu".into(), "us".into(), "asia".into()];
    f.advance(TERM);
    let uid = f.submit("gang", 2);
    f.restart(2, RECOVERY);
    f.disconnected = vec!["eu".into()];
    f.confirm_rules();
    f.settle();
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Pending), true));
    (f, uid)
}

impl Fleet {
    fn is_recovering(&self) -> bool {
        self.world.state().recovery().is_some()
    }
}

#[test]
fn a_workload_is_held_back_for_its_own_term() {
    let (mut f, uid) = waiting_for_eu(&json!({"mode": "Fence", "term": "40s"}));
    f.advance(Millis::secs(30));
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Pending), true));
    f.advance(Millis::secs(15));
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Running), false));
}

#[test]
fn recovery_waits_for_the_longest_term_and_releases_the_others_before() {
    let (mut f, short) = waiting_for_eu(&json!({"mode": "Fence", "term": "8s"}));
    f.disconnected = vec!["eu".into(), "us".into(), "asia".into()];
    f.advance(Millis::secs(4));
    f.apply(vec![policy(&json!({"mode": "Fence", "term": "60s"}))]);
    let long = f.submit("long", 2);
    f.restart(3, RECOVERY);
    f.disconnected = vec!["eu".into()];
    f.confirm_rules();
    f.advance(Millis::secs(20));
    assert_eq!(f.phases(&[short, long]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert!(f.is_recovering());
}

#[test]
fn without_a_lease_only_the_cluster_or_an_operator_ends_the_wait() {
    let (mut f, uid) = waiting_for_eu(&json!({"mode": "Wait"}));
    f.advance(Millis::mins(10));
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Pending), true));
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Running), false));
}

#[test]
fn an_empty_journal_waits_for_the_usual_term() {
    let mut f = Fleet::new(EU);
    f.disconnected = vec!["eu".into()];
    f.restart(2, RECOVERY);
    f.advance(Millis::secs(7));
    assert!(f.is_recovering(), "an older journal may lack what runs there");
    f.advance(Millis::secs(3));
    assert!(!f.is_recovering());
}

#[test]
fn a_copy_of_a_ledger_proves_nothing_about_a_restored_journal() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    f.settle();
    let backup = f.world.snapshot();
    f.lead_from_backup(&backup);
    let ledger = f.agents[&ClusterName::new("eu")].durable().clone();
    f.start_agent("eu", ledger, None);
    f.settle();
    f.settle();
    assert!(f.is_recovering());
    assert_eq!(
        f.world.live().recovery().awaited().len(),
        1,
        "the agent may run on an old copy of its ledger"
    );
}

#[test]
fn an_operators_doubt_about_rules_outlasts_the_wait_for_members() {
    for doubts in [false, true] {
        let mut f = Fleet::new(EU);
        f.restart(2, RECOVERY);
        assert!(f.world.state().rules_doubted().is_some());
        if doubts {
            f.input(Input::Operator { actor: Actor::System, action: Operator::DoubtRules });
        }
        f.settle();
        assert_eq!(f.world.state().rules_doubted().is_some(), doubts);
    }
}

/// A job that runs, a backup of the journal, and the cluster of the job, which is silent from now on.
fn running_and_backed_up() -> (Fleet, Uid, Vec<u8>, ClusterName) {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 3);
    f.settle();
    let (backup, first) = (f.world.snapshot(), ClusterName::new(f.cluster_of(uid).unwrap()));
    f.disconnected = vec![first.clone()];
    (f, uid, backup, first)
}

/// By the journal an attempt of the job runs in a cluster that is silent. A later attempt, which the journal
/// doesn't have, has succeeded elsewhere, and its agent reports that.
fn succeeded_unknown_to_the_journal() -> (Fleet, Uid) {
    let (mut f, uid, backup, first) = running_and_backed_up();
    f.advance(Millis::secs(12));
    assert_ne!(f.cluster_of(uid).expect("it runs again"), first.as_str());
    f.end_unreported(uid, EndResult::Succeeded);
    f.lead_from_backup(&backup);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Stopping));
    (f, uid)
}

#[test]
fn a_result_that_is_newer_than_the_journal_finishes_the_job_after_the_older_attempt() {
    let (mut f, uid) = succeeded_unknown_to_the_journal();
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.running.len()), (Some(Phase::Finished), 0));
}

#[test]
fn a_deleted_job_is_forgotten_after_the_older_attempt_although_it_succeeded() {
    let (mut f, uid) = succeeded_unknown_to_the_journal();
    let key = Key::namespaced(Kind::Job, "default", "gang");
    f.write(vec![Change::Delete { key, uid: None, force: false }]);
    assert_eq!(f.phase(uid), Some(Phase::Stopping));
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!(f.phase(uid), None);
}

/// By the journal an attempt of the job runs. It has succeeded, and a later attempt has failed, which the
/// journal doesn't have.
#[test]
fn a_job_that_has_finished_learns_no_other_result() {
    let (mut f, uid, backup, _) = running_and_backed_up();
    f.end_unreported(uid, EndResult::Succeeded);
    f.advance(Millis::secs(12));
    let second = ClusterName::new(f.cluster_of(uid).expect("it runs again"));
    f.end_unreported(
        uid,
        EndResult::Failed { reason: "BackoffLimitExceeded".into(), message: String::new() },
    );
    f.lead_from_backup(&backup);
    f.disconnected = vec![second];
    f.settle();
    f.settle();
    let result = |f: &Fleet| f.world.state().workloads()[&uid].finished().map(|end| format!("{end:?}"));
    let finished = result(&f);
    assert_eq!(f.phase(uid), Some(Phase::Finished));
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), result(&f)), (Some(Phase::Finished), finished));
}

#[test]
fn workloads_that_are_over_or_new_dont_prolong_recovery() {
    let mut f = Fleet::new(EU);
    f.apply(vec![policy(&json!({"mode": "Wait"}))]);
    let over = f.submit("over", 2);
    f.settle();
    f.end(over, EndResult::Succeeded);
    f.disconnected = vec!["eu".into()];
    f.restart(2, RECOVERY);
    f.submit("new", 2);
    f.advance(Millis::secs(10));
    assert_eq!((f.phase(over), f.is_recovering()), (Some(Phase::Finished), false));
}

#[test]
fn a_gang_whose_start_was_not_reported_goes_on_running_after_recovery_ended_by_time() {
    let mut f = Fleet::new(EU);
    let mut patient = policy(&json!({"mode": "Wait"}));
    patient["spec"]["startTimeout"] = json!("100h");
    f.apply(vec![patient]);
    let uid = f.submit("gang", 2);
    while f.running.is_empty() {
        f.now += 20;
        f.exchange_news("eu");
        f.input(Input::Turn);
    }
    f.disconnected = vec!["eu".into()];
    f.restart(2, Some(RecoveryStart { restored: false, members_unknown: true }));
    f.confirm_rules();
    f.settle();
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Granted), true));
    f.now += 2 * TERM_MAX.0;
    f.world.committed(Mono(f.now));
    f.settle();
    assert_eq!((f.phase(uid), f.is_recovering()), (Some(Phase::Granted), false));
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.running.len()), (Some(Phase::Running), 1));
}

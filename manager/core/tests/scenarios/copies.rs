//! Journals that were restored from a backup: what they learn, adopt and leave to a person.

use super::*;

#[test]
fn an_older_journal_adopts_what_really_runs() {
    let mut f = Fleet::regions();
    let early = f.submit("early", 3);
    let copy = f.world.snapshot();
    f.settle();
    let home = f.at(early);
    assert!(home.is_some());
    let unknown = f.submit("unknown", 3);
    f.settle();
    assert!(f.at(unknown).is_some());
    // Restored from before anything was granted: the same epoch is taken twice, and agents say so.
    f.lead_with_copy(&copy);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.at(early), home, "it was neither stopped nor moved");
    assert_eq!(f.phase(early), Some(Phase::Running));
    assert_eq!(f.world.state.orphans().len(), 1);
    assert_eq!(f.world.state.orphans().keys().next().unwrap().0, unknown);
    let ours = f.world.state.leadership().epoch;
    assert!(f.agents.values().all(|a| a.durable().follows.is_some_and(|l| l.epoch == ours)));
}

#[test]
fn an_orphan_gets_its_own_job_back_and_no_other() {
    let mut f = Fleet::regions();
    let copy = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    let home = f.at(lost);
    f.lead_with_copy(&copy);
    f.confirm_rules();
    let (uid, fence) = (lost, Fence { epoch: 1, leadership: 1, counter: 1 });
    f.settle();
    f.settle();
    assert_eq!(f.world.state.orphans().keys().copied().collect::<Vec<_>>(), [(uid, fence)]);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let mut adopt = |pods: u32| {
        let job = object(job("default", "lost", pods, &labels, ""));
        f.input(Input::Operator {
            actor: Actor::user("op"),
            action: Operator::AdoptOrphan { uid, fence, job },
        })
    };
    assert!(
        matches!(adopt(2), Reply::Rejected(why) if why[0].message.contains("isn't the job that runs there"))
    );
    assert!(matches!(adopt(3), Reply::Done(_)));
    assert!(f.world.state.orphans().is_empty());
    // It is an ordinary workload again: renewed for many terms, and it ends once.
    f.pass(Millis(3 * TERM.0));
    assert_eq!((f.phase(lost), f.at(lost)), (Some(Phase::Running), home));
    f.end(lost, EndResult::Succeeded);
    assert_eq!(f.phase(lost), Some(Phase::Finished));
}

#[test]
fn what_is_sent_again_doesnt_run_beside_its_orphan() {
    let mut f = Fleet::regions();
    let copy = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    f.lead_with_copy(&copy);
    f.confirm_rules();
    f.settle();
    f.settle();
    let again = || {
        let object = object(job("default", "lost", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""));
        vec![Change::Put { object, scope: None, uid: lost, mode: PutMode::Apply }]
    };
    assert!(matches!(f.write(again()), Reply::Rejected(why) if why[0].message.contains("adopt that run as")));
    let fence = f.world.state.orphans().keys().next().unwrap().1;
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::StopOrphan { uid: lost, fence } });
    f.settle();
    f.settle();
    assert!(f.world.state.orphans().is_empty());
    assert!(matches!(f.write(again()), Reply::Written(_)));
}

#[test]
fn a_job_that_is_over_is_not_run_again_by_a_journal_from_before_its_grant() {
    let mut f = Fleet::regions();
    let (done, spoken_for) = (f.submit("done", 3), f.submit("spoken-for", 3));
    let copy = f.world.snapshot();
    f.settle();
    let home = ClusterName::new(f.at(spoken_for).unwrap());
    let invented =
        End { fence: Fence { epoch: 99, leadership: 1, counter: 1 }, ..invented_end(spoken_for, 1) };
    // It ends while the manager is away, and the copy that comes back has never granted it.
    f.lead_with_copy(&copy);
    f.confirm_rules();
    f.end_unheard(done, EndResult::Succeeded);
    f.settle();
    f.settle();
    let w = &f.world.state.workloads()[&done];
    assert_eq!(
        (w.phase(), w.finished().as_ref().map(|f| f.succeeded), w.history().len()),
        (Phase::Finished, Some(true), 1)
    );
    assert_eq!(f.at(done), None);
    // What nobody granted ends nothing, whoever says so.
    let request = Box::new(SyncRequest {
        events: vec![Event::Ended(invented)],
        ..f.agents.get_mut(&home).unwrap().compose(now(f.now), Lane::News)
    });
    f.input(Input::Sync { cluster: home, request, may_park: false });
    assert_eq!(f.phase(spoken_for), Some(Phase::Running));
}

#[test]
fn a_copy_dispatches_nothing_by_rules_that_nobody_confirmed() {
    let mut f = Fleet::regions();
    let copy = f.world.snapshot();
    // Since the backup `us` was forbidden, and the only agent that knows is cut off when the copy takes over.
    f.cut = vec![ClusterName::new("us")];
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "not-us"}, "spec": {
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": ["us"]}}})]);
    f.settle();
    f.cut = vec![ClusterName::new("eu"), ClusterName::new("asia")];
    f.lead_with_copy(&copy);
    f.settle();
    let job = f.submit("job", 3);
    f.settle();
    assert_eq!((f.at(job), f.phase(job)), (None, Some(Phase::Pending)));
    assert!(
        f.why(job)["summary"].as_str().unwrap().contains("confirm policies and quotas"),
        "{}",
        f.why(job)
    );
    f.confirm_rules();
    f.settle();
    assert!(f.at(job).is_some());
}

#[test]
fn an_orphan_that_was_seen_before_it_ran_is_not_stopped_for_a_late_start() {
    let mut f = Fleet::regions();
    let copy = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.hold_starts = true;
    f.settle();
    let home = f.at(lost);
    f.lead_with_copy(&copy);
    f.confirm_rules();
    let (uid, fence) = (lost, Fence { epoch: 1, leadership: 1, counter: 1 });
    f.settle();
    f.settle();
    assert_eq!(f.world.state.orphans().keys().copied().collect::<Vec<_>>(), [(uid, fence)]);
    // Its pods have started by now, and its agent says so to a manager that doesn't know it.
    let name = ClusterName::new(home.clone().unwrap());
    f.agents
        .get_mut(&name)
        .unwrap()
        .apply(now(f.now), AgentInput::Runner(RunnerEvent::Running { uid, fence }));
    f.settle();
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let job = object(job("default", "lost", 3, &labels, ""));
    let done = f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::AdoptOrphan { uid, fence, job },
    });
    assert!(matches!(done, Reply::Done(_)), "{done:?}");
    f.pass(Millis(5 * TERM.0));
    assert_eq!((f.phase(lost), f.at(lost)), (Some(Phase::Running), home));
    assert_eq!(f.world.state.workloads()[&lost].attempts(), 1);
}

#[test]
fn a_copy_from_before_anybody_joined_doesnt_take_the_first_to_come_for_everybody() {
    let mut f = Fleet::without_agents(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let job = f.submit("job", 3);
    let copy = f.world.snapshot();
    f.add_agent("eu", 1_000);
    f.settle();
    assert_eq!(f.at(job).as_deref(), Some("eu"));
    // The backup is put in its place while `eu` is cut off, and another cluster is the first that it hears of.
    f.cut.push("eu".into());
    f.add_agent("us", 1_001);
    f.lead_with_copy(&copy);
    f.confirm_rules();
    // Panics where two clusters run it.
    f.settle();
    assert!(f.world.state.recovery().is_some());
}

#[test]
fn an_agent_cant_make_another_clusters_orphan_go() {
    let mut f = Fleet::regions();
    let copy = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    let home = ClusterName::new(f.at(lost).unwrap());
    let liar = f.agents.keys().find(|n| **n != home).unwrap().clone();
    f.lead_with_copy(&copy);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.world.state.orphans().len(), 1);
    let end = End { result: EndResult::Stopped, ..invented_end(lost, 1) };
    let composed = f.agents.get_mut(&liar).unwrap().compose(now(f.now), Lane::News);
    let request = Box::new(SyncRequest {
        events_from: composed.events_last + 1,
        events: vec![Event::Ended(end)],
        ..composed
    });
    f.input(Input::Sync { cluster: liar, request, may_park: false });
    assert_eq!(f.world.state.orphans().len(), 1);
}

#[test]
fn after_a_start_a_lease_is_renewed_at_once() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    // A machine that was up for less than a thirty-second of the term can't tell a renewal of its own from none.
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "long"}, "spec": {
        "applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Fence", "term": "1h"}}})]);
    f.submit("job", 1);
    f.settle();
    f.restart(2, RECOVERY);
    f.pass(Millis(2_000));
    assert_eq!((f.world.state.recovery().is_some(), f.world.live.counts.renewals), (false, 1));
}

impl Fleet {
    /// The journal of before `lost` was granted comes back while the cluster that runs it is cut off. Returns that cluster.
    fn restore_while_cut_off(&mut self, lost: Uid, copy: &[u8]) -> ClusterName {
        let home = ClusterName::new(self.at(lost).expect("it runs"));
        self.cut = vec![home.clone()];
        self.lead_with_copy(copy);
        self.confirm_rules();
        self.settle();
        home
    }

    fn runs_elsewhere(&self, uid: Uid, home: &ClusterName) -> bool {
        self.running.iter().any(|(cluster, other)| *other == uid && cluster != home)
    }

    fn confirm_copies(&mut self) -> Reply {
        self.input(Input::Operator { actor: Actor::user("op"), action: Operator::ConfirmRecovery })
    }
}

#[test]
fn confirming_a_copy_frees_no_workload_of_a_silent_cluster_before_its_lease_has_lapsed() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let copy = f.world.snapshot();
    f.settle();
    let home = f.restore_while_cut_off(uid, &copy);
    assert!(matches!(f.confirm_copies(), Reply::Done(text) if text.contains("recovery stays open")));
    f.pass(Millis(TERM.0 - 100));
    assert!(!f.runs_elsewhere(uid, &home), "the silent cluster may still run it");
    assert!(f.why(uid).to_string().contains("recovers"), "{:#}", f.why(uid));
    f.pass(Millis(5_000));
    assert!(f.runs_elsewhere(uid, &home), "its lease has provably lapsed: {:#}", f.why(uid));
}

#[test]
fn confirming_a_copy_leaves_a_waiting_workload_to_its_cluster_or_to_declare_lost() {
    let mut f = Fleet::regions();
    f.apply(vec![
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "wait"},
        "spec": {"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Wait"}}}),
    ]);
    let uid = f.submit("early", 3);
    let copy = f.world.snapshot();
    f.settle();
    let home = f.restore_while_cut_off(uid, &copy);
    f.confirm_copies();
    f.pass(Millis(5 * TERM.0));
    assert!(!f.runs_elsewhere(uid, &home));
    f.running.retain(|(cluster, _)| *cluster != home);
    let lost = Operator::DeclareLost { cluster: home.clone(), ledger: None };
    f.input(Input::Operator { actor: Actor::user("op"), action: lost });
    f.settle();
    assert!(f.runs_elsewhere(uid, &home), "{:#}", f.why(uid));
    assert!(f.world.state.recovery().is_none());
}

#[test]
fn a_cluster_that_returns_after_the_confirmation_keeps_its_run() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let copy = f.world.snapshot();
    f.settle();
    let home = f.restore_while_cut_off(uid, &copy);
    f.confirm_copies();
    f.cut.clear();
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.at(uid)), (Some(Phase::Running), Some(home.to_string())));
    assert!(f.world.state.recovery().is_none());
}

#[test]
fn an_ordinary_recovery_has_nothing_to_confirm() {
    let mut f = Fleet::regions();
    f.settle();
    f.cut = vec![ClusterName::new("us")];
    f.restart(9, Some(RecoveryStart { restored: false, members_unknown: false }));
    f.settle();
    assert!(matches!(f.confirm_copies(), Reply::Rejected(why) if why[0].message.contains("inventory of us")));
}

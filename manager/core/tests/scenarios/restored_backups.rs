//! Journals restored from a backup: what the manager learns from the agents, adopts, or leaves to an
//! operator.

use super::untrusted_agents::invented_end;
use super::*;
use meridian_manager_core::live::counts::Count;

impl Fleet {
    /// The manager starts from a backup that replaced its journal.
    pub(super) fn lead_from_backup(&mut self, backup: &[u8]) {
        let mut world = World::restore(backup, config()).unwrap();
        self.now += 1_000;
        world.lead(
            start(77, self.now, Some(RecoveryStart { restored: true, members_unknown: false }), false),
            &self.bodies,
        );
        world.committed(Mono(self.now));
        self.world = world;
    }
}

#[test]
fn a_restored_journal_adopts_running_gangs() {
    let mut f = Fleet::regions();
    let early = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let home = f.cluster_of(early);
    assert!(home.is_some());
    let unknown = f.submit("unknown", 3);
    f.settle();
    assert!(f.cluster_of(unknown).is_some());
    // The backup is older than any grant. The manager takes an epoch that agents know already, and they
    // report it.
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.cluster_of(early), home, "the gang was neither stopped nor moved");
    assert_eq!(f.phase(early), Some(Phase::Running));
    assert_eq!(f.world.state().orphans().len(), 1);
    assert_eq!(f.world.state().orphans().keys().next().unwrap().0, unknown);
    let ours = f.world.state().leadership().epoch;
    assert!(f.agents.values().all(|a| a.durable().follows().is_some_and(|l| l.epoch == ours)));
}

#[test]
fn an_orphan_is_adopted_only_as_its_own_job() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    let home = f.cluster_of(lost);
    f.lead_from_backup(&backup);
    f.confirm_rules();
    let (uid, fence) = (lost, Fence { epoch: 1, leadership: 1, counter: 1 });
    f.settle();
    f.settle();
    assert_eq!(f.world.state().orphans().keys().copied().collect::<Vec<_>>(), [(uid, fence)]);
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
    assert!(f.world.state().orphans().is_empty());
    // The orphan is an ordinary workload again: its lease is renewed, and it finishes.
    f.advance(Millis(3 * TERM.0));
    assert_eq!((f.phase(lost), f.cluster_of(lost)), (Some(Phase::Running), home));
    f.end(lost, EndResult::Succeeded);
    assert_eq!(f.phase(lost), Some(Phase::Finished));
}

#[test]
fn a_resubmitted_job_doesnt_run_in_addition_to_its_orphan() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    let resubmit = || {
        let object = object(job("default", "lost", 3, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""));
        vec![Change::Put { object, scope: None, uid: lost, mode: PutMode::Apply }]
    };
    assert!(
        matches!(f.write(resubmit()), Reply::Rejected(why) if why[0].message.contains("adopt that run as"))
    );
    let fence = f.world.state().orphans().keys().next().unwrap().1;
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::StopOrphan { uid: lost, fence } });
    f.settle();
    f.settle();
    assert!(f.world.state().orphans().is_empty());
    assert!(matches!(f.write(resubmit()), Reply::Written(_)));
}

#[test]
fn a_finished_job_doesnt_run_again_after_a_restore() {
    let mut f = Fleet::regions();
    let (done, running) = (f.submit("done", 3), f.submit("spoken-for", 3));
    let backup = f.world.snapshot();
    f.settle();
    let home = ClusterName::new(f.cluster_of(running).unwrap());
    let invented = End { fence: Fence { epoch: 99, leadership: 1, counter: 1 }, ..invented_end(running, 1) };
    // The job ends while the manager is down. The backup doesn't know the grant.
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.end_unreported(done, EndResult::Succeeded);
    f.settle();
    f.settle();
    let w = &f.world.state().workloads()[&done];
    assert_eq!(
        (w.phase(), w.finished().as_ref().map(|f| f.succeeded), w.history().len()),
        (Phase::Finished, Some(true), 1)
    );
    assert_eq!(f.cluster_of(done), None);
    // The end of an attempt that was never granted changes nothing.
    let request = Box::new(SyncRequest {
        events: vec![Event::Ended(invented)],
        ..f.agents.get_mut(&home).unwrap().compose(now(f.now), Lane::News)
    });
    f.input(Input::Sync { cluster: home, request, may_park: false });
    assert_eq!(f.phase(running), Some(Phase::Running));
}

#[test]
fn a_restored_manager_dispatches_nothing_before_rules_are_confirmed() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    // A policy denies `us` after the backup. The agents that saw a later journal are disconnected at the
    // restore.
    f.disconnected = vec![ClusterName::new("us")];
    f.apply(vec![meridian_object(
        "ResidencyPolicy",
        "not-us",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["us"]}}),
    )]);
    f.settle();
    f.disconnected = vec![ClusterName::new("eu"), ClusterName::new("asia")];
    f.lead_from_backup(&backup);
    f.settle();
    let job = f.submit("job", 3);
    f.settle();
    assert_eq!((f.cluster_of(job), f.phase(job)), (None, Some(Phase::Pending)));
    assert!(
        f.why(job)["summary"].as_str().unwrap().contains("an operator must confirm them"),
        "{}",
        f.why(job)
    );
    f.confirm_rules();
    // Other agents get the time of one poll to report.
    f.advance(Millis::secs(10));
    assert!(f.cluster_of(job).is_some());
}

#[test]
fn an_orphan_that_starts_late_is_not_stopped_after_adoption() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.hold_starts = true;
    f.settle();
    let home = f.cluster_of(lost);
    f.lead_from_backup(&backup);
    f.confirm_rules();
    let (uid, fence) = (lost, Fence { epoch: 1, leadership: 1, counter: 1 });
    f.settle();
    f.settle();
    assert_eq!(f.world.state().orphans().keys().copied().collect::<Vec<_>>(), [(uid, fence)]);
    // Its pods start now, and its agent reports that to a manager that doesn't know the job.
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
    f.advance(Millis(5 * TERM.0));
    assert_eq!((f.phase(lost), f.cluster_of(lost)), (Some(Phase::Running), home));
    assert_eq!(f.world.state().workloads()[&lost].attempts(), 1);
}

#[test]
fn a_backup_from_before_any_cluster_joined_waits_for_all_clusters() {
    let mut f = Fleet::without_agents(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let job = f.submit("job", 3);
    let backup = f.world.snapshot();
    f.add_agent("eu", 1_000);
    f.settle();
    assert_eq!(f.cluster_of(job).as_deref(), Some("eu"));
    // `eu` is disconnected at the restore, and `us` is the first cluster that reports.
    f.disconnected.push("eu".into());
    f.add_agent("us", 1_001);
    f.lead_from_backup(&backup);
    f.confirm_rules();
    // Panics if two clusters run the job.
    f.settle();
    assert!(f.world.state().recovery().is_some());
}

#[test]
fn an_agent_cant_end_an_orphan_of_another_cluster() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    let lost = f.submit("lost", 3);
    f.settle();
    let home = ClusterName::new(f.cluster_of(lost).unwrap());
    let hostile = f.agents.keys().find(|n| **n != home).unwrap().clone();
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!(f.world.state().orphans().len(), 1);
    let end = End { result: EndResult::Stopped, ..invented_end(lost, 1) };
    let composed = f.agents.get_mut(&hostile).unwrap().compose(now(f.now), Lane::News);
    let request = Box::new(SyncRequest {
        events_from: composed.events_last + 1,
        events: vec![Event::Ended(end)],
        ..composed
    });
    f.input(Input::Sync { cluster: hostile, request, may_park: false });
    assert_eq!(f.world.state().orphans().len(), 1);
}

#[test]
fn a_restarted_manager_renews_leases_at_once() {
    let mut f = Fleet::new(EU);
    // After less than 1/32 of the term since its start, the manager can't tell whether it renewed the lease
    // itself.
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "long",
        json!({"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Fence", "term": "1h"}}),
    )]);
    f.submit("job", 1);
    f.settle();
    f.restart(2, RECOVERY);
    f.advance(Millis(2_000));
    assert_eq!(
        (f.world.state().recovery().is_some(), f.world.live().counts().of(Count::Renewals)),
        (false, 1)
    );
}

impl Fleet {
    /// Restores a backup from before the grant of a workload, while the cluster that runs it is disconnected.
    /// Returns that cluster.
    fn restore_while_disconnected(&mut self, uid: Uid, backup: &[u8]) -> ClusterName {
        let home = ClusterName::new(self.cluster_of(uid).expect("it runs"));
        self.disconnected = vec![home.clone()];
        self.lead_from_backup(backup);
        self.confirm_rules();
        self.settle();
        home
    }

    fn runs_elsewhere(&self, uid: Uid, home: &ClusterName) -> bool {
        self.running.iter().any(|(cluster, other)| *other == uid && cluster != home)
    }

    fn confirm_recovery(&mut self) -> Reply {
        self.input(Input::Operator { actor: Actor::user("op"), action: Operator::ConfirmRecovery })
    }
}

#[test]
fn confirming_recovery_frees_no_workload_before_its_lease_lapses() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let home = f.restore_while_disconnected(uid, &backup);
    assert!(matches!(f.confirm_recovery(), Reply::Done(text) if text.contains("recovery stays open")));
    f.advance(Millis(TERM.0 - 100));
    assert!(!f.runs_elsewhere(uid, &home), "the disconnected cluster may still run it");
    assert!(f.why(uid).to_string().contains("recovering"), "{:#}", f.why(uid));
    f.advance(Millis(5_000));
    assert!(f.runs_elsewhere(uid, &home), "its lease has lapsed: {:#}", f.why(uid));
}

#[test]
fn an_unconfirmed_copy_never_calls_an_older_lease_lapsed() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    f.settle();
    // The backup knows the grant. A manager with the original may still renew it.
    let backup = f.world.snapshot();
    let home = f.restore_while_disconnected(uid, &backup);
    f.advance(Millis(5 * TERM.0));
    let (_, leg) = f.world.state().workloads()[&uid].right().expect("its lease isn't called lapsed");
    assert_eq!((leg.cluster(), f.world.live().counts().of(Count::Lapses)), (&home, 0));
    // From the confirmation on this manager is the only one, and the lease counts in full.
    f.confirm_recovery();
    f.advance(Millis(TERM.0 - 500));
    assert_eq!(f.world.live().counts().of(Count::Lapses), 0);
    f.advance(Millis(3_000));
    assert_eq!(f.world.live().counts().of(Count::Lapses), 1);
    assert!(f.runs_elsewhere(uid, &home));
}

#[test]
fn the_state_of_recovery_names_what_is_held_and_until_when() {
    let mut f = Fleet::regions();
    let early = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let home = f.restore_while_disconnected(early, &backup);
    let state = |f: &Fleet| meridian_views::recovery::recovery(&f.world, now(f.now), &Asker::unlimited());
    let until = |f: &Fleet| {
        let lapses = meridian_shared::lease::ManagerLease::from_composed(Mono(f.now), TERM).deadline;
        meridian_shared::timestamp::timestamp(now(lapses.0).wall)
    };
    let held = |until: &str| {
        let workload = json!({
            "namespace": "default", "name": "early", "cluster": null, "onClusterLoss": "Fence",
            "until": until,
        });
        json!({"fence": 1, "fenceUntil": until, "wait": 0, "workloads": [workload]})
    };
    assert_eq!(state(&f)["awaited"], json!([home.as_str()]));
    // Before the confirmation: until when it is held if an operator confirms now.
    assert_eq!(state(&f)["held"], held(&until(&f)));
    f.advance(Millis(20_000));
    assert_eq!(state(&f)["held"], held(&until(&f)));
    f.confirm_recovery();
    let confirmed = until(&f);
    f.advance(Millis(2_000));
    assert_eq!(state(&f)["held"], held(&confirmed), "the time is fixed by the confirmation");
    f.advance(Millis(TERM.0));
    assert_eq!(state(&f)["held"]["fence"], 0);
}

#[test]
fn confirming_recovery_never_moves_a_workload_with_mode_wait() {
    let mut f = Fleet::regions();
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "wait",
        json!({"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Wait"}}),
    )]);

    let uid = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let home = f.restore_while_disconnected(uid, &backup);
    f.confirm_recovery();
    f.advance(Millis(5 * TERM.0));
    assert!(!f.runs_elsewhere(uid, &home));
    f.running.retain(|(cluster, _)| *cluster != home);
    let lost = Operator::DeclareLost { cluster: home.clone(), ledger: None };
    f.input(Input::Operator { actor: Actor::user("op"), action: lost });
    f.settle();
    assert!(f.runs_elsewhere(uid, &home), "{:#}", f.why(uid));
    assert!(f.world.state().recovery().is_none());
}

#[test]
fn a_cluster_that_only_member_lists_name_can_be_declared_lost() {
    let mut f = Fleet::without_agents(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.add_agent("eu", 1_000);
    f.settle();
    let backup = f.world.snapshot();
    f.add_agent("us", 1_001);
    f.advance(Millis(3_000));
    // The journal of the backup doesn't know `us`, but the agent in `eu` was told of it.
    let us = ClusterName::from("us");
    f.disconnected = vec![us.clone()];
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    assert!(
        !f.world.state().members().contains_key(&us) && f.world.live().recovery().awaited().contains(&us)
    );
    f.confirm_recovery();
    f.settle();
    assert!(f.world.state().recovery().is_some(), "a confirmation doesn't answer for a cluster");
    let declare = |f: &mut Fleet, cluster: &str| {
        let action = Operator::DeclareLost { cluster: cluster.into(), ledger: None };
        f.input(Input::Operator { actor: Actor::user("op"), action })
    };
    assert!(!matches!(declare(&mut f, "asia"), Reply::Done(_)), "no member list names it");
    assert!(f.world.state().recovery().is_some());
    let done = declare(&mut f, "us");
    assert!(matches!(&done, Reply::Done(text) if text.contains("doesn't know")), "{done:?}");
    assert!(f.world.state().recovery().is_none(), "nothing else is awaited");
    // What waited for it starts.
    let uid = f.submit("late", 3);
    f.settle();
    assert_eq!(f.cluster_of(uid).as_deref(), Some("eu"));
    assert!(!matches!(declare(&mut f, "us"), Reply::Done(_)), "it is awaited no more");
}

#[test]
fn a_cluster_that_returns_after_the_confirmation_keeps_its_run() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let home = f.restore_while_disconnected(uid, &backup);
    f.confirm_recovery();
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!((f.phase(uid), f.cluster_of(uid)), (Some(Phase::Running), Some(home.to_string())));
    assert!(f.world.state().recovery().is_none());
}

impl Fleet {
    /// Restores a backup from before the grant of a workload with mode `Wait` in `eu`, and confirms it.
    /// Meanwhile the agent of `eu` was started again, with this ledger.
    fn confirm_after_a_restart_of_the_agent(&mut self, ledger: u128) -> Uid {
        self.apply(vec![meridian_object(
            "DispatchPolicy",
            "wait",
            json!({"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Wait"}}),
        )]);
        let uid = self.submit("early", 3);
        let backup = self.world.snapshot();
        self.settle();
        assert_eq!(self.cluster_of(uid).as_deref(), Some("eu"));
        let store = self.agents[&ClusterName::new("eu")].durable().clone();
        self.running.clear();
        self.lead_from_backup(&backup);
        let is_same = store.ledger() == LedgerId(ledger);
        self.start_agent("eu", if is_same { store } else { Durable::new(LedgerId(ledger)) }, None);
        self.confirm_rules();
        self.settle();
        self.settle();
        self.confirm_recovery();
        self.settle();
        uid
    }
}

#[test]
fn a_confirmation_answers_for_agents_that_were_started_again() {
    let mut f = Fleet::new(EU);
    f.confirm_after_a_restart_of_the_agent(1_000);
    assert!(f.world.state().recovery().is_none());
}

#[test]
fn a_confirmation_doesnt_answer_for_a_lost_store() {
    let mut f = Fleet::new(EU);
    let uid = f.confirm_after_a_restart_of_the_agent(9_999);
    f.advance(Millis(3 * TERM.0));
    assert_eq!(f.cluster_of(uid), None, "what ran under the old ledger is unknown");
    let lost =
        meridian_views::recovery::recovery(&f.world, now(f.now), &Asker::unlimited())["lostLedgers"].clone();
    assert_eq!(lost, json!({"eu": LedgerId(1_000).to_string()}));
    let action = Operator::DeclareLost { cluster: "eu".into(), ledger: Some(LedgerId(1_000)) };
    f.input(Input::Operator { actor: Actor::user("op"), action });
    f.settle();
    assert!(f.world.state().recovery().is_none());
    assert_eq!(f.cluster_of(uid).as_deref(), Some("eu"));
}

#[test]
fn an_ordinary_recovery_has_nothing_to_confirm() {
    let mut f = Fleet::regions();
    f.settle();
    f.disconnected = vec![ClusterName::new("us")];
    f.restart(9, Some(RecoveryStart { restored: false, members_unknown: false }));
    f.settle();
    assert!(
        matches!(f.confirm_recovery(), Reply::Rejected(why) if why[0].message.contains("inventory of us"))
    );
}

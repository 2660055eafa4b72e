//! Journals that were put back in their own file: which rules the manager may dispatch by.

use super::*;

/// Denies `us` for the namespace of all jobs.
pub(super) fn not_us() -> Value {
    let spec = json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["us"]}});
    meridian_object("ResidencyPolicy", "not-us", spec)
}

impl Fleet {
    /// The manager starts on an older journal that was put back in its own file.
    fn lead_rolled_back(&mut self, journal: &[u8]) {
        let mut world = World::restore(journal, config()).unwrap();
        self.now += 1_000;
        world.lead(start(77, self.now, RECOVERY, false), &self.bodies);
        world.committed(Mono(self.now));
        self.world = world;
    }

    /// An operator confirms that policies and quotas are up to date.
    pub(super) fn confirm_rules(&mut self) {
        let reply = self.input(Input::Operator { actor: Actor::user("op"), action: Operator::ConfirmRules });
        assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    }

    fn rules_are_doubted(&self) -> bool {
        self.world.state().rules_doubted().is_some()
    }
}

#[test]
fn a_rolled_back_journal_offers_nothing_before_every_member_was_heard() {
    let mut f = Fleet::regions();
    let older = f.world.snapshot();
    // `us` sees newer records, but not the policy that denies it.
    f.submit("later", 1);
    f.settle();
    f.disconnected = vec!["us".into()];
    f.apply(vec![not_us()]);
    f.settle();
    f.lead_rolled_back(&older);
    f.disconnected = vec!["eu".into(), "asia".into()];
    f.settle();
    let job = f.submit("job", 3);
    f.advance(Millis(3 * TERM.0));
    assert_eq!(f.cluster_of(job), None, "another member may know a policy against it");
    assert!(f.why(job)["wouldHelp"].as_str().unwrap().contains("journal confirm"), "{:#}", f.why(job));
    // The others do know one, so only an operator may continue.
    f.disconnected.clear();
    f.advance(Millis(TERM.0));
    assert_eq!((f.cluster_of(job), f.rules_are_doubted()), (None, true));
    f.apply(vec![not_us()]);
    f.confirm_rules();
    f.settle();
    assert!(f.cluster_of(job).is_some_and(|cluster| cluster != "us"), "{:#}", f.why(job));
}

#[test]
fn all_members_together_confirm_rules_that_nobody_saw_change() {
    let mut f = Fleet::regions();
    let older = f.world.snapshot();
    f.submit("later", 1);
    f.settle();
    f.lead_rolled_back(&older);
    f.disconnected = vec!["eu".into(), "asia".into()];
    f.settle();
    assert!(f.rules_are_doubted());
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert!(!f.rules_are_doubted() && f.world.state().recovery().is_none());
    let job = f.submit("job", 3);
    f.settle();
    assert!(f.cluster_of(job).is_some());
}

#[test]
fn offers_wait_for_every_member_that_may_know_newer_rules() {
    // `us` calls first. It has seen nothing since the older journal, so it can't show that the journal is
    // old.
    let alone = || {
        let mut f = Fleet::regions();
        f.disconnected = vec!["us".into()];
        let older = f.world.snapshot();
        f.apply(vec![not_us()]);
        f.settle();
        f.lead_rolled_back(&older);
        f.disconnected = vec!["eu".into(), "asia".into()];
        let job = f.submit("job", 3);
        f.settle();
        assert_eq!((f.cluster_of(job), f.rules_are_doubted()), (None, true));
        assert!(f.why(job).to_string().contains("may know newer policies or quotas"), "{:#}", f.why(job));
        (f, job)
    };
    // The others report later, and show the newer rule: now only an operator may continue.
    let (mut f, job) = alone();
    f.advance(Millis(3 * TERM.0));
    assert_eq!((f.cluster_of(job), f.rules_are_doubted()), (None, true), "time doesn't end the doubt");
    f.disconnected.clear();
    f.advance(Millis(TERM.0));
    assert_eq!((f.cluster_of(job), f.rules_are_doubted()), (None, true));
    assert!(f.why(job)["wouldHelp"].as_str().unwrap().starts_with("check policies"), "{:#}", f.why(job));
    // A person applies the current rules and confirms them while the others are away.
    let (mut f, job) = alone();
    f.apply(vec![not_us()]);
    f.confirm_rules();
    f.advance(Millis(3 * TERM.0));
    assert_eq!(f.cluster_of(job), None, "{:#}", f.why(job));
    f.disconnected.clear();
    f.settle();
    assert!(f.cluster_of(job).is_some_and(|cluster| cluster != "us"), "{:#}", f.why(job));
}

#[test]
fn members_that_report_after_recovery_was_closed_by_time_end_the_doubt() {
    let mut f = Fleet::regions();
    let journal = f.world.snapshot();
    f.lead_rolled_back(&journal);
    f.disconnected = vec!["eu".into(), "asia".into()];
    let job = f.submit("job", 3);
    f.advance(Millis(3 * TERM.0));
    assert_eq!((f.cluster_of(job), f.rules_are_doubted(), f.world.state().recovery()), (None, true, None));
    f.disconnected = vec!["asia".into()];
    f.advance(Millis(TERM.0));
    assert!(f.rules_are_doubted(), "asia may know newer rules");
    // A cluster that will not come back can't show any.
    let lost = Operator::DeclareLost { cluster: "asia".into(), ledger: None };
    f.input(Input::Operator { actor: Actor::user("op"), action: lost });
    f.settle();
    assert!(!f.rules_are_doubted() && f.cluster_of(job).is_some(), "{:#}", f.why(job));
}

/// A policy may have been applied in the management cluster while this manager was away.
#[test]
fn a_start_without_the_management_cluster_dispatches_nothing_and_renews_leases() {
    let mut f = Fleet::regions();
    let runs = f.submit("runs", 1);
    f.settle();
    let cluster = f.cluster_of(runs).unwrap();
    f.world.config_mut().rules_unseen = true;
    f.restart(2, None);
    assert!(f.rules_are_doubted());
    let waits = f.submit("waits", 1);
    f.advance(Millis(3 * TERM.0));
    assert_eq!(f.cluster_of(waits), None, "{:#}", f.why(waits));
    assert_eq!(f.cluster_of(runs), Some(cluster), "its lease is renewed");
    assert!(f.running.iter().any(|(_, uid)| *uid == runs));
    // the controllers of the management cluster confirm, once they have every policy
    f.confirm_rules();
    f.settle();
    assert!(f.cluster_of(waits).is_some(), "{:#}", f.why(waits));
    f.world.config_mut().rules_unseen = false;
    f.restart(3, None);
    assert!(!f.rules_are_doubted(), "a start that asked the cluster doubts nothing");
}

//! What a process keeps when it begins another leadership, and what it must learn anew.

use super::*;
use meridian_manager_core::live::counts::Count;
use meridian_manager_core::queue::pending_reasons::PendingReasons;

impl Fleet {
    /// The same process begins another leadership in the world that it has.
    pub(super) fn lead_again(&mut self, recovery: Option<RecoveryStart>) {
        let id = self.world.state().leadership().id + 1;
        self.world.lead(start(id, self.now, recovery, false), &self.bodies);
        self.world.check().unwrap();
    }
}

#[test]
fn claims_and_counts_are_kept() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.world.set_claim(Mono(f.now + 77));
    f.lead_again(RECOVERY);
    assert_eq!(f.world.live().claim_until(), Mono(f.now + 77));
    assert_eq!(f.world.live().counts().of(Count::Grants), 1);
}

#[test]
fn a_stored_manifest_stays_damaged() {
    let mut f = Fleet::new(EU);
    f.submit("holder", 4);
    f.settle();
    let damaged = f.submit("damaged", 2);
    f.lose_manifest(damaged);
    f.report_manifest(damaged, false);
    f.lead_again(RECOVERY);
    assert!(f.why(damaged)["summary"].as_str().unwrap().contains("damaged: "), "{:#}", f.why(damaged));
}

#[test]
fn sessions_are_opened_anew() {
    let mut f = Fleet::new(EU);
    assert_eq!(f.world.live().clusters().len(), 1);
    f.lead_again(RECOVERY);
    assert_eq!(f.world.live().clusters().len(), 0);
    f.settle();
    assert_eq!(f.world.live().clusters().len(), 1);
}

#[test]
fn at_every_cluster_it_is_said_that_the_rules_or_the_reports_are_missing() {
    let mut f = Fleet::new(EU);
    f.submit("holder", 4);
    f.settle();
    let uid = f.submit("gang", 2);
    let at_eu = |f: &Fleet, uid| f.why(uid)["clusters"][0]["reason"].as_str().unwrap().to_owned();
    f.restart(2, RECOVERY);
    f.input(Input::Turn);
    assert_eq!(at_eu(&f, uid), "the manager is recovering: not every cluster has reported what it runs");
    let backup = f.world.snapshot();
    f.lead_from_backup(&backup);
    let new = f.submit("new", 2);
    let reason = at_eu(&f, new);
    assert!(reason.starts_with("policies and quotas may have changed"), "{reason}");
}

#[test]
fn the_first_turn_finds_why_a_workload_waits() {
    let mut f = Fleet::new(EU);
    f.disconnected = vec!["eu".into()];
    f.advance(TERM);
    f.submit("gang", 2);
    f.restart(2, None);
    // Its search for starved heads would start a pass too.
    f.world.config_mut().starvation_guard = None;
    assert_eq!(*f.world.live().pending_reasons(), PendingReasons::default());
    f.input(Input::Turn);
    assert_ne!(*f.world.live().pending_reasons(), PendingReasons::default());
}

#[test]
fn a_claim_ends_at_its_moment() {
    let mut f = Fleet::new(EU);
    for (until, answers) in [(f.now + 1, true), (f.now, false)] {
        f.world.set_claim(Mono(until));
        let request = f.compose("eu", Lane::News);
        let answer = f.answer("eu", request);
        assert_eq!(matches!(*answer, SyncAnswer::Ok(_)), answers, "{answer:?}");
    }
}

#[test]
fn a_released_lease_is_forgotten_once_its_release_is_durable() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    f.settle();
    f.end(uid, EndResult::Succeeded);
    assert_eq!(f.world.live().leases().iter().count(), 0);
    let released = f.world.live().leases().clone();
    let last = f.world.state().last();
    f.world.durable(RecordNumber(0));
    assert_eq!(
        *f.world.live().leases(),
        released,
        "if the commit fails, the next leadership needs its deadline"
    );
    f.world.durable(last);
    assert_ne!(*f.world.live().leases(), released);
}

#[test]
fn only_a_lost_node_delays_the_next_start() {
    let mut f = Fleet::new(EU);
    let queue = |stop: &str| cluster_queue("cq", 100, &json!({"stopPolicy": stop}));
    let uid = f.submit("gang", 2);
    f.settle();
    f.apply(vec![queue("HoldAndDrain")]);
    f.settle();
    assert_eq!((f.phase(uid), f.cluster_of(uid)), (Some(Phase::Pending), None));
    f.lead_again(None);
    f.apply(vec![queue("None")]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running), "a drained gang starts at once, under any leadership");
}

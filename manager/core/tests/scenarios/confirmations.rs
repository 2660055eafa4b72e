//! An operator's confirmation that no other copy of the journal is used: how long it counts.

use super::rolled_back_journals::not_us;
use super::*;

fn confirm(f: &mut Fleet) -> Reply {
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::ConfirmRecovery })
}

fn runs_elsewhere(f: &Fleet, uid: Uid, home: &ClusterName) -> bool {
    f.running.iter().any(|(cluster, other)| *other == uid && cluster != home)
}

#[test]
fn a_confirmation_before_any_cluster_has_reported_counts() {
    let mut f = Fleet::regions();
    let uid = f.submit("early", 3);
    let backup = f.world.snapshot();
    f.settle();
    let home = ClusterName::new(f.cluster_of(uid).expect("it runs"));
    let all: Vec<ClusterName> = f.agents.keys().cloned().collect();
    f.disconnected.clone_from(&all);
    f.lead_from_backup(&backup);
    f.confirm_rules();
    assert!(matches!(confirm(&mut f), Reply::Done(_)));
    // The others report, and show records that the backup lacks.
    f.disconnected = vec![home.clone()];
    f.settle();
    let recovery = f.world.state().recovery().expect("one cluster hasn't reported");
    assert!(!recovery.restored, "the operator has answered for copies already");
    f.advance(Millis(TERM.0 - 1_000));
    assert!(!runs_elsewhere(&f, uid, &home), "the disconnected cluster may still run it");
    f.advance(Millis(8_000));
    assert!(runs_elsewhere(&f, uid, &home), "its lease has lapsed: {:#}", f.why(uid));
}

#[test]
fn records_of_another_copy_after_recovery_ask_for_a_confirmation_again() {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    f.apply(vec![not_us()]);
    f.settle();
    let away = ClusterName::new("eu");
    f.disconnected = vec![away.clone()];
    f.lead_from_backup(&backup);
    f.confirm_rules();
    confirm(&mut f);
    f.settle();
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::DeclareLost { cluster: away, ledger: None },
    });
    f.settle();
    f.advance(Millis(3 * TERM.0));
    assert!(f.world.state().recovery().is_none(), "{:?}", f.world.state().recovery());
    f.disconnected.clear();
    f.settle();
    assert!(f.world.state().recovery().is_none_or(|recovery| recovery.restored));
}

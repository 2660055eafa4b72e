//! Clusters that stop reporting or lose their ledger: when a gang may run elsewhere.

use super::*;

#[test]
fn a_disconnected_cluster_keeps_its_gang_until_the_lease_lapses() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.cluster_of(uid).unwrap().as_str().into();
    f.disconnected.push(home.clone());
    f.advance(Millis(5_000));
    assert_eq!(f.cluster_of(uid).as_deref(), Some(home.as_str()), "the lease still holds");
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.advance(Millis(7_000));
    let second = f.cluster_of(uid).expect("it runs in another cluster");
    assert_ne!(second, home.as_str());
    assert_eq!(f.world.state.workloads()[&uid].attempts(), 2);
    f.disconnected.clear();
    f.advance(Millis(3_000));
    assert_eq!(f.cluster_of(uid), Some(second), "the first cluster's return changes nothing");
}

#[test]
fn renewals_keep_a_gang_running_for_several_terms() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home = f.cluster_of(uid);
    f.advance(Millis(60_000));
    assert_eq!(f.cluster_of(uid), home);
    assert_eq!(f.world.state.workloads()[&uid].attempts(), 1);
    assert!(f.world.live.counts.renewals > 10);
}

#[test]
fn a_new_ledger_frees_no_capacity_until_the_old_leases_lapse() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let uid = f.submit("job", 3);
    f.settle();
    let home = f.cluster_of(uid).unwrap();
    f.add_agent(&home, 9_999);
    f.advance(Millis(4_000));
    assert_eq!(f.running.len(), 1, "the old run is still under its lease");
    // The guard on the old machine stops the gang at the end of the lease.
    f.advance(Millis(4_000));
    f.running.retain(|(c, _)| c.as_str() != home);
    f.advance(Millis(4_000));
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(f.world.state.workloads()[&uid].attempts(), 2);
}

#[test]
fn a_workload_of_a_cluster_declared_lost_restarts_at_once() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.cluster_of(uid).unwrap().as_str().into();
    f.disconnected.push(home.clone());
    f.running.clear();
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::DeclareLost { cluster: home.clone(), ledger: None },
    });
    f.input(Input::Turn);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_ne!(f.cluster_of(uid), Some(home.to_string()));
    assert_eq!(f.why(uid)["history"][0]["end"], "an operator declared the cluster lost");
}

#[test]
fn a_ledger_declared_lost_stops_all_its_runs_when_it_returns() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.cluster_of(uid).unwrap().as_str().into();
    f.disconnected.push(home.clone());
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::DeclareLost { cluster: home.clone(), ledger: None },
    });
    // `running` no longer lists the run, so that a second one doesn't count as a violation. The agent still
    // has it.
    f.running.retain(|(c, _)| *c != home);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.disconnected.clear();
    f.settle();
    assert_eq!(f.agents[&home].runs().count(), 0, "the old run was stopped");
    assert_ne!(f.cluster_of(uid), Some(home.to_string()));
}

//! Clusters that stop reporting or lose their ledger: when a gang may run elsewhere.

use super::*;
use meridian_manager_core::live::counts::Count;
use meridian_shared::protocol::OnLoss;

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
    assert_eq!(f.world.state().workloads()[&uid].attempts(), 2);
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
    assert_eq!(f.world.state().workloads()[&uid].attempts(), 1);
    assert!(f.world.live().counts().of(Count::Renewals) > 10);
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
    assert_eq!(f.world.state().workloads()[&uid].attempts(), 2);
}

#[test]
fn a_run_of_a_replaced_ledger_is_reported_as_lost_at_once() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 3);
    f.settle();
    assert_eq!(f.job_status("job")["ready"], 3);
    f.add_agent("eu", 9_999);
    f.exchange();
    let status = f.job_status("job");
    assert_eq!((&status["meridian"]["state"], &status["ready"]), (&json!("ClusterLost"), &json!(0)));
    let why = f.why(uid);
    let summary = why["summary"].as_str().unwrap();
    assert!(summary.starts_with("lost in cluster `eu`: its agent lost its store"), "{summary}");
    let leg = f.world.state().workloads()[&uid].right().unwrap().1;
    let until = leg.replaced_ledger().unwrap().until.unwrap();
    let lapses = f.world.live().leases().get(leg.fence().unwrap()).unwrap().deadline();
    assert_eq!(
        until.since(now(f.now).wall),
        lapses.since(Mono(f.now)),
        "the state tells when the lease ends"
    );
    // A restarted manager counts the lease in full again, and tells the new time.
    f.advance(Millis(1_000));
    f.restart(2, RECOVERY);
    let later =
        f.world.state().workloads()[&uid].right().unwrap().1.replaced_ledger().unwrap().until.unwrap();
    assert!(later > until);
    // The old gang ended with its store; once its lease has lapsed, the workload starts again.
    f.running.clear();
    f.advance(Millis(TERM.0 + 2_000));
    f.settle();
    assert_eq!(f.job_status("job")["meridian"]["state"], "Running");
    assert_eq!(f.job_status("job")["ready"], 3);
}

#[test]
fn a_lost_run_with_mode_wait_names_the_ledger_to_declare_lost() {
    let mut f = Fleet::new(EU);
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "wait",
        json!({"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Wait"}}),
    )]);
    let uid = f.submit("job", 3);
    f.settle();
    f.add_agent("eu", 9_999);
    f.running.clear();
    f.advance(Millis(3 * TERM.0));
    assert_eq!(f.job_status("job")["meridian"]["state"], "ClusterLost");
    let ledger = f.world.state().workloads()[&uid].right().unwrap().1.ledger();
    let remedy = format!("meridian cluster declare-lost eu --ledger {ledger} --confirm eu");
    assert!(f.why(uid)["wouldHelp"].as_str().unwrap().contains(&remedy), "{:#}", f.why(uid));
    let action = Operator::DeclareLost { cluster: "eu".into(), ledger: Some(ledger) };
    f.input(Input::Operator { actor: Actor::user("op"), action });
    f.settle();
    assert_eq!(f.job_status("job")["meridian"]["state"], "Running");
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
    assert!(!f.world.live().clusters().contains_key(&home), "its session is over");
    f.input(Input::Turn);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_ne!(f.cluster_of(uid), Some(home.to_string()));
    assert_eq!(f.why(uid)["history"][0]["end"], "cluster lost: an operator declared it lost");
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

#[test]
fn a_manager_without_its_claim_calls_no_lease_lapsed() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    // No commit succeeds any more: another manager may lead, and renew the lease.
    f.now += 3 * TERM.0;
    f.input(Input::Turn);
    assert_eq!((f.phase(uid), f.world.live().counts().of(Count::Lapses)), (Some(Phase::Running), 0));
    f.world.committed(Mono(f.now));
    f.input(Input::Turn);
    assert_eq!(f.world.live().counts().of(Count::Lapses), 1);
}

/// An agent in the manager's process can't end a gang while the manager is down, so no lease may end it
/// either.
#[test]
fn jobs_of_a_manager_that_hosts_agents_wait_for_their_cluster_unless_guards_end_them() {
    let mut f = Fleet::without_agents(&[]);
    f.world.config_mut().hosts_agents = true;
    let guarded = json!({"applies": {"queues": ["guarded"]}, "onClusterLoss": {"requires": "Guarded"}});
    f.apply(vec![
        cluster_queue("guarded", 100, &json!({})),
        local_queue("safe", "guarded"),
        meridian_object("DispatchPolicy", "guards", guarded),
    ]);
    let plain = f.submit("plain", 3);
    let safe = f.submit_to("safe", "safe", 3, None);
    let mode = |f: &Fleet, uid| f.world.state().workloads()[&uid].on_loss();
    assert_eq!((mode(&f, plain), mode(&f, safe)), (OnLoss::Wait, OnLoss::Fence));
}

#[test]
fn inventories_that_close_the_recovery_of_a_copy_start_leases_anew() {
    let mut f = Fleet::new(EU);
    let eu = ClusterName::new("eu");
    // The agent asks, and its answer is lost.
    let ask = |f: &mut Fleet| {
        let request = Box::new(f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News));
        f.input(Input::Sync { cluster: eu.clone(), request, may_park: false });
        f.input(Input::Turn);
    };
    let uid = f.submit("job", 3);
    f.exchange();
    ask(&mut f);
    assert_eq!(f.phase(uid), Some(Phase::Granted), "the agent never got the grant");
    let copy = f.world.snapshot();
    f.disconnected.push(eu.clone());
    f.lead_from_backup(&copy);
    f.advance(Millis(3 * TERM.0));
    f.disconnected.clear();
    f.exchange();
    f.disconnected.push(eu.clone());
    ask(&mut f);
    assert!(f.world.state().recovery().is_none(), "its inventory has arrived");
    // Until then a manager with the original may have renewed the lease.
    f.advance(Millis(TERM.0 - 500));
    assert_eq!(f.world.live().counts().of(Count::Lapses), 0);
    f.advance(Millis(3_000));
    assert_eq!(f.world.live().counts().of(Count::Lapses), 1);
}

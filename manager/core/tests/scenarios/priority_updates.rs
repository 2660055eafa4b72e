//! A changed priority of a running gang is sent to its cluster.

use super::elastic::elastic;
use super::*;
use meridian_manager_core::sessions::features::Features;

/// The priorities of the cluster's gangs, as its agent has stored them.
fn agent_priorities(f: &Fleet, cluster: &str) -> Vec<i64> {
    f.agents[&ClusterName::new(cluster)].priorities().map(|(_, _, priority)| priority).collect()
}

fn class(value: i64) -> Value {
    priority_class("vip", value)
}

fn named(name: &str, class: &str) -> Value {
    let mut job = elastic(name, 2);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    job
}

#[test]
fn a_changed_priority_is_sent_to_the_cluster_of_the_gang() {
    let mut f = Fleet::new(EU);
    let low = priority_class("low", -1);
    f.apply(vec![class(7), low]);
    f.put(named("gang", "vip"));
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [7], "the grant contains the priority");
    f.apply(vec![class(50)]);
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [50], "the value of the class changed");
    f.put(named("gang", "low"));
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [-1], "the class of the job changed");
    // Changes while the agent is disconnected: the last one counts, also for the next leadership.
    f.disconnected = vec!["eu".into()];
    f.put(named("gang", "vip"));
    f.apply(vec![class(60)]);
    f.apply(vec![class(50)]);
    f.restart(2, RECOVERY);
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [50]);
}

#[test]
fn priorities_are_sent_only_to_agents_that_support_them() {
    let mut f = Fleet::new(EU);
    f.apply(vec![class(7)]);
    f.put(named("gang", "vip"));
    f.settle();
    f.world.live_mut().cluster_mut(&ClusterName::new("eu")).unwrap().set_features(Features::default());
    f.apply(vec![class(8)]);
    assert!(f.world.live().clusters()[&ClusterName::new("eu")].outbox().quiet());
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [8]);
}

#[test]
fn the_priority_of_a_flagged_gang_is_sent_once_the_policy_is_gone() {
    let mut f = Fleet::new(EU);
    f.apply(vec![class(7)]);
    f.put(named("gang", "vip"));
    f.settle();
    let policy = meridian_object(
        "ResidencyPolicy",
        "away",
        json!({"applies": {}, "deny": {"clusters": ["eu"]}, "onChange": "Flag"}),
    );
    f.apply(vec![policy]);
    f.apply(vec![class(8)]);
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [7], "the policy denies the cluster");
    f.write(vec![Change::Delete { key: Key::global(Kind::ResidencyPolicy, "away"), uid: None, force: true }]);
    f.settle();
    assert_eq!(agent_priorities(&f, "eu"), [8]);
}

#[test]
fn a_wrong_priority_that_is_reported_repeatedly_is_corrected_once() {
    use meridian_shared::protocol::Inventory;
    let mut f = Fleet::new(EU);
    f.apply(vec![class(7)]);
    let (gang, _) = f.put(named("gang", "vip"));
    f.settle();
    let eu = ClusterName::new("eu");
    let report = |f: &mut Fleet, priority: i64| {
        let mut request = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let (offer, leg) = f.world.state().workloads()[&gang]
            .legs()
            .iter()
            .next()
            .map(|(offer, leg)| (*offer, leg.clone()))
            .unwrap();
        let run = meridian_shared::protocol::Run {
            uid: gang,
            fence: leg.fence().unwrap(),
            offer,
            attempt: 1,
            running: true,
            stopping: false,
            term: Millis::secs(8),
            on_loss: meridian_shared::protocol::OnLoss::Fence,
            spec: ContentHash(1),
            mac: None,
            placement: None,
            spare: BTreeMap::new(),
            job: None,
            scale_up: None,
            priority: Some(priority),
        };
        request.inventory = Some(Inventory {
            for_leadership: Some(f.world.state().leadership()),
            runs: vec![run],
            ..Inventory::default()
        });
        f.input(Input::Sync { cluster: eu.clone(), request: Box::new(request), may_park: false });
    };
    for other in 0..50 {
        // Unrelated writes in between.
        f.apply(vec![local_queue(&format!("other-{other}"), "cq")]);
        report(&mut f, -5);
    }
    let queued = f.world.live().clusters()[&eu].outbox().waiting();
    assert!(queued <= 2, "{queued} commands");
    assert_eq!(f.phase(gang), Some(Phase::Running));
}

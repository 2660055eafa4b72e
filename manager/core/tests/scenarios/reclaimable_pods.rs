//! Reclaimable pods: quota and capacity of a gang's succeeded pods go to other workloads while the rest still
//! runs.

use super::*;
use meridian_manager_core::live::counts::Count;

impl Fleet {
    /// The first `pods` pods of a gang succeed, and the agent hasn't reported that yet.
    fn succeed_unreported(&mut self, uid: Uid, pods: u32) {
        let (name, _) = self.running.iter().find(|(_, u)| *u == uid).expect("it runs").clone();
        let fence = self.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
        let event = RunnerEvent::Reclaimable {
            uid,
            fence,
            places: (0..pods).map(|index| ("main".to_owned(), index)).collect(),
        };
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Runner(event));
        self.perform(&name, out.into_effects());
        self.agents[&name].check().unwrap();
    }

    pub(super) fn succeed(&mut self, uid: Uid, pods: u32) {
        self.succeed_unreported(uid, pods);
        self.settle();
    }

    fn charged(&self) -> i64 {
        self.world.queues().usage("cq").into_iter().flat_map(|usage| usage.values()).sum()
    }

    fn reclaimable(&self, uid: Uid) -> Value {
        let w = &self.world.state().workloads()[&uid];
        let key = Key::namespaced(Kind::Workload, w.namespace(), &w.object_name());
        let object = self.object_at(&key).unwrap();
        object["status"]["reclaimablePods"].clone()
    }
}

/// Pod failures belong to the job and attempts to the manager (see PROTOCOL).
#[test]
fn pod_failures_of_a_lost_attempt_still_count_in_the_next() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let uid = f.submit("job", 2);
    f.settle();
    let (name, _) = f.running.iter().find(|(_, u)| *u == uid).unwrap().clone();
    let fence = f.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
    let event = RunnerEvent::PodsFailed { uid, fence, failures: 2 };
    let out = f.agents.get_mut(&name).unwrap().apply(now(f.now), AgentInput::Runner(event));
    f.perform(&name, out.into_effects());
    f.settle();
    assert_eq!(f.world.state().workloads()[&uid].pod_failures(), 2);
    assert!(f.why(uid)["summary"].as_str().unwrap().contains("2 pod failures so far"), "{:#}", f.why(uid));
    // The cluster is lost, but not what it reported.
    f.disconnected.push(name.clone());
    f.running.retain(|(_, u)| *u != uid);
    f.advance(Millis::secs(30));
    let leg = f.world.state().workloads()[&uid].legs().values().last().unwrap().clone();
    assert!(*leg.cluster() != name && f.phase(uid) == Some(Phase::Running));
    let counted = f.agents[leg.cluster()].runs().count();
    assert_eq!((counted, f.world.state().workloads()[&uid].pod_failures()), (1, 2));
    f.end(uid, EndResult::Failed { reason: "BackoffLimitExceeded".into(), message: "x".into() });
    let key = Key::namespaced(Kind::Job, "default", "job");
    assert_eq!(f.object_at(&key).unwrap()["status"]["failed"], json!(2));
}

#[test]
fn quota_and_capacity_of_succeeded_pods_are_reused_at_once() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let [gang, next] = [("gang", 4), ("next", 2)].map(|(name, pods)| f.submit(name, pods));
    f.settle();
    f.succeed(gang, 1);
    assert_eq!((f.charged(), f.reclaimable(gang)), (3, json!([{"name": "main", "count": 1}])));
    assert_eq!(f.phase(next), Some(Phase::Pending), "one is not enough");
    f.succeed(gang, 2);
    assert_eq!((f.phase(gang), f.phase(next), f.charged()), (Some(Phase::Running), Some(Phase::Running), 4));
    assert_eq!(f.cluster_of(next).as_deref(), Some("eu"), "it runs where the succeeded pods ran");
    assert!(
        f.why(gang)["summary"].as_str().unwrap().contains("2 of 4 pods (the others have succeeded) running"),
        "{:#}",
        f.why(gang)
    );
    assert_eq!(f.world.live().counts().of(Count::Reclaimed), 2);
    // A repeated or lower report changes nothing.
    f.succeed(gang, 2);
    f.succeed(gang, 1);
    assert_eq!((f.world.live().counts().of(Count::Reclaimed), f.charged()), (2, 4));
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Finished), 2));
    f.end(next, EndResult::Succeeded);
    assert_eq!(f.charged(), 0);
    f.agents[&ClusterName::new("eu")].check().unwrap();
}

#[test]
fn reclaimed_pods_survive_restarts_of_manager_and_agent() {
    let mut f = Fleet::new(EU);
    let gang = f.submit("gang", 4);
    f.settle();
    f.succeed(gang, 1);
    f.restart(2, None);
    assert_eq!(f.charged(), 3);
    f.settle();
    f.settle();
    // Pods that succeed unreported, before the manager restarts, are in the agent's next inventory.
    f.succeed_unreported(gang, 3);
    f.restart(3, RECOVERY);
    f.settle();
    assert_eq!((f.charged(), f.phase(gang)), (1, Some(Phase::Running)));
    // The agent restarts from its own ledger.
    let name = ClusterName::new("eu");
    let (durable, config) = (
        f.agents[&name].durable().clone(),
        AgentConfig {
            cluster: name.clone(),
            runner: RunnerKind::Simulated,
            guarded: true,
            located: None,
            boot: 1,
            replacement_wait: Millis(0),
            holds: meridian_agent_core::HoldSettings::default(),
            managed: meridian_shared::managed::ManagedResources::default(),
            planted: Planted::NONE,
        },
    );
    let fence = f.agents[&name].runs().next().unwrap().1;
    let found = meridian_agent_core::Found {
        uid: gang,
        fence,
        nodes: vec![],
        completed: meridian_shared::indexes::Indexes::default(),
        state: meridian_agent_core::FoundState::Live { running: true },
    };
    let (mut agent, _) = Agent::start(config, durable, vec![found], 9, now(f.now));
    let node =
        NodeSpec { name: "eu-1".into(), capacity: Amounts::from([(GPU.into(), 4)]), ..NodeSpec::default() };
    agent.apply(now(f.now), AgentInput::Nodes { nodes: vec![node], pools: Vec::new() });
    agent.check().unwrap();
    f.agents.insert(name.clone(), agent);
    f.settle();
    assert_eq!((f.charged(), f.phase(gang)), (1, Some(Phase::Running)));
    let three = f.submit("three", 3);
    f.settle();
    assert_eq!(f.cluster_of(three).as_deref(), Some("eu"), "the restarted agent knows that capacity is free");
    f.succeed(gang, 3);
    assert_eq!(f.charged(), 4, "the runner reports the same pods again, and nothing is freed twice");
}

#[test]
fn an_adopted_run_is_charged_for_its_remaining_pods() {
    let mut f = Fleet::new(EU);
    f.quota(0);
    let gang = f.submit("gang", 4);
    let backup = f.world.snapshot();
    f.quota(4);
    f.settle();
    f.succeed(gang, 3);
    assert_eq!(f.charged(), 1);
    f.lead_from_backup(&backup);
    f.settle();
    f.settle();
    assert_eq!(
        (f.world.live().counts().of(Count::Adoptions), f.phase(gang), f.charged()),
        (1, Some(Phase::Running), 1)
    );
}

#[test]
fn the_next_attempt_requests_all_pods() {
    let mut f = Fleet::regions();
    let gang = f.submit("gang", 4);
    f.settle();
    let home = f.cluster_of(gang).unwrap();
    f.succeed(gang, 3);
    assert_eq!(f.charged(), 1);
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.advance(Millis::secs(4));
    assert_eq!((f.phase(gang), f.charged(), f.reclaimable(gang)), (Some(Phase::Running), 4, Value::Null));
    let second = f.cluster_of(gang).unwrap();
    assert_eq!(
        f.agents[&ClusterName::new(&second)].ledger().blocks()[0].free[GPU],
        0,
        "all pods run in `{second}`, after `{home}`"
    );
}

#[test]
fn a_stopping_gang_keeps_its_charge_until_it_has_stopped() {
    let mut f = Fleet::new(EU);
    let gang = f.submit("gang", 4);
    f.settle();
    // Pods succeed while the job is deleted.
    f.succeed_unreported(gang, 2);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "gang"),
        uid: None,
        force: false,
    }]);
    let request = f.agents.get_mut(&ClusterName::new("eu")).unwrap().compose(now(f.now), Lane::News);
    assert_eq!(request.spare.len(), 1);
    f.input(Input::Sync { cluster: "eu".into(), request: Box::new(request), may_park: false });
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Stopping), 4));
    f.advance(Millis::secs(3));
    assert_eq!((f.phase(gang), f.charged()), (None, 0));
}

#[test]
fn an_agent_cant_report_pods_of_other_clusters_or_too_many() {
    let mut f = Fleet::regions();
    let gang = f.submit("gang", 3);
    f.settle();
    let home = ClusterName::new(f.cluster_of(gang).unwrap());
    let fence = f.agents[&home].runs().next().unwrap().1;
    let other = f.agents.keys().find(|name| **name != home).unwrap().clone();
    let claim = |f: &mut Fleet, from: &ClusterName, fence: Fence, pods: u32| {
        let composed = f.agents.get_mut(from).unwrap().compose(now(f.now), Lane::News);
        let spare = vec![meridian_shared::protocol::PodReport {
            uid: gang,
            fence,
            pods: BTreeMap::from([("main".into(), pods), ("none".into(), 9)]),
            failures: 0,
            completed: meridian_shared::indexes::Indexes::default(),
        }];
        f.input(Input::Sync {
            cluster: from.clone(),
            request: Box::new(SyncRequest { spare, ..composed }),
            may_park: false,
        });
        f.charged()
    };
    assert_eq!(claim(&mut f, &other, fence, 2), 3, "the gang doesn't run in that cluster");
    assert_eq!(
        claim(&mut f, &home, Fence { counter: fence.counter + 1, ..fence }, 2),
        3,
        "the fence is of another attempt"
    );
    assert_eq!(claim(&mut f, &home, fence, u32::MAX), 0, "more pods than the gang has count as all of them");
    assert_eq!(claim(&mut f, &home, fence, 1), 0, "a lower number takes nothing back");
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Finished), 0));
}

#[test]
fn reclaimed_pods_count_from_the_admitted_number() {
    let mut f = Fleet::new(EU);
    f.quota(3);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let mut manifest = job("default", "gang", 4, &labels, "");
    manifest["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let gang = f.create(manifest);

    f.settle();
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Running), 3));
    f.succeed(gang, 1);
    assert_eq!(f.charged(), 2);
    let one = f.submit("one", 1);
    f.settle();
    assert_eq!((f.phase(one), f.charged()), (Some(Phase::Running), 3));
}

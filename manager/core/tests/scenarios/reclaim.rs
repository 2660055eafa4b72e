//! Pods of a gang that have succeeded: what they had goes to others while the rest runs on.

use super::*;
use meridian_manager_core::views::format::workload_name;

const EU: &[(&str, &str, &str)] = &[("eu", "europe-west4", "EU")];

impl Fleet {
    /// The first so many pods of a gang succeed, and nothing more starts in their places. Nobody is told yet.
    fn succeed_unheard(&mut self, uid: Uid, pods: u32) {
        let (name, _) = self.running.iter().find(|(_, u)| *u == uid).expect("it runs").clone();
        let fence = self.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
        let event = RunnerEvent::Spare {
            uid,
            fence,
            places: (0..pods).map(|index| ("main".to_owned(), index)).collect(),
        };
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Runner(event));
        self.perform(&name, out.effects);
        self.agents[&name].check().unwrap();
    }

    pub(super) fn succeed(&mut self, uid: Uid, pods: u32) {
        self.succeed_unheard(uid, pods);
        self.settle();
    }

    fn charged(&self) -> i64 {
        self.world.queues.usage("cq").into_iter().flat_map(|usage| usage.values()).sum()
    }

    fn reclaimable(&self, uid: Uid) -> Value {
        let w = &self.world.state.workloads()[&uid];
        let key = Key::namespaced(Kind::Workload, &w.namespace(), &workload_name(&w.name(), w.submitted()));
        self.world.render(&key, &self.bodies, now(self.now)).unwrap()["status"]["reclaimablePods"].clone()
    }
}

/// PROTOCOL: pods' failures are the job's, attempts are ours.
#[test]
fn failures_of_a_lost_attempt_count_in_the_next() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let uid = f.submit("job", 2);
    f.settle();
    let (name, _) = f.running.iter().find(|(_, u)| *u == uid).unwrap().clone();
    let fence = f.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
    let event = RunnerEvent::PodsFailed { uid, fence, failures: 2 };
    let out = f.agents.get_mut(&name).unwrap().apply(now(f.now), AgentInput::Runner(event));
    f.perform(&name, out.effects);
    f.settle();
    assert_eq!(f.world.state.workloads()[&uid].pod_failures(), 2);
    assert!(
        f.why(uid)["summary"].as_str().unwrap().contains("pods of it have failed 2 times so far"),
        "{:#}",
        f.why(uid)
    );
    // Its cluster is lost, and what it told isn't.
    f.cut.push(name.clone());
    f.running.retain(|(_, u)| *u != uid);
    f.pass(Millis::secs(30));
    let leg = f.world.state.workloads()[&uid].legs().values().last().unwrap().clone();
    assert!(leg.cluster != name && f.phase(uid) == Some(Phase::Running));
    let counted = f.agents[&leg.cluster].runs().count();
    assert_eq!((counted, f.world.state.workloads()[&uid].pod_failures()), (1, 2));
    f.end(uid, EndResult::Failed { reason: "BackoffLimitExceeded".into(), message: "x".into() });
    let key = Key::namespaced(Kind::Job, "default", "job");
    assert_eq!(f.world.render(&key, &f.bodies, now(f.now)).unwrap()["status"]["failed"], json!(2));
}

#[test]
fn quota_and_room_of_pods_that_have_succeeded_go_to_others_at_once() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let [gang, next] = [("gang", 4), ("next", 2)].map(|(name, pods)| f.submit(name, pods));
    f.settle();
    f.succeed(gang, 1);
    assert_eq!((f.charged(), f.reclaimable(gang)), (3, json!([{"name": "main", "count": 1}])));
    assert_eq!(f.phase(next), Some(Phase::Pending), "one is not enough");
    f.succeed(gang, 2);
    assert_eq!((f.phase(gang), f.phase(next), f.charged()), (Some(Phase::Running), Some(Phase::Running), 4));
    assert_eq!(f.at(next).as_deref(), Some("eu"), "beside it, where its pods were");
    assert!(
        f.why(gang)["summary"]
            .as_str()
            .unwrap()
            .contains("2 of its 4 pods (the others have succeeded) run there"),
        "{:#}",
        f.why(gang)
    );
    assert_eq!(f.world.live.counts.reclaimed, 2);
    // Told once more, nothing changes; and it never takes anything back.
    f.succeed(gang, 2);
    f.succeed(gang, 1);
    assert_eq!((f.world.live.counts.reclaimed, f.charged()), (2, 4));
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Finished), 2));
    f.end(next, EndResult::Succeeded);
    assert_eq!(f.charged(), 0);
    f.agents[&ClusterName::new("eu")].check().unwrap();
}

#[test]
fn it_survives_restarts_of_both_sides() {
    let mut f = Fleet::new(EU);
    let gang = f.submit("gang", 4);
    f.settle();
    f.succeed(gang, 1);
    f.restart(2, None);
    assert_eq!(f.charged(), 3);
    f.settle();
    f.settle();
    // What nobody heard before the manager was away is in the agent's next inventory.
    f.succeed_unheard(gang, 3);
    f.restart(3, RECOVERY);
    f.settle();
    assert_eq!((f.charged(), f.phase(gang)), (1, Some(Phase::Running)));
    // Of an older journal, too.
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
            planted: Planted::NONE,
        },
    );
    let fence = f.agents[&name].runs().next().unwrap().1;
    let found = meridian_agent_core::Found {
        uid: gang,
        fence,
        nodes: vec![],
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
    assert_eq!(f.at(three).as_deref(), Some("eu"), "the restarted agent knows that there is room");
    f.succeed(gang, 3);
    assert_eq!(f.charged(), 4, "told again by its runner, nothing is freed twice");
}

#[test]
fn a_run_that_is_taken_over_is_charged_for_what_is_left_of_it() {
    let mut f = Fleet::new(EU);
    f.quota(0);
    let gang = f.submit("gang", 4);
    let copy = f.world.snapshot();
    f.quota(4);
    f.settle();
    f.succeed(gang, 3);
    assert_eq!(f.charged(), 1);
    f.lead_with_copy(&copy);
    f.settle();
    f.settle();
    assert_eq!((f.world.live.counts.adoptions, f.phase(gang), f.charged()), (1, Some(Phase::Running), 1));
}

#[test]
fn the_next_attempt_asks_for_the_whole_gang() {
    let mut f = Fleet::regions();
    let gang = f.submit("gang", 4);
    f.settle();
    let home = f.at(gang).unwrap();
    f.succeed(gang, 3);
    assert_eq!(f.charged(), 1);
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.pass(Millis::secs(4));
    assert_eq!((f.phase(gang), f.charged(), f.reclaimable(gang)), (Some(Phase::Running), 4, Value::Null));
    let there = f.at(gang).unwrap();
    assert_eq!(
        f.agents[&ClusterName::new(&there)].ledger().blocks()[0].free[GPU],
        0,
        "all of it runs in `{there}`, after `{home}`"
    );
}

#[test]
fn who_is_being_stopped_keeps_what_it_has_until_it_has_stopped() {
    let mut f = Fleet::new(EU);
    let gang = f.submit("gang", 4);
    f.settle();
    // Both cross: pods succeed, and somebody deletes the job.
    f.succeed_unheard(gang, 2);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "gang"), uid: None }]);
    let request = f.agents.get_mut(&ClusterName::new("eu")).unwrap().compose(now(f.now), Lane::News);
    assert_eq!(request.spare.len(), 1);
    f.input(Input::Sync { cluster: "eu".into(), request: Box::new(request), may_park: false });
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Stopping), 4));
    f.pass(Millis::secs(3));
    assert_eq!((f.phase(gang), f.charged()), (None, 0));
}

#[test]
fn nobody_gives_back_more_than_was_given_nor_what_another_has() {
    let mut f = Fleet::regions();
    let gang = f.submit("gang", 3);
    f.settle();
    let home = ClusterName::new(f.at(gang).unwrap());
    let fence = f.agents[&home].runs().next().unwrap().1;
    let other = f.agents.keys().find(|name| **name != home).unwrap().clone();
    let claim = |f: &mut Fleet, from: &ClusterName, fence: Fence, pods: u32| {
        let composed = f.agents.get_mut(from).unwrap().compose(now(f.now), Lane::News);
        let spare = vec![meridian_shared::protocol::Spare {
            uid: gang,
            fence,
            pods: BTreeMap::from([("main".into(), pods), ("none".into(), 9)]),
            failures: 0,
        }];
        f.input(Input::Sync {
            cluster: from.clone(),
            request: Box::new(SyncRequest { spare, ..composed }),
            may_park: false,
        });
        f.charged()
    };
    assert_eq!(claim(&mut f, &other, fence, 2), 3, "it doesn't run there");
    assert_eq!(
        claim(&mut f, &home, Fence { counter: fence.counter + 1, ..fence }, 2),
        3,
        "that is another attempt"
    );
    assert_eq!(claim(&mut f, &home, fence, u32::MAX), 0, "no more than there is");
    assert_eq!(claim(&mut f, &home, fence, 1), 0, "and never less again");
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Finished), 0));
}

#[test]
fn a_gang_that_was_given_fewer_pods_gives_back_of_those() {
    let mut f = Fleet::new(EU);
    f.quota(3);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let mut manifest = job("default", "gang", 4, &labels, "");
    manifest["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let Reply::Written(written) = f.apply(vec![manifest]) else { panic!("not submitted") };
    let gang = written[0].uid;
    f.settle();
    assert_eq!((f.phase(gang), f.charged()), (Some(Phase::Running), 3));
    f.succeed(gang, 1);
    assert_eq!(f.charged(), 2);
    let one = f.submit("one", 1);
    f.settle();
    assert_eq!((f.phase(one), f.charged()), (Some(Phase::Running), 3));
}

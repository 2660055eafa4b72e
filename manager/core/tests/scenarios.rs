//! The two cores together, without a network: each scenario is a short story that a reader can follow.
//!
//! The simulator breaks things at random; here one thing happens at a time, and what must follow is written out.

#[path = "scenarios/activity.rs"]
mod activity;
#[path = "scenarios/applies.rs"]
mod applies;
#[path = "scenarios/capped.rs"]
mod capped;
#[path = "scenarios/copies.rs"]
mod copies;
#[path = "scenarios/counts.rs"]
mod counts;
#[path = "scenarios/crowded.rs"]
mod crowded;
#[path = "scenarios/elastic.rs"]
mod elastic;
#[path = "scenarios/floods.rs"]
mod floods;
#[path = "scenarios/growing.rs"]
mod growing;
#[path = "scenarios/kept.rs"]
mod kept;
#[path = "scenarios/members.rs"]
mod members;
#[path = "scenarios/nearness.rs"]
mod nearness;
#[path = "scenarios/orphans.rs"]
mod orphans;
#[path = "scenarios/queues.rs"]
mod queues;
#[path = "scenarios/reclaim.rs"]
mod reclaim;
#[path = "scenarios/refusals.rs"]
mod refusals;
#[path = "scenarios/retention.rs"]
mod retention;
#[path = "scenarios/shrinking.rs"]
mod shrinking;
#[path = "scenarios/starts.rs"]
mod starts;
#[path = "scenarios/starving.rs"]
mod starving;
#[path = "scenarios/usage_history.rs"]
mod usage_history;
#[path = "scenarios/waking.rs"]
mod waking;
#[path = "scenarios/why.rs"]
mod why;

use meridian_agent_core::durable::Durable;
use meridian_agent_core::ledger::NodeSpec;
use meridian_agent_core::{Agent, Config as AgentConfig, Effect, Input as AgentInput, RunnerEvent};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::audit::{Action, Verdict};
use meridian_manager_core::facts::input::{Change, Input, Operator, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::lifecycle::LifecycleEvent;
use meridian_manager_core::facts::outcome::{Bodies, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::{Config, Start, World};
use meridian_objects::{Kind, Object};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, JournalId, LedgerId, OfferId, RecordNumber, Uid,
};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    BODY_BYTES_MAX, End, EndResult, Event, Inventory, Lane, RunnerKind, SyncAnswer, SyncRequest,
};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const GPU: &str = "nvidia.com/gpu";
const TERM: Millis = Millis::secs(8);

#[derive(Default)]
struct Store(BTreeMap<ContentHash, Arc<str>>);

impl Bodies for Store {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.0.get(&hash).cloned()
    }
}

struct Fleet {
    world: World,
    bodies: Store,
    agents: BTreeMap<ClusterName, Agent>,
    cut: Vec<ClusterName>,
    /// What runs, as the runners know it: (cluster, uid).
    running: Vec<(ClusterName, Uid)>,
    now: u64,
    next_uid: u128,
    /// Pods are ordered and don't start yet.
    hold_starts: bool,
    /// Pods that are too many are told to end and haven't yet.
    hold_ends: bool,
    /// What was told so far.
    lifecycle_events: Vec<LifecycleEvent>,
    /// What inputs came to so far.
    records: Vec<(RecordNumber, Record)>,
}

fn object(value: Value) -> Box<Object> {
    Box::new(Object::from_value(value).expect("the test's own objects are right").0)
}

fn job(namespace: &str, name: &str, pods: u32, labels: &Value, argument: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "args": [argument], "resources": {"requests": {GPU: 1}, "limits": {GPU: 1}}}]}}},
    })
}

fn config() -> Config {
    Config { term_min: TERM, term: TERM, start_timeout: Millis::secs(30), ..Config::new(ReceiptKey([7; 32])) }
}

fn now(at: u64) -> Now {
    Now { mono: Mono(at), wall: Wall(1_800_000_000_000 + i64::try_from(at).unwrap()) }
}

fn start(id: u64, at: u64, recovery: Option<RecoveryStart>, fresh: bool) -> Start {
    Start { id, recovery, fresh, now: now(at) }
}

impl Fleet {
    fn new(clusters: &[(&str, &str, &str)]) -> Self {
        let mut fleet = Self::without_agents(clusters);
        for (i, (name, _, _)) in clusters.iter().enumerate() {
            fleet.add_agent(name, 1_000 + i as u128);
        }
        fleet.settle();
        fleet
    }

    fn without_agents(clusters: &[(&str, &str, &str)]) -> Self {
        let mut world = World::empty(JournalId(1), config());
        let bodies = Store::default();
        world.lead(start(1, 1_000, None, true), &bodies);
        world.committed(Mono(1_000));
        let mut fleet = Self {
            world,
            bodies,
            agents: BTreeMap::new(),
            cut: Vec::new(),
            running: Vec::new(),
            now: 1_000,
            next_uid: 100,
            hold_starts: false,
            hold_ends: false,
            lifecycle_events: Vec::new(),
            records: Vec::new(),
        };
        let mut objects = vec![
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
                {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 100}]}]}]}}),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"}}),
        ];
        for (name, region, jurisdiction) in clusters {
            objects.push(json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {"region": region, "jurisdiction": jurisdiction}}));
        }
        fleet.apply(objects);
        fleet
    }

    fn regions() -> Self {
        Self::new(&[
            ("eu", "europe-west4", "EU"),
            ("us", "us-east4", "US"),
            ("asia", "asia-southeast1", "SG"),
        ])
    }

    fn add_agent(&mut self, name: &str, ledger: u128) {
        self.add_agent_in(name, ledger, None);
    }

    /// An agent that finds itself in this region.
    fn add_agent_in(&mut self, name: &str, ledger: u128, located: Option<Arc<str>>) {
        let config = AgentConfig {
            cluster: name.into(),
            runner: RunnerKind::Simulated,
            guarded: true,
            located,
            boot: 1,
            replacement_wait: Millis(0),
            planted: Planted::NONE,
        };
        let (mut agent, _) =
            Agent::start(config, Durable::new(LedgerId(ledger)), Vec::new(), 1, now(self.now));
        let node = NodeSpec {
            name: format!("{name}-1"),
            capacity: Amounts::from([(GPU.into(), 4)]),
            ..NodeSpec::default()
        };
        agent.apply(now(self.now), AgentInput::Nodes { nodes: vec![node], pools: Vec::new() });
        self.agents.insert(name.into(), agent);
    }

    fn input(&mut self, input: Input) -> Reply {
        let out = self.world.apply(now(self.now), input, &self.bodies);
        self.bodies.0.extend(out.bodies);
        self.lifecycle_events.extend(out.lifecycle_events);
        self.records.extend(out.records);
        self.world.check().unwrap();
        out.reply
    }

    fn write(&mut self, changes: Vec<Change>) -> Reply {
        let reply = self.input(Input::Write(Box::new(Write::new(Actor::user("test"), changes, false))));
        self.input(Input::Turn);
        reply
    }

    fn apply(&mut self, objects: Vec<Value>) -> Reply {
        let changes = objects
            .into_iter()
            .map(|o| {
                self.next_uid += 1;
                Change::Put { object: object(o), scope: None, uid: Uid(self.next_uid), mode: PutMode::Apply }
            })
            .collect();
        self.write(changes)
    }

    fn submit(&mut self, name: &str, pods: u32) -> Uid {
        self.submit_in("default", name, pods, json!({}))
    }

    fn submit_in(&mut self, namespace: &str, name: &str, pods: u32, labels: Value) -> Uid {
        self.submit_with(namespace, name, pods, labels, "")
    }

    fn submit_with(
        &mut self,
        namespace: &str,
        name: &str,
        pods: u32,
        mut labels: Value,
        argument: &str,
    ) -> Uid {
        labels["kueue.x-k8s.io/queue-name"] = json!("lq");
        match self.apply(vec![job(namespace, name, pods, &labels, argument)]) {
            Reply::Written(written) => written[0].uid,
            other => panic!("not submitted: {other:?}"),
        }
    }

    /// One exchange of every agent that isn't cut off, and what its runner does at once.
    fn exchange(&mut self) {
        let names: Vec<ClusterName> = self.agents.keys().cloned().collect();
        for name in names {
            let agent = self.agents.get_mut(&name).unwrap();
            let tick = agent.apply(now(self.now), AgentInput::Tick);
            self.perform(&name, tick.effects);
            if self.cut.contains(&name) {
                continue;
            }
            let request = self.agents.get_mut(&name).unwrap().compose(now(self.now), Lane::News);
            let reply = self.input(Input::Sync {
                cluster: name.clone(),
                request: Box::new(request),
                may_park: false,
            });
            self.input(Input::Turn);
            self.world.committed(Mono(self.now));
            let Reply::Sync(answer) = reply else { panic!("not answered: {reply:?}") };
            let bytes = serde_json::to_vec(&*answer).unwrap().len();
            assert!(
                bytes < BODY_BYTES_MAX,
                "an agent reads no more than {BODY_BYTES_MAX} bytes, this is {bytes}"
            );
            if let SyncAnswer::Refused(why) = &*answer {
                eprintln!("{name} at {}: {why:?}", self.now);
            }
            let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Answer(answer));
            self.perform(&name, out.effects);
            self.agents[&name].check().unwrap();
        }
    }

    fn perform(&mut self, name: &ClusterName, effects: Vec<Effect>) {
        for effect in effects {
            let event = match effect {
                Effect::Start(s) => {
                    self.running.push((name.clone(), s.uid));
                    let elsewhere = self.running.iter().filter(|(_, u)| *u == s.uid).count();
                    assert_eq!(elsewhere, 1, "two clusters run {}", s.uid);
                    if self.hold_starts {
                        continue;
                    }
                    RunnerEvent::Running { uid: s.uid, fence: s.fence }
                }
                Effect::Move { uid, fence, number, .. } | Effect::Grow { uid, fence, number, .. } => {
                    RunnerEvent::Moved { uid, fence, number }
                }
                Effect::Shrink { uid, fence, size } if !self.hold_ends => RunnerEvent::Spare {
                    uid,
                    fence,
                    places: (size.parallelism..9).map(|index| ("main".to_owned(), index)).collect(),
                },
                Effect::Stop { .. } if self.hold_ends => continue,
                Effect::Stop { uid, fence } => {
                    self.running.retain(|r| *r != (name.clone(), uid));
                    RunnerEvent::Ended {
                        uid,
                        fence,
                        result: EndResult::Stopped,
                        pod_failures: 0,
                        ran: Millis(1),
                    }
                }
                _ => continue,
            };
            let more = self.agents.get_mut(name).unwrap().apply(now(self.now), AgentInput::Runner(event));
            self.perform(name, more.effects);
        }
    }

    fn settle(&mut self) {
        for _ in 0..6 {
            self.now += 20;
            self.exchange();
            self.input(Input::Turn);
        }
    }

    fn pass(&mut self, time: Millis) {
        let until = self.now + time.0;
        while self.now < until {
            self.now += 500;
            self.world.committed(Mono(self.now));
            self.exchange();
            self.input(Input::Turn);
        }
    }

    fn end(&mut self, uid: Uid, result: EndResult) {
        self.end_unheard(uid, result);
        self.settle();
    }

    /// It ends, and its agent has told nobody yet.
    fn end_unheard(&mut self, uid: Uid, result: EndResult) {
        let (name, _) = self.running.iter().find(|(_, u)| *u == uid).expect("it runs").clone();
        let fence = self.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
        self.running.retain(|(_, u)| *u != uid);
        let event = RunnerEvent::Ended { uid, fence, result, pod_failures: 0, ran: Millis(10) };
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Runner(event));
        self.perform(&name, out.effects);
    }

    fn phase(&self, uid: Uid) -> Option<Phase> {
        self.world.state.workloads().get(&uid).map(|w| w.phase())
    }

    fn at(&self, uid: Uid) -> Option<String> {
        self.running.iter().find(|(_, u)| *u == uid).map(|(c, _)| c.to_string())
    }

    fn why(&self, uid: Uid) -> Value {
        self.world.explain(uid, now(self.now)).expect("it exists")
    }

    /// The manager starts again from its records.
    fn restart(&mut self, id: u64, recovery: Option<RecoveryStart>) {
        let snapshot = self.world.snapshot();
        let mut world = World::restore(&snapshot, self.world.config.clone()).unwrap();
        assert_eq!(world.state, self.world.state, "a snapshot says everything");
        self.now += 3_000;
        world.lead(start(id, self.now, recovery, false), &self.bodies);
        world.committed(Mono(self.now));
        world.check().unwrap();
        self.world = world;
    }

    /// A manager starts from a backup that was put in the journal's place.
    fn lead_with_copy(&mut self, copy: &[u8]) {
        let mut world = World::restore(copy, config()).unwrap();
        self.now += 1_000;
        world.lead(
            start(77, self.now, Some(RecoveryStart { restored: true, members_unknown: false }), false),
            &self.bodies,
        );
        world.committed(Mono(self.now));
        self.world = world;
    }

    /// An operator has looked at policies and quotas: they are today's.
    fn confirm_rules(&mut self) {
        let reply = self.input(Input::Operator { actor: Actor::user("op"), action: Operator::ConfirmRules });
        assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    }
}

/// An end that nobody granted.
fn invented_end(uid: Uid, counter: u64) -> End {
    let fence = Fence { epoch: 1, leadership: 1, counter };
    End { uid, fence, result: EndResult::Succeeded, pod_failures: 0, ran: Millis(1), proof: None }
}

const RECOVERY: Option<RecoveryStart> = Some(RecoveryStart { restored: false, members_unknown: false });

#[test]
fn four_gangs_of_three_fill_three_regions_and_the_fourth_waits_with_reasons() {
    let mut f = Fleet::regions();
    let uids: Vec<Uid> = (0..4).map(|i| f.submit(&format!("job-{i}"), 3)).collect();
    f.settle();
    let mut places: Vec<Option<String>> = uids.iter().map(|u| f.at(*u)).collect();
    assert_eq!(places.pop().unwrap(), None);
    places.sort();
    assert_eq!(places, [Some("asia".into()), Some("eu".into()), Some("us".into())]);
    assert_eq!(f.phase(uids[3]), Some(Phase::Pending));
    let why = f.why(uids[3]);
    for cluster in why["clusters"].as_array().unwrap() {
        assert_eq!(cluster["reason"], "room for 1 of 3 pods of `main` now", "{why:#}");
    }
    assert_eq!(why["position"], json!({"queue": "lq", "place": 1, "of": 1}));
    f.end(uids[0], EndResult::Succeeded);
    assert_eq!(f.phase(uids[0]), Some(Phase::Finished));
    assert_eq!(f.phase(uids[3]), Some(Phase::Running), "{:#}", f.why(uids[3]));
}

#[test]
fn a_residency_policy_keeps_a_gang_and_its_offers_at_home() {
    let mut f = Fleet::regions();
    f.apply(vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research", "labels": {"data": "personal"}}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "research"}, "spec": {"clusterQueue": "cq"}}),
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "eu-only"}, "spec": {
            "applies": {"namespaceSelector": {"matchLabels": {"data": "personal"}}}, "allow": {"jurisdictions": ["EU"]}}}),
    ]);
    let first = f.submit_in("research", "a", 3, json!({}));
    let second = f.submit_in("research", "b", 3, json!({}));
    f.settle();
    assert_eq!(f.at(first).as_deref(), Some("eu"));
    assert_eq!(f.phase(second), Some(Phase::Pending));
    let why = f.why(second);
    let verdicts: Vec<&str> =
        why["clusters"].as_array().unwrap().iter().map(|c| c["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["forbidden", "no-room", "forbidden"]);
    // A policy that is tightened under a running gang evicts it.
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "nowhere"}, "spec": {
        "applies": {"namespaces": ["research"]}, "allow": {"jurisdictions": ["EU"]}, "deny": {"clusters": ["eu"]}}})]);
    f.settle();
    assert_eq!(f.at(first), None);
    assert_eq!(f.phase(first), Some(Phase::Pending));
}

#[test]
fn a_policy_that_only_flags_lets_runs_go_on_but_starts_nothing_new() {
    let mut f = Fleet::regions();
    let runs = f.submit("runs", 3);
    f.settle();
    let home = f.at(runs).unwrap();
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "flag"}, "spec": {
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": [home]}, "onChange": "Flag"}})]);
    f.settle();
    assert_eq!(f.at(runs), Some(home.clone()));
    let why = f.why(runs)["summary"].as_str().unwrap().to_owned();
    assert!(
        why.contains("residency policy `flag` (version ")
            && why.ends_with("and it runs on, because that policy only flags"),
        "{why}"
    );
    let denied = |(_, record): &&(RecordNumber, Record)| matches!(record, Record::Audited(l) if l.entry.action == Action::Verdict && l.entry.verdict == Some(Verdict::Denied) && l.entry.cluster == Some(home.clone()));
    assert_eq!(f.records.iter().filter(denied).count(), 1, "what runs where it no longer may is in the log");
    let after: Vec<Uid> = (0..3).map(|i| f.submit(&format!("after-{i}"), 1)).collect();
    f.settle();
    assert!(after.iter().all(|u| f.at(*u).is_some_and(|c| c != home)));
}

#[test]
fn a_silent_cluster_loses_its_gang_only_after_the_lapse() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.at(uid).unwrap().as_str().into();
    f.cut.push(home.clone());
    f.pass(Millis(5_000));
    assert_eq!(f.at(uid).as_deref(), Some(home.as_str()), "it runs on under its lease");
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.pass(Millis(7_000));
    let there = f.at(uid).expect("it runs elsewhere now");
    assert_ne!(there, home.as_str());
    assert_eq!(f.world.state.workloads()[&uid].attempts(), 2);
    f.cut.clear();
    f.pass(Millis(3_000));
    assert_eq!(f.at(uid), Some(there), "the old cluster's return changes nothing");
}

#[test]
fn renewals_keep_a_gang_running_for_many_terms() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home = f.at(uid);
    f.pass(Millis(60_000));
    assert_eq!(f.at(uid), home);
    assert_eq!(f.world.state.workloads()[&uid].attempts(), 1);
    assert!(f.world.live.counts.renewals > 10);
}

#[test]
fn deletion_in_every_state_leaves_nothing() {
    let mut f = Fleet::regions();
    let uids: Vec<Uid> = (0..4).map(|i| f.submit(&format!("job-{i}"), 3)).collect();
    let early = f.submit("early", 1);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "early"), uid: None }]);
    assert_eq!(f.phase(early), None);
    f.settle();
    for i in 0..4 {
        f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", &format!("job-{i}")),
            uid: None,
        }]);
    }
    f.settle();
    assert!(f.running.is_empty());
    assert!(uids.iter().all(|u| f.phase(*u).is_none()));
    assert!(f.world.queues.usage("cq").is_none_or(|u| u.is_empty()));
    for agent in f.agents.values() {
        assert_eq!(agent.held().count() + agent.runs().count(), 0);
    }
}

#[test]
fn a_restart_recovers_running_gangs_and_dispatches_only_afterwards() {
    let mut f = Fleet::regions();
    let running = f.submit("running", 3);
    f.settle();
    let big: Vec<Uid> = (0..3).map(|i| f.submit(&format!("waits-{i}"), 4)).collect();
    f.restart(2, RECOVERY);
    let fresh = f.submit("fresh", 1);
    assert!(f.world.state.recovery().is_some());
    f.settle();
    assert!(f.world.state.recovery().is_none(), "every cluster has reported");
    assert_eq!(f.phase(running), Some(Phase::Running));
    assert_eq!(f.world.state.workloads()[&running].attempts(), 1, "it was never moved");
    f.settle();
    assert_eq!(big.iter().filter(|u| f.phase(**u) == Some(Phase::Running)).count(), 2);
    assert_eq!(f.phase(fresh), Some(Phase::Running));
}

#[test]
fn a_new_ledger_frees_nothing_until_the_old_ones_leases_lapse() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let uid = f.submit("job", 3);
    f.settle();
    let home = f.at(uid).unwrap();
    f.add_agent(&home, 9_999);
    f.pass(Millis(4_000));
    assert_eq!(f.running.len(), 1, "the old run is still under its lease");
    // The old machine's guard ends it at its deadline.
    f.pass(Millis(4_000));
    f.running.retain(|(c, _)| c.as_str() != home);
    f.pass(Millis(4_000));
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(f.world.state.workloads()[&uid].attempts(), 2);
}

#[test]
fn declare_lost_frees_at_once_and_is_refused_later() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.at(uid).unwrap().as_str().into();
    f.cut.push(home.clone());
    f.running.clear();
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::DeclareLost { cluster: home.clone(), ledger: None },
    });
    f.input(Input::Turn);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_ne!(f.at(uid), Some(home.to_string()));
    assert_eq!(f.why(uid)["history"][0]["end"], "an operator declared the cluster lost");
}

#[test]
fn quota_is_never_exceeded_and_its_obstacle_is_named() {
    let mut f = Fleet::regions();
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 5}]}]}]}}),
    ]);
    let first = f.submit("a", 3);
    let second = f.submit("b", 3);
    f.settle();
    assert_eq!(f.phase(first), Some(Phase::Running));
    assert_eq!(f.phase(second), Some(Phase::Pending));
    assert!(f.world.over_quota().is_empty());
    assert_eq!(
        f.why(second)["summary"],
        "waits: asks for 3 `nvidia.com/gpu`; cluster queue `cq` has 2 of 5 free in flavor `any`; \
         it would fit if `default/a` (priority 0) were preempted, which `withinClusterQueue: Never` forbids"
    );
    f.end(first, EndResult::Succeeded);
    assert_eq!(f.phase(second), Some(Phase::Running));
}

#[test]
fn a_race_is_won_by_the_first_hold_and_the_others_let_go() {
    let mut f = Fleet::regions();
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "race"}, "spec": {
        "applies": {"queues": ["*"]}, "mode": "Race", "onClusterLoss": {"mode": "Fence", "term": "8s"}}})]);
    let uid = f.submit("job", 3);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(f.running.len(), 1);
    for agent in f.agents.values() {
        assert_eq!(agent.held().count(), 0, "losers hold nothing");
    }
}

#[test]
fn draining_moves_gangs_and_a_rejected_write_changes_nothing() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.at(uid).unwrap().as_str().into();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Drain(home.clone()) });
    f.settle();
    f.settle();
    assert_ne!(f.at(uid), Some(home.to_string()));
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let before = f.world.clone();
    let reply = f.apply(vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "x", "namespace": "n"}, "spec": {"clusterQueue": "missing"}}),
    ]);
    let Reply::Rejected(why) = reply else { panic!("a missing queue must be refused") };
    assert!(why[0].message.contains("`missing`"), "{why:?}");
    assert_eq!(f.world.state, before.state);
}

#[test]
fn an_offer_to_a_cluster_that_falls_silent_is_taken_back() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    let asked: Vec<ClusterName> =
        f.world.state.workloads()[&uid].legs().values().map(|l| l.cluster.clone()).collect();
    assert_eq!(asked.len(), 1, "asked directly");
    f.cut.push(asked[0].clone());
    f.pass(Millis(6_000));
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    assert_ne!(f.at(uid), Some(asked[0].to_string()));
    f.cut.clear();
    f.settle();
    assert_eq!(f.agents[&asked[0]].held().count(), 0, "the late hold is withdrawn");
}

#[test]
fn a_ledger_that_was_declared_lost_stops_everything_when_it_returns() {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 3);
    f.settle();
    let home: ClusterName = f.at(uid).unwrap().as_str().into();
    f.cut.push(home.clone());
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::DeclareLost { cluster: home.clone(), ledger: None },
    });
    // The operator was right: nothing runs there as far as P2 is concerned; the process itself is only cut off.
    f.running.retain(|(c, _)| *c != home);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.cut.clear();
    f.settle();
    assert_eq!(f.agents[&home].runs().count(), 0, "the returning copy was stopped");
    assert_ne!(f.at(uid), Some(home.to_string()));
}

#[test]
fn a_run_without_the_managers_code_is_not_adopted() {
    use meridian_shared::ids::{Fence, OfferId, Session};
    use meridian_shared::protocol::{Inventory, OnLoss, Run, SyncRequest};
    let mut f = Fleet::regions();
    let uid = f.submit("job", 4);
    f.settle();
    let home = f.at(uid);
    assert_ne!(home.as_deref(), Some("us"));
    f.submit("fills-1", 4);
    f.submit("fills-2", 4);
    f.settle();
    let waiting = f.submit("waits", 4);
    f.settle();
    // One agent claims to run both under an absurd fence.
    let liar: ClusterName = "us".into();
    let session = f.agents[&liar].session();
    let ledger = f.agents[&liar].durable().ledger;
    let leadership = f.world.state.leadership();
    let fence = Fence { epoch: u64::MAX, leadership: 1, counter: 1 };
    let run = |uid| Run {
        uid,
        fence,
        offer: OfferId { epoch: 9, leadership: 9, counter: 9 },
        attempt: 9,
        running: true,
        stopping: false,
        term: Millis(u64::MAX),
        on_loss: OnLoss::Fence,
        spec: ContentHash(1),
        mac: None,
        placement: None,
        spare: BTreeMap::new(),
        grown: None,
        priority: None,
    };
    let mut request: SyncRequest = f.agents.get_mut(&liar).unwrap().compose(now(f.now), Lane::News);
    assert_eq!(request.session, Session { counter: 1, id: 1 });
    request.ledger = ledger;
    request.inventory = Some(Inventory {
        for_leadership: Some(leadership),
        runs: vec![run(uid), run(waiting)],
        ..Inventory::default()
    });
    assert_eq!(request.session, session);
    f.input(Input::Sync { cluster: liar, request: Box::new(request), may_park: false });
    f.settle();
    f.end(uid, EndResult::Succeeded);
    assert_ne!(home, None);
    assert_eq!(f.world.live.counts.adoptions, 0);
    assert_eq!(f.phase(waiting), Some(Phase::Running), "a liar delays nobody");
}

#[test]
fn a_joining_cluster_gets_no_offer_before_another_knows_its_name() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.apply(vec![
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}}),
    ]);
    f.add_agent("us", 77);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    f.cut.push("eu".into());
    let first = f.submit("first", 4);
    f.settle();
    assert_eq!(f.at(first), None);
    let why = f.why(first);
    assert!(
        why["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["reason"].as_str().unwrap().contains("joined just now")),
        "{why:#}"
    );
    f.cut.clear();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    f.settle();
    let second = f.submit("second", 4);
    f.settle();
    assert!(f.at(first).is_some() && f.at(second).is_some());
    assert!(f.world.state.members().values().all(|m| m.admitted));
}

#[test]
fn a_backlog_of_large_jobs_goes_in_parts() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    // The worst that JSON can do: every quote takes four bytes in the answer.
    let argument = "\"".repeat(1_400_000);
    let uids: Vec<Uid> =
        ["a", "b", "c", "d"].map(|name| f.submit_with("default", name, 1, json!({}), &argument)).into();
    f.settle();
    assert!(uids.iter().all(|uid| f.phase(*uid) == Some(Phase::Running)));
}

#[test]
fn answers_that_overtake_each_other_lose_nothing() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let eu = ClusterName::new("eu");
    // Both lanes are under way; each answer brings an offer, and the later one arrives first.
    let (mut answers, mut uids) = (Vec::new(), Vec::new());
    for (lane, name) in [(Lane::News, "first"), (Lane::Poll, "second")] {
        uids.push(f.submit(name, 1));
        let request = Box::new(f.agents.get_mut(&eu).unwrap().compose(now(f.now), lane));
        match f.input(Input::Sync { cluster: eu.clone(), request, may_park: false }) {
            Reply::Sync(answer) => answers.push(answer),
            other => panic!("{other:?}"),
        }
    }
    for answer in answers.into_iter().rev() {
        let out = f.agents.get_mut(&eu).unwrap().apply(now(f.now), AgentInput::Answer(answer));
        f.perform(&eu, out.effects);
    }
    assert_eq!(f.agents[&eu].held().count(), 2, "both offers were taken without being said again");
    f.settle();
    assert!(uids.iter().all(|uid| f.phase(*uid) == Some(Phase::Running)));
}

#[test]
fn an_attempt_whose_end_is_written_down_has_no_other_end() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let uid = f.submit("job", 3);
    f.settle();
    let eu = ClusterName::new("eu");
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "no-eu"}, "spec": {
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}}})]);
    f.settle();
    assert_eq!((f.phase(uid), f.at(uid)), (Some(Phase::Pending), None));
    let said = f.agents[&eu].durable().tombstones.values().next().unwrap().end.clone();
    assert!(said.proof.is_some() && said.result == EndResult::Stopped);
    let lie = End { result: EndResult::Succeeded, ..said };
    let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
    let request = Box::new(SyncRequest {
        events_from: composed.events_last + 1,
        events: vec![Event::Ended(lie)],
        ..composed
    });
    f.input(Input::Sync { cluster: eu, request, may_park: false });
    assert_eq!(f.phase(uid), Some(Phase::Pending), "it was taken from there, and waits for another place");
}

#[test]
fn an_agent_that_knew_nothing_of_an_attempt_doesnt_say_how_it_ended() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let uid = f.submit("job", 3);
    f.settle();
    let eu = ClusterName::new("eu");
    f.cut.push(eu.clone());
    f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "no-eu"}, "spec": {
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}}})]);
    let mut said = 0;
    let mut say = |f: &mut Fleet, end: End| {
        said += 1;
        let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let request = Box::new(SyncRequest {
            events_from: composed.events_last + said,
            events: vec![Event::Ended(end)],
            ..composed
        });
        f.input(Input::Sync { cluster: eu.clone(), request, may_park: false });
    };
    // On a copy of its ledger from before the grant it finds nothing that runs.
    let fence = f.world.state.workloads()[&uid].fence().unwrap();
    say(&mut f, End { uid, fence, result: EndResult::Stopped, pod_failures: 0, ran: Millis(0), proof: None });
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    // The ledger that had the grant comes back, and proves what became of it.
    f.end_unheard(uid, EndResult::Succeeded);
    let end = f.agents[&eu].durable().tombstones.values().next().unwrap().end.clone();
    assert!(end.proof.is_some() && end.result == EndResult::Succeeded);
    say(&mut f, end);
    assert_eq!(f.phase(uid), Some(Phase::Finished), "it isn't run again");
}

#[test]
fn what_a_lying_agent_floods_is_bounded() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let eu = ClusterName::new("eu");
    for round in 1..=8 {
        let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let offers = (0..20_000)
            .map(|i| {
                (OfferId { epoch: 1, leadership: 1, counter: 1_000_000 * round + i }, Uid(u128::from(i)))
            })
            .collect();
        let inventory = Some(Inventory {
            for_leadership: Some(f.world.state.leadership()),
            offers,
            ..Inventory::default()
        });
        f.input(Input::Sync {
            cluster: eu.clone(),
            request: Box::new(SyncRequest { inventory, ..composed }),
            may_park: false,
        });
    }
    let end = |n: u64| End { result: EndResult::Stopped, ..invented_end(Uid(n.into()), n) };
    for round in 0..40 {
        let composed = f.agents.get_mut(&eu).unwrap().compose(now(f.now), Lane::News);
        let events_from = f.world.live.clusters[&eu].events_through + 1;
        let events = (0..1_024).map(|i| Event::Ended(end(1_024 * round + i))).collect();
        let request = Box::new(SyncRequest {
            events_from,
            events_last: events_from + 1_023,
            events,
            answered: 0,
            ..composed
        });
        f.input(Input::Sync { cluster: eu.clone(), request, may_park: false });
    }
    let live = &f.world.live.clusters[&eu];
    assert!(live.outbox.waiting() <= 8_192 && live.acknowledge.len() <= 32_768);
}

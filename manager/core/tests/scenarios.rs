//! Scenarios of the manager's core and the agent's core together, without a network.
//!
//! Each scenario is a short story in which one thing happens at a time, and checks what must follow. The
//! simulator covers random failures.

#[path = "scenarios/acknowledgements.rs"]
mod acknowledgements;
#[path = "scenarios/agent_write_limits.rs"]
mod agent_write_limits;
#[path = "scenarios/apply_merge.rs"]
mod apply_merge;
#[path = "scenarios/capacity_classes.rs"]
mod capacity_classes;
#[path = "scenarios/capacity_preemption.rs"]
mod capacity_preemption;
#[path = "scenarios/certificates.rs"]
mod certificates;
#[path = "scenarios/cluster_limits.rs"]
mod cluster_limits;
#[path = "scenarios/confirmations.rs"]
mod confirmations;
#[path = "scenarios/copies.rs"]
mod copies;
#[path = "scenarios/damaged_manifests.rs"]
mod damaged_manifests;
#[path = "scenarios/deactivation.rs"]
mod deactivation;
#[path = "scenarios/deletions.rs"]
mod deletions;
#[path = "scenarios/digests.rs"]
mod digests;
#[path = "scenarios/dispatch.rs"]
mod dispatch;
#[path = "scenarios/elastic.rs"]
mod elastic;
#[path = "scenarios/elastic_restarts.rs"]
mod elastic_restarts;
#[path = "scenarios/ends.rs"]
mod ends;
#[path = "scenarios/failed_commits.rs"]
mod failed_commits;
#[path = "scenarios/flavor_capacity.rs"]
mod flavor_capacity;
#[path = "scenarios/fleet_metrics.rs"]
mod fleet_metrics;
#[path = "scenarios/golden_snapshots.rs"]
mod golden_snapshots;
#[path = "scenarios/indexed.rs"]
mod indexed;
#[path = "scenarios/inventories.rs"]
mod inventories;
#[path = "scenarios/job_changes.rs"]
mod job_changes;
#[path = "scenarios/kinds.rs"]
mod kinds;
#[path = "scenarios/leaderships.rs"]
mod leaderships;
#[path = "scenarios/lost_clusters.rs"]
mod lost_clusters;
#[path = "scenarios/management.rs"]
mod management;
#[path = "scenarios/manifests.rs"]
mod manifests;
#[path = "scenarios/orphans.rs"]
mod orphans;
#[path = "scenarios/parked_polls.rs"]
mod parked_polls;
#[path = "scenarios/partial_admission.rs"]
mod partial_admission;
#[path = "scenarios/priority_classes.rs"]
mod priority_classes;
#[path = "scenarios/priority_updates.rs"]
mod priority_updates;
#[path = "scenarios/process_clusters.rs"]
mod process_clusters;
#[path = "scenarios/queues.rs"]
mod queues;
#[path = "scenarios/reclaimable_pods.rs"]
mod reclaimable_pods;
#[path = "scenarios/recovery.rs"]
mod recovery;
#[path = "scenarios/renewals.rs"]
mod renewals;
#[path = "scenarios/requests.rs"]
mod requests;
#[path = "scenarios/requeueing.rs"]
mod requeueing;
#[path = "scenarios/residency.rs"]
mod residency;
#[path = "scenarios/restored_backups.rs"]
mod restored_backups;
#[path = "scenarios/retention.rs"]
mod retention;
#[path = "scenarios/rolled_back_journals.rs"]
mod rolled_back_journals;
#[path = "scenarios/run_time.rs"]
mod run_time;
#[path = "scenarios/scale_up.rs"]
mod scale_up;
#[path = "scenarios/sent_commands.rs"]
mod sent_commands;
#[path = "scenarios/sessions.rs"]
mod sessions;
#[path = "scenarios/start_timeouts.rs"]
mod start_timeouts;
#[path = "scenarios/starvation_guard.rs"]
mod starvation_guard;
#[path = "scenarios/status.rs"]
mod status;
#[path = "scenarios/tenants.rs"]
mod tenants;
#[path = "scenarios/topology.rs"]
mod topology;
#[path = "scenarios/topology_preemption.rs"]
mod topology_preemption;
#[path = "scenarios/untrusted_agents.rs"]
mod untrusted_agents;
#[path = "scenarios/usage_history.rs"]
mod usage_history;
#[path = "scenarios/why.rs"]
mod why;

use manifests::*;
use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::{NodeRequest, NodeSpec, Start};
use meridian_agent_core::{
    Agent, Config as AgentConfig, Effect, HoldSettings, Input as AgentInput, RunnerEvent,
};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, Operator, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::lifecycle::LifecycleEvent;
use meridian_manager_core::facts::outcome::{Bodies, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::{Config, World};
use meridian_objects::{Kind, Object};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, JournalId, LedgerId, OfferId, RecordNumber, Uid,
};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    BODY_BYTES_MAX, End, EndResult, Event, Inventory, Lane, RunnerKind, SyncAnswer, SyncRequest,
};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const GPU: &str = "nvidia.com/gpu";
const TERM: Millis = Millis::secs(8);
/// One cluster: name, region, jurisdiction.
const EU: &[(&str, &str, &str)] = &[("eu", "europe-west4", "EU")];

#[derive(Default)]
struct BodyStore(BTreeMap<ContentHash, Arc<str>>);

impl Bodies for BodyStore {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.0.get(&hash).cloned()
    }
}

/// A manager and its agents, with runners that start and stop pods at once.
struct Fleet {
    world: World,
    bodies: BodyStore,
    agents: BTreeMap<ClusterName, Agent>,
    /// Clusters with an agent that can't reach the manager.
    disconnected: Vec<ClusterName>,
    /// Everything that runners were told to start.
    starts: Vec<Start>,
    /// Workloads that run, as the runners know it.
    running: Vec<(ClusterName, Uid)>,
    now: u64,
    next_uid: u128,
    runner: RunnerKind,
    managed: ManagedResources,
    /// Runners create pods, and the pods don't start.
    hold_starts: bool,
    /// Runners stop pods, and the pods don't end.
    hold_stops: bool,
    /// Nodes that agents asked their providers for.
    node_requests: Vec<NodeRequest>,
    lifecycle_events: Vec<LifecycleEvent>,
    records: Vec<(RecordNumber, Record)>,
}

/// The priority classes `high`, with this value, and `low`, with 1.
fn priority_classes(f: &mut Fleet, high: i64) {
    f.apply(vec![priority_class("high", high), priority_class("low", 1)]);
}

fn config() -> Config {
    Config { term_min: TERM, term: TERM, start_timeout: Millis::secs(30), ..Config::new(ReceiptKey([7; 32])) }
}

fn now(at: u64) -> Now {
    Now { mono: Mono(at), wall: Wall(1_800_000_000_000 + i64::try_from(at).unwrap()) }
}

fn start(id: u64, at: u64, recovery: Option<RecoveryStart>, fresh: bool) -> meridian_manager_core::Start {
    meridian_manager_core::Start { id, recovery, fresh, now: now(at) }
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

    /// Clusters with a local queue `lq` of the cluster queue `cq`, which has more quota than they have GPUs.
    fn without_agents(clusters: &[(&str, &str, &str)]) -> Self {
        let mut world = World::empty(JournalId(1), config());
        let bodies = BodyStore::default();
        world.lead(start(1, 1_000, None, true), &bodies);
        world.committed(Mono(1_000));
        let mut fleet = Self {
            world,
            bodies,
            agents: BTreeMap::new(),
            disconnected: Vec::new(),
            starts: Vec::new(),
            running: Vec::new(),
            now: 1_000,
            next_uid: 100,
            runner: RunnerKind::Simulated,
            managed: ManagedResources::default(),
            hold_starts: false,
            hold_stops: false,
            node_requests: Vec::new(),
            lifecycle_events: Vec::new(),
            records: Vec::new(),
        };
        let mut objects =
            vec![resource_flavor("any"), cluster_queue("cq", 100, &json!({})), local_queue("lq", "cq")];
        for (name, region, jurisdiction) in clusters {
            objects.push(cluster_object(name, region, jurisdiction));
        }
        fleet.apply(objects);
        fleet
    }

    /// Three clusters, each with one node of four GPUs.
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

    /// An agent that detects the region it is in.
    fn add_agent_in(&mut self, name: &str, ledger: u128, located: Option<Arc<str>>) {
        self.start_agent(name, Durable::new(LedgerId(ledger)), located);
    }

    /// An agent starts with this store, and its runner has nothing.
    fn start_agent(&mut self, name: &str, store: Durable, located: Option<Arc<str>>) {
        let config = AgentConfig {
            cluster: name.into(),
            runner: self.runner,
            guarded: true,
            located,
            boot: 1,
            replacement_wait: Millis(0),
            holds: HoldSettings::default(),
            managed: self.managed.clone(),
            planted: Planted::NONE,
        };
        let (mut agent, out) = Agent::start(config, store, Vec::new(), 1, now(self.now));
        let node = NodeSpec {
            name: format!("{name}-1"),
            capacity: Amounts::from([(GPU.into(), 4)]),
            ..NodeSpec::default()
        };
        agent.apply(now(self.now), AgentInput::Nodes { nodes: vec![node], pools: Vec::new() });
        self.agents.insert(name.into(), agent);
        self.perform(&name.into(), out.into_effects());
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
        self.create(job(namespace, name, pods, &labels, argument))
    }

    fn submit_to(&mut self, queue: &str, name: &str, pods: u32, class: Option<&str>) -> Uid {
        let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
        if let Some(class) = class {
            labels["kueue.x-k8s.io/priority-class"] = json!(class);
        }
        self.create(job("default", name, pods, &labels, ""))
    }

    /// Creates a job that isn't there yet.
    fn create(&mut self, job: Value) -> Uid {
        match self.apply(vec![job]) {
            Reply::Written(written) => written[0].uid,
            other => panic!("not submitted: {other:?}"),
        }
    }

    /// Every agent that is connected sends one request and handles the answer; its runner acts at once.
    fn exchange(&mut self) {
        let names: Vec<ClusterName> = self.agents.keys().cloned().collect();
        for name in names {
            let agent = self.agents.get_mut(&name).unwrap();
            let tick = agent.apply(now(self.now), AgentInput::Tick);
            self.perform(&name, tick.into_effects());
            if self.disconnected.contains(&name) {
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
                "an agent reads at most {BODY_BYTES_MAX} bytes, the answer has {bytes}"
            );
            if let SyncAnswer::Refused(why) = &*answer {
                eprintln!("{name} at {}: {why:?}", self.now);
            }
            let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Answer(answer));
            self.perform(&name, out.into_effects());
            self.agents[&name].check().unwrap();
        }
    }

    fn perform(&mut self, name: &ClusterName, effects: Vec<Effect>) {
        for effect in effects {
            let event = match effect {
                Effect::Start(s) => {
                    self.running.push((name.clone(), s.uid));
                    self.starts.push((*s).clone());
                    let elsewhere = self.running.iter().filter(|(_, u)| *u == s.uid).count();
                    assert_eq!(elsewhere, 1, "two clusters run {}", s.uid);
                    if self.hold_starts {
                        continue;
                    }
                    RunnerEvent::Running { uid: s.uid, fence: s.fence }
                }
                Effect::Move { uid, fence, number, .. } | Effect::ScaleUp { uid, fence, number, .. } => {
                    RunnerEvent::Moved { uid, fence, number }
                }
                Effect::ScaleDown { uid, fence, size } if !self.hold_stops => RunnerEvent::Reclaimable {
                    uid,
                    fence,
                    places: (size.parallelism..9).map(|index| ("main".to_owned(), index)).collect(),
                },
                Effect::Stop { .. } if self.hold_stops => continue,
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
                Effect::Provision(request) => {
                    self.node_requests.push(request);
                    continue;
                }
                _ => continue,
            };
            let more = self.agents.get_mut(name).unwrap().apply(now(self.now), AgentInput::Runner(event));
            self.perform(name, more.into_effects());
        }
    }

    /// Enough exchanges for a decision to reach the agents and their reports to come back.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.now += 20;
            self.exchange();
            self.input(Input::Turn);
        }
    }

    /// Lets time pass, with an exchange every half second.
    fn advance(&mut self, time: Millis) {
        let until = self.now + time.0;
        while self.now < until {
            self.now += 500;
            self.world.committed(Mono(self.now));
            self.exchange();
            self.input(Input::Turn);
        }
    }

    /// The job ends where it runs.
    fn end(&mut self, uid: Uid, result: EndResult) {
        self.end_unreported(uid, result);
        self.settle();
    }

    /// The job ends, and its agent hasn't reported that yet.
    fn end_unreported(&mut self, uid: Uid, result: EndResult) {
        let (name, _) = self.running.iter().find(|(_, u)| *u == uid).expect("it runs").clone();
        let fence = self.agents[&name].runs().find(|(u, ..)| *u == uid).unwrap().1;
        self.running.retain(|(_, u)| *u != uid);
        let event = RunnerEvent::Ended { uid, fence, result, pod_failures: 0, ran: Millis(10) };
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Runner(event));
        self.perform(&name, out.into_effects());
    }

    fn phases(&self, uids: &[Uid]) -> Vec<Option<Phase>> {
        uids.iter().map(|uid| self.phase(*uid)).collect()
    }

    fn phase(&self, uid: Uid) -> Option<Phase> {
        self.world.state().workloads().get(&uid).map(|w| w.phase())
    }

    /// The cluster that runs the workload.
    fn cluster_of(&self, uid: Uid) -> Option<String> {
        self.running.iter().find(|(_, u)| *u == uid).map(|(c, _)| c.to_string())
    }

    /// The manager restarts from a snapshot of its state.
    fn restart(&mut self, id: u64, recovery: Option<RecoveryStart>) {
        let snapshot = self.world.snapshot();
        let mut world = World::restore(&snapshot, self.world.config().clone()).unwrap();
        assert_eq!(world.state(), self.world.state(), "a snapshot contains the whole state");
        self.now += 3_000;
        world.lead(start(id, self.now, recovery, false), &self.bodies);
        world.committed(Mono(self.now));
        world.check().unwrap();
        self.world = world;
    }
}

const RECOVERY: Option<RecoveryStart> = Some(RecoveryStart { restored: false, members_unknown: false });

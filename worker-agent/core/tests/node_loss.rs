//! Gangs that lose nodes: only the pods of a lost node get other nodes, or the attempt ends. One test per
//! branch.

use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::{NodeSpec, PodPlacement};
use meridian_agent_core::{
    Agent, Config, Effect, Found, FoundState, HoldSettings, Input, MOVES_MAX, Outcome, ProviderEvent,
    RunnerEvent,
};
use meridian_shared::gang::{Amounts, Gang, PodSet, Taint, TaintEffect, Toleration};
use meridian_shared::ids::{Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Uid};
use meridian_shared::managed::ManagedResources;
use meridian_shared::placement::Placement;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    Command, EndResult, Event, Grant, Lane, Offer, OnLoss, Receipt, RunnerKind, Size, StopReason, SyncAnswer,
    SyncResponse, VERSION,
};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use meridian_shared::topology::{FlavorTopology, TopologyRequest};
use std::collections::BTreeMap;
use std::sync::Arc;

#[path = "node_loss/crossing.rs"]
mod crossing;
#[path = "node_loss/moves.rs"]
mod moves;
#[path = "node_loss/priority.rs"]
mod priority;
#[path = "node_loss/provided.rs"]
mod provided;
#[path = "node_loss/reclaimable.rs"]
mod reclaimable;
#[path = "node_loss/scale_up.rs"]
mod scale_up;
#[path = "node_loss/storm.rs"]
mod storm;
#[path = "node_loss/taints.rs"]
mod taints;
#[path = "node_loss/toleration.rs"]
mod toleration;
#[path = "node_loss/waiting.rs"]
mod waiting;

const GPU: &str = "nvidia.com/gpu";
const HOST: &str = "kubernetes.io/hostname";
const LEADERSHIP: Leadership = Leadership { epoch: 1, id: 7 };

fn node(name: &str) -> NodeSpec {
    let part = |from: usize, to: usize| name[from..to].to_owned();
    let labels = [("block", part(0, 2)), ("rack", part(3, 5)), (HOST, name.to_owned())]
        .map(|(key, value)| (key.to_owned(), value));
    NodeSpec {
        name: name.into(),
        labels: labels.into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    }
}

/// Two racks in one block, three hosts in each, four accelerators on each: `b0-r0-h0` and so on.
fn fleet() -> Vec<NodeSpec> {
    (0..6).map(|i| node(&format!("b0-r{}-h{}", i / 3, i % 3))).collect()
}

fn without(lost: &[&str]) -> Vec<NodeSpec> {
    fleet().into_iter().filter(|node| !lost.contains(&node.name.as_str())).collect()
}

fn unready(lost: &[&str]) -> Vec<NodeSpec> {
    fleet().into_iter().map(|node| NodeSpec { unready: lost.contains(&node.name.as_str()), ..node }).collect()
}

fn taint(effect: TaintEffect) -> Taint {
    Taint { key: "maintenance".into(), value: "soon".into(), effect }
}

fn tainted(names: &[&str], effect: TaintEffect) -> Vec<NodeSpec> {
    let taints =
        |node: &NodeSpec| if names.contains(&node.name.as_str()) { vec![taint(effect)] } else { Vec::new() };
    fleet().into_iter().map(|node| NodeSpec { taints: taints(&node), ..node }).collect()
}

/// The gang with a toleration of the taint.
fn tolerant(mut gang: Gang) -> Gang {
    let all = Toleration {
        key: Some("maintenance".into()),
        exists: true,
        value: String::new(),
        effect: None,
        seconds: None,
    };
    gang.pod_sets.iter_mut().for_each(|set| set.tolerations.push(all.clone()));
    gang
}

fn near(pods: u32, level: &str) -> Gang {
    let levels = ["block", "rack", HOST].map(ToOwned::to_owned).to_vec();
    let within =
        FlavorTopology { flavor: "f".into(), name: "default".into(), levels, node_labels: BTreeMap::new() };
    let topology = Some(TopologyRequest::required(level));
    let pod_set = PodSet {
        name: "main".into(),
        count: pods,
        per_pod: Amounts::from([(GPU.into(), 1)]),
        topology,
        within: Some(within),
        ..PodSet::default()
    };
    Gang { pod_sets: vec![pod_set], ..Gang::default() }
}

fn plain(pods: u32) -> Gang {
    Gang {
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: pods,
            per_pod: Amounts::from([(GPU.into(), 1)]),
            ..PodSet::default()
        }],
        ..Gang::default()
    }
}

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 7, counter }
}

fn fence(counter: u64) -> Fence {
    Fence { epoch: 1, leadership: 7, counter }
}

/// An agent, its store, and all its orders and events.
struct Bench {
    wait: Millis,
    agent: Agent,
    store: BTreeMap<String, String>,
    now: u64,
    commands: u64,
    lives: u64,
    effects: Vec<Effect>,
    events: Vec<Event>,
}

impl Bench {
    fn new() -> Self {
        Self::waiting(Millis(0))
    }

    /// An agent with this wait for a new node.
    fn waiting(wait: Millis) -> Self {
        let durable = Durable::new(LedgerId(3));
        let birth = durable.birth();
        let (agent, out) = Agent::start(config(wait), durable, Vec::new(), 1, at(1_000));
        let store = BTreeMap::from([(birth.key, birth.value.unwrap())]);
        let mut this = Self {
            wait,
            agent,
            store,
            now: 1_000,
            commands: 0,
            lives: 1,
            effects: Vec::new(),
            events: Vec::new(),
        };
        this.take(out);
        this.nodes(fleet());
        this
    }

    fn take(&mut self, out: Outcome) {
        let (store, effects) = out.into_parts();
        for op in store {
            match op.value {
                Some(value) => self.store.insert(op.key, value),
                None => self.store.remove(&op.key),
            };
        }
        self.effects.extend(effects);
        self.agent.check().unwrap();
        assert!(!self.agent.ledger().overcommitted());
    }

    fn apply(&mut self, input: Input) {
        self.now += 10;
        let out = self.agent.apply(at(self.now), input);
        self.take(out);
    }

    fn nodes(&mut self, nodes: Vec<NodeSpec>) {
        self.apply(Input::Nodes { nodes, pools: Vec::new() });
    }

    /// One exchange with the manager, which sends `command` if there is one, and takes all events.
    fn exchange(&mut self, command: Option<Command>) {
        let request = self.agent.compose(at(self.now), Lane::News);
        self.events.extend(request.events.clone());
        let commands: Vec<Command> = command.into_iter().collect();
        let commands_from = self.commands + 1;
        self.commands += commands.len() as u64;
        let receipt = Receipt {
            journal: JournalId(1),
            leadership: LEADERSHIP,
            record: RecordNumber(1),
            rules: RecordNumber(1),
            audit_head: None,
            mac: None,
        };
        let answer = SyncResponse {
            version: VERSION,
            leadership: LEADERSHIP,
            session: request.session,
            transmission: request.transmission,
            receipt,
            members: Vec::new(),
            events_through: request.events_last,
            ends_acknowledged: Vec::new(),
            commands,
            commands_from,
            renewals: Vec::new(),
            want_inventory: false,
            capacity_acknowledged: 0,
            ranges: Vec::new(),
            poll: Millis(1_000),
        };
        self.apply(Input::Answer(Box::new(SyncAnswer::Ok(Box::new(answer)))));
    }

    fn offer(&mut self, number: u64, gang: Gang) {
        let (uid, namespace, kind) = (Uid(u128::from(number)), "default".into(), "Job".into());
        let asked = Offer {
            offer: offer(number),
            uid,
            namespace,
            kind,
            gang: Arc::new(gang),
            hold: Millis::mins(1),
            requires_guarded: false,
            container_needs: None,
            without_image: None,
            references: Vec::new(),
        };
        self.exchange(Some(Command::Offer(Box::new(asked))));
    }

    /// Offers, grants and starts a gang.
    fn run(&mut self, number: u64, gang: Gang) {
        self.offer(number, gang);
        self.grant(number);
        let (uid, fence) = (Uid(u128::from(number)), fence(number));
        self.apply(Input::Runner(RunnerEvent::Running { uid, fence }));
        self.exchange(None);
        self.effects.clear();
        self.events.clear();
    }

    /// Grants an offered gang, which is started.
    fn grant(&mut self, number: u64) {
        let (uid, fence) = (Uid(u128::from(number)), fence(number));
        self.exchange(Some(Command::Grant(Box::new(Grant {
            offer: offer(number),
            uid,
            fence,
            attempt: 1,
            namespace: "default".into(),
            name: "job".into(),
            spec: "{}".into(),
            term: Millis::mins(15),
            on_loss: OnLoss::Fence,
            start_within: Millis::mins(1),
            run_left: None,
            pod_failures: 0,
            completed: meridian_shared::indexes::Indexes::default(),
            priority: 0,
            mac: None,
        }))));
        assert!(
            self.effects.iter().any(|effect| matches!(effect, Effect::Start(start) if start.uid == uid)),
            "{:?}",
            self.events
        );
    }

    /// Kills the agent and starts it again; gangs continue.
    fn restart(&mut self) {
        let durable =
            Durable::load(self.store.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap();
        let live = FoundState::Live { running: true };
        let found = self
            .agent
            .runs()
            .map(|(uid, fence, ..)| Found {
                uid,
                fence,
                nodes: Vec::new(),
                completed: meridian_shared::indexes::Indexes::default(),
                state: live.clone(),
            })
            .collect();
        self.lives += 1;
        self.commands = 0;
        self.effects.clear();
        self.events.clear();
        let (agent, out) = Agent::start(config(self.wait), durable, found, self.lives, at(self.now));
        self.agent = agent;
        self.take(out);
    }

    /// Number of pods by node, as allocated.
    fn places(&self, number: u64) -> String {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for pod in self.agent.ledger().placement(offer(number)) {
            *counts.entry(pod.node).or_default() += 1;
        }
        counts.iter().map(|(node, pods)| format!("{node}={pods}")).collect::<Vec<_>>().join(" ")
    }

    /// The move that was ordered since the last call, if any; fails on other orders.
    fn moved(&mut self, number: u64) -> Option<(u32, Vec<PodPlacement>)> {
        let orders: Vec<Effect> = std::mem::take(&mut self.effects)
            .into_iter()
            .filter(|e| !matches!(e, Effect::SendNews | Effect::Deprovision { .. }))
            .collect();
        match orders.as_slice() {
            [] => None,
            [Effect::Move { uid, fence: of, number: nth, placement }] => {
                assert_eq!((*uid, *of), (Uid(u128::from(number)), fence(number)));
                Some((*nth, placement.clone()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn confirm(&mut self, number: u64, nth: u32) {
        self.apply(Input::Runner(RunnerEvent::Moved {
            uid: Uid(u128::from(number)),
            fence: fence(number),
            number: nth,
        }));
    }

    /// Placements that were reported since the last call.
    fn reported(&mut self) -> Vec<Arc<Placement>> {
        self.exchange(None);
        let placement = |event: Event| match event {
            Event::Running { placement, .. } | Event::Accepted { placement, .. } => placement,
            _ => None,
        };
        std::mem::take(&mut self.events).into_iter().filter_map(placement).collect()
    }

    /// Ends a gang after its stop was ordered. Returns the result as the manager gets it.
    fn ends(&mut self, number: u64) -> EndResult {
        let (uid, fence) = (Uid(u128::from(number)), fence(number));
        assert!(self.effects.contains(&Effect::Stop { uid, fence }), "{:?}", self.effects);
        self.apply(Input::Runner(RunnerEvent::Ended {
            uid,
            fence,
            result: EndResult::Stopped,
            pod_failures: 0,
            ran: Millis(5),
        }));
        self.exchange(None);
        let end = |event: &Event| match event {
            Event::Ended(end) if end.uid == uid => Some(end.result.clone()),
            _ => None,
        };
        self.events.iter().find_map(end).unwrap()
    }
}

fn config(replacement_wait: Millis) -> Config {
    Config {
        cluster: "eu".into(),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait,
        holds: HoldSettings::default(),
        managed: ManagedResources::default(),
        planted: Planted::NONE,
    }
}

fn at(millis: u64) -> Now {
    Now { mono: Mono(millis), wall: Wall(millis as i64) }
}

fn lost(result: EndResult) -> String {
    match result {
        EndResult::NodeLost { message } => message,
        other => panic!("{other:?}"),
    }
}

/// Enough for a few inputs of ten milliseconds each.
const WAIT: Millis = Millis(200);

impl Bench {
    /// Reports that pods of `main` have succeeded.
    fn succeed(&mut self, number: u64, indexes: &[u32]) {
        let places = indexes.iter().map(|index| ("main".to_owned(), *index)).collect();
        self.apply(Input::Runner(RunnerEvent::Reclaimable {
            uid: Uid(u128::from(number)),
            fence: fence(number),
            places,
        }));
    }

    /// Reclaimable pods in the next report.
    fn reclaimable_reported(&mut self) -> Vec<(Uid, BTreeMap<String, u32>)> {
        let request = self.agent.compose(at(self.now), Lane::News);
        self.exchange(None);
        request.spare.into_iter().map(|spare| (spare.uid, spare.pods)).collect()
    }

    fn free(&self) -> i64 {
        self.agent.ledger().blocks().iter().map(|block| block.free[GPU] * i64::from(block.nodes)).sum()
    }
}

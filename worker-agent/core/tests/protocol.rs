//! The agent's half of the protocol, message by message.

#[path = "protocol/answers.rs"]
mod answers;
#[path = "protocol/clocks.rs"]
mod clocks;
#[path = "protocol/holds.rs"]
mod holds;
#[path = "protocol/inventory.rs"]
mod inventory;
#[path = "protocol/provisioned_in_part.rs"]
mod provisioned_in_part;
#[path = "protocol/rules.rs"]
mod rules;
#[path = "protocol/shell.rs"]
mod shell;
#[path = "protocol/strays.rs"]
mod strays;

use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::NodeSpec;
use meridian_agent_core::{Agent, Config, Effect, Found, FoundState, HoldSettings, Input, Outcome};
use meridian_shared::gang::{Amounts, Gang, PodSet};
use meridian_shared::ids::{Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Uid};
use meridian_shared::managed::ManagedResources;
use meridian_shared::packing::Block;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    Command, Grant, Lane, Offer, OnLoss, Receipt, RunnerKind, SyncAnswer, SyncRequest, SyncResponse, VERSION,
};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use std::collections::BTreeMap;
use std::sync::Arc;

const GPU: &str = "nvidia.com/gpu";
const LEADERSHIP: Leadership = Leadership { epoch: 1, id: 7 };
const UID: Uid = Uid(1);
const OFFER: OfferId = OfferId { epoch: 1, leadership: 7, counter: 1 };
const FENCE: Fence = Fence { epoch: 1, leadership: 7, counter: 1 };
const TERM: Millis = Millis::mins(15);
const HOLD: Millis = Millis::mins(60);
const HOUR: i64 = 3_600_000;
const MINUTE: u64 = 60_000;

/// An agent, its store and its machine's clocks.
struct Bench {
    agent: Agent,
    store: BTreeMap<String, String>,
    now: Now,
    commands: u64,
    effects: Vec<Effect>,
    /// Boot of the machine, as the next start of the agent finds it.
    boot: u128,
}

impl Bench {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: Config) -> Self {
        let now = Now { mono: Mono(1_000), wall: Wall(10 * HOUR) };
        let durable = Durable::new(LedgerId(3));
        let birth = durable.birth();
        let (agent, out) = Agent::start(config, durable, Vec::new(), 1, now);
        let mut this = Self {
            agent,
            store: BTreeMap::from([(birth.key, birth.value.unwrap())]),
            now,
            commands: 0,
            effects: Vec::new(),
            boot: 1,
        };
        this.take(out);
        this.add_node();
        this
    }

    fn add_node(&mut self) {
        self.set_nodes(Vec::new());
    }

    /// One node, and pools that can grow.
    fn set_nodes(&mut self, pools: Vec<Block>) {
        let node =
            NodeSpec { name: "n".into(), capacity: Amounts::from([(GPU.into(), 4)]), ..NodeSpec::default() };
        self.apply(Input::Nodes { nodes: vec![node], pools });
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
        // Large states take long to check.
        if self.store.len() < 64 {
            self.agent.check().unwrap();
            assert_eq!(&self.stored(), self.agent.durable(), "a restart must find what was in memory");
        }
    }

    /// What a start reads from the store.
    fn stored(&self) -> Durable {
        Durable::load(self.store.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap()
    }

    fn apply(&mut self, input: Input) {
        let out = self.agent.apply(self.now, input);
        self.take(out);
    }

    /// Sets the wall clock.
    fn set(&mut self, by: i64) {
        self.now.wall = Wall(self.now.wall.0 + by);
    }

    /// Pauses the machine: only wall time advances.
    fn pause(&mut self, span: u64) {
        self.now.wall = self.now.wall + Millis(span);
    }

    /// Both clocks advance, and the agent gets a tick.
    fn pass(&mut self, span: u64) {
        self.now = Now { mono: self.now.mono + Millis(span), wall: self.now.wall + Millis(span) };
        self.apply(Input::Tick);
    }

    fn ask(&mut self) -> SyncRequest {
        self.agent.compose(self.now, Lane::News)
    }

    /// The manager's answer to a request, with the next commands.
    fn response(&mut self, request: &SyncRequest, commands: Vec<Command>) -> SyncResponse {
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
        SyncResponse {
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
        }
    }

    fn deliver(&mut self, response: SyncResponse) {
        self.apply(Input::Answer(Box::new(SyncAnswer::Ok(Box::new(response)))));
    }

    fn answer(&mut self, request: &SyncRequest, commands: Vec<Command>) {
        let response = self.response(request, commands);
        self.deliver(response);
    }

    fn offer(&mut self) {
        let request = self.ask();
        self.answer(&request, vec![offer()]);
    }

    fn run(&mut self) {
        self.offer();
        let request = self.ask();
        self.answer(&request, vec![grant()]);
        assert!(self.starts());
        self.effects.clear();
    }

    fn starts(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Start(_)))
    }

    fn stops(&self) -> bool {
        self.effects.contains(&Effect::Stop { uid: UID, fence: FENCE })
    }

    /// The agent is killed and started again; the gang continues.
    fn restart(&mut self) {
        let state = FoundState::Live { running: true };
        self.restart_with(vec![Found {
            uid: UID,
            fence: FENCE,
            nodes: Vec::new(),
            completed: meridian_shared::indexes::Indexes::default(),
            state,
        }]);
    }

    /// The same for an agent without gangs.
    fn restart_without_gang(&mut self) {
        self.restart_with(Vec::new());
    }

    fn restart_with(&mut self, found: Vec<Found>) {
        let durable = self.stored();
        self.commands = 0;
        let sessions = durable.sessions();
        let (agent, out) =
            Agent::start(Config { boot: self.boot, ..config() }, durable, found, sessions + 2, self.now);
        self.agent = agent;
        self.take(out);
        self.add_node();
    }

    /// Minutes of boot time until the stop is ordered.
    fn minutes_left(mut self) -> u64 {
        (0..60)
            .find(|_| {
                self.pass(MINUTE);
                self.stops()
            })
            .unwrap()
    }
}

fn config() -> Config {
    Config {
        cluster: "eu".into(),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait: Millis(0),
        holds: HoldSettings::default(),
        managed: ManagedResources::default(),
        planted: Planted::NONE,
    }
}

fn offer() -> Command {
    let pods = PodSet {
        name: "main".into(),
        count: 1,
        per_pod: Amounts::from([(GPU.into(), 1)]),
        ..PodSet::default()
    };
    let gang = Arc::new(Gang { pod_sets: vec![pods], ..Gang::default() });
    Command::Offer(Box::new(Offer {
        offer: OFFER,
        uid: UID,
        namespace: "default".into(),
        kind: "Job".into(),
        gang,
        hold: HOLD,
        requires_guarded: false,
        container_needs: None,
        without_image: None,
        references: Vec::new(),
    }))
}

fn grant() -> Command {
    Command::Grant(Box::new(Grant {
        offer: OFFER,
        uid: UID,
        fence: FENCE,
        attempt: 1,
        namespace: "default".into(),
        name: "job".into(),
        spec: "{}".into(),
        term: TERM,
        on_loss: OnLoss::Fence,
        start_within: Millis::mins(1),
        run_left: None,
        pod_failures: 0,
        completed: meridian_shared::indexes::Indexes::default(),
        priority: 0,
        mac: None,
    }))
}

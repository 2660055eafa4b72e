//! Leases while wall clocks are set and machines are paused, in one session and over a restart.

use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::NodeSpec;
use meridian_agent_core::{Agent, Config, Effect, Found, FoundState, Input, Outcome};
use meridian_shared::gang::{Amounts, Gang, PodSet};
use meridian_shared::ids::{Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Uid};
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    Command, Event, Grant, GrantRefusal, Lane, Offer, OnLoss, Receipt, RunnerKind, SyncAnswer, SyncRequest,
    SyncResponse, VERSION,
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
const HOUR: i64 = 3_600_000;
const MINUTE: u64 = 60_000;

/// An agent, its store and its machine's clocks.
struct Bench {
    agent: Agent,
    store: BTreeMap<String, String>,
    now: Now,
    commands: u64,
    effects: Vec<Effect>,
}

impl Bench {
    fn new() -> Self {
        let now = Now { mono: Mono(1_000), wall: Wall(10 * HOUR) };
        let durable = Durable::new(LedgerId(3));
        let birth = durable.birth();
        let (agent, out) = Agent::start(config(), durable, Vec::new(), 1, now);
        let mut this = Self {
            agent,
            store: BTreeMap::from([(birth.key, birth.value.unwrap())]),
            now,
            commands: 0,
            effects: Vec::new(),
        };
        this.take(out);
        let node =
            NodeSpec { name: "n".into(), capacity: Amounts::from([(GPU.into(), 4)]), ..NodeSpec::default() };
        this.apply(Input::Nodes { nodes: vec![node], pools: Vec::new() });
        this
    }

    fn take(&mut self, out: Outcome) {
        for op in out.store {
            match op.value {
                Some(value) => self.store.insert(op.key, value),
                None => self.store.remove(&op.key),
            };
        }
        self.effects.extend(out.effects);
        self.agent.check().unwrap();
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

    fn answer(&mut self, request: &SyncRequest, commands: Vec<Command>) {
        let receipt = Receipt {
            journal: JournalId(1),
            leadership: LEADERSHIP,
            record: RecordNumber(1),
            rules: RecordNumber(1),
            audit_head: None,
            mac: None,
        };
        let commands_from = self.commands + 1;
        self.commands += commands.len() as u64;
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

    fn offer(&mut self) {
        let pods = PodSet {
            name: "main".into(),
            count: 1,
            per_pod: Amounts::from([(GPU.into(), 1)]),
            ..PodSet::default()
        };
        let gang = Arc::new(Gang { pod_sets: vec![pods], max_run: None });
        let offer = Offer {
            offer: OFFER,
            uid: UID,
            namespace: "default".into(),
            kind: "Job".into(),
            gang,
            hold: Millis::mins(60),
            requires_guarded: false,
        };
        let request = self.ask();
        self.answer(&request, vec![Command::Offer(Box::new(offer))]);
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

    /// The agent is killed and started again; the gang goes on.
    fn restart(&mut self) {
        let durable =
            Durable::load(self.store.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap();
        let found = vec![Found {
            uid: UID,
            fence: FENCE,
            nodes: Vec::new(),
            state: FoundState::Live { running: true },
        }];
        self.commands = 0;
        let (agent, out) = Agent::start(config(), durable, found, 2, self.now);
        self.agent = agent;
        self.take(out);
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
        planted: Planted::NONE,
    }
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
        priority: 0,
        mac: None,
    }))
}

#[test]
fn a_grant_is_refused_after_a_pause() {
    let mut bench = Bench::new();
    bench.offer();
    bench.set(-HOUR);
    bench.pass(1_000);
    let request = bench.ask();
    bench.pause(TERM.0 + 20_000);
    bench.answer(&request, vec![grant()]);
    assert!(!bench.starts(), "{:?}", bench.effects);
    let news = bench.ask().events;
    assert!(
        news.iter().any(|event| matches!(event, Event::GrantRefused { why: GrantRefusal::Lapsed, .. })),
        "{news:?}"
    );
}

/// Minutes of a lease that `change` takes.
fn minutes_taken(change: &dyn Fn(&mut Bench)) -> u64 {
    let running = || {
        let mut bench = Bench::new();
        bench.run();
        bench
    };
    let mut bench = running();
    change(&mut bench);
    running().minutes_left() - bench.minutes_left()
}

fn observed_pause(bench: &mut Bench) {
    bench.pause(5 * MINUTE);
    bench.apply(Input::Tick);
}

fn observed_set_back(bench: &mut Bench) {
    bench.set(-HOUR);
    bench.apply(Input::Tick);
}

#[test]
fn every_pause_shortens_a_lease() {
    type Change = fn(&mut Bench);
    let (pause, set_back): (Change, Change) = (observed_pause, observed_set_back);
    for (changes, minutes) in [
        (&[set_back][..], 0),
        (&[set_back, pause], 5),
        (&[pause, set_back], 5),
        (&[pause, set_back, pause], 10),
    ] {
        let taken = minutes_taken(&|bench| changes.iter().for_each(|change| change(bench)));
        assert_eq!(taken, minutes, "{} changes", changes.len());
    }
}

#[test]
fn every_pause_shortens_a_lease_over_restarts() {
    type Change = fn(&mut Bench);
    let (pause, set_back, restart): (Change, Change, Change) =
        (observed_pause, observed_set_back, Bench::restart);
    let unobserved_pause: Change = |bench| bench.pause(5 * MINUTE);
    let unobserved_set_back: Change = |bench| bench.set(-HOUR);
    for (changes, minutes) in [
        (&[pause, restart][..], 5),
        (&[set_back, unobserved_pause, restart], 5),
        (&[pause, set_back, restart], 5),
        (&[pause, set_back, restart, pause], 10),
        (&[unobserved_set_back, restart, pause, restart], 5),
    ] {
        let taken = minutes_taken(&|bench| changes.iter().for_each(|change| change(bench)));
        assert_eq!(taken, minutes, "{} changes", changes.len());
    }
}

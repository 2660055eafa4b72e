//! Clocks that people set and machines that stand still: what a lease makes of them, in one session and over a restart.

use meridian_agent_core::durable::Durable;
use meridian_agent_core::ledger::NodeSpec;
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
const US: Leadership = Leadership { epoch: 1, id: 7 };
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
    said: u64,
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
            said: 0,
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

    /// Somebody sets the wall clock.
    fn set(&mut self, by: i64) {
        self.now.wall = Wall(self.now.wall.0 + by);
    }

    /// The machine stands still: only wall time goes on.
    fn pause(&mut self, span: u64) {
        self.now.wall = self.now.wall + Millis(span);
    }

    /// Both clocks go on, and the loop looks.
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
            leadership: US,
            record: RecordNumber(1),
            rules: RecordNumber(1),
            audit_head: None,
            mac: None,
        };
        let commands_from = self.said + 1;
        self.said += commands.len() as u64;
        let answer = SyncResponse {
            version: VERSION,
            leadership: US,
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
        self.said = 0;
        let (agent, out) = Agent::start(config(), durable, found, 2, self.now);
        self.agent = agent;
        self.take(out);
    }

    /// After how much boot time from now its stop is ordered, by whole minutes.
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
fn a_grant_that_waited_out_a_pause_is_refused_though_the_clock_was_set_back_before() {
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

#[test]
fn every_pause_takes_its_time_from_a_lease_whatever_was_done_to_the_clock() {
    let untouched = Bench::new;
    let running = || {
        let mut bench = untouched();
        bench.run();
        bench
    };
    let whole = running().minutes_left();
    let left = |what: &dyn Fn(&mut Bench)| {
        let mut bench = running();
        what(&mut bench);
        whole - bench.minutes_left()
    };
    let pause = |bench: &mut Bench| {
        bench.pause(5 * MINUTE);
        bench.apply(Input::Tick);
    };
    let set = |bench: &mut Bench, by| {
        bench.set(by);
        bench.apply(Input::Tick);
    };
    assert_eq!(left(&|bench| set(bench, -HOUR)), 0, "a clock that is set back proves nothing");
    assert_eq!(
        left(&|bench| {
            set(bench, -HOUR);
            pause(bench)
        }),
        5
    );
    assert_eq!(
        left(&|bench| {
            pause(bench);
            set(bench, -HOUR)
        }),
        5
    );
    assert_eq!(
        left(&|bench| {
            pause(bench);
            set(bench, -HOUR);
            pause(bench)
        }),
        10
    );
    let restart = Bench::restart;
    assert_eq!(
        left(&|bench| {
            pause(bench);
            restart(bench)
        }),
        5
    );
    assert_eq!(
        left(&|bench| {
            set(bench, -HOUR);
            bench.pause(5 * MINUTE);
            restart(bench)
        }),
        5,
        "nobody looked during the pause"
    );
    assert_eq!(
        left(&|bench| {
            pause(bench);
            set(bench, -HOUR);
            restart(bench)
        }),
        5
    );
    assert_eq!(
        left(&|bench| {
            pause(bench);
            set(bench, -HOUR);
            restart(bench);
            pause(bench)
        }),
        10
    );
    assert_eq!(
        left(&|bench| {
            bench.set(-HOUR);
            restart(bench);
            pause(bench);
            restart(bench)
        }),
        5,
        "it was set back while nobody looked"
    );
}

#[test]
fn what_an_earlier_version_stored_of_a_lease_is_read_as_it_was_meant() {
    let mut bench = Bench::new();
    bench.run();
    let whole = r#""lease":{"term":900000,"lapses":901000},"lead":35999000,"boot":1"#;
    let run = &bench.store[&format!("run/{UID}")];
    assert!(run.contains(whole), "{run}");
    bench.pause(5 * MINUTE);
    bench.restart();
    assert_eq!(bench.minutes_left(), 9);
}

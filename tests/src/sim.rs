//! The seeded simulation: one manager or two, worker machines, agents, people and a network, in one thread, under one seed.
//!
//! The cores, the lease arithmetic, the guard's deadline and the journal are the real ones; hosts, network, disks, clocks
//! and people are models. Every step is judged by [`oracle`], which has books of its own. The same seed gives the same
//! bytes of trace. Invariant of this module: nothing here reads a clock, a file, a thread or a hash map.
//!
//! ```text
//!  people ──┐                    ┌── agents ── machines (the truth)
//!           ├─ network ─ managers┤
//!  faults ──┘     journal on a faulty disk      oracle judges every step
//! ```

mod activity;
mod books;
mod chance;
mod clock;
pub mod counters;
mod elastic;
mod explained;
mod faults;
mod guards;
mod liar;
mod manager;
pub mod memory;
mod nearness;
mod nodes;
pub mod oracle;
mod people;
pub mod plan;
pub mod planted;
mod queues;
mod ranks;
mod residency;
mod runner;
mod staying;
mod store;
pub mod trace;
mod worker;

use chance::Chance;
use clock::HostClock;
use counters::Counters;
use explained::Told;
use manager::{Begin, Manager};
use meridian_agent_core::ProviderEvent;
use meridian_manager::journal::faulty::{Faults, FaultyDisk};
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::ids::ClusterName;
use meridian_shared::protocol::{Lane, SyncAnswer, SyncRequest};
use nearness::Telling;
use oracle::{Broken, Oracle, Verdict, broken};
use people::{LATE, LIAR, PLACES, People};
use plan::{Fault, Plan};
use std::collections::{BTreeMap, BTreeSet};
use trace::{Keep, Trace};
use worker::{AgentHost, Machine, drift_ppm};

/// How long everything may take to end once all faults are over: longer than the longest back-off of the cores.
const HEALING_MS: u64 = 25 * 60_000;

/// Steps of one run at most: many times what a long one takes.
const STEPS_MAX: u64 = 2_000_000;

/// Something that happens at a moment.
#[derive(Debug)]
enum Happening {
    Boot { manager: usize, life: u64, begin: Begin },
    Lead { manager: usize, life: u64, short: bool, fresh: bool },
    Engine { manager: usize, turn: u64 },
    Finish { manager: usize, life: u64 },
    Reload { manager: usize, life: u64 },
    ToManager { manager: usize, agent: usize, life: u64, request: Box<SyncRequest> },
    ToAgent { agent: usize, life: u64, transmission: u64, answer: Box<SyncAnswer> },
    AgentStart { agent: usize, life: u64 },
    AgentLoop { agent: usize, turn: u64 },
    Silent { agent: usize, life: u64, lane: Lane, transmission: u64 },
    Provided { agent: usize, life: u64, event: ProviderEvent },
    Gangs { machine: usize, turn: u64 },
    Adrift { machine: usize },
    Thaw { machine: usize },
    ThawManager { manager: usize },
    DiskHeals { manager: usize },
    Asked { manager: usize, id: u64, input: Box<Input> },
    Answered { id: u64, history: u32, reply: Box<Reply> },
    Unanswered { id: u64 },
    People,
    Operators,
    Backup,
    Strike(Fault),
    NodeLost,
    NodeBack { machine: usize, node: u32 },
    Heal,
    Look,
}

/// Streams of chance, one per purpose.
#[derive(Debug)]
struct Streams {
    net: Chance,
    faults: Chance,
    people: Chance,
    disk: Chance,
    runners: Chance,
    agents: Chance,
    manager: Chance,
    liar: Chance,
    nodes: Chance,
}

/// The state of one agent's way to the manager.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    up_cut_until: u64,
    down_cut_until: u64,
    slow_until: u64,
    /// Only this manager can be reached.
    pinned: Option<usize>,
    pinned_until: u64,
}

/// What one run came to.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The first broken promise, and when.
    pub broken: Option<(u64, Broken)>,
    /// What was exercised.
    pub counters: Counters,
    /// The trace, as far as it was kept.
    pub trace: String,
    /// Virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
}

/// One simulated world.
#[derive(Debug)]
struct Sim {
    plan: Plan,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    queued: u64,
    chance: Streams,
    managers: Vec<Manager>,
    machines: Vec<Machine>,
    agents: Vec<AgentHost>,
    ways: Vec<Way>,
    people: People,
    oracle: Oracle,
    counters: Counters,
    trace: Trace,
    failure: Option<(u64, Broken)>,
    healed: bool,
    /// An older journal took over: what it doesn't know is forgotten once it leads.
    gone: bool,
    /// Which history people's requests and answers belong to.
    history: u32,
    needs_fleet: bool,
    backups: Vec<Vec<u8>>,
    disks: u64,
    disk_faults: BTreeSet<usize>,
    /// Machines whose agents may not know all that runs there.
    forgetful: BTreeSet<usize>,
    done: bool,
    /// Who was told to be next.
    told: Told,
}

/// Runs one plan to its end, or to the first broken promise.
pub fn run(plan: Plan, keep: Keep) -> Report {
    let seed = plan.seed;
    let mut sim = Sim::new(plan, keep);
    let mut steps = 0_u64;
    while !sim.done && sim.failure.is_none() {
        let Some(((at, _), happening)) = sim.queue.pop_first() else { break };
        steps += 1;
        if steps > STEPS_MAX {
            sim.judge(broken("livelock", format!("{steps} steps, the next is {happening:?}")));
        }
        sim.now = at;
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.happen(happening)));
        if let Err(panic) = happened {
            let words = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            sim.judge(broken("panic", words.unwrap_or_default()));
        }
    }
    sim.counters.add("steps", steps);
    Report { seed, broken: sim.failure, counters: sim.counters, trace: sim.trace.text(), virtual_ms: sim.now }
}

impl Sim {
    fn new(plan: Plan, keep: Keep) -> Self {
        let seed = plan.seed;
        let (declared, fair, limits) = (people::declared(&plan), plan.fair, plan.limits);
        let stream = |purpose| Chance::new(seed, purpose);
        let chance = Streams {
            net: stream("net"),
            faults: stream("faults"),
            people: stream("people"),
            disk: stream("disk"),
            runners: stream("runners"),
            agents: stream("agents"),
            manager: stream("manager"),
            liar: stream("liar"),
            nodes: stream("nodes"),
        };
        let mut sim = Self {
            plan,
            now: 0,
            queue: BTreeMap::new(),
            queued: 0,
            chance,
            managers: Vec::new(),
            machines: Vec::new(),
            agents: Vec::new(),
            ways: Vec::new(),
            people: People::of(declared),
            oracle: Oracle::new(fair, limits),
            counters: Counters::default(),
            trace: Trace::new(keep),
            failure: None,
            healed: false,
            gone: false,
            history: 0,
            needs_fleet: false,
            backups: Vec::new(),
            disks: 0,
            disk_faults: BTreeSet::new(),
            forgetful: BTreeSet::new(),
            done: false,
            told: Told::default(),
        };
        sim.set_up();
        sim
    }

    fn set_up(&mut self) {
        self.trace.say(0, || format!("{:?}", self.plan));
        let disk = self.new_disk(Vec::new());
        let manager = self.new_manager(disk);
        self.managers.push(manager);
        self.at(0, Happening::Boot { manager: 0, life: 0, begin: Begin::Init });
        for place in self.places() {
            let a = self.new_worker(place);
            let from =
                if place == LATE { self.plan.active_ms / 3 } else { self.chance.agents.between(0, 500) };
            self.agents[a].lies = place == LIAR;
            let machine = self.agents[a].machine;
            self.machines[machine].honest = place != LIAR;
            self.at(from, Happening::AgentStart { agent: a, life: 0 });
        }
        for (fault, mean) in self.plan.faults.clone() {
            let at = 3_000 + self.chance.faults.between(0, mean);
            self.at(at, Happening::Strike(fault));
        }
        if let Some(mean) = self.plan.node_losses {
            self.at(2_000 + mean, Happening::NodeLost);
        }
        self.at(1_000, Happening::People);
        self.at(2_000, Happening::Operators);
        self.at(4_000, Happening::Backup);
        self.at(self.plan.active_ms, Happening::Heal);
    }

    /// Clusters of this run.
    fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.plan.clusters).collect();
        places.extend(self.plan.late_joiner.then_some(LATE));
        places.extend(self.plan.liar.then_some(LIAR));
        places
    }

    fn new_disk(&mut self, image: Vec<u8>) -> FaultyDisk {
        self.disks += 1;
        FaultyDisk::from_image(image, self.chance.disk.bits(), self.disks, Faults::default())
    }

    fn new_clock(&mut self) -> HostClock {
        let ppm = drift_ppm(&mut self.chance.agents);
        let ahead = i64::try_from(self.chance.agents.between(0, 20_000)).expect("small") - 10_000;
        let mono = self.chance.agents.between(5_000, 1_000_000);
        HostClock::new(self.now, mono, ppm, ahead)
    }

    fn new_manager(&mut self, disk: FaultyDisk) -> Manager {
        let boot = self.chance.manager.wide();
        Manager::new(self.new_clock(), boot, disk)
    }

    /// A machine with an agent for a cluster.
    fn new_worker(&mut self, place: usize) -> usize {
        let chance = &mut self.chance.agents;
        let guarded = place == LIAR || chance.of_1000(750);
        let nodes = 2 + u32::from(place != 0 && chance.of_1000(500));
        let pools = if chance.of_1000(250) { 4 } else { 0 };
        let boot = chance.wide();
        let clock = self.new_clock();
        // Racks of one node would move nobody.
        let nodes = if self.plan.topology { nodes + 2 } else { nodes };
        let mut machine = Machine::new(clock, boot, guarded, nodes, pools);
        machine.telling = Telling::of(&self.plan, place);
        machine.namespaces = Chance::new(self.plan.seed, &format!("namespaces of {place}")).of_1000(500);
        self.machines.push(machine);
        self.add_agent(AgentHost::new(ClusterName::new(PLACES[place].0), self.machines.len() - 1))
    }

    fn add_agent(&mut self, host: AgentHost) -> usize {
        self.agents.push(host);
        self.ways.push(Way::default());
        self.agents.len() - 1
    }

    /// Plans a happening.
    fn at(&mut self, at: u64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), happening);
    }

    /// Takes a verdict: the first broken promise ends the run.
    fn judge(&mut self, verdict: Verdict) {
        if let Err(broken) = verdict
            && self.failure.is_none()
        {
            self.trace.say(self.now, || format!("BROKEN {}: {}", broken.invariant, broken.words));
            self.failure = Some((self.now, broken));
        }
    }

    /// Until when whoever this concerns stands still, if it does.
    fn held_up(&self, happening: &Happening) -> Option<u64> {
        let manager = |m: usize| {
            Some(self.managers[m].paused_until)
                .filter(|until| *until > self.now || self.managers[m].clock.is_frozen())
        };
        let machine = |m: usize| {
            Some(self.machines[m].paused_until)
                .filter(|until| *until > self.now || self.machines[m].clock.is_frozen())
        };
        let agent = |a: usize| {
            Some(self.agents[a].paused_until)
                .filter(|until| *until > self.now)
                .max(machine(self.agents[a].machine))
        };
        match happening {
            Happening::Boot { manager: m, .. }
            | Happening::Lead { manager: m, .. }
            | Happening::Engine { manager: m, .. }
            | Happening::Finish { manager: m, .. }
            | Happening::Reload { manager: m, .. } => manager(*m),
            Happening::AgentStart { agent: a, .. }
            | Happening::AgentLoop { agent: a, .. }
            | Happening::Silent { agent: a, .. }
            | Happening::ToAgent { agent: a, .. } => agent(*a),
            Happening::Gangs { machine: m, .. } | Happening::Adrift { machine: m } => machine(*m),
            _ => None,
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some(until) = self.held_up(&happening) {
            return self.at(until, happening);
        }
        match happening {
            Happening::Boot { manager, life, begin } => self.boot(manager, life, begin),
            Happening::Lead { manager, life, short, fresh } => self.lead(manager, life, short, fresh),
            Happening::Engine { manager, turn } => self.engine(manager, turn),
            Happening::Finish { manager, life } => self.finish(manager, life),
            Happening::Reload { manager, life } => self.reload(manager, life, None),
            Happening::ToManager { manager, agent, life, request } => {
                self.to_manager(manager, agent, life, *request)
            }
            Happening::ToAgent { agent, life, transmission, answer } => {
                self.to_agent(agent, life, transmission, *answer)
            }
            Happening::AgentStart { agent, life } => self.start_agent(agent, life),
            Happening::AgentLoop { agent, turn } => self.agent_loop(agent, turn),
            Happening::Silent { agent, life, lane, transmission } => {
                self.silent(agent, life, lane, transmission)
            }
            Happening::Provided { agent, life, event } => self.provided(agent, life, event),
            Happening::Gangs { machine, turn } => self.gangs(machine, Some(turn)),
            Happening::Adrift { machine } => self.end_adrift(machine),
            Happening::Thaw { machine } => self.thaw(machine),
            Happening::ThawManager { manager } => {
                self.managers[manager].clock.thaw(self.now);
                self.kick(manager, self.now);
            }
            Happening::DiskHeals { manager } => self.disk_heals(manager),
            Happening::Asked { manager, id, input } => self.asked(manager, id, *input),
            // What an earlier history promised is gone with it: the request is repeated.
            Happening::Answered { id, history, reply } if history == self.history => {
                self.answered(id, &reply)
            }
            Happening::Answered { .. } => {}
            Happening::Unanswered { id } => {
                if self.people.requests.contains_key(&id) {
                    self.send_request(id);
                }
            }
            Happening::People => {
                if !self.healed {
                    if !self.needs_fleet {
                        self.people_act();
                    }
                    let at = self.now + self.chance.people.between(100, 2 * self.plan.people_ms);
                    self.at(at, Happening::People);
                }
            }
            Happening::Operators => {
                self.operators();
                self.at(self.now + 1_500, Happening::Operators);
            }
            Happening::Backup => self.back_up(),
            Happening::Strike(fault) => self.strike(fault),
            Happening::NodeLost => self.lose_node(),
            Happening::NodeBack { machine, node } => self.bring_back(machine, node),
            Happening::Heal => self.heal(),
            Happening::Look => self.look(),
        }
    }

    fn asked(&mut self, m: usize, id: u64, input: Input) {
        if self.managers[m].up() && self.people.requests.contains_key(&id) {
            self.managers[m].inbox.push_back(manager::Item { asker: manager::Asker::Person(id), input });
            self.kick(m, self.now);
        }
    }

    /// Delays of one message, one per copy that arrives.
    fn delays(&mut self, agent: usize, up: bool) -> Vec<u64> {
        let way = self.ways[agent];
        let cut = if up { way.up_cut_until } else { way.down_cut_until } > self.now;
        let slow = way.slow_until > self.now;
        let net = &mut self.chance.net;
        let (lose, duplicate, stray) =
            if self.healed { (0, 0, 0) } else { (self.plan.lose, self.plan.duplicate, self.plan.stray) };
        // The draws are the same whatever the state, so that one fault doesn't change all that follows.
        let (lost, twice) = (net.of_1000(lose), net.of_1000(duplicate));
        let mut late = 0;
        let mut delay = || {
            let usual = net.between(1, self.plan.delay_max);
            let extra = if slow { net.between(300, 3_000) } else { 0 };
            let astray = if net.of_1000(stray) { net.between(1_000, 12_000) } else { 0 };
            late += u64::from(astray > 0);
            usual + extra + astray
        };
        let delays = if twice { vec![delay(), delay()] } else { vec![delay()] };
        if cut || lost {
            self.counters.one("messages lost");
            return Vec::new();
        }
        if twice {
            self.counters.one("messages doubled");
        }
        self.counters.add("messages late", late);
        delays
    }

    fn send_request_up(&mut self, a: usize, life: u64, request: SyncRequest) {
        let way = self.ways[a];
        let pinned = way.pinned.filter(|_| self.now < way.pinned_until);
        let manager = pinned.unwrap_or(self.agents[a].route).min(self.managers.len() - 1);
        let delays = self.delays(a, true);
        self.trace.say(self.now, || request_words(a, manager, &request, &delays));
        self.counters.one("requests");
        for delay in delays {
            self.at(
                self.now + delay,
                Happening::ToManager { manager, agent: a, life, request: Box::new(request.clone()) },
            );
        }
    }

    fn send_answer(&mut self, m: usize, a: usize, life: u64, transmission: u64, answer: SyncAnswer) {
        let delays = self.delays(a, false);
        self.trace.say(self.now, || answer_words(m, a, &answer, &delays));
        for delay in delays {
            self.at(
                self.now + delay,
                Happening::ToAgent { agent: a, life, transmission, answer: Box::new(answer.clone()) },
            );
        }
    }

    /// After everything healed: are all jobs over?
    fn look(&mut self) {
        let leader = (0..self.managers.len()).find(|m| self.managers[*m].leading && !self.managers[*m].cut);
        let world = leader.and_then(|m| self.managers[m].world.as_ref());
        let open = match world {
            None => vec!["nobody leads".to_owned()],
            Some(world) if world.state.recovery.is_some() => {
                vec![format!(
                    "recovery is open: {:?}, waiting for {:?}",
                    world.state.recovery, world.live.awaited
                )]
            }
            Some(world) => self.oracle.unfinished(world, &|uid| self.people.activity.may_rest(world, uid)),
        };
        if open.is_empty() && self.people.requests.is_empty() {
            self.done = true;
            let m = leader.expect("a world was looked at");
            self.verify_audit(m);
            let world = self.managers[m].world.as_ref().expect("it leads");
            let verdict = self.check_memory(world);
            self.counters.one("runs to the end");
            return self.judge(verdict);
        }
        if self.now > self.plan.active_ms + HEALING_MS {
            let why = world
                .map(|w| format!("{:?}", w.live.clusters.keys().collect::<Vec<_>>()))
                .unwrap_or_default();
            return self.judge(broken(
                "liveness",
                format!(
                    "{} not over: {}; clusters that talk: {why}; requests {:?}",
                    open.len(),
                    open.join("; "),
                    self.people.requests
                ),
            ));
        }
        self.at(self.now + 1_000, Happening::Look);
    }
}

fn request_words(a: usize, m: usize, r: &SyncRequest, delays: &[u64]) -> String {
    let inventory = r.inventory.as_ref().map(|i| {
        format!(
            " inventory for {:?} runs {:?} offers {:?} ends {:?}",
            i.for_leadership, i.runs, i.offers, i.ends
        )
    });
    format!(
        "agent {a} → manager {m} #{} {:?} session {} follows {:?} answered {} commands {} events {}.. {:?}{} {delays:?}",
        r.transmission,
        r.lane,
        r.session,
        r.follows,
        r.answered,
        r.commands_through,
        r.events_from,
        r.events,
        inventory.unwrap_or_default(),
    )
}

fn answer_words(m: usize, a: usize, answer: &SyncAnswer, delays: &[u64]) -> String {
    match answer {
        SyncAnswer::Ok(r) => format!(
            "manager {m} → agent {a} #{} of {} by {} events through {} commands {}.. {:?} renews {:?} acknowledges {:?} inventory {} {delays:?}",
            r.transmission,
            r.session,
            r.leadership,
            r.events_through,
            r.commands_from,
            r.commands,
            r.renewals,
            r.ends_acknowledged,
            r.want_inventory
        ),
        SyncAnswer::Refused(why) => format!("manager {m} → agent {a} refused: {why:?} {delays:?}"),
    }
}

//! Worker machines and the agents on them: the real agent core over a store that may fail ([`super::store`]).
//!
//! One turn of an agent: apply, make durable, then do. The process can end between any two of these. What runs is the
//! machine's own matter ([`super::runner`]) and outlives the agent.

use super::chance::Chance;
use super::clock::HostClock;
use super::liar::Stall;
use super::nearness::{NODE_GPUS, Telling};
use super::nodes::Loss;
use super::oracle::{Verdict, broken};
use super::people::GPU;
use super::plan::Fault;
use super::runner::Runner;
use super::staying::Watched;
use super::store::StoreDisk;
use super::{Happening, Sim};
use meridian_agent_core::durable::Durable;
use meridian_agent_core::ledger::NodeSpec;
use meridian_agent_core::{Agent, Config, Effect, Input, ProviderEvent, RunnerEvent, Start};
use meridian_shared::gang::{Amounts, Gang};
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, OfferId, Uid};
use meridian_shared::packing::{Block, HOSTNAME_LABEL};
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{Event, Lane, RunnerKind, SyncAnswer, SyncRequest};
use std::collections::BTreeMap;

/// How long an answer may take beyond a poll's parking, or at all on the news lane.
const SILENCE_MS: u64 = 1_200;
/// The loop looks at both clocks this often.
const LOOK_MS: u64 = 1_000;

/// One machine (or one Kubernetes cluster): what runs there is judged.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) clock: HostClock,
    pub(super) boot: u128,
    pub(super) runner: Runner,
    /// Gangs end by themselves at the lapse.
    pub(super) guarded: bool,
    /// Where they do, they also end with their guard.
    pub(super) namespaces: bool,
    /// Its owner doesn't lie about what runs.
    pub(super) honest: bool,
    pub(super) nodes: u32,
    pub(super) pools: u32,
    pub(super) paused_until: u64,
    /// What its nodes say of where they stand.
    pub(super) telling: Telling,
    /// Nodes on which nobody may stay, and why.
    pub(super) failed: BTreeMap<u32, Loss>,
    /// Its wall clock was set back, and its guards haven't looked since.
    pub(super) unseen_back: bool,
    turn: u64,
    turn_at: u64,
}

/// One agent's process and store.
#[derive(Debug)]
pub(super) struct AgentHost {
    pub(super) cluster: ClusterName,
    pub(super) machine: usize,
    pub(super) store: BTreeMap<String, String>,
    /// What its disk does.
    pub(super) disk: StoreDisk,
    pub(super) agent: Option<Agent>,
    pub(super) life: u64,
    /// It never starts again.
    pub(super) gone: bool,
    pub(super) lies: bool,
    /// How it keeps the manager waiting, where it lies.
    pub(super) stall: Option<Stall>,
    pub(super) paused_until: u64,
    /// The manager that it talks to.
    pub(super) route: usize,
    lanes: BTreeMap<Lane, u64>,
    news: bool,
    synced: bool,
    failures: u32,
    pause_until: u64,
    pub(super) inbox: Vec<Input>,
    turn: u64,
    turn_at: u64,
    follows: Option<Leadership>,
    /// Its machine's wall clock was set back, and its store doesn't know yet.
    pub(super) unseen_back: bool,
    pub(super) copy_of: Option<usize>,
    /// Since when it counts what.
    pub(super) watched: Watched,
}

impl Machine {
    pub(super) fn new(clock: HostClock, boot: u128, guarded: bool, nodes: u32, pools: u32) -> Self {
        Self {
            clock,
            boot,
            runner: Runner::new(guarded),
            guarded,
            namespaces: true,
            honest: true,
            nodes,
            pools,
            telling: Telling::Nothing,
            paused_until: 0,
            failed: BTreeMap::new(),
            unseen_back: false,
            turn: 0,
            turn_at: u64::MAX,
        }
    }

    /// Gangs end by themselves here.
    pub(super) fn guard(&mut self) {
        self.guarded = true;
        self.runner = Runner::new(true);
    }

    fn node_specs(&self) -> Vec<NodeSpec> {
        let there = |i: &u32| self.failed.get(i) != Some(&Loss::Gone);
        let spec = |i| Loss::shown(self.failed.get(&i), self.node(format!("n{i}")));
        (0..self.nodes).filter(there).map(spec).collect()
    }

    /// What its agents are told of its nodes.
    pub(super) fn nodes_input(&self) -> Input {
        Input::Nodes { nodes: self.node_specs(), pools: self.pool_blocks() }
    }

    /// Whether pods are driven away from a node by its taint.
    pub(super) fn is_tainted(&self, node: &str) -> bool {
        let number = node.strip_prefix('n').and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| self.failed.get(&number) == Some(&Loss::Tainted))
    }

    fn pool_blocks(&self) -> Vec<Block> {
        let capacity = Amounts::from([(GPU.into(), NODE_GPUS)]);
        let mut labels = self.telling.labels("made");
        labels.remove(HOSTNAME_LABEL);
        let pool = Block { nodes: self.pools, free: capacity.clone(), capacity, labels, ..Block::default() };
        if self.pools > 0 { vec![pool] } else { Vec::new() }
    }

    fn node(&self, name: String) -> NodeSpec {
        NodeSpec {
            labels: self.telling.labels(&name),
            name,
            capacity: Amounts::from([(GPU.into(), NODE_GPUS)]),
            ..NodeSpec::default()
        }
    }
}

impl AgentHost {
    pub(super) fn new(cluster: ClusterName, machine: usize) -> Self {
        Self {
            cluster,
            machine,
            store: BTreeMap::new(),
            disk: StoreDisk::default(),
            agent: None,
            life: 0,
            gone: false,
            lies: false,
            stall: None,
            paused_until: 0,
            route: 0,
            lanes: BTreeMap::new(),
            news: true,
            synced: false,
            failures: 0,
            pause_until: 0,
            inbox: Vec::new(),
            turn: 0,
            turn_at: u64::MAX,
            follows: None,
            unseen_back: false,
            copy_of: None,
            watched: Watched::default(),
        }
    }

    /// The ledger of its store.
    pub(super) fn ledger(&self) -> Option<LedgerId> {
        self.store.get("ledger").and_then(|v| serde_json::from_str(v).ok())
    }

    /// Its store is deleted.
    pub(super) fn lose_store(&mut self) {
        self.store.clear();
        self.follows = None;
    }
}

impl Sim {
    /// Wakes an agent's loop at `at`, if nothing wakes it before.
    pub(super) fn rouse(&mut self, a: usize, at: u64) {
        let at = at.max(self.now);
        let host = &mut self.agents[a];
        if at < host.turn_at {
            host.turn_at = at;
            host.turn += 1;
            let turn = host.turn;
            self.at(at, Happening::AgentLoop { agent: a, turn });
        }
    }

    /// An agent's process starts.
    pub(super) fn start_agent(&mut self, a: usize, life: u64) {
        let host = &self.agents[a];
        if host.life != life || host.gone || host.agent.is_some() {
            return;
        }
        let machine = &self.machines[host.machine];
        let now = machine.clock.now(self.now);
        let config = Config {
            cluster: host.cluster.clone(),
            runner: RunnerKind::Simulated,
            guarded: machine.guarded && machine.namespaces,
            located: None,
            boot: machine.boot,
            replacement_wait: self.plan.replacement_wait,
            planted: self.plan.planted.map_or(Planted::NONE, Planted::with),
        };
        self.count_restarted(a);
        let host = &self.agents[a];
        let pairs = host.store.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let durable = match Durable::load(pairs) {
            Ok(Some(durable)) => durable,
            Ok(None) => {
                let durable = Durable::new(LedgerId(self.chance.agents.wide()));
                if !self.commit(a, vec![durable.birth()]) {
                    return;
                }
                durable
            }
            Err(error) => return self.judge(broken("store", error.to_string())),
        };
        // A store that was deleted may have taken the runner's own records with it: then nobody tells what still runs.
        let blind = durable.sessions == 0 && self.chance.agents.of_1000(500);
        if blind {
            self.forgetful.insert(self.agents[a].machine);
        }
        let place = self.agents[a].machine;
        self.machines[place].runner.tell_again();
        let found = if blind { Vec::new() } else { self.machines[place].runner.found() };
        let (agent, outcome) = Agent::start(config, durable, found, self.chance.agents.bits(), now);
        self.trace.say(self.now, || {
            format!("agent {a} of {} starts session {}", self.agents[a].cluster, agent.session())
        });
        let nodes = self.machines[place].nodes_input();
        let host = &mut self.agents[a];
        host.agent = Some(agent);
        host.lanes.clear();
        (host.news, host.synced, host.failures, host.pause_until) = (true, false, 0, 0);
        host.inbox.clear();
        if !blind {
            self.look_for_adrift(place);
        }
        if !self.keep(a, outcome.store) {
            return;
        }
        self.perform(a, outcome.effects);
        self.agent_turn(a, vec![nodes]);
        self.rouse(a, self.now);
    }

    /// Whether this agent's process may end at any moment.
    pub(super) fn kills_agents(&self, a: usize) -> bool {
        self.plan.faults.contains_key(&Fault::AgentKill)
            && !self.healed
            && self.machines[self.agents[a].machine].guarded
    }

    /// The process is over; gangs go on under their guards.
    pub(super) fn end_agent(&mut self, a: usize, again: bool) {
        let pause = again.then(|| self.chance.faults.between(50, 2_500));
        self.end_agent_for(a, pause);
    }

    /// The process is over, and the next one begins after a pause, if any does.
    pub(super) fn end_agent_for(&mut self, a: usize, pause: Option<u64>) {
        let host = &mut self.agents[a];
        host.agent = None;
        host.life += 1;
        host.paused_until = 0;
        let life = host.life;
        self.counters.one("agent ends");
        if let Some(pause) = pause {
            self.at(self.now + pause, Happening::AgentStart { agent: a, life });
        }
    }

    /// One turn: apply, make durable, do.
    pub(super) fn agent_turn(&mut self, a: usize, inputs: Vec<Input>) {
        let now = self.machines[self.agents[a].machine].clock.now(self.now);
        let Some(agent) = &mut self.agents[a].agent else { return };
        let (mut store, mut effects) = (Vec::new(), Vec::new());
        for input in inputs {
            let outcome = agent.apply(now, input);
            store.extend(outcome.store);
            effects.extend(outcome.effects);
        }
        let sound = agent.check();
        let follows = agent.durable().follows;
        self.judge(sound.or_else(|words| broken("Agent::check", words)));
        // Only what became durable was followed: an agent that dies before that has never said so.
        if self.failure.is_none() && self.keep(a, store) {
            self.agents[a].unseen_back = false;
            self.judge_following(a, follows);
            self.perform(a, effects);
            self.judge_stays(a);
            self.judge_ranks(a);
        }
    }

    /// The leadership that an agent follows never goes back, and no two have one epoch.
    fn judge_following(&mut self, a: usize, follows: Option<Leadership>) {
        let before = std::mem::replace(&mut self.agents[a].follows, follows);
        if let (Some(before), Some(after)) = (before, follows)
            && (after.epoch < before.epoch || (after.epoch == before.epoch && after.id != before.id))
        {
            self.judge(broken("leadership", format!("agent {a} follows {after} after {before}")));
        }
    }

    fn perform(&mut self, a: usize, effects: Vec<Effect>) {
        let machine = self.agents[a].machine;
        for (done, effect) in effects.into_iter().enumerate() {
            if done > 0 && self.ends_between(a) {
                break;
            }
            let now = self.machines[machine].clock.now(self.now);
            match effect {
                Effect::Start(start) => self.start_gang(a, machine, &start),
                Effect::Renew { uid, fence, deadline } => {
                    self.machines[machine].runner.renew(now, uid, fence, deadline);
                    self.judge_lease(machine, uid, fence);
                }
                Effect::Move { uid, fence, number, placement } => {
                    self.move_pods(a, machine, (uid, fence), number, placement)
                }
                Effect::Grow { uid, fence, number, placement, size } => {
                    self.grow_gang(a, machine, (uid, fence), number, placement, size)
                }
                Effect::Shrink { uid, fence, size } => self.shrink_gang(a, machine, (uid, fence), size),
                Effect::Stop { uid, fence } => {
                    self.trace.say(self.now, || format!("agent {a} stops {fence} of {uid}"));
                    if let Some(event) = self.machines[machine].runner.stop(now, uid, fence) {
                        self.agents[a].inbox.push(Input::Runner(event));
                        self.rouse(a, self.now);
                    }
                }
                Effect::Forget { uid, fence } => self.machines[machine].runner.forget(uid, fence),
                Effect::Provision { offer, gang } => self.provision(a, offer, &gang),
                Effect::Deprovision { .. } => {}
                Effect::SendNews => self.agents[a].news = true,
                Effect::Superseded => {
                    self.superseded(a);
                    // Guards of what it started just before go on without it (seed 297).
                    break;
                }
            }
        }
        self.watch_gangs(machine);
    }

    fn superseded(&mut self, a: usize) {
        self.trace.say(self.now, || format!("agent {a} is superseded"));
        self.counters.one("agents superseded");
        let last = !self
            .agents
            .iter()
            .enumerate()
            .any(|(i, h)| i != a && !h.gone && h.cluster == self.agents[a].cluster);
        self.end_agent(a, false);
        if last {
            // Its supervisor starts it again with a new store: the last agent of a cluster doesn't stay away.
            self.agents[a].lose_store();
            let life = self.agents[a].life;
            self.at(self.now + 2_000, Happening::AgentStart { agent: a, life });
        } else {
            self.agents[a].gone = true;
        }
    }

    fn start_gang(&mut self, a: usize, machine: usize, start: &Start) {
        let (uid, fence) = (start.uid, start.fence);
        let stored = self.agents[a]
            .store
            .get(&format!("run/{uid}"))
            .is_some_and(|run| run.contains(&format!("\"fence\":\"{fence}\"")));
        if !stored {
            self.judge(broken(
                "durable first",
                format!("{fence} of {uid} starts and is not in the agent's store"),
            ));
        }
        let Some((behaviour, near)) =
            self.oracle.jobs.get(&uid).map(|j| (j.behaviour.clone(), j.near.is_some()))
        else {
            return;
        };
        let now = self.machines[machine].clock.now(self.now);
        if !self.machines[machine].runner.start(now, start, &behaviour, &mut self.chance.runners) {
            return;
        }
        self.trace.say(self.now, || format!("machine {machine} starts {fence} of {uid}"));
        self.counters.one("gangs started");
        self.counters.add("gangs started near", u64::from(near));
        let verdict = self.oracle.starts(uid, fence, start.placement.len());
        if self.machines[machine].honest {
            self.judge(verdict);
            self.judge_alone(uid);
            self.judge_nodes(machine);
            self.judge_nearness(machine);
            self.judge_lease(machine, uid, fence);
        }
    }

    /// P2: no two attempts of one uid are alive at any instant, wherever.
    pub(super) fn judge_alone(&mut self, uid: Uid) {
        let machines = self.machines.iter().enumerate().filter(|(_, m)| m.honest && !m.clock.is_frozen());
        let bound = |m: &Machine| {
            m.runner
                .bound(m.clock.now(self.now))
                .filter(|(u, _)| *u == uid)
                .map(|(_, f)| f)
                .collect::<Vec<_>>()
        };
        let alive: Vec<(usize, Fence)> =
            machines.flat_map(|(i, m)| bound(m).into_iter().map(move |f| (i, f))).collect();
        if alive.len() > 1 && !self.oracle.is_exempt(uid) {
            self.judge(broken("P2", format!("{uid} runs twice: {alive:?} (machine, fence)")));
        }
    }

    pub(super) fn judge_nodes(&mut self, machine: usize) {
        let mut used: BTreeMap<&str, i64> = BTreeMap::new();
        for ((uid, _), run) in self.machines[machine].runner.runs().filter(|(_, r)| r.alive()) {
            let gpus = self.oracle.jobs.get(uid).map_or(0, |j| j.gpus);
            run.there().iter().for_each(|pod| *used.entry(&pod.node).or_insert(0) += gpus);
        }
        let over = used
            .iter()
            .find(|(_, gpus)| **gpus > NODE_GPUS)
            .map(|(node, gpus)| format!("node `{node}` of machine {machine} runs {gpus} of {NODE_GPUS}"));
        // Where a twin or a blind successor works, nobody knows all that runs.
        if let Some(words) = over.filter(|_| !self.forgetful.contains(&machine)) {
            self.judge(broken("P4", words));
        }
    }

    /// The agent's lease ends, in true time, before the manager may call it lapsed.
    fn judge_lease(&mut self, machine: usize, uid: Uid, fence: Fence) {
        let mac = &self.machines[machine];
        let Some(deadline) = mac.runner.deadline(uid, fence, mac.clock.now(self.now)).filter(|_| mac.honest)
        else {
            return;
        };
        let ends = mac.clock.when(deadline);
        let Some(lapses) = self.oracle.manager_lapse(fence) else { return };
        if ends > lapses {
            self.judge(broken(
                "lease",
                format!("{fence} of {uid} may run until {ends}, its manager may say lapsed at {lapses}"),
            ));
        }
    }

    /// Looks at a machine's gangs when something is due there.
    pub(super) fn watch_gangs(&mut self, machine: usize) {
        let mac = &mut self.machines[machine];
        let now = mac.clock.now(self.now);
        let Some(due) = mac.runner.due(now) else { return };
        let at = mac.clock.when(due).max(self.now).min(self.now + LOOK_MS);
        if at < mac.turn_at {
            mac.turn_at = at;
            mac.turn += 1;
            let turn = mac.turn;
            self.at(at, Happening::Gangs { machine, turn });
        }
    }

    /// What is due on a machine happens, and its agents hear of it.
    pub(super) fn gangs(&mut self, machine: usize, turn: Option<u64>) {
        let mac = &mut self.machines[machine];
        if turn.is_some_and(|t| t != mac.turn) {
            return;
        }
        if turn.is_some() {
            mac.turn_at = u64::MAX;
        }
        let now = mac.clock.now(self.now);
        mac.unseen_back = false;
        let events = mac.runner.tick(now);
        self.tell(machine, events);
        self.watch_gangs(machine);
    }

    /// Every agent of a machine hears what happened to its gangs.
    pub(super) fn tell(&mut self, machine: usize, events: Vec<RunnerEvent>) {
        for event in events {
            self.trace.say(self.now, || format!("machine {machine}: {event:?}"));
            self.note_moved(machine, &event);
            if let RunnerEvent::Ended {
                uid, result: meridian_shared::protocol::EndResult::Succeeded, ..
            } = &event
            {
                self.oracle.succeeded.insert(*uid);
            }
            if let RunnerEvent::Spare { uid, fence, places } = &event {
                self.counters.one("pods leaving");
                let left = self.oracle.left.entry((*uid, *fence)).or_default();
                *left = places.len().max(*left);
            }
            for a in 0..self.agents.len() {
                if self.agents[a].machine == machine && self.agents[a].agent.is_some() {
                    self.agents[a].inbox.push(Input::Runner(event.clone()));
                    self.rouse(a, self.now);
                }
            }
        }
    }

    fn provision(&mut self, a: usize, offer: OfferId, gang: &Gang) {
        let pods: u32 = gang.pod_sets.iter().map(|s| s.count).sum();
        let life = self.agents[a].life;
        let at = self.now + self.chance.runners.between(300, 4_000);
        let event = if self.chance.runners.of_1000(150) {
            ProviderEvent::Failed { offer, reason: "out of stock".into() }
        } else {
            let machine = &self.machines[self.agents[a].machine];
            let nodes =
                (0..pods.min(machine.pools)).map(|i| machine.node(format!("p-{offer}-{i}"))).collect();
            ProviderEvent::Ready { offer, nodes }
        };
        self.counters.one("provisioned");
        self.at(at, Happening::Provided { agent: a, life, event });
    }

    /// The provider says something.
    pub(super) fn provided(&mut self, a: usize, life: u64, event: ProviderEvent) {
        if self.agents[a].life == life {
            self.agents[a].inbox.push(Input::Provider(event));
            self.rouse(a, self.now);
        }
    }

    /// One round of an agent's loop: inputs, time, then both lanes.
    pub(super) fn agent_loop(&mut self, a: usize, turn: u64) {
        let host = &mut self.agents[a];
        if turn != host.turn {
            return;
        }
        host.turn_at = u64::MAX;
        if host.agent.is_none() {
            return;
        }
        let mut inputs = std::mem::take(&mut host.inbox);
        inputs.push(Input::Tick);
        self.agent_turn(a, inputs);
        while let Some(lane) = self.due_lane(a) {
            self.transmit(a, lane);
        }
        let host = &self.agents[a];
        let Some(agent) = &host.agent else { return };
        let clock = &self.machines[host.machine].clock;
        let deadline = agent.next_deadline().map_or(u64::MAX, |at| clock.when(at));
        let pause = if host.pause_until > self.now { host.pause_until } else { u64::MAX };
        self.rouse(a, deadline.min(pause).min(self.now + LOOK_MS).max(self.now + 1));
    }

    fn due_lane(&self, a: usize) -> Option<Lane> {
        let host = &self.agents[a];
        if host.agent.is_none() || self.now < host.pause_until || self.failure.is_some() {
            return None;
        }
        let probing = host.failures > 0 || !host.synced;
        if (host.news || probing) && !host.lanes.contains_key(&Lane::News) {
            return Some(Lane::News);
        }
        (!probing && !host.lanes.contains_key(&Lane::Poll)).then_some(Lane::Poll)
    }

    fn transmit(&mut self, a: usize, lane: Lane) {
        let host = &mut self.agents[a];
        let now = self.machines[host.machine].clock.now(self.now);
        let Some(agent) = &mut host.agent else { return };
        let mut request = agent.compose(now, lane);
        if lane == Lane::News {
            host.news = false;
        }
        let transmission = request.transmission;
        host.lanes.insert(lane, transmission);
        let patience = SILENCE_MS + if lane == Lane::Poll { agent.poll().0 } else { 0 };
        let life = host.life;
        let verdict = if host.lies { Ok(()) } else { honest_graves(&host.store, &request) };
        self.judge(verdict);
        self.at(self.now + patience, Happening::Silent { agent: a, life, lane, transmission });
        if !self.agents[a].lies || self.lie(a, &mut request) {
            self.send_request_up(a, life, request);
        }
    }

    /// No answer came in time.
    pub(super) fn silent(&mut self, a: usize, life: u64, lane: Lane, transmission: u64) {
        let host = &mut self.agents[a];
        if host.life != life || host.lanes.get(&lane) != Some(&transmission) {
            return;
        }
        host.lanes.remove(&lane);
        host.news |= lane == Lane::News;
        self.failed(a);
    }

    fn failed(&mut self, a: usize) {
        let wait = self.chance.agents.between(80, 500);
        let route = self.chance.agents.index(self.managers.len());
        let host = &mut self.agents[a];
        host.failures += 1;
        host.pause_until = self.now + wait;
        host.route = route;
        self.rouse(a, self.now + wait);
    }

    /// An answer arrived, perhaps late, perhaps twice, perhaps for an earlier life.
    pub(super) fn to_agent(&mut self, a: usize, life: u64, transmission: u64, answer: SyncAnswer) {
        let host = &mut self.agents[a];
        if host.agent.is_none() {
            return;
        }
        if host.life == life {
            let lane = host.lanes.iter().find(|(_, t)| **t == transmission).map(|(l, _)| *l);
            if let Some(lane) = lane {
                host.lanes.remove(&lane);
                if matches!(answer, SyncAnswer::Ok(_)) {
                    (host.failures, host.synced) = (0, true);
                } else {
                    host.news |= lane == Lane::News;
                    self.failed(a);
                }
            }
        }
        self.agents[a].inbox.push(Input::Answer(Box::new(answer)));
        self.rouse(a, self.now);
    }
}

/// Before an agent says that an attempt is over, its store has the tombstone.
fn honest_graves(store: &BTreeMap<String, String>, request: &SyncRequest) -> Verdict {
    for event in &request.events {
        let (uid, fence) = match event {
            Event::Ended(end) => (end.uid, end.fence),
            Event::GrantRefused { uid, fence, .. } => (*uid, *fence),
            _ => continue,
        };
        if !store.contains_key(&format!("tombstone/{uid}/{fence}")) {
            return broken(
                "tombstone",
                format!("the end of {fence} of {uid} is told and not in the agent's store"),
            );
        }
    }
    Ok(())
}

/// Chance for a machine's clock: within ±0.05 %.
pub(super) fn drift_ppm(chance: &mut Chance) -> i64 {
    let extremes = [-500, 500];
    if chance.of_1000(400) {
        *chance.pick(&extremes).expect("not empty")
    } else {
        i64::try_from(chance.between(0, 1_000)).expect("small") - 500
    }
}

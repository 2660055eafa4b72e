//! The agent's loop: the only owner of [`Agent`], and the only caller of the store, the runner and the provider.
//!
//! ```text
//! select ── answers, runner, provider, time ──▶ apply ──▶ commit ──▶ effects
//!                                               core      one durable   start, renew, stop,
//!                                                         transaction   provision, send news
//! ```
//!
//! Everything that is waiting is taken into one turn, so that one flush of the disk serves many events. Invariants: no
//! effect of a turn is done before all that the turn stores is durable; a transmission is composed at the moment it is
//! sent; when a commit fails nothing more is done or said, and the process ends ([`Error::Store`]): gangs go on under
//! their guards until their deadlines, and the next start goes on from what is durable.
//!
//! The loop blocks while it commits, so it runs on a thread of its own ([`Server::run`]).

use crate::logs::Query;
use crate::metrics::Metrics;
use crate::provider::Provider;
use crate::runner::{self, Runner};
use crate::store::{self, Store};
use crate::uplink::{Landed, Uplink};
use meridian_agent_core::durable::{self, Durable, StoreOp};
use meridian_agent_core::ledger::{self, NodeSpec};
use meridian_agent_core::{Agent, Config, Effect, Input, Outcome, ProviderEvent};
use meridian_shared::ids::LedgerId;
use meridian_shared::packing::Block;
use meridian_shared::protocol::{Lane, SyncAnswer};
use meridian_shared::time::{Millis, Mono, Now};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod bridge;
#[cfg(test)]
mod tests;

/// Most inputs of one turn: bounds how long a start waits for the commit that it shares.
const TURN_INPUTS_MAX: usize = 256;
/// The longest sleep. Timers of the runtime stop while a machine is suspended, and wall time can run ahead, so the clocks
/// are compared this often.
const LOOK_EVERY: Millis = Millis::secs(1);
/// How often the core recounts its ledger.
const CHECK_EVERY: Millis = Millis::mins(1);

/// Reads both clocks.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Why the loop ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store can't be used, or a commit failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// What is stored can't be understood.
    #[error(transparent)]
    Durable(#[from] durable::Error),
}

/// Why the loop ended without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// As asked. What runs goes on, and the next start finds it.
    Asked,
    /// The manager follows a newer session of this store, or a copy of it.
    Superseded,
}

/// What the loop works with.
pub struct Parts {
    /// What the agent is.
    pub config: Config,
    /// What it must not forget.
    pub store: Store,
    /// What runs gangs.
    pub runner: Box<dyn Runner>,
    /// What the runner tells.
    pub runner_events: mpsc::Receiver<runner::RunnerEvent>,
    /// Who makes nodes.
    pub provider: Box<dyn Provider>,
    /// What the provider tells.
    pub provider_events: mpsc::UnboundedReceiver<ProviderEvent>,
    /// The nodes that there are.
    pub nodes: watch::Receiver<Vec<NodeSpec>>,
    /// The way to the manager.
    pub uplink: Uplink,
    /// Who wants to read logs.
    pub log_queries: mpsc::Receiver<Query>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Both clocks.
    pub clock: Clock,
    /// Random, new for every start: tells copies of one store apart.
    pub random: u64,
    /// Ends the loop.
    pub stop: CancellationToken,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("config", &self.config)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

/// The loop and its state.
#[derive(Debug)]
pub struct Server {
    parts: Parts,
    agent: Agent,
    pools: Vec<Block>,
    looked: Mono,
    checked: Mono,
    /// Nodes that the manager wasn't told of at the last look.
    untold: u32,
}

/// What the loop does next.
enum Action {
    Apply(Input),
    Landed(Landed),
    Logs(Query),
    /// A pause of the uplink is over.
    Again,
    Stop,
}

/// What one turn stores and then does, each effect with what the clocks read when it was decided: a deadline is counted from there,
/// and the commit in between may outlast a pause of the machine.
#[derive(Debug, Default)]
struct Decisions {
    store: Vec<StoreOp>,
    effects: Vec<(Now, Effect)>,
}

impl Decisions {
    fn at(decided: Now, outcome: Outcome) -> Self {
        let Outcome { store, effects } = outcome;
        Self { store, effects: effects.into_iter().map(|effect| (decided, effect)).collect() }
    }
}

impl Server {
    /// Opens a session: adopts what really runs, makes the session durable, and does what follows. `ledger` is the identity
    /// of a store that is new.
    pub fn open(mut parts: Parts, ledger: LedgerId) -> Result<Self, Error> {
        let pairs = parts.store.load()?;
        let durable = match Durable::load(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))? {
            Some(durable) => durable,
            None => {
                let durable = Durable::new(ledger);
                parts.store.commit(&[durable.birth()])?;
                durable
            }
        };
        let found = parts.runner.adopt().into_iter().map(bridge::found).collect();
        let now = (parts.clock)();
        let (agent, outcome) = Agent::start(parts.config.clone(), durable, found, parts.random, now);
        tracing::info!(
            cluster = %parts.config.cluster,
            session = %agent.session(),
            runner = parts.runner.name(),
            provider = parts.provider.name(),
            nodes = parts.nodes.borrow().len(),
            runs = agent.runs().count(),
            "the agent starts"
        );
        let pools = parts.provider.pools();
        let nodes = Input::Nodes { nodes: parts.nodes.borrow_and_update().clone(), pools: pools.clone() };
        let mut this = Self { parts, agent, pools, looked: now.mono, checked: now.mono, untold: 0 };
        // A new session has nobody who could supersede it yet.
        let _ = this.finish(Decisions::at(now, outcome))?;
        let _ = this.turn(vec![nodes])?;
        Ok(this)
    }

    /// Runs the loop on a thread of its own until it is asked to stop, superseded, or can't store.
    pub async fn run(self) -> Result<Exit, Error> {
        let runtime = tokio::runtime::Handle::current();
        match tokio::task::spawn_blocking(move || runtime.block_on(self.serve())).await {
            Ok(exit) => exit,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    async fn serve(mut self) -> Result<Exit, Error> {
        loop {
            while let Some(lane) = self.parts.uplink.due(Instant::now()) {
                self.transmit(lane);
            }
            let exit = match self.select().await {
                Action::Stop => Some(Exit::Asked),
                Action::Again => None,
                Action::Logs(query) => {
                    self.answer(query);
                    None
                }
                Action::Landed(landed) => match self.land(landed) {
                    Some(answer) => self.turn_with(Input::Answer(Box::new(answer)))?,
                    None => None,
                },
                Action::Apply(input) => self.turn_with(input)?,
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
    }

    async fn select(&mut self) -> Action {
        let now = (self.parts.clock)().mono;
        let due = self.agent.next_deadline().map_or(LOOK_EVERY, |at| at.since(now)).min(LOOK_EVERY);
        let due = due.min((self.looked + LOOK_EVERY).since(now));
        let pause = self.parts.uplink.pause();
        let Parts { uplink, runner_events, provider_events, log_queries, nodes, stop, .. } = &mut self.parts;
        tokio::select! {
            biased;
            () = stop.cancelled() => Action::Stop,
            () = tokio::time::sleep(Duration::from_millis(due.0)) => Action::Apply(Input::Tick),
            landed = uplink.landed() => Action::Landed(landed),
            Some(event) = runner_events.recv() => bridge::event(event).map_or(Action::Again, |e| Action::Apply(Input::Runner(e))),
            Some(event) = provider_events.recv() => Action::Apply(Input::Provider(event)),
            Ok(()) = nodes.changed() => Action::Apply(Input::Nodes { nodes: nodes.borrow_and_update().clone(), pools: self.pools.clone() }),
            Some(query) = log_queries.recv() => Action::Logs(query),
            () = tokio::time::sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some_and(|p| p > Instant::now()) => Action::Again,
        }
    }

    /// Takes in a request that is over; gives the answer that came.
    fn land(&mut self, landed: Landed) -> Option<SyncAnswer> {
        self.parts.metrics.observe_landed(&landed);
        self.parts.uplink.note(&landed, Instant::now());
        self.parts.metrics.set_ready(self.parts.uplink.well());
        landed.result.ok()
    }

    /// One turn with `first` and whatever else is waiting.
    fn turn_with(&mut self, first: Input) -> Result<Option<Exit>, Error> {
        let mut inputs = vec![first];
        while inputs.len() < TURN_INPUTS_MAX {
            if let Ok(event) = self.parts.runner_events.try_recv() {
                inputs.extend(bridge::event(event).map(Input::Runner));
            } else if let Ok(event) = self.parts.provider_events.try_recv() {
                inputs.push(Input::Provider(event));
            } else {
                break;
            }
        }
        self.turn(inputs)
    }

    fn turn(&mut self, inputs: Vec<Input>) -> Result<Option<Exit>, Error> {
        let mut all = Decisions::default();
        for input in inputs {
            if let Input::Runner(event) = &input {
                self.parts.metrics.observe_event(&self.agent, event);
            }
            let now = (self.parts.clock)();
            let Decisions { store, effects } = Decisions::at(now, self.agent.apply(now, input));
            all.store.extend(store);
            all.effects.extend(effects);
        }
        let mut exit = self.finish(all)?;
        let pools = self.parts.provider.pools();
        if pools != self.pools {
            self.pools.clone_from(&pools);
            let nodes = self.parts.nodes.borrow().clone();
            let now = (self.parts.clock)();
            let outcome = self.agent.apply(now, Input::Nodes { nodes, pools });
            exit = exit.or(self.finish(Decisions::at(now, outcome))?);
        }
        self.look();
        Ok(exit)
    }

    /// Commits, then does what follows, in order.
    fn finish(&mut self, decisions: Decisions) -> Result<Option<Exit>, Error> {
        if !decisions.store.is_empty() {
            let began = Instant::now();
            self.parts.store.commit(&decisions.store)?;
            self.parts.metrics.observe_commit(began.elapsed());
        }
        let mut exit = None;
        for (decided, effect) in decisions.effects {
            exit = exit.or(self.perform(decided, effect));
        }
        Ok(exit)
    }

    fn perform(&mut self, decided: Now, effect: Effect) -> Option<Exit> {
        let Parts { runner, provider, uplink, metrics, .. } = &mut self.parts;
        match effect {
            Effect::Start(start) => {
                let nodes = ledger::in_words(&start.placement);
                tracing::info!(uid = %start.uid, fence = %start.fence, attempt = start.attempt, pods = start.placement.len(), nodes, "starting a gang");
                runner.start(bridge::start(*start), decided);
            }
            Effect::Renew { uid, fence, deadline } => {
                metrics.count_renewal();
                runner.renew(uid, fence, deadline, decided);
            }
            Effect::Move { uid, fence, number, placement } => {
                tracing::warn!(%uid, %fence, number, nodes = ledger::in_words(&placement), "a node of a gang is lost: its pods get other places");
                runner.move_pods(uid, fence, number, placement.into_iter().map(bridge::place).collect());
            }
            Effect::Shrink { uid, fence, size } => {
                tracing::info!(%uid, %fence, pods = size.parallelism, "a gang goes on with fewer pods");
                runner.shrink(uid, fence, size);
            }
            Effect::Grow { uid, fence, number, placement, size } => {
                tracing::info!(%uid, %fence, number, pods = size.parallelism, nodes = ledger::in_words(&placement), "a gang goes on with more pods");
                runner.grow(uid, fence, number, placement.into_iter().map(bridge::place).collect(), size);
            }
            Effect::Stop { uid, fence } => {
                tracing::info!(%uid, %fence, "stopping an attempt");
                runner.stop(uid, fence);
            }
            Effect::Forget { uid, fence } => runner.forget(uid, fence),
            Effect::Provision { offer, gang } => provider.request(offer, gang),
            Effect::Deprovision { offer } => provider.cancel(offer),
            Effect::SendNews => uplink.want_news(),
            Effect::Superseded => return Some(Exit::Superseded),
        }
        None
    }

    /// Composes now and sends now: leases count from this moment.
    fn transmit(&mut self, lane: Lane) {
        let poll = self.agent.poll();
        let request = self.agent.compose((self.parts.clock)(), lane);
        self.parts.metrics.observe_request(&request);
        // A backlog goes in parts: the next one is sent as soon as this one was taken.
        let more = request.events_last >= request.events_from + request.events.len() as u64;
        self.parts.uplink.send(request, poll);
        if more {
            self.parts.uplink.want_news();
        }
    }

    fn answer(&mut self, query: Query) {
        let Query { uid, fence, pod, reply } = query;
        let reader = match fence.or_else(|| self.agent.durable().fence_of(uid)) {
            Some(fence) => self.parts.runner.logs(uid, fence, pod).map_err(|error| error.to_string()),
            None => Err(format!("no attempt of workload `{uid}` is known here")),
        };
        // Nobody waits any more when the stream was given up.
        let _ = reply.send(reader);
    }

    /// What is looked at now and then, and never changes anything.
    fn look(&mut self) {
        let now = (self.parts.clock)().mono;
        if now.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        self.parts.metrics.observe_agent(&self.agent);
        let untold = self.agent.untold_nodes();
        if untold > 0 && self.untold == 0 {
            tracing::warn!(
                nodes = untold,
                "the manager isn't told of all nodes: so many that are unlike don't fit a report; take labels off of which every node has its own, or declare a part of them as another cluster"
            );
        }
        self.untold = untold;
        if now.since(self.checked) >= CHECK_EVERY {
            self.checked = now;
            if let Err(what) = self.agent.check() {
                self.parts.metrics.count_violation();
                tracing::error!("the ledger does not add up, which is a mistake of this program: {what}");
            }
        }
    }
}

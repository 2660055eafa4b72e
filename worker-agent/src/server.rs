//! The agent's loop: the only owner of [`Agent`], and the only caller of the store, the runner and the
//! provider.
//!
//! ```text
//! select ── answers, runner, provider, holds, time ──▶ apply ──▶ commit ──▶ effects
//!                                                      core      one durable   start, renew, stop,
//!                                                                transaction   provision, hold, send news
//! ```
//!
//! One turn takes everything that waits, so that one flush of the disk serves many events. Invariants: no
//! effect of a turn is done before everything that the turn stores is durable. A transmission is composed at
//! the moment at which it is sent. If a commit fails nothing more is done or sent, and the process ends
//! ([`Error::Store`]): gangs continue under their guards until their deadlines, and the next start continues
//! from what is durable.
//!
//! The loop blocks while it commits, so it has its own thread ([`Server::run`]). Nothing else in it may
//! block: runner and provider only take orders.

use crate::logs::Query;
use crate::metrics::{Metrics, simulated_gpus};
use crate::store::{self, Store};
use crate::uplink::{Landed, Uplink};
use meridian_agent_core::durable::{self, Durable, StoreOp};
use meridian_agent_core::runtime::{
    self, HoldEvent, Holds, LogSource, NodeSpec, Provider, ProviderEvent, Runner, RunnerEvent,
};
use meridian_agent_core::{Agent, Config, Effect, Input, Outcome};
use meridian_shared::ids::LedgerId;
use meridian_shared::packing::Block;
use meridian_shared::protocol::{Lane, RunnerKind, SyncAnswer};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod performing;
#[cfg(test)]
mod tests;

/// Most inputs of one turn, which bounds the wait for the common commit.
const TURN_INPUTS_MAX: usize = 256;
/// Longest sleep. Timers of the runtime stop while a machine is suspended, and wall time can jump ahead, so
/// the clocks are compared at this interval.
const OBSERVE_EVERY: Millis = Millis::secs(1);
/// How often the core checks its invariants.
const CHECK_EVERY: Millis = Millis::mins(1);

/// Reads both clocks.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Why the loop can't start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store can't be used, or a commit failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The stored values can't be read.
    #[error(transparent)]
    Durable(#[from] durable::Error),
    /// The runner can't list its runs.
    #[error(transparent)]
    Runner(#[from] runtime::Error),
}

/// Why the loop ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A stop was requested. Runs continue, and the next start adopts them.
    Requested,
    /// The manager follows a newer session of this store, or a copy of it.
    Superseded,
}

/// Dependencies of the loop.
pub struct Parts {
    pub config: Config,
    pub store: Store,
    pub runner: Box<dyn Runner>,
    pub runner_events: mpsc::Receiver<RunnerEvent>,
    pub provider: Box<dyn Provider>,
    pub provider_events: mpsc::UnboundedReceiver<ProviderEvent>,
    /// `None` where holds depend on the ledger alone.
    pub holds: Option<Box<dyn Holds>>,
    pub hold_events: mpsc::UnboundedReceiver<HoldEvent>,
    /// The nodes of the cluster, followed by [`crate::inventory::follow`].
    pub nodes: watch::Receiver<Vec<NodeSpec>>,
    /// The kinds of jobs that the cluster can't run, each with the reason.
    pub unavailable_kinds: watch::Receiver<BTreeMap<String, String>>,
    pub uplink: Uplink,
    pub log_queries: mpsc::Receiver<Query>,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// Random for every start; distinguishes copies of one store.
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
    /// When the agent was last observed.
    observed: Mono,
    /// When invariants were last checked.
    checked: Mono,
    /// Number of nodes that the capacity report left out at the last observation.
    unreported: u32,
}

/// Next action of the loop.
enum LoopAction {
    Apply(Input),
    Landed(Landed),
    Logs(Query),
    /// A pause of the uplink is over.
    Again,
    Stop,
}

/// Writes of one turn, and then its effects. Each effect has the clock readings of its decision, from which
/// its deadline counts, however long the commit in between takes.
#[derive(Debug, Default)]
struct Decisions {
    store: Vec<StoreOp>,
    effects: Vec<(Now, Effect)>,
}

impl Decisions {
    fn at(decided: Now, outcome: Outcome) -> Self {
        let (store, effects) = outcome.into_parts();
        Self { store, effects: effects.into_iter().map(|effect| (decided, effect)).collect() }
    }
}

impl Server {
    /// Opens a session: adopts what runs, makes the session durable, and does what follows. `ledger` is the
    /// identity of a new store. Fails if the store can't be used or the runner can't list its runs.
    pub async fn open(mut parts: Parts, ledger: LedgerId) -> Result<Self, Error> {
        let pairs = parts.store.load()?;
        let durable = match Durable::load(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))? {
            Some(durable) => durable,
            None => {
                let durable = Durable::new(ledger);
                parts.store.commit(&[durable.birth()])?;
                durable
            }
        };
        let found = parts.runner.adopt().await?;
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
        let kinds = Input::UnavailableKinds(parts.unavailable_kinds.borrow_and_update().clone());
        let mut this = Self { parts, agent, pools, observed: now.mono, checked: now.mono, unreported: 0 };
        // A new session can't be superseded yet.
        let _ = this.finish(Decisions::at(now, outcome))?;
        let _ = this.turn(vec![nodes, kinds])?;
        Ok(this)
    }

    /// Runs the loop on its own thread until a stop is requested or the session is superseded. Fails if a
    /// commit fails.
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
                LoopAction::Stop => Some(Exit::Requested),
                LoopAction::Again => None,
                LoopAction::Logs(query) => {
                    self.answer(query);
                    None
                }
                LoopAction::Landed(landed) => match self.land(landed) {
                    Some(answer) => self.turn_with(Input::Answer(Box::new(answer)))?,
                    None => None,
                },
                LoopAction::Apply(input) => self.turn_with(input)?,
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
    }

    async fn select(&mut self) -> LoopAction {
        let now = (self.parts.clock)().mono;
        let due = self.agent.next_deadline().map_or(OBSERVE_EVERY, |at| at.since(now)).min(OBSERVE_EVERY);
        let due = due.min((self.observed + OBSERVE_EVERY).since(now));
        let pause = self.parts.uplink.pause();
        let Parts {
            uplink,
            runner_events,
            provider_events,
            hold_events,
            log_queries,
            nodes,
            unavailable_kinds,
            stop,
            ..
        } = &mut self.parts;
        tokio::select! {
            biased;
            () = stop.cancelled() => LoopAction::Stop,
            () = tokio::time::sleep(Duration::from_millis(due.0)) => LoopAction::Apply(Input::Tick),
            landed = uplink.landed() => LoopAction::Landed(landed),
            Some(event) = runner_events.recv() => LoopAction::Apply(Input::Runner(event)),
            Some(event) = provider_events.recv() => LoopAction::Apply(Input::Provider(event)),
            Some(event) = hold_events.recv() => LoopAction::Apply(Input::Hold(event)),
            Ok(()) = nodes.changed() => {
                let nodes = nodes.borrow_and_update().clone();
                LoopAction::Apply(Input::Nodes { nodes, pools: self.pools.clone() })
            }
            Ok(()) = unavailable_kinds.changed() => {
                let kinds = unavailable_kinds.borrow_and_update().clone();
                LoopAction::Apply(Input::UnavailableKinds(kinds))
            }
            Some(query) = log_queries.recv() => LoopAction::Logs(query),
            () = tokio::time::sleep_until(pause.unwrap_or_else(Instant::now)),
                if pause.is_some_and(|until| until > Instant::now()) => LoopAction::Again,
        }
    }

    /// Applies a finished request and returns its answer, if there is one.
    fn land(&mut self, landed: Landed) -> Option<SyncAnswer> {
        self.parts.metrics.observe_landed(&landed);
        let lease_left = self.agent.lease_left((self.parts.clock)());
        self.parts.uplink.note(&landed, Instant::now(), lease_left);
        self.parts.metrics.set_ready(self.parts.uplink.is_well());
        landed.result.ok()
    }

    /// One turn with `first` and everything else that waits.
    fn turn_with(&mut self, first: Input) -> Result<Option<Exit>, Error> {
        let mut inputs = vec![first];
        while inputs.len() < TURN_INPUTS_MAX {
            if let Ok(event) = self.parts.runner_events.try_recv() {
                inputs.push(Input::Runner(event));
            } else if let Ok(event) = self.parts.provider_events.try_recv() {
                inputs.push(Input::Provider(event));
            } else if let Ok(event) = self.parts.hold_events.try_recv() {
                inputs.push(Input::Hold(event));
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
                performing::log_event(event);
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
        self.observe();
        Ok(exit)
    }

    /// Commits, then does the effects in order. Fails if the commit fails; then no effect is done.
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
        let Parts { runner, provider, holds, uplink, metrics, .. } = &mut self.parts;
        match effect {
            Effect::Provision(request) => provider.request(request),
            Effect::Deprovision { offer } => {
                provider.cancel(offer);
                holds.iter_mut().for_each(|holds| holds.release(offer));
            }
            Effect::Check(check) => {
                if let Some(holds) = holds {
                    holds.check(check);
                }
            }
            Effect::Secure(order) => {
                if let Some(holds) = holds {
                    holds.secure(order);
                }
            }
            Effect::SendNews => uplink.want_news(),
            Effect::Superseded => return Some(Exit::Superseded),
            Effect::Renew { uid, fence, deadline } => {
                metrics.count_renewal();
                runner.renew(uid, fence, deadline, decided);
            }
            effect => performing::order(runner.as_mut(), decided, effect),
        }
        None
    }

    /// Composes and sends a transmission. Leases count from this moment.
    fn transmit(&mut self, lane: Lane) {
        let poll = self.agent.poll();
        let request = self.agent.compose((self.parts.clock)(), lane);
        self.parts.metrics.observe_request(&request);
        // A backlog is sent in parts: the next one follows the answer to this one.
        let more = request.events_last >= request.events_from + request.events.len() as u64;
        self.parts.uplink.send(request, poll);
        if more {
            self.parts.uplink.want_news();
        }
    }

    fn answer(&mut self, query: Query) {
        let Query { uid, fence, pod, reply } = query;
        let source: Result<Box<dyn LogSource>, String> =
            match fence.or_else(|| self.agent.durable().fence_of(uid)) {
                Some(fence) => self.parts.runner.logs(uid, fence, pod).map_err(|error| error.to_string()),
                None => Err(format!("no attempt of workload `{uid}` is known here")),
            };
        // The send fails if the stream was closed meanwhile.
        let _ = reply.send(source);
    }

    /// Updates metrics and checks invariants now and then. Changes nothing.
    fn observe(&mut self) {
        let now = (self.parts.clock)().mono;
        if now.since(self.observed) < OBSERVE_EVERY {
            return;
        }
        self.observed = now;
        self.parts.metrics.observe_agent(now, &self.agent);
        if self.parts.runner.kind() == RunnerKind::Simulated {
            let readings = simulated_gpus::readings(self.agent.running_pods());
            self.parts.metrics.set_accelerators(&readings);
        }
        let unreported = self.agent.unreported_nodes();
        if unreported > 0 && self.unreported == 0 {
            tracing::warn!(
                nodes = unreported,
                "the capacity report leaves out nodes, because too many nodes differ: remove \
                 labels that are different on every node, or declare some of the nodes as another cluster"
            );
        }
        self.unreported = unreported;
        if now.since(self.checked) >= CHECK_EVERY {
            self.checked = now;
            if let Err(what) = self.agent.check() {
                self.parts.metrics.count_violation();
                tracing::error!("an invariant does not hold, which is a bug of this program: {what}");
            }
        }
    }
}

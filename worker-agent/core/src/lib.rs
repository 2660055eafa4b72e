//! The agent's half of the protocol: gang admission on one cluster's own nodes, leases, fences and tombstones.
//!
//! Owns what one cluster has promised ([`ledger`], where [`placing`] says), what runs there, and what must be remembered
//! ([`durable`]). It must not know a clock, a file, a process or a network: the shell reads clocks, stores, runs and sends.
//!
//! ```text
//!  uplink ──Input::Answer──▶ ┌─────────┐ ──Outcome.store──▶ durable first
//!  runner ──Input::Runner──▶ │  Agent  │ ──Outcome.effects─▶ then start / renew / stop / send
//!  timer  ──Input::Tick────▶ └─────────┘
//! ```
//!
//! Invariants, checked by [`Agent::check`]: no node gives more than it has; a gang has room for all its pods or none; at
//! most one attempt of a uid is live; every live attempt and every tombstone's fence is at most the largest known.
//! A grant is in `Outcome::store` no later than its start is in `Outcome::effects`.

#![warn(missing_docs)]

mod commands;
pub mod durable;
mod elapsed;
mod essence;
mod growing;
pub mod ledger;
pub mod leg;
mod link;
mod moving;
mod offers;
mod placed;
pub mod placing;
mod reporting;
mod runs;

pub use essence::VERSIONS;
pub use moving::MOVES_MAX;

use durable::{Durable, StoreOp};
use elapsed::Elapsed;
use ledger::{Ledger, NodeSpec, PodPlacement};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, ContentHash, Fence, OfferId, Session, Uid};
use meridian_shared::lease::AgentLease;
use meridian_shared::mac::Mac;
use meridian_shared::packing::Block;
use meridian_shared::placement::Placement;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    Command, End, EndResult, Event, Lane, OnLoss, RunnerKind, Size, StopReason, SyncAnswer, SyncRequest,
};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use offers::Offers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most offers open at once; more are refused as overloaded.
pub const OFFERS_MAX: usize = 4_096;
/// Most tombstones kept. When full, acknowledged ones go first, then offers are refused.
pub const TOMBSTONES_MAX: usize = 100_000;
/// How long an acknowledged tombstone is kept.
pub const TOMBSTONE_KEPT: Millis = Millis::mins(7 * 24 * 60);
/// Withdrawn offers remembered in a session; the oldest go first.
pub const WITHDRAWN_MAX: usize = 65_536;

/// What an agent is, fixed for its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Which runner it has.
    pub runner: RunnerKind,
    /// Whether gangs end by themselves at the lapse.
    pub guarded: bool,
    /// Where it found itself to be, if it could.
    pub located: Option<Arc<str>>,
    /// Identity of this boot of the machine: boot-time deadlines of another boot mean nothing.
    pub boot: u128,
    /// How long pods of a lost node wait for another place where there is none; zero ends their gang at once.
    pub replacement_wait: Millis,
    /// A bug planted by a test.
    pub planted: Planted,
}

/// A run that the runner really has, found after a restart by uid and fence labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// The workload.
    pub uid: Uid,
    /// The attempt.
    pub fence: Fence,
    /// Nodes on which its pods are; empty where that can't be told.
    pub nodes: Vec<String>,
    /// What it is doing.
    pub state: FoundState,
}

/// State of a found run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FoundState {
    /// Under way; true when all pods have started.
    Live {
        /// Whether all pods have started.
        running: bool,
    },
    /// Over, with its result.
    Ended {
        /// How.
        result: EndResult,
        /// Failed pods so far.
        pod_failures: u32,
        /// Run time used.
        ran: Millis,
    },
}

/// Everything that can happen to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// An answer to one of our transmissions arrived.
    Answer(Box<SyncAnswer>),
    /// The runner says.
    Runner(RunnerEvent),
    /// The provider of nodes says.
    Provider(ProviderEvent),
    /// The nodes that exist now, and the pools that can grow.
    Nodes {
        /// Nodes.
        nodes: Vec<NodeSpec>,
        /// Pools: `nodes` is how many more.
        pools: Vec<Block>,
    },
    /// Time has passed.
    Tick,
}

/// What a runner reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RunnerEvent {
    /// All pods of the gang have started.
    Running {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
    },
    /// The pods that had to move were seen ended where they were, and start where they belong now. The answer to [`Effect::Move`]
    /// and [`Effect::Grow`].
    Moved {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Which move.
        number: u32,
    },
    /// Pods have succeeded, and nothing more will start in their places. All of them, each time.
    Spare {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Each with its pod set and its number in that.
        places: Vec<(String, u32)>,
    },
    /// Pods have failed, and the job goes on.
    PodsFailed {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// So many so far, over all attempts.
        failures: u32,
    },
    /// The attempt is over and everything of it was seen ended.
    Ended {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// How.
        result: EndResult,
        /// Failed pods so far, over all attempts.
        pod_failures: u32,
        /// Run time used.
        ran: Millis,
    },
}

/// What a provider reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProviderEvent {
    /// Still waiting, in the provider's words.
    Waiting {
        /// The offer it was asked for.
        offer: OfferId,
        /// Its words.
        reason: String,
        /// When, if it says.
        estimate: Option<Millis>,
    },
    /// The nodes are there, for this offer only.
    Ready {
        /// The offer.
        offer: OfferId,
        /// The nodes.
        nodes: Vec<NodeSpec>,
    },
    /// It can't.
    Failed {
        /// The offer.
        offer: OfferId,
        /// Its words.
        reason: String,
    },
}

/// What the shell must do, after `Outcome::store` is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Start a gang. Idempotent by (uid, fence).
    Start(Box<Start>),
    /// Push a lease's deadline out.
    Renew {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Nothing may run at or after this moment.
        deadline: Mono,
    },
    /// Move the pods whose places differ, and leave all others alone: end each where it is, and start it in its new place only
    /// once it was seen ended. The attempt, its fence and its lease stay the same. Idempotent by (uid, fence, number).
    Move {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Counts the moves of this attempt, from 1.
        number: u32,
        /// Where every pod belongs from now on, in the order of the start.
        placement: Vec<PodPlacement>,
    },
    /// Let an attempt go on with fewer pods: end those that are too many, and say which places are empty then
    /// ([`RunnerEvent::Spare`]). Said again, it changes nothing.
    Shrink {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// How large it is from now on.
        size: Size,
    },
    /// Start the pods whose places are new, and leave all others alone; the answer is that of a move of the same number
    /// ([`RunnerEvent::Moved`]). Idempotent by (uid, fence, number).
    Grow {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Counts among the moves of this attempt.
        number: u32,
        /// Where every pod belongs, in the order of the start, those that are new behind all others.
        placement: Vec<PodPlacement>,
        /// How large it is from now on.
        size: Size,
    },
    /// Stop an attempt, known or not: the runner occupies its name, then reports `Ended`.
    Stop {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
    },
    /// Remove what is left of a run whose tombstone was dropped.
    Forget {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
    },
    /// Ask the provider for nodes.
    Provision {
        /// On behalf of this offer.
        offer: OfferId,
        /// For this gang.
        gang: Arc<Gang>,
    },
    /// Give back what was asked for or provided.
    Deprovision {
        /// The offer.
        offer: OfferId,
    },
    /// There is news: send it without waiting for the poll.
    SendNews,
    /// The manager knows a newer session or a clone of this ledger: exit.
    Superseded,
}

/// Everything a runner needs to start one gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// The workload.
    pub uid: Uid,
    /// The attempt.
    pub fence: Fence,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// The job's namespace.
    pub namespace: Arc<str>,
    /// The job's name.
    pub name: Arc<str>,
    /// The whole job as JSON.
    pub spec: Arc<str>,
    /// Where each pod goes.
    pub placement: Vec<PodPlacement>,
    /// Nothing may run at or after this moment; `None` where silence means waiting.
    pub deadline: Option<Mono>,
    /// Stop this long before the deadline.
    pub stop_budget: Millis,
    /// Run time left.
    pub run_left: Option<Millis>,
    /// Pods that failed in earlier attempts.
    pub pod_failures: u32,
}

/// The answer to one input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Make durable first, in one transaction.
    pub store: Vec<StoreOp>,
    /// Then do, in order.
    pub effects: Vec<Effect>,
}

/// One open offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenOffer {
    uid: Uid,
    gang: Arc<Gang>,
    state: OfferState,
    hold: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OfferState {
    Waiting,
    Held { until: Mono },
}

/// One live attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LiveRun {
    fence: Fence,
    offer: OfferId,
    attempt: u32,
    phase: leg::Phase,
    lease: Option<AgentLease>,
    term: Millis,
    on_loss: OnLoss,
    spec: ContentHash,
    mac: Option<Mac>,
    stopped_by: Option<StopCause>,
    pod_failures: u32,
    /// Where its pods are, as it is told; `None` for one that an older agent placed.
    placed: Option<Arc<Placement>>,
    /// Its shape; `None` for one that an older agent placed: its pods stay where they are.
    gang: Option<Arc<Gang>>,
    /// How often pods of it were moved.
    moves: u32,
    /// Why it had to end, where a node was lost and there was no other place.
    stranded: Option<Arc<str>>,
    /// How large it is, where that isn't as it was granted.
    size: Option<Size>,
    /// Since when pods of it, on a lost node, wait for another place.
    waits: Option<Wall>,
    /// How it may grow, and has.
    growth: growing::Growths,
    /// How important it is.
    priority: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
enum StopCause {
    Asked(StopReason),
    Lapse,
    Stranded,
}

/// One agent. All decisions; no I/O.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    config: Config,
    durable: Durable,
    session: Session,
    ledger: Ledger,
    offers: Offers,
    withdrawn: BTreeSet<OfferId>,
    runs: BTreeMap<Uid, LiveRun>,
    /// Runs with pods of a lost node that wait for another place.
    waiting: moving::Waiting,
    /// Attempts without a place in `runs` that the runner was asked to stop, with the end to tell once it has.
    strangers: BTreeMap<(Uid, Fence), End>,
    // the link
    transmissions: u64,
    sent: BTreeMap<u64, Mono>,
    answered: u64,
    commands_through: u64,
    /// Commands that overtook others: two answers may be under way at once, and come in any order. Each with the moment at
    /// which the transmission was sent that brought it.
    ahead: BTreeMap<u64, (Mono, Command)>,
    events: VecDeque<Event>,
    events_from: u64,
    inventory_due: bool,
    ranges: Vec<(
        meridian_shared::ids::Leadership,
        meridian_shared::ids::RecordNumber,
        meridian_shared::ids::RecordNumber,
    )>,
    capacity: link::CapacityReports,
    /// Runs whose spare pods the manager may not know, with the first transmission that said so; 0 before it.
    spare_news: BTreeMap<Uid, u64>,
    poll: Millis,
    /// This ledger was declared lost: exit when everything was stopped.
    lost: bool,
    /// No hold and no lease is due before this moment.
    due: Mono,
    purged: Wall,
    elapsed: Elapsed,
}

impl Agent {
    /// Starts a new session on what is durable and what the runner really has. `random` tells clones apart. Nodes follow as `Input::Nodes`.
    pub fn start(
        config: Config,
        durable: Durable,
        found: Vec<Found>,
        random: u64,
        now: Now,
    ) -> (Self, Outcome) {
        runs::start(config, durable, found, random, now)
    }

    /// The one door: what follows from `input` at `now`.
    pub fn apply(&mut self, now: Now, input: Input) -> Outcome {
        let mut out = Outcome::default();
        let at = self.elapsed.look(now);
        if self.elapsed.outdates_store() {
            self.store_runs(&mut out);
        }
        let news = self.events_last();
        let outstayed = self.ledger.advance(self.elapsed.calendar(at));
        match input {
            Input::Answer(answer) => self.on_answer(at, now, *answer, &mut out),
            Input::Runner(event) => self.on_runner(event, &mut out),
            Input::Provider(event) => self.on_provider(at, event, &mut out),
            Input::Nodes { nodes, pools } => {
                self.ledger.set_nodes(nodes, pools);
                self.count_stays(&mut out);
                self.look_after_nodes(&mut out);
            }
            Input::Tick => {}
        }
        if outstayed {
            self.look_after_nodes(&mut out);
        }
        self.on_time(at, now, &mut out);
        self.look_after_waiting(&mut out);
        if self.events_last() > news || self.spare_news.values().any(|carried| *carried == 0) {
            out.effects.push(Effect::SendNews);
        }
        out
    }

    /// Composes the next transmission. Its number is new, and its sending time is `now`.
    pub fn compose(&mut self, now: Now, lane: Lane) -> SyncRequest {
        let at = self.elapsed.look(now);
        self.compose_at(at, lane)
    }

    /// Whether anything is waiting to be sent.
    pub fn has_news(&self) -> bool {
        !self.events.is_empty() || self.inventory_due || self.spare_news.values().any(|carried| *carried == 0)
    }

    /// How long the next poll may be parked, as the manager said.
    pub fn poll(&self) -> Millis {
        self.poll
    }

    /// When `Tick` is next needed, by the boot-time clock; `None` when nothing is timed.
    pub fn next_deadline(&self) -> Option<Mono> {
        let holds = self.offers.values().filter_map(|o| match o.state {
            OfferState::Held { until } => Some(until),
            OfferState::Waiting => None,
        });
        let leases = self
            .runs
            .values()
            .filter(|r| r.phase != leg::Phase::Stopping)
            .filter_map(|r| r.lease.map(|l| l.stop_at()));
        let ends = self.replacing_due().map(|at| self.elapsed.moment(at));
        holds.chain(leases).chain(ends).min().map(|at| self.elapsed.boot_time(at))
    }

    /// Runs that are live here, for logs and tests: (uid, fence, running, stopping).
    pub fn runs(&self) -> impl Iterator<Item = (Uid, Fence, bool, bool)> + '_ {
        self.runs
            .iter()
            .map(|(uid, r)| (*uid, r.fence, r.phase == leg::Phase::Running, r.phase == leg::Phase::Stopping))
    }

    /// How important each run is, as it was told last.
    pub fn priorities(&self) -> impl Iterator<Item = (Uid, Fence, i64)> + '_ {
        self.runs.iter().map(|(uid, r)| (*uid, r.fence, r.priority))
    }

    /// Offers that hold room here.
    pub fn held(&self) -> impl Iterator<Item = (OfferId, Uid)> + '_ {
        self.offers
            .iter()
            .filter(|(_, o)| matches!(o.state, OfferState::Held { .. }))
            .map(|(id, o)| (*id, o.uid))
    }

    /// Nodes that the newest report of room says nothing of, because so many that are unlike don't fit one.
    pub fn untold_nodes(&self) -> u32 {
        self.capacity.untold
    }

    /// The rooms and nodes.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// This session.
    pub fn session(&self) -> Session {
        self.session
    }

    /// What is durable, as the core believes.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Recounts every derived figure and walks every cross-reference.
    pub fn check(&self) -> Result<(), String> {
        self.ledger.check()?;
        for (uid, run) in &self.runs {
            let largest =
                self.durable.fence_of(*uid).ok_or_else(|| format!("run {uid} has no durable fence"))?;
            if run.fence > largest {
                return Err(format!("run {uid} has fence {} above the durable {largest}", run.fence));
            }
            if !self.ledger.has_room(run.offer) {
                return Err(format!("run {uid} has no room for its gang"));
            }
            self.check_nodes(*uid, run)?;
        }
        self.check_waiting()?;
        self.offers.check()?;
        for (id, offer) in self.offers.iter() {
            if matches!(offer.state, OfferState::Held { .. }) {
                let pods: u32 = offer.gang.pod_sets.iter().map(|s| s.count).sum();
                let room = self.ledger.pods(*id);
                if room != pods as usize {
                    return Err(format!("hold {id} has room for {room} of {pods} pods"));
                }
            }
        }
        self.check_holds()?;
        if self.durable.tombstones.len() > TOMBSTONES_MAX + OFFERS_MAX {
            return Err("too many tombstones".into());
        }
        Ok(())
    }

    fn say(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Number of the newest event of this session.
    pub fn events_last(&self) -> u64 {
        self.events_from + self.events.len() as u64 - 1
    }
}

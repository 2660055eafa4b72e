//! The agent: its state, and its only entry point.
//!
//! Each part of the state has its own module with its operations. The handlers below this module change
//! several parts in one turn; a handler's name says which input it serves.

use crate::config::Config;
use crate::durable::{Durable, TOMBSTONES_MAX};
use crate::elapsed::Elapsed;
use crate::ledger::Ledger;
use crate::leg::Phase;
use crate::link::{CapacityReports, CommandQueue, EventQueue, Transmissions, UsageReports};
use crate::offers::{OFFERS_MAX, Offers};
use crate::runs::Runs;
use crate::runtime::{Found, PodPlacement};
use crate::turn::{Effect, Input, Outcome};
use meridian_shared::ids::{Fence, Leadership, OfferId, RecordNumber, Session, Uid};
use meridian_shared::protocol::{End, Lane, SyncRequest};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};

mod answer;
mod commands;
mod fingerprint;
mod grant;
mod hold;
mod node_loss;
mod offer;
mod provider;
mod replacement_queue;
mod restart;
mod runner;
mod scale_up;
mod stop;
mod timers;
mod transmission;

pub use node_loss::MOVES_MAX;
use replacement_queue::ReplacementQueue;

/// One agent. All decisions, no I/O.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    config: Config,
    session: Session,
    durable: Durable,
    ledger: Ledger,
    offers: Offers,
    runs: Runs,
    replacement_queue: ReplacementQueue,
    /// Kinds of jobs that the cluster can't run, each with the reason.
    unavailable_kinds: BTreeMap<String, String>,
    /// Attempts without an entry in `runs` that the runner was asked to stop, with the end to report
    /// afterwards.
    strays: BTreeMap<(Uid, Fence), End>,
    transmissions: Transmissions,
    commands: CommandQueue,
    events: EventQueue,
    capacity: CapacityReports,
    usage: UsageReports,
    /// Whether the next transmission carries an inventory.
    inventory_due: bool,
    /// The record numbers that each leadership wrote, as the manager reports them.
    ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    poll: Millis,
    /// The manager declared this ledger lost: exit after everything has stopped.
    lost: bool,
    /// No hold and no lease is due before this moment.
    due: Mono,
    /// When old tombstones were last dropped.
    purged: Wall,
    elapsed: Elapsed,
}

impl Agent {
    /// Starts a new session on the durable state and on what the runner has. `random` tells clones of the
    /// store apart. The inventory follows as [`Input::Nodes`].
    pub fn start(
        config: Config,
        durable: Durable,
        found: Vec<Found>,
        random: u64,
        now: Now,
    ) -> (Self, Outcome) {
        restart::start(config, durable, found, random, now)
    }

    /// Applies one input at `now`.
    pub fn apply(&mut self, now: Now, input: Input) -> Outcome {
        let mut out = Outcome::default();
        let at = self.elapsed.observe(now);
        if self.elapsed.outdates_store() {
            self.store_runs(&mut out);
        }
        let last_event = self.events.last();
        let toleration_ended = self.ledger.advance(self.elapsed.calendar(at));
        match input {
            Input::Answer(answer) => self.on_answer(at, now, *answer, &mut out),
            Input::Runner(event) => self.on_runner(event, &mut out),
            Input::Provider(event) => self.on_provider(at, event, &mut out),
            Input::Hold(event) => self.on_hold(at, event, &mut out),
            Input::Nodes { nodes, pools } => {
                self.ledger.set_nodes(nodes, pools);
                self.count_toleration(&mut out);
                self.replace_lost_nodes(&mut out);
            }
            Input::UnavailableKinds(kinds) => self.unavailable_kinds = kinds,
            Input::Tick => {}
        }
        if toleration_ended {
            self.replace_lost_nodes(&mut out);
        }
        self.on_time(at, now, &mut out);
        self.retry_waiting_replacements(&mut out);
        if self.events.last() > last_event || self.usage.has_unsent() {
            out.act(Effect::SendNews);
        }
        out
    }

    /// Composes the next transmission. Its number is new, and its sending time is `now`.
    pub fn compose(&mut self, now: Now, lane: Lane) -> SyncRequest {
        let at = self.elapsed.observe(now);
        self.compose_at(at, lane)
    }

    /// Whether anything waits to be sent.
    pub fn has_news(&self) -> bool {
        !self.events.is_empty() || self.inventory_due || self.usage.has_unsent()
    }

    /// Number of the last command that was done, and whether later ones wait for their turn.
    pub fn commands_done(&self) -> (u64, bool) {
        (self.commands.done(), self.commands.has_ahead())
    }

    /// How long the next poll may be parked, as the manager reported.
    pub fn poll(&self) -> Millis {
        self.poll
    }

    /// How long until the first gang must stop unless its lease is renewed; `None` if no gang depends on a
    /// lease.
    pub fn lease_left(&self, now: Now) -> Option<Millis> {
        self.runs.next_stop().map(|stop| self.elapsed.boot_time(stop).since(now.mono))
    }

    /// When `Tick` is next needed, in boot time; `None` if nothing is timed.
    pub fn next_deadline(&self) -> Option<Mono> {
        let ends = self.next_replacement_deadline().map(|at| self.elapsed.moment(at));
        let holds_and_leases = self.offers.next_expiry().into_iter().chain(self.runs.next_stop());
        holds_and_leases.chain(ends).min().map(|at| self.elapsed.boot_time(at))
    }

    /// Live runs: (uid, fence, running, stopping).
    pub fn runs(&self) -> impl Iterator<Item = (Uid, Fence, bool, bool)> + '_ {
        self.runs
            .iter()
            .map(|(uid, r)| (uid, r.record.fence, r.phase == Phase::Running, r.phase == Phase::Stopping))
    }

    /// The priority of each run.
    pub fn priorities(&self) -> impl Iterator<Item = (Uid, Fence, i64)> + '_ {
        self.runs.iter().map(|(uid, r)| (uid, r.record.fence, r.record.priority))
    }

    /// Offers that hold an allocation.
    pub fn held(&self) -> impl Iterator<Item = (OfferId, Uid)> + '_ {
        self.offers.held().map(|(id, open)| (id, open.uid))
    }

    /// Offers that are open and not held yet.
    pub fn waiting(&self) -> impl Iterator<Item = OfferId> + '_ {
        self.offers.iter().filter(|(_, open)| !open.is_held()).map(|(id, _)| id)
    }

    /// Offers and attempts with nodes that a provider made for them, and whether their gang has started.
    pub fn provided(&self) -> impl Iterator<Item = (OfferId, bool)> + '_ {
        let started: BTreeSet<OfferId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.phase != Phase::Starting)
            .map(|(_, run)| run.record.offer)
            .collect();
        self.ledger.provided_offers().into_iter().map(move |offer| (offer, started.contains(&offer)))
    }

    /// The pods of running attempts, with their nodes and accelerators.
    pub fn running_pods(&self) -> impl Iterator<Item = &PodPlacement> {
        let running = self.runs.iter().filter(|(_, run)| run.phase == Phase::Running);
        running.flat_map(|(_, run)| self.ledger.standing_pods(run.record.offer))
    }

    /// Nodes that the newest capacity report leaves out, because too many nodes differ.
    pub fn unreported_nodes(&self) -> u32 {
        self.capacity.unreported()
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn session(&self) -> Session {
        self.session
    }

    /// The durable state, as the core expects it on disk.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Number of the newest event of this session.
    pub fn events_last(&self) -> u64 {
        self.events.last()
    }

    /// Recounts every derived number and follows every reference. Fails with a description of the first
    /// difference.
    pub fn check(&self) -> Result<(), String> {
        self.ledger.check()?;
        for (uid, run) in self.runs.iter() {
            let fence = run.record.fence;
            let largest =
                self.durable.fence_of(uid).ok_or_else(|| format!("run {uid} has no durable fence"))?;
            if fence > largest {
                return Err(format!("run {uid} has fence {fence} above the durable {largest}"));
            }
            if !self.ledger.is_allocated(run.record.offer) {
                return Err(format!("run {uid} has no allocation"));
            }
            self.check_nodes(uid, run)?;
        }
        self.check_replacement_queue()?;
        self.offers.check()?;
        let allocated = |id| self.ledger.is_allocated(id);
        for (id, open) in self.offers.iter().filter(|(id, open)| open.is_held() || allocated(*id)) {
            let division = open.is_partial().then(|| self.config.managed.divide(&open.gang));
            let gang = division.as_ref().map_or(&*open.gang, |division| &division.existing);
            let pods: u32 = gang.pod_sets.iter().map(|s| s.count).sum();
            let allocated = self.ledger.pods(id);
            if allocated != pods as usize {
                return Err(format!("hold {id} has an allocation for {allocated} of {pods} pods"));
            }
        }
        self.check_holds()?;
        if self.durable.tombstones().len() > TOMBSTONES_MAX + OFFERS_MAX {
            return Err("too many tombstones".into());
        }
        Ok(())
    }
}

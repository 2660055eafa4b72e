//! One state of the whole system: managers, clusters, messages in flight, and what the checks remember.

use crate::canonical_hash::{CanonicalHasher, transmission};
use crate::host::Host;
use crate::setup;
use meridian_agent_core::VERSIONS;
use meridian_manager_core::World;
use meridian_shared::ids::{ClusterName, Fence};
use meridian_shared::protocol::{Capacity, Inventory, Receipt, SyncAnswer, SyncRequest, SyncResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Faults that may still happen. A search is exhaustive up to these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Steps of time that may pass.
    pub steps: u8,
    /// Steps at which a cluster gets no answer, counted per cluster.
    pub disconnections: u8,
    /// Transmissions that may be late, overtaken or lost. All others are exchanges that happen at one moment.
    pub lingering: u8,
    /// Messages that arrive twice.
    pub repeats: u8,
    /// Kills of an agent, at rest or in the middle of an outcome.
    pub agent_crashes: u8,
    /// Stores of agents that are deleted.
    pub lost_ledgers: u8,
    /// Kills of a manager.
    pub manager_crashes: u8,
    /// Restarts that may take the short cut.
    pub short_cuts: u8,
    /// Copies of the journal.
    pub backups: u8,
    /// Managers that are started on the copy instead of the journal.
    pub restores: u8,
    /// Confirmations of a restored journal.
    pub confirmations: u8,
    /// Managers that are started on the copy while the original runs.
    pub twins: u8,
    /// Leaders that are cut off from their disk, with a standby that takes over.
    pub takeovers: u8,
    /// Jobs that succeed.
    pub successes: u8,
    /// Deletions by the user.
    pub deletions: u8,
}

impl Budget {
    /// Every number with its name.
    fn numbers(&mut self) -> [(&'static str, &mut u8); 15] {
        let Self {
            steps,
            disconnections,
            lingering,
            repeats,
            agent_crashes,
            lost_ledgers,
            manager_crashes,
            short_cuts,
            backups,
            restores,
            confirmations,
            twins,
            takeovers,
            successes,
            deletions,
        } = self;
        [
            ("steps", steps),
            ("disconnections", disconnections),
            ("lingering", lingering),
            ("repeats", repeats),
            ("agent_crashes", agent_crashes),
            ("lost_ledgers", lost_ledgers),
            ("manager_crashes", manager_crashes),
            ("short_cuts", short_cuts),
            ("backups", backups),
            ("restores", restores),
            ("confirmations", confirmations),
            ("twins", twins),
            ("takeovers", takeovers),
            ("successes", successes),
            ("deletions", deletions),
        ]
    }

    /// Changes a number by its name; false if no number has this name.
    pub fn set(&mut self, name: &str, to: u8) -> bool {
        let mut numbers = self.numbers();
        let number = numbers.iter_mut().find(|(n, _)| *n == name);
        number.map(|(_, number)| **number = to).is_some()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let allowed =
            copy.numbers().into_iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name}={n}"));
        f.write_str(&allowed.collect::<Vec<_>>().join(" "))
    }
}

/// The condition of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The manager leads and can write.
    Leads,
    /// The manager is down since this step.
    Down(u64),
    /// The manager leads, but can't write: its disk is gone.
    CutOff,
    /// A write failed: it never answers again.
    Gone,
}

/// One manager. Every input is committed before the next step, so the manager's world is the committed one.
#[derive(Clone, Debug)]
pub struct Manager {
    /// The world, or what the journal says while the manager is down.
    pub world: Arc<World>,
    pub role: Role,
    /// The manager's journal is a copy.
    pub restored: bool,
    /// The step at which it began to lead.
    pub led: u64,
    /// The step of the last answer with each lease that isn't over, in this leadership.
    pub composed: BTreeMap<Fence, u64>,
}

impl Manager {
    /// Whether a term and its drift bound have passed since this manager began to lead, and since its last
    /// answer with this lease.
    pub fn lapsed(&self, fence: Fence, now: u64) -> bool {
        setup::lapsed(now - self.composed.get(&fence).map_or(self.led, |at| self.led.max(*at)))
    }
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct Request {
    pub body: Arc<SyncRequest>,
}

/// An answer in flight.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The transmission that it answers.
    pub transmission: u64,
    pub body: Arc<SyncAnswer>,
}

/// What the checks remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observed {
    /// Attempts that a manager recorded as over.
    pub freed: BTreeSet<Fence>,
    /// The largest fence that ever began to run.
    pub newest: Option<Fence>,
    /// The attempt in which the job succeeded, until a manager that can't know of the success records the
    /// attempt as lapsed.
    pub done: Option<Fence>,
    /// The promise that a transition broke.
    pub broken: Option<&'static str>,
}

/// The whole system.
#[derive(Clone)]
pub struct State {
    /// Steps of time so far.
    pub now: u64,
    /// The manager, and the one that took over or was started as its twin.
    pub managers: Vec<Manager>,
    pub hosts: Vec<Arc<Host>>,
    /// Requests in flight, per cluster.
    pub requests: Vec<Vec<Request>>,
    /// Answers in flight, per cluster.
    pub answers: Vec<Vec<Answer>>,
    /// The copy of the journal.
    pub backup: Option<Arc<World>>,
    /// Number of leaderships so far, from which their ids are made.
    pub leaderships: u64,
    /// The job was submitted.
    pub submitted: bool,
    /// Faults that may still happen.
    pub budget: Budget,
    /// What the checks remember.
    pub observed: Observed,
    hash: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.now)?;
        for manager in &self.managers {
            let phases: Vec<_> =
                manager.world.state().workloads().values().map(|w| (w.phase(), w.fence())).collect();
            let (leadership, recovery) =
                (manager.world.state().leadership(), manager.world.state().recovery().is_some());
            write!(f, " | {:?} {leadership} recovering {recovery} {phases:?}", manager.role)?;
        }
        for host in &self.hosts {
            let live: Vec<_> =
                host.runner.live().map(|(_, fence, gang)| (fence, gang.stopping, gang.deadline)).collect();
            write!(f, " | follows {:?} runs {live:?}", host.durable().follows())?;
        }
        write!(f, " | {:?}", self.observed)
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, into: &mut H) {
        into.write_u64(self.hash);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl State {
    /// The first state: a manager with its objects, and agents that have just started.
    pub fn new(world: World, hosts: Vec<Host>) -> Self {
        let flying = vec![Vec::new(); hosts.len()];
        let mut state = Self {
            now: 0,
            managers: vec![Manager {
                world: Arc::new(world),
                role: Role::Leads,
                restored: false,
                led: 0,
                composed: BTreeMap::new(),
            }],
            requests: flying,
            answers: vec![Vec::new(); hosts.len()],
            hosts: hosts.into_iter().map(Arc::new).collect(),
            backup: None,
            leaderships: 0,
            submitted: false,
            budget: Budget::default(),
            observed: Observed::default(),
            hash: 0,
        };
        state.seal();
        state
    }

    /// Computes the canonical hash; the last thing that a transition does.
    pub fn seal(&mut self) {
        self.hash = CanonicalHasher::of(|into| self.feed(into));
    }

    fn feed(&self, into: &mut CanonicalHasher) {
        (self.now, self.leaderships, self.submitted, self.budget, &self.observed).hash(into);
        let number = |name: &ClusterName, n: u64| transmission(setup::index(name), n);
        let now = setup::manager_now(self.now).mono;
        for manager in &self.managers {
            (manager.role, manager.restored).hash(into);
            for (fence, at) in &manager.composed {
                (fence, self.now - at).hash(into);
            }
            manager.world.hash_fingerprint(now, &number, into);
        }
        self.backup.is_some().hash(into);
        if let Some(world) = &self.backup {
            world.hash_fingerprint(now, &number, into);
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let session = host.agent().session();
            let asked = self.requests[index]
                .iter()
                .filter(|r| r.body.session == session)
                .map(|r| r.body.transmission);
            let flying: BTreeSet<u64> =
                asked.chain(self.answers[index].iter().map(|a| a.transmission)).collect();
            host.hash(setup::host_now(index, self.now), &flying, into);
            into.unordered(self.requests[index].iter(), |r, into| feed_request(&r.body, index, into));
            into.unordered(self.answers[index].iter(), |a, into| feed_answer(a, index, into));
        }
    }
}

/// A world without the part that a restart forgets.
pub fn durable_part(world: &World) -> Arc<World> {
    let mut world = world.clone();
    world.forget_volatile();
    Arc::new(world)
}

fn feed_request(request: &SyncRequest, host: usize, into: &mut CanonicalHasher) {
    let SyncRequest {
        version: _,
        ledger,
        session,
        transmission: sent,
        lane,
        follows,
        answered,
        commands_through,
        events,
        events_from,
        events_last,
        digest,
        inventory,
        capacity,
        spare,
        supports_scale_down: _,
        supports_scale_up: _,
        supports_priority: _,
    } = request;
    (ledger, session, transmission(host, *sent), transmission(host, *answered), lane, follows).hash(into);
    (commands_through, events, events_from, events_last, digest, spare).hash(into);
    feed_capacity(capacity.as_ref(), host, into);
    inventory.is_some().hash(into);
    if let Some(Inventory { for_leadership, runs, offers, ends, more, receipts }) = inventory {
        more.hash(into);
        (for_leadership, runs, offers, ends).hash(into);
        for (receipt, members) in receipts {
            feed_receipt(receipt, members, into);
        }
    }
}

fn feed_capacity(capacity: Option<&Capacity>, host: usize, into: &mut CanonicalHasher) {
    capacity.is_some().hash(into);
    if let Some(Capacity {
        version,
        after_command,
        base,
        blocks,
        provisionable: _,
        managed: _,
        runner: _,
        guarded: _,
        located: _,
        holds: _,
    }) = capacity
    {
        (
            transmission(host, VERSIONS + version),
            after_command,
            base.map(|b| transmission(host, VERSIONS + b)),
            blocks,
        )
            .hash(into);
    }
}

fn feed_receipt(receipt: &Receipt, members: &[ClusterName], into: &mut CanonicalHasher) {
    let Receipt { journal, leadership, record, rules, audit_head: _, mac: _ } = receipt;
    (journal, leadership, record, rules, members).hash(into);
}

fn feed_answer(answer: &Answer, host: usize, into: &mut CanonicalHasher) {
    transmission(host, answer.transmission).hash(into);
    match &*answer.body {
        SyncAnswer::Refused(refusal) => refusal.hash(into),
        SyncAnswer::Ok(response) => {
            let SyncResponse {
                version: _,
                leadership,
                session,
                transmission: _,
                receipt,
                members,
                events_through,
                ends_acknowledged,
                commands,
                commands_from,
                renewals,
                want_inventory,
                capacity_acknowledged,
                ranges,
                poll: _,
            } = &**response;
            (leadership, session, events_through, ends_acknowledged, commands, commands_from).hash(into);
            (renewals, want_inventory, transmission(host, VERSIONS + capacity_acknowledged), ranges)
                .hash(into);
            feed_receipt(receipt, members, into);
        }
    }
}

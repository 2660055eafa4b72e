//! Volatile state per connected agent. A new leadership gets it from the agents' reports.

pub mod budget;
pub mod failed_starts;
pub mod features;
pub mod inventory_state;
pub mod outbox;
pub(crate) mod provider_failures;
pub(crate) mod refusals;
pub mod sent_answers;

use crate::fingerprint::{hash_age, hash_deadline};
use budget::Budget;
use failed_starts::ClusterStarts;
use features::Features;
use inventory_state::InventoryState;
use meridian_placement::cluster_capacity::ClusterCapacity;
use meridian_shared::ids::Session;
use meridian_shared::lease::disconnect_after;
use meridian_shared::protocol::VERSION;
use meridian_shared::time::{Millis, Mono};
use outbox::Outbox;
use sent_answers::SentAnswers;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// One agent session with this leadership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveCluster {
    session: Session,
    /// Protocol version of the agent.
    version: u32,
    /// Time of the last contact.
    heard: Mono,
    answers: SentAnswers,
    /// Number of the newest event taken from the agent.
    events_through: u64,
    inventory: InventoryState,
    /// When leases are next checked for renewal.
    renew_at: Mono,
    outbox: Outbox,
    /// Budget for journal writes that the agent could otherwise cause without end.
    budget: Budget,
    capacity: ClusterCapacity,
    starts: ClusterStarts,
    /// The region that the agent detected, if it can detect one.
    located: Option<Arc<str>>,
    features: Features,
}

/// The session itself.
impl LiveCluster {
    /// A session that is opened at `now`, in place of `before`. Keeps only facts about the cluster, not about
    /// the session.
    pub fn opened(session: Session, now: Mono, before: Option<&Self>) -> Self {
        Self {
            session,
            version: VERSION,
            heard: now,
            answers: SentAnswers::none(now),
            events_through: 0,
            inventory: InventoryState::unknown(now),
            renew_at: now,
            outbox: Outbox::default(),
            budget: before.map_or_else(Budget::default, |before| before.budget),
            capacity: ClusterCapacity::default(),
            starts: before.map_or_else(ClusterStarts::default, |before| before.starts),
            located: None,
            features: Features::default(),
        }
    }

    pub fn session(&self) -> Session {
        self.session
    }

    /// Protocol version of the agent.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    /// Time of the last contact.
    pub fn heard(&self) -> Mono {
        self.heard
    }

    /// Notes that the agent sent a request.
    pub(crate) fn hear(&mut self, now: Mono) {
        self.heard = now;
    }

    /// Counts the agent as silent since `at`, unless its last contact was earlier.
    pub(crate) fn silence_since(&mut self, at: Mono) {
        self.heard = self.heard.min(at);
    }

    /// Number of the newest event taken from the agent.
    pub fn events_through(&self) -> u64 {
        self.events_through
    }

    /// All events up to `through` are taken, now or before. The number never moves back.
    pub(crate) fn take_events_through(&mut self, through: u64) {
        self.events_through = self.events_through.max(through);
    }

    /// Whether leases are to be checked for renewal.
    pub(crate) fn is_renewal_due(&self, now: Mono) -> bool {
        now >= self.renew_at
    }

    /// Sets when leases are next checked for renewal.
    pub(crate) fn check_renewals_at(&mut self, at: Mono) {
        self.renew_at = at;
    }

    /// The region that the agent detected, if it can detect one.
    pub(crate) fn located(&self) -> Option<&str> {
        self.located.as_deref()
    }

    /// Takes the region that the agent detected. Returns whether it is another one than before.
    pub(crate) fn locate(&mut self, region: Option<&Arc<str>>) -> bool {
        let changed = self.located.as_ref() != region;
        self.located = region.cloned();
        changed
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    pub fn set_features(&mut self, features: Features) {
        self.features = features;
    }
}

/// The parts of a session.
impl LiveCluster {
    pub fn answers(&self) -> &SentAnswers {
        &self.answers
    }

    pub(crate) fn answers_mut(&mut self) -> &mut SentAnswers {
        &mut self.answers
    }

    pub fn inventory(&self) -> &InventoryState {
        &self.inventory
    }

    pub(crate) fn inventory_mut(&mut self) -> &mut InventoryState {
        &mut self.inventory
    }

    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(crate) fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    pub(crate) fn budget_mut(&mut self) -> &mut Budget {
        &mut self.budget
    }

    pub fn capacity(&self) -> &ClusterCapacity {
        &self.capacity
    }

    pub fn capacity_mut(&mut self) -> &mut ClusterCapacity {
        &mut self.capacity
    }

    pub fn starts(&self) -> &ClusterStarts {
        &self.starts
    }

    pub(crate) fn starts_mut(&mut self) -> &mut ClusterStarts {
        &mut self.starts
    }
}

/// The fingerprint, for a model checker.
impl LiveCluster {
    /// Hashes what later behaviour depends on. Only the order of transmission numbers matters, so `number`
    /// may map them to smaller ones.
    pub(crate) fn hash_fingerprint(
        &self,
        now: Mono,
        age_limit: Millis,
        number: &dyn Fn(u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self {
            session,
            version: _,
            heard,
            answers,
            events_through,
            inventory,
            renew_at,
            outbox,
            budget,
            capacity,
            starts,
            located,
            features,
        } = self;
        (session, events_through).hash(into);
        inventory.hash_fingerprint(now, into);
        hash_age(now, *heard, disconnect_after(age_limit), into);
        answers.hash_fingerprint(now, disconnect_after(age_limit), number, into);
        hash_deadline(now, *renew_at, into);
        starts.hash_fingerprint(now, into);
        outbox.hash_fingerprint(now, into);
        budget.spent(now).hash(into);
        (located, features).hash(into);
        capacity.hash_fingerprint(number, into);
    }
}

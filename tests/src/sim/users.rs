//! Users and operators: the objects of the fleet, jobs, and changes of rules at any moment.
//!
//! Every request is repeated until it is answered, and what was acknowledged must be remembered (P1).

mod actions;
pub(crate) mod activity;
mod activity_changes;
mod durability;
mod operators;
mod priorities;
pub(crate) mod request;
mod requests;
mod resize_changes;
pub(crate) mod resizes;

use crate::sim::fleet::queues::DeclaredQueues;
use crate::sim::invariants::Invariants;
use activity::ActivityRequests;
use meridian_manager_core::World;
use meridian_manager_core::facts::input::Operator;
use meridian_manager_core::facts::key::Key;
use meridian_shared::ids::Uid;
use request::{OpenRequest, RequestBody};
use resizes::ResizeRequests;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Requests of all users, and their acknowledged results.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// Requests that wait for an answer.
    requests: BTreeMap<u64, OpenRequest>,
    last_request: u64,
    last_job: u64,
    /// The content of each object by the newest acknowledged request; `None` while it is uncertain.
    objects: BTreeMap<Key, Option<Value>>,
    /// Objects with a request that was sent twice, and may arrive again at any time.
    repeated: BTreeSet<Key>,
    /// The newest request about each object.
    newest: BTreeMap<Key, u64>,
    pub(crate) activity: ActivityRequests,
    pub(crate) resizes: ResizeRequests,
    /// Clusters that operators cordoned.
    cordoned: Vec<usize>,
    /// Whether the additional residency policy is there.
    tightened: bool,
    /// Whether a quota is lowered.
    lowered: bool,
    /// Queues and cohorts as they should be.
    declared: DeclaredQueues,
    /// The manager's journal is new: an operator has to apply the objects of the fleet.
    pub(crate) needs_fleet: bool,
}

impl Users {
    pub(crate) fn new(declared: DeclaredQueues) -> Self {
        Self { declared, ..Self::default() }
    }

    /// An older copy of the journal is in use: what was acknowledged since is forgotten. The submission of a
    /// job that ran isn't repeated: to the copy it would be another job of the same name, next to an orphan.
    pub(crate) fn history_lost(&mut self, world: &World, invariants: &Invariants) {
        let is_orphan =
            |uid: &Uid| invariants.attempts.was_granted(*uid) && !world.state().workloads().contains_key(uid);
        self.requests
            .retain(|_, request| !matches!(&request.body, RequestBody::Submit { uid, .. } if is_orphan(uid)));
        self.objects.clear();
        self.activity.history_lost();
        self.resizes.history_lost();
    }

    /// Whether a request waits for an answer.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.requests.contains_key(&id)
    }

    /// Requests that wait for an answer, as text for messages.
    pub(crate) fn open_requests(&self) -> Vec<String> {
        self.requests.iter().map(|(id, request)| format!("{id}: {}", request.body)).collect()
    }

    /// Whether a request that satisfies `is_it` waits for an answer.
    fn has_open(&self, is_it: impl Fn(&RequestBody) -> bool) -> bool {
        self.requests.values().any(|request| is_it(&request.body))
    }

    /// Whether this action of an operator waits for an answer.
    fn is_under_way(&self, action: &Operator) -> bool {
        self.has_open(|body| matches!(body, RequestBody::Operate(other) if other == action))
    }
}

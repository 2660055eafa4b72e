//! Requests of users and operators, the answers that they wait for, and what was acknowledged.

pub(crate) mod activity;
pub(crate) mod request;
pub(crate) mod resizes;

use crate::sim::fleet::objects::{key_of, object};
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
pub(crate) struct UserRequests {
    /// Requests that wait for an answer.
    requests: BTreeMap<u64, OpenRequest>,
    last_request: u64,
    last_job: u64,
    /// The content of each object by the newest acknowledged request; `None` while it is uncertain.
    pub(crate) objects: BTreeMap<Key, Option<Value>>,
    /// Objects with a request that was sent twice, and may arrive again at any time.
    repeated: BTreeSet<Key>,
    /// The newest request about each object.
    newest: BTreeMap<Key, u64>,
    pub(crate) activity: ActivityRequests,
    pub(crate) resizes: ResizeRequests,
    /// Clusters that operators cordoned.
    pub(crate) cordoned: Vec<usize>,
    /// Whether the additional residency policy is there.
    pub(crate) tightened: bool,
    /// Whether a quota is lowered.
    pub(crate) lowered: bool,
    /// Queues and cohorts as they should be.
    pub(crate) declared: DeclaredQueues,
    /// The manager's journal is new: an operator has to apply the objects of the fleet.
    pub(crate) needs_fleet: bool,
}

impl UserRequests {
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
    pub(crate) fn has_open(&self, is_it: impl Fn(&RequestBody) -> bool) -> bool {
        self.requests.values().any(|request| is_it(&request.body))
    }

    /// Whether this action of an operator waits for an answer.
    pub(crate) fn is_under_way(&self, action: &Operator) -> bool {
        self.has_open(|body| matches!(body, RequestBody::Operate(other) if other == action))
    }

    /// Notes a new request; returns its number.
    pub(crate) fn open_request(&mut self, body: RequestBody) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        for key in body.keys() {
            self.newest.insert(key.clone(), id);
            self.objects.insert(key, None);
        }
        match &body {
            RequestBody::SetActive { uid, active, .. } => self.activity.requested(*uid, id, *active),
            RequestBody::Resize { uid, .. } => self.resizes.requested(*uid, id),
            _ => {}
        }
        self.requests.insert(id, OpenRequest { body, tries: 0 });
        id
    }

    /// Notes one more try of a request that isn't answered yet.
    pub(crate) fn count_try(&mut self, id: u64) -> Option<RequestBody> {
        let request = self.requests.get_mut(&id)?;
        request.tries += 1;
        let body = request.body.clone();
        if request.tries > 1 {
            self.repeated.extend(body.keys());
            match &body {
                RequestBody::SetActive { uid, .. } => self.activity.repeated(*uid),
                RequestBody::Resize { uid, .. } => self.resizes.repeated(*uid),
                _ => {}
            }
        }
        Some(body)
    }

    /// Objects were applied. Their content is certain unless another request about them is under way, or one
    /// that was sent twice may arrive again.
    pub(crate) fn applied(&mut self, id: u64, manifests: &[Value]) {
        for manifest in manifests {
            let key = key_of(manifest);
            let uncertain = self.repeated.contains(&key)
                || self.newest.get(&key) != Some(&id)
                || self.has_open(|body| body.keys().contains(&key));
            let content = (!uncertain).then(|| object(manifest).stored);
            self.objects.insert(key, content);
        }
    }

    /// Ends a request that was answered; `None` if it ended before.
    pub(crate) fn close(&mut self, id: u64) -> Option<OpenRequest> {
        self.requests.remove(&id)
    }

    /// Number of the next job.
    pub(crate) fn next_job(&mut self) -> u64 {
        self.last_job += 1;
        self.last_job
    }
}

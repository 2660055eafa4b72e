//! Requests are sent to any manager, repeated until they are answered, and their answers are noted.

use crate::sim::context::event::SimEvent;
use crate::sim::fleet::objects::object;
use crate::sim::requests::request::{OpenRequest, RequestBody};
use crate::sim::world::Simulation;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, Operator, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, Reply, WriteResult};
use meridian_objects::Kind;
use meridian_shared::ids::Uid;
use serde_json::Value;

/// How long a request waits for its answer before it is repeated.
const ANSWER_MS_MAX: u64 = 3_000;

impl Simulation {
    /// Makes a request.
    pub(crate) fn request(&mut self, body: RequestBody) {
        let id = self.users.open_request(body);
        self.send_request(id);
    }

    /// Sends or repeats a request.
    pub(crate) fn send_request(&mut self, id: u64) {
        let Some(body) = self.users.count_try(id) else { return };
        self.cx.log(|| format!("users: request {id}: {body}"));
        let input = self.input_of(body);
        let at = self.cx.now + self.cx.random.users.between(1, 5);
        let manager = self.cx.random.users.index(self.managers.len());
        self.cx.schedule(at, SimEvent::UserRequestArrives { manager, id, input: Box::new(input) });
        self.cx.schedule(self.cx.now + ANSWER_MS_MAX, SimEvent::UserRequestTimeout { id });
    }

    fn input_of(&mut self, body: RequestBody) -> Input {
        let write = |actor, changes| Input::Write(Box::new(Write::new(Actor::user(actor), changes, false)));
        let put = |manifest: &Value, uid, mode| {
            vec![Change::Put { object: object(manifest), scope: None, uid, mode }]
        };
        match body {
            RequestBody::Apply(manifests) => {
                let random = &mut self.cx.random.users;
                let mut apply = |m: &Value| put(m, Uid(random.wide()), PutMode::Apply);
                write("operator", manifests.iter().flat_map(&mut apply).collect())
            }
            RequestBody::Remove(key) => {
                write("operator", vec![Change::Delete { key, uid: None, force: true }])
            }
            RequestBody::Submit { uid, manifest } => write("submitter", put(&manifest, uid, PutMode::Create)),
            RequestBody::Delete { uid, namespace, name } => {
                let key = Key::namespaced(Kind::Job, &namespace, &name);
                write("submitter", vec![Change::Delete { key, uid: Some(uid), force: true }])
            }
            RequestBody::SetActive { namespace, name, active, .. } => {
                let key = Key::namespaced(Kind::Job, &namespace, &name);
                write("submitter", vec![Change::SetActive { key, active, version: None }])
            }
            RequestBody::Resize { uid, manifest, .. } => {
                write("submitter", put(&manifest, uid, PutMode::Replace(None)))
            }
            RequestBody::Operate(action) => Input::Operator { actor: Actor::user("operator"), action },
        }
    }

    /// An answer arrives. If the history that it belongs to is lost, the request is repeated.
    pub(crate) fn user_reply_arrives(&mut self, id: u64, history: u32, reply: &Reply) {
        if history != self.faults.history {
            return;
        }
        let Some(request) = self.users.close(id) else { return };
        self.cx.log(|| format!("users: answer to request {id}: {}", describe_reply(reply)));
        let OpenRequest { body, tries } = &request;
        match (body, reply) {
            (RequestBody::Submit { .. }, Reply::Written(written)) => {
                let accepted = |result| matches!(result, WriteResult::Created | WriteResult::Unchanged);
                for w in written.iter().filter(|w| accepted(w.result)) {
                    self.cx.counters.one("submissions");
                    self.invariants.submissions.acknowledge(w.uid);
                }
            }
            // A repetition finds the job of an earlier try. That is success: the job must be remembered from
            // now on.
            (RequestBody::Submit { uid, .. }, Reply::Rejected(why))
                if *tries > 1 && all_are(why, RejectionReason::AlreadyExists) =>
            {
                self.invariants.submissions.acknowledge(*uid);
            }
            (RequestBody::Submit { .. }, Reply::Rejected(_)) => {
                self.cx.counters.one("submissions rejected");
            }
            (RequestBody::Delete { uid, .. }, Reply::Written(_)) => {
                self.cx.counters.one("deletions");
                self.invariants.submissions.acknowledge_deletion(*uid);
            }
            (RequestBody::SetActive { uid, .. }, Reply::Written(_)) => self.activity_acknowledged(*uid, id),
            (RequestBody::Resize { uid, pods, .. }, Reply::Written(_)) => {
                self.cx.counters.one("sizes taken");
                self.resize_acknowledged(*uid, id, *pods);
            }
            (RequestBody::Resize { .. }, Reply::Rejected(_)) => self.cx.counters.one("sizes rejected"),
            (RequestBody::Apply(manifests), Reply::Written(_)) => self.users.applied(id, manifests),
            (RequestBody::Operate(Operator::ConfirmRecovery), Reply::Done(message))
                if message.contains("waiting for the inventory") =>
            {
                self.cx.counters.one("confirmations with a cluster awaited");
            }
            _ => {}
        }
    }
}

fn all_are(why: &[Rejection], reason: RejectionReason) -> bool {
    why.iter().all(|rejection| rejection.reason == reason)
}

fn describe_reply(reply: &Reply) -> String {
    match reply {
        Reply::Written(written) => {
            written.iter().map(|w| format!("{:?}", w.result)).collect::<Vec<_>>().join(" ")
        }
        Reply::Rejected(why) => {
            let messages: Vec<&str> = why.iter().map(|rejection| &*rejection.message).collect();
            format!("rejected: {}", messages.join("; "))
        }
        Reply::Done(message) => message.clone(),
        other => format!("{other:?}"),
    }
}

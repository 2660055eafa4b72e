//! Read-only questions: the explanation of a job's state, and the state of recovery. They are answered after
//! the commit of the batch in which they arrived.

use super::turns::Engine;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_views::asker::Asker;
use serde_json::Value;
use tokio::sync::oneshot;

/// A question, with the caller that waits for its answer.
#[derive(Debug)]
pub(super) enum Query {
    Explain(String, String, Asker, oneshot::Sender<Option<Value>>),
    Recovery(Asker, oneshot::Sender<Value>),
}

/// The answer to a [`Query`].
#[derive(Debug)]
pub(super) enum QueryAnswer {
    Explain(oneshot::Sender<Option<Value>>, Option<Value>),
    Recovery(oneshot::Sender<Value>, Value),
}

impl QueryAnswer {
    pub(super) fn send(self) {
        // a caller that has gone away needs no answer
        match self {
            Self::Explain(caller, value) => drop(caller.send(value)),
            Self::Recovery(caller, value) => drop(caller.send(value)),
        }
    }
}

impl Engine {
    pub(super) fn answer_queries(&mut self, queries: Vec<Query>) -> Vec<QueryAnswer> {
        let now = self.read_clock();
        let answer = |query| match query {
            Query::Explain(namespace, name, asker, reply) => {
                // The name of a job may equal the name of another job's workload.
                let world = self.host.world();
                let workload = world.workload_at(&Key::namespaced(Kind::Workload, &namespace, &name));
                let uid = workload.map(|(uid, _)| uid).or_else(|| world.uid_by_name(&namespace, &name));
                QueryAnswer::Explain(
                    reply,
                    uid.and_then(|uid| meridian_views::explain::explain(self.host.world(), uid, now, &asker)),
                )
            }
            Query::Recovery(asker, reply) => {
                let state = meridian_views::recovery::recovery(self.host.world(), now, &asker);
                QueryAnswer::Recovery(reply, state)
            }
        };
        queries.into_iter().map(answer).collect()
    }
}

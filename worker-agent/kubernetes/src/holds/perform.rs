//! Reads the objects that offers name, and creates and deletes the objects that hold their capacity.

use super::lookups::{Finding, Need};
use crate::error::{Failure, classify, words};
use crate::hub;
use crate::labels;
use crate::objects::{self, Answer};
use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use meridian_kubernetes::connection::ANSWER_WITHIN;
use serde_json::Value;

/// HTTP status of a request that the account has no right to.
const FORBIDDEN: u16 = 403;
/// Requests that one offer has open at the same time.
const AT_ONCE: usize = 16;

/// Performs requests at one API server.
#[derive(Clone)]
pub(super) struct Performer {
    client: Client,
}

impl Performer {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Looks for an object. Only its metadata is asked for, so that no Secret's values arrive here. A copy
    /// counts as missing, because it belongs to other workloads.
    pub(super) async fn find(&self, need: &Need) -> Finding {
        let (group, kind, plural) = need.resource();
        let resource = hub::resource(group, "v1", kind, plural);
        let api: Api<DynamicObject> = match need.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        match tokio::time::timeout(ANSWER_WITHIN, api.get_metadata(need.name())).await {
            Ok(Ok(object)) if labels::is_copy(&object.metadata) => Finding::Missing,
            Ok(Ok(_)) => Finding::Present,
            Ok(Err(kube::Error::Api(status))) if status.code == FORBIDDEN => {
                Finding::Forbidden(words(&kube::Error::Api(status)))
            }
            Ok(Err(error)) => match classify(&error) {
                Failure::Absent => Finding::Missing,
                _ => Finding::Unknown(words(&error)),
            },
            Err(_) => {
                let seconds = ANSWER_WITHIN.as_secs();
                Finding::Unknown(format!("the API server gave no answer within {seconds} s"))
            }
        }
    }

    /// Creates all objects. What exists already was made by an earlier try.
    pub(super) async fn create(
        &self,
        resource: &ApiResource,
        namespace: &str,
        manifests: Vec<Value>,
    ) -> Answer {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, resource);
        let one = async |manifest: Value| objects::in_time(objects::create(&api, &manifest)).await;
        worst(futures::stream::iter(manifests).map(one).buffer_unordered(AT_ONCE).collect().await)
    }

    /// Deletes all objects. Absent ones count as deleted.
    pub(super) async fn delete(&self, resource: &ApiResource, namespace: &str, names: Vec<String>) -> Answer {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, resource);
        let one = async |name: String| objects::in_time(objects::delete(&api, &name)).await;
        worst(futures::stream::iter(names).map(one).buffer_unordered(AT_ONCE).collect().await)
    }
}

/// A refusal is worse than a missing answer, because a repetition doesn't help.
fn worst(answers: Vec<Answer>) -> Answer {
    let refused = answers.iter().find(|answer| matches!(answer, Answer::Refused(_)));
    let other = answers.iter().find(|answer| **answer != Answer::Done);
    refused.or(other).cloned().unwrap_or(Answer::Done)
}

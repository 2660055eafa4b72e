//! Creates and deletes the objects other than jobs that an agent makes for an offer.

use crate::error::{Failure, classify, words};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use meridian_kubernetes::connection::ANSWER_WITHIN;
use serde_json::Value;

/// Names the agent as the writer of fields.
const MANAGER: &str = "meridian-agent";

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The API server refused, and would refuse again.
    Refused(String),
    /// The request may have been carried out or not, so it is repeated.
    Unknown(String),
}

/// Limits the time of a request: a missing answer counts as [`Answer::Unknown`].
pub(crate) async fn in_time(action: impl Future<Output = Answer>) -> Answer {
    match tokio::time::timeout(ANSWER_WITHIN, action).await {
        Ok(answer) => answer,
        Err(_) => {
            Answer::Unknown(format!("the API server gave no answer within {} s", ANSWER_WITHIN.as_secs()))
        }
    }
}

/// Creates an object. One that exists already was made by an earlier attempt, and counts as created.
pub(crate) async fn create(api: &Api<DynamicObject>, manifest: &Value) -> Answer {
    let object: DynamicObject = match serde_json::from_value(manifest.clone()) {
        Ok(object) => object,
        Err(error) => return Answer::Refused(error.to_string()),
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &object).await {
        Ok(_) => Answer::Done,
        Err(error) => match classify(&error) {
            Failure::Exists => Answer::Done,
            // The namespace is missing.
            Failure::Refused | Failure::Absent => Answer::Refused(words(&error)),
            Failure::Unknown | Failure::Conflict => Answer::Unknown(words(&error)),
        },
    }
}

/// Deletes an object with its own grace. One that is absent counts as deleted.
pub(crate) async fn delete(api: &Api<DynamicObject>, name: &str) -> Answer {
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Answer::Done,
        Err(error) => match classify(&error) {
            Failure::Absent => Answer::Done,
            Failure::Refused => Answer::Refused(words(&error)),
            Failure::Unknown | Failure::Exists | Failure::Conflict => Answer::Unknown(words(&error)),
        },
    }
}

//! A job's state, cluster and end.

use super::fields::text;
use meridian_objects::job::of_object;
pub(crate) use meridian_objects::job::state;
use serde_json::Value;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Succeeded,
    /// Reason and message of its `Failed` condition.
    Failed(String),
}

/// `None` while the job hasn't ended.
pub(crate) fn end(job: &Value) -> Option<JobEnd> {
    let kind = of_object(job);
    if kind.has_succeeded(job) {
        return Some(JobEnd::Succeeded);
    }
    let parts: Vec<&str> = kind.failure(job)?.into_iter().filter(|part| !part.is_empty()).collect();
    Some(JobEnd::Failed(parts.join(": ")))
}

/// The cluster that runs or ran the job; empty if none did.
pub(crate) fn cluster(job: &Value) -> &str {
    text(job, "/status/meridian/cluster")
}

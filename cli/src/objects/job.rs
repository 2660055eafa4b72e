//! A job's queue, cluster, pods and end.

use super::fields::{condition_status, find_condition, text};
use meridian_objects::job::QUEUE_LABEL;
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
    if condition_status(job, "Complete") == "True" {
        return Some(JobEnd::Succeeded);
    }
    let failed = find_condition(job, "Failed").filter(|failed| text(failed, "/status") == "True")?;
    let parts = [text(failed, "/reason"), text(failed, "/message")];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(JobEnd::Failed(parts.join(": ")))
}

/// The cluster that runs or ran the job; empty if none did.
pub(crate) fn cluster(job: &Value) -> &str {
    text(job, "/status/meridian/cluster")
}

pub(crate) fn local_queue(job: &Value) -> &str {
    job.pointer("/metadata/labels")
        .and_then(|labels| labels.get(QUEUE_LABEL))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `2/3`: running pods of the gang, or succeeded ones once none runs.
pub(crate) fn pods(job: &Value) -> String {
    let number = |pointer| job.pointer(pointer).and_then(Value::as_u64);
    let parallelism = number("/spec/parallelism").unwrap_or(1);
    let gang = number("/spec/completions").map_or(parallelism, |completions| completions.min(parallelism));
    let active = number("/status/active").unwrap_or(0);
    let succeeded = number("/status/succeeded").unwrap_or(0);
    if active > 0 { format!("{active}/{gang}") } else { format!("{succeeded}/{}", gang.max(succeeded)) }
}

/// Why the job failed, or why it is pending.
pub(crate) fn reason(job: &Value) -> String {
    match end(job) {
        Some(JobEnd::Failed(why)) => why,
        Some(JobEnd::Succeeded) => String::new(),
        None => text(job, "/status/meridian/waits").to_owned(),
    }
}

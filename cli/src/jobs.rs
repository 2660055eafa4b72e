//! What a Job object says about its end, its place and its pods, for tables and for waiting.

use crate::columns::{condition, find_condition, text};
use meridian_objects::job::QUEUE_LABEL;
pub(crate) use meridian_objects::job::state;
use serde_json::Value;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It did what it should.
    Succeeded,
    /// It did not; the reason and the message.
    Failed(String),
}

/// How the job ended, if it did.
pub(crate) fn end(job: &Value) -> Option<End> {
    if condition(job, "Complete") == "True" {
        return Some(End::Succeeded);
    }
    let failed = find_condition(job, "Failed").filter(|failed| text(failed, "/status") == "True")?;
    let words = [text(failed, "/reason"), text(failed, "/message")];
    Some(End::Failed(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ")))
}

/// The cluster, where one is known.
pub(crate) fn cluster(job: &Value) -> &str {
    text(job, "/status/meridian/cluster")
}

/// The local queue.
pub(crate) fn queue(job: &Value) -> &str {
    job.pointer("/metadata/labels")
        .and_then(|labels| labels.get(QUEUE_LABEL))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Pods that run, or have succeeded once none runs, of those that start together.
pub(crate) fn pods(job: &Value) -> String {
    let written = |pointer| job.pointer(pointer).and_then(Value::as_u64);
    let parallelism = written("/spec/parallelism").unwrap_or(1);
    let gang = written("/spec/completions").map_or(parallelism, |completions| completions.min(parallelism));
    let active = count(job, "/status/active");
    let succeeded = count(job, "/status/succeeded");
    if active > 0 { format!("{active}/{gang}") } else { format!("{succeeded}/{}", gang.max(succeeded)) }
}

/// Why it ended as it did, or what it waits for.
pub(crate) fn reason(job: &Value) -> String {
    match end(job) {
        Some(End::Failed(words)) => words,
        Some(End::Succeeded) => String::new(),
        None => text(job, "/status/meridian/waits").to_owned(),
    }
}

fn count(job: &Value, pointer: &str) -> u64 {
    job.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

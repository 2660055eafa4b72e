//! How kinds of jobs report in their status their state and how they ended.

use meridian_shared::indexes::Indexes;
use serde_json::{Map, Value, json};

/// The sign in a status that a job succeeded, or that it failed.
#[derive(Clone, Copy, Debug)]
pub enum StateSign {
    /// A condition of this type with the status `True`.
    Condition(&'static str),
    /// Any of these fields of the status with its value. The first pair is written.
    Fields(&'static [(&'static str, &'static str)]),
}

/// The fields by which a kind of job reports its state.
#[derive(Clone, Copy, Debug)]
pub struct StateRules {
    pub succeeded: StateSign,
    pub failed: StateSign,
    /// JSON pointer to the number of running pods or, with `*`, to the numbers whose sum it is.
    pub active: &'static str,
}

/// State of a job's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodProgress {
    /// Pods that the job was admitted with.
    pub pods: u32,
    pub running: bool,
    /// Whether the cluster that runs the pods is lost, so that it isn't known whether any is ready.
    pub lost: bool,
    /// Failed pods, over all attempts.
    pub failed: u32,
    /// Start of the activation that runs or ran last, as a timestamp.
    pub started: Option<String>,
    /// When the job succeeded, as a timestamp.
    pub succeeded: Option<String>,
    /// Completion indexes that have succeeded, over all attempts.
    pub completed: Indexes,
    /// Whether the job was admitted with fewer pods than it has.
    pub reduced: bool,
}

/// How and when a job ended.
#[derive(Clone, Copy, Debug)]
pub struct JobFinish<'f> {
    pub succeeded: bool,
    pub reason: &'f str,
    pub message: &'f str,
    /// Timestamp of the end; empty if it isn't known.
    pub at: &'f str,
}

impl PodProgress {
    /// Whether the pods are known to run.
    pub(super) fn is_seen_running(&self) -> bool {
        self.running && !self.lost
    }
}

/// A condition in the form that jobs' controllers write. `since` is a timestamp.
pub(super) fn new_condition(kind: &str, holds: bool, reason: &str, message: &str, since: &Value) -> Value {
    json!({
        "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": since,
    })
}

impl StateSign {
    pub(super) fn is_set_in(self, status: &Value) -> bool {
        match self {
            Self::Condition(kind) => condition(status, kind).is_some(),
            Self::Fields(all) => all.iter().any(|(name, value)| status[name] == *value),
        }
    }

    /// The reason and the message beside the sign; `None` if it isn't set.
    pub(super) fn reason_and_message(self, status: &Value) -> Option<[&str; 2]> {
        let beside = match self {
            Self::Condition(kind) => condition(status, kind)?,
            Self::Fields(_) => Some(status).filter(|status| self.is_set_in(status))?,
        };
        Some(["reason", "message"].map(|part| beside[part].as_str().unwrap_or_default()))
    }

    /// The end that the sign states; `None` if it isn't set.
    pub(super) fn end(self, status: &Value, succeeded: bool) -> Option<JobFinish<'_>> {
        let [reason, message] = self.reason_and_message(status)?;
        let at = match self {
            Self::Condition(kind) => &condition(status, kind)?["lastTransitionTime"],
            Self::Fields(_) => &status["endTime"],
        };
        Some(JobFinish { succeeded, reason, message, at: at.as_str().unwrap_or_default() })
    }

    pub(super) fn write(self, status: &mut Map<String, Value>, finish: &JobFinish<'_>) {
        let JobFinish { reason, message, at, .. } = finish;
        match self {
            Self::Condition(kind) => {
                let conditions = status.entry("conditions").or_insert_with(|| json!([]));
                if let Some(conditions) = conditions.as_array_mut() {
                    conditions.push(json!({
                        "type": kind, "status": "True", "reason": reason, "message": message,
                        "lastTransitionTime": at,
                    }));
                }
            }
            Self::Fields(all) => {
                status.extend(all.first().map(|(name, value)| ((*name).to_owned(), json!(value))));
                status.insert("reason".to_owned(), json!(reason));
                status.insert("message".to_owned(), json!(message));
            }
        }
    }
}

/// The condition with this type and the status `True`.
fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|found| found["type"] == kind && found["status"] == "True")
}

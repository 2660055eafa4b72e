//! Combines the pods of a group into the one object that the manager gets. Pure.
//!
//! Pods are read by the same rules as pods in files, and refused with the same messages.

use crate::manifest;
use crate::pods;
use meridian_objects::job::{JobFinish, POD_GROUP_TOTAL};
use meridian_objects::{FieldValidation, Kind, Problem, Strictness, parse_set_with};
use meridian_shared::ids::{ContentHash, Uid};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The pods of a group, taken together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Group {
    /// Not all of its pods exist yet.
    Incomplete { here: usize, total: usize },
    /// The pods don't make a group, with the reason.
    Unfit(String),
    /// The PodGroup, as if the cluster had such an object. Its status says only whether a pod has ended.
    Whole(Value),
}

/// Reads the pods of a group; `None` without pods.
pub(crate) fn read(pods: &[Arc<Value>]) -> Option<Group> {
    let first = pods.first()?;
    let totals: Vec<Option<usize>> = pods.iter().map(|pod| total(pod)).collect();
    // Only if all pods have the same count. For a missing or different count, the reader below has a message.
    if let [Some(total), rest @ ..] = &totals[..]
        && rest.iter().all(|other| *other == Some(*total))
        && pods.len() < *total
    {
        return Some(Group::Incomplete { here: pods.len(), total: *total });
    }
    let texts: Vec<(&str, String)> = pods
        .iter()
        .map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            (name, manifest::for_manager(Kind::Pod, pod).to_string())
        })
        .collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let strictness = Strictness { validation: FieldValidation::Ignore, ..Strictness::default() };
    let parsed = parse_set_with(&files, strictness);
    if let Some(problem) = parsed.errors.first() {
        return Some(Group::Unfit(message_of(problem)));
    }
    let mut object = parsed.objects.into_iter().next()?.value.stored;
    object["metadata"]["uid"] = json!(uid_of(pods));
    object["metadata"]["namespace"] = first["metadata"]["namespace"].clone();
    if let Some(ended) = ended(pods) {
        object["status"] = end_of(ended);
    }
    Some(Group::Whole(object))
}

/// The uid of the group of these pods, computed from their uids. So after the loss of the journal a group has
/// the same uid and isn't started twice, and a group with a replaced pod is another group.
pub(crate) fn uid_of(pods: &[Arc<Value>]) -> String {
    let mut uids: Vec<String> =
        pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)).collect();
    uids.sort_unstable();
    Uid(ContentHash::of(uids.join("\n").as_bytes()).0).to_string()
}

/// The first pod whose phase is final. All pods of a group get the same phase.
pub(crate) fn ended(pods: &[Arc<Value>]) -> Option<&Value> {
    pods.iter().map(Arc::as_ref).find(|pod| pods::has_ended(pod))
}

fn total(pod: &Value) -> Option<usize> {
    pod["metadata"]["annotations"][POD_GROUP_TOTAL].as_str()?.parse().ok().filter(|total| *total > 0)
}

/// The status of a group with a pod that ended.
fn end_of(pod: &Value) -> Value {
    let mut status = Map::new();
    if let (Some(of_pod), Some(of_group)) = (Kind::Pod.job(), Kind::PodGroup.job()) {
        let succeeded = of_pod.has_succeeded(pod);
        of_group.write_finish(&mut status, &JobFinish { succeeded, reason: "", message: "", at: "" });
    }
    Value::Object(status)
}

/// The message of a problem in a pod, without line and file.
fn message_of(problem: &Problem) -> String {
    let Problem { place, field, message, remedy } = problem;
    let field = if field.0.is_empty() { String::new() } else { format!("{field}: ") };
    let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
    format!("pod `{}`: {field}{message}{remedy}", place.file)
}

#[cfg(test)]
mod tests;

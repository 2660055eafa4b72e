//! A single Pod: a gang of one pod.
//!
//! A suspended Pod has Kueue's scheduling gate. Gates can't be added to an existing pod, so a pod is stopped
//! by deletion, and the next attempt makes a new pod.

use super::keys::{POD_GROUP_LABEL, POD_GROUP_TOTAL};
use super::kind::{JobKind, Switch};
use super::metadata::read_metadata;
use super::pod_set_paths::{PodSetName, PodSetPaths};
use super::status::{PodProgress, StateRules, StateSign};
use super::{JobWorkload, POD_SET, pod_set_reader, regular, topology};
use crate::fields::{FieldPath, Fields, names};
use crate::kind::Kind;
use crate::pod::{self, POD_SPEC};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) static POD: JobKind = JobKind {
    kind: Kind::Pod,
    pod_sets: &[PodSetPaths {
        at: "",
        name: PodSetName::Fixed(POD_SET),
        template: "",
        counts: &[],
        completions: None,
    }],
    find: None,
    size: None,
    suspend: Switch::Gates { pods: "" },
    managed_by: "",
    managers: &[],
    // The name is also the pod's host name.
    name_chars_max: names::MAX_LABEL_CHARS,
    ttl: "",
    deadline: Some("/spec/activeDeadlineSeconds"),
    spec: &POD_SPEC,
    check,
    complete: |_| {},
    ignored: &[],
    states: StateRules {
        succeeded: StateSign::Fields(&[("phase", "Succeeded")]),
        failed: StateSign::Fields(&[("phase", "Failed")]),
        active: "",
    },
    read,
    write_progress,
};

fn read(
    kind: &JobKind,
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> JobWorkload {
    let mut job = JobWorkload { parallelism: 1, ..JobWorkload::default() };
    read_metadata(root, labels, annotations, &mut job);
    pod_set_reader::read_run_time(root, labels, annotations, &mut job);
    job.gang.active_deadline = kind.deadline.and_then(|pointer| pod_set_reader::seconds_at(root, pointer, 1));
    job.suspend = kind.is_suspended(&Value::Object(root.written().clone()));
    let Some(pod) = root.require("spec").and_then(|item| item.fields()) else { return job };
    let (template, mut pod_set) = root.findings().in_job_spec(|| {
        pod.check(kind.spec);
        let template = pod::read_submitted(&pod);
        let pod_set = pod_set_reader::pod_set(&pod, &template, POD_SET, 1);
        (template, pod_set)
    });
    (pod_set.topology, pod_set.group) = topology::read(root, 1);
    job.grace_period = pod_set_reader::seconds(&pod, "terminationGracePeriodSeconds", 0);
    job.pod_priority_class = template.priority_class.clone();
    job.containers = u32::try_from(template.containers.len()).unwrap_or(u32::MAX);
    job.has_command =
        !template.containers.is_empty() && template.containers.iter().all(|container| container.has_command);
    job.gang.pod_sets = vec![pod_set];
    job.templates = vec![template];
    (kind.check)(root);
    job
}

fn check(root: &Fields<'_>) {
    let findings = root.findings();
    let manifest = Value::Object(root.written().clone());
    let key =
        |map: &str, name: &str| manifest.pointer(&format!("/metadata/{map}")).and_then(|all| all.get(name));
    for (map, name) in [("labels", POD_GROUP_LABEL), ("annotations", POD_GROUP_TOTAL)] {
        if key(map, name).is_some() {
            findings.error(
                FieldPath::of("metadata").key(map).key(name),
                "makes the pod a part of a group, and a group is submitted with all of its pods",
                "put all of its pods into files of one `meridian create`, or submit a `PodGroup`",
            );
        }
    }
    if manifest.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty()) {
        findings.error(
            FieldPath::of("spec.nodeName"),
            "would bind the pod before it is admitted",
            "remove it, or write `nodeSelector`",
        );
    }
}

/// Writes the phase of the pod in its cluster, as far as it is known.
fn write_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    regular::write_progress_and_start(status, progress, manifest);
    let phase = if progress.running && !progress.lost { "Running" } else { "Pending" };
    status.insert("phase".to_owned(), json!(phase));
}

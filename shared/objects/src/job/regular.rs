//! Reads the kinds of jobs that a row describes completely.
//!
//! Pod templates are read by all rules, because quota and placement depend on them. The kind's own controller
//! reads the rest of the spec: there, an unknown field is only a warning, because clusters may have a newer
//! version of the kind.

use super::keys::MIN_PARALLELISM_ANNOTATION;
use super::kind::JobKind;
use super::metadata::{check_template_keys, read_metadata};
use super::pod_set_paths::{FoundPodSet, path_of};
use super::pod_set_reader;
use super::status::PodProgress;
use super::{JobWorkload, MAX_PODS, topology};
use crate::fields::{FieldPath, Fields, Item, names, scheduling};
use crate::pod::{self, PodTemplate, TEMPLATE};
use meridian_shared::gang::PodSet;
use meridian_shared::time::Millis;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn read(
    kind: &JobKind,
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> JobWorkload {
    let (mut job, has_spec) = read_outline(kind, root, labels, annotations);
    if has_spec {
        read_pod_sets(kind, root, &mut job);
        (kind.check)(root);
    }
    job
}

/// Reads everything but the pods. Returns whether there is a spec.
pub(super) fn read_outline(
    kind: &JobKind,
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> (JobWorkload, bool) {
    let mut job = JobWorkload::default();
    read_metadata(root, labels, annotations, &mut job);
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return (job, false) };
    pod_set_reader::read_run_time(root, labels, annotations, &mut job);
    job.gang.active_deadline = kind.deadline.and_then(|pointer| pod_set_reader::seconds_at(root, pointer, 1));
    job.ttl_after_finished = pod_set_reader::seconds_at(root, kind.ttl, 0);
    pod_set_reader::check_manager(kind, root);
    spec.check(kind.spec);
    if annotations.contains_key(MIN_PARALLELISM_ANNOTATION) {
        root.findings().warn(
            FieldPath::of("metadata.annotations").key(MIN_PARALLELISM_ANNOTATION),
            format!("has no effect: a {} is started whole", kind.name()),
            "remove it",
        );
    }
    (job, true)
}

fn read_pod_sets(kind: &JobKind, root: &Fields<'_>, job: &mut JobWorkload) {
    let manifest = Value::Object(root.written().clone());
    job.suspend = kind.is_suspended(&manifest);
    let found = kind.pod_sets(&manifest);
    let mut names = BTreeSet::new();
    let mut first_sets = BTreeMap::new();
    for set in &found {
        check_name(root, set, &mut names);
        check_counts(kind, root, set);
        let mut template = None;
        root.at_pointer(&set.template, &mut |item: &Item<'_>| template = read_template(item, set));
        if let Some(Template { mut pod_set, template, grace }) = template {
            pod_set.same_template = first_with_template(&manifest, set, &mut first_sets);
            job.pod_priority_class =
                job.pod_priority_class.take().or_else(|| template.priority_class.clone());
            job.grace_period = job.grace_period.max(grace);
            job.gang.pod_sets.push(pod_set);
            job.templates.push(template);
        } else if manifest.pointer(&set.template).is_none_or(Value::is_null) {
            root.findings().error(path_of(&set.template), "is missing", "add the template of the pods");
        }
    }
    let pods = found.iter().filter_map(|set| set.count).fold(0, u32::saturating_add);
    let at = || kind.pod_sets.first().map_or_else(FieldPath::default, |paths| paths.field());
    if pods == 0 && !root.findings().has_errors() {
        root.findings().error(at(), "describes no pods", "describe at least one");
    } else if pods > MAX_PODS {
        root.findings().error(at(), format!("has {pods} pods"), format!("the maximum is {MAX_PODS}"));
    }
    job.parallelism = pods;
}

/// The first pod set whose template equals that of `set`, if it isn't `set` itself. `first_sets` has the pod
/// sets read so far, by template.
fn first_with_template(
    manifest: &Value,
    set: &FoundPodSet,
    first_sets: &mut BTreeMap<String, String>,
) -> Option<String> {
    let template = manifest.pointer(&set.template)?.to_string();
    let first = first_sets.entry(template).or_insert_with(|| set.name.clone());
    (*first != set.name).then(|| first.clone())
}

/// Checks the name of a pod set, which must be unique and valid as a label of its pods.
fn check_name(root: &Fields<'_>, set: &FoundPodSet, names: &mut BTreeSet<String>) {
    let at = || path_of(&set.at);
    if !names::is_dns_label(&set.name) {
        let message = match set.name.is_empty() {
            true => "has no name".to_owned(),
            false => format!("`{}` can't name pods", set.name),
        };
        let remedy = "use at most 63 lower-case letters, digits and `-`";
        root.findings().error(at(), message, remedy);
    } else if !names.insert(set.name.clone()) {
        root.findings().error(at(), format!("`{}` appears twice", set.name), "give every entry its own name");
    }
}

/// Reports counts that aren't valid numbers of pods.
fn check_counts(kind: &JobKind, root: &Fields<'_>, set: &FoundPodSet) {
    let mut number = |item: &Item<'_>| {
        item.int(0, i64::from(MAX_PODS));
    };
    let rows = kind.pod_sets.iter().filter(|paths| paths.describes(&set.at));
    for pointer in rows.flat_map(|paths| paths.counts.iter().chain(&paths.completions)) {
        root.at_pointer(&format!("{}{pointer}", set.at), &mut number);
    }
}

/// Reports problems in the template of a further pod, whose pod set was read from another pod's template.
pub(super) fn check_template(item: &Item<'_>) {
    let set = FoundPodSet { at: String::new(), name: String::new(), template: String::new(), count: Some(1) };
    read_template(item, &set);
}

/// The parts of a pod template that are read.
struct Template {
    pod_set: PodSet,
    template: PodTemplate,
    grace: Option<Millis>,
}

fn read_template(item: &Item<'_>, set: &FoundPodSet) -> Option<Template> {
    let fields = item.fields()?;
    let findings = fields.findings();
    findings.in_job_spec(|| fields.check(&TEMPLATE));
    check_template_keys(&fields);
    if let Some(metadata) = fields.fields("metadata") {
        scheduling::labels(&metadata, "labels");
        scheduling::annotations(&metadata);
    }
    let pod = fields.require("spec").and_then(|item| item.fields())?;
    let count = set.count.unwrap_or(0);
    let (template, mut pod_set) = findings.in_job_spec(|| {
        let template = pod::read_submitted(&pod);
        let pod_set = pod_set_reader::pod_set(&pod, &template, &set.name, count);
        (template, pod_set)
    });
    (pod_set.topology, pod_set.group) = topology::read(&fields, count);
    let grace = pod_set_reader::seconds(&pod, "terminationGracePeriodSeconds", 0);
    Some(Template { pod_set, template, grace })
}

/// Writes the number of running pods beside the state. Only the cluster that runs the job has the kind's own
/// counts.
pub(super) fn write_progress(status: &mut Map<String, Value>, progress: &PodProgress, _: &Value) {
    let running = if progress.is_seen_running() { progress.pods } else { 0 };
    if let Some(meridian) = status.get_mut("meridian").and_then(Value::as_object_mut) {
        meridian.insert("runningPods".to_owned(), json!(running));
        if let Some(started) = &progress.started {
            meridian.insert("startTime".to_owned(), json!(started));
        }
    }
}

/// Like [`write_progress`], for kinds whose own status has the time of the start.
pub(super) fn write_progress_and_start(
    status: &mut Map<String, Value>,
    progress: &PodProgress,
    manifest: &Value,
) {
    write_progress(status, progress, manifest);
    if let Some(started) = &progress.started {
        status.insert("startTime".to_owned(), json!(started));
    }
}

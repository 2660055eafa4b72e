//! The labels and annotations of a job, which have the same meaning for every kind.

use super::JobWorkload;
use super::keys::{
    MAX_EXEC_LABEL, MAX_RUN_ANNOTATION, MIN_PARALLELISM_ANNOTATION, OUR_ANNOTATIONS, OUR_DOMAINS, OUR_LABELS,
    PRIORITY_LABEL, QUEUE_LABEL, REGION_KEY,
};
use super::simulated::{InvalidAnnotation, Simulated};
use crate::fields::{FieldPath, Fields, Findings, suggest};
use meridian_shared::ids::Region;
use meridian_shared::time::Millis;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most regions that a job may name.
const MAX_REGIONS: usize = 100;

/// Reads labels and annotations into `job`.
pub(super) fn read_metadata(
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    job: &mut JobWorkload,
) {
    let findings = root.findings();
    job.queue = queue(labels, annotations, findings);
    job.priority_class = labels.get(PRIORITY_LABEL).filter(|class| !class.is_empty()).cloned();
    job.regions = regions(labels, annotations, findings);
    check_own_keys(root, findings);
    for (place, all, keys, right) in [
        ("metadata.annotations", annotations, [PRIORITY_LABEL, MAX_EXEC_LABEL], "metadata.labels"),
        ("metadata.labels", labels, [MAX_RUN_ANNOTATION, MIN_PARALLELISM_ANNOTATION], "metadata.annotations"),
    ] {
        for key in keys.into_iter().filter(|key| all.contains_key(*key)) {
            let remedy = format!("write it into the job's `{right}`");
            findings.warn(FieldPath::of(place).key(key), "has no effect here", remedy);
        }
    }
    for InvalidAnnotation { key, written, wanted, remedy } in Simulated::read(annotations).1 {
        let at = FieldPath::of("metadata.annotations").key(key);
        findings.error(at, format!("`{written}` is not {wanted}"), remedy);
    }
}

fn queue(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    findings: &Findings,
) -> String {
    match labels.get(QUEUE_LABEL).filter(|queue| !queue.is_empty()) {
        Some(queue) => queue.clone(),
        None => {
            let remedy = match annotations.get(QUEUE_LABEL) {
                Some(queue) => {
                    format!("move it from the annotations to the labels: `{QUEUE_LABEL}: {queue}`")
                }
                None => format!("name the job's local queue: `{QUEUE_LABEL}: QUEUE`"),
            };
            let at = FieldPath::of("metadata.labels").key(QUEUE_LABEL);
            if findings.is_lenient() {
                findings.warn(at, "is missing: the job has no queue and is left out", remedy);
            } else {
                findings.error(at, "is missing, so the job has no queue", remedy);
            }
            String::new()
        }
    }
}

fn regions(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    findings: &Findings,
) -> BTreeSet<Region> {
    let (Some(list), at) = (match (annotations.get(REGION_KEY), labels.get(REGION_KEY)) {
        (Some(annotation), Some(label)) if annotation != label => {
            let at = FieldPath::of("metadata.labels").key(REGION_KEY);
            findings.error(at.clone(), "differs from the annotation of the same name", "keep one of them");
            (None, at)
        }
        (Some(annotation), _) => (Some(annotation), FieldPath::of("metadata.annotations").key(REGION_KEY)),
        (None, label) => (label, FieldPath::of("metadata.labels").key(REGION_KEY)),
    }) else {
        return BTreeSet::new();
    };
    let all: BTreeSet<Region> =
        list.split(',').map(str::trim).filter(|region| !region.is_empty()).map(Region::new).collect();
    // An empty list must not mean "anywhere", because the user wanted to limit the job.
    if all.is_empty() {
        findings.error(at, "names no region", "name regions, separated by commas, or remove it");
    } else if all.len() > MAX_REGIONS {
        findings.error(at, format!("names {} regions", all.len()), format!("the maximum is {MAX_REGIONS}"));
    }
    all
}

/// Refuses Meridian's own keys that are mistyped or in a wrong place, because they would have no effect.
fn check_own_keys(root: &Fields<'_>, findings: &Findings) {
    let keys = |top: &'static str, path: &[&str]| -> Vec<String> {
        let found = path
            .iter()
            .try_fold(root.get(top).map(|item| item.value()), |value, step| Some(value?.get(step)));
        found.flatten().and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let places: [(&str, &[&str], &[&str]); 4] = [
        ("metadata", &["annotations"], &OUR_ANNOTATIONS),
        ("metadata", &["labels"], &OUR_LABELS),
        ("spec", &["template", "metadata", "annotations"], &[]),
        ("spec", &["template", "metadata", "labels"], &[]),
    ];
    for (top, path, known) in places {
        let at = path.iter().fold(FieldPath::of(top), |at, step| at.key(*step));
        refuse_own_keys(&at, &keys(top, path), known, findings);
    }
}

/// Refuses Meridian's own keys in the metadata of a pod template.
pub(super) fn check_template_keys(template: &Fields<'_>) {
    for map in ["annotations", "labels"] {
        let written = template.written().get("metadata").and_then(|metadata| metadata.get(map)?.as_object());
        let keys: Vec<String> = written.into_iter().flatten().map(|(key, _)| key.clone()).collect();
        refuse_own_keys(&template.path().key("metadata").key(map), &keys, &[], template.findings());
    }
}

/// Refuses keys of Meridian's domains that have no effect in this place.
fn refuse_own_keys(at: &FieldPath, keys: &[String], known: &[&str], findings: &Findings) {
    let is_ours = |key: &&String| {
        key.split_once('/')
            .is_some_and(|(domain, _)| OUR_DOMAINS.iter().any(|ours| domain.eq_ignore_ascii_case(ours)))
    };
    for key in keys.iter().filter(is_ours).filter(|key| !known.contains(&key.as_str())) {
        let (elsewhere, near) =
            (OUR_ANNOTATIONS.contains(&key.as_str()), suggest::nearest(key, OUR_ANNOTATIONS));
        let remedy = match near {
            _ if elsewhere => "write it into the job's own `metadata.annotations`".to_owned(),
            Some(near) => format!("did you mean the annotation `{near}`?"),
            None => format!("remove it; the known annotations of a job are {}", OUR_ANNOTATIONS.join(", ")),
        };
        let message =
            if elsewhere { "has no effect here" } else { "is an unknown key and would have no effect" };
        findings.error(at.clone().key(key), message, remedy);
    }
}

/// Seconds in a label or annotation, which can only hold text.
pub(super) fn seconds_in(
    place: &str,
    key: &str,
    all: &BTreeMap<String, String>,
    findings: &Findings,
) -> Option<Millis> {
    let text = all.get(key)?;
    match text.parse::<i32>() {
        Ok(seconds) if seconds > 0 => Some(Millis::secs(u64::from(seconds.unsigned_abs()))),
        _ => {
            let at = FieldPath::of(place).key(key);
            findings.error(
                at,
                format!("`{text}` is not a number of seconds"),
                "write a positive whole number in quotes, such as \"600\"",
            );
            None
        }
    }
}

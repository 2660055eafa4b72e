//! Scales the workloads of elastic jobs. A scaled-down workload releases the quota of its removed pods; a
//! scale-up of a running workload becomes a pending workload next to it.

use meridian_objects::plan::PlanObject;
use meridian_objects::quantity;
use meridian_planning::load::SCALE_UP_ANNOTATION;
use meridian_queueing::model::Moment;
use serde_json::{Map, Value, json};

const POD_SETS: &str = "/spec/podSets";
const ASSIGNMENTS: &str = "/status/admission/podSetAssignments";
/// Record number of the request for a scale-up that is pending at the manager.
const SCALE_UP_REQUESTED: &str = "/status/meridian/scaleUpSubmitted";
const RECLAIMABLE_PODS: &str = "/status/reclaimablePods";
/// Scratch field: the reclaimable pods before the first change by [`add_reclaimable`].
const ORIGINAL_RECLAIMABLE_PODS: &str = "/status/firstReclaimablePods";
/// Suffix of the name of a scale-up. Such workloads exist in plans only.
const SCALE_UP_SUFFIX: &str = "-scale-up";

pub(super) struct ScaledWorkload {
    pub(super) workload: PlanObject,
    /// The pods that are added to the running workload.
    pub(super) scale_up: Option<PlanObject>,
}

/// The scale-up that is pending at the manager. A workload that was admitted with fewer pods than requested
/// (partial admission) has none.
pub(super) fn pending_scale_up(workload: &mut Value) -> Option<Value> {
    workload.pointer(SCALE_UP_REQUESTED)?;
    split_scale_up(workload)
}

/// Sets the pod counts of a job's workload, as `apply` does. `None` if the result can't be read as workload.
pub(super) fn scale(workload: &Value, counts: &[u64], requested_at: Moment) -> Option<ScaledWorkload> {
    let mut workload = workload.clone();
    set_counts(&mut workload, POD_SETS, counts);
    let mut scale_up = split_scale_up(&mut workload);
    if let Some(scale_up) = &mut scale_up {
        if let Ok(requested_at) = jiff::Timestamp::from_millisecond(requested_at) {
            scale_up["metadata"]["creationTimestamp"] = json!(requested_at.to_string());
        }
    } else {
        add_reclaimable(&mut workload, &vec![0; counts.len()]);
        if has_condition(&workload, "QuotaReserved") && !has_condition(&workload, "Admitted") {
            drop_reservation(&mut workload);
        } else {
            release_quota(&mut workload, counts);
        }
    }
    let scale_up = scale_up.map(|scale_up| PlanObject::lenient(&scale_up)).transpose().ok()?;
    Some(ScaledWorkload { workload: PlanObject::lenient(&workload).ok()?, scale_up })
}

/// A second workload with the pods that a running workload requests in addition to its assigned ones.
fn split_scale_up(workload: &mut Value) -> Option<Value> {
    let assigned = counts(workload, ASSIGNMENTS).filter(|assigned| !assigned.is_empty())?;
    let requested = counts(workload, POD_SETS).filter(|requested| requested.len() == assigned.len())?;
    let added: Vec<u64> = requested
        .iter()
        .zip(&assigned)
        .map(|(requested, assigned)| requested.saturating_sub(*assigned))
        .collect();
    if !is_running(workload) || added.iter().all(|added| *added == 0) {
        return None;
    }
    let mut scale_up = workload.clone();
    let metadata = scale_up.get_mut("metadata")?.as_object_mut()?;
    let text = |metadata: &Map<String, Value>, field: &str| {
        metadata.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let key = format!("{}/{}", text(metadata, "namespace"), text(metadata, "name"));
    for field in ["name", "uid"] {
        let suffixed = format!("{}{SCALE_UP_SUFFIX}", text(metadata, field));
        metadata.insert(field.to_owned(), json!(suffixed));
    }
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()?;
    annotations.insert(SCALE_UP_ANNOTATION.to_owned(), json!(key));
    // A scale-up is admitted with all its pods or not at all.
    for set in scale_up.pointer_mut(POD_SETS)?.as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
        set.remove("minCount");
    }
    set_counts(&mut scale_up, POD_SETS, &added);
    add_reclaimable(workload, &added);
    scale_up["status"] = json!({"meridian": {"submitted": workload.pointer(SCALE_UP_REQUESTED)}});
    Some(scale_up)
}

/// Counts added pods as reclaimable. Reclaimable pods are subtracted from the requested ones, and a scale-up
/// must not change how many of the assigned pods are still needed.
fn add_reclaimable(workload: &mut Value, added: &[u64]) {
    let names = workload
        .pointer(POD_SETS)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|set| set["name"].clone());
    let added: Vec<(Value, u64)> = names.zip(added.iter().copied()).collect();
    let original =
        [ORIGINAL_RECLAIMABLE_PODS, RECLAIMABLE_PODS].into_iter().find_map(|path| workload.pointer(path));
    let Some(original) = original.cloned() else { return };
    workload["status"]["firstReclaimablePods"] = original.clone();
    workload["status"]["reclaimablePods"] = original;
    let reclaimable = workload.pointer_mut(RECLAIMABLE_PODS).and_then(Value::as_array_mut);
    for set in reclaimable.into_iter().flatten().filter_map(Value::as_object_mut) {
        let more = added.iter().find(|(name, _)| set.get("name") == Some(name)).map_or(0, |(_, more)| *more);
        let count = set.get("count").and_then(Value::as_u64).unwrap_or(0).saturating_add(more);
        set.insert("count".to_owned(), json!(count));
    }
}

fn has_condition(workload: &Value, kind: &str) -> bool {
    let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|found| found["type"] == kind && found["status"] == "True")
}

fn is_running(workload: &Value) -> bool {
    has_condition(workload, "Admitted") && !has_condition(workload, "Evicted")
}

/// Makes a workload pending that isn't admitted yet: it requests all its pods anew.
fn drop_reservation(workload: &mut Value) {
    if let Some(status) = workload.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|field, _| field != "admission" && field != "conditions");
    }
}

/// Reduces the assignment to at most the requested pods.
fn release_quota(workload: &mut Value, requested: &[u64]) {
    let Some(assigned) = counts(workload, ASSIGNMENTS) else { return };
    let kept: Vec<u64> =
        assigned.iter().zip(requested).map(|(assigned, requested)| *assigned.min(requested)).collect();
    let sets = workload.pointer_mut(ASSIGNMENTS).and_then(Value::as_array_mut);
    for (set, (assigned, kept)) in sets.into_iter().flatten().zip(assigned.iter().zip(&kept)) {
        let usage = set.get_mut("resourceUsage").and_then(Value::as_object_mut);
        for (resource, amount) in usage.into_iter().flatten() {
            let Ok(all) = quantity::from_json(resource, amount) else { continue };
            let part = i128::from(all) * i128::from(*kept) / i128::from(*assigned).max(1);
            *amount = json!(quantity::format(resource, i64::try_from(part).unwrap_or(all)));
        }
    }
    set_counts(workload, ASSIGNMENTS, &kept);
}

fn counts(workload: &Value, list: &str) -> Option<Vec<u64>> {
    workload.pointer(list)?.as_array()?.iter().map(|set| set["count"].as_u64()).collect()
}

fn set_counts(workload: &mut Value, list: &str, counts: &[u64]) {
    let sets = workload.pointer_mut(list).and_then(Value::as_array_mut);
    for (set, count) in sets.into_iter().flatten().filter_map(Value::as_object_mut).zip(counts) {
        set.insert("count".to_owned(), json!(count));
    }
}

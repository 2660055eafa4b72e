//! Elastic jobs of another size than their gangs have: one that is to have fewer pods gives back what those held, and what one grows
//! by stands beside it as a newer slice, which waits as any other.

use meridian_objects::plan::PlanObject;
use meridian_objects::quantity;
use meridian_objects::spec::workload::REPLACES_ANNOTATION;
use meridian_planning::load::GROWTH_ANNOTATION;
use meridian_queueing::model::Moment;
use serde_json::{Map, Value, json};

const POD_SETS: &str = "/spec/podSets";
const GIVEN: &str = "/status/admission/podSetAssignments";
/// When a growth was asked for that waits, in the numbers of submissions.
const ASKED: &str = "/status/meridian/growthAsked";
/// What the name of a slice has after that of its workload. Nothing of the kind is ever created.
const SLICE_SUFFIX: &str = "-growth";

/// What a gang that runs is to grow by, if its workload wants more pods than it was given: a slice of all of them, which waits.
pub(super) fn growth(workload: &Value) -> Option<Value> {
    let given = counts(workload, GIVEN).filter(|given| !given.is_empty())?;
    let wanted = counts(workload, POD_SETS).filter(|wanted| wanted.len() == given.len())?;
    if !runs(workload) || wanted.iter().zip(&given).all(|(wanted, given)| wanted <= given) {
        return None;
    }
    let mut slice = workload.clone();
    let metadata = slice.get_mut("metadata")?.as_object_mut()?;
    let text = |metadata: &Map<String, Value>, part: &str| metadata.get(part).and_then(Value::as_str).unwrap_or_default().to_owned();
    let of = ["namespace", "name"].map(|part| text(metadata, part)).join("/");
    for part in ["name", "uid"] {
        let suffixed = format!("{}{SLICE_SUFFIX}", text(metadata, part));
        metadata.insert(part.to_owned(), json!(suffixed));
    }
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()?;
    annotations.insert(REPLACES_ANNOTATION.to_owned(), json!(of));
    annotations.insert(GROWTH_ANNOTATION.to_owned(), json!("true"));
    // A gang grows by all of it or not at all.
    for set in slice.pointer_mut(POD_SETS)?.as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
        set.remove("minCount");
    }
    let mut status = json!({"meridian": {"submitted": workload.pointer(ASKED)}});
    if let Some(reclaimable) = workload.pointer("/status/reclaimablePods") {
        status["reclaimablePods"] = reclaimable.clone();
    }
    slice["status"] = status;
    Some(slice)
}

/// A growth that a manager says was asked for. Who makes do with fewer pods than it wants doesn't grow by itself.
pub(super) fn growth_asked(workload: &Value) -> Option<Value> {
    workload.pointer(ASKED).and_then(|_| growth(workload))
}

/// Gives a job's workload other numbers of pods, as `apply` does: with the slice by which it grows, asked for at this moment.
pub(super) fn resize(workload: &Value, wanted: &[u64], asked: Moment) -> Option<(PlanObject, Option<PlanObject>)> {
    let mut workload = workload.clone();
    set_counts(&mut workload, POD_SETS, wanted);
    let mut slice = growth(&workload);
    if let (Some(slice), Ok(asked)) = (&mut slice, jiff::Timestamp::from_millisecond(asked)) {
        slice["metadata"]["creationTimestamp"] = json!(asked.to_string());
    }
    if slice.is_none() && is(&workload, "QuotaReserved") && !is(&workload, "Admitted") {
        // What isn't granted yet is taken back, and asked for anew.
        let status = workload.get_mut("status").and_then(Value::as_object_mut);
        status.into_iter().for_each(|status| status.retain(|part, _| part != "admission" && part != "conditions"));
    } else if slice.is_none() {
        give_back(&mut workload, wanted);
    }
    let slice = slice.map(|slice| PlanObject::lenient(&slice)).transpose().ok()?;
    Some((PlanObject::lenient(&workload).ok()?, slice))
}

fn is(workload: &Value, condition: &str) -> bool {
    let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["status"] == "True")
}

/// Whether a workload runs, and isn't being stopped.
fn runs(workload: &Value) -> bool {
    is(workload, "Admitted") && !is(workload, "Evicted")
}

/// A workload keeps what so many pods hold of what it was given.
fn give_back(workload: &mut Value, wanted: &[u64]) {
    let Some(given) = counts(workload, GIVEN) else { return };
    let stay: Vec<u64> = given.iter().zip(wanted).map(|(given, wanted)| *given.min(wanted)).collect();
    let sets = workload.pointer_mut(GIVEN).and_then(Value::as_array_mut);
    for (set, (given, stay)) in sets.into_iter().flatten().zip(given.iter().zip(&stay)) {
        for (resource, amount) in set.get_mut("resourceUsage").and_then(Value::as_object_mut).into_iter().flatten() {
            let Ok(all) = quantity::from_json(resource, amount) else { continue };
            let part = i128::from(all) * i128::from(*stay) / i128::from(*given).max(1);
            *amount = json!(quantity::format(resource, i64::try_from(part).unwrap_or(all)));
        }
    }
    set_counts(workload, GIVEN, &stay);
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

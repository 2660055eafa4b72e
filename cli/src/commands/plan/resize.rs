//! Elastic jobs of another size than their gangs have: one that is to have fewer pods gives back what those held, and what one grows
//! by stands beside it and waits as any other.

use meridian_objects::plan::PlanObject;
use meridian_objects::quantity;
use meridian_planning::load::GROWTH_ANNOTATION;
use meridian_queueing::model::Moment;
use serde_json::{Map, Value, json};

const POD_SETS: &str = "/spec/podSets";
const GIVEN: &str = "/status/admission/podSetAssignments";
/// When a growth was asked for that waits, in the numbers of submissions.
const ASKED: &str = "/status/meridian/growthAsked";
const SPARE: &str = "/status/reclaimablePods";
/// The same as the manager says it.
const FIRST_SPARE: &str = "/status/firstReclaimablePods";
/// What the name of a growth has after that of its workload. Nothing of the kind is ever created.
const GROWTH_SUFFIX: &str = "-growth";

/// What a gang that runs is to grow by, if its workload wants more pods than it was given.
pub(super) fn growth(workload: &mut Value) -> Option<Value> {
    let given = counts(workload, GIVEN).filter(|given| !given.is_empty())?;
    let wanted = counts(workload, POD_SETS).filter(|wanted| wanted.len() == given.len())?;
    let more: Vec<u64> =
        wanted.iter().zip(&given).map(|(wanted, given)| wanted.saturating_sub(*given)).collect();
    if !runs(workload) || more.iter().all(|more| *more == 0) {
        return None;
    }
    let mut growth = workload.clone();
    let metadata = growth.get_mut("metadata")?.as_object_mut()?;
    let text = |metadata: &Map<String, Value>, part: &str| {
        metadata.get(part).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let of = ["namespace", "name"].map(|part| text(metadata, part)).join("/");
    for part in ["name", "uid"] {
        let suffixed = format!("{}{GROWTH_SUFFIX}", text(metadata, part));
        metadata.insert(part.to_owned(), json!(suffixed));
    }
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()?;
    annotations.insert(GROWTH_ANNOTATION.to_owned(), json!(of));
    // A gang grows by all of it or not at all.
    for set in growth.pointer_mut(POD_SETS)?.as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
        set.remove("minCount");
    }
    set_counts(&mut growth, POD_SETS, &more);
    spare_more(workload, &more);
    growth["status"] = json!({"meridian": {"submitted": workload.pointer(ASKED)}});
    Some(growth)
}

/// A growth that a manager says was asked for. Who makes do with fewer pods than it wants doesn't grow by itself.
pub(super) fn growth_asked(workload: &mut Value) -> Option<Value> {
    workload.pointer(ASKED)?;
    growth(workload)
}

/// What a workload no longer needs is counted from what it wants: of what it was given it needs no more for wanting more.
fn spare_more(workload: &mut Value, more: &[u64]) {
    let names = workload
        .pointer(POD_SETS)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|set| set["name"].clone());
    let more: Vec<(Value, u64)> = names.zip(more.iter().copied()).collect();
    // As it was before anything was added for another growth.
    let Some(first) = [FIRST_SPARE, SPARE].into_iter().find_map(|path| workload.pointer(path)).cloned()
    else {
        return;
    };
    (workload["status"]["reclaimablePods"], workload["status"]["firstReclaimablePods"]) =
        (first.clone(), first);
    let spare = workload.pointer_mut(SPARE).and_then(Value::as_array_mut);
    for set in spare.into_iter().flatten().filter_map(Value::as_object_mut) {
        let added = more.iter().find(|(name, _)| set.get("name") == Some(name)).map_or(0, |(_, more)| *more);
        let count = set.get("count").and_then(Value::as_u64).unwrap_or(0).saturating_add(added);
        set.insert("count".to_owned(), json!(count));
    }
}

/// Gives a job's workload other numbers of pods, as `apply` does: with what it grows by, asked for at this moment.
pub(super) fn resize(
    workload: &Value,
    wanted: &[u64],
    asked: Moment,
) -> Option<(PlanObject, Option<PlanObject>)> {
    let mut workload = workload.clone();
    set_counts(&mut workload, POD_SETS, wanted);
    let mut growth = growth(&mut workload);
    if let (Some(growth), Ok(asked)) = (&mut growth, jiff::Timestamp::from_millisecond(asked)) {
        growth["metadata"]["creationTimestamp"] = json!(asked.to_string());
    }
    if growth.is_none() {
        spare_more(&mut workload, &vec![0; wanted.len()]);
    }
    if growth.is_none() && is(&workload, "QuotaReserved") && !is(&workload, "Admitted") {
        // What isn't granted yet is taken back, and asked for anew.
        let status = workload.get_mut("status").and_then(Value::as_object_mut);
        status
            .into_iter()
            .for_each(|status| status.retain(|part, _| part != "admission" && part != "conditions"));
    } else if growth.is_none() {
        give_back(&mut workload, wanted);
    }
    let growth = growth.map(|growth| PlanObject::lenient(&growth)).transpose().ok()?;
    Some((PlanObject::lenient(&workload).ok()?, growth))
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
        for (resource, amount) in
            set.get_mut("resourceUsage").and_then(Value::as_object_mut).into_iter().flatten()
        {
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

//! Elastic jobs of another size than their gangs have: one that is to have fewer pods gives back what those held, and what one grows
//! by is a newer slice of its workload, which waits as any other.

use meridian_objects::plan::PlanObject;
use meridian_objects::quantity;
use meridian_objects::spec::workload::REPLACES_ANNOTATION;
use meridian_queueing::model::Moment;
use serde_json::{Value, json};

const POD_SETS: &str = "/spec/podSets";
const GIVEN: &str = "/status/admission/podSetAssignments";
/// What the name of a slice has after that of its workload. Nothing of the kind is ever created.
const SLICE_SUFFIX: &str = "-growth";

/// Takes what a workload wants beyond what it was given out of it, as a slice that waits for all of it.
pub(super) fn split(workload: &mut Value) -> Option<Value> {
    let given = counts(workload, GIVEN).filter(|given| !given.is_empty())?;
    let wanted = counts(workload, POD_SETS).filter(|wanted| wanted.len() == given.len())?;
    if wanted.iter().zip(&given).all(|(wanted, given)| wanted <= given) {
        return None;
    }
    let mut slice = workload.clone();
    set_counts(workload, POD_SETS, &given);
    let of = ["namespace", "name"].map(|part| workload["metadata"][part].as_str().unwrap_or_default()).join("/");
    for part in ["name", "uid"] {
        let text = format!("{}{SLICE_SUFFIX}", slice["metadata"][part].as_str().unwrap_or_default());
        slice["metadata"][part] = json!(text);
    }
    slice["metadata"]["annotations"][REPLACES_ANNOTATION] = json!(of);
    // An older manager doesn't say when it was asked for.
    let asked = workload.pointer("/status/meridian/growthAsked").cloned().unwrap_or_else(|| json!(u64::MAX.to_string()));
    slice["status"] = json!({"meridian": {"submitted": asked}});
    Some(slice)
}

/// Gives a job's workload other numbers of pods, as `apply` does: with the slice by which it grows, asked for at this moment.
pub(super) fn resize(workload: &Value, wanted: &[u64], asked: Moment) -> Option<(PlanObject, Option<PlanObject>)> {
    let mut workload = workload.clone();
    set_counts(&mut workload, POD_SETS, wanted);
    let mut slice = split(&mut workload);
    if let (Some(slice), Ok(asked)) = (&mut slice, jiff::Timestamp::from_millisecond(asked)) {
        slice["metadata"]["creationTimestamp"] = json!(asked.to_string());
    }
    if slice.is_none() {
        give_back(&mut workload, wanted);
    }
    let slice = slice.map(|slice| PlanObject::lenient(&slice)).transpose().ok()?;
    Some((PlanObject::lenient(&workload).ok()?, slice))
}

/// A workload keeps what so many pods hold of what it was given.
fn give_back(workload: &mut Value, wanted: &[u64]) {
    let Some(given) = counts(workload, GIVEN) else { return };
    let sets = workload.pointer_mut(GIVEN).and_then(Value::as_array_mut);
    for (set, (given, wanted)) in sets.into_iter().flatten().zip(given.iter().zip(wanted)) {
        for (resource, amount) in set.get_mut("resourceUsage").and_then(Value::as_object_mut).into_iter().flatten() {
            let Ok(all) = quantity::from_json(resource, amount) else { continue };
            let part = i128::from(all) * i128::from(*wanted) / i128::from(*given).max(1);
            *amount = json!(quantity::format(resource, i64::try_from(part).unwrap_or(all)));
        }
    }
    set_counts(workload, GIVEN, wanted);
}

fn counts(workload: &Value, list: &str) -> Option<Vec<u64>> {
    workload.pointer(list)?.as_array()?.iter().map(|set| set["count"].as_u64()).collect()
}

fn set_counts(workload: &mut Value, list: &str, counts: &[u64]) {
    let sets = workload.pointer_mut(list).and_then(Value::as_array_mut);
    sets.into_iter().flatten().zip(counts).for_each(|(set, count)| set["count"] = json!(count));
}

//! Completes the workloads of a manager's API, which leave out what decisions need.

use super::text;
use jiff::Timestamp;
use meridian_objects::plan::PlanObject;
use meridian_objects::{job_to_workload, quantity};
use meridian_queueing::model::Moment;
use meridian_shared::gang::{Amounts, add_scaled};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Gives workloads of the same second distinct creation times, in the order of their submission. The API has
/// whole seconds and the record number of the submission; plans order workloads by milliseconds. Returns the
/// last time.
pub(super) fn restore_submission_order(workloads: &mut [Value]) -> Moment {
    let number = |item: &Value| text(item, "/status/meridian/submitted").parse::<u64>().ok();
    workloads.sort_by_key(number);
    let mut last = Moment::MIN;
    for item in workloads.iter_mut().filter(|item| number(item).is_some()) {
        let Ok(created) = text(item, "/metadata/creationTimestamp").parse::<Timestamp>() else { continue };
        last = created.as_millisecond().max(last.saturating_add(1));
        if let Ok(time) = Timestamp::from_millisecond(last) {
            item["metadata"]["creationTimestamp"] = json!(time.to_string());
        }
    }
    last
}

/// Sets the exact time of the reservation. Conditions have whole seconds, and of equal candidates the latest
/// is preempted first.
pub(super) fn restore_reservation_time(workload: &mut Value) {
    let exact = workload["status"]["meridian"]["reserved"].clone();
    if !exact.is_string() {
        return;
    }
    let conditions = workload.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == "QuotaReserved" && condition["status"] == "True" {
            condition["lastTransitionTime"] = exact.clone();
        }
    }
}

/// Removes the priority of a workload that names an existing priority class, so that it follows a changed
/// class.
pub(super) fn follow_priority_class(workload: &mut Value, classes: &BTreeSet<String>) {
    let class = &workload["spec"]["priorityClassRef"];
    if class["kind"] == "WorkloadPriorityClass"
        && class["name"].as_str().is_some_and(|name| classes.contains(name))
        && let Some(spec) = workload["spec"].as_object_mut()
    {
        spec.remove("priority");
    }
}

/// Fills in pod templates and the reserved quota from the job.
pub(super) fn complete_from_job(workload: &mut Value, job: &Value) {
    let template = job.pointer("/spec/template").cloned().unwrap_or_default();
    let sets = workload.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for set in sets.into_iter().flatten() {
        if set.is_object() && set.get("template").is_none_or(Value::is_null) {
            set["template"] = template.clone();
        }
    }
    let mut without_status = job.clone();
    if let Some(map) = without_status.as_object_mut() {
        map.remove("status");
    }
    let job = match PlanObject::lenient(&without_status) {
        Ok(PlanObject::Object(planned)) => job_to_workload(&planned.object).ok(),
        _ => None,
    };
    let gang = job.map(|job| job.gang).unwrap_or_default();
    let assignments =
        workload.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for (assigned, set) in assignments.into_iter().flatten().zip(&gang.pod_sets) {
        if assigned.get("resourceUsage").is_some() || !assigned.is_object() {
            continue;
        }
        let mut usage = Amounts::new();
        add_scaled(&mut usage, &set.per_pod, i64::from(set.count));
        // A resource without a flavor uses no quota.
        let has_flavor =
            |resource: &str| assigned.pointer("/flavors").and_then(|f| f.get(resource)).is_some();
        let usage: Map<String, Value> = usage
            .iter()
            .filter(|(resource, _)| has_flavor(resource))
            .map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount))))
            .collect();
        assigned["count"] = json!(set.count);
        assigned["resourceUsage"] = Value::Object(usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::plan::tests::fixtures::{job, plan_object, workload};
    use meridian_objects::plan::PlanObject;

    #[test]
    fn a_workload_gets_requests_and_usage_from_its_job() {
        let mut item = workload();
        complete_from_job(&mut item, &job());
        let PlanObject::Workload(read) = plan_object(&item) else { panic!("not a workload") };
        assert_eq!(read.spec.pod_sets[0].count, 2);
        let assigned = &read.status.admission.unwrap().pod_sets[0];
        assert_eq!(assigned.count, Some(2));
        // The CPUs have no flavor, so they use no quota.
        assert_eq!(assigned.usage, Amounts::from([("nvidia.com/gpu".to_owned(), 8)]));
    }

    #[test]
    fn a_reservation_time_has_milliseconds() {
        let mut item = workload();
        item["status"]["conditions"] = json!([{
            "type": "QuotaReserved", "status": "True", "reason": "R",
            "lastTransitionTime": "2026-06-01T12:00:07Z",
        }]);
        let since = |item: &Value| match plan_object(item) {
            PlanObject::Workload(read) => read.status.condition("QuotaReserved").unwrap().since.unwrap(),
            _ => panic!("not a workload"),
        };
        let whole_second = since(&item);
        restore_reservation_time(&mut item);
        assert_eq!(since(&item), whole_second, "an older manager doesn't report the exact time");
        item["status"]["meridian"] = json!({"reserved": "2026-06-01T12:00:07.250000Z"});
        restore_reservation_time(&mut item);
        assert_eq!(since(&item), whole_second + 250);
    }

    #[test]
    fn a_priority_follows_its_class() {
        let classes = BTreeSet::from(["high".to_owned()]);
        let priority = |class: &str| {
            let mut item = workload();
            item["spec"]["priorityClassRef"] =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": class});
            follow_priority_class(&mut item, &classes);
            item["spec"]["priority"].clone()
        };
        assert_eq!((priority("high"), priority("gone")), (Value::Null, json!(0)));
    }

    #[test]
    fn workloads_of_one_second_keep_their_order() {
        let at = |name: &str, submitted: u32, second: u32| {
            let mut item = workload();
            item["metadata"]["name"] = json!(name);
            item["metadata"]["creationTimestamp"] = json!(format!("2026-06-01T12:00:{second:02}Z"));
            item["status"]["meridian"] = json!({"submitted": submitted.to_string()});
            item
        };
        let mut items = [at("late", 12, 0), at("early", 9, 0), at("next", 13, 1)];
        let last = restore_submission_order(&mut items);
        let created = |item: &Value| match plan_object(item) {
            PlanObject::Workload(read) => read.meta.created.unwrap(),
            _ => panic!("not a workload"),
        };
        assert_eq!(items.each_ref().map(|item| text(item, "/metadata/name")), ["early", "late", "next"]);
        assert_eq!(items.each_ref().map(created), [last - 1_000, last - 999, last]);
    }
}

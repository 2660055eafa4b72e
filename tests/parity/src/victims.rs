//! Group 2: who gives way.

use crate::case::{Case, items, path, queue, text};
use crate::quota::mode;
use crate::verdict::{Differences, Verdict};
use meridian_objects::spec::WorkloadObject;
use meridian_queueing::Brain;
use meridian_queueing::flavors::{Assignment, Choice, PodSetAssignment};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::places::Anywhere;
use meridian_queueing::preempt::Right;
use meridian_shared::gang::Amounts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn preempt(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let workload = case.workload(&act["workload"])?;
    let mut loaded = case.load_without(&workload.meta.key());
    let into = queue(&loaded.brain, text(&act["clusterQueue"]))?;
    let id = loaded.await_in(workload, into);
    let assignment = assignment(&mut loaded.brain, id, workload, &act["assignment"])?;
    let before = loaded.brain.forest.clone();
    let targets = loaded.brain.victims(&mut Anywhere, id, &assignment);
    let (brain, expect) = (&loaded.brain, case.expect());
    let mut differences = Differences::default();
    differences.decision("the search left the books as they were", &(brain.forest == before), &true);
    let key = |id: WorkloadId| brain.workload(id).map(|w| w.key.to_string()).unwrap_or_default();
    let found: BTreeSet<(String, String)> =
        targets.iter().map(|t| (key(t.workload), t.right.map_or("", Right::word).to_owned())).collect();
    let wanted = items(&expect["targets"])
        .iter()
        .map(|t| (text(&t["workload"]).to_owned(), text(&t["reason"]).to_owned()))
        .collect();
    differences.decision("targets", &found, &wanted);
    if let Some(count) = expect["preemptedCount"].as_u64() {
        differences.decision("count", &(targets.len() as u64), &count);
    }
    if expect["preempted"].is_array() {
        let fresh = targets.iter().filter(|t| brain.workload(t.workload).is_some_and(|w| !w.evicted()));
        let told = fresh
            .filter_map(|t| Some(preempted(case, brain, t.workload, &workload.meta.key(), into, t.right?)));
        compare_told(told, items(&expect["preempted"]), &mut differences);
        compare_conditions(case, &found, &mut differences)?;
    }
    Ok(differences.verdict())
}

/// Compares what is said about victims; their order says nothing. What isn't asserted isn't compared, and an unknown uid is
/// the same as none.
pub(crate) fn compare_told(
    mut told: impl Iterator<Item = Value>,
    expected: &[Value],
    differences: &mut Differences,
) {
    let by_workload = |all: &mut dyn Iterator<Item = Value>| -> BTreeMap<String, Value> {
        all.map(|one| (text(&one["workload"]).to_owned(), one)).collect()
    };
    let is = by_workload(&mut told);
    let mut wanted = by_workload(&mut expected.iter().cloned());
    for (key, one) in &mut wanted {
        for field in ["uid", "jobUID"] {
            if one["by"].is_object() && matches!(text(&one["by"][field]), "" | "UNKNOWN") {
                one["by"][field] = json!("");
            }
        }
        for field in ["by", "path"] {
            if one[field].is_null() {
                one[field] = is.get(key).map(|of| of[field].clone()).unwrap_or_default();
            }
        }
    }
    differences.decision("preempted", &is, &wanted);
}

/// What is said about a victim.
pub(crate) fn preempted(
    case: &Case<'_>,
    brain: &Brain,
    victim: WorkloadId,
    by: &str,
    by_queue: meridian_queueing::model::QueueId,
    right: Right,
) -> Value {
    let of = brain.workload(victim);
    let by = case.workloads().find(|w| w.meta.key() == by).map(|w| &w.meta);
    let uid = by.map(|meta| meta.uid.as_str()).unwrap_or_default();
    let job = by
        .and_then(|meta| meta.labels.get(meridian_objects::spec::workload::JOB_UID_LABEL))
        .map(String::as_str)
        .unwrap_or_default();
    json!({
        "workload": of.map(|w| w.key.to_string()),
        "reason": right.word(),
        "by": {"uid": uid, "jobUID": job, "path": path(brain, by_queue)},
        "path": of.map(|w| path(brain, w.queue)),
    })
}

/// Victims are told so; nobody else's conditions change.
fn compare_conditions(
    case: &Case<'_>,
    targets: &BTreeSet<(String, String)>,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    for (key, changed) in case.expect()["workloads"].as_object().into_iter().flatten() {
        let reason =
            targets.iter().find(|(target, _)| target == key).map_or("", |(_, reason)| reason.as_str());
        let told: BTreeMap<&str, &str> =
            [("Evicted", "Preempted"), ("Preempted", reason)].into_iter().collect();
        let conditions =
            items(&changed["conditions"]).iter().filter(|condition| condition["changed"] == true);
        let expected =
            conditions.map(|condition| (text(&condition["type"]), text(&condition["reason"]))).collect();
        differences.record(&format!("conditions of `{key}`"), &told, &expected);
    }
    for key in items(&case.expect()["unchanged"]) {
        let told = targets.iter().any(|(target, _)| target == text(key))
            && !case.workload(key)?.status.is("Evicted");
        differences.record(&format!("`{}` is told anything", text(key)), &told, &false);
    }
    Ok(())
}

/// The assignment that a case starts from. Who was admitted asks for what it was given.
fn assignment(
    brain: &mut Brain,
    id: WorkloadId,
    workload: &WorkloadObject,
    written: &Value,
) -> anyhow::Result<Assignment> {
    let mut assignment = Assignment::default();
    let shape = brain.workload(id).map(|workload| brain.shape_of(workload.shape).clone()).unwrap_or_default();
    let given: &[meridian_objects::spec::PodSetAssignment] =
        workload.status.admission.as_ref().map_or(&[], |admission| &admission.pod_sets);
    for (at, set) in items(written).iter().enumerate() {
        let count = u32::try_from(set["count"].as_u64().unwrap_or(0))?;
        let per_pod = match given.iter().find(|given| given.name == text(&set["name"])) {
            Some(given) => {
                let pods = i64::from(given.count.unwrap_or(1)).max(1);
                let each: Amounts =
                    given.usage.iter().map(|(resource, amount)| (resource.clone(), amount / pods)).collect();
                brain.requests(&each)
            }
            None => shape.pod_sets.get(at).map(|set| set.per_pod.clone()).unwrap_or_default(),
        };
        let mut made = PodSetAssignment {
            count,
            requests: per_pod
                .into_iter()
                .map(|(resource, amount)| (resource, amount.saturating_mul(i64::from(count))))
                .collect(),
            ..PodSetAssignment::default()
        };
        for (resource, choice) in set["flavors"].as_object().into_iter().flatten() {
            let (resource, flavor) = (brain.resource(resource), brain.flavor_id(text(&choice["flavor"])));
            made.flavors
                .push((resource, Choice { flavor, mode: mode(&choice["mode"])?, tried: 0, borrowing: 0 }));
        }
        assignment.pod_sets.push(made);
    }
    Ok(assignment)
}

//! Group 2: the search for victims, and what is recorded about them.

use crate::assignments::{expected_quota, held_quota};
use crate::case::Case;
use crate::evictions::{count_eviction, expected_evictions, past_evictions};
use crate::json::{fields, items, mode, number, text};
use crate::state::{path, queue, workload_key};
use crate::verdict::{Differences, Verdict};
use meridian_objects::spec::workload::JOB_UID_LABEL;
use meridian_objects::spec::{self, WorkloadObject};
use meridian_queueing::QueueState;
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::flavors::{Assignment, FlavorAssignment, PodSetAssignment};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::preemption::{self, PreemptionReason, Target};
use meridian_shared::gang::Amounts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn replay(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let workload = case.workload(&act["workload"])?;
    let mut loaded = case.load_without(&workload.meta.key());
    let queue = queue(&loaded.state, text(&act["clusterQueue"]))?;
    let id = loaded.add_pending(workload, queue);
    let assignment = assignment(&mut loaded.state, id, workload, &act["assignment"])?;
    let before = loaded.state.forest().clone();
    let targets = preemption::victims(&mut loaded.state, &mut UnlimitedCapacity, id, &assignment);
    let (state, expect) = (&loaded.state, case.expect());
    let mut differences = Differences::default();
    differences.decision("usage is unchanged by the search", &(*state.forest() == before), &true);
    let found: BTreeSet<(String, String)> = targets
        .iter()
        .map(|target| {
            (
                workload_key(state, target.workload),
                target.reason.map_or("", PreemptionReason::as_str).to_owned(),
            )
        })
        .collect();
    let wanted = items(&expect["targets"])
        .iter()
        .map(|target| (text(&target["workload"]).to_owned(), text(&target["reason"]).to_owned()))
        .collect();
    differences.decision("targets", &found, &wanted);
    if let Some(count) = expect["preemptedCount"].as_u64() {
        differences.decision("count", &(targets.len() as u64), &count);
    }
    if expect["preempted"].is_array() {
        let by = Preemptor { key: &workload.meta.key(), queue };
        let is_new = |target: &&Target| state.workload(target.workload).is_some_and(|w| !w.evicted());
        let preempted = targets
            .iter()
            .filter(is_new)
            .filter_map(|target| Some(preempted_json(case, state, target.workload, &by, target.reason?)));
        compare_preempted(preempted, items(&expect["preempted"]), &mut differences);
        compare_status(case, state, &found, &mut differences)?;
    }
    Ok(differences.verdict())
}

/// Compares victims in any order. Fields that the case leaves out aren't compared, and an unknown uid counts
/// as none.
pub(crate) fn compare_preempted(
    preempted: impl Iterator<Item = Value>,
    expected: &[Value],
    differences: &mut Differences,
) {
    let by_workload = |victim: Value| (text(&victim["workload"]).to_owned(), victim);
    let is: BTreeMap<String, Value> = preempted.map(by_workload).collect();
    let mut wanted: BTreeMap<String, Value> = expected.iter().cloned().map(by_workload).collect();
    for (key, victim) in &mut wanted {
        for field in ["uid", "jobUID"] {
            if victim["by"].is_object() && matches!(text(&victim["by"][field]), "" | "UNKNOWN") {
                victim["by"][field] = json!("");
            }
        }
        for field in ["by", "path"] {
            if victim[field].is_null() {
                victim[field] = is.get(key).map(|found| found[field].clone()).unwrap_or_default();
            }
        }
    }
    differences.decision("preempted", &is, &wanted);
}

pub(crate) struct Preemptor<'a> {
    /// In the form `NAMESPACE/NAME`.
    pub(crate) key: &'a str,
    pub(crate) queue: QueueId,
}

/// A victim in the form in which cases list it.
pub(crate) fn preempted_json(
    case: &Case<'_>,
    state: &QueueState,
    victim: WorkloadId,
    by: &Preemptor<'_>,
    right: PreemptionReason,
) -> Value {
    let victim = state.workload(victim);
    let preemptor = case.workloads().find(|w| w.meta.key() == by.key).map(|w| &w.meta);
    let uid = preemptor.map(|meta| meta.uid.as_str()).unwrap_or_default();
    let job_uid =
        preemptor.and_then(|meta| meta.labels.get(JOB_UID_LABEL)).map(String::as_str).unwrap_or_default();
    json!({
        "workload": victim.map(|w| w.key.to_string()),
        "reason": right.as_str(),
        "by": {"uid": uid, "jobUID": job_uid, "path": path(state, by.queue)},
        "path": victim.map(|w| path(state, w.queue)),
    })
}

/// Compares the status of victims; the status of all other workloads stays as it is.
fn compare_status(
    case: &Case<'_>,
    state: &QueueState,
    targets: &BTreeSet<(String, String)>,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    for (key, changed) in fields(&case.expect()["workloads"]) {
        let reason = targets.iter().find(|(target, _)| target == key).map_or("", |(_, reason)| reason);
        let written: BTreeMap<&str, &str> =
            [("Evicted", "Preempted"), ("Preempted", reason)].into_iter().collect();
        let expected = items(&changed["conditions"])
            .iter()
            .filter(|condition| condition["changed"] == true)
            .map(|condition| (text(&condition["type"]), text(&condition["reason"])))
            .collect();
        differences.record(&format!("conditions of `{key}`"), &written, &expected);
        let mut evictions =
            case.workloads().find(|w| w.meta.key() == *key).map(past_evictions).unwrap_or_default();
        count_eviction(&mut evictions, "Preempted");
        let wanted = expected_evictions(&changed["schedulingStats"]);
        differences.record(&format!("schedulingStats of `{key}`"), &evictions, &wanted);
        // A victim keeps its quota until it has stopped.
        let held = state.find(key).map(|id| held_quota(state, id));
        let wanted = Some(expected_quota(&changed["admission"])?);
        differences.record(&format!("admission of `{key}`"), &held, &wanted);
    }
    for key in items(&case.expect()["unchanged"]) {
        let is_target = targets.iter().any(|(target, _)| target == text(key));
        let changes = is_target && !case.workload(key)?.status.is("Evicted");
        differences.record(&format!("change of `{}`", text(key)), &changes, &false);
    }
    Ok(())
}

/// The assignment that a case starts from. A workload with an admission requests what was assigned to it.
fn assignment(
    state: &mut QueueState,
    id: WorkloadId,
    workload: &WorkloadObject,
    pod_sets: &Value,
) -> anyhow::Result<Assignment> {
    let mut assignment = Assignment::default();
    let shape = state.workload(id).map(|workload| state.shape_of(workload.shape).clone()).unwrap_or_default();
    let admitted: &[spec::PodSetAssignment] =
        workload.status.admission.as_ref().map_or(&[], |admission| &admission.pod_sets);
    for (at, set) in items(pod_sets).iter().enumerate() {
        let count = number(&set["count"])?;
        let per_pod = match admitted.iter().find(|admitted| admitted.name == text(&set["name"])) {
            Some(admitted) => {
                let pods = i64::from(admitted.count.unwrap_or(1)).max(1);
                let usage = admitted.usage.iter();
                let per_pod: Amounts = usage.map(|(name, amount)| (name.clone(), amount / pods)).collect();
                state.requests(&per_pod)
            }
            None => shape.pod_sets.get(at).map(|set| set.per_pod.clone()).unwrap_or_default(),
        };
        let mut pod_set = PodSetAssignment {
            count,
            requests: per_pod
                .into_iter()
                .map(|(resource, amount)| (resource, amount.saturating_mul(i64::from(count))))
                .collect(),
            ..PodSetAssignment::default()
        };
        for (resource, choice) in fields(&set["flavors"]) {
            let (resource, flavor) = (state.resource(resource), state.flavor_id(text(&choice["flavor"])));
            let choice = FlavorAssignment { flavor, mode: mode(&choice["mode"])?, tried: 0, borrowing: 0 };
            pod_set.flavors.push((resource, choice));
        }
        assignment.pod_sets.push(pod_set);
    }
    Ok(assignment)
}

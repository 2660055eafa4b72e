//! Snapshots: queues, cohorts, usage and quota after loading, and after workloads leave and return; and the
//! usage of topology domains.

use super::cell_amounts;
use crate::case::Case;
use crate::json::{amounts, fields, flavor_usage, items, number, object, text, texts};
use crate::state::{cohort_or_queue, queue, workload_id};
use crate::verdict::{Differences, Verdict};
use anyhow::Context;
use meridian_objects::plan::PlanObject;
use meridian_queueing::model::{PodSet, PodSetAdmission, QueueId, Shape, Workload};
use meridian_queueing::{NewWorkload, QueueState};
use meridian_shared::gang::Amounts;
use meridian_topology::{Assignment, DomainCount};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) fn load(case: &Case<'_>) -> anyhow::Result<Verdict> {
    if case.act()["topologyUsage"].is_object() {
        return topology_usage(case);
    }
    compare(case, &case.load().state)
}

/// Removes workloads and adds them again.
pub(crate) fn update(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut state = case.load().state;
    let mut removed: BTreeMap<String, (Workload, Shape)> = BTreeMap::new();
    for key in items(&case.act()["remove"]).iter().map(text) {
        let id = workload_id(&state, key)?;
        let shape = state.workload(id).map(|w| (**state.shape_of(w.shape)).clone()).unwrap_or_default();
        if let Some(workload) = state.remove(id) {
            removed.insert(key.to_owned(), (workload, shape));
        }
    }
    for key in items(&case.act()["add"]).iter().map(text) {
        let (workload, shape) = removed.remove(key).with_context(|| format!("`{key}` was not removed"))?;
        let Workload { key, uid, queue, local_queue, since, marks, holding, .. } = workload;
        let holding = holding.with_context(|| format!("`{key}` held no quota"))?;
        let shape = state.intern(shape);
        let new = NewWorkload { key, uid, queue, local_queue, shape, since, marks };
        state.add_holder(new, holding.given, holding.since, holding.evicted, holding.admitted);
    }
    compare(case, &state)
}

fn compare(case: &Case<'_>, state: &QueueState) -> anyhow::Result<Verdict> {
    let mut differences = Differences::default();
    let (mut active, mut inactive) = (BTreeSet::new(), BTreeSet::new());
    for (name, id) in state.queue_list() {
        let queue = state.queue(id);
        let is_active = queue.setup.inactive.is_none() && queue.node.is_some();
        if is_active { &mut active } else { &mut inactive }.insert(name.to_string());
    }
    let names = |value: &Value| -> BTreeSet<String> { fields(value).map(|(name, _)| name.clone()).collect() };
    let expect = case.expect();
    differences.decision("queues", &active, &names(&expect["clusterQueues"]));
    differences.decision("inactive queues", &inactive, &texts(&expect["inactiveClusterQueues"]));
    let cohorts: BTreeSet<String> = state.forest().cohorts().map(|(name, _)| name.to_string()).collect();
    differences.decision("cohorts", &cohorts, &names(&expect["cohorts"]));
    for (name, expected) in fields(&expect["clusterQueues"]) {
        if compare_node(state, "ClusterQueue", name, expected, &mut differences)? {
            compare_parent(state, "ClusterQueue", name, &expected["cohort"], &mut differences)?;
            compare_holders(state, name, &expected["workloads"], &mut differences)?;
        }
    }
    for (name, expected) in fields(&expect["cohorts"]) {
        let known = compare_node(state, "Cohort", name, expected, &mut differences)?;
        if known && !expected["parent"].is_null() {
            compare_parent(state, "Cohort", name, &expected["parent"], &mut differences)?;
        }
    }
    Ok(differences.verdict())
}

/// Compares usage and quota. Returns false if the node doesn't exist, which was compared by name.
fn compare_node(
    state: &QueueState,
    kind: &str,
    name: &str,
    expected: &Value,
    differences: &mut Differences,
) -> anyhow::Result<bool> {
    let Ok(node) = cohort_or_queue(state, kind, name) else { return Ok(false) };
    let usage = cell_amounts(state, node, |cell| cell.usage);
    differences.decision(&format!("usage of `{name}`"), &usage, &flavor_usage(&expected["usage"])?);
    let quota = cell_amounts(state, node, |cell| cell.subtree);
    differences.decision(&format!("quota of `{name}`"), &quota, &flavor_usage(&expected["subtreeQuota"])?);
    Ok(true)
}

fn compare_parent(
    state: &QueueState,
    kind: &str,
    name: &str,
    expected: &Value,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    let parent = state.forest().node(cohort_or_queue(state, kind, name)?).parent;
    let parent = parent.map(|parent| state.forest().node(parent).name.to_string());
    differences.decision(&format!("cohort of `{name}`"), &parent, &expected.as_str().map(str::to_owned));
    Ok(())
}

fn compare_holders(
    state: &QueueState,
    name: &str,
    expected: &Value,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    let holders: BTreeSet<String> = state
        .queue(queue(state, name)?)
        .holders
        .iter()
        .filter_map(|id| state.workload(*id))
        .map(|workload| workload.key.to_string())
        .collect();
    differences.decision(&format!("workloads of `{name}`"), &holders, &texts(expected));
    Ok(())
}

/// Compares the usage of the domains of flavors, which may share hosts.
fn topology_usage(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (act, mut loaded) = (case.act(), case.load());
    let mut domains: BTreeSet<Vec<String>> = BTreeSet::new();
    for (flavor, usages) in fields(&act["topologyUsage"]) {
        for usage in items(usages) {
            let values: Vec<String> = texts(&usage["values"]);
            let domain = DomainCount { values: values.clone(), count: number(&usage["count"])? };
            let placement = Assignment { levels: Vec::new(), domains: vec![domain] };
            place(&mut loaded.state, flavor, &amounts(&usage["singlePodRequests"])?, placement)?;
            domains.insert(values);
        }
    }
    let reapplied = items(&act["reappliedFlavors"]).iter().map(object).collect::<anyhow::Result<Vec<_>>>()?;
    if !reapplied.is_empty() {
        let titles: BTreeSet<String> = reapplied.iter().map(PlanObject::title).collect();
        let others = case.objects.iter().filter(|object| !titles.contains(&object.title()));
        loaded.redeclare(&others.chain(&reapplied).cloned().collect::<Vec<_>>());
    }
    let mut differences = Differences::default();
    for (flavor, expected) in fields(&case.expect()["topologyUsage"]) {
        let id = loaded.state.flavor_id(flavor);
        let mut wanted: BTreeMap<String, Amounts> = BTreeMap::new();
        for (domain, usage) in fields(expected) {
            wanted.insert(domain.clone(), amounts(usage)?);
        }
        let listed = wanted.keys().map(|domain| domain.split(',').map(str::to_owned).collect());
        let used =
            |values: Vec<String>| Some((values.join(","), loaded.state.topology_of(id)?.used_in(&values)?));
        let all = domains.iter().cloned().chain(listed).filter_map(used);
        differences.decision(
            &format!("usage of `{flavor}`"),
            &all.filter(|(_, usage)| !usage.is_empty()).collect(),
            &wanted,
        );
    }
    Ok(differences.verdict())
}

/// Adds a workload that is placed in a flavor's topology.
fn place(
    state: &mut QueueState,
    flavor: &str,
    per_pod: &Amounts,
    placement: Assignment,
) -> anyhow::Result<()> {
    let id = state.flavor_id(flavor);
    let group_of =
        |queue: QueueId| state.queue(queue).setup.groups.iter().find(|group| group.flavors.contains(&id));
    let (queue, resource) = state
        .queue_list()
        .find_map(|(_, queue)| Some((queue, *group_of(queue)?.resources.first()?)))
        .with_context(|| format!("no queue has flavor `{flavor}`"))?;
    let name: Arc<str> = Arc::from(format!("{flavor}/{}", state.workloads().count()));
    let count = placement.pods();
    let set = PodSet { name: name.clone(), count, on_node: per_pod.clone(), ..PodSet::default() };
    let given = PodSetAdmission {
        flavors: BTreeMap::from([(resource, id)]),
        count,
        placement: Some(placement),
        ..PodSetAdmission::default()
    };
    let new = NewWorkload {
        key: name.clone(),
        uid: name.clone(),
        queue,
        local_queue: name,
        shape: state.intern(Shape { pod_sets: vec![set], ..Shape::default() }),
        since: 0,
        marks: None,
    };
    state.add_holder(new, vec![given], 0, false, true);
    Ok(())
}

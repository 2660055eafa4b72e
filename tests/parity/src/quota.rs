//! Group 4: quota, what is available, shares, and the forest; and how much room is kept for who waits.

use crate::case::{
    Case, FlavorUsage, amounts, flavor_usage, found, free_all, items, named_usage, node, object, queue, text,
    use_quota,
};
use crate::verdict::{Differences, Verdict};
use anyhow::{Context, bail};
use meridian_objects::plan::PlanObject;
use meridian_queueing::flavors::{self, Mode, PodSetAssignment};
use meridian_queueing::model::{Given, PodSet, QueueId, Shape, Workload};
use meridian_queueing::tree::{CohortSetup, Forest, Leaf, NodeId, Quotas, WEIGHT_ONE};
use meridian_queueing::{Amount, Brain, NewWorkload};
use meridian_shared::gang::Amounts;
use meridian_topology::{Assignment, DomainCount};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn each(brain: &Brain, node: NodeId, what: impl Fn(&meridian_queueing::tree::Cell) -> Amount) -> FlavorUsage {
    named_usage(brain, brain.forest.cells(node).map(|(key, cell)| (key, what(cell))))
}

fn free(brain: &Brain, node: NodeId) -> FlavorUsage {
    let tree = brain.forest.node(node).tree;
    let at = |key| {
        brain.forest.find_cell(tree, key).map_or(Amount::ZERO, |cell| brain.forest.available(node, cell))
    };
    named_usage(brain, brain.forest.cells(node).map(|(key, _)| (key, at(key))))
}

/// The cells that a case says something about.
fn among(mut all: FlavorUsage, listed: &FlavorUsage) -> FlavorUsage {
    all.retain(|flavor, _| listed.contains_key(flavor));
    for (flavor, resources) in &mut all {
        resources.retain(|resource, _| listed[flavor].contains_key(resource));
    }
    all
}

pub(crate) fn available(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut brain = case.load().brain;
    let mut differences = Differences::default();
    let queues = |field: &str| -> anyhow::Result<Vec<(String, FlavorUsage)>> {
        case.expect()[field]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, usage)| Ok((name.clone(), flavor_usage(usage)?)))
            .collect()
    };
    let potential = queues("potentiallyAvailable")?;
    for when in ["before", "used", "after"] {
        if when == "used" {
            use_quota(&mut brain, &case.act()["usage"])?;
            for (name, expected) in queues("available")? {
                differences.decision(
                    &format!("`{name}` available"),
                    &among(free(&brain, node(&brain, &name)?), &expected),
                    &expected,
                );
            }
            for (name, expected) in &potential {
                let most = each(&brain, node(&brain, name)?, |cell| cell.potential);
                differences.decision(&format!("`{name}` potentially"), &among(most, expected), expected);
            }
            free_all(&mut brain);
            continue;
        }
        for (name, expected) in &potential {
            differences.decision(
                &format!("`{name}` available {when}"),
                &among(free(&brain, node(&brain, name)?), expected),
                expected,
            );
        }
    }
    Ok(differences.verdict())
}

fn of_kind(brain: &Brain, kind: &str, name: &str) -> anyhow::Result<NodeId> {
    if kind == "Cohort" {
        brain.forest.cohort(name).with_context(|| format!("cohort `{name}` isn't there"))
    } else {
        node(brain, name)
    }
}

pub(crate) fn shares(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut brain = case.load().brain;
    use_quota(&mut brain, &case.act()["usage"])?;
    let extra = flavor_usage(&case.act()["extraRequest"])?;
    let mut differences = Differences::default();
    for expected in items(&case.expect()["shares"]) {
        let name = text(&expected["name"]);
        let at = of_kind(&brain, text(&expected["kind"]), name)?;
        let tree = brain.forest.tree(brain.forest.node(at).tree);
        let more = |cell: meridian_queueing::tree::CellId| {
            let (flavor, resource) = tree.cells[meridian_queueing::names::Id::index(cell)];
            let of = extra
                .get(&**brain.flavor_name(flavor))
                .and_then(|of| of.get(&**brain.resource_name(resource)));
            Amount(of.copied().unwrap_or(0))
        };
        let share = brain.forest.share_with(at, &more);
        let dominant = share.dominant.map_or("", |resource| brain.resource_name(resource));
        let is = (share.rounded(), dominant, share.borrowing);
        let wanted = (
            expected["share"].as_i64().unwrap_or(0),
            text(&expected["dominantResource"]),
            expected["borrowing"] == true,
        );
        differences.decision(name, &is, &wanted);
    }
    Ok(differences.verdict())
}

pub(crate) fn borrowing(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut brain = case.load().brain;
    use_quota(&mut brain, &case.act()["usage"])?;
    let at = node(&brain, text(&case.act()["clusterQueue"]))?;
    let requested = flavor_usage(&case.act()["requested"])?;
    let wanted =
        |flavor: &str, resource: &str| requested.get(flavor).is_some_and(|of| of.contains_key(resource));
    // Who has no cohort has nobody to borrow from.
    let shares = brain.forest.node(at).parent.is_some();
    let on_requested = brain.forest.cells(at).filter(|_| shares).any(|((flavor, resource), cell)| {
        wanted(brain.flavor_name(flavor), brain.resource_name(resource))
            && cell.declared
            && cell.borrows_with(Amount::ZERO)
    });
    let mut differences = Differences::default();
    differences.decision(
        "borrowing",
        &brain.forest.share(at).borrowing,
        &(case.expect()["borrowing"] == true),
    );
    differences.decision(
        "borrowing on what is requested",
        &on_requested,
        &(case.expect()["borrowingOnRequested"] == true),
    );
    Ok(differences.verdict())
}

pub(crate) fn reserve(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (mut brain, act) = (case.load().brain, case.act());
    use_quota(&mut brain, &act["usage"])?;
    let queue = queue(&brain, text(&act["clusterQueue"]))?;
    let shape = brain.intern(Shape::default());
    let name: Arc<str> = Arc::from("who asks");
    let workload = brain.wait(NewWorkload {
        key: name.clone(),
        uid: name.clone(),
        queue,
        local_queue: name,
        shape,
        since: 0,
        marks: None,
    });
    let written = &act["assignment"];
    let mut assignment = flavors::Assignment::default();
    assignment.pod_sets.push(PodSetAssignment::default());
    assignment.set_mode(mode(&written["representativeMode"])?);
    assignment.borrowing = u32::try_from(written["borrowing"].as_u64().unwrap_or(0))?;
    for (flavor, resources) in flavor_usage(&written["usage"])? {
        for (resource, amount) in resources {
            assignment.usage.push(((brain.flavor_id(&flavor), brain.resource(&resource)), Amount(amount)));
        }
    }
    let tree = brain.queue(queue).tree.context("the queue has no place")?;
    let kept = brain.room_to_keep(workload, queue, &assignment);
    let cells = &brain.forest.tree(tree).cells;
    let kept = named_usage(
        &brain,
        kept.into_iter().map(|(cell, amount)| (cells[meridian_queueing::names::Id::index(cell)], amount)),
    );
    let mut differences = Differences::default();
    differences.decision("reserved", &kept, &flavor_usage(&case.expect()["reserved"])?);
    Ok(differences.verdict())
}

/// A mode by Kueue's word.
pub(crate) fn mode(word: &Value) -> anyhow::Result<Mode> {
    Ok(match text(word) {
        "NoFit" => Mode::NoFit,
        "Preempt" => Mode::Preempt,
        "DeferredFit" => Mode::DeferredFit,
        "Fit" => Mode::Fit,
        other => bail!("`{other}` is no mode"),
    })
}

pub(crate) fn snapshot(case: &Case<'_>) -> anyhow::Result<Verdict> {
    if case.act()["topologyUsage"].is_object() {
        return topology_usage(case);
    }
    compare_snapshot(case, &case.load().brain)
}

/// Judges what is used of the domains of flavors, which may share hosts.
fn topology_usage(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (act, mut loaded) = (case.act(), case.load());
    let mut domains: BTreeSet<Vec<String>> = BTreeSet::new();
    for (flavor, usages) in act["topologyUsage"].as_object().into_iter().flatten() {
        for usage in items(usages) {
            let values: Vec<String> =
                items(&usage["values"]).iter().map(|value| text(value).to_owned()).collect();
            let count = u32::try_from(usage["count"].as_u64().unwrap_or(0))?;
            let placed = Assignment {
                levels: Vec::new(),
                domains: vec![DomainCount { values: values.clone(), count }],
            };
            hold_place(&mut loaded.brain, flavor, &amounts(&usage["singlePodRequests"])?, placed)?;
            domains.insert(values);
        }
    }
    let anew = items(&act["reappliedFlavors"]).iter().map(object).collect::<anyhow::Result<Vec<_>>>()?;
    if !anew.is_empty() {
        let titles: BTreeSet<String> = anew.iter().map(PlanObject::title).collect();
        let kept = case.objects.iter().filter(|object| !titles.contains(&object.title()));
        loaded.redeclare(&kept.chain(&anew).cloned().collect::<Vec<_>>());
    }
    let mut differences = Differences::default();
    for (flavor, expected) in case.expect()["topologyUsage"].as_object().into_iter().flatten() {
        let id = loaded.brain.flavor_id(flavor);
        let expected: BTreeMap<String, Amounts> = expected
            .as_object()
            .into_iter()
            .flatten()
            .map(|(domain, of)| Ok((domain.clone(), amounts(of)?)))
            .collect::<anyhow::Result<_>>()?;
        let all = domains
            .iter()
            .cloned()
            .chain(expected.keys().map(|domain| domain.split(',').map(str::to_owned).collect()));
        let used =
            |values: Vec<String>| Some((values.join(","), loaded.brain.topology_of(id)?.used_in(&values)?));
        differences.decision(
            &format!("use of `{flavor}`"),
            &all.filter_map(used).filter(|(_, of)| !of.is_empty()).collect(),
            &expected,
        );
    }
    Ok(differences.verdict())
}

/// Somebody's pods lie in a domain of a flavor.
fn hold_place(brain: &mut Brain, flavor: &str, per_pod: &Amounts, placed: Assignment) -> anyhow::Result<()> {
    let id = brain.flavor_id(flavor);
    let offers =
        |queue: QueueId| brain.queue(queue).setup.groups.iter().find(|group| group.flavors.contains(&id));
    let (queue, resource) = brain
        .queue_list()
        .find_map(|(_, queue)| Some((queue, *offers(queue)?.resources.first()?)))
        .with_context(|| format!("no queue offers flavor `{flavor}`"))?;
    let name: Arc<str> = Arc::from(format!("{flavor}/{}", brain.workloads().count()));
    let set =
        PodSet { name: name.clone(), count: placed.pods(), on_node: per_pod.clone(), ..PodSet::default() };
    let given = Given {
        flavors: BTreeMap::from([(resource, id)]),
        count: set.count,
        placement: Some(placed),
        ..Given::default()
    };
    let shape = brain.intern(Shape { pod_sets: vec![set], ..Shape::default() });
    brain.hold(
        NewWorkload {
            key: name.clone(),
            uid: name.clone(),
            queue,
            local_queue: name,
            shape,
            since: 0,
            marks: None,
        },
        vec![given],
        0,
        false,
        true,
    );
    Ok(())
}

pub(crate) fn snapshot_update(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut brain = case.load().brain;
    let mut gone: BTreeMap<String, (Workload, Shape)> = BTreeMap::new();
    for key in items(&case.act()["remove"]).iter().map(text) {
        let id = found(&brain, key)?;
        let shape =
            brain.workload(id).map(|workload| (**brain.shape_of(workload.shape)).clone()).unwrap_or_default();
        if let Some(workload) = brain.remove(id) {
            gone.insert(key.to_owned(), (workload, shape));
        }
    }
    for key in items(&case.act()["add"]).iter().map(text) {
        let (Workload { key, uid, queue, local_queue, since, marks, holding, .. }, shape) =
            gone.remove(key).with_context(|| format!("`{key}` isn't gone"))?;
        let holding = holding.with_context(|| format!("`{key}` holds nothing"))?;
        let shape = brain.intern(shape);
        brain.hold(
            NewWorkload { key, uid, queue, local_queue, shape, since, marks },
            holding.given,
            holding.since,
            holding.evicted,
            holding.admitted,
        );
    }
    compare_snapshot(case, &brain)
}

fn compare_snapshot(case: &Case<'_>, brain: &Brain) -> anyhow::Result<Verdict> {
    let mut differences = Differences::default();
    let (mut active, mut inactive) = (BTreeSet::new(), BTreeSet::new());
    for (name, id) in brain.queue_list() {
        let queue = brain.queue(id);
        let on = queue.setup.inactive.is_none() && queue.node.is_some();
        if on { &mut active } else { &mut inactive }.insert(name.to_string());
    }
    let names = |value: &Value| -> BTreeSet<String> {
        value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let expect = case.expect();
    differences.decision("queues", &active, &names(&expect["clusterQueues"]));
    differences.decision(
        "inactive queues",
        &inactive,
        &items(&expect["inactiveClusterQueues"]).iter().map(|name| text(name).to_owned()).collect(),
    );
    let cohorts: BTreeSet<String> = brain.forest.cohorts().map(|(name, _)| name.to_string()).collect();
    differences.decision("cohorts", &cohorts, &names(&expect["cohorts"]));
    for (kind, field) in [("ClusterQueue", "clusterQueues"), ("Cohort", "cohorts")] {
        for (name, expected) in expect[field].as_object().into_iter().flatten() {
            let Ok(at) = of_kind(brain, kind, name) else { continue };
            differences.decision(
                &format!("use of `{name}`"),
                &each(brain, at, |cell| cell.usage),
                &flavor_usage(&expected["usage"])?,
            );
            differences.decision(
                &format!("quota of `{name}`"),
                &each(brain, at, |cell| cell.subtree),
                &flavor_usage(&expected["subtreeQuota"])?,
            );
            let above = brain.forest.node(at).parent.map(|parent| brain.forest.node(parent).name.to_string());
            let parent = if kind == "Cohort" { "parent" } else { "cohort" };
            if kind == "ClusterQueue" || !expected[parent].is_null() {
                differences.decision(
                    &format!("cohort of `{name}`"),
                    &above,
                    &expected[parent].as_str().map(str::to_owned),
                );
            }
            if kind == "ClusterQueue" {
                let holders: BTreeSet<String> = brain
                    .queue(queue(brain, name)?)
                    .holders
                    .iter()
                    .filter_map(|id| brain.workload(*id))
                    .map(|w| w.key.to_string())
                    .collect();
                differences.decision(
                    &format!("workloads of `{name}`"),
                    &holders,
                    &items(&expected["workloads"]).iter().map(|w| text(w).to_owned()).collect(),
                );
            }
        }
    }
    Ok(differences.verdict())
}

/// Objects come and go; the forest is what they make. A cohort without an object is there while something below names it.
pub(crate) fn hierarchy(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut declared: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut parents: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    let mut queues: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    for written in items(&case.act()["ops"]) {
        let word = |at: usize| text(&written[at]);
        let name: Arc<str> = Arc::from(word(1));
        let above = Some(word(2)).filter(|above| !above.is_empty()).map(Arc::from);
        match word(0) {
            "add-cohort" => {
                declared.insert(name);
            }
            "set-cohort-parent" => {
                parents.insert(name, above);
            }
            "delete-cohort" => {
                declared.remove(&name);
                parents.remove(&name);
            }
            "add-cluster-queue" => {
                queues.entry(name).or_default();
            }
            "set-cluster-queue-cohort" => {
                queues.insert(name, above);
            }
            "delete-cluster-queue" => {
                queues.remove(&name);
            }
            other => bail!("`{other}` is no operation"),
        }
    }
    let mut cohorts: BTreeMap<Arc<str>, CohortSetup> = BTreeMap::new();
    let mut found: Vec<Arc<str>> = declared.into_iter().chain(queues.values().flatten().cloned()).collect();
    while let Some(name) = found.pop() {
        let parent = parents.get(&name).cloned().flatten();
        if cohorts.insert(name, CohortSetup { parent: parent.clone(), ..CohortSetup::default() }).is_none() {
            found.extend(parent);
        }
    }
    let leaves: Vec<Leaf> = queues
        .iter()
        .map(|(name, cohort)| Leaf {
            name: name.clone(),
            cohort: cohort.clone(),
            quotas: Quotas::new(),
            weight: WEIGHT_ONE,
        })
        .collect();
    let (forest, _) = Forest::build(&cohorts, &leaves);
    let (expect, mut differences) = (case.expect(), Differences::default());
    for (name, cyclic) in expect["inCycle"].as_object().into_iter().flatten() {
        differences.decision(
            &format!("`{name}` in a cycle"),
            &forest.in_cycles().contains(name.as_str()),
            &(cyclic == true),
        );
    }
    if expect["cohorts"].is_array() {
        let edges = |cohort: bool| -> BTreeSet<Vec<String>> {
            let of = forest.nodes().filter(|(_, node)| node.cohort == cohort);
            of.filter_map(|(_, node)| {
                Some(vec![node.name.to_string(), forest.node(node.parent?).name.to_string()])
            })
            .collect()
        };
        let all = |cohort: bool| -> BTreeSet<String> {
            forest
                .nodes()
                .filter(|(_, node)| node.cohort == cohort)
                .map(|(_, node)| node.name.to_string())
                .collect()
        };
        let names = |value: &Value| -> BTreeSet<String> {
            items(value).iter().map(|name| text(name).to_owned()).collect()
        };
        let pairs = |value: &Value| -> BTreeSet<Vec<String>> {
            items(value)
                .iter()
                .map(|pair| items(pair).iter().map(|name| text(name).to_owned()).collect())
                .collect()
        };
        differences.decision("cohorts", &all(true), &names(&expect["cohorts"]));
        differences.decision("queues", &all(false), &names(&expect["clusterQueues"]));
        differences.decision("cohorts of queues", &edges(false), &pairs(&expect["clusterQueueCohort"]));
        differences.decision("parents of cohorts", &edges(true), &pairs(&expect["cohortParent"]));
    }
    Ok(differences.verdict())
}

/// A cluster queue that a case takes for granted.
pub(crate) fn bare_queue(name: &str, usage_based: bool) -> anyhow::Result<PlanObject> {
    let mode = if usage_based { "UsageBasedAdmissionFairSharing" } else { "NoAdmissionFairSharing" };
    object(&serde_json::json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {"queueingStrategy": "BestEffortFIFO", "namespaceSelector": {}, "admissionScope": {"admissionMode": mode}},
    }))
}

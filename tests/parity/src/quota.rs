//! Group 4: available quota, shares, borrowing, and reserved quota.

pub(crate) mod hierarchy;
pub(crate) mod snapshot;

use crate::case::Case;
use crate::json::{FlavorUsage, fields, flavor_usage, items, mode, number, text};
use crate::state::{add_usage, clear_usage, cohort_or_queue, named_usage, node, queue};
use crate::verdict::{Differences, Verdict};
use anyhow::Context;
use meridian_queueing::flavors::{self, PodSetAssignment};
use meridian_queueing::model::Shape;
use meridian_queueing::names::Id;
use meridian_queueing::quota::{Cell, CellId, NodeId};
use meridian_queueing::{Amount, NewWorkload, QueueState};
use serde_json::Value;
use std::sync::Arc;

/// One amount of each cell of a node.
fn cell_amounts(state: &QueueState, node: NodeId, amount: impl Fn(&Cell) -> Amount) -> FlavorUsage {
    named_usage(state, state.forest().cells(node).map(|(key, cell)| (key, amount(cell))))
}

fn available_quota(state: &QueueState, node: NodeId) -> FlavorUsage {
    let tree = state.forest().node(node).tree;
    let available = |key| {
        let cell = state.forest().find_cell(tree, key);
        cell.map_or(Amount::ZERO, |cell| state.forest().available(node, cell))
    };
    named_usage(state, state.forest().cells(node).map(|(key, _)| (key, available(key))))
}

/// Keeps the entries that the case lists.
fn only_listed(mut all: FlavorUsage, listed: &FlavorUsage) -> FlavorUsage {
    all.retain(|flavor, _| listed.contains_key(flavor));
    for (flavor, resources) in &mut all {
        resources.retain(|resource, _| listed[flavor].contains_key(resource));
    }
    all
}

/// Compares the available quota before usage is added, with the usage, and after its removal.
pub(crate) fn available(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut state = case.load().state;
    let mut differences = Differences::default();
    let expected = |field: &str| -> anyhow::Result<Vec<(String, FlavorUsage)>> {
        let queues = fields(&case.expect()[field]);
        queues.map(|(name, usage)| Ok((name.clone(), flavor_usage(usage)?))).collect()
    };
    let potential = expected("potentiallyAvailable")?;
    compare_available(&state, &potential, "before", &mut differences)?;
    add_usage(&mut state, &case.act()["usage"])?;
    compare_available(&state, &expected("available")?, "used", &mut differences)?;
    for (name, expected) in &potential {
        let most = cell_amounts(&state, node(&state, name)?, |cell| cell.potential);
        differences.decision(&format!("`{name}` potentially"), &only_listed(most, expected), expected);
    }
    clear_usage(&mut state);
    compare_available(&state, &potential, "after", &mut differences)?;
    Ok(differences.verdict())
}

fn compare_available(
    state: &QueueState,
    queues: &[(String, FlavorUsage)],
    when: &str,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    for (name, expected) in queues {
        let available = only_listed(available_quota(state, node(state, name)?), expected);
        differences.decision(&format!("`{name}` available {when}"), &available, expected);
    }
    Ok(())
}

pub(crate) fn shares(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut state = case.load().state;
    add_usage(&mut state, &case.act()["usage"])?;
    let extra = flavor_usage(&case.act()["extraRequest"])?;
    let mut differences = Differences::default();
    for expected in items(&case.expect()["shares"]) {
        let name = text(&expected["name"]);
        let node = cohort_or_queue(&state, text(&expected["kind"]), name)?;
        let tree = state.forest().tree(state.forest().node(node).tree);
        let requested = |cell: CellId| {
            let (flavor, resource) = tree.cells[cell.index()];
            let resources = extra.get(&**state.flavor_name(flavor));
            let amount = resources.and_then(|resources| resources.get(&**state.resource_name(resource)));
            Amount(amount.copied().unwrap_or(0))
        };
        let share = state.forest().share_with(node, &requested);
        let dominant = share.dominant.map_or("", |resource| state.resource_name(resource));
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
    let mut state = case.load().state;
    add_usage(&mut state, &case.act()["usage"])?;
    let node = node(&state, text(&case.act()["clusterQueue"]))?;
    let requested = flavor_usage(&case.act()["requested"])?;
    let is_requested = |flavor: &str, resource: &str| {
        requested.get(flavor).is_some_and(|resources| resources.contains_key(resource))
    };
    // Without a cohort there is nothing to borrow.
    let has_cohort = state.forest().node(node).parent.is_some();
    let on_requested = has_cohort
        && state.forest().cells(node).any(|((flavor, resource), cell)| {
            is_requested(state.flavor_name(flavor), state.resource_name(resource))
                && cell.declared
                && cell.borrows_with(Amount::ZERO)
        });
    let (expect, mut differences) = (case.expect(), Differences::default());
    let borrowing = state.forest().share(node).borrowing;
    differences.decision("borrowing", &borrowing, &(expect["borrowing"] == true));
    differences.decision("borrowing on requested", &on_requested, &(expect["borrowingOnRequested"] == true));
    Ok(differences.verdict())
}

/// Quota that a cycle reserves for an entry that isn't admitted.
pub(crate) fn reserve(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (mut state, act) = (case.load().state, case.act());
    add_usage(&mut state, &act["usage"])?;
    let queue = queue(&state, text(&act["clusterQueue"]))?;
    let name: Arc<str> = Arc::from("entry");
    let new = NewWorkload {
        key: name.clone(),
        uid: name.clone(),
        queue,
        local_queue: name,
        shape: state.intern(Shape::default()),
        since: 0,
        marks: None,
    };
    let workload = state.add_pending(new);
    let assignment = reserve_assignment(&mut state, &act["assignment"])?;
    let tree = state.queue(queue).tree.context("the queue is not in the forest")?;
    let reserved = state.quota_to_reserve(workload, queue, &assignment);
    let cells = &state.forest().tree(tree).cells;
    let reserved =
        named_usage(&state, reserved.into_iter().map(|(cell, amount)| (cells[cell.index()], amount)));
    let mut differences = Differences::default();
    differences.decision("reserved", &reserved, &flavor_usage(&case.expect()["reserved"])?);
    Ok(differences.verdict())
}

fn reserve_assignment(state: &mut QueueState, value: &Value) -> anyhow::Result<flavors::Assignment> {
    let mut assignment = flavors::Assignment::default();
    assignment.pod_sets.push(PodSetAssignment::default());
    assignment.set_mode(mode(&value["representativeMode"])?);
    assignment.borrowing = number(&value["borrowing"])?;
    for (flavor, resources) in flavor_usage(&value["usage"])? {
        for (resource, amount) in resources {
            let key = (state.flavor_id(&flavor), state.resource(&resource));
            assignment.usage.push((key, Amount(amount)));
        }
    }
    Ok(assignment)
}

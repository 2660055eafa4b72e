//! Quota and shares: what queues and cohorts have, use, borrow and lend.

use super::{path_of, path_of_queue, waiting};
use meridian_queueing::model::{Inactive, Queue as Declared, QueueId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::tree::{Cell, CellId, Forest, NodeId, WEIGHT_ONE};
use meridian_queueing::{Amount, Brain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A cluster queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The cohort that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// Its path of cohorts, from the root.
    pub path: String,
    /// `StrictFIFO` or `BestEffortFIFO`.
    pub strategy: String,
    /// Why it admits nothing, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// Workloads that wait.
    pub waiting: usize,
    /// Workloads that hold quota.
    pub holding: usize,
    /// Its share.
    pub share: Share,
    /// Quota by flavor and resource, in the order in which flavors are tried.
    pub quota: Vec<Use>,
}

/// A cohort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cohort {
    /// Its name.
    pub name: String,
    /// The cohort above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its path, from the root.
    pub path: String,
    /// Its share.
    pub share: Share,
    /// Quota by flavor and resource: what it has to share, and what of it is used.
    pub quota: Vec<Use>,
}

/// How much of what could be lent a node has borrowed, by its weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Thousandths, rounded up, as Kueue states it; the largest number for who borrows with the weight 0.
    pub weighted: i64,
    /// Its weight.
    pub weight: String,
    /// The resource that decides; none where nothing is borrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant_resource: Option<String>,
}

/// Quota of one flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Its own quota; a cohort's is what its children lend besides.
    pub nominal: String,
    /// What is used of it; at a cohort without what its queues keep for themselves.
    pub used: String,
    /// What of the use is others' quota.
    pub borrowed: String,
    /// What of its own quota others use. Quota has no names on it: it is taken to come from who has most of it unused.
    pub lent: String,
    /// What could be used besides, without displacing anybody.
    pub available: String,
    /// Most that may be borrowed, where there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<String>,
    /// Most that may be lent, where there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<String>,
}

type Key = (FlavorId, ResourceId);
type Lent = BTreeMap<(NodeId, Key), Amount>;

/// Queues by name, cohorts by path.
pub(super) fn list(brain: &Brain) -> (Vec<Queue>, Vec<Cohort>) {
    let lent = lent(&brain.forest);
    let queues = brain.queue_list().map(|(_, id)| queue(brain, id, &lent)).collect();
    let mut cohorts: Vec<Cohort> = brain.forest.cohorts().map(|(_, id)| cohort(brain, id, &lent)).collect();
    cohorts.sort_by(|a, b| a.path.cmp(&b.path));
    (queues, cohorts)
}

fn queue(brain: &Brain, id: QueueId, lent: &Lent) -> Queue {
    let of = brain.queue(id);
    let cycle = of.node.is_none().then_some(&Inactive::CohortCycle);
    Queue {
        name: of.setup.name.to_string(),
        cohort: of.setup.cohort.as_ref().map(ToString::to_string),
        path: path_of_queue(brain, id),
        strategy: if of.setup.strict { "StrictFIFO" } else { "BestEffortFIFO" }.to_owned(),
        inactive: of.setup.inactive.as_ref().or(cycle).map(waiting::inactive),
        waiting: brain.pending(id).len(),
        holding: of.holders.len(),
        share: of.node.map_or_else(
            || Share { weighted: 0, weight: weight_text(of.setup.weight), dominant_resource: None },
            |node| share(brain, node),
        ),
        quota: of.node.map(|node| queue_quota(brain, of, node, lent)).unwrap_or_default(),
    }
}

/// The declared cells in the order of the flavors, then whatever else is used.
fn queue_quota(brain: &Brain, queue: &Declared, node: NodeId, lent: &Lent) -> Vec<Use> {
    let groups = &queue.setup.groups;
    let declared = groups
        .iter()
        .flat_map(|g| g.flavors.iter().flat_map(|f| g.resources.iter().map(|r| (*f, *r))))
        .filter(|k| queue.setup.quotas.contains_key(k));
    let mut keys: Vec<Key> = declared.collect();
    let besides = brain
        .forest
        .cells(node)
        .filter(|(key, cell)| cell.usage > Amount::ZERO && !queue.setup.quotas.contains_key(key));
    keys.extend(besides.map(|(key, _)| key));
    keys.into_iter().filter_map(|key| use_of(brain, node, key, lent)).collect()
}

fn cohort(brain: &Brain, id: NodeId, lent: &Lent) -> Cohort {
    let node = brain.forest.node(id);
    let mut keys: Vec<Key> = brain
        .forest
        .cells(id)
        .filter(|(_, cell)| cell.declared || cell.usage > Amount::ZERO)
        .map(|(key, _)| key)
        .collect();
    keys.sort_by_key(|(flavor, resource)| (brain.flavor_name(*flavor), brain.resource_name(*resource)));
    Cohort {
        name: node.name.to_string(),
        parent: node.parent.map(|parent| brain.forest.node(parent).name.to_string()),
        path: path_of(brain, id),
        share: share(brain, id),
        quota: keys.into_iter().filter_map(|key| use_of(brain, id, key, lent)).collect(),
    }
}

fn use_of(brain: &Brain, node: NodeId, key: Key, lent: &Lent) -> Option<Use> {
    let (flavor, resource) = key;
    let id = brain.forest.find_cell(brain.forest.node(node).tree, key)?;
    let cell = brain.forest.cell(node, id);
    let text = |amount: Amount| brain.amount_text(resource, amount);
    Some(Use {
        flavor: brain.flavor_name(flavor).to_string(),
        resource: brain.resource_name(resource).to_string(),
        nominal: text(cell.subtree),
        used: text(cell.usage),
        borrowed: text(borrowed(cell)),
        lent: text(lent.get(&(node, key)).copied().unwrap_or_default()),
        available: text(brain.forest.available(node, id)),
        borrowing_limit: cell.quota.borrowing_limit.map(text),
        lending_limit: cell.quota.lending_limit.map(text),
    })
}

fn share(brain: &Brain, node: NodeId) -> Share {
    let share = brain.forest.share(node);
    let dominant_resource = share.dominant.map(|resource| brain.resource_name(resource).to_string());
    Share { weighted: share.rounded(), weight: weight_text(share.weight), dominant_resource }
}

/// A weight in billionths as a decimal number.
fn weight_text(billionths: i64) -> String {
    let (whole, rest) = (billionths / WEIGHT_ONE, billionths % WEIGHT_ONE);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:09}").trim_end_matches('0').to_owned()
}

fn borrowed(cell: &Cell) -> Amount {
    (cell.usage - cell.subtree).floor()
}

/// What is unused of what a node lends.
fn unused(cell: &Cell) -> Amount {
    (cell.subtree - cell.usage.max(cell.local)).floor()
}

/// Whose quota borrowers use. In each cohort, what its children borrow comes first from the cohort's own quota, then from above
/// it as far as the cohort borrows itself, then from the child with most of it unused, and so on.
fn lent(forest: &Forest) -> Lent {
    let mut lent = Lent::new();
    let roots = forest.nodes().filter(|(_, node)| node.cohort && node.parent.is_none());
    for (root, _) in roots {
        for (at, key) in forest.tree(forest.node(root).tree).cells.iter().enumerate() {
            let cell = CellId(u32::try_from(at).unwrap_or(u32::MAX));
            lend(forest, root, (*key, cell), Amount::ZERO, &mut lent);
        }
    }
    lent
}

fn lend(forest: &Forest, cohort: NodeId, of: (Key, CellId), to_above: Amount, lent: &mut Lent) {
    let (key, cell) = of;
    let node = forest.node(cohort);
    let children: Vec<NodeId> = node.cohorts.iter().chain(&node.queues).copied().collect();
    let here = forest.cell(cohort, cell);
    let taken = children.iter().fold(to_above, |sum, child| sum + borrowed(forest.cell(*child, cell)));
    let mut left = (taken - here.quota.nominal - borrowed(here)).floor();
    let mut lenders: Vec<(Amount, NodeId)> =
        children.into_iter().map(|child| (unused(forest.cell(child, cell)), child)).collect();
    // The sort is stable: equals stay in the order of their declaration.
    lenders.sort_by_key(|(unused, _)| std::cmp::Reverse(*unused));
    for (unused, lender) in lenders {
        let part = left.min(unused).floor();
        left = left - part;
        if part > Amount::ZERO {
            lent.insert((lender, key), part);
        }
        if forest.node(lender).cohort {
            lend(forest, lender, of, part, lent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_decimal_numbers() {
        for (billionths, text) in [
            (WEIGHT_ONE, "1"),
            (0, "0"),
            (WEIGHT_ONE / 2, "0.5"),
            (2_250_000_000, "2.25"),
            (1, "0.000000001"),
        ] {
            assert_eq!(weight_text(billionths), text);
        }
    }
}

//! Quota of each queue and cohort: amounts owned, used, borrowed and lent, and shares.

use super::paths::{node_path, queue_path};
use crate::load::inactive_message;
use meridian_queueing::model::{Inactive, Queue, QueueId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::quota::{Cell, CellId, Forest, NodeId, WEIGHT_ONE};
use meridian_queueing::{Amount, QueueState};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueUsage {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// Path through the cohorts, from the root.
    pub path: String,
    /// `StrictFIFO` or `BestEffortFIFO`.
    pub strategy: String,
    /// Why the queue is inactive, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// Number of pending workloads.
    pub waiting: usize,
    /// Number of workloads that hold quota.
    pub holding: usize,
    pub share: ShareStatus,
    /// By flavor and resource, in the order in which flavors are tried.
    pub quota: Vec<QuotaUsage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortUsage {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Path from the root.
    pub path: String,
    pub share: ShareStatus,
    /// By flavor and resource: the quota that the cohort's members share, and its usage.
    pub quota: Vec<QuotaUsage>,
}

/// Fair share: the amount that a queue or cohort borrows, relative to the amount that could be lent to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareStatus {
    /// In thousandths, divided by the weight and rounded up, as in Kueue's status. `i64::MAX` if the weight
    /// is 0 and anything is borrowed.
    pub weighted: i64,
    pub weight: String,
    /// The resource with the largest share; left out if nothing is borrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant_resource: Option<String>,
}

/// Quota of one flavor and resource. All amounts are quantities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaUsage {
    pub flavor: String,
    pub resource: String,
    /// Own quota. For a cohort, includes the quota that its members lend.
    pub nominal: String,
    /// Usage. For a cohort, excludes the usage of quota that its members don't lend.
    pub used: String,
    /// The part of the usage that exceeds the own quota.
    pub borrowed: String,
    /// The part of the own quota that others use. An attribution, because it isn't recorded whose quota a
    /// borrower uses; see [`lent_quota`].
    pub lent: String,
    /// Quota that is available without preemption.
    pub available: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<String>,
}

type FlavorResource = (FlavorId, ResourceId);
type LentQuota = BTreeMap<(NodeId, FlavorResource), Amount>;

/// Queues by name, cohorts by path.
pub(super) fn list(state: &QueueState) -> (Vec<QueueUsage>, Vec<CohortUsage>) {
    let lent = lent_quota(state.forest());
    let queues = state.queue_list().map(|(_, id)| queue_usage(state, id, &lent)).collect();
    let mut cohorts: Vec<CohortUsage> =
        state.forest().cohorts().map(|(_, id)| cohort_usage(state, id, &lent)).collect();
    cohorts.sort_by(|a, b| a.path.cmp(&b.path));
    (queues, cohorts)
}

fn queue_usage(state: &QueueState, id: QueueId, lent: &LentQuota) -> QueueUsage {
    let queue = state.queue(id);
    let cycle = queue.node.is_none().then_some(&Inactive::CohortCycle);
    let share = match queue.node {
        Some(node) => share_status(state, node),
        None => ShareStatus { weighted: 0, weight: weight_text(queue.setup.weight), dominant_resource: None },
    };
    QueueUsage {
        name: queue.setup.name.to_string(),
        cohort: queue.setup.cohort.as_ref().map(ToString::to_string),
        path: queue_path(state, id),
        strategy: if queue.setup.strict { "StrictFIFO" } else { "BestEffortFIFO" }.to_owned(),
        inactive: queue.setup.inactive.as_ref().or(cycle).map(inactive_message),
        waiting: state.pending(id).len(),
        holding: queue.holders.len(),
        share,
        quota: queue.node.map(|node| queue_quota(state, queue, node, lent)).unwrap_or_default(),
    }
}

/// The declared quota in the order of the flavors, then usage without declared quota.
fn queue_quota(state: &QueueState, queue: &Queue, node: NodeId, lent: &LentQuota) -> Vec<QuotaUsage> {
    let quotas = &queue.setup.quotas;
    let mut keys: Vec<FlavorResource> = Vec::new();
    for group in &queue.setup.groups {
        for flavor in &group.flavors {
            let of_flavor = group.resources.iter().map(|resource| (*flavor, *resource));
            keys.extend(of_flavor.filter(|key| quotas.contains_key(key)));
        }
    }
    let undeclared = state
        .forest()
        .cells(node)
        .filter(|(key, cell)| cell.usage > Amount::ZERO && !quotas.contains_key(key));
    keys.extend(undeclared.map(|(key, _)| key));
    keys.into_iter().filter_map(|key| quota_usage(state, node, key, lent)).collect()
}

fn cohort_usage(state: &QueueState, id: NodeId, lent: &LentQuota) -> CohortUsage {
    let node = state.forest().node(id);
    let mut keys: Vec<FlavorResource> = state
        .forest()
        .cells(id)
        .filter(|(_, cell)| cell.declared || cell.usage > Amount::ZERO)
        .map(|(key, _)| key)
        .collect();
    keys.sort_by_key(|(flavor, resource)| (state.flavor_name(*flavor), state.resource_name(*resource)));
    CohortUsage {
        name: node.name.to_string(),
        parent: node.parent.map(|parent| state.forest().node(parent).name.to_string()),
        path: node_path(state, id),
        share: share_status(state, id),
        quota: keys.into_iter().filter_map(|key| quota_usage(state, id, key, lent)).collect(),
    }
}

fn quota_usage(
    state: &QueueState,
    node: NodeId,
    key: FlavorResource,
    lent: &LentQuota,
) -> Option<QuotaUsage> {
    let (flavor, resource) = key;
    let id = state.forest().find_cell(state.forest().node(node).tree, key)?;
    let cell = state.forest().cell(node, id);
    let text = |amount: Amount| state.amount_text(resource, amount);
    Some(QuotaUsage {
        flavor: state.flavor_name(flavor).to_string(),
        resource: state.resource_name(resource).to_string(),
        nominal: text(cell.subtree),
        used: text(cell.usage),
        borrowed: text(borrowed(cell)),
        lent: text(lent.get(&(node, key)).copied().unwrap_or_default()),
        available: text(state.forest().available(node, id)),
        borrowing_limit: cell.quota.borrowing_limit.map(text),
        lending_limit: cell.quota.lending_limit.map(text),
    })
}

fn share_status(state: &QueueState, node: NodeId) -> ShareStatus {
    let share = state.forest().share(node);
    let dominant_resource = share.dominant.map(|resource| state.resource_name(resource).to_string());
    ShareStatus { weighted: share.rounded(), weight: weight_text(share.weight), dominant_resource }
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

/// The unused part of the quota that a node lends.
fn unused(cell: &Cell) -> Amount {
    (cell.subtree - cell.usage.max(cell.local)).floor()
}

/// Attributes borrowed quota to lenders. In each cohort, members borrow first from the cohort's own quota,
/// then from its ancestors as far as the cohort itself borrows, then from the members with the most unused
/// quota.
fn lent_quota(forest: &Forest) -> LentQuota {
    let mut lent = LentQuota::new();
    let roots = forest.nodes().filter(|(_, node)| node.cohort && node.parent.is_none());
    for (root, _) in roots {
        for (at, key) in forest.tree(forest.node(root).tree).cells.iter().enumerate() {
            let cell = CellId(u32::try_from(at).unwrap_or(u32::MAX));
            let mut lending = Lending { forest, key: *key, cell, lent: &mut lent };
            lending.distribute(root, Amount::ZERO);
        }
    }
    lent
}

/// Attribution of one flavor and resource.
struct Lending<'a> {
    forest: &'a Forest,
    key: FlavorResource,
    cell: CellId,
    lent: &'a mut LentQuota,
}

impl Lending<'_> {
    /// Attributes the quota that a cohort lends (to its ancestors and among its members) to its members.
    fn distribute(&mut self, cohort: NodeId, to_ancestors: Amount) {
        let forest = self.forest;
        let cell = |node: NodeId| forest.cell(node, self.cell);
        let node = forest.node(cohort);
        let members: Vec<NodeId> = node.cohorts.iter().chain(&node.queues).copied().collect();
        let own = cell(cohort);
        let taken = members.iter().fold(to_ancestors, |sum, member| sum + borrowed(cell(*member)));
        let mut rest = (taken - own.quota.nominal - borrowed(own)).floor();
        let mut lenders: Vec<(Amount, NodeId)> =
            members.into_iter().map(|member| (unused(cell(member)), member)).collect();
        // The sort is stable: equal lenders stay in the order of their declaration.
        lenders.sort_by_key(|(unused, _)| Reverse(*unused));
        for (unused, lender) in lenders {
            let part = rest.min(unused).floor();
            rest = rest - part;
            if part > Amount::ZERO {
                self.lent.insert((lender, self.key), part);
            }
            if forest.node(lender).cohort {
                self.distribute(lender, part);
            }
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

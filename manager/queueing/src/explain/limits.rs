//! Limits without which a queue would have more quota.

use crate::amount::Amount;
use crate::model::QueueId;
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::QueueState;
use crate::quota::{Forest, LimitKind, NodeId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of lenders evaluated, largest unlent quota first.
const LENDERS_MAX: usize = 8;

/// A declared limit without which a queue would have more quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The cluster queue or cohort that declares it.
    pub of: Arc<str>,
    /// Whether that is a cohort.
    pub cohort: bool,
    pub kind: LimitKind,
    /// The declared value.
    pub most: i64,
    /// Additional quota without the limit.
    pub more: i64,
}

/// Which quota a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaScope {
    /// Quota that is available now.
    Now,
    /// Quota that would be available without any usage.
    Ever,
}

/// Limits that withhold quota from a queue, each on its own: borrowing limits of the queue and its ancestors,
/// and lending limits of others, largest unlent quota first.
pub fn limits(
    state: &QueueState,
    queue: QueueId,
    key: (FlavorId, ResourceId),
    scope: QuotaScope,
) -> Vec<Limit> {
    let queue = state.queue(queue);
    let Some((node, tree)) = queue.node.zip(queue.tree) else { return Vec::new() };
    let Some(cell) = state.forest().find_cell(tree, key) else { return Vec::new() };
    let has = |forest: &Forest| match scope {
        QuotaScope::Now => forest.balance(node, cell),
        QuotaScope::Ever => forest.cell(node, cell).potential,
    };
    let above: BTreeSet<NodeId> = state.forest().ancestors(node).chain([node]).collect();
    let mut lenders: Vec<(Reverse<Amount>, NodeId)> = Vec::new();
    for (id, of) in state.forest().nodes().filter(|(id, of)| of.tree == tree && !above.contains(id)) {
        let here = state.forest().cell(id, cell);
        let keeps = if scope == QuotaScope::Now { here.local_available() } else { here.local };
        if of.parent.is_some() && here.quota.lending_limit.is_some() && keeps > Amount::ZERO {
            lenders.push((Reverse(keeps), id));
        }
    }
    lenders.sort_unstable();
    let borrowers = above.iter().map(|id| (*id, LimitKind::Borrowing));
    let candidates =
        borrowers.chain(lenders.into_iter().take(LENDERS_MAX).map(|(_, id)| (id, LimitKind::Lending)));
    let mut forest = state.forest().with_trees_only(&BTreeSet::from([tree]));
    let before = has(&forest);
    let mut found = Vec::new();
    for (id, kind) in candidates {
        let quota = forest.cell(id, cell).quota;
        let limit = if kind == LimitKind::Borrowing { quota.borrowing_limit } else { quota.lending_limit };
        let Some(most) = limit else { continue };
        forest.set_limit(id, cell, kind, None);
        let more = has(&forest) - before;
        forest.set_limit(id, cell, kind, limit);
        if more > Amount::ZERO {
            let of = forest.node(id);
            found.push(Limit { of: of.name.clone(), cohort: of.cohort, kind, most: most.0, more: more.0 });
        }
    }
    found
}

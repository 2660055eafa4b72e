//! Quotas and usage of one flavor and resource at one node, and their numbers.

use crate::amount::Amount;
use crate::names::{FlavorId, ResourceId, id};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A cohort or a cluster queue in the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// A tree of the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TreeId(pub u32);

/// Index of a flavor and resource in the cells of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellId(pub u32);

id!(NodeId, TreeId, CellId);

/// The weight one. Weights are counted in billionths, the smallest that Kueue accepts.
pub const WEIGHT_ONE: i64 = 1_000_000_000;

/// Quota of one flavor and resource at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quota {
    pub nominal: Amount,
    /// `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `None` is unlimited.
    pub lending_limit: Option<Amount>,
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// The borrowing limit.
    Borrowing,
    /// The lending limit.
    Lending,
}

pub type Quotas = BTreeMap<(FlavorId, ResourceId), Quota>;

/// A cohort as declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortSetup {
    /// The parent cohort.
    pub parent: Option<Arc<str>>,
    pub quotas: Quotas,
    /// Weight in billionths.
    pub weight: i64,
}

impl Default for CohortSetup {
    fn default() -> Self {
        Self { parent: None, quotas: Quotas::new(), weight: WEIGHT_ONE }
    }
}

/// Quota and usage of one flavor and resource at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub quota: Quota,
    /// Whether the node or a descendant declares a quota.
    pub declared: bool,
    /// Own quota and quota that the children lend.
    pub subtree: Amount,
    /// Quota that the node doesn't lend to its parent.
    pub local: Amount,
    /// Usage that counts against the subtree quota.
    pub usage: Amount,
    /// Maximum amount that the node could ever use.
    pub potential: Amount,
}

impl Cell {
    /// Unused part of the quota that the node doesn't lend.
    pub fn local_available(&self) -> Amount {
        (self.local - self.usage).floor()
    }

    /// Whether the node lends all of its quota.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.local == Amount::ZERO
    }

    /// Whether the node would borrow if it used `more`.
    pub fn borrows_with(&self, more: Amount) -> bool {
        self.subtree < self.usage + more
    }
}

/// The quota declaration of a cluster queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub name: Arc<str>,
    pub cohort: Option<Arc<str>>,
    pub quotas: Quotas,
    /// Weight in billionths.
    pub weight: i64,
}

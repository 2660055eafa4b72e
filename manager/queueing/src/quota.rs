//! The forest of cohorts and cluster queues: quota, usage and available amounts per node.
//!
//! Every node has one cell per flavor and resource of its tree. The subtree quota of a node is its own quota
//! plus what its children lend. Usage above the quota that a node doesn't lend also counts at its parent.
//! Adding and removing the same usage in any order restores every cell.

mod cell;
mod forest;
mod share;

pub use cell::{Cell, CellId, CohortSetup, Leaf, LimitKind, NodeId, Quota, Quotas, TreeId, WEIGHT_ONE};
pub use forest::{Forest, Node, Tree, cyclic};
pub use share::Share;

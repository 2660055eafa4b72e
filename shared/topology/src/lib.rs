//! Placement of pod sets in a topology: tree, free capacity and requests in, assignments out.
//!
//! The agent places pods with this crate and `plan` predicts placements with it, so both agree. It must not
//! know queues, quota or other workloads: only domains, their free capacity, and requests. The decisions are
//! those of Kueue's topology-aware scheduling (KEP-2724): it chooses the same domains as Kueue.
//!
//! A [`Topology`] is a tree of domains. Every level is a node label (block, rack, host); every node hangs
//! below the values of its labels. [`Topology::assign`] works in two passes over tables indexed by domain:
//!
//! ```text
//!   requests ─► count    pods and whole slices that each leaf can hold, summed up to the roots
//!            ─► choose   level and domains that hold the pod set (best fit, least free, or balanced)
//!            ─► descend  level by level down to the leaves, with as few domains as possible
//! ```
//!
//! Dependencies go one way: `assign` (groups, elastic and replacement rules) uses `placement` (one search),
//! which uses the tree and the request types.
//!
//! Invariants:
//! - Assigning changes nothing. [`Topology::add_usage`] and [`Topology::remove_usage`] do, and are inverse to
//!   each other.
//! - Domains of a level are numbered in the order of their values. So ties are always resolved the same way,
//!   and the order of nodes in the input doesn't matter.
//! - Every pod uses one of the resource `pods`, even if it doesn't request it.

mod assign;
mod assignment;
pub mod compressed;
mod exclusions;
mod flavor;
mod node;
mod placement;
mod placement_error;
mod request;
mod resources;
mod topology;
mod tree;
mod usage;

pub use assignment::{Assignment, DomainCount, PodSetResult};
pub use exclusions::Exclusions;
pub use flavor::{Flavor, Profile};
pub use meridian_shared::topology::{Constraint, SliceLayer, TopologyRequest};
pub use node::Node;
pub use placement_error::{LayerFit, PlacementError};
pub use request::{LostNodes, Options, PodSetRequest, PreferredTerm};
pub use resources::PODS;
pub use topology::Topology;
pub use usage::{Assumed, Usage};

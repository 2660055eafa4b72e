//! Placing pod sets in a topology: tree, free room and request in, assignment out.
//!
//! The agent places by this function and `plan` foretells by it, so that both say the same. It must not know queues, quota
//! or what else runs where: only domains, what is free in them, and what is asked. The decisions are those of Kueue's
//! topology-aware scheduling (KEP-2724), so that a workload which Kueue places is placed here in the same domains.
//!
//! A [`Topology`] is a tree of domains: every level is a node label (block, rack, host), every node hangs below its labels'
//! values. [`Topology::assign`] works in two passes over flat tables that are indexed by domain:
//!
//! ```text
//!   requests ──► room      how many pods and whole slices each leaf holds, summed up to the roots
//!            ──► place     the level and the domains that hold the pod set (best fit, least free, or balanced)
//!            ──► descend   level by level down to the leaves, in as few domains as will do
//! ```
//!
//! Invariants:
//! - Assigning changes nothing; [`Topology::add_usage`] and [`Topology::remove_usage`] do, and are each other's inverse.
//! - Domains of a level are numbered in the order of their values, so that an equal choice always falls the same way and
//!   the order in which nodes were listed doesn't matter.
//! - Every pod takes one of the resource `pods`, asked for or not.

#![warn(missing_docs)]

mod assignment;
mod balance;
pub mod compressed;
mod descend;
mod elastic;
mod exclusions;
mod labels;
mod misfit;
mod node;
mod order;
mod place;
mod replace;
mod request;
mod room;
mod snapshot;
mod tree;
mod usage;

pub use assignment::{Assignment, DomainCount};
pub use exclusions::Exclusions;
pub use meridian_shared::topology::{Constraint, SliceLayer, TopologyRequest};
pub use misfit::{LayerFit, Misfit};
pub use node::Node;
pub use request::{Lost, Options, PodSetRequest, PreferredTerm, Profile};
pub use snapshot::{Flavor, Outcome, Topology};
pub use usage::{Assumed, PODS, Usage};

//! What a cluster has: read from a fleet file, or found on the machine itself.
//!
//! Both give [`NodeSpec`]s; the ledger in `meridian-agent-core` decides what fits them.

use meridian_shared::gang::{Amounts, Taint};
use meridian_shared::time::Wall;
use serde::Serialize;
use std::collections::BTreeMap;

pub mod fleet;
pub mod nvml;
mod quantity;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSpec {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// When some of them appeared.
    pub added: Vec<(Taint, Wall)>,
    /// What it has in all, in base units.
    pub capacity: Amounts,
    /// It works. Pods on one that doesn't need another place.
    pub ready: bool,
    /// Nothing new is placed on it.
    pub unschedulable: bool,
}

/// A pool that can grow from zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProvisionableSpec {
    /// Its name, unique in the cluster.
    pub name: String,
    /// How its capacity is bought: `reservation`, `flex-start`, `on-demand`, `spot`.
    pub capacity_class: Option<String>,
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// What one node has, in base units.
    pub per_node: Amounts,
    /// How many nodes it may have.
    pub max_nodes: u32,
}

//! Capacity of a cluster: nodes, pools that can grow, and its runner.

use crate::managed::ManagedResources;
use crate::packing::Block;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Capacity of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Capacity {
    /// Grows with every change within a session.
    pub version: u64,
    /// The report includes every decision of the agent up to this command.
    pub after_command: u64,
    /// `None`: `blocks` is everything. Otherwise a delta against this acknowledged version.
    pub base: Option<u64>,
    /// Blocks of equal nodes. With a base, the new count of each changed block; zero removes the block.
    pub blocks: Vec<Block>,
    /// Nodes that pools can still add: `nodes` is their number, `free` equals `capacity`.
    pub provisionable: Vec<Block>,
    /// The resources for which the pools can grow.
    #[serde(default, skip_serializing_if = "ManagedResources::is_empty")]
    pub managed: ManagedResources,
    pub runner: RunnerKind,
    /// Whether a gang ends by itself when its lease lapses.
    pub guarded: bool,
    /// The location that the agent detected; a location that differs from the `Cluster` object's quarantines
    /// the agent.
    pub located: Option<Arc<str>>,
    /// How held capacity is protected from other pods.
    #[serde(default, skip_serializing_if = "HoldMethod::is_ledger")]
    pub holds: HoldMethod,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RunnerKind {
    /// Virtual pods: no process starts.
    #[default]
    Simulated,
    /// Real processes on one machine.
    Process,
    /// Objects of a Kubernetes cluster.
    Kubernetes,
}

/// How an agent protects held capacity from other pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HoldMethod {
    /// The nodes run only pods that the agent places, so its ledger is always right.
    #[default]
    Ledger,
    /// Pods of low priority hold the capacity, on nodes that other programs use too.
    Placeholders,
    /// The cluster's own Kueue has admitted the gang.
    Kueue,
}

impl HoldMethod {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
    const fn is_ledger(&self) -> bool {
        matches!(self, Self::Ledger)
    }
}

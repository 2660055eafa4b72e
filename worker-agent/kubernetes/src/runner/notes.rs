//! State of a run that a runner must keep, as an annotation of the run's job, so that a new agent finds it.

use meridian_agent_core::runtime::{PodPlacement, Start};
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the annotation's format.
const VERSION: u32 = 1;

/// The notes of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// The node of each position of the gang, and its pod set and index there.
    pub(super) placement: Vec<PodPlacement>,
    /// All nodes that pods were assigned to, including former placements.
    pub(super) touched: BTreeSet<String>,
    /// Number of the last finished or begun move.
    pub(super) moves: u32,
    /// Pods that failed in earlier attempts.
    pub(super) failures_before: u32,
    /// Pods that the runner ended by itself, which the job controller counts as failed.
    pub(super) ended_by_moves: u32,
    /// How long before the deadline the stop begins.
    pub(super) stop_budget: Millis,
    /// How long the attempt may run.
    pub(super) run_left: Option<Millis>,
    /// How long the user wants the finished job to be kept.
    pub(super) ttl: Option<Millis>,
    /// Whether its pods have guards.
    pub(super) guarded: bool,
    /// Whether the lease that the guards get has a deadline.
    pub(super) ends: bool,
}

/// The nodes of a run's placement in the text of its notes. Empty if it can't be read.
pub(crate) fn noted_nodes(text: &str) -> BTreeSet<String> {
    let notes = Notes::from_text(text).unwrap_or_default();
    notes.placement.into_iter().map(|pod| pod.node).collect()
}

/// The form on disk: node names once, since many pods share a node.
#[derive(Serialize, Deserialize)]
struct Stored {
    v: u32,
    nodes: Vec<String>,
    /// Pod set, index, number of the node.
    pods: Vec<(String, u32, usize)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<String>,
    #[serde(default)]
    moves: u32,
    #[serde(default)]
    failures: u32,
    #[serde(default)]
    moved: u32,
    budget: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    /// Whether the lease of guards ends; absent without guards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<bool>,
}

impl Notes {
    pub(super) fn of(start: &Start) -> Self {
        Self {
            touched: start.placement.iter().map(|pod| pod.node.clone()).collect(),
            placement: start.placement.clone(),
            moves: 0,
            failures_before: start.pod_failures,
            ended_by_moves: 0,
            stop_budget: start.stop_budget,
            run_left: start.run_left,
            ttl: None,
            guarded: false,
            ends: false,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut nodes = Vec::new();
        let mut pods = Vec::new();
        for pod in &self.placement {
            let number = *numbers.entry(&pod.node).or_insert_with(|| {
                nodes.push(pod.node.clone());
                nodes.len() - 1
            });
            pods.push((pod.pod_set.clone(), pod.index, number));
        }
        let former =
            self.touched.iter().filter(|node| !numbers.contains_key(node.as_str())).cloned().collect();
        let stored = Stored {
            v: VERSION,
            pods,
            former,
            moves: self.moves,
            failures: self.failures_before,
            moved: self.ended_by_moves,
            budget: self.stop_budget.0,
            run: self.run_left.map(|left| left.0),
            ttl: self.ttl.map(|ttl| ttl.0),
            guard: self.guarded.then_some(self.ends),
            nodes,
        };
        serde_json::to_string(&stored).expect("names and numbers are JSON")
    }

    /// Reads the annotation. `None` if it is not in this format.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let stored: Stored = serde_json::from_str(text).ok()?;
        if stored.v != VERSION {
            return None;
        }
        let placement: Option<Vec<PodPlacement>> = stored
            .pods
            .into_iter()
            .map(|(pod_set, index, number)| {
                let node = stored.nodes.get(number)?.clone();
                Some(PodPlacement { pod_set, index, node, accelerators: BTreeMap::new() })
            })
            .collect();
        Some(Self {
            placement: placement?,
            touched: stored.nodes.iter().chain(&stored.former).cloned().collect(),
            moves: stored.moves,
            failures_before: stored.failures,
            ended_by_moves: stored.moved,
            stop_budget: Millis(stored.budget),
            run_left: stored.run.map(Millis),
            ttl: stored.ttl.map(Millis),
            guarded: stored.guard.is_some(),
            ends: stored.guard.unwrap_or(false),
        })
    }
}

//! Topology requests of a gang's pods, and the levels of a flavor's topology.
//!
//! Only types, which are sent with the gang to the agent that places it. The crate `meridian-topology` does
//! the placement.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The domain that the pods of a pod set must share. Levels are node labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Constraint {
    /// All pods must be in one domain of this level; otherwise the pod set doesn't start.
    Required(String),
    /// All pods are in one domain of this level if any has capacity, otherwise in one domain of a wider
    /// level, otherwise spread.
    Preferred(String),
    /// The pods may be anywhere in the topology.
    Unconstrained,
}

/// Slices of `size` pods, each within one domain of `level`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SliceLayer {
    /// Node label of the level.
    pub level: String,
    /// Pods of a slice; 0 if no size was given, which is refused.
    pub size: u32,
}

/// The topology request of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyRequest {
    /// The rule for all pods. `None` with slices leaves the slices independent of each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// From the widest level to the narrowest; each size divides the previous size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceLayer>,
}

impl TopologyRequest {
    /// All pods in one domain of `level`.
    pub fn required(level: &str) -> Self {
        Self { constraint: Some(Constraint::Required(level.to_owned())), slices: Vec::new() }
    }

    /// All pods in one domain of `level` if possible.
    pub fn preferred(level: &str) -> Self {
        Self { constraint: Some(Constraint::Preferred(level.to_owned())), slices: Vec::new() }
    }

    /// Adds a further, narrower layer of slices.
    #[must_use]
    pub fn sliced(mut self, level: &str, size: u32) -> Self {
        self.slices.push(SliceLayer { level: level.to_owned(), size });
        self
    }

    /// Whether all pods must share a domain.
    pub fn is_required(&self) -> bool {
        matches!(self.constraint, Some(Constraint::Required(_)))
    }

    /// Whether only slices are requested: they may be anywhere.
    pub fn is_slices_only(&self) -> bool {
        !self.slices.is_empty()
            && !matches!(self.constraint, Some(Constraint::Required(_) | Constraint::Preferred(_)))
    }

    /// Approximate size of its labels, in bytes.
    pub(crate) fn weight(&self) -> impl Iterator<Item = usize> {
        let level = match &self.constraint {
            Some(Constraint::Required(level) | Constraint::Preferred(level)) => level.len(),
            Some(Constraint::Unconstrained) | None => 0,
        };
        std::iter::once(level).chain(self.slices.iter().map(|layer| layer.level.len()))
    }
}

/// The topology of a flavor's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlavorTopology {
    pub flavor: String,
    pub name: String,
    /// Node labels of the levels, from the widest to the narrowest.
    pub levels: Vec<String>,
    /// Labels of the flavor's nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
}

impl FlavorTopology {
    /// Approximate size of its names, in bytes.
    pub(crate) fn weight(&self) -> impl Iterator<Item = usize> {
        let labels = self.node_labels.iter().map(|(key, value)| key.len() + value.len());
        [self.flavor.len(), self.name.len()]
            .into_iter()
            .chain(self.levels.iter().map(String::len))
            .chain(labels)
    }
}

//! Reasons why a pod set can't be placed.

use crate::exclusions::Exclusions;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of slices of one layer that fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerFit {
    /// Node label of the layer's level.
    pub level: String,
    /// Slices that fit into the best domain.
    pub fit: u32,
    pub requested: u32,
}

/// Why a pod set can't be placed. The messages are Kueue's, because users know them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlacementError {
    /// The request names no level.
    LevelMissing,
    /// The topology has no such level.
    LevelUnknown {
        /// Requested node label.
        level: String,
    },
    /// Slices are requested without a size.
    SliceSizeMissing,
    /// The topology has no such level for slices.
    SliceLevelUnknown {
        /// Requested node label.
        level: String,
    },
    /// The slice level is above the level of the pod set.
    SliceAbovePodSet { slice_level: String, level: String },
    /// The topology has no such level for an additional slice layer.
    LayerLevelUnknown {
        /// Requested node label.
        level: String,
    },
    /// An additional slice layer isn't below the previous layer.
    LayerNotNarrower {
        level: String,
        /// Level of the previous layer.
        outer: String,
    },
    /// The size of a layer doesn't divide the size of the previous one.
    LayerUneven {
        size: u32,
        /// Size of the previous layer.
        outer: u32,
    },
    /// The node selector contains an invalid label.
    SelectorInvalid {
        /// The pair, as `key=value`.
        pair: String,
    },
    /// An affinity term can't be evaluated.
    AffinityInvalid {
        /// Label key of the requirement.
        key: String,
    },
    /// No node of the flavor has all levels.
    NoDomains {
        /// The level searched.
        level: String,
    },
    /// Insufficient free capacity.
    InsufficientCapacity {
        topology: String,
        /// Units that fit.
        fit: u32,
        requested: u32,
        /// Whether units are whole slices instead of pods.
        sliced: bool,
        exclusions: Exclusions,
    },
    /// Insufficient free capacity for slices in several layers.
    InsufficientCapacityInLayers { topology: String, layers: Vec<LayerFit>, exclusions: Exclusions },
    /// The assignment under repair also contains a domain that no longer exists.
    Stale { domain: String },
    /// The pod set has no pods on the lost node, or no other node fits them.
    NoReplacement {
        /// The lost node.
        node: String,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LevelMissing => f.write_str("topology level not specified"),
            Self::LevelUnknown { level } => write!(f, "no requested topology level: {level}"),
            Self::SliceSizeMissing => f.write_str("slice topology requested, but slice size not provided"),
            Self::SliceLevelUnknown { level } => write!(f, "no requested topology level for slices: {level}"),
            Self::SliceAbovePodSet { slice_level, level } => {
                write!(f, "podset slice topology {slice_level} is above the podset topology {level}")
            }
            Self::LayerLevelUnknown { level } => {
                write!(f, "no requested topology level for additional slice layer: {level}")
            }
            Self::LayerNotNarrower { level, outer } => {
                write!(f, "additional slice layer topology {level} must be at a lower level than {outer}")
            }
            Self::LayerUneven { size, outer } => {
                write!(f, "additional slice layer size {size} must evenly divide parent layer size {outer}")
            }
            Self::SelectorInvalid { pair } => write!(f, "invalid node selectors: {pair}"),
            Self::AffinityInvalid { key } => write!(f, "invalid affinity node selectors: {key}"),
            Self::NoDomains { level } => write!(f, "no topology domains at level: {level}"),
            Self::InsufficientCapacity { topology, fit, requested, sliced, exclusions } => {
                let unit = if *sliced { "slice" } else { "pod" };
                match fit {
                    0 => {
                        write!(f, "topology {topology:?} doesn't allow to fit any of {requested} {unit}(s)")?
                    }
                    _ => write!(
                        f,
                        "topology {topology:?} allows to fit only {fit} out of {requested} {unit}(s)"
                    )?,
                }
                write!(f, "{exclusions}")
            }
            Self::InsufficientCapacityInLayers { topology, layers, exclusions } => {
                write!(f, "topology {topology:?} doesn't allow to fit")?;
                for LayerFit { level, fit, requested } in layers {
                    write!(f, "; {fit}/{requested} slice(s) fit on level {level}")?;
                }
                write!(f, "{exclusions}")
            }
            Self::Stale { domain } => {
                write!(
                    f,
                    "Cannot replace the node, because the existing topologyAssignment is invalid, \
                     as it contains the stale domain {domain}"
                )
            }
            Self::NoReplacement { node } => {
                write!(f, "cannot find replacement assignment for unhealthy node: {node}")
            }
        }
    }
}

impl std::error::Error for PlacementError {}

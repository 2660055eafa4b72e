//! Why there is no place.

use crate::exclusions::Exclusions;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many slices of one layer fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerFit {
    /// Node label of the layer's level.
    pub level: String,
    /// Slices that fit into the best domain.
    pub fit: u32,
    /// Slices that are asked for.
    pub asked: u32,
}

/// Why a pod set gets no place. The texts are those that Kueue's users know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Misfit {
    /// The request names no level.
    LevelMissing,
    /// The topology has no such level.
    LevelUnknown {
        /// Node label that was asked for.
        level: String,
    },
    /// Slices without a size.
    SliceSizeMissing,
    /// The topology has no such level for slices.
    SliceLevelUnknown {
        /// Node label that was asked for.
        level: String,
    },
    /// Slices of a wider level than the pod set itself.
    SliceAbovePodSet {
        /// Level of the slices.
        slice_level: String,
        /// Level of the pod set.
        level: String,
    },
    /// The topology has no such level for a further layer of slices.
    LayerLevelUnknown {
        /// Node label that was asked for.
        level: String,
    },
    /// A further layer of slices isn't narrower than the one before.
    LayerNotNarrower {
        /// Level of the layer.
        level: String,
        /// Level of the layer before.
        outer: String,
    },
    /// The size of a layer doesn't divide the one before.
    LayerUneven {
        /// Size of the layer.
        size: u32,
        /// Size of the layer before.
        outer: u32,
    },
    /// The node selector holds something that can't be a label.
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
        /// Level that was searched.
        level: String,
    },
    /// Too little room.
    TooLittleRoom {
        /// The topology.
        topology: String,
        /// Units that fit.
        fit: u32,
        /// Units that are asked for.
        asked: u32,
        /// Units are whole slices, not pods.
        sliced: bool,
        /// Nodes that were left out.
        exclusions: Exclusions,
    },
    /// Too little room for slices in layers.
    TooLittleRoomInLayers {
        /// The topology.
        topology: String,
        /// What fits per layer.
        layers: Vec<LayerFit>,
        /// Nodes that were left out.
        exclusions: Exclusions,
    },
    /// What is to be repaired rests on a domain that is gone too.
    Stale {
        /// The domain.
        domain: String,
    },
    /// Nothing was lost here, or no other node can take it.
    NoReplacement {
        /// The lost node.
        node: String,
    },
}

impl fmt::Display for Misfit {
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
            Self::TooLittleRoom { topology, fit, asked, sliced, exclusions } => {
                let unit = if *sliced { "slice" } else { "pod" };
                match fit {
                    0 => write!(
                        f,
                        "topology {topology:?} doesn't allow to fit any of {asked} {unit}(s){exclusions}"
                    ),
                    _ => write!(
                        f,
                        "topology {topology:?} allows to fit only {fit} out of {asked} {unit}(s){exclusions}"
                    ),
                }
            }
            Self::TooLittleRoomInLayers { topology, layers, exclusions } => {
                write!(f, "topology {topology:?} doesn't allow to fit")?;
                for LayerFit { level, fit, asked } in layers {
                    write!(f, "; {fit}/{asked} slice(s) fit on level {level}")?;
                }
                write!(f, "{exclusions}")
            }
            Self::Stale { domain } => {
                write!(
                    f,
                    "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {domain}"
                )
            }
            Self::NoReplacement { node } => {
                write!(f, "cannot find replacement assignment for unhealthy node: {node}")
            }
        }
    }
}

impl std::error::Error for Misfit {}

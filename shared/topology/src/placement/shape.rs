//! The shape of a request in terms of the tree.

use super::search::Query;
use crate::placement_error::PlacementError;
use crate::tree::Tree;
use meridian_shared::topology::SliceLayer;

/// The unit of a count: whole slices of a given size, or single pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Slices of this many pods.
    Slices(i64),
    Pods,
}

/// The shape of a request in terms of the tree.
#[derive(Debug)]
pub(super) struct Shape<'a> {
    /// Number of workers.
    pub(super) count: i64,
    /// Number of leaders: 0 or 1.
    pub(super) leaders: i64,
    /// Depth of the level at which all pods should share a domain.
    pub(super) depth: usize,
    /// Depth of the level of the widest slices.
    pub(super) slice_depth: usize,
    /// Pods per slice of the widest layer.
    pub(super) slice_size: i64,
    /// Size of narrower slices, by depth.
    inner_sizes: Vec<Option<i64>>,
    /// Whether all pods must share one domain.
    pub(super) required: bool,
    /// Whether the pods may be in any domains.
    pub(super) unconstrained: bool,
    pub(super) layers: &'a [SliceLayer],
}

impl<'a> Shape<'a> {
    pub(super) fn of(query: &Query<'a>, tree: &Tree) -> Result<Self, PlacementError> {
        let request = query.workers;
        let layers = request.slices();
        let slice_size = layers.first().map_or(1, |layer| layer.size);
        if slice_size == 0 {
            return Err(PlacementError::SliceSizeMissing);
        }
        let level = request.level(tree.levels()).ok_or(PlacementError::LevelMissing)?;
        let depth =
            tree.depth(level).ok_or_else(|| PlacementError::LevelUnknown { level: level.to_owned() })?;
        let slice_depth = match layers.first() {
            None => tree.lowest(),
            Some(layer) => tree
                .depth(&layer.level)
                .ok_or_else(|| PlacementError::SliceLevelUnknown { level: layer.level.clone() })?,
        };
        if depth > slice_depth {
            return Err(PlacementError::SliceAbovePodSet {
                slice_level: tree.levels()[slice_depth].clone(),
                level: level.to_owned(),
            });
        }
        Ok(Self {
            count: i64::from(request.count),
            leaders: i64::from(query.leader.is_some()),
            depth,
            slice_depth,
            slice_size: i64::from(slice_size),
            inner_sizes: inner_sizes(layers, tree, slice_depth)?,
            required: request.is_required(),
            unconstrained: request.is_unconstrained(),
            layers,
        })
    }

    /// Size of the narrower slices at `depth`, if any.
    pub(super) fn inner_size(&self, depth: usize) -> Option<i64> {
        self.inner_sizes.get(depth).copied().flatten()
    }

    /// Number of whole slices requested.
    pub(super) fn slices(&self) -> i64 {
        self.count / self.slice_size
    }

    /// The unit of the widest slices.
    pub(super) fn unit(&self) -> Unit {
        Unit::Slices(self.slice_size)
    }
}

/// Sizes of the second and further layers, per depth. Levels between two layers count in the size of the
/// narrower one.
fn inner_sizes(
    layers: &[SliceLayer],
    tree: &Tree,
    slice_depth: usize,
) -> Result<Vec<Option<i64>>, PlacementError> {
    let mut sizes = vec![None; tree.levels().len()];
    let mut above = slice_depth;
    for pair in layers.windows(2) {
        let [outer, layer] = pair else { continue };
        let depth = tree
            .depth(&layer.level)
            .ok_or_else(|| PlacementError::LayerLevelUnknown { level: layer.level.clone() })?;
        if depth <= above {
            return Err(PlacementError::LayerNotNarrower {
                level: layer.level.clone(),
                outer: tree.levels()[above].clone(),
            });
        }
        if layer.size == 0 || outer.size % layer.size != 0 {
            return Err(PlacementError::LayerUneven { size: layer.size, outer: outer.size });
        }
        sizes[above + 1..=depth].fill(Some(i64::from(layer.size)));
        above = depth;
    }
    Ok(sizes)
}

//! The allocation of one gang: a node and accelerators for each of its pods.

use crate::runtime::PodPlacement;
use meridian_shared::gang::Amounts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Resources of one gang, from its hold to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Allocation {
    pub(super) placement: Vec<PodPlacement>,
    /// Resources of one pod of each pod set.
    pub(super) per_pod: BTreeMap<String, Amounts>,
    /// Former placements of moved pods, charged until the pods were seen ended there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) leaving: Vec<PodPlacement>,
    /// Indexes into `placement` of pods that use no resources any more.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) reclaimed: BTreeSet<usize>,
}

impl Allocation {
    pub(super) fn new(placement: Vec<PodPlacement>, per_pod: BTreeMap<String, Amounts>) -> Self {
        Self { placement, per_pod, ..Self::default() }
    }

    /// Adds the pods of other pod sets behind the pods that are there.
    pub(super) fn append(&mut self, other: Self) {
        self.placement.extend(other.placement);
        self.per_pod.extend(other.per_pod);
    }

    pub(crate) fn leaving(&self) -> &[PodPlacement] {
        &self.leaving
    }

    pub(crate) fn reclaimed(&self) -> &BTreeSet<usize> {
        &self.reclaimed
    }

    /// The pods that still need a node, with their index in the placement.
    pub(super) fn standing(&self) -> impl Iterator<Item = (usize, &PodPlacement)> {
        self.placement.iter().enumerate().filter(|(at, _)| !self.reclaimed.contains(at))
    }

    /// All usage that is charged to a node.
    pub(super) fn charged(&self) -> impl Iterator<Item = &PodPlacement> {
        self.standing().map(|(_, pod)| pod).chain(&self.leaving)
    }

    /// Indexes of the pods at `places` that are not reclaimed yet.
    pub(super) fn unreclaimed(&self, places: &[(String, u32)]) -> Vec<usize> {
        let places: BTreeSet<(&str, u32)> =
            places.iter().map(|(pod_set, index)| (pod_set.as_str(), *index)).collect();
        self.standing()
            .filter(|(_, pod)| places.contains(&(pod.pod_set.as_str(), pod.index)))
            .map(|(at, _)| at)
            .collect()
    }

    /// Number of reclaimed pods per pod set.
    pub(super) fn reclaimed_counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for pod in self.reclaimed.iter().filter_map(|at| self.placement.get(*at)) {
            *counts.entry(pod.pod_set.clone()).or_default() += 1;
        }
        counts
    }
}

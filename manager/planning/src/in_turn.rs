//! Places in which nobody displaces [in turn](meridian_queueing::turns), as in the engine.

use meridian_queueing::Brain;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::places::{ClusterIndex, Places};
use meridian_queueing::preempt::{Right, Target};
use meridian_queueing::turns::{DISPLACED_MAX, gave_way};
use std::collections::{BTreeMap, BTreeSet};

/// Places in which it is known who gave way for whom.
pub(crate) struct InTurn<'p> {
    places: &'p mut dyn Places,
    /// For whom each gave way, and how often.
    gave_way: BTreeMap<WorkloadId, BTreeMap<WorkloadId, u32>>,
    /// Who displaced the same other one as often as it may.
    insistent: BTreeSet<WorkloadId>,
    /// Whose growth each is.
    grows: BTreeMap<WorkloadId, WorkloadId>,
}

impl<'p> InTurn<'p> {
    pub(crate) fn new(places: &'p mut dyn Places, growths: &BTreeMap<WorkloadId, WorkloadId>) -> Self {
        Self {
            places,
            gave_way: BTreeMap::new(),
            insistent: BTreeSet::new(),
            grows: growths.iter().map(|(id, growth)| (*growth, *id)).collect(),
        }
    }

    /// They were told to stop, each for another.
    pub(crate) fn displaced(&mut self, preempted: &[(WorkloadId, WorkloadId, Right)]) {
        for (victim, by, _) in preempted {
            let times = self.gave_way.entry(*victim).or_default().entry(*by).or_default();
            *times += 1;
            if *times >= DISPLACED_MAX {
                self.insistent.insert(*by);
            }
        }
    }
}

impl Places for InTurn<'_> {
    fn may_displace(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let in_turn = gave_way(&self.gave_way, workload, |by| by == holder);
        let times = self.gave_way.get(&holder).and_then(|ways| ways.get(&workload)).copied().unwrap_or(0);
        // Nor does a growth displace the gang that is to grow.
        let own = self.grows.get(&workload) == Some(&holder);
        !in_turn && !own && times < DISPLACED_MAX && self.places.may_displace(workload, holder)
    }

    fn is_apart(&self, workload: WorkloadId) -> bool {
        self.places.is_apart(workload)
            || self.gave_way.contains_key(&workload)
            || self.insistent.contains(&workload)
            || self.grows.contains_key(&workload)
    }

    fn fits(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> bool {
        self.places.fits(brain, workload, victims)
    }

    fn mean(&mut self, brain: &Brain, workload: WorkloadId, assignment: Option<&Assignment>) {
        self.places.mean(brain, workload, assignment);
    }

    fn has_room(&mut self, brain: &Brain, workload: WorkloadId) -> bool {
        self.places.has_room(brain, workload)
    }

    fn room_may_come(&mut self, brain: &Brain, workload: WorkloadId) -> bool {
        self.places.room_may_come(brain, workload)
    }

    fn keep(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) {
        self.places.keep(brain, workload, victims);
    }

    fn clusters(&mut self, brain: &Brain, workload: WorkloadId) -> Vec<ClusterIndex> {
        self.places.clusters(brain, workload)
    }

    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        self.places.cluster_of(holder)
    }

    fn take(&mut self, brain: &Brain, workload: WorkloadId, assignment: &Assignment) -> bool {
        self.places.take(brain, workload, assignment)
    }
}

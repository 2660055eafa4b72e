//! Nobody displaces in turn: who gave way for another doesn't displace it, nor whoever that one gave way for; nor does one displace
//! the same other again and again. Policies can contradict each other (a borrower by priority, an owner by its quota), and cycles would
//! go round for ever.
//!
//! The engine keeps the same rules for a while of real time; a plan is of one moment.

use meridian_queueing::Brain;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::places::{ClusterIndex, Places};
use meridian_queueing::preempt::{Right, Target};
use std::collections::{BTreeMap, BTreeSet};

/// How often one workload may displace the same other one. What comes free may be taken by others, every time.
const DISPLACED_MAX: u32 = 2;

/// Places in which it is known who gave way for whom.
pub(crate) struct InTurn<'p> {
    places: &'p mut dyn Places,
    /// For whom each gave way, and how often.
    gave_way: BTreeMap<WorkloadId, BTreeMap<WorkloadId, u32>>,
    /// Who displaced the same other one as often as it may.
    insistent: BTreeSet<WorkloadId>,
}

impl<'p> InTurn<'p> {
    pub(crate) fn new(places: &'p mut dyn Places) -> Self {
        Self { places, gave_way: BTreeMap::new(), insistent: BTreeSet::new() }
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

    /// Whether a workload gave way for another, at however many removes.
    fn has_given_way(&self, workload: WorkloadId, other: WorkloadId) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([workload]), vec![workload]);
        while let Some(at) = next.pop() {
            for by in self.gave_way.get(&at).into_iter().flat_map(BTreeMap::keys) {
                if *by == other {
                    return true;
                }
                if seen.insert(*by) {
                    next.push(*by);
                }
            }
        }
        false
    }
}

impl Places for InTurn<'_> {
    fn may_displace(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let in_turn = self.gave_way.contains_key(&workload) && self.has_given_way(workload, holder);
        let times = self.gave_way.get(&holder).and_then(|ways| ways.get(&workload)).copied().unwrap_or(0);
        !in_turn && times < DISPLACED_MAX && self.places.may_displace(workload, holder)
    }

    fn is_apart(&self, workload: WorkloadId) -> bool {
        self.places.is_apart(workload) || self.gave_way.contains_key(&workload) || self.insistent.contains(&workload)
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

//! Prevents endless preemption by contradictory policies, with the rule of
//! [`meridian_queueing::preemption_cycles`]. The manager remembers preemptions for ten minutes, a plan until
//! its end.

use meridian_queueing::QueueState;
use meridian_queueing::capacity_model::{CapacityModel, ClusterIndex};
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::preemption::{PreemptionReason, Target};
use meridian_queueing::preemption_cycles::{PREEMPTIONS_MAX, was_preempted_for};
use std::collections::{BTreeMap, BTreeSet};

/// A capacity model that also forbids preemption cycles.
pub(super) struct PreemptionGuard<'p> {
    capacity: &'p mut dyn CapacityModel,
    /// By victim: its preemptors, and how often each preempted it.
    preemptors: BTreeMap<WorkloadId, BTreeMap<WorkloadId, u32>>,
    /// Preemptors that may not preempt one of their victims again.
    at_limit: BTreeSet<WorkloadId>,
    /// By scale-up: the gang that it belongs to.
    gangs: BTreeMap<WorkloadId, WorkloadId>,
}

impl<'p> PreemptionGuard<'p> {
    pub(super) fn new(
        capacity: &'p mut dyn CapacityModel,
        scale_ups: &BTreeMap<WorkloadId, WorkloadId>,
    ) -> Self {
        let gangs = scale_ups.iter().map(|(gang, scale_up)| (*scale_up, *gang)).collect();
        Self { capacity, preemptors: BTreeMap::new(), at_limit: BTreeSet::new(), gangs }
    }

    /// Records the preemptions of a cycle: victim, preemptor, right.
    pub(super) fn record(&mut self, preempted: &[(WorkloadId, WorkloadId, PreemptionReason)]) {
        for (victim, preemptor, _) in preempted {
            let times = self.preemptors.entry(*victim).or_default().entry(*preemptor).or_default();
            *times += 1;
            if *times >= PREEMPTIONS_MAX {
                self.at_limit.insert(*preemptor);
            }
        }
    }
}

impl CapacityModel for PreemptionGuard<'_> {
    fn may_preempt(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let closes_cycle = was_preempted_for(&self.preemptors, workload, |preemptor| preemptor == holder);
        let of_holder = self.preemptors.get(&holder);
        let times = of_holder.and_then(|preemptors| preemptors.get(&workload)).copied().unwrap_or(0);
        let own_gang = self.gangs.get(&workload) == Some(&holder);
        !closes_cycle && !own_gang && times < PREEMPTIONS_MAX && self.capacity.may_preempt(workload, holder)
    }

    fn has_own_obstacle(&self, workload: WorkloadId) -> bool {
        self.capacity.has_own_obstacle(workload)
            || self.preemptors.contains_key(&workload)
            || self.at_limit.contains(&workload)
            || self.gangs.contains_key(&workload)
    }

    fn fits(&mut self, state: &QueueState, workload: WorkloadId, victims: &[Target]) -> bool {
        self.capacity.fits(state, workload, victims)
    }

    fn assume_assignment(
        &mut self,
        state: &QueueState,
        workload: WorkloadId,
        assignment: Option<&Assignment>,
    ) {
        self.capacity.assume_assignment(state, workload, assignment);
    }

    fn fits_now(&mut self, state: &QueueState, workload: WorkloadId) -> bool {
        self.capacity.fits_now(state, workload)
    }

    fn may_fit_soon(&mut self, state: &QueueState, workload: WorkloadId) -> bool {
        self.capacity.may_fit_soon(state, workload)
    }

    fn reserve(&mut self, state: &QueueState, workload: WorkloadId, victims: &[Target]) {
        self.capacity.reserve(state, workload, victims);
    }

    fn clusters(&mut self, state: &QueueState, workload: WorkloadId) -> Vec<ClusterIndex> {
        self.capacity.clusters(state, workload)
    }

    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        self.capacity.cluster_of(holder)
    }

    fn take(&mut self, state: &QueueState, workload: WorkloadId, assignment: &Assignment) -> bool {
        self.capacity.take(state, workload, assignment)
    }
}

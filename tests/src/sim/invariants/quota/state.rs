//! Quota holders, what workloads request, and preemptions, while the records of one outcome are replayed.

use crate::sim::fleet::job::SimulatedJob;
use crate::sim::invariants::quota::snapshot::ElasticSize;
use crate::sim::reference_model::quota_forest::QuotaForest;
use meridian_manager_core::facts::flavors::Flavors;
use meridian_queueing::preemption::PreemptionReason;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::Run;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub(super) struct QuotaHolder {
    pub(super) queue: String,
    /// Accelerators per flavor.
    pub(super) amounts: Vec<(String, i64)>,
    pub(super) flavors: Flavors,
    /// Pods per pod set.
    pub(super) counts: Option<Vec<u32>>,
    /// Pods before a scale-up that the agent hasn't confirmed.
    pub(super) before_scale_up: Option<Vec<u32>>,
    pub(super) fence: Option<Fence>,
    pub(super) stopping: bool,
    /// The workload that it is preempted for.
    pub(super) preemptor: Option<Uid>,
}

pub(super) type QuotaHolders = BTreeMap<Uid, QuotaHolder>;

/// Quota as it was when preemptions were decided together.
#[derive(Debug)]
pub(super) struct DecisionBasis {
    pub(super) forest: QuotaForest,
    pub(super) holders: QuotaHolders,
}

#[derive(Clone, Debug)]
pub(super) struct Preemption {
    pub(super) victim: Uid,
    pub(super) preemptor: Uid,
    pub(super) reason: PreemptionReason,
    pub(super) basis: Rc<DecisionBasis>,
}

impl Preemption {
    /// Whether two preemptions were decided together.
    pub(super) fn is_decided_with(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.basis, &other.basis)
    }
}

/// What elastic jobs request.
#[derive(Debug)]
pub(super) struct ElasticDemand {
    pub(super) sizes: BTreeMap<Uid, ElasticSize>,
    /// Pods that attempts run with, where that isn't what they were admitted with.
    pub(super) running_pods: BTreeMap<Uid, u32>,
    /// Completion indexes that have succeeded and don't run again.
    pub(super) completed: BTreeMap<Uid, Indexes>,
    /// Of elastic jobs: the indexes that had succeeded when the job was admitted.
    pub(super) done_before: BTreeMap<Uid, Indexes>,
}

impl ElasticDemand {
    /// Accelerators of the fewest pods that a job can be admitted with. An elastic one that ran before may
    /// start with any size that it was asked to have.
    pub(super) fn min_gpus(&self, uid: Uid, job: &SimulatedJob) -> i64 {
        let left = self.left_gpus(uid, job);
        match self.completed.get(&uid).filter(|completed| !completed.is_empty()) {
            None => self
                .requested_gpus(uid, job)
                .map_or_else(|| job.min_gpus().min(left), |asked| asked.min(job.least_gpus())),
            // All but one of the pods that it ran with may have completed.
            Some(_) if self.sizes.contains_key(&uid) => job.gpus,
            Some(_) => job.min_gpus().min(left),
        }
    }

    /// Accelerators of all pods of a job.
    pub(super) fn max_gpus(&self, uid: Uid, job: &SimulatedJob) -> i64 {
        self.left_gpus(uid, job)
    }

    /// Accelerators of the pods that haven't completed, at least those of one pod.
    fn left_gpus(&self, uid: Uid, job: &SimulatedJob) -> i64 {
        let completed = self.completed.get(&uid).map_or(0, Indexes::len);
        if let Some(size) = self.sizes.get(&uid).filter(|size| !size.elastic) {
            let left = i64::try_from(job.pods).unwrap_or(i64::MAX).saturating_sub(i64::from(completed));
            return i64::from(size.pods).min(left).max(1).saturating_mul(job.gpus);
        }
        let total = self.requested_gpus(uid, job).unwrap_or_else(|| job.total_gpus());
        total.saturating_sub(i64::from(completed).saturating_mul(job.gpus)).max(job.gpus)
    }

    /// Pods that an elastic job asks for in the attempt that it was admitted for. Its indexes are as many as
    /// its pods.
    pub(super) fn requested_pods(&self, uid: Uid) -> Option<u32> {
        let size = self.sizes.get(&uid)?;
        let done = self.done_before.get(&uid).map_or(0, Indexes::len);
        Some(size.pods.saturating_sub(done).max(1))
    }

    /// The job loses the indexes beyond its new size.
    pub(super) fn resized(&mut self, uid: Uid, size: ElasticSize) {
        for done in [&mut self.completed, &mut self.done_before].map(|done| done.get_mut(&uid)) {
            done.into_iter().filter(|_| size.elastic).for_each(|done| *done = done.below(size.pods));
        }
        self.sizes.insert(uid, size);
    }

    /// An attempt of a job begins. It has no pods for indexes that have succeeded.
    pub(super) fn attempt_begins(&mut self, uid: Uid) {
        if self.sizes.get(&uid).is_some_and(|size| size.elastic) {
            self.done_before.insert(uid, self.completed.get(&uid).cloned().unwrap_or_default());
        }
    }

    /// The fewest accelerators that a preemptor needs: those of a scale-up if it holds quota already.
    pub(super) fn needed_gpus(&self, uid: Uid, job: &SimulatedJob, holders: &QuotaHolders) -> i64 {
        match (holders.contains_key(&uid), self.requested_pods(uid), self.running_pods.get(&uid)) {
            (true, Some(requested), Some(running)) => {
                i64::from(requested.saturating_sub(*running)).saturating_mul(job.gpus)
            }
            // Its quota is charged, so that only capacity of a cluster is missing.
            (true, None, _) | (true, Some(_), None) => 0,
            _ => self.min_gpus(uid, job),
        }
    }

    /// The pods that a job was admitted with, where the record leaves them out.
    pub(super) fn counts(&self, uid: Uid, counts: Option<&Vec<u32>>) -> Option<Vec<u32>> {
        counts.cloned().or_else(|| self.sizes.get(&uid).map(|size| vec![size.pods]))
    }

    /// The pods of a run that a cluster reported and that held no quota. Indexes that the records don't know
    /// may have succeeded before it began.
    pub(super) fn adopted_counts(&self, run: &Run) -> Option<Vec<u32>> {
        let size = self.sizes.get(&run.uid)?;
        let pods = reported_pods(run).filter(|pods| (1..=size.pods).contains(pods));
        Some(vec![pods.unwrap_or(size.pods)])
    }

    /// Accelerators of the requested size of an elastic job.
    fn requested_gpus(&self, uid: Uid, job: &SimulatedJob) -> Option<i64> {
        self.sizes.get(&uid).map(|size| i64::from(size.pods).saturating_mul(job.gpus))
    }
}

/// Pods in the placement that a cluster reported.
pub(super) fn reported_pods(run: &Run) -> Option<u32> {
    let pods: u64 = run.placement.as_ref()?.pod_sets.iter().map(|set| set.pods()).sum();
    u32::try_from(pods).ok()
}

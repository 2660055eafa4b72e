//! Quota holders, what workloads request, and preemptions, while the records of one outcome are replayed.

use crate::sim::fleet::job::SimulatedJob;
use crate::sim::invariants::quota::snapshot::ElasticSize;
use crate::sim::reference_model::quota_forest::QuotaForest;
use meridian_manager_core::facts::flavors::Flavors;
use meridian_queueing::preemption::PreemptionReason;
use meridian_shared::ids::{Fence, Uid};
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
}

impl ElasticDemand {
    /// Accelerators of the fewest pods that a job can be admitted with.
    pub(super) fn min_gpus(&self, uid: Uid, job: &SimulatedJob) -> i64 {
        self.requested_gpus(uid, job).unwrap_or_else(|| job.min_gpus())
    }

    /// Accelerators of all pods of a job.
    pub(super) fn max_gpus(&self, uid: Uid, job: &SimulatedJob) -> i64 {
        self.requested_gpus(uid, job).unwrap_or_else(|| job.total_gpus())
    }

    /// The fewest accelerators that a preemptor needs: those of a scale-up if it holds quota already.
    pub(super) fn needed_gpus(&self, uid: Uid, job: &SimulatedJob, holders: &QuotaHolders) -> i64 {
        match (holders.contains_key(&uid), self.sizes.get(&uid), self.running_pods.get(&uid)) {
            (true, Some(size), Some(running)) => {
                i64::from(size.pods.saturating_sub(*running)).saturating_mul(job.gpus)
            }
            _ => self.min_gpus(uid, job),
        }
    }

    /// The pods that a job was admitted with, where the record leaves them out.
    pub(super) fn counts(&self, uid: Uid, counts: Option<&Vec<u32>>) -> Option<Vec<u32>> {
        counts.cloned().or_else(|| self.sizes.get(&uid).map(|size| vec![size.pods]))
    }

    /// Accelerators of the requested size of an elastic job.
    fn requested_gpus(&self, uid: Uid, job: &SimulatedJob) -> Option<i64> {
        self.sizes.get(&uid).map(|size| i64::from(size.pods).saturating_mul(job.gpus))
    }
}

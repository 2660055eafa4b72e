//! One job: what its user asks for, and what its gang does once it runs.

use crate::sim::fleet::topology::TopologyRequest;
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::Millis;

/// What the gang of a job does once it runs.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// Time from the start of the gang until all pods have started.
    pub(crate) startup: Millis,
    /// Time from then until the gang ends.
    pub(crate) duration: Millis,
    pub(crate) succeeds: bool,
    /// When pods exit before the others, counted from the same moment as `duration`, soonest first.
    pub(crate) early_exits: Vec<Millis>,
}

/// A job as its user submitted it.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedJob {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) queue: String,
    pub(crate) pods: usize,
    /// Fewest pods that the job may be admitted with, where partial admission is allowed.
    pub(crate) min_pods: Option<usize>,
    /// Whether the number of pods may change while the gang runs.
    pub(crate) elastic: bool,
    /// Every number of pods that was requested for an elastic job, or for another one that was changed; else
    /// empty.
    pub(crate) sizes: Vec<usize>,
    /// Accelerators per pod.
    pub(crate) gpus: i64,
    pub(crate) behaviour: Behaviour,
    /// Term of the lease.
    pub(crate) term: Millis,
    pub(crate) on_loss: OnLoss,
    /// Longest that one attempt may run (`activeDeadlineSeconds`).
    pub(crate) deadline: Option<Millis>,
    pub(crate) priority: i64,
    pub(crate) topology: Option<TopologyRequest>,
    /// Seconds for which its pods tolerate the maintenance taint, one entry per toleration.
    pub(crate) tolerates: Vec<Option<i64>>,
}

impl SimulatedJob {
    /// Accelerators of all pods.
    pub(crate) fn total_gpus(&self) -> i64 {
        self.gpus_of(self.pods)
    }

    /// Accelerators of the fewest pods that the job may be admitted with.
    pub(crate) fn min_gpus(&self) -> i64 {
        self.gpus_of(self.min_pods.unwrap_or(self.pods))
    }

    /// Accelerators of the smallest requested size of the job.
    pub(crate) fn least_gpus(&self) -> i64 {
        self.gpus_of(self.sizes.iter().min().copied().unwrap_or(self.pods))
    }

    /// Accelerators of these pods per pod set, or of all pods.
    pub(crate) fn gpus_for(&self, counts: Option<&Vec<u32>>) -> i64 {
        counts.map_or_else(
            || self.total_gpus(),
            |counts| i64::from(counts.iter().sum::<u32>()).saturating_mul(self.gpus),
        )
    }

    /// Accelerators of the pods that were admitted, less those that can be reclaimed because their pods have
    /// exited.
    pub(crate) fn gpus_left(&self, counts: Option<&Vec<u32>>, reclaimable: Option<&Vec<u32>>) -> i64 {
        let exited = reclaimable.map_or(0, |pods| i64::from(pods.iter().sum::<u32>()));
        self.gpus_for(counts).saturating_sub(exited.saturating_mul(self.gpus))
    }

    /// Whether an attempt may have this number of pods.
    pub(crate) fn may_have(&self, pods: usize) -> bool {
        if self.sizes.is_empty() {
            (self.min_pods.unwrap_or(self.pods)..=self.pods).contains(&pods)
        } else if !self.elastic {
            self.sizes.contains(&pods)
        } else {
            // A job that lost its place starts with at least the pods that it ran with.
            let (least, most) = (self.sizes.iter().min(), self.sizes.iter().max());
            least.is_some_and(|least| *least <= pods) && most.is_some_and(|most| pods <= *most)
        }
    }

    /// Whether a scale-up may lead to this number of pods. Completed indexes may leave fewer than any size
    /// that was requested.
    pub(crate) fn may_grow_to(&self, pods: usize) -> bool {
        self.elastic && self.sizes.iter().max().is_some_and(|most| (1..=*most).contains(&pods))
    }

    /// Whether an attempt may start with this number of pods, after this number of indexes has completed.
    pub(crate) fn may_start_with(&self, pods: usize, completed: usize) -> bool {
        if !self.elastic && !self.sizes.is_empty() {
            let left = self.pods.saturating_sub(completed).max(1);
            return self.sizes.iter().any(|size| (*size).min(left) == pods);
        }
        if !self.sizes.is_empty() {
            let most = self.sizes.iter().max().map_or(0, |most| most.saturating_sub(completed).max(1));
            return if completed == 0 { self.may_have(pods) } else { (1..=most).contains(&pods) };
        }
        let left = self.pods.saturating_sub(completed).max(1);
        (self.min_pods.unwrap_or(self.pods).min(left)..=left).contains(&pods)
    }

    fn gpus_of(&self, pods: usize) -> i64 {
        i64::try_from(pods).unwrap_or(i64::MAX).saturating_mul(self.gpus)
    }
}

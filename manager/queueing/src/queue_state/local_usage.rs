//! Admission fair sharing: order of the local queues of a cluster queue by usage history (Kueue's KEP-4136).
//!
//! The usage history of a local queue decays with a half-life. After a time in which the fraction `alpha` is
//! forgotten, the history is `(1 - alpha) * past + alpha * now`. An admission charges its local queue a
//! penalty at once: `alpha` of the requests, for the time until the next sample. So bursts have an immediate
//! effect, and runs between two samples aren't free. The penalty is pending until the admission is confirmed
//! or cancelled; the owner of the history then adds or drops it.
//!
//! All amounts are integers, so that a refund equals its charge, and the order of additions doesn't matter.

use crate::model::{QueueId, Workload, WorkloadId};
use crate::names::ResourceId;
use crate::queue_state::QueueState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Usage of a local queue, for admission fair sharing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalQueueUsage {
    /// Decayed usage history.
    pub consumed: NanoUsage,
    /// Penalties of admissions that are not confirmed yet.
    pub penalty: NanoUsage,
    /// Weight. Zero makes any usage infinite.
    pub weight: f64,
}

/// Units of a core, byte or device in which usage is counted: billionths, the precision of Kubernetes'
/// quantities.
pub const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Usage by resource, in [`NANOS_PER_UNIT`].
pub type NanoUsage = BTreeMap<ResourceId, i128>;

/// Converts an amount in base units of a resource to [`NANOS_PER_UNIT`].
pub fn to_nanos(resource: &str, amount: i64) -> i128 {
    i128::from(amount) * if resource == "cpu" { NANOS_PER_UNIT / 1_000 } else { NANOS_PER_UNIT }
}

/// Fraction of the history that is forgotten after `elapsed_ms`. With a half-life of zero there is no history
/// and no penalty.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run fit")]
pub fn alpha(elapsed_ms: i64, half_life_ms: i64) -> f64 {
    if half_life_ms == 0 { 0.0 } else { 1.0 - 0.5_f64.powf(elapsed_ms as f64 / half_life_ms as f64) }
}

/// The history after the fraction `alpha` was forgotten while `now` was used. It converges to `now` and never
/// passes it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "what is lost is less than a part in a million"
)]
pub fn decayed(past: i128, now: i128, alpha: f64) -> i128 {
    now + ((past - now) as f64 * (1.0 - alpha)) as i128
}

/// Usage and pending penalties of local queues.
#[derive(Clone, Debug, Default)]
pub(super) struct LocalQueueUsages {
    usage: BTreeMap<Arc<str>, LocalQueueUsage>,
    /// Penalties of admissions that are not confirmed yet.
    penalties: BTreeMap<WorkloadId, NanoUsage>,
}

impl LocalQueueUsages {
    fn charge(&mut self, local_queue: Arc<str>, workload: WorkloadId, penalty: NanoUsage) {
        let usage = self
            .usage
            .entry(local_queue)
            .or_insert_with(|| LocalQueueUsage { weight: 1.0, ..LocalQueueUsage::default() });
        for (resource, amount) in &penalty {
            *usage.penalty.entry(*resource).or_default() += amount;
        }
        self.penalties.insert(workload, penalty);
    }

    fn refund(&mut self, local_queue: Option<&Arc<str>>, workload: WorkloadId) {
        let Some(penalty) = self.penalties.remove(&workload) else { return };
        let Some(usage) = local_queue.and_then(|name| self.usage.get_mut(name)) else { return };
        for (resource, amount) in penalty {
            if let Some(pending) = usage.penalty.get_mut(&resource) {
                *pending -= amount;
            }
        }
        usage.penalty.retain(|_, pending| *pending > 0);
    }
}

impl QueueState {
    /// Sets the usage and weight of a local queue.
    pub fn set_local_usage(&mut self, local_queue: Arc<str>, usage: LocalQueueUsage) {
        self.local_queues.usage.insert(local_queue, usage);
    }

    /// Sets the usage history and weight of a local queue. Pending penalties stay.
    pub fn set_usage_history(&mut self, local_queue: Arc<str>, consumed: NanoUsage, weight: f64) {
        let usage = self.local_queues.usage.entry(local_queue).or_default();
        (usage.consumed, usage.weight) = (consumed, weight);
    }

    /// Removes local queues that no longer exist.
    pub fn retain_local_queues(&mut self, is_there: impl Fn(&str) -> bool) {
        self.local_queues.usage.retain(|name, _| is_there(name));
    }

    pub fn local_usage(&self, local_queue: &str) -> Option<&LocalQueueUsage> {
        self.local_queues.usage.get(local_queue)
    }

    /// Weighted usage of a local queue.
    #[expect(clippy::cast_precision_loss, reason = "the usage history is only compared")]
    pub fn weighted_usage(&self, local_queue: &str) -> f64 {
        let Some(of) = self.local_queues.usage.get(local_queue) else { return 0.0 };
        if of.weight <= 0.0 {
            return f64::INFINITY;
        }
        let weights = self
            .settings
            .admission_fair_sharing
            .as_ref()
            .map(|a| a.resource_weights.as_slice())
            .unwrap_or_default();
        let mut names: BTreeMap<&str, i128> = BTreeMap::new();
        for (resource, amount) in of.consumed.iter().chain(&of.penalty) {
            *names.entry(&**self.resource_name(*resource)).or_default() += amount;
        }
        let weight = |name: &str| {
            weights
                .iter()
                .find(|(of, _)| of == name)
                .map_or(1.0, |(_, nano)| *nano as f64 / NANOS_PER_UNIT as f64)
        };
        // A sum of no floats is -0.0, which `total_cmp` orders before 0.0. Starting at 0.0 makes all unused
        // local queues equal.
        let sum = names.iter().fold(0.0, |sum, (name, amount)| sum + weight(name) * *amount as f64);
        sum.round() / NANOS_PER_UNIT as f64 / of.weight
    }

    /// Usage of a holder's local queue; `None` if its queue isn't ordered by usage.
    pub(crate) fn usage_for_order(&self, workload: &Workload) -> Option<f64> {
        self.queue(workload.queue).setup.usage_based.then(|| self.weighted_usage(&workload.local_queue))
    }

    /// Whether a queue is ordered by usage of its local queues.
    pub fn orders_by_usage(&self, queue: QueueId) -> bool {
        self.settings.gates.admission_fair_sharing
            && self.settings.admission_fair_sharing.is_some()
            && self.queue(queue).setup.usage_based
    }

    /// Whether admission of a workload charges a penalty.
    pub fn charges_penalty(&self, workload: WorkloadId) -> bool {
        let of = &self.workloads[&workload];
        self.orders_by_usage(of.queue) && of.holding.is_none()
    }

    /// The penalty for admission of a workload. Empty if its queue isn't ordered by usage.
    pub fn entry_penalty(&self, workload: WorkloadId) -> NanoUsage {
        let Some(of) = self.workloads.get(&workload).filter(|of| self.orders_by_usage(of.queue)) else {
            return NanoUsage::new();
        };
        let Some(alpha) =
            self.settings.admission_fair_sharing.as_ref().map(|a| alpha(a.sampling_ms, a.half_life_ms))
        else {
            return NanoUsage::new();
        };
        let (shape, setup) = (self.shape_of(of.shape), &self.queue(of.queue).setup);
        let mut sum = NanoUsage::new();
        for (at, set) in shape.pod_sets.iter().enumerate() {
            for (resource, amount) in &set.per_pod {
                if setup.group_of(*resource).is_some() || !self.settings.ignores_undeclared() {
                    let requested = amount.max(&0).saturating_mul(i64::from(shape.count(at)));
                    *sum.entry(*resource).or_default() += to_nanos(self.resource_name(*resource), requested);
                }
            }
        }
        sum.values_mut().for_each(|amount| *amount = decayed(0, *amount, alpha));
        sum.retain(|_, amount| *amount > 0);
        sum
    }

    /// Charges the penalty of an admission.
    pub(crate) fn charge_penalty(&mut self, workload: WorkloadId) {
        if !self.charges_penalty(workload) {
            return;
        }
        self.drop_penalty(workload);
        let penalty = self.entry_penalty(workload);
        let local_queue = self.workloads[&workload].local_queue.clone();
        self.local_queues.charge(local_queue, workload, penalty);
    }

    /// Drops the pending penalty of a workload: its admission was confirmed or cancelled.
    pub fn drop_penalty(&mut self, workload: WorkloadId) {
        let local_queue = self.workloads.get(&workload).map(|of| &of.local_queue);
        self.local_queues.refund(local_queue, workload);
    }

    /// Whether a workload has a pending penalty.
    pub fn has_penalty(&self, workload: WorkloadId) -> bool {
        self.local_queues.penalties.contains_key(&workload)
    }

    /// All workloads with a pending penalty.
    pub fn workloads_with_penalty(&self) -> impl Iterator<Item = WorkloadId> {
        self.local_queues.penalties.keys().copied()
    }

    /// Marks queues that are ordered by usage as changed, because a new usage history may give them another
    /// head. True if any of them has active workloads.
    pub fn reorder(&mut self) -> bool {
        let queues: Vec<QueueId> =
            self.agenda.active_queues().filter(|queue| self.orders_by_usage(*queue)).collect();
        queues.iter().for_each(|queue| self.mark_changed(*queue));
        !queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AdmissionFairSharing;

    #[test]
    fn usage_halves_after_a_half_life_and_ends_at_zero() {
        let half = alpha(60_000, 60_000);
        assert_eq!(
            (decayed(8 * NANOS_PER_UNIT, 0, half), decayed(0, 8 * NANOS_PER_UNIT, half)),
            (4 * NANOS_PER_UNIT, 4 * NANOS_PER_UNIT)
        );
        assert_eq!(
            decayed(8 * NANOS_PER_UNIT, 8 * NANOS_PER_UNIT, half),
            8 * NANOS_PER_UNIT,
            "constant usage stays"
        );
        let (mut past, slow) = (to_nanos("memory", 1 << 50), alpha(300_000, 604_800_000));
        for _ in 0..300_000 {
            past = decayed(past, 0, slow);
        }
        assert_eq!(past, 0, "no remainder is kept forever");
        assert_eq!(decayed(0, 7, 1.0), 7);
    }

    #[test]
    fn usage_is_weighted_by_resource_and_local_queue() {
        let mut state = QueueState::default();
        let (cpu, gpu) = (state.resource("cpu"), state.resource("gpu"));
        let usage = LocalQueueUsage {
            consumed: NanoUsage::from([(cpu, to_nanos("cpu", 1_500)), (gpu, to_nanos("gpu", 2))]),
            penalty: NanoUsage::from([(gpu, 1)]),
            weight: 2.0,
        };
        state.set_local_usage(Arc::from("a"), usage);
        assert_eq!(state.weighted_usage("a"), 3.500_000_001 / 2.0);
        let resource_weights = vec![("gpu".to_owned(), 3_000_000_000)];
        state.settings.admission_fair_sharing =
            Some(AdmissionFairSharing { half_life_ms: 1, sampling_ms: 1, resource_weights });
        assert_eq!(state.weighted_usage("a"), 7.500_000_003 / 2.0);
        state.set_usage_history(Arc::from("a"), NanoUsage::new(), 1.0);
        assert_eq!(state.weighted_usage("a"), 3e-9, "pending penalties stay");
        state.set_usage_history(Arc::from("b"), NanoUsage::new(), 1.0);
        assert!(state.weighted_usage("b").total_cmp(&state.weighted_usage("unknown")).is_eq());
        state.set_local_usage(Arc::from("c"), LocalQueueUsage::default());
        assert!(state.weighted_usage("c").is_infinite(), "any usage is infinite with weight zero");
    }
}

//! Fair sharing of admissions between the local queues of one cluster queue, by what they used before (Kueue's KEP-4136).
//!
//! What a local queue used decays with a half-life: over a time in which the share `alpha` of it is forgotten, past use becomes
//! `(1 - alpha) * past + alpha * now`. Who is admitted costs its local queue `alpha` of its requests at once, for the time between
//! two samples: so a burst is felt before it is sampled, and a run that no sample sees isn't free. The cost is pending until
//! the admission has come about or hasn't; whoever keeps past use then adds it, or takes it back.
//!
//! Everything is counted in whole parts of a unit, so that what is taken back is what was charged, and no order of additions
//! makes a difference between equals.

use crate::brain::{Brain, LocalUsage};
use crate::model::{QueueId, WorkloadId};
use crate::names::ResourceId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts of one core, byte or device in which use is counted: billionths, as fine as Kubernetes' quantities.
pub const PARTS: i128 = 1_000_000_000;

/// Use by resource, in [parts](PARTS).
pub type Parts = BTreeMap<ResourceId, i128>;

/// An amount in base units of a resource, in parts of one core, byte or device.
pub fn parts(resource: &str, amount: i64) -> i128 {
    i128::from(amount) * if resource == "cpu" { PARTS / 1_000 } else { PARTS }
}

/// How much of past use is forgotten after `elapsed`, for a half-life. Without one nothing is remembered, and nothing costs.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run fit")]
pub fn alpha(elapsed_ms: i64, half_life_ms: i64) -> f64 {
    if half_life_ms == 0 { 0.0 } else { 1.0 - 0.5_f64.powf(elapsed_ms as f64 / half_life_ms as f64) }
}

/// Past use after a time in which the share `alpha` of it was forgotten and `now` was used. It never passes `now`, and comes to it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "what is lost is less than a part in a million"
)]
pub fn decayed(past: i128, now: i128, alpha: f64) -> i128 {
    now + ((past - now) as f64 * (1.0 - alpha)) as i128
}

impl Brain {
    /// States what a local queue used, and its weight.
    pub fn set_local_usage(&mut self, local_queue: Arc<str>, usage: LocalUsage) {
        self.local_usage.insert(local_queue, usage);
    }

    /// States past use and weight of a local queue; what its admissions cost stays pending.
    pub fn recall(&mut self, local_queue: Arc<str>, consumed: Parts, weight: f64) {
        let usage = self.local_usage.entry(local_queue).or_default();
        (usage.consumed, usage.weight) = (consumed, weight);
    }

    /// Forgets local queues that aren't there any more.
    pub fn retain_local_queues(&mut self, is_there: impl Fn(&str) -> bool) {
        self.local_usage.retain(|name, _| is_there(name));
    }

    /// What a local queue used.
    pub fn local_usage(&self, local_queue: &str) -> Option<&LocalUsage> {
        self.local_usage.get(local_queue)
    }

    /// What a local queue used by its weight, as one number.
    #[expect(clippy::cast_precision_loss, reason = "past use is only compared")]
    pub fn local_usage_value(&self, local_queue: &str) -> f64 {
        let Some(of) = self.local_usage.get(local_queue) else { return 0.0 };
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
            weights.iter().find(|(of, _)| of == name).map_or(1.0, |(_, nano)| *nano as f64 / PARTS as f64)
        };
        // The sum of no floats is less than zero to an order of all of them, and whoever used nothing is alike.
        let sum = names.iter().fold(0.0, |sum, (name, amount)| sum + weight(name) * *amount as f64);
        sum.round() / PARTS as f64 / of.weight
    }

    /// The same for a holder, where its queue is ordered by use.
    pub(crate) fn local_usage_of(&self, workload: &crate::model::Workload) -> Option<f64> {
        self.queue(workload.queue).setup.usage_based.then(|| self.local_usage_value(&workload.local_queue))
    }

    /// Whether a queue is ordered by what its local queues used.
    pub fn orders_by_usage(&self, queue: QueueId) -> bool {
        self.settings.gates.admission_fair_sharing
            && self.settings.admission_fair_sharing.is_some()
            && self.queue(queue).setup.usage_based
    }

    /// Whether an admission costs its local queue something at once.
    pub fn charges_penalty(&self, workload: WorkloadId) -> bool {
        let of = &self.workloads[&workload];
        self.orders_by_usage(of.queue) && of.holding.is_none()
    }

    /// What an admission of this workload costs its local queue; nothing where its queue isn't ordered by use.
    pub fn entry_penalty(&self, workload: WorkloadId) -> Parts {
        let Some(of) = self.workloads.get(&workload).filter(|of| self.orders_by_usage(of.queue)) else {
            return Parts::new();
        };
        let Some(alpha) =
            self.settings.admission_fair_sharing.as_ref().map(|a| alpha(a.sampling_ms, a.half_life_ms))
        else {
            return Parts::new();
        };
        let (shape, setup) = (self.shape_of(of.shape), &self.queue(of.queue).setup);
        let mut sum = Parts::new();
        for (at, set) in shape.pod_sets.iter().enumerate() {
            for (resource, amount) in &set.per_pod {
                if setup.group_of(*resource).is_some() || !self.settings.ignores_undeclared() {
                    let asked = amount.max(&0).saturating_mul(i64::from(shape.count(at)));
                    *sum.entry(*resource).or_default() += parts(self.resource_name(*resource), asked);
                }
            }
        }
        sum.values_mut().for_each(|amount| *amount = decayed(0, *amount, alpha));
        sum.retain(|_, amount| *amount > 0);
        sum
    }

    /// Lets a local queue feel an admission before the next sample.
    pub(crate) fn penalize(&mut self, workload: WorkloadId) {
        if !self.charges_penalty(workload) {
            return;
        }
        self.take_back_penalty(workload);
        let penalty = self.entry_penalty(workload);
        let local_queue = self.workloads[&workload].local_queue.clone();
        let usage = self
            .local_usage
            .entry(local_queue)
            .or_insert_with(|| LocalUsage { weight: 1.0, ..LocalUsage::default() });
        for (resource, amount) in &penalty {
            *usage.penalty.entry(*resource).or_default() += amount;
        }
        self.penalties.insert(workload, penalty);
    }

    /// The admission of a workload came about, or it didn't: what it cost is no longer pending.
    pub fn take_back_penalty(&mut self, workload: WorkloadId) {
        let Some(penalty) = self.penalties.remove(&workload) else { return };
        let Some(usage) =
            self.workloads.get(&workload).and_then(|of| self.local_usage.get_mut(&of.local_queue))
        else {
            return;
        };
        for (resource, amount) in penalty {
            if let Some(pending) = usage.penalty.get_mut(&resource) {
                *pending -= amount;
            }
        }
        usage.penalty.retain(|_, pending| *pending > 0);
    }

    /// Whether the admission of a workload costs something that is pending.
    pub fn is_penalized(&self, workload: WorkloadId) -> bool {
        self.penalties.contains_key(&workload)
    }

    /// Whose admissions cost something that is pending.
    pub fn penalized(&self) -> impl Iterator<Item = WorkloadId> {
        self.penalties.keys().copied()
    }

    /// Past use is another than before: who is first in a queue that is ordered by it may be somebody else now. True where
    /// anybody is looked at for it.
    pub fn reorder(&mut self) -> bool {
        let queues: Vec<QueueId> =
            self.active.iter().copied().filter(|queue| self.orders_by_usage(*queue)).collect();
        queues.iter().for_each(|queue| self.note_changed(*queue));
        !queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_it_is_left_after_a_half_life_and_nothing_in_the_end() {
        let half = alpha(60_000, 60_000);
        assert_eq!((decayed(8 * PARTS, 0, half), decayed(0, 8 * PARTS, half)), (4 * PARTS, 4 * PARTS));
        assert_eq!(decayed(8 * PARTS, 8 * PARTS, half), 8 * PARTS, "what is used all the time stays");
        let (mut past, slow) = (parts("memory", 1 << 50), alpha(300_000, 604_800_000));
        for _ in 0..300_000 {
            past = decayed(past, 0, slow);
        }
        assert_eq!(past, 0, "no rest is remembered for ever");
        assert_eq!(decayed(0, 7, 1.0), 7);
    }

    #[test]
    fn use_counts_in_whole_parts_by_its_weights() {
        let mut brain = Brain::default();
        let (cpu, gpu) = (brain.resource("cpu"), brain.resource("gpu"));
        let usage = LocalUsage {
            consumed: Parts::from([(cpu, parts("cpu", 1_500)), (gpu, parts("gpu", 2))]),
            penalty: Parts::from([(gpu, 1)]),
            weight: 2.0,
        };
        brain.set_local_usage(Arc::from("a"), usage);
        assert_eq!(brain.local_usage_value("a"), 3.500_000_001 / 2.0);
        let resource_weights = vec![("gpu".to_owned(), 3_000_000_000)];
        brain.settings.admission_fair_sharing =
            Some(crate::settings::AdmissionFairSharing { half_life_ms: 1, sampling_ms: 1, resource_weights });
        assert_eq!(brain.local_usage_value("a"), 7.500_000_003 / 2.0);
        brain.recall(Arc::from("a"), Parts::new(), 1.0);
        assert_eq!(brain.local_usage_value("a"), 3e-9, "what is pending stays");
        brain.recall(Arc::from("b"), Parts::new(), 1.0);
        assert!(brain.local_usage_value("b").total_cmp(&brain.local_usage_value("nobody's")).is_eq());
        brain.set_local_usage(Arc::from("c"), LocalUsage::default());
        assert!(brain.local_usage_value("c").is_infinite(), "without weight every use is too much");
    }
}

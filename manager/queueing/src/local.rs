//! Fair sharing of admissions between the local queues of one cluster queue, by what they used before.

use crate::brain::{Brain, LocalUsage};
use crate::model::{Workload, WorkloadId};
use crate::names::ResourceId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An amount in units of one: cores, bytes, devices.
#[expect(clippy::cast_precision_loss, reason = "past use is only compared")]
pub fn units(name: &str, amount: i64) -> f64 {
    if name == "cpu" { amount as f64 / 1000.0 } else { amount as f64 }
}

/// How much of a new sample counts after `elapsed`, for a half-life.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run fit")]
pub fn alpha(elapsed_ms: i64, half_life_ms: i64) -> f64 {
    if half_life_ms == 0 { 0.0 } else { 1.0 - 0.5_f64.powf(elapsed_ms as f64 / half_life_ms as f64) }
}

/// Parts of a unit that past use is counted in.
const PARTS: f64 = 1e9;

impl Brain {
    /// States what a local queue used, and its weight.
    pub fn set_local_usage(&mut self, local_queue: Arc<str>, usage: LocalUsage) {
        self.local_usage.insert(local_queue, usage);
    }

    /// What a local queue used.
    pub fn local_usage(&self, local_queue: &str) -> Option<&LocalUsage> {
        self.local_usage.get(local_queue)
    }

    /// What a local queue used by its weight, as one number.
    pub fn local_usage_value(&self, local_queue: &str) -> f64 {
        let Some(of) = self.local_usage.get(local_queue) else { return 0.0 };
        if of.weight <= 0.0 {
            return f64::INFINITY;
        }
        let weights = self.settings.admission_fair_sharing.as_ref().map(|a| a.resource_weights.as_slice()).unwrap_or_default();
        let mut names: BTreeMap<&str, f64> = BTreeMap::new();
        for (resource, amount) in of.consumed.iter().chain(&of.penalty) {
            *names.entry(&**self.resource_name(*resource)).or_default() += amount;
        }
        let weight = |name: &str| weights.iter().find(|(of, _)| of == name).map_or(1.0, |(_, w)| *w);
        let sum = names.iter().map(|(name, amount)| weight(name) * amount).sum::<f64>();
        // In whole parts, so that the order of additions makes no difference between equals.
        (sum * PARTS).round() / PARTS / of.weight
    }

    /// The same for a holder, where its queue is ordered by use.
    pub(crate) fn local_usage_of(&self, workload: &Workload) -> Option<f64> {
        self.queue(workload.queue).setup.usage_based.then(|| self.local_usage_value(&workload.local_queue))
    }

    /// Whether an admission costs its local queue something at once.
    pub fn charges_penalty(&self, workload: WorkloadId) -> bool {
        let on = self.settings.gates.admission_fair_sharing && self.settings.admission_fair_sharing.is_some();
        let of = &self.workloads[&workload];
        on && self.queue(of.queue).setup.usage_based && of.holding.is_none()
    }

    /// Lets a local queue feel an admission before the next sample.
    pub(crate) fn penalize(&mut self, workload: WorkloadId) {
        if !self.charges_penalty(workload) {
            return;
        }
        let Some(alpha) = self.settings.admission_fair_sharing.as_ref().map(|a| alpha(a.sampling_ms, a.half_life_ms)) else { return };
        let of = &self.workloads[&workload];
        let setup = self.queue(of.queue).setup.clone();
        let mut sum: BTreeMap<ResourceId, f64> = BTreeMap::new();
        for total in crate::flavors::totals(self.shape_of(of.shape), of) {
            for (resource, amount) in total.requests {
                if setup.group_of(resource).is_some() || !self.settings.ignores_undeclared() {
                    *sum.entry(resource).or_default() += units(self.resource_name(resource), amount);
                }
            }
        }
        let usage = self.local_usage.entry(of.local_queue.clone()).or_insert_with(|| LocalUsage { weight: 1.0, ..LocalUsage::default() });
        for (resource, amount) in sum {
            *usage.penalty.entry(resource).or_default() += (amount * alpha * PARTS).floor() / PARTS;
        }
    }

    /// Takes a sample: past use decays, what runs now counts, and what was felt at once is settled.
    pub fn sample_local_usage(&mut self, elapsed_ms: i64) {
        let Some(half_life) = self.settings.admission_fair_sharing.as_ref().map(|a| a.half_life_ms) else { return };
        let mut now: BTreeMap<Arc<str>, BTreeMap<ResourceId, f64>> = BTreeMap::new();
        for (_, workload) in self.workloads.iter().filter(|(_, w)| w.holding.is_some()) {
            let used = now.entry(workload.local_queue.clone()).or_default();
            for total in crate::flavors::totals(self.shape_of(workload.shape), workload) {
                for (resource, amount) in total.requests {
                    *used.entry(resource).or_default() += units(self.resource_name(resource), amount);
                }
            }
        }
        let alpha = if half_life == 0 { 1.0 } else { alpha(elapsed_ms, half_life) };
        for (local_queue, usage) in &mut self.local_usage {
            let used = now.remove(local_queue).unwrap_or_default();
            for amount in usage.consumed.values_mut() {
                *amount *= 1.0 - alpha;
            }
            for (resource, amount) in used {
                *usage.consumed.entry(resource).or_default() += alpha * amount;
            }
            usage.penalty.clear();
        }
        for (local_queue, used) in now {
            let consumed = used.into_iter().map(|(resource, amount)| (resource, alpha * amount)).collect();
            self.local_usage.insert(local_queue, LocalUsage { consumed, weight: 1.0, ..LocalUsage::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_additions_makes_no_difference() {
        let mut brain = Brain::default();
        let cpu = brain.resource("cpu");
        for (name, parts) in [("a", [0.1, 0.2, 0.3]), ("b", [0.3, 0.2, 0.1])] {
            let penalty = parts.into_iter().fold(0.0, |sum, part| sum + part);
            brain.set_local_usage(Arc::from(name), LocalUsage { penalty: BTreeMap::from([(cpu, penalty)]), weight: 1.0, ..LocalUsage::default() });
        }
        assert_ne!(brain.local_usage["a"].penalty, brain.local_usage["b"].penalty);
        assert!(brain.local_usage_value("a").total_cmp(&brain.local_usage_value("b")).is_eq());
        brain.set_local_usage(Arc::from("c"), LocalUsage::default());
        assert!(brain.local_usage_value("c").is_infinite(), "without weight every use is too much");
    }
}

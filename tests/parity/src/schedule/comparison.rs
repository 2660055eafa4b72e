//! Compares the state after cycles with the expected one.

use super::Run;
use crate::assignments::{expected_assignments, expected_quota, holders};
use crate::evictions::expected_evictions;
use crate::json::{fields, items, text, texts};
use crate::preempt::compare_preempted;
use crate::verdict::Differences;
use meridian_objects::quantity;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::pending::{Pending, PendingPosition};
use meridian_shared::gang::Amounts;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type KeysByQueue = BTreeMap<String, BTreeSet<String>>;

impl Run<'_> {
    pub(super) fn compare(&self, expect: &Value, differences: &mut Differences) -> anyhow::Result<()> {
        self.compare_assignments(expect, differences)?;
        if expect["left"].is_object() {
            let active = self.pending_keys(|pending| pending.active().collect());
            differences.decision("left", &active, &keys_by_queue(&expect["left"]));
        }
        if expect["inadmissible"].is_object() {
            let parked = self.pending_keys(|pending| pending.parked().collect());
            differences.decision("inadmissible", &parked, &keys_by_queue(&expect["inadmissible"]));
        }
        if expect["preempted"].is_array() {
            compare_preempted(self.preempted.iter().cloned(), items(&expect["preempted"]), differences);
        }
        if expect["evicted"].is_array() {
            let wanted = items(&expect["evicted"])
                .iter()
                .map(|eviction| {
                    (text(&eviction["workload"]).to_owned(), text(&eviction["reason"]).to_owned())
                })
                .collect();
            differences.decision("evicted", &self.evicted, &wanted);
        }
        self.compare_counters(expect, differences);
        if expect["finalFlavors"].is_object() {
            let flavors = fields(&expect["finalFlavors"]);
            let wanted = flavors.map(|(key, flavor)| (key.clone(), flavor.as_str().map(str::to_owned)));
            let wanted: BTreeMap<String, Option<String>> = wanted.collect();
            let is = wanted.keys().map(|key| (key.clone(), self.flavor_of(key))).collect();
            differences.decision("flavors", &is, &wanted);
        }
        self.records.compare(expect, differences);
        for (key, changed) in fields(&expect["workloads"]) {
            self.compare_status(key, changed, differences)?;
        }
        let held = holders(&self.loaded.state);
        for key in items(&expect["unchanged"]).iter().map(text) {
            let (now, before) = (held.get(key), self.held_before.get(key));
            differences.record(&format!("unchanged admission of `{key}`"), &now, &before);
        }
        Ok(())
    }

    fn compare_assignments(&self, expect: &Value, differences: &mut Differences) -> anyhow::Result<()> {
        if expect["assignments"].is_object() {
            let only_new = text(&expect["assignmentsScope"]) == "not-admitted-before";
            let mut held = holders(&self.loaded.state);
            held.extend(self.replaced.clone());
            held.retain(|key, _| !only_new || !self.records.was_admitted(key));
            differences.decision("assignments", &held, &expected_assignments(&expect["assignments"])?);
        }
        if expect["admitted"].is_object() {
            let mut held = holders(&self.loaded.state);
            held.retain(|key, _| self.admitted.contains(key));
            differences.decision("admitted", &held, &expected_assignments(&expect["admitted"])?);
        }
        Ok(())
    }

    fn compare_counters(&self, expect: &Value, differences: &mut Differences) {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        if expect["skippedPreemptions"].is_object() {
            let wanted = fields(&expect["skippedPreemptions"])
                .map(|(queue, times)| (queue.clone(), number(times)))
                .filter(|(_, times)| *times > 0)
                .collect();
            differences.decision("skipped preemptions", &self.skipped_preemptions, &wanted);
        }
        if expect["preemptionTargetRecomputations"].is_object() {
            let mut wanted: BTreeMap<(String, String), u64> = BTreeMap::new();
            for (queue, results) in fields(&expect["preemptionTargetRecomputations"]) {
                for (result, times) in fields(results).filter(|(_, times)| number(times) > 0) {
                    wanted.insert((queue.clone(), result.clone()), number(times));
                }
            }
            differences.decision("recomputations", &self.recomputed, &wanted);
        }
    }

    /// Compares `admission`, `resourceRequests` and `schedulingStats` of a workload with a changed status.
    fn compare_status(
        &self,
        key: &str,
        changed: &Value,
        differences: &mut Differences,
    ) -> anyhow::Result<()> {
        let held = holders(&self.loaded.state).remove(key).or_else(|| self.replaced.get(key).cloned());
        let admission = &changed["admission"];
        let wanted = if admission.is_object() { Some(expected_quota(admission)?) } else { None };
        differences.record(&format!("admission of `{key}`"), &held, &wanted);
        let requests = self.records.writes_requests(key).then(|| self.requests_of(key));
        let mut wanted: BTreeMap<String, Amounts> = BTreeMap::new();
        for set in items(&changed["resourceRequests"]) {
            let mut amounts = Amounts::new();
            for (resource, amount) in fields(&set["resources"]) {
                amounts.insert(resource.clone(), quantity::from_json(resource, amount)?);
            }
            wanted.insert(text(&set["name"]).to_owned(), amounts);
        }
        let wanted = changed["resourceRequests"].is_array().then_some(wanted);
        differences.record(&format!("resourceRequests of `{key}`"), &requests, &wanted);
        if changed["schedulingStats"].is_object() || self.records.was_evicted(key) {
            let wanted = expected_evictions(&changed["schedulingStats"]);
            differences.record(&format!("schedulingStats of `{key}`"), &self.records.evictions(key), &wanted);
        }
        Ok(())
    }

    /// Total requests of each pod set, as quota counts them.
    fn requests_of(&self, key: &str) -> BTreeMap<String, Amounts> {
        let state = &self.loaded.state;
        let Some(workload) = state.find(key).and_then(|id| state.workload(id)) else {
            return BTreeMap::new();
        };
        let shape = state.shape_of(workload.shape);
        let mut requests = BTreeMap::new();
        for (index, set) in shape.pod_sets.iter().enumerate() {
            let counts = shape.counts.as_ref();
            let count = counts.and_then(|counts| counts.get(index)).copied().unwrap_or(set.count);
            let total = |amount: i64| amount.saturating_mul(i64::from(count));
            let amounts = set
                .per_pod
                .iter()
                .map(|(name, amount)| (state.resource_name(*name).to_string(), total(*amount)));
            requests.insert(set.name.to_string(), amounts.collect());
        }
        requests
    }

    fn pending_keys(&self, positions: impl Fn(&Pending) -> Vec<&PendingPosition>) -> KeysByQueue {
        let state = &self.loaded.state;
        let keys = |(name, id): (&Arc<str>, QueueId)| {
            let ids = positions(state.pending(id)).into_iter().map(|position| position.workload);
            let keys: BTreeSet<String> = ids.map(|id: WorkloadId| self.key(id)).collect();
            (name.to_string(), keys)
        };
        state.queue_list().map(keys).filter(|(_, keys)| !keys.is_empty()).collect()
    }

    /// The first flavor of a holder.
    fn flavor_of(&self, key: &str) -> Option<String> {
        let state = &self.loaded.state;
        let holding = state.workload(state.find(key)?)?.holding.as_ref()?;
        let flavor = holding.given.iter().find_map(|given| given.flavors.values().next())?;
        Some(state.flavor_name(*flavor).to_string())
    }
}

/// Leaves out queues without workloads.
fn keys_by_queue(value: &Value) -> KeysByQueue {
    let queues = fields(value).map(|(queue, keys)| (queue.clone(), texts::<BTreeSet<String>>(keys)));
    queues.filter(|(_, keys)| !keys.is_empty()).collect()
}

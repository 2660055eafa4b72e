//! What a manager records about workloads after a cycle: conditions, evictions and events.

use crate::case::Case;
use crate::evictions::{Evictions, count_eviction, past_evictions};
use crate::json::{fields, items, text};
use crate::verdict::Differences;
use meridian_objects::spec::{AdmissionCheckState, CheckState, ConditionStatus};
use meridian_queueing::cycle::{CycleEntry, EntryOutcome};
use meridian_queueing::preemption::PreemptionReason;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Status and reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordedCondition {
    holds: bool,
    reason: String,
}

/// Key, type and reason.
type Event = (String, String, String);

#[derive(Clone, Debug, Default)]
struct RecordedStatus {
    before: BTreeMap<String, RecordedCondition>,
    now: BTreeMap<String, RecordedCondition>,
    written: BTreeSet<String>,
    checks: Vec<AdmissionCheckState>,
    had_lost_nodes: bool,
    evictions: Evictions,
    was_evicted: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    statuses: BTreeMap<String, RecordedStatus>,
    events: BTreeMap<Event, usize>,
}

impl RecordedStatus {
    fn set(&mut self, kind: &str, holds: bool, reason: &str) {
        self.now.insert(kind.to_owned(), RecordedCondition { holds, reason: reason.to_owned() });
        self.written.insert(kind.to_owned());
    }

    fn held_before(&self, kind: &str) -> bool {
        self.before.get(kind).is_some_and(|condition| condition.holds)
    }

    fn holds(&self, kind: &str) -> bool {
        self.now.get(kind).is_some_and(|condition| condition.holds)
    }
}

impl Records {
    pub(super) fn new(case: &Case<'_>) -> Self {
        let mut records = Self::default();
        for workload in case.workloads() {
            let mut before = BTreeMap::new();
            for condition in &workload.status.conditions {
                let holds = condition.status == ConditionStatus::True;
                let reason = condition.reason.clone();
                before.insert(condition.kind.clone(), RecordedCondition { holds, reason });
            }
            let status = RecordedStatus {
                now: before.clone(),
                before,
                checks: workload.status.admission_checks.clone(),
                had_lost_nodes: !workload.status.unhealthy_nodes.is_empty(),
                evictions: past_evictions(workload),
                ..RecordedStatus::default()
            };
            records.statuses.insert(workload.meta.key(), status);
        }
        records
    }

    /// Whether a workload was admitted before, with all its nodes.
    pub(super) fn was_admitted(&self, key: &str) -> bool {
        self.statuses.get(key).is_some_and(|status| status.held_before("Admitted") && !status.had_lost_nodes)
    }

    pub(super) fn was_evicted(&self, key: &str) -> bool {
        self.statuses.get(key).is_some_and(|status| status.was_evicted)
    }

    pub(super) fn evictions(&self, key: &str) -> Evictions {
        self.statuses.get(key).map(|status| status.evictions.clone()).unwrap_or_default()
    }

    /// Kueue writes `resourceRequests` together with the condition that no quota is reserved.
    pub(super) fn writes_requests(&self, key: &str) -> bool {
        let status = self.statuses.get(key);
        status
            .is_some_and(|status| status.written.contains("QuotaReserved") && !status.holds("QuotaReserved"))
    }

    fn status(&mut self, key: &str) -> &mut RecordedStatus {
        self.statuses.entry(key.to_owned()).or_default()
    }

    pub(super) fn event(&mut self, key: &str, kind: &str, reason: &str) {
        *self.events.entry((key.to_owned(), kind.to_owned(), reason.to_owned())).or_default() += 1;
    }

    /// Records a reservation. `checks` are the admission checks of the assigned flavors.
    pub(super) fn reserved(&mut self, key: &str, admitted: bool, placement_pending: bool, checks: &[String]) {
        let status = self.status(key);
        let (had_quota, had_lost_nodes) = (status.held_before("QuotaReserved"), status.had_lost_nodes);
        status.set("QuotaReserved", true, "QuotaReserved");
        for kind in ["Evicted", "Preempted", "BlockedOnPreemptionGates"] {
            if status.holds(kind) {
                status.set(kind, false, "QuotaReserved");
            }
        }
        // The condition `Admitted` is written once every check has a state.
        let all_have_state =
            checks.iter().all(|check| status.checks.iter().any(|state| state.name == *check));
        if admitted {
            status.set("Admitted", true, "Admitted");
        } else if all_have_state && status.checks.iter().any(|state| state.state != CheckState::Ready) {
            status.set("Admitted", false, "UnsatisfiedAdmissionChecks");
        } else if all_have_state && placement_pending {
            status.set("Admitted", false, "PendingDelayedTopologyRequests");
        }
        if !had_quota {
            self.event(key, "Normal", "QuotaReserved");
        }
        if admitted && !had_lost_nodes {
            self.event(key, "Normal", "Admitted");
        }
    }

    pub(super) fn preempted(&mut self, victim: &str, preemptor: &str, right: PreemptionReason) {
        self.evicted(victim, "Preempted");
        self.status(victim).set("Preempted", true, right.as_str());
        self.event(victim, "Normal", "Preempted");
        self.event(preemptor, "Normal", "PreemptedWorkload");
    }

    pub(super) fn evicted(&mut self, key: &str, reason: &str) {
        let status = self.status(key);
        status.set("Evicted", true, reason);
        status.was_evicted = true;
        count_eviction(&mut status.evictions, reason);
        if status.holds("BlockedOnPreemptionGates") {
            status.set("BlockedOnPreemptionGates", false, reason);
        }
        self.event(key, "Normal", &format!("EvictedDueTo{reason}"));
    }

    /// A newer slice replaced this one.
    pub(super) fn replaced(&mut self, old: &str) {
        self.status(old).set("Finished", true, "WorkloadSliceReplaced");
        self.event(old, "Normal", "WorkloadSliceReplaced");
    }

    /// The workload stays pending.
    pub(super) fn pending(&mut self, key: &str, entry: &CycleEntry) {
        self.pending_event(key, entry);
        if entry.second_pass {
            return;
        }
        let reason = entry.obstacle.map_or("", |obstacle| obstacle.word());
        let status = self.status(key);
        status.set("QuotaReserved", false, reason);
        status.set("Admitted", false, "NoReservation");
        if entry.outcome == EntryOutcome::Gated {
            status.set("BlockedOnPreemptionGates", true, "PreemptionGated");
        }
    }

    /// The workload stays pending, and its status couldn't be written.
    pub(super) fn pending_event(&mut self, key: &str, entry: &CycleEntry) {
        let reason = if entry.second_pass {
            "SecondPassFailed"
        } else {
            entry.obstacle.map_or("", |obstacle| obstacle.word())
        };
        self.event(key, "Warning", reason);
    }

    pub(super) fn compare(&self, expect: &Value, differences: &mut Differences) {
        for (key, changed) in fields(&expect["workloads"]) {
            if let Some(status) = self.statuses.get(key) {
                status.compare(key, changed, differences);
            }
        }
        for key in items(&expect["unchanged"]).iter().map(text) {
            if let Some(status) = self.statuses.get(key) {
                differences.record(&format!("unchanged conditions of `{key}`"), &status.now, &status.before);
            }
        }
        if expect["events"].is_array() {
            let mut wanted: BTreeMap<Event, usize> = BTreeMap::new();
            for event in items(&expect["events"]) {
                let event = ["workload", "type", "reason"].map(|field| text(&event[field]).to_owned());
                *wanted.entry(event.into()).or_default() += 1;
            }
            differences.record("events", &self.events, &wanted);
        }
    }
}

impl RecordedStatus {
    fn compare(&self, key: &str, changed: &Value, differences: &mut Differences) {
        let conditions = items(&changed["conditions"]);
        let mut wanted: BTreeMap<String, RecordedCondition> = BTreeMap::new();
        for condition in conditions {
            let holds = text(&condition["status"]) == "True";
            let reason = text(&condition["reason"]).to_owned();
            wanted.insert(text(&condition["type"]).to_owned(), RecordedCondition { holds, reason });
        }
        // Another writer removed these conditions.
        let removed: BTreeSet<&str> = items(&changed["removedConditions"])
            .iter()
            .map(|condition| condition["type"].as_str().unwrap_or(text(condition)))
            .collect();
        let mut now = self.now.clone();
        now.retain(|kind, _| !removed.contains(kind.as_str()));
        differences.record(&format!("conditions of `{key}`"), &now, &wanted);
        let not_written: BTreeSet<String> = conditions
            .iter()
            .filter(|condition| condition["changed"] == true)
            .map(|condition| text(&condition["type"]).to_owned())
            .filter(|kind| !self.written.contains(kind))
            .collect();
        differences.record(
            &format!("conditions of `{key}` that weren't written"),
            &not_written,
            &BTreeSet::new(),
        );
    }
}

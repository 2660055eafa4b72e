//! What is recorded about workloads: the conditions of their status, and events.

use crate::case::{Case, items, text};
use crate::verdict::Differences;
use meridian_objects::spec::{AdmissionCheckState, CheckState, ConditionStatus};
use meridian_queueing::cycle::{Entry, Outcome};
use meridian_queueing::preempt::Right;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A condition: whether it holds, and why.
type Condition = (bool, String);

/// One workload's status.
#[derive(Clone, Debug, Default)]
struct Status {
    before: BTreeMap<String, Condition>,
    now: BTreeMap<String, Condition>,
    written: BTreeSet<String>,
    checks: Vec<AdmissionCheckState>,
    /// It lost nodes before.
    unhealthy: bool,
}

/// Everything that is recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    of: BTreeMap<String, Status>,
    events: BTreeMap<(String, String, String), usize>,
}

impl Status {
    fn set(&mut self, kind: &str, holds: bool, reason: &str) {
        self.now.insert(kind.to_owned(), (holds, reason.to_owned()));
        self.written.insert(kind.to_owned());
    }

    fn holds(&self, kind: &str) -> bool {
        self.before.get(kind).is_some_and(|(holds, _)| *holds)
    }
}

impl Records {
    pub(super) fn new(case: &Case<'_>) -> Self {
        let mut records = Self::default();
        for workload in case.workloads() {
            let conditions = &workload.status.conditions;
            let before: BTreeMap<String, Condition> = conditions
                .iter()
                .map(|c| (c.kind.clone(), (c.status == ConditionStatus::True, c.reason.clone())))
                .collect();
            let checks = workload.status.admission_checks.clone();
            let unhealthy = !workload.status.unhealthy_nodes.is_empty();
            records.of.insert(
                workload.meta.key(),
                Status { now: before.clone(), before, written: BTreeSet::new(), checks, unhealthy },
            );
        }
        records
    }

    /// Whether a workload ran before, with all its nodes.
    pub(super) fn was_admitted(&self, key: &str) -> bool {
        self.of.get(key).is_some_and(|status| status.holds("Admitted") && !status.unhealthy)
    }

    fn status(&mut self, key: &str) -> &mut Status {
        self.of.entry(key.to_owned()).or_default()
    }

    pub(super) fn event(&mut self, key: &str, kind: &str, reason: &str) {
        *self.events.entry((key.to_owned(), kind.to_owned(), reason.to_owned())).or_default() += 1;
    }

    /// Quota was given; `checks` are those that its flavors want, `to_come` says that places are still to come.
    pub(super) fn admitted(&mut self, key: &str, runs: bool, to_come: bool, checks: &[String]) {
        let status = self.status(key);
        let (held, unhealthy) = (status.holds("QuotaReserved"), status.unhealthy);
        status.set("QuotaReserved", true, "QuotaReserved");
        for kind in ["Evicted", "Preempted", "BlockedOnPreemptionGates"] {
            if status.now.get(kind).is_some_and(|(holds, _)| *holds) {
                status.set(kind, false, "QuotaReserved");
            }
        }
        // Whether it is admitted is said once every check has its state.
        let stated = checks.iter().all(|check| status.checks.iter().any(|state| state.name == *check));
        if runs {
            status.set("Admitted", true, "Admitted");
        } else if stated && status.checks.iter().any(|state| state.state != CheckState::Ready) {
            status.set("Admitted", false, "UnsatisfiedAdmissionChecks");
        } else if stated && to_come {
            status.set("Admitted", false, "PendingDelayedTopologyRequests");
        }
        if !held {
            self.event(key, "Normal", "QuotaReserved");
        }
        if runs && !unhealthy {
            self.event(key, "Normal", "Admitted");
        }
    }

    pub(super) fn preempted(&mut self, victim: &str, by: &str, right: Right) {
        self.evicted(victim, "Preempted");
        self.status(victim).set("Preempted", true, right.word());
        self.event(victim, "Normal", "Preempted");
        self.event(by, "Normal", "PreemptedWorkload");
    }

    pub(super) fn evicted(&mut self, key: &str, reason: &str) {
        let status = self.status(key);
        status.set("Evicted", true, reason);
        if status.now.get("BlockedOnPreemptionGates").is_some_and(|(holds, _)| *holds) {
            status.set("BlockedOnPreemptionGates", false, reason);
        }
        self.event(key, "Normal", &format!("EvictedDueTo{reason}"));
    }

    /// An older slice is over, replaced by a newer one.
    pub(super) fn replaced(&mut self, old: &str) {
        self.status(old).set("Finished", true, "WorkloadSliceReplaced");
        self.event(old, "Normal", "WorkloadSliceReplaced");
    }

    /// It wasn't admitted.
    pub(super) fn waits(&mut self, key: &str, entry: &Entry) {
        self.only_event(key, entry);
        if entry.second_pass {
            return;
        }
        let reason = entry.obstacle.map_or("", |obstacle| obstacle.word());
        let status = self.status(key);
        status.set("QuotaReserved", false, reason);
        status.set("Admitted", false, "NoReservation");
        if entry.outcome == Outcome::Gated {
            status.set("BlockedOnPreemptionGates", true, "PreemptionGated");
        }
    }

    /// It wasn't admitted, and its status couldn't be written.
    pub(super) fn only_event(&mut self, key: &str, entry: &Entry) {
        let reason = if entry.second_pass {
            "SecondPassFailed"
        } else {
            entry.obstacle.map_or("", |obstacle| obstacle.word())
        };
        self.event(key, "Warning", reason);
    }

    pub(super) fn compare(&self, expect: &Value, differences: &mut Differences) {
        for (key, changed) in expect["workloads"].as_object().into_iter().flatten() {
            let Some(status) = self.of.get(key) else { continue };
            let wanted: BTreeMap<String, Condition> = items(&changed["conditions"])
                .iter()
                .map(|condition| {
                    (
                        text(&condition["type"]).to_owned(),
                        (text(&condition["status"]) == "True", text(&condition["reason"]).to_owned()),
                    )
                })
                .collect();
            // Conditions that somebody else's write drops are nobody's decision.
            let dropped: BTreeSet<&str> = items(&changed["removedConditions"])
                .iter()
                .map(|kind| kind["type"].as_str().unwrap_or(text(kind)))
                .collect();
            let now = status
                .now
                .iter()
                .filter(|(kind, _)| !dropped.contains(kind.as_str()))
                .map(|(kind, of)| (kind.clone(), of.clone()))
                .collect();
            differences.record(&format!("conditions of `{key}`"), &now, &wanted);
            let touched = items(&changed["conditions"])
                .iter()
                .filter(|condition| condition["changed"] == true)
                .map(|c| text(&c["type"]).to_owned());
            let idle: BTreeSet<String> = touched.filter(|kind| !status.written.contains(kind)).collect();
            differences.record(&format!("conditions of `{key}` that nobody wrote"), &idle, &BTreeSet::new());
        }
        for key in items(&expect["unchanged"]).iter().map(text) {
            let Some(status) = self.of.get(key) else { continue };
            differences.record(
                &format!("conditions of `{key}`, which keeps them"),
                &status.now,
                &status.before,
            );
        }
        if expect["events"].is_array() {
            let mut wanted: BTreeMap<(String, String, String), usize> = BTreeMap::new();
            for event in items(&expect["events"]) {
                *wanted
                    .entry((
                        text(&event["workload"]).to_owned(),
                        text(&event["type"]).to_owned(),
                        text(&event["reason"]).to_owned(),
                    ))
                    .or_default() += 1;
            }
            differences.record("events", &self.events, &wanted);
        }
    }
}

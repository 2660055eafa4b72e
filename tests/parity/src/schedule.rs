//! Groups 1 and 5: whole scheduling cycles.

mod comparison;
mod records;

use crate::assignments::{HeldQuota, held_quota, holders};
use crate::case::Case;
use crate::json::{items, text};
use crate::preempt::{Preemptor, preempted_json};
use crate::state::workload_key;
use crate::verdict::{Differences, Verdict};
use meridian_planning::load::Loaded;
use meridian_queueing::QueueState;
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, CycleEntry, CycleReport, EntryOutcome, Eviction, Recomputed};
use meridian_queueing::model::{Delayed, QueueId, WorkloadId};
use records::Records;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A case while its cycles run.
struct Run<'a> {
    case: &'a Case<'a>,
    loaded: Loaded,
    records: Records,
    /// Workloads that got or changed a reservation.
    admitted: BTreeSet<String>,
    preempted: Vec<Value>,
    evicted: BTreeSet<(String, String)>,
    skipped_preemptions: BTreeMap<String, u64>,
    recomputed: BTreeMap<(String, String), u64>,
    /// Slices that were replaced in the last cycle. Like victims, they count as holders until it ends.
    replaced: BTreeMap<String, HeldQuota>,
    /// Holders before the first cycle.
    held_before: BTreeMap<String, HeldQuota>,
}

pub(crate) fn replay(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (act, expect) = (case.act(), case.expect());
    let loaded = case.load();
    let mut run = Run {
        case,
        held_before: holders(&loaded.state),
        loaded,
        records: Records::new(case),
        admitted: BTreeSet::new(),
        preempted: Vec::new(),
        evicted: BTreeSet::new(),
        skipped_preemptions: BTreeMap::new(),
        recomputed: BTreeMap::new(),
        replaced: BTreeMap::new(),
    };
    let mut differences = Differences::default();
    for cycle in 1..=act["cycles"].as_u64().unwrap_or(1) {
        if cycle > 1 {
            run.between_cycles(&act["betweenCycles"]);
        }
        run.cycle(cycle == 1 && !act["secondPass"].is_null());
        run.compare(&expect[format!("afterCycle{cycle}")], &mut differences)?;
    }
    run.compare(expect, &mut differences)?;
    Ok(differences.verdict())
}

impl Run<'_> {
    fn key(&self, id: WorkloadId) -> String {
        workload_key(&self.loaded.state, id)
    }

    fn queue_name(&self, id: QueueId) -> String {
        self.loaded.state.queue(id).setup.name.to_string()
    }

    /// Applies what happens between two cycles.
    fn between_cycles(&mut self, changes: &Value) {
        let state = &mut self.loaded.state;
        for key in items(&changes["deleteWorkloads"]) {
            if let Some(id) = state.find(text(key)) {
                state.remove(id);
            }
        }
        // Other changes raise and lower a quota, which may requeue workloads.
        let known = ["deleteWorkloads", "requeueInadmissible"];
        if changes.as_object().is_some_and(|all| all.keys().any(|change| !known.contains(&change.as_str()))) {
            self.loaded.redeclare(&self.case.objects);
        }
        if changes["requeueInadmissible"] == true {
            self.loaded.state.requeue_all();
        }
    }

    fn cycle(&mut self, second_pass: bool) {
        let before = self.loaded.state.clone();
        let report = cycle::run_once(&mut self.loaded.state, &mut UnlimitedCapacity, second_pass);
        if let Some(error) = self.case.act()["statusPatchError"].as_str() {
            self.undo(&report, error, &before);
            return;
        }
        self.count(&report);
        for (victim, preemptor, right) in &report.preempted {
            let by_key = self.key(*preemptor);
            if let Some(workload) = self.loaded.state.workload(*preemptor) {
                let by = Preemptor { key: &by_key, queue: workload.queue };
                self.preempted.push(preempted_json(self.case, &self.loaded.state, *victim, &by, *right));
            }
            self.records.preempted(&self.key(*victim), &by_key, *right);
        }
        for (workload, why) in &report.evicted {
            let reason = match why {
                Eviction::NodeFailures => "NodeFailures",
                Eviction::FlavorMigration => "FlavorMigration",
            };
            let key = self.key(*workload);
            self.records.evicted(&key, reason);
            self.evicted.insert((key, reason.to_owned()));
        }
        for entry in &report.entries {
            self.record_entry(entry);
        }
        self.replaced.clear();
        for (old, _) in &report.replaced {
            let key = workload_key(&before, *old);
            self.records.replaced(&key);
            self.replaced.insert(key, held_quota(&before, *old));
        }
    }

    fn record_entry(&mut self, entry: &CycleEntry) {
        let key = self.key(entry.workload);
        match entry.outcome {
            EntryOutcome::Admitted => {
                let state = &self.loaded.state;
                let holding = state.workload(entry.workload).and_then(|w| w.holding.as_ref());
                let admitted = holding.is_some_and(|holding| holding.admitted);
                let placement_pending = holding.is_some_and(|holding| {
                    let mut given = holding.given.iter();
                    given.any(|given| given.placement.is_none() && given.delayed == Some(Delayed::Pending))
                });
                let checks: Vec<String> = state.checks_of(entry.workload).map(ToString::to_string).collect();
                self.records.reserved(&key, admitted, placement_pending, &checks);
                self.admitted.insert(key);
            }
            EntryOutcome::Evicted => {}
            _ => self.records.pending(&key, entry),
        }
    }

    fn count(&mut self, report: &CycleReport) {
        for (queue, times) in &report.skipped_preemptions {
            *self.skipped_preemptions.entry(self.queue_name(*queue)).or_default() += u64::from(*times);
        }
        for ((queue, result), times) in &report.recomputed {
            let result = match result {
                Recomputed::DeferredFit => "deferred_fit",
                Recomputed::NewTargets => "new_targets",
                Recomputed::Skipped => "skipped",
            };
            let key = (self.queue_name(*queue), result.to_owned());
            *self.recomputed.entry(key).or_default() += u64::from(*times);
        }
    }

    /// Reverts a cycle in which no status could be written. A deleted workload isn't requeued.
    fn undo(&mut self, report: &CycleReport, error: &str, before: &QueueState) {
        let deleted = error.contains("not found");
        let state = &mut self.loaded.state;
        for (victim, ..) in &report.preempted {
            state.cancel_eviction(*victim);
        }
        for (holder, _) in &report.evicted {
            state.cancel_eviction(*holder);
        }
        for entry in &report.entries {
            let state = &mut self.loaded.state;
            match entry.outcome {
                EntryOutcome::Admitted => {
                    let Some(workload) = before.workload(entry.workload) else { continue };
                    state.drop_penalty(entry.workload);
                    if deleted {
                        state.remove(entry.workload);
                    } else {
                        state.requeue(entry.workload, workload.since);
                    }
                }
                EntryOutcome::Evicted if deleted => {}
                EntryOutcome::Evicted => {
                    self.records.event(&self.key(entry.workload), "Warning", "SecondPassFailed");
                }
                _ => self.records.pending_event(&self.key(entry.workload), entry),
            }
        }
    }
}

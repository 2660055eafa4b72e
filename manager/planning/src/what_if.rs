//! Compares two plans: without and with a change of the objects.

use crate::decide::Ending;
use crate::report::{
    API_VERSION, AssignedPodSet, EvictedWorkload, Holder, HolderState, PlanReport, PlanSummary,
    PreemptedWorkload, WaitingWorkload,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// `kind` of a [`WhatIf`].
pub const KIND: &str = "WhatIf";

/// The effects of a change. "Only after the change" means: not in the plan without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    pub api_version: String,
    pub kind: String,
    /// The given objects, in their order.
    pub changes: Vec<ObjectChange>,
    pub before: PlanSummary,
    pub after: PlanSummary,
    /// Workloads that hold quota only after the change.
    pub admitted: Vec<Holder>,
    /// Preemptions that happen only after the change.
    pub preempted: Vec<PreemptedWorkload>,
    /// Evictions that happen only after the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<EvictedWorkload>,
    /// Workloads that wait only after the change, or are blocked only after it.
    pub starved: Vec<WorkloadLoss>,
    /// Workloads that hold other flavors, pod counts, placements or another queue after the change.
    pub moved: Vec<MovedWorkload>,
    /// Workloads that are neither admitted nor pending after the change; the notes say why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Problems of the objects, without or with the change.
    pub notes: Vec<String>,
}

/// Effect of a given object on the existing one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    /// `kind/name` or `kind/namespace/name`.
    pub object: String,
    pub change: ChangeKind,
    /// Plans don't depend on objects of this kind, or only on part of the changed fields, so the effect is
    /// unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_evaluated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChangeKind {
    Added,
    Replaced,
    Unchanged,
}

/// A waiting workload, and its loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadLoss {
    pub loss: Loss,
    pub waiting: WaitingWorkload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Loss {
    /// The workload would lose its quota by preemption.
    Preempted,
    /// The workload would lose its quota by eviction for another reason.
    Evicted,
    /// The workload would be admitted without the change.
    NotAdmitted,
    /// The workload waits in both plans, but without the change it could be admitted later.
    BlockedForGood,
    /// The workload is new in the change, and waits.
    Waits,
}

/// A workload whose quota would differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedWorkload {
    pub workload: String,
    pub from_cluster_queue: String,
    pub from: Vec<AssignedPodSet>,
    pub to_cluster_queue: String,
    pub to: Vec<AssignedPodSet>,
}

impl WhatIf {
    /// Compares the plan without the change and the plan with it.
    pub fn new(changes: Vec<ObjectChange>, before: &PlanReport, after: &PlanReport) -> Self {
        let comparison = Comparison::new(before, after);
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            changes,
            before: before.summary.clone(),
            after: after.summary.clone(),
            admitted: comparison.admitted(),
            preempted: comparison.preempted(),
            starved: comparison.losses(),
            moved: comparison.moved(),
            lost: comparison.lost(),
            evicted: comparison.evicted,
            notes: notes(before, after),
        }
    }

    /// Whether no workload is affected.
    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty()
            && self.preempted.is_empty()
            && self.evicted.is_empty()
            && self.starved.is_empty()
            && self.moved.is_empty()
            && self.lost.is_empty()
    }
}

/// Both plans, indexed by workload.
struct Comparison<'a> {
    before: &'a PlanReport,
    after: &'a PlanReport,
    holders_before: BTreeMap<&'a str, &'a Holder>,
    holders_after: BTreeMap<&'a str, &'a Holder>,
    waiting_before: BTreeMap<&'a str, &'a WaitingWorkload>,
    /// Evictions that happen only after the change.
    evicted: Vec<EvictedWorkload>,
}

impl<'a> Comparison<'a> {
    fn new(before: &'a PlanReport, after: &'a PlanReport) -> Self {
        let known: BTreeSet<(&str, &str)> =
            before.evicted.iter().map(|e| (e.workload.as_str(), e.reason.as_str())).collect();
        let is_new = |e: &&EvictedWorkload| !known.contains(&(e.workload.as_str(), e.reason.as_str()));
        Self {
            before,
            after,
            holders_before: holders(before),
            holders_after: holders(after),
            waiting_before: before.waiting.iter().map(|w| (w.workload.as_str(), w)).collect(),
            evicted: after.evicted.iter().filter(is_new).cloned().collect(),
        }
    }

    fn admitted(&self) -> Vec<Holder> {
        let new = self.holders_after.iter().filter(|(name, _)| !self.holders_before.contains_key(**name));
        new.map(|(_, holder)| (*holder).clone()).collect()
    }

    fn preempted(&self) -> Vec<PreemptedWorkload> {
        let known: BTreeSet<(&str, &str)> =
            self.before.preempted.iter().map(|p| (p.workload.as_str(), p.by.as_str())).collect();
        let all = self.after.preempted.iter();
        all.filter(|p| !known.contains(&(p.workload.as_str(), p.by.as_str()))).cloned().collect()
    }

    fn losses(&self) -> Vec<WorkloadLoss> {
        let all = self.after.waiting.iter();
        all.filter_map(|w| Some(WorkloadLoss { loss: self.loss(w)?, waiting: w.clone() })).collect()
    }

    fn loss(&self, waiting: &WaitingWorkload) -> Option<Loss> {
        let name = waiting.workload.as_str();
        let before = self.waiting_before.get(name);
        // A scale-up that isn't waiting before the change was admitted there, and is part of its gang.
        let scaled_up = self.before.scale_ups.contains(name) && before.is_none();
        if scaled_up || self.holders_before.contains_key(name) {
            return Some(if self.after.preempted.iter().any(|preempted| preempted.workload == name) {
                Loss::Preempted
            } else if self.evicted.iter().any(|evicted| evicted.workload == name) {
                Loss::Evicted
            } else {
                Loss::NotAdmitted
            });
        }
        if waiting.blocked_for_good {
            before.is_none_or(|before| !before.blocked_for_good).then_some(Loss::BlockedForGood)
        } else {
            before.is_none().then_some(Loss::Waits)
        }
    }

    fn moved(&self) -> Vec<MovedWorkload> {
        let all = self.holders_after.iter();
        all.filter_map(|(name, holder)| moved(name, self.holders_before.get(name)?, holder)).collect()
    }

    fn lost(&self) -> Vec<String> {
        let waiting: BTreeSet<&str> = self.after.waiting.iter().map(|w| w.workload.as_str()).collect();
        let stopping: BTreeSet<&str> = self
            .after
            .admitted
            .iter()
            .filter(|holder| holder.state == HolderState::Stopping)
            .map(|holder| holder.workload.as_str())
            .collect();
        // Replaced slices and scale-ups continue as part of another workload.
        let replaced = self.after.replaced.iter().flat_map(|replaced| [&replaced.workload, &replaced.by]);
        let merged: BTreeSet<&str> =
            replaced.chain(&self.before.scale_ups).chain(&self.after.scale_ups).map(String::as_str).collect();
        let all_before = self.holders_before.keys().chain(self.waiting_before.keys());
        all_before
            .filter(|name| {
                !merged.contains(**name)
                    && !self.holders_after.contains_key(**name)
                    && !waiting.contains(**name)
                    && !stopping.contains(**name)
            })
            .map(|name| (*name).to_owned())
            .collect()
    }
}

/// Notes of both plans. Notes that apply only without the change are marked.
fn notes(before: &PlanReport, after: &PlanReport) -> Vec<String> {
    let mark = |note: &String| {
        if after.notes.contains(note) { note.clone() } else { format!("without the change: {note}") }
    };
    let mut notes: Vec<String> = before.notes.iter().map(mark).collect();
    notes.extend(after.notes.iter().filter(|note| !before.notes.contains(note)).cloned());
    for (report, which) in [(before, "without"), (after, "with")] {
        if report.run.end == Ending::Unsettled {
            let cycles = report.run.cycles;
            notes.push(format!(
                "{which} the change, decisions still change after {cycles} cycles; the last cycle is compared"
            ));
        }
    }
    notes
}

/// Holders that keep their quota. A slice of an elastic workload has the name of the first slice that it
/// replaces.
fn holders(report: &PlanReport) -> BTreeMap<&str, &Holder> {
    let replaced: BTreeMap<&str, &str> =
        report.replaced.iter().map(|replaced| (replaced.by.as_str(), replaced.workload.as_str())).collect();
    let mut holders = BTreeMap::new();
    for holder in report.admitted.iter().filter(|holder| holder.state != HolderState::Stopping) {
        let mut name = holder.workload.as_str();
        while let Some(older) = replaced.get(name) {
            name = older;
        }
        holders.insert(name, holder);
    }
    holders
}

fn moved(name: &str, before: &Holder, after: &Holder) -> Option<MovedWorkload> {
    // Ignore the number of requested pods, which isn't held.
    let held = |holder: &Holder| -> Vec<AssignedPodSet> {
        holder.pod_sets.iter().map(|set| AssignedPodSet { of: 0, ..set.clone() }).collect()
    };
    let unchanged = before.cluster_queue == after.cluster_queue && held(before) == held(after);
    (!unchanged).then(|| MovedWorkload {
        workload: name.to_owned(),
        from_cluster_queue: before.cluster_queue.clone(),
        from: before.pod_sets.clone(),
        to_cluster_queue: after.cluster_queue.clone(),
        to: after.pod_sets.clone(),
    })
}

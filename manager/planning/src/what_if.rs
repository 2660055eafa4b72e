//! What a change of the objects would change: two plans by the same brain, before and after, compared.

use crate::report::{
    API_VERSION, Ending, Evicted, Holder, PodSet, Preempted, Report, State, Summary, Waiting,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of a comparison.
pub const KIND: &str = "WhatIf";

/// What a change would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// What the given objects are to those that are there, in their order.
    pub changes: Vec<Change>,
    /// How many of what before the change.
    pub before: Summary,
    /// How many of what after it.
    pub after: Summary,
    /// Who would hold quota only after the change.
    pub admitted: Vec<Holder>,
    /// Who would be told to stop only after the change.
    pub preempted: Vec<Preempted>,
    /// Who would be told to stop for another reason only after the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Evicted>,
    /// Who would wait only after the change, or would then wait in vain.
    pub starved: Vec<Starved>,
    /// Who would hold quota of another flavor, for other counts of pods, or elsewhere.
    pub moved: Vec<Moved>,
    /// Workloads that take part only before the change: notes say why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// What the objects leave open, before the change or after it.
    pub notes: Vec<String>,
}

/// What one given object is to those that are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// `kind/name` or `kind/namespace/name`.
    pub object: String,
    /// What becomes of it.
    pub change: Kind,
    /// No decision of queues reads it: what it changes isn't judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_judged: bool,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// It is new.
    Added,
    /// It takes another's place.
    Replaced,
    /// It is there as it is.
    Unchanged,
}

/// Somebody who would wait only after the change, or would then wait in vain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Starved {
    /// What it would lose.
    pub loss: Loss,
    /// How it would wait.
    #[serde(rename = "waits")]
    pub waiting: Waiting,
}

/// What a change would take from a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Loss {
    /// It would be told to stop for another's sake.
    Preempted,
    /// It would be told to stop for another reason.
    Evicted,
    /// It would not be admitted, and would be without the change.
    NotAdmitted,
    /// It would wait for what can't come, and doesn't without the change.
    BlockedForGood,
    /// It comes with the change, and would wait.
    Waits,
}

/// Somebody who would hold other quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Who.
    pub workload: String,
    /// Its cluster queue before.
    pub from_cluster_queue: String,
    /// What it holds without the change.
    pub from: Vec<PodSet>,
    /// Its cluster queue after.
    pub to_cluster_queue: String,
    /// What it would hold.
    pub to: Vec<PodSet>,
}

impl WhatIf {
    /// Compares the plan without the change and the plan with it.
    pub fn new(changes: Vec<Change>, before: &Report, after: &Report) -> Self {
        let held = holders(before);
        let holds = holders(after);
        let waited: BTreeMap<&str, &Waiting> =
            before.waiting.iter().map(|w| (w.workload.as_str(), w)).collect();
        let waits: BTreeSet<&str> = after.waiting.iter().map(|w| w.workload.as_str()).collect();
        let known: BTreeSet<(&str, &str)> =
            before.preempted.iter().map(|p| (p.workload.as_str(), p.by.as_str())).collect();
        let stopped: BTreeSet<&str> = after.preempted.iter().map(|p| p.workload.as_str()).collect();
        let evicted_before: BTreeSet<(&str, &str)> =
            before.evicted.iter().map(|e| (e.workload.as_str(), e.reason.as_str())).collect();
        let evicted: Vec<Evicted> = after
            .evicted
            .iter()
            .filter(|e| !evicted_before.contains(&(e.workload.as_str(), e.reason.as_str())))
            .cloned()
            .collect();
        let stopping: BTreeSet<&str> = after
            .admitted
            .iter()
            .filter(|h| h.state == State::Stopping)
            .map(|h| h.workload.as_str())
            .collect();
        let loss = |w: &Waiting| {
            let waited = waited.get(w.workload.as_str());
            let grown = before.growths.contains(&w.workload) && waited.is_none();
            if grown || held.contains_key(w.workload.as_str()) {
                Some(match w.workload.as_str() {
                    name if stopped.contains(name) => Loss::Preempted,
                    name if evicted.iter().any(|e| e.workload == name) => Loss::Evicted,
                    _ => Loss::NotAdmitted,
                })
            } else if w.blocked_for_good {
                waited.is_none_or(|before| !before.blocked_for_good).then_some(Loss::BlockedForGood)
            } else {
                waited.is_none().then_some(Loss::Waits)
            }
        };
        // What a workload grows by takes part in it, and is no longer asked for when it doesn't.
        let replaced = after.replaced.iter().flat_map(|replaced| [&replaced.workload, &replaced.by]);
        let taken_in: BTreeSet<&str> =
            replaced.chain(&before.growths).chain(&after.growths).map(String::as_str).collect();
        let all_before = held.keys().chain(waited.keys()).filter(|name| !taken_in.contains(**name));
        // What the change mends is said to have been so without it.
        let told = |note: &String| {
            if after.notes.contains(note) { note.clone() } else { format!("without the change: {note}") }
        };
        let mut notes: Vec<String> = before.notes.iter().map(told).collect();
        notes.extend(after.notes.iter().filter(|note| !before.notes.contains(note)).cloned());
        for (report, when) in [(before, "without"), (after, "with")]
            .into_iter()
            .filter(|(report, _)| report.run.end == Ending::Unsettled)
        {
            notes.push(format!("{when} the change things don't come to rest in {} cycles: what is compared is how they stand then", report.run.cycles));
        }
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            changes,
            before: before.summary.clone(),
            after: after.summary.clone(),
            admitted: holds
                .iter()
                .filter(|(name, _)| !held.contains_key(**name))
                .map(|(_, holder)| (*holder).clone())
                .collect(),
            preempted: after
                .preempted
                .iter()
                .filter(|p| !known.contains(&(p.workload.as_str(), p.by.as_str())))
                .cloned()
                .collect(),
            starved: after
                .waiting
                .iter()
                .filter_map(|w| Some(Starved { loss: loss(w)?, waiting: w.clone() }))
                .collect(),
            evicted: evicted.clone(),
            moved: holds.iter().filter_map(|(name, holder)| moved(name, held.get(name)?, holder)).collect(),
            lost: all_before
                .filter(|name| {
                    !holds.contains_key(**name) && !waits.contains(**name) && !stopping.contains(**name)
                })
                .map(|name| (*name).to_owned())
                .collect(),
            notes,
        }
    }

    /// Whether the change changes nothing for any workload.
    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty()
            && self.preempted.is_empty()
            && self.evicted.is_empty()
            && self.starved.is_empty()
            && self.moved.is_empty()
            && self.lost.is_empty()
    }
}

/// Who holds quota and wasn't told to stop. A slice stands for the one that it replaced.
fn holders(report: &Report) -> BTreeMap<&str, &Holder> {
    let stand_for: BTreeMap<&str, &str> =
        report.replaced.iter().map(|replaced| (replaced.by.as_str(), replaced.workload.as_str())).collect();
    let first = |name: &'_ str| {
        std::iter::successors(stand_for.get_key_value(name).map(|(_, old)| *old), |at| {
            stand_for.get(at).copied()
        })
        .last()
    };
    let stay = report.admitted.iter().filter(|holder| holder.state != State::Stopping);
    stay.map(|holder| (first(&holder.workload).unwrap_or(&holder.workload), holder)).collect()
}

fn moved(name: &str, before: &Holder, after: &Holder) -> Option<Moved> {
    // How many it wants besides is no matter of what it holds.
    let held = |holder: &Holder| {
        holder.pod_sets.iter().map(|set| PodSet { of: 0, ..set.clone() }).collect::<Vec<_>>()
    };
    let stays = before.cluster_queue == after.cluster_queue && held(before) == held(after);
    (!stays).then(|| Moved {
        workload: name.to_owned(),
        from_cluster_queue: before.cluster_queue.clone(),
        from: before.pod_sets.clone(),
        to_cluster_queue: after.cluster_queue.clone(),
        to: after.pod_sets.clone(),
    })
}

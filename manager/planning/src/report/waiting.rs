//! Pending workloads: their position, and why they wait.

use super::reasons::{self, FlavorReason};
use crate::decide::{Decisions, Evaluation};
use crate::load::{Loaded, ParkReason, inactive_message};
use meridian_objects::spec::meta::format_time;
use meridian_queueing::cycle::{CycleEntry, EntryOutcome};
use meridian_queueing::model::{Inactive, Queue, QueueId, ShapeId, Workload, WorkloadId, amount_of};
use meridian_queueing::model::{Obstacle, Reason};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::{Amount, QueueState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingWorkload {
    pub workload: String,
    pub cluster_queue: String,
    /// In the form `NAMESPACE/NAME`.
    pub local_queue: String,
    pub priority: i64,
    /// Position in its cluster queue, from 1.
    pub position: usize,
    /// Number of pending workloads of the cluster queue.
    pub of: usize,
    /// Kueue's name of the reason; left out if no cycle evaluated the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Whether only a changed spec or changed quota can help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked_for_good: bool,
    /// The reason as a sentence.
    pub message: String,
    /// Why each flavor can't be assigned now or ever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<FlavorReason>,
    /// Victims that have to stop first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// An equivalent workload of the same queue that was evaluated instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<String>,
    /// The cycle of the latest evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<u32>,
}

/// Why a workload waits.
#[derive(Default)]
struct Explanation {
    obstacle: Option<Obstacle>,
    permanent: bool,
    message: String,
    reasons: Vec<FlavorReason>,
    waits_for: Vec<String>,
}

/// All pending workloads, by queue and position.
pub(super) fn list(loaded: &Loaded, decisions: &Decisions) -> Vec<WaitingWorkload> {
    let gangs: BTreeMap<WorkloadId, WorkloadId> =
        loaded.scale_ups.iter().map(|(gang, scale_up)| (*scale_up, *gang)).collect();
    let queues = loaded.state.queue_list();
    queues.flat_map(|(_, queue)| QueueView::new(loaded, decisions, queue).list(&gangs)).collect()
}

/// An evaluation that applies to all workloads of one shape.
#[derive(Clone, Copy)]
struct ClassEvaluation<'a> {
    evaluated: WorkloadId,
    evaluation: &'a Evaluation,
}

/// The first workload that a strict queue waits for.
struct StrictHead {
    index: usize,
    key: String,
}

/// The pending workloads of one cluster queue.
struct QueueView<'a> {
    loaded: &'a Loaded,
    decisions: &'a Decisions,
    queue: &'a Queue,
    /// By queue position.
    order: Vec<WorkloadId>,
    classes: BTreeMap<ShapeId, ClassEvaluation<'a>>,
    head: Option<StrictHead>,
}

impl<'a> QueueView<'a> {
    fn new(loaded: &'a Loaded, decisions: &'a Decisions, id: QueueId) -> Self {
        let state = &loaded.state;
        let queue = state.queue(id);
        let order = state.pending_order(id);
        // An evaluation applies to all workloads of the same shape, unless its obstacle concerns only that
        // workload.
        let mut classes = BTreeMap::new();
        for id in &order {
            if let (Some(workload), Some(evaluation)) = (state.workload(*id), decisions.evaluations.get(id))
                && own_obstacle(loaded, queue, workload, *id).is_none()
            {
                classes.entry(workload.shape).or_insert(ClassEvaluation { evaluated: *id, evaluation });
            }
        }
        // Even in StrictFIFO, workloads of namespaces that aren't selected are skipped.
        let holds_up = |workload: &&Workload| !workload.marks().wrong_namespace;
        let head = order.iter().enumerate().find_map(|(index, id)| {
            let key = state.workload(*id).filter(holds_up)?.key.to_string();
            Some(StrictHead { index, key })
        });
        Self { loaded, decisions, queue, order, classes, head }
    }

    /// `gangs` has the gang of each scale-up.
    fn list(&self, gangs: &BTreeMap<WorkloadId, WorkloadId>) -> Vec<WaitingWorkload> {
        let state = &self.loaded.state;
        let mut all = Vec::with_capacity(self.order.len());
        for (index, id) in self.order.iter().enumerate() {
            let Some(workload) = state.workload(*id) else { continue };
            let own = self.decisions.evaluations.get(id);
            let own_obstacle = match own {
                Some(_) => None,
                None => own_obstacle(self.loaded, self.queue, workload, *id),
            };
            let class = match (own, &own_obstacle) {
                (None, None) => self.classes.get(&workload.shape).copied(),
                _ => None,
            };
            let evaluation = own.or(class.map(|class| class.evaluation));
            let explanation = match (evaluation, own_obstacle) {
                (Some(evaluation), _) => {
                    let explanation = explain_evaluation(state, workload, evaluation);
                    match gangs.get(id).and_then(|gang| state.workload(*gang)) {
                        Some(gang) => explain_scale_up(state, gang, workload, explanation),
                        None => explanation,
                    }
                }
                (None, Some(explanation)) => explanation,
                (None, None) => self.explain_unevaluated(index, *id),
            };
            all.push(WaitingWorkload {
                workload: workload.key.to_string(),
                cluster_queue: self.queue.setup.name.to_string(),
                local_queue: workload.local_queue.to_string(),
                priority: state.shape_of(workload.shape).priority,
                position: index + 1,
                of: self.order.len(),
                obstacle: explanation.obstacle.map(|obstacle| obstacle.word().to_owned()),
                blocked_for_good: explanation.permanent,
                message: explanation.message,
                reasons: explanation.reasons,
                waits_for: explanation.waits_for,
                alike: class
                    .and_then(|class| state.workload(class.evaluated))
                    .map(|evaluated| evaluated.key.to_string()),
                cycle: evaluation.map(|evaluation| evaluation.cycle),
            });
        }
        all
    }

    /// Explains a workload that no cycle evaluated although it has no obstacle.
    fn explain_unevaluated(&self, index: usize, id: WorkloadId) -> Explanation {
        let ahead = self.head.as_ref().filter(|head| self.queue.setup.strict && head.index < index);
        let preemption = self.decisions.preempted.iter().rfind(|preemption| preemption.victim == id);
        let (obstacle, message) = if let Some(preemption) = preemption {
            let message = format!("preempted in cycle {} and requeued", preemption.cycle);
            (Some(Obstacle::PendingEvaluation), message)
        } else if let Some(head) = ahead {
            let name = &self.queue.setup.name;
            (None, format!("cluster queue `{name}` is StrictFIFO, and `{}` is ahead", head.key))
        } else {
            (None, "not evaluated in these cycles".to_owned())
        };
        Explanation { obstacle, message, ..Explanation::default() }
    }
}

/// Merges an evaluation with the earlier ones of the same flavor scan, because each covers only the flavors
/// that it tried.
fn explain_evaluation(state: &QueueState, workload: &Workload, evaluation: &Evaluation) -> Explanation {
    let mut merged = explain_entry(state, workload, &evaluation.entry);
    let mut current = evaluation;
    while let Some(previous) = &current.previous {
        let earlier = explain_entry(state, workload, &previous.entry);
        if merged.permanent && !earlier.permanent {
            merged.permanent = false;
            merged.obstacle = earlier.obstacle;
            merged.message = earlier.message;
        }
        let mut reasons = earlier.reasons;
        if previous.entry.outcome == EntryOutcome::Skipped {
            reasons.extend(reasons::taken_by_others(state, &previous.entry));
        }
        reasons.retain(|reason| !merged.reasons.contains(reason));
        merged.reasons.splice(0..0, reasons);
        current = previous;
    }
    merged
}

/// Marks a scale-up as permanently blocked if gang and scale-up together exceed what the queue can ever have.
fn explain_scale_up(
    state: &QueueState,
    gang: &Workload,
    scale_up: &Workload,
    mut explanation: Explanation,
) -> Explanation {
    let mut totals: BTreeMap<(FlavorId, ResourceId), i64> = BTreeMap::new();
    let given = gang.holding.iter().flat_map(|holding| &holding.given);
    for (given, added) in given.zip(&state.shape_of(scale_up.shape).pod_sets) {
        for (resource, flavor) in &given.flavors {
            let more = amount_of(&added.per_pod, *resource).saturating_mul(i64::from(added.count));
            let total = totals.entry((*flavor, *resource)).or_default();
            *total = total.saturating_add(amount_of(&given.usage, *resource)).saturating_add(more);
        }
    }
    for ((flavor, resource), asks) in totals {
        let most = Amount(state.potential(scale_up.queue, (flavor, resource)));
        if Amount(asks) > most {
            let exceeded = Reason::ExceedsMax { flavor, resource, before: Amount::ZERO, asks, most };
            let exceeded = reasons::flavor_reason(state, &exceeded);
            explanation.reasons.retain(|reason| {
                (&reason.flavor, &reason.resource) != (&exceeded.flavor, &exceeded.resource)
            });
            explanation.reasons.push(exceeded);
            explanation.message = obstacle_message(Some(Obstacle::ExceedsMaxQuota)).to_owned();
            explanation.obstacle = Some(Obstacle::ExceedsMaxQuota);
            explanation.permanent = true;
        }
    }
    explanation
}

fn explain_entry(state: &QueueState, workload: &Workload, entry: &CycleEntry) -> Explanation {
    let shape = state.shape_of(workload.shape);
    let waits_for: Vec<String> = if entry.outcome == EntryOutcome::Preempting {
        entry
            .targets
            .iter()
            .filter_map(|target| state.workload(target.workload))
            .map(|victim| victim.key.to_string())
            .collect()
    } else {
        Vec::new()
    };
    let mut reasons = reasons::of_assignment(state, shape, &entry.assignment);
    if entry.outcome == EntryOutcome::NoCandidates {
        reasons.extend(reasons::forbidden_borrowing(state, entry));
    }
    let borrows = reasons.iter().any(|reason| reason.reason == reasons::BORROWS);
    let only_placement_fails = !reasons.is_empty()
        && entry.assignment.reasons().all(|(_, reason)| matches!(reason, Reason::Placement(_)));
    let barrier =
        if entry.outcome == EntryOutcome::NoFit { entry.assignment.barrier } else { entry.obstacle };
    let message = match entry.outcome {
        EntryOutcome::Rejected | EntryOutcome::Skipped => {
            entry.note.as_deref().unwrap_or("the workload can't be admitted").to_owned()
        }
        EntryOutcome::NoFit => obstacle_message(barrier).to_owned(),
        EntryOutcome::Yields => "its quota is reserved for a workload that has waited too long".to_owned(),
        EntryOutcome::NoCandidates if only_placement_fails => {
            "no topology domain fits its pods, and no workload may be preempted for it".to_owned()
        }
        EntryOutcome::NoCandidates if borrows => {
            "quota is in use, and its cluster queue may not preempt while it would borrow".to_owned()
        }
        EntryOutcome::NoCandidates => "quota is in use, and no workload may be preempted for it".to_owned(),
        EntryOutcome::NoCapacity => "quota is free, but no cluster has room".to_owned(),
        EntryOutcome::Preempting => format!("starts when {} stopped", subject_of(&waits_for)),
        EntryOutcome::Deferred => "starts when workloads that others preempted have stopped".to_owned(),
        EntryOutcome::Gated => "a preemption gate keeps it from preempting other workloads".to_owned(),
        EntryOutcome::Migrating => {
            "starts when its variant with a less preferred flavor has stopped".to_owned()
        }
        EntryOutcome::Nominated | EntryOutcome::Admitted | EntryOutcome::Evicted => {
            "evaluated again in the next cycle".to_owned()
        }
    };
    let obstacle = if entry.outcome == EntryOutcome::NoCandidates && only_placement_fails {
        Some(Obstacle::TopologyPlacementFailed)
    } else {
        entry.obstacle
    };
    Explanation { obstacle, permanent: reasons::is_permanent(barrier), message, reasons, waits_for }
}

/// Names with a verb: up to two names, otherwise the first name and the number of the others.
fn subject_of(names: &[String]) -> String {
    match names {
        [] => "others have".to_owned(),
        [one] => format!("`{one}` has"),
        [one, other] => format!("`{one}` and `{other}` have"),
        [one, rest @ ..] => format!("`{one}` and {} others have", rest.len()),
    }
}

fn obstacle_message(obstacle: Option<Obstacle>) -> &'static str {
    match obstacle {
        Some(Obstacle::ExceedsMaxQuota) => "requests more than its cluster queue can ever provide",
        Some(Obstacle::NoMatchingFlavor) => "no flavor of its cluster queue matches",
        Some(Obstacle::WaitingForQuota) => "quota is in use",
        Some(Obstacle::TopologyPlacementFailed) => "no topology domain fits its pods",
        Some(Obstacle::WaitingForPreemptedWorkloads) => "preempted workloads have to stop first",
        Some(Obstacle::Misconfigured) => "the workload or its queue is misconfigured",
        Some(Obstacle::Suspended) => "its queue is stopped",
        Some(Obstacle::AdmissionGated) => "an admission gate holds it back",
        Some(Obstacle::PendingEvaluation) | None => "evaluated again when something changes",
    }
}

/// An obstacle of the workload or its queues that keeps every cycle from evaluating the workload, regardless
/// of free quota.
fn own_obstacle(loaded: &Loaded, queue: &Queue, workload: &Workload, id: WorkloadId) -> Option<Explanation> {
    let marks = workload.marks();
    let name = &queue.setup.name;
    let cycle = queue.node.is_none().then_some(&Inactive::CohortCycle);
    let (obstacle, message) = if let Some(why) = queue.setup.inactive.as_ref().or(cycle) {
        (Obstacle::Suspended, format!("cluster queue `{name}` is inactive: {}", inactive_message(why)))
    } else if let Some(reason) = loaded.parked.get(&id) {
        parked(workload, reason)
    } else if let Some(why) = &marks.unfit {
        (Obstacle::Misconfigured, why.to_string())
    } else if marks.wrong_namespace {
        let namespace = workload.namespace();
        let why = match queue.setup.namespace_selector {
            Some(_) => format!("its `namespaceSelector` doesn't match namespace `{namespace}`"),
            None => "it has no `namespaceSelector`, so it selects no namespace".to_owned(),
        };
        (Obstacle::Misconfigured, format!("not accepted by cluster queue `{name}`: {why}"))
    } else if marks.checks_failed {
        (Obstacle::PendingEvaluation, "its admission checks failed".to_owned())
    } else {
        return None;
    };
    Some(Explanation { obstacle: Some(obstacle), message, ..Explanation::default() })
}

fn parked(workload: &Workload, reason: &ParkReason) -> (Obstacle, String) {
    match reason {
        ParkReason::LocalQueueStopped => {
            (Obstacle::Suspended, format!("local queue `{}` is stopped", workload.local_queue))
        }
        ParkReason::BackoffUntil(at) => {
            (Obstacle::PendingEvaluation, format!("backs off until {}", format_time(*at)))
        }
        ParkReason::NotRequeued(reason) => {
            (Obstacle::PendingEvaluation, format!("not requeued yet: `{reason}`"))
        }
    }
}

//! Who waits, in which place, and why.

use super::reasons::{self, Why};
use crate::decide::{Look, Outcome};
use crate::load::{HeldBack, Loaded};
use meridian_objects::spec::meta::written_moment;
use meridian_queueing::cycle::{Entry, Outcome as Came};
use meridian_queueing::model::{Inactive, Queue, QueueId, ShapeId, Workload, WorkloadId, amount_of};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::reason::{Obstacle, Reason};
use meridian_queueing::{Amount, Brain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A workload that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Namespace and name.
    pub workload: String,
    /// Its cluster queue.
    pub cluster_queue: String,
    /// Its local queue: namespace and name.
    pub local_queue: String,
    /// Its priority.
    pub priority: i64,
    /// Its place among those who wait in its cluster queue, from 1.
    pub position: usize,
    /// How many wait there.
    pub of: usize,
    /// What stands in the way, in Kueue's word; none where nobody looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Waiting doesn't help: only other declarations do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked_for_good: bool,
    /// Why it waits, as a sentence.
    pub message: String,
    /// Why each flavor doesn't serve, or not yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Why>,
    /// Who has to stop first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The workload that was looked at in its stead: alike in everything that decisions depend on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<String>,
    /// The cycle of the last look, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<u32>,
}

/// What is said about why a workload waits.
#[derive(Default)]
struct Words {
    obstacle: Option<Obstacle>,
    /// Waiting doesn't help.
    for_good: bool,
    message: String,
    reasons: Vec<Why>,
    waits_for: Vec<String>,
}

/// Everybody who waits, by queue and position.
pub(super) fn list(loaded: &Loaded, outcome: &Outcome) -> Vec<Waiting> {
    let grows = loaded.growths.iter().map(|(gang, growth)| (*growth, *gang)).collect();
    loaded.brain.queue_list().flat_map(|(_, queue)| in_queue(loaded, outcome, queue, &grows)).collect()
}

fn in_queue(
    loaded: &Loaded,
    outcome: &Outcome,
    id: QueueId,
    grows: &BTreeMap<WorkloadId, WorkloadId>,
) -> Vec<Waiting> {
    let brain = &loaded.brain;
    let queue = brain.queue(id);
    let order = brain.line(id);
    // The last look at each class tells for all who are alike, but for what is one's own: a namespace, a stopped local queue.
    let mut of_class: BTreeMap<ShapeId, (WorkloadId, &Look)> = BTreeMap::new();
    for waits in &order {
        if let (Some(workload), Some(look)) = (brain.workload(*waits), outcome.looks.get(waits))
            && of_itself(loaded, queue, workload, *waits).is_none()
        {
            of_class.entry(workload.shape).or_insert((*waits, look));
        }
    }
    // Whose namespace doesn't match is passed by, in strict order too.
    let stays = |of: &&Workload| !of.marks.as_ref().is_some_and(|marks| marks.wrong_namespace);
    let first = order
        .iter()
        .enumerate()
        .find_map(|(at, w)| Some((at, brain.workload(*w).filter(stays)?.key.to_string())));
    let mut all = Vec::with_capacity(order.len());
    for (at, waits) in order.iter().enumerate() {
        let Some(workload) = brain.workload(*waits) else { continue };
        let own = outcome.looks.get(waits);
        let of_itself = if own.is_none() { of_itself(loaded, queue, workload, *waits) } else { None };
        let instead = (own.is_none() && of_itself.is_none()).then(|| of_class.get(&workload.shape)).flatten();
        let look = own.or(instead.map(|(_, look)| *look));
        let words = match (look, of_itself) {
            (Some(look), _) => {
                let mut words = of_look(brain, workload, look);
                if let Some(gang) = grows.get(waits).and_then(|gang| brain.workload(*gang)) {
                    with_its_gang(brain, gang, workload, &mut words);
                }
                words
            }
            (None, Some((obstacle, message))) => {
                Words { obstacle: Some(obstacle), message, ..Words::default() }
            }
            (None, None) => of_nobody(
                queue,
                outcome,
                *waits,
                first.as_ref().filter(|(before, _)| *before < at).map(|(_, key)| key.as_str()),
            ),
        };
        all.push(Waiting {
            workload: workload.key.to_string(),
            cluster_queue: queue.setup.name.to_string(),
            local_queue: workload.local_queue.to_string(),
            priority: brain.shape_of(workload.shape).priority,
            position: at + 1,
            of: order.len(),
            obstacle: words.obstacle.map(|o| o.word().to_owned()),
            blocked_for_good: words.for_good,
            message: words.message,
            reasons: words.reasons,
            waits_for: words.waits_for,
            alike: instead.and_then(|(other, _)| brain.workload(*other)).map(|other| other.key.to_string()),
            cycle: look.map(|look| look.cycle),
        });
    }
    all
}

/// Why the one who was looked at waits. A look that only went on with the flavors left says nothing about those before.
fn of_look(brain: &Brain, workload: &Workload, look: &Look) -> Words {
    let mut words = of_entry(brain, workload, &look.entry);
    let mut at = look;
    while let Some(before) = &at.before {
        let earlier = of_entry(brain, workload, &before.entry);
        if words.for_good && !earlier.for_good {
            (words.obstacle, words.for_good, words.message) = (earlier.obstacle, false, earlier.message);
        }
        let mut found = earlier.reasons;
        if before.entry.outcome == Came::Skipped {
            found.extend(reasons::taken(brain, &before.entry));
        }
        found.retain(|why| !words.reasons.contains(why));
        words.reasons.splice(0..0, found);
        at = before;
    }
    words
}

/// Where all of a gang, with what it is to grow by, is more than its queue could ever have, its growth waits for nobody's end.
fn with_its_gang(brain: &Brain, gang: &Workload, growth: &Workload, words: &mut Words) {
    let mut wants: BTreeMap<(FlavorId, ResourceId), i64> = BTreeMap::new();
    let given = gang.holding.iter().flat_map(|holding| &holding.given);
    for (given, more) in given.zip(&brain.shape_of(growth.shape).pod_sets) {
        for (resource, flavor) in &given.flavors {
            let adds = amount_of(&more.per_pod, *resource).saturating_mul(i64::from(more.count));
            let wanted = wants.entry((*flavor, *resource)).or_default();
            *wanted = wanted.saturating_add(amount_of(&given.usage, *resource)).saturating_add(adds);
        }
    }
    for ((flavor, resource), asks) in wants {
        let most = Amount(brain.most(growth.queue, (flavor, resource)));
        if Amount(asks) > most {
            let beyond = reasons::of(
                brain,
                &Reason::ExceedsMax { flavor, resource, before: Amount::ZERO, asks, most },
            );
            words.reasons.retain(|why| (&why.flavor, &why.resource) != (&beyond.flavor, &beyond.resource));
            words.reasons.push(beyond);
            words.message = of_obstacle(Some(Obstacle::ExceedsMaxQuota)).to_owned();
            (words.obstacle, words.for_good) = (Some(Obstacle::ExceedsMaxQuota), true);
        }
    }
}

fn of_entry(brain: &Brain, workload: &Workload, entry: &Entry) -> Words {
    let shape = brain.shape_of(workload.shape);
    let names = || {
        entry.targets.iter().filter_map(|t| brain.workload(t.workload)).map(|w| w.key.to_string()).collect()
    };
    let waits_for: Vec<String> = if entry.outcome == Came::Preempting { names() } else { Vec::new() };
    let reasons = reasons::of_assignment(brain, shape, &entry.assignment);
    let placeless = entry.assignment.reasons().all(|(_, reason)| matches!(reason, Reason::Placement(_)))
        && !reasons.is_empty();
    let mut obstacle = entry.obstacle;
    let barrier = if entry.outcome == Came::NoFit { entry.assignment.barrier } else { obstacle };
    let message = match entry.outcome {
        Came::Rejected | Came::Skipped => {
            entry.note.as_deref().unwrap_or("it can't be admitted as it is").to_owned()
        }
        Came::NoFit => of_obstacle(barrier).to_owned(),
        Came::GivesWay => "its quota is kept for a workload that waits too long".to_owned(),
        Came::NoCandidates if placeless => {
            obstacle = Some(Obstacle::TopologyPlacementFailed);
            "its pods have no place in the topology, and nobody may be displaced for one".to_owned()
        }
        Came::NoCandidates => "quota is used, and nobody may be displaced for it".to_owned(),
        Came::NoPlace => "quota is there, and no cluster has the room".to_owned(),
        Came::Preempting => format!("it starts when {} stopped", some_of(&waits_for)),
        Came::Deferred => "it starts when others, told to stop for another's sake, have stopped".to_owned(),
        Came::Gated => "others would have to stop for it, and a gate of its own holds that back".to_owned(),
        Came::Migrating => "it takes over when the variant with a worse flavor has stopped".to_owned(),
        Came::Nominated | Came::Admitted | Came::Evicted => {
            "it is looked at again in the next cycle".to_owned()
        }
    };
    Words { obstacle, for_good: reasons::for_good(barrier), message, reasons, waits_for }
}

/// Names for a sentence: all of a few, else the first and how many more.
fn some_of(names: &[String]) -> String {
    match names {
        [] => "others have".to_owned(),
        [one] => format!("`{one}` has"),
        [one, other] => format!("`{one}` and `{other}` have"),
        [one, rest @ ..] => format!("`{one}` and {} others have", rest.len()),
    }
}

fn of_obstacle(obstacle: Option<Obstacle>) -> &'static str {
    match obstacle {
        Some(Obstacle::ExceedsMaxQuota) => "it asks for more than its queue could ever have",
        Some(Obstacle::NoMatchingFlavor) => "no flavor of its queue serves it",
        Some(Obstacle::WaitingForQuota) => "quota is used",
        Some(Obstacle::TopologyPlacementFailed) => "its pods have no place in the topology",
        Some(Obstacle::WaitingForPreemptedWorkloads) => "others have to stop first",
        Some(Obstacle::Misconfigured) => "something about it or its queue is wrong",
        Some(Obstacle::Suspended) => "its queue is stopped",
        Some(Obstacle::AdmissionGated) => "a gate of its own holds it back",
        Some(Obstacle::PendingEvaluation) | None => "it is looked at again when something changes",
    }
}

/// Why nobody looks at one, whatever becomes of quota: what is said of it or of its queues.
fn of_itself(
    loaded: &Loaded,
    queue: &Queue,
    workload: &Workload,
    id: WorkloadId,
) -> Option<(Obstacle, String)> {
    let marks = workload.marks();
    let name = &queue.setup.name;
    let closed =
        queue.setup.inactive.as_ref().or_else(|| queue.node.is_none().then_some(&Inactive::CohortCycle));
    if let Some(why) = closed {
        Some((Obstacle::Suspended, format!("cluster queue `{name}` admits nothing: {}", inactive(why))))
    } else if let Some(why) = loaded.held_back.get(&id) {
        Some(held_back(workload, why))
    } else if let Some(why) = &marks.unfit {
        Some((Obstacle::Misconfigured, why.to_string()))
    } else if marks.wrong_namespace {
        let why = format!(
            "namespace `{}` may not use cluster queue `{name}`: its `namespaceSelector` doesn't match",
            workload.namespace()
        );
        Some((Obstacle::Misconfigured, why))
    } else if marks.checks_failed {
        Some((Obstacle::PendingEvaluation, "its admission checks have failed".to_owned()))
    } else {
        None
    }
}

fn held_back(workload: &Workload, why: &HeldBack) -> (Obstacle, String) {
    match why {
        HeldBack::LocalQueueStopped => {
            (Obstacle::Suspended, format!("local queue `{}` is stopped", workload.local_queue))
        }
        HeldBack::Until(at) => {
            (Obstacle::PendingEvaluation, format!("it queues again at {}", written_moment(*at)))
        }
        HeldBack::NotRequeued(reason) => {
            (Obstacle::PendingEvaluation, format!("it isn't to queue again yet (`{reason}`)"))
        }
    }
}

/// Why one waits whom nobody looked at, though nothing about it is in the way.
fn of_nobody(queue: &Queue, outcome: &Outcome, id: WorkloadId, first: Option<&str>) -> Words {
    let displaced = outcome.preempted.iter().rfind(|p| p.victim == id);
    let (obstacle, message) = if let Some(preemption) = displaced {
        (
            Some(Obstacle::PendingEvaluation),
            format!("it was displaced in cycle {} and waits again", preemption.cycle),
        )
    } else if let (true, Some(first)) = (queue.setup.strict, first) {
        (None, format!("cluster queue `{}` is StrictFIFO, and `{first}` is before it", queue.setup.name))
    } else {
        (None, "nobody looked at it in these cycles".to_owned())
    };
    Words { obstacle, message, ..Words::default() }
}

/// Why a queue admits nothing.
pub(super) fn inactive(why: &Inactive) -> String {
    match why {
        Inactive::Stopped => "it is stopped".to_owned(),
        Inactive::CohortCycle => "its cohort is its own ancestor".to_owned(),
        Inactive::FlavorNotFound(name) => format!("there is no ResourceFlavor `{name}`"),
        Inactive::AdmissionCheck(name) => format!("there is no AdmissionCheck `{name}`"),
        Inactive::CheckInactive(name) => format!("admission check `{name}` isn't active"),
        Inactive::WorkersCheck(name, clash) => clash.words(name),
        Inactive::TopologyNotFound(name) => format!("there is no Topology `{name}`"),
    }
}

//! What a plan says, as data: the schema of `meridian plan -o json`.
//!
//! Names are stable within [`API_VERSION`]; fields may be added, and a reader must not mind. Amounts are Kubernetes quantities,
//! workloads are `NAMESPACE/NAME`, and every list has a fixed order. Fields that have nothing to say are left out.

mod books;
mod holders;
mod reasons;
mod waiting;

pub use books::{Cohort, Queue, Share, Use};
pub use holders::{Borrowing, Domain, Given, Holder, PodSet, State, Topology};
pub use reasons::Why;
pub use waiting::Waiting;

use crate::decide::{End, Outcome, Preemption};
use crate::load::{Drained, Loaded};
use meridian_queueing::Brain;
use meridian_queueing::cycle::Eviction;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::preempt::Right;
use meridian_queueing::tree::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Version of the schema.
pub const API_VERSION: &str = "meridian.dev/plan/v1";
/// The kind of a report.
pub const KIND: &str = "Plan";

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// How it was made.
    pub run: Run,
    /// How many of what.
    pub summary: Summary,
    /// Who holds quota at the end, by queue and name.
    pub admitted: Vec<Holder>,
    /// Who was told to stop for another's sake, in order.
    pub preempted: Vec<Preempted>,
    /// Who was told to stop for another reason, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Evicted>,
    /// Slices of elastic workloads that newer ones replaced, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Replaced>,
    /// Workloads that are what gangs that run are to grow by.
    #[serde(skip)]
    pub growths: BTreeSet<String>,
    /// Who waits at the end, by queue and position.
    pub waiting: Vec<Waiting>,
    /// Cluster queues by name.
    pub queues: Vec<Queue>,
    /// Cohorts by path.
    pub cohorts: Vec<Cohort>,
    /// What the objects left open: a workload without a queue, a queue that names what isn't there.
    pub notes: Vec<String>,
}

/// How a report was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Cycles that were run.
    pub cycles: u32,
    /// How many workloads of each queue a cycle looked at.
    pub heads_per_queue: usize,
    /// Why there were no more.
    pub end: Ending,
}

/// Why no further cycle was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ending {
    /// Another cycle would change nothing.
    Settled,
    /// As many were run as were asked for.
    CyclesReached,
    /// Things still change after more cycles than any real case takes.
    Unsettled,
}

/// How many of what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Workloads at the end.
    pub workloads: usize,
    /// Of them, those that may run.
    pub admitted: usize,
    /// Those that hold quota and wait for a check or a place.
    pub quota_reserved: usize,
    /// Those that hold quota and were told to stop.
    pub stopping: usize,
    /// Those that wait.
    pub waiting: usize,
    /// Those that wait for what can't come as things are declared.
    pub blocked_for_good: usize,
    /// Those that got their quota in this plan.
    pub newly_admitted: usize,
    /// Preemptions of this plan.
    pub preemptions: usize,
}

/// Somebody was told to stop for another's sake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preempted {
    /// Who.
    pub workload: String,
    /// Its queue.
    pub cluster_queue: String,
    /// The queue's path of cohorts, from the root.
    pub path: String,
    /// For whom.
    pub by: String,
    /// That one's queue.
    pub by_cluster_queue: String,
    /// Its path.
    pub by_path: String,
    /// By which right, in Kueue's word.
    pub reason: String,
    /// The same as a sentence.
    pub message: String,
    /// The cycle, from 1.
    pub cycle: u32,
}

/// Somebody was told to stop, and not for another workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evicted {
    /// Who.
    pub workload: String,
    /// Its queue.
    pub cluster_queue: String,
    /// Why, in a word.
    pub reason: String,
    /// The same as a sentence.
    pub message: String,
    /// The cycle, from 1.
    pub cycle: u32,
}

/// A slice of an elastic workload gave way to a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// The old slice.
    pub workload: String,
    /// The new one.
    pub by: String,
    /// The cycle, from 1.
    pub cycle: u32,
}

impl Report {
    /// What came of deciding on what was loaded.
    pub fn new(loaded: &Loaded, outcome: &Outcome) -> Self {
        let brain = &loaded.brain;
        let names = Naming { brain, outcome };
        let admitted = holders::list(brain, outcome);
        let waiting = waiting::list(loaded, outcome);
        let (queues, cohorts) = books::list(brain);
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            run: Run {
                cycles: outcome.cycles,
                heads_per_queue: outcome.heads_per_queue,
                end: ending(outcome.end),
            },
            summary: summary(&admitted, &waiting, outcome),
            admitted,
            preempted: outcome.preempted.iter().map(|p| names.preempted(p)).collect(),
            evicted: loaded
                .drained
                .iter()
                .map(|(workload, by)| names.drained(*workload, by))
                .chain(
                    outcome
                        .evicted
                        .iter()
                        .map(|(cycle, workload, why)| names.evicted(*cycle, *workload, *why)),
                )
                .collect(),
            growths: outcome.growths.iter().map(ToString::to_string).collect(),
            replaced: outcome
                .replaced
                .iter()
                .map(|(cycle, old, new)| Replaced {
                    workload: names.of(*old).0,
                    by: names.of(*new).0,
                    cycle: *cycle,
                })
                .collect(),
            waiting,
            queues,
            cohorts,
            notes: loaded.notes.clone(),
        }
    }
}

fn ending(end: End) -> Ending {
    match end {
        End::Settled => Ending::Settled,
        End::Asked => Ending::CyclesReached,
        End::Bound => Ending::Unsettled,
    }
}

fn summary(admitted: &[Holder], waiting: &[Waiting], outcome: &Outcome) -> Summary {
    let in_state = |state: State| admitted.iter().filter(|h| h.state == state).count();
    Summary {
        workloads: admitted.len() + waiting.len(),
        admitted: in_state(State::Admitted),
        quota_reserved: in_state(State::QuotaReserved),
        stopping: in_state(State::Stopping),
        waiting: waiting.len(),
        blocked_for_good: waiting.iter().filter(|w| w.blocked_for_good).count(),
        newly_admitted: outcome.admitted.keys().filter(|id| !outcome.held.contains(id)).count(),
        preemptions: outcome.preempted.len(),
    }
}

/// Names of workloads, even of those that are gone.
struct Naming<'a> {
    brain: &'a Brain,
    outcome: &'a Outcome,
}

impl Naming<'_> {
    /// Name, queue and path.
    fn of(&self, id: WorkloadId) -> (String, String, String) {
        let Some((key, queue)) = self.outcome.workloads.get(&id) else { return Default::default() };
        (key.to_string(), self.brain.queue(*queue).setup.name.to_string(), path_of_queue(self.brain, *queue))
    }

    fn preempted(&self, preemption: &Preemption) -> Preempted {
        let Preemption { cycle, victim, of, by, right } = *preemption;
        let (workload, ..) = self.of(victim);
        let (cluster_queue, path) =
            (self.brain.queue(of).setup.name.to_string(), path_of_queue(self.brain, of));
        let (by, by_cluster_queue, by_path) = self.of(by);
        let why = match right {
            Right::InClusterQueue => "which has a higher claim within the same cluster queue",
            Right::InCohortReclamation => "whose queue takes back quota that others borrowed",
            Right::InCohortReclaimWhileBorrowing => "which has a higher priority, although its queue borrows",
            Right::InCohortFairSharing => "whose queue has the smaller share",
        };
        let message = format!("`{workload}` gives way to `{by}`, {why}");
        Preempted {
            workload,
            cluster_queue,
            path,
            by,
            by_cluster_queue,
            by_path,
            reason: right.word().to_owned(),
            message,
            cycle,
        }
    }

    /// Who is drained is told before the first cycle looks at anybody.
    fn drained(&self, id: WorkloadId, by: &Drained) -> Evicted {
        let (workload, cluster_queue, _) = self.of(id);
        let (reason, stopped) = match by {
            Drained::ClusterQueue => ("ClusterQueueStopped", format!("cluster queue `{cluster_queue}`")),
            Drained::LocalQueue(local_queue) => ("LocalQueueStopped", format!("local queue `{local_queue}`")),
        };
        let message = format!("`{workload}` stops: {stopped} is stopped and drained");
        Evicted { workload, cluster_queue, reason: reason.to_owned(), message, cycle: 1 }
    }

    fn evicted(&self, cycle: u32, workload: WorkloadId, why: Eviction) -> Evicted {
        let (workload, cluster_queue, _) = self.of(workload);
        let (reason, words) = match why {
            Eviction::NodeFailures => {
                ("NodeFailures", "stops: a node of it is lost, and nothing replaces it")
            }
            Eviction::FlavorMigration => {
                ("FlavorMigration", "stops: a variant of it with a better flavor takes over")
            }
        };
        Evicted {
            message: format!("`{workload}` {words}"),
            workload,
            cluster_queue,
            reason: reason.to_owned(),
            cycle,
        }
    }
}

/// `/org/team/queue`.
fn path_of_queue(brain: &Brain, queue: QueueId) -> String {
    let queue = brain.queue(queue);
    match queue.node {
        Some(node) => path_of(brain, node),
        None => format!("/{}", queue.setup.name),
    }
}

/// Names from the root to a node, each after a slash.
fn path_of(brain: &Brain, node: NodeId) -> String {
    let mut names: Vec<&str> = std::iter::once(node)
        .chain(brain.forest.ancestors(node))
        .map(|n| &*brain.forest.node(n).name)
        .collect();
    names.reverse();
    names.iter().fold(String::new(), |path, name| path + "/" + name)
}

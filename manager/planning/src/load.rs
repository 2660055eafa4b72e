//! Objects into a brain.
//!
//! ```text
//!   objects ──► catalog   what workloads are read with: namespaces, limit ranges, classes, local queues
//!           ──► queues    flavors, cohorts, cluster queues, and why a queue admits nothing
//!           ──► nodes     the topologies of flavors
//!           ──► roles     who holds quota, who waits, who waits nowhere
//! ```
//!
//! Objects may be incomplete or contradict each other: what can't be used is left out and noted, never refused. A namespace
//! or a priority that nobody declared is the one that Kubernetes would have.

mod catalog;
mod jobs;
mod nodes;
mod queues;
mod roles;
mod shapes;

use catalog::Catalog;
use meridian_objects::Kind;
use meridian_objects::plan::PlanObject;
use meridian_objects::requests::ResourceRules;
use meridian_objects::spec::{Spec, WorkloadObject};
use meridian_queueing::model::{Moment, NO_MOMENT, QueueId, Shape, WorkloadId};
use meridian_queueing::settings::Settings;
use meridian_queueing::{Brain, NewWorkload};
use meridian_shared::gang::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How objects are read.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches")]
pub struct Options {
    /// Switches and cluster-wide settings.
    pub settings: Settings,
    /// Milliseconds since the Unix epoch.
    pub now: Moment,
    /// What quota sees of what pods ask for.
    pub resources: ResourceRules,
    /// Whether the annotation that boosts a priority counts (Kueue's gate `PriorityBoost`).
    pub priority_boost: bool,
    /// Whether pods that a job no longer needs give their quota back (Kueue's gate `ReclaimablePods`).
    pub reclaimable_pods: bool,
    /// Whether a workload that is one pod stays where it is when its node is lost (Kueue's gate
    /// `SkipReassignmentForPodOwnedWorkloads`).
    pub pods_stay: bool,
    /// Whether a workload whose pods weren't ready in time queues again by its creation; by its eviction otherwise.
    pub unready_keep_their_place: bool,
    /// Whether a namespace must be declared for its workloads to be admitted.
    pub namespaces_declared: bool,
    /// Whether an admission check must say that it is active, as a server's do; otherwise only one that says it isn't is not.
    pub checks_say_active: bool,
    /// What local queues used before, by namespace and name, where the objects don't say.
    pub local_usage: BTreeMap<String, Amounts>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            now: NO_MOMENT,
            resources: ResourceRules::default(),
            priority_boost: false,
            reclaimable_pods: true,
            pods_stay: true,
            unready_keep_their_place: false,
            namespaces_declared: false,
            checks_say_active: false,
            local_usage: BTreeMap::new(),
        }
    }
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Ready to decide.
    pub brain: Brain,
    /// What a person should know: a workload without a queue, a queue that names what isn't there.
    pub notes: Vec<String>,
    /// Who isn't looked at, and why.
    pub held_back: BTreeMap<WorkloadId, HeldBack>,
    /// Who holds quota of another queue than its local queue leads to now: where it waits when it has stopped.
    pub elsewhere: BTreeMap<WorkloadId, Elsewhere>,
    /// What gangs that run are to grow by: whose it is, and what waits for it.
    pub growths: BTreeMap<WorkloadId, WorkloadId>,
    /// Who was told to stop because a queue of it is drained.
    pub drained: Vec<(WorkloadId, Drained)>,
    catalog: Catalog,
    /// Resources that a queue's quota ignores, by prefix.
    excluded: BTreeMap<QueueId, Vec<String>>,
}

/// Why a workload waits where nobody looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// Its local queue is stopped.
    LocalQueueStopped,
    /// It is to queue again at this moment (`status.requeueState.requeueAt`).
    Until(Moment),
    /// Its condition `Requeued` is false, for this reason.
    NotRequeued(Arc<str>),
}

/// Where a workload waits that gives back what it holds of a queue which its local queue no longer leads to.
#[derive(Clone, Debug)]
pub enum Elsewhere {
    /// In another queue, as what it is there.
    In(Box<(NewWorkload, Shape)>),
    /// Nowhere, and why.
    Nowhere(String),
}

/// Which of a workload's queues takes back what it had given (`stopPolicy: HoldAndDrain`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Its cluster queue.
    ClusterQueue,
    /// Its local queue.
    LocalQueue(Arc<str>),
}

/// Marks a workload that is no job, but what the gang of this name is to grow by while it runs.
pub const GROWTH_ANNOTATION: &str = "plan.meridian.dev/growth";

/// Whether decisions of queues read anything of a kind's objects. The others say where gangs may run and how clusters are
/// joined, and are judged by a manager with its clusters only.
pub const fn reads(kind: Kind) -> bool {
    match kind {
        Kind::ResourceFlavor
        | Kind::ClusterQueue
        | Kind::Cohort
        | Kind::LocalQueue
        | Kind::WorkloadPriorityClass
        | Kind::AdmissionCheck
        | Kind::Workload
        | Kind::Job
        | Kind::Namespace
        | Kind::PriorityClass
        | Kind::Topology
        | Kind::LimitRange
        | Kind::RuntimeClass => true,
        Kind::MultiKueueConfig
        | Kind::MultiKueueCluster
        | Kind::ProvisioningRequestConfig
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy => false,
    }
}

/// Cohorts that are their own ancestors, and the parent that each names: what no manager takes.
pub fn cohorts_above_themselves(objects: &[PlanObject]) -> Vec<(&str, &str)> {
    let parents: BTreeMap<&str, &str> = queues::planned(objects)
        .filter_map(|of| match &of.object.spec {
            Spec::Cohort(spec) => Some((of.object.name.as_str(), spec.parent.as_deref()?)),
            _ => None,
        })
        .collect();
    let above = |name: &str| {
        let up = std::iter::successors(parents.get(name).copied(), |at| parents.get(at).copied());
        up.take(parents.len()).any(|at| at == name)
    };
    parents.iter().filter(|(name, _)| above(name)).map(|(name, parent)| (*name, *parent)).collect()
}

/// Reads objects.
pub fn load(objects: &[PlanObject], options: &Options) -> Loaded {
    let mut brain = Brain::new(options.settings.clone());
    brain.now = options.now;
    let mut loaded = Loaded { brain, catalog: Catalog::new(objects, options), ..Loaded::default() };
    loaded.declare(objects);
    loaded.survey(objects);
    loaded.note_inactive();
    loaded.recall_usage(objects);
    loaded.enlist(objects);
    loaded
}

impl Loaded {
    /// A workload begins to wait in a queue, whatever its local queue and its status say.
    pub fn await_in(&mut self, workload: &WorkloadObject, queue: QueueId) -> WorkloadId {
        let new = self.new_workload(workload, queue);
        self.brain.wait(new)
    }

    /// A workload holds in a queue what its status says was given to it, whatever its conditions say.
    pub fn hold_in(&mut self, workload: &WorkloadObject, queue: QueueId) -> WorkloadId {
        let admission = workload.status.admission.clone().unwrap_or_default();
        self.hold(workload, &admission, queue)
    }

    /// Queues, cohorts, flavors and nodes are declared anew; who waits or holds quota keeps its place.
    pub fn redeclare(&mut self, objects: &[PlanObject]) {
        self.declare(objects);
        self.survey(objects);
    }

    /// A workload's priority as decisions see it: as written, and what a boost adds where boosts count.
    pub fn priority(&self, workload: &WorkloadObject) -> i64 {
        self.catalog.priority(workload)
    }

    /// Since when a workload waits, as queues order it.
    pub fn since(&self, workload: &WorkloadObject) -> Moment {
        self.catalog.since(workload)
    }
}

#[cfg(test)]
mod tests;

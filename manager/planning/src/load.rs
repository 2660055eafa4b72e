//! Builds queue state from objects.
//!
//! ```text
//!   objects ──► catalog    namespaces, limit ranges, classes and local queues, by name
//!           ──► queues     flavors, cohorts, cluster queues
//!           ──► nodes      topologies and their free capacity
//!           ──► workloads  holders and pending workloads
//!           ──► jobs       jobs that have no workload yet
//! ```
//!
//! Objects may be incomplete or contradict each other. Unusable objects are left out with a note and never
//! refused. A namespace or priority that is not declared has the value that Kubernetes would give it.

mod catalog;
mod jobs;
mod nodes;
mod queues;
mod shapes;
mod workloads;

pub(crate) use queues::inactive_message;

use catalog::Catalog;
use meridian_objects::plan::PlanObject;
use meridian_objects::requests::ResourceRules;
use meridian_objects::spec::{Spec, WorkloadObject};
use meridian_objects::{Kind, any_job};
use meridian_queueing::model::{Moment, NO_MOMENT, QueueId, Shape, WorkloadId};
use meridian_queueing::settings::Settings;
use meridian_queueing::{NewWorkload, QueueState};
use meridian_shared::gang::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation of a workload that represents the scale-up of a running gang: its added pods. The value is
/// `NAMESPACE/NAME` of the gang's workload.
pub const SCALE_UP_ANNOTATION: &str = "plan.meridian.dev/scale-up";

/// Options for reading objects.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches")]
pub struct LoadOptions {
    pub settings: Settings,
    /// Time of the decision, in milliseconds since the Unix epoch.
    pub now: Moment,
    /// Which of the resources that pods request count against quota.
    pub resources: ResourceRules,
    /// Whether the annotation that boosts a priority counts (Kueue's gate `PriorityBoost`).
    pub priority_boost: bool,
    /// Whether pods that a job no longer needs release their quota (Kueue's gate `ReclaimablePods`).
    pub reclaimable_pods: bool,
    /// Whether a workload of a single pod stays on its lost node (Kueue's gate
    /// `SkipReassignmentForPodOwnedWorkloads`).
    pub pods_stay: bool,
    /// Whether a workload that was evicted for `PodsReadyTimeout` is requeued by its creation time instead of
    /// its eviction time.
    pub unready_requeue_by_creation: bool,
    /// Whether workloads of undeclared namespaces are inadmissible.
    pub namespaces_declared: bool,
    /// Whether an admission check without an `Active` condition is inactive, as on a server.
    pub checks_need_active_condition: bool,
    /// Usage history of local queues, by `NAMESPACE/NAME`; takes precedence over their status.
    pub local_usage: BTreeMap<String, Amounts>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            now: NO_MOMENT,
            resources: ResourceRules::default(),
            priority_boost: false,
            reclaimable_pods: true,
            pods_stay: true,
            unready_requeue_by_creation: false,
            namespaces_declared: false,
            checks_need_active_condition: false,
            local_usage: BTreeMap::new(),
        }
    }
}

/// Queue state built from objects.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    pub state: QueueState,
    /// Problems of the objects that a user should know, such as a workload without a queue.
    pub notes: Vec<String>,
    /// Workloads that no cycle evaluates.
    pub(crate) parked: BTreeMap<WorkloadId, ParkReason>,
    /// Queue in which a holder is requeued once it has stopped, if its local queue points to another cluster
    /// queue now.
    pub(crate) requeue_targets: BTreeMap<WorkloadId, RequeueTarget>,
    /// By running gang: the workload that represents its scale-up.
    pub(crate) scale_ups: BTreeMap<WorkloadId, WorkloadId>,
    /// Holders that are evicted because a queue is drained.
    pub(crate) drained: Vec<(WorkloadId, DrainedQueue)>,
    catalog: Catalog,
    /// By queue: prefixes of resources that its quota ignores.
    excluded: BTreeMap<QueueId, Vec<String>>,
}

/// Why no cycle evaluates a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParkReason {
    LocalQueueStopped,
    /// The workload backs off until this moment (`status.requeueState.requeueAt`).
    BackoffUntil(Moment),
    /// The workload's condition `Requeued` is false, with this reason.
    NotRequeued(Arc<str>),
}

/// Queue in which a workload is requeued after it has stopped.
#[derive(Clone, Debug)]
pub(crate) enum RequeueTarget {
    /// Another cluster queue, for which the workload may have another shape.
    Queue(Box<(NewWorkload, Shape)>),
    /// The workload can't be requeued, for this reason.
    Nowhere(String),
}

/// The queue that is drained (`stopPolicy: HoldAndDrain`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DrainedQueue {
    ClusterQueue,
    LocalQueue(Arc<str>),
}

/// Whether a plan depends on objects of this kind. The other kinds determine where gangs may run and how
/// clusters join; only a manager with clusters can evaluate them.
pub const fn affects_plans(kind: Kind) -> bool {
    match kind {
        Kind::ResourceFlavor
        | Kind::ClusterQueue
        | Kind::Cohort
        | Kind::LocalQueue
        | Kind::WorkloadPriorityClass
        | Kind::AdmissionCheck
        | Kind::Workload
        | any_job!()
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
        | Kind::DispatchPolicy
        | Kind::Role
        | Kind::ClusterRole
        | Kind::RoleBinding
        | Kind::ClusterRoleBinding => false,
    }
}

/// Cohorts that are their own ancestors, each with the parent that it names. A manager refuses them.
pub fn cyclic_cohorts(objects: &[PlanObject]) -> Vec<(&str, &str)> {
    let parents: BTreeMap<&str, &str> = queues::planned_objects(objects)
        .filter_map(|planned| match &planned.object.spec {
            Spec::Cohort(spec) => Some((planned.object.name.as_str(), spec.parent.as_deref()?)),
            _ => None,
        })
        .collect();
    let is_own_ancestor = |name: &str| {
        let ancestors = std::iter::successors(parents.get(name).copied(), |at| parents.get(at).copied());
        ancestors.take(parents.len()).any(|ancestor| ancestor == name)
    };
    parents.iter().filter(|(name, _)| is_own_ancestor(name)).map(|(name, parent)| (*name, *parent)).collect()
}

/// Builds queue state from objects.
pub fn load(objects: &[PlanObject], options: &LoadOptions) -> Loaded {
    let mut state = QueueState::new(options.settings.clone());
    state.set_now(options.now);
    let mut loaded = Loaded { state, catalog: Catalog::new(objects, options), ..Loaded::default() };
    loaded.declare_queues(objects);
    loaded.declare_nodes(objects);
    loaded.note_inactive_queues();
    loaded.restore_local_usage(objects);
    loaded.add_workloads(objects);
    loaded.add_jobs(objects);
    loaded
}

impl Loaded {
    /// Adds a workload as pending in a queue, regardless of its local queue and status.
    pub fn add_pending(&mut self, workload: &WorkloadObject, queue: QueueId) -> WorkloadId {
        let new = self.new_workload(workload, queue);
        self.state.add_pending(new)
    }

    /// Adds a workload as holder of the quota in its `status.admission`, regardless of its conditions.
    pub fn add_holder(&mut self, workload: &WorkloadObject, queue: QueueId) -> WorkloadId {
        let admission = workload.status.admission.clone().unwrap_or_default();
        self.hold(workload, &admission, queue)
    }

    /// Declares queues, cohorts, flavors and nodes again. Pending workloads and holders stay.
    pub fn redeclare(&mut self, objects: &[PlanObject]) {
        self.declare_queues(objects);
        self.declare_nodes(objects);
    }

    /// The priority that decisions use: the declared one, plus the boost if boosts count.
    pub fn priority(&self, workload: &WorkloadObject) -> i64 {
        self.catalog.priority(workload)
    }

    /// The time by which queues order the workload.
    pub fn queue_time(&self, workload: &WorkloadObject) -> Moment {
        self.catalog.queue_time(workload)
    }
}

#[cfg(test)]
mod tests;

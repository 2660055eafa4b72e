//! Adds workloads: holders, pending workloads, and scale-ups of running gangs.

use super::catalog::{namespace_or_default, true_condition};
use super::{DrainedQueue, Loaded, ParkReason, RequeueTarget, SCALE_UP_ANNOTATION, shapes};
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::workload::ALLOWED_FLAVORS_ANNOTATION;
use meridian_objects::spec::{
    Admission, CheckState, Condition, ConditionStatus, DelayedTopology, PodSetAssignment, StopPolicy,
    WorkloadObject,
};
use meridian_queueing::NewWorkload;
use meridian_queueing::model::{Delayed, Marks, NO_MOMENT, PodSetAdmission, QueueId, Update, WorkloadId};
use meridian_queueing::names::FlavorId;
use meridian_topology::Assignment;
use meridian_topology::compressed::Compressed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label of a workload that is never queued itself, because its variants are (concurrent admission).
const PARENT_LABEL: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// Annotation with the controllers that hold back a workload's admission. Empty means none.
const GATED_ANNOTATION: &str = "kueue.x-k8s.io/admission-gated-by";
/// Annotation of a workload that stands for a group of pods.
const GROUP_ANNOTATION: &str = "kueue.x-k8s.io/is-group-workload";

/// Whether a cluster queue accepts workloads of a namespace.
pub(super) struct NamespaceAccess {
    /// The queue's `namespaceSelector` doesn't match.
    pub(super) not_selected: bool,
    /// Why workloads of the namespace can't be admitted.
    pub(super) unfit: Option<String>,
}

impl Loaded {
    pub(super) fn add_workloads(&mut self, objects: &[PlanObject]) {
        for object in objects {
            if let PlanObject::Workload(workload) = object {
                self.add_workload(workload);
            }
        }
    }

    fn add_workload(&mut self, workload: &WorkloadObject) {
        let (key, status) = (workload.meta.key(), &workload.status);
        if status.is("Finished") {
            return;
        }
        if let Some(gang) = workload.meta.annotations.get(SCALE_UP_ANNOTATION) {
            return self.add_scale_up(workload, gang);
        }
        if let Some(admission) = status.admission.as_ref().filter(|_| status.is("QuotaReserved")) {
            match self.state.queue_id(&admission.cluster_queue) {
                Some(queue) => {
                    let id = self.hold(workload, admission, queue);
                    self.set_requeue_target(workload, id, queue);
                    self.evict_if_drained(id);
                }
                None => self.notes.push(format!(
                    "workload `{key}` holds quota of cluster queue `{}`, which doesn't exist",
                    admission.cluster_queue
                )),
            }
            return;
        }
        if let Some(why) = self.not_pending(workload) {
            self.notes.push(format!("workload `{key}` isn't queued: {why}"));
            return;
        }
        let local_queue = local_queue_key(workload);
        let Some((queue, stopped)) = self.route(&local_queue, &format!("workload `{key}`")) else {
            return;
        };
        let new = self.new_workload(workload, queue);
        let park_reason = stopped
            .then_some(ParkReason::LocalQueueStopped)
            .or_else(|| self.backoff(workload))
            .or_else(|| not_requeued(workload));
        self.enqueue(new, park_reason);
    }

    fn backoff(&self, workload: &WorkloadObject) -> Option<ParkReason> {
        let until = workload.status.requeue.as_ref()?.at.filter(|until| *until > self.state.now())?;
        Some(ParkReason::BackoffUntil(until))
    }

    /// Notes the queue in which a holder is requeued, if that isn't the queue whose quota it holds.
    fn set_requeue_target(&mut self, workload: &WorkloadObject, id: WorkloadId, charged: QueueId) {
        let local = local_queue_key(workload);
        let cluster_queue = self.catalog.local_queues.get(&local).map(|queue| queue.cluster_queue.clone());
        let target = if !workload.spec.active {
            RequeueTarget::Nowhere("it is inactive".to_owned())
        } else if let Some(cluster_queue) = cluster_queue {
            match self.state.queue_id(&cluster_queue) {
                Some(queue) if queue == charged => return,
                Some(queue) => self.requeue_into(workload, queue),
                None => RequeueTarget::Nowhere(missing_cluster_queue(&local, &cluster_queue)),
            }
        } else {
            RequeueTarget::Nowhere(format!("local queue `{local}` doesn't exist"))
        };
        self.requeue_targets.insert(id, target);
    }

    fn requeue_into(&mut self, workload: &WorkloadObject, queue: QueueId) -> RequeueTarget {
        let mut new = self.new_workload(workload, queue);
        if let Some(marks) = &mut new.marks {
            // A pending workload has no placement, so none of its nodes can be lost.
            marks.lost_nodes.clear();
        }
        let shape = (**self.state.shape_of(new.shape)).clone();
        RequeueTarget::Queue(Box::new((new, shape)))
    }

    /// Queues the scale-up of a running gang, in the queue whose quota the gang holds, for the gang's
    /// flavors.
    fn add_scale_up(&mut self, workload: &WorkloadObject, gang: &str) {
        let Some(id) = self.state.find(gang) else { return };
        let Some(running) = self.state.workload(id) else { return };
        let Some(holding) = running.holding.as_ref().filter(|holding| !holding.evicted) else { return };
        let queue = running.queue;
        let mut pinned: Vec<FlavorId> =
            holding.given.iter().flat_map(|given| given.flavors.values().copied()).collect();
        pinned.sort_unstable();
        pinned.dedup();
        let mut new = self.new_workload(workload, queue);
        new.marks = Some(Box::new(Marks { pinned, ..Marks::default() }));
        // A stopped local queue stops scale-ups too, even if the gang holds quota of another cluster queue.
        let scale_up = if self.has_open_route(workload) {
            self.state.add_pending(new)
        } else {
            let scale_up = self.state.add_parked(new);
            self.parked.insert(scale_up, ParkReason::LocalQueueStopped);
            scale_up
        };
        self.scale_ups.insert(id, scale_up);
    }

    /// Whether the local queue is open and points to an active cluster queue that accepts the namespace.
    fn has_open_route(&self, workload: &WorkloadObject) -> bool {
        let local = self.catalog.local_queues.get(&local_queue_key(workload));
        let queue = local
            .filter(|local| local.stop_policy == StopPolicy::None)
            .and_then(|local| self.state.queue_id(&local.cluster_queue));
        queue.is_some_and(|queue| {
            self.state.queue(queue).setup.inactive.is_none()
                && !self.namespace_access(&workload.meta.namespace, queue).not_selected
        })
    }

    /// Evicts a holder if its local queue or cluster queue is drained, as a manager does.
    fn evict_if_drained(&mut self, id: WorkloadId) {
        let Some(workload) = self.state.workload(id) else { return };
        let local_queue = workload.local_queue.clone();
        let stop_policy =
            self.catalog.local_queues.get(&*local_queue).map_or(StopPolicy::None, |local| local.stop_policy);
        let evicted = workload.evicted();
        let cluster_queue = &self.state.queue(workload.queue).setup.name;
        let drained = if stop_policy == StopPolicy::HoldAndDrain {
            Some(DrainedQueue::LocalQueue(local_queue))
        } else {
            self.catalog.is_drained(cluster_queue).then_some(DrainedQueue::ClusterQueue)
        };
        if stop_policy != StopPolicy::None {
            self.parked.insert(id, ParkReason::LocalQueueStopped);
        }
        if let Some(queue) = drained.filter(|_| !evicted) {
            self.state.evict(id);
            self.drained.push((id, queue));
        }
    }

    /// Adds a pending workload. With a `park_reason`, no cycle evaluates it.
    pub(super) fn enqueue(&mut self, new: NewWorkload, park_reason: Option<ParkReason>) {
        let Some(reason) = park_reason else {
            self.state.add_pending(new);
            return;
        };
        let id = self.state.add_parked(new);
        self.parked.insert(id, reason);
    }

    /// The cluster queue that a local queue points to, and whether the local queue is stopped. Notes a
    /// missing or stopped queue; `subject` names the workload or job in the note.
    pub(super) fn route(&mut self, local_queue: &str, subject: &str) -> Option<(QueueId, bool)> {
        let Some(local) = self.catalog.local_queues.get(local_queue) else {
            self.notes.push(format!("{subject} isn't queued: local queue `{local_queue}` doesn't exist"));
            return None;
        };
        let Some(queue) = self.state.queue_id(&local.cluster_queue) else {
            let why = missing_cluster_queue(local_queue, &local.cluster_queue);
            self.notes.push(format!("{subject} isn't queued: {why}"));
            return None;
        };
        let stopped = local.stop_policy != StopPolicy::None;
        if stopped {
            self.notes.push(format!("{subject} isn't considered: local queue `{local_queue}` is stopped"));
        }
        Some((queue, stopped))
    }

    /// Why a workload that has no quota isn't pending.
    fn not_pending(&self, workload: &WorkloadObject) -> Option<&'static str> {
        let status = &workload.status;
        let on_hold = |condition: &Condition| {
            condition.status == ConditionStatus::False && condition.reason == "OnHold"
        };
        let gates = &self.state.settings().gates;
        if !workload.spec.active {
            Some("it is inactive")
        } else if status.is("QuotaReserved") {
            Some("its condition `QuotaReserved` is true, but `status.admission` is missing")
        } else if status.condition("QuotaReserved").is_some_and(on_hold) {
            Some("it is on hold")
        } else if status.is("WaitingForReplacementPods") {
            Some("its pods are being replaced")
        } else if workload.meta.annotations.get(GATED_ANNOTATION).is_some_and(|by| !by.is_empty()) {
            Some("its admission is gated")
        } else if gates.concurrent_admission
            && workload.meta.labels.get(PARENT_LABEL).is_some_and(|v| v == "true")
        {
            Some("its variants are queued instead")
        } else {
            None
        }
    }

    pub(super) fn hold(
        &mut self,
        workload: &WorkloadObject,
        admission: &Admission,
        queue: QueueId,
    ) -> WorkloadId {
        let new = self.new_workload(workload, queue);
        let mut given = Vec::with_capacity(workload.spec.pod_sets.len());
        for set in &workload.spec.pod_sets {
            let assigned = admission.pod_sets.iter().find(|assigned| assigned.name == set.name);
            given.push(
                assigned.map_or_else(PodSetAdmission::default, |assigned| self.given(assigned, set.count)),
            );
        }
        let status = &workload.status;
        // If the condition is missing, count the quota as reserved now.
        let since = true_condition(&status.conditions, "QuotaReserved")
            .map_or(self.state.now(), |c| c.since.unwrap_or(NO_MOMENT));
        self.state.add_holder(new, given, since, status.is("Evicted"), status.is("Admitted"))
    }

    /// Quota that a pod set of `pods` pods holds.
    fn given(&mut self, assigned: &PodSetAssignment, pods: u32) -> PodSetAdmission {
        let topology = assigned.topology.clone().filter(|_| self.state.settings().gates.topology);
        let placement = topology.and_then(|json| {
            let read = serde_json::from_value::<Compressed>(json).map(|c| Assignment::try_from(&c));
            if let Ok(Ok(assignment)) = read {
                return Some(assignment);
            }
            let name = &assigned.name;
            self.notes.push(format!("`topologyAssignment` of pod set `{name}` can't be read"));
            None
        });
        PodSetAdmission {
            flavors: assigned
                .flavors
                .iter()
                .map(|(resource, flavor)| (self.state.resource(resource), self.state.flavor_id(flavor)))
                .collect(),
            usage: self.state.requests(&assigned.usage),
            count: assigned.count.unwrap_or(pods),
            placement,
            delayed: assigned.delayed_topology.map(|delayed| match delayed {
                DelayedTopology::Pending => Delayed::Pending,
                DelayedTopology::Ready => Delayed::Ready,
            }),
        }
    }

    pub(super) fn new_workload(&mut self, workload: &WorkloadObject, queue: QueueId) -> NewWorkload {
        let shape = self.shape(workload, queue);
        let marks = self.marks(workload, queue);
        NewWorkload {
            key: Arc::from(workload.meta.key()),
            uid: Arc::from(workload.meta.uid.as_str()),
            queue,
            local_queue: Arc::from(local_queue_key(workload)),
            shape: self.state.intern(shape),
            since: self.catalog.queue_time(workload),
            marks: (marks != Marks::default()).then(|| Box::new(marks)),
        }
    }

    fn marks(&self, workload: &WorkloadObject, queue: QueueId) -> Marks {
        let status = &workload.status;
        let checks = &status.admission_checks;
        let is_open =
            |gate: &String| status.preemption_gates.iter().any(|state| state.name == *gate && state.open);
        let replaces_nodes = self.state.settings().gates.failed_node_replacement;
        let lost_nodes =
            if replaces_nodes && status.is("Admitted") { status.unhealthy_nodes.as_slice() } else { &[] };
        let access = self.namespace_access(&workload.meta.namespace, queue);
        Marks {
            replaces: workload.replaces().map(Arc::from),
            gated: workload.spec.preemption_gates.iter().any(|gate| !is_open(gate)),
            lost_nodes: lost_nodes.to_vec(),
            checks: checks.iter().map(|check| Arc::from(check.name.as_str())).collect(),
            checks_ready: !checks.is_empty() && checks.iter().all(|check| check.state == CheckState::Ready),
            checks_failed: checks
                .iter()
                .any(|check| matches!(check.state, CheckState::Retry | CheckState::Rejected)),
            variant_of: variant(workload),
            elastic: workload.is_elastic(),
            single_pod: self.catalog.options.pods_stay && is_single_pod(workload),
            updates: updates(workload),
            wrong_namespace: access.not_selected,
            unfit: access.unfit.or_else(|| self.unfit(workload)).map(Arc::from),
            pinned: Vec::new(),
        }
    }

    pub(super) fn namespace_access(&self, namespace: &str, queue: QueueId) -> NamespaceAccess {
        let Some(labels) = self.catalog.namespace_labels(namespace) else {
            let unfit = Some(format!("namespace `{namespace}` doesn't exist"));
            return NamespaceAccess { not_selected: false, unfit };
        };
        let setup = &self.state.queue(queue).setup;
        let selected = setup.namespace_selector.as_ref().is_some_and(|selector| selector.matches(&labels));
        let name = &setup.name;
        let unfit = (!selected).then(|| match setup.namespace_selector {
            Some(_) => format!(
                "the `namespaceSelector` of cluster queue `{name}` doesn't match namespace `{namespace}`"
            ),
            None => format!("cluster queue `{name}` has no `namespaceSelector`, so it selects no namespace"),
        });
        NamespaceAccess { not_selected: !selected, unfit }
    }
}

/// `NAMESPACE/NAME` of a workload's local queue.
fn local_queue_key(workload: &WorkloadObject) -> String {
    format!("{}/{}", namespace_or_default(&workload.meta.namespace), workload.spec.queue_name)
}

fn missing_cluster_queue(local_queue: &str, cluster_queue: &str) -> String {
    format!("local queue `{local_queue}` points to cluster queue `{cluster_queue}`, which doesn't exist")
}

fn not_requeued(workload: &WorkloadObject) -> Option<ParkReason> {
    let condition = workload.status.condition("Requeued")?;
    // Ignore evictions by a stopped queue: such a workload is requeued when the queue resumes, and the stop
    // is checked separately.
    let queue_stopped = ["LocalQueueStopped", "ClusterQueueStopped"].contains(&condition.reason.as_str());
    (condition.status == ConditionStatus::False && !queue_stopped)
        .then(|| ParkReason::NotRequeued(Arc::from(condition.reason.as_str())))
}

/// Whether a workload stands for one pod, and not for a group of pods.
fn is_single_pod(workload: &WorkloadObject) -> bool {
    let grouped = workload.meta.annotations.get(GROUP_ANNOTATION).is_some_and(|value| value == "true");
    let owners = workload.meta.owners.as_slice();
    !grouped && matches!(owners, [owner] if owner.kind == "Pod" && owner.api_version == "v1")
}

/// Node selectors and tolerations that ready admission checks added, by pod set.
fn updates(workload: &WorkloadObject) -> BTreeMap<Arc<str>, Update> {
    let mut updates: BTreeMap<Arc<str>, Update> = BTreeMap::new();
    let ready = workload.status.admission_checks.iter().filter(|check| check.state == CheckState::Ready);
    for change in ready.flat_map(|check| &check.pod_set_updates) {
        let update = updates.entry(Arc::from(change.name.as_str())).or_default();
        update.node_selector.extend(change.node_selector.clone());
        update.tolerations.extend(change.tolerations.iter().cloned());
    }
    updates
}

/// For a variant: the uid of its parent workload, and the variant's flavor.
fn variant(workload: &WorkloadObject) -> Option<(Arc<str>, Arc<str>)> {
    let parent = workload.meta.owners.iter().find(|owner| {
        owner.kind == "Workload" && owner.api_version.starts_with("kueue.x-k8s.io/") && !owner.uid.is_empty()
    })?;
    let allowed =
        workload.meta.annotations.get(ALLOWED_FLAVORS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let flavor = shapes::split_list(allowed).next().unwrap_or_default();
    Some((Arc::from(parent.uid.as_str()), Arc::from(flavor)))
}

//! Who holds quota, who waits, and who waits nowhere.

use super::catalog::{holds, namespace_or_default};
use super::{Drained, Elsewhere, GROWTH_ANNOTATION, HeldBack, Loaded, shapes};
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::workload::ALLOWED_FLAVORS_ANNOTATION;
use meridian_objects::spec::{
    Admission, CheckState, Condition, ConditionStatus, DelayedTopology, PodSetAssignment, StopPolicy,
    WorkloadObject,
};
use meridian_queueing::NewWorkload;
use meridian_queueing::model::{Delayed, Given, Marks, NO_MOMENT, QueueId, Update, WorkloadId};
use meridian_queueing::names::FlavorId;
use meridian_topology::Assignment;
use meridian_topology::compressed::Compressed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Marks a workload that only stands for its variants.
const PARENT_LABEL: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// Names who holds a workload back; nobody when it is empty.
const GATED_ANNOTATION: &str = "kueue.x-k8s.io/admission-gated-by";
/// Marks a workload that stands for a group of pods.
const GROUP_ANNOTATION: &str = "kueue.x-k8s.io/is-group-workload";

impl Loaded {
    /// Gives every workload and job its place.
    pub(super) fn enlist(&mut self, objects: &[PlanObject]) {
        for object in objects {
            if let PlanObject::Workload(workload) = object {
                self.place(workload);
            }
        }
        self.enlist_jobs(objects);
    }

    fn place(&mut self, workload: &WorkloadObject) {
        let (key, status) = (workload.meta.key(), &workload.status);
        if status.is("Finished") {
            return;
        }
        if let Some(of) = workload.meta.annotations.get(GROWTH_ANNOTATION) {
            return self.await_growth(workload, of);
        }
        if let Some(admission) = status.admission.as_ref().filter(|_| status.is("QuotaReserved")) {
            match self.brain.queue_id(&admission.cluster_queue) {
                Some(queue) => {
                    let id = self.hold(workload, admission, queue);
                    self.note_elsewhere(workload, id, queue);
                    self.drain(id);
                }
                None => self.notes.push(format!(
                    "workload `{key}` holds quota of cluster queue `{}`, which isn't there",
                    admission.cluster_queue
                )),
            }
            return;
        }
        if let Some(why) = self.not_waiting(workload) {
            self.notes.push(format!("workload `{key}` doesn't wait: {why}"));
            return;
        }
        let namespace = namespace_or_default(&workload.meta.namespace);
        let Some((queue, stopped)) =
            self.queue_of(&format!("{namespace}/{}", workload.spec.queue_name), &format!("workload `{key}`"))
        else {
            return;
        };
        let new = self.new_workload(workload, queue);
        let later = || {
            status.requeue.as_ref().and_then(|r| r.at).filter(|at| *at > self.brain.now).map(HeldBack::Until)
        };
        // Who was drained queues again once its queue takes part, and that says so itself.
        let held = |c: &&Condition| {
            c.status == ConditionStatus::False
                && !["LocalQueueStopped", "ClusterQueueStopped"].contains(&c.reason.as_str())
        };
        let held_off = || {
            status
                .condition("Requeued")
                .filter(held)
                .map(|c| HeldBack::NotRequeued(Arc::from(c.reason.as_str())))
        };
        let held_back = stopped.then_some(HeldBack::LocalQueueStopped).or_else(later).or_else(held_off);
        self.begin_to_wait(new, held_back);
    }

    /// Remembers where a holder waits next, if that isn't the queue that it is charged to.
    fn note_elsewhere(&mut self, workload: &WorkloadObject, id: WorkloadId, charged: QueueId) {
        let local =
            format!("{}/{}", namespace_or_default(&workload.meta.namespace), workload.spec.queue_name);
        let next =
            match self.catalog.local_queues.get(&local).map(|of| (self.brain.queue_id(&of.queue), &of.queue))
            {
                _ if !workload.spec.active => Elsewhere::Nowhere("it is not active".to_owned()),
                Some((Some(queue), _)) if queue == charged => return,
                Some((Some(queue), _)) => {
                    let mut new = self.new_workload(workload, queue);
                    if let Some(marks) = &mut new.marks {
                        // It stands nowhere then.
                        marks.lost_nodes.clear();
                    }
                    let shape = (**self.brain.shape_of(new.shape)).clone();
                    Elsewhere::In(Box::new((new, shape)))
                }
                Some((None, queue)) => Elsewhere::Nowhere(format!(
                    "local queue `{local}` leads to cluster queue `{queue}`, which isn't there"
                )),
                None => Elsewhere::Nowhere(format!("local queue `{local}` isn't there")),
            };
        self.elsewhere.insert(id, next);
    }

    /// What a gang that runs is to grow by waits in the queue whose quota that has, for the flavors that it has.
    fn await_growth(&mut self, workload: &WorkloadObject, of: &str) {
        let Some((id, runs)) = self.brain.find(of).and_then(|id| Some((id, self.brain.workload(id)?))) else {
            return;
        };
        let (Some(holding), queue) = (runs.holding.as_ref().filter(|holding| !holding.evicted), runs.queue)
        else {
            return;
        };
        let mut pinned: Vec<FlavorId> =
            holding.given.iter().flat_map(|given| given.flavors.values().copied()).collect();
        pinned.sort_unstable();
        pinned.dedup();
        let mut new = self.new_workload(workload, queue);
        new.marks = Some(Box::new(Marks { pinned, ..Marks::default() }));
        // Whoever has no way through its local queue gets nothing more, wherever it has its quota.
        let growth = if self.may_enter(workload) {
            self.brain.wait(new)
        } else {
            let growth = self.brain.wait_aside(new);
            self.held_back.insert(growth, HeldBack::LocalQueueStopped);
            growth
        };
        self.growths.insert(id, growth);
    }

    /// Whether a workload's local queue leads to a cluster queue that takes it.
    fn may_enter(&self, workload: &WorkloadObject) -> bool {
        let namespace = namespace_or_default(&workload.meta.namespace);
        let local = self
            .catalog
            .local_queues
            .get(&format!("{namespace}/{}", workload.spec.queue_name))
            .filter(|of| of.stop_policy == StopPolicy::None);
        let queue = local.and_then(|of| self.brain.queue_id(&of.queue));
        queue.is_some_and(|queue| {
            self.brain.queue(queue).setup.inactive.is_none()
                && !self.stranger(&workload.meta.namespace, queue).0
        })
    }

    /// Who holds quota of a queue that is drained is told to stop, as a manager does when the queue's policy is written.
    fn drain(&mut self, id: WorkloadId) {
        let Some(workload) = self.brain.workload(id) else { return };
        let local = self
            .catalog
            .local_queues
            .get(&*workload.local_queue)
            .map_or(StopPolicy::None, |queue| queue.stop_policy);
        let stops_already = workload.evicted();
        let drained = if local == StopPolicy::HoldAndDrain {
            Some(Drained::LocalQueue(workload.local_queue.clone()))
        } else {
            self.catalog
                .drained
                .contains(&*self.brain.queue(workload.queue).setup.name)
                .then_some(Drained::ClusterQueue)
        };
        if local != StopPolicy::None {
            self.held_back.insert(id, HeldBack::LocalQueueStopped);
        }
        if let Some(by) = drained.filter(|_| !stops_already) {
            self.brain.evict(id);
            self.drained.push((id, by));
        }
    }

    /// A workload waits, aside where something holds it back.
    pub(super) fn begin_to_wait(&mut self, new: NewWorkload, held_back: Option<HeldBack>) {
        let Some(why) = held_back else {
            self.brain.wait(new);
            return;
        };
        let id = self.brain.wait_aside(new);
        self.held_back.insert(id, why);
    }

    /// The cluster queue behind a local queue, and whether the local queue lets nobody through.
    pub(super) fn queue_of(&mut self, local: &str, who: &str) -> Option<(QueueId, bool)> {
        let Some(of) = self.catalog.local_queues.get(local) else {
            self.notes.push(format!("{who} waits nowhere: local queue `{local}` isn't there"));
            return None;
        };
        let Some(queue) = self.brain.queue_id(&of.queue) else {
            self.notes.push(format!(
                "{who} waits nowhere: local queue `{local}` leads to cluster queue `{}`, which isn't there",
                of.queue
            ));
            return None;
        };
        let stopped = of.stop_policy != StopPolicy::None;
        if stopped {
            self.notes.push(format!("{who} is held back: local queue `{local}` is stopped"));
        }
        Some((queue, stopped))
    }

    fn not_waiting(&self, workload: &WorkloadObject) -> Option<&'static str> {
        let status = &workload.status;
        let on_hold = |c: &meridian_objects::spec::Condition| {
            c.status == ConditionStatus::False && c.reason == "OnHold"
        };
        let gates = &self.brain.settings.gates;
        if !workload.spec.active {
            Some("it is not active")
        } else if status.is("QuotaReserved") {
            Some("it says that it holds quota, and not which")
        } else if status.condition("QuotaReserved").is_some_and(on_hold) {
            Some("it is on hold")
        } else if status.is("WaitingForReplacementPods") {
            Some("its pods are being replaced")
        } else if workload.meta.annotations.get(GATED_ANNOTATION).is_some_and(|by| !by.is_empty()) {
            Some("its admission is gated")
        } else if gates.concurrent_admission
            && workload.meta.labels.get(PARENT_LABEL).is_some_and(|v| v == "true")
        {
            Some("its variants wait in its place")
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
        let given = workload
            .spec
            .pod_sets
            .iter()
            .map(|set| {
                admission
                    .pod_sets
                    .iter()
                    .find(|assigned| assigned.name == set.name)
                    .map_or_else(Given::default, |a| self.given(a, set.count))
            })
            .collect();
        let status = &workload.status;
        // What isn't written down yet happens now.
        let since = holds(&status.conditions, "QuotaReserved")
            .map_or(self.brain.now, |c| c.since.unwrap_or(NO_MOMENT));
        self.brain.hold(new, given, since, status.is("Evicted"), status.is("Admitted"))
    }

    /// What a pod set was given.
    fn given(&mut self, assigned: &PodSetAssignment, pods: u32) -> Given {
        let topology = assigned.topology.clone().filter(|_| self.brain.settings.gates.topology);
        let placement = topology.and_then(|written| {
            match serde_json::from_value::<Compressed>(written).map(|c| Assignment::try_from(&c)) {
                Ok(Ok(assignment)) => Some(assignment),
                _ => {
                    self.notes.push(format!(
                        "the topology assignment of a pod set `{}` can't be read",
                        assigned.name
                    ));
                    None
                }
            }
        });
        Given {
            flavors: assigned
                .flavors
                .iter()
                .map(|(resource, flavor)| (self.brain.resource(resource), self.brain.flavor_id(flavor)))
                .collect(),
            usage: self.brain.requests(&assigned.usage),
            count: assigned.count.unwrap_or(pods),
            placement,
            delayed: assigned.delayed_topology.map(|delayed| match delayed {
                DelayedTopology::Pending => Delayed::Pending,
                DelayedTopology::Ready => Delayed::Ready,
            }),
        }
    }

    /// A workload as it comes into a queue.
    pub(super) fn new_workload(&mut self, workload: &WorkloadObject, queue: QueueId) -> NewWorkload {
        let shape = self.shape(workload, queue);
        let marks = self.marks(workload, queue);
        NewWorkload {
            key: Arc::from(workload.meta.key()),
            uid: Arc::from(workload.meta.uid.as_str()),
            queue,
            local_queue: Arc::from(format!(
                "{}/{}",
                namespace_or_default(&workload.meta.namespace),
                workload.spec.queue_name
            )),
            shape: self.brain.intern(shape),
            since: self.catalog.since(workload),
            marks: (marks != Marks::default()).then(|| Box::new(marks)),
        }
    }

    fn marks(&self, workload: &WorkloadObject, queue: QueueId) -> Marks {
        let status = &workload.status;
        let checks = &status.admission_checks;
        let open =
            |gate: &String| status.preemption_gates.iter().any(|state| state.name == *gate && state.open);
        // Without the gate nobody asks which nodes are lost.
        let replaces_nodes = self.brain.settings.gates.failed_node_replacement;
        let lost =
            if replaces_nodes && status.is("Admitted") { status.unhealthy_nodes.as_slice() } else { &[] };
        let (wrong_namespace, stranger) = self.stranger(&workload.meta.namespace, queue);
        Marks {
            replaces: workload.replaces().map(Arc::from),
            gated: workload.spec.preemption_gates.iter().any(|gate| !open(gate)),
            lost_nodes: lost.to_vec(),
            checks: checks.iter().map(|check| Arc::from(check.name.as_str())).collect(),
            checks_ready: !checks.is_empty() && checks.iter().all(|check| check.state == CheckState::Ready),
            checks_failed: checks
                .iter()
                .any(|check| matches!(check.state, CheckState::Retry | CheckState::Rejected)),
            variant_of: variant(workload),
            elastic: workload.is_elastic(),
            single_pod: self.catalog.options.pods_stay && is_of_one_pod(workload),
            updates: updates(workload),
            wrong_namespace,
            unfit: stranger.or_else(|| self.unfit(workload)).map(Arc::from),
            pinned: Vec::new(),
        }
    }

    /// Whether a queue doesn't take workloads of a namespace, and why they can't be admitted there.
    pub(super) fn stranger(&self, namespace: &str, queue: QueueId) -> (bool, Option<String>) {
        let Some(labels) = self.catalog.namespace_labels(namespace) else {
            return (false, Some(format!("its namespace `{namespace}` isn't there")));
        };
        let setup = &self.brain.queue(queue).setup;
        let taken = setup.namespace_selector.as_ref().is_some_and(|selector| selector.matches(&labels));
        (
            !taken,
            (!taken).then(|| {
                format!("cluster queue `{}` takes no workloads of namespace `{namespace}`", setup.name)
            }),
        )
    }
}

/// Whether a workload stands for one pod, and not for a group of pods.
fn is_of_one_pod(workload: &WorkloadObject) -> bool {
    let grouped = workload.meta.annotations.get(GROUP_ANNOTATION).is_some_and(|value| value == "true");
    !grouped
        && matches!(workload.meta.owners.as_slice(), [owner] if owner.kind == "Pod" && owner.api_version == "v1")
}

/// What checks that are ready changed about where pods may be placed.
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

/// The workload of which this is a variant, and the variant's flavor.
fn variant(workload: &WorkloadObject) -> Option<(Arc<str>, Arc<str>)> {
    let parent = workload.meta.owners.iter().find(|owner| {
        owner.kind == "Workload" && owner.api_version.starts_with("kueue.x-k8s.io/") && !owner.uid.is_empty()
    })?;
    let allowed =
        workload.meta.annotations.get(ALLOWED_FLAVORS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let flavor = shapes::listed(allowed).next().unwrap_or_default();
    Some((Arc::from(parent.uid.as_str()), Arc::from(flavor)))
}

//! Objects that workloads refer to, by name: namespaces, limit ranges, classes, local queues.

use super::LoadOptions;
use meridian_objects::job::{SYSTEM_PRIORITIES, USUAL_PRIORITY_CLASS};
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::core::namespace_labels;
use meridian_objects::spec::{
    Condition, ConditionStatus, LimitRangeSpec, RuntimeClassSpec, Spec, StopPolicy, WorkloadObject,
};
use meridian_queueing::model::{Moment, NO_MOMENT};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) struct LocalQueue {
    /// The cluster queue that the local queue points to.
    pub(super) cluster_queue: String,
    pub(super) stop_policy: StopPolicy,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    pub(super) options: LoadOptions,
    /// The keys are `NAMESPACE/NAME`.
    pub(super) local_queues: BTreeMap<String, LocalQueue>,
    /// Cluster queues with the stop policy `HoldAndDrain`.
    drained: BTreeSet<String>,
    /// Labels of the declared namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// By namespace and name.
    limit_ranges: BTreeMap<String, BTreeMap<String, LimitRangeSpec>>,
    runtime_classes: BTreeMap<String, RuntimeClassSpec>,
    workload_priorities: BTreeMap<String, i32>,
    pod_priorities: BTreeMap<String, i32>,
    default_pod_priority: Option<i32>,
    /// Owners of workloads: kind, namespace, name. A job that owns a workload isn't queued a second time.
    owners: BTreeSet<(String, String, String)>,
}

pub(super) fn namespace_or_default(namespace: &str) -> &str {
    if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace }
}

/// The condition of this type, if its status is true.
pub(super) fn true_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.kind == kind && c.status == ConditionStatus::True)
}

impl Catalog {
    pub(super) fn new(objects: &[PlanObject], options: &LoadOptions) -> Self {
        let mut catalog = Self { options: options.clone(), ..Self::default() };
        for object in objects {
            match object {
                PlanObject::Object(planned) => {
                    let namespace = planned.object.namespace_or_default().unwrap_or_default();
                    catalog.add(namespace, &planned.object.name, &planned.object.spec);
                }
                PlanObject::Workload(workload) => {
                    let namespace = namespace_or_default(&workload.meta.namespace);
                    let owners = workload
                        .meta
                        .owners
                        .iter()
                        .map(|o| (o.kind.clone(), namespace.to_owned(), o.name.clone()));
                    catalog.owners.extend(owners);
                }
                PlanObject::Node(_) | PlanObject::Pod(_) => {}
            }
        }
        catalog
    }

    fn add(&mut self, namespace: &str, name: &str, spec: &Spec) {
        match spec {
            Spec::LocalQueue(queue) => {
                let local_queue =
                    LocalQueue { cluster_queue: queue.cluster_queue.clone(), stop_policy: queue.stop_policy };
                self.local_queues.insert(format!("{namespace}/{name}"), local_queue);
            }
            Spec::ClusterQueue(queue) if queue.stop_policy == StopPolicy::HoldAndDrain => {
                self.drained.insert(name.to_owned());
            }
            Spec::Namespace(spec) => {
                self.namespaces.insert(name.to_owned(), spec.labels.clone());
            }
            Spec::LimitRange(spec) => {
                self.limit_ranges
                    .entry(namespace.to_owned())
                    .or_default()
                    .insert(name.to_owned(), spec.clone());
            }
            Spec::RuntimeClass(spec) => {
                self.runtime_classes.insert(name.to_owned(), spec.clone());
            }
            Spec::WorkloadPriorityClass(spec) => {
                self.workload_priorities.insert(name.to_owned(), spec.value);
            }
            Spec::PriorityClass(spec) => {
                self.pod_priorities.insert(name.to_owned(), spec.value);
                if spec.global_default {
                    // As in Kubernetes, the lowest counts if several classes are the default.
                    self.default_pod_priority =
                        Some(self.default_pod_priority.map_or(spec.value, |other| other.min(spec.value)));
                }
            }
            _ => {}
        }
    }

    /// Whether the cluster queue evicts its workloads (`HoldAndDrain`).
    pub(super) fn is_drained(&self, cluster_queue: &str) -> bool {
        self.drained.contains(cluster_queue)
    }

    /// Whether a workload of this owner is among the objects.
    pub(super) fn is_owner(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.owners.contains(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// Labels of a namespace; `None` if namespaces must be declared and this one isn't.
    pub(super) fn namespace_labels(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        let namespace = namespace_or_default(namespace);
        let declared = self.namespaces.get(namespace).cloned();
        if self.options.namespaces_declared {
            declared
        } else {
            Some(declared.unwrap_or_else(|| namespace_labels(BTreeMap::new(), namespace)))
        }
    }

    pub(super) fn limit_ranges(&self, namespace: &str) -> Vec<LimitRangeSpec> {
        self.limit_ranges
            .get(namespace_or_default(namespace))
            .map(|ranges| ranges.values().cloned().collect())
            .unwrap_or_default()
    }

    pub(super) fn runtime_class(&self, name: Option<&str>) -> Option<&RuntimeClassSpec> {
        self.runtime_classes.get(name?)
    }

    /// The priority of a job. In this order: its workload priority class, the workload priority class named
    /// [`USUAL_PRIORITY_CLASS`], the priority class of its pods, the default priority class. Fails with a
    /// message if the class that the job names is missing.
    pub(super) fn job_priority(&self, class: Option<&str>, pod_class: Option<&str>) -> Result<i64, String> {
        let default_class =
            || Some(USUAL_PRIORITY_CLASS).filter(|name| self.workload_priorities.contains_key(*name));
        if let Some(name) = class.or_else(default_class) {
            let value = self.workload_priorities.get(name).copied();
            return value.map(i64::from).ok_or_else(|| format!("WorkloadPriorityClass `{name}` not found"));
        }
        let Some(name) = pod_class else { return Ok(self.default_pod_priority.map_or(0, i64::from)) };
        let system_class =
            || SYSTEM_PRIORITIES.into_iter().find(|(system, _)| *system == name).map(|(_, value)| value);
        let value = self.pod_priorities.get(name).copied().map(i64::from);
        value.or_else(system_class).ok_or_else(|| format!("PriorityClass `{name}` not found"))
    }

    /// The priority of the spec, else of the priority class; plus the boost if boosts count.
    pub(super) fn priority(&self, workload: &WorkloadObject) -> i64 {
        let class_priority = || {
            let class = workload.spec.priority_class.as_ref()?;
            let classes =
                if class.kind == "PriorityClass" { &self.pod_priorities } else { &self.workload_priorities };
            classes.get(&class.name).copied()
        };
        let written = i64::from(workload.spec.priority.or_else(class_priority).unwrap_or(0));
        let boost = workload.priority_boost().filter(|_| self.options.priority_boost).unwrap_or(0);
        written + i64::from(boost)
    }

    /// The time by which queues order a workload: its creation, or its eviction if `PodsReadyTimeout` or an
    /// admission check caused that. If cycles aren't ordered by priority, a workload that a borrower
    /// preempted is queued directly behind that borrower.
    pub(super) fn queue_time(&self, workload: &WorkloadObject) -> Moment {
        let conditions = &workload.status.conditions;
        let moment = |condition: &Condition| condition.since.unwrap_or(NO_MOMENT);
        if let Some(evicted) = true_condition(conditions, "Evicted") {
            let unready = evicted.reason == "PodsReadyTimeout" && !self.options.unready_requeue_by_creation;
            if unready || evicted.reason == "AdmissionCheck" {
                return moment(evicted);
            }
        }
        if !self.options.settings.gates.priority_sorting_within_cohort
            && let Some(preempted) = true_condition(conditions, "Preempted")
                .filter(|c| c.reason == "InCohortReclaimWhileBorrowing")
        {
            return moment(preempted).saturating_add(1);
        }
        workload.meta.created.unwrap_or(NO_MOMENT)
    }
}

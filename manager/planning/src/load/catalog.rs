//! What workloads are read with: the objects that say something about others, by name.

use super::Options;
use meridian_objects::job::{SYSTEM_PRIORITIES, USUAL_PRIORITY_CLASS};
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::core::with_name;
use meridian_objects::spec::{
    Condition, ConditionStatus, LimitRangeSpec, RuntimeClassSpec, Spec, StopPolicy, WorkloadObject,
};
use meridian_queueing::model::{Moment, NO_MOMENT};
use std::collections::{BTreeMap, BTreeSet};

/// A local queue.
#[derive(Clone, Debug)]
pub(super) struct LocalQueue {
    /// The cluster queue that it leads to.
    pub(super) queue: String,
    /// Whether it lets nobody through, and whether who runs stops too.
    pub(super) stop_policy: StopPolicy,
}

/// Objects that say something about others.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    pub(super) options: Options,
    /// By namespace and name.
    pub(super) local_queues: BTreeMap<String, LocalQueue>,
    /// Cluster queues whose workloads stop (`HoldAndDrain`).
    pub(super) drained: BTreeSet<String>,
    /// Labels of namespaces that are declared.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// By namespace, in the order of their names.
    limit_ranges: BTreeMap<String, BTreeMap<String, LimitRangeSpec>>,
    runtime_classes: BTreeMap<String, RuntimeClassSpec>,
    workload_priorities: BTreeMap<String, i32>,
    pod_priorities: BTreeMap<String, i32>,
    usual_pod_priority: Option<i32>,
    /// Kind, namespace and name of who stands behind a workload: what waits as a workload doesn't wait once more as a job.
    pub(super) owners: BTreeSet<(String, String, String)>,
}

/// The namespace that is meant where none is written.
pub(super) fn namespace_or_default(namespace: &str) -> &str {
    if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace }
}

/// The condition of a name, while it holds.
pub(super) fn holds<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.kind == kind && c.status == ConditionStatus::True)
}

impl Catalog {
    pub(super) fn new(objects: &[PlanObject], options: &Options) -> Self {
        let mut catalog = Self { options: options.clone(), ..Self::default() };
        for object in objects {
            match object {
                PlanObject::Object(planned) => {
                    let namespace = planned.object.namespace_or_default().unwrap_or_default();
                    catalog.note(namespace, &planned.object.name, &planned.object.spec);
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

    fn note(&mut self, namespace: &str, name: &str, spec: &Spec) {
        match spec {
            Spec::LocalQueue(queue) => {
                let of = LocalQueue { queue: queue.cluster_queue.clone(), stop_policy: queue.stop_policy };
                self.local_queues.insert(format!("{namespace}/{name}"), of);
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
                    // Of several the lowest counts, as in Kubernetes.
                    self.usual_pod_priority =
                        Some(self.usual_pod_priority.map_or(spec.value, |other| other.min(spec.value)));
                }
            }
            _ => {}
        }
    }

    /// Labels of a namespace; `None` where it must be declared and isn't.
    pub(super) fn namespace_labels(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        let namespace = namespace_or_default(namespace);
        let declared = self.namespaces.get(namespace).cloned();
        if self.options.namespaces_declared {
            declared
        } else {
            Some(declared.unwrap_or_else(|| with_name(BTreeMap::new(), namespace)))
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

    /// A job's priority: that of its workload priority class, of the one that is called `default`, of its pods' class, of the
    /// usual class of pods; else why it has none.
    pub(super) fn job_priority(&self, class: Option<&str>, pod_class: Option<&str>) -> Result<i64, String> {
        let usual = || Some(USUAL_PRIORITY_CLASS).filter(|name| self.workload_priorities.contains_key(*name));
        if let Some(name) = class.or_else(usual) {
            let value = self.workload_priorities.get(name).copied();
            return value
                .map(i64::from)
                .ok_or_else(|| format!("its WorkloadPriorityClass `{name}` isn't there"));
        }
        let Some(name) = pod_class else { return Ok(self.usual_pod_priority.map_or(0, i64::from)) };
        let of_system =
            || SYSTEM_PRIORITIES.into_iter().find(|(system, _)| *system == name).map(|(_, value)| value);
        let value = self.pod_priorities.get(name).copied().map(i64::from);
        value.or_else(of_system).ok_or_else(|| format!("its PriorityClass `{name}` isn't there"))
    }

    /// A workload's priority: as written, else its class's; and what the boost adds where it counts.
    pub(super) fn priority(&self, workload: &WorkloadObject) -> i64 {
        let of_class = || {
            let class = workload.spec.priority_class.as_ref()?;
            let classes =
                if class.kind == "PriorityClass" { &self.pod_priorities } else { &self.workload_priorities };
            classes.get(&class.name).copied()
        };
        let written = i64::from(workload.spec.priority.or_else(of_class).unwrap_or(0));
        let boost = workload.priority_boost().filter(|_| self.options.priority_boost).unwrap_or(0);
        written + i64::from(boost)
    }

    /// Since when a workload waits, as queues order it: its creation, or the eviction that wasn't its own doing. Where
    /// priorities don't order a cycle, who gave way to a borrower goes just behind it.
    pub(super) fn since(&self, workload: &WorkloadObject) -> Moment {
        let conditions = &workload.status.conditions;
        let moment = |of: &Condition| of.since.unwrap_or(NO_MOMENT);
        if let Some(evicted) = holds(conditions, "Evicted") {
            let unready = evicted.reason == "PodsReadyTimeout" && !self.options.unready_keep_their_place;
            if unready || evicted.reason == "AdmissionCheck" {
                return moment(evicted);
            }
        }
        if !self.options.settings.gates.priority_sorting_within_cohort
            && let Some(preempted) =
                holds(conditions, "Preempted").filter(|c| c.reason == "InCohortReclaimWhileBorrowing")
        {
            return moment(preempted).saturating_add(1);
        }
        workload.meta.created.unwrap_or(NO_MOMENT)
    }
}

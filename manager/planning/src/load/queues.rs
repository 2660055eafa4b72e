//! Declares flavors, cohorts and cluster queues, and restores the usage history of local queues.

use super::Loaded;
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::quantity;
use meridian_objects::spec::{ConditionStatus, LocalQueueSpec, ResourceFlavorSpec, ResourceGroup, Spec};
use meridian_queueing::declare;
use meridian_queueing::model::Inactive;
use meridian_queueing::names::FlavorId;
use meridian_queueing::queue_state::LocalQueueUsage;
use meridian_queueing::quota::WEIGHT_ONE;
use meridian_queueing::{NanoUsage, QueueState};
use meridian_shared::gang::Amounts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects that cluster queues refer to. If one is missing or inactive, the queue is inactive.
#[derive(Default)]
struct ReferencedObjects<'a> {
    flavors: BTreeMap<&'a str, &'a ResourceFlavorSpec>,
    topologies: BTreeSet<&'a str>,
    checks: BTreeMap<&'a str, DeclaredCheck<'a>>,
}

struct DeclaredCheck<'a> {
    controller: &'a str,
    active: bool,
}

impl<'a> ReferencedObjects<'a> {
    fn collect(objects: &'a [PlanObject], checks_need_active_condition: bool) -> Self {
        let mut referenced = Self::default();
        for planned in planned_objects(objects) {
            let name = planned.object.name.as_str();
            match &planned.object.spec {
                Spec::ResourceFlavor(spec) => {
                    referenced.flavors.insert(name, spec);
                }
                Spec::Topology(_) => {
                    referenced.topologies.insert(name);
                }
                Spec::AdmissionCheck(spec) => {
                    let active = match planned.conditions.iter().find(|c| c.kind == "Active") {
                        Some(condition) => condition.status == ConditionStatus::True,
                        None => !checks_need_active_condition,
                    };
                    let check = DeclaredCheck { controller: &spec.controller_name, active };
                    referenced.checks.insert(name, check);
                }
                _ => {}
            }
        }
        referenced
    }
}

impl declare::References for ReferencedObjects<'_> {
    fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec> {
        self.flavors.get(name).copied()
    }

    fn topology(&self, name: &str) -> bool {
        self.topologies.contains(name)
    }

    fn check(&self, name: &str) -> Option<(&str, bool)> {
        self.checks.get(name).map(|check| (check.controller, check.active))
    }
}

/// All objects except workloads, nodes and pods.
pub(super) fn planned_objects(objects: &[PlanObject]) -> impl Iterator<Item = &PlannedObject> {
    objects.iter().filter_map(|object| match object {
        PlanObject::Object(planned) => Some(&**planned),
        PlanObject::Workload(_) | PlanObject::Node(_) | PlanObject::Pod(_) => None,
    })
}

impl Loaded {
    /// Declares flavors, cohorts and cluster queues. May be called again with other objects.
    pub(super) fn declare_queues(&mut self, objects: &[PlanObject]) {
        let referenced =
            ReferencedObjects::collect(objects, self.catalog.options.checks_need_active_condition);
        // Assign resource ids in the order of names, so that ties don't depend on the order of the objects.
        let resources: BTreeSet<&String> = planned_objects(objects).flat_map(resources_with_quota).collect();
        for resource in resources {
            self.state.resource(resource);
        }
        self.declare_flavors(&referenced);
        let (mut cohorts, mut queues) = (BTreeMap::new(), Vec::new());
        for planned in planned_objects(objects) {
            let name = planned.object.name.as_str();
            match &planned.object.spec {
                Spec::Cohort(spec) => {
                    cohorts.insert(Arc::from(name), declare::cohort(&mut self.state, spec));
                }
                Spec::ClusterQueue(spec) => {
                    queues.push(declare::cluster_queue(&mut self.state, name, spec, &referenced));
                }
                _ => {}
            }
        }
        self.state.configure(&cohorts, queues);
        self.declare_excluded_resources(objects);
    }

    fn declare_flavors(&mut self, referenced: &ReferencedObjects<'_>) {
        let removed: Vec<FlavorId> = self
            .state
            .flavor_list()
            .map(|(id, _)| id)
            .filter(|id| !referenced.flavors.contains_key(&**self.state.flavor_name(*id)))
            .collect();
        for id in removed {
            self.state.set_flavor(id, None);
        }
        for (name, spec) in &referenced.flavors {
            let id = self.state.flavor_id(name);
            let flavor = declare::flavor(spec, self.state.settings().gates.topology);
            self.state.set_flavor(id, Some(flavor));
        }
    }

    fn declare_excluded_resources(&mut self, objects: &[PlanObject]) {
        for planned in planned_objects(objects) {
            if let (Spec::ClusterQueue(spec), Some(id)) =
                (&planned.object.spec, self.state.queue_id(&planned.object.name))
                && !spec.exclude_resource_prefixes.is_empty()
            {
                self.excluded.insert(id, spec.exclude_resource_prefixes.clone());
            }
        }
    }

    /// Notes every inactive queue. A queue below a cohort that is its own ancestor isn't in the forest.
    pub(super) fn note_inactive_queues(&mut self) {
        for (name, id) in self.state.queue_list() {
            let queue = self.state.queue(id);
            let cycle = queue.node.is_none().then_some(&Inactive::CohortCycle);
            if let Some(why) = queue.setup.inactive.as_ref().or(cycle) {
                self.notes.push(format!("cluster queue `{name}` is inactive: {}", inactive_message(why)));
            }
        }
    }

    /// Restores the usage history of local queues from the options or, if these have none, from the status. A
    /// local queue that only the options name has the default weight.
    pub(super) fn restore_local_usage(&mut self, objects: &[PlanObject]) {
        for (key, amounts) in self.catalog.options.local_usage.clone() {
            let consumed = parts_of(&mut self.state, amounts);
            let usage = LocalQueueUsage { consumed, penalty: NanoUsage::new(), weight: 1.0 };
            self.state.set_local_usage(Arc::from(key), usage);
        }
        for planned in planned_objects(objects) {
            let Spec::LocalQueue(spec) = &planned.object.spec else { continue };
            let namespace = planned.object.namespace_or_default().unwrap_or_default();
            let key = format!("{namespace}/{}", planned.object.name);
            let given = self.catalog.options.local_usage.get(&key);
            let usage = local_usage(&mut self.state, spec, given, planned);
            self.state.set_local_usage(Arc::from(key), usage);
        }
    }
}

/// Resources for which an object declares quota.
fn resources_with_quota(planned: &PlannedObject) -> impl Iterator<Item = &String> {
    let groups: &[ResourceGroup] = match &planned.object.spec {
        Spec::Cohort(spec) => &spec.resource_groups,
        Spec::ClusterQueue(spec) => &spec.resource_groups,
        _ => &[],
    };
    groups.iter().flat_map(|group| &group.flavors).flat_map(|flavor| flavor.resources.keys())
}

/// Why a cluster queue is inactive, as the end of "cluster queue `NAME` is inactive: ".
pub(crate) fn inactive_message(why: &Inactive) -> String {
    match why {
        Inactive::Stopped => "it is stopped".to_owned(),
        Inactive::CohortCycle => "its cohort is its own ancestor".to_owned(),
        Inactive::FlavorNotFound(name) => format!("ResourceFlavor `{name}` not found"),
        Inactive::AdmissionCheck(name) => format!("AdmissionCheck `{name}` not found"),
        Inactive::CheckInactive(name) => format!("AdmissionCheck `{name}` is inactive"),
        Inactive::WorkersCheck(name, clash) => clash.message(name),
        Inactive::TopologyNotFound(name) => format!("Topology `{name}` of its flavor not found"),
    }
}

fn parts_of(state: &mut QueueState, amounts: Amounts) -> NanoUsage {
    amounts
        .into_iter()
        .map(|(resource, amount)| (state.resource(&resource), meridian_queueing::to_nanos(&resource, amount)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "weights are only compared")]
fn local_usage(
    state: &mut QueueState,
    spec: &LocalQueueSpec,
    given: Option<&Amounts>,
    planned: &PlannedObject,
) -> LocalQueueUsage {
    let status = &planned.status["fairSharing"]["admissionFairSharingStatus"]["consumedResources"];
    let consumed = match given {
        Some(given) => parts_of(state, given.clone()),
        // Read fractions too, because decayed usage is rarely a whole number of base units.
        None => status
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, amount)| Some((state.resource(name), quantity::nano_from_json(amount).ok()?)))
            .collect(),
    };
    let weight = declare::weight(spec.fair_sharing.as_ref()) as f64 / WEIGHT_ONE as f64;
    LocalQueueUsage { consumed, penalty: NanoUsage::new(), weight }
}

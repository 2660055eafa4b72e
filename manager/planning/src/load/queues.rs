//! Flavors, cohorts and cluster queues, and why a queue admits nothing; what local queues used before.

use super::Loaded;
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::quantity;
use meridian_objects::spec::{ConditionStatus, LocalQueueSpec, ResourceFlavorSpec, ResourceGroup, Spec};
use meridian_queueing::brain::LocalUsage;
use meridian_queueing::declare;
use meridian_queueing::model::Inactive;
use meridian_queueing::names::FlavorId;
use meridian_queueing::tree::WEIGHT_ONE;
use meridian_queueing::{Brain, Parts};
use meridian_shared::gang::Amounts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What queues are declared beside.
#[derive(Default)]
struct Beside<'a> {
    flavors: BTreeMap<&'a str, &'a ResourceFlavorSpec>,
    topologies: BTreeSet<&'a str>,
    /// The checks' controllers, and whether they are active.
    checks: BTreeMap<&'a str, (&'a str, bool)>,
}

impl declare::Beside for Beside<'_> {
    fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec> {
        self.flavors.get(name).copied()
    }

    fn topology(&self, name: &str) -> bool {
        self.topologies.contains(name)
    }

    fn check(&self, name: &str) -> Option<(&str, bool)> {
        self.checks.get(name).copied()
    }
}

/// Ordinary objects.
pub(super) fn planned(objects: &[PlanObject]) -> impl Iterator<Item = &PlannedObject> {
    objects.iter().filter_map(|object| match object {
        PlanObject::Object(planned) => Some(&**planned),
        PlanObject::Workload(_) | PlanObject::Node(_) | PlanObject::Pod(_) => None,
    })
}

impl Loaded {
    /// Declares everything that workloads queue for.
    pub(super) fn declare(&mut self, objects: &[PlanObject]) {
        let mut beside = Beside::default();
        for of in planned(objects) {
            let name = of.object.name.as_str();
            match &of.object.spec {
                Spec::ResourceFlavor(spec) => {
                    beside.flavors.insert(name, spec);
                }
                Spec::Topology(_) => {
                    beside.topologies.insert(name);
                }
                Spec::AdmissionCheck(spec) => {
                    let stated = of
                        .conditions
                        .iter()
                        .find(|condition| condition.kind == "Active")
                        .map(|condition| condition.status);
                    let active = stated.map_or(!self.catalog.options.checks_say_active, |status| {
                        status == ConditionStatus::True
                    });
                    beside.checks.insert(name, (&spec.controller_name, active));
                }
                _ => {}
            }
        }
        // Resources are numbered by their names, so that what ties falls the same way in whatever order they are written.
        let resources: BTreeSet<&String> = planned(objects).flat_map(covered).collect();
        for resource in resources {
            self.brain.resource(resource);
        }
        let gone: Vec<FlavorId> = self
            .brain
            .flavor_list()
            .map(|(id, _)| id)
            .filter(|id| !beside.flavors.contains_key(&**self.brain.flavor_name(*id)))
            .collect();
        for id in gone {
            self.brain.set_flavor(id, None);
        }
        for (name, spec) in &beside.flavors {
            let id = self.brain.flavor_id(name);
            let flavor = declare::flavor(spec, self.brain.settings.gates.topology);
            self.brain.set_flavor(id, Some(flavor));
        }
        let (mut cohorts, mut queues) = (BTreeMap::new(), Vec::new());
        for of in planned(objects) {
            match &of.object.spec {
                Spec::Cohort(spec) => {
                    cohorts
                        .insert(Arc::from(of.object.name.as_str()), declare::cohort(&mut self.brain, spec));
                }
                Spec::ClusterQueue(spec) => {
                    queues.push(declare::cluster_queue(&mut self.brain, &of.object.name, spec, &beside))
                }
                _ => {}
            }
        }
        self.brain.configure(&cohorts, queues);
        self.note_excluded(objects);
    }

    fn note_excluded(&mut self, objects: &[PlanObject]) {
        for of in planned(objects) {
            if let (Spec::ClusterQueue(spec), Some(id)) =
                (&of.object.spec, self.brain.queue_id(&of.object.name))
                && !spec.exclude_resource_prefixes.is_empty()
            {
                self.excluded.insert(id, spec.exclude_resource_prefixes.clone());
            }
        }
    }

    /// Says which queues admit nothing; those below a cohort that is its own ancestor have no place in the forest.
    pub(super) fn note_inactive(&mut self) {
        let all: Vec<_> = self.brain.queue_list().map(|(name, id)| (name.clone(), id)).collect();
        for (name, id) in all {
            let queue = self.brain.queue(id);
            if let Some(why) = &queue.setup.inactive {
                self.notes.push(format!("cluster queue `{name}` admits nothing: {}", words(why)));
            } else if queue.node.is_none() {
                self.notes.push(format!(
                    "cluster queue `{name}` admits nothing: {}",
                    words(&Inactive::CohortCycle)
                ));
            }
        }
    }

    /// What local queues used before: as the caller says, else as their status does. One that isn't there any more has the
    /// usual weight.
    pub(super) fn recall_usage(&mut self, objects: &[PlanObject]) {
        for (key, stated) in self.catalog.options.local_usage.clone() {
            let usage = LocalUsage {
                consumed: consumed(&mut self.brain, stated),
                penalty: Parts::new(),
                weight: 1.0,
            };
            self.brain.set_local_usage(Arc::from(key), usage);
        }
        for of in planned(objects) {
            let Spec::LocalQueue(spec) = &of.object.spec else { continue };
            let key = format!("{}/{}", of.object.namespace_or_default().unwrap_or_default(), of.object.name);
            let usage = local_usage(&mut self.brain, spec, self.catalog.options.local_usage.get(&key), of);
            self.brain.set_local_usage(Arc::from(key), usage);
        }
    }
}

/// Resources that an object declares quota of.
fn covered(of: &PlannedObject) -> impl Iterator<Item = &String> {
    let groups: &[ResourceGroup] = match &of.object.spec {
        Spec::Cohort(spec) => &spec.resource_groups,
        Spec::ClusterQueue(spec) => &spec.resource_groups,
        _ => &[],
    };
    groups.iter().flat_map(|group| &group.flavors).flat_map(|flavor| flavor.resources.keys())
}

fn words(why: &Inactive) -> String {
    match why {
        Inactive::Stopped => "it is stopped".to_owned(),
        Inactive::CohortCycle => "its cohort is its own ancestor".to_owned(),
        Inactive::FlavorNotFound(name) => format!("its flavor `{name}` isn't there"),
        Inactive::AdmissionCheck(name) => format!("its admission check `{name}` isn't there"),
        Inactive::CheckInactive(name) => format!("its admission check `{name}` isn't active"),
        Inactive::WorkersCheck(name, clash) => clash.words(name),
        Inactive::TopologyNotFound(name) => format!("the topology `{name}` of its flavor isn't there"),
    }
}

fn consumed(brain: &mut Brain, amounts: Amounts) -> Parts {
    amounts
        .into_iter()
        .map(|(resource, amount)| (brain.resource(&resource), meridian_queueing::parts(&resource, amount)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "weights are only compared")]
fn local_usage(
    brain: &mut Brain,
    spec: &LocalQueueSpec,
    stated: Option<&Amounts>,
    of: &PlannedObject,
) -> LocalUsage {
    let status = &of.status["fairSharing"]["admissionFairSharingStatus"]["consumedResources"];
    let consumed = match stated {
        Some(stated) => consumed(brain, stated.clone()),
        // What decayed is seldom a whole number of base units.
        None => status
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, part)| Some((brain.resource(name), quantity::nano_from_json(part).ok()?)))
            .collect(),
    };
    let weight = declare::weight(spec.fair_sharing.as_ref()) as f64 / WEIGHT_ONE as f64;
    LocalUsage { consumed, penalty: Parts::new(), weight }
}

//! Flavors, cohorts and cluster queues, and why a queue admits nothing; what local queues used before.

use super::{Loaded, catalog};
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::quantity;
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::spec::{
    ClusterQueueSpec, CohortSpec, FairSharing, Fungibility, LocalQueueSpec, PreemptionPolicy, QueueingStrategy, ResourceFlavorSpec, ResourceGroup, Spec,
    StopPolicy,
};
use meridian_queueing::brain::LocalUsage;
use meridian_queueing::model::{self, Displaces, Flavor, Group, Inactive, Preemption, QueueSetup};
use meridian_queueing::names::FlavorId;
use meridian_queueing::tree::{CohortSetup, Quota, Quotas, WEIGHT_ONE};
use meridian_queueing::{Amount, Brain};
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
                    beside.checks.insert(name, (&spec.controller_name, catalog::holds(&of.conditions, "Active").is_some()));
                }
                _ => {}
            }
        }
        // Resources are numbered by their names, so that what ties falls the same way in whatever order they are written.
        let resources: BTreeSet<&String> = planned(objects).flat_map(covered).collect();
        for resource in resources {
            self.brain.resource(resource);
        }
        for (name, spec) in &beside.flavors {
            let id = self.brain.flavor_id(name);
            let topology = spec.topology_name.as_deref().filter(|_| self.brain.settings.gates.topology).map(Arc::from);
            let flavor = Flavor { labels: spec.node_labels.clone(), taints: spec.taints.clone(), tolerations: spec.tolerations.clone(), topology };
            self.brain.set_flavor(id, Some(flavor));
        }
        let (mut cohorts, mut queues) = (BTreeMap::new(), Vec::new());
        for of in planned(objects) {
            match &of.object.spec {
                Spec::Cohort(spec) => {
                    cohorts.insert(Arc::from(of.object.name.as_str()), cohort(&mut self.brain, spec));
                }
                Spec::ClusterQueue(spec) => queues.push(queue(&mut self.brain, &of.object.name, spec, &beside)),
                _ => {}
            }
        }
        self.brain.configure(&cohorts, queues);
        self.note_inactive();
        self.note_excluded(objects);
        self.recall_usage(objects);
    }

    fn note_excluded(&mut self, objects: &[PlanObject]) {
        for of in planned(objects) {
            if let (Spec::ClusterQueue(spec), Some(id)) = (&of.object.spec, self.brain.queue_id(&of.object.name))
                && !spec.exclude_resource_prefixes.is_empty()
            {
                self.excluded.insert(id, spec.exclude_resource_prefixes.clone());
            }
        }
    }

    /// Says which queues admit nothing; those below a cohort that is its own ancestor have no place in the forest.
    fn note_inactive(&mut self) {
        let all: Vec<_> = self.brain.queue_list().map(|(name, id)| (name.clone(), id)).collect();
        for (name, id) in all {
            let queue = self.brain.queue(id);
            if let Some(why) = &queue.setup.inactive {
                self.notes.push(format!("cluster queue `{name}` admits nothing: {}", words(why)));
            } else if queue.node.is_none() {
                self.notes.push(format!("cluster queue `{name}` admits nothing: {}", words(&Inactive::CohortCycle)));
            }
        }
    }

    /// What local queues used before: as the caller says, else as their status does.
    fn recall_usage(&mut self, objects: &[PlanObject]) {
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
        Inactive::AdmissionCheck(name) => format!("its admission check `{name}` isn't there, isn't active, or doesn't go with the others"),
        Inactive::TopologyNotFound(name) => format!("the topology `{name}` of its flavor isn't there"),
    }
}

/// A weight in billionths.
fn weight(sharing: Option<&FairSharing>) -> i64 {
    sharing.map_or(WEIGHT_ONE, |sharing| i64::try_from(sharing.weight_nano).unwrap_or(i64::MAX).max(0))
}

fn quotas(brain: &mut Brain, groups: &[ResourceGroup]) -> Quotas {
    let mut quotas = Quotas::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        let id = brain.flavor_id(&flavor.name);
        for (resource, quota) in &flavor.resources {
            let of = Quota {
                nominal: Amount(quota.nominal),
                borrowing_limit: quota.borrowing_limit.map(Amount),
                lending_limit: quota.lending_limit.map(Amount),
            };
            quotas.insert((id, brain.resource(resource)), of);
        }
    }
    quotas
}

fn cohort(brain: &mut Brain, spec: &CohortSpec) -> CohortSetup {
    CohortSetup { parent: spec.parent.as_deref().map(Arc::from), quotas: quotas(brain, &spec.resource_groups), weight: weight(spec.fair_sharing.as_ref()) }
}

fn queue(brain: &mut Brain, name: &str, spec: &ClusterQueueSpec, beside: &Beside<'_>) -> QueueSetup {
    let groups: Vec<Group> = spec
        .resource_groups
        .iter()
        .map(|group| Group {
            resources: group.covered_resources.iter().map(|resource| brain.resource(resource)).collect(),
            flavors: group.flavors.iter().map(|flavor| brain.flavor_id(&flavor.name)).collect(),
        })
        .collect();
    let every: BTreeSet<FlavorId> = groups.iter().flat_map(|group| group.flavors.iter().copied()).collect();
    let mut checks: Vec<(Arc<str>, Vec<FlavorId>)> = Vec::new();
    let (mut elsewhere, mut provisioned) = (false, BTreeSet::new());
    for rule in &spec.admission_checks {
        let flavors: Vec<FlavorId> = rule.on_flavors.iter().map(|flavor| brain.flavor_id(flavor)).collect();
        match beside.checks.get(rule.name.as_str()).map(|(controller, _)| *controller) {
            Some(MULTIKUEUE_CONTROLLER) => elsewhere = true,
            Some(PROVISIONING_CONTROLLER) if flavors.is_empty() => provisioned.extend(&every),
            Some(PROVISIONING_CONTROLLER) => provisioned.extend(&flavors),
            _ => {}
        }
        checks.push((Arc::from(rule.name.as_str()), flavors));
    }
    let fungibility = &spec.flavor_fungibility;
    QueueSetup {
        name: Arc::from(name),
        cohort: spec.cohort.as_deref().map(Arc::from),
        groups,
        quotas: quotas(brain, &spec.resource_groups),
        strict: spec.queueing_strategy == QueueingStrategy::StrictFifo,
        namespace_selector: spec.namespace_selector.clone(),
        preemption: preemption(spec),
        fungibility: model::Fungibility {
            next_rather_than_borrow: fungibility.when_can_borrow == Fungibility::TryNextFlavor,
            preempt_rather_than_next: fungibility.when_can_preempt == Fungibility::MayStopSearch,
            prefers_preemption: fungibility.prefers_preemption == Some(true),
        },
        inactive: inactive(spec, elsewhere, beside, brain.settings.gates.topology),
        weight: weight(spec.fair_sharing.as_ref()),
        usage_based: spec.usage_based_admission,
        placed_elsewhere: elsewhere,
        provisioned: provisioned.into_iter().collect(),
        checks,
        last_acceptable_flavor: spec.concurrent_admission.as_ref().and_then(|c| c.last_acceptable_flavor.as_deref()).map(|flavor| brain.flavor_id(flavor)),
    }
}

fn displaces(policy: PreemptionPolicy) -> Displaces {
    match policy {
        PreemptionPolicy::Never => Displaces::Never,
        PreemptionPolicy::LowerPriority => Displaces::LowerPriority,
        PreemptionPolicy::LowerOrNewerEqualPriority => Displaces::LowerOrNewerEqualPriority,
        PreemptionPolicy::Any => Displaces::Any,
    }
}

fn preemption(spec: &ClusterQueueSpec) -> Preemption {
    let written = &spec.preemption;
    let borrow = &written.borrow_within_cohort;
    Preemption {
        within_queue: displaces(written.within_cluster_queue),
        reclaim_within_cohort: if written.reclaim_is_unset { Displaces::Unset } else { displaces(written.reclaim_within_cohort) },
        borrow_within_cohort: (borrow.policy == PreemptionPolicy::LowerPriority).then_some(borrow.max_priority_threshold),
    }
}

/// Why a queue admits nothing, by itself; a cycle of cohorts shows in the forest.
fn inactive(spec: &ClusterQueueSpec, elsewhere: bool, beside: &Beside<'_>, topology: bool) -> Option<Inactive> {
    if spec.stop_policy != StopPolicy::None {
        return Some(Inactive::Stopped);
    }
    let flavors = || spec.resource_groups.iter().flat_map(|group| &group.flavors);
    if let Some(missing) = flavors().find(|flavor| !beside.flavors.contains_key(flavor.name.as_str())) {
        return Some(Inactive::FlavorNotFound(missing.name.clone()));
    }
    let controller = |check: &str| beside.checks.get(check).filter(|(_, active)| *active).map(|(controller, _)| *controller);
    if let Some(check) = spec.admission_checks.iter().find(|rule| controller(&rule.name).is_none()) {
        return Some(Inactive::AdmissionCheck(check.name.clone()));
    }
    // Worker clusters take the whole queue: one such check, for all flavors, without a provider of the manager's own.
    let mut of_workers = spec.admission_checks.iter().filter(|rule| controller(&rule.name) == Some(MULTIKUEUE_CONTROLLER));
    if let Some(first) = of_workers.next() {
        let partial = !first.on_flavors.is_empty() && flavors().any(|flavor| !first.on_flavors.contains(&flavor.name));
        let provider = spec.admission_checks.iter().any(|rule| controller(&rule.name) == Some(PROVISIONING_CONTROLLER));
        if partial || provider || of_workers.next().is_some() {
            return Some(Inactive::AdmissionCheck(first.name.clone()));
        }
    }
    let wanted = || flavors().filter_map(|flavor| beside.flavors.get(flavor.name.as_str())?.topology_name.as_deref());
    let missing = wanted().find(|name| topology && !elsewhere && !beside.topologies.contains(name));
    missing.map(|name| Inactive::TopologyNotFound(name.to_owned()))
}

#[expect(clippy::cast_precision_loss, reason = "past use and weights are only compared")]
fn local_usage(brain: &mut Brain, spec: &LocalQueueSpec, stated: Option<&BTreeMap<String, i64>>, of: &PlannedObject) -> LocalUsage {
    let mut consumed = BTreeMap::new();
    let status = &of.status["fairSharing"]["admissionFairSharingStatus"]["consumedResources"];
    let read = |(name, amount): (&String, &serde_json::Value)| Some((name.clone(), quantity::from_json(name, amount).ok()?));
    let written = || status.as_object().into_iter().flatten().filter_map(read).collect();
    for (resource, amount) in stated.cloned().unwrap_or_else(written) {
        let id = brain.resource(&resource);
        consumed.insert(id, meridian_queueing::units(&resource, amount));
    }
    LocalUsage { consumed, penalty: BTreeMap::new(), weight: weight(spec.fair_sharing.as_ref()) as f64 / WEIGHT_ONE as f64 }
}

//! Kueue's statuses of cluster queues, local queues, cohorts and admission checks. Their numbers come
//! from the queue counts that the core maintains.

use crate::fields;
use meridian_manager_core::facts::flavors::FlavorUsage;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::queue::counts::WorkloadCounts;
use meridian_manager_core::queue::mirror::CatalogReferences;
use meridian_manager_core::world::World;
use meridian_objects::quantity;
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::spec::{AdmissionCheckSpec, ClusterQueueSpec, StopPolicy};
use meridian_queueing::declare;
use meridian_queueing::model::{Clash, Inactive};
use meridian_queueing::quota::{NodeId, Share};
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_shared::time::Wall;
use meridian_shared::timestamp::timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a queue or an admission check is active, with Kueue's reason and message.
pub(crate) struct Activity {
    pub(crate) active: bool,
    pub(crate) reason: &'static str,
    message: String,
}

impl Activity {
    fn not(reason: &'static str, message: impl Into<String>) -> Self {
        Self { active: false, reason, message: message.into() }
    }

    pub(crate) fn condition(&self, since: Wall) -> Value {
        fields::condition("Active", self.active, self.reason, &self.message, since)
    }
}

pub(crate) fn cluster_queue_activity(world: &World, spec: &ClusterQueueSpec) -> Activity {
    let no = |reason, why: &str| Activity::not(reason, format!("Can't admit new workloads: {why}"));
    if spec.cohort.as_deref().is_some_and(|cohort| is_own_ancestor(world, cohort)) {
        return no("CohortCycle", "its cohorts form a cycle");
    }
    // As in the queue mirror, worker clusters place the pods.
    match declare::inactive(spec, true, &CatalogReferences(world.state().catalog()), false) {
        None => Activity { active: true, reason: "Ready", message: "Can admit new workloads".to_owned() },
        Some(Inactive::Stopped) => no("Stopped", "is stopped"),
        Some(Inactive::CohortCycle) => no("CohortCycle", "its cohorts form a cycle"),
        Some(Inactive::FlavorNotFound(flavor)) => {
            no("FlavorNotFound", &format!("references missing ResourceFlavor(s): {flavor}"))
        }
        Some(Inactive::TopologyNotFound(topology)) => {
            no("TopologyNotFound", &format!("references missing Topology: {topology}"))
        }
        Some(Inactive::AdmissionCheck(check)) => {
            no("AdmissionCheckNotFound", &format!("references missing AdmissionCheck(s): {check}"))
        }
        Some(Inactive::CheckInactive(check)) => {
            no("AdmissionCheckInactive", &format!("references inactive AdmissionCheck(s): {check}"))
        }
        Some(Inactive::WorkersCheck(check, clash)) => {
            let reason = match clash {
                Clash::Several => "MultipleMultiKueueAdmissionChecks",
                Clash::OnFlavors => "MultiKueueAdmissionCheckAppliedPerFlavor",
                Clash::Provisioning => "MultiKueueWithProvisioningRequest",
            };
            no(reason, &clash.message(&check))
        }
    }
}

pub(crate) fn local_queue_activity(world: &World, spec: &meridian_objects::spec::LocalQueueSpec) -> Activity {
    if spec.stop_policy != StopPolicy::None {
        return Activity::not("Stopped", "LocalQueue is stopped");
    }
    match world.state().catalog().cluster_queue(&spec.cluster_queue) {
        None => Activity::not("ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"),
        Some(queue) if !cluster_queue_activity(world, queue).active => {
            Activity::not("ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
        }
        Some(_) => Activity {
            active: true,
            reason: "Ready",
            message: "Can submit new workloads to localQueue".to_owned(),
        },
    }
}

/// A MultiKueue check is inactive while none of its clusters is connected. Cluster queues that use it stay
/// active, because their workloads report the state of the clusters.
pub(crate) fn admission_check_activity(world: &World, spec: &AdmissionCheckSpec) -> Activity {
    let active =
        || Activity { active: true, reason: "Active", message: "The admission check is active".to_owned() };
    let parameters = match &*spec.controller_name {
        MULTIKUEUE_CONTROLLER => &spec.parameters,
        PROVISIONING_CONTROLLER => return active(),
        other => {
            return Activity::not("NoController", format!("Controller `{other}` isn't supported"));
        }
    };
    // Without a MultiKueueConfig the check covers all clusters.
    let Some(parameters) = parameters else { return active() };
    let Some(config) = world.state().catalog().workers_config(&parameters.name) else {
        return Activity::not(
            "BadConfig",
            format!(
                "Cannot load the AdmissionChecks parameters: MultiKueueConfig `{}` not found",
                parameters.name
            ),
        );
    };
    let promised = world.state().catalog().promised_clusters();
    let (known, missing): (Vec<&ClusterName>, Vec<&ClusterName>) =
        config.clusters.iter().partition(|cluster| promised.contains(*cluster));
    let inactive: Vec<&ClusterName> =
        known.into_iter().filter(|cluster| !world.live().clusters().contains_key(*cluster)).collect();
    let unusable = missing.len() + inactive.len();
    if unusable == 0 {
        return active();
    }
    let part = |what: &str, names: &[&ClusterName]| {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{what} clusters: [{}]", names.join(" ")))
    };
    let message = [part("Missing", &missing), part("Inactive", &inactive)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ");
    match unusable < config.clusters.len() {
        true => Activity { active: true, reason: "SomeActiveClusters", message },
        false => Activity::not("NoUsableClusters", message),
    }
}

fn is_own_ancestor(world: &World, cohort: &str) -> bool {
    let (mut seen, mut at) = (BTreeSet::new(), Some(cohort));
    while let Some(name) = at {
        if !seen.insert(name) {
            return true;
        }
        at = world.state().catalog().cohort(name).and_then(|spec| spec.parent.as_deref());
    }
    false
}

/// The fair share of a cluster queue or cohort. `None` if fair sharing is off.
pub(crate) fn share(world: &World, node: Option<NodeId>) -> Option<Share> {
    world.config().fair_sharing.as_ref()?;
    node.map(|node| world.mirror().queue_state().forest().share(node))
}

/// The newest record that may have changed an object's status: a record about the object itself, or about
/// rules.
pub(crate) fn status_version(world: &World, key: &Key) -> Option<RecordNumber> {
    let stored = world.state().catalog().get(key)?;
    Some(stored.changed.max(stored.touched).max(world.state().rules()))
}

pub(crate) fn cluster_queue_status(
    world: &World,
    name: &str,
    spec: &ClusterQueueSpec,
    created: Wall,
) -> Value {
    let counts = world.counts_by_queue().cluster_queue(name);
    let mut status = cluster_queue_activity(world, spec).condition(created);
    set_counts(&mut status, counts);
    for (field, usage) in [("flavorsReservation", &counts.reserved), ("flavorsUsage", &counts.used)] {
        status[field] = by_flavor(Some(spec), usage);
    }
    let queues = world.mirror().queue_state();
    if let Some(share) = share(world, queues.queue_id(name).and_then(|id| queues.queue(id).node)) {
        status["fairSharing"] = json!({"weightedShare": share.rounded()});
    }
    status
}

pub(crate) fn local_queue_status(
    world: &World,
    key: &Key,
    spec: &meridian_objects::spec::LocalQueueSpec,
    created: Wall,
) -> Value {
    let mut status = local_queue_activity(world, spec).condition(created);
    let Some(namespace) = &key.namespace else { return status };
    let counts = world.counts_by_queue().local_queue(namespace, &key.name);
    set_counts(&mut status, counts);
    let queue = world.state().catalog().cluster_queue(&spec.cluster_queue);
    for (field, usage) in [("flavorsReservation", &counts.reserved), ("flavorsUsage", &counts.used)] {
        let mut flavors = by_flavor(queue, usage);
        for resource in flavors
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter_map(|f| f["resources"].as_array_mut())
            .flatten()
        {
            // Only cluster queues borrow.
            resource.as_object_mut().expect("made as objects").remove("borrowed");
        }
        status[field] = flavors;
    }
    if let Some(history) = usage_history_status(world, &format!("{namespace}/{}", key.name)) {
        status["fairSharing"] = json!({"admissionFairSharingStatus": history});
    }
    status
}

/// `None` if fair sharing is off: Kueue's cohorts have no other status.
pub(crate) fn cohort_status(world: &World, name: &str) -> Option<Value> {
    let share = share(world, world.mirror().queue_state().forest().cohort(name))?;
    Some(json!({"fairSharing": {"weightedShare": share.rounded()}}))
}

fn set_counts(status: &mut Value, counts: &WorkloadCounts) {
    status["pendingWorkloads"] = json!(counts.waiting());
    status["reservingWorkloads"] = json!(counts.reserving());
    status["admittedWorkloads"] = json!(counts.admitted());
}

/// The usage of every declared flavor and resource, and of undeclared ones that are still in use.
fn by_flavor(spec: Option<&ClusterQueueSpec>, usage: &FlavorUsage) -> Value {
    let declared = spec.into_iter().flat_map(|spec| &spec.resource_groups).flat_map(|group| &group.flavors);
    let mut nominal: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for flavor in declared {
        order.push(&flavor.name);
        nominal.extend(
            flavor
                .resources
                .iter()
                .map(|(resource, quota)| ((flavor.name.as_str(), resource.as_str()), quota.nominal)),
        );
    }
    let mut amounts: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for (flavor, resource) in nominal.keys() {
        amounts.entry(flavor).or_default().insert(resource, 0);
    }
    for ((flavor, resource), amount) in usage {
        amounts.entry(flavor).or_default().insert(resource, *amount);
        if !order.contains(&&**flavor) {
            order.push(flavor);
        }
    }
    let lends = spec.is_some_and(|spec| spec.cohort.is_some());
    let row = |flavor: &str, (resource, amount): (&&str, &i64)| {
        let own = nominal.get(&(flavor, *resource)).copied().unwrap_or(0);
        let borrowed = if lends { (amount - own).max(0) } else { 0 };
        let [total, borrowed] = [*amount, borrowed].map(|amount| quantity::format(resource, amount));
        json!({"name": resource, "total": total, "borrowed": borrowed})
    };
    let rows = |flavor: &str| {
        amounts.get(flavor).into_iter().flatten().map(|one| row(flavor, one)).collect::<Vec<_>>()
    };
    order.into_iter().map(|flavor| json!({"name": flavor, "resources": rows(flavor)})).collect()
}

/// Kueue's `admissionFairSharingStatus` of a local queue. `None` without usage history.
pub(crate) fn usage_history_status(world: &World, local_queue: &str) -> Option<Value> {
    world.config().admission_fair_sharing.as_ref()?;
    let history = world.state().usage_history().get(local_queue)?;
    let consumed: BTreeMap<&str, String> = history
        .consumed
        .iter()
        .map(|(resource, amount)| (&**resource, quantity::format_nano(*amount)))
        .collect();
    Some(json!({"consumedResources": consumed, "lastUpdate": timestamp(history.at)}))
}

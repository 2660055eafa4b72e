//! Statuses of cluster queues, local queues and cohorts, as Kueue has them. What they count is kept by the [counts_by_queue](crate::counts_by_queue).

use crate::facts::key::Key;
use crate::queue::classes::Usage;
use crate::queue::counts::WorkloadCounts;
use crate::queue::mirror::CatalogReferences;
use crate::views::format;
use crate::world::World;
use meridian_objects::quantity;
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::spec::{AdmissionCheckSpec, ClusterQueueSpec, StopPolicy};
use meridian_queueing::declare;
use meridian_queueing::model::{Clash, Inactive};
use meridian_queueing::share::Share;
use meridian_queueing::tree::NodeId;
use meridian_shared::ids::{ClusterName, RecordNumber};
use meridian_shared::time::Wall;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a queue or an admission check takes part: Kueue's reason, and words for people.
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
        format::condition("Active", self.active, self.reason, &self.message, since)
    }
}

/// Whether a cluster queue can admit.
pub(crate) fn cluster_queue_activity(world: &World, spec: &ClusterQueueSpec) -> Activity {
    let no = |reason, why: &str| Activity::not(reason, format!("Can't admit new workloads: {why}"));
    if spec.cohort.as_deref().is_some_and(|cohort| is_own_ancestor(world, cohort)) {
        return no("CohortCycle", "its cohort is its own ancestor");
    }
    // Worker clusters place the pods, as `deciding::align` declares it to the brain.
    match declare::inactive(spec, true, &CatalogReferences(&world.state.catalog()), false) {
        None => Activity { active: true, reason: "Ready", message: "Can admit new workloads".to_owned() },
        Some(Inactive::Stopped) => no("Stopped", "is stopped"),
        Some(Inactive::CohortCycle) => no("CohortCycle", "its cohort is its own ancestor"),
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
            no(reason, &clash.words(&check))
        }
    }
}

pub(crate) fn local_queue_activity(world: &World, spec: &meridian_objects::spec::LocalQueueSpec) -> Activity {
    if spec.stop_policy != StopPolicy::None {
        return Activity::not("Stopped", "LocalQueue is stopped");
    }
    match world.state.catalog().cluster_queue(&spec.cluster_queue) {
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

/// Whether an admission check is answered for. That none of its clusters is there now keeps its queue from nothing that it could
/// have otherwise, so only the check says so.
pub(crate) fn admission_check_activity(world: &World, spec: &AdmissionCheckSpec) -> Activity {
    let active =
        || Activity { active: true, reason: "Active", message: "The admission check is active".to_owned() };
    let parameters = match &*spec.controller_name {
        MULTIKUEUE_CONTROLLER => &spec.parameters,
        PROVISIONING_CONTROLLER => return active(),
        other => {
            return Activity::not("NoController", format!("No controller answers to `{other}` here"));
        }
    };
    // One that names no list has all clusters.
    let Some(parameters) = parameters else { return active() };
    let Some(config) = world.state.catalog().workers_config(&parameters.name) else {
        return Activity::not(
            "BadConfig",
            format!(
                "Cannot load the AdmissionChecks parameters: MultiKueueConfig `{}` not found",
                parameters.name
            ),
        );
    };
    let promised = world.state.catalog().promised_clusters();
    let (known, missing): (Vec<&ClusterName>, Vec<&ClusterName>) =
        config.clusters.iter().partition(|cluster| promised.contains(*cluster));
    let inactive: Vec<&ClusterName> =
        known.into_iter().filter(|cluster| !world.live.clusters.contains_key(*cluster)).collect();
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
        at = world.state.catalog().cohort(name).and_then(|spec| spec.parent.as_deref());
    }
    false
}

/// The share of a node of the brain's forest, where fair sharing is on.
pub(crate) fn share(world: &World, node: Option<NodeId>) -> Option<Share> {
    world.config.fair_sharing.as_ref()?;
    node.map(|node| world.mirror.brain().forest.share(node))
}

/// The newest record that changed a status, as far as it follows from records about the queue itself or from rules.
pub(crate) fn status_version(world: &World, key: &Key) -> Option<RecordNumber> {
    let stored = world.state.catalog().get(key)?;
    Some(stored.changed.max(stored.touched).max(world.state.rules()))
}

pub(crate) fn cluster_queue_status(
    world: &World,
    name: &str,
    spec: &ClusterQueueSpec,
    created: Wall,
) -> Value {
    let standing = world.counts_by_queue.cluster_queue(name);
    let mut status = cluster_queue_activity(world, spec).condition(created);
    count(&mut status, standing);
    for (field, usage) in [("flavorsReservation", &standing.reserved), ("flavorsUsage", &standing.used)] {
        status[field] = by_flavor(Some(spec), usage);
    }
    let brain = world.mirror.brain();
    if let Some(share) = share(world, brain.queue_id(name).and_then(|id| brain.queue(id).node)) {
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
    let standing = world.counts_by_queue.local_queue(namespace, &key.name);
    count(&mut status, standing);
    let queue = world.state.catalog().cluster_queue(&spec.cluster_queue);
    for (field, usage) in [("flavorsReservation", &standing.reserved), ("flavorsUsage", &standing.used)] {
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
    if let Some(past) = usage_history_status(world, &format!("{namespace}/{}", key.name)) {
        status["fairSharing"] = json!({"admissionFairSharingStatus": past});
    }
    status
}

/// `None` where fair sharing is off: Kueue's cohorts have no other status.
pub(crate) fn cohort_status(world: &World, name: &str) -> Option<Value> {
    let share = share(world, world.mirror.brain().forest.cohort(name))?;
    Some(json!({"fairSharing": {"weightedShare": share.rounded()}}))
}

fn count(status: &mut Value, standing: &WorkloadCounts) {
    status["pendingWorkloads"] = json!(standing.waiting());
    status["reservingWorkloads"] = json!(standing.reserving());
    status["admittedWorkloads"] = json!(standing.admitted());
}

/// What is used of every flavor and resource that is declared, and of what no longer is while it is used.
fn by_flavor(spec: Option<&ClusterQueueSpec>, usage: &Usage) -> Value {
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
        json!({"name": resource, "total": quantity::format(resource, *amount), "borrowed": quantity::format(resource, borrowed)})
    };
    let rows = |flavor: &str| {
        amounts.get(flavor).into_iter().flatten().map(|one| row(flavor, one)).collect::<Vec<_>>()
    };
    order.into_iter().map(|flavor| json!({"name": flavor, "resources": rows(flavor)})).collect()
}

/// Kueue's status of it; `None` where nothing is remembered.
pub(crate) fn usage_history_status(world: &World, local_queue: &str) -> Option<Value> {
    world.config.admission_fair_sharing.as_ref()?;
    let past = world.state.usage_history().get(local_queue)?;
    let consumed: BTreeMap<&str, String> = past
        .consumed
        .iter()
        .map(|(resource, amount)| (&**resource, quantity::format_nano(*amount)))
        .collect();
    Some(json!({"consumedResources": consumed, "lastUpdate": format::timestamp(past.at)}))
}

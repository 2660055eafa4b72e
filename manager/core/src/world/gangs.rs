//! Gangs in the form that offers carry, and short look-ups about one workload.

use crate::facts::flavors::Flavors;
use crate::facts::key::Key;
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::world::World;
use meridian_objects::spec::ResourceFlavorSpec;
use meridian_shared::gang::{Gang, PodSet, TaintEffect};
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::time::Millis;
use meridian_shared::topology::FlavorTopology;
use std::sync::Arc;

/// Whether pods of this pod set may run on nodes of this flavor: the flavor's labels must not contradict the
/// pods' node selectors and affinity, and its taints must be tolerated by the pods or by the flavor's own
/// tolerations.
pub(crate) fn serves(catalog: &crate::state::catalog::Catalog, flavor: &str, set: &PodSet) -> bool {
    let Some(spec) = catalog.flavor(flavor) else { return false };
    let selector = set
        .node_selector
        .iter()
        .filter(|(k, _)| spec.node_labels.contains_key(*k))
        .all(|(k, v)| spec.node_labels.get(k) == Some(v));
    // Nodes must meet a requirement on a label that the flavor doesn't set.
    let term_fits = |term: &Vec<meridian_shared::gang::Requirement>| {
        term.iter().filter(|r| spec.node_labels.contains_key(&r.key)).all(|r| r.matches(&spec.node_labels))
    };
    let affinity = set.affinity.is_empty() || set.affinity.iter().any(term_fits);
    let tolerated = spec.taints.iter().all(|t| {
        t.effect == TaintEffect::PreferNoSchedule
            || set.tolerations.iter().chain(&spec.tolerations).any(|tol| tol.covers(t))
    });
    selector && affinity && tolerated
}

fn flavor_topology(
    catalog: &crate::state::catalog::Catalog,
    flavor: &str,
    spec: &ResourceFlavorSpec,
) -> Option<FlavorTopology> {
    let name = spec.topology_name.as_ref()?;
    let levels = catalog.topology(name)?.levels.clone();
    Some(FlavorTopology {
        flavor: flavor.to_owned(),
        name: name.clone(),
        levels,
        node_labels: spec.node_labels.clone(),
    })
}

/// The gang with the node labels and tolerations of its flavors, which Kueue injects into pods too, and with
/// the topology of each pod set that has a topology request.
pub fn with_flavor_constraints(world: &World, gang: &Arc<Gang>, flavors: &Flavors) -> Arc<Gang> {
    let catalog = &world.state.catalog();
    let specs: Vec<_> =
        flavors.names().into_iter().filter_map(|f| catalog.flavor(f).map(|spec| (f, spec))).collect();
    if specs.iter().all(|(_, s)| s.node_labels.is_empty() && s.tolerations.is_empty()) {
        return gang.clone();
    }
    let requests_topology = gang.requests_topology();
    let mut gang = (**gang).clone();
    for (at, set) in gang.pod_sets.iter_mut().enumerate() {
        let flavors = flavors.of(at);
        let requests = world.config.resources.counted(&set.per_pod);
        let mut topologies = Vec::new();
        for (flavor, spec) in &specs {
            let uses = requests.iter().any(|(r, a)| *a > 0 && flavors.get(r) == Some(*flavor));
            if uses {
                for (label, value) in &spec.node_labels {
                    let other =
                        set.node_selector.insert(label.clone(), value.clone()).filter(|other| other != value);
                    // The values contradict each other, so no node may match: the requirement names a label
                    // that no node has.
                    if let Some(other) = other {
                        set.node_selector.insert(format!("{label}={other}"), value.clone());
                    }
                }
                set.tolerations.extend(spec.tolerations.clone());
                topologies.extend(flavor_topology(catalog, flavor, spec).filter(|_| requests_topology));
            }
        }
        // With two topologies, the intended one is unknown: none is sent, and the agent refuses the gang.
        set.within = topologies.pop().filter(|_| topologies.is_empty());
    }
    Arc::new(gang)
}

/// The gang of a workload as an offer carries it.
pub(crate) fn asked_gang(world: &World, uid: Uid) -> Option<Arc<Gang>> {
    let workload = world.state.workloads().get(&uid)?;
    Some(with_flavor_constraints(
        world,
        &workload.gang(world.queues.class(workload.class())),
        workload.flavors(),
    ))
}

/// The gang of a workload: as submitted, or with the reduced counts that it was admitted with.
pub fn gang_of(world: &World, uid: Uid) -> Option<Arc<Gang>> {
    world.state.workloads().get(&uid).map(|w| w.gang(world.queues.class(w.class())))
}

/// The gang that a pending workload asks for, with the fewest pods that it accepts.
pub(crate) fn asked_by(world: &World, uid: Uid) -> Option<Arc<Gang>> {
    world.state.workloads().get(&uid).map(|w| w.asked_gang(world.queues.class(w.class())))
}

/// The key of a workload's job.
pub(crate) fn job_of(world: &World, uid: Uid) -> Option<Key> {
    world.state.workloads().get(&uid).map(Workload::key)
}

/// Whether a workload has the right to run in this cluster.
pub fn runs_in(world: &World, uid: Uid, cluster: &ClusterName) -> bool {
    world
        .state
        .workloads()
        .get(&uid)
        .and_then(Workload::right)
        .is_some_and(|(_, leg)| *leg.cluster() == *cluster)
}

/// How long a gang of this class may take from its grant to running.
pub(crate) fn start_timeout(world: &World, class: &Class) -> Millis {
    let queue = world.state.catalog().local_queue(&class.namespace, &class.queue);
    let policy = queue.and_then(|queue| world.state.catalog().dispatch_policy(&queue.cluster_queue));
    policy.and_then(|policy| policy.start_timeout).unwrap_or(world.config.start_timeout)
}

/// The additional pods of a gang that is to be scaled up, on the flavors that it already has.
pub fn scale_up_gang(world: &World, uid: Uid) -> Option<Arc<Gang>> {
    let workload = world.state.workloads().get(&uid)?;
    let class = world.queues.class(workload.class());
    let gang = Arc::new(class.gang.with_counts(&workload.scale_up_counts(class)?));
    Some(with_flavor_constraints(world, &gang, workload.flavors()))
}

pub(crate) fn right_to_run(world: &World, uid: Uid) -> Option<(ClusterName, Fence)> {
    let (_, leg) = world.state.workloads().get(&uid)?.right()?;
    Some((leg.cluster().clone(), leg.fence()?))
}

pub(crate) fn offer_of(world: &World, uid: Uid, fence: Fence) -> Option<OfferId> {
    world.state.workloads().get(&uid)?.leg_of(fence).map(|(offer, _)| offer)
}

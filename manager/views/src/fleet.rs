//! Metrics of clusters and of the workloads that wait or run there. The cost grows with clusters, classes and
//! running workloads, never with pending workloads.

use meridian_manager_core::dispatch::residency;
use meridian_manager_core::state::legs::leg::LegState;
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::world::World;
use meridian_manager_core::world::lifecycle::{priority_class, queue_of};
use meridian_objects::spec::ResourceFlavorSpec;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::ClusterName;
use meridian_shared::packing::Block;
use meridian_shared::provider_reason::ProviderReason;
use meridian_shared::time::{Millis, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A workload is near its limit when it has less than this part of its maximum execution time left.
const NEAR_LIMIT_PART: u64 = 10;

/// Amounts of one cluster, flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityRow {
    pub cluster: ClusterName,
    pub flavor: Arc<str>,
    pub resource: Arc<str>,
    /// As reported by the agent.
    pub total: i64,
    /// As reported by the agent.
    pub free: i64,
    /// Held for offers.
    pub held: i64,
    /// Of workloads that have the right to run there.
    pub granted: i64,
}

/// Running workloads, by cluster and by cluster queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningRows {
    /// Workloads in clusters that a residency policy forbids now. Every cluster has a number.
    pub violations: BTreeMap<ClusterName, u64>,
    /// Workloads near their maximum execution time. Every cluster queue has a number.
    pub near_run_limit: BTreeMap<Arc<str>, u64>,
}

/// Sums of one cluster's legs by flavor and resource.
#[derive(Debug, Default)]
struct LegSums {
    held: BTreeMap<(Arc<str>, String), i64>,
    granted: BTreeMap<(Arc<str>, String), i64>,
}

/// Capacity of every cluster, by the flavors and resources for which cluster queues have quota. A node counts
/// only for the flavor that matches most of its labels, so that sums over flavors are right. A flavor without
/// nodes in a cluster has no row.
pub fn capacity_rows(world: &World) -> Vec<CapacityRow> {
    let catalog = world.state().catalog();
    let quotas: BTreeSet<(&str, &str)> = catalog
        .cluster_queues()
        .flat_map(|(_, spec)| &spec.resource_groups)
        .flat_map(|group| &group.flavors)
        .flat_map(|flavor| flavor.resources.keys().map(|resource| (flavor.name.as_str(), resource.as_str())))
        .collect();
    let mut rows = Vec::new();
    for (cluster, _) in catalog.clusters() {
        let Some(live) = world.live().cluster(&cluster) else { continue };
        let sums = leg_sums(world, &cluster);
        for (flavor, resource) in &quotas {
            let Some(spec) = catalog.flavor(flavor) else { continue };
            let rivals = quotas.iter().filter(|(_, of)| of == resource);
            let rivals: Vec<_> = rivals.filter_map(|(flavor, _)| catalog.flavor(flavor)).collect();
            let [total, free] = amounts(live.capacity().reported(), spec, &rivals, resource);
            if total == 0 {
                continue;
            }
            let key: (Arc<str>, String) = (Arc::from(*flavor), (*resource).to_owned());
            let sum = |of: &BTreeMap<(Arc<str>, String), i64>| of.get(&key).copied().unwrap_or(0);
            rows.push(CapacityRow {
                cluster: cluster.clone(),
                flavor: key.0.clone(),
                resource: Arc::from(*resource),
                total,
                free,
                held: sum(&sums.held),
                granted: sum(&sums.granted),
            });
        }
    }
    rows
}

/// Total and free amounts of the nodes of a flavor, without nodes that match more labels of another flavor.
fn amounts(
    blocks: &[Block],
    flavor: &ResourceFlavorSpec,
    rivals: &[&ResourceFlavorSpec],
    resource: &str,
) -> [i64; 2] {
    let matches = |flavor: &ResourceFlavorSpec, block: &Block| {
        flavor.node_labels.iter().all(|(key, value)| block.labels.get(key) == Some(value))
    };
    let is_more_exact = |rival: &ResourceFlavorSpec| rival.node_labels.len() > flavor.node_labels.len();
    let is_of = |block: &&Block| {
        matches(flavor, block) && !rivals.iter().any(|rival| is_more_exact(rival) && matches(rival, block))
    };
    let sum = |of: fn(&Block) -> &Amounts| {
        blocks.iter().filter(&is_of).fold(0_i64, |sum, block| {
            let each = of(block).get(resource).copied().unwrap_or(0);
            sum.saturating_add(each.saturating_mul(i64::from(block.nodes)))
        })
    };
    [sum(|block| &block.capacity), sum(|block| &block.free)]
}

fn leg_sums(world: &World, cluster: &ClusterName) -> LegSums {
    let mut sums = LegSums::default();
    for uid in world.loads().get(cluster).into_iter().flat_map(BTreeMap::keys) {
        let Some(workload) = world.state().workloads().get(uid) else { continue };
        for (_, leg) in workload.legs().iter().filter(|(_, leg)| *leg.cluster() == *cluster) {
            let sum = match leg.state() {
                LegState::Held => &mut sums.held,
                state if state.granted() => &mut sums.granted,
                _ => continue,
            };
            let gang = workload.given_gang(world.queues().class(workload.class()));
            for (at, set) in gang.pod_sets.iter().enumerate() {
                let flavors = workload.flavors().of(at);
                for (resource, amount) in &set.per_pod {
                    let Some(flavor) = flavors.get(resource) else { continue };
                    let all = amount.saturating_mul(i64::from(set.count));
                    *sum.entry((flavor.clone(), resource.clone())).or_insert(0) += all;
                }
            }
        }
    }
    sums
}

/// Offers whose cluster waits for its provider, by the provider's reason.
pub fn waiting_offers(world: &World) -> BTreeMap<(ClusterName, ProviderReason), u64> {
    let mut waiting = BTreeMap::new();
    for (cluster, loads) in world.loads().iter() {
        let workloads = loads.keys().filter_map(|uid| world.state().workloads().get(uid));
        let legs = workloads.flat_map(|workload| workload.legs().values());
        for leg in legs.filter(|leg| *leg.cluster() == *cluster && leg.state() == LegState::Waiting) {
            let reason = ProviderReason::in_text(leg.note().unwrap_or_default());
            *waiting.entry((cluster.clone(), reason)).or_insert(0) += 1;
        }
    }
    waiting
}

/// Time since the creation of the oldest pending workload, by cluster queue and priority class.
pub fn oldest_pending(world: &World, now: Wall) -> BTreeMap<(Arc<str>, Arc<str>), Millis> {
    let mut oldest: BTreeMap<(Arc<str>, Arc<str>), Millis> = BTreeMap::new();
    for id in world.queues().waiting_classes() {
        let class = world.queues().class(id);
        let Some(queue) = world.state().catalog().local_queue(&class.namespace, &class.queue) else {
            continue;
        };
        let created = world
            .queues()
            .oldest_by_priority(id)
            .filter_map(|position| Some(world.state().workloads().get(&position.uid)?.created()))
            .min();
        if let Some(created) = created {
            let age = oldest.entry((Arc::from(queue.cluster_queue.as_str()), priority_class(class)));
            let age = age.or_insert(Millis(0));
            *age = (*age).max(now.since(created));
        }
    }
    oldest
}

/// Cluster queues, each with whether its head is starved.
pub fn starved_queues(world: &World) -> Vec<(Arc<str>, bool)> {
    let queues = world.mirror().queue_state();
    let names = world.state().catalog().cluster_queues().map(|(name, _)| name);
    names
        .map(|name| {
            let starves = queues.queue_id(name).is_some_and(|id| queues.starved_head(id).is_some());
            (name.clone(), starves)
        })
        .collect()
}

/// Looks at every workload that has the right to run.
pub fn running_rows(world: &World, now: Wall) -> RunningRows {
    let catalog = world.state().catalog();
    let mut rows = RunningRows {
        violations: catalog.clusters().map(|(cluster, _)| (cluster, 0)).collect(),
        near_run_limit: catalog.cluster_queues().map(|(name, _)| (name.clone(), 0)).collect(),
    };
    // Workloads of one class have the same verdict in a cluster.
    let mut forbidden = BTreeMap::new();
    for (cluster, loads) in world.loads().iter() {
        for (uid, class) in loads {
            let Some(workload) = world.state().workloads().get(uid) else { continue };
            if workload.right().is_none_or(|(_, leg)| *leg.cluster() != *cluster) {
                continue;
            }
            let is_forbidden = *forbidden
                .entry((*class, cluster, workload.phase() == Phase::Stopping))
                .or_insert_with(|| residency::flagged(world, workload).is_some());
            if is_forbidden {
                *rows.violations.entry(cluster.clone()).or_insert(0) += 1;
            }
            if is_near_run_limit(world, workload, now)
                && let Some(queue) = queue_of(world, *uid)
            {
                *rows.near_run_limit.entry(queue).or_insert(0) += 1;
            }
        }
    }
    rows
}

/// Whether little is left of the time limit of this run, or of the limit of all runs together.
fn is_near_run_limit(world: &World, workload: &Workload, now: Wall) -> bool {
    let gang = &world.queues().class(workload.class()).gang;
    let started = workload.activation_started().filter(|_| workload.phase() == Phase::Running);
    let Some(runs_for) = started.map(|started| now.since(started)) else { return false };
    let is_near = |limit: Millis, used: Millis| limit.saturating_sub(used).0 < limit.0 / NEAR_LIMIT_PART;
    gang.attempt_limit().is_some_and(|limit| is_near(limit, runs_for))
        || gang.max_exec.is_some_and(|limit| is_near(limit, workload.ran() + runs_for))
}

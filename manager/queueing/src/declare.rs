//! Conversion of objects of Kueue's API to declarations: flavors, cohorts, cluster queues.

use crate::amount::Amount;
use crate::model::{
    Clash, ClusterQueuePreemption, Flavor, FlavorFungibility, Inactive, PreemptionRule, QueueSetup,
    ResourceGroup,
};
use crate::names::FlavorId;
use crate::queue_state::QueueState;
use crate::quota::{CohortSetup, Quota, Quotas, WEIGHT_ONE};
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::spec::{
    self, CapacityClass, ClusterQueueSpec, CohortSpec, FairSharing, PreemptionPolicy, QueueingStrategy,
    ResourceFlavorSpec, StopPolicy,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The objects that a cluster queue refers to.
pub trait References {
    /// The flavor, if it exists.
    fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec>;
    /// Whether the topology exists.
    fn topology(&self, name: &str) -> bool;
    /// The controller of an admission check and whether the check is active, if it exists.
    fn check(&self, name: &str) -> Option<(&str, bool)>;
}

/// A weight in billionths.
pub fn weight(sharing: Option<&FairSharing>) -> i64 {
    sharing.map_or(WEIGHT_ONE, |sharing| i64::try_from(sharing.weight_nano).unwrap_or(i64::MAX).max(0))
}

/// Converts a flavor. `topologies` is false if topologies are off.
pub fn flavor(spec: &ResourceFlavorSpec, topologies: bool) -> Flavor {
    let topology = spec.topology_name.as_deref().filter(|_| topologies).map(Arc::from);
    Flavor {
        labels: spec.node_labels.clone(),
        taints: spec.taints.clone(),
        tolerations: spec.tolerations.clone(),
        topology,
        levels: None,
    }
}

/// Converts a quota. CPUs are counted in thousandths; a number of CPUs that would overflow is unlimited, as
/// in Kueue.
fn limit(resource: &str, amount: i64) -> Amount {
    const WHOLE_CPUS_MAX: i64 = i64::MAX / 1_000 * 1_000;
    if resource == "cpu" && amount >= WHOLE_CPUS_MAX { Amount::UNLIMITED } else { Amount(amount) }
}

fn quotas(state: &mut QueueState, groups: &[spec::ResourceGroup]) -> Quotas {
    let mut quotas = Quotas::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        let id = state.flavor_id(&flavor.name);
        for (resource, quota) in &flavor.resources {
            let limit = |amount| limit(resource, amount);
            let (borrowing_limit, lending_limit) =
                (quota.borrowing_limit.map(limit), quota.lending_limit.map(limit));
            let of = Quota { nominal: limit(quota.nominal), borrowing_limit, lending_limit };
            quotas.insert((id, state.resource(resource)), of);
        }
    }
    quotas
}

pub fn cohort(state: &mut QueueState, spec: &CohortSpec) -> CohortSetup {
    CohortSetup {
        parent: spec.parent.as_deref().map(Arc::from),
        quotas: quotas(state, &spec.resource_groups),
        weight: weight(spec.fair_sharing.as_ref()),
    }
}

pub fn cluster_queue(
    state: &mut QueueState,
    name: &str,
    spec: &ClusterQueueSpec,
    references: &dyn References,
) -> QueueSetup {
    let groups: Vec<ResourceGroup> = spec
        .resource_groups
        .iter()
        .map(|group| ResourceGroup {
            resources: group.covered_resources.iter().map(|resource| state.resource(resource)).collect(),
            flavors: group.flavors.iter().map(|flavor| state.flavor_id(&flavor.name)).collect(),
        })
        .collect();
    let every: BTreeSet<FlavorId> = groups.iter().flat_map(|group| group.flavors.iter().copied()).collect();
    let mut checks: Vec<(Arc<str>, Vec<FlavorId>)> = Vec::new();
    let (mut elsewhere, mut provisioned) = (false, BTreeSet::new());
    for rule in &spec.admission_checks {
        let flavors: Vec<FlavorId> = rule.on_flavors.iter().map(|flavor| state.flavor_id(flavor)).collect();
        match references.check(&rule.name).map(|(controller, _)| controller) {
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
        quotas: quotas(state, &spec.resource_groups),
        strict: spec.queueing_strategy == QueueingStrategy::StrictFifo,
        namespace_selector: spec.namespace_selector.clone(),
        preemption: preemption(spec),
        fungibility: FlavorFungibility {
            next_rather_than_borrow: fungibility.when_can_borrow == spec::Fungibility::TryNextFlavor,
            preempt_rather_than_next: fungibility.when_can_preempt == spec::Fungibility::MayStopSearch,
            prefers_preemption: fungibility.prefers_preemption == Some(true),
        },
        inactive: inactive(spec, elsewhere, references, state.settings().gates.topology),
        weight: weight(spec.fair_sharing.as_ref()),
        usage_based: spec.usage_based_admission,
        placed_elsewhere: elsewhere,
        provisioned: provisioned.into_iter().collect(),
        checks,
        last_acceptable_flavor: spec
            .concurrent_admission
            .as_ref()
            .and_then(|c| c.last_acceptable_flavor.as_deref())
            .map(|flavor| state.flavor_id(flavor)),
    }
}

/// Sorts the flavors of each resource group by the given capacity classes, other classes last. Flavors of one
/// class keep the order of the queue.
pub fn order_by_class(
    setup: &mut QueueSetup,
    classes: &[CapacityClass],
    class_of: impl Fn(FlavorId) -> CapacityClass,
) {
    let position = |flavor: &FlavorId| {
        let class = class_of(*flavor);
        classes.iter().position(|listed| *listed == class).unwrap_or(classes.len())
    };
    setup.groups.iter_mut().for_each(|group| group.flavors.sort_by_key(position));
}

fn preemption_rule(policy: PreemptionPolicy) -> PreemptionRule {
    match policy {
        PreemptionPolicy::Never => PreemptionRule::Never,
        PreemptionPolicy::LowerPriority => PreemptionRule::LowerPriority,
        PreemptionPolicy::LowerOrNewerEqualPriority => PreemptionRule::LowerOrNewerEqualPriority,
        PreemptionPolicy::Any => PreemptionRule::Any,
    }
}

fn preemption(spec: &ClusterQueueSpec) -> ClusterQueuePreemption {
    let written = &spec.preemption;
    let borrow = &written.borrow_within_cohort;
    ClusterQueuePreemption {
        within_queue: preemption_rule(written.within_cluster_queue),
        reclaim_within_cohort: if written.reclaim_is_unset {
            PreemptionRule::Unset
        } else {
            preemption_rule(written.reclaim_within_cohort)
        },
        borrow_within_cohort: (borrow.policy == PreemptionPolicy::LowerPriority)
            .then_some(borrow.max_priority_threshold),
    }
}

/// Why a queue admits nothing. Cycles of cohorts are found in the forest instead.
pub fn inactive(
    spec: &ClusterQueueSpec,
    elsewhere: bool,
    references: &dyn References,
    topology: bool,
) -> Option<Inactive> {
    if spec.stop_policy != StopPolicy::None {
        return Some(Inactive::Stopped);
    }
    let flavors = || spec.resource_groups.iter().flat_map(|group| &group.flavors);
    if let Some(missing) = flavors().find(|flavor| references.flavor(&flavor.name).is_none()) {
        return Some(Inactive::FlavorNotFound(missing.name.clone()));
    }
    let controller =
        |check: &str| references.check(check).filter(|(_, active)| *active).map(|(controller, _)| controller);
    if let Some(check) =
        spec.admission_checks.iter().map(|rule| &rule.name).find(|check| controller(check).is_none())
    {
        let what = if references.check(check).is_none() {
            Inactive::AdmissionCheck
        } else {
            Inactive::CheckInactive
        };
        return Some(what(check.clone()));
    }
    // Worker clusters run the whole queue, so there must be exactly one such check, for all flavors, and no
    // provisioning at the manager.
    let mut of_workers =
        spec.admission_checks.iter().filter(|rule| controller(&rule.name) == Some(MULTIKUEUE_CONTROLLER));
    if let Some(first) = of_workers.next() {
        let partial =
            !first.on_flavors.is_empty() && flavors().any(|flavor| !first.on_flavors.contains(&flavor.name));
        let provider =
            spec.admission_checks.iter().any(|rule| controller(&rule.name) == Some(PROVISIONING_CONTROLLER));
        let several = of_workers.next().is_some();
        let clashes =
            [(several, Clash::Several), (partial, Clash::OnFlavors), (provider, Clash::Provisioning)];
        if let Some((_, clash)) = clashes.into_iter().find(|(is_so, _)| *is_so) {
            return Some(Inactive::WorkersCheck(first.name.clone(), clash));
        }
    }
    let wanted = || flavors().filter_map(|flavor| references.flavor(&flavor.name)?.topology_name.as_deref());
    let missing = wanted().find(|name| topology && !elsewhere && !references.topology(name));
    missing.map(|name| Inactive::TopologyNotFound(name.to_owned()))
}

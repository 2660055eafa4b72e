//! Objects of Kueue's API as declarations: flavors, cohorts, cluster queues.

use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::{Clash, Displaces, Flavor, Fungibility, Group, Inactive, Preemption, QueueSetup};
use crate::names::FlavorId;
use crate::tree::{CohortSetup, Quota, Quotas, WEIGHT_ONE};
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::spec::{
    self, ClusterQueueSpec, CohortSpec, FairSharing, PreemptionPolicy, QueueingStrategy, ResourceFlavorSpec,
    ResourceGroup, StopPolicy,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Everything else that says whether a cluster queue can admit.
pub trait Beside {
    /// A flavor that is there.
    fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec>;
    /// Whether a topology is there.
    fn topology(&self, name: &str) -> bool;
    /// The controller of an admission check that is there, and whether the check is active.
    fn check(&self, name: &str) -> Option<(&str, bool)>;
}

/// A weight in billionths.
pub fn weight(sharing: Option<&FairSharing>) -> i64 {
    sharing.map_or(WEIGHT_ONE, |sharing| i64::try_from(sharing.weight_nano).unwrap_or(i64::MAX).max(0))
}

/// A flavor; without its topology where topologies are off.
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

/// A quota of a resource. Of so many CPUs that thousandths of them, in which they are counted, would be too many for a number
/// Kueue makes no limit at all.
fn limit(resource: &str, amount: i64) -> Amount {
    const WHOLE_CPUS_MAX: i64 = i64::MAX / 1_000 * 1_000;
    if resource == "cpu" && amount >= WHOLE_CPUS_MAX { Amount::UNLIMITED } else { Amount(amount) }
}

fn quotas(brain: &mut Brain, groups: &[ResourceGroup]) -> Quotas {
    let mut quotas = Quotas::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        let id = brain.flavor_id(&flavor.name);
        for (resource, quota) in &flavor.resources {
            let limit = |amount| limit(resource, amount);
            let (borrowing_limit, lending_limit) =
                (quota.borrowing_limit.map(limit), quota.lending_limit.map(limit));
            let of = Quota { nominal: limit(quota.nominal), borrowing_limit, lending_limit };
            quotas.insert((id, brain.resource(resource)), of);
        }
    }
    quotas
}

/// A cohort.
pub fn cohort(brain: &mut Brain, spec: &CohortSpec) -> CohortSetup {
    CohortSetup {
        parent: spec.parent.as_deref().map(Arc::from),
        quotas: quotas(brain, &spec.resource_groups),
        weight: weight(spec.fair_sharing.as_ref()),
    }
}

/// A cluster queue.
pub fn cluster_queue(
    brain: &mut Brain,
    name: &str,
    spec: &ClusterQueueSpec,
    beside: &dyn Beside,
) -> QueueSetup {
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
        match beside.check(&rule.name).map(|(controller, _)| controller) {
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
        fungibility: Fungibility {
            next_rather_than_borrow: fungibility.when_can_borrow == spec::Fungibility::TryNextFlavor,
            preempt_rather_than_next: fungibility.when_can_preempt == spec::Fungibility::MayStopSearch,
            prefers_preemption: fungibility.prefers_preemption == Some(true),
        },
        inactive: inactive(spec, elsewhere, beside, brain.settings.gates.topology),
        weight: weight(spec.fair_sharing.as_ref()),
        usage_based: spec.usage_based_admission,
        placed_elsewhere: elsewhere,
        provisioned: provisioned.into_iter().collect(),
        checks,
        last_acceptable_flavor: spec
            .concurrent_admission
            .as_ref()
            .and_then(|c| c.last_acceptable_flavor.as_deref())
            .map(|flavor| brain.flavor_id(flavor)),
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
        reclaim_within_cohort: if written.reclaim_is_unset {
            Displaces::Unset
        } else {
            displaces(written.reclaim_within_cohort)
        },
        borrow_within_cohort: (borrow.policy == PreemptionPolicy::LowerPriority)
            .then_some(borrow.max_priority_threshold),
    }
}

/// Why a queue admits nothing, by itself; a cycle of cohorts shows in the forest.
pub fn inactive(
    spec: &ClusterQueueSpec,
    elsewhere: bool,
    beside: &dyn Beside,
    topology: bool,
) -> Option<Inactive> {
    if spec.stop_policy != StopPolicy::None {
        return Some(Inactive::Stopped);
    }
    let flavors = || spec.resource_groups.iter().flat_map(|group| &group.flavors);
    if let Some(missing) = flavors().find(|flavor| beside.flavor(&flavor.name).is_none()) {
        return Some(Inactive::FlavorNotFound(missing.name.clone()));
    }
    let controller =
        |check: &str| beside.check(check).filter(|(_, active)| *active).map(|(controller, _)| controller);
    if let Some(check) =
        spec.admission_checks.iter().map(|rule| &rule.name).find(|check| controller(check).is_none())
    {
        let what =
            if beside.check(check).is_none() { Inactive::AdmissionCheck } else { Inactive::CheckInactive };
        return Some(what(check.clone()));
    }
    // Worker clusters take the whole queue: one such check, for all flavors, without a provider of the manager's own.
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
    let wanted = || flavors().filter_map(|flavor| beside.flavor(&flavor.name)?.topology_name.as_deref());
    let missing = wanted().find(|name| topology && !elsewhere && !beside.topology(name));
    missing.map(|name| Inactive::TopologyNotFound(name.to_owned()))
}

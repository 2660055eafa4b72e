//! Cluster queues: quotas, and the policies of their use.

use super::quotas::{MAX_PER_GROUP, ResourceGroup, read_groups};
use super::{FairSharing, StopPolicy, cohort_name, fair_sharing, stop_policy};
use crate::fields::Fields;
use crate::fields::scheduling::{reference, selector};
use meridian_shared::gang::LabelSelector;

/// Most admission checks of a queue.
const MAX_CHECKS: usize = 64;

/// Most prefixes of resources that a queue ignores.
const MAX_PREFIXES: usize = 64;

/// How a queue orders pending workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueingStrategy {
    /// A workload that doesn't fit doesn't block later ones.
    #[default]
    BestEffortFifo,
    /// A workload that doesn't fit blocks later ones.
    StrictFifo,
}

/// Which workloads a workload may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionPolicy {
    #[default]
    Never,
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
    Any,
}

/// Preemption in order to borrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BorrowWithinCohort {
    /// `Never` or `LowerPriority`.
    pub policy: PreemptionPolicy,
    /// Only workloads up to this priority are preempted.
    pub max_priority_threshold: Option<i32>,
}

/// A queue's preemption policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preemption {
    /// Reclaiming borrowed quota from the cohort: `Never`, `LowerPriority` or `Any`.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// Preempting others of the cohort in order to borrow.
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Within the queue: `Never`, `LowerPriority` or `LowerOrNewerEqualPriority`.
    pub within_cluster_queue: PreemptionPolicy,
    /// Whether `reclaimWithinCohort` is missing, which is read as `Never`, a server's default. Set only by a
    /// lenient reader, because fair sharing distinguishes a missing value from `Never`.
    pub reclaim_is_unset: bool,
}

/// When to try the next flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fungibility {
    /// Stay with this flavor.
    MayStopSearch,
    /// Evaluate the next flavor first.
    TryNextFlavor,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorFungibility {
    /// If the workload would have to borrow.
    pub when_can_borrow: Fungibility,
    /// If the workload would have to preempt.
    pub when_can_preempt: Fungibility,
    /// Whether preemption is preferred to borrowing, if stated.
    pub prefers_preemption: Option<bool>,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: Fungibility::MayStopSearch,
            when_can_preempt: Fungibility::TryNextFlavor,
            prefers_preemption: None,
        }
    }
}

/// An admission check of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckRule {
    pub name: String,
    /// Flavors to which the check applies. Empty means all.
    pub on_flavors: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterQueueSpec {
    pub cohort: Option<String>,
    pub resource_groups: Vec<ResourceGroup>,
    pub queueing_strategy: QueueingStrategy,
    /// Namespaces that may submit: `None` selects none, an empty selector all.
    pub namespace_selector: Option<LabelSelector>,
    pub preemption: Preemption,
    pub flavor_fungibility: FlavorFungibility,
    pub stop_policy: StopPolicy,
    pub fair_sharing: Option<FairSharing>,
    pub admission_checks: Vec<CheckRule>,
    /// Whether `admissionScope` asks for usage-based admission.
    pub usage_based_admission: bool,
    /// Prefixes of resources that quota ignores.
    pub exclude_resource_prefixes: Vec<String>,
    pub concurrent_admission: Option<ConcurrentAdmission>,
}

/// A workload tries several flavors at the same time, as variants of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrentAdmission {
    pub migration: Migration,
    /// The last flavor, in the queue's order, that it may migrate to.
    pub last_acceptable_flavor: Option<String>,
}

/// Whether a running workload migrates to a preferred flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Migration {
    #[default]
    TryPreferredFlavors,
    RetainFirstAdmission,
}

pub(crate) fn read_cluster_queue(root: &Fields<'_>) -> ClusterQueueSpec {
    let Some(spec) = root.fields("spec") else { return ClusterQueueSpec::default() };
    let strategies =
        [("BestEffortFIFO", QueueingStrategy::BestEffortFifo), ("StrictFIFO", QueueingStrategy::StrictFifo)];
    let scope = spec.fields("admissionScope").and_then(|scope| {
        let modes = [("UsageBasedAdmissionFairSharing", true), ("NoAdmissionFairSharing", false)];
        let mode = scope.require("admissionMode").and_then(|item| item.word(&modes));
        scope.finish();
        mode
    });
    let read = ClusterQueueSpec {
        cohort: cohort_name(&spec, "cohortName"),
        resource_groups: read_groups(&spec, false),
        queueing_strategy: spec
            .get("queueingStrategy")
            .and_then(|item| item.word(&strategies))
            .unwrap_or_default(),
        namespace_selector: spec.get("namespaceSelector").and_then(|item| selector(&item)),
        preemption: spec.fields("preemption").map(read_preemption).unwrap_or_default(),
        flavor_fungibility: spec.fields("flavorFungibility").map(read_fungibility).unwrap_or_default(),
        stop_policy: stop_policy(&spec),
        fair_sharing: fair_sharing(&spec),
        admission_checks: read_checks(&spec),
        usage_based_admission: scope.unwrap_or(false),
        exclude_resource_prefixes: spec.names("excludeResourcePrefixes", MAX_PREFIXES),
        concurrent_admission: spec.fields("concurrentAdmissionPolicy").map(read_concurrent_admission),
    };
    spec.finish();
    read
}

fn read_concurrent_admission(policy: Fields<'_>) -> ConcurrentAdmission {
    let mut read = ConcurrentAdmission::default();
    let words = [
        ("TryPreferredFlavors", Migration::TryPreferredFlavors),
        ("RetainFirstAdmission", Migration::RetainFirstAdmission),
    ];
    if let Some(migration) = policy.require("migration").and_then(|item| item.fields()) {
        read.migration = migration.require("mode").and_then(|item| item.word(&words)).unwrap_or_default();
        if let Some(constraints) = migration.fields("constraints") {
            read.last_acceptable_flavor =
                constraints.get("lastAcceptableFlavorName").and_then(|item| reference(&item));
            if read.last_acceptable_flavor.is_some() && read.migration == Migration::RetainFirstAdmission {
                constraints.error(
                    "lastAcceptableFlavorName",
                    "needs `mode: TryPreferredFlavors`",
                    "remove it, or change the mode",
                );
            }
            constraints.finish();
        }
        migration.finish();
    }
    policy.finish();
    read
}

fn read_preemption(preemption: Fields<'_>) -> Preemption {
    use PreemptionPolicy::{Any, LowerOrNewerEqualPriority, LowerPriority, Never};
    let word = |name: &'static str, words: &[(&str, PreemptionPolicy)]| {
        preemption.get(name).and_then(|item| item.word(words)).unwrap_or_default()
    };
    let read = Preemption {
        reclaim_within_cohort: word(
            "reclaimWithinCohort",
            &[("Never", Never), ("LowerPriority", LowerPriority), ("Any", Any)],
        ),
        within_cluster_queue: word(
            "withinClusterQueue",
            &[
                ("Never", Never),
                ("LowerPriority", LowerPriority),
                ("LowerOrNewerEqualPriority", LowerOrNewerEqualPriority),
            ],
        ),
        borrow_within_cohort: preemption
            .fields("borrowWithinCohort")
            .map(|borrow| {
                let policy = borrow
                    .get("policy")
                    .and_then(|item| item.word(&[("Never", Never), ("LowerPriority", LowerPriority)]));
                let threshold = borrow.int("maxPriorityThreshold", i64::from(i32::MIN), i64::from(i32::MAX));
                borrow.finish();
                BorrowWithinCohort {
                    policy: policy.unwrap_or_default(),
                    max_priority_threshold: threshold.and_then(|value| i32::try_from(value).ok()),
                }
            })
            .unwrap_or_default(),
        reclaim_is_unset: preemption.findings().is_lenient()
            && preemption.get("reclaimWithinCohort").is_none_or(|item| item.value() == ""),
    };
    preemption.finish();
    read
}

fn read_fungibility(fungibility: Fields<'_>) -> FlavorFungibility {
    let words =
        [("MayStopSearch", Fungibility::MayStopSearch), ("TryNextFlavor", Fungibility::TryNextFlavor)];
    let usual = FlavorFungibility::default();
    let read = FlavorFungibility {
        when_can_borrow: fungibility
            .get("whenCanBorrow")
            .and_then(|item| item.word(&words))
            .unwrap_or(usual.when_can_borrow),
        when_can_preempt: fungibility
            .get("whenCanPreempt")
            .and_then(|item| item.word(&words))
            .unwrap_or(usual.when_can_preempt),
        prefers_preemption: fungibility.get("preference").and_then(|item| {
            item.word(&[("BorrowingOverPreemption", false), ("PreemptionOverBorrowing", true)])
        }),
    };
    fungibility.finish();
    read
}

fn read_checks(spec: &Fields<'_>) -> Vec<CheckRule> {
    let Some(strategy) = spec.fields("admissionChecksStrategy") else { return Vec::new() };
    let mut rules: Vec<CheckRule> = Vec::new();
    strategy.list("admissionChecks", MAX_CHECKS, |item| {
        let rule = item.fields()?;
        let name = rule.require("name").and_then(|item| reference(&item)).unwrap_or_default();
        if rules.iter().any(|other| other.name == name) && !name.is_empty() {
            rule.error("name", format!("`{name}` appears twice"), "remove one of them");
        }
        rules.push(CheckRule { name, on_flavors: rule.names("onFlavors", MAX_PER_GROUP) });
        rule.finish();
        Some(())
    });
    strategy.finish();
    rules
}

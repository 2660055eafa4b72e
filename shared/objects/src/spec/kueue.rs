//! Kueue's queueing kinds in their storage version: flavors, cluster queues, cohorts, local queues, priorities.
//!
//! Bounds are those of Kueue's own schemas, so that what is accepted here is accepted there.

use super::scheduling::{labels, reference, resource_name, selector, taint, toleration};
use crate::field::{Fields, Item};
use crate::names;
use crate::quantity;
use meridian_shared::gang::{LabelSelector, Taint, Toleration};
use std::collections::BTreeMap;

/// Most node labels, taints and tolerations of a flavor.
const MAX_FLAVOR_RULES: usize = 8;
/// Most resource groups of a queue or cohort.
pub(crate) const MAX_GROUPS: usize = 16;
/// Most flavors, and most resources, of one group.
const MAX_PER_GROUP: usize = 64;
/// Most flavors, and most resources, of all groups together.
pub(crate) const MAX_IN_ALL_GROUPS: usize = 256;
/// Most admission checks of a queue.
const MAX_CHECKS: usize = 64;
/// Most levels of a topology.
const MAX_LEVELS: usize = 16;
/// The label that says a node's own name: nothing is narrower.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Most prefixes of resources that a queue ignores.
const MAX_PREFIXES: usize = 64;

/// A kind of machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceFlavorSpec {
    /// Labels that its nodes have.
    pub node_labels: BTreeMap<String, String>,
    /// Taints that its nodes have; workloads must tolerate them.
    pub taints: Vec<Taint>,
    /// Tolerations that its workloads are given.
    pub tolerations: Vec<Toleration>,
    /// The topology of its nodes.
    pub topology_name: Option<String>,
}

/// What one flavor offers of one resource, in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quota {
    /// What the queue may use of its own.
    pub nominal: i64,
    /// Most that it may borrow; `None` is no limit.
    pub borrowing_limit: Option<i64>,
    /// Most that it lends; `None` is no limit.
    pub lending_limit: Option<i64>,
}

/// A flavor's quotas.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorQuotas {
    /// The flavor.
    pub name: String,
    /// Quota per resource.
    pub resources: BTreeMap<String, Quota>,
}

/// Resources that are given from one flavor together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceGroup {
    /// The resources, as listed.
    pub covered_resources: Vec<String>,
    /// The flavors, in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// How a queue orders what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueingStrategy {
    /// What does not fit lets others pass.
    #[default]
    BestEffortFifo,
    /// What does not fit blocks those behind it.
    StrictFifo,
}

/// Whether a queue admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopPolicy {
    /// It does.
    #[default]
    None,
    /// Nothing new starts; what runs goes on.
    Hold,
    /// Nothing new starts; what runs is evicted.
    HoldAndDrain,
}

/// Whom a workload may displace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionPolicy {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer ones of the same.
    LowerOrNewerEqualPriority,
    /// Anybody.
    Any,
}

/// Displacing others in order to borrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BorrowWithinCohort {
    /// `Never` or `LowerPriority`.
    pub policy: PreemptionPolicy,
    /// Only workloads up to this priority are displaced.
    pub max_priority_threshold: Option<i32>,
}

/// A queue's preemption policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preemption {
    /// Taking back what others of the cohort borrowed: `Never`, `LowerPriority` or `Any`.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// Displacing others of the cohort in order to borrow.
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Within the queue: `Never`, `LowerPriority` or `LowerOrNewerEqualPriority`.
    pub within_cluster_queue: PreemptionPolicy,
    /// Whether the block is written without `reclaimWithinCohort`, as no server leaves it: one fills in `Never`, which is
    /// also how it is read here. Only a lenient reader says so; fair sharing tells the two apart.
    pub reclaim_is_unset: bool,
}

/// What to do before going on to the next flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fungibility {
    /// Stay with this flavor.
    MayStopSearch,
    /// Look at the next one first.
    TryNextFlavor,
}

/// When a workload goes on to the next flavor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorFungibility {
    /// When it would have to borrow.
    pub when_can_borrow: Fungibility,
    /// When it would have to preempt.
    pub when_can_preempt: Fungibility,
    /// Whether preemption is preferred to borrowing, where that is stated.
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

/// Weight when shares are divided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FairSharing {
    /// The weight in thousandths, rounded up; 1000 is the usual one.
    pub weight_milli: i64,
    /// The weight in billionths, which is exact: Kueue takes no finer one.
    pub weight_nano: i128,
}

/// An admission check that a queue wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckRule {
    /// The check.
    pub name: String,
    /// Only for these flavors; empty is all.
    pub on_flavors: Vec<String>,
}

/// Quotas, and who may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterQueueSpec {
    /// The cohort it shares with.
    pub cohort: Option<String>,
    /// Quotas.
    pub resource_groups: Vec<ResourceGroup>,
    /// Order of what waits.
    pub queueing_strategy: QueueingStrategy,
    /// Namespaces that may submit: `None` selects nothing, an empty selector everything.
    pub namespace_selector: Option<LabelSelector>,
    /// Preemption.
    pub preemption: Preemption,
    /// Going on to the next flavor.
    pub flavor_fungibility: FlavorFungibility,
    /// Whether it admits.
    pub stop_policy: StopPolicy,
    /// Weight, where it is stated.
    pub fair_sharing: Option<FairSharing>,
    /// Admission checks.
    pub admission_checks: Vec<CheckRule>,
    /// Whether `admissionScope` asks for usage-based admission.
    pub usage_based_admission: bool,
    /// Resources that quota ignores, by prefix.
    pub exclude_resource_prefixes: Vec<String>,
    /// How flavors are tried at the same time, where that is asked for.
    pub concurrent_admission: Option<ConcurrentAdmission>,
}

/// A workload tries several flavors at the same time, as variants of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrentAdmission {
    /// Whether it goes on to a flavor that it likes better once it runs.
    pub migration: Migration,
    /// The last flavor, in the queue's order, that it may go on to.
    pub last_acceptable_flavor: Option<String>,
}

/// Whether a workload that runs goes on to a flavor that it likes better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Migration {
    /// It does.
    #[default]
    TryPreferredFlavors,
    /// It stays where it is.
    RetainFirstAdmission,
}

/// Queues that share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortSpec {
    /// The cohort above.
    pub parent: Option<String>,
    /// Quotas of the cohort itself.
    pub resource_groups: Vec<ResourceGroup>,
    /// Weight, where it is stated.
    pub fair_sharing: Option<FairSharing>,
}

/// A namespace's door to a cluster queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalQueueSpec {
    /// The cluster queue.
    pub cluster_queue: String,
    /// Whether it admits.
    pub stop_policy: StopPolicy,
    /// Weight, where it is stated.
    pub fair_sharing: Option<FairSharing>,
}

/// Levels of nearness that nodes have by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologySpec {
    /// Node labels, the widest level first.
    pub levels: Vec<String>,
}

/// A priority by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadPriorityClassSpec {
    /// The priority; higher goes first.
    pub value: i32,
}

pub(crate) fn read_flavor(root: &Fields<'_>) -> ResourceFlavorSpec {
    let Some(spec) = root.fields("spec") else { return ResourceFlavorSpec::default() };
    let read = ResourceFlavorSpec {
        node_labels: labels(&spec, "nodeLabels"),
        taints: spec.list("nodeTaints", MAX_FLAVOR_RULES, |item| taint(&item)),
        tolerations: spec.list("tolerations", MAX_FLAVOR_RULES, |item| toleration(&item)),
        topology_name: spec.get("topologyName").and_then(|item| reference(&item)),
    };
    if read.node_labels.len() > MAX_FLAVOR_RULES {
        spec.error(
            "nodeLabels",
            format!("has {} entries", read.node_labels.len()),
            format!("the most is {MAX_FLAVOR_RULES}"),
        );
    }
    if read.topology_name.is_some() && read.node_labels.is_empty() {
        spec.error(
            "nodeLabels",
            "needs at least one label with `topologyName`",
            "add the label that its nodes have",
        );
    }
    spec.finish();
    read
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

pub(crate) fn read_cohort(root: &Fields<'_>) -> CohortSpec {
    let Some(spec) = root.fields("spec") else { return CohortSpec::default() };
    let read = CohortSpec {
        parent: cohort_name(&spec, "parentName"),
        resource_groups: read_groups(&spec, true),
        fair_sharing: fair_sharing(&spec),
    };
    spec.finish();
    read
}

pub(crate) fn read_local_queue(root: &Fields<'_>) -> LocalQueueSpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return LocalQueueSpec::default();
    };
    let cluster_queue = spec.require("clusterQueue").and_then(|item| reference(&item)).unwrap_or_default();
    let read =
        LocalQueueSpec { cluster_queue, stop_policy: stop_policy(&spec), fair_sharing: fair_sharing(&spec) };
    spec.finish();
    read
}

pub(crate) fn read_priority_class(root: &Fields<'_>) -> WorkloadPriorityClassSpec {
    root.known(&["description"]);
    let value = root.require("value").and_then(|item| item.int(i64::from(i32::MIN), i64::from(i32::MAX)));
    WorkloadPriorityClassSpec { value: value.and_then(|value| i32::try_from(value).ok()).unwrap_or_default() }
}

fn cohort_name(spec: &Fields<'_>, name: &'static str) -> Option<String> {
    spec.get(name).filter(|item| item.value() != "").and_then(|item| reference(&item))
}

fn stop_policy(spec: &Fields<'_>) -> StopPolicy {
    let words =
        [("None", StopPolicy::None), ("Hold", StopPolicy::Hold), ("HoldAndDrain", StopPolicy::HoldAndDrain)];
    spec.get("stopPolicy").and_then(|item| item.word(&words)).unwrap_or_default()
}

fn fair_sharing(spec: &Fields<'_>) -> Option<FairSharing> {
    let sharing = spec.fields("fairSharing")?;
    // `cpu` is the resource that is counted in thousandths, and so is a weight
    let weight = sharing.get("weight").and_then(|item| {
        let milli = item.amount("cpu")?;
        let nano = quantity::nano_from_json(item.value()).ok().unwrap_or(i128::from(milli) * 1_000_000);
        if nano == 1 {
            item.error("is too small to count", "write 0, or more than `1n`");
        }
        Some(FairSharing { weight_milli: milli, weight_nano: nano })
    });
    sharing.finish();
    Some(weight.unwrap_or(FairSharing { weight_milli: 1_000, weight_nano: 1_000_000_000 }))
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

pub(crate) fn read_topology(root: &Fields<'_>) -> TopologySpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return TopologySpec::default();
    };
    let levels = spec.list("levels", MAX_LEVELS, |item| {
        let level = item.fields()?;
        let label = level.require_text("nodeLabel").unwrap_or_default().to_owned();
        if !label.is_empty() && !names::is_label_key(&label) {
            level.error(
                "nodeLabel",
                format!("`{label}` is not a label key"),
                "use letters, digits, `-`, `_` and `.`, with at most one `/`",
            );
        }
        level.finish();
        Some(label)
    });
    if levels.is_empty() && !spec.findings().has_errors() {
        spec.error("levels", "is missing", "list at least one level");
    }
    let at = |index: usize| spec.path().key("levels").index(index).key("nodeLabel");
    for (index, label) in levels.iter().enumerate().filter(|(_, label)| !label.is_empty()) {
        if levels[..index].contains(label) {
            spec.findings().error(at(index), format!("`{label}` is there twice"), "remove one of them");
        } else if label == HOSTNAME_LABEL && index + 1 < levels.len() {
            spec.findings().error(
                at(index),
                format!("`{label}` can only be the last level"),
                "list the wider levels before it",
            );
        }
    }
    spec.finish();
    TopologySpec { levels }
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
            rule.error("name", format!("`{name}` is there twice"), "remove one of them");
        }
        rules.push(CheckRule { name, on_flavors: rule.names("onFlavors", MAX_PER_GROUP) });
        rule.finish();
        Some(())
    });
    strategy.finish();
    rules
}

/// A cohort has its children's quota to lend, too: of it `lends_more` than is its own.
fn read_groups(spec: &Fields<'_>, lends_more: bool) -> Vec<ResourceGroup> {
    spec.list("resourceGroups", MAX_GROUPS, |item| {
        let group = item.fields()?;
        let covered_resources = group.list("coveredResources", MAX_PER_GROUP, |item| resource_name(&item));
        if !group.is_written("coveredResources") {
            group.error("coveredResources", "is missing", "list the resources of the group");
        }
        if !group.is_written("flavors") {
            group.error("flavors", "is missing", "list at least one flavor with its quotas");
        }
        let flavors = group.list("flavors", MAX_PER_GROUP, |item| read_flavor_quotas(&item, lends_more));
        group.finish();
        Some(ResourceGroup { covered_resources, flavors })
    })
}

fn read_flavor_quotas(item: &Item<'_>, lends_more: bool) -> Option<FlavorQuotas> {
    let flavor = item.fields()?;
    let name = flavor.require("name").and_then(|item| reference(&item)).unwrap_or_default();
    let mut resources: BTreeMap<String, Quota> = BTreeMap::new();
    flavor.list("resources", MAX_PER_GROUP, |item| {
        let fields = item.fields()?;
        let resource = fields.require("name").and_then(|item| resource_name(&item)).unwrap_or_default();
        let named = resource.as_str();
        let nominal = fields.require("nominalQuota").and_then(|item| item.quota(named));
        let quota = Quota {
            nominal: nominal.unwrap_or_default(),
            borrowing_limit: fields.get("borrowingLimit").and_then(|item| item.quota(named)),
            lending_limit: fields.get("lendingLimit").and_then(|item| item.quota(named)),
        };
        if !lends_more && quota.lending_limit.is_some_and(|limit| limit > quota.nominal) && nominal.is_some()
        {
            let most = quantity::format(named, quota.nominal);
            fields.error("lendingLimit", "is more than `nominalQuota`", format!("write at most `{most}`"));
        }
        fields.finish();
        if resources.contains_key(named) && !named.is_empty() {
            item.error(format!("the resource `{named}` is there twice"), "remove one of them");
        }
        resources.insert(resource, quota);
        Some(())
    });
    flavor.finish();
    Some(FlavorQuotas { name, resources })
}

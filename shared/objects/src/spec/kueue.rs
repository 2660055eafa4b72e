//! Kueue's queueing kinds in their storage version: flavors, cluster queues, cohorts, local queues,
//! priorities.
//!
//! Bounds are those of Kueue's own schemas, so that Kueue accepts every object that is accepted here.

mod cluster_queue;
mod quotas;

pub(crate) use cluster_queue::read_cluster_queue;
pub use cluster_queue::{
    BorrowWithinCohort, CheckRule, ClusterQueueSpec, ConcurrentAdmission, FlavorFungibility, Fungibility,
    Migration, Preemption, PreemptionPolicy, QueueingStrategy,
};
pub(crate) use quotas::MAX_IN_ALL_GROUPS;
pub use quotas::{FlavorQuotas, Quota, ResourceGroup};

use crate::fields::Fields;
use crate::fields::names;
use crate::fields::scheduling::{labels, reference, taint, toleration};
use crate::units::quantity;
use meridian_shared::gang::{Taint, Toleration};
use quotas::read_groups;
use std::collections::BTreeMap;

/// Most node labels, taints and tolerations of a flavor.
const MAX_FLAVOR_RULES: usize = 8;

/// Most levels of a topology.
const MAX_LEVELS: usize = 16;

/// The label with a node's name: the narrowest level of any topology.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceFlavorSpec {
    /// Labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes; workloads must tolerate them.
    pub taints: Vec<Taint>,
    /// Tolerations added to its workloads.
    pub tolerations: Vec<Toleration>,
    pub topology_name: Option<String>,
}

/// Whether a queue admits workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopPolicy {
    /// The queue admits.
    #[default]
    None,
    /// Nothing new starts; running workloads continue.
    Hold,
    /// Nothing new starts; running workloads are evicted.
    HoldAndDrain,
}

/// Weight in fair sharing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FairSharing {
    /// In thousandths, rounded up; 1000 is the default.
    pub weight_milli: i64,
    /// In billionths, which is exact: Kueue has no finer weights.
    pub weight_nano: i128,
}

/// Cluster queues that share quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortSpec {
    pub parent: Option<String>,
    /// Quotas of the cohort itself.
    pub resource_groups: Vec<ResourceGroup>,
    pub fair_sharing: Option<FairSharing>,
}

/// A namespace's entry to a cluster queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalQueueSpec {
    pub cluster_queue: String,
    pub stop_policy: StopPolicy,
    pub fair_sharing: Option<FairSharing>,
}

/// Levels of a node topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologySpec {
    /// Node labels, the widest level first.
    pub levels: Vec<String>,
}

/// A workload priority by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadPriorityClassSpec {
    /// Higher values go first.
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
            format!("the maximum is {MAX_FLAVOR_RULES}"),
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
    // Read the weight like an amount of `cpu`, because both are counted in thousandths.
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
            spec.findings().error(at(index), format!("`{label}` appears twice"), "remove one of them");
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

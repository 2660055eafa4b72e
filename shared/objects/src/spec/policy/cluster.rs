//! Worker clusters.

use super::{MAX_ENTRIES, place};
use crate::fields::Fields;
use crate::fields::scheduling::{amounts, labels, reference, taint};
use meridian_shared::gang::{Amounts, Taint};
use meridian_shared::ids::{Jurisdiction, Region};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most pools of a cluster that can grow from zero.
const MAX_POOLS: usize = 100;

/// Most nodes of such a pool, above the size of the largest clusters.
const MAX_NODES: i64 = 100_000;

/// How capacity is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityClass {
    Reservation,
    /// Queued, for a bounded time.
    FlexStart,
    /// Bought when needed, if the provider has any.
    OnDemand,
    /// Cheap, and may be taken away.
    Spot,
}

impl CapacityClass {
    pub(super) const WORDS: [(&'static str, Self); 4] = [
        ("reservation", Self::Reservation),
        ("flex-start", Self::FlexStart),
        ("on-demand", Self::OnDemand),
        ("spot", Self::Spot),
    ];
}

/// Labels of nodes that say how they were bought: by GKE, Karpenter, EKS and AKS.
const CLASS_LABELS: [(&str, &str, CapacityClass); 16] = [
    ("cloud.google.com/gke-flex-start", "true", CapacityClass::FlexStart),
    ("cloud.google.com/gke-queued", "true", CapacityClass::FlexStart),
    ("cloud.google.com/gke-spot", "true", CapacityClass::Spot),
    ("cloud.google.com/gke-preemptible", "true", CapacityClass::Spot),
    ("cloud.google.com/gke-provisioning", "flex-start", CapacityClass::FlexStart),
    ("cloud.google.com/gke-provisioning", "spot", CapacityClass::Spot),
    ("cloud.google.com/gke-provisioning", "preemptible", CapacityClass::Spot),
    ("cloud.google.com/gke-provisioning", "standard", CapacityClass::OnDemand),
    ("cloud.google.com/reservation-affinity", "specific", CapacityClass::Reservation),
    ("karpenter.sh/capacity-type", "reserved", CapacityClass::Reservation),
    ("karpenter.sh/capacity-type", "on-demand", CapacityClass::OnDemand),
    ("karpenter.sh/capacity-type", "spot", CapacityClass::Spot),
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", CapacityClass::Reservation),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", CapacityClass::OnDemand),
    ("eks.amazonaws.com/capacityType", "SPOT", CapacityClass::Spot),
    ("kubernetes.azure.com/scalesetpriority", "spot", CapacityClass::Spot),
];

/// GKE's label with the name of the reservation that a node belongs to.
const RESERVATION_LABEL: &str = "cloud.google.com/reservation-name";

impl CapacityClass {
    /// The class by labels of nodes; `None` if no label tells the class.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        if labels.contains_key(RESERVATION_LABEL) {
            return Some(Self::Reservation);
        }
        let tells = |(label, value, _): &&(&str, &str, Self)| labels.get(*label).is_some_and(|v| v == value);
        CLASS_LABELS.iter().find(tells).map(|(_, _, class)| *class)
    }
}

impl fmt::Display for CapacityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reservation => "reservation",
            Self::FlexStart => "flex-start",
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        })
    }
}

/// Source of a cluster's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderKind {
    /// The nodes exist permanently.
    #[default]
    Static,
    /// Provisioning requests create them.
    ProvisioningRequest,
    /// Simulated, for demos and tests.
    Simulated,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provider {
    pub kind: ProviderKind,
    /// The provisioning class, for [`ProviderKind::ProvisioningRequest`].
    pub class_name: Option<String>,
}

/// A pool of nodes that can grow from zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provisionable {
    /// Unique within the cluster.
    pub name: String,
    pub capacity_class: CapacityClass,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Capacity of one node.
    pub per_node: Amounts,
    pub max_nodes: u32,
}

/// A worker cluster: its location, and the upper limit of its capacity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterSpec {
    pub region: Region,
    pub jurisdiction: Jurisdiction,
    /// Upper limit of the capacity, even if the agent reports more. Resources that aren't listed have no
    /// limit.
    pub limits: Amounts,
    pub provider: Provider,
    pub provisionable: Vec<Provisionable>,
    /// Whether no new workload is dispatched there.
    pub cordoned: bool,
}

pub(crate) fn read_cluster(root: &Fields<'_>) -> ClusterSpec {
    root.findings().set_strict();
    let mut read = ClusterSpec {
        region: Region::new(""),
        jurisdiction: Jurisdiction::new(""),
        limits: Amounts::new(),
        provider: Provider::default(),
        provisionable: Vec::new(),
        cordoned: false,
    };
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return read };
    read.region = Region::new(spec.require("region").and_then(|item| place(&item)).unwrap_or_default());
    read.jurisdiction =
        Jurisdiction::new(spec.require("jurisdiction").and_then(|item| place(&item)).unwrap_or_default());
    read.limits = amounts(&spec, "limits");
    read.provider = spec.fields("provider").map(read_provider).unwrap_or_default();
    read.provisionable = read_pools(&spec);
    read.cordoned = spec.flag("cordoned");
    spec.finish();
    read
}

fn read_provider(provider: Fields<'_>) -> Provider {
    let kinds = [
        ("Static", ProviderKind::Static),
        ("ProvisioningRequest", ProviderKind::ProvisioningRequest),
        ("Simulated", ProviderKind::Simulated),
    ];
    let kind = provider.require("kind").and_then(|item| item.word(&kinds)).unwrap_or_default();
    let class_name = provider.get("className").and_then(|item| reference(&item));
    if kind == ProviderKind::ProvisioningRequest && class_name.is_none() {
        provider.error(
            "className",
            "is missing",
            "name the provisioning class, such as `queued-provisioning.gke.io`",
        );
    }
    provider.finish();
    Provider { kind, class_name }
}

fn read_pools(spec: &Fields<'_>) -> Vec<Provisionable> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    spec.list("provisionable", MAX_POOLS, |item| {
        let pool = item.fields()?;
        let name = pool.require_text("name").map(str::to_owned);
        let class = pool.require("capacityClass").and_then(|item| item.word(&CapacityClass::WORDS));
        let max_nodes = pool
            .require("maxNodes")
            .and_then(|item| item.int(1, MAX_NODES))
            .and_then(|nodes| u32::try_from(nodes).ok());
        let per_node = amounts(&pool, "perNode");
        if per_node.is_empty() {
            pool.error(
                "perNode",
                "is missing",
                "write what one node has, such as `{cpu: \"4\", nvidia.com/gpu: \"1\"}`",
            );
        }
        let labels = labels(&pool, "labels");
        let taints = pool.list("taints", MAX_ENTRIES, |item| taint(&item));
        if let Some(name) = name.as_ref().filter(|name| !names.insert((*name).clone())) {
            pool.error("name", format!("`{name}` appears twice"), "give every pool a name of its own");
        }
        pool.finish();
        Some(Provisionable {
            name: name?,
            capacity_class: class?,
            labels,
            taints,
            per_node,
            max_nodes: max_nodes?,
        })
    })
}

//! The kinds that get a definition: their schemas, and their columns in `kubectl get`.

#[expect(dead_code, reason = "only the schemas of the types are used")]
mod kueue;
#[expect(dead_code, reason = "only the schemas of the types are used")]
mod meridian;
#[expect(dead_code, reason = "only the schemas of the types are used")]
mod parts;

use crate::schema::structural;
use kueue::{
    AdmissionCheckObject, ClusterQueueObject, CohortObject, LocalQueueObject, MultiKueueClusterObject,
    MultiKueueConfigObject, PriorityClassObject, ProvisioningConfigObject, ResourceFlavorObject,
    TopologyObject, WorkloadObjectSchema,
};
use meridian::{ClusterObject, DispatchPolicyObject, ResidencyPolicyObject};
use meridian_objects::Kind;
use meridian_objects::columns::{self, Column, Content};
use serde_json::Value;

/// The kinds that Meridian reads and Kubernetes doesn't have, in the order of the table of kinds. A group of
/// pods is an object only at the manager: a management cluster has just the pods.
pub fn defined() -> Vec<Kind> {
    let groups = [meridian_objects::kind::KUEUE_GROUP, meridian_objects::kind::MERIDIAN_GROUP];
    Kind::ALL.into_iter().filter(|kind| groups.contains(&kind.group()) && !kind.is_job()).collect()
}

/// The structural schema of a kind in one version; `None` for a kind of Kubernetes.
pub(crate) fn schema(kind: Kind, version: &str) -> Option<Value> {
    let group = kind.group();
    Some(match kind {
        Kind::ResourceFlavor => structural::<ResourceFlavorObject>(group, version),
        Kind::ClusterQueue => structural::<ClusterQueueObject>(group, version),
        Kind::Cohort => structural::<CohortObject>(group, version),
        Kind::LocalQueue => structural::<LocalQueueObject>(group, version),
        Kind::WorkloadPriorityClass => structural::<PriorityClassObject>(group, version),
        Kind::AdmissionCheck => structural::<AdmissionCheckObject>(group, version),
        Kind::MultiKueueConfig => structural::<MultiKueueConfigObject>(group, version),
        Kind::MultiKueueCluster => structural::<MultiKueueClusterObject>(group, version),
        Kind::ProvisioningRequestConfig => structural::<ProvisioningConfigObject>(group, version),
        Kind::Workload => structural::<WorkloadObjectSchema>(group, version),
        Kind::Topology => structural::<TopologyObject>(group, version),
        Kind::Cluster => structural::<ClusterObject>(group, version),
        Kind::ResidencyPolicy => structural::<ResidencyPolicyObject>(group, version),
        Kind::DispatchPolicy => structural::<DispatchPolicyObject>(group, version),
        _ => return None,
    })
}

/// A column of `kubectl get`.
pub(crate) struct PrinterColumn {
    pub(crate) name: &'static str,
    /// `string`, `integer` or `date`.
    pub(crate) content: &'static str,
    pub(crate) path: String,
    /// Whether only `-o wide` shows it.
    pub(crate) wide: bool,
}

impl PrinterColumn {
    /// A column of `meridian get`; `None` if a definition can't show it.
    fn of(column: &Column) -> Option<Self> {
        let content = match column.content {
            Content::Number(_) => "integer",
            Content::Age => "date",
            Content::Field(_) | Content::Text(_) | Content::State(_) => "string",
        };
        Some(Self { name: column.name, content, path: column.json_path()?, wide: column.wide })
    }
}

fn text(name: &'static str, path: &str) -> PrinterColumn {
    PrinterColumn { name, content: "string", path: path.to_owned(), wide: false }
}

fn number(name: &'static str, path: &str) -> PrinterColumn {
    PrinterColumn { content: "integer", ..text(name, path) }
}

fn age() -> PrinterColumn {
    PrinterColumn { content: "date", ..text("Age", ".metadata.creationTimestamp") }
}

fn wide(column: PrinterColumn) -> PrinterColumn {
    PrinterColumn { wide: true, ..column }
}

/// Columns of Kueue's kinds are those that its users know; ours are those of `meridian get`.
pub(crate) fn columns(kind: Kind) -> Vec<PrinterColumn> {
    match kind {
        Kind::ClusterQueue => vec![
            // Objects keep the name of the version in which they were written.
            text("Cohort", ".spec['cohortName','cohort']"),
            wide(text("Strategy", ".spec.queueingStrategy")),
            number("Pending Workloads", ".status.pendingWorkloads"),
            wide(number("Admitted Workloads", ".status.admittedWorkloads")),
        ],
        Kind::LocalQueue => vec![
            text("ClusterQueue", ".spec.clusterQueue"),
            number("Pending Workloads", ".status.pendingWorkloads"),
            number("Admitted Workloads", ".status.admittedWorkloads"),
        ],
        Kind::Workload => vec![
            text("Queue", ".spec.queueName"),
            text("Reserved in", ".status.admission.clusterQueue"),
            text("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
            text("Finished", ".status.conditions[?(@.type=='Finished')].status"),
            age(),
            wide(text("Cluster", ".status.clusterName")),
        ],
        Kind::WorkloadPriorityClass
        | Kind::MultiKueueCluster
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy => {
            // `kubectl` shows the name itself.
            columns::columns(kind).iter().skip(1).filter_map(PrinterColumn::of).collect()
        }
        _ => vec![age()],
    }
}

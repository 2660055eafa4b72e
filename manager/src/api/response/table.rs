//! `meta.k8s.io/v1` tables: the columns that `kubectl get` shows for each kind, and their cells.
//!
//! Cells are read from objects in the storage version, so that all API versions show the same.

use super::rendered::RenderedObject;
use jiff::Timestamp;
use meridian_objects::{Kind, age, job};
use serde_json::{Value, json};

/// What a row includes in addition to its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    /// The whole object.
    Object,
}

struct Column {
    name: &'static str,
    kind: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    priority: u8,
    cell: fn(&Value, Timestamp) -> Value,
}

const fn text(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, kind: "string", priority: 0, cell }
}

const fn number(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, kind: "integer", priority: 0, cell }
}

const fn wide(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, kind: "string", priority: 1, cell }
}

const NAME: Column = text("Name", |object, _| at(object, "/metadata/name"));
const AGE: Column = text("Age", |object, now| json!(age(object, now)));

fn columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::Job => job_columns(),
        Kind::Workload => workload_columns(),
        Kind::ClusterQueue => cluster_queue_columns(),
        Kind::LocalQueue => vec![
            NAME,
            text("ClusterQueue", |o, _| at(o, "/spec/clusterQueue")),
            number("Pending Workloads", |o, _| at(o, "/status/pendingWorkloads")),
            number("Admitted Workloads", |o, _| at(o, "/status/admittedWorkloads")),
            AGE,
        ],
        Kind::Cluster => vec![
            NAME,
            text("Region", |o, _| at(o, "/spec/region")),
            text("Jurisdiction", |o, _| at(o, "/spec/jurisdiction")),
            text("State", |o, _| at(o, "/status/state")),
            number("Workloads", |o, _| at(o, "/status/workloads")),
            AGE,
            wide("Runner", |o, _| at(o, "/status/runner")),
        ],
        Kind::Cohort => vec![NAME, text("Parent", |o, _| at(o, "/spec/parentName")), AGE],
        Kind::WorkloadPriorityClass | Kind::PriorityClass => {
            vec![NAME, number("Value", |o, _| at(o, "/value")), AGE]
        }
        Kind::AdmissionCheck => vec![NAME, text("Controller", |o, _| at(o, "/spec/controllerName")), AGE],
        Kind::MultiKueueConfig => vec![NAME, text("Clusters", |o, _| list(o, "/spec/clusters")), AGE],
        Kind::MultiKueueCluster => vec![NAME, text("Connected", |o, _| condition(o, "Active")), AGE],
        Kind::ProvisioningRequestConfig => {
            vec![NAME, text("Class", |o, _| at(o, "/spec/provisioningClassName")), AGE]
        }
        Kind::ResidencyPolicy => vec![NAME, text("On change", |o, _| at(o, "/spec/onChange")), AGE],
        Kind::DispatchPolicy => vec![
            NAME,
            text("Mode", |o, _| at(o, "/spec/mode")),
            text("On loss", |o, _| at(o, "/spec/onClusterLoss/mode")),
            AGE,
        ],
        Kind::RuntimeClass => vec![NAME, text("Handler", |o, _| at(o, "/handler")), AGE],
        Kind::Namespace | Kind::ResourceFlavor | Kind::Topology | Kind::LimitRange => vec![NAME, AGE],
    }
}

fn job_columns() -> Vec<Column> {
    vec![
        NAME,
        text("Queue", |o, _| at(o, "/metadata/labels/kueue.x-k8s.io~1queue-name")),
        text("State", |o, _| json!(job::state(o))),
        text("Cluster", |o, _| at(o, "/status/meridian/cluster")),
        text("Region", |o, _| at(o, "/status/meridian/region")),
        number("Attempts", |o, _| at(o, "/status/meridian/attempts")),
        AGE,
        wide("Reason", |o, _| at(o, "/status/conditions/0/reason")),
    ]
}

fn workload_columns() -> Vec<Column> {
    vec![
        NAME,
        text("Queue", |o, _| at(o, "/spec/queueName")),
        text("Reserved in", |o, _| at(o, "/status/admission/clusterQueue")),
        text("Admitted", |o, _| condition(o, "Admitted")),
        text("Finished", |o, _| condition(o, "Finished")),
        text("Cluster", |o, _| at(o, "/status/clusterName")),
        AGE,
        wide("Priority", |o, _| at(o, "/spec/priority")),
        wide("Active", |o, _| at(o, "/spec/active")),
        wide("Reason", |o, _| pending_reason(o)),
    ]
}

fn cluster_queue_columns() -> Vec<Column> {
    let strategy = |object: &Value, _| {
        object
            .pointer("/spec/queueingStrategy")
            .filter(|strategy| strategy.is_string())
            .cloned()
            .unwrap_or_else(|| json!("BestEffortFIFO"))
    };
    vec![
        NAME,
        text("Cohort", |o, _| at(o, "/spec/cohortName")),
        text("Strategy", strategy),
        number("Pending Workloads", |o, _| at(o, "/status/pendingWorkloads")),
        number("Admitted Workloads", |o, _| at(o, "/status/admittedWorkloads")),
        text("Active", |o, _| condition(o, "Active")),
        AGE,
    ]
}

/// The columns of a kind.
pub(crate) struct Table(Vec<Column>);

impl Table {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(columns(kind))
    }

    pub(crate) fn definitions(&self) -> Vec<Value> {
        let definition = |column: &Column| {
            let format = if column.name == "Name" { "name" } else { "" };
            json!({
                "name": column.name, "type": column.kind, "format": format, "description": "",
                "priority": column.priority,
            })
        };
        self.0.iter().map(definition).collect()
    }

    /// The row of one object, in the storage version and as it is to be sent.
    pub(crate) fn row(
        &self,
        stored: &Value,
        shown: &RenderedObject<'_>,
        include: Include,
        now: Timestamp,
    ) -> Value {
        let cells: Vec<Value> = self.0.iter().map(|column| (column.cell)(stored, now)).collect();
        let mut row = json!({"cells": cells});
        match include {
            Include::None => {}
            Include::Metadata => row["object"] = shown.metadata_only(),
            Include::Object => row["object"] = shown.clone().into_value(),
        }
        row
    }
}

/// A table of `rows`: each object in the storage version, and as it is to be sent.
pub(crate) fn table(
    kind: Kind,
    rows: &[(&Value, RenderedObject<'_>)],
    metadata: Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let table = Table::new(kind);
    let rows: Vec<Value> =
        rows.iter().map(|(stored, shown)| table.row(stored, shown, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": table.definitions(), "rows": rows,
    })
}

fn at(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        None | Some(Value::Null) => json!(""),
        Some(found) => found.clone(),
    }
}

/// Why a pending workload is pending.
fn pending_reason(workload: &Value) -> Value {
    let pending =
        condition(workload, "QuotaReserved") == "False" && condition(workload, "Finished") != "True";
    if pending { of_condition(workload, "QuotaReserved", "message") } else { json!("") }
}

fn list(object: &Value, pointer: &str) -> Value {
    let names = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    json!(names.filter_map(Value::as_str).collect::<Vec<_>>().join(","))
}

fn condition(object: &Value, kind: &str) -> Value {
    of_condition(object, kind, "status")
}

fn of_condition(object: &Value, kind: &str, field: &str) -> Value {
    let mut conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.find(|c| c["type"] == kind).and_then(|c| c.get(field)).cloned().unwrap_or_else(|| json!(""))
}

/// Time since the object's creation, as Kubernetes writes durations.
fn age(object: &Value, now: Timestamp) -> String {
    let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    created.and_then(|at| age::since(at, now)).unwrap_or_else(|| "<unknown>".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_queues_have_the_cells_of_the_command_line() {
        let cell = |kind: Kind, name: &str, object: Value| {
            let columns = columns(kind);
            (columns.iter().find(|c| c.name == name).unwrap().cell)(&object, Timestamp::UNIX_EPOCH)
        };
        let failed = json!({
            "status": {
                "meridian": {"state": "Finished"},
                "conditions": [{"type": "Failed", "status": "True"}],
            },
        });
        assert_eq!(cell(Kind::Job, "State", failed), "Failed");
        assert_eq!(cell(Kind::ClusterQueue, "Strategy", json!({"spec": {}})), "BestEffortFIFO");
        assert_eq!(
            cell(Kind::ClusterQueue, "Strategy", json!({"spec": {"queueingStrategy": "StrictFIFO"}})),
            "StrictFIFO"
        );
    }

    #[test]
    fn a_pending_workload_has_its_reason() {
        let waits = json!({"type": "QuotaReserved", "status": "False", "message": "it is stopped"});
        let reason = |conditions: Value| {
            let columns = columns(Kind::Workload);
            let column = columns.iter().find(|c| c.name == "Reason" && c.priority == 1).unwrap();
            (column.cell)(&json!({"status": {"conditions": conditions}}), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(reason(json!([waits])), "it is stopped");
        assert_eq!(reason(json!([waits, {"type": "Finished", "status": "True"}])), "");
        assert_eq!(
            reason(json!([{
                "type": "QuotaReserved", "status": "True", "message": "Quota reserved in ClusterQueue cq",
            }])),
            ""
        );
    }

    #[test]
    fn every_kind_has_a_name_and_an_age() {
        for kind in Kind::ALL {
            let columns = columns(kind);
            assert_eq!(columns[0].name, "Name");
            assert!(columns.iter().any(|c| c.name == "Age"), "{kind}");
            // an empty object has a cell for every column
            assert!(columns.iter().all(|c| !(c.cell)(&json!({}), Timestamp::UNIX_EPOCH).is_null()), "{kind}");
        }
    }
}

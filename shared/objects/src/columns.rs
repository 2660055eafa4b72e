//! The columns of tables of objects, by kind. The manager's API sends them, so `meridian get` and a `kubectl`
//! that asks the manager show the same ones. In a management cluster, the CRDs of Meridian's kinds have these
//! columns too, as far as a JSON path can read the cells; Kueue's kinds have Kueue's columns there.
//!
//! Cells are read from objects in the storage version. Wide columns stand at the end, never in between.

use crate::any_job;
use crate::job::{PRIORITY_LABEL, QUEUE_LABEL, of_object};
use crate::kind::Kind;
use crate::units::age;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::borrow::Cow;

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Title in `kubectl`'s style, such as `Reserved in`.
    pub name: &'static str,
    /// Whether only `-o wide` shows it.
    pub wide: bool,
    pub content: Content,
    /// The JSON path to a similar value, for cells that a CRD's columns can't compute.
    similar: Option<&'static str>,
}

/// Content of a column's cells, and how it is read from an object.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// The JSON pointer to a text.
    Field(&'static str),
    Text(for<'o> fn(&'o Value) -> Cow<'o, str>),
    /// One word for a state or the status of a condition.
    State(for<'o> fn(&'o Value) -> &'o str),
    /// The JSON pointer to a number.
    Number(&'static str),
    /// Time since the object was created.
    Age,
}

/// The content of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellContent<'o> {
    /// An empty cell if the object has no value.
    Text(Cow<'o, str>),
    State(&'o str),
    Number(Option<i64>),
    /// `None` if the object doesn't say when it was created.
    Age(Option<String>),
}

impl Column {
    pub fn cell<'o>(&self, object: &'o Value, now: Timestamp) -> CellContent<'o> {
        match self.content {
            Content::Field(pointer) => CellContent::Text(text(object, pointer).into()),
            Content::Text(read) => CellContent::Text(read(object)),
            Content::State(read) => CellContent::State(read(object)),
            Content::Number(pointer) => CellContent::Number(object.pointer(pointer).and_then(Value::as_i64)),
            Content::Age => CellContent::Age(age::since(text(object, "/metadata/creationTimestamp"), now)),
        }
    }

    /// The JSON path of the cell in a CRD's columns; `None` if no path leads to it.
    pub fn json_path(&self) -> Option<String> {
        match self.content {
            Content::Field(pointer) | Content::Number(pointer) => Some(pointer.replace('/', ".")),
            Content::Age => Some(".metadata.creationTimestamp".to_owned()),
            Content::Text(_) | Content::State(_) => self.similar.map(str::to_owned),
        }
    }

    const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    const fn similar(self, path: &'static str) -> Self {
        Self { similar: Some(path), ..self }
    }
}

const fn of(name: &'static str, content: Content) -> Column {
    Column { name, wide: false, content, similar: None }
}

const fn field(name: &'static str, pointer: &'static str) -> Column {
    of(name, Content::Field(pointer))
}

const fn column(name: &'static str, read: for<'o> fn(&'o Value) -> Cow<'o, str>) -> Column {
    of(name, Content::Text(read))
}

const fn state(name: &'static str, read: for<'o> fn(&'o Value) -> &'o str) -> Column {
    of(name, Content::State(read))
}

const fn number(name: &'static str, pointer: &'static str) -> Column {
    of(name, Content::Number(pointer))
}

const NAME: Column = field("Name", "/metadata/name");
const AGE: Column = of("Age", Content::Age);
/// The JSON path to the status of the condition `Active`.
const ACTIVE: &str = ".status.conditions[?(@.type=='Active')].status";

/// The columns of a kind, the name first.
pub fn columns(kind: Kind) -> Vec<Column> {
    match kind {
        any_job!() => job_columns(),
        Kind::Workload => workload_columns(),
        Kind::ClusterQueue => cluster_queue_columns(),
        Kind::LocalQueue => vec![
            NAME,
            field("ClusterQueue", "/spec/clusterQueue"),
            number("Pending", "/status/pendingWorkloads"),
            number("Admitted", "/status/admittedWorkloads"),
            AGE,
        ],
        Kind::Cluster => cluster_columns(),
        Kind::ResourceFlavor => {
            vec![NAME, AGE, column("Node labels", |o| pairs(o, "/spec/nodeLabels").into()).wide()]
        }
        Kind::Cohort => vec![NAME, field("Parent", "/spec/parentName"), AGE],
        Kind::WorkloadPriorityClass | Kind::PriorityClass => vec![NAME, number("Value", "/value"), AGE],
        Kind::AdmissionCheck => vec![
            NAME,
            field("Controller", "/spec/controllerName"),
            field("Parameters", "/spec/parameters/name"),
            AGE,
        ],
        Kind::RuntimeClass => vec![NAME, field("Handler", "/handler"), AGE],
        Kind::RoleBinding | Kind::ClusterRoleBinding => {
            vec![NAME, column("Role", |o| role_of(o).into()), AGE]
        }
        Kind::Topology | Kind::LimitRange | Kind::Role | Kind::ClusterRole => vec![NAME, AGE],
        Kind::MultiKueueConfig => vec![NAME, column("Clusters", |o| list(o, "/spec/clusters").into()), AGE],
        Kind::MultiKueueCluster => {
            vec![NAME, state("Connected", |o| condition(o, "Active", "status")).similar(ACTIVE), AGE]
        }
        Kind::ProvisioningRequestConfig => vec![
            NAME,
            field("Class", "/spec/provisioningClassName"),
            column("Resources", |o| list(o, "/spec/managedResources").into()),
            AGE,
        ],
        Kind::Namespace => vec![
            NAME,
            state("Status", |o| text_or(o, "/status/phase", "Active")),
            AGE,
            column("Labels", |o| pairs(o, "/metadata/labels").into()).wide(),
        ],
        Kind::ResidencyPolicy => vec![
            NAME,
            // A JSON path shows only one value, and a list with only some of the places would mislead, so the
            // path shows the whole field.
            column("Allow", |o| allowed(o).into()).similar(".spec.allow"),
            column("Deny", |o| places(o, "/spec/deny").into()).similar(".spec.deny"),
            column("On change", |o| text_or(o, "/spec/onChange", "Evict").into()).similar(".spec.onChange"),
            AGE,
        ],
        Kind::DispatchPolicy => vec![
            NAME,
            field("Mode", "/spec/mode"),
            field("On loss", "/spec/onClusterLoss/mode"),
            field("Term", "/spec/onClusterLoss/term"),
            AGE,
        ],
    }
}

/// The role of a binding: its kind and name.
fn role_of(binding: &Value) -> String {
    format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"))
}

fn job_columns() -> Vec<Column> {
    vec![
        NAME,
        column("Queue", |o| label(o, QUEUE_LABEL).into()),
        state("State", |o| of_object(o).state(o)),
        field("Cluster", "/status/meridian/cluster"),
        column("Pods", |o| pods(o).into()),
        AGE,
        field("Region", "/status/meridian/region").wide(),
        number("Attempts", "/status/meridian/attempts").wide(),
        column("Priority class", |o| label(o, PRIORITY_LABEL).into()).wide(),
        column("Reason", job_reason).wide(),
    ]
}

fn workload_columns() -> Vec<Column> {
    vec![
        NAME,
        field("Queue", "/spec/queueName"),
        field("Reserved in", "/status/admission/clusterQueue"),
        state("Admitted", |o| condition(o, "Admitted", "status")),
        state("Finished", |o| condition(o, "Finished", "status")),
        field("Cluster", "/status/clusterName"),
        column("Active", |o| match o.pointer("/spec/active") {
            Some(Value::Bool(active)) => active.to_string().into(),
            _ => "".into(),
        }),
        AGE,
        number("Priority", "/spec/priority").wide(),
        column("Reason", |o| pending_message(o).into()).wide(),
    ]
}

fn cluster_queue_columns() -> Vec<Column> {
    vec![
        NAME,
        field("Cohort", "/spec/cohortName"),
        column("Strategy", |o| text_or(o, "/spec/queueingStrategy", "BestEffortFIFO").into()),
        number("Pending", "/status/pendingWorkloads"),
        number("Admitted", "/status/admittedWorkloads"),
        state("Active", |o| condition(o, "Active", "status")),
        number("Reserving", "/status/reservingWorkloads").wide(),
        AGE.wide(),
    ]
}

fn cluster_columns() -> Vec<Column> {
    vec![
        NAME,
        field("Region", "/spec/region"),
        state("State", |o| text(o, "/status/state")).similar(".status.state"),
        column("GPUs", |o| accelerators(o, "capacity").into())
            .similar(r".status.resources['nvidia\.com/gpu','google\.com/tpu'].capacity"),
        column("Free", |o| accelerators(o, "free").into())
            .similar(r".status.resources['nvidia\.com/gpu','google\.com/tpu'].free"),
        AGE,
        column("Last sync", |o| duration(o, "/status/sinceLastSyncMs").into()).wide(),
        field("Jurisdiction", "/spec/jurisdiction").wide(),
        number("Workloads", "/status/workloads").wide(),
        field("Runner", "/status/runner").wide(),
    ]
}

/// Pods as `2/3`: running pods of the gang, or succeeded pods if none runs.
fn pods(job: &Value) -> String {
    let kind = of_object(job);
    let (gang, active) = (u64::from(kind.pods(job).unwrap_or(1)), kind.active(job));
    let counted = job.pointer("/status/succeeded").and_then(Value::as_u64);
    let succeeded = counted.unwrap_or(if kind.has_succeeded(job) { gang } else { 0 });
    if active > 0 { format!("{active}/{gang}") } else { format!("{succeeded}/{}", gang.max(succeeded)) }
}

/// Why the job failed, or why it is pending.
fn job_reason(job: &Value) -> Cow<'_, str> {
    let kind = of_object(job);
    match kind.failure(job) {
        _ if kind.has_succeeded(job) => "".into(),
        Some([reason, ""]) => reason.into(),
        Some(["", message]) => message.into(),
        Some([reason, message]) => format!("{reason}: {message}").into(),
        None => text(job, "/status/meridian/pendingReason").into(),
    }
}

/// Why a workload is pending; empty if it isn't.
fn pending_message(workload: &Value) -> &str {
    let is = |kind: &str, status: &str| condition(workload, kind, "status") == status;
    let is_pending = is("QuotaReserved", "False") && !is("Finished", "True");
    if is_pending { condition(workload, "QuotaReserved", "message") } else { "" }
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn text_or<'o>(object: &'o Value, pointer: &str, usual: &'static str) -> &'o str {
    Some(text(object, pointer)).filter(|text| !text.is_empty()).unwrap_or(usual)
}

fn label<'o>(object: &'o Value, key: &str) -> &'o str {
    object.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str()).unwrap_or_default()
}

/// A field of a condition; empty if there is none.
fn condition<'o>(object: &'o Value, kind: &str, field: &str) -> &'o str {
    let mut conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition.get(field)?.as_str()).unwrap_or_default()
}

fn list(object: &Value, pointer: &str) -> String {
    let items = object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

fn pairs(object: &Value, pointer: &str) -> String {
    let Some(map) = object.pointer(pointer).and_then(Value::as_object) else { return String::new() };
    map.iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

/// A duration in milliseconds, as an age.
fn duration(object: &Value, pointer: &str) -> String {
    let millis = object.pointer(pointer).and_then(Value::as_i64);
    millis.map(|millis| age::format(SignedDuration::from_millis(millis).as_secs())).unwrap_or_default()
}

/// The accelerators of a cluster: the sum of `field` over all resources with names ending in `/gpu` or
/// `/tpu`.
fn accelerators(object: &Value, field: &str) -> String {
    let Some(resources) = object.pointer("/status/resources").and_then(Value::as_object) else {
        return String::new();
    };
    let accelerators =
        resources.iter().filter(|(resource, _)| resource.ends_with("/gpu") || resource.ends_with("/tpu"));
    let amounts = accelerators.filter_map(|(_, amounts)| amounts.get(field)?.as_i64());
    amounts.fold(0_i64, i64::saturating_add).to_string()
}

/// Locations that a residency policy allows. A missing list allows everything, an empty list nothing.
fn allowed(object: &Value) -> String {
    let named = places(object, "/spec/allow");
    let has_lists = ["jurisdictions", "regions", "clusters"]
        .iter()
        .any(|part| object.pointer(&format!("/spec/allow/{part}")).is_some());
    match (named.is_empty(), has_lists) {
        (false, _) => named,
        (true, true) => "<nowhere>".to_owned(),
        (true, false) => "<anywhere>".to_owned(),
    }
}

/// Jurisdictions, regions and clusters in the `allow` or `deny` of a residency policy.
fn places(object: &Value, pointer: &str) -> String {
    ["jurisdictions", "regions", "clusters"]
        .iter()
        .map(|part| list(object, &format!("{pointer}/{part}")))
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(kind: Kind, name: &str, object: &Value) -> String {
        let columns = columns(kind);
        let column = columns.iter().find(|column| column.name == name).unwrap();
        match column.cell(object, Timestamp::UNIX_EPOCH) {
            CellContent::Text(text) => text.into_owned(),
            CellContent::State(word) => word.to_owned(),
            CellContent::Number(number) => number.map(|number| number.to_string()).unwrap_or_default(),
            CellContent::Age(age) => age.unwrap_or_default(),
        }
    }

    #[test]
    fn a_failed_job_names_its_reason() {
        let failed = json!({"status": {
            "meridian": {"state": "Finished"},
            "conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "m"}],
        }});
        assert_eq!(
            (cell(Kind::Job, "State", &failed), cell(Kind::Job, "Reason", &failed)),
            ("Failed".to_owned(), "R: m".to_owned())
        );
        assert_eq!(cell(Kind::ClusterQueue, "Strategy", &json!({"spec": {}})), "BestEffortFIFO");
    }

    #[test]
    fn only_a_pending_workload_has_a_reason() {
        let waits = json!({"type": "QuotaReserved", "status": "False", "message": "it is stopped"});
        let reason = |conditions: Value| {
            cell(Kind::Workload, "Reason", &json!({"status": {"conditions": conditions}}))
        };
        assert_eq!(reason(json!([waits])), "it is stopped");
        assert_eq!(reason(json!([waits, {"type": "Finished", "status": "True"}])), "");
        assert_eq!(reason(json!([{"type": "QuotaReserved", "status": "True", "message": "m"}])), "");
    }

    #[test]
    fn definitions_find_cells_by_the_same_fields() {
        let paths = |kind: Kind| -> Vec<Option<String>> {
            columns(kind).iter().skip(1).map(Column::json_path).collect()
        };
        let mode = ".spec.onClusterLoss.mode";
        let expect = [".spec.mode", mode, ".spec.onClusterLoss.term", ".metadata.creationTimestamp"];
        assert_eq!(paths(Kind::DispatchPolicy), expect.map(|path| Some(path.to_owned())));
        assert_eq!(paths(Kind::ResidencyPolicy)[0].as_deref(), Some(".spec.allow"));
        assert!(paths(Kind::Cluster).contains(&None), "the age of the last sync is computed");
    }

    #[test]
    fn every_kind_has_a_name_and_an_age_and_wide_columns_last() {
        for kind in Kind::ALL {
            let columns = columns(kind);
            assert_eq!(columns[0].name, "Name");
            assert!(columns.iter().any(|column| column.name == "Age"), "{kind}");
            assert!(columns.is_sorted_by_key(|column| column.wide), "{kind}");
            for column in columns {
                // an empty object has a cell for every column
                let _ = column.cell(&json!({}), Timestamp::UNIX_EPOCH);
            }
        }
    }
}

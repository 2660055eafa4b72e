//! The columns of each kind. `-o wide` adds columns at the end, never in between.

use super::table::{Cell, Table};
use crate::objects::fields::{condition_status, find_condition, text};
use crate::objects::job;
use jiff::{SignedDuration, Timestamp};
use meridian_objects::{Kind, age};
use serde_json::Value;

#[derive(Clone, Copy)]
struct Column {
    header: &'static str,
    wide: bool,
    cell: fn(&Value, Timestamp) -> Cell,
}

const fn column(header: &'static str, cell: fn(&Value, Timestamp) -> Cell) -> Column {
    Column { header, wide: false, cell }
}

const fn wide(header: &'static str, cell: fn(&Value, Timestamp) -> Cell) -> Column {
    Column { header, wide: true, cell }
}

/// The columns of one kind of object.
pub(crate) struct Columns {
    columns: Vec<Column>,
    namespaces: bool,
}

impl Columns {
    /// `namespaces` adds the namespace in front.
    pub(crate) fn of(kind: Kind, is_wide: bool, namespaces: bool) -> Self {
        let columns = columns(kind).into_iter().filter(|column| is_wide || !column.wide).collect();
        Self { columns, namespaces: namespaces && kind.namespaced() }
    }

    /// A table without rows.
    pub(crate) fn table(&self) -> Table {
        let first = self.namespaces.then_some("NAMESPACE");
        Table::new(first.into_iter().chain(["NAME"]).chain(self.columns.iter().map(|column| column.header)))
    }

    pub(crate) fn row(&self, object: &Value, now: Timestamp) -> Vec<Cell> {
        let namespace = self.namespaces.then(|| Cell::new(text(object, "/metadata/namespace")));
        let name = Cell::new(text(object, "/metadata/name"));
        namespace
            .into_iter()
            .chain([name])
            .chain(self.columns.iter().map(|column| (column.cell)(object, now)))
            .collect()
    }

    /// Headers and cells of an object, for `describe`.
    pub(crate) fn pairs(&self, object: &Value, now: Timestamp) -> Vec<(&'static str, Cell)> {
        self.columns.iter().map(|column| (column.header, (column.cell)(object, now))).collect()
    }
}

const AGE: Column = column("AGE", |object, now| {
    Cell::new(age::since(text(object, "/metadata/creationTimestamp"), now).unwrap_or_default())
});

fn columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::Job => job_columns(),
        Kind::Workload => workload_columns(),
        Kind::ClusterQueue => cluster_queue_columns(),
        Kind::LocalQueue => vec![
            column("CLUSTERQUEUE", |o, _| Cell::new(text(o, "/spec/clusterQueue"))),
            column("PENDING", |o, _| Cell::new(number(o, "/status/pendingWorkloads"))),
            column("ADMITTED", |o, _| Cell::new(number(o, "/status/admittedWorkloads"))),
            AGE,
        ],
        Kind::Cluster => cluster_columns(),
        Kind::ResourceFlavor => {
            vec![wide("NODE-LABELS", |o, _| Cell::new(pairs(o, "/spec/nodeLabels"))), AGE]
        }
        Kind::Cohort => vec![
            column("PARENT", |o, _| Cell::new(first_text(o, &["/spec/parentName", "/spec/parent"]))),
            AGE,
        ],
        Kind::WorkloadPriorityClass | Kind::PriorityClass => {
            vec![column("VALUE", |o, _| Cell::new(number(o, "/value"))), AGE]
        }
        Kind::AdmissionCheck => vec![
            column("CONTROLLER", |o, _| Cell::new(text(o, "/spec/controllerName"))),
            column("PARAMETERS", |o, _| Cell::new(text(o, "/spec/parameters/name"))),
            AGE,
        ],
        Kind::RuntimeClass => vec![column("HANDLER", |o, _| Cell::new(text(o, "/handler"))), AGE],
        Kind::Topology | Kind::LimitRange => vec![AGE],
        Kind::MultiKueueConfig => vec![column("CLUSTERS", |o, _| Cell::new(list(o, "/spec/clusters"))), AGE],
        Kind::MultiKueueCluster => {
            vec![column("CONNECTED", |o, _| Cell::state(condition_status(o, "Active"))), AGE]
        }
        Kind::ProvisioningRequestConfig => vec![
            column("CLASS", |o, _| Cell::new(text(o, "/spec/provisioningClassName"))),
            column("RESOURCES", |o, _| Cell::new(list(o, "/spec/managedResources"))),
            AGE,
        ],
        Kind::Namespace => vec![
            column("STATUS", |o, _| Cell::state(default_text(text(o, "/status/phase"), "Active"))),
            AGE,
            wide("LABELS", |o, _| Cell::new(pairs(o, "/metadata/labels"))),
        ],
        Kind::ResidencyPolicy => vec![
            column("ALLOW", |o, _| Cell::new(allowed(o))),
            column("DENY", |o, _| Cell::new(places(o, "/spec/deny"))),
            column("ON-CHANGE", |o, _| Cell::new(default_text(text(o, "/spec/onChange"), "Evict"))),
            AGE,
        ],
        Kind::DispatchPolicy => vec![
            column("MODE", |o, _| Cell::new(text(o, "/spec/mode"))),
            column("ON-LOSS", |o, _| Cell::new(text(o, "/spec/onClusterLoss/mode"))),
            column("TERM", |o, _| Cell::new(text(o, "/spec/onClusterLoss/term"))),
            AGE,
        ],
    }
}

fn job_columns() -> Vec<Column> {
    vec![
        column("QUEUE", |o, _| Cell::new(job::local_queue(o))),
        column("STATE", |o, _| Cell::state(job::state(o))),
        column("CLUSTER", |o, _| Cell::new(job::cluster(o))),
        column("PODS", |o, _| Cell::new(job::pods(o))),
        AGE,
        wide("PRIORITY-CLASS", |o, _| Cell::new(text(o, "/metadata/labels/kueue.x-k8s.io~1priority-class"))),
        wide("REASON", |o, _| Cell::new(job::reason(o))),
    ]
}

fn workload_columns() -> Vec<Column> {
    vec![
        column("QUEUE", |o, _| Cell::new(text(o, "/spec/queueName"))),
        column("RESERVED-IN", |o, _| Cell::new(text(o, "/status/admission/clusterQueue"))),
        column("ADMITTED", |o, _| Cell::state(condition_status(o, "Admitted"))),
        column("FINISHED", |o, _| Cell::state(condition_status(o, "Finished"))),
        column("CLUSTER", |o, _| Cell::new(text(o, "/status/clusterName"))),
        column("ACTIVE", |o, _| {
            Cell::new(o.pointer("/spec/active").map(Value::to_string).unwrap_or_default())
        }),
        AGE,
        wide("PRIORITY", |o, _| Cell::new(number(o, "/spec/priority"))),
        wide("REASON", |o, _| Cell::new(pending_message(o))),
    ]
}

fn cluster_queue_columns() -> Vec<Column> {
    vec![
        column("COHORT", |o, _| Cell::new(first_text(o, &["/spec/cohortName", "/spec/cohort"]))),
        column("STRATEGY", |o, _| {
            Cell::new(o.pointer("/spec/queueingStrategy").and_then(Value::as_str).unwrap_or("BestEffortFIFO"))
        }),
        column("PENDING", |o, _| Cell::new(number(o, "/status/pendingWorkloads"))),
        column("ADMITTED", |o, _| Cell::new(number(o, "/status/admittedWorkloads"))),
        column("ACTIVE", |o, _| Cell::state(condition_status(o, "Active"))),
        wide("RESERVING", |o, _| Cell::new(number(o, "/status/reservingWorkloads"))),
        wide("AGE", AGE.cell),
    ]
}

fn cluster_columns() -> Vec<Column> {
    vec![
        column("REGION", |o, _| Cell::new(text(o, "/spec/region"))),
        column("STATE", |o, _| Cell::state(text(o, "/status/state"))),
        column("GPUS", |o, _| Cell::new(accelerators(o, "capacity"))),
        column("FREE", |o, _| Cell::new(accelerators(o, "free"))),
        AGE,
        wide("LAST-SYNC", |o, _| Cell::new(duration(o, "/status/silentForMs"))),
        wide("JURISDICTION", |o, _| Cell::new(text(o, "/spec/jurisdiction"))),
        wide("WORKLOADS", |o, _| Cell::new(number(o, "/status/workloads"))),
        wide("RUNNER", |o, _| Cell::new(text(o, "/status/runner"))),
    ]
}

/// Why a workload is pending; empty if it isn't.
fn pending_message(workload: &Value) -> &str {
    let reserved =
        find_condition(workload, "QuotaReserved").filter(|reserved| text(reserved, "/status") == "False");
    reserved
        .filter(|_| condition_status(workload, "Finished") != "True")
        .map(|reserved| text(reserved, "/message"))
        .unwrap_or_default()
}

fn first_text<'o>(object: &'o Value, pointers: &[&str]) -> &'o str {
    pointers.iter().map(|pointer| text(object, pointer)).find(|found| !found.is_empty()).unwrap_or_default()
}

fn default_text<'t>(text: &'t str, default: &'t str) -> &'t str {
    if text.is_empty() { default } else { text }
}

fn number(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
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

/// What a residency policy allows: a missing list allows everything, an empty one nothing.
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

    fn show(kind: Kind, is_wide: bool, namespaces: bool, objects: &[Value]) -> String {
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        let columns = Columns::of(kind, is_wide, namespaces);
        let mut table = columns.table();
        objects.iter().for_each(|object| table.push(columns.row(object, now)));
        table.text(false)
    }

    fn job_with(name: &str, status: Value) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "research", "creationTimestamp": "2026-11-21T09:55:00Z",
                "labels": {"kueue.x-k8s.io/queue-name": "gpus"},
            },
            "spec": {"parallelism": 3, "completions": 3, "suspend": true},
            "status": status,
        })
    }

    #[test]
    fn jobs_show_queue_state_cluster_and_pods() {
        let meridian = json!({"state": "Running", "cluster": "eu", "region": "europe-west4"});
        let running = job_with("run", json!({"active": 3, "meridian": meridian}));
        let complete = json!([{"type": "Complete", "status": "True"}]);
        let done = job_with("done", json!({"succeeded": 3, "conditions": complete}));
        let failure = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]);
        let failed = job_with("bad", json!({"conditions": failure}));
        assert_eq!(
            show(Kind::Job, false, false, &[job_with("wait", json!({})), running.clone(), done, failed]),
            "NAME   QUEUE   STATE      CLUSTER   PODS   AGE\n\
             wait   gpus    Pending    -         0/3    5m\n\
             run    gpus    Running    eu        3/3    5m\n\
             done   gpus    Finished   -         3/3    5m\n\
             bad    gpus    Failed     -         0/3    5m\n"
        );
        let waiting = job_with("wait", json!({"meridian": {"state": "Pending", "waits": "it is stopped"}}));
        assert_eq!(
            show(Kind::Job, true, true, &[running, waiting]),
            "NAMESPACE   NAME   QUEUE   STATE     CLUSTER   PODS   AGE   PRIORITY-CLASS   REASON\n\
             research    run    gpus    Running   eu        3/3    5m    -                -\n\
             research    wait   gpus    Pending   -         0/3    5m    -                it is stopped\n"
        );
    }

    #[test]
    fn clusters_show_the_sum_of_their_accelerators() {
        let resources = json!({
            "nvidia.com/gpu": {"capacity": 8, "free": 1}, "google.com/tpu": {"capacity": 4, "free": 0},
            "cpu": {"capacity": 64000, "free": 1},
        });
        let cluster = json!({
            "metadata": {"name": "eu", "creationTimestamp": "2026-11-20T09:00:00Z"},
            "spec": {"region": "europe-west4", "jurisdiction": "EU"},
            "status": {
                "state": "Connected,Cordoned", "silentForMs": 2400, "workloads": 2, "resources": resources,
            },
        });
        let both = [cluster, json!({"metadata": {"name": "new\u{1b}"}})];
        assert_eq!(
            show(Kind::Cluster, false, false, &both),
            "NAME      REGION         STATE                GPUS   FREE   AGE\n\
             eu        europe-west4   Connected,Cordoned   12     1      25h\n\
             new\\x1b   -              -                    -      -      -\n"
        );
        let wide = show(Kind::Cluster, true, false, &both);
        let words = |line: usize| wide.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(0)[6..], ["LAST-SYNC", "JURISDICTION", "WORKLOADS", "RUNNER"]);
        assert_eq!(words(1)[6..], ["2s", "EU", "2", "-"]);
    }

    /// The tutorial's names are long; a newcomer's terminal has 80 columns.
    #[test]
    fn the_tutorials_clusters_fit_80_columns() {
        let cluster = json!({
            "metadata": {"name": "multikueue-dws-worker-asia", "creationTimestamp": "2026-11-21T09:00:00Z"},
            "spec": {"region": "asia-southeast1", "jurisdiction": "SG"},
            "status": {"state": "Connected", "resources": {"nvidia.com/gpu": {"capacity": 4, "free": 1}}},
        });
        let text = show(Kind::Cluster, false, false, &[cluster]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn queues_policies_and_workloads_show_their_spec() {
        let queue = json!({
            "metadata": {"name": "dws"}, "spec": {"cohortName": "all", "queueingStrategy": "BestEffortFIFO"},
            "status": {"pendingWorkloads": 1, "admittedWorkloads": 3},
        });
        assert_eq!(
            show(Kind::ClusterQueue, false, false, &[queue]),
            "NAME   COHORT   STRATEGY         PENDING   ADMITTED   ACTIVE\n\
             dws    all      BestEffortFIFO   1         3          -\n"
        );
        let policy = json!({"metadata": {"name": "eu-only"}, "spec": {
            "allow": {"jurisdictions": ["EU"], "regions": []}, "deny": {"clusters": ["eu-lab", "x"]},
            "onChange": "Evict",
        }});
        assert_eq!(
            show(Kind::ResidencyPolicy, false, false, &[policy]),
            "NAME      ALLOW   DENY       ON-CHANGE   AGE\neu-only   EU      eu-lab,x   Evict       -\n"
        );
        let workload = json!({
            "metadata": {"name": "w"}, "spec": {"queueName": "q", "priority": 7, "active": false},
            "status": {"conditions": [{"type": "Admitted", "status": "True"}]},
        });
        assert_eq!(
            show(Kind::Workload, true, false, &[workload]),
            "NAME   QUEUE   RESERVED-IN   ADMITTED   FINISHED   CLUSTER   ACTIVE   AGE   PRIORITY   REASON\n\
             w      q       -             True       -          -         false    -     7          -\n"
        );
    }

    #[test]
    fn only_a_pending_workload_has_a_reason_and_only_in_wide_tables() {
        let pending = json!({
            "type": "QuotaReserved", "status": "False", "reason": "Pending",
            "message": "another workload of its cohort came first",
        });
        let workload =
            |conditions: Value| json!({"metadata": {"name": "w"}, "status": {"conditions": conditions}});
        let reason = |conditions: Value| {
            let shown = show(Kind::Workload, true, false, &[workload(conditions)]);
            let (header, row) = shown.trim_end().split_once('\n').unwrap();
            row[header.find("REASON").unwrap()..].to_owned()
        };
        let reserved = json!({
            "type": "QuotaReserved", "status": "True", "message": "Quota reserved in ClusterQueue cq",
        });
        assert_eq!(reason(json!([pending])), "another workload of its cohort came first");
        assert_eq!(reason(json!([pending, {"type": "Finished", "status": "True"}])), "-");
        assert_eq!(reason(json!([reserved])), "-");
        assert!(!show(Kind::Workload, false, false, &[workload(json!([pending]))]).contains("came first"));
    }

    #[test]
    fn every_kind_has_a_table() {
        for kind in Kind::ALL {
            let text = show(kind, true, true, &[json!({"metadata": {"name": "x", "namespace": "n"}})]);
            assert_eq!(text.lines().count(), 2, "{kind}");
        }
    }
}

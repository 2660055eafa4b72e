//! Tables of objects, with the columns of their kind.

use super::table::{Cell, Table};
use crate::objects::fields::text;
use jiff::Timestamp;
use meridian_objects::Kind;
use meridian_objects::columns::{CellContent, Column, columns};
use serde_json::Value;

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
        let first = self.namespaces.then(|| "NAMESPACE".to_owned());
        Table::new(first.into_iter().chain(self.columns.iter().map(header)))
    }

    pub(crate) fn row(&self, object: &Value, now: Timestamp) -> Vec<Cell> {
        let namespace = self.namespaces.then(|| Cell::new(text(object, "/metadata/namespace")));
        namespace.into_iter().chain(self.columns.iter().map(|column| cell(column, object, now))).collect()
    }

    /// Names and cells of the columns without the object's name, for `describe`.
    pub(crate) fn pairs(&self, object: &Value, now: Timestamp) -> Vec<(&'static str, Cell)> {
        self.columns.iter().skip(1).map(|column| (column.name, cell(column, object, now))).collect()
    }
}

/// `Reserved in` as the header of a column: `RESERVED-IN`.
fn header(column: &Column) -> String {
    column.name.to_uppercase().replace(' ', "-")
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Cell {
    match column.cell(object, now) {
        CellContent::Text(text) => Cell::new(text),
        CellContent::State(word) => Cell::state(word),
        CellContent::Number(number) => Cell::new(number.map(|number| number.to_string()).unwrap_or_default()),
        CellContent::Age(age) => Cell::new(age.unwrap_or_default()),
    }
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
        let pending = json!({"meridian": {"state": "Pending", "pendingReason": "it is stopped"}});
        assert_eq!(
            show(Kind::Job, true, true, &[running, job_with("wait", pending)]),
            "NAMESPACE   NAME   QUEUE   STATE     CLUSTER   PODS   AGE   REGION         ATTEMPTS   \
             PRIORITY-CLASS   REASON\n\
             research    run    gpus    Running   eu        3/3    5m    europe-west4   -          \
             -                -\n\
             research    wait   gpus    Pending   -         0/3    5m    -              -          \
             -                it is stopped\n"
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
                "state": "Connected,Cordoned", "sinceLastSyncMs": 2400, "workloads": 2,
                "resources": resources,
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

//! The load at one moment, as text.
//!
//! ```text
//! 3 of 3 clusters connected, 8 of 12 GPUs in use; jobs: 2 running, 1 pending, 4 finished
//!
//! CLUSTER   REGION         STATE       RUNS   GPUS   CPU   MEMORY
//! eu        europe-west4   Connected   1      4/4    4/8   8Gi/32Gi
//! ```

use crate::objects::fields::text;
use crate::objects::job;
use crate::output::columns::Columns;
use crate::output::table::{Cell, Table};
use jiff::Timestamp;
use meridian_objects::job::SUBMITTED_KIND;
use meridian_objects::quantity;
use meridian_shared::counted::counted;
use serde_json::Value;
use std::collections::BTreeMap;

/// Data from the manager; `None` for a view that isn't shown.
pub(super) struct Load {
    pub(super) clusters: Option<Vec<Value>>,
    pub(super) queues: Option<Vec<Value>>,
    pub(super) jobs: Option<Vec<Value>>,
    /// Whether jobs are shown with their namespaces.
    pub(super) namespaces: bool,
}

/// Used and total amount in base units of the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    used: i64,
    total: i64,
}

impl Usage {
    fn add(&mut self, used: i64, total: i64) {
        self.used = self.used.saturating_add(used);
        self.total = self.total.saturating_add(total);
    }

    fn cell(self, resource: &str) -> Cell {
        if self == Self::default() {
            return Cell::new("");
        }
        Cell::new(self.shown(resource))
    }

    fn shown(self, resource: &str) -> String {
        format!("{}/{}", quantity::format(resource, self.used), quantity::format(resource, self.total))
    }
}

impl Load {
    pub(super) fn text(&self, now: Timestamp, colour: bool) -> String {
        let tables = [
            self.clusters.as_deref().map(|clusters| clusters_table(clusters, colour)),
            self.queues.as_deref().map(|queues| queues_table(queues, colour)),
            self.jobs.as_deref().map(|jobs| self.jobs_table(jobs, now, colour)),
        ];
        let parts: Vec<String> =
            std::iter::once(self.summary()).chain(tables.into_iter().flatten()).collect();
        parts.join("\n")
    }

    fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some(clusters) = &self.clusters {
            let connected = clusters.iter().filter(|one| state(one).starts_with("Connected")).count();
            parts.push(format!("{connected} of {} connected", counted(clusters.len(), "cluster")));
            let gpus = clusters.iter().map(accelerators).fold(Usage::default(), |mut sum, one| {
                sum.add(one.used, one.total);
                sum
            });
            parts.push(format!("{} of {} in use", gpus.used, counted(gpus.total, "GPU")));
        }
        if let Some(jobs) = &self.jobs {
            let mut states: BTreeMap<String, usize> = BTreeMap::new();
            for job in jobs {
                *states.entry(job::state(job).to_lowercase()).or_default() += 1;
            }
            let states: Vec<String> = states.iter().map(|(state, many)| format!("{many} {state}")).collect();
            let states = if states.is_empty() { "none".to_owned() } else { states.join(", ") };
            parts.push(format!("jobs: {states}"));
        }
        if parts.is_empty() { String::new() } else { parts.join("; ") + "\n" }
    }

    /// The jobs that haven't ended: the running ones first, then the oldest.
    fn jobs_table(&self, jobs: &[Value], now: Timestamp, colour: bool) -> String {
        let mut live: Vec<&Value> = jobs.iter().filter(|job| job::end(job).is_none()).collect();
        let rank =
            |job: &Value| (job::cluster(job).is_empty(), text(job, "/metadata/creationTimestamp").to_owned());
        live.sort_by_key(|job| rank(job));
        if live.is_empty() {
            return "no job runs or waits\n".to_owned();
        }
        let columns = Columns::of(SUBMITTED_KIND, false, self.namespaces);
        let mut table = columns.table();
        live.iter().for_each(|job| table.push(columns.row(job, now)));
        table.text(colour)
    }
}

fn state(cluster: &Value) -> &str {
    text(cluster, "/status/state")
}

fn clusters_table(clusters: &[Value], colour: bool) -> String {
    if clusters.is_empty() {
        return "no cluster has joined\n".to_owned();
    }
    let mut table = Table::new(["CLUSTER", "REGION", "STATE", "RUNS", "GPUS", "CPU", "MEMORY"]);
    for cluster in clusters {
        let runs = cluster.pointer("/status/workloads").map(Value::to_string).unwrap_or_default();
        table.push(vec![
            Cell::new(text(cluster, "/metadata/name")),
            Cell::new(text(cluster, "/spec/region")),
            Cell::state(state(cluster)),
            Cell::new(runs),
            accelerators(cluster).cell("nvidia.com/gpu"),
            resource(cluster, "cpu").cell("cpu"),
            resource(cluster, "memory").cell("memory"),
        ]);
    }
    table.text(colour)
}

/// Usage of a resource by a cluster's jobs.
fn resource(cluster: &Value, name: &str) -> Usage {
    let amounts = cluster.pointer("/status/resources").and_then(|all| all.get(name));
    let amount = |field: &str| amounts.and_then(|amounts| amounts.get(field)?.as_i64()).unwrap_or(0);
    let capacity = amount("capacity");
    Usage { used: capacity.saturating_sub(amount("free")), total: capacity }
}

fn accelerators(cluster: &Value) -> Usage {
    let resources = cluster.pointer("/status/resources").and_then(Value::as_object);
    let names = resources.into_iter().flat_map(|all| all.keys());
    let mut sum = Usage::default();
    for name in names.filter(|name| name.ends_with("/gpu") || name.ends_with("/tpu")) {
        let one = resource(cluster, name);
        sum.add(one.used, one.total);
    }
    sum
}

fn queues_table(queues: &[Value], colour: bool) -> String {
    if queues.is_empty() {
        return "no cluster queue exists\n".to_owned();
    }
    let mut table = Table::new(["QUEUE", "COHORT", "PENDING", "ADMITTED", "IN USE / QUOTA"]);
    for queue in queues {
        let number = |pointer| queue.pointer(pointer).map(Value::to_string).unwrap_or_default();
        let cohort = [text(queue, "/spec/cohortName"), text(queue, "/spec/cohort")];
        let usage = queue_usage(queue);
        let usage: Vec<String> =
            usage.iter().map(|(resource, usage)| format!("{resource} {}", usage.shown(resource))).collect();
        table.push(vec![
            Cell::new(text(queue, "/metadata/name")),
            Cell::new(cohort.into_iter().find(|name| !name.is_empty()).unwrap_or_default()),
            Cell::new(number("/status/pendingWorkloads")),
            Cell::new(number("/status/admittedWorkloads")),
            Cell::new(usage.join(", ")),
        ]);
    }
    table.text(colour)
}

/// Reserved amount and nominal quota by resource, over all flavors.
fn queue_usage(queue: &Value) -> BTreeMap<String, Usage> {
    let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
    let amount = |resource: &str, value: Option<&Value>| {
        value.and_then(|value| quantity::from_json(resource, value).ok()).unwrap_or(0)
    };
    for group in items(queue.pointer("/spec/resourceGroups")) {
        for resource in items(group.get("flavors")).flat_map(|flavor| items(flavor.get("resources"))) {
            let name = text(resource, "/name");
            let quota = amount(name, resource.get("nominalQuota"));
            usage.entry(name.to_owned()).or_default().add(0, quota);
        }
    }
    for flavor in items(queue.pointer("/status/flavorsReservation")) {
        for resource in items(flavor.get("resources")) {
            let name = text(resource, "/name");
            let used = amount(name, resource.get("total"));
            usage.entry(name.to_owned()).or_default().add(used, 0);
        }
    }
    usage
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_load_is_seen_at_a_glance() {
        let resources = json!({
            "nvidia.com/gpu": {"capacity": 4, "free": 1}, "cpu": {"capacity": 8000, "free": 7500},
        });
        let cluster = json!({
            "metadata": {"name": "eu"}, "spec": {"region": "europe-west4"},
            "status": {"state": "Connected", "workloads": 1, "resources": resources},
        });
        let flavors = json!([{"name": "t4", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 4}]}]);
        let used = json!([{"name": "t4", "resources": [{"name": "nvidia.com/gpu", "total": "3"}]}]);
        let queue = json!({
            "metadata": {"name": "dws"},
            "spec": {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]},
            "status": {"pendingWorkloads": 1, "admittedWorkloads": 1, "flavorsReservation": used},
        });
        let job = |name: &str, status: Value| {
            json!({
                "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
                "spec": {"parallelism": 3}, "status": status,
            })
        };
        let jobs = vec![
            job("waits", json!({})),
            job("runs", json!({"active": 3, "meridian": {"state": "Running", "cluster": "eu"}})),
            job("done", json!({"conditions": [{"type": "Complete", "status": "True"}]})),
        ];
        let mut load = Load {
            clusters: Some(vec![cluster]),
            queues: Some(vec![queue]),
            jobs: Some(jobs),
            namespaces: false,
        };
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        assert_eq!(
            load.text(now, false),
            "1 of 1 cluster connected; 3 of 4 GPUs in use; jobs: 1 finished, 1 pending, 1 running\n\
             \n\
             CLUSTER   REGION         STATE       RUNS   GPUS   CPU      MEMORY\n\
             eu        europe-west4   Connected   1      3/4    500m/8   -\n\
             \n\
             QUEUE   COHORT   PENDING   ADMITTED   IN USE / QUOTA\n\
             dws     -        1         1          nvidia.com/gpu 3/4\n\
             \n\
             NAME    QUEUE   STATE     CLUSTER   PODS   AGE\n\
             runs    gpus    Running   eu        3/3    -\n\
             waits   gpus    Pending   -         0/3    -\n"
        );
        load = Load { clusters: None, queues: Some(Vec::new()), jobs: Some(Vec::new()), namespaces: true };
        assert_eq!(load.text(now, false), "jobs: none\n\nno cluster queue exists\n\nno job runs or waits\n");
    }
}

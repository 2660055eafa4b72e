//! Kueue's benchmarks: queues, classes, published results, and the objects that they become.
//!
//! The numbers restate `kubernetes-sigs/kueue: test/performance/scheduler`, Apache-2.0, main of 2026-08-22.

use crate::client::Bulk;
use crate::commands::bench::shapes::kueue_object;
use meridian_objects::job::{PRIORITY_LABEL, QUEUE_LABEL, SIMULATED_DURATION};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Jobs per request: what is due at one moment is sent over several connections at once.
const REQUEST_JOBS_MAX: usize = 250;
const FLAVOR: &str = "rf";

/// Workloads of one kind, in every queue.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) name: &'static str,
    /// Workloads per queue.
    pub(super) count: u64,
    /// Interval between submissions.
    pub(super) every_ms: u64,
    pub(super) run_ms: u64,
    pub(super) priority: i32,
    pub(super) cpu: u64,
}

/// Results of Kueue itself.
#[derive(Debug)]
pub(super) struct KueueResults {
    pub(super) wall_s: f64,
    pub(super) usage_pct: f64,
    /// Mean time to admission, in the order of the classes.
    pub(super) admission_s: [f64; 3],
}

#[derive(Debug)]
pub(in crate::commands::bench) struct Scenario {
    pub(in crate::commands::bench) name: &'static str,
    pub(super) cohorts: u64,
    pub(super) queues_per_cohort: u64,
    pub(super) nominal_cpu: u64,
    pub(super) borrowing_cpu: u64,
    pub(super) classes: [Class; 3],
    /// Means of Kueue's CI runs.
    pub(super) published: KueueResults,
    /// Kueue on two cores, measured in November 2026: API server, etcd without fsync and Kueue on one
    /// machine.
    pub(super) measured: Option<KueueResults>,
}

pub(in crate::commands::bench) const BASELINE: Scenario = Scenario {
    name: "kueue-baseline",
    cohorts: 5,
    queues_per_cohort: 6,
    nominal_cpu: 20,
    borrowing_cpu: 100,
    classes: [
        Class { name: "small", count: 350, every_ms: 100, run_ms: 200, priority: 50, cpu: 1 },
        Class { name: "medium", count: 100, every_ms: 500, run_ms: 500, priority: 100, cpu: 5 },
        Class { name: "large", count: 50, every_ms: 1_200, run_ms: 1_000, priority: 200, cpu: 20 },
    ],
    published: KueueResults { wall_s: 351.116, usage_pct: 55.9, admission_s: [215.468, 76.768, 16.501] },
    measured: Some(KueueResults { wall_s: 410.0, usage_pct: 54.6, admission_s: [240.3, 110.8, 40.8] }),
};

pub(in crate::commands::bench) const LARGE_SCALE: Scenario = Scenario {
    name: "kueue-large-scale",
    cohorts: 10,
    queues_per_cohort: 100,
    nominal_cpu: 20,
    borrowing_cpu: 100,
    classes: [
        Class { name: "small", count: 35, every_ms: 60, run_ms: 150, priority: 50, cpu: 1 },
        Class { name: "medium", count: 11, every_ms: 300, run_ms: 350, priority: 100, cpu: 5 },
        Class { name: "large", count: 4, every_ms: 700, run_ms: 700, priority: 200, cpu: 20 },
    ],
    published: KueueResults { wall_s: 1_179.411, usage_pct: 38.64, admission_s: [700.379, 256.413, 105.604] },
    measured: None,
};

/// One workload of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    /// Since the beginning.
    pub(super) due_ms: u64,
    /// Index of its class.
    pub(super) class: usize,
    pub(super) queue: u64,
    /// Within its class and queue.
    pub(super) number: u64,
}

impl Scenario {
    pub(super) fn queues(&self) -> u64 {
        self.cohorts * self.queues_per_cohort
    }

    pub(super) fn jobs(&self) -> u64 {
        self.queues() * self.classes.iter().map(|c| c.count).sum::<u64>()
    }

    /// Time that any scheduler needs: all nominal quota in use all the time.
    pub(super) fn floor_s(&self) -> f64 {
        let cpu_ms: u64 = self.classes.iter().map(|c| c.count * c.run_ms * c.cpu).sum();
        cpu_ms as f64 / 1_000.0 / self.nominal_cpu as f64
    }

    /// Flavor, priority classes and queues.
    pub(super) fn objects(&self) -> Vec<Value> {
        let mut all = vec![kueue_object("ResourceFlavor", FLAVOR)];
        for class in &self.classes {
            let mut priority = kueue_object("WorkloadPriorityClass", class.name);
            priority["value"] = class.priority.into();
            all.push(priority);
        }
        let cpu = json!({
            "name": "cpu", "nominalQuota": self.nominal_cpu.to_string(),
            "borrowingLimit": self.borrowing_cpu.to_string(),
        });
        for queue in 0..self.queues() {
            let name = queue_name(queue);
            let mut cluster_queue = kueue_object("ClusterQueue", &name);
            cluster_queue["spec"] = json!({
                "namespaceSelector": {},
                "queueingStrategy": "BestEffortFIFO",
                "cohortName": format!("cohort-{}", queue / self.queues_per_cohort),
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                "resourceGroups": [
                    {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [cpu]}]},
                ],
            });
            let mut local = kueue_object("LocalQueue", &name);
            local["metadata"]["namespace"] = "default".into();
            local["spec"] = json!({"clusterQueue": name});
            all.extend([cluster_queue, local]);
        }
        all
    }

    /// All requests by the millisecond at which they are due.
    pub(super) fn schedule(&self) -> BTreeMap<u64, Vec<Bulk>> {
        let mut due: BTreeMap<u64, Vec<Submission>> = BTreeMap::new();
        for one in self.submissions() {
            due.entry(one.due_ms).or_default().push(one);
        }
        let request =
            |jobs: &[Submission]| jobs.iter().map(|one| job(&self.classes[one.class], *one)).collect();
        due.into_iter().map(|(at, jobs)| (at, jobs.chunks(REQUEST_JOBS_MAX).map(request).collect())).collect()
    }

    /// Every workload. The interval of a class is waited before each submission, also the first one.
    pub(super) fn submissions(&self) -> impl Iterator<Item = Submission> + '_ {
        let classes = self.classes.iter().enumerate();
        classes.flat_map(move |(index, class)| {
            (0..class.count).flat_map(move |number| {
                (0..self.queues()).map(move |queue| Submission {
                    due_ms: (number + 1) * class.every_ms,
                    class: index,
                    queue,
                    number,
                })
            })
        })
    }
}

fn queue_name(queue: u64) -> String {
    format!("queue-{queue}")
}

pub(super) fn job_name(class: &Class, one: Submission) -> String {
    format!("{}-{}-{}", class.name, one.queue, one.number)
}

pub(super) fn job(class: &Class, one: Submission) -> Value {
    let requests = json!({"cpu": class.cpu.to_string()});
    let container = json!({
        "name": "main", "image": "registry.example/none",
        "resources": {"requests": requests.clone(), "limits": requests},
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(class, one), "namespace": "default",
            "labels": {QUEUE_LABEL: queue_name(one.queue), PRIORITY_LABEL: class.name},
            "annotations": {SIMULATED_DURATION: format!("{}ms", class.run_ms)},
        },
        "spec": {
            "parallelism": 1, "completions": 1, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    })
}

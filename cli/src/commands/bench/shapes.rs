//! The submitted jobs: distinct, about 2 KB each, in many shapes, from a seed.
//!
//! One repeated job would measure a cache: equivalent workloads share a class. Here nearly every job has its
//! own class, as if every user tuned their requests.

use meridian_objects::job::{PRIORITY_LABEL, QUEUE_LABEL, SIMULATED_DURATION};
use meridian_shared::backoff::splitmix;
use serde_json::{Map, Value, json};

/// Tenants, each with a cluster queue and a local queue.
pub(super) const QUEUES: u64 = 4;
const PRIORITIES: [(&str, i32); 3] = [("low", 10), ("normal", 100), ("high", 1_000)];
const PODS: [u64; 8] = [1, 1, 1, 2, 2, 4, 4, 8];
const GPUS: [u64; 6] = [0, 1, 1, 2, 4, 8];
/// Jobs in the sample that the mean size is taken from.
const SAMPLE: u64 = 1_000;

/// Seeded random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix(self.0) % sides
    }

    fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("less than the length of a slice")]
    }

    fn word(&mut self) -> String {
        format!("{:x}", splitmix(self.below(u64::MAX)))
    }
}

/// Job `number` of a run, named by `prefix`. It runs for `duration` of simulated time, such as `2s`.
pub(super) fn job(seed: u64, prefix: &str, number: u64, duration: &str) -> Value {
    let mut dice = Dice(splitmix(seed ^ splitmix(number)));
    let pods = dice.choose(&PODS);
    let gpus = dice.choose(&GPUS);
    let (priority, _) = dice.choose(&PRIORITIES);
    let queue = dice.below(QUEUES);
    let cpu = format!("{}m", 100 * (1 + dice.below(40)));
    let memory = format!("{}Mi", 64 * (1 + dice.below(128)));
    let mut requests = json!({"cpu": cpu, "memory": memory});
    if gpus > 0 {
        requests["nvidia.com/gpu"] = gpus.to_string().into();
    }
    let environment: Vec<Value> = (0..8 + dice.below(12))
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": dice.word()}))
        .collect();
    let mut arguments = vec![json!("train.py")];
    for _ in 0..4 + dice.below(12) {
        arguments.push(format!("--{}={}", &dice.word()[..6], dice.word()).into());
    }
    let mut labels: Map<String, Value> =
        (0..2 + dice.below(4)).map(|i| (format!("team.example/label-{i}"), dice.word().into())).collect();
    labels.insert(QUEUE_LABEL.into(), format!("tenant-{queue}").into());
    labels.insert(PRIORITY_LABEL.into(), priority.into());
    let annotations = json!({
        SIMULATED_DURATION: duration,
        "team.example/experiment": dice.word(),
        "team.example/owner": dice.word(),
    });
    let backoff_limit = dice.below(7);
    let container = json!({
        "name": "main", "image": format!("registry.example/team/train:{}", dice.word()),
        "command": ["python3"], "args": arguments, "env": environment,
        "resources": {"requests": requests.clone(), "limits": requests},
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": format!("{prefix}-{number:07}"), "namespace": "default", "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "backoffLimit": backoff_limit, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    })
}

/// Mean size of these jobs as they are sent.
pub(super) fn mean_bytes(seed: u64) -> u64 {
    (0..SAMPLE).map(|n| job(seed, "mean", n, "1s").to_string().len() as u64).sum::<u64>() / SAMPLE
}

/// An object of Kueue's API without spec.
pub(super) fn kueue_object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}})
}

/// The tenants' queues. If `open`, every job fits the quota; else most jobs stay pending.
pub(super) fn queues(open: bool) -> Vec<Value> {
    let amount = |much: &str| if open { much.to_owned() } else { "1".to_owned() };
    let mut all = vec![kueue_object("ResourceFlavor", "plain")];
    for (name, value) in PRIORITIES {
        let mut class = kueue_object("WorkloadPriorityClass", name);
        class["value"] = value.into();
        all.push(class);
    }
    for tenant in 0..QUEUES {
        let name = format!("tenant-{tenant}");
        let resources: Vec<Value> =
            [("cpu", "1000000"), ("memory", "10000Ti"), ("nvidia.com/gpu", "1000000")]
                .map(|(resource, much)| json!({"name": resource, "nominalQuota": amount(much)}))
                .to_vec();
        let mut queue = kueue_object("ClusterQueue", &name);
        queue["spec"] = json!({
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [{
                "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
                "flavors": [{"name": "plain", "resources": resources}],
            }],
        });
        let mut local = kueue_object("LocalQueue", &name);
        local["metadata"]["namespace"] = "default".into();
        local["spec"] = json!({"clusterQueue": name});
        all.extend([queue, local]);
    }
    all
}

/// Three regions of 2,000 machines with eight GPUs each: more than the bench can fill, so that capacity isn't
/// the bound.
pub(super) const FLEET: &str = "\
clusters:
- cluster: eu
  region: europe-west4
  jurisdiction: EU
  nodes: [&a {namePrefix: n, count: 2000, cpu: 128, memory: 1024Gi, accelerators: {nvidia.com/gpu: 8}}]
- {cluster: us, region: us-east4, jurisdiction: US, nodes: [*a]}
- {cluster: asia, region: asia-southeast1, jurisdiction: SG, nodes: [*a]}
";

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::Object;
    use std::collections::BTreeSet;

    #[test]
    fn jobs_are_distinct_valid_and_about_two_kilobytes() {
        let jobs: Vec<Value> = (0..500).map(|n| job(1, "run", n, "2s")).collect();
        let distinct: BTreeSet<String> = jobs
            .iter()
            .map(|job| job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].to_string())
            .collect();
        assert!(distinct.len() > 450, "{} kinds of requests", distinct.len());
        assert!((1_600..2_600).contains(&mean_bytes(1)), "{}", mean_bytes(1));
        assert_eq!(job(1, "run", 7, "2s"), jobs[7]);
        for job in jobs.into_iter().chain(queues(true)).chain(queues(false)) {
            let (_, warnings) =
                Object::from_value(job.clone()).unwrap_or_else(|errors| panic!("{errors:?} in {job}"));
            assert!(warnings.is_empty(), "{warnings:?} in {job}");
        }
    }

    #[test]
    fn the_fleet_file_is_valid() {
        assert_eq!(
            meridian_agent::inventory::fleet::parse("fleet.yaml", FLEET)
                .unwrap()
                .iter()
                .map(|c| c.nodes.len())
                .sum::<usize>(),
            6_000
        );
    }
}

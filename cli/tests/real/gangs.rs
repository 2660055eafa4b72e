//! The gangs that tests submit, and what they leave behind: locks, proofs of overlapping runs, and marks of
//! finished runs.
//!
//! A gang's command first locks a file of its pod. The lock is held until the last process that inherited it
//! has ended, so a failed lock proves that two runs of one workload overlap.

use meridian_shared::backoff::splitmix;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Path of the jobs in the API.
pub(super) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// The clusters' nodes.
pub(super) const FLEET: &str = "\
clusters:
- cluster: eu
  region: europe-west4
  jurisdiction: EU
  nodes: [{namePrefix: n, count: 2, cpu: 8, memory: 32Gi}]
- {cluster: us, region: us-east4, jurisdiction: US, nodes: [{namePrefix: n, count: 4, cpu: 4, memory: 16Gi}]}
- {cluster: asia, region: asia-southeast1, jurisdiction: SG, nodes: [{name: big, cpu: 16, memory: 64Gi}]}
";
/// A quota below the clusters' capacity, so that both are contended.
pub(super) const QUEUE: &str = "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: small}
spec:
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: plain
      resources:
      - {name: cpu, nominalQuota: 40}
      - {name: memory, nominalQuota: 100Gi}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: small, namespace: default}
spec: {clusterQueue: small}
";
/// What each pod runs. `$0` is the directory of proofs, `$1` the duration in seconds.
const COMMAND: &str = r#"
me="$MERIDIAN_JOB.$MERIDIAN_POD_INDEX"
exec 9>>"$0/lock/$me" || exit 3
flock --nonblock 9 || { echo "$me by fence $MERIDIAN_FENCE in $MERIDIAN_CLUSTER" >>"$0/overlap"; exit 4; }
sleep "$1"
echo "$MERIDIAN_FENCE" >>"$0/done/$me"
"#;

/// Seeded random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Each purpose has its own sequence, so that a new draw for one purpose doesn't change the others.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        Self(splitmix(seed ^ splitmix(purpose)))
    }

    /// A number from 0 to `sides - 1`.
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix(self.0) % sides
    }

    /// A number from `low` to `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

pub(super) fn name(number: usize) -> String {
    format!("gang-{number:04}")
}

/// One gang in four has two pods.
pub(super) fn pods(number: usize) -> usize {
    if number % 4 == 3 { 2 } else { 1 }
}

/// The job of gang `number`: most end soon, some outlive a restart, a few outlive a lease term.
pub(super) fn job(number: usize, seed: u64, proofs: &Path) -> Value {
    let mut dice = Dice::new(seed, 1_000 + number as u64);
    let millis = match dice.below(100) {
        0..=74 => dice.between(50, 500),
        75..=92 => dice.between(1_000, 4_000),
        _ => dice.between(9_000, 13_000),
    };
    lasting(number, millis, proofs)
}

/// The job of gang `number` with this duration.
pub(super) fn lasting(number: usize, millis: u64, proofs: &Path) -> Value {
    let length = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    let pods = pods(number);
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name(number), "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "small"},
        },
        "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "backoffLimit": 0, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{
                "name": "main",
                "command": ["sh", "-c", COMMAND, proofs, length],
                "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
            }]}},
        },
    })
}

/// Creates the directories that the commands write to.
pub(super) fn prepare(proofs: &Path) {
    for below in ["lock", "done"] {
        std::fs::create_dir_all(proofs.join(below)).unwrap();
    }
}

/// Which runs overlapped; empty if none did.
pub(super) fn overlaps(proofs: &Path) -> String {
    std::fs::read_to_string(proofs.join("overlap")).unwrap_or_default()
}

/// How often each pod of `number` ran to its end.
pub(super) fn ends(proofs: &Path, number: usize) -> BTreeMap<usize, usize> {
    let of = |pod: usize| {
        std::fs::read_to_string(proofs.join("done").join(format!("{}.{pod}", name(number))))
            .unwrap_or_default()
            .lines()
            .count()
    };
    (0..pods(number)).map(|pod| (pod, of(pod))).collect()
}

#[test]
fn overlapping_runs_are_found_and_sequential_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    let start = |length: &str| {
        let mut command = std::process::Command::new("sh");
        command
            .current_dir(dir.path())
            .args(["-c", COMMAND])
            .arg(dir.path())
            .arg(length)
            .env("MERIDIAN_JOB", name(0))
            .env("MERIDIAN_POD_INDEX", "0")
            .env("MERIDIAN_FENCE", "1-2-3");
        command.spawn().unwrap()
    };
    let mut first = start("30");
    // The command sleeps only while it holds the lock. The test looks for the sleep, because testing the lock
    // would take it.
    let sleeps = || super::processes::of(dir.path()).iter().any(|p| p.name == "sleep");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !sleeps() {
        assert!(std::time::Instant::now() < end);
        std::thread::yield_now();
    }
    assert_eq!(start("0").wait().unwrap().code(), Some(4));
    assert_eq!(overlaps(dir.path()).lines().count(), 1);
    // Only the shell ends: its `sleep` keeps the lock, like a run that was stopped by half.
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(start("0").wait().unwrap().code(), Some(4));
    super::processes::end_all(dir.path());
    assert!(start("0").wait().unwrap().success());
    assert_eq!(ends(dir.path(), 0), BTreeMap::from([(0, 1)]));
}

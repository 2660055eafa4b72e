//! The small world that every configuration starts from: a queue, two clusters of one node each, and one job,
//! which fills a node.
//!
//! The numbers are chosen so that every threshold is reached at another step. With a term of 16 s and steps
//! of 4 s, the claim (2 s), the resend and the back-off pass within one step, and the time without an answer
//! after two; the agent begins to stop after three, its lease lapses after four, and the manager may call it
//! lapsed (17.016 s) after five. The first cluster's clock runs slow by the whole bound of 0.1 %, the worst
//! case for both sides' arithmetic.

use crate::canonical_hash::RECORDS;
use meridian_agent_core::runtime::NodeSpec;
use meridian_agent_core::{Config as AgentConfig, HoldSettings};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Bodies;
use meridian_manager_core::{Config as ManagerConfig, Start, World};
use meridian_objects::{Kind, Object};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{ClusterName, ContentHash, JournalId, RecordNumber, Uid};
use meridian_shared::lease;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::RunnerKind;
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde_json::{Value, json};
use std::sync::Arc;

/// Length of one step of time.
pub const STEP: Millis = Millis::secs(4);
/// Term of every lease.
pub const TERM: Millis = Millis::secs(16);
/// Uid of the only workload.
pub const UID: Uid = Uid(7);
/// Number of clusters.
pub const CLUSTERS: usize = 2;

/// Boot time of every machine when the model starts; it isn't zero, so that nothing can rely on zero.
const BOOTED: u64 = 1_000_000;
const NAMES: [&str; CLUSTERS] = ["a", "b"];

/// The name of a cluster.
pub fn cluster(index: usize) -> ClusterName {
    ClusterName::new(NAMES[index])
}

/// The index of a cluster.
pub fn index(name: &ClusterName) -> usize {
    NAMES.iter().position(|n| *n == name.as_str()).expect("the model knows its clusters")
}

/// The manager's clocks after `steps`.
pub fn manager_now(steps: u64) -> Now {
    reading(steps * STEP.0)
}

/// A cluster's clocks after `steps`: the first one's run slow by the whole bound.
pub fn host_now(index: usize, steps: u64) -> Now {
    let real = steps * STEP.0;
    reading(if index == 0 { real - real / 1_000 } else { real })
}

fn reading(elapsed: u64) -> Now {
    let mono = BOOTED + elapsed;
    Now { mono: Mono(mono), wall: Wall(i64::try_from(mono).expect("small")) }
}

/// Whether a manager that has been down for `steps` may lead without the short cut: claim plus drift have
/// passed.
pub fn waited(steps: u64) -> bool {
    let claim = lease::claim(TERM);
    steps * STEP.0 >= (claim + lease::drift(claim)).0
}

/// Whether a lease may be called lapsed `steps` after the last answer that carried it: a term and the drift
/// bound have passed.
pub fn lapsed(steps: u64) -> bool {
    steps * STEP.0 >= TERM.0 + TERM.0.div_ceil(1_000) + 1_000
}

/// The configuration of a cluster's agent.
pub fn agent_config(index: usize, planted: Planted) -> AgentConfig {
    AgentConfig {
        cluster: cluster(index),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait: Millis(0),
        holds: HoldSettings::default(),
        managed: ManagedResources::default(),
        planted,
    }
}

/// The nodes of a cluster: one with four accelerators.
pub fn nodes() -> Vec<NodeSpec> {
    let capacity = Amounts::from([("cpu".into(), 64_000), ("nvidia.com/gpu".into(), 4)]);
    vec![NodeSpec { name: "n".into(), capacity, ..NodeSpec::default() }]
}

/// The body of the only job, for every hash.
#[derive(Debug)]
pub struct OneBody;

impl Bodies for OneBody {
    fn body(&self, _: ContentHash) -> Option<Arc<str>> {
        Some(Arc::from("{}"))
    }
}

/// The world of a manager that leads a fresh journal, with its objects applied.
pub fn world(race: bool, planted: Planted) -> World {
    let config = ManagerConfig {
        term_min: TERM,
        term: TERM,
        hold: Millis::secs(8),
        starvation_guard: None,
        planted,
        ..ManagerConfig::new(ReceiptKey([7; 32]))
    };
    let mut world = World::after(JournalId(1), RecordNumber(RECORDS), config);
    let now = manager_now(0);
    world.lead(Start { id: 1_000, recovery: None, fresh: true, now }, &OneBody);
    let outcome = world.apply(now, write(objects(race).into_iter().map(put).collect()), &OneBody);
    assert!(!outcome.records.is_empty(), "the objects are refused: {:?}", outcome.reply);
    world.apply(now, Input::Turn, &OneBody);
    world.committed(now.mono);
    world
}

/// The input that submits the job.
pub fn submit() -> Input {
    write(vec![put(job())])
}

/// The input that deletes the job.
pub fn delete() -> Input {
    write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "j"), uid: None, force: false }])
}

fn write(changes: Vec<Change>) -> Input {
    Input::Write(Box::new(Write::new(Actor::user("u"), changes, false)))
}

fn put(value: Value) -> Change {
    let (object, _) = Object::from_value(value).expect("the model's objects are valid");
    Change::Put { object: Box::new(object), scope: None, uid: UID, mode: PutMode::Create }
}

fn objects(race: bool) -> Vec<Value> {
    let quota = json!([{"name": "nvidia.com/gpu", "nominalQuota": 8}, {"name": "cpu", "nominalQuota": 128}]);
    let mut objects = vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "f"}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"},
            "spec": {"namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu", "cpu"],
                "flavors": [{"name": "f", "resources": quota}]}]}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
            "metadata": {"name": "l", "namespace": "default"}, "spec": {"clusterQueue": "q"}}),
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "p"},
            "spec": {"applies": {"queues": ["*"]}, "mode": if race { "Race" } else { "Direct" },
            "onClusterLoss": {"mode": "Fence", "term": "16s", "requires": "Supervised"}}}),
    ];
    for name in NAMES {
        objects.push(
            json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"region": format!("region-{name}"), "jurisdiction": "EU"}}),
        );
    }
    objects
}

fn job() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "l"}},
        "spec": {"parallelism": 1, "completions": 1, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"nvidia.com/gpu": 3, "cpu": "1"},
                    "limits": {"nvidia.com/gpu": 3}}}]}}}})
}

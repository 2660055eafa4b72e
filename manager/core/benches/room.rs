//! How long it takes to find who gives way for room: quota is free, and the cluster is full.
//!
//! `cargo bench -p meridian-manager-core --bench room`. A thousand nodes of eight accelerators are full of jobs with one each; a
//! gang of a hundred pods that need a whole node each comes with a higher priority.

#[path = "fleet/world.rs"]
mod fleet;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fleet::{GPU, Store, agent, manager, now, talk, write};
use meridian_manager_core::World;
use meridian_manager_core::input::Input;
use meridian_shared::ids::Uid;
use serde_json::{Value, json};

const NODES: u32 = 1_000;
const PODS: u32 = 100;
const BATCH: u32 = 1_000;

fn job(name: &str, pods: u32, gpus: u32, class: &str) -> Value {
    let asks = json!({GPU: gpus});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": class}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}]}}},
    })
}

/// A cluster that is full of small jobs, in a queue with twice the quota.
fn full() -> World {
    let class =
        |name: &str, value: i32| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 16 * NODES}]}]}]}});
    let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"}});
    let mut world = manager(vec![class("low", 1), class("high", 9), queue, local]);
    let mut agent = agent(NODES);
    talk(&mut world, &mut agent);
    for batch in 0..8 * NODES / BATCH {
        let small = (batch * BATCH..(batch + 1) * BATCH).map(|at| (u128::from(10_000 + at), job(&format!("small-{at}"), 1, 1, "low")));
        write(&mut world, small.collect());
        for _ in 0..4 {
            world.apply(now(), Input::Turn, &Store);
            talk(&mut world, &mut agent);
        }
    }
    world
}

fn room(c: &mut Criterion) {
    let mut group = c.benchmark_group("room");
    group.sample_size(10);
    let mut world = full();
    write(&mut world, vec![(1, job("gang", PODS, 8, "high"))]);
    let decide = |world: &mut World| world.apply(now(), Input::Turn, &Store).records.len();
    let mut once = world.clone();
    decide(&mut once);
    eprintln!("{}", once.explain(Uid(1), now()).expect("it waits")["summary"]);
    group.bench_function("a-gang-of-100-nodes-among-8000-jobs", |b| b.iter_batched_ref(|| world.clone(), decide, BatchSize::LargeInput));
    group.finish();
}

criterion_group!(benches, room);
criterion_main!(benches);

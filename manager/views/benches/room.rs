//! How long it takes to find the victims of a preemption for capacity: quota is free, and the cluster is
//! full.
//!
//! `cargo bench -p meridian-views --bench room`. A thousand nodes with eight accelerators each are full of
//! one-accelerator jobs. Then a gang with a higher priority comes: a hundred pods that need a whole node
//! each, or as many as a rack has nodes, all in one rack. Or the gang reclaims its queue's own quota, which
//! the running jobs borrow: then both quota and nodes have to be freed.

#[path = "fleet/world.rs"]
mod fleet;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fleet::{GPU, Store, agent, manager, now, talk, write};
use meridian_agent_core::runtime::NodeSpec;
use meridian_manager_core::World;
use meridian_manager_core::facts::input::Input;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::Uid;
use serde_json::{Value, json};

const NODES: u32 = 1_000;
const PODS: u32 = 100;
const BATCH: u32 = 1_000;
const RACK: &str = "cloud.provider.com/topology-rack";
const HOST: &str = "kubernetes.io/hostname";
const RACK_NODES: u32 = 16;

fn job(name: &str, pods: u32, gpus: u32, class: &str) -> Value {
    job_of("lq", name, pods, gpus, class)
}

fn job_of(queue: &str, name: &str, pods: u32, gpus: u32, class: &str) -> Value {
    let requests = json!({GPU: gpus});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue,
            "kueue.x-k8s.io/priority-class": class}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"restartPolicy": "Never",
            "containers": [
            {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}]}}},
    })
}

/// Two queues of one cohort. The gang's queue has just the quota that the gang needs, and the other one all
/// the rest; the other one borrows everything.
fn cohort_queues() -> Vec<Value> {
    let queue = |name: &str, nominal: u32| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {
        "namespaceSelector": {}, "cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any",
            "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}})
    };
    let local = |name: &str, queue: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterQueue": queue}})
    };
    vec![
        queue("owner", 8 * PODS),
        queue("others", 8 * (NODES - PODS)),
        local("owners", "owner"),
        local("borrowers", "others"),
    ]
}

/// A cluster full of small jobs. `rack` is the number of nodes per rack, if there is a topology; `borrowed`
/// means that the jobs borrow the gang's quota.
fn full(rack: Option<u32>, borrowed: bool) -> World {
    let class = |name: &str, value: i32| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
    };
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any",
            "resources": [{"name": GPU, "nominalQuota": 16 * NODES}]}]}]}});
    let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"}});
    let queues = if borrowed { cohort_queues() } else { vec![queue, local] };
    let mut world = manager([class("low", 1), class("high", 9)].into_iter().chain(queues).collect());
    let small_queue = if borrowed { "borrowers" } else { "lq" };
    let mut agent = agent(NODES);
    if let Some(size) = rack {
        let label = |key: &str, value: String| (key.to_owned(), value);
        let labels = |at: u32| {
            [
                label("pool", "a".into()),
                label(RACK, format!("r{}", at % (NODES / size))),
                label(HOST, format!("n{at}")),
            ]
            .into()
        };
        let capacity = || Amounts::from([(GPU.into(), 8), ("cpu".into(), 64_000)]);
        let node = |at: u32| NodeSpec {
            name: format!("n{at}"),
            capacity: capacity(),
            labels: labels(at),
            ..NodeSpec::default()
        };
        agent.apply(
            now(),
            meridian_agent_core::Input::Nodes { nodes: (0..NODES).map(node).collect(), pools: Vec::new() },
        );
        let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": HOST}]);
        let topology = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology",
            "metadata": {"name": "racks"}, "spec": {"levels": levels}});
        let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
            "metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "a"}, "topologyName": "racks"}});
        write(&mut world, vec![(900, topology), (901, flavor)]);
    }
    talk(&mut world, &mut agent);
    for batch in 0..8 * NODES / BATCH {
        let small = (batch * BATCH..(batch + 1) * BATCH)
            .map(|at| (u128::from(10_000 + at), job_of(small_queue, &format!("small-{at}"), 1, 1, "low")));
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
    let mut in_one_rack = job("gang", RACK_NODES, 8, "high");
    in_one_rack["spec"]["template"]["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
    for (name, rack, gang, borrowed) in [
        ("a-gang-of-100-nodes-among-8000-jobs", None, job("gang", PODS, 8, "high"), false),
        ("a-gang-of-one-rack-of-16-nodes-among-8000-jobs", Some(RACK_NODES), in_one_rack, false),
        (
            "a-gang-of-100-nodes-reclaims-its-quota-from-8000-borrowers",
            None,
            job_of("owners", "gang", PODS, 8, "low"),
            true,
        ),
    ] {
        let mut world = full(rack, borrowed);
        write(&mut world, vec![(1, gang)]);
        let schedule = |world: &mut World| world.apply(now(), Input::Turn, &Store).records.len();
        let mut once = world.clone();
        schedule(&mut once);
        eprintln!(
            "{}",
            meridian_views::explain::explain(
                &once,
                Uid(1),
                now(),
                &meridian_views::asker::Asker::unlimited()
            )
            .expect("it is pending")["summary"]
        );
        group.bench_function(name, |b| b.iter_batched_ref(|| world.clone(), schedule, BatchSize::LargeInput));
    }
    group.finish();
}

criterion_group!(benches, room);
criterion_main!(benches);

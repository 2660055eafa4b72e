//! How long it takes to find who gives way for room: quota is free, and the cluster is full.
//!
//! `cargo bench -p meridian-manager-core --bench room`. A thousand nodes of eight accelerators are full of jobs with one each; a
//! gang of a hundred pods that need a whole node each comes with a higher priority, or one of as many as a rack has nodes, all in one,
//! where those of every rack are as old as those of any other. Or it takes back its queue's own quota, which those who run borrow:
//! then both have to come free, the quota and the nodes.

#[path = "fleet/world.rs"]
mod fleet;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fleet::{GPU, Store, agent, manager, now, talk, write};
use meridian_agent_core::ledger::NodeSpec;
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
    let asks = json!({GPU: gpus});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": class}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}]}}},
    })
}

/// Two queues of one cohort: what the gang asks for is its queue's own, all else is the other's, which uses both.
fn lent() -> Vec<Value> {
    let queue = |name: &str, nominal: u32| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
        "namespaceSelector": {}, "cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}})
    };
    let local = |name: &str, queue: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": queue}});
    vec![
        queue("owner", 8 * PODS),
        queue("others", 8 * (NODES - PODS)),
        local("owners", "owner"),
        local("borrowers", "others"),
    ]
}

/// A cluster that is full of small jobs, in a queue with twice the quota; its nodes in racks where so many make one.
fn full(rack: Option<u32>, borrowed: bool) -> World {
    let class = |name: &str, value: i32| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 16 * NODES}]}]}]}});
    let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"}});
    let queues = if borrowed { lent() } else { vec![queue, local] };
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
        let topology = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}});
        let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "a"}, "topologyName": "racks"}});
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
    let mut near = job("gang", RACK_NODES, 8, "high");
    near["spec"]["template"]["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
    for (name, rack, gang, borrowed) in [
        ("a-gang-of-100-nodes-among-8000-jobs", None, job("gang", PODS, 8, "high"), false),
        ("a-gang-of-one-rack-of-16-nodes-among-8000-jobs", Some(RACK_NODES), near, false),
        (
            "a-gang-of-100-nodes-reclaims-its-quota-from-8000-borrowers",
            None,
            job_of("owners", "gang", PODS, 8, "low"),
            true,
        ),
    ] {
        let mut world = full(rack, borrowed);
        write(&mut world, vec![(1, gang)]);
        let decide = |world: &mut World| world.apply(now(), Input::Turn, &Store).records.len();
        let mut once = world.clone();
        decide(&mut once);
        eprintln!("{}", once.explain(Uid(1), now()).expect("it waits")["summary"]);
        group.bench_function(name, |b| b.iter_batched_ref(|| world.clone(), decide, BatchSize::LargeInput));
    }
    group.finish();
}

criterion_group!(benches, room);
criterion_main!(benches);

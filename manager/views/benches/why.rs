//! How long one explanation takes with a million pending workloads. It runs on the engine's thread, so
//! nothing else happens meanwhile.
//!
//! `cargo bench -p meridian-views`. All workloads are in one queue, or in a thousand queues of a hundred
//! cohorts. The first, the middle and the last one are explained.

#[path = "fleet/world.rs"]
mod fleet;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fleet::{GPU, Store, agent, manager, now, talk, write};
use meridian_manager_core::World;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_manager_core::facts::submission::Submission;
use meridian_objects::Object;
use meridian_shared::ids::Uid;
use serde_json::{Value, json};
use std::sync::Arc;

const WAITING: u32 = 1_000_000;
const CLASSES: u32 = 10_000;
const BATCH: u32 = 1_000;

fn job(name: &str, queue: u32, gpus: u32, class: u32) -> Value {
    let requests = json!({GPU: gpus, "cpu": format!("{}m", class + 1)});
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": format!("q{queue}")}},
        "spec": {"parallelism": 1, "completions": 1, "template": {"spec": {"restartPolicy": "Never",
            "containers": [
            {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}]}}},
    })
}

fn cluster_queue(number: u32, cohorts: u32, stop_policy: &str) -> Value {
    let resources = json!([{"name": GPU, "nominalQuota": 8}, {"name": "cpu", "nominalQuota": 1_000}]);
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": format!("cq{number}")}, "spec": {
        "namespaceSelector": {}, "cohortName": format!("cohort-{}", number % cohorts),
            "stopPolicy": stop_policy,
        "resourceGroups": [{"coveredResources": [GPU, "cpu"], "flavors": [{"name": "any",
            "resources": resources}]}]}})
}

/// A manager with queues, all of them in cohorts.
fn fleet(queues: u32, cohorts: u32) -> World {
    let mut objects = Vec::new();
    for queue in 0..queues {
        objects.push(cluster_queue(queue, cohorts, "None"));
        objects.push(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": format!("q{queue}"), "namespace": "default"},
            "spec": {"clusterQueue": format!("cq{queue}")}}));
    }
    manager(objects)
}

/// A fleet with all quota in use and a million pending workloads, and these workloads.
fn full(queues: u32, cohorts: u32) -> (World, Vec<Uid>) {
    let mut world = fleet(queues, cohorts);
    let mut agent = agent(queues);
    talk(&mut world, &mut agent);
    let holders = (0..queues)
        .map(|queue| (1_000_000_000 + u128::from(queue), job(&format!("holds-{queue}"), queue, 8, 0)))
        .collect();
    write(&mut world, holders);
    world.apply(now(), Input::Turn, &Store);
    talk(&mut world, &mut agent);
    let submissions: Vec<(Uid, Submission)> =
        (0..CLASSES / BATCH).flat_map(|batch| submit_one_of_each(&mut world, batch, queues)).collect();
    let mut all: Vec<Uid> = submissions.iter().map(|(uid, _)| *uid).collect();
    // The others are added as records, as a journal replays them.
    for (at, (_, one)) in (CLASSES..WAITING).zip(submissions.iter().cycle()) {
        let uid = Uid(10_000 + u128::from(at));
        let one = Submission { name: Arc::from(format!("waits-{at}")), ..one.clone() };
        all.push(uid);
        world.absorb(
            world.state().last().next(),
            &Record::Workload { uid, fact: WorkloadFact::Submitted(Box::new(one)) },
        );
    }
    world.apply(now(), Input::Turn, &Store);
    (world, all)
}

/// Submits one workload of each class of a batch through the API.
fn submit_one_of_each(world: &mut World, batch: u32, queues: u32) -> Vec<(Uid, Submission)> {
    let changes = (batch * BATCH..(batch + 1) * BATCH).map(|at| {
        let object = Object::from_value(job(&format!("waits-{at}"), at % queues, 1, at))
            .expect("the bench's own objects are right")
            .0;
        Change::Put {
            object: Box::new(object),
            scope: None,
            uid: Uid(10_000 + u128::from(at)),
            mode: PutMode::Apply,
        }
    });
    let write = Write::new(Actor::user("bench"), changes.collect(), false);
    let records = world.apply(now(), Input::Write(Box::new(write)), &Store).records;
    let submitted = records.into_iter().filter_map(|(_, record)| match record {
        Record::Workload { uid, fact: WorkloadFact::Submitted(one) } => Some((uid, *one)),
        _ => None,
    });
    submitted.collect()
}

fn why(c: &mut Criterion) {
    let mut group = c.benchmark_group("why-with-1000000-waiting");
    group.sample_size(20);
    for (name, queues, cohorts) in [("one-queue", 1, 1), ("1000-queues", 1_000, 100)] {
        let (mut world, all) = full(queues, cohorts);
        let mut explain = |world: &World, name: &str| {
            for (position, at) in [("first", 0), ("middle", all.len() / 2), ("last", all.len() - 1)] {
                let uid = all[at];
                eprintln!(
                    "{name}, {position}: {}",
                    meridian_views::explain::explain(
                        world,
                        uid,
                        now(),
                        &meridian_views::asker::Asker::unlimited()
                    )
                    .expect("it is pending")["summary"]
                );
                group.bench_function(BenchmarkId::new(name, position), |b| {
                    b.iter(|| {
                        meridian_views::explain::explain(
                            world,
                            uid,
                            now(),
                            &meridian_views::asker::Asker::unlimited(),
                        )
                    })
                });
            }
        };
        explain(&world, name);
        write(
            &mut world,
            (0..queues).map(|queue| (u128::from(queue), cluster_queue(queue, cohorts, "Hold"))).collect(),
        );
        world.apply(now(), Input::Turn, &Store);
        explain(&world, &format!("{name}-on-hold"));
    }
    group.finish();
}

criterion_group!(benches, why);
criterion_main!(benches);

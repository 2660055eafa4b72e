//! Pure decisions: admissions per second, a round after one change, victims for a large gang.
//!
//! `cargo bench -p meridian-queueing`. What is measured is the decision alone: no journal, no API.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use meridian_queueing::model::{
    Displaces, Flavor, Given, Group, PodSet, Preemption, QueueId, QueueSetup, Shape, ShapeId, WorkloadId,
};
use meridian_queueing::names::FlavorId;
use meridian_queueing::places::Anywhere;
use meridian_queueing::settings::{FairSharing, Settings};
use meridian_queueing::tree::{Quota, Quotas};
use meridian_queueing::{Amount, Brain, NewWorkload};
use std::collections::BTreeMap;
use std::sync::Arc;

const FLAVORS: usize = 3;

struct Load {
    brain: Brain,
    queues: Vec<QueueId>,
    flavors: Vec<FlavorId>,
    made: u32,
}

impl Load {
    /// Queues in cohorts, three flavors each; everybody may reclaim, and preempt within the queue.
    fn new(cohorts: usize, queues: usize, nominal: i64) -> Self {
        let mut brain = Brain::new(Settings {
            fair_sharing: Some(FairSharing::default()),
            brief: true,
            ..Settings::default()
        });
        let (gpu, cpu) = (brain.resource("nvidia.com/gpu"), brain.resource("cpu"));
        let flavors: Vec<FlavorId> = (0..FLAVORS).map(|f| brain.flavor_id(&format!("flavor-{f}"))).collect();
        for flavor in &flavors {
            brain.set_flavor(*flavor, Some(Flavor::default()));
        }
        let setup = |at: usize| {
            let mut quotas = Quotas::new();
            for flavor in &flavors {
                quotas.insert((*flavor, gpu), Quota { nominal: Amount(nominal), ..Quota::default() });
                quotas.insert((*flavor, cpu), Quota { nominal: Amount(nominal * 1000), ..Quota::default() });
            }
            QueueSetup {
                name: Arc::from(format!("queue-{at}")),
                cohort: Some(Arc::from(format!("cohort-{}", at % cohorts))),
                groups: vec![Group { resources: vec![cpu, gpu], flavors: flavors.clone() }],
                quotas,
                preemption: Preemption {
                    within_queue: Displaces::LowerPriority,
                    reclaim_within_cohort: Displaces::Any,
                    ..Preemption::default()
                },
                ..QueueSetup::default()
            }
        };
        brain.configure(&BTreeMap::new(), (0..queues).map(setup).collect());
        let ids = (0..queues).map(|at| brain.queue_id(&format!("queue-{at}")).unwrap()).collect();
        Self { brain, queues: ids, flavors, made: 0 }
    }

    fn shape(&mut self, gpus: i64, pods: u32, priority: i64, tag: u64) -> ShapeId {
        let amounts = BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus), ("cpu".to_owned(), 1000)]);
        let per_pod = self.brain.requests(&amounts);
        let set =
            PodSet { name: Arc::from("main"), count: pods, per_pod, on_node: amounts, ..PodSet::default() };
        self.brain.intern(Shape { pod_sets: vec![set], priority, tag, ..Shape::default() })
    }

    fn workload(&mut self, queue: usize, shape: ShapeId) -> NewWorkload {
        self.made += 1;
        NewWorkload {
            key: Arc::from(format!("team/w-{}", self.made)),
            uid: Arc::from(format!("{:08}", self.made)),
            queue: self.queues[queue],
            local_queue: Arc::from("team/local"),
            shape,
            since: i64::from(self.made),
            marks: None,
        }
    }

    fn wait(&mut self, queue: usize, shape: ShapeId) -> WorkloadId {
        let new = self.workload(queue, shape);
        self.brain.wait(new)
    }

    fn hold(&mut self, queue: usize, shape: ShapeId, flavor: usize) -> WorkloadId {
        let new = self.workload(queue, shape);
        let set = &self.brain.shape_of(shape).pod_sets[0];
        let given = Given {
            flavors: set.per_pod.iter().map(|(r, _)| (*r, self.flavors[flavor])).collect(),
            usage: set.per_pod.iter().map(|(r, a)| (*r, a * i64::from(set.count))).collect(),
            count: set.count,
            ..Given::default()
        };
        let since = new.since;
        self.brain.hold(new, vec![given], since, false, true)
    }

    fn run(&mut self) -> usize {
        let mut admitted = 0;
        self.brain.run(&mut Anywhere, |_, report| {
            admitted += report
                .entries
                .iter()
                .filter(|e| e.outcome == meridian_queueing::cycle::Outcome::Admitted)
                .count();
            true
        });
        admitted
    }
}

fn admissions(c: &mut Criterion) {
    let mut group = c.benchmark_group("admissions");
    group.sample_size(10);
    for (name, cohorts, queues, pending) in
        [("1000-queues", 100, 1_000, 100_000), ("one-queue", 1, 1, 100_000)]
    {
        group.throughput(Throughput::Elements(pending as u64));
        group.bench_function(BenchmarkId::new(name, pending), |b| {
            b.iter_batched(
                || {
                    let mut load = Load::new(cohorts, queues, pending as i64);
                    let shapes: Vec<ShapeId> = (0..4).map(|s| load.shape(1 + s, 1, s, 0)).collect();
                    for at in 0..pending {
                        load.wait(at % queues, shapes[at / queues % 4]);
                    }
                    load
                },
                |mut load| {
                    assert_eq!(load.run(), pending);
                    load
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// A full cluster, many waiting; one ends, and the round after it is measured.
fn one_change(c: &mut Criterion) {
    let mut group = c.benchmark_group("round-after-one-change");
    group.sample_size(20);
    for pending in [1_000, 10_000, 100_000, 1_000_000] {
        let (cohorts, queues) = (100, 1_000);
        let classes = (pending / 100).max(1);
        let mut load = Load::new(cohorts, queues, 8);
        let holder = load.shape(8, 1, 0, 0);
        let mut holders: Vec<WorkloadId> = Vec::new();
        for at in 0..queues {
            for flavor in 0..FLAVORS {
                holders.push(load.hold(at, holder, flavor));
            }
        }
        let shapes: Vec<ShapeId> = (0..classes).map(|class| load.shape(8, 1, 0, 1 + class as u64)).collect();
        for at in 0..pending {
            load.wait(at % queues, shapes[at % classes]);
        }
        load.run();
        let mut at = 0;
        group.bench_function(BenchmarkId::from_parameter(pending), |b| {
            b.iter(|| {
                // One ends, whoever is next takes its place, and that one is the next to end.
                let ended = holders[at % holders.len()];
                let queue = load.brain.workload(ended).unwrap().queue;
                load.brain.remove(ended);
                let mut next = None;
                load.brain.run(&mut Anywhere, |_, report| {
                    next = next.or(report
                        .entries
                        .iter()
                        .find(|e| e.outcome == meridian_queueing::cycle::Outcome::Admitted)
                        .map(|e| e.workload));
                    true
                });
                let slot = at % holders.len();
                holders[slot] = next.unwrap();
                // The queue is as long as before.
                let place = load.queues.iter().position(|q| *q == queue).unwrap();
                load.wait(place, shapes[at % classes]);
                at += 1;
            });
        });
    }
    group.finish();
}

/// Borrowers fill the cohort with small jobs; a large gang takes back its queue's quota.
fn reclaim(c: &mut Criterion) {
    let mut group = c.benchmark_group("reclaim");
    group.sample_size(10);
    for fair in [false, true] {
        group.bench_function(if fair { "800-of-8000-fair" } else { "800-of-8000" }, |b| {
            b.iter_batched(
                || {
                    let mut load = Load::new(1, 2, 4_000);
                    if !fair {
                        load.brain.settings.fair_sharing = None;
                    }
                    let small = load.shape(1, 1, 0, 0);
                    for flavor in 0..FLAVORS {
                        for _ in 0..8_000 {
                            load.hold(0, small, flavor);
                        }
                    }
                    let gang = load.shape(8, 100, 0, 0);
                    load.wait(1, gang);
                    load
                },
                |mut load| {
                    let report = load.brain.cycle(&mut Anywhere, false);
                    assert_eq!(report.preempted.len(), 800);
                    load
                },
                BatchSize::PerIteration,
            );
        });
    }
    // One borrower has everything, and each of 500 other queues takes its own back at once.
    for fair in [false, true] {
        group.bench_function(if fair { "4000-by-500-queues-fair" } else { "4000-by-500-queues" }, |b| {
            b.iter_batched(
                || {
                    let mut load = Load::new(1, 501, 8);
                    if !fair {
                        load.brain.settings.fair_sharing = None;
                    }
                    let (small, gang) = (load.shape(1, 1, 0, 0), load.shape(1, 8, 0, 0));
                    for flavor in 0..FLAVORS {
                        for _ in 0..501 * 8 {
                            load.hold(0, small, flavor);
                        }
                    }
                    for queue in 1..=500 {
                        load.wait(queue, gang);
                    }
                    load
                },
                |mut load| {
                    let mut preempted = 0;
                    load.brain.run(&mut Anywhere, |_, report| {
                        preempted += report.preempted.len();
                        !report.preempted.is_empty()
                    });
                    assert_eq!(preempted, 4_000);
                    load
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// One kind of workload of Kueue's large-scale benchmark: how many in each queue, how often one comes, how long it runs, its
/// priority, and what it asks for.
const LARGE_SCALE: [(u64, u64, u64, i64, i64); 3] =
    [(35, 60, 150, 50, 1), (11, 300, 350, 100, 5), (4, 700, 700, 200, 20)];
/// Between two passes, from a reservation to the beginning of its run and from its end to the report, from the decision to
/// displace somebody to the report that it has stopped.
const PASS_MS: u64 = 50;
const AROUND_RUN_MS: u64 = 500;
const TO_STOP_MS: u64 = 300;

/// What happens in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes {
        queue: usize,
        kind: usize,
    },
    /// The run that began then.
    Ends(WorkloadId, i64),
    Stopped(WorkloadId),
}

/// Kueue's large-scale benchmark in virtual time: every decision of it, and nothing else.
fn large_scale(c: &mut Criterion) {
    let mut group = c.benchmark_group("large-scale");
    group.sample_size(10);
    group.bench_function("in-virtual-time", |b| b.iter(play));
    group.finish();
}

/// Returns when the last one ended, and how many heads were looked at.
fn play() -> (u64, usize) {
    let mut load = Load::new(10, 1_000, 20);
    let brain = &mut load.brain;
    brain.settings.fair_sharing = None;
    let flavor = load.flavors[0];
    let cpu = brain.resource("cpu");
    let setup = |at: usize| QueueSetup {
        name: Arc::from(format!("queue-{at}")),
        cohort: Some(Arc::from(format!("cohort-{}", at / 100))),
        groups: vec![Group { resources: vec![cpu], flavors: vec![flavor] }],
        quotas: Quotas::from([(
            (flavor, cpu),
            Quota { nominal: Amount(20_000), borrowing_limit: Some(Amount(100_000)), ..Quota::default() },
        )]),
        preemption: Preemption {
            within_queue: Displaces::LowerPriority,
            reclaim_within_cohort: Displaces::Any,
            ..Preemption::default()
        },
        ..QueueSetup::default()
    };
    brain.configure(&BTreeMap::new(), (0..1_000).map(setup).collect());
    let shapes: Vec<ShapeId> = LARGE_SCALE
        .iter()
        .map(|(_, _, _, priority, cpus)| {
            let amounts = BTreeMap::from([("cpu".to_owned(), cpus * 1_000)]);
            let set = PodSet {
                name: Arc::from("main"),
                count: 1,
                per_pod: brain.requests(&amounts),
                on_node: amounts,
                ..PodSet::default()
            };
            brain.intern(Shape { pod_sets: vec![set], priority: *priority, ..Shape::default() })
        })
        .collect();
    let mut events: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for (kind, (count, every, ..)) in LARGE_SCALE.iter().enumerate() {
        for (n, queue) in (0..*count).flat_map(|n| (0..1_000).map(move |queue| (n, queue))) {
            events.entry((n + 1) * every).or_default().push(Event::Comes { queue, kind });
        }
    }
    let mut kinds: Vec<usize> = Vec::new();
    let (mut now, mut looked_at) = (0, 0);
    while !events.is_empty() {
        now += PASS_MS;
        let later = events.split_off(&(now + 1));
        for event in std::mem::replace(&mut events, later).into_values().flatten() {
            match event {
                Event::Comes { queue, kind } => {
                    let id = load.wait(queue, shapes[kind]);
                    let at = usize::try_from(id.0).unwrap();
                    kinds.resize(kinds.len().max(at + 1), 0);
                    kinds[at] = kind;
                }
                Event::Ends(id, since) => {
                    // Who was displaced meanwhile has no end of this run.
                    let runs = |w: &meridian_queueing::model::Workload| {
                        w.holding.as_ref().is_some_and(|h| !h.evicted && h.since == since)
                    };
                    if load.brain.workload(id).is_some_and(runs) {
                        load.brain.remove(id);
                    }
                }
                Event::Stopped(id) => load.brain.requeue(id, i64::try_from(now).unwrap()),
            }
        }
        load.brain.now = i64::try_from(now).unwrap();
        load.brain.run(&mut Anywhere, |_, report| {
            looked_at += report.entries.len();
            for entry in
                report.entries.iter().filter(|e| e.outcome == meridian_queueing::cycle::Outcome::Admitted)
            {
                let run = LARGE_SCALE[kinds[usize::try_from(entry.workload.0).unwrap()]].2;
                events
                    .entry(now + AROUND_RUN_MS + run)
                    .or_default()
                    .push(Event::Ends(entry.workload, i64::try_from(now).unwrap()));
            }
            for (victim, ..) in &report.preempted {
                events.entry(now + TO_STOP_MS).or_default().push(Event::Stopped(*victim));
            }
            true
        });
    }
    (now, looked_at)
}

criterion_group!(benches, admissions, one_change, reclaim, large_scale);
criterion_main!(benches);

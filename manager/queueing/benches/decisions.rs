//! Pure decisions: admissions per second, a run after one change, victims for a large gang.
//!
//! `cargo bench -p meridian-queueing` measures the decisions alone, without journal and API.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, EntryOutcome};
use meridian_queueing::model::{
    ClusterQueuePreemption, Flavor, PodSet, PodSetAdmission, PreemptionRule, QueueId, QueueSetup,
    ResourceGroup, Shape, ShapeId, Workload, WorkloadId,
};
use meridian_queueing::names::FlavorId;
use meridian_queueing::quota::{Quota, Quotas};
use meridian_queueing::settings::{FairSharing, Settings};
use meridian_queueing::{Amount, NewWorkload, QueueState};
use std::collections::BTreeMap;
use std::sync::Arc;

const FLAVORS: usize = 3;

struct Load {
    state: QueueState,
    queues: Vec<QueueId>,
    flavors: Vec<FlavorId>,
    made: u32,
}

impl Load {
    /// Queues in cohorts with three flavors each. All may reclaim, and preempt within the queue.
    fn new(cohorts: usize, queues: usize, nominal: i64) -> Self {
        let mut state = QueueState::new(Settings {
            fair_sharing: Some(FairSharing::default()),
            brief: true,
            ..Settings::default()
        });
        let (gpu, cpu) = (state.resource("nvidia.com/gpu"), state.resource("cpu"));
        let flavors: Vec<FlavorId> = (0..FLAVORS).map(|f| state.flavor_id(&format!("flavor-{f}"))).collect();
        for flavor in &flavors {
            state.set_flavor(*flavor, Some(Flavor::default()));
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
                groups: vec![ResourceGroup { resources: vec![cpu, gpu], flavors: flavors.clone() }],
                quotas,
                preemption: ClusterQueuePreemption {
                    within_queue: PreemptionRule::LowerPriority,
                    reclaim_within_cohort: PreemptionRule::Any,
                    ..ClusterQueuePreemption::default()
                },
                ..QueueSetup::default()
            }
        };
        state.configure(&BTreeMap::new(), (0..queues).map(setup).collect());
        let ids = (0..queues).map(|at| state.queue_id(&format!("queue-{at}")).unwrap()).collect();
        Self { state, queues: ids, flavors, made: 0 }
    }

    fn shape(&mut self, gpus: i64, pods: u32, priority: i64, tag: u64) -> ShapeId {
        let amounts = BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus), ("cpu".to_owned(), 1000)]);
        let per_pod = self.state.requests(&amounts);
        let set =
            PodSet { name: Arc::from("main"), count: pods, per_pod, on_node: amounts, ..PodSet::default() };
        self.state.intern(Shape { pod_sets: vec![set], priority, tag, ..Shape::default() })
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
        self.state.add_pending(new)
    }

    fn hold(&mut self, queue: usize, shape: ShapeId, flavor: usize) -> WorkloadId {
        let new = self.workload(queue, shape);
        let set = &self.state.shape_of(shape).pod_sets[0];
        let given = PodSetAdmission {
            flavors: set.per_pod.iter().map(|(r, _)| (*r, self.flavors[flavor])).collect(),
            usage: set.per_pod.iter().map(|(r, a)| (*r, a * i64::from(set.count))).collect(),
            count: set.count,
            ..PodSetAdmission::default()
        };
        let since = new.since;
        self.state.add_holder(new, vec![given], since, false, true)
    }

    fn run(&mut self) -> usize {
        let mut admitted = 0;
        cycle::run(&mut self.state, &mut UnlimitedCapacity, |_, report| {
            admitted += report.entries.iter().filter(|e| e.outcome == EntryOutcome::Admitted).count();
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

/// A full cluster with many pending workloads. One holder ends, and the run after it is measured.
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
                // One holder ends, the next workload takes its quota, and is the next to end.
                let ended = holders[at % holders.len()];
                let queue = load.state.workload(ended).unwrap().queue;
                load.state.remove(ended);
                let mut next = None;
                cycle::run(&mut load.state, &mut UnlimitedCapacity, |_, report| {
                    next = next.or(report
                        .entries
                        .iter()
                        .find(|e| e.outcome == EntryOutcome::Admitted)
                        .map(|e| e.workload));
                    true
                });
                let slot = at % holders.len();
                holders[slot] = next.unwrap();
                // Keep the length of the queue.
                let place = load.queues.iter().position(|q| *q == queue).unwrap();
                load.wait(place, shapes[at % classes]);
                at += 1;
            });
        });
    }
    group.finish();
}

/// Borrowers fill the cohort with small jobs. A large gang reclaims the quota of its queue.
fn reclaim(c: &mut Criterion) {
    let mut group = c.benchmark_group("reclaim");
    group.sample_size(10);
    for fair in [false, true] {
        group.bench_function(if fair { "800-of-8000-fair" } else { "800-of-8000" }, |b| {
            b.iter_batched(
                || {
                    let mut load = Load::new(1, 2, 4_000);
                    if !fair {
                        load.state.settings_mut().fair_sharing = None;
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
                    let report = cycle::run_once(&mut load.state, &mut UnlimitedCapacity, false);
                    assert_eq!(report.preempted.len(), 800);
                    load
                },
                BatchSize::PerIteration,
            );
        });
    }
    // One borrower holds everything, and each of 500 other queues reclaims its quota.
    for fair in [false, true] {
        group.bench_function(if fair { "4000-by-500-queues-fair" } else { "4000-by-500-queues" }, |b| {
            b.iter_batched(
                || {
                    let mut load = Load::new(1, 501, 8);
                    if !fair {
                        load.state.settings_mut().fair_sharing = None;
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
                    cycle::run(&mut load.state, &mut UnlimitedCapacity, |_, report| {
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

/// A kind of workload of Kueue's large-scale benchmark: number per queue, interval, run time, priority and
/// CPUs.
const LARGE_SCALE: [(u64, u64, u64, i64, i64); 3] =
    [(35, 60, 150, 50, 1), (11, 300, 350, 100, 5), (4, 700, 700, 200, 20)];
/// Delays: between two runs, around the run time of a workload, and from a preemption to the stop of its
/// victim.
const PASS_MS: u64 = 50;
const AROUND_RUN_MS: u64 = 500;
const TO_STOP_MS: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes {
        queue: usize,
        kind: usize,
    },
    /// The end of the run that began at the given time.
    Ends(WorkloadId, i64),
    Stopped(WorkloadId),
}

/// Kueue's large-scale benchmark in virtual time, with all of its decisions.
fn large_scale(c: &mut Criterion) {
    let mut group = c.benchmark_group("large-scale");
    group.sample_size(10);
    group.bench_function("in-virtual-time", |b| b.iter(play));
    group.finish();
}

/// Queues and shapes of the large-scale benchmark.
fn large_scale_load() -> (Load, Vec<ShapeId>) {
    let mut load = Load::new(10, 1_000, 20);
    let state = &mut load.state;
    state.settings_mut().fair_sharing = None;
    let flavor = load.flavors[0];
    let cpu = state.resource("cpu");
    let setup = |at: usize| QueueSetup {
        name: Arc::from(format!("queue-{at}")),
        cohort: Some(Arc::from(format!("cohort-{}", at / 100))),
        groups: vec![ResourceGroup { resources: vec![cpu], flavors: vec![flavor] }],
        quotas: Quotas::from([(
            (flavor, cpu),
            Quota { nominal: Amount(20_000), borrowing_limit: Some(Amount(100_000)), ..Quota::default() },
        )]),
        preemption: ClusterQueuePreemption {
            within_queue: PreemptionRule::LowerPriority,
            reclaim_within_cohort: PreemptionRule::Any,
            ..ClusterQueuePreemption::default()
        },
        ..QueueSetup::default()
    };
    state.configure(&BTreeMap::new(), (0..1_000).map(setup).collect());
    let shapes = LARGE_SCALE
        .iter()
        .map(|(_, _, _, priority, cpus)| {
            let amounts = BTreeMap::from([("cpu".to_owned(), cpus * 1_000)]);
            let set = PodSet {
                name: Arc::from("main"),
                count: 1,
                per_pod: state.requests(&amounts),
                on_node: amounts,
                ..PodSet::default()
            };
            state.intern(Shape { pod_sets: vec![set], priority: *priority, ..Shape::default() })
        })
        .collect();
    (load, shapes)
}

/// Returns the time of the last event, and the number of evaluated heads.
fn play() -> (u64, usize) {
    let (mut load, shapes) = large_scale_load();
    let mut events: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for (kind, (count, every, ..)) in LARGE_SCALE.iter().enumerate() {
        for (n, queue) in (0..*count).flat_map(|n| (0..1_000).map(move |queue| (n, queue))) {
            events.entry((n + 1) * every).or_default().push(Event::Comes { queue, kind });
        }
    }
    let mut kinds: Vec<usize> = Vec::new();
    let (mut now, mut evaluated) = (0, 0);
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
                    // The run may have been preempted meanwhile.
                    let runs =
                        |w: &Workload| w.holding.as_ref().is_some_and(|h| !h.evicted && h.since == since);
                    if load.state.workload(id).is_some_and(runs) {
                        load.state.remove(id);
                    }
                }
                Event::Stopped(id) => load.state.requeue(id, i64::try_from(now).unwrap()),
            }
        }
        load.state.set_now(i64::try_from(now).unwrap());
        cycle::run(&mut load.state, &mut UnlimitedCapacity, |_, report| {
            evaluated += report.entries.len();
            for entry in report.entries.iter().filter(|e| e.outcome == EntryOutcome::Admitted) {
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
    (now, evaluated)
}

criterion_group!(benches, admissions, one_change, reclaim, large_scale);
criterion_main!(benches);

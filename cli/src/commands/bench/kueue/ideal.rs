//! How long a load takes if only its runs take time: the same decisions in virtual time, without messages.
//!
//! A preempted workload starts its run over, so this is longer than work divided by quota. No manager that
//! preempts as the queues demand can be faster.

use super::scenario::{Class, Scenario};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, EntryOutcome};
use meridian_queueing::model::{
    ClusterQueuePreemption, Flavor, PodSet, PreemptionRule, QueueSetup, ResourceGroup, Shape, WorkloadId,
};
use meridian_queueing::quota::{Quota, Quotas};
use meridian_queueing::settings::Settings;
use meridian_queueing::{Amount, NewWorkload, QueueState};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ideal {
    /// From the first submission to the last end.
    pub(super) wall_ms: u64,
    /// Number of preempted runs.
    pub(super) preempted: u64,
}

/// Running workloads by the time, in milliseconds, at which they end unless they are preempted.
type Ends = BTreeSet<(u64, WorkloadId)>;

/// Simulates a benchmark without a manager.
pub(super) fn simulate(scenario: &Scenario) -> Ideal {
    let mut queues = QueueState::new(Settings { brief: true, ..Settings::default() });
    let shapes = configure(&mut queues, scenario);
    let mut due: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
    scenario.submissions().for_each(|one| due.entry(one.due_ms).or_default().push((one.class, one.queue)));
    let mut classes: HashMap<WorkloadId, usize> = HashMap::new();
    let (mut ends, mut until): (Ends, HashMap<WorkloadId, u64>) = Default::default();
    let mut ideal = Ideal { wall_ms: 0, preempted: 0 };
    while let Some(now) =
        [due.keys().next().copied(), ends.first().map(|(at, _)| *at)].into_iter().flatten().min()
    {
        while let Some((_, id)) = ends.first().copied().filter(|(at, _)| *at <= now) {
            ends.pop_first();
            queues.remove(id);
            until.remove(&id);
            ideal.wall_ms = now;
        }
        for (class, queue) in due.remove(&now).unwrap_or_default() {
            let made = classes.len();
            let new = NewWorkload {
                key: Arc::from(format!("w-{made}")),
                uid: Arc::from(format!("{made:08}")),
                queue: queues.queue_id(&format!("q-{queue}")).expect("configured above"),
                local_queue: Arc::from("q"),
                shape: queues.intern(shapes[class].clone()),
                since: i64::try_from(now).unwrap_or(i64::MAX),
                marks: None,
            };
            classes.insert(queues.add_pending(new), class);
        }
        queues.set_now(i64::try_from(now).unwrap_or(i64::MAX));
        cycle::run(&mut queues, &mut UnlimitedCapacity, |queues, report| {
            for (victim, _, _) in report.preempted {
                let since = queues.workload(victim).map_or(0, |w| w.since);
                queues.requeue(victim, since);
                ideal.preempted += 1;
                ends.remove(&(until.remove(&victim).unwrap_or_default(), victim));
            }
            for entry in report.entries.iter().filter(|entry| entry.outcome == EntryOutcome::Admitted) {
                let end = now + scenario.classes[classes[&entry.workload]].run_ms;
                ends.insert((end, entry.workload));
                until.insert(entry.workload, end);
            }
            true
        });
    }
    ideal
}

/// Configures the queues; returns the shape of each class.
fn configure(queues: &mut QueueState, scenario: &Scenario) -> Vec<Shape> {
    let cpu = queues.resource("cpu");
    let flavor = queues.flavor_id("rf");
    queues.set_flavor(flavor, Some(Flavor::default()));
    let milli = |cpus: u64| i64::try_from(cpus * 1_000).unwrap_or(i64::MAX);
    let quota = Quota {
        nominal: Amount(milli(scenario.nominal_cpu)),
        borrowing_limit: Some(Amount(milli(scenario.borrowing_cpu))),
        ..Quota::default()
    };
    let setup = |queue: u64| QueueSetup {
        name: Arc::from(format!("q-{queue}")),
        cohort: Some(Arc::from(format!("c-{}", queue / scenario.queues_per_cohort))),
        groups: vec![ResourceGroup { resources: vec![cpu], flavors: vec![flavor] }],
        quotas: Quotas::from([((flavor, cpu), quota)]),
        preemption: ClusterQueuePreemption {
            within_queue: PreemptionRule::LowerPriority,
            reclaim_within_cohort: PreemptionRule::Any,
            ..ClusterQueuePreemption::default()
        },
        ..QueueSetup::default()
    };
    queues.configure(&BTreeMap::new(), (0..scenario.queues()).map(setup).collect());
    let shape = |class: &Class| {
        let amounts = BTreeMap::from([("cpu".to_owned(), milli(class.cpu))]);
        let per_pod = queues.requests(&amounts);
        let set =
            PodSet { name: Arc::from("main"), count: 1, per_pod, on_node: amounts, ..PodSet::default() };
        Shape { pod_sets: vec![set], priority: i64::from(class.priority), ..Shape::default() }
    };
    scenario.classes.iter().map(shape).collect()
}

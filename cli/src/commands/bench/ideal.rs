//! How long a load takes where only its own runs take time: the same decisions in virtual time, nothing said to anybody.
//!
//! What is displaced begins its run again, so this is more than the work over the quota, and no manager gets below it that
//! displaces as the queues ask for.

use super::kueue::{Class, Scenario};
use meridian_queueing::cycle::Outcome;
use meridian_queueing::model::{Displaces, Flavor, Group, PodSet, Preemption, QueueSetup, Shape, WorkloadId};
use meridian_queueing::places::Anywhere;
use meridian_queueing::settings::Settings;
use meridian_queueing::tree::{Quota, Quotas};
use meridian_queueing::{Amount, Brain, NewWorkload};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What a load comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ideal {
    /// From the begin to the last end, in milliseconds.
    pub(super) wall_ms: u64,
    /// Runs that were displaced.
    pub(super) displaced: u64,
}

/// Workloads that run, by when they end unless they are displaced.
type Ends = BTreeSet<(u64, WorkloadId)>;

/// Plays a benchmark without a manager.
pub(super) fn play(scenario: &Scenario) -> Ideal {
    let mut brain = Brain::new(Settings { brief: true, ..Settings::default() });
    let shapes = configure(&mut brain, scenario);
    let mut due: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
    scenario.streams().for_each(|(at, class, queue, _)| due.entry(at).or_default().push((class, queue)));
    let mut classes: HashMap<WorkloadId, usize> = HashMap::new();
    let (mut ends, mut until): (Ends, HashMap<WorkloadId, u64>) = Default::default();
    let mut ideal = Ideal { wall_ms: 0, displaced: 0 };
    while let Some(now) =
        [due.keys().next().copied(), ends.first().map(|(at, _)| *at)].into_iter().flatten().min()
    {
        while let Some((_, id)) = ends.first().copied().filter(|(at, _)| *at <= now) {
            ends.pop_first();
            brain.remove(id);
            until.remove(&id);
            ideal.wall_ms = now;
        }
        for (class, queue) in due.remove(&now).unwrap_or_default() {
            let made = classes.len();
            let new = NewWorkload {
                key: Arc::from(format!("w-{made}")),
                uid: Arc::from(format!("{made:08}")),
                queue: brain.queue_id(&format!("q-{queue}")).expect("configured above"),
                local_queue: Arc::from("q"),
                shape: brain.intern(shapes[class].clone()),
                since: i64::try_from(now).unwrap_or(i64::MAX),
                marks: None,
            };
            classes.insert(brain.wait(new), class);
        }
        brain.now = i64::try_from(now).unwrap_or(i64::MAX);
        brain.run(&mut Anywhere, |brain, report| {
            for (victim, _, _) in report.preempted {
                let since = brain.workload(victim).map_or(0, |w| w.since);
                brain.requeue(victim, since);
                ideal.displaced += 1;
                ends.remove(&(until.remove(&victim).unwrap_or_default(), victim));
            }
            for entry in report.entries.iter().filter(|entry| entry.outcome == Outcome::Admitted) {
                let end = now + scenario.classes[classes[&entry.workload]].run_ms;
                ends.insert((end, entry.workload));
                until.insert(entry.workload, end);
            }
            true
        });
    }
    ideal
}

/// The queues, and the shape of each class.
fn configure(brain: &mut Brain, scenario: &Scenario) -> Vec<Shape> {
    let cpu = brain.resource("cpu");
    let flavor = brain.flavor_id("rf");
    brain.set_flavor(flavor, Some(Flavor::default()));
    let milli = |cpus: u64| i64::try_from(cpus * 1_000).unwrap_or(i64::MAX);
    let quota = Quota {
        nominal: Amount(milli(scenario.nominal_cpu)),
        borrowing_limit: Some(Amount(milli(scenario.borrowing_cpu))),
        ..Quota::default()
    };
    let setup = |queue: u64| QueueSetup {
        name: Arc::from(format!("q-{queue}")),
        cohort: Some(Arc::from(format!("c-{}", queue / scenario.queues_per_cohort))),
        groups: vec![Group { resources: vec![cpu], flavors: vec![flavor] }],
        quotas: Quotas::from([((flavor, cpu), quota)]),
        preemption: Preemption {
            within_queue: Displaces::LowerPriority,
            reclaim_within_cohort: Displaces::Any,
            ..Preemption::default()
        },
        ..QueueSetup::default()
    };
    brain.configure(&BTreeMap::new(), (0..scenario.queues()).map(setup).collect());
    let shape = |class: &Class| {
        let amounts = BTreeMap::from([("cpu".to_owned(), milli(class.cpu))]);
        let per_pod = brain.requests(&amounts);
        let set =
            PodSet { name: Arc::from("main"), count: 1, per_pod, on_node: amounts, ..PodSet::default() };
        Shape { pod_sets: vec![set], priority: i64::from(class.priority), ..Shape::default() }
    };
    scenario.classes.iter().map(shape).collect()
}

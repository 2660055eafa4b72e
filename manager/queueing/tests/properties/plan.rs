//! Random plans of cohorts and queues, and random operations.

use super::recount::Key;
use meridian_queueing::model::{ClusterQueuePreemption, FlavorFungibility, PreemptionRule};
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(crate) const FLAVORS: [&str; 2] = ["a", "b"];

pub(crate) const RESOURCES: [&str; 2] = ["cpu", "gpu"];

/// Nominal quota, borrowing limit, lending limit.
pub(crate) type Limits = (i64, Option<i64>, Option<i64>);

#[derive(Clone, Debug)]
pub(crate) struct Cohort {
    pub(crate) parent: Option<usize>,
    pub(crate) quotas: BTreeMap<Key, Limits>,
    pub(crate) weight: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) cohort: Option<usize>,
    pub(crate) quotas: BTreeMap<Key, Limits>,
    pub(crate) strict: bool,
    pub(crate) preemption: ClusterQueuePreemption,
    pub(crate) fungibility: FlavorFungibility,
    pub(crate) weight: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cohorts: Vec<Cohort>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) fair: bool,
    pub(crate) brief: bool,
    pub(crate) sticky: bool,
}

/// Operations. Indexes are taken modulo the number of elements.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A new workload: queue, GPUs per pod, pods, priority.
    Wait(usize, i64, u32, i64),
    /// A holder ends.
    Finish(usize),
    /// A holder stops and is requeued.
    Requeue(usize),
    /// A pending workload is deleted.
    Cancel(usize),
    /// Quotas and weight of a queue change.
    Requota(usize, Vec<Limits>, i64),
    /// A queue moves to another cohort.
    Move(usize, usize),
    /// Quotas and weight of a cohort change.
    Recohort(usize, Vec<Limits>, i64),
    /// A cohort moves below an earlier one, or below none.
    Lift(usize, usize),
    Run,
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit = || prop::option::weighted(0.3, 0_i64..8);
    (prop::sample::select(vec![0_i64, 2, 4, 6, 10]), limit(), limit())
}

fn quotas() -> impl Strategy<Value = BTreeMap<Key, Limits>> {
    prop::collection::vec(limits(), 4).prop_map(|all| keyed(&all))
}

/// GPUs are scarce; CPUs are almost always sufficient.
pub(crate) fn keyed(all: &[Limits]) -> BTreeMap<Key, Limits> {
    let mut quotas = BTreeMap::new();
    for (at, flavor) in FLAVORS.iter().enumerate() {
        let (nominal, borrowing, lending) = all[at];
        quotas.insert(((*flavor).to_owned(), "gpu".to_owned()), (nominal, borrowing, lending));
        quotas.insert(((*flavor).to_owned(), "cpu".to_owned()), (all[at + 2].0 + 6, all[at + 2].1, None));
    }
    quotas
}

fn preemption() -> impl Strategy<Value = ClusterQueuePreemption> {
    use PreemptionRule::{Any, LowerOrNewerEqualPriority, LowerPriority, Never};
    let within = prop::sample::select(vec![Never, LowerPriority, LowerOrNewerEqualPriority]);
    let reclaim = prop::sample::select(vec![Never, LowerPriority, Any, Any]);
    let borrow = prop::option::weighted(0.3, prop::option::of(-1_i32..2));
    (within, reclaim, borrow).prop_map(|(within_queue, reclaim_within_cohort, borrow)| {
        ClusterQueuePreemption {
            within_queue,
            reclaim_within_cohort,
            borrow_within_cohort: borrow.filter(|_| reclaim_within_cohort != Never),
        }
    })
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let cohort = (any::<prop::sample::Index>(), quotas(), 0_i64..4);
    let fungibility = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(a, b, c)| FlavorFungibility {
        next_rather_than_borrow: a,
        preempt_rather_than_next: b,
        prefers_preemption: c,
    });
    let queue = (
        any::<prop::sample::Index>(),
        quotas(),
        prop::bool::weighted(0.3),
        preemption(),
        fungibility,
        0_i64..4,
    );
    (
        prop::collection::vec(cohort, 0..4),
        prop::collection::vec(queue, 1..6),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(cohorts, queues, fair, brief, sticky)| {
            let count = cohorts.len();
            let below = |at: usize, index: prop::sample::Index| Some(index.index(at + 1)).filter(|p| *p < at);
            let cohorts = cohorts
                .into_iter()
                .enumerate()
                .map(|(at, (index, quotas, weight))| Cohort { parent: below(at, index), quotas, weight })
                .collect();
            let queues = queues
                .into_iter()
                .map(|(index, quotas, strict, preemption, fungibility, weight)| Queue {
                    cohort: below(count, index),
                    quotas,
                    strict,
                    preemption,
                    fungibility,
                    weight,
                })
                .collect();
            Plan { cohorts, queues, fair, brief, sticky }
        })
}

fn wait() -> impl Strategy<Value = Op> {
    (0_usize..6, 1_i64..4, 1_u32..4, -1_i64..2)
        .prop_map(|(queue, gpus, pods, priority)| Op::Wait(queue, gpus, pods, priority))
}

fn change() -> impl Strategy<Value = (usize, Vec<Limits>, i64)> {
    (any::<usize>(), prop::collection::vec(limits(), 4), 0_i64..4)
}

pub(crate) fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => wait(),
        2 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Requeue),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => change().prop_map(|(queue, quotas, weight)| Op::Requota(queue, quotas, weight)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(queue, cohort)| Op::Move(queue, cohort)),
        1 => change().prop_map(|(cohort, quotas, weight)| Op::Recohort(cohort, quotas, weight)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(cohort, parent)| Op::Lift(cohort, parent)),
        5 => Just(Op::Run),
    ];
    prop::collection::vec(op, 1..most)
}

/// Operations that don't change queues.
pub(crate) fn usual_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => wait(),
        2 => any::<usize>().prop_map(Op::Finish),
        1 => any::<usize>().prop_map(Op::Requeue),
        4 => Just(Op::Run),
    ]
}

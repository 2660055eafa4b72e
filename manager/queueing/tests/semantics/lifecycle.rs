//! Queues that are stopped or strict, checks, evictions and runs.

use super::stage::{hold, id, new, queue, wait, world};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, EntryOutcome, Requeued};
use meridian_queueing::model::{ClusterQueuePreemption, Inactive, Marks, PreemptionRule, QueueSetup};
use meridian_queueing::preemption::PreemptionReason;
use meridian_queueing::settings::Settings;
use meridian_queueing::{NewWorkload, QueueState};
use std::sync::Arc;

#[test]
fn nothing_is_reclaimed_from_a_stopped_queue() {
    for stopped in [false, true] {
        let mut state = world(Settings::default(), |state| {
            let mut lender = queue(state, "lender", Some("c"), &[&[("f", &[("cpu", 4)])]]);
            lender.preemption = ClusterQueuePreemption {
                reclaim_within_cohort: PreemptionRule::Any,
                ..ClusterQueuePreemption::default()
            };
            let mut borrower = queue(state, "borrower", Some("c"), &[&[("f", &[("cpu", 0)])]]);
            borrower.inactive = stopped.then_some(Inactive::Stopped);
            vec![lender, borrower]
        });
        let (lender, borrower) = (id(&state, "lender"), id(&state, "borrower"));
        let victim = hold(&mut state, "victim", borrower, "f", &[("cpu", 4)]);
        let asks = wait(&mut state, "asks", lender, 0, &[("cpu", 4)]);
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        if stopped {
            assert_eq!(
                (report.preempted.as_slice(), report.entries[0].outcome),
                (&[][..], EntryOutcome::NoCandidates)
            );
        } else {
            assert_eq!(report.preempted, [(victim, asks, PreemptionReason::InCohortReclamation)]);
        }
    }
}

#[test]
fn a_holder_is_admitted_once_all_checks_are_ready() {
    let check = |marks: Marks| {
        let mut state = world(Settings::default(), |state| {
            let mut setup = queue(state, "q", None, &[&[("f", &[("cpu", 9)])]]);
            setup.checks = vec![(Arc::from("ask"), Vec::new())];
            vec![setup]
        });
        let q = id(&state, "q");
        let new = NewWorkload { marks: Some(Box::new(marks)), ..new(&mut state, "w", q, 0, &[("cpu", 1)]) };
        let w = state.add_pending(new);
        cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        state.workload(w).and_then(|w| w.holding.as_ref()).is_some_and(|h| h.admitted)
    };
    let stated = |name: &str, ready: bool| Marks {
        checks: vec![Arc::from(name)],
        checks_ready: ready,
        ..Marks::default()
    };
    assert!(check(stated("ask", true)));
    assert!(!check(stated("ask", false)), "the check isn't ready");
    assert!(!check(stated("other", true)), "the queue's own check has no state");
    assert!(!check(Marks::default()));
}

#[test]
fn a_check_for_all_flavors_ignores_holders_without_flavors() {
    for (asks, runs) in [(&[("cpu", 1)][..], false), (&[], true)] {
        let mut state = world(Settings::default(), |state| {
            let mut setup = queue(state, "q", None, &[&[("f", &[("cpu", 9)])]]);
            setup.checks = vec![(Arc::from("ask"), Vec::new())];
            vec![setup]
        });
        let q = id(&state, "q");
        let w = wait(&mut state, "w", q, 0, asks);
        cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        assert_eq!(state.workload(w).and_then(|w| w.holding.as_ref()).map(|h| h.admitted), Some(runs));
    }
}

#[test]
fn a_strict_queue_parks_only_namespace_mismatches() {
    for (checks_failed, wanted) in [(false, Requeued::Parked), (true, Requeued::Active)] {
        let mut state = world(Settings::default(), |state| {
            let setup = queue(state, "q", None, &[&[("f", &[("cpu", 9)])]]);
            vec![QueueSetup { strict: true, ..setup }]
        });
        let q = id(&state, "q");
        let marks = Marks {
            checks_failed,
            unfit: Some(Arc::from("its namespace isn't chosen")),
            wrong_namespace: true,
            ..Marks::default()
        };
        let new = NewWorkload { marks: Some(Box::new(marks)), ..new(&mut state, "w", q, 0, &[("cpu", 1)]) };
        state.add_pending(new);
        let entry = &cycle::run_once(&mut state, &mut UnlimitedCapacity, false).entries[0];
        assert_eq!(
            (entry.outcome, entry.requeued),
            (EntryOutcome::Rejected, Some(wanted)),
            "failed checks: {checks_failed}"
        );
    }
}

#[test]
fn a_cancelled_eviction_leaves_the_holder_running() {
    let mut state =
        world(Settings::default(), |state| vec![queue(state, "q", None, &[&[("f", &[("cpu", 9)])]])]);
    let q = id(&state, "q");
    let w = hold(&mut state, "w", q, "f", &[("cpu", 1)]);
    state.evict(w);
    state.cancel_eviction(w);
    assert!(state.workload(w).is_some_and(|w| w.holding.is_some() && !w.evicted()));
}

#[test]
fn an_interrupted_run_continues_with_the_next_tree() {
    let names = ["a", "b", "c"];
    let mut state = world(Settings::default(), |state| {
        names.iter().map(|name| queue(state, name, Some(name), &[&[("any", &[("gpu", 9)])]])).collect()
    });
    for name in names {
        let queue = id(&state, name);
        for n in 0..2 {
            wait(&mut state, &format!("{name}-{n}"), queue, 0, &[("gpu", 1)]);
        }
    }
    let mut order = Vec::new();
    let mut next = |state: &mut QueueState| {
        let mut admitted = Vec::new();
        cycle::run(state, &mut UnlimitedCapacity, |state, report| {
            admitted.extend(
                report.entries.iter().map(|entry| state.workload(entry.workload).unwrap().key.to_string()),
            );
            false
        });
        order.extend(admitted);
    };
    (0..2).for_each(|_| next(&mut state));
    // A new workload in the first tree waits for its turn.
    let first = id(&state, "a");
    wait(&mut state, "a-2", first, 0, &[("gpu", 1)]);
    while state.changed_trees().next().is_some() {
        next(&mut state);
    }
    assert_eq!(order, ["a-0", "b-0", "c-0", "a-1", "b-1", "c-1", "a-2"]);
}

//! Preemptors and their victims.

use super::stage::{Amounts, hold, id, new, queue, wait, world};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, EntryOutcome, Requeued};
use meridian_queueing::model::{
    ClusterQueuePreemption, PodSetAdmission, PreemptionRule, QueueSetup, Workload, WorkloadId,
};
use meridian_queueing::preemption::PreemptionReason;
use meridian_queueing::quota::{CohortSetup, Quota, Quotas};
use meridian_queueing::settings::{AdmissionFairSharing, Gates, Settings};
use meridian_queueing::{Amount, NewWorkload, QueueState, to_nanos};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn cohort_quota_is_reclaimed_once_per_cycle() {
    for first_comes in [false, true] {
        let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
        let mut state = QueueState::new(Settings { gates, ..Settings::default() });
        let reclaims = ClusterQueuePreemption {
            reclaim_within_cohort: PreemptionRule::Any,
            ..ClusterQueuePreemption::default()
        };
        let ours = |state: &mut QueueState, name| QueueSetup {
            preemption: reclaims,
            ..queue(state, name, Some("team"), &[&[("any", &[("gpu", 0)])]])
        };
        let (one, two) = (ours(&mut state, "one"), ours(&mut state, "two"));
        let borrower = queue(&mut state, "borrower", Some("all"), &[&[("any", &[("gpu", 1)])]]);
        let cell = (state.flavor_id("any"), state.resource("gpu"));
        let team = CohortSetup {
            parent: Some(Arc::from("all")),
            quotas: Quotas::from([(cell, Quota { nominal: Amount(6), ..Quota::default() })]),
            ..CohortSetup::default()
        };
        state.configure(&BTreeMap::from([(Arc::from("team"), team)]), vec![one, two, borrower]);
        let (one, two, borrower) = (id(&state, "one"), id(&state, "two"), id(&state, "borrower"));
        let victim = hold(&mut state, "borrows", borrower, "any", &[("gpu", 6)]);
        if first_comes {
            let small = wait(&mut state, "small", one, 0, &[("gpu", 1)]);
            state.set_starved_head(one, Some(small));
        }
        // This is all quota of the cohort. One more is free in the cohort above.
        wait(&mut state, "gang", two, 0, &[("gpu", 6)]);
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        let preempted: Vec<WorkloadId> = report.preempted.iter().map(|(victim, ..)| *victim).collect();
        assert_eq!(preempted, if first_comes { vec![] } else { vec![victim] });
        // Nor in the next cycle, as long as the first one is there.
        assert!(cycle::run_once(&mut state, &mut UnlimitedCapacity, false).preempted.is_empty());
    }
}

#[test]
fn room_promised_to_an_earlier_head_counts_when_victims_overlap() {
    let gates = Gates { recompute_on_target_overlap: true, ..Gates::default() };
    let mut state = QueueState::new(Settings { gates, ..Settings::default() });
    let preemption = ClusterQueuePreemption {
        reclaim_within_cohort: PreemptionRule::Any,
        borrow_within_cohort: Some(None),
        ..ClusterQueuePreemption::default()
    };
    let ours = |state: &mut QueueState, name| QueueSetup {
        preemption,
        ..queue(state, name, Some("all"), &[&[("any", &[("gpu", 2)])]])
    };
    let (one, two, three) = (ours(&mut state, "one"), ours(&mut state, "two"), ours(&mut state, "three"));
    let borrower = queue(&mut state, "borrower", Some("all"), &[&[("any", &[("gpu", 0)])]]);
    state.configure(&BTreeMap::new(), vec![one, two, three, borrower]);
    let [one, two, three, borrower] = ["one", "two", "three", "borrower"].map(|name| id(&state, name));
    let victim = hold(&mut state, "borrows", borrower, "any", &[("gpu", 6)]);
    // All three count on the same victim, which leaves 6. The last one would borrow.
    let heads = [
        wait(&mut state, "first", one, 1, &[("gpu", 2)]),
        wait(&mut state, "second", two, 1, &[("gpu", 2)]),
        wait(&mut state, "third", three, 1, &[("gpu", 4)]),
    ];
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    let outcome = |id: WorkloadId| report.entries.iter().find(|e| e.workload == id).unwrap().outcome;
    assert_eq!(report.preempted.iter().map(|(of, ..)| *of).collect::<Vec<_>>(), [victim]);
    assert_eq!(
        heads.map(outcome),
        [EntryOutcome::Preempting, EntryOutcome::Deferred, EntryOutcome::NoCandidates]
    );
}

#[test]
fn preemptor_waits_for_victims_after_losing_its_right() {
    // With several flavors and brief decisions, preemption is simulated lazily.
    for brief in [false, true] {
        let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
        let mut state = QueueState::new(Settings { gates, brief, ..Settings::default() });
        let reclaims = ClusterQueuePreemption {
            reclaim_within_cohort: PreemptionRule::Any,
            ..ClusterQueuePreemption::default()
        };
        let none: (&str, Amounts<'_>) = ("any", &[("gpu", 0)]);
        let flavors = if brief { vec![none, ("other", &[("gpu", 0)])] } else { vec![none] };
        let ours = |state: &mut QueueState, name| QueueSetup {
            preemption: reclaims,
            ..queue(state, name, Some("team"), &[&flavors])
        };
        let (one, two) = (ours(&mut state, "one"), ours(&mut state, "two"));
        let borrower = queue(&mut state, "borrower", Some("all"), &[&[("any", &[("gpu", 1)])]]);
        let cell = (state.flavor_id("any"), state.resource("gpu"));
        let quotas = Quotas::from([(cell, Quota { nominal: Amount(6), ..Quota::default() })]);
        let team = CohortSetup { parent: Some(Arc::from("all")), quotas, ..CohortSetup::default() };
        state.configure(&BTreeMap::from([(Arc::from("team"), team)]), vec![one, two, borrower]);
        let (one, two, borrower) = (id(&state, "one"), id(&state, "two"), id(&state, "borrower"));
        let victim = hold(&mut state, "borrows", borrower, "any", &[("gpu", 4)]);
        // Three are free. With the victim's four there is enough for the gang and one more.
        let gang = wait(&mut state, "gang", two, 0, &[("gpu", 6)]);
        assert_eq!(
            cycle::run_once(&mut state, &mut UnlimitedCapacity, false).preempted,
            [(victim, gang, PreemptionReason::InCohortReclamation)]
        );
        let small = wait(&mut state, "small", one, 0, &[("gpu", 1)]);
        let behind = wait(&mut state, "behind", two, -1, &[("gpu", 2)]);
        let outcome = |state: &mut QueueState, of| {
            cycle::run_once(state, &mut UnlimitedCapacity, false)
                .entries
                .iter()
                .find(|entry| entry.workload == of)
                .map(|entry| entry.outcome)
        };
        assert_eq!(outcome(&mut state, small), Some(EntryOutcome::Admitted));
        // The cohort's own quota no longer covers the gang. Even so, no workload behind it gets the quota.
        for _ in 0..3 {
            assert_eq!(outcome(&mut state, gang), Some(EntryOutcome::Preempting), "brief: {brief}");
        }
        state.remove(victim);
        assert_eq!(outcome(&mut state, gang), Some(EntryOutcome::Admitted));
        assert!(state.workload(behind).is_some_and(|behind| behind.holding.is_none()));
    }
}

#[test]
fn preemptor_stays_active_only_if_prioritized() {
    for first in [false, true] {
        let mut state = world(Settings::default(), |state| {
            let mut mine = queue(state, "mine", Some("all"), &[&[("any", &[("gpu", 4)])]]);
            mine.preemption = ClusterQueuePreemption {
                within_queue: PreemptionRule::LowerPriority,
                ..ClusterQueuePreemption::default()
            };
            vec![mine, queue(state, "theirs", Some("all"), &[&[("any", &[("gpu", 0)])]])]
        });
        state.settings_mut().gates.prioritize_preemptors = first;
        let (mine, theirs) = (id(&state, "mine"), id(&state, "theirs"));
        let victim = hold(&mut state, "victim", mine, "any", &[("gpu", 2)]);
        let gang = wait(&mut state, "gang", mine, 5, &[("gpu", 4)]);
        assert_eq!(
            cycle::run_once(&mut state, &mut UnlimitedCapacity, false).preempted,
            [(victim, gang, PreemptionReason::InClusterQueue)]
        );
        hold(&mut state, "lucky", theirs, "any", &[("gpu", 1)]);
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        let entry = &report.entries[0];
        let wanted = if first { Requeued::Active } else { Requeued::Parked };
        assert_eq!(
            (entry.workload, entry.outcome, entry.requeued),
            (gang, EntryOutcome::NoCandidates, Some(wanted))
        );
    }
}

/// A state with usage history per local queue, which orders pending workloads and victims.
fn with_usage_history(
    used: &[(&str, i64)],
    make: impl FnOnce(&mut QueueState) -> Vec<QueueSetup>,
) -> QueueState {
    let fair = AdmissionFairSharing { half_life_ms: 1_000, sampling_ms: 1_000, resource_weights: Vec::new() };
    let mut state = world(Settings { admission_fair_sharing: Some(fair), ..Settings::default() }, make);
    let gpu = state.resource("gpu");
    for (local_queue, used) in used {
        state.set_usage_history(Arc::from(*local_queue), [(gpu, to_nanos("gpu", *used))].into(), 1.0);
    }
    state
}

#[test]
fn victims_are_found_if_usage_and_priority_conflict() {
    for fair in [false, true] {
        for seed in 0..50 {
            let mut state = with_usage_history(
                &[("n/heavy0", 9), ("n/light0", 1), ("n/heavy1", 5), ("n/light1", 2)],
                |state| {
                    let mut mine = queue(state, "mine", Some("all"), &[&[("any", &[("gpu", 80)])]]);
                    mine.preemption = ClusterQueuePreemption {
                        reclaim_within_cohort: PreemptionRule::Any,
                        ..ClusterQueuePreemption::default()
                    };
                    let theirs = (0..2).map(|at| {
                        let theirs =
                            queue(state, &format!("theirs{at}"), Some("all"), &[&[("any", &[("gpu", 0)])]]);
                        QueueSetup { usage_based: true, ..theirs }
                    });
                    theirs.chain([mine]).collect::<Vec<_>>()
                },
            );
            state.settings_mut().fair_sharing = fair.then(Default::default);
            let (mine, any, gpu) = (id(&state, "mine"), state.flavor_id("any"), state.resource("gpu"));
            for at in 0..80_u64 {
                let dice = meridian_shared::backoff::splitmix(seed << 32 ^ at);
                let theirs = id(&state, &format!("theirs{}", dice % 2));
                let heavy = dice >> 8 & 3 == 0;
                let priority =
                    i64::try_from(dice >> 16 & 15).expect("it is small") + if heavy { 4 } else { 0 };
                let holder = new(&mut state, &format!("w{at}"), theirs, priority, &[("gpu", 1)]);
                let local_queue =
                    Arc::from(format!("n/{}{}", if heavy { "heavy" } else { "light" }, dice % 2));
                let given = PodSetAdmission {
                    flavors: [(gpu, any)].into(),
                    usage: vec![(gpu, 1)],
                    count: 1,
                    ..PodSetAdmission::default()
                };
                state.add_holder(NewWorkload { local_queue, ..holder }, vec![given], 0, false, true);
            }
            let asks = wait(&mut state, "asks", mine, 0, &[("gpu", 5)]);
            let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
            assert_eq!(report.preempted.len(), 5);
            for (victim, by, _) in report.preempted {
                let of = state.workload(victim).expect("it is still there");
                let is_running = |w: &Workload| w.holding.as_ref().is_some_and(|h| !h.evicted);
                let spared = state.workloads().any(|(_, w)| {
                    w.queue == of.queue && w.local_queue.starts_with("n/heavy") && is_running(w)
                });
                assert!(
                    by == asks && (of.local_queue.starts_with("n/heavy") || !spared),
                    "seed {seed}: {} ends",
                    of.local_queue
                );
            }
        }
    }
}

//! The starvation guard.

use super::stage::{Amounts, hold, hold_as, id, queue, wait, world};
use meridian_queueing::QueueState;
use meridian_queueing::capacity_model::CapacityModel;
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, CycleReport, EntryOutcome};
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::{ClusterQueuePreemption, PreemptionRule, WorkloadId};
use meridian_queueing::preemption::{PreemptionReason, Target};
use meridian_queueing::settings::{FairSharing, Gates, Settings};

/// Removes a holder and runs until nothing changes. Returns the workloads that hold quota then.
fn remove_and_run(state: &mut QueueState, holder: WorkloadId) -> Vec<String> {
    state.remove(holder);
    cycle::run(state, &mut UnlimitedCapacity, |_, _| true);
    let mut held: Vec<String> =
        state.workloads().filter(|(_, w)| w.holding.is_some()).map(|(_, w)| w.key.to_string()).collect();
    held.sort();
    held
}

#[test]
fn starved_head_blocks_its_queue() {
    for guarded in [false, true] {
        let mut state =
            world(Settings::default(), |state| vec![queue(state, "q", None, &[&[("any", &[("gpu", 4)])]])]);
        let q = id(&state, "q");
        let holders: Vec<_> =
            ["a", "b"].iter().map(|name| hold(&mut state, name, q, "any", &[("gpu", 2)])).collect();
        let gang = wait(&mut state, "gang", q, 0, &[("gpu", 4)]);
        cycle::run(&mut state, &mut UnlimitedCapacity, |_, _| true);
        wait(&mut state, "small", q, 0, &[("gpu", 2)]);
        assert_eq!(state.first_pending(q, |_| true), Some(gang), "active or parked");
        state.set_starved_head(q, guarded.then_some(gang));
        let first = remove_and_run(&mut state, holders[0]);
        assert_eq!(first, if guarded { vec!["b"] } else { vec!["b", "small"] });
        if guarded {
            assert_eq!(remove_and_run(&mut state, holders[1]), ["gang"]);
            assert_eq!(state.starved_head(q), None, "it was admitted");
            assert_eq!(remove_and_run(&mut state, gang), ["small"]);
        }
    }
}

#[test]
fn quota_reserved_for_a_starved_head_is_not_lent() {
    let mut state = world(Settings::default(), |state| {
        let quota: &[(&str, Amounts<'_>)] = &[("any", &[("gpu", 4)])];
        vec![queue(state, "mine", Some("all"), &[quota]), queue(state, "theirs", Some("all"), &[quota])]
    });
    let (mine, theirs) = (id(&state, "mine"), id(&state, "theirs"));
    let holders: Vec<_> =
        (0..4).map(|n| hold(&mut state, &format!("held-{n}"), theirs, "any", &[("gpu", 2)])).collect();
    let gang = wait(&mut state, "gang", mine, 0, &[("gpu", 4)]);
    state.set_starved_head(mine, Some(gang));
    for n in 0..4 {
        wait(&mut state, &format!("next-{n}"), theirs, 0, &[("gpu", 2)]);
    }
    assert_eq!(
        remove_and_run(&mut state, holders[0]),
        ["held-1", "held-2", "held-3"],
        "the freed quota would be borrowed"
    );
    assert_eq!(remove_and_run(&mut state, holders[1]), ["gang", "held-2", "held-3"]);
    assert_eq!(
        remove_and_run(&mut state, holders[2]),
        ["gang", "held-3", "next-0"],
        "they keep their own quota"
    );
}

#[test]
fn no_quota_is_reserved_for_an_infeasible_head() {
    let mut state =
        world(Settings::default(), |state| vec![queue(state, "q", None, &[&[("any", &[("gpu", 4)])]])]);
    let q = id(&state, "q");
    let holder = hold(&mut state, "a", q, "any", &[("gpu", 4)]);
    let huge = wait(&mut state, "huge", q, 9, &[("gpu", 5)]);
    wait(&mut state, "small", q, 0, &[("gpu", 2)]);
    state.set_starved_head(q, Some(huge));
    assert_eq!(remove_and_run(&mut state, holder), ["small"]);
    assert_eq!(state.starved_head(q), None);
}

#[test]
fn no_preemption_that_only_serves_a_starved_head() {
    for guarded in [false, true] {
        let settings = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
        let mut state = world(settings, |state| {
            let policy = |reclaim_within_cohort| ClusterQueuePreemption {
                within_queue: PreemptionRule::LowerPriority,
                reclaim_within_cohort,
                ..ClusterQueuePreemption::default()
            };
            let mut mine =
                queue(state, "mine", Some("all"), &[&[("any", &[("gpu", 0)]), ("other", &[("gpu", 2)])]]);
            let mut theirs = queue(state, "theirs", Some("all"), &[&[("other", &[("gpu", 0)])]]);
            (mine.preemption, theirs.preemption) =
                (policy(PreemptionRule::Any), policy(PreemptionRule::LowerPriority));
            let lender =
                queue(state, "lender", Some("all"), &[&[("any", &[("gpu", 4)]), ("other", &[("gpu", 4)])]]);
            vec![mine, theirs, lender]
        });
        let (mine, theirs, lender) = (id(&state, "mine"), id(&state, "theirs"), id(&state, "lender"));
        hold(&mut state, "all of any", lender, "any", &[("gpu", 4)]);
        let ends = hold(&mut state, "ends", lender, "other", &[("gpu", 2)]);
        hold(&mut state, "own", mine, "other", &[("gpu", 2)]);
        let low = hold(&mut state, "low", theirs, "other", &[("gpu", 2)]);
        // Its quota is reserved in the first flavor. Half of the second belongs to its queue and is held by a
        // workload that it may preempt.
        let gang = wait(&mut state, "gang", mine, 9, &[("gpu", 4)]);
        let second = wait(&mut state, "second", theirs, 9, &[("gpu", 2)]);
        state.set_starved_head(mine, guarded.then_some(gang));
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        let outcome = |report: &CycleReport, of| {
            report.entries.iter().find(|entry| entry.workload == of).map(|entry| entry.outcome)
        };
        assert_eq!(outcome(&report, gang), Some(EntryOutcome::NoCandidates));
        assert_eq!(
            outcome(&report, second),
            Some(if guarded { EntryOutcome::Yields } else { EntryOutcome::Preempting })
        );
        assert_eq!(report.preempted.iter().any(|(victim, ..)| *victim == low), !guarded);
        if guarded {
            state.remove(ends);
            let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
            assert_eq!(
                outcome(&report, gang),
                Some(EntryOutcome::Preempting),
                "the freed quota and its own suffice"
            );
        }
    }
}

/// One workload fits into a cluster only after two others have ended.
struct FitsAfterTwoVictims(Option<WorkloadId>);

impl CapacityModel for FitsAfterTwoVictims {
    fn fits(&mut self, _: &QueueState, workload: WorkloadId, victims: &[Target]) -> bool {
        self.0 != Some(workload) || victims.len() >= 2
    }

    fn fits_now(&mut self, _: &QueueState, workload: WorkloadId) -> bool {
        self.0 != Some(workload)
    }

    fn take(&mut self, _: &QueueState, _: WorkloadId, _: &Assignment) -> bool {
        true
    }
}

#[test]
fn victims_of_an_overtaken_preemptor_serve_no_other() {
    let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
    let mut state = world(Settings { gates, ..Settings::default() }, |state| {
        let mut queue = |name, nominal| queue(state, name, Some("all"), &[&[("any", &[("gpu", nominal)])]]);
        let (mut first, mut second, starved) = (queue("first", 6), queue("second", 4), queue("starved", 4));
        first.preemption.reclaim_within_cohort = PreemptionRule::Any;
        let lower = PreemptionRule::LowerPriority;
        second.preemption = ClusterQueuePreemption {
            within_queue: lower,
            reclaim_within_cohort: lower,
            borrow_within_cohort: Some(None),
        };
        vec![first, second, starved]
    });
    let [first, second, starved] = ["first", "second", "starved"].map(|name| id(&state, name));
    hold_as(&mut state, "stays", starved, "any", 20, &[("gpu", 4)]);
    let victim = hold(&mut state, "victim", starved, "any", &[("gpu", 2)]);
    hold(&mut state, "own", first, "any", &[("gpu", 2)]);
    let low = hold(&mut state, "low", second, "any", &[("gpu", 2)]);
    hold_as(&mut state, "high", second, "any", 20, &[("gpu", 1)]);
    let gang = wait(&mut state, "gang", first, 100, &[("gpu", 4)]);
    assert_eq!(
        cycle::run_once(&mut state, &mut UnlimitedCapacity, false).preempted,
        [(victim, gang, PreemptionReason::InCohortReclamation)]
    );
    // The last three free ones go to the starved head, so the gang needs its victim and more.
    let head = wait(&mut state, "head", starved, 10, &[("gpu", 3)]);
    state.set_starved_head(starved, Some(head));
    let other = wait(&mut state, "other", second, 10, &[("gpu", 4)]);
    let report = cycle::run_once(&mut state, &mut FitsAfterTwoVictims(Some(other)), false);
    let outcome = |of| report.entries.iter().find(|entry| entry.workload == of).map(|entry| entry.outcome);
    assert_eq!([head, gang].map(outcome), [Some(EntryOutcome::Admitted), Some(EntryOutcome::Skipped)]);
    // Without the waiting gang, the victim's quota and its own would suffice for the other workload.
    assert_eq!(report.preempted, [], "{low:?} would stop for nothing, for {other:?}");
}

#[test]
fn starved_head_evaluates_all_flavors_every_cycle() {
    let mut state = world(Settings::default(), |state| {
        let quota: &[(&str, Amounts<'_>)] = &[("any", &[("gpu", 4)]), ("other", &[("gpu", 0)])];
        let mut mine = queue(state, "mine", Some("all"), &[quota]);
        mine.preemption = ClusterQueuePreemption {
            reclaim_within_cohort: PreemptionRule::Any,
            ..ClusterQueuePreemption::default()
        };
        vec![mine, queue(state, "theirs", Some("all"), &[&[("any", &[("gpu", 0)])]])]
    });
    let (mine, theirs) = (id(&state, "mine"), id(&state, "theirs"));
    let gang = wait(&mut state, "gang", mine, 0, &[("gpu", 4)]);
    let first = wait(&mut state, "first", theirs, 9, &[("gpu", 4)]);
    state.set_starved_head(mine, Some(gang));
    state.set_starved_head(theirs, Some(first));
    let outcomes =
        |report: &CycleReport| report.entries.iter().map(|e| (e.workload, e.outcome)).collect::<Vec<_>>();
    assert_eq!(
        outcomes(&cycle::run_once(&mut state, &mut UnlimitedCapacity, false)),
        [(first, EntryOutcome::Admitted), (gang, EntryOutcome::Skipped)]
    );
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    assert_eq!(
        outcomes(&report),
        [(gang, EntryOutcome::Preempting)],
        "it doesn't continue with the other flavor"
    );
    assert_eq!(report.preempted, [(first, gang, PreemptionReason::InCohortReclamation)]);
}

#[test]
fn starved_preemptor_comes_first() {
    let mut state = world(Settings::default(), |state| {
        let mut mine = queue(state, "mine", Some("all"), &[&[("any", &[("gpu", 4)])]]);
        mine.preemption = ClusterQueuePreemption {
            within_queue: PreemptionRule::LowerPriority,
            ..ClusterQueuePreemption::default()
        };
        vec![mine, queue(state, "theirs", Some("all"), &[&[("any", &[("gpu", 0)])]])]
    });
    state.settings_mut().gates.prioritize_preemptors = true;
    let (mine, theirs) = (id(&state, "mine"), id(&state, "theirs"));
    let victim = hold(&mut state, "victim", mine, "any", &[("gpu", 2)]);
    let gang = wait(&mut state, "gang", mine, 5, &[("gpu", 4)]);
    state.set_starved_head(mine, Some(gang));
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    assert_eq!(report.preempted, [(victim, gang, PreemptionReason::InClusterQueue)]);
    let small = wait(&mut state, "small", theirs, 9, &[("gpu", 2)]);
    state.set_starved_head(theirs, Some(small));
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    let outcomes: Vec<_> = report.entries.iter().map(|e| (e.workload, e.outcome)).collect();
    assert_eq!(
        outcomes,
        [(gang, EntryOutcome::Preempting), (small, EntryOutcome::Skipped)],
        "its victims were chosen for the free quota"
    );
}

#[test]
fn overtaken_starved_head_keeps_its_precedence() {
    for is_starved in [false, true] {
        let mut state = world(Settings::default(), |state| {
            let mut own = queue(state, "own", Some("all"), &[&[("any", &[("gpu", 7)])]]);
            own.preemption = ClusterQueuePreemption {
                within_queue: PreemptionRule::LowerPriority,
                ..ClusterQueuePreemption::default()
            };
            vec![
                own,
                queue(state, "first", Some("all"), &[&[("any", &[("gpu", 0)])]]),
                queue(state, "second", Some("all"), &[&[("any", &[("gpu", 0)])]]),
            ]
        });
        let [own, first, second] = ["own", "first", "second"].map(|name| id(&state, name));
        let victim = hold(&mut state, "victim", own, "any", &[("gpu", 4)]);
        let high = wait(&mut state, "high", first, 100, &[("gpu", 1)]);
        let gang = wait(&mut state, "gang", second, 10, &[("gpu", 3)]);
        let other = wait(&mut state, "other", own, 5, &[("gpu", 6)]);
        state.set_starved_head(first, Some(high));
        state.set_starved_head(second, is_starved.then_some(gang));
        // One of three free ones goes to the first. The two left and the victim's four would suffice for the
        // other workload, but then the gang comes first and takes three of them.
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        let outcome =
            |of| report.entries.iter().find(|entry| entry.workload == of).map(|entry| entry.outcome);
        assert_eq!([high, gang].map(outcome), [Some(EntryOutcome::Admitted), Some(EntryOutcome::Skipped)]);
        let wanted =
            if is_starved { vec![] } else { vec![(victim, other, PreemptionReason::InClusterQueue)] };
        assert_eq!(report.preempted, wanted, "gang is starved: {is_starved}");
    }
}

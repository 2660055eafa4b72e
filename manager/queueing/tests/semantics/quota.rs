//! Which workloads get quota within one cycle, and what is reserved.

use super::stage::{Amounts, hold, id, new, queue, wait, world};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, CycleReport, EntryOutcome};
use meridian_queueing::model::{
    ClusterQueuePreemption, Flavor, Marks, PodSet, PodSetAdmission, PreemptionRule, QueueId, QueueSetup,
    WorkloadId,
};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::quota::{CohortSetup, Quota, Quotas};
use meridian_queueing::settings::{FairSharing, Gates, Settings};
use meridian_queueing::{Amount, NewWorkload, QueueState};
use meridian_shared::topology::TopologyRequest;
use meridian_topology::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

const HOST: &str = "kubernetes.io/hostname";

/// A queue of cohort `c` with nominal quotas of the flavor `f`.
fn member(state: &mut QueueState, name: &str, quotas: Amounts<'_>) -> QueueSetup {
    queue(state, name, Some("c"), &[&[("f", quotas)]])
}

fn key(state: &mut QueueState, resource: &str) -> (FlavorId, ResourceId) {
    (state.flavor_id("f"), state.resource(resource))
}

fn reclaims(reclaim_within_cohort: PreemptionRule) -> ClusterQueuePreemption {
    ClusterQueuePreemption { reclaim_within_cohort, ..ClusterQueuePreemption::default() }
}

/// The queue preempts its own workloads of lower priority.
fn preempts_within(setup: QueueSetup) -> QueueSetup {
    let preemption = ClusterQueuePreemption {
        within_queue: PreemptionRule::LowerPriority,
        ..ClusterQueuePreemption::default()
    };
    QueueSetup { preemption, ..setup }
}

fn once(state: &mut QueueState) -> CycleReport {
    cycle::run_once(state, &mut UnlimitedCapacity, false)
}

/// What one cycle decides about these heads.
fn outcomes<const N: usize>(state: &mut QueueState, heads: [WorkloadId; N]) -> [EntryOutcome; N] {
    let report = once(state);
    heads.map(|head| report.entries.iter().find(|entry| entry.workload == head).expect("a head").outcome)
}

/// A cohort as its quota of `f` and its parent.
fn cohort(state: &mut QueueState, parent: &str, nominal: i64, borrowing_limit: Option<i64>) -> CohortSetup {
    let cell = key(state, "gpu");
    let quota =
        Quota { nominal: Amount(nominal), borrowing_limit: borrowing_limit.map(Amount), ..Quota::default() };
    CohortSetup {
        parent: Some(Arc::from(parent)),
        quotas: Quotas::from([(cell, quota)]),
        ..CohortSetup::default()
    }
}

/// A workload with several pod sets: pods, and what each pod asks for.
fn gang(
    state: &mut QueueState,
    name: &str,
    queue: QueueId,
    priority: i64,
    sets: &[(u32, Amounts<'_>)],
) -> NewWorkload {
    let first = new(state, name, queue, priority, &[]);
    let mut shape = (**state.shape_of(first.shape)).clone();
    shape.pod_sets.clear();
    for (at, (count, asks)) in sets.iter().enumerate() {
        let asks: BTreeMap<String, i64> = asks.iter().map(|(of, n)| ((*of).to_owned(), *n)).collect();
        shape.pod_sets.push(PodSet {
            name: Arc::from(format!("set-{at}")),
            count: *count,
            per_pod: state.requests(&asks),
            ..PodSet::default()
        });
    }
    NewWorkload { shape: state.intern(shape), ..first }
}

/// The same workload, holding quota of `f`.
fn hold_gang(state: &mut QueueState, new: NewWorkload) -> WorkloadId {
    let flavor = state.flavor_id("f");
    let shape = state.shape_of(new.shape).clone();
    let given = shape.pod_sets.iter().map(|set| PodSetAdmission {
        flavors: set.per_pod.iter().map(|(resource, _)| (*resource, flavor)).collect(),
        usage: set.per_pod.iter().map(|(resource, n)| (*resource, n * i64::from(set.count))).collect(),
        count: set.count,
        ..PodSetAdmission::default()
    });
    state.add_holder(new, given.collect(), 0, false, true)
}

/// Adds a workload that replaces the slice `old`.
fn wait_slice(state: &mut QueueState, new: NewWorkload, old: &str) -> WorkloadId {
    let marks = Marks { replaces: Some(Arc::from(old)), elastic: true, ..Marks::default() };
    state.add_pending(NewWorkload { marks: Some(Box::new(marks)), ..new })
}

#[test]
fn heads_of_a_cohort_start_in_one_cycle_while_quota_is_left() {
    let mut state = world(Settings::default(), |state| {
        vec![member(state, "one", &[("gpu", 9)]), member(state, "two", &[("gpu", 0)])]
    });
    let (one, two) = (id(&state, "one"), id(&state, "two"));
    let heads = [wait(&mut state, "a", one, 9, &[("gpu", 1)]), wait(&mut state, "b", two, 0, &[("gpu", 1)])];
    assert_eq!(outcomes(&mut state, heads), [EntryOutcome::Admitted; 2]);
}

#[test]
fn quota_that_a_queue_does_not_lend_is_left_after_the_cohort_has_none() {
    let mut state = world(Settings::default(), |state| {
        let lends_all = member(state, "lends", &[("gpu", 2)]);
        let mut keeps = member(state, "keeps", &[("gpu", 4)]);
        keeps.quotas.values_mut().for_each(|quota| quota.lending_limit = Some(Amount(0)));
        vec![lends_all, keeps]
    });
    let (lends, keeps) = (id(&state, "lends"), id(&state, "keeps"));
    let heads =
        [wait(&mut state, "a", lends, 9, &[("gpu", 2)]), wait(&mut state, "b", keeps, 0, &[("gpu", 3)])];
    assert_eq!(outcomes(&mut state, heads), [EntryOutcome::Admitted; 2]);
}

#[test]
fn little_left_of_one_resource_bars_no_request_for_another() {
    let mut state = world(Settings::default(), |state| {
        vec![member(state, "one", &[("cpu", 2), ("gpu", 0)]), member(state, "two", &[("cpu", 0), ("gpu", 3)])]
    });
    let (one, two) = (id(&state, "one"), id(&state, "two"));
    let heads = [wait(&mut state, "a", one, 9, &[("cpu", 1)]), wait(&mut state, "b", two, 0, &[("gpu", 3)])];
    assert_eq!(outcomes(&mut state, heads), [EntryOutcome::Admitted; 2]);
}

#[test]
fn little_left_in_one_cohort_bars_no_request_in_another() {
    let mut state = QueueState::new(Settings::default());
    let cohorts = BTreeMap::from([
        (Arc::from("small"), cohort(&mut state, "all", 0, Some(0))),
        (Arc::from("large"), cohort(&mut state, "all", 0, None)),
    ]);
    let one = queue(&mut state, "one", Some("small"), &[&[("f", &[("gpu", 1)])]]);
    let two = queue(&mut state, "two", Some("large"), &[&[("f", &[("gpu", 4)])]]);
    state.configure(&cohorts, vec![one, two]);
    let (one, two) = (id(&state, "one"), id(&state, "two"));
    let heads = [wait(&mut state, "a", one, 9, &[("gpu", 1)]), wait(&mut state, "b", two, 0, &[("gpu", 3)])];
    assert_eq!(outcomes(&mut state, heads), [EntryOutcome::Admitted; 2]);
}

#[test]
fn a_request_for_exactly_what_is_left_starts() {
    let mut state = world(Settings::default(), |state| {
        vec![member(state, "one", &[("cpu", 1), ("gpu", 0)]), member(state, "two", &[("gpu", 3)])]
    });
    let (one, two) = (id(&state, "one"), id(&state, "two"));
    let heads = [
        wait(&mut state, "a", one, 9, &[("cpu", 1), ("gpu", 0)]),
        wait(&mut state, "b", two, 0, &[("gpu", 3)]),
    ];
    assert_eq!(outcomes(&mut state, heads), [EntryOutcome::Admitted; 2]);
}

#[test]
fn a_request_for_none_of_an_overused_resource_starts() {
    let mut state = world(Settings::default(), |state| {
        vec![member(state, "one", &[("cpu", 4), ("gpu", 0)]), member(state, "two", &[("cpu", 4), ("gpu", 0)])]
    });
    let (one, two) = (id(&state, "one"), id(&state, "two"));
    // The quota was lowered below what runs.
    hold(&mut state, "holder", two, "f", &[("gpu", 2)]);
    let asks: Amounts<'_> = &[("cpu", 1), ("gpu", 0)];
    let heads = [wait(&mut state, "a", one, 9, asks), wait(&mut state, "b", two, 0, asks)];
    assert_eq!(outcomes(&mut state, heads), [EntryOutcome::Admitted; 2]);
}

#[test]
fn a_request_that_fits_once_new_victims_are_gone_is_deferred() {
    let mut state = world(Settings::default(), |state| {
        let preempts = member(state, "preempts", &[("gpu", 3)]);
        vec![
            member(state, "first", &[("gpu", 2)]),
            member(state, "second", &[("gpu", 1)]),
            preempts_within(preempts),
            member(state, "borrows", &[("gpu", 0)]),
        ]
    });
    let [first, second, preempts, borrows] =
        ["first", "second", "preempts", "borrows"].map(|name| id(&state, name));
    hold(&mut state, "victim", preempts, "f", &[("gpu", 4)]);
    let heads = [
        wait(&mut state, "takes what is free", first, 9, &[("gpu", 2)]),
        wait(&mut state, "finds none", second, 8, &[("gpu", 1)]),
        wait(&mut state, "preempts", preempts, 7, &[("gpu", 3)]),
        wait(&mut state, "counts on the rest", borrows, 0, &[("gpu", 1)]),
    ];
    assert_eq!(
        outcomes(&mut state, heads),
        [EntryOutcome::Admitted, EntryOutcome::Skipped, EntryOutcome::Preempting, EntryOutcome::Deferred]
    );
}

/// Two heads that each need a whole host, and the hosts that they get.
fn placed_heads(recompute: bool) -> Vec<String> {
    let gates = Gates { topology_recompute: recompute, ..Gates::default() };
    let mut state = world(Settings { gates, ..Settings::default() }, |state| {
        let queues = ["one", "two"].map(|name| member(state, name, &[("cpu", 9)]));
        let flavor = state.flavor_id("f");
        state.set_flavor(flavor, Some(Flavor { topology: Some(Arc::from("dc")), ..Flavor::default() }));
        queues.to_vec()
    });
    let nodes = ["h1", "h2"].map(|name| Node {
        name: name.to_owned(),
        labels: BTreeMap::from([(HOST.to_owned(), name.to_owned())]),
        taints: Vec::new(),
        ready: true,
        unschedulable: false,
        allocatable: BTreeMap::from([("cpu".to_owned(), 2), ("pods".to_owned(), 9)]),
    });
    state.set_nodes(&[(Arc::from("dc"), vec![HOST.to_owned()])].into(), &nodes, &[]);
    for name in ["one", "two"] {
        let queue = id(&state, name);
        let new = new(&mut state, name, queue, 0, &[("cpu", 2)]);
        let mut shape = (**state.shape_of(new.shape)).clone();
        shape.pod_sets[0].on_node = [("cpu".to_owned(), 2)].into();
        shape.pod_sets[0].topology = Some(TopologyRequest::required(HOST));
        let shape = state.intern(shape);
        state.add_pending(NewWorkload { shape, ..new });
    }
    once(&mut state);
    let placed = state.workloads().filter_map(|(_, of)| of.holding.as_ref()?.given[0].placement.clone());
    let mut hosts: Vec<String> =
        placed.flat_map(|placed| placed.domains.into_iter().map(|domain| domain.values.concat())).collect();
    hosts.sort();
    hosts
}

#[test]
fn heads_of_one_cycle_never_get_the_same_host() {
    assert_eq!(placed_heads(true), ["h1", "h2"], "the second is placed again");
    assert_eq!(placed_heads(false), ["h1"], "the second waits for the next cycle");
}

#[test]
fn a_queue_that_can_reclaim_reserves_nothing_unless_it_starves() {
    for (prioritize_preemptors, starved) in [(false, false), (true, false), (false, true), (true, true)] {
        let gates = Gates { prioritize_preemptors, ..Gates::default() };
        let mut state = world(Settings { gates, ..Settings::default() }, |state| {
            let reclaiming = member(state, "reclaims", &[("gpu", 4)]);
            let reclaiming = QueueSetup { preemption: reclaims(PreemptionRule::Any), ..reclaiming };
            vec![reclaiming, member(state, "lends", &[("gpu", 1)]), member(state, "borrows", &[("gpu", 0)])]
        });
        let (reclaiming, borrows) = (id(&state, "reclaims"), id(&state, "borrows"));
        hold(&mut state, "holder", reclaiming, "f", &[("gpu", 4)]);
        let waits = wait(&mut state, "waits", reclaiming, 9, &[("gpu", 2)]);
        let small = wait(&mut state, "small", borrows, 0, &[("gpu", 1)]);
        state.set_starved_head(reclaiming, starved.then_some(waits));
        let wanted = if starved { EntryOutcome::Yields } else { EntryOutcome::Admitted };
        assert_eq!(
            outcomes(&mut state, [waits, small]),
            [EntryOutcome::NoCandidates, wanted],
            "starved: {starved}, prioritized: {prioritize_preemptors}"
        );
    }
}

/// The outcome of a head that asks for `gpus` after a head that waits with a borrowing limit of two.
fn beside_limited_head(gpus: i64) -> EntryOutcome {
    let mut state = world(Settings::default(), |state| {
        let mut limited = member(state, "limited", &[("gpu", 4)]);
        limited.quotas.values_mut().for_each(|quota| quota.borrowing_limit = Some(Amount(2)));
        vec![limited, member(state, "lends", &[("gpu", 6)]), member(state, "borrows", &[("gpu", 0)])]
    });
    let (limited, borrows) = (id(&state, "limited"), id(&state, "borrows"));
    hold(&mut state, "holder", limited, "f", &[("gpu", 4)]);
    let waits = wait(&mut state, "waits", limited, 9, &[("gpu", 4)]);
    let beside = wait(&mut state, "beside", borrows, 0, &[("gpu", gpus)]);
    let [waits, beside] = outcomes(&mut state, [waits, beside]);
    assert_eq!(waits, EntryOutcome::NoCandidates);
    beside
}

#[test]
fn a_waiting_head_reserves_what_its_borrowing_limit_leaves() {
    assert_eq!(beside_limited_head(4), EntryOutcome::Admitted);
    assert_eq!(beside_limited_head(5), EntryOutcome::Skipped);
}

#[test]
fn a_waiting_head_that_would_not_borrow_reserves_only_own_quota() {
    let mut state = world(Settings::default(), |state| {
        let own = member(state, "own", &[("cpu", 4), ("gpu", 4)]);
        vec![preempts_within(own), member(state, "other", &[("cpu", 4), ("gpu", 0)])]
    });
    let (own, other) = (id(&state, "own"), id(&state, "other"));
    // It could preempt for one resource, but not for the other.
    hold(&mut state, "victim", own, "f", &[("cpu", 3)]);
    hold(&mut state, "holder", other, "f", &[("cpu", 2), ("gpu", 4)]);
    let waits = wait(&mut state, "waits", own, 9, &[("cpu", 4), ("gpu", 4)]);
    let beside = wait(&mut state, "beside", other, 0, &[("cpu", 2)]);
    // Three of the cohort's eight are free. Only the one left of its own quota is reserved.
    assert_eq!(outcomes(&mut state, [waits, beside]), [EntryOutcome::NoCandidates, EntryOutcome::Admitted]);
}

#[test]
fn reserved_quota_of_a_sibling_does_not_take_the_right_to_reclaim() {
    let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
    let mut state = QueueState::new(Settings { gates, ..Settings::default() });
    let cohorts = BTreeMap::from([(Arc::from("team"), cohort(&mut state, "all", 6, None))]);
    let mut ours =
        ["one", "two", "three"].map(|name| queue(&mut state, name, Some("team"), &[&[("f", &[("gpu", 0)])]]));
    ours[2].preemption = reclaims(PreemptionRule::Any);
    let borrower = queue(&mut state, "borrower", Some("all"), &[&[("f", &[("gpu", 1)])]]);
    state.configure(&cohorts, ours.into_iter().chain([borrower]).collect());
    let [one, two, three, borrower] = ["one", "two", "three", "borrower"].map(|name| id(&state, name));
    let victim = hold(&mut state, "victim", borrower, "f", &[("gpu", 5)]);
    let heads = [
        wait(&mut state, "starts", one, 9, &[("gpu", 1)]),
        wait(&mut state, "waits", two, 8, &[("gpu", 3)]),
        wait(&mut state, "reclaims", three, 7, &[("gpu", 3)]),
    ];
    assert_eq!(
        outcomes(&mut state, heads),
        [EntryOutcome::Admitted, EntryOutcome::NoCandidates, EntryOutcome::Preempting]
    );
    assert!(state.workload(victim).is_some_and(|victim| victim.evicted()));
}

#[test]
fn pod_sets_of_one_flavor_use_their_sum() {
    let mut state = world(Settings::default(), |state| vec![member(state, "q", &[("gpu", 9)])]);
    let (q, gpus) = (id(&state, "q"), key(&mut state, "gpu"));
    let new = gang(&mut state, "w", q, 0, &[(2, &[("gpu", 1)]), (1, &[("gpu", 4)])]);
    hold_gang(&mut state, new);
    assert_eq!((state.used(q, gpus), state.available(q, gpus)), (6, 3));
}

/// A full queue of small workloads that a head of higher priority may preempt. `asks` adds the head. Returns
/// how many it preempts.
fn preempted(nominal: i64, victims: usize, asks: impl FnOnce(&mut QueueState, QueueId)) -> usize {
    let mut state = world(Settings::default(), |state| {
        let setup = member(state, "q", &[("gpu", nominal)]);
        vec![preempts_within(setup)]
    });
    let q = id(&state, "q");
    for at in 0..victims {
        hold(&mut state, &format!("n/victim-{at}"), q, "f", &[("gpu", 1)]);
    }
    asks(&mut state, q);
    once(&mut state).preempted.len()
}

#[test]
fn victims_make_room_for_the_sum_of_all_pod_sets() {
    let stopped = preempted(6, 6, |state, q| {
        let new = gang(state, "n/w", q, 5, &[(1, &[("gpu", 1)]), (1, &[("gpu", 2)])]);
        state.add_pending(new);
    });
    assert_eq!(stopped, 3);
}

#[test]
fn a_larger_slice_preempts_only_for_its_additional_pods() {
    let stopped = preempted(9, 6, |state, q| {
        let old = gang(state, "n/old", q, 5, &[(3, &[("gpu", 1)])]);
        hold_gang(state, old);
        let new = gang(state, "n/new", q, 5, &[(5, &[("gpu", 1)])]);
        wait_slice(state, new, "n/old");
    });
    assert_eq!(stopped, 2);
}

#[test]
fn either_preemption_policy_allows_preemption() {
    let allows = |within_queue, reclaim_within_cohort| {
        ClusterQueuePreemption { within_queue, reclaim_within_cohort, borrow_within_cohort: None }
            .allows_any()
    };
    for never in [PreemptionRule::Never, PreemptionRule::Unset] {
        assert!(!allows(never, PreemptionRule::Never));
        assert!(!allows(PreemptionRule::Never, never));
        assert!(allows(never, PreemptionRule::Any));
        assert!(allows(PreemptionRule::LowerPriority, never));
    }
    assert!(allows(PreemptionRule::Any, PreemptionRule::Any));
}

/// A slice with a smaller first pod set and a larger second one. Returns the CPUs that another queue may
/// borrow, before and after two cycles.
fn around_a_mixed_slice(settings: Settings, victim: bool) -> (i64, i64) {
    let mut state = world(settings, |state| {
        let asking = member(state, "asking", &[("cpu", 8), ("gpu", 4)]);
        vec![preempts_within(asking), member(state, "other", &[("cpu", 0), ("gpu", 0)])]
    });
    let (asking, other, cpus) = (id(&state, "asking"), id(&state, "other"), key(&mut state, "cpu"));
    let old = gang(&mut state, "n/old", asking, 5, &[(4, &[("cpu", 1)]), (1, &[("gpu", 1)])]);
    hold_gang(&mut state, old);
    if victim {
        hold(&mut state, "n/victim", asking, "f", &[("gpu", 3)]);
    }
    let new = gang(&mut state, "n/new", asking, 5, &[(2, &[("cpu", 1)]), (3, &[("gpu", 1)])]);
    wait_slice(&mut state, new, "n/old");
    wait(&mut state, "n/beside", other, 0, &[("gpu", 4)]);
    let before = state.available(other, cpus);
    once(&mut state);
    once(&mut state);
    (before, state.available(other, cpus))
}

#[test]
fn a_slice_that_preempts_and_shrinks_one_pod_set_leaves_no_usage_behind() {
    assert_eq!(around_a_mixed_slice(Settings::default(), true), (4, 4));
}

#[test]
fn with_fair_sharing_a_slice_that_starts_leaves_no_usage_behind() {
    let fair = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
    // Two CPUs of the old slice are free afterwards.
    assert_eq!(around_a_mixed_slice(fair, false), (4, 6));
}

/// A slice that gives back two CPUs, and preempts a workload for its GPUs.
fn mixed_slice(state: &mut QueueState, queue: QueueId, priority: i64) -> WorkloadId {
    let old = gang(state, "n/old", queue, priority, &[(4, &[("cpu", 1)]), (1, &[("gpu", 1)])]);
    hold_gang(state, old);
    hold(state, "n/victim", queue, "f", &[("gpu", 3)]);
    let new = gang(state, "n/new", queue, priority, &[(2, &[("cpu", 1)]), (3, &[("gpu", 1)])]);
    wait_slice(state, new, "n/old")
}

#[test]
fn what_a_slice_will_give_back_is_not_given_away_before_it_starts() {
    let mut state = world(Settings::default(), |state| {
        let asking = preempts_within(member(state, "asking", &[("cpu", 14), ("gpu", 4)]));
        let takes = ["first", "second"].map(|name| member(state, name, &[("cpu", 0)]));
        [asking].into_iter().chain(takes).collect()
    });
    let [asking, first, second] = ["asking", "first", "second"].map(|name| id(&state, name));
    let heads = [
        mixed_slice(&mut state, asking, 9),
        wait(&mut state, "n/first", first, 5, &[("cpu", 6)]),
        wait(&mut state, "n/second", second, 1, &[("cpu", 6)]),
    ];
    let [slice, taken, last] = outcomes(&mut state, heads);
    assert_eq!((slice, taken), (EntryOutcome::Preempting, EntryOutcome::Admitted));
    assert_eq!(last, EntryOutcome::Deferred, "4 of 14 CPUs are left until the old slice has ended");
}

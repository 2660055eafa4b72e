//! Flavor assignment and shares.

use super::stage::{Amounts, hold, id, queue, wait, world};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle::{self, EntryOutcome};
use meridian_queueing::flavors::{Mode, PreemptionOracle, PreemptionPossibility, assign_flavors};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::preemption;
use meridian_queueing::quota::{Forest, Leaf, Quota, Quotas, Share, WEIGHT_ONE};
use meridian_queueing::settings::Settings;
use meridian_queueing::{Amount, QueueState};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn the_later_of_overlapping_groups_decides() {
    let mut state = world(Settings::default(), |state| {
        vec![queue(state, "q", None, &[&[("small", &[("cpu", 9)])], &[("large", &[("cpu", 9), ("gpu", 9)])]])]
    });
    let q = id(&state, "q");
    let w = wait(&mut state, "w", q, 0, &[("cpu", 1), ("gpu", 1)]);
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    assert_eq!(report.entries[0].outcome, EntryOutcome::Admitted);
    let held = state.workload(w).and_then(|w| w.holding.as_ref()).expect("it was admitted");
    let flavors: Vec<&str> =
        held.given[0].flavors.values().map(|flavor| &**state.flavor_name(*flavor)).collect();
    assert_eq!(flavors, ["large", "large"], "resources of one group get one flavor");
}

#[test]
fn cycles_of_other_trees_do_not_age_a_flavor_scan() {
    let mut state = world(Settings::default(), |state| {
        let both: &[(&str, Amounts<'_>)] = &[("first", &[("cpu", 0)]), ("second", &[("cpu", 5)])];
        let here = queue(state, "here", Some("c"), &[both]);
        let next_to_it = queue(state, "next to it", Some("c"), &[&[("first", &[("cpu", 4)])]]);
        let elsewhere = queue(state, "elsewhere", Some("a"), &[&[("third", &[("cpu", 9)])]]);
        vec![here, next_to_it, elsewhere]
    });
    let (here, next_to_it, elsewhere) =
        (id(&state, "here"), id(&state, "next to it"), id(&state, "elsewhere"));
    let small = hold(&mut state, "small", here, "second", &[("cpu", 1)]);
    let asks = wait(&mut state, "asks", here, 0, &[("cpu", 4)]);
    let other = wait(&mut state, "other", next_to_it, 0, &[("cpu", 4)]);
    let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
    let outcome =
        |w: WorkloadId| report.entries.iter().find(|entry| entry.workload == w).map(|entry| entry.outcome);
    assert_eq!(
        (outcome(asks), outcome(other)),
        (Some(EntryOutcome::Skipped), Some(EntryOutcome::Admitted)),
        "it would have borrowed the first flavor"
    );
    // The first flavor is free again, and other trees run several cycles before this one.
    state.remove(other);
    state.remove(small);
    for round in 0..3 {
        wait(&mut state, &format!("other-{round}"), elsewhere, 0, &[("cpu", 1)]);
    }
    cycle::run(&mut state, &mut UnlimitedCapacity, |_, _| true);
    let held = state.workload(asks).and_then(|w| w.holding.as_ref()).expect("it was admitted");
    let flavors: Vec<&str> =
        held.given[0].flavors.values().map(|flavor| &**state.flavor_name(*flavor)).collect();
    assert_eq!(flavors, ["second"], "the scan continued");
}

#[test]
fn the_resource_named_first_dominates_equal_shares() {
    let mut state = QueueState::default();
    let (cpu, memory, flavor) = (state.resource("cpu"), state.resource("memory"), state.flavor_id("f"));
    // The cells of the tree are in the order of declaration: the borrower's only resource, memory, comes
    // first.
    let quotas = |of: &[(ResourceId, i64)]| -> Quotas {
        of.iter()
            .map(|(resource, nominal)| {
                ((flavor, *resource), Quota { nominal: Amount(*nominal), ..Quota::default() })
            })
            .collect()
    };
    let leaf = |name: &str, quotas: Quotas| Leaf {
        name: Arc::from(name),
        cohort: Some(Arc::from("c")),
        quotas,
        weight: WEIGHT_ONE,
    };
    let leaves = [leaf("borrower", quotas(&[(memory, 0)])), leaf("lender", quotas(&[(cpu, 8), (memory, 8)]))];
    let (mut forest, places) = Forest::build(&BTreeMap::new(), &leaves);
    let borrower = places[0].expect("it is in no cycle");
    let lender = places[1].expect("it is in no cycle");
    let tree = forest.node(lender).tree;
    for resource in [memory, cpu] {
        let cell = forest.cell_id(tree, (flavor, resource));
        forest.add(lender, cell, Amount(10));
    }
    assert_eq!(forest.share(lender).dominant, Some(cpu));
    assert_eq!(forest.share(borrower), Share::none(WEIGHT_ONE));
}

#[test]
fn flavors_can_be_assigned_without_admission() {
    struct Nobody;
    impl PreemptionOracle for Nobody {
        fn simulate(
            &mut self,
            _: &mut QueueState,
            _: WorkloadId,
            _: (FlavorId, ResourceId),
            _: Amount,
        ) -> (PreemptionPossibility, u32) {
            (PreemptionPossibility::NoCandidates, 0)
        }
    }
    let mut state =
        world(Settings::default(), |state| vec![queue(state, "q", None, &[&[("f", &[("cpu", 4)])]])]);
    let q = id(&state, "q");
    hold(&mut state, "holder", q, "f", &[("cpu", 3)]);
    let w = wait(&mut state, "w", q, 0, &[("cpu", 2)]);
    let assignment = assign_flavors(&mut state, w, q, &mut Nobody, None);
    assert_eq!(assignment.mode(), Mode::Preempt);
    assert!(
        preemption::victims(&mut state, &mut UnlimitedCapacity, w, &assignment).is_empty(),
        "its queue may not preempt"
    );
}

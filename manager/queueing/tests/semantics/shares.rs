//! Shares and heights in the tree of cohorts.

use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::quota::{CellId, CohortSetup, Forest, Leaf, NodeId, Quota, Quotas, Share, WEIGHT_ONE};
use meridian_queueing::{Amount, QueueState};
use std::collections::BTreeMap;
use std::sync::Arc;

const CPU: ResourceId = ResourceId(0);
const GPU: ResourceId = ResourceId(1);
const FLAVOR: FlavorId = FlavorId(0);

fn quotas(of: &[(ResourceId, i64)]) -> Quotas {
    let quota = |nominal| Quota { nominal: Amount(nominal), ..Quota::default() };
    of.iter().map(|(resource, nominal)| ((FLAVOR, *resource), quota(*nominal))).collect()
}

fn leaf(name: &str, cohort: &str, of: &[(ResourceId, i64)], weight: i64) -> Leaf {
    Leaf { name: Arc::from(name), cohort: Some(Arc::from(cohort)), quotas: quotas(of), weight }
}

fn cohort(parent: Option<&str>, gpus: i64) -> CohortSetup {
    CohortSetup { parent: parent.map(Arc::from), quotas: quotas(&[(GPU, gpus)]), ..CohortSetup::default() }
}

#[test]
fn a_share_counts_each_resource_alone_and_is_divided_by_the_weight() {
    let leaves = [
        leaf("borrower", "c", &[(CPU, 0), (GPU, 0)], 2 * WEIGHT_ONE),
        leaf("lender", "c", &[(CPU, 4), (GPU, 10)], WEIGHT_ONE),
    ];
    let (mut forest, places) = Forest::build(&BTreeMap::new(), &leaves);
    let borrower = places[0].expect("it is in no cycle");
    let cell = forest.cell_id(forest.node(borrower).tree, (FLAVOR, GPU));
    forest.add(borrower, cell, Amount(2));
    let share = forest.share(borrower);
    assert_eq!((share.dominant, share.weighted()), (Some(GPU), 100.0), "a fifth, with weight two");
}

#[test]
fn a_negative_amount_is_added_by_its_removal() {
    let leaves =
        [leaf("borrower", "c", &[(GPU, 1)], WEIGHT_ONE), leaf("lender", "c", &[(GPU, 10)], WEIGHT_ONE)];
    let (mut forest, places) = Forest::build(&BTreeMap::new(), &leaves);
    let [borrower, lender] = [0, 1].map(|at: usize| places[at].expect("it is in no cycle"));
    let cell = forest.cell_id(forest.node(borrower).tree, (FLAVOR, GPU));
    let mut left = |change: fn(&mut Forest, NodeId, CellId)| {
        change(&mut forest, borrower, cell);
        (forest.available(borrower, cell).0, forest.available(lender, cell).0)
    };
    assert_eq!(left(|forest, node, cell| forest.remove(node, cell, Amount(-4))), (7, 7));
    assert_eq!(left(|forest, node, cell| forest.add(node, cell, Amount(-4))), (11, 11));
}

#[test]
fn only_borrowing_makes_a_share_of_weight_zero_infinite() {
    assert!(!Share::none(0).is_infinite());
    assert_eq!((Share::none(0).rounded(), Share::of_ratio(1.0, 0).rounded()), (0, i64::MAX));
    assert!(Share::of_ratio(1.0, WEIGHT_ONE).borrowing && !Share::of_ratio(0.0, WEIGHT_ONE).borrowing);
}

#[test]
fn the_lowest_cohort_that_has_quota_left_is_found() {
    let mut team = cohort(Some("division"), 2);
    team.quotas.values_mut().for_each(|quota| quota.lending_limit = Some(Amount(0)));
    let cohorts = BTreeMap::from([
        (Arc::from("all"), cohort(None, 9)),
        (Arc::from("division"), cohort(Some("all"), 3)),
        (Arc::from("team"), team),
        (Arc::from("empty"), cohort(Some("team"), 0)),
    ]);
    let (mut forest, places) = Forest::build(&cohorts, &[leaf("q", "team", &[(GPU, 0)], WEIGHT_ONE)]);
    let heights =
        ["empty", "team", "division", "all"].map(|name| forest.node(forest.cohort(name).expect(name)).height);
    assert_eq!(heights, [0, 1, 2, 3]);
    let q = places[0].expect("it is in no cycle");
    let cell = forest.cell_id(forest.node(q).tree, (FLAVOR, GPU));
    let lowest = |gpus| forest.lowest_fit(q, cell, Amount(gpus));
    assert_eq!([lowest(2), lowest(5), lowest(6)], [(1, true), (2, true), (3, false)]);
}

#[test]
fn queues_of_cohorts_in_a_cycle_have_no_quota() {
    let cohorts = BTreeMap::from([
        (Arc::from("a"), cohort(Some("b"), 1)),
        (Arc::from("b"), cohort(Some("a"), 1)),
        (Arc::from("c"), cohort(None, 1)),
    ]);
    let leaves = [leaf("lost", "a", &[(GPU, 1)], WEIGHT_ONE), leaf("fine", "c", &[(GPU, 1)], WEIGHT_ONE)];
    let (forest, places) = Forest::build(&cohorts, &leaves);
    assert!(places[0].is_none() && places[1].is_some());
    assert!(forest.in_cycles().iter().map(|name| &**name).eq(["a", "b"]));
    assert_eq!(QueueState::default().forest().in_cycles().len(), 0);
}

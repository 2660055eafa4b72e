use super::*;
use crate::runtime::placement_summary;
use meridian_shared::gang::{PodSet, Taint, TaintEffect, Toleration};
use meridian_shared::packing::HOSTNAME_LABEL;
use meridian_shared::time::Millis;

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 1, counter }
}

fn ledger(nodes: usize, gpus: i64) -> Ledger {
    let mut l = Ledger::default();
    let spec = |i| NodeSpec {
        name: format!("n{i}"),
        capacity: Amounts::from([("nvidia.com/gpu".into(), gpus)]),
        ..NodeSpec::default()
    };
    l.set_nodes((0..nodes).map(spec).collect(), Vec::new());
    l
}

fn gang(count: u32, gpu: i64) -> Gang {
    Gang {
        pod_sets: vec![PodSet {
            name: "main".into(),
            count,
            per_pod: Amounts::from([("nvidia.com/gpu".into(), gpu)]),
            ..PodSet::default()
        }],
        ..Gang::default()
    }
}

#[test]
fn allocations_are_whole_and_accelerators_are_given_once() {
    let mut l = ledger(2, 4);
    l.hold(offer(1), &gang(3, 2)).unwrap();
    l.check().unwrap();
    assert_eq!(l.pods(offer(1)), 3);
    assert_eq!(placement_summary(&l.placement(offer(1))), "n0 2, n1 1");
    assert!(l.hold(offer(2), &gang(2, 2)).is_err(), "only one of two pods fits");
    assert_eq!(l.pods(offer(2)), 0);
    l.hold(offer(3), &gang(2, 1)).unwrap();
    l.check().unwrap();
    l.release(offer(1));
    l.check().unwrap();
    assert_eq!(l.blocks().iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum::<i64>(), 6);
}

#[test]
fn equal_nodes_form_one_block_and_a_named_node_is_found() {
    let mut l = Ledger::default();
    let spec = |i: u32| NodeSpec {
        name: format!("n{i}"),
        labels: BTreeMap::from([(HOSTNAME_LABEL.into(), format!("n{i}")), ("pool".into(), "a".into())]),
        capacity: Amounts::from([("nvidia.com/gpu".into(), 8)]),
        ..NodeSpec::default()
    };
    l.set_nodes((0..1_000).map(spec).collect(), Vec::new());
    assert_eq!(l.blocks().iter().map(|b| (b.nodes, b.labels.len())).collect::<Vec<_>>(), [(1_000, 1)]);
    let mut named = gang(1, 1);
    named.pod_sets[0].node_selector.insert(HOSTNAME_LABEL.into(), "n700".into());
    l.hold(offer(1), &named).unwrap();
    assert_eq!(l.placement(offer(1))[0].node, "n700");
    assert_eq!(l.blocks().len(), 2);
}

#[test]
fn nodes_of_an_unknown_run_take_no_holds() {
    let mut l = ledger(2, 4);
    let (one, other) =
        (Fence { epoch: 1, leadership: 1, counter: 1 }, Fence { epoch: 1, leadership: 1, counter: 2 });
    l.close(Uid(1), one, vec!["n0".into()]);
    l.hold(offer(1), &gang(1, 4)).unwrap();
    assert_eq!(l.placement(offer(1))[0].node, "n1");
    let refused = l.hold(offer(2), &gang(1, 4)).unwrap_err();
    assert!(refused.fits_empty, "{refused:?}");
    l.release(offer(1));
    assert_eq!(l.blocks().iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum::<i64>(), 4);
    l.close(Uid(2), other, Vec::new());
    assert_eq!(l.blocks().iter().map(|b| b.free["nvidia.com/gpu"]).max(), Some(0), "its nodes are unknown");
    l.reopen(Uid(2), other);
    l.reopen(Uid(1), one);
    l.hold(offer(3), &gang(2, 4)).unwrap();
    l.check().unwrap();
}

#[test]
fn reclaimed_pods_free_their_own_resources_once() {
    let mut l = ledger(2, 4);
    l.hold(offer(1), &gang(3, 2)).unwrap();
    let free =
        |l: &Ledger| l.blocks().iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum::<i64>();
    let main =
        |indexes: &[u32]| -> Vec<(String, u32)> { indexes.iter().map(|i| ("main".to_owned(), *i)).collect() };
    let before = l.revision();
    assert!(l.reclaim(offer(1), &main(&[1])));
    assert!(l.revision() > before, "the change is reported");
    l.check().unwrap();
    assert_eq!(
        (free(&l), l.pods(offer(1)), l.reclaimed_pods(offer(1))),
        (4, 3, BTreeMap::from([("main".into(), 1)]))
    );
    let before = l.revision();
    assert!(
        !l.reclaim(offer(1), &main(&[1]))
            && !l.reclaim(offer(9), &main(&[0]))
            && !l.reclaim(offer(1), &main(&[7]))
    );
    assert_eq!((free(&l), l.revision()), (4, before));
    // Another gang gets the freed accelerators.
    l.hold(offer(2), &gang(1, 2)).unwrap();
    l.check().unwrap();
    assert!(l.reclaim(offer(1), &main(&[0, 1, 2])));
    assert_eq!(l.reclaimed_pods(offer(1)), BTreeMap::from([("main".into(), 3)]));
    l.check().unwrap();
    assert!(l.is_allocated(offer(1)), "the allocation stays until the run has ended");
    l.release(offer(1));
    l.release(offer(2));
    l.check().unwrap();
    assert_eq!(free(&l), 8);
}

#[test]
fn allocations_on_a_vanished_node_stay_charged() {
    let mut l = ledger(2, 4);
    l.hold(offer(1), &gang(2, 4)).unwrap();
    l.set_nodes(
        vec![NodeSpec {
            name: "n0".into(),
            capacity: Amounts::from([("nvidia.com/gpu".into(), 2)]),
            ..NodeSpec::default()
        }],
        Vec::new(),
    );
    l.check().unwrap();
    assert!(l.overcommitted());
    assert_eq!(l.blocks()[0].free["nvidia.com/gpu"], 0, "never reported below zero");
    l.release(offer(1));
    l.check().unwrap();
    assert!(!l.overcommitted());
}

#[test]
fn foreign_use_reduces_free_capacity_only() {
    let mut l = Ledger::default();
    let gpus = |amount| Amounts::from([("nvidia.com/gpu".into(), amount)]);
    let shared =
        NodeSpec { name: "n0".into(), capacity: gpus(4), foreign_use: gpus(3), ..NodeSpec::default() };
    l.set_nodes(vec![shared], Vec::new());
    let refused = l.hold(offer(1), &gang(1, 2)).unwrap_err();
    assert!(refused.fits_empty, "it would fit without the foreign pods");
    l.hold(offer(2), &gang(1, 1)).unwrap();
    l.check().unwrap();
    assert_eq!((l.blocks()[0].free["nvidia.com/gpu"], l.blocks()[0].capacity["nvidia.com/gpu"]), (0, 4));
}

#[test]
fn every_change_of_the_capacity_has_a_new_revision() {
    let (one, fence) = (offer(1), Fence { epoch: 1, leadership: 1, counter: 1 });
    let node = NodeSpec {
        name: "made".into(),
        capacity: Amounts::from([("nvidia.com/gpu".into(), 4)]),
        ..NodeSpec::default()
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Ledger));
    let changes: [Change<'_>; 7] = [
        ("inventory", &|l| l.set_nodes(Vec::new(), Vec::new())),
        ("nodes of a provider", &|l| l.add_provided(one, vec![node.clone()])),
        ("hold on them", &|l| l.hold_provided(one, &gang(1, 4)).expect("they have room")),
        ("release", &|l| l.release(one)),
        ("adopted allocation", &|l| l.adopt(one, Allocation::default())),
        ("closed nodes", &|l| l.close(Uid(1), fence, Vec::new())),
        ("opened nodes", &|l| l.reopen(Uid(1), fence)),
    ];
    let mut l = ledger(1, 4);
    for (name, change) in changes {
        let before = l.revision();
        change(&mut l);
        assert!(l.revision() > before, "{name}");
    }
    let mut l = ledger(1, 4);
    let before = l.revision();
    l.reopen(Uid(1), fence);
    l.release(one);
    assert_eq!(l.revision(), before, "nothing changed");
    l.hold(one, &gang(1, 4)).unwrap();
    assert!(l.revision() > before);
}

#[test]
fn a_check_finds_what_a_hold_would_and_charges_nothing() {
    let mut l = ledger(1, 4);
    l.check_fits(offer(1), &gang(1, 4)).unwrap();
    assert_eq!(l.pods(offer(1)), 0);
    assert!(l.check_fits(offer(1), &gang(2, 4)).is_err());
    l.hold(offer(2), &gang(1, 4)).unwrap();
    assert!(l.check_fits(offer(1), &gang(1, 4)).is_err_and(|misfit| misfit.fits_empty));
}

#[test]
fn nodes_that_were_made_for_an_offer_go_with_it() {
    let mut l = ledger(1, 4);
    let spec = NodeSpec { name: "made".into(), ..NodeSpec::default() };
    l.add_provided(offer(1), vec![spec.clone()]);
    assert_eq!((l.provided(offer(1)), l.provided(offer(2))), (vec![spec], vec![]));
    let before = l.revision();
    l.release(offer(1));
    assert_eq!((l.revision(), l.provided(offer(1))), (before + 1, vec![]));
    l.add_provided(offer(2), Vec::new());
    let before = l.revision();
    l.release(offer(2));
    assert_eq!(l.revision(), before, "there were none");
}

#[test]
fn accelerators_are_those_of_extended_resources_that_a_pod_uses() {
    let mut l = Ledger::default();
    let capacity =
        Amounts::from([("cpu".into(), 8), ("nvidia.com/gpu".into(), 4), ("example.com/nic".into(), 2)]);
    l.set_nodes(
        vec![NodeSpec { name: "n".into(), capacity: capacity.clone(), ..NodeSpec::default() }],
        Vec::new(),
    );
    let mut asked = gang(1, 2);
    asked.pod_sets[0].per_pod.extend([("cpu".into(), 4), ("example.com/nic".into(), 0)]);
    l.hold(offer(1), &asked).unwrap();
    let accelerators = BTreeMap::from([("nvidia.com/gpu".to_owned(), vec![0, 1])]);
    assert_eq!(l.placement(offer(1))[0].accelerators, accelerators);
}

fn tolerated(effect: TaintEffect, since: i64, lasts: u64) -> TolerationDeadline {
    let taint = Taint { key: "maintenance".into(), value: String::new(), effect };
    let (node, pod_set) = ("n0".into(), "main".into());
    TolerationDeadline { node, pod_set, taint, since: Wall(since), lasts: Millis(lasts) }
}

#[test]
fn a_deadline_ends_once() {
    let mut l = ledger(1, 4);
    assert!(!l.has_toleration_to_count());
    l.adopt_toleration(offer(1), vec![tolerated(TaintEffect::NoExecute, 100, 50)]);
    assert!(l.has_toleration_to_count());
    assert!(!l.advance(Wall(149)));
    assert_eq!(l.next_toleration_end(), Some(Wall(150)));
    assert!(l.advance(Wall(150)));
    assert_eq!(l.next_toleration_end(), None);
    assert!(!l.advance(Wall(150)) && !l.advance(Wall(151)), "it ended before");
    assert!(!l.advance(Wall(140)) && l.now() == Wall(151), "time never goes back");
    let later = tolerated(TaintEffect::NoExecute, 100, 50).translated(|at| at + Millis(7));
    l.adopt_toleration(offer(1), vec![later]);
    assert_eq!(l.next_toleration_end(), Some(Wall(157)), "in the calendar of another session");
}

#[test]
fn only_a_taint_that_evicts_is_counted() {
    for (effect, counts) in [(TaintEffect::NoExecute, true), (TaintEffect::NoSchedule, false)] {
        let taint = tolerated(effect, 0, 0).taint;
        let spec = NodeSpec {
            name: "n0".into(),
            capacity: Amounts::from([("nvidia.com/gpu".into(), 4)]),
            taints: vec![taint],
            ..NodeSpec::default()
        };
        let mut l = Ledger::default();
        l.set_nodes(vec![spec], Vec::new());
        assert_eq!(l.has_toleration_to_count(), counts);
        let mut asked = gang(1, 1);
        let (key, value) = (Some("maintenance".to_owned()), String::new());
        asked.pod_sets[0].tolerations =
            vec![Toleration { key, exists: true, value, effect: None, seconds: Some(60) }];
        l.hold(offer(1), &asked).unwrap();
        l.count_toleration(offer(1), &asked, Arrival::Pods);
        assert_eq!(l.next_toleration_end().is_some(), counts, "{effect:?}");
    }
}

#[test]
fn unusable_nodes_and_those_of_one_offer_are_not_reported() {
    let whole = NodeSpec {
        name: "n".into(),
        capacity: Amounts::from([("nvidia.com/gpu".into(), 4)]),
        ..NodeSpec::default()
    };
    let reported = |spec: NodeSpec| {
        let mut l = Ledger::default();
        l.set_nodes(vec![spec], Vec::new());
        (l.blocks().len(), l.check_fits(offer(1), &gang(1, 1)).is_ok())
    };
    assert_eq!(reported(whole.clone()), (1, true));
    assert_eq!(reported(NodeSpec { unready: true, ..whole.clone() }), (0, false));
    assert_eq!(reported(NodeSpec { unschedulable: true, ..whole.clone() }), (0, false));
    let mut l = Ledger::default();
    l.set_nodes(Vec::new(), Vec::new());
    l.add_provided(offer(1), vec![whole.clone()]);
    assert!(l.blocks().is_empty() && l.check_fits(offer(2), &gang(1, 1)).is_err());
    l.check_fits(offer(1), &gang(1, 1)).unwrap();
    l.add_provided(offer(1), vec![NodeSpec { unready: true, ..whole }]);
    assert!(l.check_fits(offer(1), &gang(1, 1)).is_err(), "its own node isn't ready");
}

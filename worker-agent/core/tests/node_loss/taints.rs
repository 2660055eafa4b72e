//! Taints that evict pods (`NoExecute`).

use super::*;

#[test]
fn a_later_taint_evicts_pods_without_toleration() {
    let mut bench = Bench::new();
    bench.run(1, near(6, "rack"));
    bench.run(2, tolerant(plain(2)));
    assert_eq!((bench.places(1).as_str(), bench.places(2).as_str()), ("b0-r0-h0=4 b0-r0-h1=2", "b0-r0-h1=2"));
    for effect in [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule] {
        bench.nodes(tainted(&["b0-r0-h1"], effect));
        assert_eq!(bench.moved(1), None, "{effect:?} evicts no running pod");
    }
    bench.nodes(tainted(&["b0-r0-h1"], TaintEffect::NoExecute));
    let (uid, moving) = (Uid(1), |bench: &Bench| bench.agent.moving(Uid(1), fence(1), 1));
    assert_eq!(bench.moved(1).unwrap().0, 1, "the other gang stays");
    assert_eq!((bench.places(1).as_str(), bench.places(2).as_str()), ("b0-r0-h0=4 b0-r0-h2=2", "b0-r0-h1=2"));
    assert_eq!(moving(&bench), 2);
    bench.confirm(1, 1);
    assert_eq!((moving(&bench), bench.agent.is_stranded(uid, fence(1))), (0, false));
    // A second node of the rack: four pods do not fit it any more.
    bench.nodes(tainted(&["b0-r0-h0", "b0-r0-h1"], TaintEffect::NoExecute));
    assert!(bench.agent.is_stranded(uid, fence(1)) && !bench.agent.is_stranded(uid, fence(2)));
    let message = lost(bench.ends(1));
    assert!(
        message.starts_with("node `b0-r0-h0` evicted pods by a taint, and its pods fit nowhere else"),
        "{message}"
    );
    assert_eq!(bench.places(2), "b0-r0-h1=2");
}

#[test]
fn both_pod_sets_of_a_tainted_node_move_if_one_must() {
    let mut bench = Bench::new();
    let mut gang = tolerant(plain(1));
    gang.pod_sets.push(PodSet { name: "other".into(), ..plain(1).pod_sets.remove(0) });
    bench.run(1, gang.clone());
    assert_eq!(bench.places(1), "b0-r0-h0=2");
    bench.nodes(tainted(&["b0-r0-h0"], TaintEffect::NoExecute));
    assert!(bench.moved(1).is_some());
    assert!(!bench.places(1).contains("b0-r0-h0"), "{}", bench.places(1));
    bench.confirm(1, 1);
    // On a node with tolerant pods only, no pod moves.
    let mut bench = Bench::new();
    gang.pod_sets[0].per_pod = Amounts::from([(GPU.into(), 4)]);
    bench.run(1, gang);
    let placement = bench.agent.ledger().placement(offer(1));
    let node = placement.iter().find(|pod| pod.pod_set == "main").unwrap().node.clone();
    bench.nodes(tainted(&[&node], TaintEffect::NoExecute));
    assert_eq!(bench.moved(1), None);
}

#[test]
fn a_hold_on_a_tainted_node_is_dropped() {
    let mut bench = Bench::new();
    bench.offer(1, plain(1));
    bench.offer(2, tolerant(plain(1)));
    assert_eq!(bench.agent.held().count(), 2);
    bench.nodes(tainted(&["b0-r0-h0"], TaintEffect::NoExecute));
    bench.exchange(None);
    assert_eq!(bench.agent.held().map(|(id, _)| id).collect::<Vec<_>>(), [offer(2)]);
}

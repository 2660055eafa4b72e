//! Moves of pods from lost nodes to other ones.

use super::*;

#[test]
fn only_pods_of_the_lost_node_move_within_their_domain() {
    for nodes in [without(&["b0-r0-h1"]), unready(&["b0-r0-h1"])] {
        let mut bench = Bench::new();
        bench.run(1, near(6, "rack"));
        assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=2");
        let before = bench.agent.ledger().placement(offer(1));
        bench.nodes(nodes);
        let (number, after) = bench.moved(1).unwrap();
        assert_eq!((number, bench.places(1).as_str()), (1, "b0-r0-h0=4 b0-r0-h2=2"));
        for (old, new) in before.iter().zip(&after) {
            assert_eq!((&old.pod_set, old.index), (&new.pod_set, new.index), "the order of the pods stays");
            assert!(
                old == new
                    || (old.node == "b0-r0-h1" && new.node == "b0-r0-h2" && new.accelerators[GPU].len() == 1)
            );
        }
        assert_eq!(bench.reported(), [], "nothing is reported before the move is finished");
        bench.confirm(1, 1);
        let placements = bench.reported();
        assert_eq!(
            (placements.len(), placements[0].revision, placements[0].to_string().as_str()),
            (1, 1, "main: b0-r0-h0 4, b0-r0-h2 2")
        );
        bench.confirm(1, 1);
        assert_eq!((bench.reported(), bench.moved(1)), (Vec::new(), None), "a repeated report is no news");
        // The attempt is the same: it ends once.
        let (uid, fence) = (Uid(1), fence(1));
        bench.apply(Input::Runner(RunnerEvent::Ended {
            uid,
            fence,
            result: EndResult::Succeeded,
            pod_failures: 0,
            ran: Millis(5),
        }));
        bench.exchange(None);
        assert!(bench.events.iter().any(
            |e| matches!(e, Event::Ended(end) if end.result == EndResult::Succeeded && end.fence == fence)
        ));
    }
}

#[test]
fn an_attempt_ends_when_the_provider_takes_its_nodes_back() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.run(2, plain(4));
    let reason = || "maxRunDuration reached".to_owned();
    bench.apply(Input::Provider(ProviderEvent::Revoked { offer: offer(9), reason: reason() }));
    assert_eq!(bench.moved(1), None, "another offer's nodes concern no run");
    bench.apply(Input::Provider(ProviderEvent::Revoked { offer: offer(1), reason: reason() }));
    let stopped: Vec<&Effect> =
        bench.effects.iter().filter(|effect| matches!(effect, Effect::Stop { .. })).collect();
    assert_eq!(stopped, [&Effect::Stop { uid: Uid(1), fence: fence(1) }]);
    assert_eq!(lost(bench.ends(1)), "maxRunDuration reached");
    assert_eq!(bench.places(2), "b0-r0-h1=4");
}

#[test]
fn an_attempt_that_fits_nowhere_else_ends() {
    let mut bench = Bench::new();
    bench.run(1, near(10, "rack"));
    bench.nodes(without(&["b0-r0-h2"]));
    assert_eq!(
        bench.places(1),
        "b0-r0-h0=4 b0-r0-h1=4 b0-r0-h2=2",
        "the allocation stays until the end was seen"
    );
    let message = lost(bench.ends(1));
    assert!(
        message.starts_with("node `b0-r0-h2` failed, and its pods fit nowhere else: pod set `main`: "),
        "{message}"
    );
    assert_eq!(bench.places(1), "");
}

#[test]
fn a_topology_survives_one_lost_node_at_a_time() {
    let mut bench = Bench::new();
    bench.run(1, near(5, "block"));
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=1");
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1"]));
    assert!(lost(bench.ends(1)).contains(
        "`b0-r0-h0`, `b0-r0-h1` failed, and a gang with a topology request \
                                      survives the loss of one node at a time"
    ));
    // A second loss while pods still move ends the attempt, too.
    let mut bench = Bench::new();
    bench.run(1, near(5, "block"));
    bench.nodes(without(&["b0-r0-h1"]));
    assert!(bench.moved(1).is_some());
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1"]));
    assert!(lost(bench.ends(1)).contains("one node at a time"));
    // A gang survives several losses, one after the other.
    let mut bench = Bench::new();
    bench.run(1, near(5, "block"));
    for (number, gone) in [(1, vec!["b0-r0-h1"]), (2, vec!["b0-r0-h0", "b0-r0-h1"])] {
        bench.nodes(without(&gone));
        assert_eq!(bench.moved(1).unwrap().0, number);
        bench.confirm(1, number);
    }
    assert!(
        !bench.places(1).contains("b0-r0-h0") && !bench.places(1).contains("b0-r0-h1"),
        "{}",
        bench.places(1)
    );
}

#[test]
fn a_gang_without_topology_moves_from_several_nodes() {
    let mut bench = Bench::new();
    bench.run(1, plain(12));
    let before = bench.places(1);
    assert_eq!(before, "b0-r0-h0=4 b0-r0-h1=4 b0-r0-h2=4");
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h2"]));
    assert_eq!(bench.moved(1).unwrap().0, 1);
    assert_eq!(bench.places(1), "b0-r0-h1=4 b0-r1-h0=4 b0-r1-h1=4");
    // A loss during a move is handled after the move.
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h2", "b0-r0-h1"]));
    assert_eq!(bench.moved(1), None);
    bench.confirm(1, 1);
    assert_eq!(bench.moved(1).unwrap().0, 2);
    assert_eq!(bench.places(1), "b0-r1-h0=4 b0-r1-h1=4 b0-r1-h2=4");
    bench.confirm(1, 2);
    assert_eq!(bench.reported().iter().map(|placed| placed.revision).collect::<Vec<_>>(), [1, 2]);
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h2", "b0-r0-h1", "b0-r1-h1"]));
    assert!(lost(bench.ends(1)).contains("fit nowhere else"));
}

#[test]
fn a_restart_during_a_move_repeats_the_order() {
    let mut bench = Bench::new();
    bench.run(1, near(6, "rack"));
    bench.nodes(unready(&["b0-r0-h1"]));
    let ordered = bench.moved(1).unwrap();
    bench.restart();
    assert_eq!(bench.moved(1), Some(ordered.clone()));
    bench.nodes(unready(&["b0-r0-h1"]));
    assert_eq!(bench.moved(1), None);
    bench.restart();
    // The node is back, but its pods were not seen ended.
    bench.nodes(fleet());
    assert_eq!(bench.moved(1), Some(ordered));
    bench.offer(2, near(12, "rack"));
    bench.offer(3, plain(13));
    bench.exchange(None);
    assert!(bench.agent.held().any(|(id, _)| id == offer(2)), "the other rack is free");
    assert!(!bench.agent.held().any(|(id, _)| id == offer(3)));
    bench.confirm(1, 1);
    assert_eq!(bench.reported().iter().map(|placed| placed.revision).max(), Some(1));
    bench.restart();
    bench.nodes(fleet());
    assert_eq!(bench.moved(1), None, "a finished move is not repeated");
    assert_eq!(
        bench.reported()[0].to_string(),
        "main: b0-r0-h0 4, b0-r0-h2 2",
        "the new placement is stored"
    );
}

#[test]
fn a_loss_without_an_agent_is_noticed() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.restart();
    assert_eq!(bench.moved(1), None, "the inventory is not known yet");
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1).unwrap().0, 1);
}

#[test]
fn the_old_node_stays_charged_until_its_pods_ended() {
    let mut bench = Bench::new();
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r1-h2"]));
    assert!(lost(bench.ends(1)).contains("fit nowhere else"));
    bench.nodes(fleet());
    bench.run(2, plain(4));
    assert_eq!(bench.places(2), "b0-r0-h0=4");
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.moved(2).unwrap().0, 1);
    bench.nodes(fleet());
    bench.offer(3, plain(17));
    assert_eq!(bench.agent.held().count(), 0, "16 are free: 4 are in use, 4 are not freed yet");
    bench.confirm(2, 1);
    bench.offer(4, plain(20));
    assert_eq!(bench.agent.held().count(), 1);
}

#[test]
fn a_stop_during_a_move_frees_both_nodes() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(unready(&["b0-r0-h0"]));
    assert!(bench.moved(1).is_some());
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Cancelled }));
    assert_eq!(bench.ends(1), EndResult::Stopped);
    bench.confirm(1, 1);
    bench.nodes(fleet());
    bench.offer(2, plain(24));
    assert_eq!(bench.agent.held().count(), 1);
}

#[test]
fn holds_on_lost_nodes_are_dropped() {
    let mut bench = Bench::new();
    bench.offer(1, plain(24));
    assert_eq!(bench.agent.held().count(), 1);
    bench.nodes(unready(&["b0-r0-h0"]));
    bench.exchange(None);
    assert_eq!(bench.agent.held().count(), 0);
    assert!(
        bench
            .events
            .iter()
            .any(|e| matches!(e, Event::Gone { offer: id, expired: false, .. } if *id == offer(1))),
        "{:?}",
        bench.events
    );
    bench.nodes(
        fleet().into_iter().map(|node| NodeSpec { unschedulable: node.name == "b0-r0-h0", ..node }).collect(),
    );
    bench.offer(2, plain(21));
    assert_eq!(bench.agent.held().count(), 0);
    bench.run(3, plain(20));
    assert!(!bench.places(3).contains("b0-r0-h0"));
    // Pods that are there stay.
    bench.nodes(fleet().into_iter().map(|node| NodeSpec { unschedulable: true, ..node }).collect());
    assert_eq!(bench.moved(3), None);
    let blocks = bench.agent.ledger().blocks();
    assert_eq!(blocks, [], "unschedulable nodes are not reported");
}

#[test]
fn moves_per_attempt_are_bounded() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    for number in 1..=MOVES_MAX {
        let node = bench.places(1).split('=').next().unwrap().to_owned();
        bench.nodes(unready(&[&node]));
        assert_eq!(bench.moved(1).unwrap().0, number);
        bench.confirm(1, number);
    }
    let node = bench.places(1).split('=').next().unwrap().to_owned();
    bench.nodes(unready(&[&node]));
    assert!(lost(bench.ends(1)).contains("moved 16 times already"));
}

#[test]
fn an_inventory_without_a_loss_reports_nothing() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(fleet());
    assert_eq!((bench.moved(1), bench.reported()), (None, Vec::new()));
}

#[test]
fn every_step_of_a_move_is_a_new_revision_of_the_capacity() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    let revision = |bench: &Bench| bench.agent.ledger().revision();
    let before = revision(&bench);
    bench.nodes(without(&["b0-r0-h0"]));
    let moved = revision(&bench);
    assert!(moved > before + 1, "the inventory and the new places");
    bench.confirm(1, 1);
    assert!(revision(&bench) > moved, "the old places are free");
}

#[test]
fn a_pod_set_that_lost_nothing_keeps_its_places() {
    let mut bench = Bench::new();
    let mut gang = near(3, "rack");
    gang.pod_sets.push(PodSet { name: "other".into(), ..near(4, "rack").pod_sets.remove(0) });
    bench.run(1, gang);
    let places = |bench: &Bench, set: &str| -> Vec<String> {
        let pods = bench.agent.ledger().placement(offer(1));
        pods.into_iter().filter(|pod| pod.pod_set == set).map(|pod| pod.node).collect()
    };
    let (main, other) = (places(&bench, "main"), places(&bench, "other"));
    let lost = main.iter().find(|node| !other.contains(node)).expect("a node of one set alone").clone();
    bench.nodes(without(&[&lost]));
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
    assert_eq!(places(&bench, "other"), other);
    assert!(!places(&bench, "main").contains(&lost));
}

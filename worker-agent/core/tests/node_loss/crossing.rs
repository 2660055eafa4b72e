//! Node losses that happen together, or during moves and other changes.

use super::*;

/// The fleet without the nodes of these numbers.
fn all_but(lost: &[usize]) -> Vec<NodeSpec> {
    fleet().into_iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, node)| node).collect()
}

fn on(node: &str, pods: u32) -> Gang {
    let mut gang = plain(pods);
    gang.pod_sets[0].node_selector.insert(HOST.into(), node.into());
    gang
}

impl Bench {
    /// Ordered moves and stops since the last call.
    fn orders(&mut self) -> (Vec<(u64, u32)>, Vec<u64>) {
        let number = |uid: &Uid| u64::try_from(uid.0).unwrap();
        let (mut moves, mut stops) = (Vec::new(), Vec::new());
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Move { uid, number: nth, .. } => moves.push((number(&uid), nth)),
                Effect::Stop { uid, .. } => stops.push(number(&uid)),
                _ => {}
            }
        }
        (moves, stops)
    }
}

#[test]
fn of_two_gangs_the_first_gets_the_only_node() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(2));
    bench.run(2, plain(2));
    bench.run(3, plain(16));
    assert_eq!((bench.places(1).as_str(), bench.places(2).as_str()), ("b0-r0-h0=2", "b0-r0-h0=2"));
    bench.nodes(
        all_but(&[0, 5])
            .into_iter()
            .chain([NodeSpec { capacity: Amounts::from([(GPU.into(), 2)]), ..node("b0-r2-h0") }])
            .collect(),
    );
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    assert!(bench.agent.is_waiting(Uid(2)) && !bench.agent.is_waiting(Uid(1)));
    // The first gang leaves a node that is lost, so the second can't use it.
    bench.confirm(1, 1);
    assert_eq!(bench.orders(), (vec![], vec![]));
    // The first gang ends, and the second one gets its node.
    bench.apply(Input::Runner(RunnerEvent::Ended {
        uid: Uid(1),
        fence: fence(1),
        result: EndResult::Succeeded,
        pod_failures: 0,
        ran: Millis(5),
    }));
    assert_eq!(bench.orders(), (vec![(2, 1)], vec![]));
    assert_eq!(bench.places(2), "b0-r2-h0=2");
}

#[test]
fn after_the_loss_of_all_nodes_gangs_end_or_wait() {
    for (wait, stops) in [(Millis(0), vec![1, 2]), (WAIT, vec![])] {
        let mut bench = Bench::waiting(wait);
        bench.run(1, near(6, "rack"));
        bench.run(2, plain(3));
        bench.nodes(fleet().into_iter().map(|node| NodeSpec { unready: true, ..node }).collect());
        // A gang on two nodes of its topology doesn't wait.
        let stops = if wait == WAIT { vec![1] } else { stops };
        assert_eq!(bench.orders(), (vec![], stops));
        assert_eq!(bench.agent.ledger().blocks(), []);
        bench.nodes(Vec::new());
        bench.nodes(fleet());
        assert_eq!((bench.orders(), bench.agent.is_waiting(Uid(2))), ((vec![], vec![]), false));
    }
}

#[test]
fn the_target_of_a_move_is_lost_too() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(all_but(&[0]));
    assert_eq!((bench.moved(1).unwrap().0, bench.places(1).as_str()), (1, "b0-r0-h1=4"));
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![], vec![]), "one move at a time");
    // The next session orders the same move again, and the next move after it.
    bench.restart();
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![], vec![]));
    bench.confirm(1, 1);
    assert_eq!(bench.orders(), (vec![(1, 2)], vec![]));
    bench.confirm(1, 1);
    assert!(bench.agent.is_moving(Uid(1)), "an old report ends no new move");
    bench.confirm(1, 2);
    assert_eq!(bench.places(1), "b0-r0-h2=4");
    // A gang with a topology ends.
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, near(4, "rack"));
    bench.nodes(all_but(&[0]));
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![], vec![1]));
    bench.confirm(1, 1);
    assert!(lost(bench_ended(&mut bench, 1)).contains("one node at a time"));
    assert_eq!(bench.agent.ledger().blocks().iter().map(|block| block.nodes).sum::<u32>(), 4);
}

fn bench_ended(bench: &mut Bench, number: u64) -> EndResult {
    bench.effects.push(Effect::Stop { uid: Uid(u128::from(number)), fence: fence(number) });
    bench.ends(number)
}

#[test]
fn a_returned_node_is_full_until_its_pods_left() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.nodes(fleet());
    assert_eq!(bench.orders(), (vec![], vec![]));
    bench.offer(2, on("b0-r0-h0", 1));
    assert_eq!(bench.agent.held().count(), 0, "the node's pods still run");
    bench.confirm(1, 1);
    bench.offer(3, on("b0-r0-h0", 4));
    assert_eq!(bench.agent.held().count(), 1);
    // A node that was gone and is back was lost in between, so its pods move.
    let before = bench.places(1);
    bench.nodes(all_but(&[1]));
    bench.nodes(fleet());
    assert_eq!(bench.orders(), (vec![(1, 2)], vec![]));
    bench.confirm(1, 2);
    assert_ne!(bench.places(1), before);
}

#[test]
fn a_starting_gang_moves_too() {
    let mut bench = Bench::new();
    bench.run(9, plain(1));
    bench.offer(1, plain(4));
    let grant = Grant {
        offer: offer(1),
        uid: Uid(1),
        fence: fence(1),
        attempt: 1,
        namespace: "default".into(),
        name: "job".into(),
        spec: "{}".into(),
        term: Millis::mins(15),
        on_loss: OnLoss::Fence,
        start_within: Millis::mins(1),
        run_left: None,
        pod_failures: 0,
        completed: meridian_shared::indexes::Indexes::default(),
        priority: 0,
        mac: None,
    };
    bench.exchange(Some(Command::Grant(Box::new(grant.clone()))));
    bench.effects.clear();
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![(1, 1), (9, 1)], vec![]));
    bench.apply(Input::Runner(RunnerEvent::Running { uid: Uid(1), fence: fence(1) }));
    bench.confirm(1, 1);
    assert_eq!(bench.reported().last().unwrap().to_string(), "main: b0-r0-h2 4");
    // A grant after the loss of its hold is refused.
    bench.offer(2, on("b0-r1-h0", 3));
    assert_eq!(bench.agent.held().count(), 1);
    bench.nodes(all_but(&[0, 1, 3]));
    bench.exchange(Some(Command::Grant(Box::new(Grant {
        offer: offer(2),
        uid: Uid(2),
        fence: fence(2),
        ..grant
    }))));
    bench.exchange(None);
    assert!(
        bench.events.iter().any(|event| matches!(event, Event::GrantRefused { uid: Uid(2), .. })),
        "{:?}",
        bench.events
    );
}

#[test]
fn a_wait_ends_when_the_pods_of_the_node_succeeded() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(all_but(&[0]));
    assert_eq!(bench.reported().last().unwrap().unhealthy, ["b0-r0-h0"]);
    bench.succeed(1, &[0, 1, 2, 3]);
    assert!(!bench.agent.is_waiting(Uid(1)));
    let placements = bench.reported();
    assert_eq!(placements.last().map(|placed| placed.unhealthy.len()), Some(0), "{placements:?}");
    bench.sleep_long();
    assert_eq!(bench.orders(), (vec![], vec![]));
}

impl Bench {
    fn sleep_long(&mut self) {
        self.now += 60_000;
        self.apply(Input::Tick);
    }
}

#[test]
fn resources_of_succeeded_pods_serve_the_others() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(all_but(&[0]));
    assert!(bench.agent.is_waiting(Uid(1)));
    // Four of its own pods succeed on another node.
    bench.succeed(1, &[4, 5, 6, 7]);
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.confirm(1, 1);
    assert_eq!(bench.reported().last().unwrap().unhealthy.len(), 0);
}

#[test]
fn a_smaller_node_takes_only_what_fits() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    let smaller = |node: NodeSpec| NodeSpec { capacity: Amounts::from([(GPU.into(), 2)]), ..node };
    let mut nodes = all_but(&[0]);
    nodes.push(smaller(node("b0-r2-h0")));
    bench.nodes(nodes.clone());
    assert!(bench.agent.is_waiting(Uid(1)), "all pods of the node fit, or none moves");
    nodes.push(smaller(node("b0-r2-h1")));
    bench.nodes(nodes);
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    assert!(bench.places(1).contains("b0-r2-h0=2") && bench.places(1).contains("b0-r2-h1=2"));
}

#[test]
fn a_stop_during_a_move_frees_everything_once() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(all_but(&[0]));
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Evicted }));
    bench.nodes(all_but(&[0, 1]));
    bench.restart();
    assert_eq!(bench.orders(), (vec![], vec![1]));
    bench.nodes(fleet());
    bench.confirm(1, 1);
    bench.effects.push(Effect::Stop { uid: Uid(1), fence: fence(1) });
    bench.ends(1);
    assert_eq!(bench.free(), 24);
}

//! Losses that come together, cross each other, or come at the worst moment.

use super::*;
use proptest::prelude::*;

/// The fleet with these nodes gone, in words of their numbers.
fn all_but(lost: &[usize]) -> Vec<NodeSpec> {
    fleet().into_iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, node)| node).collect()
}

fn on(node: &str, pods: u32) -> Gang {
    let mut gang = plain(pods);
    gang.pod_sets[0].node_selector.insert(HOST.into(), node.into());
    gang
}

impl Bench {
    /// Every order since it was last asked: which gangs are to move, and which to stop.
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
fn of_two_gangs_that_need_the_one_spare_node_the_first_gets_it_and_the_other_waits_its_turn() {
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
    // The place that the first one leaves is on the lost node: that is none for the second.
    bench.confirm(1, 1);
    assert_eq!(bench.orders(), (vec![], vec![]));
    // Now the first one ends, and the second takes its place.
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
fn when_all_nodes_are_lost_everybody_ends_or_waits_for_them() {
    for (wait, stops) in [(Millis(0), vec![1, 2]), (WAIT, vec![])] {
        let mut bench = Bench::waiting(wait);
        bench.run(1, near(6, "rack"));
        bench.run(2, plain(3));
        bench.nodes(fleet().into_iter().map(|node| NodeSpec { unready: true, ..node }).collect());
        // One that stands on two nodes of its topology doesn't wait.
        let stops = if wait == WAIT { vec![1] } else { stops };
        assert_eq!(bench.orders(), (vec![], stops));
        assert_eq!(bench.agent.ledger().blocks(), []);
        bench.nodes(Vec::new());
        bench.nodes(fleet());
        assert_eq!((bench.orders(), bench.agent.is_waiting(Uid(2))), ((vec![], vec![]), false));
    }
}

#[test]
fn the_place_that_pods_are_on_the_way_to_is_lost_too() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(all_but(&[0]));
    assert_eq!((bench.moved(1).unwrap().0, bench.places(1).as_str()), (1, "b0-r0-h1=4"));
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![], vec![]), "one move at a time");
    // The agent dies there; the next session orders the same move again, and the next one when that is over.
    bench.restart();
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![], vec![]));
    bench.confirm(1, 1);
    assert_eq!(bench.orders(), (vec![(1, 2)], vec![]));
    bench.confirm(1, 1);
    assert!(bench.agent.is_moving(Uid(1)), "an old word ends no new move");
    bench.confirm(1, 2);
    assert_eq!(bench.places(1), "b0-r0-h2=4");
    // Of a gang in a topology it is the end.
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
fn a_node_that_returns_while_its_pods_leave_is_full_until_they_have() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.nodes(fleet());
    assert_eq!(bench.orders(), (vec![], vec![]));
    bench.offer(2, on("b0-r0-h0", 1));
    assert_eq!(bench.agent.held().count(), 0, "nothing is held beside pods that still run there");
    bench.confirm(1, 1);
    bench.offer(3, on("b0-r0-h0", 4));
    assert_eq!(bench.agent.held().count(), 1);
    // Gone and back in one turn is the same as never gone, whatever has been ordered.
    let before = bench.places(1);
    bench.nodes(all_but(&[1]));
    bench.nodes(fleet());
    assert_eq!(bench.orders(), (vec![(1, 2)], vec![]));
    bench.confirm(1, 2);
    assert_ne!(bench.places(1), before);
}

#[test]
fn a_gang_that_has_not_started_yet_moves_too_and_then_starts() {
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
        priority: 0,
        mac: None,
    };
    bench.exchange(Some(Command::Grant(Box::new(grant.clone()))));
    bench.effects.clear();
    bench.nodes(all_but(&[0, 1]));
    assert_eq!(bench.orders(), (vec![(1, 1), (9, 1)], vec![]));
    bench.apply(Input::Runner(RunnerEvent::Running { uid: Uid(1), fence: fence(1) }));
    bench.confirm(1, 1);
    assert_eq!(bench.told().last().unwrap().to_string(), "main: b0-r0-h2 4");
    // What is granted in the turn after its hold was lost doesn't start.
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
fn who_has_left_the_lost_node_by_himself_no_longer_waits_and_says_so() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(all_but(&[0]));
    assert_eq!(bench.told().last().unwrap().unhealthy, ["b0-r0-h0"]);
    bench.succeed(1, &[0, 1, 2, 3]);
    assert!(!bench.agent.is_waiting(Uid(1)));
    let told = bench.told();
    assert_eq!(told.last().map(|placement| placement.unhealthy.len()), Some(0), "{told:?}");
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
fn where_some_pods_are_done_the_room_of_the_others_is_enough() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(all_but(&[0]));
    assert!(bench.agent.is_waiting(Uid(1)));
    // Elsewhere four places come free by its own pods' end.
    bench.succeed(1, &[4, 5, 6, 7]);
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    bench.confirm(1, 1);
    assert_eq!(bench.told().last().unwrap().unhealthy.len(), 0);
}

#[test]
fn a_node_that_comes_back_smaller_takes_nobody_in() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    let smaller = |node: NodeSpec| NodeSpec { capacity: Amounts::from([(GPU.into(), 2)]), ..node };
    let mut nodes = all_but(&[0]);
    nodes.push(smaller(node("b0-r2-h0")));
    bench.nodes(nodes.clone());
    assert!(bench.agent.is_waiting(Uid(1)), "all of the node's pods or none");
    nodes.push(smaller(node("b0-r2-h1")));
    bench.nodes(nodes);
    assert_eq!(bench.orders(), (vec![(1, 1)], vec![]));
    assert!(bench.places(1).contains("b0-r2-h0=2") && bench.places(1).contains("b0-r2-h1=2"));
}

#[test]
fn a_stop_in_the_middle_of_a_move_gives_everything_back_once() {
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

/// Something that happens.
#[derive(Clone, Debug)]
enum Blow {
    /// What each node is: well, gone, failed, cordoned, or with a taint.
    Nodes(Vec<u8>),
    /// A gang of this kind is asked for, and begins where there is room.
    Begin(u8),
    /// The runner has moved pods, or stopped those that it was told to.
    Done,
    /// Pods of a gang have succeeded.
    Succeed(u8, u8),
    /// A gang ends.
    End(u8),
    Pass(u64),
    Restart,
}

fn blow() -> impl Strategy<Value = Blow> {
    prop_oneof![
        4 => proptest::collection::vec(0_u8..8, 6).prop_map(Blow::Nodes),
        3 => (0_u8..6).prop_map(Blow::Begin),
        4 => Just(Blow::Done),
        1 => (0_u8..8, 0_u8..8).prop_map(|(gang, pod)| Blow::Succeed(gang, pod)),
        1 => (0_u8..8).prop_map(Blow::End),
        3 => (1_u64..9_000).prop_map(Blow::Pass),
        2 => Just(Blow::Restart),
    ]
}

fn seconds(seconds: i64) -> Toleration {
    let effect = Some(TaintEffect::NoExecute);
    Toleration {
        key: Some("maintenance".into()),
        exists: true,
        value: String::new(),
        effect,
        seconds: Some(seconds),
    }
}

fn kind(kind: u8) -> Gang {
    let mut gang = match kind {
        0 | 1 => plain(3),
        2 => near(5, "rack"),
        3 => near(2, HOST),
        4 => tolerant(plain(6)),
        _ => {
            let mut gang = plain(2);
            gang.pod_sets.push(PodSet { name: "other".into(), ..plain(2).pod_sets.remove(0) });
            gang
        }
    };
    if matches!(kind, 1 | 2 | 5) {
        gang.pod_sets[0].tolerations.push(seconds(3));
    }
    gang
}

fn shown(states: &[u8]) -> Vec<NodeSpec> {
    let state = |(node, state): (NodeSpec, &u8)| match state {
        1 => None,
        2 => Some(NodeSpec { unready: true, ..node }),
        3 => Some(NodeSpec { unschedulable: true, ..node }),
        4 | 5 => Some(NodeSpec { taints: vec![taint(TaintEffect::NoExecute)], ..node }),
        _ => Some(node),
    };
    fleet().into_iter().zip(states).filter_map(state).collect()
}

/// The storm, and what every order in it must be.
struct Storm {
    bench: Bench,
    states: Vec<u8>,
    begun: u64,
    /// Moves and stops that the runner was told of and hasn't answered.
    moving: BTreeMap<u64, u32>,
    stopping: Vec<u64>,
    /// Where every gang's pods are, as the runner knows it.
    places: BTreeMap<u64, Vec<PodPlacement>>,
}

impl Storm {
    fn obey(&mut self) {
        for effect in std::mem::take(&mut self.bench.effects) {
            match effect {
                Effect::Start(start) => {
                    self.places.insert(u64::try_from(start.uid.0).unwrap(), start.placement);
                }
                Effect::Move { uid, number, placement, .. } => {
                    let uid = u64::try_from(uid.0).unwrap();
                    let before = self.places.insert(uid, placement.clone()).unwrap();
                    let again = self.moving.insert(uid, number) == Some(number);
                    for (old, new) in before.iter().zip(&placement).filter(|(old, new)| old != new) {
                        assert!(!again, "the same move says the same");
                        assert_eq!((&old.pod_set, old.index), (&new.pod_set, new.index));
                        let node = self.bench.agent.ledger().blocks();
                        assert!(!node.is_empty(), "{new:?}");
                    }
                }
                Effect::Stop { uid, .. } => self.stopping.push(u64::try_from(uid.0).unwrap()),
                _ => {}
            }
        }
    }

    fn strike(&mut self, blow: Blow) {
        let live = |this: &Self| {
            this.bench.agent.runs().map(|(uid, ..)| u64::try_from(uid.0).unwrap()).collect::<Vec<_>>()
        };
        let pick = |this: &Self, at: u8| live(this).get(usize::from(at)).copied();
        match blow {
            Blow::Nodes(states) => {
                self.bench.nodes(shown(&states));
                self.states = states;
            }
            Blow::Begin(of) => self.begin(kind(of)),
            Blow::Done => self.done(),
            Blow::Succeed(gang, pod) => {
                if let Some(gang) = pick(self, gang) {
                    self.bench.succeed(gang, &[u32::from(pod)]);
                }
            }
            Blow::End(gang) => {
                if let Some(gang) = pick(self, gang) {
                    self.end(gang, EndResult::Succeeded);
                }
            }
            Blow::Pass(millis) => {
                self.bench.now += millis;
                self.bench.apply(Input::Tick);
            }
            Blow::Restart => {
                let before: Vec<_> =
                    live(self).into_iter().map(|gang| (gang, self.bench.places(gang))).collect();
                self.obey();
                self.bench.restart();
                assert_eq!(
                    before,
                    live(self).into_iter().map(|gang| (gang, self.bench.places(gang))).collect::<Vec<_>>()
                );
                self.bench.nodes(shown(&self.states));
            }
        }
        self.obey();
    }

    fn begin(&mut self, gang: Gang) {
        self.begun += 1;
        let number = self.begun;
        self.bench.offer(number, gang);
        let (uid, fence) = (Uid(u128::from(number)), fence(number));
        if !self.bench.agent.held().any(|(_, held)| held == uid) {
            return;
        }
        self.bench.exchange(Some(Command::Grant(Box::new(Grant {
            offer: offer(number),
            uid,
            fence,
            attempt: 1,
            namespace: "default".into(),
            name: "job".into(),
            spec: "{}".into(),
            term: Millis::mins(600),
            on_loss: OnLoss::Fence,
            start_within: Millis::mins(1),
            run_left: None,
            pod_failures: 0,
            priority: 0,
            mac: None,
        }))));
        self.bench.apply(Input::Runner(RunnerEvent::Running { uid, fence }));
    }

    /// Whatever the runner was told is done.
    fn done(&mut self) {
        for (gang, number) in std::mem::take(&mut self.moving) {
            self.bench.confirm(gang, number);
        }
        for gang in std::mem::take(&mut self.stopping) {
            self.end(gang, EndResult::Stopped);
        }
    }

    fn end(&mut self, gang: u64, result: EndResult) {
        self.moving.remove(&gang);
        self.bench.apply(Input::Runner(RunnerEvent::Ended {
            uid: Uid(u128::from(gang)),
            fence: fence(gang),
            result,
            pod_failures: 0,
            ran: Millis(5),
        }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, the agent stays sound after each step, the runner and the ledger agree on every place, a restart changes
    /// none, and when the storm is over nobody waits, moves or is told to have lost a node.
    #[test]
    fn no_storm_leaves_anybody_astray(wait in prop_oneof![Just(0_u64), Just(2_000), Just(8_000)], blows in proptest::collection::vec(blow(), 1..60)) {
        let bench = Bench::waiting(Millis(wait));
        let mut storm = Storm { bench, states: vec![0; 6], begun: 0, moving: BTreeMap::new(), stopping: Vec::new(), places: BTreeMap::new() };
        for blow in blows {
            storm.strike(blow);
        }
        storm.strike(Blow::Nodes(vec![0; 6]));
        for _ in 0..4 {
            storm.strike(Blow::Done);
        }
        storm.bench.exchange(None);
        let runs: Vec<_> = storm.bench.agent.runs().map(|(uid, _, _, stopping)| (uid, stopping)).collect();
        for (uid, stopping) in runs {
            let gang = u64::try_from(uid.0).unwrap();
            prop_assert!(!stopping && !storm.bench.agent.is_moving(uid) && !storm.bench.agent.is_waiting(uid), "{uid}");
            let placement = storm.bench.agent.ledger().placement(offer(gang));
            prop_assert_eq!(&placement, &storm.places[&gang]);
        }
        let inventory = { storm.bench.restart(); storm.bench.nodes(fleet()); storm.bench.agent.compose(at(storm.bench.now), Lane::News).inventory.unwrap() };
        for run in inventory.runs {
            let told = run.placement.unwrap();
            prop_assert!(told.unhealthy.is_empty(), "{told:?}");
            let here = storm.bench.agent.ledger().placement(run.offer).len();
            prop_assert_eq!(told.pod_sets.iter().flat_map(|set| &set.domains).map(|domain| domain.pods as usize).sum::<usize>(), here);
        }
    }
}

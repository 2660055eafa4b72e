//! Random sequences of losses and other changes.

use super::*;
use proptest::prelude::*;

/// One random step.
#[derive(Clone, Debug)]
enum Step {
    /// The state of each node: ready, gone, failed, cordoned, or tainted.
    Nodes(Vec<u8>),
    /// A gang of this kind is offered, and granted if it is held.
    Start(u8),
    /// The runner finishes all moves and stops.
    Finish,
    /// A pod of a gang succeeds.
    Succeed(u8, u8),
    End(u8),
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::collection::vec(0_u8..8, 6).prop_map(Step::Nodes),
        3 => (0_u8..6).prop_map(Step::Start),
        4 => Just(Step::Finish),
        1 => (0_u8..8, 0_u8..8).prop_map(|(gang, pod)| Step::Succeed(gang, pod)),
        1 => (0_u8..8).prop_map(Step::End),
        3 => (1_u64..9_000).prop_map(Step::Pass),
        2 => Just(Step::Restart),
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

fn nodes_in(states: &[u8]) -> Vec<NodeSpec> {
    let state = |(node, state): (NodeSpec, &u8)| match state {
        1 => None,
        2 => Some(NodeSpec { unready: true, ..node }),
        3 => Some(NodeSpec { unschedulable: true, ..node }),
        4 | 5 => Some(NodeSpec { taints: vec![taint(TaintEffect::NoExecute)], ..node }),
        _ => Some(node),
    };
    fleet().into_iter().zip(states).filter_map(state).collect()
}

/// An agent under random steps, and the orders that it must have given.
struct Storm {
    bench: Bench,
    states: Vec<u8>,
    gangs: u64,
    /// Moves and stops that the runner has not finished.
    moving: BTreeMap<u64, u32>,
    stopping: Vec<u64>,
    /// The placement of every gang, as the runner knows it.
    placements: BTreeMap<u64, Vec<PodPlacement>>,
}

impl Storm {
    fn take_orders(&mut self) {
        for effect in std::mem::take(&mut self.bench.effects) {
            match effect {
                Effect::Start(start) => {
                    self.placements.insert(u64::try_from(start.uid.0).unwrap(), start.placement);
                }
                Effect::Move { uid, number, placement, .. } => {
                    let uid = u64::try_from(uid.0).unwrap();
                    let before = self.placements.insert(uid, placement.clone()).unwrap();
                    let again = self.moving.insert(uid, number) == Some(number);
                    for (old, new) in before.iter().zip(&placement).filter(|(old, new)| old != new) {
                        assert!(!again, "a repeated order is the same");
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

    fn apply(&mut self, step: Step) {
        let live = |this: &Self| {
            this.bench.agent.runs().map(|(uid, ..)| u64::try_from(uid.0).unwrap()).collect::<Vec<_>>()
        };
        let pick = |this: &Self, at: u8| live(this).get(usize::from(at)).copied();
        match step {
            Step::Nodes(states) => {
                self.bench.nodes(nodes_in(&states));
                self.states = states;
            }
            Step::Start(of) => self.start(kind(of)),
            Step::Finish => self.finish(),
            Step::Succeed(gang, pod) => {
                if let Some(gang) = pick(self, gang) {
                    self.bench.succeed(gang, &[u32::from(pod)]);
                }
            }
            Step::End(gang) => {
                if let Some(gang) = pick(self, gang) {
                    self.end(gang, EndResult::Succeeded);
                }
            }
            Step::Pass(millis) => {
                self.bench.now += millis;
                self.bench.apply(Input::Tick);
            }
            Step::Restart => {
                let before: Vec<_> =
                    live(self).into_iter().map(|gang| (gang, self.bench.places(gang))).collect();
                self.take_orders();
                self.bench.restart();
                assert_eq!(
                    before,
                    live(self).into_iter().map(|gang| (gang, self.bench.places(gang))).collect::<Vec<_>>()
                );
                self.bench.nodes(nodes_in(&self.states));
            }
        }
        self.take_orders();
    }

    fn start(&mut self, gang: Gang) {
        self.gangs += 1;
        let number = self.gangs;
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
            completed: meridian_shared::indexes::Indexes::default(),
            priority: 0,
            mac: None,
        }))));
        self.bench.apply(Input::Runner(RunnerEvent::Running { uid, fence }));
    }

    /// The runner finishes all orders.
    fn finish(&mut self) {
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

    /// After each step all invariants hold, the runner and the ledger agree on every placement, and a restart
    /// changes no placement. When all nodes are back, no gang waits, moves, or is reported on a lost node.
    #[test]
    fn random_losses_leave_no_gang_behind(
        wait in prop_oneof![Just(0_u64), Just(2_000), Just(8_000)],
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let bench = Bench::waiting(Millis(wait));
        let mut storm = Storm {
            bench,
            states: vec![0; 6],
            gangs: 0,
            moving: BTreeMap::new(),
            stopping: Vec::new(),
            placements: BTreeMap::new(),
        };
        for step in steps {
            storm.apply(step);
        }
        storm.apply(Step::Nodes(vec![0; 6]));
        for _ in 0..4 {
            storm.apply(Step::Finish);
        }
        storm.bench.exchange(None);
        let runs: Vec<_> = storm.bench.agent.runs().map(|(uid, _, _, stopping)| (uid, stopping)).collect();
        for (uid, stopping) in runs {
            let gang = u64::try_from(uid.0).unwrap();
            let agent = &storm.bench.agent;
            prop_assert!(!stopping && !agent.is_moving(uid) && !agent.is_waiting(uid), "{uid}");
            let placement = storm.bench.agent.ledger().placement(offer(gang));
            prop_assert_eq!(&placement, &storm.placements[&gang]);
        }
        storm.bench.restart();
        storm.bench.nodes(fleet());
        let now = at(storm.bench.now);
        let inventory = storm.bench.agent.compose(now, Lane::News).inventory.unwrap();
        for run in inventory.runs {
            let placed = run.placement.unwrap();
            prop_assert!(placed.unhealthy.is_empty(), "{placed:?}");
            let here = storm.bench.agent.ledger().placement(run.offer).len();
            let domains = placed.pod_sets.iter().flat_map(|set| &set.domains);
            prop_assert_eq!(domains.map(|domain| domain.pods as usize).sum::<usize>(), here);
        }
    }
}

//! Nodes that are lost under gangs: only their pods get other places, or the attempt ends. Every branch is a short story.

use meridian_agent_core::durable::Durable;
use meridian_agent_core::ledger::{NodeSpec, PodPlacement};
use meridian_agent_core::{Agent, Config, Effect, Found, FoundState, Input, MOVES_MAX, Outcome, RunnerEvent};
use meridian_shared::gang::{Amounts, Gang, PodSet, Taint, TaintEffect, Toleration};
use meridian_shared::ids::{Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{
    Command, EndResult, Event, Grant, Lane, Offer, OnLoss, Receipt, RunnerKind, Size, StopReason, SyncAnswer,
    SyncResponse, VERSION,
};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use meridian_shared::topology::{FlavorTopology, TopologyRequest};
use std::collections::BTreeMap;
use std::sync::Arc;

#[path = "moving/growing.rs"]
mod growing;
#[path = "moving/hostile.rs"]
mod hostile;
#[path = "moving/ranking.rs"]
mod ranking;
#[path = "moving/staying.rs"]
mod staying;

const GPU: &str = "nvidia.com/gpu";
const HOST: &str = "kubernetes.io/hostname";
const US: Leadership = Leadership { epoch: 1, id: 7 };

fn node(name: &str) -> NodeSpec {
    let part = |from: usize, to: usize| name[from..to].to_owned();
    let labels = [("block", part(0, 2)), ("rack", part(3, 5)), (HOST, name.to_owned())]
        .map(|(key, value)| (key.to_owned(), value));
    NodeSpec {
        name: name.into(),
        labels: labels.into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    }
}

/// Two racks in one block, three hosts in each, four accelerators on each: `b0-r0-h0` and so on.
fn fleet() -> Vec<NodeSpec> {
    (0..6).map(|i| node(&format!("b0-r{}-h{}", i / 3, i % 3))).collect()
}

fn without(lost: &[&str]) -> Vec<NodeSpec> {
    fleet().into_iter().filter(|node| !lost.contains(&node.name.as_str())).collect()
}

fn unready(lost: &[&str]) -> Vec<NodeSpec> {
    fleet().into_iter().map(|node| NodeSpec { unready: lost.contains(&node.name.as_str()), ..node }).collect()
}

fn taint(effect: TaintEffect) -> Taint {
    Taint { key: "maintenance".into(), value: "soon".into(), effect }
}

fn tainted(names: &[&str], effect: TaintEffect) -> Vec<NodeSpec> {
    let taints =
        |node: &NodeSpec| if names.contains(&node.name.as_str()) { vec![taint(effect)] } else { Vec::new() };
    fleet().into_iter().map(|node| NodeSpec { taints: taints(&node), ..node }).collect()
}

/// The same, whose pods don't mind the taint.
fn tolerant(mut gang: Gang) -> Gang {
    let all = Toleration {
        key: Some("maintenance".into()),
        exists: true,
        value: String::new(),
        effect: None,
        seconds: None,
    };
    gang.pod_sets.iter_mut().for_each(|set| set.tolerations.push(all.clone()));
    gang
}

fn near(pods: u32, level: &str) -> Gang {
    let levels = ["block", "rack", HOST].map(ToOwned::to_owned).to_vec();
    let within =
        FlavorTopology { flavor: "f".into(), name: "default".into(), levels, node_labels: BTreeMap::new() };
    let topology = Some(TopologyRequest::required(level));
    let pod_set = PodSet {
        name: "main".into(),
        count: pods,
        per_pod: Amounts::from([(GPU.into(), 1)]),
        topology,
        within: Some(within),
        ..PodSet::default()
    };
    Gang { pod_sets: vec![pod_set], max_run: None }
}

fn plain(pods: u32) -> Gang {
    Gang {
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: pods,
            per_pod: Amounts::from([(GPU.into(), 1)]),
            ..PodSet::default()
        }],
        max_run: None,
    }
}

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 7, counter }
}

fn fence(counter: u64) -> Fence {
    Fence { epoch: 1, leadership: 7, counter }
}

/// An agent, its store, and everything that it ordered and said.
struct Bench {
    wait: Millis,
    agent: Agent,
    store: BTreeMap<String, String>,
    now: u64,
    said: u64,
    lives: u64,
    effects: Vec<Effect>,
    events: Vec<Event>,
}

impl Bench {
    fn new() -> Self {
        Self::waiting(Millis(0))
    }

    /// Of an agent whose pods wait so long for another place.
    fn waiting(wait: Millis) -> Self {
        let durable = Durable::new(LedgerId(3));
        let birth = durable.birth();
        let (agent, out) = Agent::start(config(wait), durable, Vec::new(), 1, at(1_000));
        let store = BTreeMap::from([(birth.key, birth.value.unwrap())]);
        let mut this = Self {
            wait,
            agent,
            store,
            now: 1_000,
            said: 0,
            lives: 1,
            effects: Vec::new(),
            events: Vec::new(),
        };
        this.take(out);
        this.nodes(fleet());
        this
    }

    fn take(&mut self, out: Outcome) {
        for op in out.store {
            match op.value {
                Some(value) => self.store.insert(op.key, value),
                None => self.store.remove(&op.key),
            };
        }
        self.effects.extend(out.effects);
        self.agent.check().unwrap();
        assert!(!self.agent.ledger().overcommitted());
    }

    fn apply(&mut self, input: Input) {
        self.now += 10;
        let out = self.agent.apply(at(self.now), input);
        self.take(out);
    }

    fn nodes(&mut self, nodes: Vec<NodeSpec>) {
        self.apply(Input::Nodes { nodes, pools: Vec::new() });
    }

    /// One exchange with the manager, which says `command` if there is one, and takes all news.
    fn exchange(&mut self, command: Option<Command>) {
        let request = self.agent.compose(at(self.now), Lane::News);
        self.events.extend(request.events.clone());
        let commands: Vec<Command> = command.into_iter().collect();
        let commands_from = self.said + 1;
        self.said += commands.len() as u64;
        let receipt = Receipt {
            journal: JournalId(1),
            leadership: US,
            record: RecordNumber(1),
            rules: RecordNumber(1),
            audit_head: None,
            mac: None,
        };
        let answer = SyncResponse {
            version: VERSION,
            leadership: US,
            session: request.session,
            transmission: request.transmission,
            receipt,
            members: Vec::new(),
            events_through: request.events_last,
            ends_acknowledged: Vec::new(),
            commands,
            commands_from,
            renewals: Vec::new(),
            want_inventory: false,
            capacity_acknowledged: 0,
            ranges: Vec::new(),
            poll: Millis(1_000),
        };
        self.apply(Input::Answer(Box::new(SyncAnswer::Ok(Box::new(answer)))));
    }

    fn offer(&mut self, number: u64, gang: Gang) {
        let (uid, namespace, kind) = (Uid(u128::from(number)), "default".into(), "Job".into());
        let asked = Offer {
            offer: offer(number),
            uid,
            namespace,
            kind,
            gang: Arc::new(gang),
            hold: Millis::mins(1),
            requires_guarded: false,
        };
        self.exchange(Some(Command::Offer(Box::new(asked))));
    }

    /// Offers, grants and starts a gang.
    fn run(&mut self, number: u64, gang: Gang) {
        self.offer(number, gang);
        let (uid, fence) = (Uid(u128::from(number)), fence(number));
        self.exchange(Some(Command::Grant(Box::new(Grant {
            offer: offer(number),
            uid,
            fence,
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
        }))));
        assert!(
            self.effects.iter().any(|effect| matches!(effect, Effect::Start(start) if start.uid == uid)),
            "{:?}",
            self.events
        );
        self.apply(Input::Runner(RunnerEvent::Running { uid, fence }));
        self.exchange(None);
        self.effects.clear();
        self.events.clear();
    }

    /// The agent is killed and started again; the gang goes on.
    fn restart(&mut self) {
        let durable =
            Durable::load(self.store.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap();
        let live = FoundState::Live { running: true };
        let found = self
            .agent
            .runs()
            .map(|(uid, fence, ..)| Found { uid, fence, nodes: Vec::new(), state: live.clone() })
            .collect();
        self.lives += 1;
        self.said = 0;
        self.effects.clear();
        self.events.clear();
        let (agent, out) = Agent::start(config(self.wait), durable, found, self.lives, at(self.now));
        self.agent = agent;
        self.take(out);
    }

    /// Pods by node, as the agent holds them.
    fn places(&self, number: u64) -> String {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for pod in self.agent.ledger().placement(offer(number)) {
            *counts.entry(pod.node).or_default() += 1;
        }
        counts.iter().map(|(node, pods)| format!("{node}={pods}")).collect::<Vec<_>>().join(" ")
    }

    /// The move that was ordered since it was last asked, if any, and nothing else was.
    fn moved(&mut self, number: u64) -> Option<(u32, Vec<PodPlacement>)> {
        let orders: Vec<Effect> = std::mem::take(&mut self.effects)
            .into_iter()
            .filter(|e| !matches!(e, Effect::SendNews | Effect::Deprovision { .. }))
            .collect();
        match orders.as_slice() {
            [] => None,
            [Effect::Move { uid, fence: of, number: nth, placement }] => {
                assert_eq!((*uid, *of), (Uid(u128::from(number)), fence(number)));
                Some((*nth, placement.clone()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn confirm(&mut self, number: u64, nth: u32) {
        self.apply(Input::Runner(RunnerEvent::Moved {
            uid: Uid(u128::from(number)),
            fence: fence(number),
            number: nth,
        }));
    }

    /// What was told of places since it was last asked.
    fn told(&mut self) -> Vec<Arc<Placement>> {
        self.exchange(None);
        let placement = |event: Event| match event {
            Event::Running { placement, .. } | Event::Accepted { placement, .. } => placement,
            _ => None,
        };
        std::mem::take(&mut self.events).into_iter().filter_map(placement).collect()
    }

    /// A stop was ordered; the gang ends. How, as the manager hears it.
    fn ends(&mut self, number: u64) -> EndResult {
        let (uid, fence) = (Uid(u128::from(number)), fence(number));
        assert!(self.effects.contains(&Effect::Stop { uid, fence }), "{:?}", self.effects);
        self.apply(Input::Runner(RunnerEvent::Ended {
            uid,
            fence,
            result: EndResult::Stopped,
            pod_failures: 0,
            ran: Millis(5),
        }));
        self.exchange(None);
        let end = |event: &Event| match event {
            Event::Ended(end) if end.uid == uid => Some(end.result.clone()),
            _ => None,
        };
        self.events.iter().find_map(end).unwrap()
    }
}

fn config(replacement_wait: Millis) -> Config {
    Config {
        cluster: "eu".into(),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait,
        planted: Planted::NONE,
    }
}

fn at(millis: u64) -> Now {
    Now { mono: Mono(millis), wall: Wall(millis as i64) }
}

fn lost(result: EndResult) -> String {
    match result {
        EndResult::NodeLost { message } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_pods_of_the_lost_node_move_and_stay_in_the_required_domain() {
    for nodes in [without(&["b0-r0-h1"]), unready(&["b0-r0-h1"])] {
        let mut bench = Bench::new();
        bench.run(1, near(6, "rack"));
        assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=2");
        let before = bench.agent.ledger().placement(offer(1));
        bench.nodes(nodes);
        let (number, after) = bench.moved(1).unwrap();
        assert_eq!((number, bench.places(1).as_str()), (1, "b0-r0-h0=4 b0-r0-h2=2"));
        for (old, new) in before.iter().zip(&after) {
            assert_eq!((&old.pod_set, old.index), (&new.pod_set, new.index), "the order stays");
            assert!(
                old == new
                    || (old.node == "b0-r0-h1" && new.node == "b0-r0-h2" && new.accelerators[GPU].len() == 1)
            );
        }
        assert_eq!(bench.told(), [], "nothing is told before it is done");
        bench.confirm(1, 1);
        let told = bench.told();
        assert_eq!(
            (told.len(), told[0].revision, told[0].to_string().as_str()),
            (1, 1, "main: b0-r0-h0 4, b0-r0-h2 2")
        );
        bench.confirm(1, 1);
        assert_eq!((bench.told(), bench.moved(1)), (Vec::new(), None), "a repetition is no news");
        // The attempt is the same: it ends once, by itself.
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
fn without_another_place_in_the_domain_the_attempt_ends_as_lost() {
    let mut bench = Bench::new();
    bench.run(1, near(10, "rack"));
    bench.nodes(without(&["b0-r0-h2"]));
    assert_eq!(
        bench.places(1),
        "b0-r0-h0=4 b0-r0-h1=4 b0-r0-h2=2",
        "it keeps its room until it was seen ended"
    );
    let message = lost(bench.ends(1));
    assert!(
        message.starts_with(
            "node `b0-r0-h2` failed, and there is no other place for its pods: pod set `main`: "
        ),
        "{message}"
    );
    assert_eq!(bench.places(1), "");
}

#[test]
fn of_a_gang_in_a_topology_one_node_at_a_time_is_made_good() {
    let mut bench = Bench::new();
    bench.run(1, near(5, "block"));
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=1");
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1"]));
    assert!(
        lost(bench.ends(1)).contains("`b0-r0-h0`, `b0-r0-h1` failed, and a gang that asks for a place in a topology survives the loss of one node at a time")
    );
    // Nor may a second one be lost while pods still move.
    let mut bench = Bench::new();
    bench.run(1, near(5, "block"));
    bench.nodes(without(&["b0-r0-h1"]));
    assert!(bench.moved(1).is_some());
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1"]));
    assert!(lost(bench.ends(1)).contains("one node at a time"));
    // One after the other is fine.
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
fn a_gang_that_no_topology_placed_moves_wherever_there_is_room_and_from_several_nodes_at_once() {
    let mut bench = Bench::new();
    bench.run(1, plain(12));
    let before = bench.places(1);
    assert_eq!(before, "b0-r0-h0=4 b0-r0-h1=4 b0-r0-h2=4");
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h2"]));
    assert_eq!(bench.moved(1).unwrap().0, 1);
    assert_eq!(bench.places(1), "b0-r0-h1=4 b0-r1-h0=4 b0-r1-h1=4");
    // What is lost in the middle of a move is looked after once that is done.
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h2", "b0-r0-h1"]));
    assert_eq!(bench.moved(1), None);
    bench.confirm(1, 1);
    assert_eq!(bench.moved(1).unwrap().0, 2);
    assert_eq!(bench.places(1), "b0-r1-h0=4 b0-r1-h1=4 b0-r1-h2=4");
    bench.confirm(1, 2);
    assert_eq!(bench.told().iter().map(|told| told.revision).collect::<Vec<_>>(), [1, 2]);
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h2", "b0-r0-h1", "b0-r1-h1"]));
    assert!(lost(bench.ends(1)).contains("no other place"));
}

#[test]
fn a_restart_in_the_middle_orders_the_same_move_again() {
    let mut bench = Bench::new();
    bench.run(1, near(6, "rack"));
    bench.nodes(unready(&["b0-r0-h1"]));
    let ordered = bench.moved(1).unwrap();
    bench.restart();
    assert_eq!(bench.moved(1), Some(ordered.clone()));
    bench.nodes(unready(&["b0-r0-h1"]));
    assert_eq!(bench.moved(1), None);
    bench.restart();
    // Back again, the node still has pods on it that nobody has seen ended.
    bench.nodes(fleet());
    assert_eq!(bench.moved(1), Some(ordered));
    bench.offer(2, near(12, "rack"));
    bench.offer(3, plain(13));
    bench.exchange(None);
    assert!(bench.agent.held().any(|(id, _)| id == offer(2)), "the other rack is free");
    assert!(!bench.agent.held().any(|(id, _)| id == offer(3)));
    bench.confirm(1, 1);
    assert_eq!(bench.told().iter().map(|told| told.revision).max(), Some(1));
    bench.restart();
    bench.nodes(fleet());
    assert_eq!(bench.moved(1), None, "what is done isn't done again");
    assert_eq!(
        bench.told()[0].to_string(),
        "main: b0-r0-h0 4, b0-r0-h2 2",
        "and where it led to isn't forgotten"
    );
}

#[test]
fn a_node_that_was_lost_while_nobody_looked_is_noticed() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    bench.restart();
    assert_eq!(bench.moved(1), None, "nobody has said yet which nodes there are");
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1).unwrap().0, 1);
}

#[test]
fn the_old_place_stays_taken_until_the_pods_there_were_seen_ended() {
    let mut bench = Bench::new();
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r1-h2"]));
    assert!(lost(bench.ends(1)).contains("no other place"));
    bench.nodes(fleet());
    bench.run(2, plain(4));
    assert_eq!(bench.places(2), "b0-r0-h0=4");
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.moved(2).unwrap().0, 1);
    bench.nodes(fleet());
    bench.offer(3, plain(17));
    assert_eq!(bench.agent.held().count(), 0, "16 are free: 4 are taken, 4 are not given back yet");
    bench.confirm(2, 1);
    bench.offer(4, plain(20));
    assert_eq!(bench.agent.held().count(), 1);
}

#[test]
fn a_stop_in_the_middle_of_a_move_gives_back_both_places() {
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
fn a_hold_on_a_lost_node_is_given_up_and_nothing_new_goes_to_a_node_that_takes_nothing() {
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
    // Who stands there already stays.
    bench.nodes(fleet().into_iter().map(|node| NodeSpec { unschedulable: true, ..node }).collect());
    assert_eq!(bench.moved(3), None);
    let blocks = bench.agent.ledger().blocks();
    assert_eq!(blocks, [], "and nothing of it is reported as room");
}

#[test]
fn a_taint_that_comes_later_drives_away_whoever_does_not_tolerate_it() {
    let mut bench = Bench::new();
    bench.run(1, near(6, "rack"));
    bench.run(2, tolerant(plain(2)));
    assert_eq!((bench.places(1).as_str(), bench.places(2).as_str()), ("b0-r0-h0=4 b0-r0-h1=2", "b0-r0-h1=2"));
    for effect in [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule] {
        bench.nodes(tainted(&["b0-r0-h1"], effect));
        assert_eq!(bench.moved(1), None, "{effect:?} ends nobody that runs");
    }
    bench.nodes(tainted(&["b0-r0-h1"], TaintEffect::NoExecute));
    let (uid, moving) = (Uid(1), |bench: &Bench| bench.agent.moving(Uid(1), fence(1), 1));
    assert_eq!(bench.moved(1).unwrap().0, 1, "and the other gang stays");
    assert_eq!((bench.places(1).as_str(), bench.places(2).as_str()), ("b0-r0-h0=4 b0-r0-h2=2", "b0-r0-h1=2"));
    assert_eq!(moving(&bench), 2);
    bench.confirm(1, 1);
    assert_eq!((moving(&bench), bench.agent.is_stranded(uid, fence(1))), (0, false));
    // A second node of the rack: no place is left in it for four pods.
    bench.nodes(tainted(&["b0-r0-h0", "b0-r0-h1"], TaintEffect::NoExecute));
    assert!(bench.agent.is_stranded(uid, fence(1)) && !bench.agent.is_stranded(uid, fence(2)));
    let message = lost(bench.ends(1));
    assert!(
        message.starts_with("node `b0-r0-h0` drove pods away by a taint, and there is no other place"),
        "{message}"
    );
    assert_eq!(bench.places(2), "b0-r0-h1=2");
}

#[test]
fn of_two_pod_sets_on_a_tainted_node_both_move_when_one_must() {
    let mut bench = Bench::new();
    let mut gang = tolerant(plain(1));
    gang.pod_sets.push(PodSet { name: "other".into(), ..plain(1).pod_sets.remove(0) });
    bench.run(1, gang.clone());
    assert_eq!(bench.places(1), "b0-r0-h0=2");
    bench.nodes(tainted(&["b0-r0-h0"], TaintEffect::NoExecute));
    assert!(bench.moved(1).is_some());
    assert!(!bench.places(1).contains("b0-r0-h0"), "{}", bench.places(1));
    bench.confirm(1, 1);
    // Where only the set stands that tolerates the taint, nobody moves.
    let mut bench = Bench::new();
    gang.pod_sets[0].per_pod = Amounts::from([(GPU.into(), 4)]);
    bench.run(1, gang);
    let placement = bench.agent.ledger().placement(offer(1));
    let node = placement.iter().find(|pod| pod.pod_set == "main").unwrap().node.clone();
    bench.nodes(tainted(&[&node], TaintEffect::NoExecute));
    assert_eq!(bench.moved(1), None);
}

#[test]
fn a_hold_on_a_node_that_drives_it_away_is_given_up() {
    let mut bench = Bench::new();
    bench.offer(1, plain(1));
    bench.offer(2, tolerant(plain(1)));
    assert_eq!(bench.agent.held().count(), 2);
    bench.nodes(tainted(&["b0-r0-h0"], TaintEffect::NoExecute));
    bench.exchange(None);
    assert_eq!(bench.agent.held().map(|(id, _)| id).collect::<Vec<_>>(), [offer(2)]);
}

/// Long enough for a few inputs, which take ten milliseconds each.
const WAIT: Millis = Millis(200);

#[test]
fn a_gang_without_another_place_waits_for_one_and_takes_the_first_that_comes_free() {
    let mut beside = plain(4);
    beside.pod_sets[0].node_selector.insert(HOST.into(), "b0-r0-h2".into());
    for fits in [Fits::AnotherGangEnds, Fits::ANodeComes, Fits::TheNodeIsBack] {
        let mut bench = Bench::waiting(WAIT);
        bench.run(1, near(6, "rack"));
        bench.run(4, beside.clone());
        bench.told();
        let before = bench.places(1);
        assert_eq!((before.as_str(), bench.places(4).as_str()), ("b0-r0-h0=4 b0-r0-h1=2", "b0-r0-h2=4"));
        bench.nodes(without(&["b0-r0-h0"]));
        assert_eq!(
            bench.moved(1),
            None,
            "there is room for two more pods beside the lost ones, and four are lost"
        );
        let told = bench.told();
        assert_eq!(
            (told.len(), told[0].revision, told[0].unhealthy.as_slice()),
            (1, 1, ["b0-r0-h0".to_owned()].as_slice())
        );
        bench.apply(Input::Tick);
        assert_eq!(
            (bench.moved(1), bench.told(), bench.places(1)),
            (None, Vec::new(), before.clone()),
            "nothing new, so nothing is said"
        );
        match fits {
            Fits::AnotherGangEnds => {
                bench.apply(Input::Runner(RunnerEvent::Ended {
                    uid: Uid(4),
                    fence: fence(4),
                    result: EndResult::Succeeded,
                    pod_failures: 0,
                    ran: Millis(5),
                }));
            }
            Fits::ANodeComes => {
                bench.nodes(without(&["b0-r0-h0"]).into_iter().chain([node("b0-r0-h3")]).collect())
            }
            Fits::TheNodeIsBack => {
                bench.nodes(fleet());
                assert_eq!((bench.moved(1), bench.places(1)), (None, before));
                let told = bench.told();
                assert_eq!((told.len(), told[0].revision, told[0].unhealthy.len()), (1, 2, 0));
                continue;
            }
        }
        assert_eq!(bench.moved(1).unwrap().0, 1);
        assert!(!bench.places(1).contains("b0-r0-h0"));
        bench.events.clear();
        bench.confirm(1, 1);
        let told = bench.told();
        assert_eq!((told.len(), told[0].revision, told[0].unhealthy.len()), (1, 2, 0));
    }
}

enum Fits {
    AnotherGangEnds,
    ANodeComes,
    TheNodeIsBack,
}

#[test]
fn nobody_waits_longer_than_the_agent_is_set_to() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    let begun = bench.now;
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None);
    let due = bench.agent.next_deadline().unwrap();
    assert_eq!(due, Mono(begun + 10) + WAIT, "sooner than any lease");
    while bench.now + 10 < due.0 {
        bench.apply(Input::Tick);
        assert_eq!(bench.moved(1), None);
    }
    bench.apply(Input::Tick);
    assert!(bench.agent.is_stranded(Uid(1), fence(1)));
    assert!(lost(bench.ends(1)).contains("no other place"));
    assert_eq!(bench.agent.next_deadline(), None);
}

#[test]
fn a_second_loss_ends_the_wait_of_a_gang_in_a_topology_and_a_stop_ends_any() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, near(10, "rack"));
    bench.nodes(without(&["b0-r0-h2"]));
    assert_eq!(bench.moved(1), None);
    bench.nodes(without(&["b0-r0-h2", "b0-r0-h1"]));
    assert!(lost(bench.ends(1)).contains("one node at a time"));

    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(without(&["b0-r0-h2"]));
    bench.nodes(without(&["b0-r0-h2", "b0-r0-h1"]));
    assert_eq!(bench.moved(1), None);
    assert_eq!(bench.told().last().unwrap().unhealthy, ["b0-r0-h1", "b0-r0-h2"]);
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Cancelled }));
    assert_eq!(bench.ends(1), EndResult::Stopped);
}

#[test]
fn a_restarted_agent_says_so_when_the_node_is_back() {
    let mut bench = Bench::waiting(WAIT);
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r0-h0"]));
    bench.restart();
    assert_eq!(bench.agent.runs().count(), 1);
    bench.nodes(unready(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None);
    assert_eq!(bench.told().last().unwrap().unhealthy, ["b0-r0-h0"], "as it was stored");
    bench.restart();
    bench.nodes(fleet());
    let told = bench.told();
    assert_eq!((told.last().unwrap().unhealthy.len(), told.last().unwrap().revision), (0, 2));
}

#[test]
fn an_attempt_moves_only_so_often() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    for number in 1..=MOVES_MAX {
        let stands = bench.places(1).split('=').next().unwrap().to_owned();
        bench.nodes(unready(&[&stands]));
        assert_eq!(bench.moved(1).unwrap().0, number);
        bench.confirm(1, number);
    }
    let stands = bench.places(1).split('=').next().unwrap().to_owned();
    bench.nodes(unready(&[&stands]));
    assert!(lost(bench.ends(1)).contains("moved 16 times already"));
}

#[test]
fn a_run_that_an_older_agent_stored_stays_where_it_is() {
    let mut bench = Bench::new();
    bench.run(1, plain(4));
    let run = bench.store.get_mut("run/00000000-0000-0000-0000-000000000001").unwrap();
    let mut stored: serde_json::Value = serde_json::from_str(run).unwrap();
    for field in ["gang", "placed"] {
        assert!(stored.as_object_mut().unwrap().remove(field).is_some());
    }
    *run = stored.to_string();
    bench.restart();
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None);
    assert_eq!(bench.agent.runs().count(), 1);
}

impl Bench {
    /// Pods of `main` have succeeded.
    fn succeed(&mut self, number: u64, indexes: &[u32]) {
        let places = indexes.iter().map(|index| ("main".to_owned(), *index)).collect();
        self.apply(Input::Runner(RunnerEvent::Spare {
            uid: Uid(u128::from(number)),
            fence: fence(number),
            places,
        }));
    }

    /// What the manager hears of such pods until it has answered.
    fn spare(&mut self) -> Vec<(Uid, BTreeMap<String, u32>)> {
        let request = self.agent.compose(at(self.now), Lane::News);
        self.exchange(None);
        request.spare.into_iter().map(|spare| (spare.uid, spare.pods)).collect()
    }

    fn free(&self) -> i64 {
        self.agent.ledger().blocks().iter().map(|block| block.free[GPU] * i64::from(block.nodes)).sum()
    }
}

#[test]
fn pods_that_have_succeeded_need_no_other_place() {
    let mut bench = Bench::new();
    bench.run(1, plain(12));
    assert_eq!((bench.places(1).as_str(), bench.free()), ("b0-r0-h0=4 b0-r0-h1=4 b0-r0-h2=4", 12));
    // All of the first host's, and two of the second's.
    bench.succeed(1, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(bench.free(), 18);
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None, "nobody stands there any more");
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1"]));
    let (number, placement) = bench.moved(1).unwrap();
    assert_eq!((number, placement.len()), (1, 12), "pods are told by their old numbers");
    let moved: Vec<u32> =
        placement.iter().filter(|pod| pod.node.starts_with("b0-r1")).map(|pod| pod.index).collect();
    assert_eq!(moved, [6, 7]);
    bench.confirm(1, 1);
    assert_eq!(bench.free(), 10);
    // One that succeeds while it is told to move gives back its new place at once, and its old one when that is seen empty.
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1", "b0-r0-h2"]));
    assert_eq!(bench.moved(1).unwrap().0, 2);
    bench.succeed(1, &[8]);
    assert_eq!(bench.free(), 7);
    bench.confirm(1, 2);
    assert_eq!(bench.free(), 7);
}

#[test]
fn in_a_topology_only_those_that_are_left_need_a_place_near_each_other() {
    let mut bench = Bench::new();
    bench.run(1, near(12, "rack"));
    bench.nodes(fleet());
    // The rack is full: with all of them there would be no other place in it.
    bench.succeed(1, &[0, 1, 2, 3]);
    bench.nodes(unready(&["b0-r0-h1"]));
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
    bench.confirm(1, 1);
    assert_eq!(bench.places(1), "b0-r0-h0=8 b0-r0-h2=4", "four of the eight have succeeded");
    assert_eq!(bench.free(), 12);
}

#[test]
fn failed_pods_are_told_while_the_job_goes_on() {
    let mut bench = Bench::new();
    bench.run(1, plain(3));
    let fail = |bench: &mut Bench, failures: u32| {
        bench.apply(Input::Runner(RunnerEvent::PodsFailed { uid: Uid(1), fence: fence(1), failures }));
        let request = bench.agent.compose(at(bench.now), Lane::News);
        bench.exchange(None);
        request.spare.iter().map(|said| said.failures).collect::<Vec<_>>()
    };
    assert_eq!(fail(&mut bench, 1), [1]);
    assert_eq!(fail(&mut bench, 1), [0; 0], "told twice by the runner, it is no news");
    assert_eq!(fail(&mut bench, 3), [3]);
    assert_eq!(fail(&mut bench, 2), [0; 0], "nor are they ever fewer");
}

#[test]
fn what_succeeded_is_told_until_it_is_heard_and_remembered_over_restarts() {
    let mut bench = Bench::new();
    bench.run(1, plain(3));
    let said = |pods: u32| vec![(Uid(1), BTreeMap::from([("main".to_owned(), pods)]))];
    bench.succeed(1, &[2]);
    assert!(bench.effects.contains(&Effect::SendNews));
    let unheard = bench.agent.compose(at(bench.now), Lane::News);
    assert_eq!(unheard.spare.len(), 1);
    assert_eq!(bench.spare(), said(1), "no answer came");
    assert_eq!(bench.spare(), []);
    bench.succeed(1, &[2]);
    assert_eq!(bench.spare(), [], "told twice by the runner, it is no news");
    bench.restart();
    bench.nodes(fleet());
    assert_eq!(bench.free(), 22);
    // A new session begins with an inventory of everything.
    let inventory = bench.agent.compose(at(bench.now), Lane::News).inventory.unwrap();
    assert_eq!(inventory.runs[0].spare, BTreeMap::from([("main".to_owned(), 1)]));
    bench.exchange(None);
    bench.succeed(1, &[2, 0]);
    assert_eq!(bench.spare(), said(2));
    // Who is being stopped gives nothing back before its end.
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Evicted }));
    bench.succeed(1, &[1]);
    assert_eq!((bench.free(), bench.spare()), (23, Vec::new()));
    bench.ends(1);
    assert_eq!(bench.free(), 24);
}

#[test]
fn a_gang_that_is_to_be_smaller_keeps_its_room_until_its_pods_were_seen_ended() {
    let mut bench = Bench::new();
    bench.run(1, plain(6));
    let size = |parallelism| Size { parallelism, completions: Some(parallelism) };
    let shrink = |fence, size| Some(Command::Shrink { uid: Uid(1), fence, size });
    let ordered = |bench: &mut Bench| {
        let sizes =
            |effect| if let Effect::Shrink { size, .. } = effect { Some(size.parallelism) } else { None };
        std::mem::take(&mut bench.effects).into_iter().filter_map(sizes).collect::<Vec<_>>()
    };
    bench.exchange(shrink(fence(9), size(1)));
    assert_eq!(ordered(&mut bench), [0_u32; 0], "of another attempt");
    bench.exchange(shrink(fence(1), size(4)));
    assert_eq!((ordered(&mut bench), bench.free()), (vec![4], 18), "they still run");
    assert!(
        bench.store["run/00000000-0000-0000-0000-000000000001"]
            .contains("\"size\":{\"parallelism\":4,\"completions\":4}")
    );
    bench.exchange(shrink(fence(1), size(4)));
    bench.exchange(shrink(fence(1), size(5)));
    assert_eq!(ordered(&mut bench), [0_u32; 0], "said again, or larger, it changes nothing");
    // The next session orders it again, and what is seen ended is told like what has succeeded.
    bench.restart();
    assert_eq!(ordered(&mut bench), [4]);
    bench.nodes(fleet());
    bench.succeed(1, &[4, 5]);
    assert_eq!((bench.free(), bench.spare()), (20, vec![(Uid(1), BTreeMap::from([("main".to_owned(), 2)]))]));
    bench.exchange(shrink(fence(1), size(1)));
    assert_eq!(ordered(&mut bench), [1]);
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Evicted }));
    bench.exchange(shrink(fence(1), size(0)));
    assert!(
        !bench.effects.iter().any(|effect| matches!(effect, Effect::Shrink { .. })),
        "who is being stopped is stopped whole"
    );
    bench.ends(1);
    assert_eq!(bench.free(), 24);
}

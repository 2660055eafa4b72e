//! Limited tolerations (`tolerationSeconds`) and waits for a new node, which survive restarts of the agent.

use super::*;
use meridian_shared::gang::Tolerance;
use meridian_shared::protocol::ScaleUp;

/// The fleet with `NoExecute` taints, which appeared at `added` if that is known.
fn drained(names: &[&str], added: Option<i64>) -> Vec<NodeSpec> {
    let added: Vec<(Taint, Wall)> =
        added.map(|at| (taint(TaintEffect::NoExecute), Wall(at))).into_iter().collect();
    let spec = |node: NodeSpec| NodeSpec {
        added: if names.contains(&node.name.as_str()) { added.clone() } else { Vec::new() },
        ..node
    };
    tainted(names, TaintEffect::NoExecute).into_iter().map(spec).collect()
}

/// The gang with a toleration of the taint for each of these times.
fn patient(mut gang: Gang, seconds: &[Option<i64>]) -> Gang {
    let toleration = |seconds: &Option<i64>| {
        let effect = Some(TaintEffect::NoExecute);
        Toleration {
            key: Some("maintenance".into()),
            exists: true,
            value: String::new(),
            effect,
            seconds: *seconds,
        }
    };
    gang.pod_sets.iter_mut().for_each(|set| set.tolerations.extend(seconds.iter().map(toleration)));
    gang
}

impl Bench {
    /// Lets time pass.
    fn sleep(&mut self, millis: u64) {
        self.now += millis - 10;
        self.apply(Input::Tick);
    }

    fn due(&self) -> u64 {
        self.agent.next_deadline().unwrap().0
    }
}

#[test]
fn the_shortest_toleration_counts() {
    let mut bench = Bench::new();
    bench.run(1, patient(plain(4), &[None, Some(60), Some(5)]));
    assert_eq!(bench.places(1), "b0-r0-h0=4");
    bench.nodes(drained(&["b0-r0-h0"], None));
    let seen = bench.now;
    assert_eq!((bench.moved(1), bench.due()), (None, seen + 5_000));
    bench.sleep(4_990);
    assert_eq!(bench.moved(1), None);
    // A repeated inventory makes the taint no newer.
    bench.nodes(drained(&["b0-r0-h0"], None));
    assert_eq!((bench.now, bench.moved(1).map(|(number, _)| number)), (seen + 5_000, Some(1)));
    assert_eq!(bench.places(1), "b0-r0-h1=4");
    bench.confirm(1, 1);
    bench.sleep(60_000);
    assert_eq!(bench.moved(1), None, "the new node has no taint");
}

#[test]
fn toleration_is_counted_from_the_taint() {
    let mut bench = Bench::new();
    bench.run(1, patient(plain(4), &[Some(5)]));
    bench.sleep(20_000);
    // The taint appeared earlier.
    let added = i64::try_from(bench.now).unwrap() - 4_000;
    bench.nodes(drained(&["b0-r0-h0"], Some(added)));
    assert_eq!((bench.moved(1), i64::try_from(bench.due()).unwrap()), (None, added + 5_000));
    bench.nodes(fleet());
    bench.sleep(10_000);
    assert_eq!(bench.moved(1), None, "the taint is gone");
    // A new taint is counted anew; one from the future is counted from now.
    for added in [None, Some(i64::MAX)] {
        bench.nodes(drained(&["b0-r0-h0"], added));
        assert_eq!((bench.moved(1), bench.due()), (None, bench.now + 5_000));
        bench.nodes(fleet());
    }
    bench.nodes(drained(&["b0-r0-h0"], Some(added)));
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1), "it ended before it was seen");
}

#[test]
fn unlimited_tolerations_are_not_counted() {
    for (seconds, expect) in
        [(&[None][..], None), (&[Some(0)][..], Some(1)), (&[None, Some(-1)][..], Some(1)), (&[][..], Some(1))]
    {
        let mut bench = Bench::new();
        bench.run(1, patient(plain(4), seconds));
        let before = bench.agent.next_deadline();
        bench.nodes(drained(&["b0-r0-h0"], None));
        assert_eq!(bench.moved(1).map(|(number, _)| number), expect, "{seconds:?}");
        assert_eq!(bench.agent.next_deadline(), before);
    }
}

#[test]
fn on_a_tainted_node_toleration_counts_from_the_start() {
    let mut bench = Bench::new();
    let all: Vec<String> = fleet().into_iter().map(|node| node.name).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bench.nodes(drained(&all, Some(0)));
    bench.offer(1, patient(plain(4), &[Some(0)]));
    bench.offer(2, plain(4));
    assert_eq!(bench.agent.held().count(), 0, "zero seconds and no toleration");
    // The toleration is not counted during a hold.
    bench.offer(3, patient(plain(4), &[Some(5)]));
    bench.sleep(30_000);
    bench.nodes(drained(&all, Some(0)));
    assert_eq!(bench.agent.held().map(|(id, _)| id).collect::<Vec<_>>(), [offer(3)]);
    bench.run(4, patient(plain(4), &[Some(5)]));
    let begun = bench.now;
    bench.nodes(drained(&all, Some(0)));
    assert_eq!(bench.moved(4), None);
    bench.sleep(4_000);
    assert_eq!(bench.moved(4), None);
    // All other nodes are tainted too, so the pods don't move from one to the next.
    bench.sleep(5_000);
    assert!(bench.now > begun + 5_000);
    assert!(lost(bench.ends(4)).contains("evicted pods by a taint, and its pods fit nowhere else"));
}

#[test]
fn pods_of_a_failed_node_use_a_tainted_node_last() {
    let mut bench = Bench::new();
    bench.run(1, patient(plain(20), &[Some(5)]));
    bench.nodes(drained(&["b0-r1-h2"], None));
    let nodes = |down: &str| {
        drained(&["b0-r1-h2"], None)
            .into_iter()
            .map(|node| NodeSpec { unready: node.name == down, ..node })
            .collect::<Vec<_>>()
    };
    bench.nodes(nodes("b0-r0-h0"));
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
    assert!(bench.places(1).contains("b0-r1-h2=4"));
    let ordered = bench.now;
    bench.confirm(1, 1);
    assert_eq!(bench.due(), ordered + 5_000);
    // The failed node is back before that.
    bench.nodes(nodes(""));
    bench.sleep(5_000);
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(2));
    assert!(bench.places(1).contains("b0-r0-h0=4"));
}

#[test]
fn tolerating_pods_stay_when_another_node_is_lost() {
    let mut bench = Bench::new();
    bench.run(1, patient(near(6, "rack"), &[Some(5)]));
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=2");
    bench.nodes(drained(&["b0-r0-h0"], None).into_iter().filter(|node| node.name != "b0-r0-h1").collect());
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h2=2");
}

#[test]
fn the_first_pod_set_without_toleration_loses_the_node() {
    let mut bench = Bench::new();
    let mut gang = patient(plain(1), &[Some(60)]);
    gang.pod_sets.push(PodSet { name: "other".into(), ..patient(plain(1), &[Some(5)]).pod_sets.remove(0) });
    bench.run(1, gang);
    assert_eq!(bench.places(1), "b0-r0-h0=2");
    bench.nodes(drained(&["b0-r0-h0"], None));
    assert_eq!((bench.moved(1), bench.due()), (None, bench.now + 5_000));
    // After one pod set has succeeded, only the deadline of the other one counts.
    let places = vec![("other".to_owned(), 0)];
    bench.apply(Input::Runner(RunnerEvent::Reclaimable { uid: Uid(1), fence: fence(1), places }));
    bench.sleep(10_000);
    assert_eq!(bench.moved(1), None);
    bench.sleep(50_000);
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
}

#[test]
fn tolerations_and_waits_continue_after_a_restart() {
    let mut bench = Bench::waiting(Millis::secs(8));
    bench.run(1, patient(plain(24), &[Some(5)]));
    bench.nodes(drained(&["b0-r0-h0"], None));
    let tainted_at = bench.now;
    bench.sleep(2_000);
    bench.restart();
    bench.nodes(drained(&["b0-r0-h0"], None));
    assert_eq!((bench.moved(1), bench.due()), (None, tainted_at + 5_000));
    bench.sleep(3_500);
    // The toleration is over, and no node fits: the wait begins.
    let began = bench.now;
    assert_eq!((bench.moved(1), bench.due()), (None, began + 8_000));
    assert_eq!(bench.reported().last().unwrap().unhealthy, ["b0-r0-h0"]);
    for _ in 0..3 {
        bench.now += 1_000;
        bench.restart();
        assert!(
            bench.agent.next_deadline().is_none_or(|due| due.0 > bench.now),
            "nothing is due before the inventory is known"
        );
        bench.nodes(drained(&["b0-r0-h0"], None));
        assert_eq!((bench.moved(1), bench.due()), (None, began + 8_000));
    }
    // An agent that was away for longer ends the run only after it knows the inventory.
    bench.now += 20_000;
    bench.restart();
    assert_eq!(bench.moved(1), None);
    bench.nodes(drained(&["b0-r0-h0"], None));
    assert!(lost(bench.ends(1)).contains("fit nowhere else"));

    let mut bench = Bench::waiting(Millis::secs(8));
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r0-h0"]));
    bench.now += 20_000;
    bench.restart();
    bench.nodes(unready(&["b0-r0-h0"]).into_iter().chain([node("b0-r2-h0")]).collect());
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
    bench.confirm(1, 1);
    // The next wait is a whole one.
    bench.nodes(unready(&["b0-r0-h0", "b0-r0-h1"]).into_iter().chain([node("b0-r2-h0")]).collect());
    bench.restart();
    bench.nodes(unready(&["b0-r0-h0", "b0-r0-h1"]).into_iter().chain([node("b0-r2-h0")]).collect());
    assert!(bench.due() > bench.now + 7_900, "{} at {}", bench.due(), bench.now);
}

#[test]
fn a_clock_set_back_without_an_agent_makes_no_wait_longer() {
    let mut bench = Bench::waiting(Millis::secs(8));
    bench.sleep(20_000);
    bench.run(1, plain(24));
    bench.nodes(unready(&["b0-r0-h0"]));
    let began = bench.now;
    let durable = Durable::load(bench.store.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap().unwrap();
    let found = Found {
        uid: Uid(1),
        fence: fence(1),
        nodes: Vec::new(),
        completed: meridian_shared::indexes::Indexes::default(),
        state: FoundState::Live { running: true },
    };
    let back = 10_000;
    let now = |mono: u64| Now { mono: Mono(mono), wall: Wall(i64::try_from(mono).unwrap() - back) };
    let (mut agent, _) = Agent::start(config(bench.wait), durable, vec![found], 2, now(began + 1_000));
    agent.apply(now(began + 1_000), Input::Nodes { nodes: unready(&["b0-r0-h0"]), pools: Vec::new() });
    assert_eq!(agent.next_deadline(), Some(Mono(began + 8_000)));
    agent.apply(now(began + 7_990), Input::Tick);
    assert!(!agent.is_stranded(Uid(1), fence(1)));
    agent.apply(now(began + 8_000), Input::Tick);
    assert!(agent.is_stranded(Uid(1), fence(1)));
}

#[test]
fn a_toleration_without_seconds_is_unlimited() {
    let unlimited: Toleration =
        serde_json::from_str(r#"{"key":"maintenance","exists":true,"effect":"NoExecute"}"#).unwrap();
    assert_eq!(Tolerance::of([&unlimited], &taint(TaintEffect::NoExecute)), Tolerance::Forever);
}

#[test]
fn toleration_of_added_pods_counts_from_their_start() {
    let mut bench = Bench::new();
    bench.run(1, patient(plain(4), &[Some(5)]));
    assert_eq!(bench.places(1), "b0-r0-h0=4");
    // All other nodes have had the taint for long.
    let others: Vec<String> =
        fleet().into_iter().map(|node| node.name).filter(|name| name != "b0-r0-h0").collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    bench.nodes(drained(&others, Some(1)));
    let scale_up = ScaleUp {
        number: RecordNumber(7),
        places: vec![6],
        size: Size { parallelism: 6, completions: Some(6) },
        mac: None,
    };
    bench.exchange(Some(Command::ScaleUp { uid: Uid(1), fence: fence(1), scale_up: Box::new(scale_up) }));
    let added = bench.now;
    assert_eq!(bench.places(1), "b0-r0-h0=4 b0-r0-h1=2");
    bench.confirm(1, 1);
    bench.effects.clear();
    assert_eq!(bench.due(), added + 5_000, "from the arrival of the pods, not of the taint");
    bench.nodes(drained(&others, Some(1)));
    assert_eq!((bench.moved(1), bench.due()), (None, added + 5_000));
}

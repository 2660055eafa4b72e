//! Gangs of which only some pods need nodes from the provider, because the provider manages some resources
//! only.

use super::*;
use meridian_agent_core::HoldEvent;
use meridian_agent_core::runtime::{HoldOrder, NodeRequest, ProviderEvent};
use meridian_shared::protocol::{Event, HoldMethod, RefuseReason};

/// An agent whose provider manages GPUs: one node with 2 cpus, and a pool of nodes with cpus and GPUs.
fn bench(method: HoldMethod, checks_references: bool) -> Bench {
    let mut bench = Bench::with(Config {
        holds: HoldSettings { checks_references, method },
        managed: [GPU.to_owned()].into_iter().collect(),
        ..config()
    });
    bench.set_cpus(2_000);
    bench
}

fn pool_capacity() -> Amounts {
    Amounts::from([("cpu".into(), 64_000), (GPU.into(), 8)])
}

fn cpu_node(cpus: i64) -> NodeSpec {
    NodeSpec { name: "n".into(), capacity: Amounts::from([("cpu".into(), cpus)]), ..NodeSpec::default() }
}

fn pod_set(name: &str, count: u32, per_pod: &[(&str, i64)]) -> PodSet {
    let per_pod = per_pod.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
    PodSet { name: name.into(), count, per_pod, ..PodSet::default() }
}

fn driver() -> PodSet {
    pod_set("driver", 1, &[("cpu", 1_500)])
}

fn workers() -> PodSet {
    pod_set("workers", 2, &[("cpu", 1_000), (GPU, 4)])
}

impl Bench {
    fn set_cpus(&mut self, cpus: i64) {
        let (free, capacity) = (pool_capacity(), pool_capacity());
        let pools = vec![Block { nodes: 3, free, capacity, ..Block::default() }];
        self.apply(Input::Nodes { nodes: vec![cpu_node(cpus)], pools });
    }

    fn offer_gang(&mut self, pod_sets: Vec<PodSet>) {
        let Command::Offer(mut asked) = offer() else { unreachable!("it is an offer") };
        asked.gang = Arc::new(Gang { pod_sets, ..Gang::default() });
        let request = self.ask();
        self.answer(&request, vec![Command::Offer(asked)]);
    }

    /// The pod sets of each request for nodes.
    fn provisioned(&self) -> Vec<Vec<PodSet>> {
        let requested = |effect: &Effect| match effect {
            Effect::Provision(NodeRequest { gang, .. }) => Some(gang.pod_sets.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(requested).collect()
    }

    fn secured(&self) -> Vec<&HoldOrder> {
        let orders = self.effects.iter().filter_map(|effect| match effect {
            Effect::Secure(order) => Some(order),
            _ => None,
        });
        orders.collect()
    }

    fn free_cpus(&self) -> i64 {
        self.agent.ledger().blocks().iter().map(|block| block.free["cpu"]).sum()
    }

    fn provide(&mut self, gpus: i64) {
        let capacity = Amounts::from([("cpu".into(), 64_000), (GPU.into(), gpus)]);
        let nodes = vec![NodeSpec { name: "p".into(), capacity, ..NodeSpec::default() }];
        self.apply(Input::Provider(ProviderEvent::Ready { offer: OFFER, nodes, keeps: None }));
    }

    fn last_event(&mut self) -> Option<Event> {
        self.ask().events.pop()
    }
}

fn refusal(event: Option<Event>) -> (RefuseReason, String) {
    match event {
        Some(Event::Refused { reason, text, .. }) => (reason, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gang_without_a_managed_resource_needs_no_request() {
    let mut bench = bench(HoldMethod::Ledger, false);
    bench.offer_gang(vec![driver()]);
    assert!(matches!(bench.last_event(), Some(Event::Held { .. })), "it fits on the node that exists");
    assert_eq!(bench.provisioned(), Vec::<Vec<PodSet>>::new());
    let mut small = self::bench(HoldMethod::Ledger, false);
    small.set_cpus(1_000);
    small.offer_gang(vec![driver()]);
    assert_eq!(refusal(small.last_event()).0, RefuseReason::NeverFits, "the pool is no help to it");
    assert_eq!(small.provisioned(), Vec::<Vec<PodSet>>::new());
}

#[test]
fn pods_that_need_no_new_node_are_held_while_the_others_wait_for_theirs() {
    let mut bench = bench(HoldMethod::Ledger, false);
    bench.offer_gang(vec![driver(), workers()]);
    assert_eq!(bench.provisioned(), [vec![workers()]], "only the workers ask for a GPU");
    assert_eq!(bench.free_cpus(), 500, "the driver has its room");
    assert!(matches!(bench.last_event(), Some(Event::Waiting { .. })));
    bench.provide(8);
    assert!(matches!(bench.last_event(), Some(Event::Held { .. })));
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    let start = bench.effects.iter().find_map(|effect| match effect {
        Effect::Start(start) => Some(start.placement.clone()),
        _ => None,
    });
    let placement = start.unwrap();
    let places: Vec<(&str, u32, &str)> =
        placement.iter().map(|pod| (pod.pod_set.as_str(), pod.index, pod.node.as_str())).collect();
    assert_eq!(places, [("driver", 0, "n"), ("workers", 0, "p"), ("workers", 1, "p")]);
    assert_eq!(placement[2].accelerators[GPU], [4, 5, 6, 7], "each worker has its own GPUs");
    bench.restart();
    bench.set_cpus(2_000);
    assert_eq!(bench.free_cpus(), 500, "the driver keeps its room");
}

#[test]
fn a_gang_that_asked_for_all_its_nodes_may_use_those_that_came_free() {
    let mut bench = bench(HoldMethod::Ledger, false);
    bench.offer_gang(vec![workers()]);
    assert_eq!(bench.provisioned(), [vec![workers()]]);
    let free = NodeSpec { capacity: pool_capacity(), ..cpu_node(0) };
    bench.apply(Input::Nodes { nodes: vec![free], pools: Vec::new() });
    bench.provide(4);
    assert!(matches!(bench.last_event(), Some(Event::Held { .. })), "one worker fits on each");
}

#[test]
fn no_nodes_are_asked_for_in_vain() {
    let mut bench = bench(HoldMethod::Ledger, false);
    bench.set_cpus(1_000);
    bench.offer_gang(vec![driver(), workers()]);
    let (reason, text) = refusal(bench.last_event());
    assert_eq!(reason, RefuseReason::NeverFits);
    assert!(text.contains("`driver`"), "the workers are not the obstacle: {text}");
    assert_eq!((bench.provisioned(), bench.free_cpus()), (Vec::new(), 1_000));
}

#[test]
fn what_is_held_for_the_other_pods_ends_with_the_offer() {
    for case in ["failed", "too small", "withdrawn", "node lost"] {
        let mut bench = bench(HoldMethod::Ledger, false);
        bench.offer_gang(vec![driver(), workers()]);
        assert_eq!(bench.free_cpus(), 500);
        match case {
            "failed" => {
                let reason = "ZoneNotSupported".to_owned();
                bench.apply(Input::Provider(ProviderEvent::Failed { offer: OFFER, reason }));
            }
            "too small" => bench.provide(4),
            "withdrawn" => {
                let request = bench.ask();
                bench.answer(&request, vec![Command::Withdraw { offer: OFFER, uid: UID }]);
            }
            _ => bench.apply(Input::Nodes { nodes: vec![], pools: Vec::new() }),
        }
        if case == "node lost" {
            assert!(matches!(bench.last_event(), Some(Event::Gone { .. })), "{case}");
            bench.set_cpus(2_000);
        }
        assert_eq!(bench.free_cpus(), 2_000, "{case}");
        assert!(bench.effects.contains(&Effect::Deprovision { offer: OFFER }), "{case}");
    }
}

#[test]
fn the_cluster_holds_the_other_pods_before_nodes_are_asked_for() {
    let mut bench = bench(HoldMethod::Placeholders, true);
    bench.offer_gang(vec![workers(), driver()]);
    assert_eq!((bench.secured().len(), bench.provisioned().len()), (0, 0), "the lookup comes first");
    bench.apply(Input::Hold(HoldEvent::Checked { offer: OFFER }));
    let [order] = bench.secured()[..] else { panic!("one order") };
    assert_eq!(order.gang.pod_sets, [driver()]);
    assert_eq!((order.placement.len(), order.placement[0].node.as_str()), (1, "n"));
    assert_eq!(bench.provisioned().len(), 0);
    bench.apply(Input::Hold(HoldEvent::Secured { offer: OFFER }));
    bench.apply(Input::Hold(HoldEvent::Secured { offer: OFFER }));
    assert_eq!(bench.provisioned(), [vec![workers()]], "a repeated answer changes nothing");
    bench.provide(8);
    assert!(matches!(bench.last_event(), Some(Event::Held { .. })));
}

#[test]
fn the_manager_learns_what_the_provider_is_for() {
    let mut bench = bench(HoldMethod::Ledger, false);
    let managed = bench.ask().capacity.unwrap().managed;
    assert_eq!(managed, [GPU.to_owned()].into_iter().collect());
}

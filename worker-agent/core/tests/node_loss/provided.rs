//! Nodes that a provider makes for one gang.

use super::*;
use meridian_shared::packing::Block;

#[test]
fn provided_nodes_are_unused_until_their_gang_has_started() {
    let mut bench = Bench::new();
    let pool = Block { nodes: 1, free: node("p0-r0-h0").capacity, ..Block::default() };
    bench.apply(Input::Nodes { nodes: Vec::new(), pools: vec![pool] });
    bench.offer(1, plain(4));
    let provided = |bench: &Bench| bench.agent.provided().collect::<Vec<_>>();
    assert_eq!(bench.agent.waiting().collect::<Vec<_>>(), [offer(1)]);
    assert_eq!(provided(&bench), []);
    let nodes = vec![node("p0-r0-h0")];
    bench.apply(Input::Provider(ProviderEvent::Ready { offer: offer(1), nodes, keeps: None }));
    assert_eq!(bench.agent.waiting().count(), 0);
    assert_eq!(provided(&bench), [(offer(1), false)], "the offer only holds them");
    bench.grant(1);
    assert_eq!(provided(&bench), [(offer(1), false)], "its pods have not started");
    bench.apply(Input::Runner(RunnerEvent::Running { uid: Uid(1), fence: fence(1) }));
    assert_eq!(provided(&bench), [(offer(1), true)]);
    bench.restart();
    bench.nodes(Vec::new());
    assert_eq!((provided(&bench), bench.places(1).as_str()), (vec![(offer(1), true)], "p0-r0-h0=4"));
    bench.apply(Input::Runner(RunnerEvent::Ended {
        uid: Uid(1),
        fence: fence(1),
        result: EndResult::Succeeded,
        pod_failures: 0,
        ran: Millis(1_000),
    }));
    assert_eq!(provided(&bench), []);
}

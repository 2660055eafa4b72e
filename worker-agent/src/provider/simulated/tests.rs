//! Each parameter of a pool, with time that the test moves.

use super::*;
use meridian_agent_core::runtime::{NodeRequest, NodeSpec, SimulatedPool, StockOut};
use meridian_shared::gang::{Amounts, Gang, PodSet};
use meridian_shared::ids::Uid;
use meridian_shared::time::Millis;
use std::time::Duration;
use tokio::time::Instant;

const GPU: &str = "nvidia.com/gpu";
const SPEED: f64 = 10.0;

fn pool(name: &str, gpus: i64, max_nodes: u32) -> NodePool {
    let per_node = Amounts::from([(GPU.into(), gpus)]);
    let capacity_class = Some("flex-start".into());
    NodePool { name: name.into(), capacity_class, per_node, max_nodes, ..NodePool::default() }
}

/// A pool of nodes with one GPU that waits exactly a minute, or a tenth of that in real time.
fn minute(change: impl FnOnce(&mut SimulatedPool)) -> NodePool {
    let mut pool = pool("t4", 1, 100);
    (pool.simulated.wait_least, pool.simulated.wait_most) = (Millis::mins(1), Millis::mins(1));
    change(&mut pool.simulated);
    pool
}

fn wanted(offer: OfferId, gang: Arc<Gang>) -> NodeRequest {
    NodeRequest { offer, uid: Uid(1), namespace: "ml".into(), gang }
}

fn gang(count: u32, gpus: i64) -> Arc<Gang> {
    let set = PodSet {
        name: "main".into(),
        count,
        per_pod: Amounts::from([(GPU.into(), gpus)]),
        ..PodSet::default()
    };
    Arc::new(Gang { pod_sets: vec![set], ..Gang::default() })
}

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 1, counter }
}

struct Bench {
    provider: SimulatedProvider,
    events: mpsc::UnboundedReceiver<ProviderEvent>,
    began: Instant,
}

impl Bench {
    fn new(pools: Vec<NodePool>) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let provider = SimulatedProvider::new(pools, SPEED, 7, Handle::current(), sender);
        Self { provider, events, began: Instant::now() }
    }

    fn request(&mut self, counter: u64, nodes: u32) {
        self.provider.request(wanted(offer(counter), gang(nodes, 1)));
    }

    /// The next event, and the simulated second in which it came.
    async fn next(&mut self) -> (u64, ProviderEvent) {
        let event = self.events.recv().await.unwrap();
        let seconds = self.began.elapsed().as_secs_f64() * SPEED;
        (seconds.round() as u64, event)
    }

    /// The next event, which is that the request waits, with its estimate in simulated seconds.
    async fn waits(&mut self) -> (u64, String, Option<u64>) {
        let (at, event) = self.next().await;
        let ProviderEvent::Waiting { reason, estimate, .. } = event else { panic!("{event:?}") };
        assert!(reason.starts_with("simulated Flex Start: "), "{reason}");
        (at, reason, estimate.map(|estimate| (estimate.0 as f64 * SPEED / 1_000.0).round() as u64))
    }

    /// The next event, which is that nodes are ready.
    async fn ready(&mut self) -> (u64, OfferId, Vec<NodeSpec>) {
        let (at, event) = self.next().await;
        let ProviderEvent::Ready { offer, nodes, .. } = event else { panic!("{event:?}") };
        (at, offer, nodes)
    }

    async fn failed(&mut self) -> (u64, String) {
        let (at, event) = self.next().await;
        let ProviderEvent::Failed { reason, .. } = event else { panic!("{event:?}") };
        (at, reason)
    }

    async fn revoked(&mut self) -> (u64, String) {
        let (at, event) = self.next().await;
        let ProviderEvent::Revoked { reason, .. } = event else { panic!("{event:?}") };
        (at, reason)
    }

    fn left(&self) -> Vec<u32> {
        self.provider.pools().iter().map(|block| block.nodes).collect()
    }
}

#[track_caller]
fn assert_waits(waits: &(u64, String, Option<u64>), at: u64, reason: &str, estimate: Option<u64>) {
    assert!(waits.0 == at && waits.1.contains(reason) && waits.2 == estimate, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn pools_grow_for_one_offer_and_take_nodes_back() {
    let mut bench = Bench::new(vec![pool("small", 1, 3), pool("large", 8, 2)]);
    bench.provider.request(wanted(offer(1), gang(2, 4)));
    bench.provider.request(wanted(offer(1), gang(2, 4)));
    assert_eq!(bench.left(), [3, 1], "two pods of 4 go to one node of 8");
    let (_, reason, estimate) = bench.waits().await;
    assert!(reason.contains("SuccessfullyQueued") && reason.contains("1 node of pool `large`"), "{reason}");
    assert!((30..=180).contains(&estimate.unwrap()), "{estimate:?}");
    assert!(bench.waits().await.1.contains("starting"));
    let (_, _, nodes) = bench.ready().await;
    assert_eq!((nodes.len(), nodes[0].capacity[GPU]), (1, 8));

    bench.provider.request(wanted(offer(2), gang(2, 8)));
    let (_, reason) = bench.failed().await;
    assert!(reason.contains("too little left"), "one node of 8 is left: {reason}");
    bench.provider.cancel(offer(1));
    bench.provider.cancel(offer(1));
    bench.provider.cancel(offer(9));
    assert_eq!(bench.left(), [3, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_never_becomes_ready() {
    let mut bench = Bench::new(vec![minute(|_| {})]);
    bench.request(1, 2);
    bench.waits().await;
    bench.provider.cancel(offer(1));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(bench.events.try_recv().is_err());
    assert_eq!(bench.left(), [100]);
}

#[tokio::test(start_paused = true)]
async fn nodes_start_after_the_wait_and_are_ready_after_their_boot() {
    let mut bench = Bench::new(vec![minute(|pool| pool.boot = Millis::secs(90))]);
    bench.request(1, 2);
    assert_waits(&bench.waits().await, 0, "SuccessfullyQueued", Some(150));
    assert_waits(&bench.waits().await, 60, "2 nodes of pool `t4` starting", Some(90));
    let (at, _, nodes) = bench.ready().await;
    assert_eq!((at, nodes.len()), (150, 2));
}

#[tokio::test(start_paused = true)]
async fn waits_follow_from_seed_and_offer_and_a_shorter_run_waits_less() {
    let estimate = async |seed, counter, run_time: Option<Millis>, leadership| {
        let mut pool = pool("t4", 1, 100);
        (pool.simulated.wait_least, pool.simulated.wait_most) = (Millis::mins(1), Millis::mins(9));
        pool.simulated.seed = seed;
        let mut bench = Bench::new(vec![pool]);
        let gang = Gang { max_run: run_time, ..(*gang(1, 1)).clone() };
        bench.provider.request(wanted(OfferId { leadership, ..offer(counter) }, Arc::new(gang)));
        bench.waits().await.2.unwrap()
    };
    let first = estimate(Some(1), 1, None, 1).await;
    assert_eq!(first, estimate(Some(1), 1, None, 2).await, "leaderships are random");
    let others = [(Some(2), 1), (Some(1), 2), (None, 1)];
    let mut different = 0;
    for (seed, counter) in others {
        let other = estimate(seed, counter, None, 1).await;
        assert!((60..=540).contains(&other), "{other}");
        different += usize::from(other != first);
    }
    assert_eq!(different, others.len());
    let short = estimate(Some(1), 1, Some(Millis::mins(10)), 1).await;
    assert!((60..first).contains(&short), "{short} and {first}");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_stock_returns() {
    let stock_outs = vec![
        StockOut { from: Millis(0), lasts: Some(Millis::mins(5)) },
        StockOut { from: Millis::mins(10), lasts: None },
    ];
    let mut bench = Bench::new(vec![minute(|pool| pool.stock_outs = stock_outs)]);
    bench.request(1, 1);
    assert_waits(&bench.waits().await, 0, "ResourcePoolExhausted", Some(300));
    assert_waits(&bench.waits().await, 300, "starting", Some(0));
    assert_eq!(bench.ready().await.0, 300);
    tokio::time::sleep(Duration::from_secs(27)).await;
    bench.request(2, 1);
    assert_waits(&bench.waits().await, 570, "SuccessfullyQueued", Some(60));
    assert_waits(&bench.waits().await, 600, "ResourcePoolExhausted", None);
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_quota_waits_until_nodes_go_back() {
    let mut bench = Bench::new(vec![minute(|pool| pool.quota = Some(4))]);
    for counter in [1, 2, 3] {
        bench.request(counter, if counter == 3 { 1 } else { 3 });
        bench.waits().await;
    }
    assert_waits(&bench.waits().await, 60, "3 nodes of pool `t4` starting", Some(0));
    let quota = bench.waits().await;
    assert_waits(&quota, 60, "QuotaExceeded", None);
    assert!(quota.1.contains("4 nodes at once in this region"), "{quota:?}");
    assert_waits(&bench.waits().await, 60, "1 node of pool `t4` starting", Some(0));
    assert_eq!([bench.ready().await.1, bench.ready().await.1], [offer(1), offer(3)]);
    bench.provider.cancel(offer(1));
    assert_waits(&bench.waits().await, 60, "3 nodes of pool `t4` starting", Some(0));
    assert_eq!(bench.ready().await.1, offer(2));
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_limit_is_queued_when_another_one_is_over() {
    let mut bench = Bench::new(vec![minute(|pool| pool.request_limit = 1)]);
    bench.request(1, 1);
    bench.waits().await;
    bench.request(2, 1);
    assert_waits(&bench.waits().await, 0, "LimitExceeded", None);
    bench.waits().await;
    assert_eq!(bench.ready().await.0, 60);
    assert_waits(&bench.waits().await, 60, "SuccessfullyQueued", Some(60));
    bench.waits().await;
    assert_eq!(bench.ready().await.0, 120);
}

#[tokio::test(start_paused = true)]
async fn a_booking_expires_and_nodes_are_revoked() {
    let mut bench = Bench::new(vec![minute(|pool| pool.max_run = Millis::mins(60))]);
    bench.request(1, 2);
    bench.waits().await;
    bench.waits().await;
    assert_eq!(bench.ready().await.0, 60);
    let (at, reason) = bench.failed().await;
    assert_eq!(at, 60 + 600);
    assert!(reason.contains("BookingExpired") && reason.contains("within 10m"), "{reason}");
    assert_eq!(bench.left(), [98], "perhaps a gang runs on them: the core gives them back");
    let (at, reason) = bench.revoked().await;
    assert_eq!(at, 60 + 3_600);
    assert!(reason.contains("maxRunDuration reached"), "{reason}");
    assert!(reason.contains("CapacityRevoked") && reason.contains("run time of 60m"), "{reason}");
    bench.provider.cancel(offer(1));
    assert_eq!(bench.left(), [100]);
}

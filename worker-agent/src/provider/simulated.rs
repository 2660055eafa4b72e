//! Pools that grow from zero after a delay, with nodes that don't exist. Every message says that it is
//! simulated.
//!
//! The delay is drawn from a seed and the offer, so that the same run always waits equally long, and is
//! divided by the speed. A restart forgets what was made: gangs on those nodes keep their allocations in the
//! core, and the pools are full again.

use meridian_agent_core::runtime::{NodePool, NodeSpec, Provider, ProviderEvent};
use meridian_shared::backoff::splitmix;
use meridian_shared::gang::Gang;
use meridian_shared::ids::OfferId;
use meridian_shared::packing::{self, Block};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Shortest delay until nodes are ready.
const DELAY_LEAST: Millis = Millis::secs(30);
/// Longest delay: real clouds make accelerator nodes within minutes, or queue for hours.
const DELAY_MOST: Millis = Millis::mins(3);
/// Label that tells the nodes of the pools apart while a gang is tried on them.
const POOL_LABEL: &str = "simulated.meridian.dev/pool-number";

/// Nodes of one offer.
#[derive(Debug)]
struct Request {
    /// Number of nodes by the index of their pool.
    nodes: BTreeMap<usize, u32>,
    timer: AbortHandle,
}

/// Pretends to make nodes.
#[derive(Debug)]
pub struct SimulatedProvider {
    pools: Vec<NodePool>,
    free: Vec<u32>,
    requests: BTreeMap<OfferId, Request>,
    speed: f64,
    seed: u64,
    runtime: Handle,
    events: mpsc::UnboundedSender<ProviderEvent>,
}

impl SimulatedProvider {
    /// A provider of `pools`. Delays are divided by `speed`, which is above 0. Timers run on `runtime`.
    pub fn new(
        pools: Vec<NodePool>,
        speed: f64,
        seed: u64,
        runtime: Handle,
        events: mpsc::UnboundedSender<ProviderEvent>,
    ) -> Self {
        let free = pools.iter().map(|p| p.max_nodes).collect();
        Self { pools, free, requests: BTreeMap::new(), speed, seed, runtime, events }
    }

    /// Number of nodes of each pool that the gang needs. Fails if too few are left.
    fn plan(&self, gang: &Gang) -> Result<BTreeMap<usize, u32>, String> {
        let mut blocks: Vec<Block> = self
            .blocks()
            .enumerate()
            .map(|(number, mut block)| {
                block.labels.insert(POOL_LABEL.to_owned(), number.to_string());
                block
            })
            .collect();
        packing::place(&mut blocks, gang)
            .map_err(|misfit| format!("the simulated pools have too little left: {misfit}"))?;
        let mut untouched = vec![0_u32; self.pools.len()];
        for block in blocks.iter().filter(|b| b.free == b.capacity) {
            if let Some(number) = block.labels.get(POOL_LABEL).and_then(|n| n.parse::<usize>().ok()) {
                untouched[number] += block.nodes;
            }
        }
        let taken = self.free.iter().zip(untouched).map(|(free, left)| free.saturating_sub(left));
        Ok(taken.enumerate().filter(|(_, n)| *n > 0).collect())
    }

    fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.pools.iter().zip(&self.free).map(|(pool, free)| Block {
            nodes: *free,
            free: pool.per_node.clone(),
            capacity: pool.per_node.clone(),
            labels: pool.labels.clone(),
            taints: pool.taints.clone(),
        })
    }

    fn delay(&self, offer: OfferId) -> Millis {
        let drawn = splitmix(self.seed ^ splitmix(offer.counter ^ splitmix(offer.leadership)));
        let real = DELAY_LEAST.0 + drawn % (DELAY_MOST.0 - DELAY_LEAST.0);
        // Casts between f64 and u64 saturate, and the product is far from both ends.
        Millis((real as f64 / self.speed) as u64)
    }
}

impl Provider for SimulatedProvider {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn pools(&self) -> Vec<Block> {
        self.blocks().filter(|b| b.nodes > 0).collect()
    }

    fn request(&mut self, offer: OfferId, gang: Arc<Gang>) {
        if self.requests.contains_key(&offer) {
            return;
        }
        let nodes = match self.plan(&gang) {
            Ok(nodes) => nodes,
            Err(reason) => return report(&self.events, ProviderEvent::Failed { offer, reason }),
        };
        let mut made = Vec::new();
        let mut grows = Vec::new();
        for (number, count) in &nodes {
            let pool = &self.pools[*number];
            self.free[*number] -= count;
            grows.push(format!("pool `{}` by {count}", pool.name));
            made.extend((0..*count).map(|i| node(format!("{}-{offer}-{i}", pool.name), pool)));
        }
        let delay = self.delay(offer);
        report(
            &self.events,
            ProviderEvent::Waiting {
                offer,
                reason: format!("simulated provider grows {}", grows.join(", ")),
                estimate: Some(delay),
            },
        );
        let events = self.events.clone();
        let timer = self.runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay.0)).await;
            report(&events, ProviderEvent::Ready { offer, nodes: made });
        });
        self.requests.insert(offer, Request { nodes, timer: timer.abort_handle() });
    }

    fn cancel(&mut self, offer: OfferId) {
        let Some(request) = self.requests.remove(&offer) else { return };
        request.timer.abort();
        for (number, count) in request.nodes {
            self.free[number] += count;
        }
    }
}

/// A send fails only when the agent ends; its successor requests anew.
fn report(events: &mpsc::UnboundedSender<ProviderEvent>, event: ProviderEvent) {
    let _ = events.send(event);
}

fn node(name: String, pool: &NodePool) -> NodeSpec {
    NodeSpec {
        name,
        labels: pool.labels.clone(),
        taints: pool.taints.clone(),
        capacity: pool.per_node.clone(),
        ..NodeSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::gang::{Amounts, PodSet};

    const GPU: &str = "nvidia.com/gpu";

    fn pool(name: &str, gpus: i64, max_nodes: u32) -> NodePool {
        let per_node = Amounts::from([(GPU.into(), gpus)]);
        NodePool { name: name.into(), per_node, max_nodes, ..NodePool::default() }
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

    fn free(provider: &SimulatedProvider) -> Vec<u32> {
        provider.pools().iter().map(|b| b.nodes).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pools_grow_for_one_offer_and_take_nodes_back() {
        let (events, mut reported) = mpsc::unbounded_channel();
        let mut provider = SimulatedProvider::new(
            vec![pool("small", 1, 3), pool("large", 8, 2)],
            10.0,
            7,
            Handle::current(),
            events,
        );
        provider.request(offer(1), gang(2, 4));
        provider.request(offer(1), gang(2, 4));
        assert_eq!(free(&provider), [3, 1], "two pods of 4 go to one node of 8");
        let Some(ProviderEvent::Waiting { reason, estimate: Some(estimate), .. }) = reported.recv().await
        else {
            panic!("it waits first")
        };
        assert!(reason.contains("simulated") && reason.contains("`large` by 1"), "{reason}");
        assert!((Millis(DELAY_LEAST.0 / 10)..=Millis(DELAY_MOST.0 / 10)).contains(&estimate), "{estimate}");
        let Some(ProviderEvent::Ready { nodes, .. }) = reported.recv().await else {
            panic!("then it is ready")
        };
        assert_eq!((nodes.len(), nodes[0].capacity[GPU]), (1, 8));

        provider.request(offer(2), gang(2, 8));
        let Some(ProviderEvent::Failed { reason, .. }) = reported.recv().await else {
            panic!("one node of 8 is left")
        };
        assert!(reason.contains("too little left"), "{reason}");
        provider.cancel(offer(1));
        provider.cancel(offer(1));
        provider.cancel(offer(9));
        assert_eq!(free(&provider), [3, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_never_becomes_ready() {
        let (events, mut reported) = mpsc::unbounded_channel();
        let mut provider = SimulatedProvider::new(vec![pool("a", 1, 2)], 1.0, 7, Handle::current(), events);
        provider.request(offer(1), gang(2, 1));
        assert!(matches!(reported.recv().await, Some(ProviderEvent::Waiting { .. })));
        provider.cancel(offer(1));
        tokio::time::sleep(Duration::from_millis(2 * DELAY_MOST.0)).await;
        assert!(reported.try_recv().is_err());
        assert_eq!(free(&provider), [2]);
    }
}

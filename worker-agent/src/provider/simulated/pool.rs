//! The pools of a region: what may still be requested, and what exists.

use meridian_agent_core::runtime::{NodePool, NodeSpec};
use meridian_shared::backoff::splitmix;
use meridian_shared::gang::Gang;
use meridian_shared::ids::OfferId;
use meridian_shared::packing::{self, Block};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// Label that distinguishes the nodes of the pools while a gang is placed on them.
const POOL_LABEL: &str = "simulated.meridian.dev/pool-number";

/// Number of nodes by the index of their pool.
pub(super) type NodeCounts = BTreeMap<usize, u32>;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) setup: NodePool,
    /// Nodes of open requests, and nodes that exist.
    requested: u32,
    /// Nodes that start or are ready.
    existing: u32,
}

impl Pool {
    fn new(setup: NodePool) -> Self {
        Self { setup, requested: 0, existing: 0 }
    }

    /// Whether the quota allows this number of further nodes.
    fn allows(&self, nodes: u32) -> bool {
        self.setup.simulated.quota.is_none_or(|quota| self.existing.saturating_add(nodes) <= quota)
    }

    /// The nodes that may still be requested.
    fn block(&self) -> Block {
        Block {
            nodes: self.setup.max_nodes.saturating_sub(self.requested),
            free: self.setup.per_node.clone(),
            capacity: self.setup.per_node.clone(),
            labels: self.setup.labels.clone(),
            taints: self.setup.taints.clone(),
        }
    }

    /// Time in the queue, from the seed and the offer. The offer's leadership doesn't count, because it is
    /// random and equal runs should wait equally long. A gang with a shorter run time waits less.
    fn wait(&self, seed: u64, offer: OfferId, run_time: Option<Millis>) -> Millis {
        let simulated = &self.setup.simulated;
        let seed = simulated.seed.unwrap_or(seed);
        let spread = simulated.wait_most.saturating_sub(simulated.wait_least);
        let drawn = splitmix(seed ^ splitmix(offer.counter ^ splitmix(offer.epoch))) % (spread.0 + 1);
        let days = |length: Millis| length.0 as f64 / 86_400_000.0;
        let longest = days(simulated.max_run);
        let run_time = run_time.map_or(longest, |run_time| days(run_time).min(longest));
        // The wait grows linearly with the run time: the longest run waits the drawn time, and a run of two
        // days waits twice as long as a run of no time.
        let share = (1.0 + run_time / 2.0) / (1.0 + longest / 2.0);
        simulated.wait_least + Millis((drawn as f64 * share) as u64)
    }
}

#[derive(Debug)]
pub(super) struct Pools(Vec<Pool>);

impl Pools {
    pub(super) fn new(setups: Vec<NodePool>) -> Self {
        Self(setups.into_iter().map(Pool::new).collect())
    }

    /// What may still be requested, without pools that are at their maximum.
    pub(super) fn blocks(&self) -> Vec<Block> {
        self.0.iter().map(Pool::block).filter(|block| block.nodes > 0).collect()
    }

    /// Number of nodes of each pool that the gang needs. Fails if too few may still be requested.
    pub(super) fn plan(&self, gang: &Gang) -> Result<NodeCounts, String> {
        let labelled = |(number, pool): (usize, &Pool)| {
            let mut block = pool.block();
            block.labels.insert(POOL_LABEL.to_owned(), number.to_string());
            block
        };
        let mut blocks: Vec<Block> = self.0.iter().enumerate().map(labelled).collect();
        packing::place(&mut blocks, gang)
            .map_err(|misfit| format!("the simulated pools have too little left: {misfit}"))?;
        let mut untouched = vec![0_u32; self.0.len()];
        for block in blocks.iter().filter(|block| block.free == block.capacity) {
            if let Some(number) = block.labels.get(POOL_LABEL).and_then(|n| n.parse::<usize>().ok()) {
                untouched[number] += block.nodes;
            }
        }
        let taken = |(pool, left): (&Pool, u32)| pool.block().nodes.saturating_sub(left);
        let counts = self.0.iter().zip(untouched).map(taken).enumerate();
        Ok(counts.filter(|(_, nodes)| *nodes > 0).collect())
    }

    /// The pools that these nodes are of.
    pub(super) fn of<'p>(&'p self, nodes: &'p NodeCounts) -> impl Iterator<Item = &'p NodePool> {
        nodes.keys().map(|number| &self.0[*number].setup)
    }

    /// The longest wait of the pools.
    pub(super) fn wait(
        &self,
        nodes: &NodeCounts,
        seed: u64,
        offer: OfferId,
        run_time: Option<Millis>,
    ) -> Millis {
        let waits = nodes.keys().map(|number| {
            // Pools with one seed draw differently.
            let number_mixed = splitmix(u64::try_from(*number).unwrap_or(u64::MAX));
            self.0[*number].wait(seed ^ number_mixed, offer, run_time)
        });
        waits.max().unwrap_or_default()
    }

    /// The first pool whose quota is too small for the nodes now.
    pub(super) fn lacking_quota<'p>(&'p self, nodes: &NodeCounts) -> Option<&'p NodePool> {
        let lacking = nodes.iter().find(|(number, count)| !self.0[**number].allows(**count));
        lacking.map(|(number, _)| &self.0[*number].setup)
    }

    pub(super) fn add_requested(&mut self, nodes: &NodeCounts) {
        for (number, count) in nodes {
            self.0[*number].requested += count;
        }
    }

    pub(super) fn remove_requested(&mut self, nodes: &NodeCounts) {
        for (number, count) in nodes {
            self.0[*number].requested -= count;
        }
    }

    pub(super) fn add_existing(&mut self, nodes: &NodeCounts) {
        for (number, count) in nodes {
            self.0[*number].existing += count;
        }
    }

    pub(super) fn remove_existing(&mut self, nodes: &NodeCounts) {
        for (number, count) in nodes {
            self.0[*number].existing -= count;
        }
    }

    /// The nodes of an offer.
    pub(super) fn make(&self, nodes: &NodeCounts, offer: OfferId) -> Vec<NodeSpec> {
        let of_pool = |(number, count): (&usize, &u32)| {
            let pool = &self.0[*number].setup;
            let node = |i: u32| NodeSpec {
                name: format!("{}-{offer}-{i}", pool.name),
                labels: pool.labels.clone(),
                taints: pool.taints.clone(),
                capacity: pool.per_node.clone(),
                ..NodeSpec::default()
            };
            (0..*count).map(node).collect::<Vec<_>>()
        };
        nodes.iter().flat_map(of_pool).collect()
    }
}

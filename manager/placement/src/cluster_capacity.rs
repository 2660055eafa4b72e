//! Free capacity of one cluster: what its agent reported, less what the manager has offered since.
//!
//! A report includes everything that the agent decided up to a certain command. Offers with later commands
//! are placed on top of the reported capacity, so that the estimate doesn't promise the same capacity twice.
//! The agent has the final decision, so a wrong estimate costs only a refusal.

use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::managed::{Division, ManagedResources};
use meridian_shared::packing::{self, Block, Misfit};
use meridian_shared::protocol::{Capacity, HoldMethod, RunnerKind};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

/// Reported versions that are kept as bases for deltas.
const BASES_MAX: usize = 8;

/// Number of offers between two checkpoints of the estimate.
const CHECKPOINT_EVERY: usize = 32;

/// Offset that distinguishes versions from transmissions in fingerprints, which map both by their order.
const VERSIONS: u64 = 1 << 20;

/// Reported and estimated capacity of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterCapacity {
    /// Version of the newest report.
    version: u64,
    /// Number of the last command whose decisions the newest report includes.
    after_command: u64,
    /// Reported blocks by version.
    bases: BTreeMap<u64, Vec<Block>>,
    /// Nodes that pools can still provide.
    provisionable: Vec<Block>,
    /// The resources that pools provide nodes for.
    managed: ManagedResources,
    runner: RunnerKind,
    guarded: bool,
    holds: HoldMethod,
    /// The newest report less all outstanding offers.
    estimate: Vec<Block>,
    /// Offers that the newest report doesn't include yet, each with its command number.
    outstanding: BTreeMap<OfferId, (u64, Arc<Gang>)>,
    /// The estimate just before some outstanding offers. If an offer is over, the estimate is recomputed from
    /// the checkpoint before it.
    checkpoints: BTreeMap<OfferId, Vec<Block>>,
    /// Number of offers placed since the newest checkpoint.
    since_checkpoint: usize,
    /// The estimate is older than the newest report.
    stale: bool,
    /// The first offer in the estimate that is over; later offers in it may be over too. The estimate is
    /// correct up to this offer.
    stale_from: Option<OfferId>,
    /// `unreserved` must be recomputed.
    unreserved_stale: bool,
    /// Gangs that capacity is reserved for.
    reserved: BTreeMap<Uid, Arc<Gang>>,
    /// A lower bound of the estimate less all reserved gangs. `None` if the reserved gangs don't all fit now.
    unreserved: Option<Vec<Block>>,
}

impl ClusterCapacity {
    /// Takes a report. Returns false, and changes nothing, if the report is older than the newest one or is a
    /// delta against an unknown base.
    pub fn report(&mut self, capacity: Capacity) -> bool {
        if capacity.version <= self.version && !self.bases.is_empty() {
            return false;
        }
        let blocks = match capacity.base {
            None => capacity.blocks,
            Some(base) => {
                let Some(old) = self.bases.get(&base) else { return false };
                let shape = |block: &Block| Block { nodes: 0, ..block.clone() };
                let mut nodes_by_shape: BTreeMap<Block, u32> =
                    old.iter().map(|block| (shape(block), block.nodes)).collect();
                for block in &capacity.blocks {
                    nodes_by_shape.insert(shape(block), block.nodes);
                }
                nodes_by_shape
                    .into_iter()
                    .filter(|(_, nodes)| *nodes > 0)
                    .map(|(shape, nodes)| Block { nodes, ..shape })
                    .collect()
            }
        };
        self.version = capacity.version;
        self.after_command = capacity.after_command;
        self.provisionable = capacity.provisionable;
        self.managed = capacity.managed;
        self.runner = capacity.runner;
        self.guarded = capacity.guarded;
        self.holds = capacity.holds;
        self.bases.insert(self.version, blocks);
        while self.bases.len() > BASES_MAX {
            self.bases.pop_first();
        }
        let after_command = self.after_command;
        self.outstanding.retain(|_, (number, _)| *number > after_command);
        self.stale = true;
        true
    }

    /// Records an offer that is sent as this command.
    pub fn asked(&mut self, offer: OfferId, number: u64, gang: &Arc<Gang>) {
        self.unreserved = self.unreserved.take().and_then(|blocks| with_placed(blocks, gang));
        self.outstanding.insert(offer, (number, gang.clone()));
        if self.stale || self.stale_from.is_some() {
            // The next refresh creates the checkpoints.
            self.take_from_estimate(gang);
        } else {
            self.place_offer(offer, gang);
        }
    }

    /// Places an offer in the estimate. All earlier offers must be placed already.
    fn place_offer(&mut self, offer: OfferId, gang: &Gang) {
        if self.since_checkpoint == 0 {
            self.checkpoints.insert(offer, self.estimate.clone());
        }
        self.since_checkpoint = (self.since_checkpoint + 1) % CHECKPOINT_EVERY;
        self.take_from_estimate(gang);
    }

    /// Places a gang in the estimate: all pods or, if they don't fit, those that need no new nodes. If these
    /// don't fit either, nothing is placed: the agent will refuse the gang.
    fn take_from_estimate(&mut self, gang: &Gang) {
        if packing::place(&mut self.estimate, gang).is_ok() || self.provisionable.is_empty() {
            return;
        }
        let division = self.managed.divide(gang);
        if division.uses_existing() {
            let _ = packing::place(&mut self.estimate, &division.existing);
        }
    }

    /// Notes that an offer is over and takes no capacity.
    pub fn over(&mut self, offer: OfferId) {
        if self.outstanding.remove(&offer).is_some() {
            self.stale_from = Some(self.stale_from.map_or(offer, |from| from.min(offer)));
        }
    }

    /// The capacity after a first report with these blocks.
    pub fn of(blocks: Vec<Block>) -> Self {
        Self { version: 1, bases: BTreeMap::from([(1, blocks.clone())]), estimate: blocks, ..Self::default() }
    }

    /// Reserves capacity for a workload's gang.
    pub fn reserve(&mut self, uid: Uid, gang: Arc<Gang>) {
        if self.reserved.insert(uid, gang.clone()).is_some_and(|old| old == gang) {
            return;
        }
        if self.reserved.len() == 1 {
            self.unreserved = Some(self.estimate.clone());
        }
        self.unreserved = self.unreserved.take().and_then(|blocks| with_placed(blocks, &gang));
    }

    /// Drops the reservation of a workload.
    pub fn release(&mut self, uid: Uid) {
        self.unreserved_stale |= self.reserved.remove(&uid).is_some();
    }

    /// Whether capacity is reserved for this workload.
    pub fn keeps(&self, uid: Uid) -> bool {
        self.reserved.contains_key(&uid)
    }

    /// Whether all reserved gangs certainly fit next to this gang. A cheap check: if it is false,
    /// [`Self::leaves`] gives the exact answer.
    pub fn spares(&self, gang: &Gang) -> bool {
        self.reserved.is_empty()
            || !self.reserved.values().any(|other| other.requests_topology())
                && self.unreserved.as_ref().is_some_and(|blocks| packing::fits(blocks, gang).is_ok())
    }

    /// Brings the estimate up to date. Called once per batch before the estimate is used. After a report, the
    /// cost grows with the number of outstanding offers, otherwise with the number after the first offer that
    /// is over.
    pub fn refresh(&mut self) {
        let from = self.stale_from.take();
        if std::mem::take(&mut self.stale) {
            self.recount(None);
        } else if let Some(from) = from {
            let checkpoint = self.checkpoints.range(..=from).next_back().map(|(offer, _)| *offer);
            self.recount(checkpoint);
        } else if !std::mem::take(&mut self.unreserved_stale) {
            return;
        }
        self.unreserved_stale = false;
        let estimate = (!self.reserved.is_empty()).then(|| self.estimate.clone());
        self.unreserved = estimate.and_then(|blocks| {
            self.reserved.values().try_fold(blocks, |blocks, gang| with_placed(blocks, gang))
        });
    }

    /// Recomputes the estimate from a checkpoint or, without one, from the report.
    fn recount(&mut self, checkpoint: Option<OfferId>) {
        let restored =
            checkpoint.and_then(|offer| Some((offer, self.checkpoints.split_off(&offer).remove(&offer)?)));
        let from = if let Some((offer, estimate)) = restored {
            self.estimate = estimate;
            Bound::Included(offer)
        } else {
            self.checkpoints.clear();
            self.estimate = self.blocks().to_vec();
            Bound::Unbounded
        };
        self.since_checkpoint = 0;
        let outstanding: Vec<(OfferId, Arc<Gang>)> = self
            .outstanding
            .range((from, Bound::Unbounded))
            .map(|(offer, (_, gang))| (*offer, gang.clone()))
            .collect();
        for (offer, gang) in outstanding {
            self.place_offer(offer, &gang);
        }
    }

    /// Hashes everything that later behaviour depends on. Only the order of versions matters, so `number`
    /// maps them, and only the two newest can still be the base of a delta.
    pub fn hash_fingerprint(&self, number: &dyn Fn(u64) -> u64, into: &mut impl Hasher) {
        let Self {
            version,
            after_command,
            bases,
            provisionable,
            managed,
            runner,
            guarded,
            estimate,
            outstanding,
            reserved,
            ..
        } = self;
        let stale = self.stale || self.stale_from.is_some();
        (number(VERSIONS + version), after_command, provisionable, managed).hash(into);
        (runner, guarded, estimate, stale).hash(into);
        reserved.keys().for_each(|uid| uid.hash(into));
        for (version, blocks) in bases.iter().rev().take(2) {
            (number(VERSIONS + version), blocks).hash(into);
        }
        for (offer, (number, _)) in outstanding {
            (offer, number).hash(into);
        }
    }

    /// Whether the whole gang fits in the estimated free capacity. Fails with what is missing.
    pub fn fits(&self, gang: &Gang) -> Result<(), Misfit> {
        packing::fits(&self.estimate, gang)
    }

    /// Whether the whole gang would fit after the gangs `gone` have ended and the gangs `kept` have started.
    pub fn fits_without(&self, gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
        packing::fits(&self.without(gone, kept).0, gang).is_ok()
    }

    /// The free capacity after the gangs `gone` have ended and the gangs `kept` have started.
    pub fn without(&self, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> HypotheticalCapacity {
        let mut blocks = self.estimate.clone();
        release(&mut blocks, gone);
        // A gang that doesn't fit takes nothing.
        kept.iter().for_each(|other| drop(packing::place(&mut blocks, other)));
        HypotheticalCapacity(blocks)
    }

    /// Whether offers are outstanding. Then the estimate is less precise than the report: the agent may place
    /// their gangs on other nodes.
    pub fn is_asked(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Blocks of the newest report.
    pub fn reported(&self) -> &[Block] {
        self.bases.get(&self.version).map_or(&[], Vec::as_slice)
    }

    /// Number of reported nodes by shape, used or not, and nodes that pools can still provide.
    pub fn machines(&self) -> (BTreeMap<Block, u32>, Vec<Block>) {
        let mut machines = BTreeMap::new();
        for block in self.reported() {
            let count = machines
                .entry(Block { nodes: 1, free: block.capacity.clone(), ..block.clone() })
                .or_insert(0_u32);
            *count = count.saturating_add(block.nodes);
        }
        (machines, self.provisionable.clone())
    }

    /// Blocks with the estimated free capacity.
    pub fn estimate(&self) -> &[Block] {
        &self.estimate
    }

    /// Whether the gang fits, and once the gangs `gone` have ended, the same gangs of `kept` fit with and
    /// without it.
    pub fn leaves(&self, gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
        leaves(&self.estimate, gang, gone, kept)
    }

    /// Whether the gang would fit if pools provide nodes: its pods that need no new nodes must fit in the
    /// estimated free capacity.
    pub fn could_grow(&self, gang: &Gang) -> bool {
        matches!(self.provisioning(gang), Some(Ok(_)))
    }

    /// How the gang would be divided between new and existing nodes. `None` if pools can't provide the new
    /// nodes. Fails if the pods for existing nodes don't fit in the estimated free capacity.
    pub fn provisioning(&self, gang: &Gang) -> Option<Result<Division, Misfit>> {
        if self.provisionable.is_empty() {
            return None;
        }
        let division = self.managed.divide(gang);
        let is_possible = division.can_be_provisioned(&self.provisionable);
        is_possible.then(|| division.check_existing(&self.estimate).map(|()| division))
    }

    /// Nodes that pools can still provide.
    pub fn provisionable(&self) -> &[Block] {
        &self.provisionable
    }

    /// Whether the agent has reported its capacity.
    pub fn known(&self) -> bool {
        !self.bases.is_empty()
    }

    /// Version of the newest report.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn runner(&self) -> RunnerKind {
        self.runner
    }

    /// Whether gangs end by themselves when their lease lapses.
    pub fn guarded(&self) -> bool {
        self.guarded
    }

    /// How the cluster's agent keeps held capacity from others.
    pub fn holds(&self) -> HoldMethod {
        self.holds
    }

    /// Blocks of the newest report.
    pub fn blocks(&self) -> &[Block] {
        self.bases.get(&self.version).map_or(&[], Vec::as_slice)
    }

    /// Estimated free units of a resource.
    pub fn free(&self, resource: &str) -> i64 {
        total(&self.estimate, |b| &b.free, resource)
    }

    /// Reported units of a resource, used or not.
    pub fn capacity(&self, resource: &str) -> i64 {
        total(self.blocks(), |b| &b.capacity, resource)
    }
}

/// Free capacity after hypothetical ends and starts of gangs.
#[derive(Debug)]
pub struct HypotheticalCapacity(pub Vec<Block>);

impl HypotheticalCapacity {
    /// Like [`ClusterCapacity::leaves`], after these ends and starts.
    pub fn leaves(&self, gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
        leaves(&self.0, gang, gone, kept)
    }
}

fn leaves(free: &[Block], gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
    let mut without = free.to_vec();
    release(&mut without, gone);
    let fitting: Vec<&Arc<Gang>> =
        kept.iter().filter(|other| packing::place(&mut without, other).is_ok()).collect();
    let mut with = free.to_vec();
    if packing::place(&mut with, gang).is_err() {
        return false;
    }
    release(&mut with, gone);
    fitting.into_iter().all(|other| packing::place(&mut with, other).is_ok())
}

/// The blocks after placing a gang; `None` if it doesn't fit.
fn with_placed(mut blocks: Vec<Block>, gang: &Gang) -> Option<Vec<Block>> {
    packing::place(&mut blocks, gang).ok().map(|_| blocks)
}

/// Removes gangs. Their nodes aren't known, so each pod is removed from the fullest node that could hold it.
fn release(blocks: &mut Vec<Block>, gone: &[Arc<Gang>]) {
    for set in gone.iter().flat_map(|gang| &gang.pod_sets) {
        for _ in 0..set.count {
            packing::release(blocks, set);
        }
    }
}

/// Total of a resource. Saturates, because agents may report any number.
fn total(blocks: &[Block], of: impl Fn(&Block) -> &meridian_shared::gang::Amounts, resource: &str) -> i64 {
    let amount =
        |block: &Block| of(block).get(resource).copied().unwrap_or(0).saturating_mul(i64::from(block.nodes));
    blocks.iter().map(amount).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::backoff::splitmix;
    use meridian_shared::gang::{Amounts, PodSet};

    const GPU: &str = "nvidia.com/gpu";

    fn nodes(free: i64, nodes: u32) -> Block {
        let gpus = |n| Amounts::from([(GPU.to_owned(), n)]);
        Block { nodes, free: gpus(free), capacity: gpus(8), ..Block::default() }
    }

    fn gang(pods: u32, each: i64) -> Arc<Gang> {
        let set = PodSet {
            name: "main".into(),
            count: pods,
            per_pod: Amounts::from([(GPU.to_owned(), each)]),
            ..PodSet::default()
        };
        Arc::new(Gang { pod_sets: vec![set], ..Gang::default() })
    }

    /// An estimate that is recomputed from a checkpoint equals one that is recomputed from the report.
    #[test]
    fn the_estimate_is_the_report_less_outstanding_offers() {
        let (mut from_checkpoint, mut from_report) = (0, 0);
        for seed in 0..20_u64 {
            let (mut capacity, mut dice) = (ClusterCapacity::default(), seed);
            let mut roll = |sides: u64| {
                dice = splitmix(dice);
                dice % sides
            };
            let (mut counter, mut version) = (0, 0);
            for _ in 0..300 {
                if version == 0 || roll(40) == 0 {
                    version += 1;
                    let blocks = vec![
                        nodes(i64::try_from(roll(8)).unwrap(), 2),
                        nodes(8, u32::try_from(20 + roll(40)).unwrap()),
                    ];
                    let report = Capacity {
                        version,
                        after_command: counter.max(60) - 60,
                        blocks,
                        ..Capacity::default()
                    };
                    assert!(capacity.report(report));
                }
                for _ in 0..roll(4) {
                    counter += 1;
                    let offer = OfferId { epoch: 1, leadership: 1, counter };
                    capacity.asked(offer, counter, &gang(u32::try_from(1 + roll(3)).unwrap(), 1 << roll(4)));
                }
                if roll(2) == 0 {
                    let over = capacity.outstanding.keys().nth(usize::try_from(roll(64)).unwrap()).copied();
                    over.into_iter().for_each(|offer| capacity.over(offer));
                }
                from_report += usize::from(capacity.stale);
                from_checkpoint += usize::from(
                    !capacity.stale
                        && capacity
                            .stale_from
                            .is_some_and(|from| capacity.checkpoints.range(..=from).next().is_some()),
                );
                capacity.refresh();
                let mut left = capacity.blocks().to_vec();
                for (_, gang) in capacity.outstanding.values() {
                    let _ = packing::place(&mut left, gang);
                }
                assert_eq!(capacity.estimate, left, "seed {seed}, offer {counter}");
            }
        }
        assert!(from_checkpoint > 500 && from_report > 50, "{from_checkpoint} {from_report}");
    }
}

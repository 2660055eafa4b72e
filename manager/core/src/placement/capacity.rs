//! What one cluster has free: as it reported, and less what it was asked since.
//!
//! A report counts everything that the agent had decided up to a command; offers with later commands are placed on top of it
//! here, so that one room isn't promised in the estimate twice. The agent alone decides; a wrong estimate costs a refusal.

use meridian_shared::gang::Gang;
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::packing::{self, Block, Misfit};
use meridian_shared::protocol::{Capacity, RunnerKind};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

/// Versions kept as bases for deltas.
const BASES_MAX: usize = 8;

/// Questions between two marks of what was left before them.
const MARK_EVERY: usize = 32;

/// Keeps versions apart from transmissions where both are hashed by their order.
const VERSIONS: u64 = 1 << 20;

/// One cluster's room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterCapacity {
    version: u64,
    after_command: u64,
    bases: BTreeMap<u64, Vec<Block>>,
    provisionable: Vec<Block>,
    runner: RunnerKind,
    guarded: bool,
    estimate: Vec<Block>,
    outstanding: BTreeMap<OfferId, (u64, Arc<Gang>)>,
    /// What was left before some of the outstanding questions, and how many came after the last of those.
    marks: BTreeMap<OfferId, Vec<Block>>,
    since_mark: usize,
    /// The estimate is from before the newest report.
    stale: bool,
    /// It counts a question that is over; all before that one are counted rightly.
    stale_from: Option<OfferId>,
    /// What is left by those for whom room is kept has to be told anew.
    spare_stale: bool,
    /// Gangs for which room is kept.
    kept: BTreeMap<Uid, Arc<Gang>>,
    /// What all of them leave of the estimate, or less; none where they don't fit before others are gone.
    spare: Option<Vec<Block>>,
}

impl ClusterCapacity {
    /// Takes a report; older ones and deltas against an unknown base change nothing. True when room may have grown.
    pub(crate) fn report(&mut self, capacity: Capacity) -> bool {
        if capacity.version <= self.version && !self.bases.is_empty() {
            return false;
        }
        let blocks = match capacity.base {
            None => capacity.blocks,
            Some(base) => {
                let Some(old) = self.bases.get(&base) else { return false };
                let key = |b: &Block| Block { nodes: 0, ..b.clone() };
                let mut counted: BTreeMap<Block, u32> = old.iter().map(|b| (key(b), b.nodes)).collect();
                for b in &capacity.blocks {
                    counted.insert(key(b), b.nodes);
                }
                counted.into_iter().filter(|(_, n)| *n > 0).map(|(k, nodes)| Block { nodes, ..k }).collect()
            }
        };
        self.version = capacity.version;
        self.after_command = capacity.after_command;
        self.provisionable = capacity.provisionable;
        self.runner = capacity.runner;
        self.guarded = capacity.guarded;
        self.bases.insert(self.version, blocks);
        while self.bases.len() > BASES_MAX {
            self.bases.pop_first();
        }
        let after = self.after_command;
        self.outstanding.retain(|_, (number, _)| *number > after);
        self.stale = true;
        true
    }

    /// Notes an offer that goes out as this command.
    pub(crate) fn asked(&mut self, offer: OfferId, number: u64, gang: &Arc<Gang>) {
        self.spare = self.spare.take().and_then(|spare| after(spare, gang));
        self.outstanding.insert(offer, (number, gang.clone()));
        if self.stale || self.stale_from.is_some() {
            // Marked where it is counted anew; what doesn't fit is for the agent to refuse.
            let _ = packing::place(&mut self.estimate, gang);
        } else {
            self.count(offer, gang);
        }
    }

    /// Counts a question after all before it.
    fn count(&mut self, offer: OfferId, gang: &Gang) {
        if self.since_mark == 0 {
            self.marks.insert(offer, self.estimate.clone());
        }
        self.since_mark = (self.since_mark + 1) % MARK_EVERY;
        // What doesn't fit, or no longer does, was refused or will be.
        let _ = packing::place(&mut self.estimate, gang);
    }

    /// An offer is over without having taken room.
    pub(crate) fn over(&mut self, offer: OfferId) {
        if self.outstanding.remove(&offer).is_some() {
            self.stale_from = Some(self.stale_from.map_or(offer, |from| from.min(offer)));
        }
    }

    /// Of one report.
    #[cfg(test)]
    pub(crate) fn of(blocks: Vec<Block>) -> Self {
        Self { version: 1, bases: BTreeMap::from([(1, blocks.clone())]), estimate: blocks, ..Self::default() }
    }

    /// Keeps room for a gang.
    pub(crate) fn keep(&mut self, uid: Uid, gang: Arc<Gang>) {
        if self.kept.insert(uid, gang.clone()).is_some_and(|old| old == gang) {
            return;
        }
        if self.kept.len() == 1 {
            self.spare = Some(self.estimate.clone());
        }
        self.spare = self.spare.take().and_then(|spare| after(spare, &gang));
    }

    /// Room is no longer kept for a gang.
    pub(crate) fn let_go(&mut self, uid: Uid) {
        self.spare_stale |= self.kept.remove(&uid).is_some();
    }

    /// Whether room is kept for this one.
    pub(crate) fn keeps(&self, uid: Uid) -> bool {
        self.kept.contains_key(&uid)
    }

    /// Whether with the gang there all for whom room is kept will surely fit: who isn't sure asks [`Self::leaves`].
    pub(crate) fn spares(&self, gang: &Gang) -> bool {
        self.kept.is_empty()
            || !self.kept.values().any(|kept| kept.wants_topology())
                && self.spare.as_ref().is_some_and(|spare| packing::fits(spare, gang).is_ok())
    }

    /// Makes the estimate true again, before it is asked. Once for all that a batch brought: after a report it costs as much as there
    /// is outstanding, and where questions are over as much as there is behind the first of them.
    pub(crate) fn refresh(&mut self) {
        let from = self.stale_from.take();
        if std::mem::take(&mut self.stale) {
            self.recount(None);
        } else if let Some(from) = from {
            let mark = self.marks.range(..=from).next_back().map(|(offer, _)| *offer);
            self.recount(mark);
        } else if !std::mem::take(&mut self.spare_stale) {
            return;
        }
        self.spare_stale = false;
        let first = (!self.kept.is_empty()).then(|| self.estimate.clone());
        self.spare =
            first.and_then(|spare| self.kept.values().try_fold(spare, |spare, gang| after(spare, gang)));
    }

    /// Counts all outstanding questions anew, or those from a mark on.
    fn recount(&mut self, mark: Option<OfferId>) {
        let marked = mark.and_then(|mark| Some((mark, self.marks.split_off(&mark).remove(&mark)?)));
        let from = if let Some((mark, estimate)) = marked {
            self.estimate = estimate;
            Bound::Included(mark)
        } else {
            self.marks.clear();
            self.estimate = self.blocks().to_vec();
            Bound::Unbounded
        };
        self.since_mark = 0;
        let outstanding: Vec<(OfferId, Arc<Gang>)> = self
            .outstanding
            .range((from, Bound::Unbounded))
            .map(|(offer, (_, gang))| (*offer, gang.clone()))
            .collect();
        for (offer, gang) in outstanding {
            self.count(offer, &gang);
        }
    }

    /// Feeds what later behaviour depends on to a hash: see [`crate::world::World::hash_fingerprint`]. Only the order of versions matters,
    /// and only the two newest can still be the base of a delta.
    pub fn hash_fingerprint(&self, number: &dyn Fn(u64) -> u64, into: &mut impl Hasher) {
        let Self {
            version,
            after_command,
            bases,
            provisionable,
            runner,
            guarded,
            estimate,
            outstanding,
            kept,
            ..
        } = self;
        let stale = self.stale || self.stale_from.is_some();
        (number(VERSIONS + version), after_command, provisionable, runner, guarded, estimate, stale)
            .hash(into);
        kept.keys().for_each(|uid| uid.hash(into));
        for (version, blocks) in bases.iter().rev().take(2) {
            (number(VERSIONS + version), blocks).hash(into);
        }
        for (offer, (number, _)) in outstanding {
            (offer, number).hash(into);
        }
    }

    /// Whether the whole gang fits in what is free, by the estimate.
    pub fn fits(&self, gang: &Gang) -> Result<(), Misfit> {
        packing::fits(&self.estimate, gang)
    }

    /// Whether the whole gang would fit if the gangs of `gone` weren't there and those of `kept` were.
    pub fn fits_without(&self, gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
        packing::fits(&self.without(gone, kept).0, gang).is_ok()
    }

    /// What would be free if the gangs of `gone` weren't there and those of `kept` were.
    pub(crate) fn without(&self, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> HypotheticalCapacity {
        let mut blocks = self.estimate.clone();
        release(&mut blocks, gone);
        // What doesn't fit anyway can't be kept.
        kept.iter().for_each(|other| drop(packing::place(&mut blocks, other)));
        HypotheticalCapacity(blocks)
    }

    /// Whether gangs were asked for since the report: the estimate has them where they may not come to stand.
    pub(crate) fn is_asked(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// What was free by the report.
    pub(crate) fn reported(&self) -> &[Block] {
        self.bases.get(&self.version).map_or(&[], Vec::as_slice)
    }

    /// The machines that are there or can come, used or not.
    pub(crate) fn machines(&self) -> (BTreeMap<Block, u32>, Vec<Block>) {
        let mut machines = BTreeMap::new();
        for block in self.reported() {
            let count = machines
                .entry(Block { nodes: 1, free: block.capacity.clone(), ..block.clone() })
                .or_insert(0_u32);
            *count = count.saturating_add(block.nodes);
        }
        (machines, self.provisionable.clone())
    }

    /// What is free, by the estimate.
    pub(crate) fn estimate(&self) -> &[Block] {
        &self.estimate
    }

    /// Whether with the gang there as many of `kept` will fit, once the gangs of `gone` are, as without it.
    pub fn leaves(&self, gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
        leaves(&self.estimate, gang, gone, kept)
    }

    /// Whether the gang would fit in what pools can still grow.
    pub fn could_grow(&self, gang: &Gang) -> bool {
        !self.provisionable.is_empty() && packing::fits(&self.provisionable, gang).is_ok()
    }

    /// Whether anything was reported.
    pub fn known(&self) -> bool {
        !self.bases.is_empty()
    }

    /// The version that was taken.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The runner.
    pub fn runner(&self) -> RunnerKind {
        self.runner
    }

    /// Whether gangs there end by themselves.
    pub fn guarded(&self) -> bool {
        self.guarded
    }

    /// As reported.
    pub fn blocks(&self) -> &[Block] {
        self.bases.get(&self.version).map_or(&[], Vec::as_slice)
    }

    /// How many units of a resource are free, by the estimate.
    pub fn free(&self, resource: &str) -> i64 {
        total(&self.estimate, |b| &b.free, resource)
    }

    /// How many units of a resource there are.
    pub fn capacity(&self, resource: &str) -> i64 {
        total(self.blocks(), |b| &b.capacity, resource)
    }
}

/// What would be free in other circumstances.
pub(crate) struct HypotheticalCapacity(pub(crate) Vec<Block>);

impl HypotheticalCapacity {
    /// As [`ClusterCapacity::leaves`].
    pub(crate) fn leaves(&self, gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
        leaves(&self.0, gang, gone, kept)
    }
}

fn leaves(free: &[Block], gang: &Gang, gone: &[Arc<Gang>], kept: &[Arc<Gang>]) -> bool {
    let mut without = free.to_vec();
    release(&mut without, gone);
    let able: Vec<&Arc<Gang>> =
        kept.iter().filter(|other| packing::place(&mut without, other).is_ok()).collect();
    let mut with = free.to_vec();
    if packing::place(&mut with, gang).is_err() {
        return false;
    }
    release(&mut with, gone);
    able.into_iter().all(|other| packing::place(&mut with, other).is_ok())
}

/// What a gang leaves; none where it doesn't fit.
fn after(mut blocks: Vec<Block>, gang: &Gang) -> Option<Vec<Block>> {
    packing::place(&mut blocks, gang).ok().map(|_| blocks)
}

/// Takes gangs away. On which nodes they are isn't known: it is the fullest that could hold them.
fn release(blocks: &mut Vec<Block>, gone: &[Arc<Gang>]) {
    for set in gone.iter().flat_map(|gang| &gang.pod_sets) {
        for _ in 0..set.count {
            packing::release(blocks, set);
        }
    }
}

/// Reports come from agents, which may claim anything: a sum that is too large is the largest there is.
fn total(blocks: &[Block], of: impl Fn(&Block) -> &meridian_shared::gang::Amounts, resource: &str) -> i64 {
    let amount = |b: &Block| of(b).get(resource).copied().unwrap_or(0).saturating_mul(i64::from(b.nodes));
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

    /// Counted from the mark before the first question that is over, the estimate is as if all were counted anew.
    #[test]
    fn what_is_left_is_the_report_less_what_is_outstanding_whatever_came_and_went() {
        let (mut marked, mut anew) = (0, 0);
        for seed in 0..20_u64 {
            let (mut rooms, mut dice) = (ClusterCapacity::default(), seed);
            let mut roll = |sides: u64| {
                dice = splitmix(dice);
                dice % sides
            };
            let (mut counter, mut version) = (0, 0);
            for _ in 0..300 {
                let reports = version == 0 || roll(40) == 0;
                if reports {
                    version += 1;
                    let blocks = vec![
                        nodes(i64::try_from(roll(8)).unwrap(), 2),
                        nodes(8, u32::try_from(20 + roll(40)).unwrap()),
                    ];
                    let capacity = Capacity {
                        version,
                        after_command: counter.max(60) - 60,
                        blocks,
                        ..Capacity::default()
                    };
                    assert!(rooms.report(capacity));
                }
                for _ in 0..roll(4) {
                    counter += 1;
                    let offer = OfferId { epoch: 1, leadership: 1, counter };
                    rooms.asked(offer, counter, &gang(u32::try_from(1 + roll(3)).unwrap(), 1 << roll(4)));
                }
                if roll(2) == 0 {
                    let over = rooms.outstanding.keys().nth(usize::try_from(roll(64)).unwrap()).copied();
                    over.into_iter().for_each(|offer| rooms.over(offer));
                }
                anew += usize::from(rooms.stale);
                marked += usize::from(
                    !rooms.stale
                        && rooms.stale_from.is_some_and(|from| rooms.marks.range(..=from).next().is_some()),
                );
                rooms.refresh();
                let mut left = rooms.blocks().to_vec();
                for (_, gang) in rooms.outstanding.values() {
                    let _ = packing::place(&mut left, gang);
                }
                assert_eq!(rooms.estimate, left, "seed {seed}, question {counter}");
            }
        }
        assert!(marked > 500 && anew > 50, "{marked} {anew}");
    }
}

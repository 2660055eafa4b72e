//! Fits a capacity report into its bound, and never reports more capacity than there is.
//!
//! Equal nodes are counted together, so a report of a regular fleet is short. In an irregular one amounts are
//! rounded down until enough nodes are equal: first the capacity (no two machines have the same memory, to
//! the byte), then what is free. A node with nothing on it stays empty. Labels are never left out, because a
//! gang may select nodes without one.
//!
//! If the nodes differ even then, those with the least free capacity are left out. The manager doesn't know
//! them, but gangs that it sends here can use them. They are reported once other nodes have less free
//! capacity.

use meridian_shared::gang::Amounts;
use meridian_shared::packing::Block;
use meridian_shared::protocol::CAPACITY_BYTES_MAX;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Leading binary digits of a node's capacity that are kept: less than a hundredth is lost.
const CAPACITY_DIGITS: u32 = 7;
/// Binary digits of free amounts that are kept, tried in this order until the report is short enough.
const FREE_DIGITS: [u32; 5] = [7, 5, 3, 2, 1];

/// Longest count of nodes, as text.
const COUNT_BYTES_MAX: usize = 10;

/// Capacity within the bound of a report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BoundedCapacity {
    pub(super) blocks: Vec<Block>,
    pub(super) pools: Vec<Block>,
    /// Number of nodes that are left out.
    pub(super) unreported: u32,
}

/// Reduces `blocks` and `pools` to at most [`CAPACITY_BYTES_MAX`].
pub(super) fn bounded(blocks: Vec<Block>, pools: &[Block]) -> BoundedCapacity {
    let pools = first(pools.iter().cloned(), CAPACITY_BYTES_MAX / 4);
    let bytes_max = CAPACITY_BYTES_MAX - weight(&pools);
    if fits(&blocks, bytes_max) {
        return BoundedCapacity { blocks, pools, unreported: 0 };
    }
    if let Some(blocks) = FREE_DIGITS.iter().find_map(|digits| rounded(&blocks, *digits, bytes_max)) {
        return BoundedCapacity { blocks, pools, unreported: 0 };
    }
    // If rounding makes few nodes equal, it only loses precision.
    let coarse = rounded(&blocks, 1, usize::MAX).unwrap_or_default();
    let mut best = if 2 * coarse.len() > blocks.len() { blocks } else { coarse };
    let all = nodes(&best);
    best.sort_by_cached_key(|block| (full_in(block), Reverse(block.nodes), Reverse(block.free.clone())));
    let mut blocks = first(best.into_iter(), bytes_max);
    blocks.sort();
    let unreported = u32::try_from(all - nodes(&blocks)).unwrap_or(u32::MAX);
    BoundedCapacity { blocks, pools, unreported }
}

/// Blocks with a changed count, and the new count; zero for those that are gone. `None` if that is too long
/// for a report.
pub(super) fn delta(old: &[Block], new: &[Block]) -> Option<Vec<Block>> {
    let key = |b: &Block| Block { nodes: 0, ..b.clone() };
    let mut changed: BTreeMap<Block, u32> = old.iter().map(|b| (key(b), 0)).collect();
    let before: BTreeMap<Block, u32> = old.iter().map(|b| (key(b), b.nodes)).collect();
    for b in new {
        changed.insert(key(b), b.nodes);
    }
    let changed: Vec<Block> = changed
        .into_iter()
        .filter(|(k, n)| before.get(k) != Some(n))
        .map(|(k, nodes)| Block { nodes, ..k })
        .collect();
    fits(&changed, CAPACITY_BYTES_MAX * 3 / 4).then_some(changed)
}

fn nodes(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| u64::from(block.nodes)).sum()
}

/// Number of resources of which nothing is free.
fn full_in(block: &Block) -> usize {
    block.capacity.keys().filter(|resource| block.free.get(*resource).is_none_or(|free| *free == 0)).count()
}

/// As many blocks as fit, in their order; a block that is too long is skipped.
fn first(blocks: impl Iterator<Item = Block>, bytes_max: usize) -> Vec<Block> {
    let mut left = bytes_max;
    let fits = |block: &Block| {
        let weight = block.weight();
        let fits = weight <= left;
        left -= if fits { weight } else { 0 };
        fits
    };
    blocks.filter(fits).collect()
}

fn fits(blocks: &[Block], bytes_max: usize) -> bool {
    let mut bytes = 0;
    blocks.iter().all(|block| {
        bytes += block.weight();
        bytes <= bytes_max
    })
}

fn weight(blocks: &[Block]) -> usize {
    blocks.iter().map(Block::weight).sum()
}

/// The nodes with amounts rounded down, equal ones counted together. `None` if that is too long.
fn rounded(blocks: &[Block], digits: u32, bytes_max: usize) -> Option<Vec<Block>> {
    let mut counted: BTreeMap<Block, u32> = BTreeMap::new();
    let mut bytes_left = bytes_max;
    for block in blocks {
        let capacity: Amounts = block
            .capacity
            .iter()
            .map(|(resource, amount)| (resource.clone(), leading(*amount, CAPACITY_DIGITS)))
            .collect();
        let remains = |(resource, free): (&String, &i64)| {
            let whole =
                capacity.get(resource).filter(|_| block.capacity.get(resource) == Some(free)).copied();
            (resource.clone(), whole.unwrap_or_else(|| leading(*free, digits)))
        };
        let free = block.free.iter().map(remains).collect();
        let rounded =
            Block { nodes: 0, free, capacity, labels: block.labels.clone(), taints: block.taints.clone() };
        match counted.entry(rounded) {
            Entry::Vacant(new) => {
                bytes_left = bytes_left.checked_sub(new.key().weight() + COUNT_BYTES_MAX)?;
                new.insert(block.nodes);
            }
            Entry::Occupied(known) => {
                let count = known.into_mut();
                *count = count.saturating_add(block.nodes);
            }
        }
    }
    Some(counted.into_iter().map(|(block, nodes)| Block { nodes, ..block }).collect())
}

/// An amount with all but its leading binary digits set to zero.
fn leading(amount: i64, digits: u32) -> i64 {
    let length = i64::BITS - amount.max(0).leading_zeros();
    let dropped = length.saturating_sub(digits);
    (amount.max(0) >> dropped) << dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::backoff::splitmix;

    const GPU: &str = "nvidia.com/gpu";

    /// A node of an irregular fleet, drawn by its number.
    fn node(number: u64, labelled: bool) -> Block {
        let drawn = |what: u64, below: u64| i64::try_from(splitmix(number * 8 + what) % below).unwrap();
        let capacity = Amounts::from([
            ("cpu".into(), 96_000),
            ("memory".into(), 500_000_000_000 + drawn(1, 1 << 20)),
            (GPU.into(), 8),
        ]);
        let busy = [("cpu", drawn(2, 96_000)), ("memory", drawn(3, 500_000_000_000)), (GPU, drawn(4, 9))];
        let free = if drawn(5, 4) == 0 {
            capacity.clone()
        } else {
            busy.map(|(resource, amount)| (resource.to_owned(), amount)).into()
        };
        let labels = if labelled {
            BTreeMap::from([("asset".to_owned(), format!("asset-{number}"))])
        } else {
            BTreeMap::new()
        };
        Block { nodes: 1, free, capacity, labels, ..Block::default() }
    }

    fn fleet(nodes: u64, labelled: bool) -> Vec<Block> {
        let mut blocks: Vec<Block> = (0..nodes).map(|number| node(number, labelled)).collect();
        blocks.sort();
        blocks
    }

    fn within(reported: &[Block], all: &[Block], resource: &str) -> bool {
        let most = |blocks: &[Block]| {
            let mut free: Vec<i64> =
                blocks.iter().flat_map(|b| std::iter::repeat_n(b.free[resource], b.nodes as usize)).collect();
            free.sort_unstable_by_key(|amount| Reverse(*amount));
            free
        };
        let (reported, all) = (most(reported), most(all));
        reported.len() <= all.len() && reported.iter().zip(&all).all(|(reported, real)| reported <= real)
    }

    #[test]
    fn capacity_that_fits_is_reported_unchanged() {
        let blocks = fleet(100, true);
        assert_eq!(
            bounded(blocks.clone(), &blocks),
            BoundedCapacity { blocks: blocks.clone(), pools: blocks, unreported: 0 }
        );
    }

    #[test]
    fn each_rounded_block_has_room_for_its_count() {
        let all = fleet(1, false);
        let whole = rounded(&all, 6, usize::MAX).unwrap();
        let needed = whole[0].weight() + COUNT_BYTES_MAX;
        assert_eq!(rounded(&all, 6, needed), Some(whole));
        assert_eq!(rounded(&all, 6, needed - 1), None);
    }

    #[test]
    fn a_huge_irregular_fleet_is_reported_rounded_down() {
        let all = fleet(50_000, false);
        let report = bounded(all.clone(), &[]);
        assert!(weight(&report.blocks) <= CAPACITY_BYTES_MAX);
        assert_eq!((report.unreported, nodes(&report.blocks)), (0, 50_000));
        assert!(["cpu", "memory", GPU].iter().all(|resource| within(&report.blocks, &all, resource)));
        let whole =
            |blocks: &[Block]| blocks.iter().filter(|b| b.free == b.capacity).map(|b| b.nodes).sum::<u32>();
        assert_eq!(whole(&report.blocks), whole(&all), "empty nodes stay empty");
    }

    #[test]
    fn nodes_with_unique_labels_are_left_out_fullest_first() {
        let all = fleet(30_000, true);
        let report = bounded(all.clone(), &all[..20_000]);
        assert!(weight(&report.blocks) + weight(&report.pools) <= CAPACITY_BYTES_MAX);
        assert_eq!(u64::from(report.unreported) + nodes(&report.blocks), 30_000);
        assert!(
            report.blocks.len() > 1_000 && report.blocks.iter().all(|block| all.binary_search(block).is_ok())
        );
        let used: Vec<Block> = all.into_iter().filter(|block| block.free != block.capacity).collect();
        let has_room = |block: &Block| block.free.values().all(|free| *free > 0);
        let report = bounded(used, &[]);
        assert!(report.unreported > 0 && report.blocks.iter().all(has_room));
    }

    #[test]
    fn amounts_stay_precise_where_rounding_makes_few_nodes_equal() {
        let mut all = fleet(20_000, true);
        all.extend(fleet(10_000, false));
        all.sort();
        let report = bounded(all.clone(), &[]);
        assert!(report.unreported > 0 && report.blocks.iter().all(|block| all.binary_search(block).is_ok()));
    }

    #[test]
    fn pools_take_a_quarter_of_a_report_at_most() {
        let pools = fleet(30_000, true);
        let report = bounded(Vec::new(), &pools);
        let bytes: usize = report.pools.iter().map(Block::weight).sum();
        assert!(bytes <= CAPACITY_BYTES_MAX / 4 && bytes > CAPACITY_BYTES_MAX / 5, "{bytes}");
        let report = bounded(fleet(30_000, true), &pools);
        let both: usize = report.pools.iter().chain(&report.blocks).map(Block::weight).sum();
        assert!(both <= CAPACITY_BYTES_MAX && both > CAPACITY_BYTES_MAX / 10 * 9, "{both}");
    }

    #[test]
    fn a_delta_is_used_up_to_three_quarters_of_a_report() {
        let fleet = fleet(60_000, true);
        let of_weight = |bytes: usize| -> Vec<Block> {
            let mut bytes_left = bytes;
            let fits = |block: &&Block| {
                let rest = bytes_left.checked_sub(block.weight());
                bytes_left = rest.unwrap_or(0);
                rest.is_some()
            };
            fleet.iter().take_while(fits).cloned().collect()
        };
        let most = of_weight(CAPACITY_BYTES_MAX / 100 * 74);
        assert_eq!(delta(&[], &most).as_ref(), Some(&most));
        assert_eq!(delta(&[], &of_weight(CAPACITY_BYTES_MAX / 100 * 76)), None);
    }

    #[test]
    fn a_delta_longer_than_the_report_is_not_used() {
        let (old, new) =
            (bounded(fleet(30_000, true), &[]), bounded(fleet(60_000, true)[30_000..].to_vec(), &[]));
        assert_eq!(delta(&old.blocks, &new.blocks), None);
        assert_eq!(delta(&old.blocks, &old.blocks), Some(Vec::new()));
    }

    #[test]
    fn amounts_are_rounded_down_to_leading_digits() {
        assert_eq!([0, 1, 7, 8, 15, 1_000, -3].map(|amount| leading(amount, 3)), [0, 1, 7, 8, 14, 896, 0]);
        assert_eq!(leading(i64::MAX, 1), 1 << 62);
    }
}

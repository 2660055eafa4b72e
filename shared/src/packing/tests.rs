//! Packing is exact for one pod set, leaves blocks sorted, and gives one answer on every path.

use super::*;
use crate::gang::PodSet;
use std::collections::BTreeMap;

fn amounts(gpu: i64) -> Amounts {
    Amounts::from([("cpu".into(), 8_000 * gpu.max(1)), ("nvidia.com/gpu".into(), gpu)])
}

fn block(nodes: u32, gpu: i64, free: i64) -> Block {
    Block { nodes, free: amounts(free), capacity: amounts(gpu), ..Block::default() }
}

fn gang(count: u32, gpu: i64) -> Gang {
    Gang {
        pod_sets: vec![PodSet {
            name: "main".into(),
            count,
            per_pod: Amounts::from([("nvidia.com/gpu".into(), gpu)]),
            ..PodSet::default()
        }],
        ..Gang::default()
    }
}

#[test]
fn pods_of_eight_gpus_never_fit_scattered_gpus() {
    let mut scattered = vec![block(16, 8, 1)];
    assert!(matches!(
        place(&mut scattered, &gang(2, 8)),
        Err(Misfit::NotEnoughCapacity { fit: 0, count: 2, fits_empty: true, .. })
    ));
    assert_eq!(scattered, vec![block(16, 8, 1)], "a refusal changes nothing");
    let mut whole = vec![block(2, 8, 8)];
    place(&mut whole, &gang(2, 8)).unwrap();
    assert_eq!(whole.iter().map(|b| b.free["nvidia.com/gpu"]).sum::<i64>(), 0);
}

#[test]
fn partial_nodes_are_used_before_whole_ones() {
    let mut blocks = vec![block(1, 8, 8), block(1, 8, 2)];
    place(&mut blocks, &gang(2, 1)).unwrap();
    assert!(blocks.iter().any(|b| b.free["nvidia.com/gpu"] == 8), "{blocks:?}");
}

#[test]
fn reasons_name_the_first_obstacle() {
    assert!(matches!(
        place(&mut vec![block(4, 4, 4)], &gang(1, 8)),
        Err(Misfit::PodTooLarge { asks: 8, largest: 4, .. })
    ));
    let mut picky = gang(1, 1);
    picky.pod_sets[0].node_selector.insert("a".into(), "b".into());
    let misfit = place(&mut vec![block(4, 4, 4)], &picky).unwrap_err();
    assert_eq!(misfit.to_string(), "no node has the label `a=b`, which pod set `main` needs");
}

#[test]
fn a_node_name_is_only_checked_where_names_are_known() {
    let mut named = gang(1, 1);
    named.pod_sets[0].node_selector.insert(HOSTNAME_LABEL.into(), "b".into());
    let node = |name: &str| Block {
        labels: BTreeMap::from([(HOSTNAME_LABEL.into(), name.into())]),
        ..block(1, 4, 4)
    };
    let parts = place(&mut vec![node("a"), node("b")], &named).unwrap();
    assert_eq!(parts[0].0, 1);
    assert!(fits(&[node("a")], &named).is_err());
    fits(&[block(2, 4, 4)], &named).expect("one of them may be it");
}

#[test]
fn remaining_blocks_are_sorted_and_equal_nodes_joined() {
    for seed in 0..500_u64 {
        let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 17 + i) % n;
        let mut blocks: Vec<Block> =
            (0..=r(1, 5)).map(|i| block(1 + r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64)).collect();
        let nodes: u32 = blocks.iter().map(|b| b.nodes).sum();
        let asks = gang(1 + r(2, 6) as u32, 1 + r(3, 4) as i64);
        let fit = fits(&blocks, &asks);
        let placed = place(&mut blocks, &asks);
        assert_eq!(placed.as_ref().map(drop), fit.as_ref().map(drop), "seed {seed}");
        if placed.is_ok() {
            assert_eq!(blocks.iter().map(|b| b.nodes).sum::<u32>(), nodes, "seed {seed}");
            assert!(
                blocks.iter().all(|b| b.nodes > 0) && blocks.is_sorted_by(|a, b| a.order(b).is_lt()),
                "seed {seed}: {blocks:?}"
            );
        }
    }
}

#[test]
fn the_shortcut_for_one_node_agrees_with_the_full_layout() {
    for seed in 0..4_000_u64 {
        let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 23 + i) % n;
        // Some blocks are equal, unsorted or empty, and some have no capacity or other labels.
        let labels = |i: u64| BTreeMap::from([("zone".to_owned(), r(40 + i, 2).to_string())]);
        let mut blocks: Vec<Block> = (0..=r(1, 6))
            .map(|i| Block { labels: labels(i), ..block(r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64) })
            .collect();
        let mut asks = gang(r(2, 4) as u32, 1 + r(3, 4) as i64);
        asks.pod_sets[0].node_selector = if r(4, 3) == 0 { labels(0) } else { BTreeMap::new() };
        let views: Vec<_> = blocks.iter().map(Block::view).collect();
        let plan = plan(&views, &asks);
        let mut both = asks.clone();
        both.pod_sets.push(PodSet { count: 0, ..PodSet::default() });
        let mut laid_out = blocks.clone();
        let general = place(&mut laid_out, &both);
        let placed = place(&mut blocks, &asks);
        assert_eq!(
            (placed.as_ref().ok(), general.as_ref().ok()),
            (plan.as_ref().ok(), plan.as_ref().ok()),
            "seed {seed}"
        );
        assert_eq!(blocks, laid_out, "seed {seed}");
    }
}

#[test]
fn one_pod_set_fits_exactly_when_counting_says_so() {
    // One pod set: the gang fits exactly when the pods that each node takes add up to it.
    for seed in 0..2_000_u64 {
        let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 31 + i) % n;
        let mut blocks: Vec<Block> =
            (0..=r(1, 4)).map(|i| block(1 + r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64)).collect();
        let asks = gang(1 + r(2, 12) as u32, 1 + r(3, 4) as i64);
        let room: u32 =
            blocks.iter().map(|b| b.nodes * pods_that_fit(&b.free, &asks.pod_sets[0].per_pod)).sum();
        let before: i64 = blocks.iter().map(|b| i64::from(b.nodes) * b.free["nvidia.com/gpu"]).sum();
        let fits = place(&mut blocks, &asks);
        assert_eq!(fits.is_ok(), room >= asks.pod_sets[0].count, "seed {seed}");
        if let Ok(parts) = fits {
            let after: i64 = blocks.iter().map(|b| i64::from(b.nodes) * b.free["nvidia.com/gpu"]).sum();
            assert_eq!(before - after, asks.total()["nvidia.com/gpu"], "seed {seed}");
            assert_eq!(
                parts.iter().map(|(_, p)| p.nodes * p.pods_per_node).sum::<u32>(),
                asks.pod_sets[0].count
            );
            assert!(blocks.iter().all(|b| b.free.values().all(|f| *f >= 0)));
        }
    }
}

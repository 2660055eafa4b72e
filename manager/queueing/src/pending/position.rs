//! Positions of pending workloads: how many others come before them.

use crate::model::{ShapeId, WorkloadId};
use crate::pending::order::{PositionKey, UsageCache};
use crate::pending::{Class, ClassKey, Pending, PendingPosition, PreemptorOrder, QueueOrder};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Position of a workload in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionCounts {
    /// Number of workloads before this one.
    pub before: usize,
    /// Number of pending workloads, including itself.
    pub of: usize,
    /// Number of workloads of the same local queue before this one.
    pub before_in_local: usize,
    /// Number of pending workloads of its local queue.
    pub of_local: usize,
    /// The numbers are estimates, because there are too many workloads to count.
    pub about: bool,
}

/// The workloads before one workload in its queue.
#[derive(Clone, Debug)]
pub struct WorkloadsAhead<'a> {
    /// Per class, in key order: the number of preceding workloads and of all workloads.
    classes: Vec<(&'a ClassKey, CountEstimate, usize)>,
    front: Option<WorkloadId>,
    local_queue: Arc<str>,
}

impl WorkloadsAhead<'_> {
    pub fn position_counts(&self) -> PositionCounts {
        let mut position_counts = PositionCounts::default();
        for (_, before, of) in &self.classes {
            position_counts.before += before.about;
            position_counts.of += of;
            position_counts.about |= before.about != before.most;
        }
        // Classes of one local queue are adjacent.
        let from = self.classes.partition_point(|((local, _), ..)| *local < self.local_queue);
        let to = self.classes.partition_point(|((local, _), ..)| *local <= self.local_queue);
        for (_, before, of) in &self.classes[from..to] {
            position_counts.before_in_local += before.about;
            position_counts.of_local += of;
        }
        position_counts
    }

    /// The first workload of the queue, active or parked.
    pub fn front(&self) -> Option<WorkloadId> {
        self.front
    }

    /// Per shape: the estimated and the maximum number of preceding workloads.
    pub(crate) fn each(&self) -> impl Iterator<Item = (ShapeId, (usize, usize))> + '_ {
        self.classes.iter().map(|((_, shape), before, _)| (*shape, (before.about, before.most)))
    }

    /// Per shape: the estimated number of preceding workloads.
    pub fn by_shape(&self) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        self.classes.iter().map(|((_, shape), before, _)| (*shape, before.about))
    }
}

/// Why the head of a queue stays and blocks the workloads behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadBlocks {
    /// The queue is StrictFIFO.
    Strict,
    /// The head is starved.
    Starved,
    /// The head waits for its victims.
    Preempting,
    /// The head is still being evaluated.
    Evaluating,
}

/// Maximum number of workloads counted individually per request. More are estimated.
pub const COUNTED_MAX: usize = 50_000;

/// Number of elements before `position`: exact if the set has at most `left` elements. Otherwise `about` is
/// half of the set, and `most` the whole set.
pub fn count_below<P: Ord>(all: &BTreeSet<P>, position: &P, left: &mut usize) -> CountEstimate {
    let exactly = |n| CountEstimate { about: n, most: n };
    match (all.first(), all.last()) {
        (Some(first), _) if position <= first => exactly(0),
        (_, Some(last)) if last <= position => exactly(all.len() - usize::from(last == position)),
        _ if all.len() > *left => CountEstimate { about: all.len() / 2, most: all.len() },
        _ => {
            *left -= all.len();
            exactly(all.range(..position).count())
        }
    }
}

/// A count or an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountEstimate {
    /// The count, or an estimate.
    pub about: usize,
    /// An upper bound.
    pub most: usize,
}

impl CountEstimate {
    fn and(self, other: Self) -> Self {
        Self { about: self.about + other.about, most: self.most + other.most }
    }
}

impl Pending {
    /// The number of workloads per class before a position, and the first workload of the queue. `favored`
    /// are the favored workloads. At most `left` workloads are counted individually.
    pub(crate) fn before(
        &self,
        order: &QueueOrder<'_>,
        position: &PendingPosition,
        local_queue: &Arc<str>,
        favored: &[(ClassKey, PendingPosition)],
        mut left: usize,
    ) -> WorkloadsAhead<'_> {
        let mine = self.rank(order, position, order.used(local_queue));
        let is_favored = mine.favored_index < self.favored(order).len();
        let all_of = Class::len;
        let mut usages = UsageCache::new(order);
        let mut count = |used: f64, class: &Class| -> CountEstimate {
            match used.total_cmp(&mine.used) {
                _ if is_favored => CountEstimate::default(),
                Ordering::Less => CountEstimate { about: all_of(class), most: all_of(class) },
                Ordering::Equal if mine.later || order.preemptor_order == PreemptorOrder::Regular => {
                    count_below(&class.active, position, &mut left).and(count_below(
                        &class.parked,
                        position,
                        &mut left,
                    ))
                }
                Ordering::Equal | Ordering::Greater => CountEstimate::default(),
            }
        };
        let mut front: Option<PositionKey<'_>> = None;
        let mut all: Vec<(&ClassKey, CountEstimate, usize)> = Vec::with_capacity(self.classes.len());
        for (key, class) in &self.classes {
            let used = usages.of(&key.0);
            for first in class.active.first().into_iter().chain(class.parked.first()) {
                front = Some(PositionKey::first(front, self.rank(order, first, used)));
            }
            all.push((key, count(used, class), all_of(class)));
        }
        for (class, one) in favored {
            front = Some(PositionKey::first(front, self.rank(order, one, order.used(&class.0))));
        }
        for (class, other) in favored.iter().filter(|(_, other)| other.workload != position.workload) {
            let Some((_, before, _)) = all.iter_mut().find(|(key, ..)| *key == class) else { continue };
            let rank = self.rank(order, other, order.used(&class.0));
            let counted = !is_favored
                && match rank.used.total_cmp(&mine.used) {
                    Ordering::Less => true,
                    Ordering::Equal => mine.later && other < position,
                    Ordering::Greater => false,
                };
            let (more, less) = (usize::from(rank.order(&mine).is_lt()), usize::from(counted));
            *before = CountEstimate {
                about: (before.about + more).saturating_sub(less),
                most: (before.most + more).saturating_sub(less),
            };
        }
        let front = front.map(|rank| rank.position.workload);
        WorkloadsAhead { classes: all, front, local_queue: local_queue.clone() }
    }

    /// Whether a workload is active.
    pub(crate) fn is_active(&self, key: &ClassKey, position: &PendingPosition) -> bool {
        self.classes.get(key).is_some_and(|class| !class.is_parked && class.active.contains(position))
    }

    pub(crate) fn contains(&self, key: &ClassKey, position: &PendingPosition) -> bool {
        self.classes
            .get(key)
            .is_some_and(|class| class.active.contains(position) || class.parked.contains(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(state: &mut u64, sides: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % sides
    }

    /// Twelve workloads of up to three local queues.
    fn crowd(dice: &mut u64) -> (Pending, Vec<(ClassKey, PendingPosition)>) {
        let mut pending = Pending::default();
        let mut all: Vec<(ClassKey, PendingPosition)> = Vec::new();
        for at in 0..12 {
            let local: Arc<str> = Arc::from(format!("ns/{}", roll(dice, 3)));
            let priority = i64::try_from(roll(dice, 3)).unwrap();
            let key = (
                local,
                ShapeId(u32::try_from(roll(dice, 2)).unwrap() + 2 * u32::try_from(priority).unwrap()),
            );
            let position = PendingPosition::new(
                priority,
                i64::try_from(roll(dice, 4)).unwrap(),
                Arc::from(at.to_string()),
                WorkloadId(at),
            );
            pending.push(&key, position.clone());
            all.push((key, position));
        }
        (pending, all)
    }

    /// Estimates are marked as such and never exceed their upper bound.
    #[test]
    fn uncounted_workloads_are_estimated() {
        let (mut counted, mut estimated) = (0, 0);
        for seed in 0..100 {
            let mut dice = seed;
            let (pending, all) = crowd(&mut dice);
            let order = QueueOrder { usage: None, preemptor_order: PreemptorOrder::Sticky, starved: None };
            let line = pending.ordered(&order);
            for left in 0..=all.len() {
                for (key, position) in &all {
                    let ahead = pending.before(&order, position, &key.0, &[], left);
                    let is = line.iter().position(|id| *id == position.workload).unwrap();
                    let about: usize = ahead.classes.iter().map(|(_, n, _)| n.about).sum();
                    let most: usize = ahead.classes.iter().map(|(_, n, _)| n.most).sum();
                    assert!(
                        is <= most,
                        "seed {seed}, {left} counted: {is} before {position:?}, at most {most}"
                    );
                    let exact = ahead.position_counts();
                    assert_eq!((exact.before, exact.of), (about, all.len()));
                    if exact.about {
                        assert!(about < most && left < all.len(), "seed {seed}: all {left} could be counted");
                        estimated += 1;
                    } else {
                        assert_eq!(about, is, "seed {seed}, {left} counted");
                        counted += 1;
                    }
                }
            }
        }
        assert!(counted > 1_000 && estimated > 500, "{counted} {estimated}");
    }

    /// Positions match the order in which heads are taken.
    #[test]
    fn positions_match_the_order_of_heads() {
        for seed in 0..300 {
            let mut dice = seed;
            let (mut pending, all) = crowd(&mut dice);
            let usages = [0, 1, 2].map(|_| roll(&mut dice, 2) as f64);
            let usage = |local: &str| usages[local[3..].parse::<usize>().unwrap()];
            let by_usage = roll(&mut dice, 2) == 0;
            let one = |dice: &mut u64| {
                (roll(dice, 2) == 0).then(|| WorkloadId(u32::try_from(roll(dice, 12)).unwrap()))
            };
            pending.set_preemptor(one(&mut dice));
            let starved = one(&mut dice).filter(|_| by_usage);
            let preemptor_order = [PreemptorOrder::Regular, PreemptorOrder::Sticky, PreemptorOrder::First]
                [usize::try_from(roll(&mut dice, 3)).unwrap()];
            let order = QueueOrder { usage: by_usage.then_some(&usage), preemptor_order, starved };
            let favored: Vec<(ClassKey, PendingPosition)> = all
                .iter()
                .filter(|(_, p)| Some(p.workload) == pending.preemptor() || Some(p.workload) == starved)
                .cloned()
                .collect();
            let line = pending.ordered(&order);
            assert_eq!(pending.first_of_all(&order, &favored), line.first().copied());
            for (key, position) in &all {
                let ahead = pending.before(&order, position, &key.0, &favored, COUNTED_MAX);
                let before: usize = ahead.classes.iter().map(|(_, before, _)| before.about).sum();
                assert_eq!(
                    (line[before], ahead.front()),
                    (position.workload, line.first().copied()),
                    "seed {seed}, {preemptor_order:?}, by usage {by_usage}: {line:?}"
                );
            }
            let mut taken = Vec::new();
            while let Some((position, key)) = pending.head(&order) {
                // The preemptor stays known, as in a cycle.
                let preemptor = pending.preemptor();
                pending.remove(&key, &position);
                pending.set_preemptor(preemptor);
                taken.push(position.workload);
            }
            assert_eq!(taken, line, "seed {seed}, {preemptor_order:?}, by usage {by_usage}");
        }
    }
}

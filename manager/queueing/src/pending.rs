//! The pending workloads of one cluster queue, in order, by class.
//!
//! A class is a local queue and a shape. An inadmissible workload parks all equivalent classes. A change in
//! the queue's tree requeues them, at a cost that grows with the number of classes, not of workloads.

mod order;
mod position;

use crate::model::{Moment, ShapeId, WorkloadId};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use order::{PreemptorOrder, QueueOrder};
pub use position::{COUNTED_MAX, CountEstimate, HeadBlocks, PositionCounts, WorkloadsAhead, count_below};

/// Position in a queue: priority, then age, then uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingPosition {
    priority: Reverse<i64>,
    since: Moment,
    uid: Arc<str>,
    pub workload: WorkloadId,
}

impl PendingPosition {
    pub fn new(priority: i64, since: Moment, uid: Arc<str>, workload: WorkloadId) -> Self {
        Self { priority: Reverse(priority), since, uid, workload }
    }
}

/// A local queue and a shape.
pub type ClassKey = (Arc<str>, ShapeId);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Class {
    active: BTreeSet<PendingPosition>,
    /// Workloads parked individually.
    parked: BTreeSet<PendingPosition>,
    /// The whole class is parked until something changes.
    is_parked: bool,
    /// At least one workload had quota, but no cluster had capacity.
    short_of_capacity: bool,
}

impl Class {
    /// Number of workloads, active or parked.
    fn len(&self) -> usize {
        self.active.len() + self.parked.len()
    }

    /// Requeues all parked workloads except the blocked ones. True if there were any.
    fn requeue_parked(&mut self, blocked: &BTreeSet<WorkloadId>) -> bool {
        let was_parked = self.is_parked && !self.active.is_empty();
        (self.is_parked, self.short_of_capacity) = (false, false);
        let (stay, back): (BTreeSet<PendingPosition>, BTreeSet<PendingPosition>) =
            std::mem::take(&mut self.parked).into_iter().partition(|p| blocked.contains(&p.workload));
        let any = was_parked || !back.is_empty();
        self.active.extend(back);
        self.parked = stay;
        any
    }
}

/// The pending workloads of one cluster queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    classes: BTreeMap<ClassKey, Class>,
    /// The classes by shape. A queue may have a hundred thousand classes, and each inadmissible workload
    /// looks up its shape.
    shapes: BTreeSet<(ShapeId, Arc<str>)>,
    /// The first workload of each active class.
    heads: BTreeSet<(PendingPosition, ClassKey)>,
    /// Classes with parked workloads, which a change requeues.
    parked_classes: BTreeSet<ClassKey>,
    /// Workloads parked until they or their namespace change.
    blocked: BTreeSet<WorkloadId>,
    /// The workload whose victims are stopping. It stays the head until they have stopped.
    preemptor: Option<WorkloadId>,
    count: usize,
}

impl Pending {
    fn refresh(&mut self, key: &ClassKey, before: Option<PendingPosition>) {
        let class = &self.classes[key];
        let after = if class.is_parked { None } else { class.active.first().cloned() };
        if before != after {
            if let Some(position) = before {
                self.heads.remove(&(position, key.clone()));
            }
            if let Some(position) = after {
                self.heads.insert((position, key.clone()));
            }
        }
        if class.active.is_empty() && class.parked.is_empty() {
            // The shape may be dropped with its last workload, and its number reused. So nothing of the class
            // may remain.
            self.parked_classes.remove(key);
            self.classes.remove(key);
            self.shapes.remove(&(key.1, key.0.clone()));
        } else if class.is_parked || !class.parked.is_empty() {
            self.parked_classes.insert(key.clone());
        } else {
            self.parked_classes.remove(key);
        }
    }

    fn change<R>(&mut self, key: &ClassKey, change: impl FnOnce(&mut Class) -> R) -> R {
        let class = match self.classes.entry(key.clone()) {
            Entry::Occupied(class) => class.into_mut(),
            Entry::Vacant(vacant) => {
                self.shapes.insert((key.1, key.0.clone()));
                vacant.insert(Class::default())
            }
        };
        let before = if class.is_parked { None } else { class.active.first().cloned() };
        let result = change(class);
        self.refresh(key, before);
        result
    }

    /// Adds a workload, parked if its class is parked.
    pub fn push(&mut self, key: &ClassKey, position: PendingPosition) {
        self.count += 1;
        self.change(key, |class| class.active.insert(position));
    }

    /// Adds a parked workload. If `blocked`, only a change of the workload itself requeues it.
    pub fn park(&mut self, key: &ClassKey, position: PendingPosition, blocked: bool) {
        self.count += 1;
        if blocked {
            self.blocked.insert(position.workload);
        }
        self.change(key, |class| class.parked.insert(position));
    }

    /// Removes a workload. False if it isn't there.
    pub fn remove(&mut self, key: &ClassKey, position: &PendingPosition) -> bool {
        self.blocked.remove(&position.workload);
        if self.preemptor == Some(position.workload) {
            self.preemptor = None;
        }
        let removed = self.classes.contains_key(key)
            && self.change(key, |class| class.active.remove(position) || class.parked.remove(position));
        self.count -= usize::from(removed);
        removed
    }

    /// All classes of a shape.
    fn classes_of(&self, shape: ShapeId) -> Vec<ClassKey> {
        let from = (shape, Arc::from(""));
        self.shapes
            .range(from..)
            .take_while(|(of, _)| *of == shape)
            .map(|(of, local_queue)| (local_queue.clone(), *of))
            .collect()
    }

    /// Parks all classes of a shape.
    pub fn park_shape(&mut self, shape: ShapeId) {
        for key in self.classes_of(shape) {
            self.change(&key, |class| class.is_parked = true);
        }
    }

    /// Records that a workload of the class waits for cluster capacity.
    pub fn note_short_of_capacity(&mut self, key: &ClassKey, short_of_capacity: bool) {
        self.change(key, |class| class.short_of_capacity |= short_of_capacity);
    }

    /// Parks all classes of a shape until cluster capacity changes.
    pub fn park_shape_for_capacity(&mut self, shape: ShapeId) {
        for key in self.classes_of(shape) {
            self.change(&key, |class| (class.is_parked, class.short_of_capacity) = (true, true));
        }
    }

    /// Requeues the classes that wait for cluster capacity. True if there were any.
    pub fn requeue_for_capacity(&mut self) -> bool {
        let parked_classes: Vec<ClassKey> =
            self.parked_classes.iter().filter(|key| self.classes[*key].short_of_capacity).cloned().collect();
        let any = !parked_classes.is_empty();
        for key in parked_classes {
            let blocked = std::mem::take(&mut self.blocked);
            self.change(&key, |class| class.requeue_parked(&blocked));
            self.blocked = blocked;
        }
        any
    }

    /// Requeues all parked workloads except the blocked ones. True if there were any.
    pub fn requeue_parked(&mut self) -> bool {
        let parked_classes = std::mem::take(&mut self.parked_classes);
        let mut any = false;
        let blocked = std::mem::take(&mut self.blocked);
        for key in parked_classes {
            any |= self.change(&key, |class| class.requeue_parked(&blocked));
        }
        self.blocked = blocked;
        any
    }

    pub(crate) fn find_active(&self, workload: WorkloadId) -> Option<(PendingPosition, ClassKey)> {
        let active = self.classes.iter().filter(|(_, class)| !class.is_parked);
        active
            .flat_map(|(key, class)| class.active.iter().map(move |p| (p, key)))
            .find(|(p, _)| p.workload == workload)
            .map(|(p, k)| (p.clone(), k.clone()))
    }

    /// The first workload that satisfies `of`, active or parked, but not blocked.
    pub fn first_matching(&self, of: impl Fn(WorkloadId) -> bool) -> Option<WorkloadId> {
        let free = |class: &Class| {
            class
                .parked
                .iter()
                .find(|position| !self.blocked.contains(&position.workload) && of(position.workload))
                .cloned()
        };
        let firsts = self.classes.values().flat_map(|class| {
            [class.active.iter().find(|position| of(position.workload)).cloned(), free(class)]
        });
        firsts.flatten().min().map(|position| position.workload)
    }

    /// Whether there is an active workload.
    pub fn has_head(&self) -> bool {
        !self.heads.is_empty()
    }

    /// The active workloads.
    pub fn active(&self) -> impl Iterator<Item = &PendingPosition> {
        self.classes.values().filter(|c| !c.is_parked).flat_map(|c| &c.active)
    }

    /// Number of active workloads, by local queue.
    pub fn active_counts(&self) -> BTreeMap<&Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for ((local_queue, _), class) in self.classes.iter().filter(|(_, class)| !class.is_parked) {
            *counts.entry(local_queue).or_default() += class.active.len();
        }
        counts
    }

    /// Number of shapes with active workloads, of shapes with parked workloads, and of all shapes.
    pub fn shape_counts(&self) -> [usize; 3] {
        let (mut active, mut parked, mut all) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for ((_, shape), class) in &self.classes {
            all.insert(*shape);
            if !class.is_parked && !class.active.is_empty() {
                active.insert(*shape);
            }
            if !class.parked.is_empty() || (class.is_parked && !class.active.is_empty()) {
                parked.insert(*shape);
            }
        }
        [active, parked, all].map(|shapes| shapes.len())
    }

    /// The parked workloads.
    pub fn parked(&self) -> impl Iterator<Item = &PendingPosition> {
        self.classes.values().flat_map(|c| c.parked.iter().chain(c.active.iter().filter(|_| c.is_parked)))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The workload whose victims are stopping. It stays the head until they have stopped.
    pub fn preemptor(&self) -> Option<WorkloadId> {
        self.preemptor
    }

    pub(crate) fn set_preemptor(&mut self, preemptor: Option<WorkloadId>) {
        self.preemptor = preemptor;
    }

    /// Number of workloads by shape. A shape comes once per local queue.
    pub(crate) fn by_shape(&self) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        self.classes.iter().map(|((_, shape), class)| (*shape, class.len()))
    }

    /// The first workload of these shapes, active or parked.
    pub(crate) fn first_of_shapes(&self, shapes: &BTreeSet<ShapeId>) -> Option<WorkloadId> {
        let classes = self.classes.iter().filter(|((_, shape), _)| shapes.contains(shape));
        let firsts = classes.flat_map(|(_, class)| [class.active.first(), class.parked.first()]);
        firsts.flatten().min().map(|position| position.workload)
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(
        pending: &Pending,
        usage: Option<&dyn Fn(&str) -> f64>,
        preemptor_order: PreemptorOrder,
    ) -> Option<WorkloadId> {
        pending
            .head(&QueueOrder { usage, preemptor_order, starved: None })
            .map(|(position, _)| position.workload)
    }

    fn position(at: u32) -> PendingPosition {
        PendingPosition::new(0, i64::from(at), Arc::from(at.to_string()), WorkloadId(at))
    }

    #[test]
    fn an_emptied_class_is_not_parked_any_more() {
        let mut pending = Pending::default();
        let key: ClassKey = (Arc::from("ns/q"), ShapeId(3));
        pending.push(&key, position(1));
        pending.park_shape(ShapeId(3));
        assert!(!pending.has_head());
        pending.remove(&key, &position(1));
        pending.push(&key, position(2));
        assert_eq!(first(&pending, None, PreemptorOrder::Sticky), Some(WorkloadId(2)));
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn equivalent_workloads_are_parked_and_requeued_together() {
        let mut pending = Pending::default();
        let (key, other): (ClassKey, ClassKey) =
            ((Arc::from("ns/q"), ShapeId(1)), (Arc::from("ns/q"), ShapeId(2)));
        for at in 1..=3 {
            pending.push(&key, position(at));
        }
        pending.push(&other, position(9));
        // Classes of the shape are parked in every local queue, and an empty class isn't created again.
        let (elsewhere, gone): (ClassKey, ClassKey) =
            ((Arc::from("ns/other"), ShapeId(1)), (Arc::from("ns/third"), ShapeId(1)));
        pending.push(&elsewhere, position(4));
        pending.push(&gone, position(5));
        assert!(pending.remove(&gone, &position(5)));
        pending.park_shape(ShapeId(1));
        assert_eq!(first(&pending, None, PreemptorOrder::Sticky), Some(WorkloadId(9)));
        assert_eq!((pending.parked().count(), pending.classes()), (4, 3));
        assert!(pending.requeue_parked());
        assert_eq!(first(&pending, None, PreemptorOrder::Sticky), Some(WorkloadId(1)));
    }

    #[test]
    fn usage_order_precedes_a_preemptor_unless_it_is_first() {
        let mut pending = Pending::default();
        let (much, little): (ClassKey, ClassKey) =
            ((Arc::from("ns/much"), ShapeId(1)), (Arc::from("ns/little"), ShapeId(2)));
        pending.push(&much, position(1));
        pending.push(&little, position(2));
        pending.preemptor = Some(WorkloadId(1));
        let usage = |local: &str| if local == "ns/much" { 9.0 } else { 1.0 };
        let head = |pending: &Pending, order| first(pending, Some(&usage), order);
        assert_eq!(head(&pending, PreemptorOrder::Sticky), Some(WorkloadId(2)));
        assert_eq!(head(&pending, PreemptorOrder::First), Some(WorkloadId(1)));
        pending.park_shape(ShapeId(1));
        assert_eq!(
            head(&pending, PreemptorOrder::First),
            Some(WorkloadId(2)),
            "parked workloads are no heads"
        );
    }

    #[test]
    fn preemptor_is_first_until_it_is_removed() {
        let mut pending = Pending::default();
        let key: ClassKey = (Arc::from("ns/q"), ShapeId(1));
        pending.push(&key, position(1));
        pending.push(&key, position(2));
        pending.preemptor = Some(WorkloadId(2));
        assert_eq!(first(&pending, None, PreemptorOrder::Sticky), Some(WorkloadId(2)));
        assert_eq!(first(&pending, None, PreemptorOrder::Regular), Some(WorkloadId(1)));
        pending.remove(&key, &position(2));
        assert_eq!(pending.preemptor, None);
    }
}

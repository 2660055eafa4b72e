//! Who waits in one cluster queue, in order, by class: what is alike waits as one.
//!
//! A class is a local queue and a shape. A misfit puts its whole class to sleep, and what is alike to it; a change in the
//! queue's tree wakes them, at a cost that grows with classes and not with workloads.

mod line;

pub use line::{Before, COUNTED_MAX, Counted, HeadStays, Order, PreemptorsTurn, Standing, below};

use crate::model::{Moment, ShapeId, WorkloadId};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A place in the order: priority, then age, then uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    priority: Reverse<i64>,
    since: Moment,
    uid: Arc<str>,
    /// Who.
    pub workload: WorkloadId,
}

impl Place {
    /// The place of a workload.
    pub fn new(priority: i64, since: Moment, uid: Arc<str>, workload: WorkloadId) -> Self {
        Self { priority: Reverse(priority), since, uid, workload }
    }
}

/// A local queue and a shape.
pub type ClassKey = (Arc<str>, ShapeId);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Class {
    awake: BTreeSet<Place>,
    /// Set aside one by one.
    parked: BTreeSet<Place>,
    /// Nobody of the class is looked at until something changes.
    asleep: bool,
    /// Quota was there, and no cluster had the room for one of them at least.
    placeless: bool,
}

impl Class {
    /// Back to those who are looked at, but for who is stuck. True when there was anybody.
    fn wake(&mut self, stuck: &BTreeSet<WorkloadId>) -> bool {
        let slept = self.asleep && !self.awake.is_empty();
        (self.asleep, self.placeless) = (false, false);
        let (stay, back): (BTreeSet<Place>, BTreeSet<Place>) =
            std::mem::take(&mut self.parked).into_iter().partition(|p| stuck.contains(&p.workload));
        let any = slept || !back.is_empty();
        self.awake.extend(back);
        self.parked = stay;
        any
    }
}

/// Who waits in one cluster queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    classes: BTreeMap<ClassKey, Class>,
    /// The same by shape: a queue may have a hundred thousand, and each misfit asks who is alike to it.
    shapes: BTreeSet<(ShapeId, Arc<str>)>,
    /// The first of each class that is awake.
    heads: BTreeSet<(Place, ClassKey)>,
    /// Classes that sleep or have someone parked: what a change wakes.
    resting: BTreeSet<ClassKey>,
    /// Set aside until the workload or its namespace changes.
    stuck: BTreeSet<WorkloadId>,
    /// Who makes others give way, and stays first meanwhile.
    pub(crate) preemptor: Option<WorkloadId>,
    count: usize,
}

impl Pending {
    fn refresh(&mut self, key: &ClassKey, before: Option<Place>) {
        let class = &self.classes[key];
        let after = if class.asleep { None } else { class.awake.first().cloned() };
        if before != after {
            if let Some(place) = before {
                self.heads.remove(&(place, key.clone()));
            }
            if let Some(place) = after {
                self.heads.insert((place, key.clone()));
            }
        }
        if class.awake.is_empty() && class.parked.is_empty() {
            // Its shape may end with its last workload, and the number with it go to another one: nothing of it may stay.
            self.resting.remove(key);
            self.classes.remove(key);
            self.shapes.remove(&(key.1, key.0.clone()));
        } else if class.asleep || !class.parked.is_empty() {
            self.resting.insert(key.clone());
        } else {
            self.resting.remove(key);
        }
    }

    fn change<R>(&mut self, key: &ClassKey, change: impl FnOnce(&mut Class) -> R) -> R {
        let class = match self.classes.entry(key.clone()) {
            Entry::Occupied(class) => class.into_mut(),
            Entry::Vacant(place) => {
                self.shapes.insert((key.1, key.0.clone()));
                place.insert(Class::default())
            }
        };
        let before = if class.asleep { None } else { class.awake.first().cloned() };
        let result = change(class);
        self.refresh(key, before);
        result
    }

    /// Adds a workload; it sleeps where its class does.
    pub fn push(&mut self, key: &ClassKey, place: Place) {
        self.count += 1;
        self.change(key, |class| class.awake.insert(place));
    }

    /// Adds a workload that is set aside.
    pub fn park(&mut self, key: &ClassKey, place: Place, stuck: bool) {
        self.count += 1;
        if stuck {
            self.stuck.insert(place.workload);
        }
        self.change(key, |class| class.parked.insert(place));
    }

    /// Takes a workload out.
    pub fn remove(&mut self, key: &ClassKey, place: &Place) -> bool {
        self.stuck.remove(&place.workload);
        if self.preemptor == Some(place.workload) {
            self.preemptor = None;
        }
        let removed = self.classes.contains_key(key)
            && self.change(key, |class| class.awake.remove(place) || class.parked.remove(place));
        self.count -= usize::from(removed);
        removed
    }

    /// Every class of a shape.
    fn alike(&self, shape: ShapeId) -> Vec<ClassKey> {
        let from = (shape, Arc::from(""));
        self.shapes
            .range(from..)
            .take_while(|(of, _)| *of == shape)
            .map(|(of, local_queue)| (local_queue.clone(), *of))
            .collect()
    }

    /// Puts every class of a shape to sleep.
    pub fn sleep(&mut self, shape: ShapeId) {
        for key in self.alike(shape) {
            self.change(&key, |class| class.asleep = true);
        }
    }

    /// Notes that somebody of a class was set aside for whom no cluster has room.
    pub fn note_placeless(&mut self, key: &ClassKey, placeless: bool) {
        self.change(key, |class| class.placeless |= placeless);
    }

    /// Puts a class to sleep for which no cluster has room.
    pub fn sleep_placeless(&mut self, shape: ShapeId) {
        for key in self.alike(shape) {
            self.change(&key, |class| (class.asleep, class.placeless) = (true, true));
        }
    }

    /// Wakes the classes for which no cluster had room. True when there was anybody.
    pub fn wake_placeless(&mut self) -> bool {
        let resting: Vec<ClassKey> =
            self.resting.iter().filter(|key| self.classes[*key].placeless).cloned().collect();
        let any = !resting.is_empty();
        for key in resting {
            let stuck = std::mem::take(&mut self.stuck);
            self.change(&key, |class| class.wake(&stuck));
            self.stuck = stuck;
        }
        any
    }

    /// Wakes what sleeps and takes back what was set aside, but for who is stuck. True when there was anybody.
    pub fn wake(&mut self) -> bool {
        let resting = std::mem::take(&mut self.resting);
        let mut any = false;
        let stuck = std::mem::take(&mut self.stuck);
        for key in resting {
            any |= self.change(&key, |class| class.wake(&stuck));
        }
        self.stuck = stuck;
        any
    }

    pub(crate) fn find_awake(&self, workload: WorkloadId) -> Option<(Place, ClassKey)> {
        let awake = self.classes.iter().filter(|(_, class)| !class.asleep);
        awake
            .flat_map(|(key, class)| class.awake.iter().map(move |p| (p, key)))
            .find(|(p, _)| p.workload == workload)
            .map(|(p, k)| (p.clone(), k.clone()))
    }

    /// Who comes first, looked at or not, of those who are asked for, but for who is stuck.
    pub fn first(&self, of: impl Fn(WorkloadId) -> bool) -> Option<WorkloadId> {
        let free = |class: &Class| {
            class
                .parked
                .iter()
                .find(|place| !self.stuck.contains(&place.workload) && of(place.workload))
                .cloned()
        };
        let firsts = self
            .classes
            .values()
            .flat_map(|class| [class.awake.iter().find(|place| of(place.workload)).cloned(), free(class)]);
        firsts.flatten().min().map(|place| place.workload)
    }

    /// Whether anybody may be looked at.
    pub fn has_head(&self) -> bool {
        !self.heads.is_empty()
    }

    /// Who may be looked at.
    pub fn awake(&self) -> impl Iterator<Item = &Place> {
        self.classes.values().filter(|c| !c.asleep).flat_map(|c| &c.awake)
    }

    /// How many may be looked at, by local queue.
    pub fn awake_counts(&self) -> BTreeMap<&Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for ((local_queue, _), class) in self.classes.iter().filter(|(_, class)| !class.asleep) {
            *counts.entry(local_queue).or_default() += class.awake.len();
        }
        counts
    }

    /// Of how many shapes somebody may be looked at, of how many somebody waits for a change, and how many there are.
    pub fn shape_counts(&self) -> [usize; 3] {
        let (mut awake, mut asleep, mut all) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for ((_, shape), class) in &self.classes {
            all.insert(*shape);
            if !class.asleep && !class.awake.is_empty() {
                awake.insert(*shape);
            }
            if !class.parked.is_empty() || (class.asleep && !class.awake.is_empty()) {
                asleep.insert(*shape);
            }
        }
        [awake, asleep, all].map(|shapes| shapes.len())
    }

    /// Who waits for a change.
    pub fn asleep(&self) -> impl Iterator<Item = &Place> {
        self.classes.values().flat_map(|c| c.parked.iter().chain(c.awake.iter().filter(|_| c.asleep)))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many classes there are.
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
        turn: PreemptorsTurn,
    ) -> Option<WorkloadId> {
        pending.head(&Order { usage, turn, urgent: None }).map(|(place, _)| place.workload)
    }

    fn place(at: u32) -> Place {
        Place::new(0, i64::from(at), Arc::from(at.to_string()), WorkloadId(at))
    }

    #[test]
    fn nothing_of_an_empty_class_stays_asleep() {
        let mut pending = Pending::default();
        let key: ClassKey = (Arc::from("ns/q"), ShapeId(3));
        pending.push(&key, place(1));
        pending.sleep(ShapeId(3));
        assert!(!pending.has_head());
        pending.remove(&key, &place(1));
        pending.push(&key, place(2));
        assert_eq!(first(&pending, None, PreemptorsTurn::Sticky), Some(WorkloadId(2)));
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn who_is_alike_to_a_misfit_sleeps_and_wakes_with_it() {
        let mut pending = Pending::default();
        let (key, other): (ClassKey, ClassKey) =
            ((Arc::from("ns/q"), ShapeId(1)), (Arc::from("ns/q"), ShapeId(2)));
        for at in 1..=3 {
            pending.push(&key, place(at));
        }
        pending.push(&other, place(9));
        // Whichever local queue it is in; a class that is gone isn't made again by what is said of its shape.
        let (elsewhere, gone): (ClassKey, ClassKey) =
            ((Arc::from("ns/other"), ShapeId(1)), (Arc::from("ns/third"), ShapeId(1)));
        pending.push(&elsewhere, place(4));
        pending.push(&gone, place(5));
        assert!(pending.remove(&gone, &place(5)));
        pending.sleep(ShapeId(1));
        assert_eq!(first(&pending, None, PreemptorsTurn::Sticky), Some(WorkloadId(9)));
        assert_eq!((pending.asleep().count(), pending.classes()), (4, 3));
        assert!(pending.wake());
        assert_eq!(first(&pending, None, PreemptorsTurn::Sticky), Some(WorkloadId(1)));
    }

    #[test]
    fn order_by_use_passes_by_who_preempts_unless_it_is_first() {
        let mut pending = Pending::default();
        let (much, little): (ClassKey, ClassKey) =
            ((Arc::from("ns/much"), ShapeId(1)), (Arc::from("ns/little"), ShapeId(2)));
        pending.push(&much, place(1));
        pending.push(&little, place(2));
        pending.preemptor = Some(WorkloadId(1));
        let usage = |local: &str| if local == "ns/much" { 9.0 } else { 1.0 };
        let head = |pending: &Pending, turn| first(pending, Some(&usage), turn);
        assert_eq!(head(&pending, PreemptorsTurn::Sticky), Some(WorkloadId(2)));
        assert_eq!(head(&pending, PreemptorsTurn::First), Some(WorkloadId(1)));
        pending.sleep(ShapeId(1));
        assert_eq!(head(&pending, PreemptorsTurn::First), Some(WorkloadId(2)), "who sleeps is nobody's head");
    }

    #[test]
    fn who_preempts_is_first_while_it_does() {
        let mut pending = Pending::default();
        let key: ClassKey = (Arc::from("ns/q"), ShapeId(1));
        pending.push(&key, place(1));
        pending.push(&key, place(2));
        pending.preemptor = Some(WorkloadId(2));
        assert_eq!(first(&pending, None, PreemptorsTurn::Sticky), Some(WorkloadId(2)));
        assert_eq!(first(&pending, None, PreemptorsTurn::InOrder), Some(WorkloadId(1)));
        pending.remove(&key, &place(2));
        assert_eq!(pending.preemptor, None);
    }
}

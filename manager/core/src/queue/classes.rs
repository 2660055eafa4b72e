//! Order within cluster queues, look-alike classes, and what is charged.
//!
//! A queue keeps its waiting workloads by class, so that a million look-alikes are looked at once: when the head of a class
//! can't start, the class is skipped. Order is priority, then age. Everything here is a cache over the workloads.

use crate::facts::flavors::Flavors;
use crate::facts::submission::{Class, ClassId};
use crate::state::by_uid::ByUid;
use meridian_objects::ResourceRules;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{RecordNumber, Uid};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// QueuePosition in a queue: higher priority first, then older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePosition {
    priority: Reverse<i64>,
    age: RecordNumber,
    /// The workload.
    pub uid: Uid,
}

impl QueuePosition {
    /// The place of a workload.
    pub fn new(priority: i64, age: RecordNumber, uid: Uid) -> Self {
        Self { priority: Reverse(priority), age, uid }
    }
}

/// Those of one class who wait, in order; never nobody. Who is first stands beside them, so that whoever goes through all
/// classes need not look into each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    first: QueuePosition,
    all: BTreeSet<QueuePosition>,
}

/// A class, what its gang as a whole asks for, and how many are of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Interned {
    class: Arc<Class>,
    total: Arc<Amounts>,
    members: u64,
}

/// Charged amounts of one cluster queue by flavor and resource.
pub type Usage = BTreeMap<(Arc<str>, String), i64>;

/// Classes, waiting workloads and charged quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queues {
    classes: BTreeMap<ClassId, Interned>,
    ids: BTreeMap<Arc<Class>, ClassId>,
    next: u32,
    waiting: BTreeMap<ClassId, Waiting>,
    usage: BTreeMap<Arc<str>, Usage>,
    /// Where each charged workload's quota was charged, so that a changed route gives back what was taken.
    charged: ByUid<Arc<str>>,
}

impl Queues {
    pub(crate) fn intern(&mut self, class: &Class, rules: &ResourceRules) -> ClassId {
        if let Some(id) = self.ids.get(class) {
            let id = *id;
            self.add_member(id);
            return id;
        }
        let id = ClassId(self.next);
        self.next += 1;
        self.know(id, class.clone(), rules);
        self.add_member(id);
        id
    }

    fn know(&mut self, id: ClassId, class: Class, rules: &ResourceRules) {
        let class = Arc::new(class);
        self.ids.insert(class.clone(), id);
        self.classes.insert(id, Interned { total: Arc::new(rules.total(&class.gang)), class, members: 0 });
    }

    /// Forgets one member; true when the class is gone with it.
    pub(crate) fn drop_member(&mut self, id: ClassId) -> bool {
        let Some(interned) = self.classes.get_mut(&id) else { return false };
        interned.members -= 1;
        if interned.members > 0 {
            return false;
        }
        if let Some(gone) = self.classes.remove(&id) {
            self.ids.remove(&gone.class);
        }
        self.waiting.remove(&id);
        true
    }

    /// Puts interned classes back under the ids that a snapshot knows them by.
    pub fn restore(&mut self, classes: Vec<(ClassId, Class)>, next: ClassId, rules: &ResourceRules) {
        // Ids of classes that are gone aren't used again, so that a replay interns as the world before it did.
        self.next = next.0;
        for (id, class) in classes {
            self.know(id, class, rules);
        }
    }

    /// The id of the next new class.
    pub(crate) fn next_class(&self) -> ClassId {
        ClassId(self.next)
    }

    pub(crate) fn add_member(&mut self, id: ClassId) {
        self.classes.get_mut(&id).expect("every class of a workload is known").members += 1;
    }

    /// Every class.
    pub fn classes(&self) -> impl Iterator<Item = (ClassId, &Arc<Class>)> {
        self.classes.iter().map(|(id, interned)| (*id, &interned.class))
    }

    /// One class.
    pub fn class(&self, id: ClassId) -> &Arc<Class> {
        &self.classes[&id].class
    }

    /// One class, and what its gang as a whole asks for.
    pub(crate) fn class_and_total(&self, id: ClassId) -> (&Arc<Class>, &Arc<Amounts>) {
        let interned = &self.classes[&id];
        (&interned.class, &interned.total)
    }

    pub(crate) fn wait(&mut self, class: ClassId, place: QueuePosition) {
        let waiting =
            self.waiting.entry(class).or_insert_with(|| Waiting { first: place, all: BTreeSet::new() });
        waiting.first = waiting.first.min(place);
        waiting.all.insert(place);
    }

    pub(crate) fn leave(&mut self, class: ClassId, place: QueuePosition) {
        let Some(waiting) = self.waiting.get_mut(&class) else { return };
        waiting.all.remove(&place);
        match waiting.all.first() {
            Some(first) => waiting.first = *first,
            None => drop(self.waiting.remove(&class)),
        }
    }

    /// Waiting workloads of a class, in order.
    pub fn waiting(&self, class: ClassId) -> impl Iterator<Item = &QueuePosition> {
        self.waiting.get(&class).into_iter().flat_map(|waiting| &waiting.all)
    }

    /// Whether one of a class waits.
    pub(crate) fn is_waiting(&self, class: ClassId, place: &QueuePosition) -> bool {
        self.waiting.get(&class).is_some_and(|waiting| waiting.all.contains(place))
    }

    /// How many of a class wait.
    pub fn waiting_count(&self, class: ClassId) -> usize {
        self.waiting.get(&class).map_or(0, |waiting| waiting.all.len())
    }

    /// Classes with someone waiting, with who is first and all, in order.
    pub(crate) fn waiting_by_class(
        &self,
    ) -> impl Iterator<Item = (ClassId, &QueuePosition, &BTreeSet<QueuePosition>)> {
        self.waiting.iter().map(|(id, waiting)| (*id, &waiting.first, &waiting.all))
    }

    /// Classes with someone waiting.
    pub fn waiting_classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.waiting.keys().copied()
    }

    pub(crate) fn charge(&mut self, uid: Uid, queue: Arc<str>, flavors: &Flavors, total: &Amounts) {
        let usage = self.usage.entry(queue.clone()).or_default();
        for (resource, flavor) in flavors.iter() {
            // Owner pods are over one and all holds nothing more: that isn't listed, here or below (simulation seed 1795358787439552).
            let amount = total.get(resource).copied().filter(|amount| *amount != 0);
            if let Some(amount) = amount {
                *usage.entry((flavor.clone(), resource.clone())).or_insert(0) += amount;
            }
        }
        self.charged.insert(uid, queue);
    }

    pub(crate) fn refund(&mut self, uid: Uid, flavors: &Flavors, total: &Amounts) {
        let Some(queue) = self.charged.remove(&uid) else { return };
        let usage = self.usage.entry(queue).or_default();
        for (resource, flavor) in flavors.iter() {
            let key = (flavor.clone(), resource.clone());
            if let Some(used) = usage.get_mut(&key) {
                *used -= total.get(resource).copied().unwrap_or(0);
                if *used == 0 {
                    usage.remove(&key);
                }
            }
        }
    }

    /// Charged amounts of a cluster queue.
    pub fn usage(&self, queue: &str) -> Option<&Usage> {
        self.usage.get(queue)
    }

    /// Where a workload's quota is charged.
    pub fn charged_to(&self, uid: Uid) -> Option<&Arc<str>> {
        self.charged.get(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_first_of_a_class_is_known_whoever_comes_and_goes() {
        let (mut queues, class) = (Queues::default(), ClassId(0));
        let places = [3, 1, 2].map(|age| QueuePosition::new(0, RecordNumber(age), Uid(u128::from(age))));
        let first =
            |queues: &Queues| queues.waiting_by_class().next().map(|(_, first, all)| (*first, all.len()));
        places.iter().for_each(|place| queues.wait(class, *place));
        assert_eq!(first(&queues), Some((places[1], 3)));
        for (gone, then) in [(0, Some((places[1], 2))), (1, Some((places[2], 1))), (2, None)] {
            queues.leave(class, places[gone]);
            assert_eq!(first(&queues), then);
        }
    }

    #[test]
    fn places_order_by_priority_then_age() {
        let a = QueuePosition::new(5, RecordNumber(9), Uid(1));
        let b = QueuePosition::new(1, RecordNumber(1), Uid(2));
        let c = QueuePosition::new(5, RecordNumber(3), Uid(3));
        assert!(c < a && a < b);
    }

    #[test]
    fn what_is_charged_doesnt_depend_on_the_order_in_which_it_was() {
        let flavors = Flavors::from(BTreeMap::from([("cpu".to_owned(), Arc::from("any"))]));
        let (some, none) = (Amounts::from([("cpu".to_owned(), 4)]), Amounts::from([("cpu".to_owned(), 0)]));
        let queue: Arc<str> = Arc::from("q");
        let (mut queues, mut recount) = (Queues::default(), Queues::default());
        queues.charge(Uid(1), queue.clone(), &flavors, &some);
        queues.charge(Uid(2), queue.clone(), &flavors, &none);
        queues.refund(Uid(1), &flavors, &some);
        recount.charge(Uid(2), queue, &flavors, &none);
        assert_eq!((queues.usage("q"), recount.usage("q")), (Some(&Usage::new()), Some(&Usage::new())));
    }
}

//! Classes of equivalent workloads, queue order, and charged quota.
//!
//! Waiting workloads are kept by class: if the first workload of a class can't start, no other of the class
//! can, so a million equivalent workloads cost one evaluation. Within a class the order is priority, then
//! age. Everything here is a cache over the workloads.

use crate::facts::flavors::FlavorUsage;
use crate::facts::submission::{Class, ClassId};
use crate::state::by_uid::ByUid;
use meridian_objects::ResourceRules;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{RecordNumber, Uid};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sort key of a waiting workload: higher priority first, then older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePosition {
    priority: Reverse<i64>,
    age: RecordNumber,
    pub uid: Uid,
}

impl QueuePosition {
    /// `age` is the record that submitted the workload.
    pub fn new(priority: i64, age: RecordNumber, uid: Uid) -> Self {
        Self { priority: Reverse(priority), age, uid }
    }
}

/// Waiting workloads of one class; never empty. `first` is kept outside the set so that a walk over all
/// classes needn't search every set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    first: QueuePosition,
    all: BTreeSet<QueuePosition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Interned {
    class: Arc<Class>,
    /// Requests of the whole gang.
    total: Arc<Amounts>,
    /// Workloads of this class, waiting or not.
    members: u64,
}

/// Classes, waiting workloads and charged quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queues {
    classes: BTreeMap<ClassId, Interned>,
    ids: BTreeMap<Arc<Class>, ClassId>,
    next: u32,
    waiting: BTreeMap<ClassId, Waiting>,
    usage: BTreeMap<Arc<str>, FlavorUsage>,
    /// Cluster queue that each workload's quota was charged to. Its local queue may point elsewhere by the
    /// time of the refund.
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
        self.insert_class(id, class.clone(), rules);
        self.add_member(id);
        id
    }

    fn insert_class(&mut self, id: ClassId, class: Class, rules: &ResourceRules) {
        let class = Arc::new(class);
        self.ids.insert(class.clone(), id);
        self.classes.insert(id, Interned { total: Arc::new(rules.total(&class.gang)), class, members: 0 });
    }

    /// Removes one member. Returns whether it was the last one, in which case the class is forgotten too.
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

    /// Restores the classes of a snapshot under their ids.
    pub fn restore(&mut self, classes: Vec<(ClassId, Class)>, next: ClassId, rules: &ResourceRules) {
        // Ids of forgotten classes aren't reused: a replay must give every class the id that it had before.
        self.next = next.0;
        for (id, class) in classes {
            self.insert_class(id, class, rules);
        }
    }

    pub(crate) fn next_class(&self) -> ClassId {
        ClassId(self.next)
    }

    pub(crate) fn add_member(&mut self, id: ClassId) {
        self.classes.get_mut(&id).expect("the class of every workload is interned").members += 1;
    }

    pub fn classes(&self) -> impl Iterator<Item = (ClassId, &Arc<Class>)> {
        self.classes.iter().map(|(id, interned)| (*id, &interned.class))
    }

    pub fn class(&self, id: ClassId) -> &Arc<Class> {
        &self.classes[&id].class
    }

    /// A class and the requests of its whole gang.
    pub(crate) fn class_and_total(&self, id: ClassId) -> (&Arc<Class>, &Arc<Amounts>) {
        let interned = &self.classes[&id];
        (&interned.class, &interned.total)
    }

    pub(crate) fn wait(&mut self, class: ClassId, position: QueuePosition) {
        let waiting =
            self.waiting.entry(class).or_insert_with(|| Waiting { first: position, all: BTreeSet::new() });
        waiting.first = waiting.first.min(position);
        waiting.all.insert(position);
    }

    pub(crate) fn leave(&mut self, class: ClassId, position: QueuePosition) {
        let Some(waiting) = self.waiting.get_mut(&class) else { return };
        waiting.all.remove(&position);
        match waiting.all.first() {
            Some(first) => waiting.first = *first,
            None => drop(self.waiting.remove(&class)),
        }
    }

    /// Waiting workloads of a class, in queue order.
    pub fn waiting(&self, class: ClassId) -> impl Iterator<Item = &QueuePosition> {
        self.waiting.get(&class).into_iter().flat_map(|waiting| &waiting.all)
    }

    /// The oldest waiting workload of each priority of a class.
    pub fn oldest_by_priority(&self, class: ClassId) -> impl Iterator<Item = &QueuePosition> {
        let waiting = self.waiting.get(&class);
        std::iter::successors(waiting.map(|waiting| &waiting.first), move |position| {
            let below = QueuePosition {
                priority: Reverse(position.priority.0.checked_sub(1)?),
                age: RecordNumber(0),
                uid: Uid(0),
            };
            waiting?.all.range(below..).next()
        })
    }

    pub(crate) fn is_waiting(&self, class: ClassId, position: &QueuePosition) -> bool {
        self.waiting.get(&class).is_some_and(|waiting| waiting.all.contains(position))
    }

    /// Number of waiting workloads of a class.
    pub fn waiting_count(&self, class: ClassId) -> usize {
        self.waiting.get(&class).map_or(0, |waiting| waiting.all.len())
    }

    /// Classes with waiting workloads: the first workload, and all of them in queue order.
    pub fn waiting_by_class(
        &self,
    ) -> impl Iterator<Item = (ClassId, &QueuePosition, &BTreeSet<QueuePosition>)> {
        self.waiting.iter().map(|(id, waiting)| (*id, &waiting.first, &waiting.all))
    }

    /// Classes with waiting workloads.
    pub fn waiting_classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.waiting.keys().copied()
    }

    /// Charges a workload's usage. `charge` must have no zero amounts, so that usage doesn't depend on the
    /// order of charges and refunds.
    pub(crate) fn charge(&mut self, uid: Uid, queue: Arc<str>, charge: &FlavorUsage) {
        let usage = self.usage.entry(queue.clone()).or_default();
        for (key, amount) in charge {
            *usage.entry(key.clone()).or_insert(0) += amount;
        }
        self.charged.insert(uid, queue);
    }

    pub(crate) fn refund(&mut self, uid: Uid, charge: &FlavorUsage) {
        let Some(queue) = self.charged.remove(&uid) else { return };
        let usage = self.usage.entry(queue).or_default();
        for (key, amount) in charge {
            if let Some(used) = usage.get_mut(key) {
                *used -= amount;
                if *used == 0 {
                    usage.remove(key);
                }
            }
        }
    }

    pub fn usage(&self, queue: &str) -> Option<&FlavorUsage> {
        self.usage.get(queue)
    }

    /// Cluster queue that a workload's quota is charged to.
    pub fn charged_to(&self, uid: Uid) -> Option<&Arc<str>> {
        self.charged.get(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::flavors::Flavors;
    use meridian_objects::ResourceRules;
    use meridian_shared::gang::Gang;

    #[test]
    fn first_of_a_class_follows_arrivals_and_departures() {
        let (mut queues, class) = (Queues::default(), ClassId(0));
        let positions = [3, 1, 2].map(|age| QueuePosition::new(0, RecordNumber(age), Uid(u128::from(age))));
        let first =
            |queues: &Queues| queues.waiting_by_class().next().map(|(_, first, all)| (*first, all.len()));
        positions.iter().for_each(|position| queues.wait(class, *position));
        assert_eq!(first(&queues), Some((positions[1], 3)));
        for (gone, then) in [(0, Some((positions[1], 2))), (1, Some((positions[2], 1))), (2, None)] {
            queues.leave(class, positions[gone]);
            assert_eq!(first(&queues), then);
        }
    }

    #[test]
    fn the_oldest_of_each_priority_is_found() {
        let (mut queues, class) = (Queues::default(), ClassId(0));
        let at = |priority, age| QueuePosition::new(priority, RecordNumber(age), Uid(u128::from(age)));
        for (priority, age) in [(5, 9), (5, 7), (0, 2), (0, 3), (i64::MIN, 4)] {
            queues.wait(class, at(priority, age));
        }
        let oldest: Vec<QueuePosition> = queues.oldest_by_priority(class).copied().collect();
        assert_eq!(oldest, [at(5, 7), at(0, 2), at(i64::MIN, 4)]);
        assert_eq!(queues.oldest_by_priority(ClassId(1)).count(), 0);
    }

    #[test]
    fn positions_order_by_priority_then_age() {
        let a = QueuePosition::new(5, RecordNumber(9), Uid(1));
        let b = QueuePosition::new(1, RecordNumber(1), Uid(2));
        let c = QueuePosition::new(5, RecordNumber(3), Uid(3));
        assert!(c < a && a < b);
    }

    #[test]
    fn usage_does_not_depend_on_the_order_of_charges() {
        let flavors = Flavors::from(BTreeMap::from([("cpu".to_owned(), Arc::from("any"))]));
        let charge = |amount: i64| {
            let total = Amounts::from([("cpu".to_owned(), amount)]);
            flavors.usage(&Gang::default(), &total, &ResourceRules::default())
        };
        let (some, none) = (charge(4), charge(0));
        let queue: Arc<str> = Arc::from("q");
        let (mut queues, mut recount) = (Queues::default(), Queues::default());
        queues.charge(Uid(1), queue.clone(), &some);
        queues.charge(Uid(2), queue.clone(), &none);
        queues.refund(Uid(1), &some);
        recount.charge(Uid(2), queue, &none);
        assert_eq!(
            (queues.usage("q"), recount.usage("q")),
            (Some(&FlavorUsage::new()), Some(&FlavorUsage::new()))
        );
    }
}

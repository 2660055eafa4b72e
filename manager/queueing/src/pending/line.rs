//! In which order a queue looks at who waits in it: one order for who decides, and for whoever asks how far off a place is.
//!
//! Who is urgent or makes others give way may come before everybody; then what local queues used, where the queue goes by that;
//! then priority, age and uid. Decisions ask for the first of those who are awake, which costs next to nothing. Places are
//! counted only when somebody asks, and cost as much as there are classes, and who comes before.

use super::{ClassKey, Pending, Place};
use crate::brain::Brain;
use crate::model::{QueueId, Shape, ShapeId, WorkloadId, amount_of};
use crate::names::{Id, ResourceId};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// When who makes others give way is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptorsTurn {
    /// When it would be anyway.
    InOrder,
    /// First, but for the order by use.
    Sticky,
    /// First.
    First,
}

/// How a queue orders who waits in it.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct Order<'a> {
    /// What a local queue used, where that comes before priority and age.
    pub usage: Option<&'a dyn Fn(&str) -> f64>,
    /// When who makes others give way is looked at.
    pub turn: PreemptorsTurn,
    /// Who comes before everybody.
    pub urgent: Option<WorkloadId>,
}

impl Order<'_> {
    fn used(&self, local_queue: &str) -> f64 {
        self.usage.map_or(0.0, |usage| usage(local_queue))
    }
}

/// What local queues used, found once where the same one comes again and again.
struct Uses<'a> {
    order: &'a Order<'a>,
    last: Option<(&'a str, f64)>,
}

impl<'a> Uses<'a> {
    fn new(order: &'a Order<'a>) -> Self {
        Self { order, last: None }
    }

    fn of(&mut self, local_queue: &'a str) -> f64 {
        if self.order.usage.is_none() {
            return 0.0;
        }
        match self.last {
            Some((last, used)) if last == local_queue => used,
            _ => self.last.insert((local_queue, self.order.used(local_queue))).1,
        }
    }
}

/// A place in the whole order.
struct Rank<'a> {
    /// Place among those who come before everybody; all others have the same.
    favourite: usize,
    used: f64,
    later: bool,
    place: &'a Place,
}

impl Rank<'_> {
    fn order(&self, other: &Self) -> Ordering {
        let by_use = self.favourite.cmp(&other.favourite).then_with(|| self.used.total_cmp(&other.used));
        by_use.then_with(|| (self.later, self.place).cmp(&(other.later, other.place)))
    }

    fn first(one: Option<Self>, other: Self) -> Self {
        one.filter(|one| one.order(&other).is_le()).unwrap_or(other)
    }
}

/// Where a workload stands in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Who come before it.
    pub before: usize,
    /// All who wait, with itself.
    pub of: usize,
    /// Those of its own local queue who come before it.
    pub before_in_local: usize,
    /// All of its own local queue.
    pub of_local: usize,
    /// There are too many to count them one by one.
    pub about: bool,
}

/// Who comes before a workload in its queue.
#[derive(Clone, Debug)]
pub struct Before<'a> {
    /// Of each class how many come before, and how many there are; in the order of their keys.
    classes: Vec<(&'a ClassKey, Counted, usize)>,
    front: Option<WorkloadId>,
    local_queue: Arc<str>,
}

impl Before<'_> {
    /// Where it stands.
    pub fn standing(&self) -> Standing {
        let mut standing = Standing::default();
        for (_, before, of) in &self.classes {
            standing.before += before.about;
            standing.of += of;
            standing.about |= before.about != before.most;
        }
        // Those of one local queue follow one another.
        let from = self.classes.partition_point(|((local, _), ..)| *local < self.local_queue);
        let to = self.classes.partition_point(|((local, _), ..)| *local <= self.local_queue);
        for (_, before, of) in &self.classes[from..to] {
            standing.before_in_local += before.about;
            standing.of_local += of;
        }
        standing
    }

    /// Who comes first of all in the queue, looked at or not.
    pub fn front(&self) -> Option<WorkloadId> {
        self.front
    }

    /// Of each shape about how many come before, and at most.
    pub(crate) fn each(&self) -> impl Iterator<Item = (ShapeId, (usize, usize))> + '_ {
        self.classes.iter().map(|((_, shape), before, _)| (*shape, (before.about, before.most)))
    }

    /// Of each shape how many come before.
    pub fn by_shape(&self) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        self.classes.iter().map(|((_, shape), before, _)| (*shape, before.about))
    }
}

/// Why a queue's head is looked at again and again, and nobody behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadStays {
    /// The queue keeps strict order.
    Strict,
    /// It waits too long.
    Starves,
    /// Others stop for it.
    Displaces,
    /// It is still being looked at.
    Looked,
}

/// Places that are counted one by one for one question; what more there are is reckoned.
pub const COUNTED_MAX: usize = 50_000;

/// How many come before a place: counted as long as there is anything left to count, then half of them and at most all.
pub fn below<P: Ord>(all: &BTreeSet<P>, place: &P, left: &mut usize) -> Counted {
    let exactly = |n| Counted { about: n, most: n };
    match (all.first(), all.last()) {
        (Some(first), _) if place <= first => exactly(0),
        (_, Some(last)) if last <= place => exactly(all.len() - usize::from(last == place)),
        _ if all.len() > *left => Counted { about: all.len() / 2, most: all.len() },
        _ => {
            *left -= all.len();
            exactly(all.range(..place).count())
        }
    }
}

/// How many, as far as they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// So many, or about.
    pub about: usize,
    /// No more than so many.
    pub most: usize,
}

impl Counted {
    fn and(self, other: Self) -> Self {
        Self { about: self.about + other.about, most: self.most + other.most }
    }
}

impl Pending {
    /// Those who come before everybody, first first.
    fn favourites(&self, order: &Order<'_>) -> [Option<WorkloadId>; 2] {
        let goes_first = match order.turn {
            PreemptorsTurn::First => true,
            PreemptorsTurn::Sticky => order.usage.is_none(),
            PreemptorsTurn::InOrder => false,
        };
        [order.urgent, self.preemptor.filter(|_| goes_first)]
    }

    fn rank<'a>(&self, order: &Order<'_>, place: &'a Place, used: f64) -> Rank<'a> {
        let favourites = self.favourites(order);
        Rank {
            favourite: favourites
                .iter()
                .position(|of| *of == Some(place.workload))
                .unwrap_or(favourites.len()),
            used,
            later: order.turn == PreemptorsTurn::InOrder || self.preemptor != Some(place.workload),
            place,
        }
    }

    /// Who is next of those who may be looked at.
    pub fn head(&self, order: &Order<'_>) -> Option<(Place, ClassKey)> {
        let first = self.heads.first();
        for favourite in self.favourites(order).into_iter().flatten() {
            if order.usage.is_none() && first.is_some_and(|(place, _)| place.workload == favourite) {
                break;
            }
            if let Some(found) = self.find_awake(favourite) {
                return Some(found);
            }
        }
        if order.usage.is_none() {
            return first.cloned();
        }
        let preemptor = self
            .preemptor
            .filter(|_| order.turn == PreemptorsTurn::Sticky)
            .and_then(|id| self.find_awake(id));
        let candidates: Vec<&(Place, ClassKey)> = self.heads.iter().chain(&preemptor).collect();
        let ranked =
            candidates.into_iter().map(|found| (self.rank(order, &found.0, order.used(&found.1.0)), found));
        ranked.min_by(|a, b| a.0.order(&b.0)).map(|(_, found)| found.clone())
    }

    /// Everybody, looked at or not, in order.
    pub fn line(&self, order: &Order<'_>) -> Vec<WorkloadId> {
        let mut uses = Uses::new(order);
        let everybody = self.classes.iter().flat_map(|(key, class)| {
            let used = uses.of(&key.0);
            class.awake.iter().chain(&class.parked).map(move |place| (place, used))
        });
        let mut ranked: Vec<Rank<'_>> =
            everybody.map(|(place, used)| self.rank(order, place, used)).collect();
        ranked.sort_by(Rank::order);
        ranked.into_iter().map(|rank| rank.place.workload).collect()
    }

    /// Who comes first of all, looked at or not. `special` are those who come before everybody, or before who is like them: they
    /// may be anywhere in their classes.
    fn front(&self, order: &Order<'_>, special: &[(ClassKey, Place)]) -> Option<WorkloadId> {
        let mut uses = Uses::new(order);
        let firsts = self.classes.iter().flat_map(|(key, class)| {
            let used = uses.of(&key.0);
            class.awake.first().into_iter().chain(class.parked.first()).map(move |place| (place, used))
        });
        let all = firsts.chain(special.iter().map(|(key, place)| (place, order.used(&key.0))));
        all.map(|(place, used)| self.rank(order, place, used))
            .min_by(Rank::order)
            .map(|rank| rank.place.workload)
    }

    /// How many of each class come before a place of a local queue, and how many there are; and who comes first of all. `special`
    /// are those who come before everybody, or before who is like them, where they wait. `left` are counted one by one.
    fn before(
        &self,
        order: &Order<'_>,
        (place, local_queue): (&Place, &str),
        special: &[(ClassKey, Place)],
        mut left: usize,
    ) -> (Vec<(&ClassKey, Counted, usize)>, Option<WorkloadId>) {
        let mine = self.rank(order, place, order.used(local_queue));
        let favourite = mine.favourite < self.favourites(order).len();
        let all_of = |class: &super::Class| class.awake.len() + class.parked.len();
        let mut uses = Uses::new(order);
        let mut count = |used: f64, class: &super::Class| -> Counted {
            match used.total_cmp(&mine.used) {
                _ if favourite => Counted::default(),
                Ordering::Less => Counted { about: all_of(class), most: all_of(class) },
                Ordering::Equal if mine.later || order.turn == PreemptorsTurn::InOrder => {
                    below(&class.awake, place, &mut left).and(below(&class.parked, place, &mut left))
                }
                Ordering::Equal | Ordering::Greater => Counted::default(),
            }
        };
        let mut front: Option<Rank<'_>> = None;
        let mut all: Vec<(&ClassKey, Counted, usize)> = Vec::with_capacity(self.classes.len());
        for (key, class) in &self.classes {
            let used = uses.of(&key.0);
            for first in class.awake.first().into_iter().chain(class.parked.first()) {
                front = Some(Rank::first(front, self.rank(order, first, used)));
            }
            all.push((key, count(used, class), all_of(class)));
        }
        for (class, one) in special {
            front = Some(Rank::first(front, self.rank(order, one, order.used(&class.0))));
        }
        for (class, other) in special.iter().filter(|(_, other)| other.workload != place.workload) {
            let Some((_, before, _)) = all.iter_mut().find(|(key, ..)| *key == class) else { continue };
            let rank = self.rank(order, other, order.used(&class.0));
            let counted = !favourite
                && match rank.used.total_cmp(&mine.used) {
                    Ordering::Less => true,
                    Ordering::Equal => mine.later && other < place,
                    Ordering::Greater => false,
                };
            let (more, less) = (usize::from(rank.order(&mine).is_lt()), usize::from(counted));
            *before = Counted {
                about: (before.about + more).saturating_sub(less),
                most: (before.most + more).saturating_sub(less),
            };
        }
        (all, front.map(|rank| rank.place.workload))
    }

    /// Whether a workload may be looked at.
    fn is_awake(&self, key: &ClassKey, place: &Place) -> bool {
        self.classes.get(key).is_some_and(|class| !class.asleep && class.awake.contains(place))
    }

    fn contains(&self, key: &ClassKey, place: &Place) -> bool {
        self.classes.get(key).is_some_and(|class| class.awake.contains(place) || class.parked.contains(place))
    }
}

impl Brain {
    /// Asks about a queue's order.
    pub(crate) fn ordered<'a, R>(
        &'a self,
        queue: QueueId,
        ask: impl FnOnce(&'a Pending, &Order<'_>) -> R,
    ) -> R {
        let by_usage = self.orders_by_usage(queue);
        let usage = |local: &str| self.local_usage_value(local);
        let turn =
            match (self.settings.gates.prioritize_preemptors && by_usage, self.queue(queue).setup.strict) {
                // Its victims used less, now that they are gone: by use they would take again what they gave up (simulation seed 900285).
                (true, _) => PreemptorsTurn::First,
                (false, false) => PreemptorsTurn::Sticky,
                (false, true) => PreemptorsTurn::InOrder,
            };
        let order = Order {
            usage: by_usage.then_some(&usage),
            turn,
            urgent: self.starving(queue).filter(|_| by_usage),
        };
        ask(&self.pending[queue.index()], &order)
    }

    /// Everybody who waits in a queue, looked at or not, in the order in which they are looked at.
    pub fn line(&self, queue: QueueId) -> Vec<WorkloadId> {
        self.ordered(queue, Pending::line)
    }

    /// Who comes first in a queue, looked at or not.
    pub fn front(&self, queue: QueueId) -> Option<WorkloadId> {
        let special = self.special(queue);
        self.ordered(queue, |pending, order| pending.front(order, &special))
    }

    /// Those who may come before who is like them, where they wait in a queue.
    fn special(&self, queue: QueueId) -> Vec<(ClassKey, Place)> {
        let pending = &self.pending[queue.index()];
        let all = self
            .starving(queue)
            .into_iter()
            .chain(pending.preemptor)
            .filter(|id| self.workloads.get(id).is_some());
        let mut all: Vec<(ClassKey, Place)> =
            all.map(|id| self.place_of(id)).filter(|(class, place)| pending.contains(class, place)).collect();
        all.dedup();
        all
    }

    /// Who is looked at next.
    pub fn head(&self, queue: QueueId) -> Option<WorkloadId> {
        self.ordered(queue, Pending::head).map(|(place, _)| place.workload)
    }

    /// Who comes before a workload that waits, by class: counted once for all that is asked about it.
    pub fn before(&self, id: WorkloadId) -> Option<Before<'_>> {
        let of = self.workloads.get(&id).filter(|of| of.holding.is_none())?;
        let (class, place) = self.place_of(id);
        let pending = &self.pending[of.queue.index()];
        if !pending.contains(&class, &place) {
            return None;
        }
        let special = self.special(of.queue);
        let (classes, front) = self.ordered(of.queue, |pending, order| {
            pending.before(order, (&place, &class.0), &special, COUNTED_MAX)
        });
        Some(Before { classes, front, local_queue: class.0.clone() })
    }

    /// Where a workload that waits stands in its queue.
    pub fn standing(&self, id: WorkloadId) -> Option<Standing> {
        self.before(id).map(|before| before.standing())
    }

    /// Of each shape how many wait in a queue.
    pub(crate) fn waiting_in(&self, queue: QueueId) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        self.pending[queue.index()]
            .classes
            .iter()
            .map(|((_, shape), class)| (*shape, class.awake.len() + class.parked.len()))
    }

    /// What all pods of a shape ask for of a resource.
    pub(crate) fn asks(&self, shape: ShapeId, resource: ResourceId) -> i64 {
        let shape = self.shape_of(shape);
        (0..shape.pod_sets.len()).map(|at| self.asks_in(shape, at, resource)).fold(0, i64::saturating_add)
    }

    /// What the pods of one set ask for of a resource.
    pub(crate) fn asks_in(&self, shape: &Shape, at: usize, resource: ResourceId) -> i64 {
        let each = if self.pods_resource() == Some(resource) {
            1
        } else {
            amount_of(&shape.pod_sets[at].per_pod, resource).max(0)
        };
        each.saturating_mul(i64::from(shape.count(at)))
    }

    /// Whether a workload comes before others for another reason than its place.
    pub fn comes_before_all(&self, id: WorkloadId) -> bool {
        self.workloads.get(&id).is_some() && (self.starves(id) || self.is_preemptor(id))
    }

    /// Everybody who does.
    pub fn all_special(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        let all = self.all_starving().chain(self.pending.iter().filter_map(|pending| pending.preemptor));
        all.filter(|id| self.comes_before_all(*id))
    }

    /// Whether a workload might be looked at if its queue's head weren't there.
    pub fn is_behind(&self, id: WorkloadId, head: WorkloadId) -> bool {
        let Some(of) = self.workloads.get(&id).filter(|of| of.holding.is_none() && head != id) else {
            return false;
        };
        let (class, place) = self.place_of(id);
        self.pending[of.queue.index()].is_awake(&class, &place)
    }

    /// The head that a workload waits behind: it might be looked at, and isn't as long as its queue's head stays. `None` for
    /// the head itself, and for who was looked at.
    pub fn waits_behind(&self, id: WorkloadId) -> Option<(WorkloadId, HeadStays)> {
        let of = self.workloads.get(&id)?;
        let head = self.head(of.queue).filter(|head| self.is_behind(id, *head))?;
        let stays = if self.starves(head) {
            HeadStays::Starves
        } else if self.is_preemptor(head) {
            HeadStays::Displaces
        } else if self.queue(of.queue).setup.strict {
            HeadStays::Strict
        } else {
            HeadStays::Looked
        };
        Some((head, stays))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(state: &mut u64, sides: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % sides
    }

    /// Twelve of up to three local queues.
    fn crowd(dice: &mut u64) -> (Pending, Vec<(ClassKey, Place)>) {
        let mut pending = Pending::default();
        let mut all: Vec<(ClassKey, Place)> = Vec::new();
        for at in 0..12 {
            let local: Arc<str> = Arc::from(format!("ns/{}", roll(dice, 3)));
            let priority = i64::try_from(roll(dice, 3)).unwrap();
            let key = (
                local,
                ShapeId(u32::try_from(roll(dice, 2)).unwrap() + 2 * u32::try_from(priority).unwrap()),
            );
            let place = Place::new(
                priority,
                i64::try_from(roll(dice, 4)).unwrap(),
                Arc::from(at.to_string()),
                WorkloadId(at),
            );
            pending.push(&key, place.clone());
            all.push((key, place));
        }
        (pending, all)
    }

    /// What isn't counted one by one is reckoned per class, says so, and is never more than said at most.
    #[test]
    fn who_is_too_many_to_be_counted_is_reckoned_and_said_to_be() {
        let (mut counted, mut reckoned) = (0, 0);
        for seed in 0..100 {
            let mut dice = seed;
            let (pending, all) = crowd(&mut dice);
            let order = Order { usage: None, turn: PreemptorsTurn::Sticky, urgent: None };
            let line = pending.line(&order);
            for left in 0..=all.len() {
                for (key, place) in &all {
                    let (before, front) = pending.before(&order, (place, &key.0), &[], left);
                    let is = line.iter().position(|id| *id == place.workload).unwrap();
                    let about: usize = before.iter().map(|(_, n, _)| n.about).sum();
                    let most: usize = before.iter().map(|(_, n, _)| n.most).sum();
                    assert!(is <= most, "seed {seed}, {left} counted: {is} before {place:?}, at most {most}");
                    let exact = Before { classes: before, front, local_queue: key.0.clone() }.standing();
                    assert_eq!((exact.before, exact.of), (about, all.len()));
                    if exact.about {
                        assert!(about < most && left < all.len(), "seed {seed}: all {left} could be counted");
                        reckoned += 1;
                    } else {
                        assert_eq!(about, is, "seed {seed}, {left} counted");
                        counted += 1;
                    }
                }
            }
        }
        assert!(counted > 1_000 && reckoned > 500, "{counted} {reckoned}");
    }

    /// Places are counted as heads are taken one after another.
    #[test]
    fn who_is_at_a_place_is_the_head_when_those_before_it_are_gone() {
        for seed in 0..300 {
            let mut dice = seed;
            let (mut pending, all) = crowd(&mut dice);
            let uses = [0, 1, 2].map(|_| roll(&mut dice, 2) as f64);
            let usage = |local: &str| uses[local[3..].parse::<usize>().unwrap()];
            let by_usage = roll(&mut dice, 2) == 0;
            let one = |dice: &mut u64| {
                (roll(dice, 2) == 0).then(|| WorkloadId(u32::try_from(roll(dice, 12)).unwrap()))
            };
            pending.preemptor = one(&mut dice);
            let urgent = one(&mut dice).filter(|_| by_usage);
            let turn = [PreemptorsTurn::InOrder, PreemptorsTurn::Sticky, PreemptorsTurn::First]
                [usize::try_from(roll(&mut dice, 3)).unwrap()];
            let order = Order { usage: by_usage.then_some(&usage), turn, urgent };
            let special: Vec<(ClassKey, Place)> = all
                .iter()
                .filter(|(_, p)| Some(p.workload) == pending.preemptor || Some(p.workload) == urgent)
                .cloned()
                .collect();
            let line = pending.line(&order);
            assert_eq!(pending.front(&order, &special), line.first().copied());
            for (key, place) in &all {
                let (before, front) = pending.before(&order, (place, &key.0), &special, COUNTED_MAX);
                let before: usize = before.iter().map(|(_, before, _)| before.about).sum();
                assert_eq!(
                    (line[before], front),
                    (place.workload, line.first().copied()),
                    "seed {seed}, {turn:?}, by use {by_usage}: {line:?}"
                );
            }
            let mut taken = Vec::new();
            while let Some((place, key)) = pending.head(&order) {
                // Who preempts stays known as such, as in a cycle.
                let preemptor = pending.preemptor;
                pending.remove(&key, &place);
                pending.preemptor = preemptor;
                taken.push(place.workload);
            }
            assert_eq!(taken, line, "seed {seed}, {turn:?}, by use {by_usage}");
        }
    }
}

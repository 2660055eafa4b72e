use crate::state::preemption_history::{Displaced, PROTECTION, PreemptionHistory};
use meridian_queueing::turns::{DISPLACED_MAX, gave_way};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long nobody else is let into a domain that comes free for a gang that must be in one. Usual stops are over by then, and one that
/// hangs doesn't close a cluster.
pub(crate) const DOMAIN_CLOSED: Millis = Millis::mins(2);

/// For whom each gave way.
pub(crate) type Protections = BTreeMap<Uid, BTreeMap<Uid, Protection>>;

/// That one workload gave way for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Protection {
    /// Until when it counts.
    pub(crate) until: Mono,
    /// How often so far.
    pub(crate) times: u32,
}

/// Room in one cluster that comes free for a workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reservation {
    pub(crate) cluster: ClusterName,
    pub(crate) gang: Arc<Gang>,
    /// Who frees it. They were told to stop, or are expected to end before others where it is kept for who waits too long.
    pub(crate) victims: BTreeSet<Uid>,
    /// Since when it waits, where it waits too long.
    pub(crate) starving: Option<Wall>,
    /// Domains of the cluster in which it comes free.
    pub(crate) domains: Vec<Domain>,
    /// Until when nobody else enters those; none when that is over.
    pub(crate) closed_until: Option<Mono>,
}

/// A domain, by labels of its nodes.
pub(crate) type Domain = BTreeMap<String, String>;

/// Who gave way for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reservations {
    pub(crate) kept: BTreeMap<Uid, Reservation>,
    /// For whom a workload gave way: neither they nor those for whom they gave way in turn may be displaced by it.
    safe: Protections,
    /// Who displaced the same workload as often as it may.
    insistent: BTreeSet<Uid>,
    /// Nothing of that is over before this moment.
    due: Option<Mono>,
    /// Who rests, and for whom it gave up what it had been given.
    pub(crate) rests: BTreeMap<Uid, Uid>,
}

impl Reservations {
    /// As the journal knows it: what is left of each time counts from now.
    pub(crate) fn remembered(displaced: &PreemptionHistory, now: Now) -> Self {
        let mut this = Self::default();
        for (victim, others) in displaced {
            for Displaced { by, times, at } in others.iter().filter(|other| other.counts_at(now.wall)) {
                let left = PROTECTION.saturating_sub(now.wall.since(*at));
                this.safe
                    .entry(*victim)
                    .or_default()
                    .insert(*by, Protection { until: now.mono + left, times: *times });
            }
        }
        this.count();
        this
    }

    /// A workload gives way for another.
    pub(crate) fn displaced(&mut self, victim: Uid, by: Uid, now: Mono) {
        self.due = Some(self.due.map_or(now + PROTECTION, |due| due.min(now + PROTECTION)));
        let way =
            self.safe.entry(victim).or_default().entry(by).or_insert(Protection { until: now, times: 0 });
        *way = Protection { until: now + PROTECTION, times: way.times.saturating_add(1) };
        if way.times >= DISPLACED_MAX {
            self.insistent.insert(by);
        }
    }

    /// A workload rests, so that it doesn't take again what it gave up for another.
    pub(crate) fn rests(&mut self, uid: Uid, by: Uid) {
        self.rests.insert(uid, by);
    }

    /// A workload has rested.
    pub(crate) fn rested(&mut self, uid: Uid) {
        self.rests.remove(&uid);
    }

    /// Whether a workload may displace another, as far as this goes: not if it gave way for it, at however many removes, and
    /// not again and again.
    pub(crate) fn may_displace(&self, uid: Uid, other: Uid) -> bool {
        let in_vain = self.insistent.contains(&uid)
            && self
                .safe
                .get(&other)
                .and_then(|protections| protections.get(&uid))
                .is_some_and(|way| way.times >= DISPLACED_MAX);
        !in_vain && !gave_way(&self.safe, uid, |for_whom| for_whom == other)
    }

    /// Whether it may displace everybody: it gave way for nobody, and displaced nobody too often.
    pub(crate) fn may_displace_all(&self, uid: Uid) -> bool {
        !self.safe.contains_key(&uid) && !self.insistent.contains(&uid)
    }

    /// Forgets what was until now. Names who may displace somebody again.
    pub(crate) fn expire(&mut self, now: Mono) -> Vec<Uid> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let over: BTreeSet<Uid> = self
            .safe
            .iter()
            .filter(|(_, safe)| safe.values().any(|way| way.until <= now))
            .map(|(uid, _)| *uid)
            .collect();
        let mut freed: BTreeSet<Uid> = self
            .safe
            .keys()
            .copied()
            .filter(|uid| over.contains(uid) || gave_way(&self.safe, *uid, |by| over.contains(&by)))
            .collect();
        let insisted =
            |(by, way): (&Uid, &Protection)| (way.until <= now && way.times >= DISPLACED_MAX).then_some(*by);
        freed.extend(self.safe.values().flatten().filter_map(insisted));
        self.safe.retain(|_, safe| {
            safe.retain(|_, way| way.until > now);
            !safe.is_empty()
        });
        self.count();
        freed.into_iter().collect()
    }

    /// Derives from who gave way what is only kept so that it needn't be looked for.
    fn count(&mut self) {
        self.due = self.safe.values().flat_map(BTreeMap::values).map(|way| way.until).min();
        self.insistent = self
            .safe
            .values()
            .flatten()
            .filter(|(_, way)| way.times >= DISPLACED_MAX)
            .map(|(by, _)| *by)
            .collect();
    }

    /// When there is something to forget.
    pub(crate) fn next_deadline(&self) -> Option<Mono> {
        let closed =
            self.kept.values().filter(|kept| !kept.domains.is_empty()).filter_map(|kept| kept.closed_until);
        closed.chain(self.due).min()
    }

    /// Domains of a cluster that come free for others than this workload, which nobody else enters, and for whom.
    pub(crate) fn domains_of_others<'a>(
        &'a self,
        cluster: &'a ClusterName,
        uid: Uid,
    ) -> impl Iterator<Item = (Uid, &'a Domain)> {
        let others = self.kept.iter().filter(move |(other, kept)| {
            **other != uid && kept.cluster == *cluster && kept.closed_until.is_some()
        });
        others.flat_map(|(other, kept)| kept.domains.iter().map(|domain| (*other, domain)))
    }

    /// The same of what is kept in memory.
    pub(crate) fn rights_changed(&mut self, of: Option<Uid>) {
        self.safe.retain(|victim, protections| {
            protections.retain(|by, _| of.is_some_and(|uid| *by != uid));
            of != Some(*victim) && !protections.is_empty()
        });
        self.count();
    }

    /// A workload is over.
    pub(crate) fn forget(&mut self, uid: Uid) {
        self.safe.remove(&uid);
        self.rests.remove(&uid);
    }

    /// For whom room is kept where, who is to free it, and since when it waits too long, if so.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (&Uid, &ClusterName, &BTreeSet<Uid>, Option<Wall>)> {
        self.kept.iter().map(|(uid, kept)| (uid, &kept.cluster, &kept.victims, kept.starving))
    }

    /// Who is safe from whom until when, and who rests for whom.
    pub(crate) fn pairs(&self) -> (&Protections, &BTreeMap<Uid, Uid>) {
        (&self.safe, &self.rests)
    }
}

/// What is kept in a cluster for others.
#[derive(Default)]
pub(crate) struct ReservedCapacity {
    /// For whom.
    pub(crate) uids: Vec<Uid>,
    /// Gangs of those for whom others stop.
    pub(crate) gangs: Vec<Arc<Gang>>,
    /// Owner those are.
    pub(crate) whose: Vec<Uid>,
    /// In which domains, where each must be in some.
    pub(crate) domains: Vec<Vec<Domain>>,
    /// Who is there still, stops, and frees the room.
    pub(crate) victims: BTreeSet<Uid>,
    /// Gangs of those who wait too long.
    pub(crate) starving: Vec<Arc<Gang>>,
    /// Owner those are.
    pub(crate) who_starve: Vec<Uid>,
    /// Who is there still, and is expected to end for them.
    pub(crate) expected: BTreeSet<Uid>,
}

impl ReservedCapacity {
    /// Everybody who frees room.
    pub(crate) fn all_victims(&self) -> BTreeSet<Uid> {
        self.victims.union(&self.expected).copied().collect()
    }

    /// Every gang that room is kept for, and whose it is.
    pub(crate) fn all_of(&self) -> impl Iterator<Item = (Uid, &Arc<Gang>)> {
        self.whose.iter().copied().zip(&self.gangs).chain(self.who_starve.iter().copied().zip(&self.starving))
    }

    /// Whether it is kept for this one as it waits too long.
    pub(crate) fn is_starving(&self, uid: Uid) -> bool {
        self.who_starve.contains(&uid)
    }

    /// Every gang that room is kept for.
    pub(crate) fn all_gangs(&self) -> Vec<Arc<Gang>> {
        self.gangs.iter().chain(&self.starving).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::preemption_history;
    use crate::state::preemption_history::PREEMPTORS_MAX;

    const ONE: Uid = Uid(1);
    const TWO: Uid = Uid(2);
    const THREE: Uid = Uid(3);

    #[test]
    fn displacing_goes_round_in_no_circle_whatever_its_length() {
        let mut protections = Reservations::default();
        protections.displaced(ONE, TWO, Mono(0));
        assert!(!protections.may_displace(ONE, TWO) && protections.may_displace(TWO, ONE));
        assert!(protections.may_displace(ONE, THREE));
        protections.displaced(TWO, THREE, Mono(1_000));
        assert!(!protections.may_displace(ONE, THREE), "it gave way for who gave way for it, later");
        assert!(protections.may_displace(THREE, ONE));
        assert_eq!(protections.expire(Mono(999) + PROTECTION), [ONE]);
        assert!(protections.may_displace(ONE, THREE) && !protections.may_displace(TWO, THREE));
        assert_eq!(protections.next_deadline(), Some(Mono(1_000) + PROTECTION));
    }

    #[test]
    fn who_may_displace_again_is_named_at_every_remove() {
        let mut protections = Reservations::default();
        protections.displaced(TWO, THREE, Mono(0));
        protections.displaced(ONE, TWO, Mono(1_000));
        assert_eq!(protections.expire(Mono(0) + PROTECTION), [ONE, TWO]);
        assert!(protections.may_displace(ONE, THREE) && !protections.may_displace(ONE, TWO));
        protections.forget(ONE);
        assert!(protections.safe.is_empty());
    }

    #[test]
    fn a_new_leadership_goes_on_with_what_is_left() {
        let mut known = PreemptionHistory::new();
        preemption_history::note(&mut known, ONE, TWO, Wall(0));
        preemption_history::note(&mut known, ONE, TWO, Wall(1_000));
        preemption_history::note(&mut known, ONE, THREE, Wall(2_000));
        assert_eq!(
            known[&ONE].iter().map(|other| (other.by, other.times)).collect::<Vec<_>>(),
            [(TWO, 2), (THREE, 1)]
        );
        let now = |wall: i64| Now { mono: Mono(7), wall: Wall(wall) };
        let mut protections = Reservations::remembered(&known, now(61_000));
        assert!(
            !protections.may_displace_all(TWO)
                && !protections.may_displace(TWO, ONE)
                && protections.may_displace(THREE, ONE)
                && !protections.may_displace(ONE, THREE)
        );
        assert_eq!(protections.next_deadline(), Some(Mono(7) + Millis::mins(9)));
        assert_eq!(protections.expire(Mono(7) + Millis::mins(9)), [ONE, TWO]);
        // A calendar that was put back makes it no longer than a whole time.
        assert_eq!(Reservations::remembered(&known, now(-5_000)).next_deadline(), Some(Mono(7) + PROTECTION));
        assert!(Reservations::remembered(&known, now(602_000)).safe.is_empty());
        preemption_history::note(&mut known, ONE, THREE, Wall(601_500));
        assert_eq!(
            known[&ONE],
            [Displaced { by: THREE, times: 2, at: Wall(601_500) }],
            "older ones don't count"
        );
        preemption_history::forget_old(&mut known, Wall(1_300_000));
        assert!(known.is_empty());
        (0..100).for_each(|by| preemption_history::note(&mut known, ONE, Uid(by), Wall(0)));
        assert_eq!(known[&ONE].len(), PREEMPTORS_MAX);
    }

    #[test]
    fn nobody_is_displaced_by_the_same_one_again_and_again() {
        let mut protections = Reservations::default();
        protections.displaced(ONE, TWO, Mono(0));
        assert!(
            protections.may_displace(TWO, ONE) && protections.may_displace_all(TWO),
            "once may have been in vain"
        );
        protections.displaced(ONE, TWO, Mono(1_000));
        assert!(
            !protections.may_displace_all(TWO)
                && !protections.may_displace(TWO, ONE)
                && protections.may_displace(TWO, THREE)
        );
        assert_eq!(protections.expire(Mono(999) + PROTECTION), [], "it counts from the last time");
        assert_eq!(protections.expire(Mono(1_000) + PROTECTION), [ONE, TWO]);
        assert!(protections.may_displace_all(TWO));
    }
}

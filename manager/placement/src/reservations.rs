//! Capacity reserved for single workloads, and protection of preemptors from their victims.
//!
//! Capacity that victims free is reserved for their preemptor until it starts. Otherwise a smaller workload
//! could take it first, and the victims would have stopped for nothing. The starvation guard reserves
//! capacity in the same way for workloads that have waited too long. It stops no victims, but waits for
//! workloads that are expected to end.
//!
//! Reservations are not durable: after a restart, free capacity goes to the first workload that fits.
//! Protection is rebuilt from the durable [preemption history](crate::preemption_history).

use crate::preemption_history::{PROTECTION, PreemptionHistory, RecentPreemption};
use meridian_queueing::preemption_cycles::{PREEMPTIONS_MAX, was_preempted_for};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a topology domain stays closed to other workloads while victims in it stop. Covers a normal grace
/// period; a victim that hangs must not close the domain for longer.
pub const DOMAIN_CLOSED: Millis = Millis::mins(2);

/// Protected preemptors by victim.
pub type Protections = BTreeMap<Uid, BTreeMap<Uid, Protection>>;

/// Protection of one preemptor from one of its victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protection {
    pub until: Mono,
    /// How often the victim was preempted by this preemptor.
    pub times: u32,
}

/// Capacity in one cluster, reserved for one workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    pub cluster: ClusterName,
    pub gang: Arc<Gang>,
    /// Workloads that free the capacity: victims that were ordered to stop or, if `starving`, workloads that
    /// are expected to end first.
    pub victims: BTreeSet<Uid>,
    /// Start of the workload's wait, if the starvation guard made the reservation.
    pub starving: Option<Wall>,
    /// Topology domains in which the capacity comes free.
    pub domains: Vec<Domain>,
    /// Time until which the domains are closed to other workloads. `None` if they are open.
    pub closed_until: Option<Mono>,
}

/// A topology domain: the labels that its nodes share.
pub type Domain = BTreeMap<String, String>;

/// All reservations and protections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reservations {
    /// By the workload that the capacity is reserved for.
    kept: BTreeMap<Uid, Reservation>,
    protections: Protections,
    /// Derived from `protections`: workloads that preempted some other workload as often as is allowed.
    repeat_preemptors: BTreeSet<Uid>,
    /// Derived from `protections`: the earliest end of a protection.
    next_expiry: Option<Mono>,
    /// Victims in backoff, each with its preemptor.
    rests: BTreeMap<Uid, Uid>,
}

impl Reservations {
    /// Restores protections from the durable history, without reservations. Each protection lasts as long as
    /// its preemption counts.
    pub fn remembered(history: &PreemptionHistory, now: Now) -> Self {
        let mut this = Self::default();
        for (victim, preemptors) in history {
            for RecentPreemption { by, times, at } in
                preemptors.iter().filter(|preemptor| preemptor.counts_at(now.wall))
            {
                let left = PROTECTION.saturating_sub(now.wall.since(*at));
                this.protections
                    .entry(*victim)
                    .or_default()
                    .insert(*by, Protection { until: now.mono + left, times: *times });
            }
        }
        this.update_derived();
        this
    }

    /// The reservation for a workload.
    pub fn of(&self, uid: Uid) -> Option<&Reservation> {
        self.kept.get(&uid)
    }

    /// All reservations, by the workload that the capacity is reserved for.
    pub fn iter(&self) -> impl Iterator<Item = (Uid, &Reservation)> {
        self.kept.iter().map(|(uid, reservation)| (*uid, reservation))
    }

    /// Reserves capacity for a workload, in place of an earlier reservation.
    pub fn keep(&mut self, uid: Uid, reservation: Reservation) {
        self.kept.insert(uid, reservation);
    }

    /// Ends the reservation for a workload, and returns it.
    pub fn release(&mut self, uid: Uid) -> Option<Reservation> {
        self.kept.remove(&uid)
    }

    /// Opens the domains that were closed for long enough. Returns whether there were any.
    pub fn open_domains(&mut self, now: Mono) -> bool {
        let mut opened = false;
        for reservation in self.kept.values_mut() {
            if reservation.closed_until.is_some_and(|until| until <= now) {
                reservation.closed_until = None;
                opened |= !reservation.domains.is_empty();
            }
        }
        opened
    }

    /// Victims in backoff, each with its preemptor.
    pub fn resting(&self) -> impl Iterator<Item = (Uid, Uid)> {
        self.rests.iter().map(|(uid, by)| (*uid, *by))
    }

    /// Whether the workload was preempted and backs off.
    pub fn is_resting(&self, uid: Uid) -> bool {
        self.rests.contains_key(&uid)
    }

    /// Records that `by` preempted `victim`.
    pub fn note_preemption(&mut self, victim: Uid, by: Uid, now: Mono) {
        let until = now + PROTECTION;
        self.next_expiry = Some(self.next_expiry.map_or(until, |next| next.min(until)));
        let protection = self
            .protections
            .entry(victim)
            .or_default()
            .entry(by)
            .or_insert(Protection { until: now, times: 0 });
        *protection = Protection { until, times: protection.times.saturating_add(1) };
        if protection.times >= PREEMPTIONS_MAX {
            self.repeat_preemptors.insert(by);
        }
    }

    /// Records that a victim is in backoff, so that it doesn't regain the capacity that it released for its
    /// preemptor.
    pub fn rests(&mut self, uid: Uid, by: Uid) {
        self.rests.insert(uid, by);
    }

    /// Records that the backoff of a victim is over.
    pub fn rested(&mut self, uid: Uid) {
        self.rests.remove(&uid);
    }

    /// Whether the history lets `uid` preempt `other`: `uid` wasn't preempted for `other`, directly or
    /// through other preemptors, and hasn't preempted `other` too often.
    pub fn may_preempt(&self, uid: Uid, other: Uid) -> bool {
        let too_often = self.repeat_preemptors.contains(&uid)
            && self
                .protections
                .get(&other)
                .and_then(|protections| protections.get(&uid))
                .is_some_and(|protection| protection.times >= PREEMPTIONS_MAX);
        !too_often && !was_preempted_for(&self.protections, uid, |preemptor| preemptor == other)
    }

    /// Whether the history lets `uid` preempt every workload. Then [`Self::may_preempt`] needn't be asked.
    pub fn may_preempt_all(&self, uid: Uid) -> bool {
        !self.protections.contains_key(&uid) && !self.repeat_preemptors.contains(&uid)
    }

    /// Drops protections that have ended. Returns the workloads that may preempt more workloads than before,
    /// so that the caller evaluates them again.
    pub fn expire(&mut self, now: Mono) -> Vec<Uid> {
        if self.next_expiry.is_none_or(|due| due > now) {
            return Vec::new();
        }
        // Victims whose preemptors are no longer protected. They may preempt again, as may workloads that
        // were preempted for them.
        let released: BTreeSet<Uid> = self
            .protections
            .iter()
            .filter(|(_, preemptors)| preemptors.values().any(|protection| protection.until <= now))
            .map(|(victim, _)| *victim)
            .collect();
        let mut freed: BTreeSet<Uid> = self
            .protections
            .keys()
            .copied()
            .filter(|victim| {
                released.contains(victim)
                    || was_preempted_for(&self.protections, *victim, |by| released.contains(&by))
            })
            .collect();
        let was_repeat_preemptor = |(by, protection): (&Uid, &Protection)| {
            (protection.until <= now && protection.times >= PREEMPTIONS_MAX).then_some(*by)
        };
        freed.extend(self.protections.values().flatten().filter_map(was_repeat_preemptor));
        self.protections.retain(|_, preemptors| {
            preemptors.retain(|_, protection| protection.until > now);
            !preemptors.is_empty()
        });
        self.update_derived();
        freed.into_iter().collect()
    }

    /// Recomputes the fields that are derived from `protections`.
    fn update_derived(&mut self) {
        let all = self.protections.values().flat_map(BTreeMap::values);
        self.next_expiry = all.map(|protection| protection.until).min();
        self.repeat_preemptors = self
            .protections
            .values()
            .flatten()
            .filter(|(_, protection)| protection.times >= PREEMPTIONS_MAX)
            .map(|(by, _)| *by)
            .collect();
    }

    /// When a protection ends or a closed domain opens.
    pub fn next_deadline(&self) -> Option<Mono> {
        let with_domains = self.kept.values().filter(|reservation| !reservation.domains.is_empty());
        with_domains.filter_map(|reservation| reservation.closed_until).chain(self.next_expiry).min()
    }

    /// Domains of a cluster that are closed to this workload, each with the workload that they are reserved
    /// for.
    pub fn domains_of_others<'a>(
        &'a self,
        cluster: &'a ClusterName,
        uid: Uid,
    ) -> impl Iterator<Item = (Uid, &'a Domain)> {
        let others = self.kept.iter().filter(move |(other, reservation)| {
            **other != uid && reservation.cluster == *cluster && reservation.closed_until.is_some()
        });
        others.flat_map(|(other, reservation)| reservation.domains.iter().map(|domain| (*other, domain)))
    }

    /// Drops protections that involve one workload, or all protections, because a user changed a priority or
    /// a quota.
    pub fn rights_changed(&mut self, of: Option<Uid>) {
        self.protections.retain(|victim, preemptors| {
            preemptors.retain(|by, _| of.is_some_and(|uid| *by != uid));
            of != Some(*victim) && !preemptors.is_empty()
        });
        self.update_derived();
    }

    /// Drops the protections from a workload that has ended, and its backoff.
    pub fn forget(&mut self, uid: Uid) {
        self.protections.remove(&uid);
        self.rests.remove(&uid);
    }

    /// Every reservation: its workload, cluster, victims, and since when the workload has starved.
    pub fn kept(&self) -> impl Iterator<Item = (&Uid, &ClusterName, &BTreeSet<Uid>, Option<Wall>)> {
        self.kept
            .iter()
            .map(|(uid, reservation)| (uid, &reservation.cluster, &reservation.victims, reservation.starving))
    }

    /// For fingerprints: protections, and victims in backoff with their preemptors.
    pub fn pairs(&self) -> (&Protections, &BTreeMap<Uid, Uid>) {
        (&self.protections, &self.rests)
    }
}

/// Capacity of one cluster that is reserved for workloads other than the one in question.
#[derive(Default, Debug)]
pub struct ReservedCapacity {
    /// All workloads with a reservation.
    pub uids: Vec<Uid>,
    /// Gangs of preemptors with a reservation.
    pub gangs: Vec<Arc<Gang>>,
    /// The preemptors, in the order of `gangs`.
    pub preemptors: Vec<Uid>,
    /// Topology domains reserved for each preemptor, in the order of `gangs`.
    pub domains: Vec<Vec<Domain>>,
    /// Victims that still run in the cluster.
    pub victims: BTreeSet<Uid>,
    /// Gangs of starved workloads with a reservation.
    pub starving: Vec<Arc<Gang>>,
    /// The starved workloads, in the order of `starving`.
    pub starving_uids: Vec<Uid>,
    /// Workloads that still run in the cluster and are expected to end for a starved workload.
    pub expected: BTreeSet<Uid>,
}

impl ReservedCapacity {
    /// All workloads that free reserved capacity.
    pub fn all_victims(&self) -> BTreeSet<Uid> {
        self.victims.union(&self.expected).copied().collect()
    }

    /// All gangs with a reservation, each with its workload.
    pub fn all_of(&self) -> impl Iterator<Item = (Uid, &Arc<Gang>)> {
        self.preemptors
            .iter()
            .copied()
            .zip(&self.gangs)
            .chain(self.starving_uids.iter().copied().zip(&self.starving))
    }

    /// Whether this workload has a reservation because it starved.
    pub fn is_starving(&self, uid: Uid) -> bool {
        self.starving_uids.contains(&uid)
    }

    /// All gangs with a reservation.
    pub fn all_gangs(&self) -> Vec<Arc<Gang>> {
        self.gangs.iter().chain(&self.starving).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preemption_history;
    use crate::preemption_history::PREEMPTORS_MAX;

    const ONE: Uid = Uid(1);
    const TWO: Uid = Uid(2);
    const THREE: Uid = Uid(3);

    #[test]
    fn preemption_cycles_of_any_length_are_prevented() {
        let mut reservations = Reservations::default();
        reservations.note_preemption(ONE, TWO, Mono(0));
        assert!(!reservations.may_preempt(ONE, TWO) && reservations.may_preempt(TWO, ONE));
        assert!(reservations.may_preempt(ONE, THREE));
        reservations.note_preemption(TWO, THREE, Mono(1_000));
        assert!(
            !reservations.may_preempt(ONE, THREE),
            "ONE was preempted by TWO, which THREE preempted later"
        );
        assert!(reservations.may_preempt(THREE, ONE));
        assert_eq!(reservations.expire(Mono(999) + PROTECTION), [ONE]);
        assert!(reservations.may_preempt(ONE, THREE) && !reservations.may_preempt(TWO, THREE));
        assert_eq!(reservations.next_deadline(), Some(Mono(1_000) + PROTECTION));
    }

    #[test]
    fn expiry_returns_indirect_victims_too() {
        let mut reservations = Reservations::default();
        reservations.note_preemption(TWO, THREE, Mono(0));
        reservations.note_preemption(ONE, TWO, Mono(1_000));
        assert_eq!(reservations.expire(Mono(0) + PROTECTION), [ONE, TWO]);
        assert!(reservations.may_preempt(ONE, THREE) && !reservations.may_preempt(ONE, TWO));
        reservations.forget(ONE);
        assert!(reservations.protections.is_empty());
    }

    #[test]
    fn a_new_leadership_continues_the_protection_time() {
        let mut history = PreemptionHistory::new();
        preemption_history::note(&mut history, ONE, TWO, Wall(0));
        preemption_history::note(&mut history, ONE, TWO, Wall(1_000));
        preemption_history::note(&mut history, ONE, THREE, Wall(2_000));
        assert_eq!(
            history[&ONE].iter().map(|preemptor| (preemptor.by, preemptor.times)).collect::<Vec<_>>(),
            [(TWO, 2), (THREE, 1)]
        );
        let now = |wall: i64| Now { mono: Mono(7), wall: Wall(wall) };
        let mut reservations = Reservations::remembered(&history, now(61_000));
        assert!(
            !reservations.may_preempt_all(TWO)
                && !reservations.may_preempt(TWO, ONE)
                && reservations.may_preempt(THREE, ONE)
                && !reservations.may_preempt(ONE, THREE)
        );
        assert_eq!(reservations.next_deadline(), Some(Mono(7) + Millis::mins(9)));
        assert_eq!(reservations.expire(Mono(7) + Millis::mins(9)), [ONE, TWO]);
        // A wall clock that was set back doesn't lengthen the protection.
        assert_eq!(
            Reservations::remembered(&history, now(-5_000)).next_deadline(),
            Some(Mono(7) + PROTECTION)
        );
        assert!(Reservations::remembered(&history, now(602_000)).protections.is_empty());
        preemption_history::note(&mut history, ONE, THREE, Wall(601_500));
        assert_eq!(
            history[&ONE],
            [RecentPreemption { by: THREE, times: 2, at: Wall(601_500) }],
            "older preemptions don't count"
        );
        preemption_history::forget_old(&mut history, Wall(1_300_000));
        assert!(history.is_empty());
        (0..100).for_each(|by| preemption_history::note(&mut history, ONE, Uid(by), Wall(0)));
        assert_eq!(history[&ONE].len(), PREEMPTORS_MAX);
    }

    #[test]
    fn a_workload_is_not_preempted_repeatedly_by_the_same_one() {
        let mut reservations = Reservations::default();
        reservations.note_preemption(ONE, TWO, Mono(0));
        assert!(
            reservations.may_preempt(TWO, ONE) && reservations.may_preempt_all(TWO),
            "one preemption may not have sufficed"
        );
        reservations.note_preemption(ONE, TWO, Mono(1_000));
        assert!(
            !reservations.may_preempt_all(TWO)
                && !reservations.may_preempt(TWO, ONE)
                && reservations.may_preempt(TWO, THREE)
        );
        assert_eq!(
            reservations.expire(Mono(999) + PROTECTION),
            [],
            "protection counts from the last preemption"
        );
        assert_eq!(reservations.expire(Mono(1_000) + PROTECTION), [ONE, TWO]);
        assert!(reservations.may_preempt_all(TWO));
    }
}

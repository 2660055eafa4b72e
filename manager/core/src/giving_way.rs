//! What follows when workloads are told to stop for another: the room that they free is kept for it, and for a while it is safe
//! from them.
//!
//! Who displaced whom is in the journal, and a new leadership goes on counting what its predecessor counted. Where people decide anew, by
//! another priority or another quota, what was before counts no more. The room that is
//! kept is memory, not state: after a restart it is given to whoever comes first.
//!
//! What is kept for who waits too long is kept in the same way: only that nobody was told to stop for it.

use crate::{Workload, World};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::turns::{DISPLACED_MAX, gave_way};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a workload is safe from those whom it displaced, and from those who gave way for them: one round is paid for by
/// work that is thrown away, so rights that contradict each other must not go round and round (simulation seeds 1983, 102205).
const SAFE_FOR: Millis = Millis::mins(10);

/// How long nobody else is let into a domain that comes free for a gang that must be in one. Usual stops are over by then, and one that
/// hangs doesn't close a cluster.
const NEAR_FOR: Millis = Millis::mins(2);

/// Of how many others that displaced it a workload is remembered; the oldest go first.
const DISPLACERS_MAX: usize = 32;

/// That one workload was displaced by another, as the journal knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Displaced {
    /// For whom.
    pub by: Uid,
    /// How often, each time within [`SAFE_FOR`] of the one before.
    pub times: u32,
    /// The last time.
    pub at: Wall,
}

impl Displaced {
    fn counts_at(&self, now: Wall) -> bool {
        now.since(self.at) < SAFE_FOR
    }
}

/// By whom each was displaced.
pub(crate) type Displacements = BTreeMap<Uid, Vec<Displaced>>;

/// Notes that a workload is displaced.
pub(crate) fn note(displaced: &mut Displacements, victim: Uid, by: Uid, at: Wall) {
    let others = displaced.entry(victim).or_default();
    others.retain(|other| other.counts_at(at));
    let times = others.iter().position(|other| other.by == by).map_or(0, |known| others.remove(known).times);
    others.push(Displaced { by, times: times.saturating_add(1), at });
    if others.len() > DISPLACERS_MAX {
        others.remove(0);
    }
}

/// Forgets what no longer counts.
pub(crate) fn forget_old(displaced: &mut Displacements, now: Wall) {
    displaced.retain(|_, others| {
        others.retain(|other| other.counts_at(now));
        !others.is_empty()
    });
}

/// Forgets what was with one workload, or with all: who may displace whom was decided by people anew.
pub(crate) fn rights_changed(displaced: &mut Displacements, of: Option<Uid>) {
    displaced.retain(|victim, others| {
        others.retain(|other| of.is_some_and(|uid| other.by != uid));
        of != Some(*victim) && !others.is_empty()
    });
}

/// For whom each gave way.
pub(crate) type Safe = BTreeMap<Uid, BTreeMap<Uid, Way>>;

/// That one workload gave way for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    /// Until when it counts.
    pub(crate) until: Mono,
    /// How often so far.
    pub(crate) times: u32,
}

/// Room in one cluster that comes free for a workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    cluster: ClusterName,
    gang: Arc<Gang>,
    /// Who frees it. They were told to stop, or are expected to end before others where it is kept for who waits too long.
    victims: BTreeSet<Uid>,
    /// Since when it waits, where it waits too long.
    starving: Option<Wall>,
    /// Domains of the cluster in which it comes free.
    domains: Vec<Domain>,
    /// Until when nobody else enters those; none when that is over.
    closed_until: Option<Mono>,
}

/// A domain, by labels of its nodes.
pub(crate) type Domain = BTreeMap<String, String>;

/// Who gave way for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct GivingWay {
    kept: BTreeMap<Uid, Kept>,
    /// For whom a workload gave way: neither they nor those for whom they gave way in turn may be displaced by it.
    safe: Safe,
    /// Who displaced the same workload as often as it may.
    insistent: BTreeSet<Uid>,
    /// Nothing of that is over before this moment.
    due: Option<Mono>,
    /// Who rests, and for whom it gave up what it had been given.
    rests: BTreeMap<Uid, Uid>,
}

impl GivingWay {
    /// As the journal knows it: what is left of each time counts from now.
    pub(crate) fn remembered(displaced: &Displacements, now: Now) -> Self {
        let mut this = Self::default();
        for (victim, others) in displaced {
            for Displaced { by, times, at } in others.iter().filter(|other| other.counts_at(now.wall)) {
                let left = SAFE_FOR.saturating_sub(now.wall.since(*at));
                this.safe
                    .entry(*victim)
                    .or_default()
                    .insert(*by, Way { until: now.mono + left, times: *times });
            }
        }
        this.count();
        this
    }

    /// A workload gives way for another.
    pub(crate) fn displaced(&mut self, victim: Uid, by: Uid, now: Mono) {
        self.due = Some(self.due.map_or(now + SAFE_FOR, |due| due.min(now + SAFE_FOR)));
        let way = self.safe.entry(victim).or_default().entry(by).or_insert(Way { until: now, times: 0 });
        *way = Way { until: now + SAFE_FOR, times: way.times.saturating_add(1) };
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
                .and_then(|ways| ways.get(&uid))
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
            |(by, way): (&Uid, &Way)| (way.until <= now && way.times >= DISPLACED_MAX).then_some(*by);
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
        self.safe.retain(|victim, ways| {
            ways.retain(|by, _| of.is_some_and(|uid| *by != uid));
            of != Some(*victim) && !ways.is_empty()
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
    pub(crate) fn pairs(&self) -> (&Safe, &BTreeMap<Uid, Uid>) {
        (&self.safe, &self.rests)
    }
}

/// What is kept in a cluster for others.
#[derive(Default)]
pub(crate) struct KeptRoom {
    /// For whom.
    pub(crate) uids: Vec<Uid>,
    /// Gangs of those for whom others stop.
    pub(crate) gangs: Vec<Arc<Gang>>,
    /// Whose those are.
    whose: Vec<Uid>,
    /// In which domains, where each must be in some.
    pub(crate) domains: Vec<Vec<Domain>>,
    /// Who is there still, stops, and frees the room.
    pub(crate) victims: BTreeSet<Uid>,
    /// Gangs of those who wait too long.
    pub(crate) starving: Vec<Arc<Gang>>,
    /// Whose those are.
    who_starve: Vec<Uid>,
    /// Who is there still, and is expected to end for them.
    pub(crate) expected: BTreeSet<Uid>,
}

impl KeptRoom {
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

impl World {
    /// People gave a workload another priority, or queues other quota or policies: it is seen anew who may displace whom.
    pub(crate) fn rights_changed(&mut self, of: Option<Uid>) {
        rights_changed(&mut self.state.displaced, of);
        self.live.giving_way.rights_changed(of);
    }

    /// What is kept in a cluster for others than this workload. Of two that wait too long, the longer one comes first.
    pub(crate) fn kept_room(&self, cluster: &ClusterName, uid: Uid) -> KeptRoom {
        let starving = self.live.giving_way.kept.get(&uid).and_then(|kept| kept.starving);
        self.kept_room_before(cluster, uid, starving.map(|since| (since, uid)))
    }

    /// The same for one that waits too long, if it does, since the given moment.
    pub(crate) fn kept_room_before(
        &self,
        cluster: &ClusterName,
        uid: Uid,
        rank: Option<(Wall, Uid)>,
    ) -> KeptRoom {
        let mut room = KeptRoom::default();
        for (other, kept) in self
            .live
            .giving_way
            .kept
            .iter()
            .filter(|(other, kept)| **other != uid && kept.cluster == *cluster)
        {
            let there = kept.victims.iter().filter(|victim| self.runs_in(**victim, cluster));
            match kept.starving {
                Some(since) if rank.is_some_and(|rank| rank < (since, *other)) => continue,
                Some(_) => {
                    room.starving.push(kept.gang.clone());
                    room.who_starve.push(*other);
                    room.expected.extend(there);
                }
                None => {
                    room.gangs.push(kept.gang.clone());
                    room.whose.push(*other);
                    room.domains.push(kept.domains.clone());
                    room.victims.extend(there);
                }
            }
            room.uids.push(*other);
        }
        room
    }

    /// Where room is kept for a workload, and whether because it waits too long.
    pub(crate) fn kept_for(&self, uid: Uid) -> Option<(&ClusterName, bool)> {
        self.live.giving_way.kept.get(&uid).map(|kept| (&kept.cluster, kept.starving.is_some()))
    }

    /// Where room is kept for a workload that waits too long, and who is expected to end there for it.
    pub(crate) fn expected_for(&self, uid: Uid) -> Option<(&ClusterName, Vec<Uid>)> {
        let kept = self.live.giving_way.kept.get(&uid).filter(|kept| kept.starving.is_some())?;
        Some((
            &kept.cluster,
            kept.victims.iter().copied().filter(|victim| self.runs_in(*victim, &kept.cluster)).collect(),
        ))
    }

    /// Keeps room in a cluster for a workload, as long as any of the victims is there, and for a while all of the domains in which it
    /// comes free.
    pub(crate) fn keep_room(
        &mut self,
        uid: Uid,
        (cluster, domains): (ClusterName, Vec<Domain>),
        gang: Arc<Gang>,
        victims: BTreeSet<Uid>,
        now: Mono,
    ) {
        let before = self
            .live
            .giving_way
            .kept
            .get(&uid)
            .filter(|before| before.cluster == cluster && before.starving.is_none());
        let closed_until = before.map_or(Some(now + NEAR_FOR), |before| before.closed_until);
        self.keep(uid, Kept { cluster, gang, victims, starving: None, domains, closed_until });
    }

    /// Keeps room in a cluster for a workload, as long as it waits too long.
    pub(crate) fn keep_room_for_the_starving(
        &mut self,
        uid: Uid,
        since: Wall,
        cluster: ClusterName,
        gang: Arc<Gang>,
        expected: BTreeSet<Uid>,
    ) {
        self.keep(
            uid,
            Kept {
                cluster,
                gang,
                victims: expected,
                starving: Some(since),
                domains: Vec::new(),
                closed_until: None,
            },
        );
    }

    fn keep(&mut self, uid: Uid, kept: Kept) {
        // Who starves comes before others from now on. And where others end for it, what is free now may be room for who was told
        // that it is kept (simulation seeds 409, 5003356).
        let same = |before: &Kept| {
            (&before.cluster, &before.gang, before.starving) == (&kept.cluster, &kept.gang, kept.starving)
                && kept.victims.is_subset(&before.victims)
        };
        self.live.stirred |=
            self.live.giving_way.kept.get(&uid).map_or(kept.starving.is_some(), |before| !same(before));
        let Kept { cluster, gang, .. } = &kept;
        if self.live.giving_way.kept.get(&uid).is_some_and(|before| before.cluster != *cluster) {
            self.let_room_of_go(uid);
        }
        if let Some(live) = self.live.clusters.get_mut(cluster) {
            live.rooms.keep(uid, gang.clone());
            self.live.giving_way.kept.insert(uid, kept);
        }
    }

    /// What was kept in a cluster is kept in its new session.
    pub(crate) fn keep_room_again(&mut self, cluster: &ClusterName) {
        let Some(live) = self.live.clusters.get_mut(cluster) else { return };
        for (uid, kept) in self.live.giving_way.kept.iter().filter(|(_, kept)| kept.cluster == *cluster) {
            live.rooms.keep(*uid, kept.gang.clone());
        }
    }

    /// A workload no longer needs what is kept for it. True where anything was.
    pub(crate) fn let_room_of_go(&mut self, uid: Uid) -> bool {
        let Some(kept) = self.live.giving_way.kept.remove(&uid) else { return false };
        if let Some(live) = self.live.clusters.get_mut(&kept.cluster) {
            live.rooms.let_go(uid);
        }
        true
    }

    /// Whether a workload has the right to run in this cluster.
    pub(crate) fn runs_in(&self, uid: Uid, cluster: &ClusterName) -> bool {
        self.state.workloads.get(&uid).and_then(World::right).is_some_and(|(_, leg)| leg.cluster == *cluster)
    }

    /// A workload as people know it: its namespace and name.
    pub(crate) fn name_of(&self, uid: Uid) -> String {
        self.state
            .workloads
            .get(&uid)
            .map_or_else(|| uid.to_string(), |w| format!("{}/{}", w.namespace, w.name))
    }

    /// The gang of a workload: as it was submitted, or as much of it as it was given.
    pub(crate) fn gang_of(&self, uid: Uid) -> Option<Arc<Gang>> {
        self.state.workloads.get(&uid).map(|w| w.gang(self.queues.class(w.class)))
    }

    /// Nobody rests for who no longer waits.
    pub(crate) fn let_rests_end(&mut self) {
        let over: Vec<Uid> = self
            .live
            .giving_way
            .rests
            .iter()
            .filter(|(_, by)| !self.waits(**by))
            .map(|(uid, _)| *uid)
            .collect();
        for uid in over {
            self.live.giving_way.rested(uid);
            if self.live.not_before.remove(&uid).is_some() {
                self.deciding.touch(uid);
            }
        }
    }

    /// Those for whom others rest.
    pub(crate) fn rested_for(&self) -> BTreeSet<WorkloadId> {
        self.live.giving_way.rests.values().filter_map(|by| self.deciding.id(*by)).collect()
    }

    fn waits(&self, uid: Uid) -> bool {
        let waits =
            self.deciding.id(uid).is_some() && self.state.workloads.get(&uid).is_some_and(Workload::waits);
        waits || self.deciding.growth(uid).is_some()
    }

    /// Room is kept only for who still waits, and as long as anybody is still to give way or it waits too long. True where some
    /// was let go.
    pub(crate) fn let_room_go(&mut self, now: Mono) -> bool {
        let mut opened = false;
        for kept in self
            .live
            .giving_way
            .kept
            .values_mut()
            .filter(|kept| kept.closed_until.is_some_and(|until| until <= now))
        {
            kept.closed_until = None;
            opened |= !kept.domains.is_empty();
        }
        let over = |(uid, kept): (&Uid, &Kept)| {
            let freeing = kept
                .victims
                .iter()
                .any(|victim| self.state.workloads.get(victim).is_some_and(|w| w.phase.charged()));
            let starves = self.deciding.id(*uid).is_some_and(|id| self.deciding.brain().starves(id));
            let goes_on = if kept.starving.is_some() { starves } else { freeing };
            (!self.waits(*uid) || !goes_on).then_some(*uid)
        };
        let over: Vec<Uid> = self.live.giving_way.kept.iter().filter_map(over).collect();
        over.into_iter().filter(|uid| self.let_room_of_go(*uid)).count() > 0 || opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Uid = Uid(1);
    const TWO: Uid = Uid(2);
    const THREE: Uid = Uid(3);

    #[test]
    fn displacing_goes_round_in_no_circle_whatever_its_length() {
        let mut ways = GivingWay::default();
        ways.displaced(ONE, TWO, Mono(0));
        assert!(!ways.may_displace(ONE, TWO) && ways.may_displace(TWO, ONE));
        assert!(ways.may_displace(ONE, THREE));
        ways.displaced(TWO, THREE, Mono(1_000));
        assert!(!ways.may_displace(ONE, THREE), "it gave way for who gave way for it, later");
        assert!(ways.may_displace(THREE, ONE));
        assert_eq!(ways.expire(Mono(999) + SAFE_FOR), [ONE]);
        assert!(ways.may_displace(ONE, THREE) && !ways.may_displace(TWO, THREE));
        assert_eq!(ways.next_deadline(), Some(Mono(1_000) + SAFE_FOR));
    }

    #[test]
    fn who_may_displace_again_is_named_at_every_remove() {
        let mut ways = GivingWay::default();
        ways.displaced(TWO, THREE, Mono(0));
        ways.displaced(ONE, TWO, Mono(1_000));
        assert_eq!(ways.expire(Mono(0) + SAFE_FOR), [ONE, TWO]);
        assert!(ways.may_displace(ONE, THREE) && !ways.may_displace(ONE, TWO));
        ways.forget(ONE);
        assert!(ways.safe.is_empty());
    }

    #[test]
    fn a_new_leadership_goes_on_with_what_is_left() {
        let mut known = Displacements::new();
        note(&mut known, ONE, TWO, Wall(0));
        note(&mut known, ONE, TWO, Wall(1_000));
        note(&mut known, ONE, THREE, Wall(2_000));
        assert_eq!(
            known[&ONE].iter().map(|other| (other.by, other.times)).collect::<Vec<_>>(),
            [(TWO, 2), (THREE, 1)]
        );
        let now = |wall: i64| Now { mono: Mono(7), wall: Wall(wall) };
        let mut ways = GivingWay::remembered(&known, now(61_000));
        assert!(
            !ways.may_displace_all(TWO)
                && !ways.may_displace(TWO, ONE)
                && ways.may_displace(THREE, ONE)
                && !ways.may_displace(ONE, THREE)
        );
        assert_eq!(ways.next_deadline(), Some(Mono(7) + Millis::mins(9)));
        assert_eq!(ways.expire(Mono(7) + Millis::mins(9)), [ONE, TWO]);
        // A calendar that was put back makes it no longer than a whole time.
        assert_eq!(GivingWay::remembered(&known, now(-5_000)).next_deadline(), Some(Mono(7) + SAFE_FOR));
        assert!(GivingWay::remembered(&known, now(602_000)).safe.is_empty());
        note(&mut known, ONE, THREE, Wall(601_500));
        assert_eq!(
            known[&ONE],
            [Displaced { by: THREE, times: 2, at: Wall(601_500) }],
            "older ones don't count"
        );
        forget_old(&mut known, Wall(1_300_000));
        assert!(known.is_empty());
        (0..100).for_each(|by| note(&mut known, ONE, Uid(by), Wall(0)));
        assert_eq!(known[&ONE].len(), DISPLACERS_MAX);
    }

    #[test]
    fn nobody_is_displaced_by_the_same_one_again_and_again() {
        let mut ways = GivingWay::default();
        ways.displaced(ONE, TWO, Mono(0));
        assert!(ways.may_displace(TWO, ONE) && ways.may_displace_all(TWO), "once may have been in vain");
        ways.displaced(ONE, TWO, Mono(1_000));
        assert!(!ways.may_displace_all(TWO) && !ways.may_displace(TWO, ONE) && ways.may_displace(TWO, THREE));
        assert_eq!(ways.expire(Mono(999) + SAFE_FOR), [], "it counts from the last time");
        assert_eq!(ways.expire(Mono(1_000) + SAFE_FOR), [ONE, TWO]);
        assert!(ways.may_displace_all(TWO));
    }
}

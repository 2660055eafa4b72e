//! What would let start who waits for quota, in numbers: what the queue would need, with what may come first, and whose end
//! alone would do. What is promised here is checked by making the change.

use super::Why;
use super::obstacle::{Verdicts, key_of};
use crate::queues::{NoQuota, Shortage};
use crate::{Workload, World};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::preempt::may_displace;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs in one cluster of which it is asked whether the end of one would do.
const RUNS_MAX: usize = 256;

/// Who may be served before a workload when quota comes, and what they ask for.
struct Rivals {
    /// Of its own queue.
    before: usize,
    /// Of other queues that may be given the same.
    beside: usize,
}

impl World {
    /// What quota would let a workload start; and what more there is to say about what it lacks.
    pub(super) fn quota_in_words(&self, uid: Uid, workload: &Workload, quota: &NoQuota, verdicts: &Verdicts) -> (String, String) {
        let why = Why::Quota(quota.clone());
        let brain = self.deciding.brain();
        let Some((id, (flavor, resource, asks))) = self.deciding.id(uid).zip(key_of(brain, quota)) else {
            return (format!("waits: {}", why.words()), why.would_help());
        };
        let key = (flavor, resource);
        let beside = brain.asked_beside(id, key).0;
        let rivals = Rivals { before: brain.standing(id).map_or(0, |standing| standing.before), beside };
        let one = match quota {
            NoQuota::Used(short) => self.one_in_the_way(uid, short, &rivals, verdicts),
            _ => None,
        };
        let (policy, alone) = one.unwrap_or_default();
        let turn = self.use_in_words(id).or_else(|| self.contest_in_words(id, key)).unwrap_or_default();
        let (room, besides) = self.room_in_words(uid, workload, verdicts);
        let raise = self.raise_in_words(id, key, &rivals);
        let help = match quota {
            NoQuota::Used(short) => format!("the end of workloads with {} `{}`, or {raise}", self.missing(id, key, asks, short), short.resource),
            _ => format!("{raise}, or ask for less"),
        };
        (format!("waits: {}{policy}{turn}{room}", why.words()), format!("{help}{besides}{}", alone.unwrap_or_default()))
    }

    /// What must come free, for it and for all who may come first.
    fn missing(&self, id: WorkloadId, key: (FlavorId, ResourceId), asks: i64, short: &Shortage) -> i64 {
        asks.saturating_add(self.asked_by_rivals(id, key)).saturating_sub(short.free).max(1)
    }

    fn asked_by_rivals(&self, id: WorkloadId, key: (FlavorId, ResourceId)) -> i64 {
        let brain = self.deciding.brain();
        brain.asked_before(id, key.1).saturating_add(brain.asked_beside(id, key).1)
    }

    /// The nominal quotas with which it fits even if all who may come first have been served.
    fn raise_in_words(&self, id: WorkloadId, key: (FlavorId, ResourceId), rivals: &Rivals) -> String {
        let brain = self.deciding.brain();
        let Some(queue) = brain.workload(id).map(|w| w.queue) else { return String::new() };
        let mut all = brain.needed(id, key, |key| self.asked_by_rivals(id, key));
        all.sort_by_key(|(of, _)| *of != key);
        let one = |((flavor, resource), asks): &((FlavorId, ResourceId), i64)| {
            let to = brain.nominal_for(queue, (*flavor, *resource), *asks);
            format!("of `{}` in flavor `{}` to {to}", brain.resource_name(*resource), brain.flavor_name(*flavor))
        };
        let quotas: Vec<String> = all.iter().map(one).collect();
        let mut words = format!("raise the queue's nominal quota {}", quotas.join(", and "));
        match rivals.before + rivals.beside {
            0 => {}
            1 => words += ", which is enough for the one that may come first too, as far as there is room for both",
            many => words += &format!(", which is enough for the {many} that may come first too, as far as there is room for all"),
        }
        words
    }

    /// The one workload without which the quota would be there: what stands against displacing it, and that its end would do.
    fn one_in_the_way(&self, uid: Uid, short: &Shortage, rivals: &Rivals, verdicts: &Verdicts) -> Option<(String, Option<String>)> {
        let brain = self.deciding.brain();
        let id = self.deciding.id(uid)?;
        let mine = brain.workload(id).filter(|_| short.no_victims)?;
        let (flavor, resource, asks) = key_of(brain, &NoQuota::Used(Box::new(short.clone())))?;
        if brain.needed(id, (flavor, resource), |_| 0).len() > 1 {
            return None;
        }
        let other = brain.in_the_way(mine.queue, (flavor, resource), asks)?;
        let theirs = brain.workload(other)?;
        let (one, other_uid) = (self.state.workloads.get(&uid)?, self.deciding.uid(other)?);
        let it = self.state.workloads.get(&other_uid)?;
        let preemption = &brain.queue(mine.queue).setup.preemption;
        let (name, policy) = match theirs.queue == mine.queue {
            true => ("withinClusterQueue", preemption.within_queue),
            false => ("reclaimWithinCohort", preemption.reclaim_within_cohort),
        };
        let against = match may_displace(policy, (one.priority, mine.since), (it.priority, theirs.since)) {
            false => format!("which `{name}: {}` forbids", policy.word()),
            true => format!("which `{name}: {}` would allow, and the use or share of its queue doesn't", policy.word()),
        };
        let whom = format!("`{}/{}`", it.namespace, it.name);
        // Who may come first would take what it leaves.
        let serves = rivals.before == 0 && rivals.beside == 0 && (verdicts.values().any(Result::is_ok) || self.leaves_room(uid, one, other_uid, it, verdicts));
        let alone = serves.then(|| format!("; the end of {whom} alone would do"));
        Some((format!("; it would fit if {whom} (priority {}) were preempted, {against}", it.priority), alone))
    }

    /// Whether a workload fits in the cluster of another one without it, where room is all that it lacks there.
    fn leaves_room(&self, uid: Uid, workload: &Workload, other: Uid, it: &Workload, verdicts: &Verdicts) -> bool {
        let Some(cluster) = Self::right(it).map(|(_, leg)| &leg.cluster) else { return false };
        matches!(verdicts.get(cluster), Some(Err(Why::NoRoom(why))) if !matches!(why, Misfit::NoDomain { .. }))
            && self.fits_without(uid, workload, cluster, other)
    }

    fn fits_without(&self, uid: Uid, workload: &Workload, cluster: &ClusterName, other: Uid) -> bool {
        let gone: Vec<Arc<Gang>> = self.gang_of(other).into_iter().collect();
        let (gang, smaller) = self.meant(uid, workload);
        let kept = self.kept_room(cluster, uid).all_gangs();
        let fits = |gang: &Gang| self.live.clusters.get(cluster).is_some_and(|live| live.rooms.fits_without(gang, &gone, &kept));
        fits(&gang) || smaller.is_some_and(|gang| fits(&gang))
    }

    /// What would help at one cluster: of those that run there the smallest whose end is enough, where room is short.
    pub(super) fn help_at(&self, uid: Uid, workload: &Workload, cluster: &ClusterName, why: &Why) -> String {
        let Why::NoRoom(Misfit::NotEnoughRoom { fits_empty: true, .. }) = why else { return why.would_help() };
        let there = self.loads.get(cluster).into_iter().flat_map(BTreeMap::keys).filter(|other| self.runs_in(**other, cluster));
        let size = |other: &Uid| self.gang_of(*other).map_or(0, |gang| gang.total().into_values().fold(0, i64::saturating_add));
        let mut there: Vec<(i64, Uid)> = there.take(RUNS_MAX).map(|other| (size(other), *other)).collect();
        there.sort_unstable();
        let one = there.into_iter().map(|(_, other)| other).find(|other| self.fits_without(uid, workload, cluster, *other));
        match one.and_then(|one| self.state.workloads.get(&one)) {
            Some(it) => format!("the end of `{}/{}` there", it.namespace, it.name),
            None => "the end of several workloads there".to_owned(),
        }
    }

    /// Who else waits, and isn't behind this one: they may be served first.
    pub(super) fn others_first(&self, uid: Uid) -> String {
        let all: usize = self.queues.waiting_classes().map(|class| self.queues.waiting_count(class)).sum();
        let standing = self.deciding.id(uid).and_then(|id| self.deciding.brain().standing(id));
        let behind = standing.map_or(0, |standing| standing.of - standing.before);
        match all.saturating_sub(behind.max(1)) {
            0 => String::new(),
            1 => "; one other that waits may take it first".to_owned(),
            many => format!("; {many} others that wait may take it first"),
        }
    }

    /// What no cluster has, where none can start it now.
    pub(super) fn nearest_in_words(&self, uid: Uid, workload: &Workload, verdicts: &Verdicts) -> (String, String) {
        if verdicts.values().any(Result::is_ok) {
            return ("waits for the next scheduling pass".into(), String::new());
        }
        let Some((cluster, why)) = nearest(verdicts) else {
            return (format!("waits: {}", Why::NoCluster.words()), Why::NoCluster.would_help());
        };
        let words = format!("waits: none of {} clusters can start it now; nearest is `{cluster}`: {}", verdicts.len(), why.words());
        (words, format!("at `{cluster}`: {}{}", self.help_at(uid, workload, cluster, why), self.others_first(uid)))
    }

    /// What is to say where quota isn't all that is short: every cluster has its own obstacle too.
    fn room_in_words(&self, uid: Uid, workload: &Workload, verdicts: &Verdicts) -> (String, String) {
        if verdicts.values().any(Result::is_ok) {
            return (String::new(), String::new());
        }
        let Some((cluster, why)) = nearest(verdicts) else { return (String::new(), String::new()) };
        let room = format!("; nor could any of {} clusters start it now, nearest is `{cluster}`: {}", verdicts.len(), why.words());
        (room, format!("; and besides, at `{cluster}`: {}", self.help_at(uid, workload, cluster, why)))
    }
}

/// The cluster whose obstacle the least would remove.
fn nearest(verdicts: &Verdicts) -> Option<(&ClusterName, &Why)> {
    let rank = |why: &Why| match why {
        Why::NoRoom(Misfit::NotEnoughRoom { fits_empty: true, .. }) | Why::Refused { .. } | Why::Capped { .. } => 0,
        Why::Cordoned | Why::NotConnected | Why::NoReport | Why::Recovering | Why::NotAdmitted | Why::BackedOff => 1,
        Why::NoRoom(_) => 2,
        _ => 3,
    };
    verdicts.iter().filter_map(|(cluster, said)| Some((cluster, said.as_ref().err()?))).min_by_key(|(_, why)| rank(why))
}

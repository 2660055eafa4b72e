//! What would let start who waits for quota, in numbers: what the queue would need, with what may come first, and whose end
//! alone would do. What is promised here is checked by making the change.

use super::Why;
use super::obstacle::{Verdicts, key_of};
use crate::queues::{NoQuota, Shortage};
use crate::{Workload, World};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::preempt::may_displace;
use meridian_shared::ids::Uid;
use std::sync::Arc;

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
        let (room, more) = room_in_words(self, workload, verdicts, &alone);
        let raise = self.raise_in_words(id, key, &rivals);
        let help = match quota {
            NoQuota::Used(short) => format!("the end of workloads with {} `{}`, or {raise}", self.missing(id, key, asks, short), short.resource),
            _ => format!("{raise}, or ask for less"),
        };
        (format!("waits: {}{policy}{turn}{room}", why.words()), format!("{help}{more}{}", alone.map(|alone| alone.words).unwrap_or_default()))
    }

    /// What must come free, for it and for all who may come first.
    fn missing(&self, id: WorkloadId, key: (FlavorId, ResourceId), asks: i64, short: &Shortage) -> i64 {
        self.asked_with_rivals(id, key, asks).saturating_sub(short.free).max(1)
    }

    fn asked_with_rivals(&self, id: WorkloadId, key: (FlavorId, ResourceId), asks: i64) -> i64 {
        let brain = self.deciding.brain();
        asks.saturating_add(brain.asked_before(id, key.1)).saturating_add(brain.asked_beside(id, key).1)
    }

    /// The nominal quotas with which it fits even if all who may come first have been served.
    fn raise_in_words(&self, id: WorkloadId, key: (FlavorId, ResourceId), rivals: &Rivals) -> String {
        let brain = self.deciding.brain();
        let Some(queue) = brain.workload(id).map(|w| w.queue) else { return String::new() };
        let nominal = |(flavor, resource): (FlavorId, ResourceId), asks| {
            brain.nominal_for(queue, (flavor, resource), self.asked_with_rivals(id, (flavor, resource), asks))
        };
        let all = brain.needed(id, key);
        let asks = all.iter().find(|(of, _)| *of == key).map_or(0, |(_, asks)| *asks);
        let mut words =
            format!("raise the queue's nominal quota of `{}` in flavor `{}` to {}", brain.resource_name(key.1), brain.flavor_name(key.0), nominal(key, asks));
        let more: Vec<String> = all
            .iter()
            .filter(|(of, _)| *of != key)
            .map(|(of, asks)| format!("of `{}` in flavor `{}` to {}", brain.resource_name(of.1), brain.flavor_name(of.0), nominal(*of, *asks)))
            .collect();
        if !more.is_empty() {
            words += &format!(", and {}", more.join(" and "));
        }
        match rivals.before + rivals.beside {
            0 => {}
            1 => words += ", which is enough for the one that may come first too, as far as there is room for both",
            many => words += &format!(", which is enough for the {many} that may come first too, as far as there is room for all"),
        }
        words
    }

    /// The one workload without which the quota would be there: what stands against displacing it, and that its end would do.
    fn one_in_the_way(&self, uid: Uid, short: &Shortage, rivals: &Rivals, verdicts: &Verdicts) -> Option<(String, Option<Alone>)> {
        let brain = self.deciding.brain();
        let id = self.deciding.id(uid)?;
        let mine = brain.workload(id).filter(|_| short.no_victims)?;
        let (flavor, resource, asks) = key_of(brain, &NoQuota::Used(Box::new(short.clone())))?;
        if brain.needed(id, (flavor, resource)).len() > 1 {
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
        let alone = serves.then(|| Alone { words: format!("; the end of {whom} alone would do") });
        Some((format!("; it would fit if {whom} (priority {}) were preempted, {against}", it.priority), alone))
    }

    /// Whether a workload fits in the cluster of another one without it, where room is all that it lacks there.
    fn leaves_room(&self, uid: Uid, workload: &Workload, other: Uid, it: &Workload, verdicts: &Verdicts) -> bool {
        let Some(cluster) = Self::right(it).map(|(_, leg)| &leg.cluster) else { return false };
        let room = matches!(verdicts.get(cluster), Some(Err(Why::NoRoom(_))));
        let gone: Vec<Arc<_>> = self.gang_of(other).into_iter().collect();
        let gang = &self.queues.class(workload.class).gang;
        let kept = self.kept_room(cluster, uid);
        let fits = |rooms: &crate::rooms::Rooms| rooms.fits_without(gang, &gone, &kept.all_gangs());
        room && self.live.clusters.get(cluster).is_some_and(|live| fits(&live.rooms))
    }
}

/// One workload whose end alone would do.
struct Alone {
    words: String,
}

/// What is to say where quota isn't all that is short: every cluster has its own obstacle too.
fn room_in_words(world: &World, workload: &Workload, verdicts: &Verdicts, alone: &Option<Alone>) -> (String, String) {
    if verdicts.values().any(Result::is_ok) || verdicts.is_empty() || workload.phase != crate::workload::Phase::Pending {
        return (String::new(), String::new());
    }
    let Some((cluster, why)) = world.nearest(verdicts) else { return (String::new(), String::new()) };
    let room = format!("; nor could any of {} clusters start it now, nearest is `{cluster}`: {}", verdicts.len(), why.words());
    let more = if alone.is_some() { String::new() } else { format!("; and besides, at `{cluster}`: {}", why.would_help()) };
    (room, more)
}

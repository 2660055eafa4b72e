//! Who else waits and may be served before a workload when what it lacks comes free, and what puts it before them.

use super::Why;
use super::case::Case;
use crate::World;
use crate::queues::{ClassId, Place};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::Before;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Classes that are looked at to see whether who waits in them could take what comes free; who is in others may.
const LOOKED_AT_MAX: usize = 24;

/// Who may be served before a workload when quota comes.
pub(super) struct Rivals {
    /// Of its own queue.
    pub(super) before: usize,
    /// Of other queues that may be given the same.
    pub(super) beside: usize,
    /// The first of them, as people know it.
    pub(super) first: Option<String>,
    /// With a priority above this one nobody comes before it.
    pub(super) yields_above: Option<i64>,
}

/// Others of one class that may come first.
struct Class {
    first: Place,
    count: usize,
}

impl World {
    /// Who may be served first when quota of a flavor and resource comes.
    pub(super) fn rivals_for_quota(&self, case: &Case<'_>, id: WorkloadId, key: (FlavorId, ResourceId)) -> Rivals {
        let brain = self.deciding.brain();
        let before = case.standing().map_or(0, |standing| standing.before);
        let beside = brain.asked_beside(id, key).0;
        let front = case.queue.and_then(|queue| brain.front(queue)).filter(|front| *front != id);
        let first = front.or_else(|| brain.served_before(id, key).map(|winner| winner.workload)).or_else(|| brain.first_beside(id, key));
        // A queue goes by priority first, but for who is urgent there.
        let goes_by_priority = beside == 0 && !self.by_usage(id) && front.is_some_and(|front| !brain.comes_before_all(front));
        let priority = front.and_then(|front| self.deciding.uid(front)).and_then(|uid| self.state.workloads.get(&uid)).map(|w| w.priority);
        Rivals { before, beside, first: first.map(|first| self.named(first)), yields_above: priority.filter(|_| goes_by_priority) }
    }

    /// Who else waits and could take the room in a cluster before this one, when those of `gone` have left it.
    pub(super) fn others_first(&self, case: &Case<'_>, (cluster, why): (&ClusterName, &Why), gone: &[Uid]) -> String {
        // How much more there will be isn't known of nodes to come, nor of a higher cap.
        let grows = gone.is_empty() && matches!(why, Why::NoRoom(_) | Why::Capped { .. } | Why::Refused { .. });
        if matches!(why, Why::Forbidden(_)) {
            return String::new();
        }
        // They don't all end at once: what is left by the first may be enough for who is behind and small.
        let in_parts = gone.len() > 1;
        let brain = self.deciding.brain();
        // A class of the brain is one of the world's.
        let class_of = |shape| u32::try_from(brain.shape_of(shape).tag & u64::from(u32::MAX)).map(ClassId);
        let by_shape = case.before.iter().filter(|_| !in_parts).flat_map(Before::by_shape);
        let mut before: BTreeMap<ClassId, usize> = BTreeMap::new();
        by_shape.filter_map(|(shape, n)| Some((class_of(shape).ok()?, n))).for_each(|(class, n)| *before.entry(class).or_default() += n);
        let mut all: Vec<(ClassId, Class)> = self.queues.waiting_classes().filter_map(|id| Some((id, self.rivals_of(case, id, &before)?))).collect();
        all.sort_by_key(|(_, class)| class.first);
        let able = self.could_take(&all, cluster, gone, grows);
        let count: usize = able.iter().map(|class| class.count).sum();
        let Some(first) = able.first().and_then(|class| self.state.workloads.get(&class.first.uid)) else { return String::new() };
        let unless = match !in_parts && self.goes_by_priority(case, &able) {
            true => format!(", unless it is submitted again with a priority above {}", first.priority),
            false => String::new(),
        };
        match count {
            1 => format!("; `{}/{}`, which waits too, may take it first{unless}", first.namespace, first.name),
            many => format!("; `{}/{}` and {} more that wait may take it first{unless}", first.namespace, first.name, many - 1),
        }
    }

    /// Those who would have quota and room when those of `gone` have ended, and haven't both already, for then something else
    /// keeps them. Where the room `grows`, whoever has quota may fit, and so may whoever isn't looked at.
    fn could_take<'a>(&self, all: &'a [(ClassId, Class)], cluster: &ClusterName, gone: &[Uid], grows: bool) -> Vec<&'a Class> {
        let looked_at = all.len().min(LOOKED_AT_MAX);
        let ids: Vec<Option<WorkloadId>> = all[..looked_at].iter().map(|(_, class)| self.deciding.id(class.first.uid)).collect();
        let known: Vec<WorkloadId> = ids.iter().flatten().copied().collect();
        let has_quota = |gone: &[Uid]| {
            let holders: Vec<WorkloadId> = gone.iter().filter_map(|uid| self.deciding.id(*uid)).collect();
            let mut fits = self.deciding.brain().would_fit(&known, &holders).into_iter();
            // Who isn't looked at takes nothing.
            ids.iter().map(|id| id.is_some() && fits.next().unwrap_or(true)).collect::<Vec<bool>>()
        };
        let (before, after) = (has_quota(&[]), has_quota(gone));
        let gangs: Vec<Arc<Gang>> = gone.iter().filter_map(|uid| self.gang_of(*uid)).collect();
        let could = |at: usize, id: ClassId, class: &Class| {
            let fits = |gangs: &[Arc<Gang>]| self.would_fit_there(id, class.first.uid, cluster, gangs);
            let already = || !gone.is_empty() && before[at] && fits(&[]);
            at >= looked_at || (after[at] && (grows || (fits(&gangs) && !already())))
        };
        all.iter().enumerate().filter(|(at, (id, class))| could(*at, *id, class)).map(|(_, (_, class))| class).collect()
    }

    /// Those of a class who may come before a workload: those that are counted as such, and all of those that aren't.
    fn rivals_of(&self, case: &Case<'_>, id: ClassId, before: &BTreeMap<ClassId, usize>) -> Option<Class> {
        if before.get(&id) == Some(&0) {
            return None;
        }
        // Who has no way to a queue takes nothing.
        self.deciding.led_to(id).filter(|_| !matches!(self.live.blocked.get(&id), Some(Why::Route(_))))?;
        let others = || self.queues.waiting_count(id) - usize::from(id == case.workload.class);
        let count = before.get(&id).copied().unwrap_or_else(others);
        let first = self.queues.waiting(id).find(|place| place.uid != case.uid).filter(|_| count > 0)?;
        Some(Class { first: *first, count })
    }

    /// Whether the gang of a class that waits fits in a cluster without some that are there.
    fn would_fit_there(&self, id: ClassId, uid: Uid, cluster: &ClusterName, gone: &[Arc<Gang>]) -> bool {
        let class = self.queues.class(id);
        let shrinks = class.gang.pod_sets.iter().any(|set| set.min_count.is_some());
        let least: Vec<u32> = class.gang.pod_sets.iter().map(|set| set.min_count.unwrap_or(set.count)).collect();
        let kept = self.kept_room(cluster, uid).all_gangs();
        let Some(live) = self.live.clusters.get(cluster) else { return false };
        let fits = |gang: &Gang| live.rooms.fits_near_without(gang, gone, &kept);
        fits(&class.gang) || (shrinks && fits(&class.gang.of_counts(&least)))
    }

    /// Whether a higher priority would put it before these others, whatever queues they are in.
    fn goes_by_priority(&self, case: &Case<'_>, others: &[&Class]) -> bool {
        let brain = self.deciding.brain();
        let queue_of = |class: &&Class| self.deciding.id(class.first.uid).and_then(|id| brain.workload(id)).map(|of| of.queue);
        let special = |class: &&Class| self.deciding.id(class.first.uid).is_some_and(|id| brain.comes_before_all(id));
        let (same, fair) = (others.iter().all(|class| queue_of(class) == case.queue), brain.settings.fair_sharing.is_some());
        let alike = same || (!fair && !case.borrows);
        alike && case.id.is_some_and(|id| !self.by_usage(id)) && !others.iter().any(special)
    }
}

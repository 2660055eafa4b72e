//! Who else waits and may be served before a workload when what it lacks comes free, and what puts it before them.

use super::Why;
use super::case::{Case, key_of};
use super::steps::Steps;
use crate::World;
use crate::domains::Gone;
use crate::queues::{ClassId, Place};
use crate::ways::Way;
use meridian_queueing::cycle::{First, MayComeFirst, Winner};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::Before;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::iter::Peekable;
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
    id: ClassId,
    count: usize,
    /// Where they wait.
    queue: QueueId,
}

/// A list in the order of its keys, asked for one after another in the same order.
pub(super) struct Alongside<I: Iterator>(Peekable<I>);

impl<K: Ord + Copy, V, I: Iterator<Item = (K, V)>> Alongside<I> {
    pub(super) fn new(list: impl IntoIterator<IntoIter = I>) -> Self {
        Self(list.into_iter().peekable())
    }

    pub(super) fn at(&mut self, key: K) -> Option<V> {
        while self.0.next_if(|(of, _)| *of < key).is_some() {}
        self.0.next_if(|(of, _)| *of == key).map(|(_, value)| value)
    }
}

impl World {
    /// Who may be served first when quota of a flavor and resource comes.
    pub(super) fn rivals_for_quota(
        &self,
        case: &Case<'_>,
        id: WorkloadId,
        key: (FlavorId, ResourceId),
        winner: Option<&Winner>,
    ) -> Rivals {
        let brain = self.deciding.brain();
        let MayComeFirst { before, beside, other, .. } = self.may_come_first(case, id, key);
        let front = case.front().filter(|front| *front != id);
        let named = front.filter(|front| before > 0 && brain.may_ever_fit(*front, key));
        let first = named.or_else(|| winner.map(|winner| winner.workload)).or(other);
        // A queue goes by priority first, but for who is urgent there.
        let goes_by_priority = before > 0
            && beside == 0
            && !self.by_usage(id)
            && front.is_some_and(|front| !brain.comes_before_all(front));
        let priority = front
            .and_then(|front| self.deciding.uid(front))
            .and_then(|uid| self.state.workloads.get(&uid))
            .map(|w| w.priority);
        Rivals {
            before,
            beside,
            first: first.map(|first| self.named(first)),
            yields_above: priority.filter(|_| goes_by_priority),
        }
    }

    /// Who of another queue is served first of something that a workload would take, or that it was told it lacks, as it was chosen for
    /// it (simulation seed 7204557): those first for whom others stop.
    fn served_first(&self, case: &Case<'_>) -> Option<(WorkloadId, (FlavorId, ResourceId), Winner)> {
        let (brain, id) = (self.deciding.brain(), case.id?);
        let told = match self.live.hindrances.before(case.workload.class) {
            Some(Why::Quota(quota)) => key_of(brain, quota).map(|(flavor, resource, _)| (flavor, resource)),
            _ => None,
        };
        let keys = case.takes.iter().map(|(key, _)| *key).chain(told);
        keys.filter_map(|key| Some((id, key, brain.served_before(id, key)?)))
            .min_by_key(|(.., winner)| !displaces(winner))
    }

    /// Whether others stop for somebody of another queue who then takes what this one would.
    pub(super) fn is_kept_from(&self, case: &Case<'_>) -> bool {
        self.served_first(case).is_some_and(|(.., winner)| displaces(&winner))
    }

    /// Who of another queue comes first in every round, and keeps what this one would take.
    pub(super) fn overtaken_steps(&self, case: &Case<'_>) -> Steps {
        let Some((id, key, winner)) = self.served_first(case) else { return Steps::of(&Why::Overtaken) };
        let (whom, turn) =
            (self.named(winner.workload), self.contest_in_words(id, &winner).unwrap_or_default());
        let priority =
            if matches!(winner.by, First::Priority | First::Age) { ", or a higher priority" } else { "" };
        let mut steps = Steps::one(
            format!("{}{turn}", Why::Overtaken.words()),
            format!("the start or deletion of {whom}{priority}"),
        );
        let others = self.may_come_first(case, id, key);
        if others.before + others.beside == 1 && case.lacks.is_none() && case.has_room() {
            steps.alone.push(format!("the deletion of {whom} alone would do"));
        }
        steps
    }

    /// The same in numbers.
    pub(super) fn may_come_first(
        &self,
        case: &Case<'_>,
        id: WorkloadId,
        key: (FlavorId, ResourceId),
    ) -> MayComeFirst {
        let find = || self.deciding.brain().may_come_first(id, key, case.before.as_ref());
        *case.found.may_come_first.borrow_mut().entry(key).or_insert_with(find)
    }

    /// Who else waits and could take the room in a cluster before this one, when those of `gone` have left it.
    pub(super) fn others_first(
        &self,
        case: &Case<'_>,
        (cluster, why): (&ClusterName, &Why),
        gone: &[Uid],
    ) -> String {
        // How much more there will be isn't known of nodes to come, nor of a higher cap.
        let grows =
            gone.is_empty() && matches!(why, Why::NoRoom(_) | Why::Capped { .. } | Why::Refused { .. });
        if matches!(why, Why::Forbidden(_)) {
            return String::new();
        }
        // They don't all end at once: what is left by the first may be enough for who is behind and small.
        let in_parts = gone.len() > 1;
        let all = self.rivals_for_room(case, in_parts);
        let able = self.could_take(&all, cluster, gone, grows);
        let count: usize = able.iter().map(|class| class.count).sum();
        let Some(first) = able.first().and_then(|class| self.state.workloads.get(&class.first.uid)) else {
            return String::new();
        };
        let unless = match !in_parts && self.goes_by_priority(case, &able) {
            true => format!(", unless it is submitted again with a priority above {}", first.priority),
            false => String::new(),
        };
        match count {
            1 => {
                format!("; `{}/{}`, which waits too, may take it first{unless}", first.namespace, first.name)
            }
            many => format!(
                "; `{}/{}` and {} more that wait may take it first{unless}",
                first.namespace,
                first.name,
                many - 1
            ),
        }
    }

    /// Those who would have quota and room when those of `gone` have ended, and haven't both already, for then something else
    /// keeps them. Where the room `grows`, whoever has quota may fit, and so may whoever isn't looked at.
    fn could_take<'a>(
        &self,
        all: &'a [Class],
        cluster: &ClusterName,
        gone: &[Uid],
        grows: bool,
    ) -> Vec<&'a Class> {
        let looked_at = all.len().min(LOOKED_AT_MAX);
        let ids: Vec<Option<WorkloadId>> =
            all[..looked_at].iter().map(|class| self.deciding.id(class.first.uid)).collect();
        let known: Vec<WorkloadId> = ids.iter().flatten().copied().collect();
        let has_quota = |gone: &[Uid]| {
            let holders: Vec<WorkloadId> = gone.iter().filter_map(|uid| self.deciding.id(*uid)).collect();
            let mut fits = self.deciding.brain().would_fit(&known, &holders).into_iter();
            // Who isn't looked at takes nothing.
            ids.iter().map(|id| id.is_some() && fits.next().unwrap_or(true)).collect::<Vec<bool>>()
        };
        let (before, after) = (LazyCell::new(|| has_quota(&[])), has_quota(gone));
        let gangs: Vec<Arc<Gang>> = gone.iter().filter_map(|uid| self.gang_of(*uid)).collect();
        let could = |at: usize, class: &Class| {
            let fits = |gangs: &[Arc<Gang>]| self.would_fit_there(class.id, class.first.uid, cluster, gangs);
            let already = || !gone.is_empty() && before[at] && fits(&[]);
            at >= looked_at
                || (after[at] && self.may_use(class, cluster) && (grows || (fits(&gangs) && !already())))
        };
        all.iter().enumerate().filter(|(at, class)| could(*at, class)).map(|(_, class)| class).collect()
    }

    /// Those of each class who may come before a workload: where they are counted as such, of its own queue and unless what comes
    /// free comes `in_parts`, those; and all others. In order as far as they are looked at, and one more.
    fn rivals_for_room(&self, case: &Case<'_>, in_parts: bool) -> Vec<Class> {
        let before = if in_parts { Vec::new() } else { self.before_by_class(case) };
        let blocked = self.live.hindrances.all_before();
        let (mut before, mut routes, mut blocked) =
            (Alongside::new(before), Alongside::new(self.deciding.routes()), Alongside::new(blocked));
        let of_class = |(id, first, waiting): (ClassId, &Place, &BTreeSet<Place>)| {
            let (before, route, why) = (before.at(id), routes.at(id), blocked.at(id));
            // Who has no way to a queue takes nothing.
            let queue = route.filter(|_| !matches!(why, Some(Why::Route(_))))?;
            let count = before.unwrap_or_else(|| waiting.len() - usize::from(id == case.workload.class));
            let other = if first.uid == case.uid { waiting.iter().nth(1) } else { Some(first) };
            Some(Class { first: *other.filter(|_| count > 0)?, id, count, queue })
        };
        let mut all: Vec<Class> = self.queues.waiting_by_class().filter_map(of_class).collect();
        if all.len() > LOOKED_AT_MAX {
            all.select_nth_unstable_by_key(LOOKED_AT_MAX, |class| class.first);
        }
        let looked_at = all.len().min(LOOKED_AT_MAX);
        all[..looked_at].sort_unstable_by_key(|class| class.first);
        all
    }

    /// Of each class how many come before a workload in its queue, in the order of classes.
    fn before_by_class(&self, case: &Case<'_>) -> Vec<(ClassId, usize)> {
        let brain = self.deciding.brain();
        // A class of the brain is one of the world's.
        let class_of = |shape| u32::try_from(brain.shape_of(shape).tag & u64::from(u32::MAX)).map(ClassId);
        let by_shape = case.before.iter().flat_map(Before::by_shape);
        let mut all: Vec<(ClassId, usize)> =
            by_shape.filter_map(|(shape, n)| Some((class_of(shape).ok()?, n))).collect();
        all.sort_unstable_by_key(|(class, _)| *class);
        all.dedup_by(|(class, n), (kept, sum)| {
            let same = class == kept;
            *sum += if same { *n } else { 0 };
            same
        });
        all
    }

    /// Whether a class may go to a cluster, as objects say.
    fn may_use(&self, class: &Class, cluster: &ClusterName) -> bool {
        let queue = &self.deciding.brain().queue(class.queue).setup.name;
        let way =
            Way::new(&self.state.catalog, self.queues.class(class.id), queue, self.config.residency_required);
        way.sites.iter().any(|site| site.cluster == *cluster && site.listed.is_some() && site.verdict.is_ok())
    }

    /// Whether the gang of a class that waits fits in a cluster without some that are there.
    fn would_fit_there(&self, id: ClassId, uid: Uid, cluster: &ClusterName, gone: &[Arc<Gang>]) -> bool {
        let class = self.queues.class(id);
        let kept = self.kept_room(cluster, uid).all_gangs();
        let Some(live) = self.live.clusters.get(cluster) else { return false };
        let mut freed = Amounts::new();
        gone.iter().for_each(|gang| add_scaled(&mut freed, &gang.total(), 1));
        // Who might fit is named: so what comes free may be in any domain.
        let fits = |gang: &Gang| {
            live.rooms.fits_without(gang, gone, &kept)
                && self.judge_domains(gang, cluster, Gone::Having(&freed)).is_ok()
        };
        fits(&class.gang) || class.gang.least().is_some_and(|least| fits(&least))
    }

    /// Whether a higher priority would put it before these others, whatever queues they are in.
    fn goes_by_priority(&self, case: &Case<'_>, others: &[&Class]) -> bool {
        let brain = self.deciding.brain();
        let in_queue =
            |class: &&Class| Some(class.queue) == case.queue && self.deciding.looks_at(class.first.uid);
        let special: BTreeSet<Uid> = brain.all_special().filter_map(|id| self.deciding.uid(id)).collect();
        let (same, fair) = (others.iter().all(in_queue), brain.settings.fair_sharing.is_some());
        let alike = same || (!fair && !case.borrows);
        alike
            && case.id.is_some_and(|id| !self.by_usage(id))
            && (special.is_empty() || !others.iter().any(|class| special.contains(&class.first.uid)))
    }
}

fn displaces(winner: &Winner) -> bool {
    matches!(winner.by, First::Displaces | First::Holds)
}

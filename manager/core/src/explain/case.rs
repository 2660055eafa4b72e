//! One workload that waits, as it is looked at for whoever asks: the queue that it is in, or would be in if nothing kept it from
//! there, what it would be given by it, and what every cluster says to that.
//!
//! Found once for each question, on a copy of the books, by the functions that decide.

use super::Why;
use super::obstacle::Obstacle;
use crate::dispatch::why_not;
use crate::queues::NoQuota;
use crate::vacating::There;
use crate::ways::{Site, Way};
use crate::{Workload, World};
use meridian_queueing::Brain;
use meridian_queueing::cycle::{Entry, MayComeFirst};
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::{Before, Standing};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What each cluster says to a workload: nothing against it, or why not.
pub(super) type Verdicts = BTreeMap<ClusterName, Result<(), Why>>;

/// What was found out on the way, and is asked for more than once.
#[derive(Default)]
pub(super) struct Found {
    /// What keeps it where its queue looks at it.
    pub(super) obstacle: OnceCell<Obstacle>,
    /// Those who may come first, by what comes free.
    pub(super) may_come_first: RefCell<BTreeMap<(FlavorId, ResourceId), MayComeFirst>>,
    /// By cluster whose ends would do.
    pub(super) ends: RefCell<BTreeMap<ClusterName, Vec<Uid>>>,
    /// By cluster who stands where.
    there: RefCell<BTreeMap<ClusterName, There>>,
}

/// One workload that waits.
pub(super) struct Case<'a> {
    pub(super) uid: Uid,
    pub(super) workload: &'a Workload,
    /// When it is looked at.
    pub(super) now: Mono,
    /// Its number, where its queue looks at it.
    pub(super) id: Option<WorkloadId>,
    /// Who comes before it there.
    pub(super) before: Option<Before<'a>>,
    standing: Option<Standing>,
    pub(super) found: Found,
    /// The queue that it waits in, or would.
    pub(super) queue: Option<QueueId>,
    /// What quota it would lack there, nobody being displaced.
    pub(super) lacks: Option<Why>,
    /// Resources that no group of the queue covers.
    pub(super) uncovered: Vec<String>,
    /// What it would take.
    pub(super) takes: Vec<((FlavorId, ResourceId), i64)>,
    /// It would borrow.
    pub(super) borrows: bool,
    /// The gang as clusters would be asked for it.
    pub(super) gang: Arc<Gang>,
    /// The smallest that does, where fewer pods do.
    pub(super) smaller: Option<Arc<Gang>>,
    pub(super) verdicts: Verdicts,
}

impl Case<'_> {
    /// Where it stands in its queue.
    pub(super) fn standing(&self) -> Option<Standing> {
        self.standing
    }

    /// Who comes first in its queue, where that looks at it.
    pub(super) fn front(&self) -> Option<WorkloadId> {
        self.before.as_ref()?.front()
    }

    /// Who stands where in a cluster.
    pub(super) fn there(&self, world: &World, cluster: &ClusterName) -> There {
        self.found.there.borrow_mut().entry(cluster.clone()).or_insert_with(|| world.there(cluster)).clone()
    }

    /// Whether a cluster could start it now.
    pub(super) fn has_room(&self) -> bool {
        self.verdicts.values().any(Result::is_ok)
    }
}

impl World {
    pub(super) fn case<'a>(&'a self, uid: Uid, workload: &'a Workload, now: Mono) -> Case<'a> {
        let brain = self.deciding.brain();
        let (class, found) = (self.queues.class(workload.class), self.deciding.id(uid));
        let looked_at = |id: &WorkloadId| {
            brain.workload(*id).is_some_and(|of| of.holding.is_none() && admits(brain, of.queue))
        };
        let id = found.filter(looked_at);
        // Where it leads, whatever is stopped on the way there.
        let leads_to = || {
            let name = &self.state.catalog.local_queue(&class.namespace, &class.queue)?.cluster_queue;
            self.state.catalog.cluster_queue(name).and_then(|_| brain.queue_id(name))
        };
        let queue = id.and_then(|id| brain.workload(id)).map(|of| of.queue).or_else(leads_to);
        let met = match (id, queue) {
            (Some(id), _) => Some(brain.would_meet(id)),
            (None, Some(queue)) => brain.would_meet_in(queue, |brain| self.would_wait(brain, uid, queue)),
            (None, None) => None,
        };
        let (gang, smaller) = self.meant(workload, met.as_ref());
        let before = id.and_then(|id| brain.before(id));
        let mut case = Case {
            uid,
            workload,
            now,
            id,
            standing: before.as_ref().map(Before::standing),
            before,
            found: Found::default(),
            queue,
            lacks: None,
            uncovered: queue.map(|queue| self.uncovered(uid, queue)).unwrap_or_default(),
            takes: Vec::new(),
            borrows: false,
            gang,
            smaller,
            verdicts: Verdicts::new(),
        };
        if let Some((sketch, entry)) = met {
            case.lacks = (entry.assignment.mode() != Mode::Fit).then(|| why_not(&sketch, &entry));
            case.takes = entry.assignment.usage.iter().map(|(key, amount)| (*key, amount.0)).collect();
            case.borrows = entry.assignment.borrowing > 0;
        }
        case.verdicts = self.verdicts(&case, now);
        case
    }

    /// Resources that it asks for and the queue knows nothing of.
    fn uncovered(&self, uid: Uid, queue: QueueId) -> Vec<String> {
        let brain = self.deciding.brain();
        let setup = &brain.queue(queue).setup;
        let Some(gang) = self.gang_of(uid) else { return Vec::new() };
        let excluded = self
            .state
            .catalog
            .cluster_queue(&setup.name)
            .map(|spec| spec.exclude_resource_prefixes.clone())
            .unwrap_or_default();
        let asked = gang.pod_sets.iter().flat_map(|set| {
            meridian_objects::without_prefixes(self.config.resources.seen(&set.per_pod), &excluded)
        });
        let covered = |name: &str| brain.resource_id(name).is_some_and(|id| setup.group_of(id).is_some());
        let all: std::collections::BTreeSet<String> =
            asked.filter(|(name, amount)| *amount > 0 && !covered(name)).map(|(name, _)| name).collect();
        all.into_iter().collect()
    }

    /// The gang as clusters would be asked for it, with the flavors that it would get; and the smallest that does, where fewer
    /// pods do.
    fn meant(&self, workload: &Workload, met: Option<&(Brain, Entry)>) -> (Arc<Gang>, Option<Arc<Gang>>) {
        let class = self.queues.class(workload.class);
        let flavors = met
            .map(|(sketch, entry)| crate::places::flavors_of(sketch, &entry.assignment))
            .unwrap_or_default();
        let smaller = class.gang.least().map(|least| self.with_flavors(&Arc::new(least), &flavors));
        // Where there is quota for fewer, so many are asked for (simulation seed 6009743).
        let counts = met
            .filter(|(_, entry)| entry.assignment.mode() == Mode::Fit)
            .map(|(_, entry)| entry.assignment.counts());
        let fewer = counts.filter(|counts| smaller.is_some() && counts.len() == class.gang.pod_sets.len());
        let gang = fewer.map_or_else(|| class.gang.clone(), |counts| Arc::new(class.gang.of_counts(&counts)));
        (self.with_flavors(&gang, &flavors), smaller)
    }

    /// What every cluster would say to it.
    fn verdicts(&self, case: &Case<'_>, now: Mono) -> Verdicts {
        let Some(queue) = case.queue.map(|queue| &self.deciding.brain().queue(queue).setup.name) else {
            return Verdicts::new();
        };
        let class = self.queues.class(case.workload.class);
        let way = Way::new(&self.state.catalog, class, queue, self.config.residency_required);
        let judge = |site: &Site| {
            site.listed.ok_or_else(|| way.not_listed())?;
            site.verdict.clone().map_err(Why::Forbidden)?;
            let judged = |gang| self.judge_cluster((case.uid, now), gang, &way, site).map(|_| ());
            judged(&case.gang).or_else(|why| {
                case.smaller.as_ref().filter(|gang| judged(gang).is_ok()).map(|_| ()).ok_or(why)
            })
        };
        way.sites.iter().map(|site| (site.cluster.clone(), judge(site))).collect()
    }
}

/// Whether a queue admits anybody.
fn admits(brain: &Brain, queue: QueueId) -> bool {
    brain.queue(queue).setup.inactive.is_none() && brain.queue(queue).node.is_some()
}

/// What a shortage is of.
pub(crate) fn key_of(brain: &Brain, quota: &NoQuota) -> Option<(FlavorId, ResourceId, i64)> {
    let (flavor, resource, asks) = match quota {
        NoQuota::Used(short) => (&short.flavor, &short.resource, short.asks),
        NoQuota::ExceedsQuota { flavor, resource, asks, .. } => (flavor, resource, *asks),
        NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. } => return None,
    };
    let (flavor, _) = brain.flavor_list().find(|(id, _)| **brain.flavor_name(*id) == **flavor)?;
    Some((flavor, brain.resource_id(resource)?, asks))
}

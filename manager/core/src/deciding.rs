//! The brain beside the world: who waits and who holds quota, as decisions on queues see them.
//!
//! A cache over [`State`](crate::State): every record that touches a workload marks it, and before the next decision what is
//! marked is brought in line. What the brain decided itself is in line already. Which classes sleep is all that it knows
//! besides, and a restart may forget that: they are looked at once more.

use crate::catalog::{Catalog, NoRoute};
use crate::explain::Why;
use crate::queues::{ClassId, Queues};
use crate::record::Class;
use crate::ways::Way;
use crate::workload::Phase;
use crate::{Config, State, World};
use meridian_objects::spec::ResourceFlavorSpec;
use meridian_objects::without_prefixes;
use meridian_queueing::model::{Given, PodSet, QueueId, Shape, WorkloadId};
use meridian_queueing::names::Id;
use meridian_queueing::settings::Settings;
use meridian_queueing::{Brain, NewWorkload, declare};
use meridian_shared::ids::Uid;
use meridian_shared::planted::Bug;
use meridian_shared::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The brain, and who is who in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deciding {
    brain: Arc<Brain>,
    ids: BTreeMap<Uid, WorkloadId>,
    /// By number.
    uids: Vec<Option<Uid>>,
    /// Declarations changed.
    stale: bool,
    /// Workloads about which something was recorded.
    touched: BTreeSet<Uid>,
    /// Who isn't looked at and holds nothing: without a way to a queue, resting, deactivated, or held back by recovery.
    outside: BTreeSet<Uid>,
    /// Pods that gave back what they had, where the brain knows that they did.
    spare: BTreeMap<Uid, Vec<u32>>,
    /// Ways of classes, until an object changes.
    ways: BTreeMap<ClassId, Arc<Way>>,
    /// Where a class was last led.
    routes: BTreeMap<ClassId, Option<QueueId>>,
}

/// It follows from the state, so it tells no two worlds apart.
impl PartialEq for Deciding {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Deciding {}

impl Hash for Deciding {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// What a workload should be to the brain.
enum Wanted {
    Gone,
    Outside(Option<Why>),
    Waiting(QueueId),
    Holding { queue: QueueId, evicted: bool },
}

/// The catalog, as declarations of queues are judged by it.
pub(crate) struct Declared<'a>(pub(crate) &'a Catalog);

impl declare::Beside for Declared<'_> {
    fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec> {
        self.0.flavor(name)
    }

    /// Agents place pods; here every topology will do.
    fn topology(&self, _: &str) -> bool {
        true
    }

    fn check(&self, name: &str) -> Option<(&str, bool)> {
        self.0.admission_check(name).map(|check| (check.controller_name.as_str(), true))
    }
}

impl Deciding {
    pub(crate) fn touch(&mut self, uid: Uid) {
        self.touched.insert(uid);
    }

    /// Declarations changed: they are read again before the next decision.
    pub(crate) fn declare_again(&mut self) {
        self.stale = true;
    }

    /// An object changed: ways are worked out anew.
    pub(crate) fn forget_ways(&mut self) {
        self.ways.clear();
    }

    /// A class is gone.
    pub(crate) fn forget_class(&mut self, class: ClassId) {
        self.ways.remove(&class);
        self.routes.remove(&class);
    }

    /// Everything is brought in line before the next decision.
    pub(crate) fn start_over(&mut self) {
        *self = Self { stale: true, ..Self::default() };
    }

    /// Whether the brain is in line with the state as it is.
    pub(crate) fn in_line(&self) -> bool {
        !self.stale && self.touched.is_empty()
    }

    pub(crate) fn brain(&self) -> &Brain {
        &self.brain
    }

    pub(crate) fn brain_mut(&mut self) -> &mut Brain {
        Arc::make_mut(&mut self.brain)
    }

    /// Takes the brain out for a decision; records that are made meanwhile mark workloads as ever.
    pub(crate) fn take(&mut self) -> Arc<Brain> {
        std::mem::take(&mut self.brain)
    }

    pub(crate) fn put(&mut self, brain: Arc<Brain>) {
        self.brain = brain;
    }

    pub(crate) fn uid(&self, id: WorkloadId) -> Option<Uid> {
        self.uids.get(id.index()).copied().flatten()
    }

    pub(crate) fn id(&self, uid: Uid) -> Option<WorkloadId> {
        self.ids.get(&uid).copied()
    }

    /// The queue that a class was last led to.
    pub(crate) fn led_to(&self, class: ClassId) -> Option<QueueId> {
        self.routes.get(&class).copied().flatten()
    }

    /// A workload may get what it couldn't before: it and its neighbours are looked at again.
    pub(crate) fn look_again(&mut self, uid: Uid) {
        if let Some(queue) = self.id(uid).and_then(|id| self.brain.workload(id)).map(|w| w.queue) {
            self.brain_mut().room_came_back(queue);
        }
    }

    fn forget(&mut self, uid: Uid) {
        self.spare.remove(&uid);
        if let Some(id) = self.ids.remove(&uid) {
            self.uids[id.index()] = None;
            self.brain_mut().remove(id);
        }
    }

    fn know(&mut self, uid: Uid, id: WorkloadId) {
        self.ids.insert(uid, id);
        if self.uids.len() <= id.index() {
            self.uids.resize(id.index() + 1, None);
        }
        self.uids[id.index()] = Some(uid);
    }

    /// Who is asleep: all that doesn't follow from the state.
    pub(crate) fn hash_essence(&self, into: &mut impl Hasher) {
        (self.stale, &self.touched).hash(into);
        for (_, queue) in self.brain.queue_list() {
            let asleep: BTreeSet<Uid> = self.brain.pending(queue).asleep().filter_map(|place| self.uid(place.workload)).collect();
            asleep.hash(into);
        }
    }
}

impl World {
    /// Brings the brain in line with the state.
    pub(crate) fn align(&mut self, now: Mono) {
        if std::mem::take(&mut self.deciding.stale) {
            self.declare(now);
        }
        if self.state.recovery.is_some() {
            // Time and reports release whom recovery holds back.
            self.deciding.touched.extend(&self.deciding.outside);
        }
        for uid in std::mem::take(&mut self.deciding.touched) {
            self.align_one(uid, now);
        }
    }

    fn declare(&mut self, now: Mono) {
        let settings = Settings {
            fair_sharing: self.config.fair_sharing.clone(),
            admission_fair_sharing: self.config.admission_fair_sharing.clone(),
            brief: true,
            ..Settings::default()
        };
        let catalog = &self.state.catalog;
        let brain = Arc::make_mut(&mut self.deciding.brain);
        brain.settings = settings;
        // Agents place pods, and what victims free is kept for the gang that they gave way for.
        brain.settings.gates.topology = false;
        brain.settings.gates.prioritize_preemptors = true;
        let known: Vec<_> = brain.flavor_list().map(|(id, _)| id).collect();
        for id in known {
            brain.set_flavor(id, None);
        }
        for (name, spec) in catalog.flavors() {
            let id = brain.flavor_id(name);
            brain.set_flavor(id, Some(declare::flavor(spec, false)));
        }
        let ignores_lending = self.config.planted.has(Bug::LendingLimitIgnored);
        let cohorts = catalog.cohorts().map(|(name, spec)| (name.clone(), declare::cohort(brain, spec))).collect();
        let mut queues: Vec<_> = catalog.cluster_queues().map(|(name, spec)| declare::cluster_queue(brain, name, spec, &Declared(catalog))).collect();
        for quota in queues.iter_mut().flat_map(|queue| queue.quotas.values_mut()).filter(|_| ignores_lending) {
            quota.lending_limit = None;
        }
        brain.configure(&cohorts, queues);
        self.recall_all();
        // Everybody who was outside may have a way now, and classes whose way changed have another.
        self.deciding.touched.extend(std::mem::take(&mut self.deciding.outside));
        if self.deciding.ids.is_empty() {
            self.deciding.touched.extend(self.state.workloads.keys());
            return;
        }
        for class in self.queues.waiting_classes().collect::<Vec<_>>() {
            let way = self.way(&self.queues.class(class).clone()).ok();
            if self.deciding.routes.get(&class) != Some(&way) {
                self.deciding.touched.extend(self.queues.waiting(class).map(|place| place.uid));
            }
        }
        let _ = now;
    }

    /// How a class gets from a cluster queue to clusters.
    pub(crate) fn way_from(&mut self, class: ClassId, queue: &Arc<str>) -> Arc<Way> {
        if let Some(known) = self.deciding.ways.get(&class).filter(|way| way.queue == *queue) {
            return known.clone();
        }
        let way = Arc::new(Way::new(&self.state.catalog, self.queues.class(class), queue, self.config.residency_required));
        self.deciding.ways.insert(class, way.clone());
        way
    }

    pub(crate) fn way(&self, class: &Class) -> Result<QueueId, NoRoute> {
        let name = self.state.catalog.route(&class.namespace, &class.queue)?;
        self.deciding.brain.queue_id(&name).ok_or_else(|| NoRoute::NoClusterQueue { cluster_queue: name.to_string() })
    }

    fn wanted(&self, uid: Uid, now: Mono) -> Wanted {
        let Some(workload) = self.state.workloads.get(&uid) else { return Wanted::Gone };
        if workload.phase == Phase::Finished {
            return Wanted::Gone;
        }
        if workload.phase.charged() {
            let queue = self.queues.charged_to(uid).and_then(|name| self.deciding.brain.queue_id(name));
            let queue = queue.filter(|_| workload.phase != Phase::Stopping || !self.config.planted.has(Bug::VictimQuotaGivenAway));
            return queue.map_or(Wanted::Outside(None), |queue| Wanted::Holding { queue, evicted: workload.phase == Phase::Stopping });
        }
        if workload.inactive.is_some() {
            return Wanted::Outside(None);
        }
        let rests = self.live.not_before.get(&uid).is_some_and(|until| *until > now);
        if rests || workload.deletion.is_some() || self.held_back(workload, now) {
            return Wanted::Outside(None);
        }
        self.way(self.queues.class(workload.class)).map_or_else(|why| Wanted::Outside(Some(Why::Route(why))), Wanted::Waiting)
    }

    fn align_one(&mut self, uid: Uid, now: Mono) {
        self.deciding.outside.remove(&uid);
        let brain = &self.deciding.brain;
        let known = self.deciding.id(uid).and_then(|id| brain.workload(id).map(|w| (id, w)));
        let shape = self.state.workloads.get(&uid).map(|w| (w.priority, tag(w)));
        // With another priority, or of another size, it is another one to the brain.
        let same = known.filter(|(_, w)| {
            let known = brain.shape_of(w.shape);
            Some((known.priority, known.tag)) == shape
        });
        let there = same.map(|(id, w)| (id, w.queue, w.holding.is_some(), w.evicted()));
        match self.wanted(uid, now) {
            Wanted::Gone => self.deciding.forget(uid),
            Wanted::Outside(why) => {
                self.deciding.forget(uid);
                self.deciding.outside.insert(uid);
                if let (Some(why), Some(class)) = (why, self.state.workloads.get(&uid).map(|w| w.class)) {
                    self.live.blocked.insert(class, why);
                }
            }
            Wanted::Waiting(queue) => {
                let class = self.state.workloads[&uid].class;
                self.deciding.routes.insert(class, Some(queue));
                match there {
                    Some((_, at, false, _)) if at == queue => {}
                    Some((id, at, true, _)) if at == queue => {
                        let since = since(&self.state.workloads[&uid]);
                        self.deciding.spare.remove(&uid);
                        self.deciding.brain_mut().requeue(id, since);
                    }
                    _ => {
                        self.deciding.forget(uid);
                        let new = self.new_workload(uid, queue);
                        let id = self.deciding.brain_mut().wait(new);
                        self.deciding.know(uid, id);
                    }
                }
            }
            Wanted::Holding { queue, evicted } => {
                let spare = self.state.workloads[&uid].spare.clone();
                let id = match there {
                    Some((id, at, true, _)) if at == queue && self.deciding.spare.get(&uid) == spare.as_ref() => id,
                    other => {
                        let given = self.given(uid);
                        match other {
                            Some((id, at, false, _)) if at == queue => {
                                self.deciding.brain_mut().give(id, given, since(&self.state.workloads[&uid]));
                                id
                            }
                            _ => {
                                self.deciding.forget(uid);
                                let new = self.new_workload(uid, queue);
                                let since = new.since;
                                let id = self.deciding.brain_mut().hold(new, given, since, evicted, true);
                                self.deciding.know(uid, id);
                                self.deciding.spare.extend(spare.map(|spare| (uid, spare)));
                                id
                            }
                        }
                    }
                };
                if evicted != self.deciding.brain.workload(id).is_some_and(meridian_queueing::model::Workload::evicted) {
                    let brain = self.deciding.brain_mut();
                    if evicted { brain.evict(id) } else { brain.spare(id) }
                }
            }
        }
    }

    /// What a workload was given, as its records say.
    fn given(&mut self, uid: Uid) -> Vec<Given> {
        let workload = &self.state.workloads[&uid];
        let class = self.queues.class(workload.class).clone();
        let (flavors, gang) = (workload.flavors.clone(), workload.gang(&class));
        let seen: Vec<_> = gang.pod_sets.iter().map(|set| self.config.resources.seen(&set.per_pod)).collect();
        let brain = self.deciding.brain_mut();
        let mut all = Vec::with_capacity(gang.pod_sets.len());
        for (set, seen) in gang.pod_sets.iter().zip(&seen) {
            let mut given = Given { count: set.count, ..Given::default() };
            let requests = brain.requests(seen);
            for (resource, amount) in requests {
                let Some(flavor) = flavors.get(&**brain.resource_name(resource)).cloned() else { continue };
                given.flavors.insert(resource, brain.flavor_id(&flavor));
                given.usage.push((resource, amount.saturating_mul(i64::from(set.count))));
            }
            if let (Some(flavor), Some(pods)) = (flavors.get("pods").cloned(), brain.resource_id("pods")) {
                given.flavors.insert(pods, brain.flavor_id(&flavor));
                given.usage.retain(|(r, _)| *r != pods);
                given.usage.push((pods, i64::from(set.count)));
            }
            all.push(given);
        }
        all
    }

    fn new_workload(&mut self, uid: Uid, queue: QueueId) -> NewWorkload {
        as_waiting((&self.state, &self.queues, &self.config), Arc::make_mut(&mut self.deciding.brain), uid, queue)
    }

    /// A workload as it would wait in a queue of a brain with the same books.
    pub(crate) fn would_wait(&self, brain: &mut Brain, uid: Uid, queue: QueueId) -> NewWorkload {
        as_waiting((&self.state, &self.queues, &self.config), brain, uid, queue)
    }
}

fn as_waiting((state, queues, config): (&State, &Queues, &Config), brain: &mut Brain, uid: Uid, queue: QueueId) -> NewWorkload {
    let workload = &state.workloads[&uid];
    let (class, priority, since, tag) = (workload.class, workload.priority, since(workload), tag(workload));
    // What was given to it before it was made smaller.
    let has = workload.counts.clone().filter(|_| workload.resized.is_some());
    let of = queues.class(class).clone();
    let name = brain.queue(queue).setup.name.clone();
    let excluded = state.catalog.cluster_queue(&name).map(|spec| spec.exclude_resource_prefixes.clone()).unwrap_or_default();
    let pod_sets = of
        .gang
        .pod_sets
        .iter()
        .enumerate()
        .map(|(at, set)| PodSet {
            name: Arc::from(set.name.as_str()),
            count: has.as_ref().and_then(|has| has.get(at)).copied().unwrap_or(set.count),
            min_count: set.min_count,
            per_pod: brain.requests(&without_prefixes(config.resources.seen(&set.per_pod), &excluded)),
            node_selector: set.node_selector.clone(),
            affinity: set.affinity.clone(),
            tolerations: set.tolerations.clone(),
            ..PodSet::default()
        })
        .collect();
    // Alike are only workloads of one class: they may go to the same clusters.
    let shape = brain.intern(Shape { pod_sets, priority, tag, ..Shape::default() });
    let key: Arc<str> = Arc::from(uid.to_string());
    NewWorkload { uid: key.clone(), key, queue, local_queue: Arc::from(format!("{}/{}", of.namespace, of.queue)), shape, since, marks: None }
}

/// Alike are only workloads of one class, and of those none that has another size than it wants.
fn tag(workload: &crate::Workload) -> u64 {
    let class = u64::from(workload.class.0);
    if workload.phase.charged() && workload.resized.is_some() { class | 1 << u32::BITS } else { class }
}

/// A workload's place in time: the number of its record.
fn since(workload: &crate::Workload) -> i64 {
    i64::try_from(workload.submitted.0).unwrap_or(i64::MAX)
}

//! The brain beside the world: who waits and who holds quota, as decisions on queues see them.
//!
//! A cache over [`State`](crate::State): every record that touches a workload marks it, and before the next decision what is
//! marked is brought in line. What the brain decided itself is in line already. Which classes sleep is all that it knows
//! besides, and a restart may forget that: they are looked at once more.
//!
//! A gang that is to grow while it runs is there twice: as who holds quota, and as who waits for what it grows by.

use crate::by_uid::ByUid;
use crate::catalog::{Catalog, NoRoute};
use crate::explain::Why;
use crate::flavors::Flavors;
use crate::places;
use crate::queues::{ClassId, Queues};
use crate::record::Class;
use crate::ways::Way;
use crate::workload::Phase;
use crate::{Config, State, World};
use meridian_objects::spec::ResourceFlavorSpec;
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::without_prefixes;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::{Flavor, Given, Marks, PodSet, QueueId, Shape, WorkloadId};
use meridian_queueing::names::{FlavorId, Id, ResourceId};
use meridian_queueing::settings::Settings;
use meridian_queueing::{Brain, NewWorkload, declare};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::time::Mono;
use meridian_topology::PODS;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The brain, and who is who in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deciding {
    brain: Arc<Brain>,
    ids: ByUid<WorkloadId>,
    /// What gangs that run are to grow by, each an entry of its own.
    growths: ByUid<WorkloadId>,
    /// By number.
    uids: Vec<Option<Uid>>,
    /// Declarations changed.
    stale: bool,
    /// Workloads about which something was recorded.
    touched: BTreeSet<Uid>,
    /// Who isn't looked at and holds nothing: without a way to a queue, resting, deactivated, or held back by recovery.
    outside: BTreeSet<Uid>,
    /// Pods that were given and that gave back what they had, where the brain knows of a gang that isn't as it was given.
    sizes: ByUid<Sizes>,
    /// Ways of classes, until an object changes.
    ways: BTreeMap<ClassId, Arc<Way>>,
    /// The queues that classes lead to, or why to none, until an object changes.
    ways_in: BTreeMap<ClassId, Result<QueueId, NoRoute>>,
    /// Flavors that were given, by the numbers of resources and flavors, so that all to whom they are share them.
    given: BTreeMap<Vec<(ResourceId, FlavorId)>, Flavors>,
    /// Where a class was last led.
    routes: BTreeMap<ClassId, Option<QueueId>>,
    /// Prefixes of resources that queues leave out, as those who wait know them.
    excluded: BTreeMap<QueueId, Vec<String>>,
}

/// Places that were given, and how many of them are empty.
type Sizes = (Option<Vec<u32>>, Option<Vec<u32>>);

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

    /// Nobody answers for a check of another controller, as where that was never installed: its queue admits nothing. Nor does one
    /// whose list of worker clusters isn't there.
    fn check(&self, name: &str) -> Option<(&str, bool)> {
        let controller = self.0.admission_check(name)?.controller_name.as_str();
        let served = [MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER].contains(&controller);
        Some((controller, served && self.0.missing_config_of(name).is_none()))
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
        self.ways_in.clear();
    }

    /// A class is gone.
    pub(crate) fn forget_class(&mut self, class: ClassId) {
        self.ways.remove(&class);
        self.ways_in.remove(&class);
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

    /// The queues that classes were last led to, those that were, in the order of classes.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (ClassId, QueueId)> {
        self.routes.iter().filter_map(|(id, queue)| Some((*id, (*queue)?)))
    }

    /// Whether a workload that waits is looked at by the queue that its class was led to, and doesn't rest.
    pub(crate) fn looks_at(&self, uid: Uid) -> bool {
        !self.outside.contains(&uid)
    }

    /// A workload may get what it couldn't before: it and its neighbours are looked at again.
    pub(crate) fn look_again(&mut self, uid: Uid) {
        if let Some(queue) = self.id(uid).and_then(|id| self.brain.workload(id)).map(|w| w.queue) {
            self.brain_mut().room_came_back(queue);
        }
    }

    /// Whether it is what a gang that runs is to grow by.
    pub(crate) fn is_growth(&self, id: WorkloadId) -> bool {
        self.uid(id).is_some_and(|uid| self.growths.get(&uid) == Some(&id))
    }

    /// What a gang that runs is to grow by.
    pub(crate) fn growth(&self, uid: Uid) -> Option<WorkloadId> {
        self.growths.get(&uid).copied()
    }

    /// The flavor that each resource is given by an assignment of a brain that was taken out.
    pub(crate) fn flavors_of(&mut self, brain: &Brain, assignment: &Assignment) -> Flavors {
        let chosen = assignment
            .pod_sets
            .iter()
            .flat_map(|set| &set.flavors)
            .map(|(resource, choice)| (*resource, choice.flavor))
            .collect();
        self.given.entry(chosen).or_insert_with(|| places::flavors_of(brain, assignment)).clone()
    }

    fn forget_growth(&mut self, uid: Uid) {
        if let Some(id) = self.growths.remove(&uid) {
            self.uids[id.index()] = None;
            self.brain_mut().remove(id);
        }
    }

    /// Who is kept from the brain by something that isn't its business.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &Uid> {
        self.outside.iter()
    }

    fn forget(&mut self, uid: Uid) {
        self.sizes.remove(&uid);
        if let Some(id) = self.ids.remove(&uid) {
            self.uids[id.index()] = None;
            self.brain_mut().remove(id);
        }
    }

    fn know(&mut self, uid: Uid, id: WorkloadId) {
        self.ids.insert(uid, id);
        self.name(uid, id);
    }

    fn name(&mut self, uid: Uid, id: WorkloadId) {
        if self.uids.len() <= id.index() {
            self.uids.resize(id.index() + 1, None);
        }
        self.uids[id.index()] = Some(uid);
    }

    /// Who is asleep: all that doesn't follow from the state.
    pub(crate) fn hash_essence(&self, into: &mut impl Hasher) {
        (self.stale, &self.touched).hash(into);
        for (_, queue) in self.brain.queue_list() {
            let asleep: BTreeSet<Uid> =
                self.brain.pending(queue).asleep().filter_map(|place| self.uid(place.workload)).collect();
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
            self.align_growth(uid, now);
        }
    }

    fn declare(&mut self, now: Mono) {
        let settings = Settings {
            fair_sharing: self.config.fair_sharing.clone(),
            admission_fair_sharing: self.config.admission_fair_sharing.clone(),
            brief: true,
            placed_by_others: true,
            look_again: true,
            ties_by_age: true,
            ..Settings::default()
        };
        self.deciding.given.clear();
        self.deciding.ways_in.clear();
        let catalog = &self.state.catalog;
        let brain = Arc::make_mut(&mut self.deciding.brain);
        brain.settings = settings;
        // What victims free is kept for the gang that they gave way for.
        brain.settings.gates.topology = false;
        brain.settings.gates.prioritize_preemptors = true;
        let known: Vec<_> = brain.flavor_list().map(|(id, _)| id).collect();
        for id in known {
            brain.set_flavor(id, None);
        }
        for (name, spec) in catalog.flavors() {
            let id = brain.flavor_id(name);
            let levels = spec
                .topology_name
                .as_ref()
                .and_then(|name| catalog.topology(name))
                .map(|topology| topology.levels.clone().into());
            brain.set_flavor(id, Some(Flavor { levels, ..declare::flavor(spec, true) }));
        }
        let ignores_lending = self.config.planted.has(Bug::LendingLimitIgnored);
        let cohorts =
            catalog.cohorts().map(|(name, spec)| (name.clone(), declare::cohort(brain, spec))).collect();
        let mut queues: Vec<_> = catalog
            .cluster_queues()
            .map(|(name, spec)| declare::cluster_queue(brain, name, spec, &Declared(catalog)))
            .collect();
        for quota in queues.iter_mut().flat_map(|queue| queue.quotas.values_mut()).filter(|_| ignores_lending)
        {
            quota.lending_limit = None;
        }
        brain.configure(&cohorts, queues);
        let leave_out =
            catalog.cluster_queues().filter(|(_, spec)| !spec.exclude_resource_prefixes.is_empty());
        let excluded = leave_out
            .filter_map(|(name, spec)| Some((brain.queue_id(name)?, spec.exclude_resource_prefixes.clone())))
            .collect();
        let excluded_before = std::mem::replace(&mut self.deciding.excluded, excluded);
        self.recall_all();
        // Everybody who was outside may have a way now, and classes whose way changed have another.
        self.deciding.touched.extend(std::mem::take(&mut self.deciding.outside));
        if self.deciding.ids.is_empty() {
            self.deciding.touched.extend(self.state.workloads.keys());
            return;
        }
        for class in self.queues.waiting_classes().collect::<Vec<_>>() {
            let way = self.way(&self.queues.class(class).clone()).ok();
            // Who asks for something else now is another one to the brain.
            let other_requests =
                way.is_some_and(|queue| excluded_before.get(&queue) != self.deciding.excluded.get(&queue));
            if other_requests {
                self.queues.waiting(class).for_each(|place| self.deciding.forget(place.uid));
            }
            if other_requests || self.deciding.routes.get(&class) != Some(&way) {
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
        let way = Arc::new(Way::new(
            &self.state.catalog,
            self.queues.class(class),
            queue,
            self.config.residency_required,
        ));
        self.deciding.ways.insert(class, way.clone());
        way
    }

    pub(crate) fn way(&self, class: &Class) -> Result<QueueId, NoRoute> {
        let name = self.state.catalog.route(&class.namespace, &class.queue)?;
        self.deciding
            .brain
            .queue_id(&name)
            .ok_or_else(|| NoRoute::NoClusterQueue { cluster_queue: name.to_string() })
    }

    fn wanted(&mut self, uid: Uid, now: Mono) -> Wanted {
        let Some(workload) = self.state.workloads.get(&uid) else { return Wanted::Gone };
        if workload.phase == Phase::Finished {
            return Wanted::Gone;
        }
        if workload.phase.charged() {
            let queue = self.queues.charged_to(uid).and_then(|name| self.deciding.brain.queue_id(name));
            let queue = queue.filter(|_| {
                workload.phase != Phase::Stopping || !self.config.planted.has(Bug::VictimQuotaGivenAway)
            });
            return queue.map_or(Wanted::Outside(None), |queue| Wanted::Holding {
                queue,
                evicted: workload.phase == Phase::Stopping,
            });
        }
        if workload.inactive.is_some() {
            return Wanted::Outside(None);
        }
        let rests = self.live.not_before.get(&uid).is_some_and(|until| *until > now);
        if rests || workload.deletion.is_some() || self.held_back(workload, now) {
            return Wanted::Outside(None);
        }
        let class = workload.class;
        let way = match self.deciding.ways_in.get(&class) {
            Some(known) => known.clone(),
            None => {
                let way = self.way(self.queues.class(class));
                self.deciding.ways_in.insert(class, way.clone());
                way
            }
        };
        way.map_or_else(|why| Wanted::Outside(Some(Why::Route(why))), Wanted::Waiting)
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
        let stopped_in =
            there.filter(|(_, _, holds, evicted)| *holds && *evicted).map(|(_, queue, ..)| queue);
        let wanted = self.wanted(uid, now);
        if let (Some(queue), false) = (stopped_in, matches!(wanted, Wanted::Holding { .. })) {
            self.wake_who_waits_for(uid, queue);
        }
        match wanted {
            Wanted::Gone => self.deciding.forget(uid),
            Wanted::Outside(why) => {
                self.deciding.forget(uid);
                self.deciding.outside.insert(uid);
                if let (Some(why), Some(class)) = (why, self.state.workloads.get(&uid).map(|w| w.class)) {
                    self.live.hindrances.set(class, Some(why));
                }
            }
            Wanted::Waiting(queue) => {
                let class = self.state.workloads[&uid].class;
                self.deciding.routes.insert(class, Some(queue));
                match there {
                    Some((_, at, false, _)) if at == queue => {}
                    Some((id, at, true, _)) if at == queue => {
                        let since = since(&self.state.workloads[&uid]);
                        self.deciding.sizes.remove(&uid);
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
                let sizes = sizes(&self.state.workloads[&uid]);
                let id = match there {
                    Some((id, at, true, _))
                        if at == queue && self.deciding.sizes.get(&uid) == sizes.as_ref() =>
                    {
                        id
                    }
                    other => {
                        let given = self.given(uid);
                        // Of equals the one that was charged last gives way first.
                        let charged_at = self.state.workloads[&uid].reserved.map_or(0, |at| at.0);
                        match other {
                            Some((id, at, false, _)) if at == queue => {
                                self.deciding.brain_mut().give(id, given, charged_at);
                                id
                            }
                            _ => {
                                self.deciding.forget(uid);
                                let new = self.new_workload(uid, queue);
                                let id =
                                    self.deciding.brain_mut().hold(new, given, charged_at, evicted, true);
                                self.deciding.know(uid, id);
                                if let Some(sizes) = sizes {
                                    self.deciding.sizes.insert(uid, sizes);
                                }
                                id
                            }
                        }
                    }
                };
                if evicted
                    != self
                        .deciding
                        .brain
                        .workload(id)
                        .is_some_and(meridian_queueing::model::Workload::evicted)
                {
                    let brain = self.deciding.brain_mut();
                    if evicted { brain.evict(id) } else { brain.spare(id) }
                }
            }
        }
    }

    /// Who made a victim stop is looked at again once it has, also where its queue has left the victim's cohort since.
    fn wake_who_waits_for(&mut self, victim: Uid, queue: QueueId) {
        let Some(by) = self
            .state
            .workloads
            .get(&victim)
            .and_then(|w| w.preempted.as_ref())
            .map(|preempted| preempted.by)
        else {
            return;
        };
        let brain = &self.deciding.brain;
        let Some(at) =
            self.deciding.id(by).and_then(|id| brain.workload(id)).map(|preemptor| preemptor.queue)
        else {
            return;
        };
        if brain.queue(at).tree != brain.queue(queue).tree {
            self.deciding.brain_mut().room_came_back(at);
        }
    }

    /// What a gang that runs is to grow by waits beside what it has.
    fn align_growth(&mut self, uid: Uid, now: Mono) {
        let told = self.live.growths.remove(&uid);
        // Who has no way to a queue is told so.
        let Some((queue, since)) = self.growth_wanted(uid, now) else {
            return self.deciding.forget_growth(uid);
        };
        let workload = &self.state.workloads[&uid];
        let known = self.deciding.growth(uid).and_then(|id| self.deciding.brain.workload(id));
        let same =
            known.filter(|known| known.queue == queue && known.since == since && known.holding.is_none());
        if same.is_some_and(|known| self.deciding.brain.shape_of(known.shape).priority == workload.priority) {
            self.live.growths.extend(told.map(|why| (uid, why)));
            return;
        }
        self.deciding.forget_growth(uid);
        let of = NewEntry {
            counts: workload.grows_by(self.queues.class(workload.class)),
            tag: growth_tag(uid),
            since,
            key: format!("{uid}+"),
        };
        let flavors: BTreeSet<Arc<str>> = workload.flavors.values().cloned().collect();
        let mut new = self.new_entry(uid, queue, of);
        let brain = self.deciding.brain_mut();
        // Its pods are of one kind.
        let pinned = flavors.iter().map(|flavor| brain.flavor_id(flavor)).collect();
        new.marks = Some(Box::new(Marks { pinned, ..Marks::default() }));
        let id = brain.wait(new);
        self.deciding.growths.insert(uid, id);
        self.deciding.name(uid, id);
    }

    /// In which queue, and since when, a gang that runs waits to grow.
    fn growth_wanted(&mut self, uid: Uid, now: Mono) -> Option<(QueueId, i64)> {
        let workload = self.state.workloads.get(&uid)?;
        let class = self.queues.class(workload.class);
        workload.grows_by(class)?;
        if self.held_back(workload, now) {
            self.deciding.outside.insert(uid);
            return None;
        }
        if let Err(why) = self.way(class) {
            self.live.growths.insert(uid, Why::Route(why));
            self.deciding.outside.insert(uid);
            self.deciding.forget_growth(uid);
            return None;
        }
        let queue = self.queues.charged_to(uid).and_then(|name| self.deciding.brain.queue_id(name))?;
        Some((queue, number(workload.grows_since())))
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
            if let (Some(flavor), Some(pods)) = (flavors.get(PODS).cloned(), brain.resource_id(PODS)) {
                given.flavors.insert(pods, brain.flavor_id(&flavor));
                given.usage.retain(|(r, _)| *r != pods);
                given.usage.push((pods, i64::from(set.count)));
            }
            all.push(given);
        }
        all
    }

    fn new_workload(&mut self, uid: Uid, queue: QueueId) -> NewWorkload {
        let of = NewEntry::of(&self.state.workloads[&uid], uid);
        self.new_entry(uid, queue, of)
    }

    fn new_entry(&mut self, uid: Uid, queue: QueueId, of: NewEntry) -> NewWorkload {
        as_waiting(
            (&self.state, &self.queues, &self.config),
            Arc::make_mut(&mut self.deciding.brain),
            uid,
            queue,
            of,
        )
    }

    /// A workload as it would wait in a queue of a brain with the same books.
    pub(crate) fn would_wait(&self, brain: &mut Brain, uid: Uid, queue: QueueId) -> NewWorkload {
        as_waiting(
            (&self.state, &self.queues, &self.config),
            brain,
            uid,
            queue,
            NewEntry::of(&self.state.workloads[&uid], uid),
        )
    }
}

fn as_waiting(
    (state, queues, config): (&State, &Queues, &Config),
    brain: &mut Brain,
    uid: Uid,
    queue: QueueId,
    of: NewEntry,
) -> NewWorkload {
    let NewEntry { counts: has, tag, since, key } = of;
    let workload = &state.workloads[&uid];
    let (class, priority, exact) = (workload.class, workload.priority, tag & GROWTH != 0);
    let of = queues.class(class).clone();
    let name = brain.queue(queue).setup.name.clone();
    let excluded = state
        .catalog
        .cluster_queue(&name)
        .map(|spec| spec.exclude_resource_prefixes.clone())
        .unwrap_or_default();
    let pod_sets = of
        .gang
        .pod_sets
        .iter()
        .enumerate()
        .map(|(at, set)| PodSet {
            name: Arc::from(set.name.as_str()),
            count: has.as_ref().and_then(|has| has.get(at)).copied().unwrap_or(set.count),
            min_count: set.min_count.filter(|_| !exact),
            per_pod: brain.requests(&without_prefixes(config.resources.seen(&set.per_pod), &excluded)),
            node_selector: set.node_selector.clone(),
            affinity: set.affinity.clone(),
            tolerations: set.tolerations.clone(),
            topology: set.topology.clone(),
            on_node: set.topology.as_ref().map_or_else(Amounts::new, |_| set.per_pod.clone()),
            ..PodSet::default()
        })
        .collect();
    // Alike are only workloads of one class: they may go to the same clusters.
    let shape = brain.intern(Shape { pod_sets, priority, tag, ..Shape::default() });
    let key: Arc<str> = Arc::from(key);
    NewWorkload {
        uid: key.clone(),
        key,
        queue,
        local_queue: Arc::from(format!("{}/{}", of.namespace, of.queue)),
        shape,
        since,
        marks: None,
    }
}

/// What makes an entry of the queue of a workload.
struct NewEntry {
    /// Pods of each pod set, where they aren't those that its class has.
    counts: Option<Vec<u32>>,
    tag: u64,
    since: i64,
    key: String,
}

impl NewEntry {
    /// The workload itself.
    fn of(workload: &crate::Workload, uid: Uid) -> Self {
        // What was given to it before it was made smaller.
        let counts = workload.counts.clone().filter(|_| workload.resized.is_some());
        Self { counts, tag: tag(workload), since: since(workload), key: uid.to_string() }
    }
}

/// Tells growths from whole workloads.
const GROWTH: u64 = 1 << 63;

/// No growth is like another: each is bound to where its gang runs.
fn growth_tag(uid: Uid) -> u64 {
    let half = |of: u128| u64::try_from(of & u128::from(u64::MAX)).unwrap_or(0);
    meridian_shared::backoff::splitmix(half(uid.0) ^ half(uid.0 >> u64::BITS).rotate_left(1)) | GROWTH
}

/// How large a gang is, where it isn't as it was given.
fn sizes(workload: &crate::Workload) -> Option<Sizes> {
    let changed = workload.resized.is_some() || workload.spare.is_some();
    changed.then(|| (workload.counts.clone().filter(|_| workload.resized.is_some()), workload.spare.clone()))
}

/// Alike are only workloads of one class, and of those none that has another size than it wants.
fn tag(workload: &crate::Workload) -> u64 {
    let class = u64::from(workload.class.0);
    if workload.phase.charged() && workload.resized.is_some() { class | 1 << u32::BITS } else { class }
}

/// A workload's place in time: the number of its record.
fn since(workload: &crate::Workload) -> i64 {
    number(workload.submitted)
}

fn number(record: RecordNumber) -> i64 {
    i64::try_from(record.0).unwrap_or(i64::MAX)
}

//! What decisions are made from: flavors, queues and cohorts, who waits, who holds quota.

use crate::amount::Amount;
use crate::flavors::{Assignment, totals};
use crate::local::Parts;
use crate::model::{
    Charge, Displaceable, Flavor, Given, Holding, Marks, Moment, Queue, QueueId, QueueSetup, Requests, Shape,
    ShapeId, Usage, Workload, WorkloadId,
};
use crate::names::{FlavorId, Id, Names, ResourceId};
use crate::pending::{ClassKey, Pending, Place};
use crate::settings::Settings;
use crate::tree::{CohortSetup, Forest, Leaf, NodeId, TreeId};
use meridian_topology::PODS;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a local queue used, for fair sharing of admissions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalUsage {
    /// Past use that still counts.
    pub consumed: Parts,
    /// What admissions cost that haven't come about yet.
    pub penalty: Parts,
    /// Weight; zero makes every use infinite.
    pub weight: f64,
}

/// A workload as it comes in.
#[derive(Clone, Debug)]
pub struct NewWorkload {
    /// Namespace and name.
    pub key: Arc<str>,
    /// Tells apart what is alike in everything else.
    pub uid: Arc<str>,
    /// Its cluster queue.
    pub queue: QueueId,
    /// Its local queue: namespace and name.
    pub local_queue: Arc<str>,
    /// Its shape.
    pub shape: ShapeId,
    /// Its place in time.
    pub since: Moment,
    /// Rarely there.
    pub marks: Option<Box<Marks>>,
}

/// Everything that decisions are made from.
#[derive(Clone, Debug, Default)]
pub struct Brain {
    /// Settings.
    pub settings: Settings,
    /// The moment of the decision.
    pub now: Moment,
    /// Cohorts and cluster queues.
    pub forest: Forest,
    resources: Names<ResourceId>,
    /// Where each comes as requests are gone through.
    walk: Vec<u64>,
    flavors: Names<FlavorId>,
    flavor_specs: Vec<Option<Flavor>>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) pending: Vec<Pending>,
    queue_ids: BTreeMap<Arc<str>, QueueId>,
    pub(crate) queue_of_node: Vec<Option<QueueId>>,
    shapes: Vec<Option<(Arc<Shape>, u32)>>,
    shape_ids: BTreeMap<Arc<Shape>, ShapeId>,
    free_shapes: Vec<ShapeId>,
    pub(crate) workloads: Workloads,
    /// Workloads by namespace and name.
    keys: BTreeMap<Arc<str>, WorkloadId>,
    /// Holders that aren't candidates for the time being.
    pub(crate) hidden: BTreeSet<WorkloadId>,
    /// The same: victims of the cycle, while others are looked for.
    pub(crate) gone: BTreeSet<WorkloadId>,
    /// Trees in which something changed since they were last decided on.
    pub(crate) changed: BTreeSet<TreeId>,
    /// Where a run was ended before all of them were decided on.
    pub(crate) left_off: Option<TreeId>,
    /// Queues with somebody to look at.
    pub(crate) active: BTreeSet<QueueId>,
    /// Queues in which somebody waits for room in a cluster.
    pub(crate) placeless: BTreeSet<QueueId>,
    /// For whom room is kept, as it waits too long.
    pub(crate) starving: BTreeMap<QueueId, WorkloadId>,
    /// Whether a search for victims would have found some, had a cluster had the room.
    pub(crate) roomless: bool,
    /// Who was looked at from the first flavor once more since something came of it.
    pub(crate) looked_again: BTreeSet<WorkloadId>,
    /// What was found out about victims while flavors were assigned just now.
    pub(crate) searched: Vec<crate::preempt::Searched>,
    pub(crate) local_usage: BTreeMap<Arc<str>, LocalUsage>,
    /// What each admission cost of which it isn't known yet whether it comes about.
    pub(crate) penalties: BTreeMap<WorkloadId, Parts>,
    pub(crate) topologies: crate::topology::Topologies,
}

/// Workloads by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads {
    list: Vec<Option<Workload>>,
    free: Vec<u32>,
}

impl std::ops::Index<&WorkloadId> for Workloads {
    type Output = Workload;

    fn index(&self, id: &WorkloadId) -> &Workload {
        self.list[id.index()].as_ref().expect("numbers of workloads are those of this brain")
    }
}

impl Workloads {
    pub(crate) fn get(&self, id: &WorkloadId) -> Option<&Workload> {
        self.list.get(id.index()).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut Workload> {
        self.list.get_mut(id.index()).and_then(Option::as_mut)
    }

    fn insert(&mut self, workload: Workload) -> WorkloadId {
        if let Some(at) = self.free.pop() {
            self.list[at as usize] = Some(workload);
            return WorkloadId(at);
        }
        self.list.push(Some(workload));
        WorkloadId(u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX))
    }

    fn remove(&mut self, id: WorkloadId) -> Option<Workload> {
        let removed = self.list.get_mut(id.index())?.take()?;
        self.free.push(id.0);
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        self.list
            .iter()
            .enumerate()
            .filter_map(|(at, w)| Some((WorkloadId(u32::try_from(at).ok()?), w.as_ref()?)))
    }
}

impl Brain {
    /// An empty one.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes over what another one knows of quota in some trees: names, flavors, queues' places and what is used.
    pub(crate) fn take_books(&mut self, of: &Self, trees: &BTreeSet<TreeId>) {
        (self.now, self.forest, self.queue_of_node) =
            (of.now, of.forest.only(trees), of.queue_of_node.clone());
        (self.resources, self.walk) = (of.resources.clone(), of.walk.clone());
        (self.flavors, self.flavor_specs) = (of.flavors.clone(), of.flavor_specs.clone());
    }

    /// The number of a resource.
    pub fn resource(&mut self, name: &str) -> ResourceId {
        let id: ResourceId = self.resources.intern(name);
        if self.walk.len() <= id.index() {
            self.walk.push(crate::names::place_in_walk(name));
        }
        id
    }

    /// Requests in the order in which flavors are looked for, which is [`crate::names::place_in_walk`]'s.
    pub(crate) fn walked(&self, requests: &Requests) -> Requests {
        let mut walked = requests.clone();
        let place = |resource: ResourceId| (self.walk[resource.index()], self.resource_name(resource));
        walked.sort_unstable_by(|(a, _), (b, _)| place(*a).cmp(&place(*b)));
        walked
    }

    /// The number of a resource that is known.
    pub fn resource_id(&self, name: &str) -> Option<ResourceId> {
        self.resources.id(name)
    }

    /// The name of a resource.
    pub fn resource_name(&self, id: ResourceId) -> &Arc<str> {
        self.resources.name(id)
    }

    /// The number of a flavor.
    pub fn flavor_id(&mut self, name: &str) -> FlavorId {
        let id: FlavorId = self.flavors.intern(name);
        if self.flavor_specs.len() <= id.index() {
            self.flavor_specs.resize(id.index() + 1, None);
        }
        id
    }

    /// The name of a flavor.
    pub fn flavor_name(&self, id: FlavorId) -> &Arc<str> {
        self.flavors.name(id)
    }

    /// A flavor that is there.
    pub fn flavor(&self, id: FlavorId) -> Option<&Flavor> {
        self.flavor_specs.get(id.index()).and_then(Option::as_ref)
    }

    /// Declares a flavor, or takes it away.
    pub fn set_flavor(&mut self, id: FlavorId, flavor: Option<Flavor>) {
        self.flavor_specs[id.index()] = flavor;
    }

    /// The resource that counts pods, where anything asks for it.
    pub(crate) fn pods_resource(&self) -> Option<ResourceId> {
        self.resources.id(PODS)
    }

    /// An amount of a resource as people write it.
    pub fn amount_text(&self, resource: ResourceId, amount: Amount) -> String {
        if amount.is_unlimited() {
            "unlimited".to_owned()
        } else {
            meridian_objects::quantity::format(self.resource_name(resource), amount.0)
        }
    }

    /// Sets one amount, keeping the order of names.
    pub(crate) fn put(&self, requests: &mut Requests, resource: ResourceId, amount: i64) {
        if let Some((_, old)) = requests.iter_mut().find(|(r, _)| *r == resource) {
            *old = amount;
            return;
        }
        let name = self.resource_name(resource);
        let at = requests.partition_point(|(r, _)| self.resource_name(*r) < name);
        requests.insert(at, (resource, amount));
    }

    /// Amounts by name as requests.
    pub fn requests<'a>(&mut self, amounts: impl IntoIterator<Item = (&'a String, &'a i64)>) -> Requests {
        let mut requests = Requests::new();
        for (name, amount) in amounts {
            let resource = self.resource(name);
            self.put(&mut requests, resource, *amount);
        }
        requests
    }

    /// Declares all cohorts and cluster queues. Who waits or holds quota in a queue that stays keeps its place; queues that are
    /// gone must have been emptied before.
    pub fn configure(&mut self, cohorts: &BTreeMap<Arc<str>, CohortSetup>, setups: Vec<QueueSetup>) {
        let mut leaves = Vec::with_capacity(setups.len());
        let mut ids = Vec::with_capacity(setups.len());
        for queue in &mut self.queues {
            (queue.node, queue.tree) = (None, None);
        }
        for setup in setups {
            leaves.push(Leaf {
                name: setup.name.clone(),
                cohort: setup.cohort.clone(),
                quotas: setup.quotas.clone(),
                weight: setup.weight,
            });
            let every = |queue: &QueueSetup| {
                let mut flavors = queue.groups.iter().flat_map(|g| &g.flavors);
                flavors.all(|f| self.flavor(*f).is_some_and(|spec| spec.topology.is_some()))
            };
            let topology_only = every(&setup);
            let id = *self.queue_ids.entry(setup.name.clone()).or_insert_with(|| {
                self.queues.push(Queue {
                    setup: Arc::new(QueueSetup::default()),
                    node: None,
                    tree: None,
                    generation: 0,
                    cycles: 0,
                    holders: BTreeSet::new(),
                    ranked: BTreeSet::new(),
                    easiest: BTreeSet::new(),
                    stopping: 0,
                    topology_only,
                });
                self.pending.push(Pending::default());
                QueueId(u32::try_from(self.queues.len() - 1).unwrap_or(u32::MAX))
            });
            let queue = &mut self.queues[id.index()];
            queue.topology_only = topology_only;
            queue.generation += 1;
            queue.setup = Arc::new(setup);
            ids.push(id);
        }
        let (forest, places) = Forest::build(cohorts, &leaves);
        self.forest = forest;
        self.queue_of_node = vec![None; self.forest.nodes().count()];
        self.active.clear();
        for (id, place) in ids.iter().zip(places) {
            let queue = &mut self.queues[id.index()];
            queue.node = place;
            queue.tree = place.map(|node| self.forest.node(node).tree);
            if let Some(node) = place {
                self.queue_of_node[node.index()] = Some(*id);
            }
            self.pending[id.index()].wake();
            self.note_active(*id);
        }
        self.topologies.forget_usage();
        let holders: Vec<WorkloadId> = self.queues.iter().flat_map(|q| q.holders.iter().copied()).collect();
        for id in holders {
            self.charge_anew(id);
        }
        // Trees have other numbers now: what changed in the old ones is looked at with all.
        self.changed =
            (0..self.forest.trees()).map(|t| TreeId::new(u32::try_from(t).unwrap_or(u32::MAX))).collect();
    }

    /// Whether the queue is among those whose heads are looked at.
    pub(crate) fn note_active(&mut self, id: QueueId) {
        let queue = &self.queues[id.index()];
        if queue.node.is_some() && queue.setup.inactive.is_none() && self.pending[id.index()].has_head() {
            self.active.insert(id);
        } else {
            self.active.remove(&id);
        }
    }

    /// One queue.
    pub fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id.index()]
    }

    /// A queue by name.
    pub fn queue_id(&self, name: &str) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    /// Every queue that is declared, by name.
    pub fn queue_list(&self) -> impl Iterator<Item = (&Arc<str>, QueueId)> {
        self.queue_ids.iter().map(|(name, id)| (name, *id))
    }

    /// Who waits in a queue.
    pub fn pending(&self, id: QueueId) -> &Pending {
        &self.pending[id.index()]
    }

    /// The number of a shape; equal shapes have the same.
    pub fn intern(&mut self, shape: Shape) -> ShapeId {
        if let Some(id) = self.shape_ids.get(&shape) {
            return *id;
        }
        let shape = Arc::new(shape);
        let entry = Some((shape.clone(), 0));
        let id = match self.free_shapes.pop() {
            Some(id) => {
                self.shapes[id.index()] = entry;
                id
            }
            None => {
                self.shapes.push(entry);
                ShapeId(u32::try_from(self.shapes.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.shape_ids.insert(shape, id);
        id
    }

    /// A shape by number.
    pub fn shape_of(&self, id: ShapeId) -> &Arc<Shape> {
        &self.shapes[id.index()].as_ref().expect("shapes live as long as their workloads").0
    }

    fn count_shape(&mut self, id: ShapeId, more: bool) {
        let Some((shape, members)) = self.shapes[id.index()].as_mut() else { return };
        if more {
            *members += 1;
            return;
        }
        *members -= 1;
        if *members == 0 {
            let shape = shape.clone();
            self.shape_ids.remove(&shape);
            self.shapes[id.index()] = None;
            self.free_shapes.push(id);
        }
    }

    /// A workload by number.
    pub fn workload(&self, id: WorkloadId) -> Option<&Workload> {
        self.workloads.get(&id)
    }

    /// A workload by namespace and name.
    pub fn find(&self, key: &str) -> Option<WorkloadId> {
        self.keys.get(key).copied()
    }

    /// Every workload.
    pub fn workloads(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        self.workloads.iter()
    }

    /// Its priority.
    pub(crate) fn priority_of(&self, workload: &Workload) -> i64 {
        self.shape_of(workload.shape).priority
    }

    /// What tells two apart that were given quota in one moment.
    pub(crate) fn tie_of(&self, workload: &Workload) -> Moment {
        if self.settings.ties_by_age { workload.since } else { 0 }
    }

    /// A holder as a search for victims meets it.
    pub(crate) fn displaceable_as(&self, id: WorkloadId) -> Displaceable {
        let of = &self.workloads[&id];
        let since = Reverse(of.holding.as_ref().map_or(0, |h| h.since));
        let age = Reverse(self.tie_of(of));
        Displaceable {
            goes_on: !of.evicted(),
            priority: self.priority_of(of),
            since,
            age,
            uid: of.uid.clone(),
            workload: id,
        }
    }

    /// Lists a holder among those of its queue, or no longer.
    fn list(&mut self, id: WorkloadId, listed: bool) {
        let (of, easiest) = (&self.workloads[&id], self.displaceable_as(id));
        let rank = (easiest.priority, Reverse(of.since), id);
        let given = of.holding.iter().flat_map(|holding| &holding.given);
        let flavors: BTreeSet<FlavorId> = given.flat_map(|given| given.flavors.values().copied()).collect();
        let stopping = usize::from(!easiest.goes_on);
        let queue = &mut self.queues[of.queue.index()];
        if listed {
            queue.holders.insert(id);
            queue.ranked.insert(rank);
            queue.stopping += stopping;
            queue.easiest.extend(flavors.into_iter().map(|flavor| (flavor, easiest.clone())));
        } else {
            queue.holders.remove(&id);
            queue.ranked.remove(&rank);
            queue.stopping -= stopping;
            for flavor in flavors {
                queue.easiest.remove(&(flavor, easiest.clone()));
            }
        }
    }

    /// Says of a holder whether it is stopping.
    fn set_evicted(&mut self, id: WorkloadId, evicted: bool) {
        if self.workloads.get(&id).and_then(|w| w.holding.as_ref()).is_none_or(|h| h.evicted == evicted) {
            return;
        }
        self.list(id, false);
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.evicted = evicted;
        }
        self.list(id, true);
    }

    pub(crate) fn place_of(&self, id: WorkloadId) -> (ClassKey, Place) {
        let of = &self.workloads[&id];
        ((of.local_queue.clone(), of.shape), Place::new(self.priority_of(of), of.since, of.uid.clone(), id))
    }

    fn insert(&mut self, new: NewWorkload) -> WorkloadId {
        let NewWorkload { key, uid, queue, local_queue, shape, since, marks } = new;
        self.count_shape(shape, true);
        let id = self.workloads.insert(Workload {
            key: key.clone(),
            uid,
            queue,
            local_queue,
            shape,
            since,
            marks,
            holding: None,
            scan: None,
            passed_over: false,
            placeless: false,
            in_vain: false,
            displaces_for: None,
        });
        self.keys.insert(key, id);
        id
    }

    /// A workload begins to wait.
    pub fn wait(&mut self, new: NewWorkload) -> WorkloadId {
        let queue = new.queue;
        let id = self.insert(new);
        let (class, place) = self.place_of(id);
        self.pending[queue.index()].push(&class, place);
        self.note_changed(queue);
        self.note_active(queue);
        id
    }

    /// A workload that waits, but isn't looked at before something about it changes.
    pub fn wait_aside(&mut self, new: NewWorkload) -> WorkloadId {
        let queue = new.queue;
        let id = self.insert(new);
        let (class, place) = self.place_of(id);
        self.pending[queue.index()].park(&class, place, true);
        id
    }

    /// A workload that holds quota already.
    pub fn hold(
        &mut self,
        new: NewWorkload,
        given: Vec<Given>,
        since: Moment,
        evicted: bool,
        admitted: bool,
    ) -> WorkloadId {
        let id = self.insert(new);
        self.reserve(id, given, since);
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.admitted = admitted;
        }
        self.set_evicted(id, evicted);
        id
    }

    pub(crate) fn note_changed(&mut self, queue: QueueId) {
        self.changed.extend(self.queues[queue.index()].tree);
    }

    /// Gives a workload its quota. It no longer waits.
    pub(crate) fn reserve(&mut self, id: WorkloadId, given: Vec<Given>, since: Moment) {
        if self.workloads.get(&id).is_none() {
            return;
        }
        self.starves_no_more(id);
        if self.workloads[&id].holding.is_some() {
            self.list(id, false);
        }
        let Some(workload) = self.workloads.get_mut(id) else { return };
        (workload.scan, workload.displaces_for) = (None, None);
        (workload.placeless, workload.in_vain) = (false, false);
        workload.holding = Some(Box::new(Holding { given, since, ..Holding::default() }));
        self.list(id, true);
        self.charge_anew(id);
    }

    /// Derives a holder's charge and adds it to the books.
    fn charge_anew(&mut self, id: WorkloadId) {
        let workload = &self.workloads[&id];
        let usage = usage_of(self, workload);
        let Some((node, tree)) = self.queue(workload.queue).node.zip(self.queue(workload.queue).tree) else {
            return;
        };
        let charge: Charge =
            usage.iter().map(|(key, amount)| (self.forest.cell_id(tree, *key), *amount)).collect();
        for (cell, amount) in &charge {
            self.forest.add(node, *cell, *amount);
        }
        self.place_usage(id, true);
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.charge = charge;
        }
    }

    /// Takes a holder's use out of the books, or puts it back.
    fn apply_charge(&mut self, id: WorkloadId, add: bool) {
        let Some(workload) = self.workloads.get(&id) else { return };
        let Some(node) = self.queues[workload.queue.index()].node else { return };
        let Some(holding) = &workload.holding else { return };
        for (cell, amount) in &holding.charge {
            if add {
                self.forest.add(node, *cell, *amount);
            } else {
                self.forest.remove(node, *cell, *amount);
            }
        }
        self.place_usage(id, add);
    }

    /// Takes a holder's use out of the books for a while.
    pub(crate) fn suspend_usage(&mut self, id: WorkloadId) {
        self.apply_charge(id, false);
    }

    /// Puts it back.
    pub(crate) fn resume_usage(&mut self, id: WorkloadId) {
        self.apply_charge(id, true);
    }

    /// A workload is gone: finished, deleted, or to come back as a new one.
    pub fn remove(&mut self, id: WorkloadId) -> Option<Workload> {
        let queue = self.workloads.get(&id)?.queue;
        self.starves_no_more(id);
        if self.workloads[&id].holding.is_some() {
            self.apply_charge(id, false);
            self.list(id, false);
            self.queues[queue.index()].generation += 1;
            self.room_came_back(queue);
        } else {
            let (class, place) = self.place_of(id);
            self.pending[queue.index()].remove(&class, &place);
            self.note_active(queue);
            // Who waited behind it may come first now.
            self.note_changed(queue);
        }
        self.take_back_penalty(id);
        let removed = self.workloads.remove(id)?;
        self.keys.remove(&removed.key);
        self.count_shape(removed.shape, false);
        Some(removed)
    }

    /// A holder gives its quota back and waits again.
    pub fn requeue(&mut self, id: WorkloadId, since: Moment) {
        self.give_back(id, since, false);
    }

    /// The same of one that isn't looked at then before something about it changes.
    pub fn requeue_aside(&mut self, id: WorkloadId, since: Moment) {
        self.give_back(id, since, true);
    }

    fn give_back(&mut self, id: WorkloadId, since: Moment, aside: bool) {
        let Some(queue) = self.workloads.get(&id).filter(|w| w.holding.is_some()).map(|w| w.queue) else {
            return;
        };
        self.apply_charge(id, false);
        self.list(id, false);
        self.queues[queue.index()].generation += 1;
        if let Some(workload) = self.workloads.get_mut(id) {
            workload.holding = None;
            workload.since = since;
            workload.scan = None;
            if let Some(marks) = &mut workload.marks {
                // It stands nowhere any more: where it stands next, nothing of it was lost.
                marks.lost_nodes.clear();
            }
        }
        let (class, place) = self.place_of(id);
        let pending = &mut self.pending[queue.index()];
        if aside {
            pending.park(&class, place, true);
        } else {
            pending.push(&class, place);
        }
        self.room_came_back(queue);
        self.note_active(queue);
    }

    /// A holder was told to stop; its quota stays until it has.
    pub fn evict(&mut self, id: WorkloadId) {
        self.set_evicted(id, true);
    }

    /// A holder that was told to stop goes on: it couldn't be told, or needn't any more.
    pub fn spare(&mut self, id: WorkloadId) {
        self.set_evicted(id, false);
    }

    /// A holder may run: nothing is left to be checked.
    pub fn admit(&mut self, id: WorkloadId) {
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.admitted = true;
        }
    }

    /// Changes what is known about a workload besides its shape.
    pub fn set_marks(&mut self, id: WorkloadId, marks: Option<Box<Marks>>) {
        if let Some(workload) = self.workloads.get_mut(id) {
            workload.marks = marks;
        }
    }

    /// Room came back in a queue: everybody of its tree is looked at again.
    pub fn room_came_back(&mut self, queue: QueueId) {
        let Some(tree) = self.queues[queue.index()].tree else { return };
        self.wake_tree(tree);
    }

    /// Looks at everybody of a tree again.
    pub fn wake_tree(&mut self, tree: TreeId) {
        self.changed.insert(tree);
        let queues: Vec<QueueId> =
            self.forest.tree(tree).queues.iter().filter_map(|node| self.queue_at(*node)).collect();
        for queue in queues {
            if self.pending[queue.index()].wake() {
                self.note_active(queue);
            }
        }
    }

    /// Room may have come free in a cluster: who waits only for that is looked at again.
    pub fn wake_placeless(&mut self) {
        for queue in std::mem::take(&mut self.placeless) {
            self.pending[queue.index()].wake_placeless();
            self.note_changed(queue);
            self.note_active(queue);
        }
    }

    /// A workload that waits gets quota that somebody else decided on: it is a fact.
    pub fn give(&mut self, id: WorkloadId, given: Vec<Given>, since: Moment) {
        let Some(queue) = self.workloads.get(&id).filter(|w| w.holding.is_none()).map(|w| w.queue) else {
            return;
        };
        let (class, place) = self.place_of(id);
        self.pending[queue.index()].remove(&class, &place);
        self.note_active(queue);
        self.reserve(id, given, since);
        self.note_changed(queue);
    }

    /// Looks at everybody again.
    pub fn wake_all(&mut self) {
        for tree in 0..self.forest.trees() {
            self.wake_tree(TreeId::new(u32::try_from(tree).unwrap_or(u32::MAX)));
        }
    }

    /// What the request takes of quota with the flavors of an assignment, as charges.
    pub(crate) fn charge_of_request(&self, id: WorkloadId, assignment: &Assignment) -> Charge {
        let workload = &self.workloads[&id];
        let Some(tree) = self.queue(workload.queue).tree else { return Charge::new() };
        let shape = self.shape_of(workload.shape);
        let old = assignment
            .replaces
            .and_then(|old| self.workloads.get(&old))
            .map(|old| totals(self.shape_of(old.shape), old));
        let mut charge = Charge::new();
        for (at, set) in assignment.pod_sets.iter().enumerate() {
            let pods = old.as_ref().and_then(|old| old.get(at)).map_or(i64::from(set.count), |old| {
                i64::from(totals(shape, workload)[at].count) - i64::from(old.count)
            });
            for (resource, amount) in &set.requests {
                let (Some(choice), true) = (set.flavor(*resource), *amount != 0) else { continue };
                let amount = if old.is_some() && set.count > 0 {
                    (*amount / i64::from(set.count)).saturating_mul(pods)
                } else {
                    *amount
                };
                let Some(cell) = self.forest.find_cell(tree, (choice.flavor, *resource)) else { continue };
                match charge.iter_mut().find(|(c, _)| *c == cell) {
                    Some((_, sum)) => *sum = *sum + Amount(amount),
                    None => charge.push((cell, Amount(amount))),
                }
            }
        }
        charge
    }

    /// The nominal quota with which a queue would have `asks` free of a flavor and resource, now and as a maximum, everybody
    /// else's quota and use being what they are.
    pub fn nominal_for(&self, queue: QueueId, key: (FlavorId, ResourceId), asks: i64) -> i64 {
        let of = self.queue(queue);
        let nominal = of.setup.quota(key).nominal;
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        let Some((node, cell)) = cell else { return nominal.0.saturating_add(asks) };
        // Every further unit of nominal quota is one unit more at the queue, and one more in its cohort where it lends it.
        let asks = Amount(asks);
        let free = asks - self.forest.balance(node, cell);
        let most = asks - self.forest.cell(node, cell).potential;
        (nominal + free.max(most).floor()).0
    }

    /// How much a queue uses of a flavor and resource.
    pub fn used(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let queue = self.queue(queue);
        let cell = queue.node.zip(queue.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.cell(node, cell).usage.0)
    }

    /// Whether a holder is no candidate for the time being.
    pub(crate) fn is_hidden(&self, id: WorkloadId) -> bool {
        self.hidden.contains(&id) || self.gone.contains(&id)
    }

    /// The node of a workload's queue.
    pub(crate) fn node_of(&self, id: WorkloadId) -> Option<NodeId> {
        self.queue(self.workloads.get(&id)?.queue).node
    }
}

/// A holder's use of quota by flavor and resource.
pub(crate) fn usage_of(brain: &Brain, workload: &Workload) -> Usage {
    let mut usage = Usage::new();
    for total in totals(brain.shape_of(workload.shape), workload) {
        for (resource, flavor) in &total.flavors {
            let (key, amount) =
                ((*flavor, *resource), Amount(crate::model::amount_of(&total.requests, *resource)));
            match usage.iter_mut().find(|(k, _)| *k == key) {
                Some((_, sum)) => *sum = *sum + amount,
                None => usage.push((key, amount)),
            }
        }
    }
    usage
}

impl Brain {
    /// Every flavor that is there.
    pub fn flavor_list(&self) -> impl Iterator<Item = (FlavorId, &Flavor)> {
        self.flavor_specs
            .iter()
            .enumerate()
            .filter_map(|(at, spec)| Some((FlavorId(u32::try_from(at).ok()?), spec.as_ref()?)))
    }

    /// Everybody who holds quota.
    pub(crate) fn holder_list(&self) -> Vec<WorkloadId> {
        self.queues.iter().flat_map(|q| q.holders.iter().copied()).collect()
    }
}

//! The brain beside the world: who waits and who holds quota, as decisions on queues see them.
//!
//! A cache over [`State`](crate::State): every record that touches a workload marks it, and before the next decision what is
//! marked is brought in line. What the brain decided itself is in line already. Which classes sleep is all that it knows
//! besides, and a restart may forget that: they are looked at once more.
//!
//! A gang that is to grow while it runs is there twice: as who holds quota, and as who waits for what it grows by.

use crate::facts::flavors::Flavors;
use crate::facts::reason::NoRoute;
use crate::facts::submission::ClassId;
use crate::queue::candidate_clusters::CandidateClusters;
use crate::state::by_uid::ByUid;
use crate::state::catalog::Catalog;
use meridian_objects::spec::ResourceFlavorSpec;
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, Id, ResourceId};
use meridian_queueing::{Brain, declare};
use meridian_shared::ids::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The brain, and who is who in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueMirror {
    pub(crate) brain: Arc<Brain>,
    pub(crate) ids: ByUid<WorkloadId>,
    /// What gangs that run are to grow by, each an entry of its own.
    pub(crate) scale_up_reasons: ByUid<WorkloadId>,
    /// By number.
    uids: Vec<Option<Uid>>,
    /// Declarations changed.
    pub(crate) stale: bool,
    /// Workloads about which something was recorded.
    pub(crate) touched: BTreeSet<Uid>,
    /// Who isn't looked at and holds nothing: without a way to a queue, backing_off, deactivated, or held back by recovery.
    pub(crate) outside: BTreeSet<Uid>,
    /// Pods that were given and that gave back what they had, where the brain knows of a gang that isn't as it was given.
    pub(crate) sizes: ByUid<Sizes>,
    /// Ways of classes, until an object changes.
    pub(crate) ways: BTreeMap<ClassId, Arc<CandidateClusters>>,
    /// The queues that classes lead to, or why to none, until an object changes.
    pub(crate) ways_in: BTreeMap<ClassId, Result<QueueId, NoRoute>>,
    /// Flavors that were given, by the numbers of resources and flavors, so that all to whom they are share them.
    pub(crate) given: BTreeMap<Vec<(ResourceId, FlavorId)>, Flavors>,
    /// Where a class was last led.
    pub(crate) routes: BTreeMap<ClassId, Option<QueueId>>,
    /// Prefixes of resources that queues leave out, as those who wait know them.
    pub(crate) excluded: BTreeMap<QueueId, Vec<String>>,
}

/// It follows from the state, so it tells no two worlds apart.
impl PartialEq for QueueMirror {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for QueueMirror {}

impl Hash for QueueMirror {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl QueueMirror {
    pub(crate) fn touch(&mut self, uid: Uid) {
        self.touched.insert(uid);
    }

    /// Declarations changed: they are read again before the next decision.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// An object changed: ways are worked out anew.
    pub(crate) fn forget_candidates(&mut self) {
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
    pub(crate) fn is_aligned(&self) -> bool {
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
    pub(crate) fn is_scale_up(&self, id: WorkloadId) -> bool {
        self.uid(id).is_some_and(|uid| self.scale_up_reasons.get(&uid) == Some(&id))
    }

    /// What a gang that runs is to grow by.
    pub(crate) fn growth(&self, uid: Uid) -> Option<WorkloadId> {
        self.scale_up_reasons.get(&uid).copied()
    }

    /// The flavor that each resource is given by an assignment of a brain that was taken out.
    pub(crate) fn flavors_of(&mut self, brain: &Brain, assignment: &Assignment) -> Flavors {
        let chosen = assignment
            .pod_sets
            .iter()
            .flat_map(|set| &set.flavors)
            .map(|(resource, choice)| (*resource, choice.flavor))
            .collect();
        self.given.entry(chosen).or_insert_with(|| flavors_of(brain, assignment)).clone()
    }

    pub(crate) fn forget_scale_up(&mut self, uid: Uid) {
        if let Some(id) = self.scale_up_reasons.remove(&uid) {
            self.uids[id.index()] = None;
            self.brain_mut().remove(id);
        }
    }

    /// Who is kept from the brain by something that isn't its business.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &Uid> {
        self.outside.iter()
    }

    pub(crate) fn forget(&mut self, uid: Uid) {
        self.sizes.remove(&uid);
        if let Some(id) = self.ids.remove(&uid) {
            self.uids[id.index()] = None;
            self.brain_mut().remove(id);
        }
    }

    pub(crate) fn know(&mut self, uid: Uid, id: WorkloadId) {
        self.ids.insert(uid, id);
        self.name(uid, id);
    }

    pub(crate) fn name(&mut self, uid: Uid, id: WorkloadId) {
        if self.uids.len() <= id.index() {
            self.uids.resize(id.index() + 1, None);
        }
        self.uids[id.index()] = Some(uid);
    }

    /// Who is asleep: all that doesn't follow from the state.
    pub(crate) fn hash_fingerprint(&self, into: &mut impl Hasher) {
        (self.stale, &self.touched).hash(into);
        for (_, queue) in self.brain.queue_list() {
            let asleep: BTreeSet<Uid> =
                self.brain.pending(queue).asleep().filter_map(|place| self.uid(place.workload)).collect();
            asleep.hash(into);
        }
    }
}

/// Places that were given, and how many of them are empty.
pub(crate) type Sizes = (Option<Vec<u32>>, Option<Vec<u32>>);

/// The catalog, as declarations of queues are judged by it.
pub(crate) struct CatalogReferences<'a>(pub(crate) &'a Catalog);

impl declare::Beside for CatalogReferences<'_> {
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

/// The flavor that each resource is given by an assignment.
pub(crate) fn flavors_of(brain: &Brain, assignment: &Assignment) -> Flavors {
    let chosen = assignment.pod_sets.iter().flat_map(|set| &set.flavors);
    chosen
        .map(|(resource, choice)| {
            (brain.resource_name(*resource).to_string(), brain.flavor_name(choice.flavor).clone())
        })
        .collect()
}

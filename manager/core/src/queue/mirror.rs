//! The queue mirror: the queue state of `meridian-queueing`, kept in line with the world.
//!
//! A cache over [`State`](crate::state::State). Every record about a workload marks the workload, and marked
//! workloads are brought in line before the next scheduling cycle. Only one part of the queue state doesn't
//! follow from the state: which workloads are parked. A restart loses it, which costs one more evaluation of
//! each.
//!
//! A running gang that is to be scaled up has two entries: one that holds its quota, and one that waits for
//! the quota of the additional pods.

use crate::facts::flavors::Flavors;
use crate::facts::reason::NoRoute;
use crate::facts::submission::ClassId;
use crate::queue::candidate_clusters::CandidateClusters;
use crate::state::by_uid::ByUid;
use crate::state::catalog::Catalog;
use meridian_objects::spec::ResourceFlavorSpec;
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_queueing::flavors::{Assignment, FlavorAssignment};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, Id, ResourceId};
use meridian_queueing::{QueueState, declare};
use meridian_shared::ids::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The queue state, and the mapping between its ids and workload uids.
///
/// Every entry that isn't removed has its workload in `uids`, and is its entry in `ids` or `scale_ups`. A
/// workload is in `outside` only if it has no entry in `ids`.
#[derive(Clone, Debug, Default)]
pub struct QueueMirror {
    state: Arc<QueueState>,
    ids: ByUid<WorkloadId>,
    /// Entries for the additional pods of running gangs that are to be scaled up.
    scale_ups: ByUid<WorkloadId>,
    /// Workload of each entry, indexed by [`WorkloadId`].
    uids: Vec<Option<Uid>>,
    /// Whether declarations of queues changed and must be read again.
    stale: bool,
    /// Workloads to bring in line, because a record was made about them.
    touched: BTreeSet<Uid>,
    /// Workloads that aren't in the queue state: they hold no quota, and have no queue route, back off, are
    /// deactivated, are held back by recovery, or their manifest can't be read.
    outside: BTreeSet<Uid>,
    /// Pod counts in the queue state, for workloads whose counts differ from those of their admission.
    sizes: ByUid<Sizes>,
    /// Candidate clusters by class; cleared when an object changes.
    candidate_clusters: BTreeMap<ClassId, Arc<CandidateClusters>>,
    /// Queue routes by class; cleared when an object changes.
    queue_routes: BTreeMap<ClassId, Result<QueueId, NoRoute>>,
    /// Assigned flavors by their ids per pod set, so that workloads with equal flavors share one allocation.
    given: BTreeMap<Vec<Vec<(ResourceId, FlavorId)>>, Flavors>,
    /// The queue that the waiting workloads of each class were last put into.
    routes: BTreeMap<ClassId, Option<QueueId>>,
    /// Resource prefixes that each queue ignored when the requests of waiting workloads were last computed.
    excluded: BTreeMap<QueueId, Vec<String>>,
}

/// All mirrors are equal: a mirror is derived from the state, so comparisons of worlds ignore it.
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

    /// Requests that declarations are read again before the next scheduling cycle.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Drops values that were derived from objects, because an object changed.
    pub(crate) fn forget_candidates(&mut self) {
        self.candidate_clusters.clear();
        self.queue_routes.clear();
    }

    pub(crate) fn forget_class(&mut self, class: ClassId) {
        self.candidate_clusters.remove(&class);
        self.queue_routes.remove(&class);
        self.routes.remove(&class);
    }

    /// Empties the mirror; the next alignment rebuilds it.
    pub(crate) fn start_over(&mut self) {
        *self = Self { stale: true, ..Self::default() };
    }

    /// Whether declarations must be read again. They count as read from now on.
    pub(crate) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Drops what was derived from declarations, because they are read again.
    pub(crate) fn forget_declared(&mut self) {
        self.given.clear();
        self.queue_routes.clear();
    }

    /// Whether no workload has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn touch_all(&mut self, uids: impl IntoIterator<Item = Uid>) {
        self.touched.extend(uids);
    }

    /// Marks all workloads that are outside of the queue state. They stay outside until the caller brings
    /// them in line.
    pub(crate) fn touch_outside(&mut self) {
        self.touched.extend(&self.outside);
    }

    /// Marks all workloads that are outside of the queue state, and empties the set of those: each is put
    /// outside again if it still belongs there.
    pub(crate) fn reconsider_outside(&mut self) {
        self.touched.append(&mut self.outside);
    }

    /// The marked workloads, which the caller brings in line.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Uid> {
        std::mem::take(&mut self.touched)
    }

    /// Notes that the workload isn't in the queue state.
    pub(crate) fn put_outside(&mut self, uid: Uid) {
        self.outside.insert(uid);
    }

    /// Notes that the workload is being brought in line.
    pub(crate) fn leave_outside(&mut self, uid: Uid) {
        self.outside.remove(&uid);
    }

    /// Sets the resource prefixes that each queue ignores, and returns the previous ones.
    pub(crate) fn exclude(
        &mut self,
        excluded: BTreeMap<QueueId, Vec<String>>,
    ) -> BTreeMap<QueueId, Vec<String>> {
        std::mem::replace(&mut self.excluded, excluded)
    }

    /// Resource prefixes that the queue ignores; `None` if there are none.
    pub(crate) fn excluded_in(&self, queue: QueueId) -> Option<&Vec<String>> {
        self.excluded.get(&queue)
    }

    /// Whether the waiting workloads of a class were last put into this queue; `None` stands for no queue.
    pub(crate) fn is_routed_to(&self, class: ClassId, queue: Option<QueueId>) -> bool {
        self.routes.get(&class) == Some(&queue)
    }

    /// Notes that the waiting workloads of a class are put into this queue.
    pub(crate) fn route(&mut self, class: ClassId, queue: QueueId) {
        self.routes.insert(class, Some(queue));
    }

    /// The candidate clusters of a class in a cluster queue, if they are known.
    pub(crate) fn known_candidates(
        &self,
        class: ClassId,
        queue: &Arc<str>,
    ) -> Option<&Arc<CandidateClusters>> {
        self.candidate_clusters.get(&class).filter(|candidates| candidates.queue == *queue)
    }

    pub(crate) fn know_candidates(&mut self, class: ClassId, candidates: Arc<CandidateClusters>) {
        self.candidate_clusters.insert(class, candidates);
    }

    /// The queue route of a class, or why it has none, if that is known.
    pub(crate) fn known_route(&self, class: ClassId) -> Option<&Result<QueueId, NoRoute>> {
        self.queue_routes.get(&class)
    }

    pub(crate) fn know_route(&mut self, class: ClassId, route: Result<QueueId, NoRoute>) {
        self.queue_routes.insert(class, route);
    }

    /// Pod counts of a workload in the queue state, if they differ from those of its admission.
    pub(crate) fn sizes(&self, uid: Uid) -> Option<&Sizes> {
        self.sizes.get(&uid)
    }

    pub(crate) fn set_sizes(&mut self, uid: Uid, sizes: Option<Sizes>) {
        match sizes {
            Some(sizes) => drop(self.sizes.insert(uid, sizes)),
            None => drop(self.sizes.remove(&uid)),
        }
    }

    /// Whether the queue state is in line with the state.
    pub(crate) fn is_aligned(&self) -> bool {
        !self.stale && self.touched.is_empty()
    }

    pub fn queue_state(&self) -> &QueueState {
        &self.state
    }

    pub(crate) fn queue_state_mut(&mut self) -> &mut QueueState {
        Arc::make_mut(&mut self.state)
    }

    /// Takes the queue state out for a scheduling cycle, until [`Self::put`]. Records made meanwhile still
    /// mark workloads.
    pub(crate) fn take(&mut self) -> Arc<QueueState> {
        std::mem::take(&mut self.state)
    }

    pub(crate) fn put(&mut self, queues: Arc<QueueState>) {
        self.state = queues;
    }

    pub fn uid(&self, id: WorkloadId) -> Option<Uid> {
        self.uids.get(id.index()).copied().flatten()
    }

    pub fn id(&self, uid: Uid) -> Option<WorkloadId> {
        self.ids.get(&uid).copied()
    }

    /// Classes that have a queue route, with the queue that their waiting workloads were last put into.
    pub fn routes(&self) -> impl Iterator<Item = (ClassId, QueueId)> {
        self.routes.iter().filter_map(|(id, queue)| Some((*id, (*queue)?)))
    }

    /// Whether a waiting workload is in the queue of its class, so that the queue can admit it.
    pub fn looks_at(&self, uid: Uid) -> bool {
        !self.outside.contains(&uid)
    }

    /// Requeues the parked workloads of the workload's queue: quota that one of them needs may be free now.
    pub(crate) fn requeue_neighbours(&mut self, uid: Uid) {
        if let Some(queue) = self.id(uid).and_then(|id| self.state.workload(id)).map(|w| w.queue) {
            self.queue_state_mut().quota_released(queue);
        }
    }

    /// Whether the entry is for additional pods of a running gang.
    pub(crate) fn is_scale_up(&self, id: WorkloadId) -> bool {
        self.uid(id).is_some_and(|uid| self.scale_ups.get(&uid) == Some(&id))
    }

    /// The entry for additional pods of a running gang.
    pub fn scale_up(&self, uid: Uid) -> Option<WorkloadId> {
        self.scale_ups.get(&uid).copied()
    }

    /// The flavors in an assignment; `queues` is the queue state that was taken out.
    pub(crate) fn flavors_of(&mut self, queues: &QueueState, assignment: &Assignment) -> Flavors {
        let chosen = assignment
            .pod_sets
            .iter()
            .map(|set| set.flavors.iter().map(|(resource, choice)| (*resource, choice.flavor)).collect())
            .collect();
        self.given.entry(chosen).or_insert_with(|| flavors_of(queues, assignment)).clone()
    }

    pub(crate) fn forget_scale_up(&mut self, uid: Uid) {
        if let Some(id) = self.scale_ups.remove(&uid) {
            self.uids[id.index()] = None;
            self.queue_state_mut().remove(id);
        }
    }

    /// Workloads without quota that aren't in the queue state.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &Uid> {
        self.outside.iter()
    }

    pub(crate) fn forget(&mut self, uid: Uid) {
        self.sizes.remove(&uid);
        if let Some(id) = self.ids.remove(&uid) {
            self.uids[id.index()] = None;
            self.queue_state_mut().remove(id);
        }
    }

    pub(crate) fn know(&mut self, uid: Uid, id: WorkloadId) {
        self.ids.insert(uid, id);
        self.name(uid, id);
    }

    /// The entry for additional pods of a running gang, a second entry of its workload.
    pub(crate) fn know_scale_up(&mut self, uid: Uid, id: WorkloadId) {
        self.scale_ups.insert(uid, id);
        self.name(uid, id);
    }

    /// Maps an entry to its workload.
    fn name(&mut self, uid: Uid, id: WorkloadId) {
        if self.uids.len() <= id.index() {
            self.uids.resize(id.index() + 1, None);
        }
        self.uids[id.index()] = Some(uid);
    }

    /// Hashes the parts that don't follow from the state: parked workloads and the pending alignment.
    pub(crate) fn hash_fingerprint(&self, into: &mut impl Hasher) {
        (self.stale, &self.touched).hash(into);
        for (_, queue) in self.state.queue_list() {
            let parked: BTreeSet<Uid> =
                self.state.pending(queue).parked().filter_map(|place| self.uid(place.workload)).collect();
            parked.hash(into);
        }
    }
}

/// Pod counts by pod set: those after a resize, and those of reclaimable pods. `None` if there are none.
pub(crate) type Sizes = (Option<Vec<u32>>, Option<Vec<u32>>);

/// Looks up the objects that declarations of queues refer to.
#[derive(Debug)]
pub struct CatalogReferences<'a>(pub &'a Catalog);

impl declare::References for CatalogReferences<'_> {
    fn flavor(&self, name: &str) -> Option<&ResourceFlavorSpec> {
        self.0.flavor(name)
    }

    /// Every topology counts as known, because agents place the pods.
    fn topology(&self, _: &str) -> bool {
        true
    }

    /// The controller of an admission check, and whether the check can pass. A check of another controller
    /// can't pass, as in a cluster without that controller, nor can a check whose MultiKueueConfig doesn't
    /// exist.
    fn check(&self, name: &str) -> Option<(&str, bool)> {
        let controller = self.0.admission_check(name)?.controller_name.as_str();
        let served = [MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER].contains(&controller);
        Some((controller, served && self.0.missing_config_of(name).is_none()))
    }
}

/// The flavors in an assignment.
pub fn flavors_of(queues: &QueueState, assignment: &Assignment) -> Flavors {
    let named = |(resource, choice): &(ResourceId, FlavorAssignment)| {
        (queues.resource_name(*resource).to_string(), queues.flavor_name(choice.flavor).clone())
    };
    let sets = assignment.pod_sets.iter().map(|set| set.flavors.iter().map(named).collect());
    Flavors::of_pod_sets(sets.collect())
}

//! The queue mirror: the queue state of `meridian-queueing`, kept in line with the world.
//!
//! A cache over [`State`](crate::state::State). Every record about a workload marks the workload, and marked
//! workloads are brought in line before the next scheduling cycle. The queue state knows only one thing that
//! doesn't follow from the state: which workloads are parked. A restart may lose that; it costs one more
//! evaluation of each.
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
#[derive(Clone, Debug, Default)]
pub struct QueueMirror {
    state: Arc<QueueState>,
    pub(crate) ids: ByUid<WorkloadId>,
    /// Entries for the additional pods of running gangs that are to be scaled up.
    pub(crate) scale_ups: ByUid<WorkloadId>,
    /// Workload of each entry, indexed by [`WorkloadId`].
    uids: Vec<Option<Uid>>,
    /// Whether declarations of queues changed and must be read again.
    pub(crate) stale: bool,
    /// Workloads to bring in line, because a record was made about them.
    pub(crate) touched: BTreeSet<Uid>,
    /// Workloads that aren't in the queue state: they hold no quota, and have no queue route, back off, are
    /// deactivated, are held back by recovery, or their manifest can't be read.
    pub(crate) outside: BTreeSet<Uid>,
    /// Pod counts in the queue state, for workloads with other counts than those that they were given.
    pub(crate) sizes: ByUid<Sizes>,
    /// Candidate clusters by class; cleared when an object changes.
    pub(crate) candidate_clusters: BTreeMap<ClassId, Arc<CandidateClusters>>,
    /// Queue routes by class; cleared when an object changes.
    pub(crate) queue_routes: BTreeMap<ClassId, Result<QueueId, NoRoute>>,
    /// Assigned flavors by their ids per pod set, so that workloads with equal flavors share one allocation.
    pub(crate) given: BTreeMap<Vec<Vec<(ResourceId, FlavorId)>>, Flavors>,
    /// The queue that the waiting workloads of each class were last put into.
    pub(crate) routes: BTreeMap<ClassId, Option<QueueId>>,
    /// Resource prefixes that each queue ignores, as the requests of waiting workloads were last computed
    /// with.
    pub(crate) excluded: BTreeMap<QueueId, Vec<String>>,
}

/// All mirrors are equal: a mirror follows from the state, so it must not make two worlds differ.
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

    /// Has the declarations read again before the next scheduling cycle.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Drops what was derived from objects, because one changed.
    pub(crate) fn forget_candidates(&mut self) {
        self.candidate_clusters.clear();
        self.queue_routes.clear();
    }

    pub(crate) fn forget_class(&mut self, class: ClassId) {
        self.candidate_clusters.remove(&class);
        self.queue_routes.remove(&class);
        self.routes.remove(&class);
    }

    /// Empties the mirror; the next alignment builds it anew.
    pub(crate) fn start_over(&mut self) {
        *self = Self { stale: true, ..Self::default() };
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

    /// Maps an entry to its workload, but not the workload to the entry: a scale-up is a second entry of its
    /// workload.
    pub(crate) fn name(&mut self, uid: Uid, id: WorkloadId) {
        if self.uids.len() <= id.index() {
            self.uids.resize(id.index() + 1, None);
        }
        self.uids[id.index()] = Some(uid);
    }

    /// Hashes the parked workloads and the pending alignment: all that doesn't follow from the state.
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

    /// The controller of an admission check, and whether the check can pass. It can't if another controller
    /// is named, as in a cluster where that controller isn't installed, or if its MultiKueueConfig doesn't
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

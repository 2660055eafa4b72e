//! The state that decisions read: settings, flavors, quota, cluster queues, pending workloads and holders.
//!
//! Each part is a type with private fields in its own module. Only this module and its submodules change
//! them, and only they add methods to [`QueueState`]. The decisions in the modules above (`flavors`,
//! `preemption`, `cycle`, `explain`) are functions of the state: they read it through accessors, and change
//! it through the methods here.

mod agenda;
mod candidates;
mod cluster_queues;
mod configuration;
mod copies;
mod excluded;
mod lifecycle;
mod local_usage;
mod ordering;
mod quota_queries;
mod requeue;
mod shapes;
mod starvation_guard;
mod topologies;
mod usage;
mod variants;
mod workloads;

use crate::amount::Amount;
use crate::model::{
    Catalog, Flavor, Moment, Progress, Queue, QueueId, Requests, Shape, ShapeId, Workload, WorkloadId,
};
use crate::names::{FlavorId, Id, ResourceId};
use crate::pending::Pending;
use crate::queue_state::agenda::Agenda;
use crate::queue_state::cluster_queues::ClusterQueues;
use crate::queue_state::excluded::ExcludedCandidates;
use crate::queue_state::local_usage::LocalQueueUsages;
use crate::queue_state::shapes::Shapes;
use crate::queue_state::topologies::Topologies;
use crate::queue_state::workloads::Workloads;
use crate::quota::{Forest, TreeId};
use crate::settings::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use lifecycle::NewWorkload;
pub use local_usage::{LocalQueueUsage, NANOS_PER_UNIT, NanoUsage, alpha, decayed, to_nanos};
pub(crate) use topologies::PlacedPods;

/// All state that decisions depend on.
#[derive(Clone, Debug, Default)]
pub struct QueueState {
    settings: Settings,
    /// Time of the decision.
    now: Moment,
    catalog: Catalog,
    /// Quota of cohorts and cluster queues.
    forest: Forest,
    queues: ClusterQueues,
    /// Pending workloads, by queue number.
    pending: Vec<Pending>,
    shapes: Shapes,
    workloads: Workloads,
    /// The starved head per queue. Quota is reserved for it.
    starved_heads: BTreeMap<QueueId, WorkloadId>,
    agenda: Agenda,
    excluded: ExcludedCandidates,
    local_queues: LocalQueueUsages,
    topologies: Topologies,
}

impl QueueState {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Time of the decision.
    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn set_now(&mut self, now: Moment) {
        self.now = now;
    }

    /// Quota of cohorts and cluster queues.
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// Names and specifications of resources and flavors.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The number of a resource. A new name gets a new number.
    pub fn resource(&mut self, name: &str) -> ResourceId {
        self.catalog.resource(name)
    }

    /// The number of a known resource.
    pub fn resource_id(&self, name: &str) -> Option<ResourceId> {
        self.catalog.resource_id(name)
    }

    pub fn resource_name(&self, id: ResourceId) -> &Arc<str> {
        self.catalog.resource_name(id)
    }

    /// The number of a flavor. A new name gets a new number.
    pub fn flavor_id(&mut self, name: &str) -> FlavorId {
        self.catalog.flavor_id(name)
    }

    pub fn flavor_name(&self, id: FlavorId) -> &Arc<str> {
        self.catalog.flavor_name(id)
    }

    /// The specification of a flavor, if it is declared.
    pub fn flavor(&self, id: FlavorId) -> Option<&Flavor> {
        self.catalog.flavor(id)
    }

    /// Declares or removes a flavor.
    pub fn set_flavor(&mut self, id: FlavorId, flavor: Option<Flavor>) {
        self.catalog.set_flavor(id, flavor);
    }

    /// All declared flavors.
    pub fn flavor_list(&self) -> impl Iterator<Item = (FlavorId, &Flavor)> {
        self.catalog.flavor_list()
    }

    /// An amount of a resource in the notation of Kubernetes.
    pub fn amount_text(&self, resource: ResourceId, amount: Amount) -> String {
        self.catalog.amount_text(resource, amount)
    }

    /// Converts amounts by name to requests.
    pub fn requests<'a>(&mut self, amounts: impl IntoIterator<Item = (&'a String, &'a i64)>) -> Requests {
        self.catalog.requests(amounts)
    }

    pub fn queue(&self, id: QueueId) -> &Queue {
        self.queues.get(id)
    }

    pub fn queue_id(&self, name: &str) -> Option<QueueId> {
        self.queues.id(name)
    }

    /// All declared queues, by name.
    pub fn queue_list(&self) -> impl Iterator<Item = (&Arc<str>, QueueId)> {
        self.queues.by_name()
    }

    /// The pending workloads of a queue.
    pub fn pending(&self, id: QueueId) -> &Pending {
        &self.pending[id.index()]
    }

    pub(crate) fn pending_mut(&mut self, id: QueueId) -> &mut Pending {
        &mut self.pending[id.index()]
    }

    /// The number of a shape. Equal shapes have the same number.
    pub fn intern(&mut self, shape: Shape) -> ShapeId {
        self.shapes.intern(shape)
    }

    pub fn shape_of(&self, id: ShapeId) -> &Arc<Shape> {
        self.shapes.get(id)
    }

    pub fn workload(&self, id: WorkloadId) -> Option<&Workload> {
        self.workloads.get(&id)
    }

    /// A workload that is known to exist. Panics if its number is unknown.
    pub(crate) fn get(&self, id: &WorkloadId) -> &Workload {
        &self.workloads[id]
    }

    /// Evaluation progress of a workload.
    pub(crate) fn progress_mut(&mut self, id: WorkloadId) -> Option<&mut Progress> {
        self.workloads.get_mut(id).map(|workload| &mut workload.progress)
    }

    /// A workload by namespace and name.
    pub fn find(&self, key: &str) -> Option<WorkloadId> {
        self.workloads.find(key)
    }

    pub fn workloads(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        self.workloads.iter()
    }

    /// Trees with changes to evaluate.
    pub fn changed_trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        self.agenda.changed_trees()
    }

    pub(crate) fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    pub(crate) fn agenda_mut(&mut self) -> &mut Agenda {
        &mut self.agenda
    }

    pub(crate) fn excluded(&self) -> &ExcludedCandidates {
        &self.excluded
    }

    pub(crate) fn excluded_mut(&mut self) -> &mut ExcludedCandidates {
        &mut self.excluded
    }

    pub(crate) fn topologies(&self) -> &Topologies {
        &self.topologies
    }
}

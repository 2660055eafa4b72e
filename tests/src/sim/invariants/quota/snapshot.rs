//! Quota of a world before an input.

use meridian_manager_core::World;
use meridian_manager_core::facts::flavors::Flavors;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::submission::Class;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_objects::{Kind, Object};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::indexes::Indexes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a workload with quota holds.
#[derive(Clone, Debug)]
pub(super) struct ChargedWorkload {
    pub(super) flavors: Flavors,
    /// Pods per pod set.
    pub(super) counts: Option<Vec<u32>>,
    /// Pods per pod set that have exited, so that their quota is returned.
    pub(super) reclaimable: Option<Vec<u32>>,
    /// Pods before a scale-up that the agent hasn't confirmed.
    pub(super) before_scale_up: Option<Vec<u32>>,
    pub(super) fence: Option<Fence>,
    pub(super) stopping: bool,
    /// The workload that it is preempted for.
    pub(super) preemptor: Option<Uid>,
}

/// The size of an elastic job.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElasticSize {
    /// Pods that are requested.
    pub(super) pods: u32,
    /// Whether its indexes are as many as its pods. Others have as many as the pods that they began with.
    pub(super) elastic: bool,
    /// The most pods that its current attempt may have had, if it was scaled down.
    pub(super) most: Option<u32>,
}

/// Quota of a world.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaSnapshot {
    /// Cluster queues and cohorts.
    pub(super) declared: BTreeMap<Key, Arc<Object>>,
    pub(super) charged: BTreeMap<Uid, ChargedWorkload>,
    /// Sizes of elastic jobs, and of others that were changed.
    pub(super) sizes: BTreeMap<Uid, ElasticSize>,
    /// Pods of all other jobs.
    pub(super) pods: Vec<(Uid, u32)>,
    /// Pods that attempts run with, where that isn't what they were admitted with.
    pub(super) running_pods: BTreeMap<Uid, u32>,
    /// Completion indexes that have succeeded, where there are some.
    pub(super) completed: BTreeMap<Uid, Indexes>,
    /// Of elastic jobs: the indexes that had succeeded when the job was admitted.
    pub(super) done_before: BTreeMap<Uid, Indexes>,
}

impl QuotaSnapshot {
    pub(crate) fn of(world: &World) -> Self {
        let workloads = &world.state().workloads();
        let catalog = world.state().catalog().iter();
        let declared =
            catalog.filter(|(k, _)| declares_quota(k)).map(|(k, s)| (k.clone(), s.object.clone())).collect();
        let sized =
            workloads.iter().filter(|(_, w)| world.queues().class(w.class()).elastic || w.resizes() > 0);
        let size = |(uid, w): (&Uid, &meridian_manager_core::state::workload::Workload)| {
            let pods = pods_of(world.queues().class(w.class()));
            let elastic = world.queues().class(w.class()).elastic;
            (*uid, ElasticSize { pods, elastic, most: w.resized().map(|r| r.most.iter().sum()) })
        };
        let sizes: BTreeMap<Uid, ElasticSize> = sized.map(size).collect();
        let others = workloads.iter().filter(|(uid, _)| !sizes.contains_key(uid));
        let pods = others.map(|(uid, w)| (*uid, pods_of(world.queues().class(w.class())))).collect();
        let charge = |(uid, w): (&Uid, &meridian_manager_core::state::workload::Workload)| {
            let stopping = w.phase() == Phase::Stopping;
            let scale_up = w.resized().and_then(|resized| resized.scale_up.as_ref());
            let charged = ChargedWorkload {
                flavors: w.flavors().clone(),
                counts: w.counts().cloned().or_else(|| Some(vec![pods_of(world.queues().class(w.class()))])),
                reclaimable: w.spare().cloned(),
                before_scale_up: scale_up.map(|scale_up| scale_up.before.clone()),
                fence: w.legs().values().find(|l| l.state().granted()).and_then(|l| l.fence()),
                stopping,
                preemptor: w.preempted().filter(|_| stopping).map(|p| p.by),
            };
            (*uid, charged)
        };
        let charged = workloads.iter().filter(|(_, w)| w.phase().charged()).map(charge).collect();
        let resized = workloads.iter().filter_map(|(uid, w)| Some((*uid, w.resized()?)));
        let running_pods = resized
            .map(|(uid, resized)| {
                let runs = resized.scale_up.as_ref().map_or(&resized.runs, |scale_up| &scale_up.runs);
                (uid, runs.iter().sum())
            })
            .collect();
        type Done = fn(&meridian_manager_core::state::workload::Workload) -> &Indexes;
        let indexes = |done: Done| {
            let all = workloads.iter().map(|(uid, w)| (*uid, done(w)));
            all.filter(|(_, done)| !done.is_empty()).map(|(uid, done)| (uid, done.clone())).collect()
        };
        let (completed, done_before) = (indexes(|w| w.completed()), indexes(|w| w.done_before()));
        Self { declared, charged, sizes, pods, running_pods, completed, done_before }
    }
}

/// Whether an object declares quota.
pub(super) fn declares_quota(key: &Key) -> bool {
    matches!(key.kind, Kind::ClusterQueue | Kind::Cohort) && key.scope.is_none()
}

/// Pods of all pod sets.
pub(super) fn pods_of(class: &Class) -> u32 {
    class.gang.pod_sets.iter().map(|set| set.count).sum()
}

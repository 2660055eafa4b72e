//! Trials: applies a remedy to a copy of the queue state and of the clusters' capacity, and evaluates the
//! workload again there, preemption included. A remedy is suggested only if the workload would then start.
//!
//! Other pending workloads are left out of the copy. The caller names them as rivals.

use crate::asker::AskedWorld;
use crate::explain::case::Case;
use crate::explain::cluster_remedy;
use meridian_manager_core::dispatch::align::entries;
use meridian_manager_core::facts::reason::Why;
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::world::gangs;
use meridian_queueing::QueueState;
use meridian_queueing::explain::{self, Trial, TrialCapacity, TrialChanges};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use std::collections::BTreeSet;

/// Most priorities that are tried.
const PRIORITIES_MAX: usize = 16;

/// Changes that a remedy makes to the queue state and to clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) quota: TrialChanges,
    /// Runs that have ended.
    pub(crate) ended: Vec<Uid>,
    pub(crate) uncordoned: Option<ClusterName>,
    /// Only quota is checked, because missing cluster capacity is reported as another obstacle.
    pub(crate) quota_only: bool,
}

impl Changes {
    pub(crate) fn end_of(uid: Uid) -> Self {
        Self { ended: vec![uid], ..Self::default() }
    }

    /// Changed nominal quotas of the workload's queue, without a check of cluster capacity.
    pub(crate) fn of_quota(nominal: Vec<((FlavorId, ResourceId), i64)>) -> Self {
        let quota = TrialChanges { nominal, ..TrialChanges::default() };
        Self { quota, quota_only: true, ..Self::default() }
    }

    pub(crate) fn uncordon(cluster: &ClusterName) -> Self {
        Self { uncordoned: Some(cluster.clone()), ..Self::default() }
    }
}

/// The clusters of a trial.
struct Clusters<'a, 'w> {
    world: &'a AskedWorld<'w>,
    case: &'a Case<'a>,
    changes: &'a Changes,
}

impl TrialCapacity for Clusters<'_, '_> {
    fn fits_without(&self, gone: &[WorkloadId]) -> bool {
        if self.changes.quota_only {
            return true;
        }
        let victims = gone.iter().filter_map(|id| self.world.mirror().uid(*id));
        let gone: Vec<Uid> = self.changes.ended.iter().copied().chain(victims).collect();
        self.case.verdicts.iter().any(|(cluster, verdict)| match verdict {
            Ok(()) => true,
            Err(Why::Cordoned) if self.changes.uncordoned.as_ref() == Some(cluster) => {
                match cluster_remedy::check_behind(self.world, self.case, cluster, &Why::Cordoned) {
                    Some(Ok(())) => true,
                    Some(Err(why)) => self.frees_enough(cluster, &why, &gone),
                    None => false,
                }
            }
            Err(why) => self.frees_enough(cluster, why, &gone),
        })
    }

    fn may_preempt(&self, holder: WorkloadId) -> bool {
        let holder = self.world.mirror().uid(holder);
        holder.is_some_and(|holder| self.world.live().reservations().may_preempt(self.case.uid, holder))
    }
}

impl Clusters<'_, '_> {
    /// Whether a cluster's obstacle is gone once these runs have ended.
    fn frees_enough(&self, cluster: &ClusterName, why: &Why, gone: &[Uid]) -> bool {
        let lacks_room = match why {
            Why::NoCapacity(why) => !matches!(why, Misfit::NoDomain { fits_empty: false, .. }),
            Why::Capped { asks, cap, .. } => asks <= cap,
            _ => false,
        };
        let here: Vec<Uid> =
            gone.iter().copied().filter(|uid| gangs::runs_in(self.world, *uid, cluster)).collect();
        lacks_room && !here.is_empty() && cluster_remedy::fits_without(self.world, self.case, cluster, &here)
    }
}

/// The decision on a workload after some changes.
pub(crate) fn decide(world: &AskedWorld<'_>, case: &Case<'_>, id: WorkloadId, changes: &Changes) -> Trial {
    let mut quota = changes.quota.clone();
    quota.ended.extend(changes.ended.iter().filter_map(|uid| world.mirror().id(*uid)));
    explain::try_changes(world.mirror().queue_state(), id, &quota, &Clusters { world, case, changes })
}

/// Whether a workload would start after some changes, perhaps after a preemption.
pub(crate) fn starts(world: &AskedWorld<'_>, case: &Case<'_>, id: WorkloadId, changes: &Changes) -> bool {
    decide(world, case, id, changes) != Trial::Pending
}

/// The victims, if a workload would start after some changes and a preemption.
pub(crate) fn victims(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    changes: &Changes,
) -> Option<Vec<Uid>> {
    match decide(world, case, id, changes) {
        Trial::Preempts(victims) => {
            Some(victims.into_iter().filter_map(|victim| world.mirror().uid(victim)).collect())
        }
        Trial::Admitted | Trial::Pending => None,
    }
}

/// The victims if a workload that isn't in a queue now would start by a preemption once it is queued.
pub(crate) fn victims_when_resumed(world: &AskedWorld<'_>, case: &Case<'_>) -> Option<Vec<Uid>> {
    let clusters = Clusters { world, case, changes: &Changes::default() };
    let (queue, uid) = (case.queue.filter(|_| case.id.is_none())?, case.uid);
    let resumed = |queues: &mut QueueState| entries::preview_pending(world, queues, uid, queue);
    match explain::try_in(world.mirror().queue_state(), queue, resumed, &clusters)? {
        Trial::Preempts(victims) => {
            Some(victims.into_iter().filter_map(|victim| world.mirror().uid(victim)).collect())
        }
        Trial::Admitted | Trial::Pending => None,
    }
}

/// The lowest priority (of another workload) such that this workload, with a higher one, would start by
/// preemption; and its victims.
pub(crate) fn sufficient_priority(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
) -> Option<(i64, Vec<Uid>)> {
    let queues = world.mirror().queue_state();
    let tree = queues.queue(queues.workload(id)?.queue).tree;
    let of_tree = queues.queue_list().map(|(_, queue)| queues.queue(queue)).filter(|of| of.tree == tree);
    let holders = of_tree.flat_map(|queue| &queue.holders).filter_map(|holder| queues.workload(*holder));
    let own = case.workload.priority();
    let priorities: BTreeSet<i64> =
        holders.map(|holder| queues.shape_of(holder.shape).priority).filter(|of| *of >= own).collect();
    priorities.into_iter().take(PRIORITIES_MAX).find_map(|above| {
        let priority = Some(above.saturating_add(1));
        let quota = TrialChanges { priority, ..TrialChanges::default() };
        Some((above, victims(world, case, id, &Changes { quota, ..Changes::default() })?))
    })
}

/// The victims as the end of a remedy: ``it would preempt workload `namespace/name` ``.
pub(crate) fn preempts_message(world: &AskedWorld<'_>, victims: &[Uid]) -> String {
    let known: Vec<&Workload> = victims.iter().filter_map(|uid| world.state().workloads().get(uid)).collect();
    match known.as_slice() {
        [one] => format!("it would preempt {}", world.asker.workload(one)),
        many => format!("it would preempt {} workloads", many.len()),
    }
}

//! Placements: the nodes and domains in which an agent reports the pods of its attempts.
//!
//! An agent can report only its own attempts and exactly their pods. Placements are displayed to users. They
//! affect one decision, the choice of preemption victims in the same cluster, and are sent to no cluster.

use crate::facts::record::WorkloadFact;
use crate::link::{budget, legs};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::placement::Placement;
use std::sync::Arc;

/// Records that the agent has stored the grant durably.
pub(crate) fn accepted(turn: &mut Turn<'_>, uid: Uid, fence: Fence, placement: Option<Arc<Placement>>) {
    let placement = placement.filter(|placement| legs::placement_counts(turn, uid, fence, placement));
    turn.record_workload(uid, WorkloadFact::GrantAccepted { fence, placement });
}

/// Records a reported placement if it is newer than the known one.
pub(crate) fn take_placement(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
    placement: Option<Arc<Placement>>,
) {
    if let Some(placement) = placement.filter(|placement| legs::placement_counts(turn, uid, fence, placement))
    {
        budget::spend(turn, cluster, placement.weight());
        turn.record_workload(uid, WorkloadFact::PodsPlaced { fence, placement });
    }
}

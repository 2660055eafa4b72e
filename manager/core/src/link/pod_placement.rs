//! Where an agent says that the pods of its attempts are: what of it is believed, journaled and shown.
//!
//! The one decision that rests on it is who gives way, of runs of that very cluster ([`crate::search`]); it goes to no cluster. An
//! agent can only speak of its own attempts, and of their very pods.

use crate::facts::record::WorkloadFact;
use crate::link::{budget, legs};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::placement::Placement;
use std::sync::Arc;

/// The agent has the grant durably.
pub(crate) fn accepted(turn: &mut Turn<'_>, uid: Uid, fence: Fence, placement: Option<Arc<Placement>>) {
    let placement = placement.filter(|placement| legs::placement_counts(turn, uid, fence, placement));
    turn.record_workload(uid, WorkloadFact::GrantAccepted { fence, placement });
}

/// Journals where the pods of an attempt are, if that is news.
pub(crate) fn take_placement(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    (uid, fence): (Uid, Fence),
    placement: Option<Arc<Placement>>,
) {
    if let Some(placement) = placement.filter(|placement| legs::placement_counts(turn, uid, fence, placement))
    {
        budget::spend(turn, cluster, placement.weight());
        turn.record_workload(uid, WorkloadFact::PodsPlaced { fence, placement });
    }
}

//! A cluster's budget of journal writes, so that an agent can't fill the journal by repeating reports.

use crate::link::legs;
use crate::live::counts::Count;
use crate::sessions::budget::FRAME;
use crate::state::legs::leg::LegState;
use crate::world::turn::Turn;
use meridian_shared::ids::ClusterName;
use meridian_shared::protocol::{Event, clean};

/// Whether the cluster has used up its budget.
pub(crate) fn is_spent(turn: &Turn<'_>, cluster: &ClusterName) -> bool {
    turn.world.live().cluster(cluster).is_some_and(|live| live.budget().is_spent(turn.now.mono))
}

/// Charges the cluster for one record that holds `bytes` of the agent's data.
pub(crate) fn spend(turn: &mut Turn<'_>, cluster: &ClusterName, bytes: usize) {
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.budget_mut().spend(turn.now.mono, FRAME + bytes);
    }
}

/// Whether the event has to wait until the cluster has budget again; counts it if so.
pub(crate) fn is_put_off(turn: &mut Turn<'_>, cluster: &ClusterName, event: &Event) -> bool {
    let waits = is_spent(turn, cluster) && repeats(turn, cluster, event);
    turn.world.live_mut().counts_mut().add(Count::PutOff, u64::from(waits));
    waits
}

/// Whether an agent can cause the record of this event as often as it likes.
fn repeats(turn: &Turn<'_>, cluster: &ClusterName, event: &Event) -> bool {
    let leg = |uid, offer| {
        turn.workload(uid).and_then(|w| w.legs().get(&offer)).filter(|leg| *leg.cluster() == *cluster)
    };
    match event {
        Event::Waiting { offer, uid, reason, estimate } => {
            leg(*uid, *offer).is_some_and(|leg| match leg.state() {
                LegState::Waiting => {
                    leg.estimate() != *estimate || leg.note() != Some(clean(reason).as_str())
                }
                LegState::Held => true,
                LegState::Offered
                | LegState::Granted
                | LegState::Running
                | LegState::Ended
                | LegState::Refused
                | LegState::Withdrawn
                | LegState::Expired => false,
            })
        }
        // The workload is offered again at once, so the hold can expire again.
        Event::Gone { offer, uid, .. } => leg(*uid, *offer).is_some_and(|leg| leg.state().open()),
        Event::Accepted { uid, fence, placement: Some(placement) } => {
            legs::own_leg(turn, cluster, *uid, *fence).is_some_and(|leg| leg.accepted())
                && legs::placement_counts(turn, *uid, *fence, placement)
        }
        Event::Running { uid, fence, placement: Some(placement) } => {
            legs::own_leg(turn, cluster, *uid, *fence).is_some()
                && legs::placement_counts(turn, *uid, *fence, placement)
        }
        Event::Held { .. }
        | Event::Refused { .. }
        | Event::Accepted { .. }
        | Event::Running { .. }
        | Event::GrantRefused { .. }
        | Event::ScaledUp { .. }
        | Event::ScaleUpRefused { .. }
        | Event::Ended(_) => false,
    }
}

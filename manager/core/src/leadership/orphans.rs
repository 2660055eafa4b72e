//! Runs that this journal doesn't know: that they are stopped, once a person said so, and how they go where nobody can tell of them
//! any more. How they are seen is the inventory's business, and an operator adopts them.
//!
//! An orphan keeps its uid from being submitted again while it may run. It goes when its own ledger says that it is over; a ledger
//! that was replaced says nothing any more, and then its lease must have lapsed.

use crate::dispatch::grants;
use crate::facts::actor::Actor;
use crate::facts::record::{OrphanFact, Record};
use crate::sessions::outbox::CommandRef;
use crate::world::LapsingOrphans;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::protocol::{OnLoss, StopReason};

/// Says again what was ordered, to the ledger that can confirm it: whoever ordered it may have found nobody to tell. An agent
/// that knows nothing of the run buries it, and says so.
pub(crate) fn stop_orphans(turn: &mut Turn<'_>, cluster: &ClusterName, ledger: LedgerId) {
    let ordered = turn
        .world
        .state
        .orphans()
        .iter()
        .filter(|(_, o)| o.stopping && o.cluster == *cluster && o.ledger == ledger);
    let ordered: Vec<(Uid, Fence)> = ordered.map(|(key, _)| *key).collect();
    for (uid, fence) in ordered {
        turn.send(cluster, CommandRef::Stop(uid, fence, StopReason::Superseded));
    }
}

/// A person says that nothing of this ledger runs.
pub(crate) fn orphans_declared_lost(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    ledger: LedgerId,
    by: &Actor,
) {
    let lost = turn.world.state.orphans().iter().filter(|(_, o)| o.cluster == *cluster && o.ledger == ledger);
    let lost: Vec<(Uid, Fence)> = lost.map(|(key, _)| *key).collect();
    for (uid, fence) in lost {
        turn.record(Record::Orphan { uid, fence, fact: OrphanFact::Gone { by: Some(by.clone()) } });
    }
}

/// Lets those go whose ledger was replaced, once their leases have lapsed: nobody here ever renewed them, and that ledger is
/// heard no more. Counted in full from when it is seen that recovery is over, as until then somebody else may have renewed them.
/// Silence alone never ends those that wait for their cluster.
pub(crate) fn orphans_lapse(turn: &mut Turn<'_>) {
    let state = &turn.world.state;
    if state.recovery().is_some() || !grants::claims(turn) {
        turn.world.live.lapsing.clear();
        return;
    }
    let replaced = |o: &crate::state::members::Orphan| {
        state.members().get(&o.cluster).is_some_and(|m| m.ledger != o.ledger)
    };
    let unheard = state.orphans().iter().filter(|(_, o)| o.run.on_loss == OnLoss::Fence && replaced(o));
    let mut lapsing: LapsingOrphans =
        unheard.map(|(key, o)| (*key, ManagerLease::from_composed(turn.now.mono, o.run.term))).collect();
    for (key, lease) in &mut lapsing {
        if let Some(counted) = turn.world.live.lapsing.get(key) {
            *lease = *counted;
        }
    }
    let over: Vec<(Uid, Fence)> =
        lapsing.extract_if(.., |_, lease| lease.lapsed(turn.now.mono)).map(|(key, _)| key).collect();
    turn.world.live.lapsing = lapsing;
    for (uid, fence) in over {
        turn.record(Record::Orphan { uid, fence, fact: OrphanFact::Gone { by: None } });
    }
}

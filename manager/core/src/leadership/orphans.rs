//! Orphans: runs that an agent reports and this journal doesn't know. This module stops them when an operator
//! orders it, and removes them when they are over. `link::inventory` finds them, and `requests` adopts them.
//!
//! While an orphan may still run, its uid can't be submitted again. It is removed when the ledger that
//! reported it reports its end. If that ledger was replaced, no such report can come, and the orphan is
//! removed once its lease has lapsed.

use crate::dispatch::grants;
use crate::facts::actor::Actor;
use crate::facts::record::{OrphanFact, Record};
use crate::sessions::outbox::CommandRef;
use crate::world::Parts;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, Uid};
use meridian_shared::protocol::{OnLoss, StopReason};

/// Sends ordered stops again to the ledger that can confirm them, because the cluster may have been
/// disconnected when the operator gave the order. An agent that doesn't know the run writes a tombstone and
/// reports the end.
pub(crate) fn stop_orphans(turn: &mut Turn<'_>, cluster: &ClusterName, ledger: LedgerId) {
    let ordered = turn
        .world
        .state()
        .orphans()
        .iter()
        .filter(|(_, o)| o.stopping() && *o.cluster() == *cluster && o.ledger() == ledger);
    let ordered: Vec<(Uid, Fence)> = ordered.map(|(key, _)| *key).collect();
    for (uid, fence) in ordered {
        turn.send(cluster, CommandRef::Stop(uid, fence, StopReason::Superseded));
    }
}

/// Removes the orphans of a ledger, because an operator confirmed that nothing of it runs any more.
pub(crate) fn orphans_declared_lost(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    ledger: LedgerId,
    by: &Actor,
) {
    let lost =
        turn.world.state().orphans().iter().filter(|(_, o)| *o.cluster() == *cluster && o.ledger() == ledger);
    let lost: Vec<(Uid, Fence)> = lost.map(|(key, _)| *key).collect();
    for (uid, fence) in lost {
        turn.record(Record::Orphan { uid, fence, fact: OrphanFact::Gone { by: Some(by.clone()) } });
    }
}

/// Removes orphans of replaced ledgers once their leases have lapsed. Until recovery ends, another manager
/// may have renewed those leases, so a full term counts from then. Orphans of a ledger that is only
/// disconnected stay.
pub(crate) fn orphans_lapse(turn: &mut Turn<'_>) {
    let may_lapse = grants::holds_leader_claim(turn);
    let Parts { state, live, .. } = turn.world.parts();
    if state.recovery().is_some() || !may_lapse {
        live.lapsing_orphans_mut().clear();
        return;
    }
    let replaced = |o: &crate::state::members::Orphan| {
        state.members().get(o.cluster()).is_some_and(|m| m.ledger() != o.ledger())
    };
    let ledgerless = state.orphans().iter().filter(|(_, o)| o.run().on_loss == OnLoss::Fence && replaced(o));
    let lapsing = live.lapsing_orphans_mut();
    lapsing.keep(ledgerless.map(|(key, o)| (*key, o.run().term)), turn.now.mono);
    for (uid, fence) in lapsing.take_lapsed(turn.now.mono) {
        turn.record(Record::Orphan { uid, fence, fact: OrphanFact::Gone { by: None } });
    }
}

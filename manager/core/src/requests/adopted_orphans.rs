//! Adopts orphans as attempts of their job, which an operator passes or the management cluster has.

use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::facts::record::{OrphanFact, Record};
use crate::link::adoption;
use crate::requests::rejection;
use crate::state::members::Orphan;
use crate::world::turn::Turn;
use meridian_shared::ids::{Fence, Uid};

/// The orphan of a uid with the highest fence. Only that run may continue.
pub(crate) fn newest<'t>(turn: &'t Turn<'_>, uid: Uid) -> Option<(Fence, &'t Orphan)> {
    const FIRST: Fence = Fence { epoch: 0, leadership: 0, counter: 0 };
    let of_uid = turn.world.state().orphans().range((uid, FIRST)..).take_while(|((of, _), _)| *of == uid);
    of_uid.last().map(|((_, fence), orphan)| (*fence, orphan))
}

/// Fails while recovery is open, while the orphan is being stopped, and while a newer attempt of the same uid
/// is known.
pub(crate) fn check(turn: &Turn<'_>, uid: Uid, fence: Fence, orphan: &Orphan) -> Result<(), Rejection> {
    let conflict = |message: String| rejection::reject(RejectionReason::Conflict, None, message);
    if orphan.stopping() {
        return conflict(format!(
            "orphan `{uid}` is being stopped at `{}`: submit its job again once it is gone",
            orphan.cluster()
        ));
    }
    if turn.world.state().recovery().is_some() {
        return conflict(
            "recovery is open, and another cluster may run a newer attempt: adopt this one once recovery has \
             ended"
                .to_owned(),
        );
    }
    match newest(turn, uid) {
        Some((newer, other)) if newer > fence => {
            conflict(format!("a newer attempt `{newer}` runs at `{}`: adopt that one", other.cluster()))
        }
        _ => Ok(()),
    }
}

/// Makes the orphan an attempt of its job, which was submitted just before.
pub(crate) fn adopt(turn: &mut Turn<'_>, by: &Actor, uid: Uid, fence: Fence, orphan: &Orphan) {
    let cluster = orphan.cluster();
    let audited =
        Entry { cluster: Some(cluster.to_string()), ..Entry::new(Action::AdoptOrphan, uid.to_string()) };
    turn.audit(by.clone(), audited);
    turn.record(Record::Orphan { uid, fence, fact: OrphanFact::Gone { by: Some(by.clone()) } });
    adoption::adopt(turn, cluster, orphan.ledger(), orphan.run());
    // The record holds the run as it was first reported; the next inventory shows whether it has started
    // since.
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.inventory_mut().want();
        turn.wake(cluster);
    }
    turn.capacity_changed();
}

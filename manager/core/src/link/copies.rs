//! Whether a cluster may have copies of objects of the management cluster: only for a workload that it may
//! know, and only of objects that the workload's pods name.
//!
//! The core knows only the names of the objects, not their content. The audit log gets the names.

use crate::dispatch::grants;
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::outcome::{NoCopies, Reply};
use crate::state::legs::leg::LegState;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_shared::copies::CopyRequest;
use meridian_shared::ids::ClusterName;
use std::sync::Arc;

pub(crate) fn permit(turn: &mut Turn<'_>, cluster: &ClusterName, request: &CopyRequest) {
    let permitted = check(turn, cluster, request);
    if permitted.is_ok() && request.fence.is_some() {
        for reference in &request.references {
            let what = format!("{} {}", reference.kind.name(), reference.name);
            let entry = Entry {
                cluster: Some(cluster.to_string()),
                detail: Some(what),
                ..Entry::new(Action::Copy, request.uid.to_string())
            };
            turn.audit(Actor::agent(cluster), entry);
        }
    }
    turn.reply(Reply::Copies(permitted));
}

/// The namespace of the workload. Fails if an offer or a grant to this cluster wouldn't be sent now.
fn check(turn: &Turn<'_>, cluster: &ClusterName, request: &CopyRequest) -> Result<Arc<str>, NoCopies> {
    if !grants::holds_leader_claim(turn) {
        return Err(NoCopies::NotLeading);
    }
    let workload = turn.workload(request.uid).ok_or(NoCopies::NotOffered)?;
    let leg = workload.legs().get(&request.offer).filter(|leg| *leg.cluster() == *cluster);
    let leg = leg.ok_or(NoCopies::NotOffered)?;
    let has_right = match request.fence {
        None => leg.state().open() || leg.state().granted(),
        Some(fence) => {
            leg.state() == LegState::Granted
                && leg.fence() == Some(fence)
                && workload.phase() != Phase::Stopping
                && !turn.world.disputed(workload)
        }
    };
    if !has_right || !grants::may_disclose(turn, request.uid, cluster) {
        return Err(NoCopies::NotOffered);
    }
    if !workload.is_managed() {
        return Err(NoCopies::NotManaged);
    }
    let named = &turn.world.queues().class(workload.class()).references;
    for reference in &request.references {
        let can_be_copied = reference.kind.copied_plural().is_some();
        if !can_be_copied || !named.contains(reference) {
            return Err(NoCopies::NotNamed(reference.clone()));
        }
    }
    Ok(workload.namespace().clone())
}

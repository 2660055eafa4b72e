//! Deactivating and reactivating workloads (`spec.active`).

use crate::dispatch::{offers, stops};
use crate::facts::actor::Actor;
use crate::facts::audit::Action;
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, WriteResult, Written};
use crate::facts::record::WorkloadFact;
use crate::requests::rejection;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_objects::Kind;
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::protocol::StopReason;

/// Checks a change of `spec.active`. Fails if the workload doesn't exist, changed since `version`, has ended
/// or is being deleted.
pub(crate) fn check_activity(
    turn: &Turn<'_>,
    key: &Key,
    active: bool,
    version: Option<RecordNumber>,
) -> Result<(), Rejection> {
    let Some(workload) = named(turn, key).and_then(|uid| turn.workload(uid)) else {
        return rejection::reject(RejectionReason::NotFound, None, format!("{key} doesn't exist"));
    };
    if let Some(version) =
        version.filter(|version| workload.changed() > *version || *version > turn.world.state().last())
    {
        return rejection::reject(
            RejectionReason::Conflict,
            None,
            format!("{key} changed since version {version}: read it again and repeat the change"),
        );
    }
    let what = if active { "resumed" } else { "stopped" };
    let field = Some("spec.active");
    match (&workload.finished(), workload.deletion()) {
        (Some(finish), _) => {
            let remedy = "to run it again, submit the job under another name";
            rejection::reject(
                RejectionReason::Invalid,
                field,
                format!("{key} has ended ({}) and can't be {what}: {remedy}", finish.reason),
            )
        }
        (None, Some(_)) => rejection::reject(
            RejectionReason::Invalid,
            field,
            format!("{key} is being deleted and can't be {what}: it is gone once its gang has stopped"),
        ),
        (None, None) => Ok(()),
    }
}

pub(crate) fn set_active(turn: &mut Turn<'_>, key: Key, active: bool, by: &Actor, dry_run: bool) -> Written {
    let found = named(turn, &key).and_then(|uid| Some((uid, turn.workload(uid)?)));
    // An earlier change of the same request may have deleted the workload.
    let changes = found.is_some_and(|(_, w)| {
        w.finished().is_none() && w.deletion().is_none() && w.inactive().is_none() != active
    });
    let uid = found.map_or(Uid(0), |(uid, _)| uid);
    let result = if changes { WriteResult::Configured } else { WriteResult::Unchanged };
    match (changes && !dry_run, active) {
        (false, _) => {}
        (true, false) => deactivate(turn, uid, by),
        (true, true) => activate(turn, uid, by),
    }
    Written { key, uid, result, warnings: Vec::new() }
}

/// Deactivates a workload that is active: nothing of it starts, and what runs is stopped.
pub(crate) fn deactivate(turn: &mut Turn<'_>, uid: Uid, by: &Actor) {
    turn.audit_workload(uid, by, Action::Deactivate);
    turn.record_workload(
        uid,
        WorkloadFact::Deactivated { by: by.clone(), at: turn.now.wall, max_execution_time_reached: false },
    );
    offers::withdraw_open(turn, uid);
    let granted = turn.workload(uid).filter(|w| matches!(w.phase(), Phase::Granted | Phase::Running));
    if let Some(fence) = granted.and_then(Workload::right).and_then(|(_, leg)| leg.fence()) {
        // The protocol has no stop reason for deactivation; agents treat it as an eviction.
        stops::order_stop(turn, uid, fence, StopReason::Evicted, by);
    }
    // The workload's quota and reserved capacity are free now, so others may start.
    turn.capacity_changed();
}

fn activate(turn: &mut Turn<'_>, uid: Uid, by: &Actor) {
    turn.audit_workload(uid, by, Action::Activate);
    turn.record_workload(uid, WorkloadFact::Activated { by: by.clone(), at: turn.now.wall });
    end_backoff(turn, uid);
    turn.capacity_changed();
}

/// Ends the backoff of a reactivated workload, with two exceptions: a victim continues to back off for its
/// preemptor, and a workload of an earlier leadership, which may still run unknown to this one, backs off
/// until its term has passed.
fn end_backoff(turn: &mut Turn<'_>, uid: Uid) {
    if turn.world.live().reservations().is_resting(uid) {
        return;
    }
    let Some(until) = turn.world.live_mut().backoffs_mut().end(uid) else { return };
    if let Some(workload) = turn.workload(uid).filter(|w| w.is_older_than(turn.world.state().led_since())) {
        let lapsed =
            ManagerLease::from_composed(turn.world.live().recovery().sole_since(), workload.term()).deadline;
        turn.world.live_mut().backoffs_mut().start(uid, until.min(lapsed));
    }
}

/// The workload of a key, which names either a `Workload` object or a job.
pub(crate) fn named(turn: &Turn<'_>, key: &Key) -> Option<Uid> {
    match key.kind {
        Kind::Workload => turn.world.workload_at(key).map(|(uid, _)| uid),
        _ => rejection::job_at(turn, key),
    }
}

//! The state of a run without an answering guard, from its directory and the processes of the machine.
//!
//! Invariant: an end is written here only under the run's lock, with no guard alive and no process of the run
//! left.

use crate::guard::processes;
use crate::guard::rundir::{GuardState, Plan, RunDir, VERSION};
use crate::job_run::{Error, RunEnd};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::Millis;

/// The state of a run.
#[derive(Debug)]
pub(super) enum Resolution {
    /// The run has ended, durably.
    Ended(RunEnd),
    /// A guard owns the run.
    Guarded,
    /// The run's guard is gone, and the run's processes are being ended: resolve the run again soon.
    NotYet,
}

/// Finds the state of a run, and ends it if it lost its guard. `known` is its result, if the caller knows it.
/// Fails if the files of the run can't be used; its state is then unknown.
pub(super) fn resolve(
    uid: Uid,
    fence: Fence,
    dir: &RunDir,
    boot_id: &str,
    known: Option<&EndResult>,
) -> Result<Resolution, Error> {
    if let Some(end) = known_end(dir)? {
        return Ok(Resolution::Ended(end));
    }
    let Some(_lock) = dir.lock()? else { return Ok(Resolution::Guarded) };
    // The guard may have written the end and exited between the two reads.
    if let Some(end) = known_end(dir)? {
        return Ok(Resolution::Ended(end));
    }
    let plan = dir.plan().unwrap_or_default();
    let other_boot = plan.as_ref().is_some_and(|p| p.boot_id != boot_id);
    let identity = dir.identity().unwrap_or_default();
    if !other_boot {
        let mut left = processes::marked(&processes::marks(uid, fence));
        if let Some(guard) = &identity {
            // A guard releases its lock a moment before its namespace has ended; it exits only after that.
            if processes::lives(guard.pid, guard.started_ticks) {
                return Ok(Resolution::NotYet);
            }
            left.extend(processes::of_session(guard.pid, guard.started_ticks));
        }
        if !left.is_empty() {
            processes::kill_all(&left);
            return Ok(Resolution::NotYet);
        }
    }
    let result = match (dir.start_forbidden(), other_boot, known) {
        (true, _, _) => EndResult::Stopped,
        (false, true, _) => lost("the machine was restarted while it ran"),
        (false, false, Some(known)) => known.clone(),
        (false, false, None) if identity.is_none() => lost("the agent ended before the gang was started"),
        (false, false, None) => lost("the gang's guard was killed, and the gang with it"),
    };
    write_end(dir, plan.as_ref(), result).map(Resolution::Ended)
}

/// Writes the end of a run. The caller holds its lock, and none of its processes is left.
pub(super) fn write_end(dir: &RunDir, plan: Option<&Plan>, result: EndResult) -> Result<RunEnd, Error> {
    let known = dir.state().unwrap_or_default();
    let failures =
        known.as_ref().map(|s| s.pod_failures).or_else(|| plan.map(|p| p.start.pod_failures)).unwrap_or(0);
    let completed = match (&known, plan) {
        (Some(known), _) => known.completed.clone(),
        (None, Some(plan)) => plan.start.completed.clone(),
        (None, None) => Indexes::default(),
    };
    let (started, ended) = (known.and_then(|s| s.started), crate::guard::clock::now().wall);
    // The end was not observed, so the run lasted until now at most.
    let ran = started.map_or(Millis(0), |started| ended.since(started));
    let end = RunEnd { ran, completed: completed.clone(), ..RunEnd::without_pods(result, failures) };
    dir.write_state(&GuardState {
        version: VERSION,
        pod_failures: failures,
        started,
        reclaimable: Vec::new(),
        completed,
        ended: Some(ended),
        end: Some(end.clone()),
    })?;
    Ok(end)
}

/// The end on disk. A damaged file counts as no end, and is written anew once the run has ended.
fn known_end(dir: &RunDir) -> Result<Option<RunEnd>, Error> {
    match dir.end() {
        Err(error @ Error::Damaged { .. }) => {
            tracing::error!(%error, "a run's state file is damaged, so the run is ended");
            Ok(None)
        }
        other => other,
    }
}

fn lost(message: &str) -> EndResult {
    EndResult::NodeLost { message: message.into() }
}

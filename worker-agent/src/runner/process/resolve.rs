//! What a run's directory and the machine's processes say together about a run whose guard doesn't answer.
//!
//! Invariant: an end is written here only under the run's lock, with no guard alive and no process of the run left.

use crate::guard::processes;
use crate::guard::rundir::{Plan, RunDir, State, VERSION};
use crate::runner::{End, Error, RunResult};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::time::Millis;

/// Where a run is.
#[derive(Debug)]
pub(super) enum Resolution {
    /// It is over, durably.
    Ended(End),
    /// A guard has it.
    Guarded,
    /// Its guard is gone and something is still being ended: look again soon.
    NotYet,
}

/// Finds out, and ends what has lost its guard. `instead` is how it ended, where the caller knows better.
pub(super) fn resolve(
    uid: Uid,
    fence: Fence,
    dir: &RunDir,
    boot_id: &str,
    instead: Option<&RunResult>,
) -> Result<Resolution, Error> {
    if let Some(end) = known_end(dir)? {
        return Ok(Resolution::Ended(end));
    }
    let Some(_lock) = dir.lock()? else { return Ok(Resolution::Guarded) };
    // The guard may have written the end and gone between the two looks.
    if let Some(end) = known_end(dir)? {
        return Ok(Resolution::Ended(end));
    }
    let plan = dir.plan().unwrap_or_default();
    let other_boot = plan.as_ref().is_some_and(|p| p.boot_id != boot_id);
    let identity = dir.identity().unwrap_or_default();
    if !other_boot {
        let mut left = processes::marked(&processes::marks(uid, fence));
        if let Some(guard) = &identity {
            // A guard gives up its lock a moment before its namespace has ended; only after that it is gone itself.
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
    let result = match (dir.start_forbidden(), other_boot, instead) {
        (true, _, _) => RunResult::Stopped,
        (false, true, _) => lost("the machine was restarted while it ran"),
        (false, false, Some(instead)) => instead.clone(),
        (false, false, None) if identity.is_none() => lost("the agent ended before the gang was started"),
        (false, false, None) => lost("the gang's guard was killed, and the gang with it"),
    };
    write_end(dir, plan.as_ref(), result).map(Resolution::Ended)
}

/// Writes the end of a run whose lock the caller holds and of which nothing is left.
pub(super) fn write_end(dir: &RunDir, plan: Option<&Plan>, result: RunResult) -> Result<End, Error> {
    let known = dir.state().unwrap_or_default();
    let failures = known.as_ref().map(|s| s.failures).or_else(|| plan.map(|p| p.start.failures)).unwrap_or(0);
    let (started, ended) = (known.and_then(|s| s.started), crate::guard::clock::now().wall);
    // Nobody saw it end: it ran until now at most.
    let ran = started.map_or(Millis(0), |started| ended.since(started));
    let end = End { result, pods: Vec::new(), failures, ran };
    dir.write_state(&State {
        version: VERSION,
        failures,
        started,
        spare: Vec::new(),
        ended: Some(ended),
        end: Some(end.clone()),
    })?;
    Ok(end)
}

/// The end that is written down. A damaged file says nothing, and is written anew once nothing is left.
fn known_end(dir: &RunDir) -> Result<Option<End>, Error> {
    match dir.end() {
        Err(error @ Error::Damaged { .. }) => {
            tracing::error!(%error, "a run's state is damaged, it will be ended");
            Ok(None)
        }
        other => other,
    }
}

fn lost(message: &str) -> RunResult {
    RunResult::NodeLost { message: message.into() }
}

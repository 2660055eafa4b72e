//! Decides how soon a status is written, so that statuses in quick succession become one write. Pure.

use meridian_objects::job::JobKind;
use serde_json::Value;
use std::time::Duration;

/// Shortest time between two statuses of one job or Workload, unless users wait for the later one.
const EVERY: Duration = Duration::from_secs(1);
/// Like [`EVERY`], for a Workload that stays admitted: only details of its pods change.
const DETAILS_EVERY: Duration = Duration::from_secs(10);

/// Stage in the life of a job or Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Waiting,
    Admitted,
    Ended,
}

impl Stage {
    pub(super) fn of_job(kind: &JobKind, object: &Value) -> Self {
        if kind.has_ended(object) {
            Self::Ended
        } else if object.pointer("/status/startTime").is_some() || object["status"]["active"] != Value::Null {
            Self::Admitted
        } else {
            Self::Waiting
        }
    }

    pub(super) fn of_workload(status: &Value) -> Self {
        let conditions = status["conditions"].as_array();
        let has =
            |kind: &str| conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True");
        match () {
            () if has("Finished") => Self::Ended,
            () if has("Admitted") => Self::Admitted,
            () => Self::Waiting,
        }
    }
}

/// Shortest time between the last write and the next status of a job. The write of a start waits for the
/// status of its pods, which often follows at once.
pub(super) fn pace_of_job(stage: Stage) -> Duration {
    if stage == Stage::Ended { Duration::ZERO } else { EVERY }
}

/// Shortest time between the last write and the next status of a Workload. An admission is written at once,
/// because it shows the cluster of the job.
pub(super) fn pace_of_workload(written: Stage, next: Stage) -> Duration {
    match (written, next) {
        (_, Stage::Ended) | (Stage::Waiting, Stage::Admitted) => Duration::ZERO,
        (_, Stage::Waiting) => EVERY,
        (Stage::Admitted | Stage::Ended, Stage::Admitted) => DETAILS_EVERY,
    }
}

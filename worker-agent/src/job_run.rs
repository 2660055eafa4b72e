//! One run of a job as the runners and the guard see it: what the job asks for, its pods and its end.
//!
//! The module has no processes and no clocks, and knows nothing of the guard or of a runner.

use meridian_agent_core::runtime::{self, FoundState, RunnerEvent};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub(crate) mod expand;
pub mod job;
pub mod pods;

pub use job::JobSpec;

/// Errors of a runner, apart from a gang's own failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing} `{path}`: {source}")]
    File {
        /// The failed operation, as a verb.
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{path}` is damaged: {source}")]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the job can't be read: {0}")]
    NotAJob(#[source] serde_json::Error),
    #[error(
        "no run of workload `{uid}` under fence `{fence}` is known here; it may have been removed after its \
         retention"
    )]
    Unknown { uid: Uid, fence: Fence },
    #[error("the run belongs to another boot of this machine, so its deadline means nothing now")]
    OtherBoot,
    #[error("cannot {doing}: {source}")]
    System {
        /// A verb and its object.
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl From<Error> for runtime::Error {
    fn from(error: Error) -> Self {
        Self::new(error)
    }
}

/// The last try of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOutcome {
    /// The completion index.
    pub index: u32,
    /// Number of the try, from 0.
    pub attempt: u32,
    /// 128 plus the signal's number if a signal ended the pod.
    pub exit_code: i32,
    /// Details that the exit code does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The end of a run, as runners keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    pub result: EndResult,
    /// The last try of each pod that ended, at most [`pods::OUTCOMES_MAX`].
    pub pods: Vec<PodOutcome>,
    /// Number of failed pods so far, over all attempts.
    pub pod_failures: u32,
    /// Run time that this attempt used, in the job's time where a runner simulates.
    #[serde(default)]
    pub ran: Millis,
    /// Completion indexes that succeeded so far, over all attempts.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub completed: Indexes,
}

impl RunEnd {
    /// The end of a run that never had a pod.
    pub(crate) fn without_pods(result: EndResult, pod_failures: u32) -> Self {
        let completed = Indexes::default();
        Self { result, pods: Vec::new(), pod_failures, ran: Millis(0), completed }
    }

    /// Events for the completed indexes, then the event for the end.
    pub(crate) fn events(self, uid: Uid, fence: Fence) -> impl Iterator<Item = RunnerEvent> {
        let Self { result, pods: _, pod_failures, ran, completed: indexes } = self;
        let completed = (!indexes.is_empty()).then_some(RunnerEvent::Completed { uid, fence, indexes });
        completed.into_iter().chain([RunnerEvent::Ended { uid, fence, result, pod_failures, ran }])
    }

    pub(crate) fn found(self) -> FoundState {
        let Self { result, pods: _, pod_failures, ran, completed: _ } = self;
        FoundState::Ended { result, pod_failures, ran }
    }
}

//! Orders to a runner, and its reports. A run is named by its workload's uid and the fence of its grant.

use super::PodPlacement;
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Mono};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The deadline of a run that never lapses.
pub const NEVER: Mono = Mono(u64::MAX);

/// Everything that a runner needs to start one gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Start {
    pub uid: Uid,
    pub fence: Fence,
    /// The offer whose hold the gang uses.
    pub offer: OfferId,
    /// Number of this grant among the grants of the workload, from 1.
    pub attempt: u32,
    /// The job's namespace.
    pub namespace: Arc<str>,
    /// The job's name.
    pub name: Arc<str>,
    /// The whole job as JSON.
    pub spec: Arc<str>,
    /// One entry for each pod that runs at the same time.
    pub placement: Vec<PodPlacement>,
    /// Nothing may run at or after this moment of boot time; `None` for `onClusterLoss: Wait`.
    pub deadline: Option<Mono>,
    /// The stop begins this long before the deadline. Without a deadline: the longest grace of a requested
    /// stop.
    pub stop_budget: Millis,
    /// Run time that the workload has left, if it is limited.
    pub run_left: Option<Millis>,
    /// Pods that failed in earlier attempts.
    pub pod_failures: u32,
    /// Completion indexes that succeeded in earlier attempts: they don't run again.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub completed: Indexes,
}

impl Start {
    /// The deadline, or [`NEVER`].
    pub fn lapses(&self) -> Mono {
        self.deadline.unwrap_or(NEVER)
    }
}

/// Report of a runner. Events may repeat, and each gives the whole state, so a lost event loses nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RunnerEvent {
    /// All pods of the gang have started.
    Running { uid: Uid, fence: Fence },
    /// Answer to [`crate::Effect::Move`] and [`crate::Effect::ScaleUp`]: the pods that had to move were seen
    /// ended on their old nodes and start on the new ones.
    Moved {
        uid: Uid,
        fence: Fence,
        /// Number of the move.
        number: u32,
    },
    /// Nothing runs in these positions and nothing will: the pods have succeeded, or the job was scaled down.
    /// Lists all such positions of the run each time.
    Reclaimable {
        uid: Uid,
        fence: Fence,
        /// Pod set and index of each position.
        places: Vec<(String, u32)>,
    },
    /// Pods have failed and the job continues.
    PodsFailed {
        uid: Uid,
        fence: Fence,
        /// Number of failed pods so far, over all attempts.
        failures: u32,
    },
    /// Pods have succeeded. Names all completion indexes that succeeded so far, over all attempts.
    Completed { uid: Uid, fence: Fence, indexes: Indexes },
    /// The attempt is over, and all its processes were seen ended. Completions were reported before.
    Ended {
        uid: Uid,
        fence: Fence,
        result: EndResult,
        /// Number of failed pods so far, over all attempts.
        pod_failures: u32,
        /// Run time that this attempt used, in the job's time where a runner simulates.
        ran: Millis,
    },
}

/// A run that the runner has when the agent starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    pub uid: Uid,
    pub fence: Fence,
    /// Nodes of its pods; empty if they are unknown.
    pub nodes: Vec<String>,
    /// Completion indexes that succeeded so far, over all attempts.
    pub completed: Indexes,
    pub state: FoundState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FoundState {
    Live {
        /// Whether all pods have started. False also for a run that is being ended; its `Ended` event
        /// follows.
        running: bool,
    },
    Ended {
        result: EndResult,
        /// Number of failed pods so far, over all attempts.
        pod_failures: u32,
        /// Run time that the attempt used.
        ran: Millis,
    },
}

//! What runs gangs: the trait that the agent's core commands, and the words it uses.
//!
//! Commands are synchronous and never block on a gang; what happens comes back as [`RunnerEvent`]s. The core decides
//! everything: a runner never starts, renews or retries a grant by itself. It only keeps three promises of its own:
//!
//! - **One start per name.** A run is named by (uid, fence), and that name is occupied before anything starts. A second
//!   `start` of it starts nothing and reports what is there; a `stop` occupies an unknown name, so that a paused twin
//!   can't start it afterwards.
//! - **Seen ended.** `Ended` is reported only when nothing of the run is left, whatever the result.
//! - **Nothing runs at the deadline**, as far as [`Enforcement`] says.
//!
//! Events may repeat (after a re-adoption, or when a command repeats) and say where a run *is*, so a receiver that
//! missed one loses nothing.

use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) mod expand;
pub mod job;
pub mod logs;
pub mod pods;
pub mod process;
pub mod simulated;

pub use job::JobSpec;
pub use logs::{LogChunk, LogReader};

/// What can go wrong in a runner apart from a gang's own failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of a run could not be used.
    #[error("cannot {doing} `{path}`: {source}")]
    File {
        /// What was tried, as a verb.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file of a run holds something else than it should.
    #[error("`{path}` is damaged: {source}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The stored job is not a Job.
    #[error("the job can't be read: {0}")]
    NotAJob(#[source] serde_json::Error),
    /// There is no such run here.
    #[error(
        "no run of workload `{uid}` under fence `{fence}` is known here; it may have been cleaned up after its retention"
    )]
    Unknown {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
    },
    /// What was to run was planned before the machine restarted.
    #[error("the run belongs to another boot of this machine, and its deadline means nothing in this one")]
    OtherBoot,
    /// The operating system refused something a runner can't do without.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried, as a verb and its object.
        doing: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Where one pod was placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodPlacement {
    /// The pod set.
    pub pod_set: String,
    /// Which pod of the set; pods that follow it in the same place (retries, later completions) keep the place.
    pub index: u32,
    /// The node.
    pub node: String,
    /// The node's accelerators that are the pod's, by index.
    pub accelerators: Vec<u32>,
}

/// One grant, ready to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The workload.
    pub uid: Uid,
    /// The grant.
    pub fence: Fence,
    /// The job's namespace.
    pub namespace: String,
    /// The job's name.
    pub name: String,
    /// The whole job as JSON.
    pub spec: Arc<str>,
    /// One place per pod that runs at the same time.
    pub placement: Vec<PodPlacement>,
    /// Nothing runs at or after this moment.
    pub deadline: Mono,
    /// The stop begins this long before the deadline.
    pub stop_budget: Millis,
    /// How much run time the workload has left, where that is limited.
    pub run_left: Option<Millis>,
    /// Pods that failed so far, in earlier attempts.
    pub failures: u32,
}

/// Whether a runner's gangs end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Enforcement {
    /// Gangs end at their deadline whatever happens to the agent.
    Guarded,
    /// Something else (the agent, an API server) must be alive to end them.
    Supervised,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum RunResult {
    /// The job is complete.
    Succeeded,
    /// The job failed for good.
    Failed {
        /// One word, as in a Job's condition.
        reason: String,
        /// A sentence for people.
        message: String,
    },
    /// The lease ran out.
    LeaseLapsed,
    /// What carried the run is gone: a reboot, a killed guard.
    NodeLost {
        /// A sentence for people.
        message: String,
    },
    /// Stopped as asked, and seen ended.
    Stopped,
}

/// What became of one pod: its last attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOutcome {
    /// Which pod: the completion index.
    pub index: u32,
    /// Which try of it, from 0.
    pub attempt: u32,
    /// Its exit code; 128 plus the signal's number where a signal ended it.
    pub exit_code: i32,
    /// What to know beyond the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How.
    pub result: RunResult,
    /// The pods that ended, the last attempt of each, at most [`pods::OUTCOMES_MAX`].
    pub pods: Vec<PodOutcome>,
    /// Pods that failed, those of earlier attempts included.
    pub failures: u32,
    /// Run time that this run used of what the workload has left; in the job's own time where a runner simulates.
    #[serde(default)]
    pub ran: Millis,
}

/// What a runner tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerEvent {
    /// Every pod of the gang that starts at first was started.
    Running {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
    },
    /// The pods that had to move were seen ended where they were, and start where they belong now.
    Moved {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Which move.
        number: u32,
    },
    /// A pod failed, and the job may go on.
    PodFailed {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Failures so far, those of earlier attempts included.
        failures: u32,
    },
    /// Nothing is in these places and nothing more will start there: their pods have succeeded, or the job has shrunk. All such
    /// places, each time.
    Spare {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// The pod set of each, and its number in that.
        places: Vec<(String, u32)>,
    },
    /// Nothing of the run is left.
    Ended {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// How it ended.
        end: End,
    },
}

/// A run that is here after a restart of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The workload.
    pub uid: Uid,
    /// The grant.
    pub fence: Fence,
    /// Nodes on which its pods are; empty where that can't be told.
    pub nodes: Vec<String>,
    /// Where it is.
    pub state: FoundState,
}

/// Where a found run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundState {
    /// It goes on; events follow as for any run.
    Running {
        /// Failures so far.
        failures: u32,
    },
    /// It can't go on and is being cleared away; an `Ended` event follows.
    Ending,
    /// It is over.
    Ended(End),
}

/// What runs gangs. Two live copies (an old agent and its successor) may command the same runs: every command is idempotent.
pub trait Runner: Send {
    /// Its name, shown to people.
    fn name(&self) -> &'static str;
    /// What it can promise about deadlines.
    fn enforcement(&self) -> Enforcement;
    /// Whether it could run this job, or why not, in words for the submitter.
    fn accepts(&self, spec: &JobSpec) -> Result<(), String>;
    /// Starts a granted gang. Repeated, it starts nothing and reports what is there. `decided` is what the clocks read when its
    /// deadline was counted: what a paused machine missed since then is gone from it, however long the order took to come.
    fn start(&mut self, start: Start, decided: Now);
    /// Moves a deadline, which was counted at `decided`. Never brings back what has begun to stop, and never moves a deadline back.
    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now);
    /// Gives pods of a run other places: those whose place differs are ended where they are and started anew in the new one, as
    /// further tries that don't count as failures; the others go on. `placement` has as many places as the start had. `Moved`
    /// follows when every one of them was seen ended; at most one process of a pod is alive at any time. Repeated, or of a
    /// number that is behind, it moves nothing and says that it is done once it is. Ignored where nothing runs.
    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>);
    /// Lets a run go on with at most `size.parallelism` pods at once and, where `size.completions` says so, with so many that have
    /// to succeed. Pods that are too many are ended (with their grace) and don't count as failed; where completions follow, those
    /// of the highest indexes, else those in the highest places, whose indexes are tried again in the places that are left.
    /// Places in which nothing is or starts any more are told as `Spare`, once they were seen empty. A size that isn't smaller
    /// changes nothing. Survives the guard's and the agent's restart. Ignored where nothing runs.
    fn shrink(&mut self, uid: Uid, fence: Fence, size: Size);
    /// Lets a run go on with more pods: `placement` has all its places, those that are new behind the others, which are as they
    /// were. What is new starts, and nothing that runs is touched; `Moved` follows as for a move of this number. `size` is as in
    /// [`Runner::shrink`]. Where pods are still to end because of a size that was said before, that comes first. Repeated, it starts nothing anew. Ignored where
    /// nothing runs.
    fn grow(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size);
    /// Stops a run, known or not; `Ended` follows when nothing of it is left.
    fn stop(&mut self, uid: Uid, fence: Fence);
    /// What is really there. Called once, before the first command.
    fn adopt(&mut self) -> Vec<Found>;
    /// Clears away what an ended run left on disk. Ignored while it runs.
    fn forget(&mut self, uid: Uid, fence: Fence);
    /// What a run's pods printed; of one pod, or of all.
    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<LogReader, Error>;
}

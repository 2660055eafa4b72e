//! The actions that may happen next, and the situations that a search must reach.

use crate::setup;
use meridian_shared::ids::Fence;

/// Everything that can happen. Clusters and managers are named by index, messages by their index among those
/// in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The user submits the job.
    Submit,
    /// The user deletes the job.
    Delete,
    /// A whole exchange at one moment.
    Exchange { host: usize, manager: usize },
    /// The same, but the agent is killed before it has finished with the answer.
    ExchangeAndDie { host: usize, manager: usize, stored: bool },
    /// A request is sent.
    Send { host: usize },
    /// A request arrives, and its answer is sent. With `again` the request will arrive once more.
    Deliver { host: usize, request: usize, manager: usize, again: bool },
    /// An answer arrives. With `again` it will arrive once more.
    Take { host: usize, answer: usize, again: bool },
    /// The agent is killed and restarted.
    AgentRestarts { host: usize },
    /// The agent's store is deleted, and the agent is restarted.
    LedgerLost { host: usize },
    /// All pods of an attempt have started.
    Runs { host: usize, fence: Fence },
    /// The job succeeds.
    Succeeds { host: usize, fence: Fence },
    /// A stop is done.
    Stopped { host: usize, fence: Fence },
    /// A manager is killed.
    ManagerDies { manager: usize },
    /// A manager leads again, through recovery.
    Leads { manager: usize },
    /// A manager leads again at once, because its journal is the one that it left.
    TakesShortCut { manager: usize },
    /// The journal is copied.
    Backup,
    /// The journal of a manager that is down is replaced by the copy.
    Restore,
    /// A second manager is started on the copy while the first one runs.
    Twin,
    /// An operator confirms that no other copy of a restored journal runs.
    Confirms { manager: usize },
    /// The manager's disk is cut off, and a standby begins to take over.
    TakeOver,
    /// Time passes, after every cluster that isn't disconnected has exchanged with the manager that leads.
    Step { disconnected: [bool; setup::CLUSTERS] },
}

/// Situations that a search must reach: a search that never reaches them proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Covered {
    /// The first grant of the workload.
    Granted,
    /// A gang runs.
    Running,
    /// The workload was granted again.
    GrantedAgain,
    /// An agent refused a grant.
    GrantRefused,
    /// A lease lapsed.
    Lapsed,
    /// A reported run that became the workload's leg.
    Adopted,
    /// A recovery closed.
    Recovered,
    /// An attempt ended, which frees the workload.
    Ended,
    /// The job succeeded.
    Succeeded,
    /// A run of an unknown uid.
    Orphan,
    /// A hold for a leg that was over.
    LateHold,
    /// A gang that began to run after another attempt had run.
    StartedAgain,
    /// An operator confirmed a restored journal while a cluster was awaited.
    ConfirmedEarly,
}

impl Covered {
    /// All values, in the order of the counters.
    pub const ALL: [Self; 13] = [
        Self::Granted,
        Self::Running,
        Self::GrantedAgain,
        Self::GrantRefused,
        Self::Lapsed,
        Self::Adopted,
        Self::Recovered,
        Self::Ended,
        Self::Succeeded,
        Self::Orphan,
        Self::LateHold,
        Self::StartedAgain,
        Self::ConfirmedEarly,
    ];
}

use crate::facts::input::Write;
use crate::facts::key::Key;
use crate::facts::lifecycle::LifecycleEvent;
use crate::facts::record::Record;
use meridian_shared::ids::{ClusterName, ContentHash, Jurisdiction, RecordNumber, Region, Uid};
use meridian_shared::protocol::SyncAnswer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The direct answer to one input, to be given after the commit.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Nothing to say.
    None,
    /// What each change came to.
    Written(Vec<Written>),
    /// Nothing was changed; every error.
    Rejected(Vec<Rejection>),
    /// An answer to a sync.
    Sync(Box<SyncAnswer>),
    /// It was taken: ask for its answer with `Unpark`, at the end of the batch, or when there is [something to say](crate::world::World::owes)
    /// where it [may wait](SyncRequest::may_wait) for that.
    Park,
    /// The operator's action was taken, in words.
    Done(String),
    /// A join token was accepted.
    Joined {
        /// The cluster it was bound to.
        cluster: ClusterName,
        /// Its region.
        region: Region,
        /// Its jurisdiction.
        jurisdiction: Jurisdiction,
    },
}

/// What one change came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The object.
    pub key: Key,
    /// Its uid.
    pub uid: Uid,
    /// What happened.
    pub result: WriteResult,
    /// Remarks that a person should read.
    pub warnings: Vec<String>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// It is new.
    Created,
    /// It changed.
    Configured,
    /// It already was so.
    Unchanged,
    /// It is gone.
    Deleted,
    /// It goes when its gang is confirmed stopped.
    Deleting,
}

/// Why one change was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// Index of the change.
    pub index: usize,
    /// The Kubernetes reason.
    pub reason: RejectionReason,
    /// The field, if one is to blame.
    pub field: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

/// Reasons as the Kubernetes API names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    /// It exists.
    AlreadyExists,
    /// It doesn't.
    NotFound,
    /// It changed in between.
    Conflict,
    /// A field is wrong.
    Invalid,
    /// A rule forbids it.
    Forbidden,
}

/// The outcome of one input.
#[derive(Debug)]
pub struct Outcome {
    /// Facts to commit, in order; the world has absorbed them already. Each note_answer its number.
    pub records: Vec<(RecordNumber, Record)>,
    /// Big bodies to store with them.
    pub bodies: Vec<(ContentHash, Arc<str>)>,
    /// Bodies that nothing refers to any more.
    pub dropped_bodies: Vec<ContentHash>,
    /// To be given after the commit.
    pub reply: Reply,
    /// Clusters whose parked polls have something to hear, after the commit.
    pub wake: BTreeSet<ClusterName>,
    /// Objects whose view changed, but for those of workloads that are still there.
    pub changed: BTreeSet<Key>,
    /// Workloads whose views changed: that of the job, its own, and those of its queues.
    pub workloads: BTreeSet<Uid>,
    /// Ends and deletions: may use the journal's reserved space.
    pub urgent: bool,
    /// What happened to workloads that dashboards count, in order.
    pub lifecycle_events: Vec<LifecycleEvent>,
    /// Requests that were unacknowledged out: large, and better let go of where nobody waits.
    pub spent: Vec<Write>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            bodies: Vec::new(),
            dropped_bodies: Vec::new(),
            reply: Reply::None,
            wake: BTreeSet::new(),
            changed: BTreeSet::new(),
            workloads: BTreeSet::new(),
            urgent: false,
            lifecycle_events: Vec::new(),
            spent: Vec::new(),
        }
    }
}

/// Where big bodies are read back from: the journal, or a cache before it.
pub trait Bodies {
    /// The body of this hash, if it is stored or about to be.
    fn body(&self, hash: ContentHash) -> Option<Arc<str>>;
}

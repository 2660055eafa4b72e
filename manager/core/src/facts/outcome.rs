use crate::facts::input::Write;
use crate::facts::key::Key;
use crate::facts::lifecycle::LifecycleEvent;
use crate::facts::record::Record;
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{ClusterName, ContentHash, Jurisdiction, RecordNumber, Region, Uid};
use meridian_shared::protocol::{Reference, SyncAnswer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The answer to one input, to be sent after the commit.
#[derive(Clone, Debug)]
pub enum Reply {
    None,
    /// The result of each change.
    Written(Vec<Written>),
    /// No change was made. Lists every error.
    Rejected(Vec<Rejection>),
    Sync(Box<SyncAnswer>),
    /// The sync request was taken. Send [`Input::Unpark`](crate::facts::input::Input::Unpark) to compose its
    /// answer: at the end of the batch or, if the request [may
    /// wait](meridian_shared::protocol::SyncRequest::may_wait), when there is [something to
    /// send](crate::world::World::owes).
    Park,
    /// The namespace of the objects that the cluster may have copies of, or why it may have none.
    Copies(Result<Arc<str>, NoCopies>),
    /// The operator's action was taken; the text describes its effect.
    Done(String),
    /// A join token was accepted. It is bound to this cluster.
    Joined {
        cluster: ClusterName,
        region: Region,
        jurisdiction: Jurisdiction,
        /// Binding of the agent's certificates.
        binding: CertificateBinding,
    },
}

/// Why a cluster gets no copy of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCopies {
    #[error("this manager may no longer be the leader: ask again")]
    NotLeading,
    /// The message doesn't name the workload, because residency may forbid the cluster to know it.
    #[error("this cluster has no offer and no right to run for that workload")]
    NotOffered,
    #[error("the job is not an object of the management cluster")]
    NotManaged,
    #[error("the pods of the workload name no {} `{}`", .0.kind.name(), .0.name)]
    NotNamed(Reference),
}

/// The result of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub key: Key,
    pub uid: Uid,
    pub result: WriteResult,
    /// Remarks for the user.
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    Created,
    Configured,
    Unchanged,
    Deleted,
    /// The object is deleted as soon as its gang is confirmed stopped.
    Deleting,
}

impl WriteResult {
    /// The result's word in answers and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Deleting => "deleting",
        }
    }
}

/// Why one change was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// Index of the change.
    pub index: usize,
    pub reason: RejectionReason,
    /// The field that is wrong, if it is one field.
    pub field: Option<String>,
    /// The error and its remedy. Objects that use another one aren't named here: see [`Self::in_use`].
    pub message: String,
    /// Set if the object is still in use.
    pub in_use: Option<Box<InUse>>,
}

/// An object that can't be deleted, because others use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    pub key: Key,
    pub users: Vec<Users>,
    pub remedy: &'static str,
}

/// Users of one object that are alike. Whether a reader may see their names depends on the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    /// Noun for each user, such as `waiting workload`.
    pub what: &'static str,
    pub count: usize,
    /// Keys of the first few users. For a workload, the key of its job.
    pub first: Vec<Key>,
}

impl Users {
    /// How many they are, such as `3 workloads`.
    pub fn counted(&self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        format!("{} {}{plural}", self.count, self.what)
    }
}

impl InUse {
    /// The whole message; `parts` has the text about each of [`Self::users`].
    pub fn message(&self, parts: &[String]) -> String {
        format!("{} still has {}: {}", self.key, parts.join(" and "), self.remedy)
    }
}

/// Reasons as the Kubernetes API names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    AlreadyExists,
    NotFound,
    /// The object is at another version than the change expects.
    Conflict,
    /// A field is wrong.
    Invalid,
    /// A rule forbids the change.
    Forbidden,
}

/// The outcome of one input.
#[derive(Debug)]
pub struct Outcome {
    /// Facts to commit, in order. The world has absorbed them already.
    pub records: Vec<(RecordNumber, Record)>,
    /// Job manifests to store with the records.
    pub bodies: Vec<(ContentHash, Arc<str>)>,
    /// Job manifests that nothing refers to any more.
    pub dropped_bodies: Vec<ContentHash>,
    pub reply: Reply,
    /// Clusters with a parked request that can be answered after the commit.
    pub wake: BTreeSet<ClusterName>,
    /// Objects with changed views, except those that follow from `workloads`.
    pub changed: BTreeSet<Key>,
    /// Workloads with new facts: their views changed, and those of their jobs and queues.
    pub workloads: BTreeSet<Uid>,
    /// Some record frees space, quota or capacity, so all of them may use the journal's reserved space.
    pub urgent: bool,
    /// Lifecycle events to count in metrics, in order.
    pub lifecycle_events: Vec<LifecycleEvent>,
    /// Requests that were applied. They are large, so the shell drops them when no caller waits.
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

/// Stored job manifests: the journal, or a cache in front of it.
pub trait Bodies {
    /// The manifest with this hash, if it is stored or about to be.
    fn body(&self, hash: ContentHash) -> Option<Arc<str>>;
}

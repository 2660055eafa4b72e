//! What goes into the core and what comes out. Closed enums: a new kind of input is a new line here.

use crate::milestone::Milestone;
use crate::reading::ReadJob;
use crate::record::Record;
use meridian_objects::{Kind, Object, applied};
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, Jurisdiction, LedgerId, RecordNumber, Region, Session, Uid,
};
use meridian_shared::protocol::{SyncAnswer, SyncRequest};
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Who caused something: `user:NAME`, `agent:CLUSTER` or `system`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(pub Arc<str>);

impl Actor {
    /// The manager itself.
    pub fn system() -> Self {
        Self(Arc::from("system"))
    }

    /// A person or a program with a user's identity.
    pub fn user(name: &str) -> Self {
        Self(Arc::from(format!("user:{name}")))
    }

    /// A worker agent.
    pub fn agent(cluster: &ClusterName) -> Self {
        Self(Arc::from(format!("agent:{cluster}")))
    }
}

/// Name of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Objects applied for one worker cluster (`apply --cluster NAME`) live beside the global ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ClusterName>,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, if the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// A namespaced object's key.
    pub fn namespaced(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { scope: None, kind, namespace: Some(Arc::from(namespace)), name: Arc::from(name) }
    }

    /// A cluster-wide object's key.
    pub fn global(kind: Kind, name: &str) -> Self {
        Self { scope: None, kind, namespace: None, name: Arc::from(name) }
    }
}

/// A key's parts, in its order: what objects are looked up by without making a key.
pub(crate) trait Named {
    fn parts(&self) -> (Option<&str>, Kind, Option<&str>, &str);
}

impl Named for Key {
    fn parts(&self) -> (Option<&str>, Kind, Option<&str>, &str) {
        (self.scope.as_ref().map(ClusterName::as_str), self.kind, self.namespace.as_deref(), &self.name)
    }
}

impl Named for (Option<&str>, Kind, Option<&str>, &str) {
    fn parts(&self) -> (Option<&str>, Kind, Option<&str>, &str) {
        *self
    }
}

impl<'a> Borrow<dyn Named + 'a> for Key {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Named + '_ {}

impl PartialOrd for dyn Named + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Named + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} `", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}`", self.name)?;
        if let Some(scope) = &self.scope {
            write!(f, " of cluster `{scope}`")?;
        }
        Ok(())
    }
}

/// Everything that can happen to a manager.
#[derive(Clone, Debug)]
pub enum Input {
    /// People's changes, in one transaction: all or nothing.
    Write(Box<Write>),
    /// A sync of the agent with this certificate.
    Sync {
        /// The certificate's cluster.
        cluster: ClusterName,
        /// What it says.
        request: Box<SyncRequest>,
        /// Whether the shell parks it: it is only taken then, and `Unpark` asks for its answer.
        may_park: bool,
    },
    /// Answer a parked transmission now.
    Unpark {
        /// The cluster.
        cluster: ClusterName,
        /// Its session.
        session: Session,
        /// The parked transmission.
        transmission: u64,
    },
    /// An operator's action.
    Operator {
        /// Who.
        actor: Actor,
        /// What.
        action: Operator,
    },
    /// The end of a batch: timers, then one scheduling pass.
    Turn,
    /// The same while only ends and deletions may be written: what time ends, and nothing that is made of it.
    Lapse,
}

/// One transaction of people's changes.
#[derive(Clone, Debug)]
pub struct Write {
    /// Who.
    pub actor: Actor,
    /// What, in order.
    pub(crate) changes: Vec<Change>,
    /// Judge, but change nothing.
    pub dry_run: bool,
    /// What was read of jobs, beside their changes.
    jobs: Vec<Option<ReadJob>>,
}

impl Write {
    /// These changes, in order. Jobs are read here, and in other objects it is noted what is applied, by whoever asks.
    pub fn new(actor: Actor, mut changes: Vec<Change>, dry_run: bool) -> Self {
        let read = |change: &mut Change| match change {
            Change::Put { object, uid, mode, .. } => {
                if *mode == PutMode::Apply && object.kind != Kind::Job && !applied::is_noted(object) {
                    applied::note(object);
                }
                ReadJob::of(object, *uid)
            }
            Change::Delete { .. } | Change::SetActive { .. } => None,
        };
        Self { jobs: changes.iter_mut().map(read).collect(), actor, changes, dry_run }
    }

    /// What is to change, in order; of a job without its manifest.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The same, with what was read of jobs.
    pub(crate) fn with_jobs(&self) -> impl Iterator<Item = (&Change, Option<&ReadJob>)> {
        self.changes.iter().zip(self.jobs.iter().map(Option::as_ref))
    }
}

/// One change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Create or change an object.
    Put {
        /// What it should be. A `generateName` was already filled in by the shell.
        object: Box<Object>,
        /// For one worker cluster only.
        scope: Option<ClusterName>,
        /// The uid to use if it is new.
        uid: Uid,
        /// What must be true of what is there.
        mode: PutMode,
    },
    /// Delete an object.
    Delete {
        /// Which.
        key: Key,
        /// Only if it still has this uid.
        uid: Option<Uid>,
    },
    /// Take a workload out of the queue, or put it back.
    SetActive {
        /// Which: by the workload's own name, or its job's.
        key: Key,
        /// Whether it is to be in the queue.
        active: bool,
        /// Only if it is still at this version.
        version: Option<RecordNumber>,
    },
}

/// What must be true of what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Nothing may be there.
    Create,
    /// Create, or [merge](meridian_objects::applied) into what is there; a job is taken as a whole.
    Apply,
    /// Something must be there, at this version if one is named.
    Replace(Option<RecordNumber>),
}

/// An operator's action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Keep new work away from a cluster.
    Cordon(ClusterName),
    /// Let it have work again.
    Uncordon(ClusterName),
    /// Cordon, and stop what runs there.
    Drain(ClusterName),
    /// Let a cluster have work whose name no other cluster has acknowledged.
    Admit(ClusterName),
    /// Declare that nothing of this ledger runs any more: the one exception to at-most-one, by a person's word.
    DeclareLost {
        /// The cluster.
        cluster: ClusterName,
        /// Its ledger, named so that a new one isn't meant by mistake; `None` takes the newest.
        ledger: Option<LedgerId>,
    },
    /// Make a join token. Only its hash is kept.
    MintToken {
        /// SHA-256 of the token, in hexadecimal.
        hash: String,
        /// The cluster that may join with it.
        cluster: ClusterName,
        /// Its region.
        region: Region,
        /// Its jurisdiction.
        jurisdiction: Jurisdiction,
        /// How long it is good.
        ttl: Millis,
        /// The name may exist already.
        replace: bool,
    },
    /// Use a join token: works once.
    UseToken {
        /// SHA-256 of the token.
        hash: String,
    },
    /// Close recovery by a person's word.
    ConfirmRecovery,
    /// Policies and quotas are as they should be: a restored journal may dispatch by them.
    ConfirmRules,
    /// Stop a run that no workload of this journal owns.
    StopOrphan {
        /// Its uid.
        uid: Uid,
        /// Its fence.
        fence: Fence,
    },
    /// Give an orphan its workload back: the job that it runs, under its uid.
    AdoptOrphan {
        /// Its uid.
        uid: Uid,
        /// Its fence.
        fence: Fence,
        /// The job, as it was submitted then.
        job: Box<Object>,
    },
}

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
    /// It was taken: ask for its answer with `Unpark`, at the end of the batch, or when there is [something to say](crate::World::owes)
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
    /// Facts to commit, in order; the world has absorbed them already. Each carries its number.
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
    pub milestones: Vec<Milestone>,
    /// Requests that were carried out: large, and better let go of where nobody waits.
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
            milestones: Vec::new(),
            spent: Vec::new(),
        }
    }
}

/// Where big bodies are read back from: the journal, or a cache before it.
pub trait Bodies {
    /// The body of this hash, if it is stored or about to be.
    fn body(&self, hash: ContentHash) -> Option<Arc<str>>;
}

use crate::facts::actor::Actor;
use crate::facts::key::Key;
use crate::facts::read_job::ReadJob;
use meridian_objects::{Kind, Object, applied};
use meridian_shared::ids::{ClusterName, Fence, Jurisdiction, LedgerId, RecordNumber, Region, Session, Uid};
use meridian_shared::protocol::SyncRequest;
use meridian_shared::time::Millis;

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

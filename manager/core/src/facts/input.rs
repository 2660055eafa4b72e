use crate::facts::actor::Actor;
use crate::facts::key::Key;
use crate::facts::read_job::ReadJob;
use meridian_objects::{Object, last_applied};
use meridian_shared::copies::CopyRequest;
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, Jurisdiction, LedgerId, RecordNumber, Region, Session, Uid,
};
use meridian_shared::protocol::SyncRequest;
use meridian_shared::time::Millis;

/// Everything that can happen to a manager.
#[derive(Clone, Debug)]
pub enum Input {
    /// Changes by a user, in one transaction: all of them are made, or none.
    Write(Box<Write>),
    /// A sync request of an agent.
    Sync {
        /// The cluster named in the agent's certificate.
        cluster: ClusterName,
        request: Box<SyncRequest>,
        /// Whether the shell can park the request. The core then takes its content at once, and composes the
        /// answer on [`Input::Unpark`].
        may_park: bool,
    },
    /// Answer a parked transmission now.
    Unpark { cluster: ClusterName, session: Session, transmission: u64 },
    /// An agent asks about objects of the management cluster that the pods of a workload name.
    Copies {
        /// The cluster named in the agent's certificate.
        cluster: ClusterName,
        request: CopyRequest,
    },
    /// An operator's action.
    Operator { actor: Actor, action: Operator },
    /// The end of a batch: timers that are due, then one scheduling pass.
    Turn,
    /// Results of reading stored manifests from disk.
    ManifestsRead(Vec<ManifestRead>),
    /// Only timers that end something. Sent instead of [`Input::Turn`] while the disk is full and the journal
    /// accepts only ends and deletions.
    Lapse,
}

/// Whether one stored manifest could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestRead {
    pub uid: Uid,
    /// Content hash of the manifest that was read.
    pub hash: ContentHash,
    /// False if it is damaged or missing.
    pub intact: bool,
}

/// One transaction of changes by a user.
#[derive(Clone, Debug)]
pub struct Write {
    pub actor: Actor,
    /// In the order in which they are applied.
    pub(crate) changes: Vec<Change>,
    /// Validate the changes without making them.
    pub dry_run: bool,
    /// For each change: the parsed job, if the change puts one.
    jobs: Vec<Option<ReadJob>>,
    /// Whether the changes are all objects that the files of the setting `objects` declare.
    pub(crate) from_files: bool,
}

impl Write {
    /// Parses the jobs among the changes, and records the last applied configuration in other applied
    /// objects. That work is costly and needs no world, so it runs on the caller's thread rather than on the
    /// engine's.
    pub fn new(actor: Actor, mut changes: Vec<Change>, dry_run: bool) -> Self {
        let read = |change: &mut Change| match change {
            Change::Put { object, uid, mode, .. } => {
                if *mode == PutMode::Apply && !object.kind.is_job() && !last_applied::is_recorded(object) {
                    last_applied::record(object);
                }
                ReadJob::of(object, *uid)
            }
            Change::Delete { .. } | Change::SetActive { .. } => None,
        };
        Self { jobs: changes.iter_mut().map(read).collect(), actor, changes, dry_run, from_files: false }
    }

    /// Marks the changes as everything that the files of the setting `objects` declare. Objects that they
    /// declared before are released.
    #[must_use]
    pub fn of_files(mut self) -> Self {
        self.from_files = true;
        self
    }

    /// Marks new jobs of this request as older than the leadership that accepts them, as for the first
    /// complete list of a management cluster. If the journal was lost, a cluster may already run these jobs,
    /// so they wait for the end of recovery.
    #[must_use]
    pub fn of_existing(mut self) -> Self {
        for job in self.jobs.iter_mut().flatten() {
            job.existed = true;
        }
        self
    }

    /// Deactivates new jobs of this request at their submission, so that they can't start in between. Needed
    /// for jobs that somebody stopped in the management cluster, if the journal was lost since.
    #[must_use]
    pub fn of_inactive(mut self) -> Self {
        for job in self.jobs.iter_mut().flatten() {
            job.inactive = true;
        }
        self
    }

    /// The changes in order. Objects of jobs have no spec and no manifest, because both were moved to the
    /// parsed job.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes in order, each with its parsed job if it puts one.
    pub(crate) fn with_jobs(&self) -> impl Iterator<Item = (&Change, Option<&ReadJob>)> {
        self.changes.iter().zip(self.jobs.iter().map(Option::as_ref))
    }
}

#[derive(Clone, Debug)]
pub enum Change {
    /// Create or change an object.
    Put {
        /// The desired object. The shell has already replaced a `generateName` by a name.
        object: Box<Object>,
        /// Set if the object configures one worker cluster only (`apply --cluster NAME`).
        scope: Option<ClusterName>,
        /// Used if the object doesn't exist yet.
        uid: Uid,
        mode: PutMode,
    },
    Delete {
        key: Key,
        /// Delete only an object with this uid.
        uid: Option<Uid>,
        /// Delete it even if others refer to it, or workloads wait for it.
        force: bool,
    },
    /// Deactivate a workload, or activate it again: Kueue's `spec.active`.
    SetActive {
        /// Key of the workload or of its job.
        key: Key,
        active: bool,
        /// Change the workload only if it is still at this version.
        version: Option<RecordNumber>,
    },
}

/// Condition of a put on the existing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// The object must not exist.
    Create,
    /// Create the object, or [merge](meridian_objects::last_applied) into the existing one. A job is replaced
    /// as a whole.
    Apply,
    /// The object must exist, at this version if one is given.
    Replace(Option<RecordNumber>),
}

/// A cluster and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterPlace {
    pub cluster: ClusterName,
    pub region: Region,
    pub jurisdiction: Jurisdiction,
}

/// An operator's action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Send no new workloads to a cluster.
    Cordon(ClusterName),
    Uncordon(ClusterName),
    /// Cordon a cluster, and stop what runs there.
    Drain(ClusterName),
    /// Let a new cluster get workloads before another member has acknowledged the member list that names it.
    Admit(ClusterName),
    /// Declare that nothing of this ledger runs any more. The only action that can break "at most one cluster
    /// runs a workload", if the operator is wrong.
    DeclareLost {
        cluster: ClusterName,
        /// Guards against declaring a newer ledger of the same cluster lost by mistake. `None` means the
        /// newest.
        ledger: Option<LedgerId>,
    },
    /// Create a join token.
    MintToken {
        /// SHA-256 of the token in hexadecimal; the token itself is not kept.
        hash: String,
        /// The only cluster that may join with the token.
        cluster: ClusterName,
        region: Region,
        jurisdiction: Jurisdiction,
        /// How long the token is valid.
        ttl: Millis,
        /// Whether a cluster of this name may already exist.
        replace: bool,
    },
    /// Use up a join token: each works once.
    UseToken {
        /// SHA-256 of the token in hexadecimal.
        hash: String,
    },
    /// An agent proved that it is the service account that may join for this cluster.
    JoinByIssuer(ClusterPlace),
    /// Let the cluster's service account join, in place of an agent that has joined or was locked out.
    LetAccountJoin {
        place: ClusterPlace,
        /// Whether a cluster of this name may already have joined.
        replace: bool,
    },
    /// A user's token is about to be created. The journal keeps the audit line only.
    CreateUserToken {
        name: String,
        user: String,
        groups: Vec<String>,
    },
    /// A user's token is about to be revoked. The journal keeps the audit line only.
    RevokeUserToken {
        name: String,
    },
    /// Void all certificates and join tokens of a cluster, which locks out its agent.
    Revoke(ClusterName),
    /// Accept the certificate of a connected agent if a later copy of this journal issued it, or the journal
    /// that this one replaces. Refused unless such copies may exist.
    AdoptCertificate {
        cluster: ClusterName,
        binding: CertificateBinding,
    },
    /// Confirm that recovery may close.
    ConfirmRecovery,
    /// Confirm policies and quotas, so that a restored journal may dispatch by them.
    ConfirmRules,
    /// Dispatch nothing more until policies and quotas are confirmed: another manager took the management
    /// cluster over, and has its jobs.
    DoubtRules,
    /// Stop a run of a workload that this journal doesn't know.
    StopOrphan {
        uid: Uid,
        fence: Fence,
    },
    /// Take over a run of a workload that this journal doesn't know.
    AdoptOrphan {
        uid: Uid,
        fence: Fence,
        /// The job that runs, as it was submitted.
        job: Box<Object>,
    },
}

//! The manager's durable state: records, the newest snapshot, large bodies and the audit log, as bytes and
//! numbers.
//!
//! This module owns the order of records, the atomicity and durability of a batch, the exclusion of other
//! writers between two batches, the format on disk, and the space reserved for ends and deletions. It must
//! not know what a record means, the engine's types, a clock, randomness (ids and times are arguments) or a
//! thread.
//!
//! ```text
//!  engine turn ──Batch──▶ commit ──▶ one transaction, one sync ──▶ Ok: durable, may be acted upon
//!                            └──────▶ Err: unknown; drop the uncommitted world, reload(), replay
//! ```
//!
//! Invariants:
//! - Record numbers only grow, within a batch and across restarts. They may skip upwards (after a restore
//!   they must be above every number that was ever reported), never down.
//! - A batch names the record before it and its leadership. Nothing is written if the journal's last record
//!   differs, or if a higher epoch (or an equal epoch with another leadership id) has written.
//! - Audit lines are written in the transaction of the records that they explain. Truncation never touches
//!   them. Only a batch with an [`AuditCut`] that covers them drops them: they are then in a segment.
//! - After a failed commit nothing is written, and nothing uncommitted is readable, until
//!   [`Journal::reload`].

mod encoding;
mod error;
pub mod faulty;
pub mod mark;
pub mod medium;
mod read_only;
mod redb;
#[cfg(test)]
mod tests;

pub use self::encoding::FORMAT;
pub use self::error::Error;
pub use self::read_only::ReadOnlyJournal;
pub use self::redb::RedbJournal;
use meridian_shared::ids::{ContentHash, JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;
use std::sync::Arc;
use std::time::Duration;

/// Largest record, audit line or body in bytes. A Kubernetes object has at most 1.5 MiB, so a value of ten
/// times that is a mistake.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// Largest sum of records, audit lines and bodies in one batch, so that one commit can't block the engine for
/// seconds.
pub const BATCH_BYTES_MAX: usize = 256 << 20;

/// Position in the audit log: 1, 2, 3, … without gaps. It never starts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditNumber(pub u64);

/// How much of the audit log is in segments outside the journal. Each value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditCut {
    /// Number of segments that are complete and durable.
    pub segments: u64,
    /// The last line in them; 0 without segments.
    pub through: AuditNumber,
    /// Hash of the newest segment's seal; zeros without segments.
    pub seal: [u8; 32],
    /// The first line that is still in the journal. Lines are dropped in steps, so it may be a line of the
    /// newest segment.
    pub first: AuditNumber,
}

impl Default for AuditCut {
    fn default() -> Self {
        Self { segments: 0, through: AuditNumber(0), seal: [0; 32], first: AuditNumber(1) }
    }
}

/// Facts that were fixed when the journal was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Random; a copy has the same id.
    pub journal: JournalId,
    pub created: Wall,
}

/// The world after the record `through`, in the engine's own encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub through: RecordNumber,
    pub bytes: Vec<u8>,
}

/// The content of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The leadership that writes.
    pub leadership: Leadership,
    /// The condition: the journal's last record before this batch.
    pub after: RecordNumber,
    /// Number of the first record; larger than `after`, and normally the next one.
    pub first: RecordNumber,
    /// Numbered upwards from `first` without gaps.
    pub records: Vec<Vec<u8>>,
    /// Bodies to add. An existing body is replaced: it may be damaged. The engine counts the references.
    pub bodies: Vec<(ContentHash, Vec<u8>)>,
    /// Bodies to remove, before `bodies` are added: a body in both lists stays.
    pub drop_bodies: Vec<ContentHash>,
    /// Lines to append to the audit log.
    pub audit: Vec<Vec<u8>>,
    /// Replaces the cut and drops the audit lines before its `first`. The newest line always stays.
    pub audit_cut: Option<AuditCut>,
    /// Replaces the snapshot and drops the records up to its `through`, which may be a record of this batch.
    pub snapshot: Option<Snapshot>,
    /// The batch holds ends and deletions only, so it may use the reserved space.
    pub urgent: bool,
}

impl Batch {
    /// An empty batch after the record `after`.
    pub fn new(leadership: Leadership, after: RecordNumber) -> Self {
        Self {
            leadership,
            after,
            first: after.next(),
            records: Vec::new(),
            bodies: Vec::new(),
            drop_bodies: Vec::new(),
            audit: Vec::new(),
            audit_cut: None,
            snapshot: None,
            urgent: false,
        }
    }

    /// The journal's last record once this batch is committed.
    pub fn last(&self) -> RecordNumber {
        match self.records.len() as u64 {
            0 => self.after,
            n => RecordNumber(self.first.0.saturating_add(n - 1)),
        }
    }

    /// Whether the batch changes nothing. Committing it is still a sync write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.bodies.is_empty()
            && self.drop_bodies.is_empty()
            && self.audit.is_empty()
            && self.audit_cut.is_none()
            && self.snapshot.is_none()
    }
}

/// Result of [`Journal::reload`], compared with the commits that this object made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// Exactly the acknowledged commits. The failed commit left nothing.
    Acknowledged,
    /// The acknowledged commits, and the whole commit of unknown outcome. It is durable now.
    CommitCompleted,
    /// Something that this object never wrote. Any claim of this process to the journal is lost.
    ForeignWriter,
}

/// Space that a journal uses, and its free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub bytes: u64,
    /// Space reserved for ends and deletions; 0 while the reserve is in use.
    pub reserve_bytes: u64,
    /// Free space on the disk, without the reserve.
    pub free_bytes: u64,
}

/// A part of the journal besides bodies, which are verified one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Records,
    Snapshot,
    Audit,
}

/// The result of one step of [`Reader::verify`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub bytes: usize,
    /// Where the next step begins; `None` at the end of the part.
    pub next: Option<u64>,
}

/// Receives `(number, bytes)` of one entry. An `Err` (why the bytes can't be used) ends the iteration.
pub type Visit<'a, N> = &'a mut dyn FnMut(N, &[u8]) -> Result<(), String>;

/// Reads of committed data, from any thread, concurrently with the one writer.
///
/// A read sees all commits that returned before it began, and no other. Reads wait during a reload; after a
/// reload that failed they return [`Error::ReloadRequired`].
pub trait Reader: Send + Sync {
    /// The body with this hash; `None` if it is missing. The caller also checks that the bytes have the hash.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the entry is damaged; otherwise if the storage fails.
    fn body(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error>;

    /// How much of the audit log is outside the journal.
    ///
    /// # Errors
    /// If the storage fails or the entry is damaged.
    fn audit_cut(&self) -> Result<AuditCut, Error>;

    /// Visits the audit lines `from..until` in order, beginning at the [`AuditCut`]'s `first` if that is
    /// later. `visit` must be quick, because a reload waits for it.
    ///
    /// # Errors
    /// If the storage fails, an entry is damaged, or `visit` rejects one.
    fn audit(
        &self,
        from: AuditNumber,
        until: AuditNumber,
        visit: Visit<'_, AuditNumber>,
    ) -> Result<(), Error>;

    /// The last audit line, with its number.
    ///
    /// # Errors
    /// If the storage fails or the entry is damaged.
    fn audit_head(&self) -> Result<Option<(AuditNumber, Vec<u8>)>, Error>;

    /// Verifies the entries of `part` from `from` on, until about `bytes_max` bytes were read. The first step
    /// begins at 0.
    ///
    /// # Errors
    /// [`Error::Damaged`] if an entry is damaged or missing; otherwise if the storage fails.
    fn verify(&self, part: Part, from: u64, bytes_max: usize) -> Result<Verified, Error>;
}

impl std::fmt::Debug for dyn Reader + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// Committed batches in commit order, for a standby that keeps its own copy of the world. See
/// [`Journal::follow`].
///
/// Only durable batches are delivered, each once and whole. Their `leadership` shows a standby that a new
/// manager leads. Before a standby takes over, it must claim the journal and then read up to its end:
/// followed batches alone may be incomplete.
pub trait Follower: Send {
    /// The next committed batch, or `None` if none was committed within `wait`.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the next records are only in a snapshot by now: the standby must start again
    /// from there. Any other error ends this follower; a new one may continue after the last batch received.
    fn next_batch(&mut self, wait: Duration) -> Result<Option<Batch>, Error>;
}

/// A durable journal with one writer. Synchronous: a commit returns when the bytes are on the disk.
///
/// - **Duplicates.** A batch that is committed twice is refused the second time: its `after` is no longer the
///   last record. The caller may therefore repeat a commit without knowing whether the first one arrived.
/// - **Lost replies, unknown commits.** A failed commit may be durable nevertheless (a sync that failed late,
///   a connection that broke before the reply). The object then refuses all writes until [`Journal::reload`],
///   which says whether the batch is in the journal. Until then, the caller must neither act on the batch nor
///   treat it as undone.
/// - **Two live copies.** A second writer on the same storage is kept out while the first one lives
///   ([`Error::Locked`]) or, where its claim can move, every write of the old one is refused
///   ([`Error::Fenced`]). No lock sees a *copy* of the storage: a copy has the same journal id, and reports
///   [`Journal::identity_changed`]. Agents detect other copies, because they remember record numbers of
///   leaderships. If the storage is removed or replaced during use, the next commit or heartbeat returns
///   [`Error::Replaced`] or an I/O error.
pub trait Journal: Send {
    fn meta(&self) -> &Meta;

    /// Whether the journal is on another storage than at its creation, so that this may be one of several
    /// copies.
    fn identity_changed(&self) -> bool;

    /// Notes proof that the journal's file was replaced by an older copy. From now on its identity counts as
    /// changed, until [`Journal::accept_identity`].
    fn distrust(&mut self);

    /// Records an operator's statement that no other copy is in use. From now on, this storage counts as the
    /// original.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    fn accept_identity(&mut self) -> Result<(), Error>;

    /// The last committed record; 0 in a new journal.
    fn last(&self) -> RecordNumber;

    /// The leadership that wrote last; epoch 0 in a new journal.
    fn leadership(&self) -> Leadership;

    /// A hash over everything ever committed, in order. Two journals with the same chain and the same
    /// [`Journal::last`] have the same history. The hash isn't safe against forgery.
    fn chain(&self) -> u64;

    /// The newest snapshot.
    ///
    /// # Errors
    /// If the storage fails or the snapshot is damaged.
    fn snapshot(&self) -> Result<Option<Snapshot>, Error>;

    /// Visits the records after `after` in order. Returns the number of the last record in the journal.
    ///
    /// # Errors
    /// [`Error::Compacted`] if some of the records are only in the snapshot; otherwise if the storage fails,
    /// a record is damaged, or `visit` rejects one.
    fn replay(&self, after: RecordNumber, visit: Visit<'_, RecordNumber>) -> Result<RecordNumber, Error>;

    /// Follows the batches after the record `after` while another process commits them.
    ///
    /// # Errors
    /// [`Error::NotFollowable`] if only one process at a time can use the storage; [`Error::Compacted`] if
    /// records after `after` are only in the snapshot.
    fn follow(&self, after: RecordNumber) -> Result<Box<dyn Follower>, Error>;

    /// A handle for concurrent reads. It stays valid over reloads.
    fn reader(&self) -> Arc<dyn Reader>;

    /// Commits one transaction, durable on return.
    ///
    /// # Errors
    /// [`Error::Invalid`], and [`Error::Full`] while [`Journal::urgent_only`], are returned before anything
    /// is written. After every other error the outcome is unknown: see the trait's documentation.
    fn commit(&mut self, batch: &Batch) -> Result<(), Error>;

    /// A sync write that changes nothing, by which an idle leader proves its claim. Also tries to reserve
    /// space again after the disk was full.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    fn heartbeat(&mut self) -> Result<(), Error>;

    /// Whether the reserved space is in use, so that only urgent batches are accepted. The engine asks before
    /// it accepts new work, because a batch that is refused later costs a reload.
    fn urgent_only(&self) -> bool;

    /// Space that the journal uses; `None` if its storage can't report it.
    fn space(&self) -> Option<Space>;

    /// Whether a commit failed, so that [`Journal::reload`] is due.
    fn needs_reload(&self) -> bool;

    /// Closes and opens the storage again. Everything that is not durable is gone.
    ///
    /// # Errors
    /// If the storage can't be opened, is damaged, or holds another journal. The journal stays closed; reload
    /// again.
    fn reload(&mut self) -> Result<ReloadOutcome, Error>;
}

impl std::fmt::Debug for dyn Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("journal", &self.meta().journal)
            .field("last", &self.last())
            .finish_non_exhaustive()
    }
}

//! The manager's durable memory: records, the newest snapshot, big bodies and the audit log, at the level of bytes and
//! numbers.
//!
//! What it owns: the order of records, that a batch is durable as a whole or not at all, that nobody else writes between
//! two batches of one writer, the format on disk, and the space that is kept back for ends and deletions. What it must
//! not know: what a record means, the engine's types, a clock, chance (ids and moments are arguments) or a thread.
//!
//! ```text
//!  engine turn ──Batch──▶ commit ──▶ one transaction, one sync ──▶ Ok: durable, may be acted upon
//!                            └──────▶ Err: unknown, throw the uncommitted world away, reload(), replay
//! ```
//!
//! Invariants:
//! - Record numbers only grow, in every batch and over every reopening. They may skip upwards (after a restore they must
//!   stand above all that was ever reported), never down.
//! - A batch names the record that it follows and its leadership; if the journal's last record is another one, or a
//!   larger epoch (or an equal one with another leadership id) has written, nothing is written.
//! - The audit log is written in the transaction of the records that it explains, and truncation never touches it.
//! - After a commit failed, nothing is written and nothing uncommitted is readable until [`Journal::reload`].

mod encoding;
pub mod faulty;
mod look;
pub mod mark;
pub mod medium;
mod redb;
#[cfg(test)]
mod tests;

pub use self::encoding::FORMAT;
pub use self::look::Look;
pub use self::redb::RedbJournal;
use meridian_shared::ids::{ContentHash, JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;
use std::io;
use std::sync::Arc;

/// Largest record, audit line or body in bytes. A Kubernetes object is at most 1.5 MiB; ten times that is a mistake.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// Most bytes of records, audit lines and bodies in one batch, so that one commit can't hold the engine for seconds.
pub const BATCH_BYTES_MAX: usize = 256 << 20;

/// Position in the audit log: 1, 2, 3, … without gaps, for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditNumber(pub u64);

/// Which file a journal lives in, to tell a copy that was put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device number.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// When the inode was born, in nanoseconds since the Unix epoch, where the filesystem keeps it.
    pub born_ns: Option<u64>,
}

impl Identity {
    /// Whether both are one file. A device number changes when a volume is attached again elsewhere, so it counts only
    /// where the filesystem keeps no birth times; a copy always has another inode or another birth.
    pub fn same_file(&self, other: &Self) -> bool {
        self.inode == other.inode
            && match (self.born_ns, other.born_ns) {
                (Some(one), Some(two)) => one == two,
                _ => self.device == other.device,
            }
    }
}

/// What was decided when the journal was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Random; a copy carries the same one.
    pub journal: JournalId,
    /// The file it was made in, or that an operator accepted last.
    pub identity: Identity,
    /// When it was made.
    pub created: Wall,
}

/// A snapshot of the world as it stood after the record `through`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that it includes.
    pub through: RecordNumber,
    /// The world, in the engine's own encoding.
    pub bytes: Vec<u8>,
}

/// What one transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who writes.
    pub leadership: Leadership,
    /// The condition: the journal's last record before this batch.
    pub after: RecordNumber,
    /// Number of the first record; larger than `after`, and normally the next one.
    pub first: RecordNumber,
    /// Records, numbered upwards from `first` without gaps.
    pub records: Vec<Vec<u8>>,
    /// Bodies that must be there afterwards; one that is there already is left alone. Counting references is the engine's.
    pub bodies: Vec<(ContentHash, Vec<u8>)>,
    /// Bodies that may go; dropped before `bodies` are put, so that a body in both lists stays.
    pub drop_bodies: Vec<ContentHash>,
    /// Lines for the end of the audit log.
    pub audit: Vec<Vec<u8>>,
    /// Replaces the snapshot and drops the records up to its `through`, which may be a record of this batch.
    pub snapshot: Option<Snapshot>,
    /// Ends and deletions: may use the space that is kept back.
    pub urgent: bool,
}

impl Batch {
    /// An empty batch that follows the record `after`.
    pub fn new(leadership: Leadership, after: RecordNumber) -> Self {
        Self {
            leadership,
            after,
            first: after.next(),
            records: Vec::new(),
            bodies: Vec::new(),
            drop_bodies: Vec::new(),
            audit: Vec::new(),
            snapshot: None,
            urgent: false,
        }
    }

    /// The journal's last record once this is committed.
    pub fn last(&self) -> RecordNumber {
        match self.records.len() as u64 {
            0 => self.after,
            n => RecordNumber(self.first.0.saturating_add(n - 1)),
        }
    }

    /// Whether it changes nothing; committing it is still a sync write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.bodies.is_empty()
            && self.drop_bodies.is_empty()
            && self.audit.is_empty()
            && self.snapshot.is_none()
    }
}

/// What [`Journal::reload`] found, compared with what this object knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Exactly the acknowledged commits: the failed one left nothing.
    Acknowledged,
    /// The acknowledged commits and the one whose outcome was unknown, in full: it is durable now.
    Unknown,
    /// Something that this object never wrote. Whoever held a claim has lost it.
    Foreign,
}

/// Gets `(number, bytes)` of one entry; an `Err` (why the bytes are not understood) ends the walk.
pub type Visit<'a, N> = &'a mut dyn FnMut(N, &[u8]) -> Result<(), String>;

/// Reads of committed data, from any thread, beside the one writer.
///
/// A read sees all commits that returned before it began, and nothing of one that has not. While the journal is being
/// reloaded reads wait; after a reload that failed they answer [`Error::Poisoned`].
pub trait Reader: Send + Sync {
    /// The body with this hash. The bytes are as they were put; whether they have that hash is checked by who cares.
    fn body(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error>;

    /// Audit lines `from..until`, in order, one at a time. `visit` must be quick: a reload waits for it.
    fn audit(
        &self,
        from: AuditNumber,
        until: AuditNumber,
        visit: Visit<'_, AuditNumber>,
    ) -> Result<(), Error>;

    /// The last audit line.
    fn audit_head(&self) -> Result<Option<(AuditNumber, Vec<u8>)>, Error>;
}

/// A durable journal with one writer. Synchronous: a commit returns when the bytes are on the disk.
///
/// - **Duplicates.** A batch that is committed twice is refused the second time: its `after` is no longer the last record.
/// - **Unknown outcome.** A commit that fails may have become durable all the same (a sync that failed late). The object
///   then refuses all writes until [`Journal::reload`], which says which it was. Until then the batch counts as neither.
/// - **Two live copies.** Opening takes an exclusive lock, so a second process on the same file gets [`Error::Held`]. A
///   lock can't see a *copy* of the file: a copy has the same journal id, another [`Identity`], and tells of it through
///   [`Journal::identity_changed`]; agents, who remember record numbers of leaderships, tell the rest. A manager whose file was
///   taken away or replaced under it gets [`Error::Replaced`] or an I/O error from its next commit or heartbeat.
pub trait Journal: Send {
    /// What was decided when it was made.
    fn meta(&self) -> &Meta;

    /// Whether it lives in another file than it was made in, so may be one of several copies.
    fn identity_changed(&self) -> bool;

    /// An operator says that no other copy runs: from now on this file is the one.
    fn accept_identity(&mut self) -> Result<(), Error>;

    /// The last committed record; 0 in a new journal.
    fn last(&self) -> RecordNumber;

    /// The leadership that wrote last; epoch 0 in a new journal.
    fn leadership(&self) -> Leadership;

    /// A hash over everything ever committed, in order. Two journals that agree in it and in [`Journal::last`] have one
    /// history; it is no defence against somebody who forges one.
    fn chain(&self) -> u64;

    /// The newest snapshot.
    fn snapshot(&self) -> Result<Option<Snapshot>, Error>;

    /// The records after `after`, in order, one at a time; returns the number of the last one in the journal.
    fn replay(&self, after: RecordNumber, visit: Visit<'_, RecordNumber>) -> Result<RecordNumber, Error>;

    /// A handle for reads beside the writer. It stays good over reloads.
    fn reader(&self) -> Arc<dyn Reader>;

    /// One transaction, durable on return. See the trait's text for what an error leaves behind.
    fn commit(&mut self, batch: &Batch) -> Result<(), Error>;

    /// A successful sync write that changes nothing, for the claim of an idle leader. Also tries to get the reserved
    /// space back after a full disk.
    fn heartbeat(&mut self) -> Result<(), Error>;

    /// Whether the reserved space is in use, so that only urgent batches are taken. The engine asks before it accepts
    /// new work, because a batch that is refused later costs it a reload.
    fn urgent_only(&self) -> bool;

    /// Whether a commit failed and [`Journal::reload`] is due. A batch that was refused before anything was written
    /// ([`Error::Full`] while [`Journal::urgent_only`], [`Error::Invalid`]) leaves the journal usable.
    fn poisoned(&self) -> bool;

    /// Closes and opens again. Everything that is not durable is gone.
    fn reload(&mut self) -> Result<Found, Error>;
}

/// Why the journal said no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing there. Only `init` makes a journal, because making one asserts that nothing ran before.
    #[error(
        "no journal at `{place}`: bring a copy back with `journal restore`, or begin a new one in place of a lost one with `--init --recover`"
    )]
    Missing {
        /// Where.
        place: String,
    },
    /// `init` found something.
    #[error(
        "`{place}` already exists: start the manager on it, or name another path; a journal is never overwritten"
    )]
    Exists {
        /// Where.
        place: String,
    },
    /// The lock is taken.
    #[error(
        "another manager, or a `meridian journal` command, holds the journal at `{place}`: stop that one first"
    )]
    Held {
        /// Where.
        place: String,
    },
    /// Something else lives there.
    #[error(
        "`{place}` is not a meridian journal ({why}): check the path, or bring a copy back with `journal restore`"
    )]
    NotAJournal {
        /// Where.
        place: String,
        /// How it was seen.
        why: String,
    },
    /// A journal of another program version.
    #[error(
        "the journal at `{place}` has the format `{found}`, but this program reads `{FORMAT}`: use the version that wrote it"
    )]
    Version {
        /// Where.
        place: String,
        /// Its header.
        found: String,
    },
    /// Bytes that were never written by us.
    #[error("the journal at `{place}` is damaged ({what}): bring a copy back with `journal restore`")]
    Corrupt {
        /// Where.
        place: String,
        /// What doesn't fit.
        what: String,
    },
    /// Somebody else wrote, or the batch was made for another state of the journal.
    #[error("refused to write to the journal at `{place}`: {why}; this manager no longer leads")]
    Fenced {
        /// Where.
        place: String,
        /// What was expected and found.
        why: String,
    },
    /// The file at the path is no longer the one that is open.
    #[error(
        "the journal at `{place}` was removed or replaced while in use: stop this manager, then start it on the right file"
    )]
    Replaced {
        /// Where.
        place: String,
    },
    /// No space left.
    #[error(
        "no space left for the journal at `{place}`: only ends and deletions are taken until space is freed"
    )]
    Full {
        /// Where.
        place: String,
    },
    /// A commit failed before.
    #[error("the journal at `{place}` must be reloaded after a failed commit")]
    Poisoned {
        /// Where.
        place: String,
    },
    /// Records that were asked for are in the snapshot already.
    #[error("records up to `{through}` are only in the snapshot: reading after `{after}` must begin there")]
    Compacted {
        /// Asked for.
        after: RecordNumber,
        /// The last record that is gone.
        through: RecordNumber,
    },
    /// The reader of a walk refused an entry.
    #[error("entry `{number}` of the journal at `{place}` is not understood: {reason}")]
    Rejected {
        /// Where.
        place: String,
        /// Which one.
        number: u64,
        /// The reader's words.
        reason: String,
    },
    /// A batch that contradicts itself or passes a limit.
    #[error("a batch for the journal is not valid: {why}")]
    Invalid {
        /// What is wrong with it.
        why: String,
    },
    /// The operating system said no.
    #[error("can't {operation} the journal at `{place}`: {source}")]
    Io {
        /// A verb.
        operation: &'static str,
        /// Where.
        place: String,
        /// Its words.
        #[source]
        source: io::Error,
    },
    /// The store said no.
    #[error("can't {operation} the journal at `{place}`: {source}")]
    Store {
        /// A verb.
        operation: &'static str,
        /// Where.
        place: String,
        /// Its words.
        #[source]
        source: Box<::redb::Error>,
    },
}

//! Errors of journals, in terms that fit every kind of storage.

use super::FORMAT;
use meridian_shared::ids::RecordNumber;
use std::io;

/// Why a journal operation failed. `place` names the journal's storage, for messages.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only `init` creates a journal, because creating one asserts that nothing ran before.
    #[error(
        "no journal at `{place}`: if this is the first start, add `--init`; if there was a journal, restore \
         a copy with `journal restore`, or replace the lost one with `--init --recover`"
    )]
    Missing { place: String },
    /// `init` never overwrites.
    #[error(
        "`{place}` already exists: start the manager on it, or name another path; a journal is never \
         overwritten"
    )]
    Exists { place: String },
    /// Another process has the journal open.
    #[error(
        "another manager, or a `meridian journal` command, holds the journal at `{place}`: stop that \
         one first"
    )]
    Locked { place: String },
    #[error(
        "`{place}` is not a meridian journal ({why}): check the path, or restore a copy with \
         `journal restore`"
    )]
    NotAJournal { place: String, why: String },
    /// The journal was written by another version of this program.
    #[error(
        "the journal at `{place}` has the format `{found}`, but this program reads `{FORMAT}`: use the \
         version that wrote it"
    )]
    FormatVersion { place: String, found: String },
    /// The journal's bytes differ from those that this program wrote.
    #[error("the journal at `{place}` is damaged ({what}): restore a copy with `journal restore`")]
    Damaged { place: String, what: String },
    /// Another process has written, or the batch was made for another state of the journal.
    #[error("refused to write to the journal at `{place}`: {why}; this manager no longer leads")]
    Fenced { place: String, why: String },
    /// The storage at `place` was removed or replaced while the journal was open.
    #[error(
        "the journal at `{place}` was removed or replaced while in use: stop this manager, then start \
         it on the right file"
    )]
    Replaced { place: String },
    #[error(
        "no space left for the journal at `{place}`: only ends and deletions are taken until space is freed"
    )]
    Full { place: String },
    /// A commit failed before, and its outcome is unknown.
    #[error("the journal at `{place}` must be reloaded after a failed commit")]
    ReloadRequired { place: String },
    /// The requested records are only in the snapshot.
    #[error("records up to `{through}` are only in the snapshot: reading after `{after}` must begin there")]
    Compacted { after: RecordNumber, through: RecordNumber },
    /// The storage belongs to one process at a time.
    #[error("the journal at `{place}` can't be followed by a standby: one process at a time can open it")]
    NotFollowable { place: String },
    /// The visitor of an iteration rejected an entry.
    #[error("entry `{number}` of the journal at `{place}` can't be read: {reason}")]
    Rejected { place: String, number: u64, reason: String },
    /// The batch contradicts itself or exceeds a limit.
    #[error("a batch for the journal is not valid: {why}")]
    Invalid { why: String },
    /// The operating system failed `operation`, which is a verb.
    #[error("can't {operation} the journal at `{place}`: {source}")]
    Io {
        operation: &'static str,
        place: String,
        #[source]
        source: io::Error,
    },
    /// The storage engine or database failed `operation`, which is a verb.
    #[error("can't {operation} the journal at `{place}`: {source}")]
    Storage {
        operation: &'static str,
        place: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

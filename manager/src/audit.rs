//! The audit log outside the journal: segments of old lines, their signatures, their export, and the proof
//! that a log is intact.
//!
//! ```text
//!  journal (newest lines) ──Keeper──▶ segment file ──Exporter──▶ hook ──Keeper──▶ removed
//! ```
//!
//! A line is written into the journal, in the same transaction as the change that it explains. The
//! [`keeper::Keeper`] copies old lines into a segment, and drops them from the journal once the segment is
//! durable. This module must not know the engine or HTTP.
//!
//! Invariants:
//! - At every moment and after every crash, a line is in the journal or in a durable segment.
//! - A segment that wasn't exported is never removed.
//! - Segments that contradict the journal (it was restored) are set aside, never changed or removed.
//!
//! | file | owns |
//! |---|---|
//! | `document` | the JSON documents of a log: lines, and the opening and seal of a segment |
//! | `key` | the key that signs seals |
//! | `directory` | the files of segments |
//! | `keeper` | when lines become a segment, and which segments are kept |
//! | `export` | the hook that gets finished segments |
//! | `walk` | the whole log in order, from segments and journal |
//! | `proof` | the proof that a log is intact |
//! | `scrub` | damage of finished segments, found by reading them again |

pub mod directory;
pub mod document;
mod error;
pub mod export;
pub mod keeper;
pub mod key;
pub mod proof;
pub mod scrub;
#[cfg(test)]
mod tests;
pub mod walk;

pub use self::error::Error;

use self::directory::AuditDirectory;
use self::key::PublicKey;

/// A manager's audit log outside its journal, for readers.
#[derive(Clone, Debug)]
pub struct AuditFiles {
    pub directory: AuditDirectory,
    /// The key that signs the log's seals.
    pub key: PublicKey,
}

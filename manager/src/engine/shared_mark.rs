//! The mark in shared memory that managers of this machine leave for their journal.

use super::Options;
use crate::journal::Journal;
use crate::journal::mark::{self, BootId, MarkWriter};
use meridian_shared::lease;
use std::path::Path;

/// Whether the mark in shared memory proves that this journal is as its last leader left it a short time ago.
pub(super) fn is_vouched_for(journal: &dyn Journal, options: &Options) -> bool {
    let Some((directory, boot)) = &options.marks else { return false };
    let claim = lease::claim(options.config.term_min);
    let now = options.clock.now().mono;
    mark::read(directory, journal.meta().journal)
        .is_some_and(|mark| mark.vouches_for(journal, *boot, now, claim))
}

/// Whether the mark in shared memory proves that this journal is an older copy of the one that its last
/// leader left.
pub(super) fn is_rolled_back(journal: &dyn Journal, options: &Options) -> bool {
    let Some((directory, boot)) = &options.marks else { return false };
    mark::read(directory, journal.meta().journal).is_some_and(|mark| mark.is_ahead_of(journal, *boot))
}

/// The writer of the mark; `None` if no mark can be written.
pub(super) fn open_mark(
    directory: &Path,
    boot: BootId,
    journal: &dyn Journal,
) -> Option<(MarkWriter, BootId)> {
    match MarkWriter::open(directory, journal.meta().journal) {
        Ok(writer) => Some((writer, boot)),
        Err(error) => {
            tracing::warn!(
                directory = %directory.display(), %error,
                "no mark can be written: the next start will wait until this manager's claim has expired"
            );
            None
        }
    }
}

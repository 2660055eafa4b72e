//! The whole log in order: the statement on removed segments, the segments, then the journal's lines.

use super::Error;
use super::directory::{AuditDirectory, SegmentFile};
use super::document::text;
use crate::journal::{self, AuditNumber, Reader};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

/// Lines per read of the journal. Reads must be short, because a reload waits for them.
const LINES_AT_ONCE: u64 = 1_000;
/// Bytes of a segment that are passed on in one piece.
const PIECE_BYTES: usize = 256 << 10;

/// Receives pieces of whole lines, each with its line feed. A break ends the walk.
pub type Pieces<'a> = &'a mut dyn FnMut(Vec<u8>) -> ControlFlow<()>;

/// A log on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    pub directory: &'a AuditDirectory,
    pub journal: &'a dyn Reader,
}

impl Walk<'_> {
    /// Everything that is kept: segments as they are on disk, with their seals, then the journal's lines.
    /// Missing and damaged segments aren't reported here; the reader's proof finds them.
    ///
    /// # Errors
    /// If a file or the journal can't be read.
    pub fn all(self, pieces: Pieces<'_>) -> Result<(), Error> {
        let mut done = 0;
        if let Some(removed) = self.directory.removed()? {
            done = removed.removed.through;
            if pieces(text(&removed)).is_break() {
                return Ok(());
            }
        }
        loop {
            let cut = self.journal.audit_cut()?;
            for file in self.directory.segments()? {
                if file.number <= done || file.number > cut.segments {
                    continue;
                }
                if copy(&file, 0, u64::MAX, pieces)?.is_break() {
                    return Ok(());
                }
            }
            done = cut.segments;
            match self.newest(cut.through.0 + 1, pieces)? {
                ControlFlow::Break(()) => return Ok(()),
                // a segment was finished meanwhile: some of its lines were passed on already, so continue
                // without its seal
                ControlFlow::Continue(next) if next > cut.through.0 + 1 => return self.lines(next, pieces),
                ControlFlow::Continue(_) => {}
            }
        }
    }

    /// The first line that is kept: 1 unless segments were exported and removed.
    ///
    /// # Errors
    /// If the statement on removed segments can't be read.
    pub fn first_kept(self) -> Result<u64, Error> {
        Ok(self.directory.removed()?.map_or(1, |removed| removed.removed.last + 1))
    }

    /// The lines from `from` on, without seals.
    ///
    /// # Errors
    /// As [`Walk::all`], and if a line is missing or was removed.
    pub fn lines(self, from: u64, pieces: Pieces<'_>) -> Result<(), Error> {
        let mut next = from.max(1);
        loop {
            let cut = self.journal.audit_cut()?;
            if next <= cut.through.0 {
                for file in self.directory.segments()? {
                    if file.number > cut.segments || next > cut.through.0 {
                        break;
                    }
                    let seal = file.seal()?.seal;
                    if seal.last < next {
                        continue;
                    }
                    if next < seal.first {
                        break;
                    }
                    let (skip, lines) = (1 + next - seal.first, seal.last + 1 - next);
                    if copy(&file, skip, lines, pieces)?.is_break() {
                        return Ok(());
                    }
                    next = seal.last + 1;
                }
                if next <= cut.through.0 {
                    let kept = self.first_kept()?;
                    if next < kept {
                        return Err(Error::Removed { last: kept - 1 });
                    }
                    return Err(Error::Missing { line: next, directory: self.directory.path().to_owned() });
                }
            }
            match self.newest(next, pieces)? {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(reached) => next = reached,
            }
        }
    }

    /// The journal's lines from `from` to its end. If lines moved into a segment meanwhile, returns the first
    /// line that wasn't passed on.
    fn newest(self, from: u64, pieces: Pieces<'_>) -> Result<ControlFlow<(), u64>, Error> {
        let end = self.journal.audit_head()?.map_or(0, |(AuditNumber(number), _)| number);
        let mut next = from;
        while next <= end {
            let until = next.saturating_add(LINES_AT_ONCE).min(end + 1);
            let (mut piece, mut expected) = (Vec::new(), next);
            let read = self.journal.audit(AuditNumber(next), AuditNumber(until), &mut |number, line| {
                if number.0 != expected {
                    return Err("it was dropped from the journal meanwhile".into());
                }
                expected += 1;
                piece.extend_from_slice(line);
                piece.push(b'\n');
                Ok(())
            });
            let cut =
                matches!(read, Err(journal::Error::Rejected { .. })) || (read.is_ok() && expected < until);
            // pass on the intact lines before a damaged one
            if !piece.is_empty() && pieces(piece).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            next = expected;
            if cut {
                return Ok(ControlFlow::Continue(next));
            }
            read?;
        }
        Ok(ControlFlow::Break(()))
    }
}

/// Passes on `lines` lines of a segment's file after the first `skip`.
fn copy(file: &SegmentFile, skip: u64, lines: u64, pieces: Pieces<'_>) -> Result<ControlFlow<()>, Error> {
    let failed = || Error::io("read", &file.path);
    let mut reader = BufReader::new(File::open(&file.path).map_err(failed())?);
    let mut line = Vec::new();
    let mut piece = Vec::new();
    let (mut at, end) = (0, skip.saturating_add(lines));
    while at < end {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(failed())? == 0 {
            break;
        }
        if at >= skip {
            piece.extend_from_slice(&line);
            // the file is truncated
            if line.last() != Some(&b'\n') {
                piece.push(b'\n');
            }
        }
        at += 1;
        if piece.len() >= PIECE_BYTES && pieces(std::mem::take(&mut piece)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    if piece.is_empty() { Ok(ControlFlow::Continue(())) } else { Ok(pieces(piece)) }
}

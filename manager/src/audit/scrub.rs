//! Reads finished segments again, in small steps, to find damage while another copy still exists.
//!
//! A pass reads every segment that should be there. Segments that were found damaged are read again more
//! often than the others, because an operator may have replaced them. A segment that repeatedly can't be read
//! counts as damaged too: a bad sector must neither stay unnoticed nor keep later segments from being read.

use super::Error;
use super::directory::{AuditDirectory, SegmentFile};
use super::document::{SealLine, Statement as _, hex, text};
use super::key::PublicKey;
use crate::journal::Reader;
use crate::with_causes;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

/// Bytes of a segment that one step reads.
pub const STEP_BYTES: usize = 256 << 10;

/// Attempts to read a segment, or the statement on removed segments, before it counts as damaged.
const READ_TRIES: u32 = 3;

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubStep {
    /// This many bytes were read.
    Read(usize),
    /// Every segment of this pass was read.
    Done,
}

/// Verifies finished segments.
#[derive(Debug)]
pub struct SegmentScrub {
    directory: AuditDirectory,
    key: PublicKey,
    journal: Arc<dyn Reader>,
    /// Numbers of the segments that this pass has yet to read.
    todo: VecDeque<u64>,
    open: Option<OpenSegment>,
    /// Failed tries to read the first segment of `todo`.
    failed: u32,
    /// Why a segment is damaged, by its number.
    damaged: BTreeMap<u64, String>,
    /// Failed tries to read the statement on removed segments.
    statement_failed: u32,
    /// Why that statement is damaged.
    damaged_statement: Option<String>,
}

/// A segment that was read in part.
#[derive(Debug)]
struct OpenSegment {
    number: u64,
    file: File,
    seal: SealLine,
    /// Bytes before the seal that weren't read yet.
    left: u64,
    digest: Sha256,
}

impl SegmentScrub {
    pub fn new(directory: AuditDirectory, key: PublicKey, journal: Arc<dyn Reader>) -> Self {
        Self {
            directory,
            key,
            journal,
            todo: VecDeque::new(),
            open: None,
            failed: 0,
            damaged: BTreeMap::new(),
            statement_failed: 0,
            damaged_statement: None,
        }
    }

    /// Begins a pass over all segments, or over those that were found damaged.
    ///
    /// # Errors
    /// If the journal or the directory can't be read. A statement on removed segments that can't be read
    /// counts as damage after a few attempts.
    pub fn begin(&mut self, only_damaged: bool) -> Result<(), Error> {
        let last = self.journal.audit_cut()?.segments;
        let first = self.first_to_read(last)?;
        self.damaged.retain(|number, _| (first..=last).contains(number));
        (self.open, self.failed) = (None, 0);
        self.todo = match only_damaged {
            true => self.damaged.keys().copied().collect(),
            false => (first..=last).collect(),
        };
        Ok(())
    }

    /// Reads and verifies one step.
    ///
    /// # Errors
    /// If a file can't be read. The same segment is then due again, and counts as damaged after a few
    /// attempts.
    pub fn step(&mut self) -> Result<ScrubStep, Error> {
        let error = match self.read_some() {
            Ok(step) => return Ok(step),
            Err(error) => error,
        };
        self.failed += 1;
        match self.todo.front().copied() {
            Some(number) if self.failed >= READ_TRIES => {
                self.found(number, Some(format!("it can't be read: {}", with_causes(&error))));
                self.next_segment();
                Ok(ScrubStep::Read(0))
            }
            _ => Err(error),
        }
    }

    fn read_some(&mut self) -> Result<ScrubStep, Error> {
        let Some(mut open) = self.open.take() else {
            let Some(number) = self.todo.front().copied() else { return Ok(ScrubStep::Done) };
            self.open = self.open(number)?;
            if self.open.is_none() {
                self.next_segment();
            }
            return Ok(ScrubStep::Read(0));
        };
        let mut piece = Vec::new();
        let most = open.left.min(STEP_BYTES as u64);
        let read = open.file.by_ref().take(most).read_to_end(&mut piece);
        let read = read.map_err(Error::io("read", self.directory.path()))? as u64;
        open.digest.update(&piece);
        open.left = if read < most { 0 } else { open.left - read };
        if open.left > 0 {
            self.open = Some(open);
        } else {
            self.next_segment();
            let intact = hex(&open.digest.finalize()) == open.seal.seal.digest;
            self.found(open.number, (!intact).then(|| "its lines don't match its seal".to_owned()));
        }
        Ok(ScrubStep::Read(piece.len()))
    }

    /// The damaged segments with the reasons.
    pub fn damaged(&self) -> &BTreeMap<u64, String> {
        &self.damaged
    }

    /// Why the statement on removed segments is damaged, if it is.
    pub fn damaged_statement(&self) -> Option<&str> {
        self.damaged_statement.as_deref()
    }

    fn next_segment(&mut self) {
        self.todo.pop_front();
        self.failed = 0;
    }

    fn found(&mut self, number: u64, damage: Option<String>) {
        match damage {
            Some(why) => drop(self.damaged.insert(number, why)),
            None => drop(self.damaged.remove(&number)),
        }
    }

    /// The first segment to read. While the statement on removed segments is damaged, the first segment that
    /// exists.
    fn first_to_read(&mut self, last: u64) -> Result<u64, Error> {
        let error = match self.first_kept() {
            Ok(first) => {
                (self.statement_failed, self.damaged_statement) = (0, None);
                return Ok(first);
            }
            Err(error) => error,
        };
        self.statement_failed = self.statement_failed.saturating_add(1);
        if self.statement_failed < READ_TRIES {
            return Err(error);
        }
        self.damaged_statement = Some(with_causes(&error));
        Ok(self.directory.segments()?.first().map_or(last + 1, |segment| segment.number))
    }

    fn first_kept(&self) -> Result<u64, Error> {
        let Some(line) = self.directory.removed()? else { return Ok(1) };
        if !self.key.verifies(&line.removed.bytes(), &line.signature) {
            let what = "its statement on removed segments isn't signed by this manager".to_owned();
            return Err(Error::Damaged { path: self.directory.path().to_owned(), what });
        }
        Ok(line.removed.through + 1)
    }

    /// Opens a segment and checks its seal. `None` if the seal shows damage, or if the segment was removed
    /// meanwhile.
    fn open(&mut self, number: u64) -> Result<Option<OpenSegment>, Error> {
        let segments = self.directory.segments()?;
        let Some(segment) = segments.into_iter().find(|segment| segment.number == number) else {
            // while the statement is damaged, no segment is removed, so a file that is gone counts as missing
            let is_missing = self.damaged_statement.is_some() || number >= self.first_kept()?;
            self.found(number, is_missing.then(|| "its file is missing".to_owned()));
            return Ok(None);
        };
        match self.opened(&segment) {
            Ok(opened) => Ok(Some(opened)),
            Err(Error::Damaged { what, .. }) => {
                self.found(number, Some(what));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn opened(&self, segment: &SegmentFile) -> Result<OpenSegment, Error> {
        let seal = segment.seal()?;
        let signed = self.key.verifies(&seal.seal.bytes(), &seal.signature);
        if seal.seal.number != segment.number || !signed {
            let what = "its seal isn't signed by this manager".to_owned();
            return Err(Error::Damaged { path: segment.path.clone(), what });
        }
        let file = File::open(&segment.path).map_err(Error::io("read", &segment.path))?;
        let left = segment.bytes()?.saturating_sub(text(&seal).len() as u64);
        Ok(OpenSegment { number: segment.number, file, seal, left, digest: Sha256::new() })
    }
}

//! Reads finished segments again, in small steps, so that damage is found while another copy exists.
//!
//! A pass reads every segment that should be there. Segments that were found damaged are read again more
//! often than the others, because an operator may have replaced them.

use super::Error;
use super::directory::{AuditDirectory, SegmentFile};
use super::document::{SealLine, Statement as _, hex, text};
use super::key::PublicKey;
use crate::journal::Reader;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

/// Bytes of a segment that one step reads.
pub const STEP_BYTES: usize = 256 << 10;

/// What one step did.
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
    /// Why a segment is damaged, by its number.
    damaged: BTreeMap<u64, String>,
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
        Self { directory, key, journal, todo: VecDeque::new(), open: None, damaged: BTreeMap::new() }
    }

    /// Begins a pass over all segments, or over those that were found damaged.
    ///
    /// # Errors
    /// If the journal or the directory can't be read.
    pub fn begin(&mut self, only_damaged: bool) -> Result<(), Error> {
        let first = self.first_kept()?;
        let last = self.journal.audit_cut()?.segments;
        self.damaged.retain(|number, _| (first..=last).contains(number));
        self.open = None;
        self.todo = match only_damaged {
            true => self.damaged.keys().copied().collect(),
            false => (first..=last).collect(),
        };
        Ok(())
    }

    /// Reads a little.
    ///
    /// # Errors
    /// If a file can't be read; the same step is due again.
    pub fn step(&mut self) -> Result<ScrubStep, Error> {
        let Some(mut open) = self.open.take() else {
            let Some(number) = self.todo.front().copied() else { return Ok(ScrubStep::Done) };
            self.open = self.open(number)?;
            if self.open.is_none() {
                self.todo.pop_front();
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
            self.todo.pop_front();
            let intact = hex(&open.digest.finalize()) == open.seal.seal.digest;
            self.found(open.number, (!intact).then(|| "its lines don't match its seal".to_owned()));
        }
        Ok(ScrubStep::Read(piece.len()))
    }

    /// The damaged segments with the reasons.
    pub fn damaged(&self) -> &BTreeMap<u64, String> {
        &self.damaged
    }

    fn found(&mut self, number: u64, damage: Option<String>) {
        match damage {
            Some(why) => drop(self.damaged.insert(number, why)),
            None => drop(self.damaged.remove(&number)),
        }
    }

    fn first_kept(&self) -> Result<u64, Error> {
        Ok(self.directory.removed()?.map_or(1, |removed| removed.removed.through + 1))
    }

    /// Opens a segment and checks its seal. `None` if that finds damage, or if it was removed meanwhile.
    fn open(&mut self, number: u64) -> Result<Option<OpenSegment>, Error> {
        let segments = self.directory.segments()?;
        let Some(segment) = segments.into_iter().find(|segment| segment.number == number) else {
            let is_missing = number >= self.first_kept()?;
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
            let what = "its seal isn't one that this manager signed".to_owned();
            return Err(Error::Damaged { path: segment.path.clone(), what });
        }
        let file = File::open(&segment.path).map_err(Error::io("read", &segment.path))?;
        let left = segment.bytes()?.saturating_sub(text(&seal).len() as u64);
        Ok(OpenSegment { number: segment.number, file, seal, left, digest: Sha256::new() })
    }
}

//! When lines become a segment, and which segments are kept.
//!
//! The order of the effects makes each crash harmless:
//!
//! 1. The segment is written as a draft, synced and renamed: now its lines are in two places.
//! 2. The journal's [`AuditCut`] counts the segment, and drops its lines in small steps.
//! 3. The exporter hands the segment to the hook.
//! 4. A signed statement says that the segment was removed; then its file is removed.
//!
//! A segment that the cut doesn't count was left by a crash between 1 and 2, or the journal was restored from
//! an older backup. The segment is taken over if the journal has the same lines, else set aside.

use super::Error;
use super::directory::{AuditDirectory, SegmentFile};
use super::document::{
    Opening, OpeningLine, Removed, RemovedLine, Seal, SealLine, Statement as _, hex, text,
};
use super::key::SigningKey;
use crate::journal::{AuditCut, AuditNumber, Reader};
use meridian_manager_core::facts::audit::Line;
use meridian_shared::ids::JournalId;
use meridian_shared::time::Wall;
use std::sync::Arc;

/// Lines per read of the journal. Reads must be short, because a reload waits for them.
const LINES_AT_ONCE: u64 = 1_000;
/// Lines that one commit drops. The commit must be short: leases are renewed between commits.
const LINES_DROPPED_AT_ONCE: u64 = 2_000;

/// Makes a cut durable. Fails if the cut isn't durable, or may not be.
pub type Cut<'a> = &'a mut dyn FnMut(AuditCut) -> Result<(), Error>;

/// How large segments are, and how many are kept once they were exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of lines after which a segment is finished.
    pub segment_bytes: u64,
    /// Segments to keep; `None` for all.
    pub segments_max: Option<u64>,
    /// Bytes of segments to keep; `None` for all.
    pub bytes_max: Option<u64>,
}

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperStep {
    /// A segment was finished.
    Sealed,
    /// Other work was done, and there may be more.
    Worked,
    /// Nothing is due.
    Idle,
}

/// Turns old lines into segments.
#[derive(Debug)]
pub struct Keeper {
    directory: AuditDirectory,
    key: Arc<SigningKey>,
    journal: Arc<dyn Reader>,
    id: JournalId,
    retention: Retention,
    counted: Counted,
    /// Whether the notes in the directory were compared with this journal.
    compared: bool,
}

/// Count of the lines after the newest segment, kept so that each line is read only once for it.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Number of the line before the first counted line.
    after: u64,
    through: u64,
    bytes: u64,
}

impl Keeper {
    /// Prepares the directory.
    ///
    /// # Errors
    /// If the directory can't be made or written.
    pub fn new(
        directory: AuditDirectory,
        key: Arc<SigningKey>,
        (journal, id): (Arc<dyn Reader>, JournalId),
        retention: Retention,
    ) -> Result<Self, Error> {
        directory.prepare()?;
        Ok(Self { directory, key, journal, id, retention, counted: Counted::default(), compared: false })
    }

    /// Does one piece of work that is due. After an error, the same work is due again.
    ///
    /// # Errors
    /// If a file or the journal can't be read or written, or the cut isn't durable.
    pub fn step(&mut self, now: Wall, cut: Cut<'_>) -> Result<KeeperStep, Error> {
        let current = self.journal.audit_cut()?;
        if !self.compared {
            self.compare_notes(current, now)?;
            self.compared = true;
        }
        if current.first <= current.through {
            cut(AuditCut { first: next_first(current), ..current })?;
            return Ok(KeeperStep::Worked);
        }
        let segments = self.directory.segments()?;
        let newer: Vec<&SegmentFile> =
            segments.iter().filter(|file| file.number > current.segments).collect();
        if let [first, rest @ ..] = &newer[..] {
            return self.take_over(first, rest, current, now, cut);
        }
        if let Some(last) = self.due(current)? {
            self.write(current, last, now)?;
            return Ok(KeeperStep::Worked);
        }
        if self.remove_exported(&segments, current, now)? {
            Ok(KeeperStep::Worked)
        } else {
            Ok(KeeperStep::Idle)
        }
    }

    /// Corrects notes that are newer than a restored journal: its next segments have the same numbers as
    /// noted ones, but were neither exported nor removed.
    fn compare_notes(&self, current: AuditCut, now: Wall) -> Result<(), Error> {
        if self.directory.exported()? > current.segments {
            self.directory.set_exported(current.segments)?;
        }
        let removed = self.directory.removed()?.map_or(0, |removed| removed.removed.through);
        if removed <= current.segments {
            return Ok(());
        }
        if current.segments == 0 {
            return self.directory.forget_removed();
        }
        let removed = Removed {
            journal: self.id,
            through: current.segments,
            last: current.through.0,
            head: self.line(current.through.0 + 1)?.previous,
            seal: hex(&current.seal),
            at: now,
            key: self.key.public(),
        };
        self.directory.set_removed(&RemovedLine::new(removed, &self.key))
    }

    /// Counts a segment that the cut doesn't count yet, or sets it and all newer segments aside.
    fn take_over(
        &mut self,
        first: &SegmentFile,
        rest: &[&SegmentFile],
        current: AuditCut,
        now: Wall,
        cut: Cut<'_>,
    ) -> Result<KeeperStep, Error> {
        if let Some(seal) = self.continues(first, current)? {
            let cut_off = AuditCut {
                segments: seal.number,
                through: AuditNumber(seal.last),
                seal: seal.hash(),
                ..current
            };
            cut(AuditCut { first: next_first(cut_off), ..cut_off })?;
            let Seal { number: segment, first, last, .. } = seal;
            tracing::info!(segment, first, last, "sealed a segment of the audit log");
            return Ok(KeeperStep::Sealed);
        }
        for file in std::iter::once(first).chain(rest.iter().copied()) {
            tracing::warn!(
                path = %file.path.display(),
                "the journal lacks the lines of this segment of the audit log, as after a restore: the \
                 segment is set aside"
            );
            self.directory.set_aside(file, now.0)?;
        }
        Ok(KeeperStep::Worked)
    }

    /// The seal of `file` if it is the next segment of this journal, intact and signed with this key.
    fn continues(&self, file: &SegmentFile, current: AuditCut) -> Result<Option<Seal>, Error> {
        let sealed = match file.seal() {
            Err(Error::Damaged { .. }) => return Ok(None),
            sealed => sealed?,
        };
        let seal = &sealed.seal;
        let next = seal.journal == self.id
            && seal.number == current.segments + 1
            && seal.first == current.through.0 + 1
            && seal.first <= seal.last
            && seal.previous == hex(&current.seal)
            && self.key.public().verifies(&seal.bytes(), &sealed.signature);
        let head = self.journal.audit_head()?.map_or(0, |(number, _)| number.0);
        if !next || seal.last >= head || !file.has_digest(&sealed)? {
            return Ok(None);
        }
        let line = self.line(seal.last)?;
        Ok((line.hash == seal.head).then_some(sealed.seal))
    }

    /// The last line of the next segment, if there are enough lines. The newest line stays in the journal.
    fn due(&mut self, current: AuditCut) -> Result<Option<u64>, Error> {
        let after = current.through.0;
        if self.counted.after != after {
            self.counted = Counted { after, through: after, bytes: 0 };
        }
        let head = self.journal.audit_head()?.map_or(0, |(number, _)| number.0);
        let max = self.retention.segment_bytes;
        while self.counted.bytes < max && self.counted.through + 1 < head {
            let (from, counted) = (self.counted.through + 1, &mut self.counted);
            let until = from.saturating_add(LINES_AT_ONCE).min(head);
            self.journal.audit(AuditNumber(from), AuditNumber(until), &mut |number, line| {
                if counted.bytes < max {
                    counted.bytes += line.len() as u64 + 1;
                    counted.through = number.0;
                }
                Ok(())
            })?;
        }
        Ok((self.counted.bytes >= max).then_some(self.counted.through))
    }

    /// Writes the lines up to `last` into a segment.
    fn write(&self, current: AuditCut, last: u64, now: Wall) -> Result<(), Error> {
        let (number, first) = (current.segments + 1, current.through.0 + 1);
        let mut draft = self.directory.begin()?;
        draft.add(&text(&OpeningLine { segment: Opening { number, first } }))?;
        let mut from = first;
        while from <= last {
            let until = from.saturating_add(LINES_AT_ONCE).min(last + 1);
            let mut lines = Vec::new();
            self.journal.audit(AuditNumber(from), AuditNumber(until), &mut |_, line| {
                lines.extend_from_slice(line);
                lines.push(b'\n');
                Ok(())
            })?;
            draft.add(&lines)?;
            from = until;
        }
        let seal = Seal {
            journal: self.id,
            number,
            first,
            last,
            before: self.line(first)?.previous,
            head: self.line(last)?.hash,
            previous: hex(&current.seal),
            digest: draft.digest(),
            at: now,
            key: self.key.public(),
        };
        self.directory.publish(draft, &SealLine::new(seal, &self.key))
    }

    /// One line of the journal.
    fn line(&self, number: u64) -> Result<Line, Error> {
        let mut found = None;
        self.journal.audit(AuditNumber(number), AuditNumber(number + 1), &mut |_, line| {
            found = Some(serde_json::from_slice(line).map_err(|error| error.to_string())?);
            Ok(())
        })?;
        found.ok_or_else(|| Error::Missing { line: number, directory: self.directory.path().to_owned() })
    }

    /// Removes the oldest segment if there are too many and it was exported. Returns whether it did.
    fn remove_exported(&self, segments: &[SegmentFile], current: AuditCut, now: Wall) -> Result<bool, Error> {
        let Some(oldest) = segments.first() else { return Ok(false) };
        let removed = self.directory.removed()?.map_or(0, |removed| removed.removed.through);
        if oldest.number <= removed {
            // finish a removal that a crash interrupted after the statement
            self.directory.remove(oldest)?;
            return Ok(true);
        }
        let bytes = segments.iter().map(SegmentFile::bytes).sum::<Result<u64, Error>>()?;
        let Retention { segment_bytes: _, segments_max, bytes_max } = self.retention;
        let too_many = segments_max.is_some_and(|max| segments.len() as u64 > max)
            || bytes_max.is_some_and(|max| bytes > max);
        let exported = self.directory.exported()?.min(current.segments);
        if !too_many || oldest.number > exported {
            return Ok(false);
        }
        let seal = oldest.seal()?.seal;
        let removed = Removed {
            journal: self.id,
            through: seal.number,
            last: seal.last,
            head: seal.head.clone(),
            seal: hex(&seal.hash()),
            at: now,
            key: self.key.public(),
        };
        self.directory.set_removed(&RemovedLine::new(removed, &self.key))?;
        self.directory.remove(oldest)?;
        tracing::info!(segment = seal.number, "removed an exported segment of the audit log");
        Ok(true)
    }
}

/// First line of the journal after the next step of dropping.
fn next_first(cut: AuditCut) -> AuditNumber {
    AuditNumber((cut.first.0 + LINES_DROPPED_AT_ONCE).min(cut.through.0 + 1))
}

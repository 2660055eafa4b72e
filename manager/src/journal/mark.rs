//! The mark in shared memory: proof that the journal is in the state in which this machine's last leader left
//! it.
//!
//! The engine writes the mark after each commit and before that commit's effects. A start that finds a mark
//! equal to the journal's last record, of this boot and young enough, need not wait for a predecessor's claim
//! to expire (docs/protocol.md, Recovery). Shared memory is fast, and a reboot clears it together with the
//! page cache.
//!
//! This module owns the mark's bytes and its file. It must not know a clock or where the boot id comes from.
//! Invariant: in any doubt (mark missing, torn, of another owner, or from the future) there is no proof,
//! which costs a wait but is safe.

use super::Journal;
use super::encoding::hash;
use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
use meridian_shared::time::{Millis, Mono};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directory of marks on Linux.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// Age after which [`sweep`] removes marks. It is far longer than any claim, so an older mark proves nothing.
pub const STALE: Millis = Millis::mins(60);

const MAGIC: [u8; 16] = *b"meridian mark 1\n";
const ENDING: &str = "mark";
const MARK_BYTES: usize = 96;
const BODY_BYTES: usize = MARK_BYTES - 8;
/// Most files that one [`sweep`] checks. All users share the directory, so it may be large, and a start must
/// not wait long.
const SWEEP_MAX: usize = 10_000;

/// One boot of one machine, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub u128);

/// State of the journal after its leader's last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub journal: JournalId,
    pub leadership: Leadership,
    pub last: RecordNumber,
    /// [`super::Journal::chain`] after the record `last`.
    pub chain: u64,
    pub boot: BootId,
    /// When the mark was written, on the clock of `boot`.
    pub at: Mono,
}

impl Mark {
    /// The mark that vouches for a journal as it is now.
    pub fn of(journal: &dyn Journal, boot: BootId, at: Mono) -> Self {
        Self {
            journal: journal.meta().journal,
            leadership: journal.leadership(),
            last: journal.last(),
            chain: journal.chain(),
            boot,
            at,
        }
    }

    /// The content of the mark's file.
    pub fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..32].copy_from_slice(&self.journal.0.to_be_bytes());
        let words = [self.leadership.epoch, self.leadership.id, self.last.0, self.chain];
        for (slot, word) in bytes[32..64].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *slot = word.to_le_bytes();
        }
        bytes[64..80].copy_from_slice(&self.boot.0.to_be_bytes());
        bytes[80..88].copy_from_slice(&self.at.0.to_le_bytes());
        let check = hash(0, &bytes[..BODY_BYTES]);
        bytes[BODY_BYTES..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The mark in `bytes`; `None` if the bytes aren't a valid mark.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let wide = |at: usize| bytes[at..].first_chunk::<16>().map(|wide| u128::from_be_bytes(*wide));
        if bytes[..16] != MAGIC || word(BODY_BYTES)? != hash(0, &bytes[..BODY_BYTES]) {
            return None;
        }
        Some(Self {
            journal: JournalId(wide(16)?),
            leadership: Leadership { epoch: word(32)?, id: word(40)? },
            last: RecordNumber(word(48)?),
            chain: word(56)?,
            boot: BootId(wide(64)?),
            at: Mono(word(80)?),
        })
    }

    /// Whether the mark proves that `journal` was replaced by an older copy, such as a snapshot of its file
    /// system. Within one boot, the mark of an untouched journal is never ahead of it.
    pub fn is_ahead_of(&self, journal: &dyn super::Journal, boot: BootId) -> bool {
        let forked = self.last == journal.last() && self.chain != journal.chain();
        self.journal == journal.meta().journal && self.boot == boot && (self.last > journal.last() || forked)
    }

    /// Whether the mark proves that `journal` is unchanged since its last leader: same history up to the same
    /// record, same leadership, same boot, and younger than `age_max`. A mark from the future proves nothing.
    pub fn vouches_for(
        &self,
        journal: &dyn super::Journal,
        boot: BootId,
        now: Mono,
        age_max: Millis,
    ) -> bool {
        let same_history = self.journal == journal.meta().journal
            && self.last == journal.last()
            && self.chain == journal.chain();
        let young = self.at <= now && now.since(self.at) < age_max;
        same_history
            && self.leadership == journal.leadership()
            && !journal.identity_changed()
            && self.boot == boot
            && young
    }
}

/// The file of the mark of `journal` in the shared-memory directory `directory`.
pub fn path(directory: &Path, journal: JournalId) -> PathBuf {
    directory.join(format!("meridian-{journal}.{ENDING}"))
}

/// Writes marks to one file, each by a single write and without a sync.
#[derive(Debug)]
pub struct MarkWriter {
    file: File,
}

impl MarkWriter {
    /// Opens or creates the mark's file in `directory` (normally [`SHARED_MEMORY`]).
    ///
    /// # Errors
    /// If the file can't be opened, or if another user could have made or could change it (all users share
    /// the directory). The manager then runs without marks.
    pub fn open(directory: &Path, journal: JournalId) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path(directory, journal), flags, Mode::RUSR | Mode::WUSR)?);
        if !is_ours_alone(&file)? {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the mark's file belongs to, or can be written by, another user",
            ));
        }
        Ok(Self { file })
    }

    /// Replaces the mark. Fails if the write fails.
    pub fn write(&self, mark: &Mark) -> io::Result<()> {
        self.file.write_all_at(&mark.encode(), 0)
    }
}

/// The mark of `journal` in `directory`, or `None` in any doubt.
pub fn read(directory: &Path, journal: JournalId) -> Option<Mark> {
    read_file(&path(directory, journal)).filter(|mark| mark.journal == journal)
}

fn read_file(path: &Path) -> Option<Mark> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !is_ours_alone(&file).ok()? || file.metadata().ok()?.len() != MARK_BYTES as u64 {
        return None;
    }
    let mut bytes = [0; MARK_BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Mark::decode(&bytes)
}

/// Removes the mark of a journal that is discarded. A journal without a mark only has to wait at its next
/// start. Fails if an existing file can't be removed.
pub fn remove(directory: &Path, journal: JournalId) -> io::Result<()> {
    match std::fs::remove_file(path(directory, journal)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes stale marks of managers that have ended, and returns their number. Otherwise they would stay until
/// the machine restarts. A mark that a manager still writes is never stale. Fails if the directory can't be
/// read.
pub fn sweep(directory: &Path, boot: BootId, now: Mono) -> io::Result<usize> {
    let mut removed = 0;
    for entry in std::fs::read_dir(directory)?.take(SWEEP_MAX) {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != ENDING) {
            continue;
        }
        let Some(mark) = read_file(&path).filter(|mark| path == self::path(directory, mark.journal)) else {
            continue;
        };
        if mark.boot == boot && now.since(mark.at) >= STALE && std::fs::remove_file(&path).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

fn is_ours_alone(file: &File) -> io::Result<bool> {
    let seen = file.metadata()?;
    let others_write = Mode::WGRP | Mode::WOTH;
    Ok(seen.is_file()
        && seen.uid() == rustix::process::geteuid().as_raw()
        && seen.mode() & others_write.bits() == 0
        && seen.nlink() == 1)
}

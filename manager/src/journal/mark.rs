//! The mark in shared memory: proof that a journal is the one that was left a moment ago (the protocol's section 7).
//!
//! The engine writes it after each commit and before that commit's effects; a start that finds it equal to the journal's
//! last record, of this boot and young enough, needs not wait for claims of a predecessor to expire. Shared memory is
//! right because it is as fast as memory and is gone after a reboot, when the journal may have lost its page cache.
//!
//! This file owns the mark's bytes and its file. It must not know a clock or the boot id's source. Invariant: every doubt
//! (missing, torn, foreign, other owner, future) reads as "no mark", which costs a wait and never safety.

use super::encoding::hash;
use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
use meridian_shared::time::{Millis, Mono};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where marks live on Linux.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// A mark that is older than this has long vouched for nothing, however long a claim may be.
pub const STALE: Millis = Millis::mins(60);

const MAGIC: [u8; 16] = *b"meridian mark 1\n";
const ENDING: &str = "mark";
const MARK_BYTES: usize = 96;
const BODY_BYTES: usize = MARK_BYTES - 8;
/// Files of the room that one sweep looks at: it is everybody's, and a start must not wait for it.
const SWEEP_MAX: usize = 10_000;

/// Identity of one boot of one machine, as the kernel states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub u128);

/// What a leader leaves behind after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The journal it speaks of.
    pub journal: JournalId,
    /// Who committed.
    pub leadership: Leadership,
    /// The last committed record.
    pub last: RecordNumber,
    /// [`super::Journal::chain`] after it.
    pub chain: u64,
    /// The boot during which it was written.
    pub boot: BootId,
    /// When, on that boot's clock.
    pub at: Mono,
}

impl Mark {
    /// The bytes in the file.
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

    /// The mark in `bytes`, unless there is any doubt.
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

    /// Whether it shows that `journal` is the one that was left: the same history to the same record by the same
    /// leadership, in this boot, and younger than `age_max`. A mark from the future shows nothing.
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

/// The file of the mark of `journal` in the shared-memory directory `room`.
pub fn path(room: &Path, journal: JournalId) -> PathBuf {
    room.join(format!("meridian-{journal}.{ENDING}"))
}

/// Writes marks to one file, by a single write each and without a sync.
#[derive(Debug)]
pub struct MarkWriter {
    file: File,
}

impl MarkWriter {
    /// Opens or makes the mark's file in `room` (normally [`SHARED_MEMORY`]). The room is everybody's, so a link, a file
    /// of somebody else or one that others may write is refused; the manager then runs without the short cut.
    pub fn open(room: &Path, journal: JournalId) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path(room, journal), flags, Mode::RUSR | Mode::WUSR)?);
        if !is_ours_alone(&file)? {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the mark's file is not this user's alone",
            ));
        }
        Ok(Self { file })
    }

    /// Replaces the mark.
    pub fn write(&self, mark: &Mark) -> io::Result<()> {
        self.file.write_all_at(&mark.encode(), 0)
    }
}

/// The mark of `journal` in `room`, unless there is any doubt.
pub fn read(room: &Path, journal: JournalId) -> Option<Mark> {
    read_file(&path(room, journal)).filter(|mark| mark.journal == journal)
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

/// Removes the mark of a journal that is thrown away. Without its mark a journal costs its next start a wait, and nothing else.
pub fn remove(room: &Path, journal: JournalId) -> io::Result<()> {
    match std::fs::remove_file(path(room, journal)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the marks of journals whose managers ended long ago, and gives their number: nobody else would before the machine
/// restarts. A mark that a manager still writes is never so old.
pub fn sweep(room: &Path, boot: BootId, now: Mono) -> io::Result<usize> {
    let mut removed = 0;
    for entry in std::fs::read_dir(room)?.take(SWEEP_MAX) {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != ENDING) {
            continue;
        }
        let Some(mark) = read_file(&path).filter(|mark| path == self::path(room, mark.journal)) else {
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

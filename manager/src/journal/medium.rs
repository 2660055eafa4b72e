//! The storage under a journal: a file, or a disk in memory that fails on purpose ([`super::faulty`]).
//!
//! A medium owns the access to the bytes, the identity of the storage and the reserved space next to it. It
//! must not know what the bytes are. A [`Gate`] stands between the store and the medium. It is shut after a
//! failure, so that a store that is closing can't write after an error. It also notices a full disk if the
//! store hides that error.

use super::{Error, Space};
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use rustix::fs::{Advice, FallocateFlags};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Bound;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

/// Space reserved next to the journal, so that ends and deletions commit on a full disk. An end is about 1
/// KiB, and its pages are copied on write, so the space lasts for some hundred urgent commits. Later commits
/// reuse pages that earlier ones freed.
pub const RESERVE_BYTES: u64 = 16 << 20;

/// Identity of the file that a journal is in, to detect that a copy replaced the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    /// Creation time of the inode in nanoseconds since the Unix epoch, if the filesystem keeps it.
    pub born_ns: Option<u64>,
}

impl FileIdentity {
    /// Whether both are the same file. A device number changes when a volume is attached elsewhere, so it
    /// counts only if the filesystem keeps no creation times. A copy always has another inode or another
    /// creation time.
    pub fn same_file(&self, other: &Self) -> bool {
        self.inode == other.inode
            && match (self.born_ns, other.born_ns) {
                (Some(one), Some(two)) => one == two,
                _ => self.device == other.device,
            }
    }
}

/// Storage for one journal. Every method may be called at any time, and fails if its I/O fails.
pub trait Medium: Send + fmt::Debug {
    /// A new handle to the bytes, not locked yet: the store locks it.
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// Identity of the present file.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Reserves [`RESERVE_BYTES`], unless that is done already. An error leaves nothing reserved.
    fn hold_reserve(&self) -> io::Result<()>;

    fn release_reserve(&self) -> io::Result<()>;

    /// Drops the operating system's cached pages, so that the next read comes from the disk: after a failed
    /// sync, the cache may hold pages that never reached the disk.
    fn drop_cache(&self) -> io::Result<()>;

    /// Name of the storage for messages.
    fn place(&self) -> String;

    /// Space that the storage takes; `None` if that isn't known.
    fn space(&self) -> Option<Space> {
        None
    }
}

/// A file, with the reserve in a second file in the same directory.
#[derive(Clone, Debug)]
pub struct FileMedium {
    path: PathBuf,
}

impl FileMedium {
    /// The journal at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The file that reserves space.
    pub fn reserve_path(&self) -> PathBuf {
        self.path.with_extension("reserve")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn make_empty(&self) -> io::Result<()> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&self.path).map(drop)
    }

    /// Makes this file appear at `target`, unless something exists there. Durable on return.
    pub(super) fn publish(&self, target: &Self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        fs::hard_link(&self.path, &target.path)?;
        fs::remove_file(&self.path)?;
        File::open(meridian_private_files::directory_of(&target.path))?.sync_all()
    }
}

impl Medium for FileMedium {
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let backend = FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(backend))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        let metadata = fs::metadata(&self.path)?;
        let born_ns = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            born_ns: born_ns.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        })
    }

    fn hold_reserve(&self) -> io::Result<()> {
        let path = self.reserve_path();
        // the unit of `blocks` is 512 bytes, whatever the filesystem's block size is
        if fs::metadata(&path)
            .is_ok_and(|seen| seen.len() == RESERVE_BYTES && seen.blocks() * 512 >= RESERVE_BYTES)
        {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let held = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => fill(&file),
            held => held.map_err(Into::into),
        };
        let held = held.and_then(|()| file.sync_all());
        if held.is_err() {
            // free the space that was allocated before the disk was full
            drop(file);
            fs::remove_file(&path)?;
        }
        held
    }

    fn release_reserve(&self) -> io::Result<()> {
        match fs::remove_file(self.reserve_path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            gone => gone,
        }
    }

    fn drop_cache(&self) -> io::Result<()> {
        let file = File::open(&self.path)?;
        Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn space(&self) -> Option<Space> {
        let disk = rustix::fs::statvfs(&self.path).ok()?;
        Some(Space {
            bytes: fs::metadata(&self.path).ok()?.len(),
            reserve_bytes: fs::metadata(self.reserve_path()).map_or(0, |reserve| reserve.len()),
            free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        })
    }
}

/// Reserves space by writing, for filesystems that can't allocate space in another way.
pub(super) fn fill(mut file: &File) -> io::Result<()> {
    const STEP: usize = 1 << 20;
    let zeros = vec![0; STEP];
    for _ in 0..RESERVE_BYTES / STEP as u64 {
        file.write_all(&zeros)?;
    }
    Ok(())
}

/// Whether the error means that there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Failures of the disk that the gate noticed. The journal shares this status with the store, which owns the
/// gate.
#[derive(Debug, Default)]
pub(super) struct GateStatus {
    shut: AtomicBool,
    full: AtomicBool,
    locked: AtomicBool,
}

impl GateStatus {
    /// Closes the gate: from now on nothing is written.
    pub(super) fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// Whether a write found no space since the last call.
    pub(super) fn take_full(&self) -> bool {
        self.full.swap(false, Ordering::AcqRel)
    }

    /// Whether the store got a lock: it opens without one if the filesystem has none.
    pub(super) fn locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }
}

/// Stands between the store and the medium.
#[derive(Debug)]
pub(super) struct Gate {
    inner: Box<dyn StorageBackend>,
    status: Arc<GateStatus>,
}

impl Gate {
    pub(super) fn new(inner: Box<dyn StorageBackend>) -> (Self, Arc<GateStatus>) {
        let status = Arc::new(GateStatus::default());
        (Self { inner, status: Arc::clone(&status) }, status)
    }

    fn change<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.status.shut.load(Ordering::Acquire) {
            return Err(io::Error::other("the journal was shut after a failure"));
        }
        act().inspect_err(|error| {
            if is_full(error) {
                self.status.full.store(true, Ordering::Release);
            }
        })
    }
}

impl StorageBackend for Gate {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|| self.inner.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|| self.inner.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|| self.inner.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    // The only lock that the store takes: on the whole storage, when it opens.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let taken = self.inner.try_lock_range(start, end);
        if matches!(taken, Ok(true)) {
            self.status.locked.store(true, Ordering::Release);
        }
        taken
    }
}

/// Turns an error of the operating system into the journal's.
pub(super) fn io_error(operation: &'static str, place: String) -> impl FnOnce(io::Error) -> Error {
    move |source| {
        if is_full(&source) { Error::Full { place } } else { Error::Io { operation, place, source } }
    }
}

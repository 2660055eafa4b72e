//! What a journal lies on: a file, or a disk in memory that fails on purpose ([`super::faulty`]).
//!
//! A medium owns the way to the bytes, their identity and the space that is kept back beside them. It must not know what
//! the bytes are. Between the store and the bytes stands a [`Gate`], which is shut after a failure, so that a store that
//! is being closed can't write on after an error, and which notices a full disk wherever the store swallows it.

use super::{Error, Identity};
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

/// Space kept back beside the journal, so that ends and deletions commit on a full disk. An end is about 1 KiB and its
/// pages are copied on write, so this takes some hundred urgent commits, after which pages that they freed are used again.
pub const RESERVE_BYTES: u64 = 16 << 20;

/// What a journal lies on. Every method may be called at any time; none is called for two journals at once.
pub trait Medium: Send + fmt::Debug {
    /// A new way to the bytes, unlocked. The store locks it.
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// Which file it is now.
    fn identity(&self) -> io::Result<Identity>;

    /// Keeps [`RESERVE_BYTES`] back, unless they are already. An error leaves nothing kept.
    fn hold_reserve(&self) -> io::Result<()>;

    /// Gives them free.
    fn release_reserve(&self) -> io::Result<()>;

    /// Forgets what the operating system believes about the bytes, so that the next read comes from the disk: after a
    /// failed sync, pages may be in memory that never reached it.
    fn drop_cache(&self) -> io::Result<()>;

    /// For messages.
    fn place(&self) -> String;
}

/// A file in a directory, with the reserve in a file beside it.
#[derive(Clone, Debug)]
pub struct FileMedium {
    path: PathBuf,
}

impl FileMedium {
    /// The journal at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The file that keeps space back.
    pub fn reserve_path(&self) -> PathBuf {
        self.path.with_extension("reserve")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn make_empty(&self) -> io::Result<()> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&self.path).map(drop)
    }

    /// Makes this file appear at `target`, unless something is there. Durable on return.
    pub(super) fn publish(&self, target: &Self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        fs::hard_link(&self.path, &target.path)?;
        fs::remove_file(&self.path)?;
        let parent =
            target.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    }
}

impl Medium for FileMedium {
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let backend = FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(backend))
    }

    fn identity(&self) -> io::Result<Identity> {
        let seen = fs::metadata(&self.path)?;
        let born_ns = seen.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(Identity {
            device: seen.dev(),
            inode: seen.ino(),
            born_ns: born_ns.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        })
    }

    fn hold_reserve(&self) -> io::Result<()> {
        let path = self.reserve_path();
        // 512 is the unit of `blocks`, whatever the filesystem's own is
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
            // what was allocated before the disk was full is given back
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
}

/// Takes the reserve by writing, where the filesystem can't allocate without.
fn fill(mut file: &File) -> io::Result<()> {
    const STEP: usize = 1 << 20;
    let zeros = vec![0; STEP];
    for _ in 0..RESERVE_BYTES / STEP as u64 {
        file.write_all(&zeros)?;
    }
    Ok(())
}

/// Whether an error says that there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What the gate saw; shared between the store, which owns the gate, and the journal.
#[derive(Debug, Default)]
pub(super) struct Watch {
    shut: AtomicBool,
    full: AtomicBool,
    locked: AtomicBool,
}

impl Watch {
    /// Nothing is written from here on.
    pub(super) fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// Whether a write found no space since this was last asked.
    pub(super) fn take_full(&self) -> bool {
        self.full.swap(false, Ordering::AcqRel)
    }

    /// Whether the store got a lock: it opens without one where the filesystem has none.
    pub(super) fn locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }
}

/// Stands between the store and the bytes.
#[derive(Debug)]
pub(super) struct Gate {
    inner: Box<dyn StorageBackend>,
    watch: Arc<Watch>,
}

impl Gate {
    pub(super) fn new(inner: Box<dyn StorageBackend>) -> (Self, Arc<Watch>) {
        let watch = Arc::new(Watch::default());
        (Self { inner, watch: Arc::clone(&watch) }, watch)
    }

    fn change<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.watch.shut.load(Ordering::Acquire) {
            return Err(io::Error::other("the journal was shut after a failure"));
        }
        act().inspect_err(|error| {
            if is_full(error) {
                self.watch.full.store(true, Ordering::Release);
            }
        })
    }

    fn lock(&self, taken: Result<bool, BackendError>) -> Result<bool, BackendError> {
        if matches!(taken, Ok(true)) {
            self.watch.locked.store(true, Ordering::Release);
        }
        taken
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

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lock(self.inner.try_lock_range(start, end))
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lock(self.inner.try_lock_shared_range(start, end))
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

/// Turns an error of the operating system into words.
pub(super) fn io_error(operation: &'static str, place: String) -> impl FnOnce(io::Error) -> Error {
    move |source| {
        if is_full(&source) { Error::Full { place } } else { Error::Io { operation, place, source } }
    }
}

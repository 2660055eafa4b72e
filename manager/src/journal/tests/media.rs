//! The storage under a journal: its file, the reserved space next to it, its lock, and disks with faults of
//! their own kinds.

use super::*;
use crate::journal::medium::{FileIdentity, FileMedium, Gate, Medium, RESERVE_BYTES, fill};
use crate::journal::{Error, ReloadOutcome, Space};
use ::redb::{BackendError, StorageBackend};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

#[test]
fn a_file_is_known_by_its_inode_and_creation_or_else_by_its_device() {
    let file = |device, inode, born_ns| FileIdentity { device, inode, born_ns };
    let one = file(1, 5, Some(9));
    assert!(one.same_file(&file(2, 5, Some(9))), "its volume is attached elsewhere");
    assert!(!one.same_file(&file(1, 5, Some(8))));
    assert!(!one.same_file(&file(1, 6, Some(9))));
    for (one, other) in [(None, None), (None, Some(9)), (Some(9), None)] {
        assert!(file(1, 5, one).same_file(&file(1, 5, other)));
        assert!(!file(1, 5, one).same_file(&file(2, 5, other)));
    }
}

#[test]
fn space_is_reserved_once_and_completely() {
    let directory = tempfile::tempdir().unwrap();
    let medium = FileMedium::new(directory.path().join("journal.redb"));
    let reserve = medium.reserve_path();
    let is_held = || {
        let file = fs::metadata(&reserve).unwrap();
        file.len() == RESERVE_BYTES && file.blocks() * 512 >= RESERVE_BYTES
    };
    medium.hold_reserve().unwrap();
    assert!(is_held());
    // A byte in it shows whether it is written again.
    let mark = |byte: u8| {
        std::os::unix::fs::FileExt::write_all_at(
            &fs::File::options().write(true).open(&reserve).unwrap(),
            &[byte],
            0,
        )
        .unwrap();
    };
    mark(7);
    medium.hold_reserve().unwrap();
    assert_eq!(fs::read(&reserve).unwrap()[0], 7);

    fs::File::create(&reserve).unwrap().set_len(RESERVE_BYTES).unwrap();
    medium.hold_reserve().unwrap();
    assert!(is_held(), "a file with holes reserves nothing");
    fs::File::options().write(true).open(&reserve).unwrap().set_len(RESERVE_BYTES + 1).unwrap();
    medium.hold_reserve().unwrap();
    assert!(is_held());

    medium.release_reserve().unwrap();
    medium.release_reserve().unwrap();
    assert!(!reserve.exists());
    fs::create_dir(&reserve).unwrap();
    assert!(medium.release_reserve().is_err());
    fill(&fs::File::create(directory.path().join("filled")).unwrap()).unwrap();
    assert_eq!(fs::metadata(directory.path().join("filled")).unwrap().len(), RESERVE_BYTES);
}

#[test]
fn a_journal_that_cannot_reserve_space_does_not_open_unless_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    drop(RedbJournal::init(&path, ID, MADE).unwrap());
    let reserve = FileMedium::new(&path).reserve_path();
    fs::remove_file(&reserve).unwrap();
    fs::create_dir(&reserve).unwrap();
    let error = RedbJournal::open(&path).unwrap_err();
    assert!(matches!(error, Error::Io { operation: "keep space back for", .. }), "{error}");
}

#[test]
fn a_journal_says_where_it_is_and_how_much_space_it_uses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    let missing = RedbJournal::open(&path).unwrap_err().to_string();
    assert!(missing.contains(path.to_str().unwrap()), "{missing}");
    let journal = RedbJournal::init(&path, ID, MADE).unwrap();
    let Space { bytes, reserve_bytes, free_bytes } = journal.space().unwrap();
    assert_eq!((bytes, reserve_bytes), (fs::metadata(&path).unwrap().len(), RESERVE_BYTES));
    assert!(free_bytes > 0);
    let error = journal.follow(RecordNumber(0)).err().unwrap().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(FileMedium::new(directory.path().join("none")).drop_cache().is_err());
}

#[test]
fn a_journal_is_made_in_no_place_that_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    symlink("nowhere", &path).unwrap();
    assert!(matches!(RedbJournal::init(&path, ID, MADE), Err(Error::Exists { .. })), "a link to nothing");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left behind");
    let (disk, journal) = fresh();
    drop(journal);
    assert!(matches!(RedbJournal::init_on(disk, JournalId(5), MADE), Err(Error::Exists { .. })));
}

/// A disk that may have no locks, and may become full while the store is closed.
#[derive(Clone, Debug)]
struct OddDisk {
    disk: FaultyDisk,
    odd: Arc<Odd>,
}

#[derive(Debug, Default)]
struct Odd {
    without_locks: AtomicBool,
    /// Whether every write fails, until the reserve is released.
    full: AtomicBool,
    /// Whether the reserve can't be released.
    keeps_reserve: AtomicBool,
    released: AtomicU32,
}

impl OddDisk {
    fn new() -> Self {
        Self { disk: disk(), odd: Arc::default() }
    }

    /// A failed commit, after which the disk is full.
    fn fail_a_commit(&self, journal: &mut RedbJournal) {
        self.disk.fail_syncs(1);
        let lost = Batch { urgent: true, ..batch(journal, &["lost"]) };
        assert!(matches!(journal.commit(&lost), Err(Error::Io { .. })));
        self.odd.full.store(true, Relaxed);
    }
}

impl Medium for OddDisk {
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(OddBackend { inner: self.disk.backend()?, odd: Arc::clone(&self.odd) }))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.disk.identity()
    }

    fn hold_reserve(&self) -> io::Result<()> {
        self.odd.refuse_if_full().and_then(|()| self.disk.hold_reserve())
    }

    fn release_reserve(&self) -> io::Result<()> {
        self.odd.released.fetch_add(1, Relaxed);
        if self.odd.keeps_reserve.load(Relaxed) {
            return Err(io::Error::other("it can't be released"));
        }
        self.odd.full.store(false, Relaxed);
        self.disk.release_reserve()
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.disk.drop_cache()
    }

    fn place(&self) -> String {
        self.disk.place()
    }

    fn space(&self) -> Option<Space> {
        self.disk.space()
    }
}

impl Odd {
    fn refuse_if_full(&self) -> io::Result<()> {
        if self.full.load(Relaxed) { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct OddBackend {
    inner: Box<dyn StorageBackend>,
    odd: Arc<Odd>,
}

impl StorageBackend for OddBackend {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.odd.refuse_if_full().and_then(|()| self.inner.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.odd.refuse_if_full().and_then(|()| self.inner.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if self.odd.without_locks.load(Relaxed) {
            return Err(BackendError::Unsupported);
        }
        self.inner.try_lock_range(start, end)
    }
}

#[test]
fn storage_without_locks_is_not_used() {
    let disk = OddDisk::new();
    disk.odd.without_locks.store(true, Relaxed);
    let error = RedbJournal::init_on(disk, ID, MADE).unwrap_err();
    assert!(error.to_string().ends_with("its filesystem has no locks"), "{error}");
}

#[test]
fn the_gate_remembers_a_full_disk_until_it_is_asked() {
    let disk = OddDisk::new();
    let (gate, status) = Gate::new(disk.backend().unwrap());
    gate.set_len(4_096).unwrap();
    assert!(!status.take_full());
    disk.odd.full.store(true, Relaxed);
    assert!(gate.write(0, b"data").is_err());
    assert!(status.take_full() && !status.take_full());
}

#[test]
fn a_reload_on_a_full_disk_uses_the_reserve_once() {
    let disk = OddDisk::new();
    let mut journal = RedbJournal::init_on(disk.clone(), ID, MADE).unwrap();
    disk.fail_a_commit(&mut journal);
    assert_ne!(journal.reload().unwrap(), ReloadOutcome::ForeignWriter);
    assert!(journal.urgent_only());
    disk.fail_a_commit(&mut journal);
    assert!(matches!(journal.reload(), Err(Error::Full { .. })));
    assert_eq!(disk.odd.released.load(Relaxed), 1);
}

#[test]
fn a_reserve_that_is_not_released_is_not_in_use() {
    let disk = OddDisk::new();
    let mut journal = RedbJournal::init_on(disk.clone(), ID, MADE).unwrap();
    disk.odd.keeps_reserve.store(true, Relaxed);
    disk.fail_a_commit(&mut journal);
    assert!(matches!(journal.reload(), Err(Error::Full { .. })));
    assert!(!journal.urgent_only() && journal.needs_reload());
}

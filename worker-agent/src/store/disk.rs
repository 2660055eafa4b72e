//! A disk in memory that a test can fill up, or pause during a flush.

use super::{Error, Store};
use redb::{StorageBackend, backends::InMemoryBackend};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
struct Disk {
    memory: InMemoryBackend,
    faults: Arc<Faults>,
}

/// Faults that a test injects.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Whether the disk is full.
    pub(crate) full: AtomicBool,
    /// Milliseconds by which the machine pauses during the next flush.
    pub(crate) pause: AtomicU64,
    /// Sum of the pauses so far.
    pub(crate) paused: Arc<AtomicU64>,
}

impl Disk {
    fn check_space(&self) -> io::Result<()> {
        if self.faults.full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_space()?;
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.faults.paused.fetch_add(self.faults.pause.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.check_space()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_space()?;
        self.memory.write(offset, data)
    }
}

/// A store on such a disk.
pub(crate) fn store() -> Result<(Store, Arc<Faults>), Error> {
    let faults = Arc::new(Faults::default());
    let disk = Disk { memory: InMemoryBackend::new(), faults: Arc::clone(&faults) };
    let db = redb::Database::builder().create_with_backend(disk).expect("an empty disk takes a new store");
    Ok((Store::of(db, "memory".into())?, faults))
}

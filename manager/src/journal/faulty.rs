//! A disk in memory that fails on purpose, for the simulator and for crash tests.
//!
//! Its faults are at least as bad as those of a real disk and its page cache. A write is visible to readers
//! at once, and durable only after a sync. At a power loss each unsynced write is lost, kept or torn at
//! 512-byte sectors, independently of the others. A failed sync keeps some writes and loses the rest. A full
//! disk refuses writes that need a new block. The same seed gives the same behaviour. This module must not
//! know what is written on the disk.
use super::Space;
use super::medium::{FileIdentity, Medium, RESERVE_BYTES};
use crate::locks;
use redb::{BackendError, StorageBackend};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// The unit in which a filesystem allocates space.
const BLOCK_BYTES: u64 = 4096;

/// How unreliable the disk is. Chances are out of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Chance that an unsynced write is lost as a whole.
    pub lose: u32,
    /// Chance that another unsynced write is torn: each of its sectors is kept or lost with even chance.
    pub tear: u32,
    /// Size of the disk; the reserve counts against it.
    pub capacity_bytes: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self { lose: 512, tear: 512, capacity_bytes: u64::MAX }
    }
}

/// A handle to the disk. Clones share the disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    disk: Arc<Mutex<Disk>>,
    /// Number of the attachment of the volume to which this handle belongs.
    attached: u64,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug)]
struct Disk {
    platter: Vec<u8>,
    /// Content that readers see: the platter plus all pending changes.
    seen: Vec<u8>,
    pending: Vec<Change>,
    blocks: BTreeSet<u64>,
    reserved: bool,
    identity: FileIdentity,
    faults: Faults,
    random: u64,
    /// Operations until the power fails. From then on every operation fails.
    power_left: Option<u64>,
    fail_syncs: u32,
    /// Number of the attachment that may use the disk.
    attached: u64,
    lock: Option<u64>,
    backends: u64,
}

impl Disk {
    /// splitmix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, of_1024: u32) -> bool {
        self.random() % 1024 < u64::from(of_1024)
    }

    /// Counts one operation; fails once there is no power.
    fn use_power(&mut self) -> io::Result<()> {
        match &mut self.power_left {
            Some(0) => Err(io::Error::other("the disk has no power")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn used_bytes(&self, blocks: u64) -> u64 {
        blocks * BLOCK_BYTES + if self.reserved { RESERVE_BYTES } else { 0 }
    }

    /// Makes all pending changes durable.
    fn settle(&mut self) {
        for change in mem::take(&mut self.pending) {
            apply(&mut self.platter, &change, |_| true);
        }
    }

    /// Makes a random part of the pending changes durable and drops the rest.
    fn lose_some(&mut self) {
        for change in mem::take(&mut self.pending) {
            if self.chance(self.faults.lose) {
                continue;
            }
            if self.chance(self.faults.tear) {
                let luck = self.random() | 1;
                // a random bit per sector, from a separate stream so that the closure needs no borrow
                let kept = |sector: usize| (luck.wrapping_mul(sector as u64 * 2 + 1) >> 40) & 1 == 1;
                apply(&mut self.platter, &change, kept);
            } else {
                apply(&mut self.platter, &change, |_| true);
            }
        }
        self.seen.clone_from(&self.platter);
    }
}

/// Applies those sectors of `change` that `kept` accepts. Data beyond the end is dropped: the change of
/// length that should have preceded it was lost.
fn apply(bytes: &mut Vec<u8>, change: &Change, kept: impl Fn(usize) -> bool) {
    match change {
        Change::SetLen(len) => bytes.resize(*len, 0),
        Change::Write { offset, data } => {
            let (mut at, end) = (*offset, (offset + data.len()).min(bytes.len()));
            while at < end {
                let sector = at / SECTOR_BYTES;
                let stop = ((sector + 1) * SECTOR_BYTES).min(end);
                if kept(sector) {
                    bytes[at..stop].copy_from_slice(&data[at - offset..stop - offset]);
                }
                at = stop;
            }
        }
    }
}

/// A disk that answers no request while this value lives.
#[derive(Debug)]
pub struct Stalled<'a>(MutexGuard<'a, Disk>);

impl Stalled<'_> {
    /// Like [`FaultyDisk::fail_syncs`], once the disk answers again.
    pub fn fail_syncs(&mut self, n: u32) {
        self.0.fail_syncs = n;
    }
}

impl FaultyDisk {
    /// An empty disk. `identity` stands for the inode of its file.
    pub fn new(seed: u64, identity: u64, faults: Faults) -> Self {
        Self::from_image(Vec::new(), seed, identity, faults)
    }

    /// A disk that holds `image`, such as a backup of another disk.
    pub fn from_image(image: Vec<u8>, seed: u64, identity: u64, faults: Faults) -> Self {
        let blocks = (0..(image.len() as u64).div_ceil(BLOCK_BYTES)).collect();
        let disk = Disk {
            seen: image.clone(),
            platter: image,
            pending: Vec::new(),
            blocks,
            reserved: false,
            identity: FileIdentity { device: 1, inode: identity, born_ns: None },
            faults,
            random: seed,
            power_left: None,
            fail_syncs: 0,
            attached: 0,
            lock: None,
            backends: 0,
        };
        Self { disk: Arc::new(Mutex::new(disk)), attached: 0 }
    }

    /// This disk with an older image restored on it, as by a snapshot of a volume.
    pub fn rolled_back(&self, image: Vec<u8>, seed: u64) -> Self {
        Self::from_image(image, seed, self.disk().identity.inode, Faults::default())
    }

    /// Cuts the power after `operations` more writes, syncs and changes of length: all later ones fail.
    pub fn power_off_after(&self, operations: u64) {
        self.disk().power_left = Some(operations);
    }

    /// Makes the next `n` syncs fail. Each keeps a random part of the unsynced writes.
    pub fn fail_syncs(&self, n: u32) {
        self.disk().fail_syncs = n;
    }

    /// Changes the size of the disk.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk().faults.capacity_bytes = bytes;
    }

    /// Bytes in use, including the reserve.
    pub fn used_bytes(&self) -> u64 {
        let disk = self.disk();
        disk.used_bytes(disk.blocks.len() as u64)
    }

    /// A power loss: returns a new disk with what is durable. The old handles fail from now on.
    pub fn crash(&self) -> Self {
        let mut disk = self.disk();
        disk.lose_some();
        disk.move_to_new_disk()
    }

    /// A killed process: the page cache survives, so only the lock is lost. The old handles fail from now on.
    pub fn kill(&self) -> Self {
        self.disk().move_to_new_disk()
    }

    /// Attaches the volume elsewhere: earlier handles fail from now on, and their lock is void.
    pub fn attach_elsewhere(&self) -> Self {
        let mut disk = self.disk();
        disk.attached += 1;
        disk.lock = None;
        Self { disk: Arc::clone(&self.disk), attached: disk.attached }
    }

    /// Makes all reads and writes wait as long as the returned value lives.
    pub fn stall(&self) -> Stalled<'_> {
        Stalled(self.disk())
    }

    /// Voids the lock, as filesystems with unreliable locks may do: a second store can then open the disk
    /// too.
    pub fn break_lock(&self) {
        self.disk().lock = None;
    }

    /// The durable bytes, as a backup taken now would have them.
    pub fn image(&self) -> Vec<u8> {
        self.disk().platter.clone()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        locks::lock(&self.disk)
    }

    /// The disk. Fails if this handle may no longer use it.
    fn attached_disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk();
        if disk.attached != self.attached {
            return Err(io::Error::other("the volume was attached elsewhere"));
        }
        Ok(disk)
    }
}

impl Disk {
    fn move_to_new_disk(&mut self) -> FaultyDisk {
        self.attached += 1;
        let disk = Self {
            platter: mem::take(&mut self.platter),
            seen: mem::take(&mut self.seen),
            pending: mem::take(&mut self.pending),
            blocks: mem::take(&mut self.blocks),
            power_left: None,
            lock: None,
            ..*self
        };
        let attached = disk.attached;
        FaultyDisk { disk: Arc::new(Mutex::new(disk)), attached }
    }
}

impl Medium for FaultyDisk {
    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        let mut disk = self.attached_disk()?;
        disk.backends += 1;
        Ok(Box::new(FaultyBackend { handle: self.clone(), number: disk.backends }))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(self.attached_disk()?.identity)
    }

    fn hold_reserve(&self) -> io::Result<()> {
        let mut disk = self.attached_disk()?;
        if !disk.reserved
            && disk.used_bytes(disk.blocks.len() as u64) + RESERVE_BYTES > disk.faults.capacity_bytes
        {
            return Err(ErrorKind::StorageFull.into());
        }
        disk.reserved = true;
        Ok(())
    }

    fn release_reserve(&self) -> io::Result<()> {
        self.attached_disk()?.reserved = false;
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        // as on Linux, only clean pages are dropped: pending writes stay visible
        self.attached_disk().map(drop)
    }

    fn place(&self) -> String {
        "a disk in memory".into()
    }

    fn space(&self) -> Option<Space> {
        let disk = self.attached_disk().ok()?;
        let blocks = disk.blocks.len() as u64;
        Some(Space {
            bytes: blocks * BLOCK_BYTES,
            reserve_bytes: if disk.reserved { RESERVE_BYTES } else { 0 },
            free_bytes: disk.faults.capacity_bytes.saturating_sub(disk.used_bytes(blocks)),
        })
    }
}

/// One store's access to the disk.
#[derive(Debug)]
struct FaultyBackend {
    handle: FaultyDisk,
    number: u64,
}

impl StorageBackend for FaultyBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.handle.attached_disk()?.seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.handle.attached_disk()?;
        let bytes = usize::try_from(offset).ok().and_then(|at| disk.seen.get(at..)?.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.handle.attached_disk()?;
        disk.use_power()?;
        let len = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        disk.blocks.split_off(&(len as u64).div_ceil(BLOCK_BYTES));
        disk.seen.resize(len, 0);
        disk.pending.push(Change::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.handle.attached_disk()?;
        disk.use_power()?;
        if disk.fail_syncs > 0 {
            disk.fail_syncs -= 1;
            disk.lose_some();
            return Err(io::Error::other("the disk failed to sync"));
        }
        disk.settle();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.handle.attached_disk()?;
        disk.use_power()?;
        let at = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
        let end = at + data.len();
        if end > disk.seen.len() {
            return Err(ErrorKind::InvalidInput.into());
        }
        let span = offset / BLOCK_BYTES..(end as u64).div_ceil(BLOCK_BYTES);
        let new = span.clone().filter(|block| !disk.blocks.contains(block)).count() as u64;
        if new > 0 && disk.used_bytes(disk.blocks.len() as u64 + new) > disk.faults.capacity_bytes {
            return Err(ErrorKind::StorageFull.into());
        }
        disk.blocks.extend(span);
        disk.seen[at..end].copy_from_slice(data);
        disk.pending.push(Change::Write { offset: at, data: data.to_vec() });
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        let mut disk = self.handle.attached_disk()?;
        if disk.lock == Some(self.number) {
            disk.lock = None;
        }
        Ok(())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if !matches!(start, Bound::Unbounded | Bound::Included(0)) || end != Bound::Unbounded {
            return Err(BackendError::Unsupported);
        }
        let mut disk = self.handle.attached_disk()?;
        if disk.lock.is_some() {
            return Ok(false);
        }
        disk.lock = Some(self.number);
        Ok(true)
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Ok(self.close()?)
    }
}

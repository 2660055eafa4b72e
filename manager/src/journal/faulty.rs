//! A disk in memory that fails on purpose, for the simulator and for crash tests.
//!
//! It models what a real disk and its page cache do and nothing kinder: a write is visible to readers at once and durable
//! only after a sync; at a power loss each unsynced write is lost, kept or torn at 512-byte sectors, independently of the
//! others; a failed sync keeps some writes and forgets the rest; a full disk refuses what needs a new block. Under one
//! seed it does the same every time. It must not know what is written on it.

use super::Identity;
use super::medium::{Medium, RESERVE_BYTES};
use redb::{BackendError, StorageBackend};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// The unit in which a filesystem gives out space.
const BLOCK_BYTES: u64 = 4096;

/// How bad the disk is. Chances are out of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Chance of an unsynced write to be lost whole.
    pub lose: u32,
    /// Chance of an unsynced write that wasn't lost whole to be torn: each of its sectors is then kept or lost evenly.
    pub tear: u32,
    /// Size of the disk; the reserve counts against it.
    pub capacity_bytes: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self { lose: 512, tear: 512, capacity_bytes: u64::MAX }
    }
}

/// A handle on the disk; clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    disk: Arc<Mutex<Disk>>,
    /// Which attachment of the volume this handle belongs to.
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
    /// What readers see: the platter with all pending changes.
    seen: Vec<u8>,
    pending: Vec<Change>,
    blocks: BTreeSet<u64>,
    reserved: bool,
    identity: Identity,
    faults: Faults,
    random: u64,
    /// Operations until the power goes; from then on every operation fails.
    power_left: Option<u64>,
    fail_syncs: u32,
    /// The attachment that may use the disk, and the backend that holds the lock.
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

    /// Spends one operation's power.
    fn powered(&mut self) -> io::Result<()> {
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

    /// Puts all pending changes on the platter.
    fn settle(&mut self) {
        for change in mem::take(&mut self.pending) {
            apply(&mut self.platter, &change, |_| true);
        }
    }

    /// Puts on the platter what luck lets there, and forgets the rest.
    fn gamble(&mut self) {
        for change in mem::take(&mut self.pending) {
            if self.chance(self.faults.lose) {
                continue;
            }
            if self.chance(self.faults.tear) {
                let luck = self.random() | 1;
                // a fresh bit for each sector, from a stream of its own so that the closure needs no borrow
                let kept = |sector: usize| (luck.wrapping_mul(sector as u64 * 2 + 1) >> 40) & 1 == 1;
                apply(&mut self.platter, &change, kept);
            } else {
                apply(&mut self.platter, &change, |_| true);
            }
        }
        self.seen.clone_from(&self.platter);
    }
}

/// Applies `change` as far as `kept` lets its sectors through. What lies beyond the end is lost: the change of length
/// that would have made room for it was.
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

/// A disk that answers nobody.
#[derive(Debug)]
pub struct Stalled<'a>(MutexGuard<'a, Disk>);

impl Stalled<'_> {
    /// As [`FaultyDisk::fail_syncs`], for when it answers again.
    pub fn fail_syncs(&mut self, n: u32) {
        self.0.fail_syncs = n;
    }
}

impl FaultyDisk {
    /// An empty disk. `identity` is the file's.
    pub fn new(seed: u64, identity: u64, faults: Faults) -> Self {
        Self::from_image(Vec::new(), seed, identity, faults)
    }

    /// A disk that holds `image`, such as a backup of another one.
    pub fn from_image(image: Vec<u8>, seed: u64, identity: u64, faults: Faults) -> Self {
        let blocks = (0..(image.len() as u64).div_ceil(BLOCK_BYTES)).collect();
        let disk = Disk {
            seen: image.clone(),
            platter: image,
            pending: Vec::new(),
            blocks,
            reserved: false,
            identity: Identity { device: 1, inode: identity, born_ns: None },
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

    /// Takes the power away after `operations` more writes, syncs and changes of length: all later ones fail.
    pub fn power_off_after(&self, operations: u64) {
        self.disk().power_left = Some(operations);
    }

    /// Lets the next `n` syncs fail, each with a gamble over what was unsynced.
    pub fn fail_syncs(&self, n: u32) {
        self.disk().fail_syncs = n;
    }

    /// Changes the size of the disk.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk().faults.capacity_bytes = bytes;
    }

    /// Bytes in use, with the reserve.
    pub fn used_bytes(&self) -> u64 {
        let disk = self.disk();
        disk.used_bytes(disk.blocks.len() as u64)
    }

    /// The power is gone: what is on the platter, as a new disk under power. The old one is dead.
    pub fn crash(&self) -> Self {
        let mut disk = self.disk();
        disk.gamble();
        disk.reborn()
    }

    /// The process is gone and its page cache lives on: nothing is lost but the lock. The old handles are dead.
    pub fn kill(&self) -> Self {
        self.disk().reborn()
    }

    /// The volume is attached elsewhere: earlier handles fail from now on, and their lock is void.
    pub fn attach_elsewhere(&self) -> Self {
        let mut disk = self.disk();
        disk.attached += 1;
        disk.lock = None;
        Self { disk: Arc::clone(&self.disk), attached: disk.attached }
    }

    /// Lets nothing through as long as this lives: whoever reads or writes waits.
    pub fn stall(&self) -> Stalled<'_> {
        Stalled(self.disk())
    }

    /// Voids the lock, as filesystems do whose locks lie: a second store may open beside the first.
    pub fn break_lock(&self) {
        self.disk().lock = None;
    }

    /// What a backup that is taken now holds: the platter.
    pub fn image(&self) -> Vec<u8> {
        self.disk().platter.clone()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk, if this handle may still use it.
    fn reach(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk();
        if disk.attached != self.attached {
            return Err(io::Error::other("the volume was attached elsewhere"));
        }
        Ok(disk)
    }
}

impl Disk {
    fn reborn(&mut self) -> FaultyDisk {
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
        let mut disk = self.reach()?;
        disk.backends += 1;
        Ok(Box::new(FaultyBackend { handle: self.clone(), number: disk.backends }))
    }

    fn identity(&self) -> io::Result<Identity> {
        Ok(self.reach()?.identity)
    }

    fn hold_reserve(&self) -> io::Result<()> {
        let mut disk = self.reach()?;
        if !disk.reserved
            && disk.used_bytes(disk.blocks.len() as u64) + RESERVE_BYTES > disk.faults.capacity_bytes
        {
            return Err(ErrorKind::StorageFull.into());
        }
        disk.reserved = true;
        Ok(())
    }

    fn release_reserve(&self) -> io::Result<()> {
        self.reach()?.reserved = false;
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        // as on Linux, only clean pages go: what is still pending stays visible
        self.reach().map(drop)
    }

    fn place(&self) -> String {
        "a disk in memory".into()
    }
}

/// One store's way to the disk.
#[derive(Debug)]
struct FaultyBackend {
    handle: FaultyDisk,
    number: u64,
}

impl StorageBackend for FaultyBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.handle.reach()?.seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.handle.reach()?;
        let bytes = usize::try_from(offset).ok().and_then(|at| disk.seen.get(at..)?.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.handle.reach()?;
        disk.powered()?;
        let len = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        disk.blocks.split_off(&(len as u64).div_ceil(BLOCK_BYTES));
        disk.seen.resize(len, 0);
        disk.pending.push(Change::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.handle.reach()?;
        disk.powered()?;
        if disk.fail_syncs > 0 {
            disk.fail_syncs -= 1;
            disk.gamble();
            return Err(io::Error::other("the disk failed to sync"));
        }
        disk.settle();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.handle.reach()?;
        disk.powered()?;
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
        let mut disk = self.handle.reach()?;
        if disk.lock == Some(self.number) {
            disk.lock = None;
        }
        Ok(())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if !matches!(start, Bound::Unbounded | Bound::Included(0)) || end != Bound::Unbounded {
            return Err(BackendError::Unsupported);
        }
        let mut disk = self.handle.reach()?;
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

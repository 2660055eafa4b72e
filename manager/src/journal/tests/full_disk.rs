//! Full disks: ends and deletions still commit, new work is refused, nothing is lost, and freed space
//! restores service.

use super::*;
use crate::journal::medium::{FileMedium, RESERVE_BYTES};
use crate::journal::{Error, ReloadOutcome};
use std::path::{Path, PathBuf};
use std::process::Command;

fn filler(journal: &RedbJournal) -> Batch {
    Batch { records: vec![vec![1; 100_000]; 4], ..batch(journal, &[]) }
}

fn end(journal: &RedbJournal) -> Batch {
    Batch { urgent: true, audit: vec![b"ended".to_vec()], ..batch(journal, &["end"]) }
}

/// Drives a journal into a full disk and out again. `free` gives space back.
fn survives_a_full_disk(mut journal: RedbJournal, free: impl FnOnce(&RedbJournal)) -> RedbJournal {
    let mut expect = Contents::of(&journal, []);
    assert!(!journal.urgent_only());
    let refused = loop {
        let batch = filler(&journal);
        match journal.commit(&batch) {
            Ok(()) => expect = expect.after(&batch),
            Err(error) => break error,
        }
        assert!(expect.records.len() < 2_000, "the disk never fills");
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused:?}");
    assert!(journal.needs_reload());
    // the uncommitted world is dropped; opening works although the disk is full
    assert_eq!(journal.reload().unwrap(), ReloadOutcome::Acknowledged);
    assert_eq!(Contents::of(&journal, []), expect);

    // ends commit, enough of them that copied pages alone would fill the rest
    for _ in 0..300 {
        let batch = end(&journal);
        journal.commit(&batch).unwrap();
        expect = expect.after(&batch);
        journal.heartbeat().unwrap();
    }
    // fill the disk with urgent batches; then new work is refused without a reload
    let mut urgent = Batch { urgent: true, ..filler(&journal) };
    while !journal.urgent_only() {
        match journal.commit(&urgent) {
            Ok(()) => expect = expect.after(&urgent),
            Err(error) => panic!("an urgent commit fails although space is reserved: {error}"),
        }
        urgent = Batch { urgent: true, ..filler(&journal) };
    }
    assert!(matches!(journal.commit(&filler(&journal)), Err(Error::Full { .. })));
    assert!(!journal.needs_reload(), "nothing was written, so nothing needs a reload");
    let batch = end(&journal);
    journal.commit(&batch).unwrap();
    expect = expect.after(&batch);
    assert_eq!(Contents::of(&journal, []), expect);

    free(&journal);
    journal.heartbeat().unwrap();
    assert!(!journal.urgent_only(), "a heartbeat reserves space again");
    let batch = filler(&journal);
    journal.commit(&batch).unwrap();
    assert_eq!(Contents::of(&journal, []), expect.after(&batch));
    journal
}

#[test]
fn an_in_memory_disk_that_fills_up_is_survived() {
    let (disk, journal) = fresh();
    disk.set_capacity(RESERVE_BYTES + (12 << 20));
    let journal = survives_a_full_disk(journal, |_| disk.set_capacity(128 << 20));
    assert!(disk.used_bytes() > RESERVE_BYTES + (12 << 20));
    drop(journal);
    RedbJournal::open_on(disk.crash()).unwrap();
}

#[test]
fn a_journal_that_opens_on_a_full_disk_takes_ends_only() {
    let (disk, journal) = fresh();
    drop(journal);
    disk.set_capacity(disk.used_bytes() + (1 << 20) - RESERVE_BYTES);
    let disk =
        FaultyDisk::from_image(disk.image(), 1, 42, Faults { capacity_bytes: 6 << 20, ..Faults::default() });
    let mut journal = RedbJournal::open_on(disk.clone()).unwrap();
    assert!(journal.urgent_only());
    assert!(matches!(journal.commit(&batch(&journal, &["work"])), Err(Error::Full { .. })));
    journal.commit(&end(&journal)).unwrap();
    disk.set_capacity(u64::MAX);
    journal.commit(&batch(&journal, &["work"])).unwrap();
    assert_eq!(journal.last(), RecordNumber(2));
}

/// A small mounted filesystem, unmounted on drop.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// `None` without the right to mount.
    fn new(bytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .output()
            .ok()?
            .status;
        status.success().then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.path()).output());
    }
}

#[test]
fn a_real_filesystem_that_fills_up_is_survived() {
    // where mounting isn't permitted, the in-memory disk above covers this case
    let Some(mounted) = Mounted::new(RESERVE_BYTES + (24 << 20)) else { return };
    let ballast: PathBuf = mounted.path().join("somebody-elses.file");
    std::fs::write(&ballast, vec![0; 12 << 20]).unwrap();
    let path = mounted.path().join("journal.redb");
    let reserve = FileMedium::new(&path).reserve_path();
    let journal = RedbJournal::init(&path, ID, MADE).unwrap();
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), RESERVE_BYTES);
    let journal = survives_a_full_disk(journal, |journal| {
        assert!(journal.urgent_only() && !reserve.exists());
        std::fs::remove_file(&ballast).unwrap();
        let options = format!("remount,size={}", 128 << 20);
        let remounted = Command::new("mount").args(["-o", &options]).arg(mounted.path()).status().unwrap();
        assert!(remounted.success());
    });
    assert!(reserve.exists());
    drop(journal);
    RedbJournal::open(&path).unwrap();
}

//! The mark in shared memory: any doubt reads as "no mark".

use super::*;
use crate::journal::mark::{self, BootId, Mark, MarkWriter};
use meridian_shared::time::{Millis, Mono};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const BOOT: BootId = BootId(3);
const NOW: Mono = Mono(100_000);
const AGE_MAX: Millis = Millis(5_000);

fn mark_of(journal: &dyn Journal) -> Mark {
    Mark {
        journal: ID,
        leadership: journal.leadership(),
        last: journal.last(),
        chain: journal.chain(),
        boot: BOOT,
        at: Mono(NOW.0 - 1_000),
    }
}

#[test]
fn a_mark_vouches_only_for_the_journal_that_was_left() {
    let (disk, mut journal) = fresh();
    journal.commit(&batch(&journal, &["a"])).unwrap();
    let good = mark_of(&journal);
    let vouches = |mark: Mark, journal: &dyn Journal| mark.vouches_for(journal, BOOT, NOW, AGE_MAX);
    assert!(vouches(good, &journal));
    let bad = [
        Mark { journal: JournalId(9), ..good },
        Mark { leadership: Leadership { epoch: 1, id: 78 }, ..good },
        Mark { last: RecordNumber(2), ..good },
        Mark { chain: good.chain ^ 1, ..good },
        Mark { boot: BootId(4), ..good },
        Mark { at: Mono(NOW.0 + 1), ..good },
        Mark { at: Mono(NOW.0 - AGE_MAX.0), ..good },
    ];
    for mark in bad {
        assert!(!vouches(mark, &journal), "{mark:?}");
    }
    journal.heartbeat().unwrap();
    assert!(vouches(good, &journal), "a heartbeat is no record");
    journal.commit(&batch(&journal, &["b"])).unwrap();
    assert!(!vouches(good, &journal));
    drop(journal);
    let copy = FaultyDisk::from_image(disk.image(), 1, 43, Faults::default());
    let copy = RedbJournal::open_on(copy).unwrap();
    assert!(!vouches(mark_of(&copy), &copy), "a copy in another file needs the wait");
}

#[test]
fn a_mark_shows_that_its_journal_was_rolled_back() {
    let (disk, mut journal) = fresh();
    journal.commit(&batch(&journal, &["a"])).unwrap();
    let (older, mark) = (disk.image(), mark_of(&journal));
    assert!(!mark.is_ahead_of(&journal, BOOT), "it is as the mark says");
    journal.commit(&batch(&journal, &["b"])).unwrap();
    assert!(!mark.is_ahead_of(&journal, BOOT), "a commit may have been the last act before the mark");
    let newest = mark_of(&journal);
    drop(journal);
    let mut journal = RedbJournal::open_on(disk.rolled_back(older, 1)).unwrap();
    assert!(newest.is_ahead_of(&journal, BOOT));
    assert!(!newest.is_ahead_of(&journal, BootId(4)), "after a reboot a mark proves nothing");
    assert!(!journal.identity_changed(), "it is the same file");
    journal.distrust();
    assert!(journal.identity_changed());
    // Other records were written in place of the lost ones.
    journal.commit(&batch(&journal, &["c"])).unwrap();
    assert!(newest.is_ahead_of(&journal, BOOT));
    journal.accept_identity().unwrap();
    assert!(!journal.identity_changed());
}

#[test]
fn only_stale_marks_are_swept() {
    let directory = tempfile::tempdir().unwrap();
    let (_, journal) = fresh();
    let now = Mono(NOW.0 + mark::STALE.0);
    let leave = |id: u128, boot: BootId, at: Mono| {
        let mark = Mark { journal: JournalId(id), boot, at, ..mark_of(&journal) };
        MarkWriter::open(directory.path(), mark.journal).unwrap().write(&mark).unwrap();
    };
    leave(1, BOOT, NOW);
    leave(2, BOOT, Mono(NOW.0 + 1));
    leave(3, BootId(4), NOW);
    leave(4, BOOT, Mono(now.0 + 1));
    fs::write(directory.path().join("meridian-notes.mark"), "somebody's").unwrap();
    fs::copy(mark::path(directory.path(), JournalId(1)), directory.path().join("a-copy-with-another-name"))
        .unwrap();
    assert_eq!(mark::sweep(directory.path(), BOOT, now).unwrap(), 1);
    assert!(!mark::path(directory.path(), JournalId(1)).exists());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
    assert!(mark::sweep(&directory.path().join("nowhere"), BOOT, now).is_err());

    mark::remove(directory.path(), JournalId(2)).unwrap();
    mark::remove(directory.path(), JournalId(2)).unwrap();
    assert!(!mark::path(directory.path(), JournalId(2)).exists());
}

#[test]
fn the_last_written_mark_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (_, journal) = fresh();
    assert_eq!(mark::read(directory.path(), ID), None);
    let writer = MarkWriter::open(directory.path(), ID).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None, "an empty file is no mark");
    for last in [1, 2] {
        let mark = Mark { last: RecordNumber(last), ..mark_of(&journal) };
        writer.write(&mark).unwrap();
        assert_eq!(mark::read(directory.path(), ID), Some(mark));
    }
    writer.write(&Mark { journal: JournalId(5), ..mark_of(&journal) }).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None, "it is about another journal");
}

#[test]
fn torn_long_shared_and_linked_marks_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let path = mark::path(directory.path(), ID);
    let (_, journal) = fresh();
    let good = mark_of(&journal);
    let writer = MarkWriter::open(directory.path(), ID).unwrap();
    let bytes = good.encode();
    for at in 0..bytes.len() {
        let mut torn = bytes;
        torn[at] ^= 1;
        fs::write(&path, torn).unwrap();
        assert_eq!(mark::read(directory.path(), ID), None, "byte {at}");
        fs::write(&path, &bytes[..at]).unwrap();
        assert_eq!(mark::read(directory.path(), ID), None, "cut at {at}");
    }
    fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None);
    fs::write(&path, bytes).unwrap();
    assert_eq!(mark::read(directory.path(), ID), Some(good));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None, "other users may write it");
    assert!(MarkWriter::open(directory.path(), ID).is_err());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None, "a group may write it");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None, "a link");
    assert!(MarkWriter::open(directory.path(), ID).is_err());
    drop(writer);
}

#[test]
fn the_file_of_a_mark_is_for_its_manager_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = mark::path(directory.path(), ID);
    let _writer = MarkWriter::open(directory.path(), ID).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let open: Vec<_> = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok).collect();
    let ours = open.iter().find(|open| fs::read_link(open.path()).is_ok_and(|file| file == path)).unwrap();
    let about = fs::read_to_string(Path::new("/proc/self/fdinfo").join(ours.file_name())).unwrap();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    let flags = u32::from_str_radix(flags, 8).unwrap();
    assert_ne!(
        flags & rustix::fs::OFlags::CLOEXEC.bits(),
        0,
        "a program that the manager starts doesn't inherit it"
    );

    fs::hard_link(&path, directory.path().join("second-name")).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None);
    assert!(MarkWriter::open(directory.path(), ID).is_err());
}

#[test]
fn a_pipe_in_place_of_a_mark_is_ignored_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = mark::path(directory.path(), ID);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    assert_eq!(mark::read(directory.path(), ID), None);
    assert!(MarkWriter::open(directory.path(), ID).is_err());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(mark::remove(directory.path(), ID).is_err(), "what can't be removed is said");
}

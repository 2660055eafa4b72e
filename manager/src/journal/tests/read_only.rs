//! A journal opened for reading only: which processes may have it open at the same time.

use super::*;
use crate::journal::{Error, ReadOnlyJournal};

#[test]
fn a_journal_is_written_by_one_or_read_by_several() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    let missing = ReadOnlyJournal::open(&path).unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }) && missing.to_string().contains(path.to_str().unwrap()));
    let mut journal = RedbJournal::init(&path, ID, MADE).unwrap();
    journal.commit(&batch(&journal, &["a"])).unwrap();
    assert!(matches!(ReadOnlyJournal::open(&path), Err(Error::Locked { .. })));
    drop(journal);
    let before = std::fs::read(&path).unwrap();
    let readers = [(); 2].map(|()| ReadOnlyJournal::open(&path).unwrap());
    assert!(readers.iter().all(|reader| Contents::of(&**reader, []).records.len() == 1));
    assert!(matches!(RedbJournal::open(&path), Err(Error::Locked { .. })));
    drop(readers);
    assert!(std::fs::read(&path).unwrap() == before);
    RedbJournal::open(&path).unwrap();
}

#[test]
fn the_file_of_an_interrupted_manager_is_repaired_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (path, left) = (directory.path().join("journal.redb"), directory.path().join("left.redb"));
    let mut journal = RedbJournal::init(&path, ID, MADE).unwrap();
    let mut expect = Contents::default();
    for step in 0..40_u8 {
        let next = Batch { audit: vec![vec![step; 3_000]], ..batch(&journal, &["one", "two"]) };
        journal.commit(&next).unwrap();
        expect = expect.after(&next);
    }
    // The manager is still running, so its file isn't closed in order.
    std::fs::copy(&path, &left).unwrap();
    let before = std::fs::read(&left).unwrap();
    let reader = ReadOnlyJournal::open(&left).unwrap();
    assert_eq!(Contents::of(&*reader, []), expect);
    drop(reader);
    assert!(std::fs::read(&left).unwrap() == before, "not a byte of the file changes");
}

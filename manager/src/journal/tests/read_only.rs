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

//! Files that are cut, overwritten, damaged or another program's: a clear error, never a panic, never wrong
//! bytes.

use super::*;
use crate::journal::Error;
use crate::journal::medium::{Gate, Medium};
use std::fs;

/// The image of a journal with something in every table, and what it holds.
fn sample() -> (Vec<u8>, Contents) {
    let (disk, mut journal) = fresh();
    let mut expect = Contents::default();
    for step in 0..6 {
        let mut batch = batch(&journal, &["alpha", "beta", "gamma"]);
        batch.audit = vec![format!("line {step}").into_bytes()];
        batch.bodies = vec![(ContentHash(step), vec![step as u8; 9_000])];
        batch.snapshot = (step == 3).then(|| Snapshot { through: journal.last(), bytes: vec![5; 20_000] });
        journal.commit(&batch).unwrap();
        expect = expect.after(&batch);
    }
    drop(journal);
    (disk.image(), expect)
}

fn open(image: Vec<u8>) -> Result<RedbJournal, Error> {
    RedbJournal::open_on(FaultyDisk::from_image(image, 1, 42, Faults::default()))
}

/// Reads everything. An error is fine; a panic or other bytes than `expect` are not.
fn read_all(journal: &RedbJournal, expect: &Contents) -> Result<(), Error> {
    if let Some(snapshot) = journal.snapshot()? {
        assert_eq!(Some(snapshot), expect.snapshot);
    }
    let from = expect.snapshot.as_ref().unwrap().through;
    journal.replay(from, &mut |number, record| {
        assert_eq!(expect.records.get(&number.0).map(Vec::as_slice), Some(record));
        Ok(())
    })?;
    let reader = journal.reader();
    reader.audit(AuditNumber(0), AuditNumber(u64::MAX), &mut |number, line| {
        assert_eq!(expect.audit[number.0 as usize - 1], line);
        Ok(())
    })?;
    reader.audit_head()?;
    for (&hash, body) in &expect.bodies {
        if let Some(found) = reader.body(ContentHash(hash))? {
            assert_eq!(found, *body);
        }
    }
    Ok(())
}

#[test]
fn files_of_other_programs_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    let check_error = |expect: &str| {
        let error = RedbJournal::open(&path).unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
    };
    fs::write(&path, b"").unwrap();
    check_error("it is empty");
    fs::write(&path, b"short").unwrap();
    check_error("is not a meridian journal");
    fs::write(&path, vec![0x55; 100_000]).unwrap();
    check_error("is not a meridian journal");
    fs::remove_file(&path).unwrap();

    let numbers: ::redb::TableDefinition<'_, u64, u64> = ::redb::TableDefinition::new("numbers");
    let other = ::redb::Database::create(&path).unwrap();
    let txn = other.begin_write().unwrap();
    txn.open_table(numbers).unwrap().insert(1, 2).unwrap();
    txn.commit().unwrap();
    drop(other);
    check_error("the store of another program");

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(RedbJournal::open(&path).is_err());
    assert!(matches!(RedbJournal::init(&path, ID, MADE), Err(Error::Exists { .. })));
}

#[test]
fn an_unknown_version_is_refused_with_its_name() {
    let (disk, journal) = fresh();
    drop(journal);
    for (header, expect) in [
        ("meridian journal 2", "use the version that wrote it"),
        ("another journal", "its header is another program's"),
    ] {
        let database =
            ::redb::Database::builder().create_with_backend(Gate::new(disk.backend().unwrap()).0).unwrap();
        let txn = database.begin_write().unwrap();
        let definition: ::redb::TableDefinition<'_, &str, &[u8]> = ::redb::TableDefinition::new("meta");
        txn.open_table(definition).unwrap().insert("format", header.as_bytes()).unwrap();
        txn.commit().unwrap();
        drop(database);
        let error = RedbJournal::open_on(disk.clone()).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn a_file_that_was_cut_gives_an_error() {
    let (image, expect) = sample();
    for len in (0..image.len()).step_by(image.len() / 200) {
        let cut = image[..len].to_vec();
        if let Ok(journal) = open(cut) {
            drop(read_all(&journal, &expect));
        }
    }
}

#[test]
fn rotten_bits_give_an_error_or_change_nothing() {
    let (image, expect) = sample();
    let used: Vec<usize> =
        image.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
    let mut random = Random(5);
    let (mut refused, mut harmless) = (0, 0);
    for round in 0..600 {
        let mut rotten = image.clone();
        // the first page holds the store's own header, so it gets a larger share
        let at = if round % 4 == 0 {
            random.below(512) as usize
        } else {
            used[random.below(used.len() as u64) as usize]
        };
        rotten[at] ^= 1 << random.below(8);
        match open(rotten).and_then(|journal| read_all(&journal, &expect)) {
            Ok(()) => harmless += 1,
            Err(error) => {
                assert!(
                    !matches!(error, Error::Missing { .. } | Error::Locked { .. } | Error::Fenced { .. }),
                    "{error}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused >= 100 && harmless >= 10, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_page_of_garbage_gives_an_error() {
    let (image, expect) = sample();
    let mut random = Random(6);
    // pages without data are all the same, so most of them are skipped
    let pages = (0..image.len() / 4096)
        .filter(|page| page % 16 == 0 || image[page * 4096..][..4096].iter().any(|byte| *byte != 0));
    for page in pages {
        let mut rotten = image.clone();
        for byte in &mut rotten[page * 4096..(page + 1) * 4096] {
            *byte = random.below(256) as u8;
        }
        drop(open(rotten).and_then(|journal| read_all(&journal, &expect)));
    }
}

#[test]
fn a_panic_of_the_caller_is_not_reported_as_damage() {
    let (image, _) = sample();
    let journal = open(image).unwrap();
    let walk = || drop(journal.replay(RecordNumber(15), &mut |_, _| panic!("a bug of the engine")));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug of the engine"));
    journal.replay(RecordNumber(15), &mut |_, _| Ok(())).unwrap();
}

//! Files that are cut, overwritten, damaged or another program's: a clear error, never a panic, never wrong
//! bytes.

use super::*;
use crate::journal::medium::{Gate, Medium};
use crate::journal::{Error, Part, Verified};
use ::redb::{ReadableDatabase, TableHandle};
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
        assert_eq!(expect.audit[&number.0], line);
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
        ("meridian journal 1", "use the version that wrote it"),
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

const RECORDS: [&str; 3] = ["the first record", "the second record", "the third record"];
const LINES: [&[u8]; 2] = [b"the first line", b"the second line"];
const BODY: &[u8] = b"the manifest of a job";

/// A journal with records, a snapshot that holds the first two, audit lines and a body.
fn one_of_each() -> FaultyDisk {
    let (disk, mut journal) = fresh();
    let mut all = batch(&journal, &RECORDS);
    all.audit = LINES.map(<[u8]>::to_vec).to_vec();
    all.bodies = vec![(ContentHash::of(BODY), BODY.to_vec())];
    all.snapshot = Some(Snapshot { through: RecordNumber(1), bytes: b"the snapshot".to_vec() });
    journal.commit(&all).unwrap();
    drop(journal);
    disk
}

/// Flips one bit of `text` wherever the image holds it.
fn flip(image: &mut [u8], text: &[u8]) {
    let at: Vec<usize> =
        image.windows(text.len()).enumerate().filter(|(_, bytes)| *bytes == text).map(|(at, _)| at).collect();
    assert!(!at.is_empty(), "{text:?}");
    at.into_iter().for_each(|at| image[at + 4] ^= 1);
}

/// Verifies a part in small steps.
fn verify(journal: &RedbJournal, part: Part) -> Result<usize, Error> {
    let (mut from, mut bytes) = (0, 0);
    loop {
        let Verified { bytes: read, next } = journal.reader().verify(part, from, 10)?;
        bytes += read;
        match next {
            Some(next) => from = next,
            None => return Ok(bytes),
        }
    }
}

/// Whether the body, the records, the snapshot and the audit log are intact. Reading them in full and
/// verifying them step by step must agree.
fn intact(journal: &RedbJournal) -> [bool; 4] {
    let is_intact = |result: Result<(), Error>| match result {
        Ok(()) => true,
        Err(Error::Damaged { .. }) => false,
        Err(other) => panic!("{other}"),
    };
    let read = [
        journal.replay(RecordNumber(1), &mut |_, _| Ok(())).map(drop),
        journal.snapshot().map(drop),
        journal.reader().audit(AuditNumber(1), AuditNumber(u64::MAX), &mut |_, _| Ok(())),
    ]
    .map(is_intact);
    let verified =
        [Part::Records, Part::Snapshot, Part::Audit].map(|part| is_intact(verify(journal, part).map(drop)));
    assert_eq!(read, verified);
    let body = is_intact(journal.reader().body(ContentHash::of(BODY)).map(drop));
    [body, read[0], read[1], read[2]]
}

#[test]
fn one_flipped_bit_is_found_in_every_kind_of_entry() {
    let image = one_of_each().image();
    let journal = open(image.clone()).unwrap();
    assert_eq!(intact(&journal), [true; 4]);
    let bytes = [Part::Records, Part::Snapshot, Part::Audit].map(|part| verify(&journal, part).unwrap());
    assert_eq!(bytes, [RECORDS[1].len() + RECORDS[2].len(), 12, LINES[0].len() + LINES[1].len()]);
    for (text, expect) in [
        (BODY, [false, true, true, true]),
        (RECORDS[1].as_bytes(), [true, false, true, true]),
        (RECORDS[2].as_bytes(), [true, false, true, true]),
        (b"the snapshot", [true, true, false, true]),
        (LINES[0], [true, true, true, false]),
        (LINES[1], [true, true, true, false]),
    ] {
        let mut rotten = image.clone();
        flip(&mut rotten, text);
        assert_eq!(intact(&open(rotten).unwrap()), expect, "{text:?}");
    }
}

#[test]
fn an_entry_that_is_missing_is_damage() {
    for (table, key, expect) in [
        ("log", 2, [true, false, true, true]),
        ("log", 3, [true, false, true, true]),
        ("snapshot", 0, [true, true, false, true]),
        ("audit", 1, [true, true, true, false]),
        ("audit", 2, [true, true, true, false]),
    ] {
        let disk = one_of_each();
        let database =
            ::redb::Database::builder().create_with_backend(Gate::new(disk.backend().unwrap()).0).unwrap();
        let txn = database.begin_write().unwrap();
        let definition: ::redb::TableDefinition<'_, u64, &[u8]> = ::redb::TableDefinition::new(table);
        assert!(txn.open_table(definition).unwrap().remove(key).unwrap().is_some());
        txn.commit().unwrap();
        drop(database);
        assert_eq!(intact(&RedbJournal::open_on(disk).unwrap()), expect, "{table} {key}");
    }
}

#[test]
fn a_damaged_body_is_repaired_by_writing_it_again() {
    let mut image = one_of_each().image();
    flip(&mut image, BODY);
    let mut journal = open(image).unwrap();
    let hash = ContentHash::of(BODY);
    assert!(matches!(journal.reader().body(hash), Err(Error::Damaged { .. })));
    let again = Batch { bodies: vec![(hash, BODY.to_vec())], ..batch(&journal, &["repaired"]) };
    journal.commit(&again).unwrap();
    assert_eq!(journal.reader().body(hash).unwrap().as_deref(), Some(BODY));
}

/// A journal of 40 bodies, of which one page was zeroed.
struct ZeroedPage {
    disk: FaultyDisk,
    bodies: Vec<Vec<u8>>,
    hashes: Vec<ContentHash>,
}

impl ZeroedPage {
    /// Body 7 is in the zeroed page.
    fn new() -> Self {
        const PAGE: usize = 4_096;
        let bodies: Vec<Vec<u8>> =
            (0..40_u8).map(|n| format!("manifest {n:02} ").repeat(40).into_bytes()).collect();
        let hashes: Vec<ContentHash> = bodies.iter().map(|body| ContentHash::of(body)).collect();
        let (disk, mut journal) = fresh();
        let all = Batch {
            bodies: hashes.iter().copied().zip(bodies.iter().cloned()).collect(),
            ..batch(&journal, &["a"])
        };
        journal.commit(&all).unwrap();
        drop(journal);
        let mut image = disk.image();
        let text = b"manifest 07 manifest 07";
        let found: Vec<usize> = (0..image.len()).filter(|at| image[*at..].starts_with(text)).collect();
        found.into_iter().for_each(|at| image[at / PAGE * PAGE..][..PAGE].fill(0));
        Self { disk: FaultyDisk::from_image(image, 1, 42, Faults::default()), bodies, hashes }
    }

    /// Numbers of the bodies that can be read.
    fn readable(&self, journal: &RedbJournal) -> Vec<usize> {
        let reader = journal.reader();
        let is_readable = |n: &usize| reader.body(self.hashes[*n]).is_ok_and(|body| body.is_some());
        (0..40).filter(is_readable).collect()
    }
}

#[test]
fn a_zeroed_page_of_bodies_stops_no_commit() {
    let damaged = ZeroedPage::new();
    let (hashes, bodies) = (&damaged.hashes, &damaged.bodies);
    let mut journal = RedbJournal::open_on(damaged.disk.clone()).unwrap();
    let reader = journal.reader();
    let before = damaged.readable(&journal).len();
    assert!((1..40).contains(&before), "{before}");
    assert!(matches!(reader.body(hashes[7]), Err(Error::Damaged { .. })));
    // every page is written to: bodies are dropped, repaired and added
    let new: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; 300]).collect();
    for (n, body) in new.iter().enumerate() {
        let hash = ContentHash::of(body);
        let mut next = Batch { bodies: vec![(hash, body.clone())], ..batch(&journal, &["b"]) };
        if n == 0 {
            next.bodies.push((hashes[7], bodies[7].clone()));
            next.drop_bodies = vec![hashes[8]];
        }
        journal.commit(&next).unwrap();
    }
    assert_eq!(reader.body(hashes[7]).unwrap().as_deref(), Some(&bodies[7][..]), "repaired");
    assert!(new.iter().all(|body| reader.body(ContentHash::of(body)).unwrap().as_deref() == Some(&body[..])));
    assert_eq!(damaged.readable(&journal).len(), before + 1);
}

#[test]
fn bodies_are_set_aside_once_a_page_of_them_is_found_damaged() {
    for is_read_first in [false, true] {
        let damaged = ZeroedPage::new();
        let mut journal = RedbJournal::open_on(damaged.disk.clone()).unwrap();
        let intact = if is_read_first { damaged.readable(&journal)[0] } else { 7 };
        let again = (damaged.hashes[intact], damaged.bodies[intact].clone());
        journal.commit(&Batch { bodies: vec![again], ..batch(&journal, &["b"]) }).unwrap();
        drop(journal);
        let gate = Gate::new(damaged.disk.backend().unwrap()).0;
        let database = ::redb::Database::builder().create_with_backend(gate).unwrap();
        let read = database.begin_read().unwrap();
        let names: Vec<_> = read.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
        assert!(names.iter().any(|name| name == "body-aside"), "{names:?}");
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

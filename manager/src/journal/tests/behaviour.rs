//! What a caller sees on a disk without faults.

use super::*;
use crate::journal::{Error, Part, ReloadOutcome, Verified};
use std::path::Path;

#[test]
fn commits_survive_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    let mut journal = RedbJournal::init(&path, ID, MADE).unwrap();
    let mut expect = Contents::default();
    for step in 0..5_u8 {
        let mut batch = batch(&journal, &["one", "", "three"]);
        batch.audit = vec![vec![step]; usize::from(step % 3)];
        batch.bodies = vec![(ContentHash(9 << 100 | u128::from(step)), vec![step; 70_000])];
        batch.drop_bodies = vec![ContentHash(9 << 100 | u128::from(step.wrapping_sub(2)))];
        if step == 3 {
            batch.snapshot =
                Some(Snapshot { through: RecordNumber(journal.last().0 + 1), bytes: vec![7; 3_000_000] });
        }
        journal.commit(&batch).unwrap();
        expect = expect.after(&batch);
    }
    let (chain, last) = (journal.chain(), journal.last());
    drop(journal);
    let journal = RedbJournal::open(&path).unwrap();
    let known = (0..5).map(|step| 9 << 100 | step);
    assert_eq!(Contents::of(&journal, known), expect);
    assert_eq!((journal.chain(), journal.last(), journal.leadership()), (chain, last, FIRST));
    assert_eq!(
        (journal.meta().journal, journal.meta().created, journal.identity_changed()),
        (ID, MADE, false)
    );
    let compacted = journal.replay(RecordNumber(3), &mut |_, _| Ok(()));
    assert!(matches!(compacted, Err(Error::Compacted { through: RecordNumber(10), .. })), "{compacted:?}");
}

#[test]
fn a_batch_for_another_state_of_the_journal_is_fenced() {
    let (_, mut journal) = fresh();
    let one = batch(&journal, &["a"]);
    journal.commit(&one).unwrap();
    let stale = [
        one, // the same batch twice
        // an older leadership
        Batch { leadership: Leadership { epoch: 0, id: 9 }, ..Batch::new(FIRST, RecordNumber(1)) },
        // an equal epoch with another id
        Batch { leadership: Leadership { epoch: 1, id: 78 }, ..Batch::new(FIRST, RecordNumber(1)) },
        // a writer that saw a record too many
        Batch { leadership: Leadership { epoch: 2, id: 1 }, ..Batch::new(FIRST, RecordNumber(2)) },
    ];
    for batch in stale {
        assert!(matches!(journal.commit(&batch), Err(Error::Fenced { .. })), "{batch:?}");
        assert!(matches!(
            journal.commit(&Batch::new(FIRST, RecordNumber(1))),
            Err(Error::ReloadRequired { .. })
        ));
        assert!(matches!(
            journal.replay(RecordNumber(0), &mut |_, _| Ok(())),
            Err(Error::ReloadRequired { .. })
        ));
        assert_eq!(journal.reload().unwrap(), ReloadOutcome::Acknowledged);
    }
    let newer =
        Batch { records: vec![b"b".to_vec()], ..Batch::new(Leadership { epoch: 2, id: 5 }, RecordNumber(1)) };
    journal.commit(&newer).unwrap();
    assert_eq!((journal.last(), journal.leadership().epoch), (RecordNumber(2), 2));
}

#[test]
fn a_fenced_journal_writes_nothing_even_while_it_closes() {
    let (disk, mut journal) = fresh();
    journal.commit(&batch(&journal, &["a"])).unwrap();
    let older = Batch { leadership: Leadership { epoch: 0, id: 9 }, ..batch(&journal, &["b"]) };
    assert!(matches!(journal.commit(&older), Err(Error::Fenced { .. })));
    let before = disk.image();
    drop(journal);
    assert!(disk.image() == before, "the file may be another manager's by now");
    assert_eq!(RedbJournal::open_on(disk).unwrap().last(), RecordNumber(1));
}

#[test]
fn record_numbers_skip_upwards_and_never_go_back() {
    let (_, mut journal) = fresh();
    journal.commit(&batch(&journal, &["a"])).unwrap();
    let skip = Batch { first: RecordNumber(500), ..batch(&journal, &["b", "c"]) };
    journal.commit(&skip).unwrap();
    assert_eq!(journal.last(), RecordNumber(501));
    let back = Batch { first: RecordNumber(501), ..batch(&journal, &["d"]) };
    assert!(matches!(journal.commit(&back), Err(Error::Invalid { .. })));
    assert!(!journal.needs_reload(), "nothing was written, so no reload is due");
    assert_eq!(Contents::of(&journal, []).records.keys().copied().collect::<Vec<_>>(), [1, 500, 501]);
}

#[test]
fn batches_that_contradict_themselves_are_refused() {
    let (_, mut journal) = fresh();
    let ahead = Batch {
        snapshot: Some(Snapshot { through: RecordNumber(2), bytes: vec![] }),
        ..batch(&journal, &["a"])
    };
    assert!(matches!(journal.commit(&ahead), Err(Error::Invalid { .. })));
    let end = Batch { first: RecordNumber(u64::MAX), ..batch(&journal, &["a"]) };
    assert!(matches!(journal.commit(&end), Err(Error::Invalid { .. })));
    let huge = Batch { audit: vec![vec![0; crate::journal::VALUE_BYTES_MAX + 1]], ..batch(&journal, &[]) };
    assert!(matches!(journal.commit(&huge), Err(Error::Invalid { .. })));
    let empty_snapshot = Batch {
        snapshot: Some(Snapshot { through: RecordNumber(1), bytes: vec![] }),
        ..batch(&journal, &["a"])
    };
    journal.commit(&empty_snapshot).unwrap();
    let backwards = Batch {
        snapshot: Some(Snapshot { through: RecordNumber(0), bytes: vec![] }),
        ..batch(&journal, &[])
    };
    assert!(matches!(journal.commit(&backwards), Err(Error::Invalid { .. })));
    assert_eq!(Contents::of(&journal, []).snapshot, empty_snapshot.snapshot);
}

#[test]
fn a_body_is_stored_once_and_stays_if_dropped_and_added_together() {
    let (_, mut journal) = fresh();
    let body = b"a long spec".to_vec();
    let hash = ContentHash::of(&body);
    for _ in 0..2 {
        let put =
            Batch { bodies: vec![(hash, body.clone())], drop_bodies: vec![hash], ..batch(&journal, &[]) };
        journal.commit(&put).unwrap();
        assert_eq!(journal.reader().body(hash).unwrap(), Some(body.clone()));
    }
    journal.commit(&Batch { drop_bodies: vec![hash], ..batch(&journal, &[]) }).unwrap();
    assert_eq!(journal.reader().body(hash).unwrap(), None);
}

#[test]
fn a_reader_survives_a_reload_and_a_rejected_entry_ends_a_visit() {
    let (_, mut journal) = fresh();
    let reader = journal.reader();
    assert_eq!(reader.audit_head().unwrap(), None);
    journal
        .commit(&Batch { audit: vec![b"x".to_vec(), b"y".to_vec()], ..batch(&journal, &["a", "b"]) })
        .unwrap();
    assert_eq!(journal.reload().unwrap(), ReloadOutcome::Acknowledged);
    assert_eq!(reader.audit_head().unwrap(), Some((AuditNumber(2), b"y".to_vec())));
    let refused = journal.replay(RecordNumber(0), &mut |_, _| Err("no such kind".into()));
    assert!(matches!(refused, Err(Error::Rejected { number: 1, .. })), "{refused:?}");
    let mut seen = Vec::new();
    for (from, until) in [(2, 3), (3, 2), (3, 9)] {
        let mut keep = |number, line: &[u8]| {
            seen.push((number, line.to_vec()));
            Ok(())
        };
        reader.audit(AuditNumber(from), AuditNumber(until), &mut keep).unwrap();
    }
    assert_eq!(seen, [(AuditNumber(2), b"y".to_vec())]);
}

#[test]
fn a_heartbeat_writes_and_changes_nothing() {
    let (disk, mut journal) = fresh();
    journal.commit(&batch(&journal, &["a"])).unwrap();
    let before = (journal.last(), journal.chain(), journal.leadership());
    journal.heartbeat().unwrap();
    assert_eq!((journal.last(), journal.chain(), journal.leadership()), before);
    disk.fail_syncs(1);
    assert!(matches!(journal.heartbeat(), Err(Error::Io { .. })));
    assert!(matches!(journal.heartbeat(), Err(Error::ReloadRequired { .. })));
    assert_ne!(journal.reload().unwrap(), ReloadOutcome::ForeignWriter);
    assert_eq!((journal.last(), journal.chain(), journal.leadership()), before);
    journal.heartbeat().unwrap();
}

#[test]
fn an_embedded_journal_cannot_be_followed() {
    let (_, journal) = fresh();
    assert!(matches!(journal.follow(RecordNumber(0)), Err(Error::NotFollowable { .. })));
}

#[test]
fn another_writer_that_only_accepts_the_file_is_noticed() {
    let (disk, mut old) = fresh();
    disk.fail_syncs(1);
    assert!(old.heartbeat().is_err());
    assert_ne!(old.reload().unwrap(), ReloadOutcome::ForeignWriter);
    disk.break_lock();
    RedbJournal::open_on(disk.clone()).unwrap().accept_identity().unwrap();
    assert_eq!(old.reload().unwrap(), ReloadOutcome::ForeignWriter);
}

#[test]
fn the_audit_log_is_verified_in_steps() {
    let (_, mut journal) = fresh();
    journal.commit(&Batch { audit: vec![b"ten bytes.".to_vec(); 5], ..batch(&journal, &[]) }).unwrap();
    let reader = journal.reader();
    let step = |from, most| {
        let Verified { bytes, next } = reader.verify(Part::Audit, from, most).unwrap();
        (bytes, next)
    };
    assert_eq!([step(0, 19), step(0, 20), step(0, 21)], [(20, Some(3)), (20, Some(3)), (30, Some(4))]);
    assert_eq!([step(4, 20), step(5, 20), step(6, 20)], [(20, Some(6)), (10, None), (0, None)]);
}

#[test]
fn only_one_manager_opens_a_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.redb");
    let missing = RedbJournal::open(&path).unwrap_err().to_string();
    assert!(missing.contains("if this is the first start, add `--init`;"), "{missing}");
    assert!(missing.contains("`journal restore`") && missing.contains("`--init --recover`"), "{missing}");
    let journal = RedbJournal::init(&path, ID, MADE).unwrap();
    assert!(matches!(RedbJournal::init(&path, ID, MADE), Err(Error::Exists { .. })));
    let locked = RedbJournal::open(&path).unwrap_err();
    assert!(matches!(locked, Error::Locked { .. }), "{locked:?}");
    drop(journal);
    RedbJournal::open(&path).unwrap();
    let mut left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["journal.redb", "journal.reserve"], "no draft is left behind");
}

#[test]
fn a_copy_is_distinguished_from_the_original() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("journal.redb"), directory.path().join("copy.redb"));
    drop(RedbJournal::init(&path, ID, MADE).unwrap());
    std::fs::copy(&path, &copy).unwrap();
    let moved = directory.path().join("moved.redb");
    std::fs::rename(&path, &moved).unwrap();
    assert!(!RedbJournal::open(&moved).unwrap().identity_changed(), "a renamed file is the same one");
    let mut journal = RedbJournal::open(&copy).unwrap();
    assert!(journal.identity_changed());
    journal.accept_identity().unwrap();
    assert!(!journal.identity_changed());
    drop(journal);
    assert!(!RedbJournal::open(&copy).unwrap().identity_changed());
}

#[test]
fn a_removed_or_replaced_file_stops_its_manager() {
    fn refuses(path: &Path, take_away: impl FnOnce(&Path)) {
        let mut journal = RedbJournal::init(path, ID, MADE).unwrap();
        journal.heartbeat().unwrap();
        take_away(path);
        assert!(matches!(journal.heartbeat(), Err(Error::Replaced { .. })));
        assert!(matches!(journal.commit(&batch(&journal, &["a"])), Err(Error::ReloadRequired { .. })));
        assert!(journal.reload().is_err());
    }
    let directory = tempfile::tempdir().unwrap();
    refuses(&directory.path().join("deleted.redb"), |path| std::fs::remove_file(path).unwrap());
    refuses(&directory.path().join("replaced.redb"), |path| {
        let other = path.with_file_name("other.redb");
        drop(RedbJournal::init(&other, JournalId(5), MADE).unwrap());
        std::fs::rename(other, path).unwrap();
    });
}

#[test]
fn a_volume_attached_elsewhere_stops_its_old_manager() {
    let (disk, mut old) = fresh();
    old.commit(&batch(&old, &["a"])).unwrap();
    assert!(matches!(RedbJournal::open_on(disk.clone()), Err(Error::Locked { .. })));
    let mut new = RedbJournal::open_on(disk.attach_elsewhere()).unwrap();
    let lead = Batch { leadership: Leadership { epoch: 2, id: 8 }, ..batch(&new, &["b"]) };
    new.commit(&lead).unwrap();
    assert!(old.heartbeat().is_err());
    assert!(old.commit(&batch(&old, &["c"])).is_err());
    assert!(old.reload().is_err());
    assert_eq!(Contents::of(&new, []).records.len(), 2);
}

#[test]
fn a_reload_reports_a_foreign_writer() {
    let (disk, mut old) = fresh();
    old.commit(&batch(&old, &["a"])).unwrap();
    disk.fail_syncs(1);
    assert!(old.commit(&batch(&old, &["b"])).is_err());
    disk.break_lock();
    let mut new = RedbJournal::open_on(disk.clone()).unwrap();
    new.heartbeat().unwrap();
    drop(new);
    assert_eq!(old.reload().unwrap(), ReloadOutcome::ForeignWriter);
    assert_eq!(
        old.reload().unwrap(),
        ReloadOutcome::Acknowledged,
        "reported once; afterwards it is what this object knows"
    );
}

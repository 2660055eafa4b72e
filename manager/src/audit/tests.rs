//! Rotation, export, retention and proof, with a real journal on a disk that fails and files in a directory.

mod files;
mod scrub;

use super::Error;
use super::directory::{AuditDirectory, SegmentFile};
use super::export::{Exporter, Failed, Hook};
use super::keeper::{Keeper, KeeperStep, Retention};
use super::key::{PublicKey, SigningKey};
use super::proof::{self, ChainProof, Proved};
use super::scrub::{ScrubStep, SegmentScrub};
use super::walk::Walk;
use crate::journal::faulty::{Faults, FaultyDisk};
use crate::journal::{self, AuditCut, Batch, Journal as _, RedbJournal};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::audit::{Action, Broken, Entry, Head, Line};
use meridian_shared::ids::{JournalId, Leadership};
use meridian_shared::time::Wall;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const ID: JournalId = JournalId(1);
const NOW: Wall = Wall(1_700_000_000_000);
/// Three or four lines.
const SEGMENT_BYTES: u64 = 1_000;
const ALL: Retention = Retention { segment_bytes: SEGMENT_BYTES, segments_max: None, bytes_max: None };

/// A manager's audit log.
struct Log {
    dir: tempfile::TempDir,
    directory: AuditDirectory,
    key: Arc<SigningKey>,
    disk: FaultyDisk,
    journal: RedbJournal,
    head: Head,
    retention: Retention,
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(1, 1, Faults::default());
        let journal = RedbJournal::init_on(disk.clone(), ID, Wall(0)).unwrap();
        Self {
            directory: AuditDirectory::new(&dir.path().join("audit")),
            key: Arc::new(SigningKey::load_or_create(&dir.path().join("identity")).unwrap()),
            dir,
            disk,
            journal,
            head: Head::default(),
            retention: ALL,
        }
    }

    /// A log with these lines, rotated.
    fn with(lines: u64) -> Self {
        let mut log = Self::new();
        log.add(lines, "grant");
        log.keep().unwrap();
        log
    }

    fn batch(&self) -> Batch {
        Batch::new(Leadership { epoch: 1, id: 1 }, self.journal.last())
    }

    fn add(&mut self, lines: u64, what: &str) {
        let mut batch = self.batch();
        let mut head = self.head.clone();
        for _ in 0..lines {
            let entry = Entry::new(Action::Grant, format!("{what} {}", head.lines));
            let line = Line::after(&head, NOW, Actor::System, entry);
            head = Head { lines: line.number, hash: line.hash.clone() };
            batch.audit.push(serde_json::to_vec(&line).unwrap());
        }
        self.journal.commit(&batch).unwrap();
        self.head = head;
    }

    /// Does all work that is due, as after a start. Returns the number of segments that were finished.
    fn keep(&mut self) -> Result<u64, Error> {
        let (directory, key) = (self.directory.clone(), Arc::clone(&self.key));
        let mut keeper = Keeper::new(directory, key, (self.journal.reader(), ID), self.retention)?;
        let mut sealed = 0;
        loop {
            let mut cut = |cut: AuditCut| {
                let batch = Batch { audit_cut: Some(cut), ..self.batch() };
                Ok(self.journal.commit(&batch)?)
            };
            match keeper.step(NOW, &mut cut)? {
                KeeperStep::Sealed => sealed += 1,
                KeeperStep::Worked => {}
                KeeperStep::Idle => return Ok(sealed),
            }
        }
    }

    fn segments(&self) -> Vec<SegmentFile> {
        self.directory.segments().unwrap()
    }

    fn cut(&self) -> AuditCut {
        self.journal.reader().audit_cut().unwrap()
    }

    fn prove(&self) -> Result<Proved, proof::Error> {
        let mut proof = ChainProof::new(None).trusting(vec![self.key.public()]);
        let reader = self.journal.reader();
        let mut result = Ok(());
        let walk = Walk { directory: &self.directory, journal: &*reader };
        walk.all(&mut |piece| {
            result = add(&mut proof, &piece);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
        result.and_then(|()| proof.finish())
    }

    /// Numbers of the lines from `from` on.
    fn numbers(&self, from: u64) -> Vec<u64> {
        let reader = self.journal.reader();
        let mut numbers = Vec::new();
        let walk = Walk { directory: &self.directory, journal: &*reader };
        walk.lines(from, &mut |piece| {
            let lines = piece.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            numbers.extend(lines.map(|line| serde_json::from_slice::<Line>(line).unwrap().number));
            ControlFlow::Continue(())
        })
        .unwrap();
        numbers
    }
}

fn add(proof: &mut ChainProof, text: &[u8]) -> Result<(), proof::Error> {
    text.split(|byte| *byte == b'\n').try_for_each(|line| proof.add_line(line))
}

/// Verifies a directory as an auditor does, without the manager.
fn prove_exported(directory: &Path, key: PublicKey) -> Result<Proved, proof::Error> {
    let mut proof = ChainProof::new(None).trusting(vec![key]);
    for segment in AuditDirectory::new(directory).segments().unwrap() {
        add(&mut proof, &fs::read(&segment.path).unwrap())?;
        proof.end_of_segment(segment.number)?;
    }
    proof.finish()
}

#[test]
fn old_lines_become_segments_and_every_line_is_read_once() {
    let mut log = Log::with(40);
    let (cut, segments) = (log.cut(), log.segments());
    assert!(cut.segments >= 8 && cut.segments == segments.len() as u64, "{cut:?}");
    assert!(cut.first.0 == cut.through.0 + 1 && cut.through.0 < 40, "{cut:?}");
    for segment in &segments {
        let bytes = segment.bytes().unwrap();
        assert!(bytes > SEGMENT_BYTES && bytes < 2 * SEGMENT_BYTES + 1_000, "{bytes}");
    }
    let proved = log.prove().unwrap();
    assert_eq!((proved.head.as_ref(), proved.segments, proved.from), (Some(&log.head), cut.segments, None));
    for from in 0..42 {
        assert_eq!(log.numbers(from), (from.max(1)..=40).collect::<Vec<_>>(), "{from}");
    }
    assert_eq!(log.keep().unwrap(), 0, "nothing more is due");
    log.add(10, "grant");
    assert!(log.keep().unwrap() >= 2);
    assert_eq!(log.prove().unwrap().head.unwrap().lines, 50);
    assert_eq!(log.numbers(1), (1..=50).collect::<Vec<_>>());
}

/// Numbers of the segments that a whole pass finds damaged.
fn scrubbed(scrub: &mut SegmentScrub, only_damaged: bool) -> Vec<u64> {
    scrub.begin(only_damaged).unwrap();
    while scrub.step().unwrap() != ScrubStep::Done {}
    scrub.damaged().keys().copied().collect()
}

#[test]
fn the_scrub_finds_damaged_and_missing_segments_until_they_are_replaced() {
    let mut log = Log::with(40);
    let mut scrub = SegmentScrub::new(log.directory.clone(), log.key.public(), log.journal.reader());
    assert!(scrubbed(&mut scrub, false).is_empty());
    let segments = log.segments();
    let original: Vec<Vec<u8>> = segments.iter().map(|segment| fs::read(&segment.path).unwrap()).collect();
    edit(&segments[1], |text| text.replacen("grant", "groom", 1));
    edit(&segments[2], |text| without_last_line(&text));
    edit(&segments[3], |text| text.replace("\"at\":1700000000000,\"key\"", "\"at\":1700000000001,\"key\""));
    fs::remove_file(&segments[4].path).unwrap();
    assert_eq!(scrubbed(&mut scrub, false), [2, 3, 4, 5]);
    fs::write(&segments[1].path, &original[1]).unwrap();
    fs::write(&segments[4].path, &original[4]).unwrap();
    assert_eq!(scrubbed(&mut scrub, true), [3, 4], "damaged ones are read again");
    // segments that were removed on purpose are not missing
    log.directory.set_exported(5).unwrap();
    log.retention.segments_max = Some(segments.len() as u64 - 5);
    fs::write(&segments[2].path, &original[2]).unwrap();
    fs::write(&segments[3].path, &original[3]).unwrap();
    log.keep().unwrap();
    assert!(scrubbed(&mut scrub, false).is_empty());
}

#[test]
fn what_is_kept_is_read_and_what_was_removed_is_named() {
    let mut log = Log::with(40);
    assert_eq!(walk(&log, |walk| walk.first_kept()).unwrap(), 1);
    let newest = log.cut().segments;
    log.directory.set_exported(newest).unwrap();
    log.retention.segments_max = Some(1);
    log.keep().unwrap();
    assert_eq!(log.segments().len(), 1);
    let kept = walk(&log, |walk| walk.first_kept()).unwrap();
    assert!(kept > 1 && kept == log.segments()[0].seal().unwrap().seal.first, "{kept}");
    assert_eq!(log.numbers(kept), (kept..=40).collect::<Vec<_>>());
    let before = walk(&log, |walk| walk.lines(1, &mut |_| ControlFlow::Continue(()))).unwrap_err();
    assert!(before.to_string().contains(&format!("ask for lines from {kept} on")), "{before}");
}

fn walk<T>(log: &Log, read: impl FnOnce(Walk<'_>) -> T) -> T {
    let reader = log.journal.reader();
    read(Walk { directory: &log.directory, journal: &*reader })
}

/// Changes a segment's text.
fn edit(segment: &SegmentFile, change: impl Fn(String) -> String) {
    fs::write(&segment.path, change(fs::read_to_string(&segment.path).unwrap())).unwrap();
}

fn without_last_line(text: &str) -> String {
    text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n"
}

#[test]
fn a_damaged_segment_is_found_and_named() {
    let log = Log::with(40);
    let segments = log.segments();
    let (second, third, last) = (&segments[1], &segments[2], segments.last().unwrap());
    let original = segments.iter().map(|segment| fs::read(&segment.path).unwrap()).collect::<Vec<_>>();
    let restore =
        || segments.iter().zip(&original).for_each(|(file, text)| fs::write(&file.path, text).unwrap());
    let broken = |what: &str| {
        let found = log.prove().expect_err(what);
        restore();
        assert!(log.prove().is_ok());
        found
    };
    fs::remove_file(&third.path).unwrap();
    assert_eq!(broken("missing"), proof::Error::SegmentMissing { number: 3, found: 4, after: 2 });
    let end = last.seal().unwrap().seal;
    let before = segments.len() as u64 - 1;
    fs::remove_file(&last.path).unwrap();
    assert_eq!(
        broken("the last is missing"),
        proof::Error::TailMissing {
            number: before + 1,
            after: before,
            last: end.first - 1,
            found: end.last + 1
        }
    );
    fs::write(&second.path, &original[2]).unwrap();
    fs::write(&third.path, &original[1]).unwrap();
    assert_eq!(broken("reordered"), proof::Error::SegmentMissing { number: 2, found: 3, after: 1 });
    fs::write(&third.path, &original[1]).unwrap();
    assert_eq!(broken("repeated"), proof::Error::SegmentOrder { found: 2, after: 2 });
    edit(second, |text| without_last_line(&text));
    assert_eq!(broken("truncated"), proof::Error::Unsealed(2));
    edit(last, |text| without_last_line(&text));
    assert_eq!(broken("the last is truncated"), proof::Error::Unsealed(before + 1));
    let first = second.seal().unwrap().seal.first;
    edit(second, |text| text.replace(&format!("grant {}", first - 1), "grant 999"));
    assert_eq!(
        broken("edited"),
        proof::Error::InSegment { segment: 2, error: Box::new(Broken::Changed(first).into()) }
    );
    edit(second, |text| text.replacen("\"entry\":", "\"entry\": ", 1));
    assert_eq!(broken("reformatted"), proof::Error::Seal { number: 2, what: "bytes" });
    edit(second, |text| text.replace("\"at\":1700000000000,\"key\"", "\"at\":1700000000001,\"key\""));
    assert_eq!(broken("resealed"), proof::Error::Signature { number: 2, by: "a key that is trusted" });
}

#[test]
fn only_a_trusted_key_signs() {
    let (log, other) = (Log::with(10), Log::new());
    let audit = log.directory.path();
    assert!(prove_exported(audit, log.key.public()).unwrap().segments >= 2);
    let found = prove_exported(audit, other.key.public());
    assert_eq!(found, Err(proof::Error::Signature { number: 1, by: "a key that is trusted" }));
}

#[test]
fn no_crash_in_a_rotation_loses_or_repeats_a_line() {
    let (mut crashes, mut left_published) = (0, 0);
    for operations in 0..400 {
        let mut log = Log::with(3);
        log.add(17, "grant");
        log.disk.power_off_after(operations);
        let whole = log.keep().is_ok();
        log.disk = log.disk.crash();
        // half a draft may be on the disk
        fs::write(log.directory.path().join(".draft"), "{\"segment\":").unwrap();
        log.journal = RedbJournal::open_on(log.disk.clone()).unwrap();
        left_published += u32::from(log.segments().len() as u64 > log.cut().segments);
        assert_eq!(log.prove().unwrap().head.as_ref(), Some(&log.head), "{operations}: before the rest");
        assert_eq!(log.numbers(1), (1..=20).collect::<Vec<_>>(), "{operations}");
        log.keep().unwrap();
        let proved = log.prove().unwrap();
        assert_eq!(proved.head.as_ref(), Some(&log.head), "{operations}");
        assert_eq!((log.segments().len() as u64, log.cut().segments), (proved.segments, proved.segments));
        assert_eq!(log.numbers(1), (1..=20).collect::<Vec<_>>(), "{operations}");
        assert!(!log.directory.path().join("set-aside").exists(), "{operations}");
        if whole {
            break;
        }
        crashes += 1;
    }
    assert!(crashes >= 20 && left_published >= 5, "{crashes} crashes, {left_published}");
}

#[test]
fn segments_that_a_restored_journal_lacks_are_set_aside() {
    let mut log = Log::with(20);
    let (image, head, backed_up) = (log.disk.image(), log.head.clone(), log.cut().segments);
    log.add(20, "lost");
    log.keep().unwrap();
    log.directory.set_exported(log.cut().segments).unwrap();
    log.retention.segments_max = Some(1);
    log.keep().unwrap();
    assert!(log.directory.removed().unwrap().unwrap().removed.through > backed_up);
    log.retention = ALL;
    // the journal of the backup, in the same directory
    log.disk = FaultyDisk::from_image(image, 2, 2, Faults::default());
    log.journal = RedbJournal::open_on(log.disk.clone()).unwrap();
    log.head = head;
    log.keep().unwrap();
    assert_eq!(log.segments().len(), 0, "the backup's own segments were removed");
    assert_eq!(fs::read_dir(log.directory.path().join("set-aside")).unwrap().count(), 1);
    assert_eq!(log.directory.exported().unwrap(), backed_up);
    log.add(20, "again");
    log.keep().unwrap();
    let proved = log.prove().unwrap();
    assert_eq!((proved.removed, proved.head.as_ref()), (backed_up, Some(&log.head)));
    assert!(proved.segments >= 3, "{proved:?}");
}

#[test]
fn only_exported_segments_are_removed() {
    let mut log = Log::with(40);
    let (segments, stop) = (log.cut().segments, CancellationToken::new());
    let target = log.dir.path().join("archive");
    let mut exporter = Exporter::new(log.directory.clone(), Hook::new(target.clone()));
    log.retention.segments_max = Some(2);
    for _ in 0..3 {
        assert!(matches!(exporter.step(segments, &stop), Err(Failed::Run { .. })), "there is no directory");
        log.keep().unwrap();
    }
    assert!(exporter.pause() > std::time::Duration::from_secs(2), "{:?}", exporter.pause());
    assert_eq!((log.segments().len() as u64, exporter.waiting(segments).unwrap()), (segments, segments));
    fs::create_dir(&target).unwrap();
    for _ in 0..3 {
        assert!(exporter.step(segments, &stop).unwrap());
    }
    log.keep().unwrap();
    assert_eq!(log.segments()[0].number, 4, "three were exported");
    while exporter.step(segments, &stop).unwrap() {}
    log.keep().unwrap();
    assert_eq!(log.segments().len(), 2);
    let proved = log.prove().unwrap();
    assert_eq!((proved.removed, proved.segments), (segments - 2, 2));
    assert_eq!(proved.head.as_ref(), Some(&log.head));
    // an auditor has everything that the manager removed
    let exported = prove_exported(&target, log.key.public()).unwrap();
    assert_eq!((exported.segments, exported.from), (segments, None));
    assert_eq!(exported.head.unwrap().lines, log.cut().through.0);
    let read = log.journal.reader();
    let walk = Walk { directory: &log.directory, journal: &*read };
    let missing = walk.lines(1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(missing, Error::Removed { .. }), "{missing}");
}

#[test]
fn a_removed_segment_is_excused_only_by_a_signed_statement() {
    let mut log = Log::with(40);
    log.directory.set_exported(log.cut().segments).unwrap();
    log.retention.bytes_max = Some(5_000);
    log.keep().unwrap();
    assert!(log.prove().unwrap().removed > 0);
    let oldest = log.segments().remove(0);
    fs::remove_file(&oldest.path).unwrap();
    let after = oldest.number - 1;
    assert_eq!(
        log.prove(),
        Err(proof::Error::SegmentMissing { number: oldest.number, found: oldest.number + 1, after })
    );
    let mut statement = log.directory.removed().unwrap().unwrap();
    statement.removed.through = oldest.number;
    log.directory.set_removed(&statement).unwrap();
    assert_eq!(log.prove(), Err(proof::Error::RemovedSignature { by: "a key that is trusted" }));
    log.directory.forget_removed().unwrap();
    assert!(matches!(log.prove(), Err(proof::Error::SegmentPart { .. })));
}

#[test]
fn a_program_that_fails_is_run_again() {
    let log = Log::with(10);
    let (segments, stop) = (log.cut().segments, CancellationToken::new());
    let mut failing = Exporter::new(log.directory.clone(), Hook::new("/bin/false".into()));
    assert!(matches!(failing.step(segments, &stop), Err(Failed::Program { .. })));
    assert_eq!(log.directory.exported().unwrap(), 0);
    let mut working = Exporter::new(log.directory.clone(), Hook::new("/bin/true".into()));
    while working.step(segments, &stop).unwrap() {}
    assert_eq!(log.directory.exported().unwrap(), segments);
}

#[test]
fn a_cut_that_the_engine_refuses_is_made_later() {
    let mut log = Log::with(3);
    log.add(10, "grant");
    let mut keeper =
        Keeper::new(log.directory.clone(), Arc::clone(&log.key), (log.journal.reader(), ID), ALL).unwrap();
    assert_eq!(
        keeper.step(NOW, &mut |_| Err(Error::NotCut)).unwrap(),
        KeeperStep::Worked,
        "the file is written"
    );
    assert!(matches!(keeper.step(NOW, &mut |_| Err(Error::NotCut)), Err(Error::NotCut)));
    assert_eq!((log.segments().len(), log.cut().segments), (1, 0));
    assert_eq!(log.prove().unwrap().head.as_ref(), Some(&log.head));
    assert!(log.keep().unwrap() >= 1);
    assert_eq!(log.prove().unwrap().head.as_ref(), Some(&log.head));
}

#[test]
fn a_cut_that_would_lose_lines_is_refused() {
    let mut log = Log::with(10);
    let cut = log.cut();
    let (mut all, mut back, mut skipped) = (cut, cut, cut);
    (all.segments, all.through.0) = (cut.segments + 1, 10);
    back.first.0 -= 1;
    skipped.first.0 = cut.through.0 + 2;
    for wrong in [all, back, skipped] {
        let batch = Batch { audit_cut: Some(wrong), ..log.batch() };
        assert!(matches!(log.journal.commit(&batch), Err(journal::Error::Invalid { .. })), "{wrong:?}");
    }
    assert!(log.prove().is_ok());
}

//! Segments as files, and the hook that gets them.

use super::*;
use crate::audit::document::{Statement as _, hex};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

#[test]
fn a_missing_directory_has_no_segments_and_a_file_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(AuditDirectory::new(&dir.path().join("audit")).segments().unwrap(), []);
    fs::write(dir.path().join("file"), "text").unwrap();
    assert!(AuditDirectory::new(&dir.path().join("file")).segments().is_err());
    for name in ["audit-0000000001-9f2c1a07.json", "audit-0000000002-9f2c1a.jsonl", "audit-x-9f2c1a07.jsonl"]
    {
        fs::write(dir.path().join(name), "text").unwrap();
    }
    assert_eq!(AuditDirectory::new(dir.path()).segments().unwrap(), [], "other files aren't segments");
}

#[test]
fn each_seal_has_the_hash_of_the_seal_before() {
    let log = Log::with(40);
    let seals = log.segments().into_iter().map(|segment| segment.seal().unwrap().seal);
    let mut previous = hex(&[0; 32]);
    for seal in seals {
        assert_eq!(seal.previous, previous);
        previous = hex(&Sha256::digest(seal.bytes()));
    }
    assert_eq!(hex(&log.cut().seal), previous);
}

#[test]
fn a_segment_that_was_changed_before_it_was_counted_is_set_aside() {
    let mut log = Log::new();
    log.add(10, "grant");
    let (directory, key) = (log.directory.clone(), Arc::clone(&log.key));
    let mut keeper = Keeper::new(directory, key, (log.journal.reader(), ID), ALL).unwrap();
    assert_eq!(keeper.step(NOW, &mut |_| Err(Error::NotCut)).unwrap(), KeeperStep::Worked);
    assert_eq!((log.segments().len(), log.cut().segments), (1, 0), "a crash comes between file and cut");
    edit(&log.segments()[0], |text| text.replacen("grant", "groom", 1));
    log.keep().unwrap();
    assert_eq!(fs::read_dir(log.directory.path().join("set-aside")).unwrap().count(), 1);
    assert_eq!(log.prove().unwrap().head.as_ref(), Some(&log.head));
}

#[test]
fn a_segment_is_copied_again_only_over_its_own_copy() {
    let log = Log::with(10);
    let (segments, stop) = (log.cut().segments, CancellationToken::new());
    let target = log.dir.path().join("archive");
    fs::create_dir(&target).unwrap();
    let export = || {
        log.directory.set_exported(0).unwrap();
        Exporter::new(log.directory.clone(), Hook::new(target.clone())).step(segments, &stop)
    };
    assert!(export().unwrap());
    assert!(export().unwrap(), "as after a crash that lost the note");
    let copy = target.join(log.segments()[0].path.file_name().unwrap());
    fs::write(&copy, "another log").unwrap();
    assert!(matches!(export(), Err(Failed::Exists(path)) if path == copy));
    assert_eq!(fs::read(&copy).unwrap(), b"another log");
}

#[test]
fn a_program_ends_with_the_manager() {
    let log = Log::with(10);
    let (segments, stop) = (log.cut().segments, CancellationToken::new());
    // Reads of a pipe in place of the segment never end.
    let pipe = log.segments()[0].path.clone();
    fs::remove_file(&pipe).unwrap();
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let open = || File::options().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&pipe);
    let mut exporter = Exporter::new(log.directory.clone(), Hook::new("/bin/cat".into()));
    let (done, mut writer) = std::thread::scope(|scope| {
        let running = scope.spawn(|| exporter.step(segments, &stop));
        let begun = Instant::now();
        let writer = loop {
            match open() {
                Ok(writer) => break writer,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "nobody reads: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stop.cancel();
        (running.join().unwrap(), writer)
    });
    assert!(matches!(done, Err(Failed::Stopping)), "{done:?}");
    assert_eq!(writer.write(b"text").unwrap_err().kind(), ErrorKind::BrokenPipe, "the program has ended");
    assert_eq!(log.directory.exported().unwrap(), 0);
}

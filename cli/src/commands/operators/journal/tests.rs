use super::*;
use meridian_manager::journal::{Batch, RedbJournal};
use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// An open journal with two records, a snapshot through the first, and one audit line.
fn open_journal(path: &Path) -> RedbJournal {
    let mut journal = RedbJournal::init(path, JournalId(5), Wall(1_795_255_200_000)).unwrap();
    let mut batch = Batch::new(Leadership { epoch: 1, id: 7 }, journal.last());
    batch.records = vec![b"{\"submitted\":1}".to_vec(), vec![0xff, 0x00]];
    batch.audit = vec![b"{\"number\":1}".to_vec()];
    batch.snapshot = Some(Snapshot { through: RecordNumber(1), bytes: vec![1, 2, 3] });
    journal.commit(&batch).unwrap();
    journal
}

fn journal_in(directory: &Path) -> PathBuf {
    let path = directory.join("journal");
    drop(open_journal(&path));
    path
}

#[test]
fn inspect_describes_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let found = inspect(&journal_in(directory.path()), true).unwrap();
    assert_eq!((&found["lastRecord"], &found["leadership"]), (&json!(2), &json!("1-7")));
    assert_eq!(found["created"], "2026-11-21T10:00:00Z");
    assert_eq!(found["snapshot"], json!({"through": 1, "bytes": 3}));
    assert_eq!(found["records"], json!([{"number": 2, "record": "2 bytes"}]));
    assert_eq!(found["auditHead"], json!({"number": 1, "line": {"number": 1}}));
}

/// A killed process leaves a store that must be repaired before it can be read.
#[test]
fn inspect_reads_a_killed_managers_journal_without_writing() {
    let directory = tempfile::tempdir().unwrap();
    let (path, killed) = (directory.path().join("journal"), directory.path().join("killed"));
    let manager = open_journal(&path);
    std::fs::copy(&path, &killed).unwrap();
    drop(manager);
    let before = std::fs::read(&killed).unwrap();
    std::fs::set_permissions(&killed, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(inspect(&killed, true).unwrap()["records"], inspect(&path, true).unwrap()["records"]);
    assert!(std::fs::read(&killed).unwrap() == before && !killed.with_extension("reserve").exists());
}

#[test]
fn a_backup_is_complete_and_known_to_be_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(directory.path());
    let backup = directory.path().join("backup");
    assert_eq!(copy(&path, &backup).unwrap()["lastRecord"], json!(2));
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, FILE_MODE);
    let found = inspect(&backup, false).unwrap();
    assert_eq!(found["inAnotherFileThanItWasMade"], json!(true), "a manager must notice that it is a copy");
}

#[test]
fn a_refused_backup_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(directory.path());
    let (backup, other) = (directory.path().join("backup"), directory.path().join("other"));
    copy(&path, &backup).unwrap();
    let again = copy(&path, &backup).unwrap_err().to_string();
    assert!(again.contains("exists already"), "{again}");
    {
        let _manager = RedbJournal::open(&path).unwrap();
        let busy = copy(&path, &other).unwrap_err().to_string();
        assert_eq!(busy, inspect(&path, false).unwrap_err().to_string());
    }
    let torn = directory.path().join("torn");
    std::fs::write(&torn, &std::fs::read(&backup).unwrap()[..1_000]).unwrap();
    assert!(copy(&torn, &other).is_err() && !other.exists());
    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let partial: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert_eq!(partial, Vec::<std::ffi::OsString>::new());
}

#[test]
fn what_is_not_a_journal_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&pipe, Path::new("/dev/zero"), directory.path(), &directory.path().join("absent")] {
        let error = inspect(path, false).unwrap_err().to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
    }
}

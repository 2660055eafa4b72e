//! `journal`: what is in a journal's file, and what a person must look at or decide after one was restored or lost.

use crate::args::{Format, JournalCommand};
use crate::client::Client;
use crate::error::Error;
use crate::out;
use crate::printable;
use crate::session::Session;
use jiff::Timestamp;
use meridian_manager::journal::{Journal, Look, Snapshot};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::{Config, World};
use meridian_shared::mac::ReceiptKey;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A journal holds every job's spec.
const FILE_MODE: u32 = 0o600;

pub(super) async fn run(session: &mut Session, command: JournalCommand) -> Result<(), Error> {
    match command {
        JournalCommand::Inspect { path, records } => {
            let found = inspect(&path, records).map_err(|error| Error::Refused(error.to_string()))?;
            show(session, &found)
        }
        JournalCommand::Backup { path, to } => {
            let found = copy(&path, &to)?;
            show(session, &found)
        }
        JournalCommand::Restore { backup, to } => {
            let found = copy(&backup, &to)?;
            session.out.note(
                "start the manager: it recovers, and `meridian journal recovery` says what it waits for",
            );
            show(session, &found)
        }
        JournalCommand::Recovery => {
            let answer = session.client()?.recovery().await?;
            show(session, &answer)
        }
        JournalCommand::Confirm { yes: false } => {
            let risk = "if another copy of the journal still runs, workloads may run twice, and rules that were tightened since may be forgotten";
            Err(Error::Refused(format!(
                "nothing was done: {risk}; look at `meridian journal recovery`, then add `--yes`"
            )))
        }
        JournalCommand::Confirm { yes: true } => {
            let answer = confirm(&session.client()?).await?;
            show(session, &answer)
        }
    }
}

/// Both that a person can vouch for: that nobody else writes the journal, and that its rules are today's.
async fn confirm(client: &Client) -> Result<Value, Error> {
    let before = client.recovery().await?;
    let (open, doubted) = (before["open"] == json!(true), !before["rulesDoubted"].is_null());
    if open {
        client.confirm_recovery().await?;
    }
    if doubted {
        client.confirm_rules().await?;
    }
    if open || doubted {
        Ok(client.recovery().await?)
    } else {
        Err(Error::Refused(
            "recovery isn't open and no rules are in doubt: there is nothing to confirm".to_owned(),
        ))
    }
}

/// Copies a journal that no manager holds, and says what is in the copy. Nothing is overwritten, and `to` appears only once all
/// of it is durable and was read back.
fn copy(from: &Path, to: &Path) -> Result<Value, Error> {
    let failed = |what: &str, place: &Path, why: &io::Error| {
        Error::Refused(format!("can't {what} `{}`: {why}", place.display()))
    };
    if to.symlink_metadata().is_ok() {
        return Err(Error::Refused(format!(
            "`{}` is there already: move it away first, nothing is overwritten",
            to.display()
        )));
    }
    // Whoever holds the journal would go on writing while it is copied; a torn one is noticed here.
    let held = Look::at(from).map_err(|error| Error::Refused(error.to_string()))?;
    let (Some(directory), Some(name)) = (to.parent(), to.file_name()) else {
        return Err(Error::Refused(format!("`{}` is no file's name", to.display())));
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let partial = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = write_copy(from, &partial).map_err(|why| failed("write", &partial, &why));
    let checked =
        written.and_then(|()| inspect(&partial, false).map_err(|error| Error::Refused(error.to_string())));
    // A link is refused where a name is taken; a rename would take it over.
    let placed = checked.and_then(|found| {
        std::fs::hard_link(&partial, to).map(|()| found).map_err(|why| failed("make", to, &why))
    });
    let removed = std::fs::remove_file(&partial);
    drop(held);
    let found = placed?;
    removed.and_then(|()| File::open(directory)?.sync_all()).map_err(|why| failed("keep", to, &why))?;
    Ok(found)
}

fn write_copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(to)?;
    io::copy(&mut File::open(from)?, &mut copy)?;
    copy.sync_all()
}

/// What the journal at `path` says of itself. Fails while a manager has it open.
fn inspect(path: &Path, records: bool) -> Result<Value, meridian_manager::journal::Error> {
    let journal = Look::at(path)?;
    let snapshot = journal.snapshot()?;
    let after = snapshot.as_ref().map(|snapshot| snapshot.through).unwrap_or_default();
    let (mut count, mut bytes, mut shown) = (0_u64, 0_u64, Vec::new());
    let mut world = if records { world_of(&journal, snapshot.as_ref()) } else { None };
    journal.replay(after, &mut |number, record| {
        count += 1;
        bytes += record.len() as u64;
        if records {
            // the engine's encoding is its own; what is no JSON is told by its size
            let content =
                serde_json::from_slice(record).unwrap_or_else(|_| json!(format!("{} bytes", record.len())));
            let mut entry = json!({"number": number.0, "record": content});
            // An answer names the question, and the question whom it went to.
            let known = serde_json::from_slice::<Record>(record).ok();
            if let Some((world, record)) = world.as_mut().zip(known) {
                if let Some(by) = world.actor_of(&record) {
                    entry["by"] = json!(by.0);
                }
                world.absorb(number, &record);
            }
            shown.push(entry);
        }
        Ok(())
    })?;
    let head = journal.reader().audit_head()?.map(|(number, line)| {
        let line = serde_json::from_slice(&line).unwrap_or_else(|_| json!(format!("{} bytes", line.len())));
        json!({"number": number.0, "line": line})
    });
    let meta = journal.meta();
    let mut found = json!({
        "journal": meta.journal.to_string(),
        "created": Timestamp::from_millisecond(meta.created.0).map(|at| at.to_string()).unwrap_or_default(),
        "inAnotherFileThanItWasMade": journal.identity_changed(),
        "leadership": journal.leadership().to_string(),
        "lastRecord": journal.last().0,
        "chain": format!("{:016x}", journal.chain()),
        "snapshot": snapshot.map(|snapshot| json!({"through": snapshot.through.0, "bytes": snapshot.bytes.len()})),
        "recordsAfterSnapshot": {"count": count, "bytes": bytes},
        "auditHead": head,
    });
    if records {
        found["records"] = shown.into();
    }
    Ok(found)
}

/// The world as of a journal's snapshot; only its facts are asked for, so no key is needed.
fn world_of(journal: &Look, snapshot: Option<&Snapshot>) -> Option<World> {
    let config = Config::new(ReceiptKey([0; 32]));
    match snapshot {
        Some(snapshot) => World::restore(&snapshot.bytes, config).ok(),
        None => Some(World::empty(journal.meta().journal, config)),
    }
}

fn show(session: &mut Session, answer: &Value) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(answer),
        Some(Format::Yaml | Format::Wide | Format::Name | Format::Text) | None => {
            let text = out::yaml(answer)?;
            session.out.raw(printable::lines(&text).as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager::journal::{Batch, RedbJournal};
    use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
    use meridian_shared::time::Wall;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_journal_tells_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, killed) = (directory.path().join("journal"), directory.path().join("killed"));
        let leadership = Leadership { epoch: 1, id: 7 };
        {
            let mut journal = RedbJournal::init(&path, JournalId(5), Wall(1_795_255_200_000)).unwrap();
            let mut batch = Batch::new(leadership, journal.last());
            batch.records = vec![b"{\"submitted\":1}".to_vec(), vec![0xff, 0x00]];
            batch.audit = vec![b"{\"number\":1}".to_vec()];
            batch.snapshot = Some(Snapshot { through: RecordNumber(1), bytes: vec![1, 2, 3] });
            journal.commit(&batch).unwrap();
            std::fs::copy(&path, &killed).unwrap();
            let busy = inspect(&path, false).unwrap_err().to_string();
            assert!(busy.contains("holds the journal at"), "{busy}");
        }
        let found = inspect(&path, true).unwrap();
        // A process that was killed leaves a store that has to be repaired before it is read; it is only looked at all the same.
        let before = std::fs::read(&killed).unwrap();
        std::fs::set_permissions(&killed, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(inspect(&killed, true).unwrap()["records"], found["records"]);
        assert!(std::fs::read(&killed).unwrap() == before && !killed.with_extension("reserve").exists());
        assert_eq!((&found["lastRecord"], &found["leadership"]), (&json!(2), &json!("1-7")));
        assert_eq!(found["created"], "2026-11-21T10:00:00Z");
        assert_eq!(found["snapshot"], json!({"through": 1, "bytes": 3}));
        assert_eq!(found["records"], json!([{"number": 2, "record": "2 bytes"}]));
        assert_eq!(found["auditHead"], json!({"number": 1, "line": {"number": 1}}));
        let backup = directory.path().join("backup");
        assert_eq!(copy(&path, &backup).unwrap()["lastRecord"], json!(2));
        assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, FILE_MODE);
        assert_eq!(
            inspect(&backup, false).unwrap()["inAnotherFileThanItWasMade"],
            json!(true),
            "a manager must notice that it is a copy"
        );
        let again = copy(&path, &backup).unwrap_err().to_string();
        assert!(again.contains("nothing is overwritten"), "{again}");
        {
            let _manager = RedbJournal::open(&path).unwrap();
            let busy = copy(&path, &directory.path().join("other")).unwrap_err().to_string();
            assert!(busy.contains("holds the journal at"), "{busy}");
        }
        let torn = directory.path().join("torn");
        std::fs::write(&torn, &std::fs::read(&backup).unwrap()[..1_000]).unwrap();
        assert!(copy(&torn, &directory.path().join("other")).is_err());
        assert!(
            std::fs::read_dir(directory.path()).unwrap().all(|e| !e
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with('.')),
            "no half is left"
        );
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for odd in [&pipe, Path::new("/dev/zero"), directory.path()] {
            let said = inspect(odd, false).unwrap_err().to_string();
            assert!(said.contains("no regular file"), "{said}");
        }
        assert!(
            inspect(&directory.path().join("absent"), false)
                .unwrap_err()
                .to_string()
                .contains("no journal at")
        );
    }
}

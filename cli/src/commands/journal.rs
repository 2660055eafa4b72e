//! `journal`: what is in a journal's file, and what a person must look at or decide after one was restored or lost.

use crate::args::{Format, JournalCommand};
use crate::client::Client;
use crate::error::Error;
use crate::out;
use crate::printable;
use crate::session::Session;
use jiff::Timestamp;
use meridian_manager::journal::{Journal, RedbJournal};
use serde_json::{Value, json};
use std::path::Path;

pub(super) async fn run(session: &mut Session, command: JournalCommand) -> Result<(), Error> {
    match command {
        JournalCommand::Inspect { path, records } => {
            let found = inspect(&path, records).map_err(|error| Error::Refused(error.to_string()))?;
            show(session, &found)
        }
        JournalCommand::Recovery => {
            let answer = session.client()?.recovery().await?;
            show(session, &answer)
        }
        JournalCommand::Confirm { yes: false } => {
            let risk = "if another copy of the journal still runs, workloads may run twice, and rules that were tightened since may be forgotten";
            Err(Error::Refused(format!("nothing was done: {risk}; look at `meridian journal recovery`, then add `--yes`")))
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
        Err(Error::Refused("recovery isn't open and no rules are in doubt: there is nothing to confirm".to_owned()))
    }
}

/// What the journal at `path` says of itself. Fails while a manager has it open.
fn inspect(path: &Path, records: bool) -> Result<Value, meridian_manager::journal::Error> {
    let journal = RedbJournal::open(path)?;
    let snapshot = journal.snapshot()?;
    let after = snapshot.as_ref().map(|snapshot| snapshot.through).unwrap_or_default();
    let (mut count, mut bytes, mut shown) = (0_u64, 0_u64, Vec::new());
    journal.replay(after, &mut |number, record| {
        count += 1;
        bytes += record.len() as u64;
        if records {
            // the engine's encoding is its own; what is no JSON is told by its size
            let content = serde_json::from_slice(record).unwrap_or_else(|_| json!(format!("{} bytes", record.len())));
            shown.push(json!({"number": number.0, "record": content}));
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
        "onlyUrgentWrites": journal.urgent_only(),
    });
    if records {
        found["records"] = shown.into();
    }
    Ok(found)
}

fn show(session: &mut Session, answer: &Value) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(answer),
        Some(Format::Yaml | Format::Wide | Format::Name) | None => {
            let text = out::yaml(answer)?;
            session.out.raw(printable::lines(&text).as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager::journal::{Batch, Snapshot};
    use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
    use meridian_shared::time::Wall;

    #[test]
    fn a_journal_tells_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let leadership = Leadership { epoch: 1, id: 7 };
        {
            let mut journal = RedbJournal::init(&path, JournalId(5), Wall(1_795_255_200_000)).unwrap();
            let mut batch = Batch::new(leadership, journal.last());
            batch.records = vec![b"{\"submitted\":1}".to_vec(), vec![0xff, 0x00]];
            batch.audit = vec![b"{\"number\":1}".to_vec()];
            batch.snapshot = Some(Snapshot { through: RecordNumber(1), bytes: vec![1, 2, 3] });
            journal.commit(&batch).unwrap();
            let busy = inspect(&path, false).unwrap_err().to_string();
            assert!(busy.contains("another manager holds the journal"), "{busy}");
        }
        let found = inspect(&path, true).unwrap();
        assert_eq!((&found["lastRecord"], &found["leadership"]), (&json!(2), &json!("1-7")));
        assert_eq!(found["created"], "2026-11-21T10:00:00Z");
        assert_eq!(found["snapshot"], json!({"through": 1, "bytes": 3}));
        assert_eq!(found["records"], json!([{"number": 2, "record": "2 bytes"}]));
        assert_eq!(found["auditHead"], json!({"number": 1, "line": {"number": 1}}));
        assert!(inspect(&directory.path().join("absent"), false).unwrap_err().to_string().contains("no journal at"));
    }
}

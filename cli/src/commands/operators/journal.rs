//! `journal`: the content of a journal file, its copies, and the operator's part in a recovery.

use crate::args::{Format, JournalCommand};
use crate::client::Client;
use crate::error::Error;
use crate::output::{printable, streams};
use crate::session::Session;
use jiff::Timestamp;
use meridian_manager::journal::{Journal, ReadOnlyJournal, Snapshot};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::{Config, World};
use meridian_private_files::directory_of;
use meridian_shared::mac::ReceiptKey;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const NOTHING_TO_CONFIRM: &str =
    "nothing to confirm: the manager isn't recovering, and no rules are in doubt";

const ONLY_REPORTS_MISSING: &str = "nothing to confirm: only reports of clusters are missing. \
     `meridian cluster declare-lost NAME` answers for a \
     cluster that will not come back";

/// A journal holds the spec of every job.
const FILE_MODE: u32 = 0o600;

pub(in crate::commands) async fn run(session: &mut Session, command: JournalCommand) -> Result<(), Error> {
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
            session.out.note("start the manager: `meridian journal recovery` shows what it then waits for");
            show(session, &found)
        }
        JournalCommand::Recovery => {
            let answer = session.client()?.recovery().await?;
            show(session, &answer)
        }
        JournalCommand::Confirm { yes } => {
            let client = session.client()?;
            let before = client.recovery().await?;
            let confirmed = confirmed_lines(&before);
            if confirmed.is_empty() {
                held_lines(&before).into_iter().for_each(|line| session.out.note(line));
                let is_open = before["open"] == json!(true);
                let why = if is_open { ONLY_REPORTS_MISSING } else { NOTHING_TO_CONFIRM };
                return Err(Error::Refused(why.to_owned()));
            }
            for line in confirmed.into_iter().chain(held_lines(&before)) {
                session.out.note(line);
            }
            if !yes {
                return Err(Error::Refused(
                    "nothing was done: workloads could run twice if another copy of the journal runs, or \
                     where forbidden if its policies are outdated. Check both, then add `--yes`"
                        .to_owned(),
                ));
            }
            let answer = confirm(&client, &before).await?;
            show(session, &answer)
        }
    }
}

/// Confirms what the manager asks for: that no other copy writes, and that policies and quotas are current.
async fn confirm(client: &Client, before: &Value) -> Result<Value, Error> {
    if is_copy(before) {
        client.confirm_recovery().await?;
    }
    if !before["rulesDoubted"].is_null() {
        client.confirm_rules().await?;
    }
    Ok(client.recovery().await?)
}

/// Whether recovery waits for an operator: only a person knows whether the original of a copy still runs.
fn is_copy(recovery: &Value) -> bool {
    recovery["restored"] == json!(true) || recovery["membersUnknown"] == json!(true)
}

/// What the operator confirms, in lines. Empty if the manager needs no confirmation.
fn confirmed_lines(recovery: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if is_copy(recovery) {
        lines.push("to confirm: no other copy of this journal has a running manager".to_owned());
    }
    if !recovery["rulesDoubted"].is_null() {
        lines.push(
            "to confirm: residency policies and quotas are current; until then no job starts".to_owned(),
        );
    }
    let unheard = recovery["rulesAwaited"].as_array().into_iter().flatten();
    let unheard: Vec<&str> = unheard.filter_map(Value::as_str).collect();
    if !unheard.is_empty() {
        let names = printable::line(&unheard.join(", ")).into_owned();
        lines.push(format!("not needed once these clusters have reported: {names}"));
    }
    lines
}

/// Obstacles that an operator's confirmation doesn't remove: clusters that haven't reported, and the times
/// until which workloads that may run there are held. Empty if recovery isn't open.
fn held_lines(recovery: &Value) -> Vec<String> {
    if recovery["open"] != json!(true) {
        return Vec::new();
    }
    let text = |value: &Value| printable::line(value.as_str().unwrap_or_default()).into_owned();
    let awaited: Vec<String> = recovery["awaited"].as_array().into_iter().flatten().map(text).collect();
    let mut lines = vec![match awaited.as_slice() {
        [] => "every known cluster has reported what it runs".to_owned(),
        names => format!("haven't reported what they run: {}", names.join(", ")),
    }];
    for (cluster, ledger) in recovery["lostLedgers"].as_object().into_iter().flatten() {
        let (cluster, ledger) = (printable::line(cluster), text(ledger));
        lines.push(format!(
            "{cluster} reports, but lost its store: `meridian cluster declare-lost {cluster} \
             --ledger {ledger} --confirm {cluster}` answers for what ran before"
        ));
    }
    let held = &recovery["held"];
    let listed = held["workloads"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = held["fence"].as_u64().unwrap_or(0) + held["wait"].as_u64().unwrap_or(0);
    if total > 0 {
        lines.push("confirming doesn't release the workloads that may run there:".to_owned());
    }
    for workload in listed {
        let until = match workload["until"].as_str() {
            Some(_) => format!("until {} (Fence)", text(&workload["until"])),
            None => "until all clusters have reported or are declared lost (Wait)".to_owned(),
        };
        lines.push(format!("  {}/{}: held {until}", text(&workload["namespace"]), text(&workload["name"])));
    }
    let more = total.saturating_sub(listed.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more, {}", last_release(held)));
    }
    lines
}

/// When the last held workload is released.
fn last_release(held: &Value) -> String {
    let fence =
        held["fenceUntil"].as_str().map(|at| format!("`Fence` until {} at the latest", printable::line(at)));
    let wait = (held["wait"] != json!(0)).then(|| format!("{} in all with mode `Wait`", held["wait"]));
    fence.into_iter().chain(wait).collect::<Vec<_>>().join(", ")
}

/// Copies a journal that no manager holds, and describes the copy. `to` appears only once the copy is durable
/// and was read back; an existing file is never overwritten.
fn copy(from: &Path, to: &Path) -> Result<Value, Error> {
    let failed = |what: &str, path: &Path, why: &io::Error| {
        Error::Refused(format!("can't {what} `{}`: {why}", path.display()))
    };
    if to.symlink_metadata().is_ok() {
        return Err(Error::Refused(format!("`{}` exists already: move it away first", to.display())));
    }
    // A manager that holds the journal would write to it during the copy.
    let held = ReadOnlyJournal::open(from).map_err(|error| Error::Refused(error.to_string()))?;
    let Some(name) = to.file_name() else {
        return Err(Error::Refused(format!("`{}` is not a file name", to.display())));
    };
    let partial = directory_of(to).join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = write_copy(from, &partial).map_err(|why| failed("write", &partial, &why));
    let checked =
        written.and_then(|()| inspect(&partial, false).map_err(|error| Error::Refused(error.to_string())));
    // Unlike a rename, a link never replaces an existing file.
    let placed = checked.and_then(|found| {
        std::fs::hard_link(&partial, to).map(|()| found).map_err(|why| failed("create", to, &why))
    });
    let removed = std::fs::remove_file(&partial);
    drop(held);
    let found = placed?;
    removed
        .and_then(|()| File::open(directory_of(to))?.sync_all())
        .map_err(|why| failed("sync", to, &why))?;
    Ok(found)
}

fn write_copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(to)?;
    io::copy(&mut File::open(from)?, &mut copy)?;
    copy.sync_all()
}

/// Describes the journal at `path`. Fails while a manager holds it.
fn inspect(path: &Path, with_records: bool) -> Result<Value, meridian_manager::journal::Error> {
    let journal = ReadOnlyJournal::open(path)?;
    let snapshot = journal.snapshot()?;
    let after = snapshot.as_ref().map(|snapshot| snapshot.through).unwrap_or_default();
    let (mut count, mut bytes, mut records) = (0_u64, 0_u64, Vec::new());
    let mut world = if with_records { world_of(&journal, snapshot.as_ref()) } else { None };
    journal.replay(after, &mut |number, record| {
        count += 1;
        bytes += record.len() as u64;
        if with_records {
            let mut entry = json!({"number": number.0, "record": json_or_size(record)});
            // Some records refer to an earlier one, which names the actor.
            let known = serde_json::from_slice::<Record>(record).ok();
            if let Some((world, record)) = world.as_mut().zip(known) {
                if let Some(by) = world.actor_of(&record) {
                    entry["by"] = json!(by);
                }
                world.absorb(number, &record);
            }
            records.push(entry);
        }
        Ok(())
    })?;
    let head = journal
        .reader()
        .audit_head()?
        .map(|(number, line)| json!({"number": number.0, "line": json_or_size(&line)}));
    let snapshot =
        snapshot.map(|snapshot| json!({"through": snapshot.through.0, "bytes": snapshot.bytes.len()}));
    let meta = journal.meta();
    let mut found = json!({
        "journal": meta.journal.to_string(),
        "created": Timestamp::from_millisecond(meta.created.0).map(|at| at.to_string()).unwrap_or_default(),
        "inAnotherFileThanItWasMade": journal.identity_changed(),
        "leadership": journal.leadership().to_string(),
        "lastRecord": journal.last().0,
        "chain": format!("{:016x}", journal.chain()),
        "snapshot": snapshot,
        "recordsAfterSnapshot": {"count": count, "bytes": bytes},
        "auditHead": head,
    });
    if with_records {
        found["records"] = records.into();
    }
    Ok(found)
}

/// Stored bytes as JSON, or their number if they aren't JSON.
fn json_or_size(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!(format!("{} bytes", bytes.len())))
}

/// The world as of the journal's snapshot. It is only read, so any key is enough.
fn world_of(journal: &ReadOnlyJournal, snapshot: Option<&Snapshot>) -> Option<World> {
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
            let text = streams::yaml(answer)?;
            session.out.raw(printable::lines(&text).as_bytes())
        }
    }
}

#[cfg(test)]
mod tests;

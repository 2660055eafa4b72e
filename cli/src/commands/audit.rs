//! `audit`: the audit log out of the manager, and the proof of it.

use crate::args::{AuditCommand, Format};
use crate::audit::{Proof, Witness};
use crate::error::Error;
use crate::files;
use crate::session::Session;
use meridian_manager_core::facts::audit::Head;
use serde_json::json;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line of an exported log in bytes; real ones have a few hundred.
const LINE_BYTES_MAX: u64 = 16 << 20;

pub(super) async fn run(session: &mut Session, command: AuditCommand) -> Result<(), Error> {
    match command {
        AuditCommand::Export { from } => export(session, from).await,
        AuditCommand::Verify { file, expect_head, from } => {
            let witness = expect_head
                .map(|head| head.parse::<Witness>())
                .transpose()
                .map_err(|error| Error::Usage(error.to_string()))?;
            let mut proof = Proof::new(witness).of_part(from);
            match file {
                Some(path) => from_file(session, &path, &mut proof)?,
                None => {
                    let client = session.client()?;
                    let mut lines = client.audit(1).await?;
                    while let Some(line) = lines.next(&client).await? {
                        proof.take(&line)?;
                    }
                    lines.finish()?;
                }
            }
            let head = proof.finish()?;
            show(session, head, from.filter(|from| *from > 1))
        }
    }
}

async fn export(session: &mut Session, from: u64) -> Result<(), Error> {
    let client = session.client()?;
    let mut lines = client.audit(from).await?;
    while let Some(line) = lines.next(&client).await? {
        session.out.raw(&line)?;
        session.out.raw(b"\n")?;
    }
    Ok(lines.finish()?)
}

fn from_file(session: &mut Session, path: &Path, proof: &mut Proof) -> Result<(), Error> {
    let failed = |source| files::Error::Read { path: path.to_owned(), source };
    let opened: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(&mut session.stdin)
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };
    let mut reader = BufReader::new(opened);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 {
            return Ok(());
        }
        // a longer line is cut here and then is no JSON
        proof.take(line.trim_ascii_end())?;
    }
}

fn show(session: &mut Session, head: Option<Head>, from: Option<u64>) -> Result<(), Error> {
    let document = match from {
        Some(from) => json!({"intact": true, "from": from, "head": head}),
        None => json!({"intact": true, "head": head}),
    };
    match (session.format(), head) {
        (Some(Format::Json), _) => session.out.json(&document),
        (Some(Format::Yaml), _) => session.out.yaml(&document),
        (_, None) => session.out.line("the audit log is empty"),
        (_, Some(Head { lines, hash })) => {
            match from {
                Some(from) => {
                    session.out.line(format!(
                        "this part of the audit log is intact: lines {from} to {lines}, head {lines}:{hash}"
                    ))?;
                    session.out.note(format!("what stood before line {from} was not looked at: the hash before it is taken as given"));
                }
                None => session
                    .out
                    .line(format!("the audit log is intact: {lines} lines, head {lines}:{hash}"))?,
            }
            session.out.note(
                "note the head elsewhere; `--expect-head` then also finds a cut tail and a rewritten log",
            );
            Ok(())
        }
    }
}

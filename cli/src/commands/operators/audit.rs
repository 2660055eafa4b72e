//! `audit`: exports and verifies the audit log.

mod proof;

use self::proof::{ChainProof, ExpectedHead};
use crate::args::{AuditCommand, Format};
use crate::error::Error;
use crate::files;
use crate::session::Session;
use meridian_manager_core::facts::audit::Head;
use serde_json::json;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line of an exported log in bytes; real ones have a few hundred. A longer one is cut, and then is
/// no JSON.
const LINE_BYTES_MAX: u64 = 16 << 20;

pub(in crate::commands) async fn run(session: &mut Session, command: AuditCommand) -> Result<(), Error> {
    match command {
        AuditCommand::Export { from } => export(session, from).await,
        AuditCommand::Verify { file, expect_head, from } => {
            let expected = expect_head
                .map(|head| head.parse::<ExpectedHead>())
                .transpose()
                .map_err(|error| Error::Usage(error.to_string()))?;
            let mut proof = ChainProof::new(expected).of_part(from);
            match file {
                Some(path) => verify_file(session, &path, &mut proof)?,
                None => verify_manager(session, &mut proof).await?,
            }
            let head = proof.finish().map_err(refused)?;
            show(session, head, from.filter(|from| *from > 1))
        }
    }
}

fn refused(error: proof::Error) -> Error {
    Error::Refused(error.to_string())
}

async fn export(session: &mut Session, from: u64) -> Result<(), Error> {
    let client = session.client()?;
    let mut lines = client.audit(from).await?;
    while let Some(line) = lines.next_document(&client).await? {
        session.out.raw(&line)?;
        session.out.raw(b"\n")?;
    }
    Ok(lines.finish()?)
}

async fn verify_manager(session: &mut Session, proof: &mut ChainProof) -> Result<(), Error> {
    let client = session.client()?;
    let mut lines = client.audit(1).await?;
    while let Some(line) = lines.next_document(&client).await? {
        proof.add_line(&line).map_err(refused)?;
    }
    Ok(lines.finish()?)
}

fn verify_file(session: &mut Session, path: &Path, proof: &mut ChainProof) -> Result<(), Error> {
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
        proof.add_line(line.trim_ascii_end()).map_err(refused)?;
    }
}

fn show(session: &mut Session, head: Option<Head>, from: Option<u64>) -> Result<(), Error> {
    let document = match from {
        Some(from) => json!({"intact": true, "from": from, "head": head}),
        None => json!({"intact": true, "head": head}),
    };
    match (session.format(), head) {
        (Some(Format::Json), _) => return session.out.json(&document),
        (Some(Format::Yaml), _) => return session.out.yaml(&document),
        (_, None) => return session.out.line("the audit log is empty"),
        (_, Some(Head { lines, hash })) => match from {
            Some(from) => {
                session.out.line(format!("the audit log is intact from line {from} to line {lines}"))?;
                session.out.line(format!("head: {lines}:{hash}"))?;
                session.out.note(format!("lines before {from} were not verified"));
            }
            None => {
                session.out.line(format!("the audit log is intact: {lines} lines"))?;
                session.out.line(format!("head: {lines}:{hash}"))?;
            }
        },
    }
    session.out.note("keep the head elsewhere: with `--expect-head` it reveals a truncated or rewritten log");
    Ok(())
}

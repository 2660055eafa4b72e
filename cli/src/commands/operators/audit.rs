//! `audit`: exports and verifies the audit log, and prints the key that signs it.

use crate::args::{AuditCommand, Format};
use crate::error::Error;
use crate::files;
use crate::session::Session;
use meridian_manager::audit::directory::AuditDirectory;
use meridian_manager::audit::key::{PublicKey, SigningKey};
use meridian_manager::audit::proof::{self, ChainProof, ExpectedHead, Proved};
use meridian_manager::audit::walk::Walk;
use meridian_manager::journal::{Journal as _, ReadOnlyJournal};
use meridian_manager::server::{AUDIT_DIR, IDENTITY_DIR, JOURNAL_FILE};
use meridian_shared::counted::counted;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

/// Longest line of an exported log in bytes; usual lines have a few hundred. A longer line is cut, so it
/// fails as JSON.
const LINE_BYTES_MAX: u64 = 16 << 20;

pub(in crate::commands) async fn run(session: &mut Session, command: AuditCommand) -> Result<(), Error> {
    match command {
        AuditCommand::Export { from, seals } => export(session, from, seals).await,
        AuditCommand::Key { data_dir } => {
            let key = match data_dir {
                Some(dir) => key_of(&dir)?,
                None => manager_key(session).await?,
            };
            session.out.raw(key.to_pem().as_bytes())
        }
        AuditCommand::Verify { path, expect_head, from, public_key } => {
            let expected = expect_head
                .map(|head| head.parse::<ExpectedHead>())
                .transpose()
                .map_err(|error| Error::Usage(error.to_string()))?;
            let trusted: Vec<PublicKey> =
                public_key.iter().map(|path| read_key(path)).collect::<Result<_, _>>()?;
            let pinned = !trusted.is_empty();
            let proof = ChainProof::new(expected).of_part(from);
            let proved = match path {
                None => verify_manager(session, proof, trusted).await?,
                Some(path) if path.is_dir() => verify_directory(&path, proof, trusted)?,
                Some(path) => verify_file(session, &path, proof.trusting(trusted))?,
            };
            show(session, &proved, pinned)
        }
    }
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Refused(error.to_string())
}

async fn export(session: &mut Session, from: Option<u64>, seals: bool) -> Result<(), Error> {
    let client = session.client()?;
    let mut lines = if seals { client.sealed_audit().await? } else { client.audit(from).await? };
    let mut is_first = from.is_none() && !seals;
    while let Some(line) = lines.next_document(&client).await? {
        if std::mem::take(&mut is_first)
            && let Some(number) = number_of(&line).filter(|number| *number > 1)
        {
            session.out.note(format!(
                "the manager keeps the log from line {number} on: the lines before were exported by its hook \
                 and removed; verify this part with `--from {number}`"
            ));
        }
        session.out.raw(&line)?;
        session.out.raw(b"\n")?;
    }
    Ok(lines.finish()?)
}

/// The number of a line of the log.
fn number_of(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(line).ok()?["number"].as_u64()
}

/// The public key in a file.
fn read_key(path: &Path) -> Result<PublicKey, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| files::Error::Read { path: path.to_owned(), source })?;
    PublicKey::from_pem(&text)
        .map_err(|why| Error::Usage(format!("`{}` is not a public key: {why}", path.display())))
}

/// The public key of a data directory.
fn key_of(data_dir: &Path) -> Result<PublicKey, Error> {
    SigningKey::load(&data_dir.join(IDENTITY_DIR)).map(|key| key.public()).map_err(refused)
}

async fn manager_key(session: &mut Session) -> Result<PublicKey, Error> {
    let pem = session.client()?.audit_key().await?;
    PublicKey::from_pem(&pem).map_err(|why| refused(format!("the manager's key can't be read: {why}")))
}

async fn verify_manager(
    session: &mut Session,
    proof: ChainProof,
    mut trusted: Vec<PublicKey>,
) -> Result<Proved, Error> {
    if trusted.is_empty() {
        trusted.push(manager_key(session).await?);
    }
    let mut proof = proof.trusting(trusted);
    let client = session.client()?;
    let mut lines = client.sealed_audit().await?;
    while let Some(line) = lines.next_document(&client).await? {
        proof.add_line(&line).map_err(refused)?;
    }
    lines.finish()?;
    proof.finish().map_err(refused)
}

/// Verifies the data directory of a stopped manager, or a directory of exported segments.
fn verify_directory(path: &Path, proof: ChainProof, mut trusted: Vec<PublicKey>) -> Result<Proved, Error> {
    let journal = path.join(JOURNAL_FILE);
    if !journal.exists() {
        let mut proof = proof.trusting(trusted);
        let segments = AuditDirectory::new(path).segments().map_err(refused)?;
        if segments.is_empty() {
            return Err(refused(format!("`{}` has no journal and no segments", path.display())));
        }
        for segment in segments {
            let file = open(&segment.path)?;
            add_lines(file, &segment.path, &mut proof)?;
            proof.end_of_segment(segment.number).map_err(refused)?;
        }
        return proof.finish().map_err(refused);
    }
    if trusted.is_empty() {
        trusted.push(key_of(path)?);
    }
    let mut proof = proof.trusting(trusted);
    let journal = ReadOnlyJournal::open(&journal).map_err(refused)?;
    let (directory, reader) = (AuditDirectory::new(&path.join(AUDIT_DIR)), journal.reader());
    let mut broken = None;
    let walked = Walk { directory: &directory, journal: &*reader }.all(&mut |piece| {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            if let Err(error) = proof.add_line(line.trim_ascii_end()) {
                broken = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    match broken {
        Some(error) => Err(refused(error)),
        None => walked.map_err(refused).and_then(|()| proof.finish().map_err(refused)),
    }
}

fn verify_file(session: &mut Session, path: &Path, mut proof: ChainProof) -> Result<Proved, Error> {
    let opened: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(&mut session.stdin) } else { Box::new(open(path)?) };
    add_lines(opened, path, &mut proof)?;
    proof.finish().map_err(refused)
}

fn open(path: &Path) -> Result<std::fs::File, Error> {
    Ok(std::fs::File::open(path).map_err(|source| files::Error::Read { path: path.to_owned(), source })?)
}

fn add_lines(input: impl Read, path: &Path, proof: &mut ChainProof) -> Result<(), Error> {
    let failed = |source| files::Error::Read { path: path.to_owned(), source };
    let mut reader = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 {
            return Ok(());
        }
        proof.add_line(line.trim_ascii_end()).map_err(|error: proof::Error| refused(error))?;
    }
}

fn show(session: &mut Session, proved: &Proved, pinned: bool) -> Result<(), Error> {
    let Proved { head, from, segments, removed } = proved;
    let mut document = json!({"intact": true, "head": head, "segments": segments});
    if let Some(from) = from {
        document["from"] = json!(from);
        document["removedSegments"] = json!(removed);
    }
    match session.format() {
        Some(Format::Json) => return session.out.json(&document),
        Some(Format::Yaml) => return session.out.yaml(&document),
        _ => {}
    }
    let Some(head) = head else { return session.out.line("the audit log is empty") };
    match from {
        Some(from) => {
            session.out.line(format!("the audit log is intact from line {from} to line {}", head.lines))?
        }
        None => session.out.line(format!("the audit log is intact: {}", counted(head.lines, "line")))?,
    }
    session.out.line(format!("head: {}:{}", head.lines, head.hash))?;
    if *segments > 0 {
        session.out.line(format!("signed segments: {segments}"))?;
        if !pinned {
            session
                .out
                .note("keep the key of `meridian audit key` elsewhere, and verify with `--public-key`");
        }
    }
    match (from, removed) {
        (None, _) => {}
        (Some(from), 0) => session.out.note(format!("lines before {from} were not verified")),
        (Some(from), removed) => session.out.note(format!(
            "lines before {from} were not verified: segments up to {removed} were exported and removed"
        )),
    }
    session.out.note("keep the head elsewhere: with `--expect-head` it reveals a truncated or rewritten log");
    Ok(())
}

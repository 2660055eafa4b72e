//! `journal`: what a person must look at, or decide, after a journal was restored or lost.

use crate::args::{Format, JournalCommand};
use crate::error::Error;
use crate::out;
use crate::printable;
use crate::session::Session;
use serde_json::Value;

pub(super) async fn run(session: &mut Session, command: JournalCommand) -> Result<(), Error> {
    match command {
        JournalCommand::Recovery => {
            let answer = session.client()?.recovery().await?;
            show(session, &answer)
        }
        JournalCommand::Confirm { yes: false } => {
            let risk = "if another copy of the journal still runs, workloads may run twice, and rules that were tightened since may be forgotten";
            Err(Error::Refused(format!("nothing was done: {risk}; look at `meridian journal recovery`, then add `--yes`")))
        }
        JournalCommand::Confirm { yes: true } => {
            let answer = session.client()?.confirm_recovery().await?;
            show(session, &answer)
        }
    }
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

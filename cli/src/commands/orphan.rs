//! `orphan`: runs that agents report and that this journal doesn't know, usually because an older one was restored.

use super::apply;
use crate::args::{Format, OrphanCommand};
use crate::client::Client;
use crate::error::Error;
use crate::files;
use crate::session::Session;
use crate::table::{Cell, Table};
use meridian_shared::ids::Fence;
use serde_json::{Value, json};

pub(super) async fn run(session: &mut Session, command: OrphanCommand) -> Result<(), Error> {
    match command {
        OrphanCommand::List => list(session).await,
        OrphanCommand::Stop { uid, fence } => {
            let client = session.client()?;
            let fence = named(&client, &uid, fence).await?;
            let answer = client.stop_orphan(&uid, &fence).await?;
            told(session, &answer)
        }
        OrphanCommand::Adopt { uid, file, fence } => {
            let parsed = files::objects(&[file], &mut session.stdin, &mut session.out)?;
            let mut objects = apply::place(session, parsed.objects)?;
            let (Some(job), true) = (objects.pop(), objects.is_empty()) else {
                return Err(Error::Refused(
                    "an orphan runs one job: give a file with that job alone".to_owned(),
                ));
            };
            let client = session.client()?;
            let fence = named(&client, &uid, fence).await?;
            let answer = client.adopt_orphan(&uid, &fence, &job.value.stored).await?;
            told(session, &answer)
        }
    }
}

async fn list(session: &mut Session) -> Result<(), Error> {
    let orphans = orphans(&session.client()?).await?;
    match session.format() {
        Some(Format::Json) => session.out.json(&json!(orphans)),
        Some(Format::Yaml) => session.out.yaml(&json!(orphans)),
        Some(Format::Name) => orphans
            .iter()
            .try_for_each(|orphan| session.out.line(crate::printable::line(text(orphan, "uid")))),
        Some(Format::Wide | Format::Text) | None if orphans.is_empty() => {
            session.out.note("there are no orphans");
            Ok(())
        }
        Some(Format::Wide | Format::Text) | None => {
            let mut table = Table::new(["UID", "FENCE", "CLUSTER"]);
            for orphan in &orphans {
                table.push(["uid", "fence", "cluster"].map(|field| Cell::new(text(orphan, field))).into());
            }
            let text = table.text(session.out.colour);
            session.out.raw(text.as_bytes())
        }
    }
}

async fn orphans(client: &Client) -> Result<Vec<Value>, Error> {
    Ok(client.recovery().await?["orphans"].as_array().cloned().unwrap_or_default())
}

/// The fence that was given, or that of the uid's newest attempt.
async fn named(client: &Client, uid: &str, fence: Option<String>) -> Result<String, Error> {
    if let Some(fence) = fence {
        return Ok(fence);
    }
    let orphans = orphans(client).await?;
    let fences = orphans
        .iter()
        .filter(|orphan| text(orphan, "uid") == uid)
        .filter_map(|orphan| text(orphan, "fence").parse::<Fence>().ok());
    let missing = || Error::Refused(format!("there is no orphan `{uid}`: `meridian orphan list` shows them"));
    fences.max().map(|fence| fence.to_string()).ok_or_else(missing)
}

fn text<'v>(orphan: &'v Value, field: &str) -> &'v str {
    orphan[field].as_str().unwrap_or_default()
}

fn told(session: &mut Session, answer: &Value) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(answer),
        Some(Format::Yaml) => session.out.yaml(answer),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            session.out.line(crate::printable::line(text(answer, "message")))
        }
    }
}

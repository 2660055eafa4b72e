//! `orphan`: runs that agents report and the journal doesn't know, usually because it is a restored backup.

use crate::args::{Format, OrphanCommand};
use crate::client::Client;
use crate::commands::objects::namespace::set_namespaces;
use crate::error::Error;
use crate::files;
use crate::objects::fields::text;
use crate::output::printable;
use crate::output::table::{Cell, Table};
use crate::session::Session;
use meridian_shared::ids::Fence;
use serde_json::{Value, json};

pub(in crate::commands) async fn run(session: &mut Session, command: OrphanCommand) -> Result<(), Error> {
    match command {
        OrphanCommand::List => list(session).await,
        OrphanCommand::Stop { uid, fence } => {
            let client = session.client()?;
            let fence = find_fence(&client, &uid, fence).await?;
            let answer = client.stop_orphan(&uid, &fence).await?;
            show_message(session, &answer)
        }
        OrphanCommand::Adopt { uid, file, fence } => {
            let parsed = files::objects(&[file], &mut session.stdin, &mut session.out)?;
            let mut objects = set_namespaces(session, parsed.objects)?;
            let (Some(job), true) = (objects.pop(), objects.is_empty()) else {
                return Err(Error::Refused(
                    "the file must have one job, the orphan's, and nothing else".to_owned(),
                ));
            };
            let client = session.client()?;
            let fence = find_fence(&client, &uid, fence).await?;
            let answer = client.adopt_orphan(&uid, &fence, &job.value.stored).await?;
            show_message(session, &answer)
        }
    }
}

async fn list(session: &mut Session) -> Result<(), Error> {
    let orphans = orphans(&session.client()?).await?;
    match session.format() {
        Some(Format::Json) => session.out.json(&json!(orphans)),
        Some(Format::Yaml) => session.out.yaml(&json!(orphans)),
        Some(Format::Name) => {
            orphans.iter().try_for_each(|orphan| session.out.line(printable::line(text(orphan, "/uid"))))
        }
        Some(Format::Wide | Format::Text) | None if orphans.is_empty() => {
            session.out.note("no orphans found");
            Ok(())
        }
        Some(Format::Wide | Format::Text) | None => {
            let mut table = Table::new(["UID", "FENCE", "CLUSTER", "JOB"]);
            for orphan in &orphans {
                let cell = |pointer: &str| Cell::new(text(orphan, pointer));
                table.push(vec![cell("/uid"), cell("/fence"), cell("/cluster"), cell("/job")]);
            }
            let text = table.text(session.out.colour);
            session.out.raw(text.as_bytes())
        }
    }
}

async fn orphans(client: &Client) -> Result<Vec<Value>, Error> {
    Ok(client.recovery().await?["orphans"].as_array().cloned().unwrap_or_default())
}

/// The given fence, or the one of the newest attempt. Fails if there is no such orphan.
async fn find_fence(client: &Client, uid: &str, fence: Option<String>) -> Result<String, Error> {
    if let Some(fence) = fence {
        return Ok(fence);
    }
    let orphans = orphans(client).await?;
    let fences = orphans
        .iter()
        .filter(|orphan| text(orphan, "/uid") == uid)
        .filter_map(|orphan| text(orphan, "/fence").parse::<Fence>().ok());
    let missing = || Error::Refused(format!("no orphan `{uid}`: `meridian orphan list` lists them"));
    fences.max().map(|fence| fence.to_string()).ok_or_else(missing)
}

fn show_message(session: &mut Session, answer: &Value) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(answer),
        Some(Format::Yaml) => session.out.yaml(answer),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            session.out.line(printable::line(text(answer, "/message")))
        }
    }
}

//! `stop` and `resume`: a workload's `spec.active`, by the workload's name or its job's.

use super::{name_of, reference, show_done, targets};
use crate::args::ActivityArgs;
use crate::client::{self, Client};
use crate::columns::text;
use crate::error::Error;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::{Value, json};

pub(super) async fn run(session: &mut Session, args: ActivityArgs, active: bool) -> Result<(), Error> {
    let targets = targets::read_named(&args.targets)?;
    if let Some((other, _)) = targets.iter().find(|(kind, _)| !matches!(kind, Kind::Workload | Kind::Job)) {
        let remedy = "queues are stopped by their `spec.stopPolicy`, clusters by `meridian cluster drain`";
        return Err(Error::Usage(format!("a {} is no workload; {remedy}", other.singular())));
    }
    let namespace = session.namespace()?;
    let client = session.client()?;
    let (mut documents, mut lines, mut failed) = (Vec::new(), Vec::new(), false);
    for (kind, name) in targets {
        match set(&client, kind, &namespace, &name, active).await {
            Ok(workload) => {
                let done = if active { "resumed" } else { "stopped" };
                lines.push((reference(Kind::Workload, name_of(&workload)), done.to_owned()));
                documents.push(workload);
            }
            Err(error) => {
                failed = true;
                session.out.note(format!("error: {}: {error}", reference(kind, &name)));
            }
        }
    }
    if !documents.is_empty() {
        show_done(session, &documents, &lines)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

/// Changes the workload of this name, or of the job of this name.
async fn set(client: &Client, kind: Kind, namespace: &str, name: &str, active: bool) -> Result<Value, Error> {
    let patch = json!({"spec": {"active": active}});
    let missing = match kind {
        Kind::Workload => match client.patch(Kind::Workload, Some(namespace), name, &patch).await {
            Err(error) if error.is_not_found() => Some(error),
            other => return Ok(other?),
        },
        _ => None,
    };
    let job = match (client.get(Kind::Job, Some(namespace), name).await, missing) {
        // There is neither: what was asked for is what is missing.
        (Err(error), Some(missing)) if error.is_not_found() => return Err(missing.into()),
        (job, _) => job?,
    };
    let workload = text(&job, "/status/meridian/workload");
    if workload.is_empty() {
        return Err(client::Error::Malformed {
            what: format!("`GET` of job `{name}`"),
            why: "it doesn't name its workload".to_owned(),
        }
        .into());
    }
    Ok(client.patch(Kind::Workload, Some(namespace), workload, &patch).await?)
}

//! `stop` and `resume`: set a workload's `spec.active`, by its own name or its job's.

use super::by_name;
use crate::args::{ActivationArgs, targets};
use crate::client::{self, Client};
use crate::commands::results::Results;
use crate::error::Error;
use crate::objects::fields::{name_of, text};
use crate::output::printable;
use crate::output::references::reference;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::{Value, json};

pub(in crate::commands) async fn run(
    session: &mut Session,
    args: ActivationArgs,
    active: bool,
) -> Result<(), Error> {
    let targets = targets::parse_jobs(&args.targets)?;
    let is_other = |kind: &Kind| !(kind.is_job() || *kind == Kind::Workload);
    if let Some(other) = targets.iter().filter_map(|(kind, _)| *kind).find(is_other) {
        let remedy = "stop queues by their `spec.stopPolicy`, and clusters by `meridian cluster drain`";
        return Err(Error::Usage(format!(
            "a {} is neither a workload nor a job; {remedy}",
            other.singular()
        )));
    }
    let namespace = session.namespace()?;
    let client = session.client()?;
    let (mut results, mut failed) = (Results::default(), false);
    for (kind, name) in targets {
        match set_active(&client, kind, &namespace, &name, active).await {
            Ok(workload) => {
                let done = if active { "resumed" } else { "stopped" };
                let name = name_of(&workload).to_owned();
                results.add(Kind::Workload, &name, done, workload);
            }
            Err(error) => {
                failed = true;
                let named = kind.map_or_else(|| printable::line(&name).into(), |kind| reference(kind, &name));
                session.out.note(format!("error: {named}: {error}"));
            }
        }
    }
    if !results.is_empty() {
        results.show(session)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

/// Patches the workload of this name, or else the workload of the job of this name and kind; without a kind,
/// of the only job of this name.
async fn set_active(
    client: &Client,
    kind: Option<Kind>,
    namespace: &str,
    name: &str,
    active: bool,
) -> Result<Value, Error> {
    let patch = json!({"spec": {"active": active}});
    let missing = match kind {
        Some(Kind::Workload) => match client.patch(Kind::Workload, Some(namespace), name, &patch).await {
            Err(error) if error.is_not_found() => Some(error),
            other => return Ok(other?),
        },
        _ => None,
    };
    let job = match (kind.filter(|kind| kind.is_job()), missing) {
        (Some(kind), _) => client.get(kind, Some(namespace), name).await?,
        (None, missing) => match (by_name::find(client, namespace, name).await, missing) {
            // Neither exists: report the workload, which was asked for.
            (Err(Error::Client(error)), Some(missing)) if error.is_not_found() => return Err(missing.into()),
            (job, _) => job?,
        },
    };
    let workload = text(&job, "/status/meridian/workload");
    if workload.is_empty() {
        return Err(client::Error::Malformed {
            request: format!("GET of job `{name}`"),
            why: "it doesn't name its workload".to_owned(),
        }
        .into());
    }
    Ok(client.patch(Kind::Workload, Some(namespace), workload, &patch).await?)
}

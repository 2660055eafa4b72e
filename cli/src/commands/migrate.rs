//! `migrate`: which objects of a MultiKueue management cluster carry over, and the steps of a move. It
//! changes nothing.

mod check;
mod setup;
mod source;
mod steps;
#[cfg(test)]
mod tests;
mod workloads;

use crate::args::{Format, MigrateCommand, MigratePart, MigrateSource};
use crate::error::Error;
use crate::output::streams::DocumentFormat;
use crate::output::wrap::PAGE_COLUMNS;
use crate::session::Session;
use serde_json::{Value, json};
use setup::Setup;
use source::Source;

pub(super) async fn run(session: &mut Session, command: MigrateCommand) -> Result<(), Error> {
    match command {
        MigrateCommand::Check(source) => check(session, &source).await,
        MigrateCommand::Plan { source, queue, manifests } => {
            plan(session, &source, queue.as_deref(), manifests).await
        }
    }
}

async fn read(session: &mut Session, source: &MigrateSource) -> Result<Setup, Error> {
    let objects = source::read(session, source).await?;
    let setup = Setup::of(objects);
    if setup.is_empty() {
        return Err(Error::Refused(
            "there is no object of Kueue, and no job with a queue: name the management cluster with \
             `--kubeconfig` and `--context`, or exported objects with `-f`"
                .to_owned(),
        ));
    }
    Ok(setup)
}

async fn check(session: &mut Session, source: &MigrateSource) -> Result<(), Error> {
    let setup = read(session, source).await?;
    let report = check::check(&setup);
    match session.format() {
        Some(Format::Json) => session.out.json(&report)?,
        Some(Format::Yaml) => session.out.yaml(&report)?,
        Some(Format::Text | Format::Wide | Format::Name) | None => {
            let text = report.text(session.out.colour, PAGE_COLUMNS);
            session.out.raw(text.as_bytes())?;
        }
    }
    if report.carries_over() { Ok(()) } else { Err(Error::Reported) }
}

async fn plan(
    session: &mut Session,
    source: &MigrateSource,
    queue: Option<&str>,
    part: Option<MigratePart>,
) -> Result<(), Error> {
    let setup = read(session, source).await?;
    let known = setup.cluster_queues();
    if let Some(unknown) = queue.filter(|name| !known.contains(name)) {
        return Err(Error::Refused(format!(
            "there is no ClusterQueue `{unknown}`; there {}",
            if known.is_empty() { "is none".to_owned() } else { format!("are {}", known.join(", ")) }
        )));
    }
    let queues: Vec<&str> = queue.map_or_else(|| known.clone(), |only| vec![only]);
    if let (Some(part), Some(queue)) = (part, queue) {
        let objects = match part {
            MigratePart::Queue => setup.manifests_of_queue(queue),
            MigratePart::Jobs => waiting_jobs(&setup, source, queue)?,
        };
        // A list, so that it can be piped into a command even if it is empty.
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        return match session.document_format() {
            Some(DocumentFormat::JsonLines) => session.out.json(&list),
            _ => session.out.yaml(&list),
        };
    }
    let steps = steps::plan(&setup, &queues, &Source::of(session, source, &setup));
    match session.format() {
        Some(Format::Json) => session.out.json(&steps),
        Some(Format::Yaml) => session.out.yaml(&steps),
        Some(Format::Text | Format::Wide | Format::Name) | None => {
            session.out.raw(steps.text(PAGE_COLUMNS).as_bytes())
        }
    }
}

/// The jobs that wait. Fails if the files don't show which jobs run elsewhere.
fn waiting_jobs(setup: &Setup, source: &MigrateSource, queue: &str) -> Result<Vec<Value>, Error> {
    let jobs = setup.waiting_jobs(queue);
    if jobs.is_empty() || setup.has_workloads() || source.files.is_empty() {
        return Ok(jobs);
    }
    Err(Error::Refused(
        "the files have no Workloads, which say what Kueue has started: export `workloads.kueue.x-k8s.io` \
         too"
        .to_owned(),
    ))
}

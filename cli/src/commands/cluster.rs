//! `cluster`: day two of worker clusters.

use super::get;
use crate::args::{ClusterCommand, Format};
use crate::client::{ClusterAction, JoinRequest};
use crate::error::Error;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::json;

pub(super) async fn run(session: &mut Session, command: ClusterCommand) -> Result<(), Error> {
    match command {
        ClusterCommand::List => get::list_all(session, Kind::Cluster).await,
        ClusterCommand::Join { name, region, jurisdiction, ttl, replace } => {
            let ttl = ttl.map(|ttl| format!("{}s", ttl.as_secs()));
            join(session, &name, &JoinRequest { region, jurisdiction, ttl, replace }).await
        }
        ClusterCommand::Admit { name } => act(session, &name, ClusterAction::Admit, None, "admitted").await,
        ClusterCommand::Cordon { name } => act(session, &name, ClusterAction::Cordon, None, "cordoned").await,
        ClusterCommand::Uncordon { name } => {
            act(session, &name, ClusterAction::Uncordon, None, "uncordoned").await
        }
        ClusterCommand::Drain { name } => act(session, &name, ClusterAction::Drain, None, "draining").await,
        ClusterCommand::DeclareLost { name, ledger, confirm } => {
            if confirm.as_deref() != Some(name.as_str()) {
                let risk = "whatever still runs there would run twice, once there and once elsewhere";
                let remedy = format!("make sure that its machines are off, then add `--confirm {name}`");
                return Err(Error::Refused(format!("nothing was done: {risk}; {remedy}")));
            }
            act(session, &name, ClusterAction::DeclareLost, ledger.as_deref(), "declared lost").await
        }
    }
}

async fn join(session: &mut Session, name: &str, request: &JoinRequest) -> Result<(), Error> {
    let answer = session.client()?.join_token(name, request).await?;
    match session.format() {
        Some(Format::Json) => session.out.json(&answer),
        Some(Format::Yaml) => session.out.yaml(&answer),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            session
                .out
                .note(format!("run this on the worker's side before {}; it works once:", answer.expires));
            session.out.line(crate::printable::line(&answer.command))
        }
    }
}

async fn act(
    session: &mut Session,
    name: &str,
    action: ClusterAction,
    ledger: Option<&str>,
    done: &str,
) -> Result<(), Error> {
    let client = session.client()?;
    let answer = client.cluster_action(name, action, ledger).await?;
    let answer = if answer.is_null() {
        json!({"kind": Kind::Cluster.name(), "name": name, "result": done})
    } else {
        answer
    };
    super::show_done(session, &[answer], &[(super::reference(Kind::Cluster, name), done.to_owned())])
}

//! `cluster`: join, cordon, drain and retire worker clusters.

use crate::args::{ClusterCommand, Format};
use crate::client::{ClusterAction, JoinRequest};
use crate::commands::objects::get;
use crate::commands::results::Results;
use crate::error::Error;
use crate::output::printable;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::json;

pub(in crate::commands) async fn run(session: &mut Session, command: ClusterCommand) -> Result<(), Error> {
    match command {
        ClusterCommand::List => get::list_all(session, Kind::Cluster).await,
        ClusterCommand::Join { name, region, jurisdiction, ttl, replace, issuer } => {
            let ttl = ttl.map(|ttl| format!("{}s", ttl.as_secs()));
            join(session, &name, &JoinRequest { region, jurisdiction, ttl, replace, issuer }).await
        }
        ClusterCommand::Admit { name } => act(session, &name, ClusterAction::Admit, "admitted").await,
        ClusterCommand::Cordon { name } => act(session, &name, ClusterAction::Cordon, "cordoned").await,
        ClusterCommand::Uncordon { name } => act(session, &name, ClusterAction::Uncordon, "uncordoned").await,
        ClusterCommand::Drain { name } => act(session, &name, ClusterAction::Drain, "draining").await,
        ClusterCommand::Revoke { name, confirm } => {
            if confirm.as_deref() != Some(name.as_str()) {
                return Err(Error::Refused(format!(
                    "nothing was done: the agent of `{name}` would be locked out, and its gangs stop when \
                     their leases end unless an agent joins again before; add `--confirm {name}`"
                )));
            }
            act(session, &name, ClusterAction::Revoke, "revoked").await
        }
        ClusterCommand::DeclareLost { name, ledger, confirm } => {
            if confirm.as_deref() != Some(name.as_str()) {
                return Err(Error::Refused(format!(
                    "nothing was done: anything that still runs on `{name}` would run twice; \
                     make sure that its machines are off, then add `--confirm {name}`"
                )));
            }
            declare_lost(session, &name, ledger.as_deref()).await
        }
    }
}

async fn join(session: &mut Session, name: &str, request: &JoinRequest) -> Result<(), Error> {
    if request.issuer {
        let answer = session.client()?.let_account_join(name, request).await?;
        return Results::of(Kind::Cluster, name, "open to its service account", answer).show(session);
    }
    let answer = session.client()?.join_token(name, request).await?;
    match session.format() {
        Some(Format::Json) => session.out.json(&answer),
        Some(Format::Yaml) => session.out.yaml(&answer),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            let expires = &answer.expires;
            session.out.note(format!("run this once on the worker cluster, before {expires}:"));
            session.out.line(printable::line(&answer.command))
        }
    }
}

async fn declare_lost(session: &mut Session, name: &str, ledger: Option<&str>) -> Result<(), Error> {
    act_on_ledger(session, name, ClusterAction::DeclareLost, ledger, "declared lost").await
}

async fn act(session: &mut Session, name: &str, action: ClusterAction, done: &str) -> Result<(), Error> {
    act_on_ledger(session, name, action, None, done).await
}

async fn act_on_ledger(
    session: &mut Session,
    name: &str,
    action: ClusterAction,
    ledger: Option<&str>,
    done: &str,
) -> Result<(), Error> {
    let client = session.client()?;
    let mut answer = client.cluster_action(name, action, ledger).await?;
    if answer.is_null() {
        answer = json!({"kind": Kind::Cluster.name(), "name": name, "result": done});
    }
    Results::of(Kind::Cluster, name, done, answer).show(session)
}

//! `token` and `auth`: tokens of users, and what the asker may do.

use crate::args::{AuthCommand, CanIArgs, Format, TokenArgs, TokenCommand};
use crate::error::Error;
use crate::objects::fields::text;
use crate::output::printable;
use crate::output::table::{Cell, Table};
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::{Value, json};

/// Verbs that kubectl knows for resources.
const RESOURCE_VERBS: [&str; 16] = [
    "*",
    "approve",
    "attest",
    "bind",
    "create",
    "delete",
    "deletecollection",
    "escalate",
    "get",
    "impersonate",
    "list",
    "patch",
    "sign",
    "update",
    "use",
    "watch",
];
/// Verbs that kubectl knows for paths.
const PATH_VERBS: [&str; 8] = ["*", "delete", "get", "head", "options", "patch", "post", "put"];

pub(in crate::commands) async fn tokens(session: &mut Session, command: TokenCommand) -> Result<(), Error> {
    match command {
        TokenCommand::Create(args) => create(session, args).await,
        TokenCommand::List => list(session).await,
        TokenCommand::Revoke { name } => {
            let answer = session.client()?.revoke_token(&name).await?;
            session.out.line(printable::line(text(&answer, "/message")))
        }
    }
}

async fn create(session: &mut Session, args: TokenArgs) -> Result<(), Error> {
    let TokenArgs { name, user, groups, ttl, as_kubeconfig } = args;
    let ttl = ttl.map(|ttl| format!("{}s", ttl.as_secs()));
    let namespace = session.namespace()?;
    let wanted = json!({
        "name": name, "user": user, "groups": groups, "ttl": ttl, "namespace": namespace,
    });
    let answer = session.client()?.create_token(&wanted).await?;
    match session.format() {
        _ if as_kubeconfig => session.out.raw(text(&answer, "/kubeconfig").as_bytes()),
        Some(Format::Json) => session.out.json(&answer),
        Some(Format::Yaml) => session.out.yaml(&answer),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            let (user, expires) = (text(&answer, "/user"), text(&answer, "/expires"));
            session.out.note(format!("token `{name}` of user `{user}`, shown once; valid until {expires}:"));
            session.out.line(printable::line(text(&answer, "/token")))
        }
    }
}

async fn list(session: &mut Session) -> Result<(), Error> {
    let answer = session.client()?.tokens().await?;
    let tokens = answer.get("tokens").and_then(Value::as_array).cloned().unwrap_or_default();
    match session.format() {
        Some(Format::Json) => session.out.json(&json!(tokens)),
        Some(Format::Yaml) => session.out.yaml(&json!(tokens)),
        Some(Format::Name) => {
            tokens.iter().try_for_each(|token| session.out.line(printable::line(text(token, "/name"))))
        }
        Some(Format::Wide | Format::Text) | None => {
            let mut table = Table::new(["NAME", "USER", "GROUPS", "CREATED", "EXPIRES"]);
            for token in &tokens {
                let groups = token.get("groups").and_then(Value::as_array).into_iter().flatten();
                let groups: Vec<&str> = groups.filter_map(Value::as_str).collect();
                let expires = match (text(token, "/expires"), token["expired"] == true) {
                    ("", _) => "never".to_owned(),
                    (at, true) => format!("{at} (expired)"),
                    (at, false) => at.to_owned(),
                };
                let cell = |pointer: &str| Cell::new(text(token, pointer));
                table.push(vec![
                    cell("/name"),
                    cell("/user"),
                    Cell::new(groups.join(",")),
                    cell("/created"),
                    Cell::new(expires),
                ]);
            }
            let text = table.text(session.out.colour);
            session.out.raw(text.as_bytes())
        }
    }
}

pub(in crate::commands) async fn auth(session: &mut Session, command: AuthCommand) -> Result<(), Error> {
    let AuthCommand::CanI(args) = command;
    let known: &[&str] = if args.resource.starts_with('/') { &PATH_VERBS } else { &RESOURCE_VERBS };
    if !known.contains(&args.verb.as_str()) {
        session.out.warn(format!("`{}` is not a known verb; these are: {}", args.verb, known.join(", ")));
    }
    let spec = asked(session, args)?;
    let status = session.client()?.can_i(&spec).await?;
    let is_allowed = status["status"]["allowed"] == true;
    session.out.line(if is_allowed { "yes" } else { "no" })?;
    if is_allowed { Ok(()) } else { Err(Error::Reported) }
}

/// The spec of a SelfSubjectAccessReview.
fn asked(session: &mut Session, args: CanIArgs) -> Result<Value, Error> {
    let CanIArgs { verb, resource, subresource, all_namespaces } = args;
    if resource.starts_with('/') {
        return Ok(json!({"nonResourceAttributes": {"path": resource, "verb": verb}}));
    }
    let (word, name) = resource.split_once('/').unwrap_or((&resource, ""));
    // A word that names no kind is one of Meridian's own resources, such as `audit`.
    let kind = Kind::from_word(word);
    let (group, plural) = match (kind, word.split_once('.')) {
        (Some(kind), _) => (kind.group(), kind.plural()),
        (None, Some((plural, group))) => (group, plural),
        (None, None) => (meridian_objects::kind::MERIDIAN_GROUP, word),
    };
    let is_global = all_namespaces || kind.is_none_or(|kind| !kind.namespaced());
    let namespace = if is_global { String::new() } else { session.namespace()? };
    Ok(json!({"resourceAttributes": {
        "verb": verb, "group": group, "resource": plural, "subresource": subresource.unwrap_or_default(),
        "name": name, "namespace": namespace,
    }}))
}

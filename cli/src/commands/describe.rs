//! `describe`: one object with all that is known about it, for reading.

use super::{show_done, targets};
use crate::age;
use crate::args::{DescribeArgs, Format};
use crate::columns::{Columns, text};
use crate::error::Error;
use crate::out;
use crate::printable;
use crate::session::Session;
use crate::table::{Cell, Table};
use crate::why::Explanation;
use jiff::Timestamp;
use meridian_objects::Kind;
use meridian_objects::applied::LAST_APPLIED;
use serde_json::Value;
use std::fmt::Write;

pub(super) async fn run(session: &mut Session, args: DescribeArgs) -> Result<(), Error> {
    let targets = targets::read_named(&args.targets)?;
    if matches!(session.format(), Some(Format::Json | Format::Yaml)) {
        return documents(session, targets).await;
    }
    let client = session.client()?;
    for (index, (kind, name)) in targets.into_iter().enumerate() {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        let object = client.get(kind, namespace.as_deref(), &name).await?;
        let job = match kind {
            Kind::Job => name.as_str(),
            Kind::Workload => text(&object, "/metadata/ownerReferences/0/name"),
            _ => "",
        };
        let explanation = match &namespace {
            // a finished or foreign job may have none; the object is worth showing all the same
            Some(namespace) if !job.is_empty() => {
                client.why(namespace, job).await.ok().and_then(|answer| Explanation::read(answer).ok())
            }
            _ => None,
        };
        if index > 0 {
            session.out.line("\n")?;
        }
        let text = describe(kind, &object, explanation.as_ref(), session.now(), session.out.colour)?;
        session.out.raw(text.as_bytes())?;
    }
    Ok(())
}

/// For machines: one document, a List where there are several objects. One that can't be had ends it, and those before it are shown.
async fn documents(session: &mut Session, targets: Vec<(Kind, String)>) -> Result<(), Error> {
    let client = session.client()?;
    let (mut found, mut failed) = (Vec::new(), None);
    for (kind, name) in targets {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        match client.get(kind, namespace.as_deref(), &name).await {
            Ok(object) => found.push(object),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if !found.is_empty() {
        show_done(session, &found, &[])?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// The description of an object.
pub(super) fn describe(
    kind: Kind,
    object: &Value,
    why: Option<&Explanation>,
    now: Timestamp,
    colour: bool,
) -> Result<String, Error> {
    let mut page = facts(kind, object, now).text(colour);
    for (title, value) in sections(object) {
        let yaml = out::yaml(&value)?;
        write!(page, "\n{title}:\n").expect("writing to a string can't fail");
        for line in printable::lines(&yaml).lines() {
            writeln!(page, "  {line}").expect("writing to a string can't fail");
        }
    }
    let conditions = conditions(object, now, colour);
    if !conditions.is_empty() {
        write!(page, "\nConditions:\n{conditions}").expect("writing to a string can't fail");
    }
    if let Some(why) = why {
        write!(page, "\nWhy:\n{}", why.text(now, colour)).expect("writing to a string can't fail");
    }
    Ok(page)
}

/// Its identity, and what a table would show of it.
fn facts(kind: Kind, object: &Value, now: Timestamp) -> Table {
    let mut facts = Table::new(["Kind:", kind.name()]);
    // a cell without text would show as a dash; a further line of the same fact has no name
    let mut fact = |name: &str, value: Cell| {
        facts.push(vec![Cell::new(if name.is_empty() { " ".to_owned() } else { format!("{name}:") }), value])
    };
    fact("Name", Cell::new(text(object, "/metadata/name")));
    if kind.namespaced() {
        fact("Namespace", Cell::new(text(object, "/metadata/namespace")));
    }
    fact("UID", Cell::new(text(object, "/metadata/uid")));
    let created = text(object, "/metadata/creationTimestamp");
    fact(
        "Created",
        Cell::new(if created.is_empty() {
            String::new()
        } else {
            format!("{created} ({} ago)", age::since(created, now))
        }),
    );
    fact("Version", Cell::new(text(object, "/metadata/resourceVersion")));
    for (title, pointer) in [("Labels", "/metadata/labels"), ("Annotations", "/metadata/annotations")] {
        let mut title = Some(title);
        let entries = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
        // a copy of the object, as kubectl leaves it out too
        for (key, value) in entries.filter(|(key, _)| *key != LAST_APPLIED) {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            fact(title.take().unwrap_or_default(), Cell::new(format!("{key}={value}")));
        }
    }
    for (header, cell) in
        Columns::of(kind, true, false).pairs(object, now).into_iter().filter(|(header, _)| *header != "AGE")
    {
        fact(&title_case(header), cell);
    }
    facts
}

/// Everything of an object but its identity and its conditions, which have places of their own.
fn sections(object: &Value) -> Vec<(String, Value)> {
    let fields = object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    let shown = fields.map(|(key, value)| {
        let mut value = value.clone();
        if let (Value::Object(fields), "status") = (&mut value, key.as_str()) {
            fields.remove("conditions");
        }
        (title_case(key), value)
    });
    shown.filter(|(_, value)| !is_empty(value)).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn conditions(object: &Value, now: Timestamp, colour: bool) -> String {
    let Some(conditions) =
        object.pointer("/status/conditions").and_then(Value::as_array).filter(|all| !all.is_empty())
    else {
        return String::new();
    };
    let mut table = Table::new(["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"]);
    for condition in conditions {
        table.push(vec![
            Cell::new(text(condition, "/type")),
            Cell::state(text(condition, "/status")),
            Cell::new(age::since(text(condition, "/lastTransitionTime"), now)),
            Cell::new(text(condition, "/reason")),
            Cell::new(text(condition, "/message")),
        ]);
    }
    table.text(colour)
}

/// `LAST-SYNC` and `spec` as words that begin a line: `Last-Sync`, `Spec`.
fn title_case(text: &str) -> String {
    let is_header = text.chars().all(|c| c.is_uppercase() || !c.is_alphabetic());
    let mut upper = true;
    let each = text.chars().map(|c| {
        let c = if upper {
            c.to_ascii_uppercase()
        } else if is_header {
            c.to_ascii_lowercase()
        } else {
            c
        };
        upper = !c.is_alphanumeric();
        c
    });
    each.collect()
}

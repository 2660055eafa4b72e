//! `describe`: everything known about objects, for reading.

use crate::args::{DescribeArgs, Format, targets};
use crate::client::JobName;
use crate::commands::jobs::explanation::Explanation;
use crate::commands::results::Results;
use crate::error::Error;
use crate::objects::fields::text;
use crate::output::columns::Columns;
use crate::output::printable;
use crate::output::streams;
use crate::output::table::{Cell, Table};
use crate::output::wrap::PAGE_COLUMNS;
use crate::session::Session;
use jiff::Timestamp;
use meridian_objects::last_applied::LAST_APPLIED;
use meridian_objects::{Kind, age, any_job, quantity};
use serde_json::Value;
use std::fmt::Write;

pub(in crate::commands) async fn run(session: &mut Session, args: DescribeArgs) -> Result<(), Error> {
    let targets = targets::parse_named(&args.targets)?;
    if matches!(session.format(), Some(Format::Json | Format::Yaml)) {
        return show_documents(session, targets).await;
    }
    let client = session.client()?;
    for (index, (kind, name)) in targets.into_iter().enumerate() {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        let object = client.get(kind, namespace.as_deref(), &name).await?;
        let job = match kind {
            any_job!() => Some(JobName::new(Some(kind), &name)),
            Kind::Workload => Some(owner_of(&object)),
            _ => None,
        };
        let explanation = match (&namespace, &job) {
            // A job that Meridian doesn't manage has no explanation; the rest is shown without it.
            (Some(namespace), Some(job)) => {
                client.why(namespace, job).await.ok().and_then(|answer| Explanation::parse(answer).ok())
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

/// The job behind a workload.
fn owner_of(workload: &Value) -> JobName {
    let owner = |field: &str| text(workload, &format!("/metadata/ownerReferences/0/{field}"));
    JobName::new(Kind::from_word(owner("kind")), owner("name"))
}

/// One document, or a `List` of several. Shows the objects before the first that fails.
async fn show_documents(session: &mut Session, targets: Vec<(Kind, String)>) -> Result<(), Error> {
    let client = session.client()?;
    let (mut found, mut failed) = (Results::default(), None);
    for (kind, name) in targets {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        match client.get(kind, namespace.as_deref(), &name).await {
            Ok(object) => found.add_document(object),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if !found.is_empty() {
        found.show(session)?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn describe(
    kind: Kind,
    object: &Value,
    why: Option<&Explanation>,
    now: Timestamp,
    colour: bool,
) -> Result<String, Error> {
    let mut page = facts(kind, object, now).text(colour);
    let resources = if kind == Kind::Cluster { cluster_resources(object) } else { String::new() };
    for (title, mut value) in sections(object) {
        if let (Kind::Cluster, "Status", Value::Object(fields)) = (kind, title.as_str(), &mut value) {
            // Both are shown for readers: as `Resources` and as `Last sync`.
            fields.remove("resources");
            fields.remove("sinceLastSyncMs");
        }
        let yaml = streams::yaml(&value)?;
        write!(page, "\n{title}:\n").expect("writing to a string can't fail");
        for line in printable::lines(&yaml).lines() {
            writeln!(page, "  {line}").expect("writing to a string can't fail");
        }
    }
    if !resources.is_empty() {
        write!(page, "\nResources:\n{resources}").expect("writing to a string can't fail");
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

/// Identity, labels, annotations, and the columns of `get -o wide`.
fn facts(kind: Kind, object: &Value, now: Timestamp) -> Table {
    let mut facts = Table::new(["Kind:", kind.name()]);
    // A blank: a cell without text would show as a dash.
    let mut fact = |name: &str, value: Cell| {
        facts.push(vec![Cell::new(if name.is_empty() { " ".to_owned() } else { format!("{name}:") }), value])
    };
    fact("Name", Cell::new(text(object, "/metadata/name")));
    if kind.namespaced() {
        fact("Namespace", Cell::new(text(object, "/metadata/namespace")));
    }
    fact("UID", Cell::new(text(object, "/metadata/uid")));
    let created = text(object, "/metadata/creationTimestamp");
    let ago = || format!("{created} ({} ago)", age::since(created, now).unwrap_or_default());
    fact("Created", Cell::new(if created.is_empty() { String::new() } else { ago() }));
    fact("Version", Cell::new(text(object, "/metadata/resourceVersion")));
    for (title, pointer) in [("Labels", "/metadata/labels"), ("Annotations", "/metadata/annotations")] {
        let mut title = Some(title);
        let entries = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
        // The last applied configuration repeats the object; `kubectl` omits it too.
        for (key, value) in entries.filter(|(key, _)| *key != LAST_APPLIED) {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            fact(title.take().unwrap_or_default(), Cell::new(format!("{key}={value}")));
        }
    }
    let columns = Columns::of(kind, true, false).pairs(object, now).into_iter();
    for (name, cell) in columns.filter(|(name, _)| *name != "Age") {
        fact(name, cell);
    }
    facts
}

/// The rest of the object: everything but identity and conditions.
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

/// A cluster's resources as quantities: its status has base units, such as thousandths of a core. Empty if it
/// has none.
fn cluster_resources(cluster: &Value) -> String {
    let Some(resources) = cluster.pointer("/status/resources").and_then(Value::as_object) else {
        return String::new();
    };
    let mut table = Table::new(["RESOURCE", "CAPACITY", "FREE"]);
    for (resource, amounts) in resources {
        let amount = |field: &str| {
            let amount = amounts.get(field).and_then(Value::as_i64);
            Cell::new(amount.map(|amount| quantity::format(resource, amount)).unwrap_or_default())
        };
        table.push(vec![Cell::new(resource), amount("capacity"), amount("free")]);
    }
    if table.is_empty() { String::new() } else { table.text(false) }
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
            Cell::new(age::since(text(condition, "/lastTransitionTime"), now).unwrap_or_default()),
            Cell::new(text(condition, "/reason")),
            Cell::new(text(condition, "/message")),
        ]);
    }
    table.page(colour, PAGE_COLUMNS)
}

/// `spec` becomes `Spec`.
fn title_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

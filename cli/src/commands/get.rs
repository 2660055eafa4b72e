//! `get`: objects as a table, as documents or as names; once, or again with every change.

use super::targets::{self, Target};
use super::{name_of, reference};
use crate::args::{Format, GetArgs};
use crate::client::{Change, Client, Selection};
use crate::columns::Columns;
use crate::error::Error;
use crate::selector;
use crate::session::Session;
use crate::table::Cell;
use meridian_objects::Kind;
use serde_json::{Value, json};

pub(super) async fn run(session: &mut Session, args: GetArgs) -> Result<(), Error> {
    let targets = targets::read(&args.targets)?;
    let labels = selector::to_query(&selector::parse(&args.selector)?);
    let named = targets.iter().any(|target| target.name.is_some());
    if named && (!labels.is_empty() || args.all_namespaces) {
        return Err(Error::Usage("a name says all: leave `-l` and `-A` out".to_owned()));
    }
    let client = session.client()?.of_cluster(args.cluster);
    if args.watch {
        let [target] = targets.as_slice() else {
            return Err(Error::Usage("`-w` watches one kind or one object".to_owned()));
        };
        let selection = selection(session, target, labels, args.all_namespaces)?;
        return watch(session, &client, selection, args.all_namespaces).await;
    }
    if !named {
        let selection = selection(session, &targets[0], labels, args.all_namespaces)?;
        let list = client.list(&selection).await?;
        return show_list(session, &selection, &list.items, &list.version, args.all_namespaces);
    }
    by_name(session, &client, targets).await
}

/// Shows all clusters; what `cluster list` does.
pub(super) async fn list_all(session: &mut Session, kind: Kind) -> Result<(), Error> {
    let client = session.client()?;
    let selection = Selection { kind, namespace: None, labels: String::new(), name: None };
    let list = client.list(&selection).await?;
    show_list(session, &selection, &list.items, &list.version, false)
}

fn selection(
    session: &mut Session,
    target: &Target,
    labels: String,
    all_namespaces: bool,
) -> Result<Selection, Error> {
    let namespace =
        if target.kind.namespaced() && !all_namespaces { Some(session.namespace()?) } else { None };
    Ok(Selection { kind: target.kind, namespace, labels, name: target.name.clone() })
}

/// Objects by their names. One that is missing is told, and the others are shown.
async fn by_name(session: &mut Session, client: &Client, targets: Vec<Target>) -> Result<(), Error> {
    let (mut found, mut failed) = (Vec::new(), None);
    for Target { kind, name } in targets {
        let Some(name) = name else { continue };
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        match client.get(kind, namespace.as_deref(), &name).await {
            Ok(object) => found.push((kind, object)),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    session.out.note(format!("error: {earlier}"));
                }
            }
        }
    }
    match (session.format(), found.as_slice()) {
        (_, []) => {}
        (Some(Format::Json), [(_, one)]) => session.out.json(one)?,
        (Some(Format::Yaml), [(_, one)]) => session.out.yaml(one)?,
        (Some(Format::Json), many) => {
            session.out.json(&list_of(many.iter().map(|(_, object)| object), ""))?
        }
        (Some(Format::Yaml), many) => {
            session.out.yaml(&list_of(many.iter().map(|(_, object)| object), ""))?
        }
        (Some(Format::Name), many) => {
            many.iter().try_for_each(|(kind, object)| session.out.line(reference(*kind, name_of(object))))?
        }
        (Some(Format::Wide | Format::Text) | None, many) => {
            for (index, of_kind) in many.chunk_by(|a, b| a.0 == b.0).enumerate() {
                if index > 0 {
                    session.out.line("")?;
                }
                let columns = Columns::of(of_kind[0].0, session.format() == Some(Format::Wide), false);
                let mut table = columns.table();
                of_kind.iter().for_each(|(_, object)| table.push(columns.row(object, session.now())));
                let text = table.text(session.out.colour);
                session.out.raw(text.as_bytes())?;
            }
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn show_list(
    session: &mut Session,
    selection: &Selection,
    items: &[Value],
    version: &str,
    all_namespaces: bool,
) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(&list_of(items.iter(), version)),
        Some(Format::Yaml) => session.out.yaml(&list_of(items.iter(), version)),
        Some(Format::Name) => {
            items.iter().try_for_each(|object| session.out.line(reference(selection.kind, name_of(object))))
        }
        Some(Format::Wide | Format::Text) | None => {
            if items.is_empty() {
                let place = selection
                    .namespace
                    .as_ref()
                    .map(|namespace| format!(" in namespace {namespace}"))
                    .unwrap_or_default();
                session.out.note(format!("no {} found{place}", selection.kind.plural()));
                return Ok(());
            }
            let columns = Columns::of(selection.kind, session.format() == Some(Format::Wide), all_namespaces);
            let mut table = columns.table();
            items.iter().for_each(|object| table.push(columns.row(object, session.now())));
            let text = table.text(session.out.colour);
            session.out.raw(text.as_bytes())
        }
    }
}

fn list_of<'o>(items: impl Iterator<Item = &'o Value>, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items.collect::<Vec<_>>()})
}

/// Shows what is there, then a row or a document per change, until the manager or the reader goes away.
async fn watch(
    session: &mut Session,
    client: &Client,
    selection: Selection,
    all_namespaces: bool,
) -> Result<(), Error> {
    let (kind, name) = (selection.kind, selection.name.clone());
    let (items, mut watch) = client.watch(selection).await?;
    let columns = Columns::of(kind, session.format() == Some(Format::Wide), all_namespaces);
    let mut table = columns.table();
    if let Some(name) = name.filter(|_| items.is_empty()) {
        session.out.note(format!("{} is not there yet", reference(kind, &name)));
    }
    let tabular = matches!(session.format(), Some(Format::Wide | Format::Text) | None);
    if tabular {
        items.iter().for_each(|object| table.push(columns.row(object, session.now())));
        let text = table.text(session.out.colour);
        session.out.raw(text.as_bytes())?;
    } else {
        for object in &items {
            show_document(session, kind, object)?;
        }
    }
    loop {
        session.out.flush()?;
        let Change { kind: change, object } = watch.next().await?;
        tracing::debug!(change = change.word(), name = name_of(&object), "changed");
        if tabular {
            let mut row = columns.row(&object, session.now());
            if change == crate::client::ChangeKind::Deleted
                && let Some(last) = row.last_mut()
            {
                *last = Cell::new("(deleted)");
            }
            table.push(row);
            let text = table.rows_text(session.out.colour);
            session.out.raw(text.as_bytes())?;
        } else {
            show_document(session, kind, &object)?;
        }
    }
}

fn show_document(session: &mut Session, kind: Kind, object: &Value) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(object),
        Some(Format::Yaml) => {
            session.out.line("---")?;
            session.out.yaml(object)
        }
        Some(Format::Name | Format::Wide | Format::Text) | None => {
            session.out.line(reference(kind, name_of(object)))
        }
    }
}

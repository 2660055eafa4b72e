//! `get`: objects as a table, as documents or as names; with `-w` also every change.

mod sorting;

use crate::args::targets::{self, Target};
use crate::args::{Format, GetArgs};
use crate::client::{ChangeKind, Client, List, Selection, WatchEvent};
use crate::error::Error;
use crate::objects::fields::name_of;
use crate::output::columns::Columns;
use crate::output::references::reference;
use crate::output::table::Cell;
use crate::output::template::Path;
use crate::session::Session;
use meridian_objects::{Kind, selector};
use serde_json::{Value, json};

pub(in crate::commands) async fn run(session: &mut Session, args: GetArgs) -> Result<(), Error> {
    let targets = targets::parse(&args.targets)?;
    let selector = selector::parse_labels(&args.selector).map_err(|error| Error::Usage(error.to_string()))?;
    let labels = selector::format_labels(&selector);
    let named = targets.iter().any(|target| target.name.is_some());
    if named && (!labels.is_empty() || args.all_namespaces) {
        return Err(Error::Usage("`-l` and `-A` can't be combined with a name".to_owned()));
    }
    let client = session.client()?.of_cluster(args.cluster);
    if args.watch {
        let [target] = targets.as_slice() else {
            return Err(Error::Usage("`-w` watches one kind or one object".to_owned()));
        };
        let selection = selection(session, target, labels, args.all_namespaces)?;
        return watch(session, &client, selection, args.all_namespaces).await;
    }
    if named {
        return by_name(session, &client, targets, args.sort_by.as_ref()).await;
    }
    let mut lists = Vec::new();
    for target in &targets {
        let selection = selection(session, target, labels.clone(), args.all_namespaces)?;
        let mut list = client.list(&selection).await?;
        if let Some(path) = &args.sort_by {
            sorting::sort(&mut list.items, path, |object| object);
        }
        lists.push((selection, list));
    }
    match lists.as_slice() {
        [(selection, list)] => show_list(session, selection, list, args.all_namespaces),
        lists => show_lists(session, lists, args.all_namespaces),
    }
}

/// All objects of a kind without namespaces, as `cluster list` prints them. Fails if the request does.
pub(in crate::commands) async fn list_all(session: &mut Session, kind: Kind) -> Result<(), Error> {
    let selection = Selection::all(kind);
    let list = session.client()?.list(&selection).await?;
    show_list(session, &selection, &list, false)
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

/// Shows the objects that exist, and then fails if one of them doesn't.
async fn by_name(
    session: &mut Session,
    client: &Client,
    targets: Vec<Target>,
    sort_by: Option<&Path>,
) -> Result<(), Error> {
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
    if let Some(path) = sort_by {
        sorting::sort(&mut found, path, |(_, object)| object);
    }
    if !found.is_empty() {
        show_found(session, &found)?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn show_found(session: &mut Session, found: &[(Kind, Value)]) -> Result<(), Error> {
    let document = || match found {
        [(_, one)] => one.clone(),
        many => list_document(many.iter().map(|(_, object)| object), ""),
    };
    match session.format() {
        Some(Format::Json) => session.out.json(&document()),
        Some(Format::Yaml) => session.out.yaml(&document()),
        Some(Format::Name) => {
            found.iter().try_for_each(|(kind, object)| session.out.line(reference(*kind, name_of(object))))
        }
        Some(Format::Wide | Format::Text) | None => {
            for (index, of_kind) in found.chunk_by(|a, b| a.0 == b.0).enumerate() {
                if index > 0 {
                    session.out.line("")?;
                }
                let objects = of_kind.iter().map(|(_, object)| object);
                show_table(session, of_kind[0].0, false, objects)?;
            }
            Ok(())
        }
    }
}

/// Lists of several kinds: one document, or a table each, in which names have their kind in front.
fn show_lists(session: &mut Session, lists: &[(Selection, List)], all_namespaces: bool) -> Result<(), Error> {
    let items = || lists.iter().flat_map(|(_, list)| list.items.iter());
    match session.format() {
        Some(Format::Json) => return session.out.json(&list_document(items(), "")),
        Some(Format::Yaml) => return session.out.yaml(&list_document(items(), "")),
        Some(Format::Name | Format::Wide | Format::Text) | None => {}
    }
    let is_names = session.format() == Some(Format::Name);
    let mut shown = 0;
    for (selection, list) in lists.iter().filter(|(_, list)| !list.items.is_empty()) {
        if is_names {
            show_list(session, selection, list, all_namespaces)?;
            continue;
        }
        if shown > 0 {
            session.out.line("")?;
        }
        shown += 1;
        let columns = Columns::of(selection.kind, session.format() == Some(Format::Wide), all_namespaces);
        let name_at = usize::from(all_namespaces && selection.kind.namespaced());
        let mut table = columns.table();
        for object in &list.items {
            let mut row = columns.row(object, session.now());
            if let Some(name) = row.get_mut(name_at) {
                *name = Cell::new(reference(selection.kind, name_of(object)));
            }
            table.push(row);
        }
        let text = table.text(session.out.colour);
        session.out.raw(text.as_bytes())?;
    }
    if items().next().is_none() {
        let kinds: Vec<&str> = lists.iter().map(|(selection, _)| selection.kind.plural()).collect();
        let namespace = lists.iter().find_map(|(selection, _)| selection.namespace.as_ref());
        let within = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
        session.out.note(format!("no {} found{within}", kinds.join(", ")));
    }
    Ok(())
}

fn show_list(
    session: &mut Session,
    selection: &Selection,
    list: &List,
    all_namespaces: bool,
) -> Result<(), Error> {
    let (items, kind) = (&list.items, selection.kind);
    match session.format() {
        Some(Format::Json) => session.out.json(&list_document(items.iter(), &list.version)),
        Some(Format::Yaml) => session.out.yaml(&list_document(items.iter(), &list.version)),
        Some(Format::Name) => {
            items.iter().try_for_each(|object| session.out.line(reference(kind, name_of(object))))
        }
        Some(Format::Wide | Format::Text) | None if items.is_empty() => {
            let namespace = selection.namespace.as_ref();
            let within = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
            session.out.note(format!("no {} found{within}", kind.plural()));
            Ok(())
        }
        Some(Format::Wide | Format::Text) | None => show_table(session, kind, all_namespaces, items.iter()),
    }
}

fn show_table<'o>(
    session: &mut Session,
    kind: Kind,
    namespaces: bool,
    objects: impl Iterator<Item = &'o Value>,
) -> Result<(), Error> {
    let columns = Columns::of(kind, session.format() == Some(Format::Wide), namespaces);
    let mut table = columns.table();
    objects.for_each(|object| table.push(columns.row(object, session.now())));
    let text = table.text(session.out.colour);
    session.out.raw(text.as_bytes())
}

fn list_document<'o>(items: impl Iterator<Item = &'o Value>, version: &str) -> Value {
    let items: Vec<&Value> = items.collect();
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items})
}

/// Shows the present objects, then a row or a document per change. Ends only with an error.
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
        session.out.note(format!("{} doesn't exist yet", reference(kind, &name)));
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
        let WatchEvent { kind: change, object } = watch.next().await?;
        tracing::debug!(change = change.name(), name = name_of(&object), "changed");
        if tabular {
            let mut row = columns.row(&object, session.now());
            if change == ChangeKind::Deleted
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

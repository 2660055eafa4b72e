//! `delete`: by name, by label, all of a kind, or from files; `--wait` waits until the objects are gone.

use super::namespace::set_namespaces;
use crate::args::targets::{self, Target};
use crate::args::{DeleteArgs, DryRun};
use crate::client::{ChangeKind, Client, DeleteOptions, Selection};
use crate::commands::results::Results;
use crate::error::Error;
use crate::files;
use crate::objects::fields::{name_of, text};
use crate::output::progress::Progress;
use crate::output::references::reference;
use crate::session::Session;
use meridian_objects::{Kind, selector};
use serde_json::{Value, json};

/// An object to delete.
struct Deletion {
    kind: Kind,
    namespace: Option<String>,
    name: String,
}

pub(in crate::commands) async fn run(session: &mut Session, args: DeleteArgs) -> Result<(), Error> {
    let dry_run = args.dry_run.at;
    let deletions = if !args.files.is_empty() {
        from_files(session, &args)?
    } else if args.all || args.selector.is_some() {
        selected(session, &args).await?
    } else {
        by_name(session, &args.targets)?
    };
    let client = session.client()?.of_cluster(args.cluster);
    let options = DeleteOptions { force: args.force, dry_run: dry_run == DryRun::Server };
    let done = format!("deleted{}", dry_run.suffix());
    let (mut results, mut failed, mut going) = (Results::default(), false, Vec::new());
    for deletion in deletions {
        let Deletion { kind, namespace, name } = &deletion;
        let deleted = match dry_run {
            // This dry run sends no deletion, so it can only check that the object exists.
            DryRun::Client => client.get(*kind, namespace.as_deref(), name).await,
            DryRun::Server | DryRun::None => client.delete(*kind, namespace.as_deref(), name, options).await,
        };
        match deleted {
            Ok(answer) => {
                let document =
                    json!({"kind": kind.name(), "namespace": namespace, "name": name, "result": "deleted"});
                results.add(*kind, name, &done, document);
                let uid = deleted_uid(&answer);
                going.push((deletion, uid));
            }
            Err(error) if error.is_not_found() && args.ignore_not_found => {}
            Err(error) => {
                failed = true;
                session.out.note(format!("error: {}: {error}", reference(*kind, name)));
            }
        }
    }
    if args.wait && dry_run == DryRun::None {
        for (deletion, uid) in going {
            wait(session, &client, deletion, uid.as_deref()).await?;
        }
    }
    if !results.is_empty() {
        results.show(session)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

/// All objects of the kinds, or those with the labels.
async fn selected(session: &mut Session, args: &DeleteArgs) -> Result<Vec<Deletion>, Error> {
    let selector = selector::parse_labels(args.selector.as_deref().unwrap_or_default())
        .map_err(|error| Error::Usage(error.to_string()))?;
    let labels = selector::format_labels(&selector);
    if labels.is_empty() && !args.all {
        return Err(Error::Usage("the selector of `-l` is empty: `--all` deletes everything".to_owned()));
    }
    let client = session.client()?.of_cluster(args.cluster.clone());
    let mut deletions = Vec::new();
    for Target { kind, name } in targets::parse_exact(&args.targets)? {
        if let Some(name) = name {
            let how = if args.all { "--all" } else { "-l" };
            return Err(Error::Usage(format!("`{how}` can't be combined with a name (`{name}`)")));
        }
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        let selection = Selection { namespace, labels: labels.clone(), ..Selection::all(kind) };
        let list = client.list(&selection).await?;
        if list.items.is_empty() {
            let within = selection.namespace.as_ref().map(|name| format!(" in namespace {name}"));
            session.out.note(format!("no {} found{}", kind.plural(), within.unwrap_or_default()));
        }
        deletions.extend(list.items.iter().map(|object| Deletion {
            kind,
            namespace: selection.namespace.clone(),
            name: name_of(object).to_owned(),
        }));
    }
    Ok(deletions)
}

fn by_name(session: &mut Session, words: &[String]) -> Result<Vec<Deletion>, Error> {
    let mut deletions = Vec::new();
    let unnamed = |target: &Target| target.name.is_none();
    if let Some(target) = targets::parse_exact(words)?.into_iter().find(unnamed) {
        let (singular, plural) = (target.kind.singular(), target.kind.plural());
        return Err(Error::Usage(format!(
            "name the {singular} after its kind, or delete all of them: `meridian delete {plural} --all`"
        )));
    }
    for (kind, name) in targets::parse_named(words)? {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        deletions.push(Deletion { kind, namespace, name });
    }
    Ok(deletions)
}

/// The objects of the files in reverse order of kinds and lines, so that an object is deleted before those
/// that it refers to.
fn from_files(session: &mut Session, args: &DeleteArgs) -> Result<Vec<Deletion>, Error> {
    let parsed = files::objects(&args.files, &mut session.stdin, &mut session.out)?;
    let mut deletions = Vec::new();
    let mut objects = set_namespaces(session, parsed.objects)?;
    let rank = |kind: Kind| Kind::ALL.iter().position(|known| *known == kind);
    objects.sort_by_key(|object| rank(object.value.kind));
    for object in objects.into_iter().rev() {
        if object.value.name.is_empty() {
            return Err(Error::Refused(format!(
                "{}: `{}` has only a generateName; delete it by name",
                object.place,
                object.value.title()
            )));
        }
        let namespace = object.value.namespace_or_default().map(str::to_owned);
        deletions.push(Deletion { kind: object.value.kind, namespace, name: object.value.name });
    }
    Ok(deletions)
}

/// The UID in the answer: the object that is being deleted, or a `Status` that names it.
fn deleted_uid(answer: &Value) -> Option<String> {
    let uids = [text(answer, "/metadata/uid"), text(answer, "/details/uid")];
    uids.into_iter().find(|uid| !uid.is_empty()).map(str::to_owned)
}

/// Waits until the object is gone, or another one has its name.
async fn wait(
    session: &mut Session,
    client: &Client,
    deletion: Deletion,
    uid: Option<&str>,
) -> Result<(), Error> {
    let Deletion { kind, namespace, name } = deletion;
    let is_same = |object: &Value| uid.is_none_or(|uid| text(object, "/metadata/uid") == uid);
    let selection = Selection { namespace, name: Some(name.clone()), ..Selection::all(kind) };
    let (present, mut watch) = client.watch(selection).await?;
    if !present.iter().any(is_same) {
        return Ok(());
    }
    let mut progress = Progress::begin(&session.out);
    progress.update(&mut session.out, &format!("waiting for the deletion of {}", reference(kind, &name)));
    loop {
        let event = watch.next().await?;
        if event.kind == ChangeKind::Deleted || !is_same(&event.object) {
            progress.end();
            return Ok(());
        }
    }
}

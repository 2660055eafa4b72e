//! `delete`: by name or from files; `--wait` waits until the objects are gone.

use super::namespace::set_namespaces;
use crate::args::{DeleteArgs, targets};
use crate::client::{ChangeKind, Client, Selection};
use crate::commands::results::Results;
use crate::error::Error;
use crate::files;
use crate::objects::fields::text;
use crate::output::progress::Progress;
use crate::output::references::reference;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::{Value, json};

/// An object to delete.
struct Deletion {
    kind: Kind,
    namespace: Option<String>,
    name: String,
}

pub(in crate::commands) async fn run(session: &mut Session, args: DeleteArgs) -> Result<(), Error> {
    let deletions =
        if args.files.is_empty() { by_name(session, &args.targets)? } else { from_files(session, &args)? };
    let client = session.client()?.of_cluster(args.cluster);
    let (mut results, mut failed, mut going) = (Results::default(), false, Vec::new());
    for deletion in deletions {
        let Deletion { kind, namespace, name } = &deletion;
        match client.delete(*kind, namespace.as_deref(), name, args.force).await {
            Ok(answer) => {
                let document =
                    json!({"kind": kind.name(), "namespace": namespace, "name": name, "result": "deleted"});
                results.add(*kind, name, "deleted", document);
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
    if args.wait {
        for (deletion, uid) in going {
            wait(session, &client, deletion, uid.as_deref()).await?;
        }
    }
    if !results.is_empty() {
        results.show(session)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

fn by_name(session: &mut Session, words: &[String]) -> Result<Vec<Deletion>, Error> {
    let mut deletions = Vec::new();
    for (kind, name) in targets::parse_named(words)? {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        deletions.push(Deletion { kind, namespace, name });
    }
    Ok(deletions)
}

/// The objects of the files in reverse order of kinds and lines: what refers to others is deleted before
/// them.
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

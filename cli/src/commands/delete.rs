//! `delete`: by name or from files, and on request a wait until the objects are really gone.

use super::{apply, reference, show_done, targets};
use crate::args::DeleteArgs;
use crate::client::{ChangeKind, Client, Selection};
use crate::columns::text;
use crate::error::Error;
use crate::files;
use crate::progress::Progress;
use crate::session::Session;
use meridian_objects::Kind;
use serde_json::json;

/// What to delete.
struct Doomed {
    kind: Kind,
    namespace: Option<String>,
    name: String,
}

pub(super) async fn run(session: &mut Session, args: DeleteArgs) -> Result<(), Error> {
    let doomed =
        if args.files.is_empty() { named(session, &args.targets)? } else { from_files(session, &args)? };
    let client = session.client()?.of_cluster(args.cluster);
    let (mut documents, mut lines, mut failed, mut going) = (Vec::new(), Vec::new(), false, Vec::new());
    for Doomed { kind, namespace, name } in doomed {
        match client.delete(kind, namespace.as_deref(), &name).await {
            Ok(answer) => {
                lines.push((reference(kind, &name), "deleted".to_owned()));
                documents.push(
                    json!({"kind": kind.name(), "namespace": namespace, "name": name, "result": "deleted"}),
                );
                // the answer is the object that is going, or a Status that names its uid
                let uid = [text(&answer, "/metadata/uid"), text(&answer, "/details/uid")]
                    .into_iter()
                    .find(|uid| !uid.is_empty())
                    .map(str::to_owned);
                going.push((Doomed { kind, namespace, name }, uid));
            }
            Err(error) if error.is_not_found() && args.ignore_not_found => {}
            Err(error) => {
                failed = true;
                session.out.note(format!("error: {}: {error}", reference(kind, &name)));
            }
        }
    }
    if args.wait {
        for (doomed, uid) in going {
            wait(session, &client, doomed, uid.as_deref()).await?;
        }
    }
    if !documents.is_empty() {
        show_done(session, &documents, &lines)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

fn named(session: &mut Session, words: &[String]) -> Result<Vec<Doomed>, Error> {
    let mut doomed = Vec::new();
    for (kind, name) in targets::read_named(words)? {
        let namespace = if kind.namespaced() { Some(session.namespace()?) } else { None };
        doomed.push(Doomed { kind, namespace, name });
    }
    Ok(doomed)
}

/// The objects of the files, last ones first: what refers to others goes before them.
fn from_files(session: &mut Session, args: &DeleteArgs) -> Result<Vec<Doomed>, Error> {
    let parsed = files::objects(&args.files, &mut session.stdin, &mut session.out)?;
    let mut doomed = Vec::new();
    for object in apply::place(session, parsed.objects)?.into_iter().rev() {
        if object.value.name.is_empty() {
            return Err(Error::Refused(format!(
                "{}: `{}` has only a generateName; delete by name",
                object.place,
                object.value.title()
            )));
        }
        let namespace = object.value.namespace_or_default().map(str::to_owned);
        doomed.push(Doomed { kind: object.value.kind, namespace, name: object.value.name });
    }
    Ok(doomed)
}

/// Waits until the object is gone, or another one of its name is there.
async fn wait(
    session: &mut Session,
    client: &Client,
    doomed: Doomed,
    uid: Option<&str>,
) -> Result<(), Error> {
    let Doomed { kind, namespace, name } = doomed;
    let is_it = |object: &serde_json::Value| uid.is_none_or(|uid| text(object, "/metadata/uid") == uid);
    let selection = Selection { kind, namespace, labels: String::new(), name: Some(name.clone()) };
    let (here, mut watch) = client.watch(selection).await?;
    if !here.iter().any(is_it) {
        return Ok(());
    }
    let mut progress = Progress::begin(&session.out);
    progress.say(&mut session.out, &format!("waiting until {} is gone", reference(kind, &name)));
    loop {
        let change = watch.next().await?;
        if change.kind == ChangeKind::Deleted || !is_it(&change.object) {
            progress.end();
            return Ok(());
        }
    }
}

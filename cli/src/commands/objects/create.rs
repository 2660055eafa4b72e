//! `create`: one request per object; the manager fills in `generateName`.
//!
//! A failure doesn't undo earlier objects: it is printed, and the others are still tried, as in `kubectl`.

use super::namespace::set_namespaces;
use super::warnings::{self, ManagerWarning};
use crate::args::{CreateArgs, DryRun};
use crate::client::{self, CreateOptions, Status};
use crate::commands::results::Results;
use crate::error::Error;
use crate::files::{self, Texts};
use crate::objects::fields::name_of;
use crate::session::Session;
use meridian_objects::{FilePosition, Located, Object};

pub(in crate::commands) async fn run(session: &mut Session, args: CreateArgs) -> Result<(), Error> {
    let strictness = args.strictness.of_files();
    let (parsed, texts) =
        files::objects_with_texts(&args.files, strictness, &mut session.stdin, &mut session.out)?;
    let printed = warnings::printed(&parsed);
    let objects = set_namespaces(session, parsed.objects)?;
    let dry_run = args.dry_run.at;
    if dry_run == DryRun::Client {
        return Results::of_files(&objects, "created").show(session);
    }
    let client = session.client()?;
    let options =
        CreateOptions { validation: args.strictness.of_manager(), dry_run: dry_run == DryRun::Server };
    let done = format!("created{}", dry_run.suffix());
    let (mut results, mut found, mut failed) = (Results::default(), Vec::new(), false);
    for object in &objects {
        let (kind, namespace) = (object.value.kind, object.value.namespace_or_default());
        match client.create(kind, namespace, &object.value.stored, options).await {
            Ok(created) => {
                let name = name_of(&created.object).to_owned();
                results.add(kind, &name, &done, created.object);
                found.extend(created.warnings.into_iter().map(|warning| (object, warning)));
            }
            Err(error) => {
                failed = true;
                for problem in problems(&error, object, &texts) {
                    session.out.note(format!("error: {problem}"));
                }
            }
        }
    }
    let found: Vec<_> =
        found.iter().map(|(object, text)| ManagerWarning { object: Some(object), text }).collect();
    warnings::show(session, &found, &texts, &printed);
    if !results.is_empty() {
        results.show(session)?;
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

/// Why an object was refused: each field that the manager names, with file, line and column.
fn problems(error: &client::Error, object: &Located<Object>, texts: &Texts) -> Vec<String> {
    let title = object.value.title();
    let causes = error.status().map(Status::causes).unwrap_or_default();
    if causes.is_empty() {
        return vec![format!("{}: `{title}`: {error}", object.place)];
    }
    let fields: Vec<(&FilePosition, &str)> =
        causes.iter().map(|cause| (&object.place, cause.field.as_str())).collect();
    causes
        .iter()
        .zip(texts.places_of(&fields))
        .map(|(cause, place)| {
            let field = if cause.field.is_empty() { String::new() } else { format!("{}: ", cause.field) };
            format!("{place}: `{title}`: {field}{}", cause.message)
        })
        .collect()
}

//! `apply`: files into objects, in one transaction at the manager.

use super::{reference, remarks, show_done};
use crate::args::ApplyArgs;
use crate::client::{ApplyResult, Status};
use crate::error::Error;
use crate::files::{self, Texts};
use crate::session::Session;
use meridian_objects::{Kind, Located, Object, Place};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) async fn run(session: &mut Session, args: ApplyArgs) -> Result<(), Error> {
    let (parsed, texts) = files::objects_with_texts(&args.files, &mut session.stdin, &mut session.out)?;
    let said = remarks::said(&parsed);
    let objects = place(session, parsed.objects)?;
    if let Some(unnamed) = objects.iter().find(|object| object.value.name.is_empty()) {
        let Located { place, value } = unnamed;
        return Err(Error::Refused(format!(
            "{place}: `{}` has only a generateName, so that every apply would make another one; use `create -f`",
            value.title()
        )));
    }
    let client = session.client()?;
    // In the version of the file, which is noted with it.
    let bodies: Vec<Value> =
        objects.iter().map(|object| object.value.in_version(object.value.version)).collect();
    let answer = match client.apply(&bodies, args.cluster.as_deref(), args.dry_run).await {
        Ok(answer) => answer,
        Err(error) => {
            return Err(error
                .status()
                .and_then(|status| refused(status, &objects, &texts))
                .map_or_else(|| error.into(), Error::Refused));
        }
    };
    let titles: BTreeMap<String, &Located<Object>> =
        objects.iter().map(|object| (object.value.title(), object)).collect();
    let about = |warning| {
        str::split_once(warning, ": ").and_then(|(title, text)| Some((titles.get(title).copied()?, text)))
    };
    let found: Vec<_> = answer
        .warnings
        .iter()
        .map(|warning| about(warning).map_or((None, warning.as_str()), |(object, text)| (Some(object), text)))
        .collect();
    remarks::show(session, &found, &texts, &said);
    let suffix = if args.dry_run { " (dry run)" } else { "" };
    let lines: Vec<_> = answer
        .results
        .iter()
        .map(|result| (name(result), format!("{}{suffix}", crate::printable::line(&result.result))))
        .collect();
    show_done(session, &[json!(answer)], &lines)
}

/// Puts namespaced objects that name no namespace into the one to use. One named on the command line must not be
/// contradicted by a file.
pub(super) fn place(
    session: &mut Session,
    objects: Vec<Located<Object>>,
) -> Result<Vec<Located<Object>>, Error> {
    let mut placed = Vec::with_capacity(objects.len());
    for mut object in objects {
        if object.value.kind.namespaced() {
            match (&object.value.namespace, session.named_namespace()) {
                (Some(written), Some(wanted)) if written != wanted => {
                    let title = object.value.title();
                    return Err(Error::Refused(format!(
                        "{}: `{title}` is of namespace `{written}`, not `{wanted}`: leave `--namespace` out",
                        object.place
                    )));
                }
                (Some(_), _) => {}
                (None, _) => {
                    let namespace = session.namespace()?;
                    object.value.set_namespace(&namespace);
                }
            }
        }
        placed.push(object);
    }
    Ok(placed)
}

/// The manager's problems with the places of their fields; `None` when it names no object.
fn refused(status: &Status, objects: &[Located<Object>], texts: &Texts) -> Option<String> {
    let mut found: Vec<(&Located<Object>, &str, &str)> = Vec::new();
    for cause in status.causes() {
        let (index, field) = cause.field.strip_prefix("objects[")?.split_once(']')?;
        found.push((
            objects.get(index.parse::<usize>().ok()?)?,
            field.trim_start_matches('.'),
            &cause.message,
        ));
    }
    let fields: Vec<(&Place, &str)> =
        found.iter().map(|(object, field, _)| (&object.place, *field)).collect();
    let mut text = String::new();
    for ((object, field, message), place) in found.iter().zip(texts.places_of(&fields)) {
        let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
        writeln!(text, "{place}: `{}`: {field}{message}", object.value.title())
            .expect("writing to a string can't fail");
    }
    let count = found.len();
    let problems = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
    (count > 0).then(|| {
        format!(
            "the manager refused ({} {})\n{text}{problems} found; nothing was applied",
            status.code, status.reason
        )
    })
}

fn name(result: &ApplyResult) -> String {
    match Kind::from_word(&result.kind) {
        Some(kind) => reference(kind, &result.name),
        None => {
            crate::printable::line(&format!("{}/{}", result.kind.to_lowercase(), result.name)).into_owned()
        }
    }
}

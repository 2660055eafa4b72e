//! `apply`: creates or changes the objects of files in one transaction.

use super::namespace::set_namespaces;
use super::warnings::{self, ManagerWarning};
use crate::args::{ApplyArgs, DryRun};
use crate::client::{ApplyOptions, ApplyResult, Status};
use crate::commands::results::Results;
use crate::error::Error;
use crate::files::{self, Texts};
use crate::output::printable;
use crate::output::references::reference;
use crate::session::Session;
use meridian_objects::{FilePosition, Kind, Located, Object};
use meridian_shared::counted::counted;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(in crate::commands) async fn run(session: &mut Session, args: ApplyArgs) -> Result<(), Error> {
    let strictness = args.strictness.of_files();
    let (parsed, texts) =
        files::objects_with_texts(&args.files, strictness, &mut session.stdin, &mut session.out)?;
    let printed = warnings::printed(&parsed);
    let objects = set_namespaces(session, parsed.objects)?;
    if let Some(unnamed) = objects.iter().find(|object| object.value.name.is_empty()) {
        let Located { place, value } = unnamed;
        return Err(Error::Refused(format!(
            "{place}: `{}` has only a generateName, so every apply would create another one; use `create -f`",
            value.title()
        )));
    }
    let dry_run = args.dry_run.at;
    if dry_run == DryRun::Client {
        return Results::of_files(&objects, "applied").show(session);
    }
    let client = session.client()?;
    // In the file's version: the manager stores it as the last applied configuration.
    let bodies: Vec<Value> =
        objects.iter().map(|object| object.value.in_version(object.value.version)).collect();
    let options = ApplyOptions {
        cluster: args.cluster.as_deref(),
        dry_run: dry_run == DryRun::Server,
        validation: args.strictness.of_manager(),
    };
    let answer = match client.apply(&bodies, options).await {
        Ok(answer) => answer,
        Err(error) => {
            let problems = error.status().and_then(|status| locate_problems(status, &objects, &texts));
            return Err(problems.map_or_else(|| error.into(), Error::Refused));
        }
    };
    let titles: BTreeMap<String, &Located<Object>> =
        objects.iter().map(|object| (object.value.title(), object)).collect();
    let found: Vec<_> = answer.warnings.iter().map(|warning| attribute(warning, &titles)).collect();
    warnings::show(session, &found, &texts, &printed);
    let suffix = dry_run.suffix();
    let mut results = Results::default();
    for result in &answer.results {
        results.add_line(reference_of(result), format!("{}{suffix}", printable::line(&result.result)));
    }
    results.add_document(json!(answer));
    results.show(session)
}

/// Finds the object of a warning such as `localqueue/default/gpus: spec.clusterQueue: no such queue`.
fn attribute<'w>(warning: &'w str, titles: &BTreeMap<String, &'w Located<Object>>) -> ManagerWarning<'w> {
    let found = warning.split_once(": ").and_then(|(title, text)| Some((*titles.get(title)?, text)));
    match found {
        Some((object, text)) => ManagerWarning { object: Some(object), text },
        None => ManagerWarning { object: None, text: warning },
    }
}

/// The causes of a refusal with file, line and column; `None` if one of them names no object.
fn locate_problems(status: &Status, objects: &[Located<Object>], texts: &Texts) -> Option<String> {
    let mut found: Vec<(&Located<Object>, &str, &str)> = Vec::new();
    for cause in status.causes() {
        let (index, field) = cause.field.strip_prefix("objects[")?.split_once(']')?;
        let object = objects.get(index.parse::<usize>().ok()?)?;
        found.push((object, field.trim_start_matches('.'), &cause.message));
    }
    let fields: Vec<(&FilePosition, &str)> =
        found.iter().map(|(object, field, _)| (&object.place, *field)).collect();
    let mut text = String::new();
    for ((object, field, message), place) in found.iter().zip(texts.places_of(&fields)) {
        let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
        writeln!(text, "{place}: `{}`: {field}{message}", object.value.title())
            .expect("writing to a string can't fail");
    }
    let problems = counted(found.len(), "problem");
    let Status { code, reason, .. } = status;
    (!found.is_empty()).then(|| {
        format!("the manager refused ({code} {reason})\n{text}{problems} found; nothing was applied")
    })
}

fn reference_of(result: &ApplyResult) -> String {
    match Kind::from_word(&result.kind) {
        Some(kind) => reference(kind, &result.name),
        None => printable::line(&format!("{}/{}", result.kind.to_lowercase(), result.name)).into_owned(),
    }
}

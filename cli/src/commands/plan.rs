//! `plan`: decisions on the objects of files, by the same functions that a manager decides by; with `--what-if`, what files
//! would change at a running manager. Nothing is applied.

mod fleet;
mod resize;
mod settings;
#[cfg(test)]
mod tests;
mod text;

use crate::args::{Format, PlanArgs};
use crate::error::Error;
use crate::files;
use crate::session::Session;
use fleet::Overlaid;
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_objects::plan::PlanObject;
use meridian_objects::{Kind, Located};
use meridian_planning::load::{Options, cohorts_above_themselves, load, reads};
use meridian_planning::{Limits, Report, WhatIf, decide};
use meridian_queueing::places::Anywhere;
use serde::Serialize;
use std::collections::BTreeMap;

pub(super) async fn run(session: &mut Session, args: PlanArgs) -> Result<(), Error> {
    let options = settings::read(&args, session.now())?;
    let limits = Limits { cycles: args.cycles, heads_per_queue: usize::from(args.heads_per_queue) };
    let parsed = files::plan_objects(&args.files, &mut session.stdin, &mut session.out)?;
    let given = place(session, parsed.objects, args.what_if)?;
    if !args.what_if {
        refuse_cycles(&given)?;
        let mut report = plan(&given, &options, &limits);
        report.notes.extend(not_judged(&given));
        let wide = session.format() == Some(Format::Wide);
        return show(session, &report, |colour| text::plan(&report, wide, colour));
    }
    // As the manager decides.
    let mut options = options;
    options.settings.ties_by_age = true;
    let there = fleet::fetch(&session.client()?).await?;
    let unjudged = not_judged(&given);
    let before = plan(&there.objects, &options, &limits);
    let Overlaid { objects, changes, mut notes } = fleet::overlay(there, given, options.now);
    refuse_cycles(&objects)?;
    let after = plan(&objects, &options, &limits);
    let mut what_if = WhatIf::new(changes, &before, &after);
    notes.extend(unjudged);
    what_if.notes.splice(0..0, notes);
    show(session, &what_if, |colour| text::what_if(&what_if, colour))
}

/// A cohort above itself is refused as `apply` refuses it.
fn refuse_cycles(objects: &[PlanObject]) -> Result<(), Error> {
    let found = cohorts_above_themselves(objects);
    let one = |(name, parent): &(&str, &str)| {
        format!("cohort `{name}` would be its own ancestor through `{parent}`: name another parent, or none")
    };
    if found.is_empty() {
        Ok(())
    } else {
        Err(Error::Refused(found.iter().map(one).collect::<Vec<_>>().join("\n")))
    }
}

/// Whether decisions read the object at all.
fn is_read(object: &PlanObject) -> bool {
    match object {
        PlanObject::Object(planned) => reads(planned.object.kind),
        PlanObject::Workload(_) | PlanObject::Node(_) | PlanObject::Pod(_) => true,
    }
}

fn not_judged(given: &[PlanObject]) -> Vec<String> {
    let why = |object: &PlanObject| {
        format!("what `{}` changes isn't judged here: it says nothing about queues and quota", object.title())
    };
    given.iter().filter(|object| !is_read(object)).map(why).collect()
}

fn plan(objects: &[PlanObject], options: &Options, limits: &Limits) -> Report {
    let mut loaded = load(objects, options);
    let outcome = decide(&mut loaded, &mut Anywhere, limits);
    Report::new(&loaded, &outcome)
}

fn show(
    session: &mut Session,
    document: &impl Serialize,
    text: impl FnOnce(bool) -> String,
) -> Result<(), Error> {
    match session.format() {
        Some(Format::Json) => session.out.json(document),
        Some(Format::Yaml) => session.out.yaml(document),
        Some(Format::Text | Format::Wide | Format::Name) | None => {
            let text = text(session.out.colour);
            session.out.raw(text.as_bytes())
        }
    }
}

/// Puts namespaced objects that name no namespace into the one to use, and makes the names that are to be made. Without a
/// manager there is no kubeconfig that could name a namespace.
fn place(
    session: &mut Session,
    objects: Vec<Located<PlanObject>>,
    online: bool,
) -> Result<Vec<PlanObject>, Error> {
    let namespace = match session.named_namespace() {
        Some(named) => named.to_owned(),
        None if online => session.namespace()?,
        None => DEFAULT_NAMESPACE.to_owned(),
    };
    let named = session.named_namespace().map(str::to_owned);
    let mut made: BTreeMap<String, u32> = BTreeMap::new();
    let mut placed = Vec::with_capacity(objects.len());
    for Located { place, value: mut object } in objects {
        let title = object.title();
        let written = match &mut object {
            PlanObject::Object(planned) => {
                let object = &mut planned.object;
                if let (true, Some(prefix)) = (object.name.is_empty(), object.generate_name.clone()) {
                    let number = made.entry(prefix.clone()).or_default();
                    *number += 1;
                    object.set_name(&format!("{prefix}{number}"));
                }
                let written = object.namespace.clone();
                if object.kind.namespaced() && written.is_none() {
                    object.set_namespace(&namespace);
                }
                written.filter(|_| object.kind.namespaced())
            }
            PlanObject::Workload(workload) => in_namespace(&mut workload.meta.namespace, &namespace),
            PlanObject::Pod(pod) => in_namespace(&mut pod.meta.namespace, &namespace),
            PlanObject::Node(_) => None,
        };
        // A pod only takes room on its node: its namespace decides nothing.
        let decides = !matches!(object, PlanObject::Pod(_));
        if let (Some(written), Some(wanted), true) = (written, &named, decides)
            && written != *wanted
        {
            return Err(Error::Refused(format!(
                "{place}: `{title}` is of namespace `{written}`, not `{wanted}`: leave `--namespace` out"
            )));
        }
        placed.push(object);
    }
    Ok(placed)
}

/// The namespace that is written; the usual one is put where none is.
fn in_namespace(of: &mut String, usual: &str) -> Option<String> {
    if of.is_empty() {
        usual.clone_into(of);
        return None;
    }
    Some(of.clone())
}

/// What tells objects apart: kind, namespace, name.
fn identity(object: &PlanObject) -> (&'static str, String, String) {
    match object {
        PlanObject::Object(planned) => {
            let of = &planned.object;
            (of.kind.name(), of.namespace_or_default().unwrap_or_default().to_owned(), of.name.clone())
        }
        PlanObject::Workload(workload) => {
            (Kind::Workload.name(), workload.meta.namespace.clone(), workload.meta.name.clone())
        }
        PlanObject::Node(node) => ("Node", String::new(), node.meta.name.clone()),
        PlanObject::Pod(pod) => ("Pod", pod.meta.namespace.clone(), pod.meta.name.clone()),
    }
}

//! `plan`: the decisions that queues would take on the objects of files. With `--what-if`, the effect of the
//! files on a running manager. Nothing is applied.

mod capacity_notes;
mod manager_state;
mod objects;
mod overlay;
mod scale;
mod settings;
#[cfg(test)]
mod tests;
mod text;

use crate::args::{Format, PlanArgs};
use crate::error::Error;
use crate::files;
use crate::session::Session;
use meridian_objects::plan::PlanObject;
use meridian_planning::load::{LoadOptions, load};
use meridian_planning::{CycleLimits, PlanReport, WhatIf, decide};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use overlay::Overlaid;
use serde::Serialize;

/// What a plan doesn't evaluate about workloads that would be admitted.
const CAPACITY_NOTE: &str = "`Would be admitted` is by quota: whether a cluster has room, or must ask its \
                             provider for nodes, isn't evaluated";

pub(crate) async fn run(session: &mut Session, args: PlanArgs) -> Result<(), Error> {
    let mut options = settings::read(&args, session.now())?;
    let limits = CycleLimits { cycles: args.cycles, heads_per_queue: usize::from(args.heads_per_queue) };
    let parsed = files::plan_objects(&args.files, &mut session.stdin, &mut session.out)?;
    let given = objects::resolve_names(session, parsed.objects, args.what_if)?;
    let ignored = objects::ignored_notes(&given);
    if !args.what_if {
        objects::refuse_cyclic_cohorts(&given)?;
        let mut report = plan(&given, &options, &limits);
        report.notes.extend(ignored);
        let wide = session.format() == Some(Format::Wide);
        return show(session, &report, |colour| text::plan(&report, wide, colour));
    }
    // A manager breaks ties by age.
    options.settings.ties_by_age = true;
    let mut existing = manager_state::fetch(&session.client()?, &objects::kinds(&given)).await?;
    let not_running = std::mem::take(&mut existing.not_running);
    let before = plan(existing.objects(), &options, &limits);
    let Overlaid { objects, changes, mut notes } = overlay::overlay(existing, given, options.now);
    objects::refuse_cyclic_cohorts(&objects)?;
    let after = plan(&objects, &options, &limits);
    let mut what_if = WhatIf::new(changes, &before, &after);
    notes.extend(ignored);
    notes.extend(not_running.notes(&after));
    if !what_if.admitted.is_empty() {
        notes.push(CAPACITY_NOTE.to_owned());
    }
    what_if.notes.splice(0..0, notes);
    show(session, &what_if, |colour| text::what_if(&what_if, colour))
}

fn plan(objects: &[PlanObject], options: &LoadOptions, limits: &CycleLimits) -> PlanReport {
    let mut loaded = load(objects, options);
    let decisions = decide(&mut loaded, &mut UnlimitedCapacity, limits);
    PlanReport::new(&loaded, &decisions)
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

//! Overlays given objects on the objects of a manager, as `apply` would.

mod job_update;

use super::manager_state::{JobKey, ManagerState};
use super::objects::{identity, is_evaluated, names_clusters};
use job_update::{JobUpdate, drop_scale_up};
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::spec::workload::WorkloadObject;
use meridian_objects::{JobWorkload, Kind, Object, Spec, last_applied};
use meridian_planning::what_if::{ChangeKind, ObjectChange};
use meridian_queueing::model::Moment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Overlaid {
    pub(super) objects: Vec<PlanObject>,
    /// Effect of each given object.
    pub(super) changes: Vec<ObjectChange>,
    pub(super) notes: Vec<String>,
}

/// Merges each given object into the existing one of the same kind, namespace and name, or adds it. A job
/// replaces or updates the workload of the job with its name. New jobs are submitted after all existing ones,
/// in their order.
pub(super) fn overlay(existing: ManagerState, given: Vec<PlanObject>, now: Moment) -> Overlaid {
    let ManagerState { objects, jobs, ended_jobs, last_submission, not_running: _, notes } = existing;
    let priority_classes = objects.iter().chain(&given).filter_map(priority_class_name).collect();
    let mut overlay = Overlay {
        objects,
        jobs,
        ended_jobs,
        priority_classes,
        next_submission: now.max(last_submission.saturating_add(1)),
        changes: Vec::with_capacity(given.len()),
        notes,
    };
    for object in given {
        overlay.add(object);
    }
    let Overlay { objects, changes, notes, .. } = overlay;
    Overlaid { objects, changes, notes }
}

fn priority_class_name(object: &PlanObject) -> Option<String> {
    match object {
        PlanObject::Object(planned) if planned.object.kind == Kind::WorkloadPriorityClass => {
            Some(planned.object.name.clone())
        }
        _ => None,
    }
}

struct Overlay {
    objects: Vec<PlanObject>,
    /// Existing jobs that have a workload.
    jobs: Vec<PlanObject>,
    ended_jobs: BTreeSet<JobKey>,
    priority_classes: BTreeSet<String>,
    next_submission: Moment,
    changes: Vec<ObjectChange>,
    notes: Vec<String>,
}

impl Overlay {
    fn add(&mut self, mut given: PlanObject) {
        if let PlanObject::Object(planned) = &mut given
            && planned.object.kind.is_job()
        {
            planned.created = Some(self.next_submission);
            self.next_submission = self.next_submission.saturating_add(1);
        }
        let matches = |existing: &PlanObject| {
            identity(existing) == identity(&given) || is_workload_of(existing, &given)
        };
        let at = self.objects.iter().position(matches);
        if let Some(at) = at {
            self.notes.extend(merge(&self.objects[at], &mut given));
        }
        let title = given.title();
        if self.has_ended(&given) {
            self.notes
                .push(format!("`{title}` has ended and stays as it is; delete it first to run it again"));
            self.changes.push(ObjectChange {
                object: title,
                change: ChangeKind::Unchanged,
                not_evaluated: false,
            });
            return;
        }
        let job = self.jobs.iter().position(|job| identity(job) == identity(&given));
        if let (Some(at), Some(job)) = (at, job)
            && self.update_job(at, job, &given)
        {
            return;
        }
        let change = match (at, job) {
            (None, _) => ChangeKind::Added,
            (Some(at), _) if is_same(&self.objects[at], &given) => ChangeKind::Unchanged,
            (Some(_), Some(job)) if is_same(&self.jobs[job], &given) => ChangeKind::Unchanged,
            (Some(_), _) => ChangeKind::Replaced,
        };
        let is_job = matches!(&given, PlanObject::Object(planned) if planned.object.kind.is_job());
        if change == ChangeKind::Replaced && is_job {
            self.notes.push(format!(
                "`{title}` exists with another spec; the plan deletes and creates it, as the youngest of its \
                 queue. `apply` changes pod counts, and what else a waiting job may change, in place"
            ));
        }
        let existing = at.map(|at| &self.objects[at]);
        let unevaluated = names_clusters(existing, &given).filter(|_| change != ChangeKind::Unchanged);
        if let Some(part) = &unevaluated {
            self.notes.push(format!(
                "{part} decides which clusters may run a workload, which plans don't evaluate: this change \
                 may have more effects than shown"
            ));
        }
        let not_evaluated = unevaluated.is_some() || !is_evaluated(&given);
        self.changes.push(ObjectChange { object: title, change, not_evaluated });
        self.put(at, given, change);
    }

    fn has_ended(&self, object: &PlanObject) -> bool {
        let PlanObject::Object(planned) = object else { return false };
        let object = &planned.object;
        let namespace = object.namespace_or_default().unwrap_or_default().to_owned();
        let key = (object.kind, namespace, object.name.clone());
        self.ended_jobs.contains(&key)
    }

    /// Updates the workload of an existing job in place. Returns whether nothing else has to be done.
    fn update_job(&mut self, at: usize, job: usize, given: &PlanObject) -> bool {
        let update = JobUpdate::new(&self.objects[at], &self.jobs[job], given, &self.priority_classes);
        let updated = match update {
            Ok(Some(update)) => update.apply(&mut self.objects, at),
            Ok(None) => false,
            Err(why) => {
                let title = given.title();
                self.notes.push(format!(
                    "`{title}` stays as it is, because `apply` would refuse the change: {why}"
                ));
                true
            }
        };
        if updated {
            let change =
                if is_same(&self.jobs[job], given) { ChangeKind::Unchanged } else { ChangeKind::Replaced };
            self.changes.push(ObjectChange { object: given.title(), change, not_evaluated: false });
        }
        updated
    }

    fn put(&mut self, at: Option<usize>, given: PlanObject, change: ChangeKind) {
        match at {
            None => self.objects.push(given),
            Some(at) if change == ChangeKind::Replaced => {
                let replaced = std::mem::replace(&mut self.objects[at], given);
                if let PlanObject::Workload(workload) = replaced {
                    drop_scale_up(&mut self.objects, &workload.meta.key());
                }
            }
            Some(_) => {}
        }
    }
}

/// Merges the existing object into the given one, except for jobs. Returns a note if a user should know of
/// something.
fn merge(existing: &PlanObject, given: &mut PlanObject) -> Option<String> {
    let title = given.title();
    let (PlanObject::Object(existing), PlanObject::Object(given)) = (existing, given) else { return None };
    if given.object.kind.is_job() {
        return None;
    }
    match last_applied::merge(&existing.object, &given.object) {
        Ok(merged) => {
            let mut before = existing.object.clone();
            last_applied::remove(&mut before);
            let remarks = merged.remarks();
            given.object = merged.object;
            (given.object != before && !remarks.is_empty())
                .then(|| format!("`{title}`: {}", remarks.join("; ")))
        }
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Some(format!(
                "`{title}` replaces the existing object, because `apply` would refuse to merge them: {}",
                errors.join("; ")
            ))
        }
    }
}

/// Whether `workload` belongs to `job`. Newer slices of an elastic job don't count.
fn is_workload_of(workload: &PlanObject, job: &PlanObject) -> bool {
    let (PlanObject::Workload(workload), PlanObject::Object(job)) = (workload, job) else { return false };
    let WorkloadObject { meta, .. } = &**workload;
    let PlannedObject { object, .. } = &**job;
    let owner = meta.controller().or(meta.owners.first());
    workload.replaces().is_none()
        && object.kind.is_job()
        && Some(meta.namespace.as_str()) == object.namespace_or_default()
        && owner.is_some_and(|owner| owner.kind == object.kind.name() && owner.name == object.name)
}

/// The pod templates of a job.
fn templates(object: &Object) -> Vec<&Value> {
    object.kind.job().map(|kind| kind.templates(&object.stored)).unwrap_or_default()
}

/// Whether two objects of one identity have the same content, apart from what a manager writes itself.
fn is_same(a: &PlanObject, b: &PlanObject) -> bool {
    let (PlanObject::Object(a), PlanObject::Object(b)) = (a, b) else { return a == b };
    let (a, b) = (&a.object, &b.object);
    let same_spec = match (&a.spec, &b.spec) {
        // The manager sets `suspend` of a job.
        (Spec::Job(old), Spec::Job(new)) => {
            JobWorkload { suspend: new.suspend, ..(**old).clone() } == **new && templates(a) == templates(b)
        }
        (a, b) => a == b,
    };
    let annotations = |object: &Object| -> BTreeMap<String, String> {
        let mut annotations = object.annotations.clone();
        annotations.remove(last_applied::LAST_APPLIED);
        annotations
    };
    same_spec && a.labels == b.labels && annotations(a) == annotations(b)
}

#[cfg(test)]
mod tests;

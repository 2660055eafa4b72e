//! Changes of a job that `apply` makes in place: priority class, irrelevant labels and annotations, and the
//! number of pods of an elastic job. The workload keeps its queue position and its quota.

use super::templates;
use crate::commands::plan::scale::scale;
use meridian_objects::job::{CompletionMode, PRIORITY_LABEL, USUAL_PRIORITY_CLASS, affects_admission};
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::workload::{ELASTIC_ANNOTATION, PriorityClassRef, WorkloadObject};
use meridian_objects::{JobWorkload, Kind, Object, Spec};
use meridian_planning::load::SCALE_UP_ANNOTATION;
use meridian_queueing::model::Moment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// An update of a job's workload.
pub(super) struct JobUpdate {
    /// `NAMESPACE/NAME` of the workload.
    key: String,
    /// The new priority class, if it changes; the inner value is `None` if the job no longer names one.
    priority_class: Option<Option<String>>,
    scale: Option<Scale>,
}

struct Scale {
    /// The workload before the update.
    workload: Value,
    /// New number of pods, by pod set.
    counts: Vec<u64>,
    requested_at: Moment,
}

impl JobUpdate {
    /// `None` if the difference between the jobs can't be applied in place. Fails if the new priority class
    /// is missing.
    pub(super) fn new(
        workload: &PlanObject,
        old: &PlanObject,
        new: &PlanObject,
        priority_classes: &BTreeSet<String>,
    ) -> Result<Option<Self>, String> {
        let (PlanObject::Workload(workload), PlanObject::Object(old), PlanObject::Object(new)) =
            (workload, old, new)
        else {
            return Ok(None);
        };
        let (Spec::Job(old_job), Spec::Job(new_job)) = (&old.object.spec, &new.object.spec) else {
            return Ok(None);
        };
        let Some(size) = size_change(old_job, new_job, &old.object) else { return Ok(None) };
        if !is_same_except_spec(&old.object, &new.object) {
            return Ok(None);
        }
        let priority_class = if old_job.priority_class == new_job.priority_class {
            None
        } else {
            match (&new_job.priority_class, &new_job.pod_priority_class) {
                (Some(class), _) if !priority_classes.contains(class) => {
                    return Err(format!("WorkloadPriorityClass `{class}` not found"));
                }
                (Some(class), _) => Some(Some(class.clone())),
                (None, Some(_)) => return Ok(None),
                (None, None) => {
                    let default = USUAL_PRIORITY_CLASS;
                    Some(priority_classes.contains(default).then(|| default.to_owned()))
                }
            }
        };
        let scale = match size {
            SizeChange::Unchanged => None,
            SizeChange::Scaled => Some(Scale {
                workload: workload.stored.clone(),
                counts: new_job.gang.pod_sets.iter().map(|set| u64::from(set.count)).collect(),
                requested_at: new.created.unwrap_or_default(),
            }),
        };
        Ok(Some(Self { key: workload.meta.key(), priority_class, scale }))
    }

    /// Applies the update to the workload at this index, and to its scale-up. Returns false, without a
    /// change, if the workload can't be scaled.
    pub(super) fn apply(self, objects: &mut Vec<PlanObject>, at: usize) -> bool {
        if let Some(change) = self.scale {
            let Some(scaled) = scale(&change.workload, &change.counts, change.requested_at) else {
                return false;
            };
            objects[at] = scaled.workload;
            drop_scale_up(objects, &self.key);
            objects.extend(scaled.scale_up);
        }
        let Some(class) = self.priority_class else { return true };
        for object in objects {
            if let PlanObject::Workload(workload) = object
                && (workload.meta.key() == self.key || is_scale_up_of(workload, &self.key))
            {
                let kind = Kind::WorkloadPriorityClass;
                workload.spec.priority_class = class.clone().map(|name| PriorityClassRef {
                    group: kind.group().to_owned(),
                    kind: kind.name().to_owned(),
                    name,
                });
                workload.spec.priority = None;
            }
        }
        true
    }
}

/// Whether pod template, labels and annotations are the same, except for those that decisions don't depend
/// on.
fn is_same_except_spec(old: &Object, new: &Object) -> bool {
    let relevant = |all: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let decides = |key: &str| affects_admission(key) && key != PRIORITY_LABEL;
        all.iter().filter(|(key, _)| decides(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    templates(old) == templates(new)
        && relevant(&old.labels) == relevant(&new.labels)
        && relevant(&old.annotations) == relevant(&new.annotations)
}

enum SizeChange {
    Unchanged,
    Scaled,
}

/// `None` if the jobs differ in more than their priority class and size, or if the job may not be scaled.
/// With indexed completions, the number of completions may change with the number of pods.
fn size_change(old: &JobWorkload, new: &JobWorkload, old_object: &Object) -> Option<SizeChange> {
    let mut gang = old.gang.clone();
    gang.pod_sets.iter_mut().zip(&new.gang.pod_sets).for_each(|(set, other)| set.count = other.count);
    let rescaled = JobWorkload {
        suspend: new.suspend,
        priority_class: new.priority_class.clone(),
        parallelism: new.parallelism,
        completions: new.completions,
        gang,
        ..old.clone()
    };
    if rescaled != *new {
        return None;
    }
    if old.parallelism == new.parallelism && old.completions == new.completions {
        return Some(SizeChange::Unchanged);
    }
    let one_completion_per_pod = |job: &JobWorkload| {
        job.completion_mode == CompletionMode::Indexed && job.completions == Some(job.parallelism)
    };
    let elastic = old_object.annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true");
    let completions_fit =
        old.completions == new.completions || (one_completion_per_pod(old) && one_completion_per_pod(new));
    (elastic && completions_fit).then_some(SizeChange::Scaled)
}

/// Removes the pending scale-up of a workload.
pub(super) fn drop_scale_up(objects: &mut Vec<PlanObject>, key: &str) {
    objects
        .retain(|object| !matches!(object, PlanObject::Workload(workload) if is_scale_up_of(workload, key)));
}

fn is_scale_up_of(scale_up: &WorkloadObject, key: &str) -> bool {
    scale_up.meta.annotations.get(SCALE_UP_ANNOTATION).is_some_and(|gang| gang == key)
}

//! Parts of a job that readers of all kinds share: one pod set, the controller, the bounds of the run time.

use super::JobWorkload;
use super::keys::{MAX_EXEC_LABEL, MAX_RUN_ANNOTATION, MULTIKUEUE_MANAGER};
use super::kind::JobKind;
use super::metadata::seconds_in;
use crate::fields::{Fields, Item};
use crate::pod::PodTemplate;
use crate::units::quantity;
use meridian_shared::gang::PodSet;
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// The pod set of a template. `pod` is the template's spec.
pub(super) fn pod_set(pod: &Fields<'_>, template: &PodTemplate, name: &str, count: u32) -> PodSet {
    let mut per_pod = template.requests();
    // Drop zero amounts, so that the queue needn't cover these resources.
    per_pod.retain(|_, amount| *amount > 0);
    for (resource, amount) in &per_pod {
        if amount.checked_mul(i64::from(count)).is_none() {
            let each = quantity::format(resource, *amount);
            pod.error(
                "containers",
                format!("{count} pods of `{each}` `{resource}` are too many to count"),
                "ask for less",
            );
        }
    }
    PodSet {
        name: name.to_owned(),
        count,
        per_pod,
        node_selector: template.node_selector.clone(),
        affinity: template.affinity.clone(),
        tolerations: template.tolerations.clone(),
        ..PodSet::default()
    }
}

/// Refuses a job of a controller that Meridian doesn't replace.
pub(super) fn check_manager(kind: &JobKind, root: &Fields<'_>) {
    root.at_pointer(kind.managed_by, &mut |item: &Item<'_>| {
        let Some(manager) = item.text().filter(|manager| !kind.takes_over_from(manager)) else { return };
        item.error(
            format!("`{manager}` would run this job, not Meridian"),
            format!("remove it, or write `{MULTIKUEUE_MANAGER}`"),
        );
    });
}

/// Reads the bounds of the job's run time, except the one in its spec.
pub(super) fn read_run_time(
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    job: &mut JobWorkload,
) {
    let findings = root.findings();
    job.gang.max_run = seconds_in("metadata.annotations", MAX_RUN_ANNOTATION, annotations, findings);
    job.gang.max_exec = seconds_in("metadata.labels", MAX_EXEC_LABEL, labels, findings);
}

pub(super) fn seconds(fields: &Fields<'_>, name: &'static str, min: i64) -> Option<Millis> {
    to_millis(fields.int(name, min, i64::from(i32::MAX)))
}

/// A number of seconds, at least `min`, at a JSON pointer.
pub(super) fn seconds_at(root: &Fields<'_>, pointer: &str, min: i64) -> Option<Millis> {
    let mut read = None;
    root.at_pointer(pointer, &mut |item: &Item<'_>| read = to_millis(item.int(min, i64::from(i32::MAX))));
    read
}

fn to_millis(seconds: Option<i64>) -> Option<Millis> {
    u64::try_from(seconds?).ok().map(Millis::secs)
}

//! The scheduling class of a job that is submitted or updated: what the job asks for, with what the catalog
//! adds.

use crate::facts::read_job::ReadJob;
use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use std::sync::Arc;

/// The class of a new job. Fails if the template, with what limit ranges and the runtime class add, violates
/// a limit, because its pods could not be created.
pub(crate) fn of_new(read: &ReadJob, catalog: &Catalog, namespace: &Arc<str>) -> Result<Class, String> {
    let ranges = catalog.limit_ranges(namespace);
    let gang = if ranges.is_empty() && !read.has_runtime_class() {
        read.plain_gang()?
    } else {
        read.gang_with(&ranges, |name| catalog.runtime_class(name))?
    };
    Ok(read.class_with(namespace, gang, catalog.priority_class(None)))
}

/// The class of an updated job that had the class `before`. Pods keep their requests, whatever limit ranges
/// and runtime classes say now: pods may be running, and added pods must be equal to them.
pub(crate) fn of_updated(read: &ReadJob, catalog: &Catalog, namespace: &Arc<str>, before: &Class) -> Class {
    let mut gang = read.job.gang.clone();
    for set in &mut gang.pod_sets {
        if let Some(before) = before.gang.pod_sets.iter().find(|before| before.name == set.name) {
            set.per_pod.clone_from(&before.per_pod);
        }
    }
    read.class_with(namespace, Arc::new(gang), catalog.priority_class(None))
}

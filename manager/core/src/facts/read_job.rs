//! What is read of a job before anybody asks what the world makes of it.
//!
//! It is the costly part of a submission and needs no world, so whoever makes a [`Write`](crate::input::Write) does it, beside
//! the engine. What the catalog adds (limit ranges, runtime classes, priorities) is added when the request is judged.

use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_objects::requests::filled_in;
use meridian_objects::spec::{LimitRangeSpec, RuntimeClassSpec};
use meridian_objects::{JobWorkload, Object, Spec, limit_range_violations, limit_violations};
use meridian_shared::gang::{Amounts, Gang};
use meridian_shared::ids::{ContentHash, Uid};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels that name one workload and decide nothing.
const NAMING_LABELS: [&str; 4] =
    ["job-name", "batch.kubernetes.io/job-name", "controller-uid", "batch.kubernetes.io/controller-uid"];

/// A job as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadJob {
    pub(crate) job: JobWorkload,
    /// Its gang where neither limit ranges nor a runtime class add anything, or how its template breaks a limit.
    plain: Result<Arc<Gang>, String>,
    labels: BTreeMap<String, String>,
    elastic: bool,
    /// What it is called if it is new.
    uid: Uid,
    /// The body that is stored then, and what that is found by.
    pub(crate) body: Arc<str>,
    pub(crate) hash: ContentHash,
    /// What of it isn't honoured.
    pub(crate) warnings: Vec<String>,
}

impl ReadJob {
    /// Reads a job that gets this uid if it is new. `None` where it is something else. Its spec and its manifest are taken out of
    /// it: as text the manifest takes a fifth of the memory, and thousands of jobs may wait for the engine.
    pub(crate) fn of(object: &mut Object, uid: Uid) -> Option<Self> {
        let warnings = meridian_objects::not_honoured(object).iter().map(ToString::to_string).collect();
        let elastic = Catalog::is_elastic(object);
        let Spec::Job(job) = &mut object.spec else { return None };
        let job = std::mem::take(&mut **job);
        let plain = requests(&job, &[], None).map(|per_pod| gang(&job, &per_pod));
        let mut labels = object.labels.clone();
        for label in NAMING_LABELS {
            labels.remove(label);
        }
        let body: Arc<str> = Arc::from(body_text(std::mem::take(&mut object.stored), uid));
        Some(Self {
            job,
            plain,
            labels,
            elastic,
            uid,
            hash: ContentHash::of(body.as_bytes()),
            body,
            warnings,
        })
    }

    /// The manifest, as it was written: without the uid.
    pub(crate) fn manifest(&self) -> Value {
        let mut manifest: Value = serde_json::from_str(&self.body).expect("it was made from a value");
        if let Some(metadata) = manifest["metadata"].as_object_mut() {
            metadata.remove("uid");
        }
        manifest
    }

    /// What the stored body of this job is found by where it has another uid.
    pub(crate) fn hash_as(&self, uid: Uid) -> ContentHash {
        let named = |uid: Uid| format!("\"uid\":\"{uid}\"");
        ContentHash::of(self.body.replacen(&named(self.uid), &named(uid), 1).as_bytes())
    }

    /// Its class, or what keeps its pods from being made: how its template, with what its namespace's limit ranges and its
    /// runtime class add, breaks a limit.
    pub(crate) fn class(&self, catalog: &Catalog, namespace: &Arc<str>) -> Result<Class, String> {
        let ranges = catalog.limit_ranges(namespace);
        let runtime_class =
            self.job.template.runtime_class.as_deref().and_then(|name| catalog.runtime_class(name));
        let gang = if ranges.is_empty() && runtime_class.is_none() {
            self.plain.clone()?
        } else {
            gang(&self.job, &requests(&self.job, &ranges, runtime_class)?)
        };
        Ok(self.with_gang(catalog, namespace, gang))
    }

    /// Its class where it was taken before, as this one: its pods ask for what they asked for then, whatever limit ranges and
    /// runtime classes say by now. Some may be running, and those that are added are as they are.
    pub(crate) fn class_after(&self, catalog: &Catalog, namespace: &Arc<str>, before: &Class) -> Class {
        let mut gang = self.job.gang.clone();
        for (set, had) in gang.pod_sets.iter_mut().zip(&before.gang.pod_sets) {
            set.per_pod.clone_from(&had.per_pod);
        }
        self.with_gang(catalog, namespace, Arc::new(gang))
    }

    fn with_gang(&self, catalog: &Catalog, namespace: &Arc<str>, gang: Arc<Gang>) -> Class {
        let mut labels = self.labels.clone();
        if self.job.priority_class.is_none() {
            labels.extend(
                catalog.priority_class(None).map(|class| (PRIORITY_LABEL.to_owned(), class.to_owned())),
            );
        }
        Class {
            namespace: namespace.clone(),
            queue: Arc::from(self.job.queue.as_str()),
            kind: Arc::from("Job"),
            labels,
            regions: self.job.regions.iter().cloned().collect(),
            gang,
            elastic: self.elastic,
        }
    }
}

/// What one pod asks for, or how its template, with what is added to it, breaks a limit.
fn requests(
    job: &JobWorkload,
    ranges: &[LimitRangeSpec],
    runtime_class: Option<&RuntimeClassSpec>,
) -> Result<Amounts, String> {
    let filled = filled_in(&job.template, ranges, runtime_class);
    let own = limit_violations(&filled);
    let broken = if own.is_empty() { limit_range_violations(&filled, ranges) } else { own };
    if !broken.is_empty() {
        return Err(broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let mut per_pod = filled.requests();
    per_pod.retain(|_, amount| *amount > 0);
    Ok(per_pod)
}

/// The job's gang, of pods that ask for this.
fn gang(job: &JobWorkload, per_pod: &Amounts) -> Arc<Gang> {
    let mut gang = job.gang.clone();
    for set in &mut gang.pod_sets {
        set.per_pod.clone_from(per_pod);
    }
    Arc::new(gang)
}

/// The stored body of a job: its whole manifest, with the uid so that equal jobs have bodies of their own.
fn body_text(mut manifest: Value, uid: Uid) -> String {
    manifest["metadata"]["uid"] = Value::String(uid.to_string());
    manifest.to_string()
}

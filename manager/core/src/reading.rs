//! What is read of a job before anybody asks what the world makes of it.
//!
//! It is the costly part of a submission and needs no world, so whoever makes a [`Write`](crate::input::Write) does it, beside
//! the engine. What the catalog adds (limit ranges, runtime classes, priorities) is added when the request is judged.

use crate::catalog::Catalog;
use crate::record::Class;
use meridian_objects::requests::filled_in;
use meridian_objects::{JobWorkload, Object, PodTemplate, job_to_workload, limit_range_violations, limit_violations};
use meridian_shared::ids::{ContentHash, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels that name one workload and decide nothing.
const NAMING_LABELS: [&str; 4] = ["job-name", "batch.kubernetes.io/job-name", "controller-uid", "batch.kubernetes.io/controller-uid"];

/// A job as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadJob {
    pub(crate) job: JobWorkload,
    template: PodTemplate,
    labels: BTreeMap<String, String>,
    elastic: bool,
    /// The body that is stored if it is new, and what that is found by.
    pub(crate) body: Arc<str>,
    pub(crate) hash: ContentHash,
    /// What of it isn't honoured.
    pub(crate) warnings: Vec<String>,
}

impl ReadJob {
    /// Reads a job that gets this uid if it is new. `None` where it is something else.
    pub(crate) fn of(object: &Object, uid: Uid) -> Option<Self> {
        let job = job_to_workload(object).ok()?;
        let body: Arc<str> = Arc::from(body_text(object, uid));
        let mut labels = object.labels.clone();
        for label in NAMING_LABELS {
            labels.remove(label);
        }
        Some(Self {
            job,
            template: PodTemplate::of_job(object).unwrap_or_default(),
            labels,
            elastic: Catalog::is_elastic(object),
            hash: ContentHash::of(body.as_bytes()),
            body,
            warnings: meridian_objects::not_honoured(object).iter().map(ToString::to_string).collect(),
        })
    }

    /// Its class, or what keeps its pods from being made: how its template, with what its namespace's limit ranges and its
    /// runtime class add, breaks a limit.
    pub(crate) fn class(&self, catalog: &Catalog, namespace: &Arc<str>) -> Result<Class, String> {
        let ranges = catalog.limit_ranges(namespace);
        let filled = filled_in(&self.template, &ranges, self.template.runtime_class.as_deref().and_then(|name| catalog.runtime_class(name)));
        let own = limit_violations(&filled);
        let broken = if own.is_empty() { limit_range_violations(&filled, &ranges) } else { own };
        if !broken.is_empty() {
            return Err(broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        }
        let mut per_pod = filled.requests();
        per_pod.retain(|_, amount| *amount > 0);
        let mut gang = self.job.gang.clone();
        for set in &mut gang.pod_sets {
            set.per_pod.clone_from(&per_pod);
        }
        Ok(Class {
            namespace: namespace.clone(),
            queue: Arc::from(self.job.queue.as_str()),
            kind: Arc::from("Job"),
            labels: self.labels.clone(),
            regions: self.job.regions.iter().cloned().collect(),
            gang: Arc::new(gang),
            elastic: self.elastic,
        })
    }
}

/// The stored body of a job: its whole manifest, with the uid so that equal jobs have bodies of their own.
fn body_text(object: &Object, uid: Uid) -> String {
    let mut manifest = object.stored.clone();
    manifest["metadata"]["uid"] = serde_json::Value::String(uid.to_string());
    manifest.to_string()
}

/// What the stored body of a job of this uid is found by.
pub(crate) fn body_hash(object: &Object, uid: Uid) -> ContentHash {
    ContentHash::of(body_text(object, uid).as_bytes())
}

//! Parsing and validation of a job, except for the checks that need the world.
//!
//! This is the costly part of a submission, so [`Write::new`](crate::facts::input::Write::new) does it on the
//! caller's thread and not on the engine's. Values from the catalog (limit ranges, runtime classes,
//! priorities) are added when the core applies the request.

use crate::facts::container_needs::{container_needs, without_image};
use crate::facts::submission::Class;
use meridian_objects::job::{CONTROLLER_LABELS, JobKind, PRIORITY_LABEL};
use meridian_objects::requests::with_defaults;
use meridian_objects::spec::{LimitRangeSpec, RuntimeClassSpec};
use meridian_objects::{JobWorkload, Object, PodTemplate, Spec, limit_range_violations, limit_violations};
use meridian_shared::gang::{Amounts, Gang};
use meridian_shared::ids::{ContentHash, Uid};
use meridian_shared::protocol::Reference;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct ReadJob {
    pub(crate) kind: &'static JobKind,
    pub(crate) job: JobWorkload,
    /// The gang without values from limit ranges or a runtime class. An error names the limit that the
    /// template violates.
    plain: Result<Arc<Gang>, String>,
    labels: BTreeMap<String, String>,
    elastic: bool,
    container_needs: Option<&'static str>,
    references: Vec<Reference>,
    /// The uid if the job is new.
    uid: Uid,
    /// Whether a new job may have run before this leadership.
    pub(crate) existed: bool,
    /// Whether a new job is deactivated from the start.
    pub(crate) inactive: bool,
    /// The manifest with `uid`, as it is stored.
    pub(crate) body: Arc<str>,
    /// Content hash of `body`.
    pub(crate) hash: ContentHash,
    /// Fields that are ignored, for the user.
    pub(crate) warnings: Vec<String>,
}

impl ReadJob {
    /// Parses a job; `uid` is used if the job is new. `None` if the object is of another kind. Moves spec and
    /// manifest out of the object: thousands of jobs may wait for the engine, and as text a manifest takes a
    /// fifth of the memory.
    pub(crate) fn of(object: &mut Object, uid: Uid) -> Option<Self> {
        let warnings = meridian_objects::ignored_fields(object).iter().map(ToString::to_string).collect();
        let kind = object.kind.job()?;
        let elastic = kind.is_elastic(&object.annotations);
        let container_needs = container_needs(&object.stored);
        let references = kind.references(&object.stored);
        let Spec::Job(job) = &mut object.spec else { return None };
        let job = std::mem::take(&mut **job);
        let plain = gang(&job, &[], |_| None);
        let mut labels = object.labels.clone();
        // These labels only name the job, so they would separate jobs that are otherwise equivalent.
        for label in CONTROLLER_LABELS {
            labels.remove(label);
        }
        let body: Arc<str> = Arc::from(body_text(std::mem::take(&mut object.stored), uid));
        Some(Self {
            kind,
            job,
            plain,
            labels,
            elastic,
            container_needs,
            references,
            uid,
            existed: false,
            inactive: false,
            hash: ContentHash::of(body.as_bytes()),
            body,
            warnings,
        })
    }

    /// The manifest as the user wrote it: without the uid.
    pub(crate) fn manifest(&self) -> Value {
        let mut manifest: Value =
            serde_json::from_str(&self.body).expect("the body was serialised from a value");
        if let Some(metadata) = manifest["metadata"].as_object_mut() {
            metadata.remove("uid");
        }
        manifest
    }

    /// The manifest with another uid.
    pub(crate) fn body_as(&self, uid: Uid) -> String {
        let uid_field = |uid: Uid| format!("\"uid\":\"{uid}\"");
        self.body.replacen(&uid_field(self.uid), &uid_field(uid), 1)
    }

    /// Content hash of the manifest with another uid.
    pub(crate) fn hash_as(&self, uid: Uid) -> ContentHash {
        ContentHash::of(self.body_as(uid).as_bytes())
    }

    /// The gang without anything from limit ranges or a runtime class. Fails if the template violates a
    /// limit.
    pub(crate) fn plain_gang(&self) -> Result<Arc<Gang>, String> {
        self.plain.clone()
    }

    /// Whether a runtime class may add to the requests of the pods.
    pub(crate) fn has_runtime_class(&self) -> bool {
        self.job.templates.iter().any(|template| template.runtime_class.is_some())
    }

    /// The gang with what limit ranges and runtime classes add. Fails if the template then violates a limit,
    /// because its pods could not be created.
    pub(crate) fn gang_with<'c>(
        &self,
        ranges: &[LimitRangeSpec],
        runtime_class: impl Fn(&str) -> Option<&'c RuntimeClassSpec>,
    ) -> Result<Arc<Gang>, String> {
        gang(&self.job, ranges, runtime_class)
    }

    /// The job's scheduling class with this gang; `default_priority` is the priority class of a job that
    /// names none.
    pub(crate) fn class_with(
        &self,
        namespace: &Arc<str>,
        gang: Arc<Gang>,
        default_priority: Option<&str>,
    ) -> Class {
        let mut labels = self.labels.clone();
        if self.job.priority_class.is_none() {
            labels.extend(default_priority.map(|class| (PRIORITY_LABEL.to_owned(), class.to_owned())));
        }
        Class {
            namespace: namespace.clone(),
            queue: Arc::from(self.job.queue.as_str()),
            kind: self.kind.kind(),
            labels,
            regions: self.job.regions.iter().cloned().collect(),
            gang,
            elastic: self.elastic,
            completions: self.job.completions.filter(|completions| *completions > 1),
            container_needs: self.container_needs.map(Arc::from),
            without_image: without_image(&self.job.templates).map(Arc::from),
            references: self.references.clone(),
        }
    }
}

/// The job's gang, with requests from limit ranges and runtime classes added. Fails if a template then
/// violates a limit.
fn gang<'c>(
    job: &JobWorkload,
    ranges: &[LimitRangeSpec],
    runtime_class: impl Fn(&str) -> Option<&'c RuntimeClassSpec>,
) -> Result<Arc<Gang>, String> {
    let mut gang = job.gang.clone();
    for (set, template) in gang.pod_sets.iter_mut().zip(&job.templates) {
        set.per_pod = requests(template, ranges, template.runtime_class.as_deref().and_then(&runtime_class))?;
    }
    Ok(Arc::new(gang))
}

/// The requests of one pod, with those from limit ranges and the runtime class. Fails if the template then
/// violates a limit.
fn requests(
    template: &PodTemplate,
    ranges: &[LimitRangeSpec],
    runtime_class: Option<&RuntimeClassSpec>,
) -> Result<Amounts, String> {
    if runtime_class.is_some_and(|class| overrides_overhead(template, class)) {
        let class = template.runtime_class.as_deref().unwrap_or_default();
        return Err(format!("`overhead` isn't that of runtime class `{class}`: remove it"));
    }
    let filled = with_defaults(template, ranges, runtime_class);
    let own = limit_violations(&filled);
    let violations = if own.is_empty() { limit_range_violations(&filled, ranges) } else { own };
    if !violations.is_empty() {
        return Err(violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let mut per_pod = filled.requests();
    per_pod.retain(|_, amount| *amount > 0);
    Ok(per_pod)
}

/// Whether the pods state an overhead that differs from their runtime class's.
fn overrides_overhead(template: &PodTemplate, class: &RuntimeClassSpec) -> bool {
    !template.overhead.is_empty() && template.overhead != class.overhead
}

/// The manifest as it is stored. It contains the uid, so that equal jobs don't share a body.
fn body_text(mut manifest: Value, uid: Uid) -> String {
    manifest["metadata"]["uid"] = Value::String(uid.to_string());
    manifest.to_string()
}

//! Kinds that Meridian doesn't take: mistakes, jobs that aren't run yet, and objects of other programs.

use crate::fields::suggest;
use crate::job::{JobKind, QUEUE_LABEL};
use crate::kind::{KUEUE_GROUP, Kind, MERIDIAN_GROUP, split_api_version};
use serde_json::Value;

/// Treatment of a document whose kind Meridian doesn't take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// An object of another program. Files with jobs and queues often contain such objects.
    Skipped,
    /// A job or a mistyped kind, which the user expects Meridian to take.
    Refused,
}

/// Why a kind is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownKind {
    pub(crate) foreign: Foreign,
    /// `apiVersion` or `kind`.
    pub(crate) field: &'static str,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

/// Kinds of jobs whose names don't end in `Job`.
const JOBS: [(&str, &str); 4] = [
    ("ray.io", "RayService"),
    ("workload.codeflare.dev", "AppWrapper"),
    ("sparkoperator.k8s.io", "SparkApplication"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"),
];

/// Fields by which runs of Tekton and Argo Workflows refer to the definition of the run.
const RUN_REFERENCES: [&str; 3] = ["pipelineRef", "taskRef", "workflowTemplateRef"];

/// Kinds whose names other programs also use.
const COMMON_NAMES: [Kind; 3] = [Kind::Cluster, Kind::Topology, Kind::Workload];

impl UnknownKind {
    /// Why [`Kind::from_gvk`] doesn't know the kind of an object; `None` if it is known, or if the object has
    /// no kind.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        if Kind::from_gvk(api_version, kind).is_some() {
            return None;
        }
        Some(Self::named(api_version, kind, names_queue(object)))
    }

    /// Classifies an unknown kind. `is_queued`: whether the object makes pods and names a local queue, like a
    /// job.
    fn named(api_version: &str, kind: &str, is_queued: bool) -> Self {
        let (group, version) = split_api_version(api_version);
        let by_name = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let is_domain = group.contains('.');
        let is_ours = [KUEUE_GROUP, MERIDIAN_GROUP].contains(&group);
        let near_group = suggest::nearest(group, [KUEUE_GROUP, MERIDIAN_GROUP]);
        let other = is_domain && near_group.is_none();
        match by_name {
            Some(known) if known.is_job() && other => return job(api_version, kind),
            Some(known) if !(other && COMMON_NAMES.contains(&known)) => {
                return wrong_version(known, api_version, group, version);
            }
            _ => {}
        }
        let is_job = kind.ends_with("Job") || JOBS.contains(&(group, kind)) || is_queued;
        if is_job && !is_ours {
            return job(api_version, kind);
        }
        let near = suggest::nearest(kind, Kind::ALL.iter().map(|known| known.name()));
        if let Some(near) = near.filter(|_| !other) {
            return refused("kind", unknown(api_version, kind), format!("did you mean `{near}`?"));
        }
        if let Some(group) = near_group {
            let of = Kind::ALL.iter().filter(|known| known.writable() && known.group() == group);
            let kinds = of.map(|known| known.name()).collect::<Vec<_>>().join(", ");
            let remedy = format!("the kinds of `{group}` are {kinds}");
            return refused("kind", unknown(api_version, kind), remedy);
        }
        let remedy = match kind {
            "Node" => "leave it out; `meridian plan -f FILE` reads it",
            _ => "apply it with kubectl to the clusters that need it",
        };
        let message = format!("`{kind}` of `{api_version}` is not a kind that Meridian takes");
        Self { foreign: Foreign::Skipped, field: "kind", message, remedy: remedy.to_owned() }
    }
}

/// Whether an object names a local queue like a job: in labels of the pods that it makes or, if it makes
/// pods, in its own labels. Other objects may have the label too, by the `commonLabels` of kustomize.
fn names_queue(object: &Value) -> bool {
    let names = |labels: &Value| labels.get(QUEUE_LABEL).is_some();
    let Some(spec) = object.get("spec") else { return false };
    any_field(spec, &|name, value| name == "labels" && names(value))
        || (object.pointer("/metadata/labels").is_some_and(names) && any_field(spec, &starts_containers))
}

/// Whether a field starts containers: a pod's list of containers, an image, as in a step of a workflow, or a
/// reference to an object that has containers.
fn starts_containers(name: &str, value: &Value) -> bool {
    match name {
        "containers" => value.is_array(),
        "image" => value.is_string(),
        _ => RUN_REFERENCES.contains(&name),
    }
}

/// Whether a condition holds for the name and the value of a field anywhere in `value`.
fn any_field(value: &Value, holds: &impl Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| any_field(item, holds)),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| holds(name, value) || any_field(value, holds))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn refused(field: &'static str, message: String, remedy: String) -> UnknownKind {
    UnknownKind { foreign: Foreign::Refused, field, message, remedy }
}

fn unknown(api_version: &str, kind: &str) -> String {
    format!("unknown kind `{kind}` of `{api_version}`")
}

fn job(api_version: &str, kind: &str) -> UnknownKind {
    let usual = JobKind::usual();
    refused(
        "kind",
        format!("`{kind}` of `{api_version}` is not a kind of job that Meridian runs"),
        format!("submit it as a `{}` {}", usual.api_version(), usual.name()),
    )
}

fn wrong_version(known: Kind, api_version: &str, group: &str, version: &str) -> UnknownKind {
    let versions = known
        .versions()
        .iter()
        .map(|version| format!("`{}`", known.api_version(version)))
        .collect::<Vec<_>>()
        .join(" or ");
    let message = if known.group() == group {
        format!("`{known}` has no version `{version}`")
    } else {
        format!("`{api_version}` has no kind `{known}`")
    };
    refused("apiVersion", message, format!("write apiVersion {versions}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(api_version: &str, kind: &str, foreign: Foreign, expect: &str) {
        assert_eq!(Kind::from_gvk(api_version, kind), None);
        let unknown = UnknownKind::named(api_version, kind, false);
        let text = format!("{}; {}", unknown.message, unknown.remedy);
        assert!(text.contains(expect), "{text}");
        assert_eq!(unknown.foreign, foreign, "{text}");
    }

    #[test]
    fn mistakes_get_a_guess() {
        check(
            "kueue.x-k8s.io/v1",
            "ClusterQueue",
            Foreign::Refused,
            "`ClusterQueue` has no version `v1`; write apiVersion `kueue.x-k8s.io/v1beta2` or \
                `kueue.x-k8s.io/v1beta1`",
        );
        let refused = |api_version, kind, expect| check(api_version, kind, Foreign::Refused, expect);
        refused("v1", "Job", "`v1` has no kind `Job`; write apiVersion `batch/v1`");
        refused("batch/v1", "Jobb", "did you mean `Job`?");
        refused("kueue.x-k8s/v1beta1", "LocalQueue", "write apiVersion `kueue.x-k8s.io/v1beta2`");
        refused("kueue.x-k8s.io/v1beta1", "Quota", "the kinds of `kueue.x-k8s.io` are Work");
        refused("kueue.x-k8s.io/v1beta1", "MyJob", "the kinds of `kueue.x-k8s.io` are");
        refused("meridian.dev/v1alpha1", "Clustre", "did you mean `Cluster`?");
    }

    #[test]
    fn kinds_of_jobs_are_submitted_as_jobs() {
        for (api_version, kind) in [
            ("batch/v1", "CronJob"),
            ("batch.volcano.sh/v1alpha1", "Job"),
            ("kubeflow.org/v1", "TFJob"),
            ("ray.io/v1", "RayService"),
        ] {
            check(api_version, kind, Foreign::Refused, "submit it as a `batch/v1` Job");
        }
        let queued = UnknownKind::named("apps/v1", "Deployment", true);
        assert_eq!(
            (queued.foreign, queued.remedy.as_str()),
            (Foreign::Refused, "submit it as a `batch/v1` Job")
        );
    }

    #[test]
    fn pods_with_a_queue_are_missed_if_their_object_is_skipped() {
        let workflow = |labels: Value| {
            json!({
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Workflow",
                "spec": {"templates": [{"name": "a"}, {"name": "b", "metadata": {"labels": labels}}]},
            })
        };
        let foreign = |labels: Value| UnknownKind::of(&workflow(labels)).unwrap().foreign;
        assert_eq!(foreign(json!({"kueue.x-k8s.io/queue-name": "team"})), Foreign::Refused);
        assert_eq!(foreign(json!({"app": "team"})), Foreign::Skipped);
    }

    #[test]
    fn a_queue_label_makes_a_job_only_of_what_makes_pods() {
        let foreign = |api_version: &str, kind: &str, more: Value| {
            let mut object = json!({
                "apiVersion": api_version,
                "kind": kind,
                "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
            });
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            UnknownKind::of(&object).unwrap().foreign
        };
        let selector = json!({"matchLabels": {"kueue.x-k8s.io/queue-name": "team"}});
        for (api_version, kind, more) in [
            ("v1", "ConfigMap", json!({"data": {"image": "x", "labels": "y"}})),
            ("v1", "Secret", json!({"stringData": {"image": "x"}})),
            ("v1", "ServiceAccount", json!({})),
            ("v1", "Service", json!({"spec": {"selector": {"kueue.x-k8s.io/queue-name": "team"}}})),
            ("v1", "PersistentVolumeClaim", json!({"spec": {"storageClassName": "fast"}})),
            ("policy/v1", "PodDisruptionBudget", json!({"spec": {"selector": selector}})),
            ("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": selector}})),
            ("networking.k8s.io/v1", "Ingress", json!({"spec": {"rules": []}})),
            ("monitoring.googleapis.com/v1", "PodMonitoring", json!({"spec": {"selector": selector}})),
        ] {
            assert_eq!(foreign(api_version, kind, more), Foreign::Skipped, "{kind}");
        }
        let pod = json!({"containers": [{"name": "c"}]});
        for (api_version, kind, spec) in [
            ("apps/v1", "Deployment", json!({"template": {"spec": pod}})),
            ("serving.knative.dev/v1", "Service", json!({"template": {"spec": pod}})),
            ("argoproj.io/v1alpha1", "Workflow", json!({"templates": [{"container": {"image": "x"}}]})),
            ("tekton.dev/v1", "PipelineRun", json!({"pipelineRef": {"name": "p"}})),
        ] {
            assert_eq!(foreign(api_version, kind, json!({"spec": spec})), Foreign::Refused, "{kind}");
        }
    }

    #[test]
    fn objects_of_other_programs_are_skipped() {
        for (api_version, kind) in [
            ("apps/v1", "Deployment"),
            ("cluster.x-k8s.io/v1beta1", "Cluster"),
            ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
            ("monitoring.googleapis.com/v1", "PodMonitoring"),
            ("v1", "ServiceAccount"),
            ("v1", "ConfigMap"),
            ("v1", "Node"),
            ("v1", "Secret"),
            ("v1", "Service"),
        ] {
            check(api_version, kind, Foreign::Skipped, "is not a kind that Meridian takes");
        }
    }
}

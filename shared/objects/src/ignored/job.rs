//! Fields of a job that have no effect.

use super::Ignored;
use crate::fields::FieldPath;
use crate::job::{FoundPodSet, SECURITY_CONTEXT, topology};
use crate::object::Object;
use crate::spec::Spec;
use serde_json::Value;

/// Annotations of Kueue that have no effect, with a description of what happens instead.
const IGNORED_JOB_ANNOTATIONS: &[(&str, &str)] = &[
    ("kueue.x-k8s.io/priority-boost", "the priority is that of its class"),
    ("kueue.x-k8s.io/workload-allowed-resource-flavors", "every flavor of the queue is tried"),
];

/// Container fields that have no effect, with a description of what happens instead.
const IGNORED_CONTAINER_FIELDS: &[(&str, &str)] = &[
    ("securityContext", SECURITY_CONTEXT),
    ("lifecycle", "hooks are not run"),
    ("livenessProbe", "a container that hangs is not restarted"),
];

/// Pod fields that have no effect in kinds of jobs other than Job, which has its own list, with a description
/// of what happens instead.
const IGNORED_POD_FIELDS: &[(&str, &str)] = &[
    ("nodeName", "the cluster's agent chooses the nodes"),
    ("resourceClaims", "resource claims are not counted"),
    ("affinity.podAffinity", "pods are placed without regard to other pods"),
    ("affinity.podAntiAffinity", "pods are placed without regard to other pods"),
    ("topologySpreadConstraints", "pods are placed without regard to other pods"),
    ("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", "the preference is ignored"),
];

pub(super) fn ignored_in_job(object: &Object, all: &mut Ignored) {
    for (key, message) in
        IGNORED_JOB_ANNOTATIONS.iter().filter(|(key, _)| object.annotations.contains_key(*key))
    {
        all.at(FieldPath::of("metadata.annotations").key(*key), message, "");
    }
    let Some(kind) = object.kind.job() else { return };
    let sets = kind.pod_sets(&object.stored);
    if let (Spec::Job(job), [set]) = (&object.spec, &sets[..])
        && job.gang.pod_sets.iter().any(|set| set.group.is_some())
    {
        let at = set.template_path().key("metadata").key("annotations").key(topology::GROUP);
        let message = format!("it groups pod sets, and this {} has only one", kind.name());
        all.at(at, &message, "");
    }
    if !kind.can_be_scaled() {
        return ignored_in_pods(object, &sets, all);
    }
    for set in &sets {
        let containers = object.stored.pointer(&format!("{}/spec/containers", set.template));
        let at = set.template_path().key("spec").key("containers");
        for (index, container) in containers.and_then(Value::as_array).into_iter().flatten().enumerate() {
            for (field, message) in IGNORED_CONTAINER_FIELDS
                .iter()
                .filter(|(field, _)| container.get(*field).is_some_and(|value| !value.is_null()))
            {
                all.at(at.clone().index(index).key(*field), message, "");
            }
        }
    }
    for (field, message) in kind.ignored() {
        all.when(is_written(&object.stored, field), field, message);
    }
}

/// Ignored fields of pods, for kinds that run only on Kubernetes clusters, which support more than a process
/// runner.
fn ignored_in_pods(object: &Object, sets: &[FoundPodSet], all: &mut Ignored) {
    for set in sets {
        let Some(pod) = object.stored.pointer(&format!("{}/spec", set.template)) else { continue };
        for (field, message) in IGNORED_POD_FIELDS.iter().filter(|(field, _)| is_written(pod, field)) {
            let at = field.split('.').fold(set.template_path().key("spec"), FieldPath::key);
            all.at(at, message, "");
        }
    }
}

/// Whether a field has a value. An empty list counts as none.
fn is_written(object: &Value, field: &str) -> bool {
    let written = field.split('.').try_fold(object, |value, name| value.get(name));
    written.is_some_and(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
}

//! Fields of a Job that have no effect.

use super::Ignored;
use crate::fields::FieldPath;
use crate::job::topology;
use crate::object::Object;
use crate::spec::Spec;
use serde_json::Value;

/// Annotations of Kueue that have no effect, and what happens instead.
const IGNORED_JOB_ANNOTATIONS: &[(&str, &str)] = &[
    ("kueue.x-k8s.io/priority-boost", "the priority is that of its class"),
    ("kueue.x-k8s.io/workload-allowed-resource-flavors", "every flavor of the queue is tried"),
];

/// Job fields that have no effect, and what happens instead.
const IGNORED_JOB_FIELDS: &[(&str, &str)] = &[
    (
        "spec.podFailurePolicy",
        "every failed pod counts against `backoffLimit`, and the process runner refuses the job",
    ),
    ("spec.successPolicy", "the job succeeds when all completions have, and the process runner refuses it"),
    (
        "spec.backoffLimitPerIndex",
        "failures are counted for the whole job, against `backoffLimit`, and the process runner refuses it",
    ),
    ("spec.maxFailedIndexes", "failures are counted for the whole job, against `backoffLimit`"),
    ("spec.podReplacementPolicy", "a failed pod is replaced when it has ended"),
    ("spec.template.spec.nodeName", "the cluster's agent chooses the nodes"),
    ("spec.template.spec.schedulingGates", "pods start without waiting for their removal"),
    ("spec.template.spec.securityContext", "pods run with the rights of the agent's user"),
    ("spec.template.spec.resourceClaims", "resource claims are not counted"),
    ("spec.template.spec.affinity.podAffinity", "pods are placed without regard to other pods"),
    ("spec.template.spec.affinity.podAntiAffinity", "pods are placed without regard to other pods"),
    ("spec.template.spec.topologySpreadConstraints", "pods are placed without regard to other pods"),
    (
        "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        "preferred nodes are not preferred",
    ),
];

/// Container fields that have no effect, and what happens instead.
const IGNORED_CONTAINER_FIELDS: &[(&str, &str)] = &[
    ("securityContext", "pods run with the rights of the agent's user"),
    ("lifecycle", "hooks are not run"),
    ("livenessProbe", "a container that hangs is not restarted"),
];

pub(super) fn ignored_in_job(object: &Object, all: &mut Ignored) {
    for (key, message) in
        IGNORED_JOB_ANNOTATIONS.iter().filter(|(key, _)| object.annotations.contains_key(*key))
    {
        all.at(FieldPath::of("metadata.annotations").key(*key), message, "");
    }
    if let Spec::Job(job) = &object.spec
        && job.gang.pod_sets.iter().any(|set| set.group.is_some())
    {
        let at = FieldPath::of("spec.template.metadata.annotations").key(topology::GROUP);
        all.at(at, "a Job has one pod set, so there is nothing to group it with", "");
    }
    let containers = object.stored.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    for (at, container) in containers.into_iter().flatten().enumerate() {
        for (field, message) in IGNORED_CONTAINER_FIELDS
            .iter()
            .filter(|(field, _)| container.get(*field).is_some_and(|value| !value.is_null()))
        {
            all.at(FieldPath::of("spec.template.spec.containers").index(at).key(*field), message, "");
        }
    }
    for (field, message) in IGNORED_JOB_FIELDS {
        let written = field.split('.').try_fold(&object.stored, |value, name| value.get(name));
        let counts =
            |value: &&Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        all.when(written.filter(counts).is_some(), field, message);
    }
}

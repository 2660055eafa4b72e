//! Turns an object of the management cluster into the object that the manager gets.

use crate::events::EventText;
use crate::pods;
use meridian_objects::job::{
    ADMISSION_GATES, CONTROLLER_LABELS, JobKind, QUEUE_LABEL, REMOTE_MANAGERS, SOURCE_ANNOTATION,
    SOURCE_CLUSTER, SUBMITTED_KIND,
};
use meridian_objects::{FieldValidation, Kind, Object};
use serde_json::{Map, Value, json};

/// Namespaces of Kubernetes itself, which have no queues.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Kubernetes' own priority classes; the manager has them too.
const SYSTEM_PREFIX: &str = "system-";
/// Annotations that tools write for the cluster's own object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether the manager takes this object.
pub(crate) fn is_taken(kind: Kind, object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match (kind, kind.job()) {
        // the pods of a group are taken as one object
        (Kind::Pod, _) => pods::is_taken(object) && pods::group_of(object).is_none(),
        (_, Some(job)) => is_taken_job(job, object),
        (Kind::Namespace, _) => !SYSTEM_NAMESPACES.contains(&name) && !is_being_deleted(object),
        (Kind::PriorityClass, _) => !name.starts_with(SYSTEM_PREFIX),
        _ => !is_being_deleted(object),
    }
}

/// Whether the job has a queue, and a switch that keeps the cluster's own controller from running it.
fn is_taken_job(kind: &JobKind, job: &Value) -> bool {
    let is_kept_back = is_ours(kind, job) || kind.is_suspended(job) || kind.is_gated(job);
    has_queue(job) && !is_being_deleted(job) && is_kept_back
}

/// Whether the job names Meridian as its controller, so that the cluster's own controller ignores it.
pub(crate) fn is_ours(kind: &JobKind, job: &Value) -> bool {
    kind.manager(job).is_some_and(|manager| REMOTE_MANAGERS.contains(&manager))
}

/// The event for a job with a queue that isn't taken: why, and the remedy. `None` if no user would expect the
/// job to be taken, for `batch/v1` Jobs, where an admission policy reports it, and for pods, which have their
/// own rules.
pub(crate) fn refusal(kind: &JobKind, job: &Value) -> Option<EventText> {
    let is_open =
        has_queue(job) && !is_taken_job(kind, job) && !is_being_deleted(job) && !kind.has_ended(job);
    if !is_open || kind.is_of_pods() || kind.kind() == SUBMITTED_KIND || is_controlled(job) {
        return None;
    }
    let remedy = match kind.manager_field() {
        Some(field) => format!("`{field}: {}`", REMOTE_MANAGERS[0]),
        None => format!("`schedulingGates: [{{name: {}}}]` in each of its pod templates", ADMISSION_GATES[0]),
    };
    let message = format!(
        "not taken: this cluster's own operator runs it, outside of its queue and of residency policies. \
         Delete it, and create it with {remedy}"
    );
    Some(EventText { is_warning: true, reason: "NotTaken", message })
}

/// Whether a controller made the object, so that the decision about its owner covers it.
pub(crate) fn is_controlled(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["controller"] == true)
}

fn has_queue(job: &Value) -> bool {
    job["metadata"]["labels"][QUEUE_LABEL].as_str().is_some_and(|queue| !queue.is_empty())
}

fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The object for the manager: without its status, and without fields that the API server or tools added.
pub(crate) fn for_manager(kind: Kind, object: &Value) -> Value {
    let mut manifest = object.as_object().cloned().unwrap_or_default();
    manifest.remove("status");
    let written = &object["metadata"];
    let mut metadata = Map::new();
    for field in ["name", "namespace"] {
        if let Some(value) = written.get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let map = |field: &str| written[field].as_object().cloned().unwrap_or_default();
    let mut annotations = map("annotations");
    annotations.remove(LAST_APPLIED);
    annotations.insert(SOURCE_ANNOTATION.to_owned(), json!(SOURCE_CLUSTER));
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
    metadata.insert("labels".to_owned(), Value::Object(map("labels")));
    if kind.versions().len() > 1 {
        manifest.insert("apiVersion".to_owned(), json!(kind.api_version(written_version(kind, object))));
    }
    // the manager gives a new object the same uid, so that references to it, such as certificates, stay valid
    // if the journal is lost
    metadata.insert("uid".to_owned(), written["uid"].clone());
    if let Some(job) = kind.job() {
        strip_job(job, &mut manifest);
    }
    manifest.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(manifest)
}

/// The API version in which an object was written: the one in which it can be read with the fewest faults.
/// The served version may be wrong, because the API server may label an object with another version without
/// converting it.
fn written_version(kind: Kind, object: &Value) -> &'static str {
    let faults = |version: &&'static str| {
        let mut object = object.clone();
        object["apiVersion"] = json!(kind.api_version(version));
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        Object::validated(object, FieldValidation::Warn)
            .map_or_else(|errors| 1_000 + errors.len(), |read| read.1.len())
    };
    // among equals the first version, which is the storage version
    kind.versions().iter().min_by_key(|version| faults(version)).copied().unwrap_or(kind.storage_version())
}

fn strip_job(kind: &JobKind, manifest: &mut Map<String, Value>) {
    let mut value = Value::Object(std::mem::take(manifest));
    // not suspended, because the queue decides when the job starts, as with Kueue
    kind.set_suspended(&mut value, false);
    kind.remove_template_gates(&mut value);
    if kind.kind() == Kind::Pod {
        pods::strip(&mut value);
    }
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut)
        && spec.remove("manualSelector") != Some(Value::Bool(true))
    {
        spec.remove("selector");
    }
    let templates: Vec<String> = kind.pod_sets(&value).into_iter().map(|set| set.template).collect();
    for template in templates {
        let mut labels =
            value.pointer_mut(&format!("{template}/metadata/labels")).and_then(Value::as_object_mut);
        for label in CONTROLLER_LABELS {
            if let Some(labels) = labels.as_deref_mut() {
                labels.remove(label);
            }
        }
    }
    *manifest = value.as_object().cloned().unwrap_or_default();
}

/// Whether the manager has this object from the management cluster.
pub(crate) fn is_from_cluster(object: &Value) -> bool {
    object["metadata"]["annotations"][SOURCE_ANNOTATION] == SOURCE_CLUSTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_worker_set_is_taken_with_a_gate_in_each_template_and_sent_without() {
        let template = |gate: Option<&str>| {
            let gates: Vec<Value> = gate.map(|name| json!({"name": name})).into_iter().collect();
            json!({"spec": {"schedulingGates": gates, "containers": [{"name": "c", "image": "i"}]}})
        };
        let set = |leader: Value, worker: Value| {
            json!({
                "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
                "metadata": {"name": "serve", "namespace": "team", "labels": {QUEUE_LABEL: "main"}},
                "spec": {"replicas": 2, "leaderWorkerTemplate": {
                    "size": 4, "leaderTemplate": leader, "workerTemplate": worker,
                }},
            })
        };
        let gate = Some("kueue.x-k8s.io/admission");
        let gated = set(template(gate), template(gate));
        assert!(is_taken(Kind::LeaderWorkerSet, &gated));
        for open in [set(template(None), template(gate)), set(template(gate), template(None))] {
            assert!(!is_taken(Kind::LeaderWorkerSet, &open));
        }
        assert!(!is_taken(Kind::LeaderWorkerSet, &set(template(Some("example.com/data")), template(gate))));
        let sent = for_manager(Kind::LeaderWorkerSet, &gated);
        let templates = &sent["spec"]["leaderWorkerTemplate"];
        for template in ["leaderTemplate", "workerTemplate"] {
            assert!(templates[template]["spec"].get("schedulingGates").is_none(), "{templates}");
        }
        assert_eq!(sent["spec"]["replicas"], 2);
    }

    #[test]
    fn an_object_keeps_the_version_in_whose_words_it_is_written() {
        let queue = |version: &str, field: &str| {
            json!({
                "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue",
                "metadata": {"name": "q", "uid": "u", "resourceVersion": "7"},
                "spec": {"namespaceSelector": {}, field: "all", "resourceGroups": []},
                "status": {"pendingWorkloads": 3},
            })
        };
        // served as v1beta2, written as v1beta1
        let manifest = for_manager(Kind::ClusterQueue, &queue("v1beta2", "cohort"));
        assert_eq!(manifest["apiVersion"], "kueue.x-k8s.io/v1beta1");
        let manifest = for_manager(Kind::ClusterQueue, &queue("v1beta2", "cohortName"));
        assert_eq!(manifest["apiVersion"], "kueue.x-k8s.io/v1beta2");
        assert!(manifest.get("status").is_none() && manifest["metadata"]["uid"] == "u");
        assert!(is_from_cluster(&manifest));
    }
}

//! Objects that the pods of a job name.

use super::*;
use crate::job::of_object;

fn named(manifest: &Value) -> Vec<String> {
    let references = of_object(manifest).references(manifest);
    references.iter().map(|reference| format!("{} {}", reference.kind.name(), reference.name)).collect()
}

#[test]
fn every_place_in_which_a_pod_names_an_object_is_read() {
    let mut job = base();
    job["spec"]["template"]["spec"] = json!({
        "serviceAccountName": "trainer",
        "priorityClassName": "urgent",
        "imagePullSecrets": [{"name": "registry"}],
        "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "init-env"}}]}],
        "containers": [{
            "name": "c",
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}},
                {"name": "C", "value": "plain"},
                {"name": "D", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "other"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "all-settings"}}],
        }],
        "volumes": [
            {"name": "a", "configMap": {"name": "files"}},
            {"name": "b", "secret": {"secretName": "certificate"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "d", "projected": {"sources": [
                {"secret": {"name": "projected-secret"}}, {"configMap": {"name": "projected-files"}},
                {"serviceAccountToken": {"path": "token"}},
            ]}},
            {"name": "e", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi-secret"}}},
            {"name": "f", "emptyDir": {}},
        ],
    });
    assert_eq!(
        named(&job),
        [
            "ServiceAccount trainer",
            "ConfigMap all-settings",
            "ConfigMap files",
            "ConfigMap projected-files",
            "ConfigMap settings",
            "Secret certificate",
            "Secret csi-secret",
            "Secret hf-token",
            "Secret init-env",
            "Secret projected-secret",
            "PersistentVolumeClaim data",
            "PriorityClass urgent",
        ]
    );
}

#[test]
fn what_pods_start_without_is_not_required() {
    let mut job = base();
    job["spec"]["template"]["spec"] = json!({
        "serviceAccountName": "default",
        "priorityClassName": "system-node-critical",
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [{
            "name": "c",
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
            ],
            "envFrom": [{"configMapRef": {"name": "m", "optional": true}}],
        }],
        "volumes": [
            {"name": "a", "configMap": {"name": "files", "optional": true}},
            {"name": "b", "secret": {"secretName": "certificate", "optional": true}},
            {"name": "d", "projected": {"sources": [{"secret": {"name": "p", "optional": true}}]}},
        ],
    });
    assert_eq!(named(&job), [""; 0]);
    assert_eq!(named(&base()), [""; 0]);
}

#[test]
fn all_pod_sets_of_a_job_count() {
    let pods = |secret: &str| {
        json!({"replicas": 1, "template": {"spec": {
            "containers": [{"name": "pytorch", "envFrom": [{"secretRef": {"name": secret}}]}],
        }}})
    };
    let job = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "ml", "labels": {QUEUE_LABEL: "team"}},
        "spec": {"pytorchReplicaSpecs": {"Master": pods("master"), "Worker": pods("worker")}},
    });
    assert_eq!(named(&job), ["Secret master", "Secret worker"]);
}

//! What plans read, strictly and leniently.

mod files;
mod lenient;
mod workload;

use super::*;
use crate::files::Problem;
use crate::spec::{CheckState, ConditionStatus, DelayedTopology, PodPhase, Spec};
use meridian_shared::gang::Amounts;
use meridian_shared::time::Millis;
use serde_json::json;

fn workload(spec: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w",
        "namespace": "n"}, "spec": spec})
}

fn pod_set() -> Value {
    json!({"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c",
        "resources": {"requests": {"cpu": "1"}}}]}}})
}

fn read(written: &Value) -> WorkloadObject {
    match PlanObject::from_value(written.clone()) {
        Ok((PlanObject::Workload(workload), _)) => *workload,
        other => panic!("{other:#?}"),
    }
}

fn check_error(written: Value, expect: &str) {
    let errors = PlanObject::from_value(written.clone()).unwrap_err();
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {shown:#?}");
}

/// A workload with every field.
fn full() -> Value {
    let mut full = workload(json!({
        "queueName": "q", "priority": -5, "active": false, "maximumExecutionTimeSeconds": 90,
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
        "preemptionGates": [{"name": "g"}],
        "podSets": [{
            "name": "main", "count": 4, "minCount": 2,
            "topologyRequest": {
                "preferred": "rack", "podIndexLabel": "i", "subGroupIndexLabel": "s", "subGroupCount": 2,
                    "podSetGroupName": "g",
                "podsetSliceRequiredTopologyConstraints": [{"topology": "block", "size": 2},
                    {"topology": "rack", "size": 1}],
            },
            "template": {
                "metadata": {"labels": {"l": "1"}, "annotations": {"a": "b"}},
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"},
                        "limits": {"memory": "1Ki"}}}],
                    "nodeSelector": {"x": "y"}, "runtimeClassName": "rc", "priorityClassName": "pc",
                        "restartPolicy": "Always",
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        }],
    }));
    full["metadata"] = json!({
        "name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "2026-06-01T12:00:00.25Z",
            "generation": 3,
        "labels": {"kueue.x-k8s.io/job-uid": "j"},
        "annotations": {"kueue.x-k8s.io/priority-boost": "-30", "kueue.x-k8s.io/elastic-job": "true",
            "kueue.x-k8s.io/workload-slice-replacement-for": "n/old"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"},
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": true},
        ],
    });
    full["status"] = json!({
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "1969-12-31T23:59:59.9995Z"}],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{
            "name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}, "count": 3,
            "topologyAssignment": {"levels": ["rack"], "slices": []}, "delayedTopologyRequest": "Pending",
        }]},
        "admissionChecks": [{
            "name": "ac", "state": "Retry", "message": "no", "lastTransitionTime": "2026-06-01T12:00:00Z",
                "requeueAfterSeconds": 5, "retryCount": 1,
            "podSetUpdates": [{"name": "main", "labels": {"k": "v"}, "nodeSelector": {"n": "1"},
                "tolerations": [{"key": "t", "operator": "Exists"}]}],
        }],
        "requeueState": {"count": 2, "requeueAt": "2026-06-01T12:00:01Z"},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "resourceRequests": [{"name": "main", "resources": {"cpu": "4"}}],
        "accumulatedPastExecutionTimeSeconds": 7,
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
        "nominatedClusterNames": ["a", "b"], "clusterName": "c",
        "unhealthyNodes": [{"name": "node-1"}],
        "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": "2026-06-01T12:00:00Z"}],
    });
    full
}

//! Pods that have only the shape of a gang's pods: what they request, and where they may be.

use crate::labels::OWNED;
use meridian_shared::gang::{Operator, PodSet, Requirement, TaintEffect, Toleration};
use meridian_shared::quantity;
use serde_json::{Map, Value, json};

/// A pod of this shape with one container.
pub(crate) fn pod(set: &PodSet, container: &str, image: &str) -> Value {
    let requests: Map<String, Value> = set
        .per_pod
        .iter()
        .filter(|(_, amount)| **amount > 0)
        .map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount))))
        .collect();
    // Extended resources can't be overcommitted, so the API demands equal limits.
    let limits: Map<String, Value> =
        requests.iter().filter(|(name, _)| name.contains('/')).map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut tolerations: Vec<Value> = set.tolerations.iter().map(toleration).collect();
    tolerations.push(json!({"key": OWNED, "operator": "Exists"}));
    let mut pod = json!({
        "restartPolicy": "Never",
        "containers": [
            {"name": container, "image": image, "resources": {"requests": requests, "limits": limits}},
        ],
        "nodeSelector": set.node_selector,
        "tolerations": tolerations,
    });
    if !set.affinity.is_empty() {
        let terms: Vec<Value> = set
            .affinity
            .iter()
            .map(|term| json!({"matchExpressions": term.iter().map(requirement).collect::<Vec<_>>()}))
            .collect();
        pod["affinity"] = json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        });
    }
    pod
}

fn requirement(requirement: &Requirement) -> Value {
    let operator = match requirement.operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Gt => "Gt",
        Operator::Lt => "Lt",
    };
    json!({"key": requirement.key, "operator": operator, "values": requirement.values})
}

fn toleration(toleration: &Toleration) -> Value {
    let mut all = Map::new();
    if let Some(key) = &toleration.key {
        all.insert("key".to_owned(), json!(key));
    }
    all.insert("operator".to_owned(), json!(if toleration.exists { "Exists" } else { "Equal" }));
    if !toleration.value.is_empty() {
        all.insert("value".to_owned(), json!(toleration.value));
    }
    if let Some(effect) = toleration.effect {
        let effect = match effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        };
        all.insert("effect".to_owned(), json!(effect));
    }
    if let Some(seconds) = toleration.seconds {
        all.insert("tolerationSeconds".to_owned(), json!(seconds));
    }
    Value::Object(all)
}

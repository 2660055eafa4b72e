//! Pods that have requests and node rules like a gang's pods, but run nothing.

use crate::labels::OWNED;
use meridian_shared::gang::{Operator, PodSet, Requirement, Toleration};
use meridian_shared::quantity;
use serde_json::{Map, Value, json};

/// The part of a pod's node affinity that the scheduler must follow.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

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
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}},
        });
    }
    pod
}

/// The terms of a pod's required node affinity. Its node must match one of them, if there are any.
pub(crate) fn node_terms(spec: &Value) -> Vec<Value> {
    let required = spec.pointer("/affinity/nodeAffinity").and_then(|affinity| affinity.get(REQUIRED));
    let terms = required.and_then(|required| required.get("nodeSelectorTerms")).and_then(Value::as_array);
    terms.cloned().unwrap_or_default()
}

/// The node that the affinity of [`only_on`] names.
pub(crate) fn sent_to(spec: &Value) -> Option<String> {
    let terms = node_terms(spec);
    let fields = terms.first()?.get("matchFields")?.as_array()?;
    let is_node = |field: &&Value| field["key"] == "metadata.name" && field["operator"] == "In";
    let [node] = fields.iter().find(is_node)?["values"].as_array()?.as_slice() else { return None };
    node.as_str().map(str::to_owned)
}

/// The affinity that sends a pod with these terms to one node. It selects the node's name, because the label
/// `kubernetes.io/hostname` may be missing or differ from the name. Each existing term is kept and narrowed:
/// the API allows no other change to a gated pod.
pub(crate) fn only_on(node: &str, terms: &[Value]) -> Value {
    let is_node = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let mut narrowed = terms.to_vec();
    if narrowed.is_empty() {
        narrowed.push(json!({"matchFields": [is_node]}));
    } else {
        // A term without requirements matches no node, and must stay so.
        let with_requirements = |term: &&mut Value| {
            let some =
                |list: &str| term.get(list).and_then(Value::as_array).is_some_and(|all| !all.is_empty());
            some("matchExpressions") || some("matchFields")
        };
        for term in narrowed.iter_mut().filter(with_requirements) {
            match term.get_mut("matchFields").and_then(Value::as_array_mut) {
                Some(fields) => fields.push(is_node.clone()),
                None => term["matchFields"] = json!([is_node]),
            }
        }
    }
    json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": narrowed}}})
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
        all.insert("effect".to_owned(), json!(effect.name()));
    }
    if let Some(seconds) = toleration.seconds {
        all.insert("tolerationSeconds".to_owned(), json!(seconds));
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_that_a_pod_was_sent_to_is_read_back() {
        let expressions = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
        for terms in [vec![], vec![json!({"matchExpressions": expressions})]] {
            assert_eq!(sent_to(&json!({"affinity": only_on("n1", &terms)})), Some("n1".to_owned()));
            let affinity = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
            assert_eq!(sent_to(&json!({"affinity": affinity})), None);
        }
    }
}

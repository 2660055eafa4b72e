//! Pod sets of a `Workload`, as `meridian plan` reads them back.

use meridian_objects::quantity;
use meridian_shared::gang::{PodSet, Requirement, Toleration};
use serde_json::{Map, Value, json};

/// A pod set. Its template has the same requests and constraints as the job's pods.
pub(super) fn pod_set(set: &PodSet) -> Value {
    let requests: Map<String, Value> = set
        .per_pod
        .iter()
        .map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount))))
        .collect();
    let containers = json!([{"name": "all", "resources": {"requests": requests}}]);
    let mut spec = json!({"restartPolicy": "Never", "containers": containers});
    if !set.node_selector.is_empty() {
        spec["nodeSelector"] = json!(set.node_selector);
    }
    if !set.tolerations.is_empty() {
        spec["tolerations"] = set.tolerations.iter().map(toleration).collect();
    }
    if !set.affinity.is_empty() {
        let requirement = |r: &Requirement| {
            let mut value = json!({"key": r.key, "operator": r.operator});
            if !r.values.is_empty() {
                value["values"] = json!(r.values);
            }
            value
        };
        let terms: Vec<Value> = set
            .affinity
            .iter()
            .map(|term| json!({"matchExpressions": term.iter().map(requirement).collect::<Vec<_>>()}))
            .collect();
        spec["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }});
    }
    let mut value = json!({"name": set.name, "count": set.count, "template": {"spec": spec}});
    if let Some(least) = set.min_count {
        value["minCount"] = json!(least);
    }
    value
}

fn toleration(of: &Toleration) -> Value {
    let mut value = json!({"operator": if of.exists { "Exists" } else { "Equal" }});
    if let Some(key) = &of.key {
        value["key"] = json!(key);
    }
    if !of.exists {
        value["value"] = json!(of.value);
    }
    if let Some(effect) = of.effect {
        value["effect"] = json!(effect);
    }
    value
}

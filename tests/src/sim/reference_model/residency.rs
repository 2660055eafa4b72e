//! The residency rule, read from the stored manifests. It is written from the specification
//! (docs/residency.md), not from the manager's code.

use meridian_manager_core::World;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, Uid};
use serde_json::Value;

/// Whether residency allows this cluster to know of this workload.
///
/// # Errors
///
/// The rule that forbids it.
pub(crate) fn allows(world: &World, uid: Uid, cluster: &ClusterName) -> Result<(), String> {
    let Some(workload) = world.state().workloads().get(&uid) else { return Err("being unknown".into()) };
    let class = world.queues().class(workload.class());
    let stored =
        |kind: Kind| world.state().catalog().iter().filter(move |(k, _)| k.kind == kind && k.scope.is_none());
    let Some((_, cluster_object)) = stored(Kind::Cluster).find(|(k, _)| *k.name == *cluster.as_str()) else {
        return Err("a missing Cluster object".into());
    };
    let spec = &cluster_object.object.stored["spec"];
    let labels = stored(Kind::Namespace)
        .find(|(k, _)| k.name == class.namespace)
        .map(|(_, s)| s.object.stored["metadata"]["labels"].clone());
    for (key, policy) in stored(Kind::ResidencyPolicy) {
        let policy = &policy.object.stored["spec"];
        let applies = &policy["applies"];
        let criteria = ["namespaces", "namespaceSelector", "queues", "workloadSelector"];
        let any_written = criteria.iter().any(|c| applies.get(c).is_some());
        let by_namespace = lists(&applies["namespaces"], &class.namespace);
        let selector = &applies["namespaceSelector"]["matchLabels"];
        let by_label = selector.as_object().is_some_and(|required| {
            !required.is_empty()
                && required.iter().all(|(k, v)| labels.as_ref().and_then(|l| l.get(k)) == Some(v))
        });
        let by_queue = lists(&applies["queues"], &class.queue);
        if any_written && !(by_namespace || by_label || by_queue) {
            continue;
        }
        let names = |rule: &Value| {
            lists(&rule["clusters"], cluster.as_str())
                || spec["region"].as_str().is_some_and(|r| lists(&rule["regions"], r))
                || spec["jurisdiction"].as_str().is_some_and(|j| lists(&rule["jurisdictions"], j))
        };
        if names(&policy["deny"]) || (policy.get("allow").is_some() && !names(&policy["allow"])) {
            return Err(format!("policy `{}`", key.name));
        }
    }
    Ok(())
}

fn lists(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|l| l.iter().any(|v| v.as_str() == Some(word)))
}

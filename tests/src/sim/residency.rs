//! The residency rule a second time, read straight from the stored manifests and written from DESIGN.md section 5.

use meridian_manager_core::World;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, Uid};
use serde_json::Value;

/// Whether this cluster may know of this workload; otherwise the rule that forbids it.
pub(super) fn verdict(world: &World, uid: Uid, cluster: &ClusterName) -> Result<(), String> {
    let Some(workload) = world.state.workloads.get(&uid) else { return Err("nothing that is known".into()) };
    let class = world.queues.class(workload.class);
    let stored =
        |kind: Kind| world.state.catalog.iter().filter(move |(k, _)| k.kind == kind && k.scope.is_none());
    let Some((_, place)) = stored(Kind::Cluster).find(|(k, _)| *k.name == *cluster.as_str()) else {
        return Err("an undeclared place".into());
    };
    let spec = &place.object.stored["spec"];
    let labels = stored(Kind::Namespace)
        .find(|(k, _)| k.name == class.namespace)
        .map(|(_, s)| s.object.stored["metadata"]["labels"].clone());
    for (key, policy) in stored(Kind::ResidencyPolicy) {
        let policy = &policy.object.stored["spec"];
        let applies = &policy["applies"];
        let criteria = ["namespaces", "namespaceSelector", "queues", "workloadSelector"];
        let any_written = criteria.iter().any(|c| applies.get(c).is_some());
        let by_name = lists(&applies["namespaces"], &class.namespace);
        let selector = &applies["namespaceSelector"]["matchLabels"];
        let by_label = selector.as_object().is_some_and(|wanted| {
            !wanted.is_empty()
                && wanted.iter().all(|(k, v)| labels.as_ref().and_then(|l| l.get(k)) == Some(v))
        });
        let by_queue = lists(&applies["queues"], &class.queue);
        if any_written && !(by_name || by_label || by_queue) {
            continue;
        }
        let names = |places: &Value| {
            lists(&places["clusters"], cluster.as_str())
                || spec["region"].as_str().is_some_and(|r| lists(&places["regions"], r))
                || spec["jurisdiction"].as_str().is_some_and(|j| lists(&places["jurisdictions"], j))
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

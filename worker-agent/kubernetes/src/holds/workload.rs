//! A Workload of the cluster's own Kueue, which stands for the gang in its LocalQueue. Pure.
//!
//! Kueue also admits a Workload that no job owns; MultiKueue depends on that, too. So the gang gets its turn
//! and its quota before any object of the job exists. The gang is held when the Workload is admitted. The
//! Workload stays until the run has ended, and is then deleted, which gives the quota back; if Kueue evicts
//! it, the run ends.

use super::order::Seen;
use crate::facts::{Condition, WorkloadFacts};
use crate::labels::{HOLD, MANAGED_BY, OFFER, ORIGIN, UID, origin};
use crate::shape;
use meridian_agent_core::runtime::HoldOrder;
use meridian_shared::ids::OfferId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Value of the label of every Workload.
pub(super) const WORKLOAD: &str = "workload";
/// The image is never pulled: the Workload only describes pods.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// Labels of each node, by its name.
pub(super) type NodeLabels = BTreeMap<String, BTreeMap<String, String>>;

/// The name of the Workload of an offer.
pub(super) fn name(offer: OfferId) -> String {
    format!("meridian-hold-{offer}")
}

/// Builds the Workload. Its pod sets select the labels that all nodes of their placement have, so that Kueue
/// can only assign a flavor of those nodes.
pub(super) fn build(
    order: &HoldOrder,
    queue: &str,
    api_version: &str,
    cluster: &str,
    nodes: &NodeLabels,
) -> Value {
    let sets = order.gang.pod_sets.iter().map(|set| {
        let mut spec = shape::pod(set, "shape", IMAGE);
        for (name, value) in common_labels(order, &set.name, nodes) {
            spec["nodeSelector"][name] = json!(value);
        }
        json!({"name": set.name, "count": set.count, "template": {"spec": spec}})
    });
    json!({
        "apiVersion": api_version, "kind": "Workload",
        "metadata": {
            "name": name(order.offer),
            "namespace": &*order.namespace,
            "labels": {
                MANAGED_BY.0: MANAGED_BY.1, ORIGIN: origin(cluster), HOLD: WORKLOAD,
                OFFER: order.offer.to_string(), UID: order.uid.to_string(),
            },
        },
        "spec": {"queueName": queue, "active": true, "podSets": sets.collect::<Vec<_>>()},
    })
}

/// The labels that all nodes of a pod set's placement have in common.
fn common_labels(order: &HoldOrder, pod_set: &str, nodes: &NodeLabels) -> BTreeMap<String, String> {
    let placed = order.placement.iter().filter(|at| at.pod_set == pod_set);
    let mut labels = placed.filter_map(|at| nodes.get(&at.node));
    let mut common = labels.next().cloned().unwrap_or_default();
    for of_node in labels {
        common.retain(|name, value| of_node.get(name) == Some(value));
    }
    common
}

/// Whether the Workload holds the gang's capacity. `known`: whether a watch showed it before.
pub(super) fn seen(workload: Option<&WorkloadFacts>, known: &mut bool) -> Seen {
    let Some(workload) = workload else {
        return if *known {
            Seen::Lost("its Workload in the cluster's own Kueue was deleted by somebody else".to_owned())
        } else {
            Seen::Partly
        };
    };
    *known = true;
    let queue = &workload.queue;
    if workload.deleting {
        return Seen::Lost("its Workload in the cluster's own Kueue was deleted by somebody else".to_owned());
    }
    for (kind, what) in
        [("Evicted", "evicted"), ("Finished", "finished"), ("DeactivationTarget", "deactivated")]
    {
        if let Some(condition) = workload.holds(kind) {
            // The condition stays true until the Workload is admitted again.
            let words = condition.words();
            return Seen::Lost(format!(
                "the cluster's own Kueue {what} the gang of queue `{queue}`: {words}"
            ));
        }
    }
    if workload.holds("Admitted").is_some() {
        return Seen::Holds;
    }
    let reserved = workload.holds("QuotaReserved").is_some();
    let (state, next) = if reserved {
        ("has reserved quota", "Admitted")
    } else {
        ("has not admitted the gang", "QuotaReserved")
    };
    let why = workload.conditions.get(next).map(Condition::words).filter(|words| !words.is_empty());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Seen::Waits(format!("the cluster's own Kueue {state} in queue `{queue}`{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_agent_core::runtime::PodPlacement;
    use meridian_shared::gang::{Amounts, Gang, PodSet};
    use meridian_shared::ids::Uid;
    use std::sync::Arc;

    fn order() -> HoldOrder {
        let set = |name: &str, count: u32| PodSet {
            name: name.to_owned(),
            count,
            per_pod: Amounts::from([("cpu".to_owned(), 500), ("nvidia.com/gpu".to_owned(), 1)]),
            ..PodSet::default()
        };
        let at = |pod_set: &str, index: u32, node: &str| PodPlacement {
            pod_set: pod_set.to_owned(),
            index,
            node: node.to_owned(),
            accelerators: BTreeMap::new(),
        };
        HoldOrder {
            offer: OfferId { epoch: 2, leadership: 7, counter: 1 },
            uid: Uid(7),
            namespace: "ml".into(),
            gang: Arc::new(Gang { pod_sets: vec![set("driver", 1), set("workers", 2)], ..Gang::default() }),
            placement: vec![at("driver", 0, "a"), at("workers", 0, "a"), at("workers", 1, "b")],
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_workload_asks_for_the_whole_gang_on_a_flavor_of_its_nodes() {
        let nodes = NodeLabels::from([
            ("a".to_owned(), labels(&[("pool", "spot"), ("zone", "a")])),
            ("b".to_owned(), labels(&[("pool", "spot"), ("zone", "b")])),
        ]);
        let made = build(&order(), "team", "kueue.x-k8s.io/v1beta2", "eu", &nodes);
        let at = |path: &str| made.pointer(path).cloned().unwrap_or(Value::Null);
        assert_eq!((at("/metadata/namespace"), at("/spec/queueName")), (json!("ml"), json!("team")));
        assert_eq!((at("/spec/podSets/0/count"), at("/spec/podSets/1/count")), (json!(1), json!(2)));
        let spec = "/spec/podSets/1/template/spec";
        let requests = at(&format!("{spec}/containers/0/resources/requests"));
        assert_eq!(requests, json!({"cpu": "500m", "nvidia.com/gpu": "1"}));
        assert_eq!(at("/spec/podSets/0/template/spec/nodeSelector"), json!({"pool": "spot", "zone": "a"}));
        assert_eq!(
            at(&format!("{spec}/nodeSelector")),
            json!({"pool": "spot"}),
            "its nodes are in two zones"
        );
        assert_eq!(at("/metadata/ownerReferences"), Value::Null);
    }

    fn workload(conditions: &[(&str, bool, &str)]) -> WorkloadFacts {
        let condition = |(kind, holds, reason): &(&str, bool, &str)| {
            let condition = Condition { holds: *holds, reason: (*reason).to_owned(), ..Condition::default() };
            ((*kind).to_owned(), condition)
        };
        WorkloadFacts {
            queue: "team".to_owned(),
            conditions: conditions.iter().map(condition).collect(),
            ..WorkloadFacts::default()
        }
    }

    fn shown(conditions: &[(&str, bool, &str)]) -> Seen {
        seen(Some(&workload(conditions)), &mut true)
    }

    #[test]
    fn only_admitted_is_a_hold() {
        let waits = |words: &str| Seen::Waits(format!("the cluster's own Kueue {words}"));
        assert_eq!(shown(&[]), waits("has not admitted the gang in queue `team`"));
        assert_eq!(
            shown(&[("QuotaReserved", false, "Pending"), ("Admitted", false, "NoReservation")]),
            waits("has not admitted the gang in queue `team`: Pending")
        );
        assert_eq!(
            shown(&[("QuotaReserved", true, "QuotaReserved")]),
            waits("has reserved quota in queue `team`")
        );
        assert_eq!(shown(&[("QuotaReserved", true, ""), ("Admitted", true, "Admitted")]), Seen::Holds);
    }

    #[test]
    fn a_workload_that_kueue_evicts_or_somebody_deletes_is_lost() {
        let admitted = ("Admitted", true, "Admitted");
        let Seen::Lost(why) = shown(&[admitted, ("Evicted", true, "Preempted")]) else {
            panic!("it is lost")
        };
        assert_eq!(why, "the cluster's own Kueue evicted the gang of queue `team`: Preempted");
        assert!(matches!(shown(&[admitted, ("Finished", true, "OutOfSync")]), Seen::Lost(_)));
        assert_eq!(shown(&[admitted, ("Evicted", false, "Admitted")]), Seen::Holds, "it was admitted again");
        assert!(matches!(seen(None, &mut true), Seen::Lost(_)));
        assert_eq!(seen(None, &mut false), Seen::Partly, "a watch can be behind the answer to a create");
        let deleting = WorkloadFacts { deleting: true, ..workload(&[admitted]) };
        assert!(matches!(seen(Some(&deleting), &mut true), Seen::Lost(_)));
    }
}

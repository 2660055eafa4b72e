//! Placeholder pods: one for each pod of the gang, of its size and on its node, with a low priority. Pure.
//!
//! Placeholder pods hold the gang's capacity on nodes that other workloads use too: the scheduler counts
//! them, and evicts them only for pods of higher priority. They are in the agent's own namespace, so that the
//! quotas and limits of the job's namespace count only the pods of its jobs. The runner deletes each one
//! right before its pod may be scheduled.

use super::PlaceholderSettings;
use super::order::Seen;
use crate::facts::PodFacts;
use crate::labels::{HOLD, MANAGED_BY, OFFER, ORIGIN, UID, origin};
use crate::shape;
use meridian_agent_core::runtime::{HoldOrder, PodPlacement};
use meridian_shared::counted::counted;
use meridian_shared::ids::OfferId;
use meridian_shared::time::Millis;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How long placeholders may wait for the scheduler. The ledger saw free capacity, so if they still wait,
/// other pods took it since; the next inventory shows those pods.
pub(super) const PATIENCE: Millis = Millis::secs(30);
/// Value of the label of every placeholder.
pub(super) const PLACEHOLDER: &str = "placeholder";

/// The name of the placeholder of a pod, by its number in the placement of an offer.
pub(crate) fn name(offer: OfferId, number: u32) -> String {
    format!("meridian-hold-{offer}-{number}")
}

/// The names of all placeholders of an offer.
pub(super) fn names(order: &HoldOrder) -> Vec<String> {
    (0..).zip(&order.placement).map(|(number, _)| name(order.offer, number)).collect()
}

/// Builds the pods. Fails if the placement names a pod set that the gang lacks.
pub(super) fn build(
    order: &HoldOrder,
    settings: &PlaceholderSettings,
    namespace: &str,
    cluster: &str,
) -> Result<Vec<Value>, String> {
    let pod = |(number, at): (u32, &PodPlacement)| -> Result<Value, String> {
        let set = order.gang.pod_sets.iter().find(|set| set.name == at.pod_set);
        let set = set.ok_or_else(|| format!("the gang has no pod set `{}`", at.pod_set))?;
        let mut spec = shape::pod(set, "placeholder", &settings.image);
        spec["affinity"] = shape::only_on(&at.node, &shape::node_terms(&spec));
        spec["terminationGracePeriodSeconds"] = json!(1);
        spec["automountServiceAccountToken"] = json!(false);
        spec["enableServiceLinks"] = json!(false);
        if !settings.priority_class.is_empty() {
            spec["priorityClassName"] = json!(settings.priority_class);
        }
        // What the strictest Pod Security Standard demands.
        spec["securityContext"] = json!({
            "runAsNonRoot": true, "runAsUser": 65_535, "seccompProfile": {"type": "RuntimeDefault"},
        });
        spec["containers"][0]["securityContext"] = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        });
        Ok(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name(order.offer, number),
                "namespace": namespace,
                "labels": {
                    MANAGED_BY.0: MANAGED_BY.1, ORIGIN: origin(cluster), HOLD: PLACEHOLDER,
                    OFFER: order.offer.to_string(), UID: order.uid.to_string(),
                },
            },
            "spec": spec,
        }))
    };
    (0..).zip(&order.placement).map(pod).collect()
}

/// Whether the placeholders of an offer hold its capacity. `known`: the placeholders that a watch has shown;
/// new ones are added.
pub(super) fn seen(order: &HoldOrder, pods: &[PodFacts], known: &mut BTreeSet<String>) -> Seen {
    let by_name: BTreeMap<&str, &PodFacts> = pods.iter().map(|pod| (pod.name.as_str(), pod)).collect();
    let (mut bound, mut missing, mut why) = (0, 0, None);
    let names = names(order);
    for name in &names {
        match by_name.get(name.as_str()) {
            Some(pod) if pod.deleting || pod.is_terminal() => return lost(pod),
            Some(pod) => {
                known.insert(name.clone());
                if pod.node.is_some() {
                    bound += 1;
                } else {
                    why = why.or(pod.held_up.as_ref());
                }
            }
            None if known.contains(name) => {
                return Seen::Lost(format!(
                    "placeholder pod `{name}` was deleted, so the room is no longer held"
                ));
            }
            None => missing += 1,
        }
    }
    if bound == names.len() {
        return Seen::Holds;
    }
    if missing > 0 {
        return Seen::Partly;
    }
    let of = counted(names.len(), "placeholder pod");
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Seen::Waits(format!("{bound} of {of} are scheduled{why}"))
}

fn lost(pod: &PodFacts) -> Seen {
    let node = pod.node.as_ref().map_or_else(String::new, |node| format!(" on node `{node}`"));
    Seen::Lost(format!("placeholder pod `{}`{node} was evicted, so other pods have its room", pod.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::spec::PodPhase;
    use meridian_shared::gang::{Amounts, Gang, PodSet, Toleration};
    use meridian_shared::ids::Uid;
    use std::sync::Arc;

    fn order() -> HoldOrder {
        let at = |index: u32, node: &str| PodPlacement {
            pod_set: "main".to_owned(),
            index,
            node: node.to_owned(),
            accelerators: BTreeMap::new(),
        };
        let tolerated = Toleration {
            key: Some("gpu".to_owned()),
            exists: true,
            value: String::new(),
            effect: None,
            seconds: None,
        };
        HoldOrder {
            offer: OfferId { epoch: 2, leadership: 7, counter: 1 },
            uid: Uid(7),
            namespace: "ml".into(),
            gang: Arc::new(Gang {
                pod_sets: vec![PodSet {
                    name: "main".to_owned(),
                    count: 2,
                    per_pod: Amounts::from([("cpu".to_owned(), 500), ("nvidia.com/gpu".to_owned(), 1)]),
                    tolerations: vec![tolerated],
                    ..PodSet::default()
                }],
                ..Gang::default()
            }),
            placement: vec![at(0, "a"), at(1, "b")],
        }
    }

    fn settings() -> PlaceholderSettings {
        PlaceholderSettings {
            image: "registry.example.com/pause:1".to_owned(),
            priority_class: "low".to_owned(),
        }
    }

    #[test]
    fn each_placeholder_has_the_size_and_the_node_of_its_pod() {
        let pods = build(&order(), &settings(), "meridian-system", "eu").unwrap();
        assert_eq!(pods.len(), 2);
        let at = |path: &str| pods[1].pointer(path).cloned().unwrap_or(Value::Null);
        assert_eq!(at("/metadata/namespace"), "meridian-system");
        assert_eq!(at("/metadata/name"), name(order().offer, 1));
        assert_eq!(at("/metadata/labels/meridian.dev~1uid"), Uid(7).to_string());
        assert_eq!(at("/metadata/labels/meridian.dev~1offer"), "2-7-1");
        assert_eq!(at("/metadata/labels/meridian.dev~1fence"), Value::Null, "it is no pod of a run");
        assert_eq!(at("/spec/affinity"), shape::only_on("b", &[]));
        assert_eq!(at("/spec/priorityClassName"), "low");
        assert_eq!(at("/spec/tolerations/0/key"), "gpu");
        assert_eq!(at("/spec/containers/0/image"), "registry.example.com/pause:1");
        let resources = json!({
            "requests": {"cpu": "500m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"},
        });
        assert_eq!(at("/spec/containers/0/resources"), resources);
    }

    fn pod(number: u32, node: Option<&str>) -> PodFacts {
        PodFacts {
            namespace: "meridian-system".to_owned(),
            name: name(order().offer, number),
            uid: format!("uid-{number}"),
            run: None,
            holds: Some(order().offer),
            node: node.map(str::to_owned),
            requests: Amounts::new(),
            phase: PodPhase::Pending,
            gates: Vec::new(),
            node_terms: Vec::new(),
            sent_to: None,
            deleting: false,
            written_off: false,
            index: None,
            pod_set: None,
            position: None,
            failed_container: None,
            held_up: None,
            created: None,
        }
    }

    #[test]
    fn room_is_held_when_every_placeholder_has_its_node() {
        let mut known = BTreeSet::new();
        assert_eq!(seen(&order(), &[pod(0, Some("a"))], &mut known), Seen::Partly, "the watch is behind");
        let unschedulable =
            PodFacts { held_up: Some("Unschedulable: Insufficient gpu".into()), ..pod(1, None) };
        let why = "1 of 2 placeholder pods are scheduled: Unschedulable: Insufficient gpu".to_owned();
        assert_eq!(seen(&order(), &[pod(0, Some("a")), unschedulable], &mut known), Seen::Waits(why));
        assert_eq!(seen(&order(), &[pod(0, Some("a")), pod(1, Some("b"))], &mut known), Seen::Holds);
    }

    #[test]
    fn a_placeholder_that_goes_away_loses_the_room() {
        let mut known = BTreeSet::new();
        let both = [pod(0, Some("a")), pod(1, Some("b"))];
        seen(&order(), &both, &mut known);
        let Seen::Lost(why) = seen(&order(), &both[..1], &mut known) else { panic!("it is lost") };
        assert!(why.contains("`meridian-hold-2-7-1-1` was deleted"), "{why}");
        let evicted = PodFacts { deleting: true, ..pod(1, Some("b")) };
        let Seen::Lost(why) = seen(&order(), &[pod(0, Some("a")), evicted], &mut known) else {
            panic!("it is lost")
        };
        assert!(why.contains("on node `b` was evicted"), "{why}");
        let failed = PodFacts { phase: PodPhase::Failed, ..pod(0, Some("a")) };
        assert!(matches!(seen(&order(), &[failed, pod(1, Some("b"))], &mut known), Seen::Lost(_)));
    }
}

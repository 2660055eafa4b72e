//! A pod as the cluster made it, and how it is sent to its node.

use super::*;

pub(super) fn pod(number: u32) -> PodFacts {
    PodFacts {
        namespace: "ml".into(),
        name: format!("train-{number}"),
        uid: format!("pod-{number}"),
        run: Some(KEY),
        holds: None,
        node: None,
        requests: BTreeMap::new(),
        phase: PodPhase::Pending,
        gates: vec![GATE.to_owned()],
        node_terms: Vec::new(),
        sent_to: None,
        deleting: false,
        written_off: false,
        index: None,
        pod_set: None,
        position: None,
        failed_container: None,
        held_up: None,
        created: Some(Wall(i64::from(number))),
    }
}

/// The node that a patch sends its pod to.
pub(super) fn node_of(patch: &Value) -> &str {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let by_name = patch.pointer(terms).and_then(|terms| terms.pointer("/0/matchFields/0")).unwrap();
    assert_eq!((&by_name["key"], &by_name["operator"]), (&json!("metadata.name"), &json!("In")));
    by_name["values"][0].as_str().unwrap()
}

#[test]
fn a_pod_goes_to_its_node_by_name_and_keeps_its_own_terms() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let in_pool = |pool: &str| json!({"key": "pool", "operator": "In", "values": [pool]});
    let is_other = json!({"key": "metadata.name", "operator": "NotIn", "values": ["other"]});
    let made = |gate: &str| {
        let terms = json!([
            {"matchExpressions": [in_pool("a")]},
            {"matchExpressions": [in_pool("b")], "matchFields": [is_other]},
            {},
        ]);
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ml", "uid": "u"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": gate}],
                "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}},
            },
        });
        PodFacts::read(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    let name = format!("{}.example.com", "n".repeat(70));
    let patch = manifest::place(&name, 3, &made(GATE));
    let is_node = json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let narrowed = json!([
        {"matchExpressions": [in_pool("a")], "matchFields": [is_node]},
        {"matchExpressions": [in_pool("b")], "matchFields": [is_other, is_node]},
        {},
    ]);
    assert_eq!(patch["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"], narrowed);
    assert_eq!(patch["spec"]["schedulingGates"], Value::Null, "the gate is gone");
    assert_eq!(node_of(&manifest::place("n1", 0, &pod(1))), "n1", "a pod without terms gets one");
    assert!(made("of-others").node_terms.is_empty(), "only pods that are to be placed keep their terms");
}

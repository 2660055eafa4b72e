//! Lenient reading: rules are not enforced, unreadable values are refused.

use super::*;

#[test]
fn lenient_reading_accepts_broken_rules() {
    let object = |written: Value| match PlanObject::lenient(&written) {
        Ok(PlanObject::Object(planned)) => planned.object.spec,
        other => panic!("{other:#?}"),
    };
    let kueue = |kind: &str, spec: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
        "metadata": {"name": "Bad_Name"}, "spec": spec})
    };
    let Spec::ResourceFlavor(flavor) = object(kueue("ResourceFlavor", json!({"topologyName": "t_1"}))) else {
        panic!("no flavor")
    };
    assert_eq!(flavor.topology_name.as_deref(), Some("t_1"));
    let quota = json!({"name": "cpu", "nominalQuota": "9223372036854775807", "borrowingLimit": "9E",
        "lendingLimit": "-1"});
    let groups = json!([{"flavors": [{"name": "A b", "resources": [quota]}]}]);
    let preemption = |block: Value| {
        let written = kueue(
            "ClusterQueue",
            json!({"resourceGroups": groups, "preemption": block, "cohortName": "C_1"}),
        );
        let Spec::ClusterQueue(queue) = object(written) else { panic!("no queue") };
        let quota = &queue.resource_groups[0].flavors[0].resources["cpu"];
        assert_eq!(
            (quota.nominal, quota.borrowing_limit, quota.lending_limit),
            (i64::MAX, Some(i64::MAX), Some(-1_000))
        );
        queue.preemption.reclaim_is_unset
    };
    assert!(!preemption(Value::Null), "no block is what a server fills in");
    assert!(!preemption(json!({"reclaimWithinCohort": "Never"})));
    assert!(
        preemption(json!({"reclaimWithinCohort": ""}))
            && preemption(json!({"withinClusterQueue": "LowerPriority"}))
    );
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {}}}});
    assert!(matches!(object(job), Spec::Job(_)));
    let mut bare = workload(json!({"podSets": [{"name": "One", "count": 0, "minCount": 3,
            "template": {"spec": {"containers": [{"name": ""}]}}}]}));
    bare["metadata"] = json!({"name": "a_b"});
    let Ok(PlanObject::Workload(found)) = PlanObject::lenient(&bare) else { panic!("no workload") };
    assert_eq!(
        (found.meta.key().as_str(), found.spec.pod_sets[0].count, found.spec.pod_sets[0].min_count),
        ("/a_b", 0, Some(3))
    );
    // Plans see the status that a server wrote.
    let mut check = kueue("AdmissionCheck", json!({"controllerName": "c"}));
    check["status"] = json!({"conditions": [{"type": "Active", "status": "True"}]});
    let Ok(PlanObject::Object(check)) = PlanObject::lenient(&check) else { panic!("no check") };
    assert_eq!((check.conditions[0].status, check.created), (ConditionStatus::True, None));
}

#[test]
fn lenient_reading_refuses_unreadable_values() {
    let check = |written: Value, expect: &str| {
        let error = PlanObject::lenient(&written).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    for written in [
        json!(null),
        json!(7),
        json!([]),
        json!({}),
        json!({"apiVersion": "v1"}),
        json!({"apiVersion": 1, "kind": "Node"}),
    ] {
        assert!(PlanObject::lenient(&written).is_err(), "{written}");
    }
    check(workload(json!("x")), "spec: must be a mapping");
    check(workload(json!({"podSets": [{"count": "2"}]})), "spec.podSets[0].count: must be a whole number");
    check(workload(json!({"priority": [1]})), "spec.priority: must be a whole number");
    check(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "k"}]}}),
        "taints[0].effect: is missing",
    );
    check(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "lots"}}}),
        "`lots` is not a quantity",
    );
    check(
        json!({"apiVersion": "kueue.x-k8s.io/v3", "kind": "Workload", "metadata": {"name": "n"}}),
        "has no version `v3`",
    );
}

/// Pointers to every value within `value`.
fn collect(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| collect(value, format!("{at}/{}", key.replace('/', "~1")), all)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| collect(value, format!("{at}/{index}"), all))
        }
        _ => {}
    }
    all.push(at);
}

#[test]
fn mangled_values_never_panic() {
    // A plain generator, so that every run has the same values.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let odd = [
        json!(null),
        json!(-1),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("9E9"),
        json!([]),
        json!({}),
        json!([[{}]]),
        json!({"a": {}}),
    ];
    let (mut sound, mut broken) = (0, 0);
    for _ in 0..2_000 {
        let mut value = full();
        for _ in 0..=next(3) {
            let mut pointers = Vec::new();
            collect(&value, String::new(), &mut pointers);
            let at = value.pointer_mut(&pointers[next(pointers.len())]).expect("it was found there");
            *at = odd[next(odd.len())].clone();
        }
        let strict = PlanObject::from_value(value.clone());
        assert!(
            strict.is_err() || PlanObject::lenient(&value).is_ok(),
            "strict takes what lenient does not: {value}"
        );
        if strict.is_ok() { sound += 1 } else { broken += 1 }
    }
    assert!(sound > 50 && broken > 500, "{sound} sound, {broken} broken");
}

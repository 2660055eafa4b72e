//! Workloads: every field, defaults, and errors at their field.

use super::*;

#[test]
fn metadata_and_spec_of_a_workload_are_read() {
    let found = read(&full());
    let moment = 1_780_315_200_000;
    assert_eq!(
        (found.meta.key().as_str(), found.meta.uid.as_str(), found.meta.created, found.meta.generation),
        ("n/w", "u", Some(moment + 250), 3)
    );
    assert_eq!(
        found.meta.controller().map(|owner| (owner.kind.as_str(), owner.uid.as_str())),
        Some(("Job", "2"))
    );
    assert_eq!(
        (found.priority(), found.priority_boost(), found.is_elastic(), found.replaces()),
        (-5, Some(-30), true, Some("n/old"))
    );
    let spec = &found.spec;
    assert_eq!(
        (spec.queue_name.as_str(), spec.active, spec.maximum_execution_time),
        ("q", false, Some(Millis::secs(90)))
    );
    assert_eq!(
        (spec.priority_class.as_ref().unwrap().name.as_str(), spec.preemption_gates.as_slice()),
        ("high", ["g".to_owned()].as_slice())
    );
    let set = found.pod_set("main").unwrap();
    assert_eq!(
        (set.count, set.min_count, set.template.requests()),
        (4, Some(2), Amounts::from([("cpu".into(), 1_000), ("memory".into(), 1_024)]))
    );
    assert_eq!(
        (
            set.template.runtime_class.as_deref(),
            set.template.priority_class.as_deref(),
            set.template.tolerations.len()
        ),
        (Some("rc"), Some("pc"), 1)
    );
    assert_eq!(
        (
            set.template.labels["l"].as_str(),
            set.template.annotations["a"].as_str(),
            set.template.node_selector["x"].as_str()
        ),
        ("1", "b", "y")
    );
    let topology = set.topology.as_ref().unwrap();
    assert_eq!(
        (topology.preferred.as_deref(), topology.sub_group_count, topology.group_name.as_deref()),
        (Some("rack"), Some(2), Some("g"))
    );
    assert_eq!(
        topology.slice_layers.iter().map(|layer| (layer.topology.as_str(), layer.size)).collect::<Vec<_>>(),
        [("block", 2), ("rack", 1)]
    );
}

#[test]
fn the_status_of_a_workload_is_read() {
    let found = read(&full());
    let moment = 1_780_315_200_000;
    let status = &found.status;
    assert!(status.is("QuotaReserved") && !status.is("Admitted"));
    assert_eq!(status.condition("QuotaReserved").unwrap().since, Some(-1), "cut towards the past");
    let assigned = &status.admission.as_ref().unwrap().pod_sets[0];
    assert_eq!(
        (assigned.usage["cpu"], assigned.count, assigned.delayed_topology),
        (3_000, Some(3), Some(DelayedTopology::Pending))
    );
    assert_eq!(assigned.topology.as_ref().unwrap()["levels"], json!(["rack"]));
    let check = &status.admission_checks[0];
    assert_eq!(
        (check.state, check.requeue_after, check.since),
        (CheckState::Retry, Some(Millis::secs(5)), Some(moment))
    );
    assert_eq!(check.pod_set_updates[0].node_selector["n"], "1");
    assert_eq!(
        status.requeue.as_ref().map(|requeue| (requeue.count, requeue.at)),
        Some((Some(2), Some(moment + 1_000)))
    );
    assert_eq!(
        (
            status.reclaimable_pods[0].count,
            status.resource_requests[0].resources["cpu"],
            status.evictions[0].count
        ),
        (1, 4_000, 2)
    );
    assert_eq!(
        (status.past_execution_time, status.cluster_name.as_deref(), status.nominated_cluster_names.len()),
        (Some(Millis::secs(7)), Some("c"), 2)
    );
    assert_eq!(
        (status.unhealthy_nodes.as_slice(), status.preemption_gates[0].open),
        (["node-1".to_owned()].as_slice(), true)
    );
    let (_, warnings) = PlanObject::from_value(full()).unwrap();
    assert_eq!(warnings, [], "every field is known");
}

#[test]
fn both_versions_are_one_workload() {
    let old = conversion::to_version(Kind::Workload, &full(), V1BETA1);
    assert_eq!(old["spec"]["priorityClassSource"], "kueue.x-k8s.io/workloadpriorityclass");
    assert_eq!(old["status"]["accumulatedPastExexcutionTimeSeconds"], 7);
    assert_eq!(read(&old), read(&full()));
    let mut bad = old;
    bad["spec"]["priorityClassName"] = json!(7);
    check_error(bad.clone(), "spec.priorityClassName: must be a string");
    bad["spec"]["priorityClassSource"] = json!("elsewhere");
    check_error(bad.clone(), "spec.priorityClassSource: `elsewhere` is not a choice; the choices are");
    bad["spec"]["priorityClassSource"] = Value::Null;
    bad["status"]["accumulatedPastExexcutionTimeSeconds"] = json!("7");
    check_error(bad, "status.accumulatedPastExexcutionTimeSeconds: must be a whole number");
}

#[test]
fn defaults_of_a_workload() {
    let found =
        read(&workload(json!({"podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}]})));
    assert_eq!(
        (
            found.spec.active,
            found.priority(),
            found.spec.pod_sets[0].count,
            found.spec.pod_sets[0].name.as_str()
        ),
        (true, 0, 1, "main")
    );
    assert_eq!((found.meta.created, found.status.admission.is_none()), (None, true));
}

#[test]
fn errors_in_workloads_name_their_field() {
    let with = |name: &str, value: Value| {
        let mut set = pod_set();
        set[name] = value;
        workload(json!({"podSets": [set]}))
    };
    check_error(workload(json!({})), "spec.podSets: is missing");
    check_error(
        workload(json!({"podSets": [pod_set(), pod_set()]})),
        "spec.podSets[1].name: `main` appears twice",
    );
    check_error(
        workload(json!({"podSets": vec![pod_set(); 19]})),
        "spec.podSets: has 19 entries; the maximum is 18",
    );
    check_error(
        with("minCount", json!(3)),
        "spec.podSets[0].minCount: is more than `count`; write at most 2",
    );
    check_error(with("count", json!(-1)), "spec.podSets[0].count: `-1` is too small");
    check_error(with("count", json!(1e18)), "is too large");
    check_error(with("name", json!("Main")), "`Main` is not a name");
    check_error(
        with(
            "template",
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}}),
        ),
        "`x` is not a quantity",
    );
    check_error(with("template", json!([])), "spec.podSets[0].template: must be a mapping");
    check_error(with("topologyRequest", json!({"required": "a", "preferred": "b"})), "keep one of");
    check_error(with("topologyRequest", json!({"podSetSliceSize": 2})), "write both or neither");
    let one = json!([{"topology": "a", "size": 0}]);
    check_error(
        with("topologyRequest", json!({"podsetSliceRequiredTopologyConstraints": one})),
        "[0].size: `0` is too small",
    );
    let class = json!({"group": "g", "kind": "k", "name": "n"});
    check_error(
        workload(json!({"podSets": [pod_set()], "priorityClassRef": class})),
        "spec.priority: is missing",
    );
    for (status, expect) in [
        (
            json!({"conditions": [{"type": "A", "status": "Maybe"}]}),
            "status.conditions[0].status: `Maybe` is not a choice",
        ),
        (
            json!({"conditions": [{"type": "A", "status": "True", "lastTransitionTime": "noon"}]}),
            "`noon` is not a time",
        ),
        (json!({"requeueState": {"requeueAt": "9999999-01-01T00:00:00Z"}}), "is not a time"),
        (
            json!({"admission": {"clusterQueue": "c", "podSetAssignments": [{"name": "x"}]}}),
            "`x` is not a pod set of this workload",
        ),
        (
            json!({"admission": {"clusterQueue": "c", "podSetAssignments": [{"name": "main",
                "resourceUsage": {"cpu": "9E"}}]}}),
            "`9E` is too large",
        ),
        (json!({"admissionChecks": [{"name": "a", "state": "Perhaps"}]}), "`Perhaps` is not a choice"),
        (json!({"unhealthyNodes": "n"}), "status.unhealthyNodes: must be a list"),
        (json!(7), "status: must be a mapping"),
    ] {
        let mut bad = workload(json!({"podSets": [pod_set()]}));
        bad["status"] = status;
        check_error(bad, expect);
    }
}

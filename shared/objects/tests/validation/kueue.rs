//! Kueue's kinds and Kubernetes' own.

use super::*;

#[test]
fn cluster_queues() {
    let groups = |groups: Value| json!({"resourceGroups": groups});
    let kind = Kind::ClusterQueue;
    let many: Vec<Value> = (0..17).map(|i| group(&format!("f{i}"), &format!("r{i}"))).collect();
    check(kind, groups(json!(many)), "spec.resourceGroups: has 17 entries; the maximum is 16");
    check(
        kind,
        groups(json!([group("f", "cpu"), group("g", "cpu")])),
        "spec.resourceGroups[1].coveredResources[0]: `cpu` is covered twice",
    );
    check(
        kind,
        groups(json!([group("f", "cpu"), group("f", "memory")])),
        "spec.resourceGroups[1].flavors[0].name: the flavor `f` appears twice",
    );
    check(kind, groups(json!([{"coveredResources": [], "flavors": []}])), "coveredResources: is empty");
    check(kind, groups(json!([{"coveredResources": ["cpu"], "flavors": []}])), "flavors: is empty");
    check(kind, groups(json!([{}])), "spec.resourceGroups[0].flavors: is missing");
    let mut wrong = group("f", "cpu");
    wrong["coveredResources"] = json!(["cpu", "memory"]);
    check(
        kind,
        groups(json!([wrong])),
        "flavors[0].resources: has no quota for the covered resource `memory`",
    );
    wrong["coveredResources"] = json!(["memory"]);
    check(kind, groups(json!([wrong])), "`cpu` is not one of the group's `coveredResources`");
    for (quota, expect) in [
        (json!({"name": "cpu"}), "resources[0].nominalQuota: is missing"),
        (json!({"name": "cpu", "nominalQuota": -1}), "`-1` is negative"),
        (json!({"name": "cpu", "nominalQuota": "lots"}), "`lots` is not a quantity"),
        (
            json!({"name": "cpu", "nominalQuota": 1, "lendingLimit": 2}),
            "lendingLimit: is more than `nominalQuota`; write at most `1`",
        ),
        (
            json!({"name": "cpu", "nominalQuota": 1, "borrowingLimit": 2}),
            "`borrowingLimit` of `cpu` needs a cohort",
        ),
    ] {
        let mut one = group("f", "cpu");
        one["flavors"][0]["resources"][0] = quota;
        check(kind, groups(json!([one])), expect);
    }
    check(kind, json!({"queueingStrategy": "FIFO"}), "`FIFO` is not a choice");
    check(kind, json!({"stopPolicy": "hold"}), "did you mean `Hold`?");
    check(kind, json!({"flavorFungibility": {"whenCanBorrow": "Borrow"}}), "`Borrow` is not a choice");
    check(
        kind,
        json!({"flavorFungibility": {"preference": "BorrowingOverPreemption"}}),
        "needs `whenCanBorrow` and `whenCanPreempt`",
    );
    check(
        kind,
        json!({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}),
        "needs `reclaimWithinCohort` other than `Never`",
    );
    check(kind, json!({"preemption": {"withinClusterQueue": "Any"}}), "`Any` is not a choice");
    let checks = |rules: Value| json!({"admissionChecksStrategy": {"admissionChecks": rules}});
    check(kind, checks(json!([{"name": "a"}, {"name": "a"}])), "`a` appears twice");
    check(kind, checks(json!([{"name": "a", "onFlavors": ["f"]}])), "`f` is not a flavor of this queue");
    check(
        kind,
        json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        "needs at least one value",
    );
    check(kind, json!({"namespaceSelector": {"matchLabels": {"a": 1}}}), "quote it");
    let Spec::ClusterQueue(queue) = good(kind, json!({})).spec else { panic!("not a queue") };
    assert_eq!(queue.namespace_selector, None, "absent selects nothing");
}

#[test]
fn topologies() {
    let kind = Kind::Topology;
    let levels = |labels: &[&str]| {
        let levels: Vec<Value> = labels.iter().map(|label| json!({"nodeLabel": label})).collect();
        json!({"levels": levels})
    };
    let Spec::Topology(topology) = good(kind, levels(&["cloud/block", "kubernetes.io/hostname"])).spec else {
        panic!("not a topology")
    };
    assert_eq!(topology.levels, ["cloud/block", "kubernetes.io/hostname"]);
    let many: Vec<String> = (0..17).map(|level| format!("l{level}")).collect();
    check(
        kind,
        levels(&many.iter().map(String::as_str).collect::<Vec<_>>()),
        "spec.levels: has 17 entries; the maximum is 16",
    );
    check(kind, levels(&["a", "b", "a"]), "spec.levels[2].nodeLabel: `a` appears twice");
    check(
        kind,
        levels(&["kubernetes.io/hostname", "b"]),
        "spec.levels[0].nodeLabel: `kubernetes.io/hostname` can only be the last level",
    );
    check(kind, levels(&["a b"]), "`a b` is not a label key");
    check(kind, levels(&[""]), "spec.levels[0].nodeLabel: is empty");
    check(kind, levels(&[]), "spec.levels: is missing");
    check(kind, json!({"levels": [7]}), "spec.levels[0]: must be a mapping");
    check_ignored(&good(kind, levels(&["a"])), &[]);
}

#[test]
fn limit_ranges_and_runtime_classes() {
    let kind = Kind::LimitRange;
    let limits = |limit: Value| json!({"limits": [limit]});
    let range = good(
        kind,
        limits(json!({"type": "Container", "min": {"memory": "1Ki"}, "max": {"cpu": 2},
                "maxLimitRequestRatio": {"memory": "1.5"}})),
    );
    let Spec::LimitRange(spec) = &range.spec else { panic!("not a limit range") };
    // As a server does: the maximum is the default limit, which is the default request, and so is the
    // minimum.
    assert_eq!(
        (
            spec.limits[0].default["cpu"],
            spec.limits[0].default_request["cpu"],
            spec.limits[0].default_request["memory"]
        ),
        (2_000, 2_000, 1_024)
    );
    assert_eq!(spec.limits[0].max_limit_request_ratio_milli["memory"], 1_500);
    check_ignored(&range, &["spec.limits"]);
    check(kind, limits(json!({"type": "Node"})), "spec.limits[0].type: `Node` is not a choice");
    check(kind, limits(json!({})), "spec.limits[0].type: is missing");
    check(
        kind,
        limits(json!({"type": "Pod", "default": {"cpu": 1}})),
        "spec.limits[0].default: cannot be written for a `Pod`",
    );
    check(
        kind,
        limits(json!({"type": "Pod", "min": {"cpu": 2}, "max": {"cpu": 1}})),
        "spec.limits[0].min.cpu: is more than `max`; write at most `1`",
    );
    check(
        kind,
        limits(json!({"type": "Pod", "max": {"cpu": "-1"}})),
        "spec.limits[0].max.cpu: `-1` is negative",
    );
    check(kind, json!({}), "spec.limits: is missing");
    let class = |overhead: Value| {
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "x"}, "handler": "h", "overhead": overhead})
    };
    let (class_object, warnings) = Object::from_value(class(json!({"podFixed": {"cpu": "250m"}}))).unwrap();
    assert_eq!(warnings, []);
    let Spec::RuntimeClass(spec) = &class_object.spec else { panic!("not a class") };
    assert_eq!((spec.overhead["cpu"], spec.handler.as_str()), (250, "h"));
    check_ignored(&class_object, &[]);
    let error = Object::from_value(class(json!({"podFixed": []}))).unwrap_err();
    assert!(error[0].to_string().starts_with("overhead.podFixed: must be a mapping"), "{}", error[0]);
}

#[test]
fn weights_and_concurrent_admission() {
    let sharing = |weight: Value| {
        let Spec::Cohort(cohort) = good(Kind::Cohort, json!({"fairSharing": {"weight": weight}})).spec else {
            panic!("not a cohort")
        };
        let sharing = cohort.fair_sharing.unwrap();
        (sharing.weight_milli, sharing.weight_nano)
    };
    assert_eq!(sharing(json!("0.0001")), (1, 100_000));
    assert_eq!(sharing(json!("0.5")), (500, 500_000_000));
    assert_eq!(sharing(Value::Null), (1_000, 1_000_000_000));
    assert_eq!(sharing(json!(0)), (0, 0));
    check(
        Kind::Cohort,
        json!({"fairSharing": {"weight": "1n"}}),
        "spec.fairSharing.weight: is too small to count",
    );
    let policy = |migration: Value| json!({"concurrentAdmissionPolicy": {"migration": migration}});
    let written =
        policy(json!({"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "f"}}));
    let Spec::ClusterQueue(queue) = good(Kind::ClusterQueue, written).spec else { panic!("not a queue") };
    let concurrent = queue.concurrent_admission.unwrap();
    assert_eq!(
        (concurrent.migration, concurrent.last_acceptable_flavor.as_deref()),
        (Migration::TryPreferredFlavors, Some("f"))
    );
    let stays = json!({"mode": "RetainFirstAdmission", "constraints": {"lastAcceptableFlavorName": "f"}});
    check(Kind::ClusterQueue, policy(stays), "lastAcceptableFlavorName: needs `mode: TryPreferredFlavors`");
    check(
        Kind::ClusterQueue,
        json!({"concurrentAdmissionPolicy": {}}),
        "spec.concurrentAdmissionPolicy.migration: is missing",
    );
    check(Kind::ClusterQueue, policy(json!({"mode": "Sometimes"})), "`Sometimes` is not a choice");
}

#[test]
fn ignored_fields_of_queues_are_named() {
    let mut one = group("f", "cpu");
    one["flavors"][0]["resources"][0] =
        json!({"name": "cpu", "nominalQuota": 2, "borrowingLimit": 1, "lendingLimit": 1});
    let queue = good(
        Kind::ClusterQueue,
        json!({
            "namespaceSelector": {}, "cohortName": "c", "resourceGroups": [one],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority",
                "borrowWithinCohort": {"policy": "LowerPriority"}},
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}, "fairSharing": {"weight": "0.5"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]},
            "concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}},
        }),
    );
    let Spec::ClusterQueue(spec) = &queue.spec else { panic!("not a queue") };
    assert_eq!(spec.fair_sharing.as_ref().unwrap().weight_milli, 500);
    check_ignored(
        &queue,
        &["spec.admissionChecksStrategy.admissionChecks[0].onFlavors", "spec.concurrentAdmissionPolicy"],
    );
    let usual = json!({"namespaceSelector": {}, "preemption": {"withinClusterQueue": "Never"},
        "flavorFungibility": {"whenCanPreempt": "TryNextFlavor"}, "stopPolicy": "None"});
    check_ignored(&good(Kind::ClusterQueue, usual), &[]);
}

#[test]
fn other_kueue_kinds() {
    let flavor = Kind::ResourceFlavor;
    let nine: serde_json::Map<String, Value> = (0..9).map(|i| (format!("k{i}"), json!("v"))).collect();
    check(flavor, json!({"nodeLabels": nine}), "spec.nodeLabels: has 9 entries; the maximum is 8");
    check(flavor, json!({"nodeLabels": {"a b": "c"}}), "`a b` is not a label key");
    check(flavor, json!({"nodeTaints": [{"key": "a"}]}), "spec.nodeTaints[0].effect: is missing");
    check(flavor, json!({"topologyName": "t"}), "needs at least one label with `topologyName`");
    check(
        flavor,
        json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
        "must be empty with `operator: Exists`",
    );
    check_ignored(&good(flavor, json!({"topologyName": "t", "nodeLabels": {"a": "b"}})), &[]);

    check(Kind::LocalQueue, json!({}), "spec.clusterQueue: is missing");
    check(Kind::LocalQueue, json!({"clusterQueue": "A"}), "`A` is not a name");
    check_ignored(&good(Kind::LocalQueue, json!({"clusterQueue": "a", "fairSharing": {}})), &[]);
    check_ignored(&good(Kind::Cohort, json!({"parentName": "a"})), &[]);

    let clusters = |clusters: Value| json!({"clusters": clusters});
    check(Kind::MultiKueueConfig, clusters(json!([])), "spec.clusters: is empty");
    check(Kind::MultiKueueConfig, clusters(json!(["a", "a"])), "spec.clusters[1]: `a` appears twice");
    check(
        Kind::MultiKueueConfig,
        clusters(json!((0..21).map(|i| format!("c{i}")).collect::<Vec<_>>())),
        "has 21 entries; the maximum is 20",
    );
    check_ignored(
        &good(Kind::MultiKueueConfig, json!({"clusters": ["a"], "quotaManagement": "Automated"})),
        &["spec.quotaManagement"],
    );

    check(Kind::MultiKueueCluster, json!({"clusterSource": {}}), "spec.clusterSource.kubeConfig: is missing");
    let both =
        json!({"clusterSource": {"kubeConfig": {"location": "a"}, "clusterProfileRef": {"name": "b"}}});
    check(Kind::MultiKueueCluster, both, "cannot be used together");

    check(Kind::AdmissionCheck, json!({}), "spec.controllerName: is missing");
    check(
        Kind::AdmissionCheck,
        json!({"controllerName": "kueue.x-k8s.io/multikueue"}),
        "spec.parameters: is missing",
    );
    check_ignored(
        &good(Kind::AdmissionCheck, json!({"controllerName": "example.com/mine"})),
        &["spec.controllerName"],
    );

    check(Kind::ProvisioningRequestConfig, json!({}), "spec.provisioningClassName: is missing");
    let retry = json!({"provisioningClassName": "a", "retryStrategy": {"backoffLimitCount": -1}});
    check(Kind::ProvisioningRequestConfig, retry, "`-1` is too small");
    let with = |field: &str, value: Value| json!({"provisioningClassName": "a", field: value});
    for (field, value, expect) in [
        ("podSetMergePolicy", json!("Identical"), "spec.podSetMergePolicy: `Identical` is not a choice"),
        (
            "managedResources",
            json!(["nvidia.com/gpu", "a b"]),
            "spec.managedResources[1]: `a b` is not a resource name",
        ),
        ("managedResources", json!("nvidia.com/gpu"), "spec.managedResources: "),
    ] {
        check(Kind::ProvisioningRequestConfig, with(field, value), expect);
    }
    let merging = with("podSetMergePolicy", json!("IdenticalPodTemplates"));
    check_ignored(&good(Kind::ProvisioningRequestConfig, merging), &["spec"]);
}

#[test]
fn priority_classes_have_a_top_level_value() {
    let class = |kind: Kind, value: Value| {
        let mut object = object(kind, Value::Null);
        object.as_object_mut().unwrap().remove("spec");
        object["value"] = value;
        Object::from_value(object)
    };
    for kind in [Kind::WorkloadPriorityClass, Kind::PriorityClass] {
        assert!(class(kind, json!(1_000)).is_ok());
        assert!(class(kind, json!(1_000)).unwrap().1.is_empty());
        assert_eq!(class(kind, Value::Null).unwrap_err()[0].to_string(), "value: is missing; add `value`");
        assert!(class(kind, json!("7")).is_err() && class(kind, json!(3_000_000_000_i64)).is_err());
    }
    assert!(class(Kind::PriorityClass, json!(2_000_000_000)).is_err(), "above a billion is Kubernetes' own");
}

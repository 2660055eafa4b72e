//! Meridian's own kinds.

use super::*;

#[test]
fn clusters() {
    let kind = Kind::Cluster;
    check(kind, json!({"region": "r"}), "spec.jurisdiction: is missing");
    check(kind, json!({"region": "a,b", "jurisdiction": "EU"}), "`a,b` is not a region or jurisdiction");
    let with = |field: &str, value: Value| {
        let mut spec = json!({"region": "europe-west4", "jurisdiction": "EU"});
        spec[field] = value;
        spec
    };
    check(kind, with("limit", json!({})), "spec.limit: is an unknown field; did you mean `limits`?");
    check(kind, with("limits", json!({"cpu": "x"})), "spec.limits.cpu: `x` is not a quantity");
    check(kind, with("cordoned", json!("false")), "remove the quotes: false");
    check(
        kind,
        with("provider", json!({"kind": "ProvisioningRequest"})),
        "spec.provider.className: is missing",
    );
    let pool = json!({"name": "t4", "capacityClass": "flex-start", "perNode": {"cpu": "4",
        "nvidia.com/gpu": "1"}, "maxNodes": 4});
    check(kind, with("provisionable", json!([pool, pool])), "spec.provisionable[1].name: `t4` appears twice");
    let mut none = pool.clone();
    none["maxNodes"] = json!(0);
    check(kind, with("provisionable", json!([none])), "spec.provisionable[0].maxNodes: `0` is too small");
    let mut spec = with("provisionable", json!([pool]));
    spec["provider"] = json!({"kind": "ProvisioningRequest", "className": "queued-provisioning.gke.io"});
    spec["limits"] = json!({"nvidia.com/gpu": "64"});
    let Spec::Cluster(cluster) = good(kind, spec).spec else { panic!("not a cluster") };
    assert_eq!(
        (cluster.provider.kind, cluster.limits["nvidia.com/gpu"]),
        (ProviderKind::ProvisioningRequest, 64)
    );
    assert_eq!(
        (cluster.provisionable[0].capacity_class, cluster.provisionable[0].per_node["cpu"]),
        (CapacityClass::FlexStart, 4_000)
    );
    let mut named = object(kind, with("cordoned", json!(true)));
    named["metadata"]["name"] = json!("a.b");
    assert!(Object::from_value(named).is_err(), "a cluster's name is a DNS label");
}

#[test]
fn residency_policies() {
    let kind = Kind::ResidencyPolicy;
    check(kind, json!({}), "spec: neither allows nor denies a place");
    check(kind, json!({"allow": null, "deny": {"regions": ["a"]}}), "spec.allow: is empty");
    check(
        kind,
        json!({"allow": {"region": ["a"]}}),
        "spec.allow.region: is an unknown field; did you mean `regions`?",
    );
    check(kind, json!({"allow": {"regions": "a"}}), "spec.allow.regions: must be a list");
    check(kind, json!({"allow": {"regions": ["a"]}, "onChange": "evict"}), "did you mean `Evict`?");
    check(kind, json!({"allow": {"regions": [""]}}), "is not a region or jurisdiction");
    let (_, warnings) = Object::from_value(object(kind, json!({"allow": {"regions": []}}))).unwrap();
    assert!(warnings[0].to_string().starts_with("spec.allow: names no place, so no place is allowed"));
    let both = json!({"allow": {"clusters": ["a"]}, "deny": {"clusters": ["a"]}});
    assert!(Object::from_value(object(kind, both)).unwrap().1[0].to_string().contains(
        "both allowed and \
        denied"
    ));
}

#[test]
fn dispatch_policies() {
    let kind = Kind::DispatchPolicy;
    check(kind, json!({"mode": "race"}), "did you mean `Race`?");
    check(kind, json!({"startTimeout": "10"}), "`10` is not a duration");
    check(kind, json!({"startTimeout": 10}), "must be a string, not the number `10`");
    check(kind, json!({"onClusterLoss": {"term": "1s"}}), "`1s` is too short; the least is 4s");
    check(kind, json!({"capacityClasses": ["spot", "spot"]}), "lists a class twice");
    check(kind, json!({"quotaWhileWaiting": "Release"}), "`Release` is not a choice");
    check(
        kind,
        json!({"quotaWhileWaiting": {"releaseAfter": "5m"}}),
        "spec.quotaWhileWaiting.ReleaseAfter: is missing",
    );
    let full = json!({
        "applies": {"queues": ["*"]}, "mode": "Staged", "staged": {"clustersAtOnce": 2, "interval": "5m"},
        "capacityClasses": ["reservation", "flex-start", "on-demand", "spot"], "prefer": ["startsNow",
            "lowestCost", "emptiest"],
        "onClusterLoss": {"mode": "Wait", "term": "15m", "requires": "Guarded"},
            "quotaWhileWaiting": {"ReleaseAfter": "15m"}, "startTimeout": "10m",
    });
    let object = good(kind, full);
    check_ignored(&object, &["spec.mode", "spec.quotaWhileWaiting"]);
    let Spec::DispatchPolicy(policy) = object.spec else { panic!("not a policy") };
    assert_eq!(
        (policy.mode, policy.staged.clusters_at_once, policy.staged.interval),
        (DispatchMode::Staged, 2, Millis::mins(5))
    );
    assert_eq!(
        (policy.on_cluster_loss.mode, policy.on_cluster_loss.requires),
        (ClusterLossMode::Wait, Supervision::Guarded)
    );
    assert_eq!(policy.quota_while_waiting, QuotaWhileWaiting::ReleaseAfter(Millis::mins(15)));
    let Spec::DispatchPolicy(policy) = good(kind, json!({})).spec else { panic!("not a policy") };
    assert_eq!(
        (policy.mode, policy.on_cluster_loss.term, policy.start_timeout),
        (DispatchMode::Direct, None, None)
    );
    assert!(policy.queues.contains("*"));
}

#[test]
fn roles_and_bindings_name_each_mistake() {
    let object = |kind: &str, rest: serde_json::Value| {
        let mut value = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "system:r"},
        });
        value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Object::from_value(value)
    };
    let fields = |kind: &str, rest: serde_json::Value| -> Vec<String> {
        object(kind, rest).unwrap_err().iter().map(|error| error.field.to_string()).collect()
    };
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"]});
    assert!(object("ClusterRole", json!({"rules": [rule]})).is_ok());
    assert!(object("Role", json!({})).is_ok(), "a role may permit nothing");
    assert_eq!(
        fields("Role", json!({"rules": [{"verb": ["get"], "resources": ["jobs"]}]})),
        ["rules[0].verbs", "rules[0].apiGroups"]
    );
    let path = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]});
    assert!(object("ClusterRole", json!({"rules": [path]})).is_ok());
    assert_eq!(fields("Role", json!({"rules": [path]})), ["rules[0].nonResourceURLs"]);
    assert_eq!(fields("ClusterRole", json!({"aggregationRule": {}})), ["aggregationRule"]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    assert!(object("RoleBinding", json!({"roleRef": role, "subjects": []})).is_ok());
    assert_eq!(fields("ClusterRoleBinding", json!({"roleRef": role})), ["roleRef.kind"]);
    assert_eq!(
        fields("RoleBinding", json!({"subjects": [{"kind": "Users", "name": "a"}]})),
        ["roleRef", "subjects[0].kind",]
    );
    let account = json!({"kind": "ServiceAccount", "name": "a", "namespace": "b"});
    let (_, warnings) = object("RoleBinding", json!({"roleRef": role, "subjects": [account]})).unwrap();
    assert!(warnings[0].to_string().contains("no service accounts"), "{warnings:?}");
}

#[test]
fn labels_of_nodes_tell_how_they_were_bought() {
    let class = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(label, value)| (label.to_string(), value.to_string())).collect();
        CapacityClass::of_labels(&labels)
    };
    let nodepool = ("cloud.google.com/gke-nodepool", "a");
    for (labels, expected) in [
        (&[][..], None),
        (&[nodepool], None),
        (&[("cloud.google.com/gke-spot", "false")], None),
        (&[nodepool, ("cloud.google.com/gke-spot", "true")], Some(CapacityClass::Spot)),
        (&[("cloud.google.com/gke-queued", "true")], Some(CapacityClass::FlexStart)),
        (&[("cloud.google.com/reservation-name", "h100")], Some(CapacityClass::Reservation)),
        (&[("karpenter.sh/capacity-type", "on-demand")], Some(CapacityClass::OnDemand)),
        (&[("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK")], Some(CapacityClass::Reservation)),
    ] {
        assert_eq!(class(labels), expected, "{labels:?}");
    }
}

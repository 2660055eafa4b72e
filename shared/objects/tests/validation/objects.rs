//! Whole objects: identity, metadata, nesting.

use super::*;

#[test]
fn all_errors_come_at_once() {
    let spec = json!({"stopPolicy": 1, "queueingStrategy": "x", "resourceGroups": [{"coveredResources": [7],
        "flavors": "f"}]});
    assert_eq!(Object::from_value(object(Kind::ClusterQueue, spec)).unwrap_err().len(), 4);
}

#[test]
fn some_kinds_do_not_apply_to_one_cluster() {
    assert!(
        !applies_to_clusters(Kind::MultiKueueConfig)
            && !applies_to_clusters(Kind::ResidencyPolicy)
            && applies_to_clusters(Kind::LocalQueue)
    );
    assert_eq!(fields_ignored_by_cluster(&good(Kind::LocalQueue, json!({"clusterQueue": "a"}))).len(), 0);
}

#[test]
fn fields_that_servers_add_are_removed() {
    let read = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "x", "namespace": "y", "creationTimestamp": null, "managedFields": [],
            "uid": "u", "resourceVersion": "7"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    let (object, warnings) = Object::from_value(read).unwrap();
    let warned: Vec<String> = warnings.iter().map(|warning| warning.field.to_string()).collect();
    assert_eq!(warned, ["status", "metadata.namespace"]);
    assert_eq!(object.stored["metadata"], json!({"name": "x", "uid": "u", "resourceVersion": "7"}));
    assert!(object.stored.get("status").is_none());
}

#[test]
fn names_and_namespaces_can_be_set() {
    let mut object = good(Kind::LocalQueue, json!({"clusterQueue": "a"}));
    assert_eq!(
        (object.namespace_or_default(), object.title().as_str()),
        (Some("default"), "localqueue/default/x")
    );
    object.set_namespace("b");
    object.set_name("c");
    assert_eq!(Object::from_value(object.stored.clone()).unwrap().0, object);
    assert_eq!(object.title(), "localqueue/b/c");

    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "team-",
        "labels": {"a": "b"}}});
    let (mut namespace, _) = Object::from_value(made).unwrap();
    assert_eq!(namespace.title(), "namespace/team-*");
    namespace.set_name("team-1");
    assert_eq!(Object::from_value(namespace.stored.clone()).unwrap().0, namespace);
    let Spec::Namespace(spec) = namespace.spec else { panic!("not a namespace") };
    assert_eq!(
        (spec.labels["a"].as_str(), spec.labels["kubernetes.io/metadata.name"].as_str()),
        ("b", "team-1")
    );
}

#[test]
fn deep_nesting_is_refused_and_stored_objects_are_read() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
    // The object, its spec, and the levels within.
    let of_depth = |depth: usize| object(Kind::Cohort, json!({"zz": nested(depth - 2)}));
    assert!(Object::from_value(of_depth(24)).is_ok());
    for depth in [25, 60, 120] {
        let errors = Object::from_value(of_depth(depth)).unwrap_err();
        assert_eq!(errors[0].message, "lists and mappings are nested more than 24 deep", "{depth}");
        assert_eq!(Object::from_stored(of_depth(depth)).unwrap().stored, of_depth(depth));
    }
}

//! Every kind's rules, each with a spec that breaks exactly that rule and the message for users.

mod kueue;
mod objects;
mod policies;

use meridian_objects::spec::{
    CapacityClass, ClusterLossMode, DispatchMode, Migration, ProviderKind, QuotaWhileWaiting, Supervision,
};
use meridian_objects::{Kind, Object, Spec, applies_to_clusters, fields_ignored_by_cluster, ignored_fields};
use meridian_shared::time::Millis;
use serde_json::{Value, json};

fn object(kind: Kind, spec: Value) -> Value {
    json!({"apiVersion": kind.api_version(kind.storage_version()), "kind": kind.name(),
        "metadata": {"name": "x"}, "spec": spec})
}

fn good(kind: Kind, spec: Value) -> Object {
    Object::from_value(object(kind, spec)).unwrap_or_else(|errors| panic!("{errors:#?}")).0
}

fn check(kind: Kind, spec: Value, expect: &str) {
    let errors = Object::from_value(object(kind, spec)).map(|(object, _)| object).unwrap_err();
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {shown:#?}");
}

fn check_ignored(object: &Object, expect: &[&str]) {
    let fields: Vec<String> =
        ignored_fields(object).iter().map(|warning| warning.field.to_string()).collect();
    assert_eq!(fields, expect);
}

fn group(name: &str, resource: &str) -> Value {
    json!({"coveredResources": [resource], "flavors": [{"name": name, "resources": [{"name": resource,
        "nominalQuota": 1}]}]})
}

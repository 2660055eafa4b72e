//! The shapes of the pods of a group. As in Kueue, pods of the same shape are one pod set: they may differ in
//! their programs, but not in fields that determine where they can run.

use super::POD_SET;
use super::keys::POD_SET_KEYS;
use super::pod_set_paths::FoundPodSet;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields of a pod's spec that belong to its shape, in addition to fields of its containers.
const SHAPE: [&str; 10] = [
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
];
/// Fields of a container that belong to the shape of its pod.
const CONTAINER_SHAPE: [&str; 3] = ["ports", "resources", "restartPolicy"];

/// One pod of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPod {
    /// JSON pointer to the pod.
    pub at: String,
    /// The pod set that it belongs to.
    pub pod_set: String,
}

/// The pods of a manifest, in its order.
pub(super) fn pods(manifest: &Value) -> Vec<GroupPod> {
    let roles = roles(manifest);
    let mut pods = BTreeMap::new();
    for (number, role) in roles.iter().enumerate() {
        for index in role {
            let pod_set = pod_set_name(number, roles.len());
            pods.insert(*index, GroupPod { at: pointer(*index), pod_set });
        }
    }
    pods.into_values().collect()
}

/// The pod sets of a manifest: one for each shape.
pub(super) fn pod_sets(manifest: &Value) -> Vec<FoundPodSet> {
    let roles = roles(manifest);
    let numbered = roles.iter().enumerate();
    let sets = numbered.filter_map(|(number, role)| {
        let at = pointer(*role.first()?);
        let name = pod_set_name(number, roles.len());
        Some(FoundPodSet { template: at.clone(), at, name, count: u32::try_from(role.len()).ok() })
    });
    sets.collect()
}

fn pointer(index: usize) -> String {
    format!("/spec/pods/{index}")
}

fn pod_set_name(number: usize, of: usize) -> String {
    if of == 1 { POD_SET.to_owned() } else { format!("role-{}", number + 1) }
}

/// Indexes of the pods of each shape; the shape of the first pod comes first.
fn roles(manifest: &Value) -> Vec<Vec<usize>> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut roles: Vec<Vec<usize>> = Vec::new();
    let pods = manifest.pointer("/spec/pods").and_then(Value::as_array);
    for (index, pod) in pods.into_iter().flatten().enumerate() {
        let number = *numbers.entry(shape(pod)).or_insert(roles.len());
        match roles.get_mut(number) {
            Some(role) => role.push(index),
            None => roles.push(vec![index]),
        }
    }
    roles
}

/// The shape of a pod as text: equal for two pods that can run in the same places.
fn shape(pod: &Value) -> String {
    let spec = &pod["spec"];
    let fields = |of: &Value, names: &[&str]| -> Value {
        names.iter().filter_map(|name| Some(((*name).to_owned(), of.get(*name)?.clone()))).collect()
    };
    let mut shape = Map::new();
    for list in ["initContainers", "containers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        shape.insert(list.to_owned(), containers.map(|each| fields(each, &CONTAINER_SHAPE)).collect());
    }
    let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let of_pod_set = annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(POD_SET_KEYS));
    shape
        .insert("topology".to_owned(), of_pod_set.map(|(key, value)| (key.clone(), value.clone())).collect());
    shape.insert("spec".to_owned(), fields(spec, &SHAPE));
    Value::Object(shape).to_string()
}

//! Pods with Kueue's labels of a pod group. All pods of a group are read into one object, which, as in Kueue,
//! is admitted whole or not at all.
//!
//! Labels and annotations that apply to the whole group, such as its queue, must be the same on all pods; the
//! object has them once. All others stay on their pods.

use super::problem::{FilePosition, Located};
use super::reader::{Document, ReadDocument, Reader};
use crate::fields::{FieldPath, Segment};
use crate::job::{POD_GROUP_LABEL, POD_GROUP_TOTAL, RETRIABLE_IN_GROUP, is_about_the_group, makes_a_group};
use crate::kind::Kind;
use meridian_shared::ids::ContentHash;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Hexadecimal digits of the hash of the group's name in a generated pod name, so that pods of different
/// groups have different names.
const HASH_CHARS: usize = 5;
const MAPS: [&str; 2] = ["labels", "annotations"];

/// Namespace, empty if none is written, and name of a group of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupName {
    namespace: String,
    name: String,
}

impl GroupName {
    /// The group that an object is a pod of.
    pub(super) fn of(written: &Value) -> Option<Self> {
        if written.get("apiVersion")? != "v1" || written.get("kind")? != Kind::Pod.name() {
            return None;
        }
        let metadata = written.get("metadata")?;
        let name = metadata.get("labels")?.get(POD_GROUP_LABEL)?.as_str()?.to_owned();
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { namespace, name })
    }
}

/// One pod of a group.
struct Member {
    document: Document,
    /// The pod by itself, without the labels of the group.
    pod: Value,
}

impl Member {
    fn keys(&self, map: &str) -> Option<&Map<String, Value>> {
        self.pod.get("metadata")?.get(map)?.as_object()
    }

    fn value(&self, map: &str, key: &str) -> Option<&Value> {
        self.keys(map)?.get(key)
    }
}

impl<T: ReadDocument> Reader<T> {
    /// Makes an object of each group of pods.
    pub(super) fn read_pod_groups(&mut self) {
        let mut groups: BTreeMap<GroupName, Vec<Document>> = BTreeMap::new();
        for (group, pod) in std::mem::take(&mut self.grouped) {
            groups.entry(group).or_default().push(pod);
        }
        for (group, documents) in groups {
            let errors = self.parsed.errors.len();
            self.check_count(&group.name, &documents);
            let mut members = Vec::new();
            for (number, document) in documents.into_iter().enumerate() {
                members.extend(self.read_member(&group.name, number, document));
            }
            self.check_members(&members);
            if self.parsed.errors.len() == errors {
                self.add_group(&group, &members);
            }
        }
    }

    /// Checks that every pod states the size of the group, and that all pods exist.
    fn check_count(&mut self, group: &str, pods: &[Document]) {
        let mut first: Option<(u64, FilePosition)> = None;
        let mut all_counted = true;
        for pod in pods {
            let field = FieldPath::of("metadata.annotations").key(POD_GROUP_TOTAL);
            let at = pod.at(&field);
            let written = pod.node.clone().into_value();
            let written =
                written.pointer("/metadata/annotations").and_then(|all| all.get(POD_GROUP_TOTAL)).cloned();
            let remedy = "write the number of pods of the group in quotes, such as \"3\"";
            let count = match &written {
                None => Err("is missing, so the size of the group isn't known".to_owned()),
                Some(Value::String(text)) => {
                    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| not_a_count(text))
                }
                Some(other) => Err(not_a_count(&other.to_string())),
            };
            match (count, &first) {
                (Err(message), _) => {
                    all_counted = false;
                    self.error(at, field, message, remedy);
                }
                (Ok(count), None) => first = Some((count, at)),
                (Ok(count), Some((of_first, there))) if count != *of_first => {
                    all_counted = false;
                    let message = format!("is `{count}`, and `{of_first}` at {there}");
                    self.error(at, field, message, "write the same number into every pod of the group");
                }
                (Ok(_), Some(_)) => {}
            }
        }
        let Some((count, at)) = first.filter(|_| all_counted) else { return };
        let (count, there) = (usize::try_from(count).unwrap_or(usize::MAX), pods.len());
        let field = FieldPath::of("metadata.annotations").key(POD_GROUP_TOTAL);
        if there < count {
            let message = format!("{there} of {count} pods of group `{group}` are here");
            let remedy = "submit all pods of a group at once: put them into files of one command";
            self.error(at, field, message, remedy);
        } else if let Some(more) = pods.get(count) {
            let field = FieldPath::of("metadata.labels").key(POD_GROUP_LABEL);
            let message = format!("group `{group}` has {there} pods here, and its count is {count}");
            let remedy = "write their number into every pod of the group, or give this pod another group";
            self.error(more.at(&field), field, message, remedy);
        }
    }

    /// Reads one pod by the rules of a single pod, so that its problems are shown at their positions.
    fn read_member(&mut self, group: &str, number: usize, document: Document) -> Option<Member> {
        let mut written = document.node.clone().into_value();
        for map in MAPS {
            let keys =
                written.get_mut("metadata").and_then(|metadata| metadata.get_mut(map)?.as_object_mut());
            let Some(keys) = keys else { continue };
            for key in keys.keys().filter(|key| has_no_effect(key, &keys[key.as_str()])) {
                let field = FieldPath::of("metadata").key(map).key(key);
                let message = "has no effect: a group starts whole, and a pod that fails fails its group";
                self.warn(document.at(&field), field, message, "remove it");
            }
            keys.retain(|key, _| !makes_a_group(key));
        }
        let object = self.read_document(&document, written)?;
        let object = object.object()?;
        let mut pod = object.stored.clone();
        if let Some(prefix) = object.generate_name.as_ref().filter(|_| object.name.is_empty()) {
            let hash = ContentHash::of(group.as_bytes()).to_string();
            pod["metadata"]["name"] = json!(format!("{prefix}{}-{number}", &hash[..HASH_CHARS]));
        }
        Some(Member { document, pod })
    }

    /// Checks that the pods have different names, and equal labels for the group.
    fn check_members(&mut self, members: &[Member]) {
        let Some(first) = members.first() else { return };
        let mut names: BTreeMap<&str, &FilePosition> = BTreeMap::new();
        for member in members {
            let name = member.pod["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(there) = names.insert(name, &member.document.place) {
                let message = format!("pod `{name}` of the group is also at {there}");
                let remedy = "give every pod its own name, or remove one of them";
                self.error(member.document.place.clone(), FieldPath::default(), message, remedy);
            }
        }
        for map in MAPS {
            let keys: BTreeSet<&String> =
                members.iter().filter_map(|member| member.keys(map)).flat_map(Map::keys).collect();
            for key in keys.into_iter().filter(|key| is_about_the_group(key)) {
                let value = first.value(map, key);
                for member in members.iter().filter(|member| member.value(map, key) != value) {
                    let field = FieldPath::of("metadata").key(map).key(key);
                    let message = format!("differs from that of the pod at {}", first.document.place);
                    let remedy = "a group is admitted as one: write the same into each of its pods";
                    self.error(member.document.at(&field), field, message, remedy);
                }
            }
        }
    }

    fn add_group(&mut self, group: &GroupName, members: &[Member]) {
        let Some(first) = members.first() else { return };
        match T::read(object_of(group, members), self.strictness.validation) {
            Ok((object, warnings)) => {
                // Problems of single pods were already shown when they were read.
                for warning in warnings.into_iter().filter(|warning| pod_of(&warning.field).is_none()) {
                    let at = first.document.at(&warning.field);
                    self.warn(at, warning.field, warning.message, warning.remedy);
                }
                self.parsed.objects.push(Located { place: first.document.place.clone(), value: object });
            }
            Err(errors) => {
                for error in errors {
                    let (index, field) = pod_of(&error.field).unwrap_or((0, error.field));
                    let document = members.get(index).map_or(&first.document, |member| &member.document);
                    self.error(document.at(&field), field, error.message, error.remedy);
                }
            }
        }
    }
}

fn not_a_count(written: &str) -> String {
    format!("`{written}` is not a number of pods")
}

/// Whether a key of a pod requests something that groups don't support.
fn has_no_effect(key: &str, value: &Value) -> bool {
    match key {
        POD_GROUP_LABEL | POD_GROUP_TOTAL => false,
        RETRIABLE_IN_GROUP => value != "true",
        _ => makes_a_group(key) && key.contains("/pod-group-") && value != "false",
    }
}

/// The pod of a field in a group, and the field's path in the pod.
fn pod_of(field: &FieldPath) -> Option<(usize, FieldPath)> {
    match &field.0[..] {
        [Segment::Key(spec), Segment::Key(pods), Segment::Index(index), rest @ ..]
            if spec == "spec" && pods == "pods" =>
        {
            Some((*index, FieldPath(rest.to_vec())))
        }
        _ => None,
    }
}

/// The group as an object.
fn object_of(group: &GroupName, members: &[Member]) -> Value {
    let mut metadata = json!({"name": group.name});
    if !group.namespace.is_empty() {
        metadata["namespace"] = json!(group.namespace);
    }
    for map in MAPS {
        let shared = members.first().and_then(|first| first.keys(map)).into_iter().flatten();
        let shared: Map<String, Value> = shared
            .filter(|(key, value)| members.iter().all(|member| member.value(map, key) == Some(*value)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !shared.is_empty() {
            metadata[map] = Value::Object(shared);
        }
    }
    let pods: Vec<Value> = members.iter().map(pod_of_group).collect();
    json!({
        "apiVersion": Kind::PodGroup.api_version(Kind::PodGroup.storage_version()),
        "kind": Kind::PodGroup.name(),
        "metadata": metadata,
        "spec": {"pods": pods},
    })
}

/// A pod as part of the group's object: without parts that the group has once, and without fields that a
/// server wrote.
fn pod_of_group(member: &Member) -> Value {
    let mut metadata = json!({"name": member.pod["metadata"]["name"]});
    for map in MAPS {
        let mut keys = member.keys(map).cloned().unwrap_or_default();
        keys.retain(|key, _| !is_about_the_group(key));
        if !keys.is_empty() {
            metadata[map] = Value::Object(keys);
        }
    }
    json!({"metadata": metadata, "spec": member.pod["spec"]})
}

#[cfg(test)]
mod tests;

//! `apply` onto an existing object: kubectl's three-way merge, except that it never removes values that
//! others have changed.
//!
//! A file owns its fields, and the fields of the last applied file. Fields that others set (a cordon, another
//! team's label) stay. The last applied file is in kubectl's own annotation, so Meridian and kubectl can be
//! used in turn. Lists and selectors are replaced as a whole, as in Kueue's definitions. A null field counts
//! as absent, as in Kubernetes.

use super::{DEFAULT_NAMESPACE, Object};
use crate::fields::scheduling::MAX_ANNOTATIONS_BYTES;
use crate::fields::{FieldError, FieldPath};
use serde_json::{Map, Value};

/// The annotation with the object that was applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The result of applying an object over an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedObject {
    pub object: Object,
    /// Whether the last applied object was known. If not, nothing was removed.
    pub noted: bool,
    /// Fields that the file no longer has, but that stay because others have changed them since.
    pub kept: Vec<FieldPath>,
}

impl MergedObject {
    /// Warnings for the user.
    pub fn remarks(&self) -> Vec<String> {
        let unknown = (!self.noted).then(|| {
            "the last applied object isn't known: fields that the file leaves out stay as they are".to_owned()
        });
        let kept = self
            .kept
            .iter()
            .map(|field| format!("{field}: is no longer in the file, but stays: it was changed since"));
        unknown.into_iter().chain(kept).collect()
    }
}

/// Records the object in its own annotation, in the version in which it was written, so that kubectl can
/// compare it with its file. Replaces an earlier record. Writes no record if the annotations would become too
/// large.
pub fn record(object: &mut Object) {
    remove(object);
    let mut plain = object.stored.clone();
    drop_nulls(&mut plain);
    if plain != object.stored
        && let Ok((read, _)) = Object::from_value(plain)
    {
        *object = Object { version: object.version, ..read };
    }
    let text = object.in_version(object.version).to_string();
    let others: usize = object.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if others + LAST_APPLIED.len() + text.len() > MAX_ANNOTATIONS_BYTES {
        return;
    }
    let Some(metadata) = object.stored.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    let Some(annotations) = annotations.as_object_mut() else { return };
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(text.clone()));
    object.annotations.insert(LAST_APPLIED.to_owned(), text);
}

pub fn is_recorded(object: &Object) -> bool {
    object.annotations.contains_key(LAST_APPLIED)
}

/// Removes the record.
pub fn remove(object: &mut Object) {
    object.annotations.remove(LAST_APPLIED);
    remove_from(&mut object.stored);
}

fn remove_from(stored: &mut Value) {
    let Some(metadata) = stored.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    if annotations
        .is_some_and(|annotations| annotations.remove(LAST_APPLIED).is_some() && annotations.is_empty())
    {
        metadata.remove("annotations");
    }
}

/// Merges `written` into the existing object `there`. Fields of the last applied object are removed if
/// `written` lacks them and nobody has changed them since. Without a last-applied annotation nothing is
/// removed.
///
/// # Errors
/// The merged object breaks a rule.
pub fn merge(there: &Object, written: &Object) -> Result<MergedObject, Vec<FieldError>> {
    let last = last_applied(there);
    let noted = last.is_some();
    let mut kept = Vec::new();
    let mut merged =
        merged_value(last.as_ref(), &there.stored, &written.stored, &FieldPath::default(), &mut kept);
    // Remove an older record, which would name fields that this file doesn't have, if there is no space for a
    // new record.
    if !is_recorded(written) || annotation_bytes(&merged) > MAX_ANNOTATIONS_BYTES {
        remove_from(&mut merged);
    }
    // Most applies change nothing, so avoid reading the object again.
    let known = [there, written].into_iter().find(|known| known.stored == merged).cloned();
    // Warnings about either object were given when it was written.
    let object = known.map_or_else(|| Object::from_value(merged).map(|(object, _)| object), Ok)?;
    Ok(MergedObject { object, noted, kept })
}

fn annotation_bytes(stored: &Value) -> usize {
    let annotations = stored.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// The last applied object in the storage version. A record of another object, as in a copy of this one, is
/// ignored.
fn last_applied(there: &Object) -> Option<Value> {
    let noted: Value = serde_json::from_str(there.annotations.get(LAST_APPLIED)?).ok()?;
    let (last, _) = Object::from_value(noted).ok()?;
    let namespace = |object: &Object| {
        object
            .kind
            .namespaced()
            .then(|| object.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()))
    };
    let mut stored = ((last.kind, &last.name, namespace(&last))
        == (there.kind, &there.name, namespace(there)))
        .then_some(last.stored)?;
    drop_nulls(&mut stored);
    Some(stored)
}

/// Removes null fields, but not within lists.
fn drop_nulls(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.retain(|_, value| !value.is_null());
    fields.values_mut().for_each(drop_nulls);
}

/// Fields that are replaced as a whole, because a merged selector would select other objects than either.
fn is_whole(name: &str) -> bool {
    name.ends_with("Selector")
}

/// `live` with the fields of `written`, and without fields that only `last` has. The recursion is bounded by
/// the depth of objects.
fn merged_value(
    last: Option<&Value>,
    live: &Value,
    written: &Value,
    at: &FieldPath,
    kept: &mut Vec<FieldPath>,
) -> Value {
    let (Value::Object(live), Value::Object(written)) = (live, written) else { return written.clone() };
    let last = last.and_then(Value::as_object);
    let mut merged = Map::new();
    for (name, value) in live {
        let before = last.and_then(|last| last.get(name));
        let at = || at.clone().key(name);
        let left = match (written.get(name), before) {
            (Some(written), _) if is_whole(name) => Some(written.clone()),
            (Some(written), _) => Some(self::merged_value(before, value, written, &at(), kept)),
            (None, None) => Some(value.clone()),
            (None, Some(before)) => without(before, value, name, &at(), kept),
        };
        merged.extend(left.map(|left| (name.clone(), left)));
    }
    merged.extend(
        written
            .iter()
            .filter(|(name, _)| !live.contains_key(*name))
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    Value::Object(merged)
}

/// The rest of a field that `written` no longer has: values that others added or changed since `last`. `None`
/// if nothing remains.
fn without(
    last: &Value,
    live: &Value,
    name: &str,
    at: &FieldPath,
    kept: &mut Vec<FieldPath>,
) -> Option<Value> {
    if last == live {
        return None;
    }
    let (Value::Object(last), Value::Object(fields)) = (last, live) else {
        kept.push(at.clone());
        return Some(live.clone());
    };
    if is_whole(name) {
        kept.push(at.clone());
        return Some(live.clone());
    }
    let left = fields.iter().filter_map(|(name, value)| match last.get(name) {
        None => Some((name.clone(), value.clone())),
        Some(last) => Some((name.clone(), without(last, value, name, &at.clone().key(name), kept)?)),
    });
    let left: Map<String, Value> = left.collect();
    (!left.is_empty()).then_some(Value::Object(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap().0
    }

    fn noted(value: Value) -> Object {
        let mut object = object(value);
        record(&mut object);
        object
    }

    fn namespace(labels: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}})
    }

    fn cluster(spec: &Value) -> Value {
        let mut whole = json!({"region": "us-east4", "jurisdiction": "us"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us-east4"},
            "spec": whole})
    }

    /// Applies two files in turn, with `between` in between.
    fn applied(first: Value, between: impl Fn(&mut Value), second: Value) -> (Value, Vec<String>) {
        let (mut there, second) = (noted(first).stored, noted(second));
        between(&mut there);
        let result = merge(&object(there), &second).unwrap();
        let again = merge(&result.object, &second).unwrap();
        assert_eq!((&again.object, again.kept.len()), (&result.object, 0), "applied twice");
        let mut object = result.object.clone();
        remove(&mut object);
        (object.stored, result.remarks())
    }

    #[test]
    fn fields_of_others_stay_and_dropped_fields_go() {
        let before = namespace(&json!({"team": "vision", "tier": "1"}));
        let others = |there: &mut Value| there["metadata"]["labels"]["residency"] = json!("eu");
        let (merged, remarks) = applied(before, others, namespace(&json!({"team": "speech"})));
        assert_eq!(
            (&merged["metadata"]["labels"], remarks.len()),
            (&json!({"team": "speech", "residency": "eu"}), 0)
        );
        let cordoned = |there: &mut Value| there["spec"]["cordoned"] = json!(true);
        let (merged, _) = applied(cluster(&json!({})), cordoned, cluster(&json!({})));
        assert_eq!(merged["spec"], json!({"region": "us-east4", "jurisdiction": "us", "cordoned": true}));
        let (merged, _) = applied(cluster(&json!({})), cordoned, cluster(&json!({"cordoned": false})));
        assert_eq!(merged["spec"]["cordoned"], json!(false));
    }

    #[test]
    fn a_dropped_field_that_others_changed_stays_with_a_remark() {
        let cordoned = |there: &mut Value| there["spec"]["cordoned"] = json!(true);
        let (merged, remarks) = applied(cluster(&json!({"cordoned": false})), cordoned, cluster(&json!({})));
        assert_eq!(merged["spec"]["cordoned"], json!(true));
        assert_eq!(remarks, ["spec.cordoned: is no longer in the file, but stays: it was changed since"]);
        let (merged, remarks) = applied(cluster(&json!({"cordoned": true})), |_| {}, cluster(&json!({})));
        assert_eq!((merged["spec"].get("cordoned"), remarks.len()), (None, 0), "it was the file's");
    }

    #[test]
    fn a_dropped_mapping_keeps_entries_of_others() {
        let bare = || json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}});
        let before = || namespace(&json!({"team": "vision"}));
        assert_eq!(applied(before(), |_| {}, bare()).0, bare());
        let others = |there: &mut Value| there["metadata"]["labels"]["residency"] = json!("eu");
        assert_eq!(applied(before(), others, bare()).0["metadata"]["labels"], json!({"residency": "eu"}));
    }

    #[test]
    fn a_null_counts_as_absent() {
        let others = |there: &mut Value| there["metadata"]["labels"] = json!({"residency": "eu"});
        let bare = || json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}});
        for (first, second) in [
            (namespace(&Value::Null), bare()),
            (bare(), namespace(&Value::Null)),
            (namespace(&Value::Null), namespace(&Value::Null)),
        ] {
            assert_eq!(applied(first, others, second).0["metadata"]["labels"], json!({"residency": "eu"}));
        }
        let cordoned = |there: &mut Value| there["spec"]["cordoned"] = json!(true);
        assert_eq!(
            applied(cluster(&json!({})), cordoned, cluster(&json!({"cordoned": null}))).0["spec"]["cordoned"],
            json!(true)
        );
    }

    #[test]
    fn nothing_is_removed_without_a_valid_record() {
        let there = object(namespace(&json!({"residency": "eu", "team": "vision"})));
        let written = noted(namespace(&json!({"team": "speech"})));
        let of_another = namespace(&json!({"residency": "eu"})).to_string().replace("ml", "nlp");
        for text in [
            None,
            Some("{"),
            Some("[]"),
            Some(r#"{"kind":"Namespace"}"#),
            Some(r#"{"apiVersion":"v1","kind":"Job"}"#),
            Some(&of_another),
        ] {
            let mut there = there.stored.clone();
            if let Some(text) = text {
                there["metadata"]["annotations"] = json!({ LAST_APPLIED: text });
            }
            let merged = merge(&object(there), &written).unwrap();
            assert_eq!(
                merged.object.labels,
                [("residency", "eu"), ("team", "speech")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                "{text:?}"
            );
            assert!(!merged.noted && is_recorded(&merged.object) && merged.remarks().len() == 1, "{text:?}");
        }
    }

    fn queue(version: &str, cohort: &str, quota: u32, flavors: &[&str]) -> Value {
        let flavors: Vec<Value> = flavors
            .iter()
            .map(|f| json!({"name": f, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": quota}]}))
            .collect();
        json!({"apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue",
            "metadata": {"name": "q"},
            "spec": {cohort: "all", "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"],
                "flavors": flavors}]}})
    }

    #[test]
    fn lists_are_replaced_and_records_of_another_version_count() {
        let mut there = queue("v1beta2", "cohortName", 4, &["a", "b"]);
        there["metadata"]["annotations"] =
            json!({LAST_APPLIED: queue("v1beta1", "cohort", 4, &["a", "b"]).to_string()});
        there["spec"]["stopPolicy"] = json!("Hold");
        let mut written = queue("v1beta1", "cohort", 6, &["b"]);
        written["spec"].as_object_mut().unwrap().remove("cohort");
        let mut expect = queue("v1beta2", "cohortName", 6, &["b"]);
        expect["spec"].as_object_mut().unwrap().remove("cohortName");
        expect["spec"]["stopPolicy"] = json!("Hold");
        let merged = merge(&object(there), &object(written)).unwrap().object;
        assert_eq!(merged, object(expect));
    }

    #[test]
    fn a_record_is_in_the_version_of_the_file() {
        let mut written = object(queue("v1beta1", "cohort", 4, &["a"]));
        record(&mut written);
        let text: Value = serde_json::from_str(&written.annotations[LAST_APPLIED]).unwrap();
        assert_eq!(
            (&text["apiVersion"], &text["spec"]["cohort"]),
            (&json!("kueue.x-k8s.io/v1beta1"), &json!("all"))
        );
        assert!(merge(&written, &written).unwrap().noted);
    }

    #[test]
    fn a_selector_is_replaced_as_a_whole() {
        let policy = |selector: Value| {
            json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy",
                "metadata": {"name": "eu"},
            "spec": {"applies": {"namespaceSelector": selector}, "allow": {"jurisdictions": ["EU"]}}})
        };
        let narrowed = |there: &mut Value| {
            there["spec"]["applies"]["namespaceSelector"] = json!({"matchLabels": {"a": "b"}})
        };
        let (merged, _) = applied(policy(json!({})), narrowed, policy(json!({})));
        assert_eq!(merged["spec"]["applies"]["namespaceSelector"], json!({}));
    }

    #[test]
    fn a_merged_object_may_break_a_rule() {
        let queue = |spec: Value| {
            object(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
                    "metadata": {"name": "q"}, "spec": spec}))
        };
        let there = queue(json!({"preemption": {"reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority"}}}));
        let written = queue(json!({"preemption": {"reclaimWithinCohort": "Never"}}));
        let errors = merge(&there, &written).unwrap_err();
        assert_eq!(errors[0].field.to_string(), "spec.preemption.borrowWithinCohort.policy");
    }

    #[test]
    fn recording_twice_changes_nothing() {
        let mut twice = noted(namespace(&json!({"team": "vision"})));
        let once = twice.clone();
        record(&mut twice);
        assert_eq!(once, twice);
        assert_eq!(object(once.stored.clone()), once);
    }

    fn annotated(labels: &Value, bytes: usize) -> Value {
        let mut value = namespace(labels);
        value["metadata"]["annotations"] = json!({"of/theirs": "x".repeat(bytes)});
        value
    }

    #[test]
    fn a_record_never_makes_annotations_too_large() {
        for bytes in [100_000, 130_000, 131_000, 135_000, 200_000, 262_000] {
            let large = noted(annotated(&json!({"team": "vision"}), bytes));
            assert_eq!(object(large.stored.clone()), large, "{bytes}");
            assert_eq!(is_recorded(&large), bytes <= 130_000, "{bytes}");
            // Together with others' annotations there is no space for a record.
            let there = object({
                let mut there = namespace(&json!({}));
                there["metadata"]["annotations"] = json!({"of/others": "y".repeat(90_000)});
                there
            });
            let merged = merge(&there, &noted(annotated(&json!({}), 90_000))).unwrap().object;
            assert!(!is_recorded(&merged) && merged.annotations.len() == 2);
        }
    }

    #[test]
    fn an_older_record_goes_with_a_file_too_large_for_one() {
        let there = noted(namespace(&json!({"data": "personal"})));
        let large = noted(annotated(&json!({}), 200_000));
        let merged = merge(&there, &large).unwrap().object;
        assert!(merged.labels.is_empty() && !is_recorded(&merged), "the label was the file's");
        let mut labelled = merged.stored;
        labelled["metadata"]["labels"] = json!({"data": "personal"});
        assert_eq!(
            merge(&object(labelled), &large).unwrap().object.labels.len(),
            1,
            "and now it is another's"
        );
    }
}

//! `apply` onto what is there: a three-way merge, as kubectl makes it.
//!
//! Who applies a file speaks of the fields in it, and of those that the file before had. What others set besides (a
//! cordon, a label of another team) stays. What the file before had stands in an annotation, kubectl's own, so that
//! either program goes on where the other stopped. Lists are taken whole, as in Kueue's definitions.

use crate::field::FieldError;
use crate::object::Object;
use serde_json::{Map, Value};

/// The annotation in which is kept what was applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most bytes of it. Annotations have 256 KiB together, and others want some, too.
const NOTED_MAX: usize = 192 * 1024;

/// Notes in an object that it was applied. What it says of an earlier apply goes; one that is too large carries no note.
pub fn note(object: &mut Object) {
    forget(object);
    let text = object.stored.to_string();
    if text.len() > NOTED_MAX {
        return;
    }
    let Some(metadata) = object.stored.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    let Some(annotations) = annotations.as_object_mut() else { return };
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(text.clone()));
    object.annotations.insert(LAST_APPLIED.to_owned(), text);
}

/// Takes the note out of an object.
pub fn forget(object: &mut Object) {
    object.annotations.remove(LAST_APPLIED);
    let Some(metadata) = object.stored.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    if annotations.is_some_and(|annotations| annotations.remove(LAST_APPLIED).is_some() && annotations.is_empty()) {
        metadata.remove("annotations");
    }
}

/// What comes of an object that is applied where `there` is. Of `there` goes what it says was applied last and `written`
/// doesn't have; where it says nothing, nothing goes.
///
/// # Errors
/// The two together are no valid object.
pub fn over(there: &Object, written: &Object) -> Result<Object, Vec<FieldError>> {
    let last = last(there);
    let merged = merged(last.as_ref(), &there.stored, &written.stored);
    // what most applies come to, and reading takes time
    for known in [written, there] {
        if merged == known.stored {
            return Ok(known.clone());
        }
    }
    // what there is to remark of either was remarked when it came
    Object::from_value(merged).map(|(object, _)| object)
}

/// Whether it is known what was applied last.
pub fn is_noted(object: &Object) -> bool {
    last(object).is_some()
}

/// What was applied last, in the storage version.
fn last(there: &Object) -> Option<Value> {
    let noted: Value = serde_json::from_str(there.annotations.get(LAST_APPLIED)?).ok()?;
    let (last, _) = Object::from_value(noted).ok()?;
    (last.kind == there.kind).then_some(last.stored)
}

/// `live`, without what only `last` has, with what `written` has. No deeper than objects are, and their reader bounds that.
fn merged(last: Option<&Value>, live: &Value, written: &Value) -> Value {
    let (Value::Object(live), Value::Object(written)) = (live, written) else { return written.clone() };
    let last = last.and_then(Value::as_object);
    let mut merged = Map::new();
    for (name, value) in live {
        let before = last.and_then(|last| last.get(name));
        match (written.get(name), before) {
            (Some(written), _) => drop(merged.insert(name.clone(), self::merged(before, value, written))),
            (None, None) => drop(merged.insert(name.clone(), value.clone())),
            (None, Some(before)) => {
                if let Some(left) = without(before, value) {
                    merged.insert(name.clone(), left);
                }
            }
        }
    }
    merged.extend(written.iter().filter(|(name, _)| !live.contains_key(*name)).map(|(name, value)| (name.clone(), value.clone())));
    Value::Object(merged)
}

/// What others have put beside what was applied and is to go; `None` where that is nothing.
fn without(last: &Value, live: &Value) -> Option<Value> {
    let (Value::Object(last), Value::Object(live)) = (last, live) else { return None };
    let left = live.iter().filter_map(|(name, value)| match last.get(name) {
        None => Some((name.clone(), value.clone())),
        Some(last) => Some((name.clone(), without(last, value)?)),
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

    fn namespace(labels: &Value) -> Object {
        object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}}))
    }

    fn cluster(spec: &Value) -> Object {
        let mut whole = json!({"region": "us-east4", "jurisdiction": "us"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object(json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us-east4"}, "spec": whole}))
    }

    /// Applies one after the other, with what others do between.
    fn applied(first: Object, between: impl Fn(&mut Value), second: Object) -> Value {
        let (mut first, mut second) = (first, second);
        note(&mut first);
        note(&mut second);
        let mut there = first.stored;
        between(&mut there);
        let mut result = over(&object(there), &second).unwrap();
        assert!(is_noted(&result));
        let again = over(&result, &second).unwrap();
        assert_eq!(again, result, "applied twice");
        forget(&mut result);
        result.stored
    }

    #[test]
    fn what_others_set_stays_and_what_the_file_no_longer_has_goes() {
        let before = namespace(&json!({"team": "vision", "tier": "1"}));
        let after = namespace(&json!({"team": "speech"}));
        let others = |there: &mut Value| there["metadata"]["labels"]["residency"] = json!("eu");
        assert_eq!(applied(before, others, after)["metadata"]["labels"], json!({"team": "speech", "residency": "eu"}));
        let cordoned = |there: &mut Value| there["spec"]["cordoned"] = json!(true);
        let merged = applied(cluster(&json!({})), cordoned, cluster(&json!({})));
        assert_eq!(merged["spec"], json!({"region": "us-east4", "jurisdiction": "us", "cordoned": true}));
        let merged = applied(cluster(&json!({})), cordoned, cluster(&json!({"cordoned": false})));
        assert_eq!(merged["spec"]["cordoned"], json!(false));
    }

    #[test]
    fn a_map_that_left_the_file_leaves_what_others_put_in_it() {
        let bare = || object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}));
        let before = || namespace(&json!({"team": "vision"}));
        assert_eq!(applied(before(), |_| {}, bare()), bare().stored);
        let others = |there: &mut Value| there["metadata"]["labels"]["residency"] = json!("eu");
        assert_eq!(applied(before(), others, bare())["metadata"]["labels"], json!({"residency": "eu"}));
    }

    #[test]
    fn nothing_goes_where_it_is_not_known_what_was_applied() {
        let there = namespace(&json!({"residency": "eu", "team": "vision"}));
        let mut written = namespace(&json!({"team": "speech"}));
        note(&mut written);
        for noted in [None, Some("{"), Some("[]"), Some(r#"{"kind":"Namespace"}"#), Some(r#"{"apiVersion":"v1","kind":"Job"}"#)] {
            let mut there = there.stored.clone();
            if let Some(noted) = noted {
                there["metadata"]["annotations"] = json!({ LAST_APPLIED: noted });
            }
            let there = object(there);
            assert!(!is_noted(&there));
            let merged = over(&there, &written).unwrap();
            assert_eq!(merged.labels, [("residency", "eu"), ("team", "speech")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
            assert!(is_noted(&merged));
        }
    }

    #[test]
    fn lists_are_taken_whole_and_what_kubectl_noted_of_another_version_counts() {
        let queue = |version: &str, cohort: &str, quota: u32, flavors: &[&str]| {
            let flavors: Vec<Value> = flavors.iter().map(|f| json!({"name": f, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": quota}]})).collect();
            json!({"apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue", "metadata": {"name": "q"},
                "spec": {cohort: "all", "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]}})
        };
        let mut there = queue("v1beta2", "cohortName", 4, &["a", "b"]);
        there["metadata"]["annotations"] = json!({LAST_APPLIED: queue("v1beta1", "cohort", 4, &["a", "b"]).to_string()});
        there["spec"]["stopPolicy"] = json!("Hold");
        let mut written = queue("v1beta1", "cohort", 6, &["b"]);
        written["spec"].as_object_mut().unwrap().remove("cohort");
        let mut expect = queue("v1beta2", "cohortName", 6, &["b"]);
        expect["spec"].as_object_mut().unwrap().remove("cohortName");
        expect["spec"]["stopPolicy"] = json!("Hold");
        let mut merged = over(&object(there), &object(written)).unwrap();
        forget(&mut merged);
        let mut expect = object(expect);
        forget(&mut expect);
        assert_eq!(merged, expect);
    }

    #[test]
    fn what_two_files_say_together_may_be_wrong() {
        let queue = |spec: Value| object(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}));
        let there = queue(json!({"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}}));
        let written = queue(json!({"preemption": {"reclaimWithinCohort": "Never"}}));
        let errors = over(&there, &written).unwrap_err();
        assert_eq!(errors[0].field.to_string(), "spec.preemption.borrowWithinCohort.policy");
    }

    #[test]
    fn a_note_is_made_of_the_object_alone_and_only_of_one_that_is_not_huge() {
        let mut twice = namespace(&json!({"team": "vision"}));
        note(&mut twice);
        let once = twice.clone();
        note(&mut twice);
        assert_eq!(once, twice);
        assert_eq!(object(once.stored.clone()), once);
        let huge = "x".repeat(NOTED_MAX);
        let mut large = object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "annotations": {"note": huge}}}));
        let before = large.clone();
        note(&mut large);
        assert_eq!(large, before);
    }
}

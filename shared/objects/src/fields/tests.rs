//! Paths, types and unknown fields.

use super::*;
use serde_json::Value;
use serde_json::json;

fn read(value: &Value, read: impl FnOnce(&Fields<'_>)) -> (Vec<String>, Vec<String>) {
    let findings = Findings::default();
    let fields = Fields::root(&findings, value.as_object().unwrap());
    read(&fields);
    fields.finish();
    let (errors, warnings) = findings.into_parts();
    (errors.iter().map(ToString::to_string).collect(), warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn paths_are_displayed_as_users_write_them() {
    let path = FieldPath::of("spec.groups").index(2).key("name");
    assert_eq!(path.to_string(), "spec.groups[2].name");
    assert_eq!(FieldPath::of("metadata.annotations").key("a.b/c").to_string(), "metadata.annotations[a.b/c]");
    for path in
        [FieldPath::default(), path, FieldPath::of("metadata.annotations").key("a.b/c").index(0).key("x")]
    {
        assert_eq!(FieldPath::parse(&path.to_string()), path);
    }
    for broken in ["[", "a[", ".", "a..b", "[]", "]"] {
        // It must not panic.
        FieldPath::parse(broken);
    }
    let mut path = FieldPath::of("spec.cohortName");
    assert!(path.replace_prefix("spec.cohortName", "spec.cohort") && !path.replace_prefix("spec.other", "x"));
    assert_eq!(path.to_string(), "spec.cohort");
}

#[test]
fn wrong_types_say_what_to_do() {
    let value = json!({"a": 600, "b": "yes", "c": "7", "d": [], "e": 1.5, "f": 1e3, "g": "012"});
    let (errors, warnings) = read(&value, |fields| {
        assert!(fields.text("a").is_none());
        assert!(!fields.flag("b"));
        assert!(fields.int("c", 0, 9).is_none());
        assert!(fields.fields("d").is_none());
        assert!(fields.int("e", 0, 9).is_none());
        assert_eq!(fields.int("f", 0, 1_000), Some(1_000));
        assert!(fields.int("g", 0, 99).is_none());
    });
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(
        errors,
        [
            "a: must be a string, not the number `600`; quote it as it is written",
            "b: must be a boolean, not a string; write `true`",
            "c: must be a whole number, not a string; remove the quotes: 7",
            "d: must be a mapping, not a list; write a mapping here",
            "e: must be a whole number, not the number `1.5`; write a whole number here",
            "g: must be a whole number, not a string; write a whole number here",
        ]
    );
}

#[test]
fn unknown_fields_are_warned_with_a_guess() {
    let (errors, warnings) = read(&json!({"stopPolcy": 1, "zzz": 2}), |fields| fields.known(&["stopPolicy"]));
    assert!(errors.is_empty());
    assert_eq!(
        warnings,
        [
            "stopPolcy: is an unknown field, kept as it is; did you mean `stopPolicy`?",
            "zzz: is an unknown field, kept as it is"
        ]
    );
}

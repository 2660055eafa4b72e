//! Structural schemas, as Kubernetes wants them, from the schemas that the types have.
//!
//! Kubernetes takes OpenAPI without references, without `null` among the types, and without `oneOf` around
//! types. Fields that only one version of a kind has are marked in the types by [`only_old`] and
//! [`only_new`]. Both versions keep them, because nothing converts objects between the versions, and a field
//! that a schema lacks would be dropped from objects of the other version. Only the version that has the
//! field accepts it in writes.

use crate::cel;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// Mark of a field that only v1beta1 has; its value is the field's name in v1beta2.
const ONLY_OLD: &str = "x-meridian-only-v1beta1";
/// Mark of a field that only v1beta2 has; its value is the field's name in v1beta1.
const ONLY_NEW: &str = "x-meridian-only-v1beta2";
/// Mark of words that only v1beta1 has.
const OLD_WORDS: &str = "x-meridian-words-v1beta1";

/// Mark of a field in which `null` isn't the same as absent.
const NULLABLE: &str = "x-meridian-nullable";

/// Keywords of JSON Schema that a structural schema can't have.
const DROPPED: [&str; 3] = ["$schema", "title", "nullable"];
/// Kueue's versions, of which a field may belong to one only.
const VERSIONS: [(&str, &str); 2] = [(ONLY_OLD, "v1beta1"), (ONLY_NEW, "v1beta2")];

/// Marks a field as one that only v1beta1 has.
pub(crate) fn only_old(schema: &mut Schema, new_name: &str) {
    schema.insert(ONLY_OLD.to_owned(), json!(new_name));
}

/// Marks a field as one that only v1beta2 has.
pub(crate) fn only_new(schema: &mut Schema, old_name: &str) {
    schema.insert(ONLY_NEW.to_owned(), json!(old_name));
}

/// Adds words that only v1beta1 has.
pub(crate) fn old_words(schema: &mut Schema, words: &[&str]) {
    schema.insert(OLD_WORDS.to_owned(), json!(words));
}

/// Keeps `null` in a field, which API servers otherwise drop.
pub(crate) fn nullable(schema: &mut Schema) {
    schema.insert(NULLABLE.to_owned(), json!(true));
}

/// The structural schema of a type, in `version` of `group`.
pub(crate) fn structural<T: JsonSchema>(group: &str, version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    Finish { group, version }.schema(&mut schema);
    schema
}

struct Finish<'a> {
    group: &'a str,
    version: &'a str,
}

impl Finish<'_> {
    fn schema(&self, schema: &mut Value) {
        let Some(map) = schema.as_object_mut() else { return };
        without_null(map);
        words_of_choices(map);
        for key in DROPPED {
            map.remove(key);
        }
        if map.remove(NULLABLE).is_some() {
            map.insert("nullable".to_owned(), json!(true));
        }
        if let Some(Value::Array(words)) = map.remove(OLD_WORDS)
            && self.version == "v1beta1"
            && let Some(Value::Array(all)) = map.get_mut("enum")
        {
            all.extend(words);
        }
        whole_numbers(map);
        if let Some(Value::String(text)) = map.get_mut("description") {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        for (_, property) in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
            self.property(property);
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = map.get_mut(key) {
                self.schema(inner);
            }
        }
    }

    /// A field, which may be one of the other version.
    fn property(&self, property: &mut Value) {
        let marks =
            VERSIONS.map(|(mark, of)| (property.as_object_mut().and_then(|map| map.remove(mark)), of));
        for (other, of) in marks {
            let Some(Value::String(right)) = other.filter(|_| of != self.version) else { continue };
            return *property = self.foreign(property, &right, of);
        }
        self.schema(property);
    }

    /// A field of the other version: kept in objects that have it, refused in writes. API servers skip the
    /// rule in updates that leave the field as it is, which needs the field's whole schema.
    fn foreign(&self, property: &mut Value, right: &str, of: &str) -> Value {
        self.schema(property);
        let mut kept = property.take();
        let remedy = format!("write `{right}`, or apiVersion `{}/{of}`", self.group);
        let rule = cel::rule("self != self", &format!("is the {of} name of this field; {remedy}"));
        if let Some(map) = kept.as_object_mut() {
            for key in ["default", "required"] {
                map.remove(key);
            }
            let description = format!("The {of} name of `{right}`, in objects that were written in {of}.");
            map.insert("description".to_owned(), json!(description));
            map.insert("x-kubernetes-validations".to_owned(), json!([rule]));
        }
        kept
    }
}

/// `null` isn't a type of Kubernetes: it is the same as absent.
fn without_null(map: &mut Map<String, Value>) {
    let is_null = |value: &Value| *value == json!("null") || value.get("type") == Some(&json!("null"));
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|of| !is_null(of));
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let Some(Value::Array(any)) = map.get("anyOf") else { return };
    let [Value::Object(one), null] = any.as_slice() else { return };
    if !is_null(null) {
        return;
    }
    let one = one.clone();
    map.remove("anyOf");
    for (key, value) in one {
        match (map.get_mut(&key), value) {
            // Rules of the type and of the field both hold.
            (Some(Value::Array(outer)), Value::Array(inner)) => outer.extend(inner),
            (Some(_), _) => {}
            (None, value) => drop(map.insert(key, value)),
        }
    }
}

/// Words with a description each become an enumeration.
fn words_of_choices(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.get("oneOf") else { return };
    let words: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(words) = words {
        map.remove("oneOf");
        map.insert("type".to_owned(), json!("string"));
        map.insert("enum".to_owned(), json!(words));
    }
}

/// Kubernetes knows the formats int32 and int64.
fn whole_numbers(map: &mut Map<String, Value>) {
    let format = match map.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "uint32" | "int32") => "int32",
        Some("uint64" | "int64") => "int64",
        _ => return,
    };
    map.insert("format".to_owned(), json!(format));
}

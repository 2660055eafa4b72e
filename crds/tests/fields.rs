//! The schemas have the fields that the reader knows, and no others.

use meridian_crds::{defined, definition_of};
use meridian_objects::{FieldValidation, Object};
use serde_json::{Value, json};

/// A field of another version: it is kept in objects, and can't be written.
fn is_foreign(schema: &Value) -> bool {
    schema["description"].as_str().is_some_and(|text| text.contains(" in objects that were written in "))
}

/// A value with every field, so that the object's reader sees each; it may refuse the values.
fn sample(schema: &Value) -> Value {
    if let Some(word) = schema["enum"].get(0) {
        return word.clone();
    }
    match schema["type"].as_str() {
        Some("object") if schema["properties"].is_object() => {
            let fields = schema["properties"].as_object().unwrap().iter();
            fields.filter(|(_, of)| !is_foreign(of)).map(|(name, of)| (name.clone(), sample(of))).collect()
        }
        Some("object") => json!({}),
        Some("array") => json!([sample(&schema["items"])]),
        Some("boolean") => json!(true),
        Some("integer") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        _ => json!("1"),
    }
}

#[test]
fn every_field_of_a_schema_is_known_to_the_reader() {
    let mut checked = 0;
    for kind in defined().into_iter().filter(|kind| kind.writable()) {
        let definition = definition_of(kind).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let name = version["name"].as_str().unwrap();
            let mut object = sample(&version["schema"]["openAPIV3Schema"]);
            object["apiVersion"] = json!(kind.api_version(name));
            object["kind"] = json!(kind.name());
            object["metadata"] = json!({"name": "sample"});
            object.as_object_mut().unwrap().remove("status");
            // v1beta1 has two fields for checks, and refuses both together before it reads the rest.
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("admissionChecks");
            }
            object["misspelt"] = json!(1);
            let errors = Object::validated(object, FieldValidation::Strict).err().unwrap_or_default();
            let unknown: Vec<String> = errors
                .iter()
                .filter(|error| error.message.contains("unknown field"))
                .map(ToString::to_string)
                .collect();
            let misspelt = "misspelt: is an unknown field; remove it or correct its name";
            assert_eq!(unknown, [misspelt], "{kind} {name}: {errors:?}");
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} schemas were checked");
}

/// A definition has the names, the scope and the versions of the kind.
#[test]
fn the_table_of_kinds_is_followed() {
    for kind in defined() {
        let definition = definition_of(kind).unwrap();
        let names = &definition["spec"]["names"];
        assert_eq!(names["plural"], kind.plural());
        assert_eq!(names["shortNames"].as_array().map_or(0, Vec::len), kind.short_names().len(), "{kind}");
        assert_eq!(definition["spec"]["scope"] == "Namespaced", kind.namespaced(), "{kind}");
        let versions = definition["spec"]["versions"].as_array().unwrap();
        let stored: Vec<&Value> = versions.iter().filter(|version| version["storage"] == true).collect();
        assert_eq!(versions.len(), kind.versions().len());
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0]["name"], kind.storage_version());
    }
}

//! Operators' cordons on `Cluster` objects that a management cluster owns. A cordon stays when that cluster
//! sends its object again without `spec.cordoned`.

use crate::facts::actor::Actor;
use crate::facts::input::{Change, Write};
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::state::catalog::{Catalog, Stored};
use meridian_objects::{Kind, Object};
use serde_json::{Value, json};

/// Annotation on a stored object that says who set its cordon, if not the object's author.
pub(super) const MARK: &str = "meridian.dev/cordoned-by";
/// Value of [`MARK`] on the copy of a management cluster's object.
const OPERATOR: &str = "operator";

pub(super) fn is_managed(stored: &Stored) -> bool {
    stored.by == Actor::ManagementCluster
}

pub(super) fn is_marked(object: &Object) -> bool {
    object.annotations.contains_key(MARK)
}

/// Value of `spec.cordoned`; `None` if the field is absent.
pub(super) fn cordoned_in(object: &Object) -> Option<bool> {
    object.stored.pointer("/spec/cordoned").and_then(Value::as_bool)
}

pub(super) fn with_cordon(object: &Object) -> Value {
    let mut value = object.stored.clone();
    value["spec"]["cordoned"] = json!(true);
    value["metadata"]["annotations"][MARK] = json!(OPERATOR);
    value
}

pub(super) fn without_cordon(object: &Object) -> Value {
    let mut value = object.stored.clone();
    for (map, field) in [("/spec", "cordoned"), ("/metadata/annotations", MARK)] {
        if let Some(Value::Object(fields)) = value.pointer_mut(map) {
            fields.remove(field);
        }
    }
    value
}

/// Keeps operators' cordons if the management cluster sends an object without `spec.cordoned`. A cordon that
/// the management cluster set ends when it removes the field. Returns a rejection for each object that is
/// invalid with its cordon.
pub(super) fn keep(catalog: &Catalog, write: &mut Write) -> Vec<Rejection> {
    if write.actor != Actor::ManagementCluster {
        return Vec::new();
    }
    let mut rejections = Vec::new();
    for (index, change) in write.changes.iter_mut().enumerate() {
        let Change::Put { object, scope: None, .. } = change else { continue };
        if object.kind != Kind::Cluster || cordoned_in(object).is_some() {
            continue;
        }
        let stored = catalog.get(&Key::global(Kind::Cluster, &object.name));
        let is_operators = |stored: &&Stored| is_marked(&stored.object) || !is_managed(stored);
        let cordoned = stored.filter(is_operators).and_then(|stored| cordoned_in(&stored.object));
        if cordoned != Some(true) {
            continue;
        }
        match Object::from_stored(with_cordon(object)) {
            Ok(kept) => **object = kept,
            Err(errors) => rejections.extend(errors.iter().map(|error| Rejection {
                index,
                reason: RejectionReason::Invalid,
                field: Some(error.field.to_string()),
                message: format!("with an operator's cordon, {}; {}", error.message, error.remedy),
                in_use: None,
            })),
        }
    }
    rejections
}

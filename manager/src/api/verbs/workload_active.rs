//! `PUT` and `PATCH` of a workload: users can change `spec.active` and no other field.
//!
//! All other fields follow the workload's job, so a body that changes one of them is refused as a whole.

use super::write::Request;
use crate::api::request::body;
use crate::api::response::error::{Cause, Error};
use crate::api::response::json_bytes;
use crate::api::response::rendered::RenderedObject;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use meridian_manager_core::facts::input::Change;
use serde_json::Value;

const ONLY_ACTIVE: &str =
    "field is immutable: a workload follows its job, and users can set only `spec.active`";
/// Most fields that one refusal names.
const NAMED_MAX: usize = 5;

impl Request<'_> {
    /// `PUT` of a workload. The body is the object as the client read it, with another `spec.active`.
    pub(super) async fn put_workload(&self, name: &str, value: Value) -> Result<Response, Error> {
        let current = self.current(name)?;
        self.set_active(name, current, value, true).await
    }

    /// `PATCH` of a workload.
    pub(super) async fn patch_workload(&self, name: &str, patch: &Value) -> Result<Response, Error> {
        let current = self.current(name)?;
        let mut value = current.clone();
        json_patch::merge(&mut value, patch);
        // a patch applies to any version, unless it names one
        let versioned = patch.pointer("/metadata/resourceVersion").is_some();
        self.set_active(name, current, value, versioned).await
    }

    fn current(&self, name: &str) -> Result<Value, Error> {
        let view = self
            .api
            .handle
            .reads()
            .get(&self.key(name), &self.user.asker())
            .ok_or_else(|| Error::NotFound(self.target.subject()))?;
        Ok(RenderedObject::new(&view, self.target.version).into_value())
    }

    async fn set_active(
        &self,
        name: &str,
        mut current: Value,
        mut requested: Value,
        versioned: bool,
    ) -> Result<Response, Error> {
        let active = match requested.pointer("/spec/active") {
            // Kueue's default
            None | Some(Value::Null) => true,
            Some(Value::Bool(active)) => *active,
            Some(other) => {
                let message = format!("Invalid value: {other}: must be `true` or `false`");
                return Err(self.invalid("spec.active", &message));
            }
        };
        let mut precondition = body::take_precondition(&mut requested)?;
        precondition.version = precondition.version.filter(|_| versioned);
        let version = self.condition(name, precondition)?.filter(|_| versioned);
        body::take_precondition(&mut current)?;
        for value in [&mut current, &mut requested] {
            if let Some(fields) = value.as_object_mut() {
                fields.remove("status");
            }
            if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("active");
            }
        }
        let mut differing = Vec::new();
        differ(&current, &requested, "", &mut differing);
        if !differing.is_empty() {
            let cause = |field: &String| Cause {
                reason: "FieldValueForbidden",
                field: field.clone(),
                message: ONLY_ACTIVE.to_owned(),
            };
            let causes = differing.iter().take(NAMED_MAX).map(cause).collect();
            return Err(Error::Invalid(self.target.subject(), causes));
        }
        self.change(Change::SetActive { key: self.key(name), active, version }, self.options.dry_run).await?;
        if let Some(view) =
            self.api.handle.reads().get(&self.key(name), &self.user.asker()).filter(|_| !self.options.dry_run)
        {
            let bytes = serde_json::to_vec(&RenderedObject::new(&view, self.target.version))
                .expect("objects have text keys and plain values");
            return Ok((StatusCode::OK, json_bytes(bytes)).into_response());
        }
        let mut would_be = self.current(name)?;
        would_be["spec"]["active"] = Value::Bool(active);
        Ok(Json(would_be).into_response())
    }

    fn invalid(&self, field: &str, message: &str) -> Error {
        let cause =
            Cause { reason: "FieldValueInvalid", field: field.to_owned(), message: message.to_owned() };
        Error::Invalid(self.target.subject(), vec![cause])
    }
}

/// The paths at which two objects differ, down to where one of them isn't a mapping.
fn differ(one: &Value, other: &Value, path: &str, into: &mut Vec<String>) {
    let (Value::Object(left), Value::Object(right)) = (one, other) else {
        if one != other {
            into.push(path.to_owned());
        }
        return;
    };
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, value) in left {
        differ(value, right.get(name).unwrap_or(&Value::Null), &below(name), into);
    }
    into.extend(
        right
            .iter()
            .filter(|(name, value)| !left.contains_key(*name) && !value.is_null())
            .map(|(name, _)| below(name)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_named_by_their_deepest_path() {
        let check = |one: Value, other: Value, expect: &[&str]| {
            let mut found = Vec::new();
            differ(&one, &other, "", &mut found);
            assert_eq!(found, expect, "{one} {other}");
        };
        check(json!({"spec": {"a": 1}}), json!({"spec": {"a": 1}, "x": null}), &[]);
        check(
            json!({"spec": {"a": 1, "b": {"c": 2}}}),
            json!({"spec": {"a": 2, "b": {"c": 3, "d": 4}}}),
            &["spec.a", "spec.b.c", "spec.b.d"],
        );
        check(json!({"spec": {"a": 1}}), json!({"spec": {}, "metadata": {}}), &["spec.a", "metadata"]);
        check(json!({"spec": {"a": [1]}}), json!({"spec": 3}), &["spec"]);
        check(json!({}), json!([]), &[""]);
    }
}

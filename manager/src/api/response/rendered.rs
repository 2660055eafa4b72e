//! Objects as they are sent: in the requested API version, with `resourceVersion`.

use crate::engine::View;
use meridian_objects::conversion;
use meridian_shared::ids::RecordNumber;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// One view in one API version. Serialising the storage version copies nothing.
#[derive(Clone, Debug)]
pub(crate) struct RenderedObject<'v> {
    value: Cow<'v, Value>,
    /// The value of `resourceVersion`.
    version: String,
}

impl<'v> RenderedObject<'v> {
    /// `view` in the API version `version`.
    pub(crate) fn new(view: &'v View, version: &str) -> Self {
        Self::at(view, version, view.version)
    }

    /// Like [`RenderedObject::new`], with `at` as the `resourceVersion`.
    pub(crate) fn at(view: &'v View, version: &str, at: RecordNumber) -> Self {
        let kind = view.key.kind;
        let value = if version == kind.storage_version() {
            Cow::Borrowed(&*view.value)
        } else {
            Cow::Owned(conversion::to_version(kind, &view.value, version))
        };
        Self { value, version: at.to_string() }
    }

    pub(crate) fn into_value(self) -> Value {
        let mut value = self.value.into_owned();
        value["metadata"]["resourceVersion"] = json!(self.version);
        value
    }

    pub(crate) fn pointer(&self, pointer: &str) -> Option<&Value> {
        self.value.pointer(pointer)
    }

    /// The object's metadata alone, as rows of a table include it.
    pub(crate) fn metadata_only(&self) -> Value {
        let mut metadata = self.pointer("/metadata").cloned().unwrap_or_else(|| json!({}));
        metadata["resourceVersion"] = json!(self.version);
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
    }
}

impl Serialize for RenderedObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(fields) = &*self.value else { return self.value.serialize(serializer) };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (name, value) in fields {
            match value {
                Value::Object(metadata) if name == "metadata" => {
                    map.serialize_entry(name, &Metadata { metadata, version: &self.version })?
                }
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

struct Metadata<'m> {
    metadata: &'m Map<String, Value>,
    version: &'m str,
}

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("resourceVersion", self.version)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager_core::facts::key::Key;
    use meridian_objects::Kind;
    use std::sync::Arc;

    #[test]
    fn serialised_and_owned_objects_are_equal() {
        let value = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": "q", "resourceVersion": "3"}, "spec": {"cohortName": "all"},
        });
        let view = View {
            key: Key::global(Kind::ClusterQueue, "q"),
            version: RecordNumber(9),
            value: Arc::new(value),
        };
        for (version, cohort) in [("v1beta2", "/spec/cohortName"), ("v1beta1", "/spec/cohort")] {
            let written = serde_json::to_value(RenderedObject::new(&view, version)).unwrap();
            assert_eq!(written, RenderedObject::new(&view, version).into_value());
            assert_eq!(written["metadata"]["resourceVersion"], "9");
            assert_eq!(written.pointer(cohort).unwrap(), "all");
            assert_eq!(written["apiVersion"], format!("kueue.x-k8s.io/{version}"));
        }
    }
}

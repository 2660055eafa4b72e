//! One object: its identity, its typed spec, and all its fields as written.

pub mod conversion;
pub mod last_applied;
mod metadata;
pub(crate) mod unknown;

use crate::fields::{FieldError, FieldPath, FieldValidation, Fields, Findings, Warning};
use crate::job::JobWorkload;
use crate::kind::Kind;
use crate::spec::{self, Spec};
use crate::text::syntax::MAX_DEPTH;
use crate::units::json::type_name;
use metadata::{Identity, quote_annotations, read_metadata, tidy_metadata};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use unknown::UnknownKind;

/// The namespace of namespaced objects without a written namespace.
pub const DEFAULT_NAMESPACE: &str = "default";

/// An object that was read without errors. Two objects are equal if they have the same content, even if they
/// were written in different versions.
#[derive(Clone, Debug)]
pub struct Object {
    pub kind: Kind,
    /// The version in which it was written.
    pub version: &'static str,
    /// Empty while only [`Self::generate_name`] is set.
    pub name: String,
    /// `None` if none is written; the caller then chooses [`DEFAULT_NAMESPACE`] or its own.
    pub namespace: Option<String>,
    /// Prefix from which a name is to be generated.
    pub generate_name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: Spec,
    /// The whole object in the storage version, with unknown fields, without `status`.
    pub stored: Value,
}

impl Object {
    /// Reads an object of any served version. Fails with all errors when the object breaks a rule or can't be
    /// read.
    pub fn from_value(written: Value) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::read_with(written, Findings::default())
    }

    /// Like [`Self::from_value`], with `validation` for unknown fields.
    pub fn validated(
        written: Value,
        validation: FieldValidation,
    ) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::read_with(written, Findings::with(validation))
    }

    /// Reads an object that was accepted before, ignoring rules that were added since. Fails only for a value
    /// that can't be read.
    pub fn from_stored(stored: Value) -> Result<Self, Vec<FieldError>> {
        Self::read_with(stored, Findings::trusting()).map(|(object, _)| object)
    }

    /// Reads an object of any served version, as strictly as `findings` are.
    pub(crate) fn read_with(
        written: Value,
        findings: Findings,
    ) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        if is_deeper(&written, MAX_DEPTH) {
            findings.error(
                FieldPath::default(),
                format!("lists and mappings are nested more than {MAX_DEPTH} deep"),
                "write it flatter",
            );
        }
        let (kind, version) = identify(&written).map_err(|error| vec![error])?;
        let plain_checks = conversion::has_plain_checks(&written);
        let stored = as_stored(kind, version, written, &findings);
        let converted = stored.is_some();
        let read = stored.and_then(|stored| read(kind, version, stored, &findings));
        let (mut errors, mut warnings) = findings.into_parts();
        // Earlier findings already have the paths of the written version.
        for path in errors
            .iter_mut()
            .map(|error| &mut error.field)
            .chain(warnings.iter_mut().map(|warning| &mut warning.field))
            .filter(|_| converted)
        {
            conversion::path_in_version(kind, version, plain_checks, path);
        }
        match read {
            Some(object) if errors.is_empty() => Ok((object, warnings)),
            _ => Err(errors),
        }
    }

    /// The object in `version`, or in the storage version if `version` isn't served.
    pub fn in_version(&self, version: &str) -> Value {
        conversion::to_version(self.kind, &self.stored, version)
    }

    /// The namespace, or the default one; `None` for kinds without namespaces.
    pub fn namespace_or_default(&self) -> Option<&str> {
        self.kind.namespaced().then(|| self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE))
    }

    /// Sets the namespace, in [`Self::stored`] too. Does nothing for kinds without namespaces.
    pub fn set_namespace(&mut self, namespace: &str) {
        if self.kind.namespaced() {
            self.namespace = Some(namespace.to_owned());
            self.stored["metadata"]["namespace"] = json!(namespace);
        }
    }

    /// Sets the name, in [`Self::stored`] too, and removes `generateName`.
    pub fn set_name(&mut self, name: &str) {
        self.name = name.to_owned();
        self.generate_name = None;
        if let Some(metadata) = self.stored.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("generateName");
            metadata.insert("name".to_owned(), json!(name));
        }
        if let Spec::Namespace(namespace) = &mut self.spec {
            namespace.labels = spec::core::namespace_labels(std::mem::take(&mut namespace.labels), name);
        }
    }

    /// `kind/namespace/name` or `kind/name`, for messages. For a name that is generated later, the prefix and
    /// `*`.
    pub fn title(&self) -> String {
        let name = self
            .generate_name
            .as_ref()
            .filter(|_| self.name.is_empty())
            .map_or_else(|| self.name.clone(), |prefix| format!("{prefix}*"));
        match self.namespace_or_default() {
            Some(namespace) => format!("{}/{namespace}/{name}", self.kind.singular()),
            None => format!("{}/{name}", self.kind.singular()),
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.stored == other.stored
    }
}

impl Eq for Object {}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.stored.hash(state);
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_stored(value).map_err(|errors| {
            let all = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            de::Error::custom(all)
        })
    }
}

/// The workload of a job. Fails for any other object.
pub fn job_to_workload(object: &Object) -> Result<JobWorkload, Vec<FieldError>> {
    match &object.spec {
        Spec::Job(job) => Ok((**job).clone()),
        _ => Err(vec![FieldError::new(
            FieldPath::of("kind"),
            format!("a {} is not a Job", object.kind),
            "submit a Job",
        )]),
    }
}

/// Whether lists and mappings are nested deeper than `most`.
fn is_deeper(value: &Value, most: usize) -> bool {
    match value {
        Value::Array(items) => most == 0 || items.iter().any(|value| is_deeper(value, most - 1)),
        Value::Object(fields) => most == 0 || fields.values().any(|value| is_deeper(value, most - 1)),
        _ => false,
    }
}

/// The kind and version that an object names.
fn identify(written: &Value) -> Result<(Kind, &'static str), FieldError> {
    let text = |name: &str| match written.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        Some(Value::String(_) | Value::Null) | None => {
            Err(FieldError::new(FieldPath::of(name), "is missing", format!("add `{name}`")))
        }
        Some(_) => Err(FieldError::new(FieldPath::of(name), "must be a string", "write a string here")),
    };
    if !written.is_object() {
        let message = format!("an object must be a mapping, not {}", type_name(written));
        return Err(FieldError::new(
            FieldPath::default(),
            message,
            "write `apiVersion`, `kind`, `metadata` and the rest",
        ));
    }
    if written.get("apiVersion").is_none() && written.get("kind").is_none() {
        return Err(FieldError::new(
            FieldPath::default(),
            "this document has neither `apiVersion` nor `kind`, so it is not an object",
            "add both, or leave the document out",
        ));
    }
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    if let Some(UnknownKind { field, message, remedy, .. }) = UnknownKind::of(written) {
        return Err(FieldError::new(FieldPath::of(field), message, remedy));
    }
    let Some((kind, version)) = Kind::from_gvk(api_version, kind) else {
        return Err(FieldError::new(FieldPath::of("kind"), "is unknown", ""));
    };
    if !kind.writable() {
        return Err(FieldError::new(
            FieldPath::of("kind"),
            format!("a `{kind}` is not written by hand"),
            "submit a Job; its workload is made for it",
        ));
    }
    Ok((kind, version))
}

/// The object in the storage version, without fields that only servers write.
fn as_stored(kind: Kind, version: &'static str, mut stored: Value, findings: &Findings) -> Option<Value> {
    if stored
        .as_object_mut()?
        .remove("status")
        .is_some_and(|status| status.as_object().is_none_or(|status| !status.is_empty()))
    {
        findings.warn(FieldPath::of("status"), "is left out: only the manager writes it", "");
    }
    tidy_metadata(kind, &mut stored, findings);
    quote_annotations(&mut stored, findings);
    if let Some(job) = kind.job() {
        job.complete(&mut stored);
    }
    conversion::to_storage(kind, version, &mut stored, findings);
    (!findings.has_errors()).then_some(stored)
}

fn read(kind: Kind, version: &'static str, stored: Value, findings: &Findings) -> Option<Object> {
    let root = Fields::root(findings, stored.as_object()?);
    root.known(&["apiVersion", "kind"]);
    let identity = read_metadata(kind, &root);
    let spec = spec::read(kind, &root, &identity.labels, &identity.annotations)?;
    root.finish();
    if !findings.has_errors() {
        spec::rules::check(&spec, findings);
    }
    let Identity { name, namespace, generate_name, labels, annotations } = identity;
    Some(Object { kind, version, name, namespace, generate_name, labels, annotations, spec, stored })
}

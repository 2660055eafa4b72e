//! One object: its identity, its typed spec, and the whole of what was written.

use crate::conversion;
use crate::field::{FieldError, FieldPath, Fields, Findings, Warning};
use crate::kind::Kind;
use crate::names;
use crate::spec::{self, Spec};
use crate::text::node::MAX_DEPTH;
use crate::validate;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Where namespaced objects live whose file names no namespace.
pub const DEFAULT_NAMESPACE: &str = "default";
/// Largest sum of the keys and values of an object's annotations, in bytes, as in Kubernetes.
pub(crate) const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;
/// Longest name of a Job, in characters: its pods carry it as a label.
const MAX_JOB_NAME_CHARS: usize = 63;
/// Longest prefix of a generated name, in characters: five are added, and the name must stay a label.
const MAX_GENERATE_NAME_CHARS: usize = 58;

/// An object that was read without errors. Those are equal that say the same, in whatever version they were written.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// The version in which it was written.
    pub version: &'static str,
    /// Its name; empty while only [`Self::generate_name`] is there.
    pub name: String,
    /// Its namespace, where one is written; the caller puts [`DEFAULT_NAMESPACE`] or its own in.
    pub namespace: Option<String>,
    /// What a name is to be made from.
    pub generate_name: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// What the kind is about, parsed.
    pub spec: Spec,
    /// The whole object in the storage version, without `status`, with the fields that we do not know.
    pub stored: Value,
}

impl Object {
    /// Reads an object of any served version.
    pub fn from_value(written: Value) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::read_with(written, Findings::default())
    }

    /// Reads an object that was accepted before, whatever rules came since: what is stored must always be read again.
    pub fn from_stored(stored: Value) -> Result<Self, Vec<FieldError>> {
        Self::read_with(stored, Findings::trusting()).map(|(object, _)| object)
    }

    /// Reads an object of any served version, as strictly as `findings` say.
    pub(crate) fn read_with(
        written: Value,
        findings: Findings,
    ) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        if is_deeper(&written, MAX_DEPTH) {
            findings.error(
                FieldPath::default(),
                format!("lists and mappings stand more than {MAX_DEPTH} deep in each other"),
                "write it flatter",
            );
        }
        let (kind, version) = identify(&written).map_err(|error| vec![error])?;
        let plain_checks = conversion::has_plain_checks(&written);
        let stored = as_stored(kind, version, written, &findings);
        let converted = stored.is_some();
        let read = stored.and_then(|stored| read((kind, version), stored, &findings));
        let (mut errors, mut warnings) = findings.into_parts();
        // What was found before is in the writer's words.
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

    /// The object as `version` shows it; the storage version for one that is not served.
    pub fn in_version(&self, version: &str) -> Value {
        conversion::to_version(self.kind, &self.stored, version)
    }

    /// The namespace, or the default one; `None` for kinds without.
    pub fn namespace_or_default(&self) -> Option<&str> {
        self.kind.namespaced().then(|| self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE))
    }

    /// Puts the object into a namespace, in [`Self::stored`] too. Kinds without namespaces stay as they are.
    pub fn set_namespace(&mut self, namespace: &str) {
        if self.kind.namespaced() {
            self.namespace = Some(namespace.to_owned());
            self.stored["metadata"]["namespace"] = json!(namespace);
        }
    }

    /// Gives the object its name, in [`Self::stored`] too; `generateName` goes.
    pub fn set_name(&mut self, name: &str) {
        self.name = name.to_owned();
        self.generate_name = None;
        if let Some(metadata) = self.stored.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("generateName");
            metadata.insert("name".to_owned(), json!(name));
        }
        if let Spec::Namespace(namespace) = &mut self.spec {
            namespace.labels = spec::core::with_name(std::mem::take(&mut namespace.labels), name);
        }
    }

    /// `kind/namespace/name` or `kind/name`, for people; a name still to be made shows as its prefix and `*`.
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

/// Whether lists and mappings stand deeper in each other than that.
fn is_deeper(value: &Value, most: usize) -> bool {
    match value {
        Value::Array(items) => most == 0 || items.iter().any(|value| is_deeper(value, most - 1)),
        Value::Object(fields) => most == 0 || fields.values().any(|value| is_deeper(value, most - 1)),
        _ => false,
    }
}

/// The kind and version that an object names itself.
fn identify(written: &Value) -> Result<(Kind, &'static str), FieldError> {
    let text = |name: &str| match written.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        Some(Value::String(_) | Value::Null) | None => {
            Err(FieldError::new(FieldPath::of(name), "is missing", format!("add `{name}`")))
        }
        Some(_) => Err(FieldError::new(FieldPath::of(name), "must be a string", "write a string here")),
    };
    if !written.is_object() {
        let message = format!("an object must be a mapping, not {}", crate::field::type_name(written));
        return Err(FieldError::new(
            FieldPath::default(),
            message,
            "write `apiVersion`, `kind`, `metadata` and the rest",
        ));
    }
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let Some((kind, version)) = Kind::from_gvk(api_version, kind) else {
        let (version_is_wrong, message, remedy) = Kind::unknown(api_version, kind);
        return Err(FieldError::new(
            FieldPath::of(if version_is_wrong { "apiVersion" } else { "kind" }),
            message,
            remedy,
        ));
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

/// The object in the storage version, without what isn't the writer's.
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
    conversion::to_storage(kind, version, &mut stored, findings);
    (!findings.has_errors()).then_some(stored)
}

fn read((kind, version): (Kind, &'static str), stored: Value, findings: &Findings) -> Option<Object> {
    let root = Fields::root(findings, stored.as_object()?);
    root.known(&["apiVersion", "kind"]);
    let identity = read_metadata(kind, &root);
    let spec = spec::read(kind, &root, &identity.labels, &identity.annotations)?;
    root.finish();
    if !findings.has_errors() {
        validate::check(&spec, findings);
    }
    let Identity { name, namespace, generate_name, labels, annotations } = identity;
    Some(Object { kind, version, name, namespace, generate_name, labels, annotations, spec, stored })
}

/// Takes out what a server wrote into a file that was once read back, and a namespace where there can be none.
fn tidy_metadata(kind: Kind, stored: &mut Value, findings: &Findings) {
    let Some(metadata) = stored.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in ["managedFields", "selfLink"] {
        metadata.remove(name);
    }
    if metadata.get("creationTimestamp").is_some_and(Value::is_null) {
        metadata.remove("creationTimestamp");
    }
    if !kind.namespaced() && metadata.remove("namespace").is_some_and(|namespace| !namespace.is_null()) {
        findings.warn(
            FieldPath::of("metadata.namespace"),
            format!("is left out: a {kind} has no namespace"),
            "remove it",
        );
    }
}

/// Takes a whole number where an annotation wants a string: which one was meant is plain.
fn quote_annotations(stored: &mut Value, findings: &Findings) {
    for place in ["metadata.annotations", "spec.template.metadata.annotations"] {
        let annotations =
            stored.pointer_mut(&format!("/{}", place.replace('.', "/"))).and_then(Value::as_object_mut);
        for (name, value) in
            annotations.into_iter().flatten().filter(|(_, value)| value.is_i64() || value.is_u64())
        {
            let quoted = Value::String(value.to_string());
            findings.warn(
                FieldPath::of(place).key(name),
                format!("must be a string, and is taken as {quoted}"),
                "quote it",
            );
            *value = quoted;
        }
    }
}

struct Identity {
    name: String,
    namespace: Option<String>,
    generate_name: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn read_metadata(kind: Kind, root: &Fields<'_>) -> Identity {
    let mut identity = Identity {
        name: String::new(),
        namespace: None,
        generate_name: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    let Some(metadata) = root.require("metadata").and_then(|item| item.fields()) else { return identity };
    metadata.known(&["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"]);
    metadata.known(&["deletionGracePeriodSeconds", "ownerReferences", "finalizers"]);
    identity.name = metadata.text("name").unwrap_or_default().to_owned();
    identity.generate_name =
        metadata.text("generateName").filter(|prefix| !prefix.is_empty()).map(str::to_owned);
    identity.labels = spec::scheduling::labels(&metadata, "labels");
    identity.annotations = read_annotations(&metadata);
    if let Some(namespace) = metadata.text("namespace").filter(|namespace| !namespace.is_empty()) {
        if !names::is_dns_label(namespace) {
            metadata.error(
                "namespace",
                format!("`{namespace}` is not a namespace's name"),
                "use at most 63 lower-case letters, digits and `-`",
            );
        }
        identity.namespace = Some(namespace.to_owned());
    }
    if identity.name.is_empty() && identity.generate_name.is_none() {
        if !metadata.findings().has_errors() {
            metadata.error(
                "name",
                "is missing",
                "add `name`, or `generateName` for an object that is created anew every time",
            );
        }
    } else {
        check_name(kind, &metadata, &identity);
    }
    metadata.finish();
    identity
}

fn check_name(kind: Kind, metadata: &Fields<'_>, identity: &Identity) {
    let (rule, most): (fn(&str) -> bool, usize) = match kind {
        Kind::Namespace | Kind::Cluster => (names::is_dns_label, names::MAX_LABEL_CHARS),
        Kind::Job => (names::is_dns_subdomain, MAX_JOB_NAME_CHARS),
        _ => (names::is_dns_subdomain, names::MAX_SUBDOMAIN_CHARS),
    };
    let name = &identity.name;
    if !name.is_empty() && name.chars().count() > most {
        metadata.error("name", format!("`{name}` is too long"), format!("the most is {most} characters"));
    } else if !name.is_empty() && !rule(name) {
        let dot = if most == names::MAX_LABEL_CHARS && kind != Kind::Job { "" } else { ", `.`" };
        let remedy = match names::closest_name(name) {
            Some(near) if near != *name => {
                format!("use lower-case letters, digits{dot} and `-`, for example `{near}`")
            }
            _ => format!(
                "use lower-case letters, digits{dot} and `-`, beginning and ending with a letter or digit"
            ),
        };
        metadata.error("name", format!("`{name}` is not a name"), remedy);
    }
    let Some(prefix) = identity.generate_name.as_ref().filter(|_| name.is_empty()) else { return };
    if prefix.chars().count() > MAX_GENERATE_NAME_CHARS {
        metadata.error(
            "generateName",
            "is too long",
            format!("the most is {MAX_GENERATE_NAME_CHARS} characters"),
        );
    } else if !rule(&format!("{prefix}0")) {
        metadata.error(
            "generateName",
            format!("`{prefix}` cannot begin a name"),
            "use lower-case letters, digits and `-`",
        );
    }
}

fn read_annotations(metadata: &Fields<'_>) -> BTreeMap<String, String> {
    let all = metadata.strings("annotations");
    for key in all.keys().filter(|key| !names::is_label_key(&key.to_lowercase())) {
        let at = metadata.path().key("annotations").key(key);
        metadata.findings().error(
            at,
            format!("`{key}` is not an annotation key"),
            "use letters, digits, `-`, `_` and `.`, with at most one `/`",
        );
    }
    let bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_ANNOTATIONS_BYTES {
        metadata.error(
            "annotations",
            format!("are {bytes} bytes together"),
            format!("the most is {MAX_ANNOTATIONS_BYTES}"),
        );
    }
    all
}

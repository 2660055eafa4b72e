//! Reads everything that decisions on queues depend on, for plans: ordinary objects, and workloads, nodes and
//! pods, which only clusters make. Nothing of it is stored.
//!
//! [`plan_set`] reads files as strictly as [`crate::parse_set`]. [`PlanObject::lenient`] reads one value
//! without enforcing schemas and rules, for recorded cases and half-edited dumps.

use crate::fields::{FieldError, FieldPath, FieldValidation, Fields, Findings, Warning};
use crate::files::{self, Parsed, ReadDocument, Strictness};
use crate::kind::{KUEUE_GROUP, Kind, V1BETA1, V1BETA2};
use crate::object::Object;
use crate::object::conversion;
use crate::object::unknown::UnknownKind;
use crate::spec::meta::Meta;
use crate::spec::node::{self, NodeObject, PodObject};
use crate::spec::workload::{self, Condition, WorkloadObject};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlanObject {
    /// An object of a kind that a manager stores.
    Object(Box<PlannedObject>),
    Workload(Box<WorkloadObject>),
    Node(Box<NodeObject>),
    Pod(Box<PodObject>),
}

/// An ordinary object with the fields that a server added.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlannedObject {
    /// The object without its status.
    pub object: Object,
    /// Empty when none is written.
    pub uid: String,
    /// In milliseconds since 1970.
    pub created: Option<i64>,
    pub conditions: Vec<Condition>,
    /// As written; null when there is none.
    pub status: Value,
}

pub type ParsedForPlan = Parsed<PlanObject>;

/// Reads several files for one plan.
pub fn plan_set(files: &[(&str, &str)]) -> ParsedForPlan {
    files::read_set(files, Strictness::default())
}

/// A kind that only plans read.
#[derive(Clone, Copy)]
enum PlanKind {
    Workload(&'static str),
    Node,
    Pod,
}

impl PlanKind {
    fn of(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        match (text("apiVersion")?, text("kind")?) {
            ("v1", "Node") => Some(Self::Node),
            ("v1", "Pod") => Some(Self::Pod),
            (api_version, "Workload") => match api_version.strip_prefix(KUEUE_GROUP)?.strip_prefix('/')? {
                V1BETA1 => Some(Self::Workload(V1BETA1)),
                V1BETA2 => Some(Self::Workload(V1BETA2)),
                _ => None,
            },
            _ => None,
        }
    }

    fn read(self, mut value: Value, findings: &Findings) -> Option<PlanObject> {
        if let Self::Workload(version) = self {
            conversion::to_storage(Kind::Workload, version, &mut value, findings);
        }
        let root = Fields::root(findings, value.as_object()?);
        Some(match self {
            Self::Node => PlanObject::Node(Box::new(node::read_node(&root))),
            Self::Pod => PlanObject::Pod(Box::new(node::read_pod(&root))),
            Self::Workload(_) => {
                let (meta, spec, status) = workload::read(&root);
                root.finish();
                PlanObject::Workload(Box::new(WorkloadObject { meta, spec, status, stored: value }))
            }
        })
    }
}

impl PlanObject {
    /// Reads an object by the rules of its schema. Fails with all errors.
    pub fn from_value(written: Value) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::read(written, Findings::planned(FieldValidation::Warn))
    }

    /// Reads an object leniently: names, bounds and rules between fields aren't checked, and an amount that
    /// is too large becomes the largest one. Fails with all errors in one line.
    pub fn lenient(written: &Value) -> Result<Self, String> {
        Self::read(written.clone(), Findings::lenient()).map(|(object, _)| object).map_err(|errors| {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            all.join("; ")
        })
    }

    /// `kind/namespace/name` or `kind/name`, for messages.
    pub fn title(&self) -> String {
        match self {
            Self::Object(planned) => planned.object.title(),
            Self::Workload(workload) => format!("workload/{}", workload.meta.key()),
            Self::Node(node) => format!("node/{}", node.meta.name),
            Self::Pod(pod) => format!("pod/{}", pod.meta.key()),
        }
    }

    fn read(written: Value, findings: Findings) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        let Some(seen) = PlanKind::of(&written) else { return read_object(written, findings) };
        let read = seen.read(written, &findings);
        let (mut errors, mut warnings) = findings.into_parts();
        if let PlanKind::Workload(version) = seen {
            for path in errors
                .iter_mut()
                .map(|error| &mut error.field)
                .chain(warnings.iter_mut().map(|warning| &mut warning.field))
            {
                conversion::path_in_version(Kind::Workload, version, false, path);
            }
        }
        match read {
            Some(object) if errors.is_empty() => Ok((object, warnings)),
            _ => Err(errors),
        }
    }

    fn meta(&self) -> Option<(&'static str, &Meta)> {
        match self {
            Self::Object(_) => None,
            Self::Workload(workload) => Some(("Workload", &workload.meta)),
            Self::Node(node) => Some(("Node", &node.meta)),
            Self::Pod(pod) => Some(("Pod", &pod.meta)),
        }
    }
}

fn read_object(
    mut written: Value,
    findings: Findings,
) -> Result<(PlanObject, Vec<Warning>), Vec<FieldError>> {
    // Keep the status, even if a manager would drop it.
    let status = written.as_object_mut().and_then(|map| map.remove("status")).unwrap_or_default();
    let seen = if findings.is_lenient() { Findings::lenient() } else { Findings::default() };
    let conditions = status
        .as_object()
        .map(|status| workload::conditions(&Fields::root(&seen, status)))
        .unwrap_or_default();
    let metadata = written.get("metadata").and_then(Value::as_object);
    let created = metadata
        .and_then(|metadata| crate::spec::meta::time(&Fields::root(&seen, metadata), "creationTimestamp"));
    let uid = metadata
        .and_then(|metadata| metadata.get("uid"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let (errors, _) = seen.into_parts();
    if let Some(error) = errors.into_iter().next() {
        let path = if error.field.to_string() == "creationTimestamp" { "metadata" } else { "status" };
        let mut field = FieldPath::of(path);
        field.0.extend(error.field.0);
        return Err(vec![FieldError { field, ..error }]);
    }
    let (object, warnings) = Object::read_with(written, findings)?;
    Ok((PlanObject::Object(Box::new(PlannedObject { object, uid, created, conditions, status })), warnings))
}

impl ReadDocument for PlanObject {
    fn foreign(written: &Value) -> Option<UnknownKind> {
        if PlanKind::of(written).is_some() { None } else { Object::foreign(written) }
    }

    fn read(written: Value, validation: FieldValidation) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::read(written, Findings::planned(validation))
    }

    fn identity(&self) -> (&'static str, Option<String>, String) {
        match (self, self.meta()) {
            (Self::Object(planned), _) => planned.object.identity(),
            (_, Some((kind, meta))) => (kind, Some(meta.namespace.clone()), meta.name.clone()),
            (_, None) => unreachable!("only ordinary objects have metadata of another sort"),
        }
    }

    fn title(&self) -> String {
        PlanObject::title(self)
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(a), Self::Object(b)) => a.object.same(&b.object) && a.status == b.status,
            _ => self == other,
        }
    }

    fn object(&self) -> Option<&Object> {
        match self {
            Self::Object(planned) => Some(&planned.object),
            Self::Workload(_) | Self::Node(_) | Self::Pod(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;

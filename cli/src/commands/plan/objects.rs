//! The given objects: their names and namespaces, and whether a plan can evaluate them.

use crate::error::Error;
use crate::session::Session;
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::{Kind, Located, Spec};
use meridian_planning::load::{affects_plans, cyclic_cohorts};
use std::collections::{BTreeMap, BTreeSet};

/// Identity of an object: objects with different values are different objects.
#[derive(PartialEq, Eq)]
pub(super) struct Identity {
    kind: &'static str,
    namespace: String,
    name: String,
}

pub(super) fn identity(object: &PlanObject) -> Identity {
    match object {
        PlanObject::Object(planned) => {
            let namespace = planned.object.namespace_or_default().unwrap_or_default().to_owned();
            Identity { kind: planned.object.kind.name(), namespace, name: planned.object.name.clone() }
        }
        PlanObject::Workload(workload) => Identity {
            kind: Kind::Workload.name(),
            namespace: workload.meta.namespace.clone(),
            name: workload.meta.name.clone(),
        },
        PlanObject::Node(node) => {
            Identity { kind: "Node", namespace: String::new(), name: node.meta.name.clone() }
        }
        PlanObject::Pod(pod) => {
            Identity { kind: "Pod", namespace: pod.meta.namespace.clone(), name: pod.meta.name.clone() }
        }
    }
}

/// The kinds of the given objects that a manager stores.
pub(super) fn kinds(given: &[PlanObject]) -> BTreeSet<Kind> {
    let kind = |object: &PlanObject| match object {
        PlanObject::Object(planned) => Some(planned.object.kind),
        _ => None,
    };
    given.iter().filter_map(kind).collect()
}

/// Whether plans depend on the object.
pub(super) fn is_evaluated(object: &PlanObject) -> bool {
    match object {
        PlanObject::Object(planned) => affects_plans(planned.object.kind),
        PlanObject::Workload(_) | PlanObject::Node(_) | PlanObject::Pod(_) => true,
    }
}

/// The field of a changed object that decides which clusters may run a workload, for a message: plans don't
/// evaluate it. `existing` is the object before the change, if it exists.
pub(super) fn names_clusters(existing: Option<&PlanObject>, changed: &PlanObject) -> Option<String> {
    let PlanObject::Object(planned) = changed else { return None };
    let title = changed.title();
    if [Kind::AdmissionCheck, Kind::MultiKueueConfig].contains(&planned.object.kind) {
        return Some(format!("`{title}`"));
    }
    let Some(PlanObject::Object(existing)) = existing else { return None };
    let field = match (&existing.object.spec, &planned.object.spec) {
        (Spec::ClusterQueue(old), Spec::ClusterQueue(new)) => {
            (old.admission_checks != new.admission_checks).then_some("spec.admissionChecksStrategy")
        }
        (Spec::ResourceFlavor(old), Spec::ResourceFlavor(new)) => {
            (old.node_labels != new.node_labels).then_some("spec.nodeLabels")
        }
        _ => None,
    };
    field.map(|field| format!("`{field}` of `{title}`"))
}

/// A note for each object that plans don't depend on.
pub(super) fn ignored_notes(given: &[PlanObject]) -> Vec<String> {
    let note = |object: &PlanObject| {
        format!("`{}` isn't evaluated: plans cover queues and quota only", object.title())
    };
    given.iter().filter(|object| !is_evaluated(object)).map(note).collect()
}

/// Fails if a cohort is its own ancestor, as `apply` does.
pub(super) fn refuse_cyclic_cohorts(objects: &[PlanObject]) -> Result<(), Error> {
    let problems: Vec<String> = cyclic_cohorts(objects)
        .into_iter()
        .map(|(name, parent)| {
            format!(
                "cohort `{name}` would be its own ancestor through `{parent}`: name another parent, or none"
            )
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Error::Refused(problems.join("\n"))) }
}

/// Sets missing namespaces, and names for `generateName`. The default namespace is that of `--namespace`,
/// else that of the kubeconfig if a manager is asked (`online`), else `default`.
///
/// Fails if an object is in another namespace than `--namespace`.
pub(super) fn resolve_names(
    session: &mut Session,
    objects: Vec<Located<PlanObject>>,
    online: bool,
) -> Result<Vec<PlanObject>, Error> {
    let requested = session.named_namespace().map(str::to_owned);
    let default_namespace = match &requested {
        Some(requested) => requested.clone(),
        None if online => session.namespace()?,
        None => DEFAULT_NAMESPACE.to_owned(),
    };
    let mut generated: BTreeMap<String, u32> = BTreeMap::new();
    let mut resolved = Vec::with_capacity(objects.len());
    for Located { place, value: mut object } in objects {
        let title = object.title();
        let declared = match &mut object {
            PlanObject::Object(planned) => {
                generate_name(planned, &mut generated);
                set_object_namespace(planned, &default_namespace)
            }
            PlanObject::Workload(workload) => set_namespace(&mut workload.meta.namespace, &default_namespace),
            // The namespace of a pod doesn't matter: the pod only uses capacity of its node.
            PlanObject::Pod(pod) => {
                set_namespace(&mut pod.meta.namespace, &default_namespace);
                None
            }
            PlanObject::Node(_) => None,
        };
        if let (Some(declared), Some(requested)) = (declared, &requested)
            && declared != *requested
        {
            return Err(Error::Refused(format!(
                "{place}: `{title}` is in namespace `{declared}`, not `{requested}`: omit `--namespace`"
            )));
        }
        resolved.push(object);
    }
    Ok(resolved)
}

/// Numbers names of the same prefix.
fn generate_name(planned: &mut PlannedObject, generated: &mut BTreeMap<String, u32>) {
    let object = &mut planned.object;
    if let (true, Some(prefix)) = (object.name.is_empty(), object.generate_name.clone()) {
        let number = generated.entry(prefix.clone()).or_default();
        *number += 1;
        object.set_name(&format!("{prefix}{number}"));
    }
}

/// Returns the declared namespace, if the kind has namespaces.
fn set_object_namespace(planned: &mut PlannedObject, default: &str) -> Option<String> {
    let object = &mut planned.object;
    let declared = object.namespace.clone();
    if object.kind.namespaced() && declared.is_none() {
        object.set_namespace(default);
    }
    declared.filter(|_| object.kind.namespaced())
}

/// Returns the declared namespace.
fn set_namespace(namespace: &mut String, default: &str) -> Option<String> {
    if namespace.is_empty() {
        default.clone_into(namespace);
        return None;
    }
    Some(namespace.clone())
}

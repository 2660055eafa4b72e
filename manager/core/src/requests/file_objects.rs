//! Objects that the files of the setting `objects` declare. Files own the fields that they have, and delete
//! nothing: an object that no file declares any more stays, and such a cluster gets no new work.
//!
//! Files must not change unnoticed where gangs may run. So they declare no policies, don't move a cluster to
//! another place, and lift only cordons that they made.

use super::cordon_marks::{self, MARK, is_managed};
use crate::dispatch::residency;
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::input::{Change, Write};
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, WriteResult, Written};
use crate::facts::record::{ObjectFact, Record};
use crate::requests::rejection::key_of;
use crate::state::catalog::{Catalog, Stored};
use crate::world::turn::Turn;
use meridian_objects::{FieldError, Kind, Object, Spec};
use meridian_shared::ids::ClusterName;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Value of [`MARK`] in a cluster that the files no longer declare.
const FILES: &str = "objects-files";
/// Annotation of an object that a file declares, with the file's name.
pub const FILE: &str = "meridian.dev/objects-file";

/// Kinds that files may declare: they describe clusters and nodes. The other kinds decide who may run what
/// and where, so only operators change them.
const KINDS: [Kind; 3] = [Kind::Cluster, Kind::ResourceFlavor, Kind::Topology];

/// Adds an annotation with the name of the file that declares the object.
///
/// # Errors
/// The object can't be read with that annotation.
pub fn declared_in(object: &Object, file: &str) -> Result<Object, Vec<FieldError>> {
    let mut value = object.stored.clone();
    value["metadata"]["annotations"][FILE] = json!(file);
    Object::from_stored(value)
}

/// The object without the cordon that the files made, if they made one.
pub(super) fn without_cordon(object: &Object) -> Value {
    let is_of_files = object.annotations.get(MARK).is_some_and(|by| by == FILES);
    if is_of_files { cordon_marks::without_cordon(object) } else { object.stored.clone() }
}

/// Rejects changes that files may not make, before their objects are merged into the stored ones.
pub(super) fn check(catalog: &Catalog, write: &Write) -> Vec<Rejection> {
    let puts = write.changes.iter().enumerate().filter_map(|(index, change)| match change {
        Change::Put { object, .. } if write.from_files => Some((index, object)),
        _ => None,
    });
    puts.filter_map(|(index, object)| {
        let (reason, field, message) = refusal(catalog, object)?;
        let field = (!field.is_empty()).then(|| field.to_owned());
        Some(Rejection { index, reason, field, message, in_use: None })
    })
    .collect()
}

fn refusal(catalog: &Catalog, object: &Object) -> Option<(RejectionReason, &'static str, String)> {
    let kind = object.kind;
    if !KINDS.contains(&kind) {
        let [cluster, flavor, topology] = KINDS;
        let message = format!(
            "the files of `objects` may declare only {cluster}, {flavor} and {topology} objects: use \
             `meridian apply` for a {kind}"
        );
        return Some((RejectionReason::Invalid, "kind", message));
    }
    let key = key_of(object, None);
    if catalog.get(&key).is_some_and(is_managed) {
        let message = format!(
            "{key} comes from the management cluster, which takes precedence: remove it from the files, or \
             delete it there with `kubectl`"
        );
        return Some((RejectionReason::Forbidden, "", message));
    }
    let Spec::Cluster(spec) = &object.spec else { return None };
    let sets_cordon = object.stored.pointer("/spec/cordoned").is_some_and(|set| !set.is_null());
    if sets_cordon || object.annotations.contains_key(MARK) {
        let field = if sets_cordon { "spec.cordoned" } else { "metadata.annotations" };
        let message = "files can't set cordons, because they would undo an operator's command at each start: \
                       remove this field, and use `meridian cluster cordon` or `uncordon`";
        return Some((RejectionReason::Invalid, field, message.to_owned()));
    }
    let there = catalog.cluster(&ClusterName::new(&object.name))?;
    let (field, value) = if there.region != spec.region {
        ("spec.region", there.region.to_string())
    } else if there.jurisdiction != spec.jurisdiction {
        ("spec.jurisdiction", there.jurisdiction.to_string())
    } else {
        return None;
    };
    let message = format!(
        "{key} has `{value}`, and files can't change that, because residency policies depend on it: correct \
         the file, or change the cluster with `meridian edit`"
    );
    Some((RejectionReason::Conflict, field, message))
}

/// Lifts the cordons that the files made, of clusters that have returned to them. The objects must be merged
/// already, because only stored objects have the mark.
pub(super) fn lift_cordons(write: &mut Write) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    if !write.from_files {
        return rejections;
    }
    for (index, change) in write.changes.iter_mut().enumerate() {
        let Change::Put { object, .. } = change else { continue };
        let lifted = without_cordon(object);
        if lifted == object.stored {
            continue;
        }
        match Object::from_stored(lifted) {
            Ok(lifted) => **object = lifted,
            Err(errors) => rejections.extend(errors.iter().map(|error| Rejection {
                index,
                reason: RejectionReason::Invalid,
                field: Some(error.field.to_string()),
                message: format!("without its cordon, {}; {}", error.message, error.remedy),
                in_use: None,
            })),
        }
    }
    rejections
}

/// Releases the objects that no file declares any more. They stay, but clusters are cordoned, because their
/// region is probably about to be removed. Returns the result for each object.
pub(super) fn release_absent(turn: &mut Turn<'_>, write: &Write) -> Vec<Written> {
    if !write.from_files || write.dry_run {
        return Vec::new();
    }
    let declared: BTreeSet<Key> = write
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::Put { object, .. } => Some(key_of(object, None)),
            _ => None,
        })
        .collect();
    let is_absent = |key: &Key, stored: &Stored| {
        key.scope.is_none()
            && stored.object.annotations.contains_key(FILE)
            && !is_managed(stored)
            && !declared.contains(key)
    };
    let catalog = turn.world.state().catalog().iter();
    let absent: Vec<(Key, Stored)> = catalog
        .filter(|(key, stored)| is_absent(key, stored))
        .map(|(key, stored)| (key.clone(), stored.clone()))
        .collect();
    absent.into_iter().filter_map(|(key, stored)| release(turn, key, &stored)).collect()
}

/// Releases one object. `None` if it can't be read without the annotation, which should not happen.
fn release(turn: &mut Turn<'_>, key: Key, stored: &Stored) -> Option<Written> {
    let cordons = matches!(&stored.object.spec, Spec::Cluster(spec) if !spec.cordoned);
    let mut value = stored.object.stored.clone();
    if cordons {
        value["spec"]["cordoned"] = json!(true);
        value["metadata"]["annotations"][MARK] = json!(FILES);
    }
    if let Some(Value::Object(annotations)) = value.pointer_mut("/metadata/annotations") {
        annotations.remove(FILE);
    }
    let object = Box::new(Object::from_stored(value).ok()?);
    let (uid, by) = (stored.uid, Actor::System);
    let fact = ObjectFact::Applied { object, uid, at: turn.now.wall, by: by.clone() };
    turn.record(Record::Object { key: key.clone(), fact });
    if cordons {
        let entry =
            Entry { cluster: Some(key.name.to_string()), ..Entry::new(Action::Cordon, String::new()) };
        turn.audit(by, entry);
        residency::recheck_residency(turn);
        turn.capacity_changed();
    }
    let warning = if key.kind == Kind::Cluster {
        format!(
            "{key} is no longer in the files of `objects`: it stays, cordoned, and its workloads continue; \
             run `meridian cluster drain {name}`, and `meridian delete cluster {name}` once it is empty",
            name = key.name
        )
    } else {
        format!("{key} is no longer in the files of `objects`, and stays: delete it if nothing needs it")
    };
    Some(Written { key, uid, result: WriteResult::Configured, warnings: vec![warning] })
}

//! Validation of changes against the stored objects and the workloads.

use crate::config::Config;
use crate::facts::actor::Actor;
use crate::facts::input::{Change, PutMode};
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::facts::read_job::ReadJob;
use crate::facts::submission::Class;
use crate::requests::{activity, deletion, jobs, rejection};
use crate::state::catalog::Catalog;
use crate::world::turn::Turn;
use meridian_objects::{Kind, Object, any_job};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::lease;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Checks one change and applies it to `catalog`, so that later changes of the request see it. Returns the
/// class that a submitted or changed job would have. `seen` holds the keys of the request's earlier changes.
pub(crate) fn judge_change(
    turn: &Turn<'_>,
    catalog: &mut Cow<'_, Catalog>,
    change: &Change,
    job: Option<&ReadJob>,
    by: &Actor,
    seen: &mut BTreeSet<Key>,
) -> Result<Option<Class>, Rejection> {
    let key = match change {
        Change::Put { object, scope, .. } => rejection::key_of(object, scope.as_ref()),
        Change::SetActive { key, .. } | Change::Delete { key, .. } => key.clone(),
    };
    if !seen.insert(key.clone()) {
        return rejection::reject(
            RejectionReason::Invalid,
            None,
            format!("{key} appears twice in one request"),
        );
    }
    match change {
        Change::Put { object, uid, mode, .. } => {
            judge_kind(&key, object.kind)?;
            judge_put_mode(turn, catalog, &key, object.kind, mode)?;
            if object.kind.is_job() {
                judge_uid(turn, &key, *uid)?;
                let not_a_job = || {
                    rejection::reject(RejectionReason::Invalid, Some("kind"), format!("{key} isn't a job"))
                };
                return job.map_or_else(not_a_job, |job| jobs::judge_job(turn, catalog, job, &key));
            }
            judge_value(catalog, &key, object)?;
            catalog.to_mut().put(
                key,
                (**object).clone(),
                *uid,
                turn.now.wall,
                turn.world.state.last(),
                by.clone(),
            );
            Ok(None)
        }
        Change::SetActive { active, version, .. } => {
            activity::judge_activity(turn, &key, *active, *version).map(|()| None)
        }
        Change::Delete { uid, force, .. } => {
            let existing = match key.kind {
                any_job!() => rejection::job_at(turn, &key),
                _ => catalog.get(&key).map(|s| s.uid),
            };
            match (existing, uid) {
                (None, _) => {
                    rejection::reject(RejectionReason::NotFound, None, format!("{key} doesn't exist"))
                }
                (Some(has), Some(expected)) if has != *expected => {
                    rejection::reject(RejectionReason::Conflict, None, format!("{key} has another uid now"))
                }
                (Some(_), _) => {
                    deletion::judge_delete(turn, catalog, &key, *force)?;
                    if !key.kind.is_job() {
                        catalog.to_mut().remove(&key);
                    }
                    Ok(None)
                }
            }
        }
    }
}

fn judge_kind(key: &Key, kind: Kind) -> Result<(), Rejection> {
    if let Some(cluster) = key.scope.as_ref().filter(|_| !meridian_objects::applies_to_clusters(kind)) {
        let message =
            format!("a {kind} can't apply to cluster `{cluster}` alone: apply it without `--cluster`");
        return rejection::reject(RejectionReason::Invalid, Some("kind"), message);
    }
    if kind == Kind::Workload {
        return rejection::reject(
            RejectionReason::Forbidden,
            None,
            "workloads are created from jobs: submit the job".into(),
        );
    }
    Ok(())
}

/// Checks that the object exists if it is to be replaced, that it doesn't if it is to be created, and that it
/// didn't change since the version that the user read. Changes of the status don't count.
fn judge_put_mode(
    turn: &Turn<'_>,
    catalog: &Catalog,
    key: &Key,
    kind: Kind,
    mode: &PutMode,
) -> Result<(), Rejection> {
    let (exists, changed) = match kind {
        any_job!() => {
            let existing = rejection::job_at(turn, key);
            (existing.is_some(), existing.and_then(|u| turn.workload(u)).map(|w| w.changed()))
        }
        _ => (catalog.get(key).is_some(), catalog.get(key).map(|s| s.changed)),
    };
    match (mode, exists) {
        (PutMode::Create, true) => {
            rejection::reject(RejectionReason::AlreadyExists, None, format!("{key} already exists"))
        }
        (PutMode::Replace(_), false) => {
            rejection::reject(RejectionReason::NotFound, None, format!("{key} doesn't exist"))
        }
        (PutMode::Replace(Some(version)), true)
            if *version > turn.world.state.last() || changed.is_none_or(|at| at > *version) =>
        {
            rejection::reject(
                RejectionReason::Conflict,
                None,
                format!("{key} changed since version {version}: read it again and repeat the change"),
            )
        }
        _ => Ok(()),
    }
}

/// Refuses a new job with the uid of an orphan: the job would run twice.
fn judge_uid(turn: &Turn<'_>, key: &Key, uid: Uid) -> Result<(), Rejection> {
    const FIRST: Fence = Fence { epoch: 0, leadership: 0, counter: 0 };
    let orphan = turn.world.state.orphans().range((uid, FIRST)..).next().filter(|((of, _), _)| *of == uid);
    match orphan.filter(|_| rejection::job_at(turn, key).is_none()) {
        Some((_, orphan)) => rejection::reject(
            RejectionReason::Conflict,
            None,
            format!(
                "`{uid}` still runs in cluster `{}` as an orphan, which this journal doesn't know: \
                 adopt that run as {key}, or stop it",
                orphan.cluster
            ),
        ),
        None => Ok(()),
    }
}

/// Refuses to change the value of a PriorityClass, as Kubernetes does: workloads keep the value that they
/// were given.
fn judge_value(catalog: &Catalog, key: &Key, object: &Object) -> Result<(), Rejection> {
    use meridian_objects::Spec;
    match (&object.spec, catalog.get(key).map(|stored| &stored.object.spec)) {
        (Spec::PriorityClass(new), Some(Spec::PriorityClass(old))) if new.value != old.value => {
            let message = format!(
                "{key} has the value {}, which can't be changed: create another class, or delete this one \
                 first",
                old.value
            );
            rejection::reject(RejectionReason::Invalid, Some("value"), message)
        }
        _ => Ok(()),
    }
}

/// Checks that what an object refers to exists in `catalog`, which includes the changes of the same request.
pub(crate) fn judge_references(catalog: &Catalog, config: &Config, object: &Object) -> Result<(), Rejection> {
    use meridian_objects::Spec;
    match &object.spec {
        Spec::LocalQueue(spec) if catalog.cluster_queue(&spec.cluster_queue).is_none() => rejection::reject(
            RejectionReason::Invalid,
            Some("spec.clusterQueue"),
            format!(
                "there is no cluster queue `{}`: apply it before or together with the local queue",
                spec.cluster_queue
            ),
        ),
        Spec::Cohort(spec) if catalog.cohort_is_its_ancestor(&object.name) => rejection::reject(
            RejectionReason::Invalid,
            Some("spec.parentName"),
            format!(
                "cohort `{}` would be its own ancestor through `{}`: name another parent, or none",
                object.name,
                spec.parent.as_deref().unwrap_or_default()
            ),
        ),
        Spec::DispatchPolicy(spec) => {
            // The manager's own term was checked when it started.
            let Some(term) = spec.on_cluster_loss.term else { return Ok(()) };
            let fits = match term > lease::TERM_MAX {
                true => Err(format!(
                    "lease term {term} is longer than the longest, {}: choose a shorter one",
                    lease::TERM_MAX
                )),
                false => lease::fits(term, config.term_min),
            };
            fits.or_else(|why| {
                rejection::reject(RejectionReason::Invalid, Some("spec.onClusterLoss.term"), why)
            })
        }
        _ => Ok(()),
    }
}

/// How to get a local queue that doesn't exist, for messages.
pub(crate) fn which_queue(catalog: &Catalog, namespace: &str) -> String {
    let names: Vec<String> = catalog
        .iter()
        .filter(|(k, _)| {
            k.scope.is_none() && k.kind == Kind::LocalQueue && k.namespace.as_deref() == Some(namespace)
        })
        .map(|(k, _)| format!("`{}`", k.name))
        .collect();
    match names.as_slice() {
        [] => "create it first; the namespace has none yet".to_owned(),
        names => format!("create it first, or name one of {}", names.join(", ")),
    }
}

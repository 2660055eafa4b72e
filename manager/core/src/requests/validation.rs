//! Validation of changes against the stored objects and the workloads.

use crate::config::Config;
use crate::facts::actor::Actor;
use crate::facts::input::{Change, PutMode};
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::facts::read_job::ReadJob;
use crate::facts::submission::Class;
use crate::requests::{activity, adopted_orphans, deletion, jobs, rejection};
use crate::state::catalog::Catalog;
use crate::world::turn::Turn;
use meridian_objects::{Kind, Object, any_job};
use meridian_shared::ids::Uid;
use meridian_shared::lease;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Checks one change and applies it to `catalog`, so that later changes of the request see it. Returns the
/// class that a submitted or changed job would have. `seen` holds the keys of the request's earlier changes.
pub(crate) fn check_change(
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
    check_owner(turn, catalog, &key, change, by)?;
    match change {
        Change::Put { object, uid, mode, .. } => {
            check_kind(&key, object.kind)?;
            check_put_mode(turn, catalog, &key, object.kind, mode)?;
            if object.kind.is_job() {
                check_uid(turn, &key, *uid, job, by)?;
                let not_a_job = || {
                    rejection::reject(RejectionReason::Invalid, Some("kind"), format!("{key} isn't a job"))
                };
                return job.map_or_else(not_a_job, |job| jobs::check_job(turn, catalog, job, &key));
            }
            check_value(catalog, &key, object)?;
            catalog.to_mut().put(
                key,
                (**object).clone(),
                *uid,
                turn.now.wall,
                turn.world.state().last(),
                by.clone(),
            );
            Ok(None)
        }
        Change::SetActive { active, version, .. } => {
            activity::check_activity(turn, &key, *active, *version).map(|()| None)
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
                    deletion::check_delete(turn, catalog, &key, *force)?;
                    if !key.kind.is_job() {
                        catalog.to_mut().remove(&key);
                    }
                    Ok(None)
                }
            }
        }
    }
}

/// Refuses to change an object of the management cluster, because the next synchronisation with that cluster
/// would undo the change. Conversely, an object of that cluster doesn't replace an object of the same name
/// that was applied here, unless both are equal.
fn check_owner(
    turn: &Turn<'_>,
    catalog: &Catalog,
    key: &Key,
    change: &Change,
    by: &Actor,
) -> Result<(), Rejection> {
    let differs =
        |stored: &Object| matches!(change, Change::Put { object, .. } if object.spec != stored.spec);
    // `None` if the object doesn't exist, or if anybody may take it over. Jobs aren't compared here: the
    // management cluster's side compares their uids.
    let is_managed = match key.kind {
        any_job!() | Kind::Workload => activity::named(turn, key)
            .and_then(|uid| turn.workload(uid))
            .filter(|workload| workload.is_managed())
            .map(|_| true),
        _ => catalog.get(key).and_then(|stored| match stored.by {
            Actor::ManagementCluster => Some(true),
            // the manager creates these itself, for jobs and for agents that join
            _ if matches!(key.kind, Kind::Namespace | Kind::Cluster) => None,
            Actor::System => None,
            _ => Some(false).filter(|_| differs(&stored.object)),
        }),
    };
    let message = match (is_managed, by) {
        (Some(true), Actor::ManagementCluster | Actor::System) => return Ok(()),
        (Some(true), _) => {
            format!("{key} is an object of the management cluster: change or delete it there, with `kubectl`")
        }
        (Some(false), Actor::ManagementCluster) => format!(
            "{key} was applied at the manager directly and stays as it is: make both equal with `meridian \
             apply`, so that the management cluster takes it over, or run `meridian delete`"
        ),
        (Some(false) | None, _) => return Ok(()),
    };
    rejection::reject(RejectionReason::Forbidden, None, message)
}

fn check_kind(key: &Key, kind: Kind) -> Result<(), Rejection> {
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

/// Checks that an object to replace exists, that an object to create doesn't exist, and that the object
/// hasn't changed since the version that the user read. Changes of the status don't count.
fn check_put_mode(
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
            if *version > turn.world.state().last() || changed.is_none_or(|at| at > *version) =>
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

/// Refuses a new job with the uid of an orphan, because the job would run twice. If the job comes from the
/// management cluster, the orphan is a run of it, and the job adopts that run.
fn check_uid(
    turn: &Turn<'_>,
    key: &Key,
    uid: Uid,
    job: Option<&ReadJob>,
    by: &Actor,
) -> Result<(), Rejection> {
    let orphan = adopted_orphans::newest(turn, uid).filter(|_| rejection::job_at(turn, key).is_none());
    match orphan {
        Some((fence, orphan)) if *by == Actor::ManagementCluster => {
            adopted_orphans::check(turn, uid, fence, orphan)?;
            if job.is_some_and(|job| job.hash != orphan.run().spec) {
                let message = format!(
                    "`{uid}` runs in cluster `{}` with an older manifest of {key}: stop that run with \
                     `meridian orphan stop {uid} {fence}`",
                    orphan.cluster()
                );
                return rejection::reject(RejectionReason::Conflict, None, message);
            }
            Ok(())
        }
        Some((_, orphan)) => rejection::reject(
            RejectionReason::Conflict,
            None,
            format!(
                "`{uid}` still runs in cluster `{}` as an orphan, which this journal doesn't know: \
                 adopt that run as {key}, or stop it",
                orphan.cluster()
            ),
        ),
        None => Ok(()),
    }
}

/// Refuses to change the value of a PriorityClass, as Kubernetes does: workloads keep the value that they
/// were given.
fn check_value(catalog: &Catalog, key: &Key, object: &Object) -> Result<(), Rejection> {
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
pub(crate) fn check_references(catalog: &Catalog, config: &Config, object: &Object) -> Result<(), Rejection> {
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
                    "lease term {term} is longer than the longest allowed, {}: choose a shorter one",
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

/// Most existing names that a warning lists.
const NAMED_MAX: usize = 10;

/// Warnings about references of an object that have no effect. `catalog` includes the changes of the same
/// request.
pub(crate) fn reference_warnings(catalog: &Catalog, object: &Object) -> Vec<String> {
    use meridian_objects::Spec;
    let Spec::DispatchPolicy(spec) = &object.spec else { return Vec::new() };
    let is_missing = |name: &&String| *name != "*" && catalog.cluster_queue(name).is_none();
    spec.queues.iter().filter(is_missing).map(|name| missing_queue_warning(catalog, name)).collect()
}

fn missing_queue_warning(catalog: &Catalog, name: &str) -> String {
    let is_local = catalog.all(Kind::LocalQueue).any(|(key, _)| &*key.name == name);
    let instead = if is_local { ", only a local queue, which can't be named here" } else { "" };
    let mut known: Vec<&str> = catalog.cluster_queues().map(|(known, _)| &**known).collect();
    let others = known.len().saturating_sub(NAMED_MAX);
    known.truncate(NAMED_MAX);
    let names = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let known = match (known.len(), others) {
        (0, _) => "there is none".to_owned(),
        (1, _) => format!("there is {names}"),
        (_, 0) => format!("there are {names}"),
        (_, _) => format!("there are {names} and {others} more"),
    };
    format!("spec.applies.queues: there is no cluster queue `{name}`{instead}; {known}")
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

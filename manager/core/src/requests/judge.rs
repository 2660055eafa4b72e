use crate::config::Config;
use crate::facts::actor::Actor;
use crate::facts::input::{Change, PutMode};
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::facts::read_job::ReadJob;
use crate::facts::submission::Class;
use crate::requests::{activity, jobs, rejection};
use crate::state::catalog::Catalog;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_objects::spec::QuotaWhileWaiting;
use meridian_objects::{Kind, Object};
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::lease;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Whether a change may be made; with the class that a job would have.
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
            if let Some(cluster) =
                key.scope.as_ref().filter(|_| !meridian_objects::is_for_clusters(object.kind))
            {
                let message = format!(
                    "a {} means nothing to cluster `{cluster}` alone: apply it without `--cluster`, for all of them",
                    object.kind
                );
                return rejection::reject(RejectionReason::Invalid, Some("kind"), message);
            }
            if object.kind == Kind::Workload {
                return rejection::reject(
                    RejectionReason::Forbidden,
                    None,
                    "workloads are made from jobs: submit the job".into(),
                );
            }
            let (exists, changed) = match object.kind {
                Kind::Job => {
                    let there = rejection::job_at(turn, &key);
                    (there.is_some(), there.and_then(|u| turn.workload(u)).map(|w| w.changed()))
                }
                _ => (catalog.get(&key).is_some(), catalog.get(&key).map(|s| s.changed)),
            };
            match (mode, exists) {
                (PutMode::Create, true) => {
                    return rejection::reject(
                        RejectionReason::AlreadyExists,
                        None,
                        format!("{key} already exists"),
                    );
                }
                (PutMode::Replace(_), false) => {
                    return rejection::reject(
                        RejectionReason::NotFound,
                        None,
                        format!("{key} doesn't exist"),
                    );
                }
                // A status that moved is no change of what people write.
                (PutMode::Replace(Some(version)), true)
                    if *version > turn.world.state.last() || changed.is_none_or(|at| at > *version) =>
                {
                    return rejection::reject(
                        RejectionReason::Conflict,
                        None,
                        format!("{key} changed since version {version}: read it again and repeat the change"),
                    );
                }
                _ => {}
            }
            if object.kind == Kind::Job {
                judge_uid(turn, &key, *uid)?;
                let no_job =
                    || rejection::reject(RejectionReason::Invalid, Some("kind"), format!("{key} is no job"));
                return job.map_or_else(no_job, |job| jobs::judge_job(turn, catalog, job, &key));
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
        Change::Delete { uid, .. } => {
            let there = match key.kind {
                Kind::Job => rejection::job_at(turn, &key),
                _ => catalog.get(&key).map(|s| s.uid),
            };
            match (there, uid) {
                (None, _) => {
                    rejection::reject(RejectionReason::NotFound, None, format!("{key} doesn't exist"))
                }
                (Some(has), Some(wanted)) if has != *wanted => {
                    rejection::reject(RejectionReason::Conflict, None, format!("{key} has another uid now"))
                }
                (Some(_), _) => {
                    judge_delete(turn, &key)?;
                    if key.kind != Kind::Job {
                        catalog.to_mut().remove(&key);
                    }
                    Ok(None)
                }
            }
        }
    }
}

fn judge_delete(turn: &Turn<'_>, key: &Key) -> Result<(), Rejection> {
    if key.scope.is_some() {
        return Ok(());
    }
    let holds = |kind: &str, count: usize| {
        rejection::reject(
            RejectionReason::Conflict,
            None,
            format!("{key} still has {count} {kind}: end or delete them first"),
        )
    };
    match key.kind {
        Kind::Cluster => match turn.world.loads.get(&ClusterName::new(&key.name)).map_or(0, |l| l.len()) {
            0 => Ok(()),
            n => holds("workloads", n),
        },
        // Its labels bind its jobs: without it they would be bound by less.
        Kind::Namespace => {
            let here = |w: &&crate::state::workload::Workload| {
                w.phase() != Phase::Finished && **w.namespace() == *key.name
            };
            let queues = turn
                .world
                .state
                .catalog()
                .iter()
                .filter(|(of, _)| of.scope.is_none() && of.namespace.as_deref() == Some(&*key.name))
                .count();
            match (turn.world.state.workloads().values().filter(here).count(), queues) {
                (0, 0) => Ok(()),
                (0, queues) => holds("objects", queues),
                (jobs, _) => holds("jobs", jobs),
            }
        }
        Kind::LocalQueue => {
            let uses = |w: &&crate::state::workload::Workload| {
                let class = turn.world.queues.class(w.class());
                w.phase() != Phase::Finished
                    && key.namespace.as_deref() == Some(&*class.namespace)
                    && class.queue == key.name
            };
            match turn.world.state.workloads().values().filter(|w| w.phase().charged()).filter(uses).count() {
                0 => Ok(()),
                n => holds("charged workloads", n),
            }
        }
        // Who asks for nothing that is counted has its quota all the same.
        Kind::ClusterQueue => match charged_by(turn, &key.name) {
            0 => Ok(()),
            n => holds("charged workloads", n),
        },
        Kind::Workload => rejection::reject(
            RejectionReason::Forbidden,
            None,
            "workloads go with their job: delete the job".into(),
        ),
        _ => Ok(()),
    }
}

/// How many workloads hold quota of a cluster queue.
fn charged_by(turn: &Turn<'_>, queue: &str) -> usize {
    let charged = |uid: &&Uid| turn.world.queues.charged_to(**uid).is_some_and(|of| **of == *queue);
    turn.world.state.workloads().keys().filter(charged).count()
}

/// Whether a new job may have its uid: not one under which a run is known that this journal never granted. That run would have
/// another beside it (simulation seed 702893).
fn judge_uid(turn: &Turn<'_>, key: &Key, uid: Uid) -> Result<(), Rejection> {
    const FIRST: Fence = Fence { epoch: 0, leadership: 0, counter: 0 };
    let orphan = turn.world.state.orphans().range((uid, FIRST)..).next().filter(|((of, _), _)| *of == uid);
    match orphan.filter(|_| rejection::job_at(turn, key).is_none()) {
        Some((_, orphan)) => rejection::reject(
            RejectionReason::Conflict,
            None,
            format!(
                "`{uid}` still runs at cluster `{}`, unknown to this journal: adopt that run as {key}, or stop it",
                orphan.cluster
            ),
        ),
        None => Ok(()),
    }
}

/// The value of a PriorityClass stays as it is, as in Kubernetes: whoever was given it keeps it.
fn judge_value(catalog: &Catalog, key: &Key, object: &Object) -> Result<(), Rejection> {
    use meridian_objects::Spec;
    match (&object.spec, catalog.get(key).map(|stored| &stored.object.spec)) {
        (Spec::PriorityClass(new), Some(Spec::PriorityClass(old))) if new.value != old.value => {
            let message = format!(
                "{key} has the value {}, which can't be changed: create another class, or delete this one first",
                old.value
            );
            rejection::reject(RejectionReason::Invalid, Some("value"), message)
        }
        _ => Ok(()),
    }
}

/// What an object refers to must exist, or be in the same request.
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
            let _: &QuotaWhileWaiting = &spec.quota_while_waiting;
            let term = spec.on_cluster_loss.term;
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

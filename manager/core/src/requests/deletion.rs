//! Whether an object may be deleted: not while something uses it.

use crate::facts::key::Key;
use crate::facts::outcome::{InUse, Rejection, RejectionReason, Users};
use crate::requests::rejection;
use crate::state::catalog::Catalog;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::state::{references, residency};
use crate::world::turn::Turn;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_objects::{Kind, Spec};
use meridian_shared::ids::{ClusterName, Uid};

/// Most users of an object that a refusal names.
const USERS_SHOWN_MAX: usize = 5;

/// Most manifests that one deletion reads: a tenth of a second.
const MANIFESTS_READ_MAX: usize = 10_000;

/// Refuses to delete an object in use, unless forced. If quota or pods would lose their owner, refuses even
/// then. `catalog` includes the earlier changes of the request.
pub(super) fn check_delete(
    turn: &Turn<'_>,
    catalog: &Catalog,
    key: &Key,
    force: bool,
) -> Result<(), Rejection> {
    if key.kind == Kind::Workload {
        return rejection::reject(
            RejectionReason::Forbidden,
            None,
            "a workload is deleted with its job: delete the job".into(),
        );
    }
    if key.scope.is_none() {
        check_owned(turn, key)?;
    }
    if force { Ok(()) } else { check_in_use(turn, catalog, key) }
}

fn in_use(key: &Key, users: Vec<Users>, forceable: bool) -> Result<(), Rejection> {
    let remedy = match forceable {
        true => "end, change or delete them first, or force the deletion (`meridian delete --force`)",
        false => "end or delete them first",
    };
    rejection::reject_in_use(InUse { key: key.clone(), users, remedy })
}

fn listed(count: usize, what: &'static str, keys: impl Iterator<Item = Key>) -> Users {
    Users { what, count, first: keys.take(USERS_SHOWN_MAX).collect() }
}

/// Fails if the object has users that lose their owner with it, so that force doesn't help.
fn check_owned(turn: &Turn<'_>, key: &Key) -> Result<(), Rejection> {
    match key.kind {
        Kind::Cluster => match turn.world.loads().get(&ClusterName::new(&key.name)).map_or(0, |l| l.len()) {
            0 => Ok(()),
            count => {
                let load = turn.world.loads().get(&ClusterName::new(&key.name));
                let jobs = load.into_iter().flatten().filter_map(|(uid, _)| job(turn, *uid));
                in_use(key, vec![listed(count, "workload", jobs)], false)
            }
        },
        Kind::Namespace if *key.name == *DEFAULT_NAMESPACE => {
            let message = format!("{key} is built in and can't be deleted");
            rejection::reject(RejectionReason::Forbidden, None, message)
        }
        // Residency policies match the namespace's labels, so without it fewer policies would apply to its
        // jobs.
        Kind::Namespace => {
            let jobs = unfinished(turn, |_, workload| **workload.namespace() == *key.name);
            let objects = turn.world.state().catalog().iter();
            let objects: Vec<&Key> = objects
                .map(|(of, _)| of)
                .filter(|of| of.scope.is_none() && of.namespace.as_deref() == Some(&*key.name))
                .collect();
            if !jobs.is_empty() {
                let keys = jobs.iter().filter_map(|uid| job(turn, *uid));
                in_use(key, vec![listed(jobs.len(), "job", keys)], false)
            } else if !objects.is_empty() {
                let keys = objects.iter().map(|key| (*key).clone());
                in_use(key, vec![listed(objects.len(), "object", keys)], false)
            } else {
                Ok(())
            }
        }
        Kind::LocalQueue | Kind::ClusterQueue => {
            let users = of_queue(turn, key);
            // Count workloads, because the queue's usage doesn't show workloads that request no resource with
            // quota.
            let charged = |uid: &&Uid| turn.workload(**uid).is_some_and(|w| w.phase().charged());
            match users.iter().filter(charged).count() {
                0 => Ok(()),
                _ => in_use(key, queued(turn, &users), false),
            }
        }
        _ => Ok(()),
    }
}

/// Fails if the object has users from which only a forced deletion may remove it.
fn check_in_use(turn: &Turn<'_>, catalog: &Catalog, key: &Key) -> Result<(), Rejection> {
    let referents = references::referents(catalog, key);
    if !referents.is_empty() {
        let keys = referents.iter().map(|key| (*key).clone());
        return in_use(key, vec![listed(referents.len(), "user", keys)], true);
    }
    if key.scope.is_some() {
        return Ok(());
    }
    let users = match key.kind {
        Kind::LocalQueue | Kind::ClusterQueue => {
            let users = of_queue(turn, key);
            return if users.is_empty() { Ok(()) } else { in_use(key, queued(turn, &users), true) };
        }
        Kind::WorkloadPriorityClass => unfinished(turn, |turn, workload| {
            let labels = &turn.world.queues().class(workload.class()).labels;
            labels.get(PRIORITY_LABEL).is_some_and(|class| **class == *key.name)
        }),
        Kind::PriorityClass => {
            let Some(Spec::PriorityClass(class)) = catalog.get(key).map(|stored| &stored.object.spec) else {
                return Ok(());
            };
            let value = i64::from(class.value);
            let may = |workload: &Workload| workload.priority() == value;
            naming(turn, "priorityClassName", &key.name, may)
        }
        Kind::RuntimeClass => naming(turn, "runtimeClassName", &key.name, |_| true),
        Kind::ResidencyPolicy => {
            let Some(Spec::ResidencyPolicy(policy)) = catalog.get(key).map(|stored| &stored.object.spec)
            else {
                return Ok(());
            };
            unfinished(turn, |turn, workload| {
                residency::matches(catalog, policy, turn.world.queues().class(workload.class()))
            })
        }
        _ => return Ok(()),
    };
    match users.len() {
        0 => Ok(()),
        count => {
            let jobs = users.iter().filter_map(|uid| job(turn, *uid));
            in_use(key, vec![listed(count, "workload", jobs)], true)
        }
    }
}

/// The key of a workload's job.
fn job(turn: &Turn<'_>, uid: Uid) -> Option<Key> {
    turn.workload(uid).map(Workload::key)
}

fn unfinished(turn: &Turn<'_>, is: impl Fn(&Turn<'_>, &Workload) -> bool) -> Vec<Uid> {
    let all = turn.world.state().workloads().iter();
    all.filter(|(_, w)| w.phase() != Phase::Finished && is(turn, w)).map(|(uid, _)| *uid).collect()
}

/// Workloads without a run whose pods name an object in this field. Only manifests show that, so at most the
/// first [`MANIFESTS_READ_MAX`] workloads for which `may` is true are read.
fn naming(turn: &Turn<'_>, field: &str, name: &str, may: impl Fn(&Workload) -> bool) -> Vec<Uid> {
    // A search for text suffices: manifests are stored as compact JSON, in which quotes within a text are
    // escaped.
    let written = format!("\"{field}\":{}", serde_json::Value::from(name));
    let all = turn.world.state().workloads().iter();
    let waiting = all.filter(|(_, w)| w.phase() != Phase::Finished && !w.phase().granted() && may(w));
    let names = |workload: &Workload| turn.body(workload.body()).is_some_and(|body| body.contains(&written));
    waiting.take(MANIFESTS_READ_MAX).filter(|(_, w)| names(w)).map(|(uid, _)| *uid).collect()
}

/// Unfinished workloads of a local queue, or charged to or waiting in a cluster queue.
fn of_queue(turn: &Turn<'_>, key: &Key) -> Vec<Uid> {
    let catalog = turn.world.state().catalog();
    unfinished(turn, |turn, workload| {
        let class = turn.world.queues().class(workload.class());
        match key.kind {
            Kind::LocalQueue => {
                key.namespace.as_deref() == Some(&*class.namespace) && *class.queue == *key.name
            }
            _ if workload.phase().charged() => workload.charged_to().is_some_and(|of| **of == *key.name),
            _ => *catalog.leads_to(class) == *key.name,
        }
    })
}

/// Charged and waiting workloads.
fn queued(turn: &Turn<'_>, users: &[Uid]) -> Vec<Users> {
    let charged = |uid: &&Uid| turn.workload(**uid).is_some_and(|workload| workload.phase().charged());
    let (with_quota, waiting): (Vec<&Uid>, Vec<&Uid>) = users.iter().partition(charged);
    let part = |uids: &[&Uid], what| listed(uids.len(), what, uids.iter().filter_map(|uid| job(turn, **uid)));
    let parts = [part(&with_quota, "charged workload"), part(&waiting, "waiting workload")];
    parts.into_iter().filter(|users| users.count > 0).collect()
}

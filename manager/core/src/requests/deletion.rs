//! Whether an object may be deleted: not while something uses it.

use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
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

/// Refuses to delete an object in use: whatever `force` says, where quota or pods would have no owner any
/// more, and else unless it is forced. `catalog` has the earlier changes of the request.
pub(super) fn judge_delete(
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
        judge_owned(turn, key)?;
    }
    if force { Ok(()) } else { judge_in_use(turn, catalog, key) }
}

fn in_use(key: &Key, users: &str, forceable: bool) -> Result<(), Rejection> {
    let remedy = match forceable {
        true => "end, change or delete them first, or force the deletion (`meridian delete --force`)",
        false => "end or delete them first",
    };
    rejection::reject(RejectionReason::Conflict, None, format!("{key} still has {users}: {remedy}"))
}

/// `3 workloads (a, b, c)`.
fn listed(count: usize, what: &str, names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.take(USERS_SHOWN_MAX).collect();
    if count > names.len() {
        names.push(format!("{} more", count - names.len()));
    }
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural} ({})", names.join(", "))
}

/// Users that an object must outlive.
fn judge_owned(turn: &Turn<'_>, key: &Key) -> Result<(), Rejection> {
    match key.kind {
        Kind::Cluster => match turn.world.loads.get(&ClusterName::new(&key.name)).map_or(0, |l| l.len()) {
            0 => Ok(()),
            count => {
                let load = turn.world.loads.get(&ClusterName::new(&key.name));
                let names = load.into_iter().flatten().map(|(uid, _)| name(turn, *uid));
                in_use(key, &listed(count, "workload", names), false)
            }
        },
        Kind::Namespace if *key.name == *DEFAULT_NAMESPACE => {
            let message = format!("{key} is there for everybody and can't be deleted");
            rejection::reject(RejectionReason::Forbidden, None, message)
        }
        // Residency policies match its labels: without the namespace, fewer policies would bind its jobs.
        Kind::Namespace => {
            let jobs = unfinished(turn, |_, workload| **workload.namespace() == *key.name);
            let objects = turn.world.state.catalog().iter();
            let objects: Vec<&Key> = objects
                .map(|(of, _)| of)
                .filter(|of| of.scope.is_none() && of.namespace.as_deref() == Some(&*key.name))
                .collect();
            if !jobs.is_empty() {
                let names = jobs.iter().map(|uid| name(turn, *uid));
                in_use(key, &listed(jobs.len(), "job", names), false)
            } else if !objects.is_empty() {
                let names = objects.iter().map(ToString::to_string);
                in_use(key, &listed(objects.len(), "object", names), false)
            } else {
                Ok(())
            }
        }
        Kind::LocalQueue | Kind::ClusterQueue => {
            let users = of_queue(turn, key);
            // Counted by workload: the queue's usage misses workloads that request no resource with quota.
            let charged = |uid: &&Uid| turn.workload(**uid).is_some_and(|w| w.phase().charged());
            match users.iter().filter(charged).count() {
                0 => Ok(()),
                _ => in_use(key, &queued(turn, &users), false),
            }
        }
        _ => Ok(()),
    }
}

/// Users that an object may be taken from, by force.
fn judge_in_use(turn: &Turn<'_>, catalog: &Catalog, key: &Key) -> Result<(), Rejection> {
    let referents = references::referents(catalog, key);
    if !referents.is_empty() {
        let names = referents.iter().map(ToString::to_string);
        return in_use(key, &listed(referents.len(), "user", names), true);
    }
    if key.scope.is_some() {
        return Ok(());
    }
    let users = match key.kind {
        Kind::LocalQueue | Kind::ClusterQueue => {
            let users = of_queue(turn, key);
            return if users.is_empty() { Ok(()) } else { in_use(key, &queued(turn, &users), true) };
        }
        Kind::WorkloadPriorityClass => unfinished(turn, |turn, workload| {
            let labels = &turn.world.queues.class(workload.class()).labels;
            labels.get(PRIORITY_LABEL).is_some_and(|class| **class == *key.name)
        }),
        Kind::ResidencyPolicy => {
            let Some(Spec::ResidencyPolicy(policy)) = catalog.get(key).map(|stored| &stored.object.spec)
            else {
                return Ok(());
            };
            unfinished(turn, |turn, workload| {
                residency::matches(catalog, policy, turn.world.queues.class(workload.class()))
            })
        }
        _ => return Ok(()),
    };
    match users.len() {
        0 => Ok(()),
        count => {
            let names = users.iter().map(|uid| name(turn, *uid));
            in_use(key, &listed(count, "workload", names), true)
        }
    }
}

fn name(turn: &Turn<'_>, uid: Uid) -> String {
    turn.workload(uid)
        .map_or_else(|| uid.to_string(), |workload| format!("{}/{}", workload.namespace(), workload.name()))
}

fn unfinished(turn: &Turn<'_>, is: impl Fn(&Turn<'_>, &Workload) -> bool) -> Vec<Uid> {
    let all = turn.world.state.workloads().iter();
    all.filter(|(_, w)| w.phase() != Phase::Finished && is(turn, w)).map(|(uid, _)| *uid).collect()
}

/// Unfinished workloads of a local queue, or charged to or waiting in a cluster queue.
fn of_queue(turn: &Turn<'_>, key: &Key) -> Vec<Uid> {
    let catalog = turn.world.state.catalog();
    unfinished(turn, |turn, workload| {
        let class = turn.world.queues.class(workload.class());
        match key.kind {
            Kind::LocalQueue => {
                key.namespace.as_deref() == Some(&*class.namespace) && *class.queue == *key.name
            }
            _ if workload.phase().charged() => workload.charged_to().is_some_and(|of| **of == *key.name),
            _ => *catalog.leads_to(class) == *key.name,
        }
    })
}

/// `2 charged workloads (a, b) and 1 waiting workload (c)`.
fn queued(turn: &Turn<'_>, users: &[Uid]) -> String {
    let charged = |uid: &&Uid| turn.workload(**uid).is_some_and(|workload| workload.phase().charged());
    let (with_quota, waiting): (Vec<&Uid>, Vec<&Uid>) = users.iter().partition(charged);
    let part = |uids: &[&Uid], what: &str| {
        (!uids.is_empty()).then(|| listed(uids.len(), what, uids.iter().map(|uid| name(turn, **uid))))
    };
    let parts = [part(&with_quota, "charged workload"), part(&waiting, "waiting workload")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

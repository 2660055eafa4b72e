//! Changes by users. All changes of a request are checked before the first one is made, so a rejected request
//! changes nothing.

use crate::dispatch::{offers, priority, residency, stops};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry, Verdict};
use crate::facts::input::{Change, PutMode, Write};
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, Reply, WriteResult, Written};
use crate::facts::read_job::ReadJob;
use crate::facts::record::{ObjectFact, Record, WorkloadFact};
use crate::facts::submission::Class;
use crate::requests::{activity, cordon_marks, file_objects, jobs, rejection, validation};
use crate::state::catalog::Catalog;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_objects::spec::StopPolicy;
use meridian_objects::{Kind, last_applied};
use meridian_shared::ids::Uid;
use meridian_shared::protocol::StopReason;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most clusters that a refusal lists with the residency rule that denies them.
pub(crate) const DENIALS_SHOWN_MAX: usize = 4;

/// Most changes in one request.
pub(crate) const CHANGES_MAX: usize = 10_000;

pub(crate) fn write(turn: &mut Turn<'_>, mut write: Write) {
    if write.changes.len() > CHANGES_MAX {
        let message = format!(
            "the request has {} changes, and at most {CHANGES_MAX} are allowed: split it",
            write.changes.len()
        );
        return turn.reply(Reply::Rejected(vec![Rejection {
            index: 0,
            reason: RejectionReason::Invalid,
            field: None,
            message,
            in_use: None,
        }]));
    }
    // Check every change against a copy of the catalog that has the earlier ones. Jobs aren't in the catalog,
    // so a request with only jobs needn't copy it.
    let mut catalog = Cow::Borrowed(turn.world.state().catalog());
    let (merge_warnings, mut rejections) = prepare(&catalog, &mut write);
    let mut seen = BTreeSet::new();
    let mut checked = Vec::with_capacity(write.changes.len());
    for (index, (change, job)) in write.with_jobs().enumerate() {
        match validation::check_change(turn, &mut catalog, change, job, &write.actor, &mut seen) {
            Ok(class) => checked.push(class),
            Err(mut rejection) => {
                rejection.index = index;
                rejections.push(rejection);
            }
        }
    }
    for (index, change) in write.changes.iter().enumerate() {
        if let Change::Put { object, scope: None, .. } = change
            && let Err(mut rejection) = validation::check_references(&catalog, turn.world.config(), object)
        {
            rejection.index = index;
            rejections.push(rejection);
        }
    }
    if !rejections.is_empty() {
        rejections.sort_by_key(|r| r.index);
        audit_refusals(turn, &write, &rejections);
        return turn.reply(Reply::Rejected(rejections));
    }
    let reference_warnings = reference_warnings(&catalog, &write);
    let rules_before = turn.world.state().rules();
    let classes: Vec<Arc<str>> = write.changes.iter().filter_map(changed_priority).collect();
    let accepted = write.with_jobs().zip(checked).map(|((change, job), class)| {
        perform(turn, change, job.map(|job| (job, class)), &write.actor, write.dry_run)
    });
    let mut written: Vec<Written> = accepted.collect();
    written.extend(file_objects::release_absent(turn, &write));
    let warnings = merge_warnings.into_iter().chain(reference_warnings.into_iter().enumerate());
    for (index, warnings) in warnings {
        written[index].warnings.extend(warnings);
    }
    // A changed queue may have been stopped before. If its head is starved, capacity must be reserved for the
    // head before others are admitted.
    let may_reopen = |written: &Written| {
        written.result == WriteResult::Configured
            && matches!(written.key.kind, Kind::ClusterQueue | Kind::LocalQueue)
    };
    let is_guarded = turn.world.config().starvation_guard.is_some();
    if is_guarded && !write.dry_run && written.iter().any(may_reopen) {
        turn.world.live_mut().starvation_checks_mut().request();
    }
    if turn.world.state().rules() != rules_before {
        residency::recheck_residency(turn);
        drain_stopped(turn);
        priority::resend_priorities(turn);
    }
    for class in classes {
        priority::apply_class_value(turn, &class, &write.actor);
    }
    turn.reply(Reply::Written(written));
    turn.spend(write);
}

/// Turns what the caller wrote into what is to be stored. Returns warnings by index of the change, and
/// rejections.
fn prepare(catalog: &Catalog, write: &mut Write) -> (Vec<(usize, Vec<String>)>, Vec<Rejection>) {
    let mut rejections = file_objects::check(catalog, write);
    let (warnings, unmerged) = merge_applied(catalog, &mut write.changes);
    rejections.extend(unmerged);
    rejections.extend(cordon_marks::keep(catalog, write));
    rejections.extend(file_objects::lift_cordons(write));
    (warnings, rejections)
}

/// For each change, warnings about references of the new object.
fn reference_warnings(catalog: &Catalog, write: &Write) -> Vec<Vec<String>> {
    let of_change = |change: &Change| match change {
        Change::Put { object, scope: None, .. } => validation::reference_warnings(catalog, object),
        _ => Vec::new(),
    };
    write.changes.iter().map(of_change).collect()
}

/// Evicts the workloads of queues with the stop policy `HoldAndDrain`.
fn drain_stopped(turn: &mut Turn<'_>) {
    let catalog = &turn.world.state().catalog();
    let drained = |uid: &Uid, w: &crate::state::workload::Workload| {
        let class = turn.world.queues().class(w.class());
        let local = catalog.local_queue(&class.namespace, &class.queue).map(|q| q.stop_policy);
        let cluster = turn
            .world
            .queues()
            .charged_to(*uid)
            .and_then(|name| catalog.cluster_queue(name))
            .map(|q| q.stop_policy);
        w.phase().charged()
            && w.phase() != Phase::Stopping
            && [local, cluster].contains(&Some(StopPolicy::HoldAndDrain))
    };
    let drained: Vec<Uid> = turn
        .world
        .state()
        .workloads()
        .iter()
        .filter(|(uid, w)| drained(uid, w))
        .map(|(uid, _)| *uid)
        .collect();
    for uid in drained {
        match turn.workload(uid).and_then(Workload::right).and_then(|(_, leg)| leg.fence()) {
            Some(fence) => stops::order_stop(turn, uid, fence, StopReason::Evicted, &Actor::System),
            None => offers::withdraw_open(turn, uid),
        }
    }
    // The status of a drained workload shows whether its queue is still stopped, so it must be published
    // again.
    turn.views_changed(Workload::was_drained);
}

/// Writes jobs that residency rules refuse to the audit log: one line per request and message, so that a
/// large request can't flood the log.
fn audit_refusals(turn: &mut Turn<'_>, write: &Write, rejections: &[Rejection]) {
    let mut audited = BTreeSet::new();
    for rejection in
        rejections.iter().filter(|rejection| rejection.reason == RejectionReason::Forbidden && !write.dry_run)
    {
        let Some(Change::Put { object, scope, .. }) =
            write.changes.get(rejection.index).filter(|_| audited.insert(&rejection.message))
        else {
            continue;
        };
        if object.kind.is_job() {
            let entry = Entry {
                verdict: Some(Verdict::Denied),
                detail: Some(rejection.message.clone()),
                ..Entry::new(Action::Submit, rejection::key_of(object, scope.as_ref()).to_string())
            };
            turn.audit(write.actor.clone(), entry);
        }
    }
}

fn perform(
    turn: &mut Turn<'_>,
    change: &Change,
    job: Option<(&ReadJob, Option<Class>)>,
    by: &Actor,
    dry_run: bool,
) -> Written {
    match change {
        Change::Put { object, scope, uid, .. } => {
            let key = rejection::key_of(object, scope.as_ref());
            if let Some((read, class)) = job {
                return jobs::submit(turn, key, read, class, *uid, by, dry_run);
            }
            let existing = turn.world.state().catalog().get(&key);
            let result = match existing {
                None => WriteResult::Created,
                Some(stored) if stored.object.stored == object.stored => WriteResult::Unchanged,
                Some(_) => WriteResult::Configured,
            };
            let uid = existing.map_or(*uid, |s| s.uid);
            let warnings = match scope {
                None => meridian_objects::ignored_fields(object),
                Some(_) => meridian_objects::fields_ignored_by_cluster(object),
            };
            let unknown =
                scope.as_ref().filter(|cluster| turn.world.state().catalog().cluster(cluster).is_none());
            let unknown = unknown.map(|cluster| {
                format!(
                    "no cluster `{cluster}` is declared: this takes effect once a cluster of that name joins"
                )
            });
            let warnings = warnings.iter().map(ToString::to_string).chain(unknown).collect();
            if !dry_run && result != WriteResult::Unchanged {
                audit_change(
                    turn,
                    &key,
                    by,
                    if result == WriteResult::Created { Verdict::Created } else { Verdict::Changed },
                );
                turn.record(Record::Object {
                    key: key.clone(),
                    fact: ObjectFact::Applied {
                        object: object.clone(),
                        uid,
                        at: turn.now.wall,
                        by: by.clone(),
                    },
                });
                if matches!(key.kind, Kind::ResourceFlavor | Kind::Topology) {
                    // Workloads that never fit on the nodes as described before may fit now.
                    turn.world.live_mut().refusals_mut().flavors_changed();
                }
                turn.capacity_changed();
            }
            Written { key, uid, result, warnings }
        }
        Change::Delete { key, .. } => jobs::delete(turn, key.clone(), by, dry_run),
        Change::SetActive { key, active, .. } => {
            activity::set_active(turn, key.clone(), *active, by, dry_run)
        }
    }
}

pub(crate) fn audit_change(turn: &mut Turn<'_>, key: &Key, by: &Actor, how: Verdict) {
    if Catalog::is_rule(key.kind) || key.kind.grants() {
        let entry = Entry {
            cluster: key.scope.as_ref().map(ToString::to_string),
            verdict: Some(how),
            ..Entry::new(Action::Rule, key.to_string())
        };
        turn.audit(by.clone(), entry);
    }
}

/// Merges applied objects into the stored ones. Returns warnings by index of the change, and a rejection of
/// each merge that doesn't give a valid object.
fn merge_applied(catalog: &Catalog, changes: &mut [Change]) -> (Vec<(usize, Vec<String>)>, Vec<Rejection>) {
    let (mut warnings, mut rejections) = (Vec::new(), Vec::new());
    for (index, change) in changes.iter_mut().enumerate() {
        let Change::Put { object, scope, mode: PutMode::Apply, .. } = change else { continue };
        let Some(stored) = catalog.get(&rejection::key_of(object, scope.as_ref())) else { continue };
        match last_applied::merge(&stored.object, object) {
            Ok(merged) => {
                warnings.push((index, merged.remarks()));
                **object = merged.object;
            }
            Err(errors) => rejections.extend(errors.into_iter().map(|error| Rejection {
                index,
                reason: RejectionReason::Invalid,
                field: Some(error.field.to_string()),
                message: format!("merged with the stored object, {}; {}", error.message, error.remedy),
                in_use: None,
            })),
        }
    }
    (warnings, rejections)
}

/// The workload priority class that a change sets.
fn changed_priority(change: &Change) -> Option<Arc<str>> {
    match change {
        Change::Put { object, .. } if object.kind == Kind::WorkloadPriorityClass => {
            Some(Arc::from(object.name.as_str()))
        }
        _ => None,
    }
}

/// Ends a workload: at once if no cluster has the right to run it, otherwise by stopping its gang.
pub(crate) fn end(turn: &mut Turn<'_>, uid: Uid, reason: StopReason, by: &Actor) {
    offers::withdraw_open(turn, uid);
    let Some(workload) = turn.workload(uid) else { return };
    match workload.right().and_then(|(_, leg)| leg.fence()) {
        Some(fence) => stops::order_stop(turn, uid, fence, reason, by),
        None if workload.deletion().is_some() => {
            turn.record_workload(uid, WorkloadFact::Forgotten);
            turn.capacity_changed();
        }
        None => {}
    }
}

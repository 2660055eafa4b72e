//! Submitting and deleting jobs.

use crate::dispatch::manifests;
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Verdict};
use crate::facts::container_needs::place_of;
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, WriteResult, Written};
use crate::facts::read_job::ReadJob;
use crate::facts::reason::Denied;
use crate::facts::record::{ObjectFact, Record, WorkloadFact};
use crate::facts::submission::{Class, Submission};
use crate::link::session;
use crate::queue::candidate_clusters::CandidateClusters;
use crate::requests::write::{self, DENIALS_SHOWN_MAX};
use crate::requests::{activity, adopted_orphans, job_class, rejection, resize, validation};
use crate::state::catalog::Catalog;
use crate::state::residency;
use crate::state::workload::Workload;
use crate::world::turn::Turn;
use meridian_objects::job::JobKind;
use meridian_objects::spec::{ClusterLossMode, Supervision};
use meridian_objects::{Kind, Object};
use meridian_shared::ids::{ClusterName, ContentHash, Uid};
use meridian_shared::lease;
use meridian_shared::protocol::{OnLoss, Run, RunnerKind, StopReason};
use meridian_shared::time::Millis;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Checks the submission of a job, or the change of an existing one. Returns the class that the job would
/// have; `None` if nothing changes.
pub(crate) fn check_job(
    turn: &Turn<'_>,
    catalog: &Catalog,
    read: &ReadJob,
    key: &Key,
) -> Result<Option<Class>, Rejection> {
    let invalid =
        |field: &str, message: String| rejection::reject(RejectionReason::Invalid, Some(field), message);
    if let Some(uid) = rejection::job_at(turn, key) {
        let existing = turn.workload(uid).expect("every name has a workload");
        if existing.body() == read.hash_as(uid) {
            return Ok(None);
        }
        resize::check_stored_manifest(turn, uid, key)?;
        resize::check_resize(turn, read, uid, key)?;
    }
    let job = &read.job;
    let pod_field = |field: &str| read.kind.pod_field(&format!(".{field}"));
    let queue = &job.queue;
    let namespace = key.namespace.clone().unwrap_or_else(|| Arc::from("default"));
    if catalog.local_queue(&namespace, queue).is_none() {
        return invalid(
            "metadata.labels[kueue.x-k8s.io/queue-name]",
            format!(
                "there is no local queue `{queue}` in namespace `{namespace}`: {}",
                validation::which_queue(catalog, &namespace)
            ),
        );
    }
    if catalog.job_priority(job).is_none() {
        let (field, kind, name) = match (&job.priority_class, &job.pod_priority_class) {
            (Some(class), _) => (
                "metadata.labels[kueue.x-k8s.io/priority-class]".to_owned(),
                Kind::WorkloadPriorityClass,
                class.as_str(),
            ),
            (None, class) => {
                (pod_field("priorityClassName"), Kind::PriorityClass, class.as_deref().unwrap_or_default())
            }
        };
        return invalid(&field, format!("there is no {kind} `{name}`: create it first"));
    }
    let existing = rejection::job_at(turn, key).and_then(|uid| turn.workload(uid));
    let term = existing.map_or_else(|| lease_of(turn, catalog, &namespace, queue).0, Workload::term);
    if let Some(grace) = job.grace_period
        && grace > lease::stop_budget(term)
    {
        return invalid(
            &pod_field("terminationGracePeriodSeconds"),
            format!(
                "a grace period of {grace} is longer than {}, the stop budget of the lease term {term}: \
                 shorten the grace period, or choose a longer lease term in the dispatch policy",
                lease::stop_budget(term)
            ),
        );
    }
    let before = existing.map(|existing| turn.world.queues().class(existing.class()));
    let class = match before.map_or_else(
        || job_class::of_new(read, catalog, &namespace),
        |before| Ok(job_class::of_updated(read, catalog, &namespace, before)),
    ) {
        Ok(class) => class,
        Err(broken) => return invalid(&read.kind.pod_field(""), broken),
    };
    let new = before.is_none().then(|| pod_field("containers"));
    check_clusters(turn, catalog, &class, new.as_deref())?;
    Ok(Some(class))
}

/// Fails if no cluster may or can run the job. `new` is the field of a new job's containers.
fn check_clusters(
    turn: &Turn<'_>,
    catalog: &Catalog,
    class: &Class,
    new: Option<&str>,
) -> Result<(), Rejection> {
    check_residency(turn, catalog, class)?;
    new.map_or(Ok(()), |containers| check_image(turn, catalog, class, containers))
}

/// Fails if residency rules forbid that this manager stores the job, or that any cluster of its queue runs
/// it.
fn check_residency(turn: &Turn<'_>, catalog: &Catalog, class: &Class) -> Result<(), Rejection> {
    if let Some(here) = &turn.world.config().jurisdiction {
        for (name, version, policy) in
            catalog.residency_policies().filter(|(_, _, p)| residency::matches(catalog, p, class))
        {
            let allowed = policy
                .allow
                .as_ref()
                .is_none_or(|a| a.jurisdictions.is_empty() || a.jurisdictions.contains(here));
            if !allowed || policy.deny.jurisdictions.contains(here) {
                return rejection::reject(
                    RejectionReason::Forbidden,
                    None,
                    format!(
                        "residency policy `{name}` (version {version}) doesn't allow this workload to be \
                         stored in `{here}`, where this manager is: submit it to a manager in an allowed \
                         jurisdiction"
                    ),
                );
            }
        }
    }
    let queue = catalog.local_queue(&class.namespace, &class.queue).map(|queue| &queue.cluster_queue);
    let listed = queue
        .and_then(|queue| catalog.clusters_of(queue))
        .unwrap_or_else(|| catalog.clusters().map(|(name, _)| name).collect());
    let denied: Result<Vec<Denied>, ()> = listed
        .iter()
        .map(|name| residency::check(catalog, class, name, turn.world.config().residency_required).err())
        // A cluster that isn't declared yet may be declared in an allowed place later.
        .map(|denied| denied.filter(|denied| *denied != Denied::UnknownPlace).ok_or(()))
        .collect();
    let Some(denied) = denied.ok().filter(|denied| !denied.is_empty()) else { return Ok(()) };
    let is_requested = |name: &&ClusterName| {
        class.regions.is_empty()
            || catalog.cluster(name).is_some_and(|spec| class.regions.contains(&spec.region))
    };
    let denials: BTreeSet<String> = listed
        .iter()
        .zip(&denied)
        .filter(|(name, _)| is_requested(name))
        .map(|(name, why)| format!("at `{name}` {why}"))
        .take(DENIALS_SHOWN_MAX)
        .collect();
    let why = if denials.is_empty() {
        let regions: BTreeSet<_> =
            listed.iter().filter_map(|name| Some(format!("`{}`", catalog.cluster(name)?.region))).collect();
        let requested: Vec<_> = class.regions.iter().map(|region| format!("`{region}`")).collect();
        format!(
            "none is in region {}; regions: {}",
            requested.join(", "),
            regions.into_iter().collect::<Vec<_>>().join(", ")
        )
    } else {
        denials.into_iter().collect::<Vec<_>>().join("; ")
    };
    let field = (!class.regions.is_empty()).then_some("metadata.annotations[meridian.dev/region]");
    rejection::reject(
        RejectionReason::Forbidden,
        field,
        format!("no cluster of its queue may run this workload: {why}"),
    )
}

/// Submits a job that [`check_job`] accepted, or changes the existing one.
pub(crate) fn submit(
    turn: &mut Turn<'_>,
    key: Key,
    read: &ReadJob,
    class: Option<Class>,
    uid: Uid,
    by: &Actor,
    dry_run: bool,
) -> Written {
    let (uid, result, warnings) = match (rejection::job_at(turn, &key), class) {
        (Some(existing), None) if turn.world.live().damaged().contains(existing) => {
            if !dry_run {
                repair(turn, read, existing, by);
            }
            (existing, WriteResult::Configured, Vec::new())
        }
        (Some(existing), class) => {
            let warning = class.as_ref().and_then(|_| resize::restart_warning(turn, read, existing));
            let result = resize::resize(turn, read, class, existing, by, dry_run);
            (existing, result, warning.into_iter().collect())
        }
        (None, Some(class)) => {
            let mut warnings = read.warnings.clone();
            warnings.extend(runner_warnings(turn, &class));
            if !dry_run {
                // of the management cluster, as `check_uid` checked
                let orphan =
                    adopted_orphans::newest(turn, uid).map(|(fence, orphan)| (fence, orphan.clone()));
                let lease = orphan.as_ref().map(|(_, orphan)| (orphan.run().term, orphan.run().on_loss));
                accept(turn, read, class, &key, uid, lease, by);
                if let Some((fence, orphan)) = orphan {
                    adopted_orphans::adopt(turn, by, uid, fence, &orphan);
                }
                if read.inactive {
                    activity::deactivate(turn, uid, by);
                }
                turn.world.live_mut().pass_mut().request();
            }
            (uid, WriteResult::Created, warnings)
        }
        (None, None) => unreachable!("`check_job` returns the class of every new job"),
    };
    Written { key, uid, result, warnings }
}

/// The clusters that a job may use, with their runners; `None` for a cluster that hasn't reported.
fn runners(turn: &Turn<'_>, catalog: &Catalog, class: &Class) -> Vec<(ClusterName, Option<RunnerKind>)> {
    let Ok(queue) = catalog.route(&class.namespace, &class.queue) else { return Vec::new() };
    let candidates = CandidateClusters::new(catalog, class, &queue, turn.world.config().residency_required);
    let usable = candidates.candidates.into_iter().filter(|one| one.listed.is_some() && one.verdict.is_ok());
    let runner =
        |cluster: &ClusterName| turn.world.live().cluster(cluster).map(|live| live.capacity().runner());
    usable.map(|one| (one.cluster.clone(), runner(&one.cluster))).collect()
}

/// Fails if a container has no image, and all clusters that the job may use run containers.
fn check_image(turn: &Turn<'_>, catalog: &Catalog, class: &Class, field: &str) -> Result<(), Rejection> {
    let Some(container) = &class.without_image else { return Ok(()) };
    let runners = runners(turn, catalog, class);
    if runners.is_empty() || runners.iter().any(|(_, runner)| *runner != Some(RunnerKind::Kubernetes)) {
        return Ok(());
    }
    let message = format!(
        "container `{container}` has no `image`, and every cluster that the job may use runs containers: \
         name one"
    );
    rejection::reject(RejectionReason::Invalid, Some(field), message)
}

/// Warns if the runners of some clusters that the job may use can't run parts of the job.
fn runner_warnings(turn: &Turn<'_>, class: &Class) -> Vec<String> {
    if !class.needs_containers() && class.without_image.is_none() {
        return Vec::new();
    }
    let runners = runners(turn, turn.world.state().catalog(), class);
    let process = needs_containers(class).filter(|_| {
        !runners.is_empty() && runners.iter().all(|(_, runner)| *runner == Some(RunnerKind::Process))
    });
    let process = process.map(|what| {
        format!(
            "{what}, and every cluster that it may use runs processes, which can't honour that: no cluster \
             will start it"
        )
    });
    let of_containers = runners.iter().filter(|(_, runner)| *runner == Some(RunnerKind::Kubernetes));
    let of_containers: Vec<String> = of_containers.map(|(cluster, _)| format!("`{cluster}`")).collect();
    let image = class.without_image.as_ref().filter(|_| !of_containers.is_empty()).map(|container| {
        format!(
            "spec.template.spec: container `{container}` has no `image`: clusters that run containers can't \
             start it ({})",
            of_containers.join(", ")
        )
    });
    process.into_iter().chain(image).collect()
}

/// The first feature of a job that needs a container runtime, with its field.
fn needs_containers(class: &Class) -> Option<String> {
    let other_kind = class.kind.job().filter(|kind| kind.kind() != JobKind::usual().kind());
    match (other_kind, &class.container_needs) {
        (Some(kind), _) => Some(format!("kind: is {}", kind.name())),
        (None, Some(needs)) => Some(format!("{}: uses `{needs}`", place_of(needs))),
        (None, None) => None,
    }
}

/// Stores a damaged manifest again: `read` is exactly what was submitted.
fn repair(turn: &mut Turn<'_>, read: &ReadJob, uid: Uid, by: &Actor) {
    let body: Arc<str> = read.body_as(uid).into();
    turn.store_body(ContentHash::of(body.as_bytes()), body);
    turn.audit_workload(uid, by, Action::Repair);
    manifests::note_intact(turn, uid);
}

/// Submits the job of an orphan under the orphan's uid and lease. Fails if the manifest differs from the one
/// that the orphan runs, if the job already exists, or if a new job like it would be refused.
pub(crate) fn submit_adopted(
    turn: &mut Turn<'_>,
    object: &Object,
    run: &Run,
    by: &Actor,
) -> Result<(), Rejection> {
    let key = rejection::key_of(object, None);
    let already_exists = rejection::reject(
        RejectionReason::AlreadyExists,
        None,
        format!("{key} already exists: delete it first, or stop the orphan"),
    );
    let Some(read) = ReadJob::of(&mut object.clone(), run.uid) else {
        return rejection::reject(RejectionReason::Invalid, Some("kind"), format!("{key} isn't a job"));
    };
    if rejection::job_at(turn, &key).is_some() {
        return already_exists;
    }
    if read.hash != run.spec {
        let message =
            format!("{key} isn't the job that runs there: pass the manifest exactly as it was submitted");
        return rejection::reject(RejectionReason::Invalid, None, message);
    }
    let checked = check_job(turn, turn.world.state().catalog(), &read, &key)?;
    let Some(class) = checked else { return already_exists };
    accept(turn, &read, class, &key, run.uid, Some((run.term, run.on_loss)), by);
    Ok(())
}

fn accept(
    turn: &mut Turn<'_>,
    read: &ReadJob,
    class: Class,
    key: &Key,
    uid: Uid,
    lease: Option<(Millis, OnLoss)>,
    by: &Actor,
) {
    let job = &read.job;
    let namespace = class.namespace.clone();
    let (term, on_loss) =
        lease.unwrap_or_else(|| lease_of(turn, turn.world.state().catalog(), &namespace, &class.queue));
    let priority = turn.world.state().catalog().job_priority(job).unwrap_or(0);
    turn.store_body(read.hash, read.body.clone());
    let submission = Submission {
        namespace,
        name: key.name.clone(),
        class,
        priority,
        body: read.hash,
        term,
        on_loss,
        ttl: job.ttl_after_finished,
        at: turn.now.wall,
        by: by.clone(),
        existed: read.existed,
    };
    turn.record_workload(uid, WorkloadFact::Submitted(Box::new(submission)));
}

/// Deletes an object, or a job. A job with a granted attempt is deleted once its gang has stopped.
pub(crate) fn delete(turn: &mut Turn<'_>, key: Key, by: &Actor, dry_run: bool) -> Written {
    if !key.kind.is_job() {
        let uid = turn.world.state().catalog().get(&key).map_or(Uid(0), |s| s.uid);
        if !dry_run {
            write::audit_change(turn, &key, by, Verdict::Deleted);
            turn.record(Record::Object { key: key.clone(), fact: ObjectFact::Removed { by: by.clone() } });
            if key.kind == Kind::Cluster && key.scope.is_none() {
                session::disconnect(turn, &ClusterName::new(&key.name));
            }
            turn.capacity_changed();
        }
        return Written { key, uid, result: WriteResult::Deleted, warnings: Vec::new() };
    }
    let uid = rejection::job_at(turn, &key).expect("`check_change` found the job");
    let phase = turn.workload(uid).expect("every name has a workload").phase();
    let result = if phase.granted() { WriteResult::Deleting } else { WriteResult::Deleted };
    if !dry_run {
        if turn.workload(uid).is_some_and(|w| w.deletion().is_none()) {
            turn.record_workload(uid, WorkloadFact::DeletionRequested { at: turn.now.wall, by: by.clone() });
        }
        write::end(turn, uid, StopReason::Cancelled, by);
    }
    Written { key, uid, result, warnings: Vec::new() }
}

/// Lease term and loss mode for a new job of this queue, by the present dispatch policy.
fn lease_of(turn: &Turn<'_>, catalog: &Catalog, namespace: &str, queue: &str) -> (Millis, OnLoss) {
    let cluster_queue =
        catalog.local_queue(namespace, queue).map(|q| q.cluster_queue.clone()).unwrap_or_default();
    let loss = catalog.dispatch_policy(&cluster_queue).map(|policy| &policy.on_cluster_loss);
    let config = turn.world.config();
    let term = loss.and_then(|loss| loss.term).unwrap_or(config.term);
    let has_guards = loss.is_some_and(|loss| loss.requires == Supervision::Guarded);
    let on_loss = match loss.map(|loss| loss.mode).unwrap_or_default() {
        ClusterLossMode::Fence if config.hosts_agents && !has_guards => OnLoss::Wait,
        ClusterLossMode::Fence => OnLoss::Fence,
        ClusterLossMode::Wait => OnLoss::Wait,
    };
    (term.max(config.term_min).min(lease::TERM_MAX), on_loss)
}

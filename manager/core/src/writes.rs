//! People's changes: judged as a whole, then recorded as a whole. Nothing of a rejected request is applied.

use crate::audit::Entry;
use crate::catalog::Catalog;
use crate::input::{
    Actor, Change, Key, PutMode, Rejection, RejectionReason, Reply, Write, WriteResult, Written,
};
use crate::reading::ReadJob;
use crate::record::{Class, Record, Submission};
use crate::residency::Denied;
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{Config, World, residency};
use meridian_objects::spec::{ClusterLossMode, QuotaWhileWaiting, StopPolicy};
use meridian_objects::{Kind, Object, applied};
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::lease;
use meridian_shared::protocol::{OnLoss, RefuseReason, Run, StopReason};
use meridian_shared::time::Millis;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Clusters of which a refusal tells why each is out of bounds.
const TOLD_MAX: usize = 4;

/// Most changes in one transaction.
pub(crate) const CHANGES_MAX: usize = 10_000;

impl Turn<'_> {
    pub(crate) fn write(&mut self, mut write: Write) {
        if write.changes.len() > CHANGES_MAX {
            let message = format!(
                "{} changes in one request, at most {CHANGES_MAX} are taken: split it",
                write.changes.len()
            );
            return self.reply(Reply::Rejected(vec![Rejection {
                index: 0,
                reason: RejectionReason::Invalid,
                field: None,
                message,
            }]));
        }
        // Judge everything against a copy of the catalog first: later changes may refer to earlier ones.
        // Jobs change nothing in it, so that a write of jobs only borrows it.
        let mut catalog = Cow::Borrowed(&self.world.state.catalog);
        let (remarks, mut rejections) = merge_applied(&catalog, &mut write.changes);
        let mut seen = BTreeSet::new();
        let mut judged = Vec::with_capacity(write.changes.len());
        for (index, (change, job)) in write.with_jobs().enumerate() {
            match self.judge_change(&mut catalog, change, job, &write.actor, &mut seen) {
                Ok(class) => judged.push(class),
                Err(mut rejection) => {
                    rejection.index = index;
                    rejections.push(rejection);
                }
            }
        }
        for (index, change) in write.changes.iter().enumerate() {
            if let Change::Put { object, scope: None, .. } = change
                && let Err(mut rejection) = judge_references(&catalog, &self.world.config, object)
            {
                rejection.index = index;
                rejections.push(rejection);
            }
        }
        if !rejections.is_empty() {
            rejections.sort_by_key(|r| r.index);
            self.audit_refusals(&write, &rejections);
            return self.reply(Reply::Rejected(rejections));
        }
        let rules_before = self.world.state.rules;
        let classes: Vec<Arc<str>> = write.changes.iter().filter_map(changed_priority).collect();
        let accepted = write.with_jobs().zip(judged).map(|((change, job), class)| {
            self.perform(change, job.map(|job| (job, class)), &write.actor, write.dry_run)
        });
        let mut written: Vec<Written> = accepted.collect();
        for (index, remarks) in remarks {
            written[index].warnings.extend(remarks);
        }
        // Who waits too long at the head of a queue that is opened again comes before those behind it at once.
        let opens = |written: &Written| {
            written.result == WriteResult::Configured
                && matches!(written.key.kind, Kind::ClusterQueue | Kind::LocalQueue)
        };
        self.world.live.look_for_starving |=
            self.world.config.starvation_guard.is_some() && !write.dry_run && written.iter().any(opens);
        if self.world.state.rules != rules_before {
            self.rejudge();
            self.drain_stopped();
            self.rank_again();
        }
        for class in classes {
            self.revalue(&class, &write.actor);
        }
        self.reply(Reply::Written(written));
        self.out.spent.push(write);
    }

    /// Queues that are to be drained: what they charged is taken back.
    fn drain_stopped(&mut self) {
        let catalog = &self.world.state.catalog;
        let drained = |uid: &Uid, w: &crate::Workload| {
            let class = self.world.queues.class(w.class);
            let local = catalog.local_queue(&class.namespace, &class.queue).map(|q| q.stop_policy);
            let cluster = self
                .world
                .queues
                .charged_to(*uid)
                .and_then(|name| catalog.cluster_queue(name))
                .map(|q| q.stop_policy);
            w.phase.charged()
                && w.phase != Phase::Stopping
                && [local, cluster].contains(&Some(StopPolicy::HoldAndDrain))
        };
        let drained: Vec<Uid> = self
            .world
            .state
            .workloads
            .iter()
            .filter(|(uid, w)| drained(uid, w))
            .map(|(uid, _)| *uid)
            .collect();
        for uid in drained {
            match self.workload(uid).and_then(World::right).and_then(|(_, leg)| leg.fence) {
                Some(fence) => self.order_stop(uid, fence, StopReason::Evicted, &Actor::system()),
                None => self.withdraw_open(uid),
            }
        }
        // Whether its queue is stopped still is told of who was drained.
        self.out
            .workloads
            .extend(self.world.state.workloads.iter().filter(|(_, w)| w.was_drained()).map(|(uid, _)| *uid));
    }

    /// Whether a change may be made; with the class that a job would have.
    fn judge_change(
        &self,
        catalog: &mut Cow<'_, Catalog>,
        change: &Change,
        job: Option<&ReadJob>,
        by: &Actor,
        seen: &mut BTreeSet<Key>,
    ) -> Result<Option<Class>, Rejection> {
        let key = match change {
            Change::Put { object, scope, .. } => key_of(object, scope.as_ref()),
            Change::SetActive { key, .. } | Change::Delete { key, .. } => key.clone(),
        };
        if !seen.insert(key.clone()) {
            return reject(RejectionReason::Invalid, None, format!("{key} appears twice in one request"));
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
                    return reject(RejectionReason::Invalid, Some("kind"), message);
                }
                if object.kind == Kind::Workload {
                    return reject(
                        RejectionReason::Forbidden,
                        None,
                        "workloads are made from jobs: submit the job".into(),
                    );
                }
                let (exists, changed) = match object.kind {
                    Kind::Job => {
                        let there = self.job_at(&key);
                        (there.is_some(), there.and_then(|u| self.workload(u)).map(|w| w.changed))
                    }
                    _ => (catalog.get(&key).is_some(), catalog.get(&key).map(|s| s.changed)),
                };
                match (mode, exists) {
                    (PutMode::Create, true) => {
                        return reject(RejectionReason::AlreadyExists, None, format!("{key} already exists"));
                    }
                    (PutMode::Replace(_), false) => {
                        return reject(RejectionReason::NotFound, None, format!("{key} doesn't exist"));
                    }
                    // A status that moved is no change of what people write.
                    (PutMode::Replace(Some(version)), true)
                        if *version > self.world.state.last || changed.is_none_or(|at| at > *version) =>
                    {
                        return reject(
                            RejectionReason::Conflict,
                            None,
                            format!(
                                "{key} changed since version {version}: read it again and repeat the change"
                            ),
                        );
                    }
                    _ => {}
                }
                if object.kind == Kind::Job {
                    self.judge_uid(&key, *uid)?;
                    let no_job =
                        || reject(RejectionReason::Invalid, Some("kind"), format!("{key} is no job"));
                    return job.map_or_else(no_job, |job| self.judge_job(catalog, job, &key));
                }
                judge_value(catalog, &key, object)?;
                catalog.to_mut().put(
                    key,
                    (**object).clone(),
                    *uid,
                    self.now.wall,
                    self.world.state.last,
                    by.clone(),
                );
                Ok(None)
            }
            Change::SetActive { active, version, .. } => {
                self.judge_activity(&key, *active, *version).map(|()| None)
            }
            Change::Delete { uid, .. } => {
                let there = match key.kind {
                    Kind::Job => self.job_at(&key),
                    _ => catalog.get(&key).map(|s| s.uid),
                };
                match (there, uid) {
                    (None, _) => reject(RejectionReason::NotFound, None, format!("{key} doesn't exist")),
                    (Some(has), Some(wanted)) if has != *wanted => {
                        reject(RejectionReason::Conflict, None, format!("{key} has another uid now"))
                    }
                    (Some(_), _) => {
                        self.judge_delete(&key)?;
                        if key.kind != Kind::Job {
                            catalog.to_mut().remove(&key);
                        }
                        Ok(None)
                    }
                }
            }
        }
    }

    fn judge_delete(&self, key: &Key) -> Result<(), Rejection> {
        if key.scope.is_some() {
            return Ok(());
        }
        let holds = |kind: &str, count: usize| {
            reject(
                RejectionReason::Conflict,
                None,
                format!("{key} still has {count} {kind}: end or delete them first"),
            )
        };
        match key.kind {
            Kind::Cluster => {
                match self.world.loads.get(&ClusterName::new(&key.name)).map_or(0, |l| l.len()) {
                    0 => Ok(()),
                    n => holds("workloads", n),
                }
            }
            // Its labels bind its jobs: without it they would be bound by less.
            Kind::Namespace => {
                let here = |w: &&crate::Workload| w.phase != Phase::Finished && *w.namespace == *key.name;
                let queues = self
                    .world
                    .state
                    .catalog
                    .iter()
                    .filter(|(of, _)| of.scope.is_none() && of.namespace.as_deref() == Some(&*key.name))
                    .count();
                match (self.world.state.workloads.values().filter(here).count(), queues) {
                    (0, 0) => Ok(()),
                    (0, queues) => holds("objects", queues),
                    (jobs, _) => holds("jobs", jobs),
                }
            }
            Kind::LocalQueue => {
                let uses = |w: &&crate::Workload| {
                    let class = self.world.queues.class(w.class);
                    w.phase != Phase::Finished
                        && key.namespace.as_deref() == Some(&*class.namespace)
                        && class.queue == key.name
                };
                match self.world.state.workloads.values().filter(|w| w.phase.charged()).filter(uses).count() {
                    0 => Ok(()),
                    n => holds("charged workloads", n),
                }
            }
            // Who asks for nothing that is counted has its quota all the same.
            Kind::ClusterQueue => match self.charged_by(&key.name) {
                0 => Ok(()),
                n => holds("charged workloads", n),
            },
            Kind::Workload => {
                reject(RejectionReason::Forbidden, None, "workloads go with their job: delete the job".into())
            }
            _ => Ok(()),
        }
    }

    /// How many workloads hold quota of a cluster queue.
    fn charged_by(&self, queue: &str) -> usize {
        let charged = |uid: &&Uid| self.world.queues.charged_to(**uid).is_some_and(|of| **of == *queue);
        self.world.state.workloads.keys().filter(charged).count()
    }

    pub(crate) fn job_at(&self, key: &Key) -> Option<Uid> {
        self.world.uid_of(key.namespace.as_deref().unwrap_or("default"), &key.name)
    }

    /// Whether a new job may have its uid: not one under which a run is known that this journal never granted. That run would have
    /// another beside it (simulation seed 702893).
    fn judge_uid(&self, key: &Key, uid: Uid) -> Result<(), Rejection> {
        const FIRST: Fence = Fence { epoch: 0, leadership: 0, counter: 0 };
        let orphan = self.world.state.orphans.range((uid, FIRST)..).next().filter(|((of, _), _)| *of == uid);
        match orphan.filter(|_| self.job_at(key).is_none()) {
            Some((_, orphan)) => reject(
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

    /// Whether a job may be submitted, or its pods may be more or fewer; with the class that it would have, unless nothing changes.
    fn judge_job(&self, catalog: &Catalog, read: &ReadJob, key: &Key) -> Result<Option<Class>, Rejection> {
        let invalid = |field: &str, message: String| reject(RejectionReason::Invalid, Some(field), message);
        if let Some(uid) = self.job_at(key) {
            let there = self.workload(uid).expect("names lead to workloads");
            if there.body == read.hash_as(uid) {
                return Ok(None);
            }
            self.judge_resize(read, uid, key)?;
        }
        let job = &read.job;
        let queue = &job.queue;
        let namespace = key.namespace.clone().unwrap_or_else(|| Arc::from("default"));
        if catalog.local_queue(&namespace, queue).is_none() {
            return invalid(
                "metadata.labels[kueue.x-k8s.io/queue-name]",
                format!(
                    "there is no local queue `{queue}` in namespace `{namespace}`: {}",
                    which_queue(catalog, &namespace)
                ),
            );
        }
        if catalog.job_priority(job).is_none() {
            let (field, kind, name) = match (&job.priority_class, &job.pod_priority_class) {
                (Some(class), _) => (
                    "metadata.labels[kueue.x-k8s.io/priority-class]",
                    Kind::WorkloadPriorityClass,
                    class.as_str(),
                ),
                (None, class) => (
                    "spec.template.spec.priorityClassName",
                    Kind::PriorityClass,
                    class.as_deref().unwrap_or_default(),
                ),
            };
            return invalid(field, format!("there is no {kind} `{name}`: create it first"));
        }
        let (term, _) = self.lease_of(catalog, &namespace, queue);
        if let Some(grace) = job.grace_period
            && grace > lease::stop_budget(term)
        {
            return invalid(
                "spec.template.spec.terminationGracePeriodSeconds",
                format!(
                    "a grace period of {grace} is longer than the stop budget of {} that a lease term of {term} leaves: shorten it, or choose a longer term",
                    lease::stop_budget(term)
                ),
            );
        }
        let before = self
            .job_at(key)
            .and_then(|uid| self.workload(uid))
            .map(|there| self.world.queues.class(there.class));
        let class = match before.map_or_else(
            || read.class(catalog, &namespace),
            |before| Ok(read.class_after(catalog, &namespace, before)),
        ) {
            Ok(class) => class,
            Err(broken) => return invalid("spec.template.spec", broken),
        };
        self.judge_place(catalog, &class)?;
        Ok(Some(class))
    }

    /// Refuses a job that no declared cluster may ever run by policy, and what may not be stored where this manager is.
    fn judge_place(&self, catalog: &Catalog, class: &Class) -> Result<(), Rejection> {
        if let Some(here) = &self.world.config.jurisdiction {
            for (name, version, policy) in
                catalog.residency_policies().filter(|(_, _, p)| residency::matches(catalog, p, class))
            {
                let stays = policy
                    .allow
                    .as_ref()
                    .is_none_or(|a| a.jurisdictions.is_empty() || a.jurisdictions.contains(here));
                if !stays || policy.deny.jurisdictions.contains(here) {
                    return reject(
                        RejectionReason::Forbidden,
                        None,
                        format!(
                            "residency policy `{name}` (version {version}) doesn't allow this workload to be stored in `{here}`, where this manager is: submit it to a manager in an allowed jurisdiction"
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
            .map(|name| residency::judge(catalog, class, name, self.world.config.residency_required).err())
            // Only a rule that names places can never change its mind; of a cluster that isn't declared yet the place may be a right one.
            .map(|denied| denied.filter(|denied| *denied != Denied::UnknownPlace).ok_or(()))
            .collect();
        let Some(denied) = denied.ok().filter(|denied| !denied.is_empty()) else { return Ok(()) };
        let wished = |name: &&ClusterName| {
            class.regions.is_empty()
                || catalog.cluster(name).is_some_and(|spec| class.regions.contains(&spec.region))
        };
        // Of where it asks to be the reason is told, else which regions there are.
        let told: BTreeSet<String> = listed
            .iter()
            .zip(&denied)
            .filter(|(name, _)| wished(name))
            .map(|(name, why)| format!("at `{name}` {why}"))
            .take(TOLD_MAX)
            .collect();
        let why = if told.is_empty() {
            let regions: BTreeSet<_> = listed
                .iter()
                .filter_map(|name| Some(format!("`{}`", catalog.cluster(name)?.region)))
                .collect();
            format!(
                "it asks for other regions than there are: {}",
                regions.into_iter().collect::<Vec<_>>().join(", ")
            )
        } else {
            told.into_iter().collect::<Vec<_>>().join("; ")
        };
        let field = (!class.regions.is_empty()).then_some("metadata.annotations[meridian.dev/region]");
        reject(
            RejectionReason::Forbidden,
            field,
            format!("no cluster of its queue may run this workload: {why}"),
        )
    }

    /// Jobs that a rule of residency refuses are remembered, with who sent them: one line for each rule of a request.
    fn audit_refusals(&mut self, write: &Write, rejections: &[Rejection]) {
        let mut told = BTreeSet::new();
        for rejection in rejections
            .iter()
            .filter(|rejection| rejection.reason == RejectionReason::Forbidden && !write.dry_run)
        {
            let Some(Change::Put { object, scope, .. }) =
                write.changes.get(rejection.index).filter(|_| told.insert(&rejection.message))
            else {
                continue;
            };
            if object.kind == Kind::Job {
                let entry = Entry {
                    action: "submit".into(),
                    subject: key_of(object, scope.as_ref()).to_string(),
                    cluster: None,
                    verdict: Some("denied".into()),
                    rule: None,
                    detail: Some(rejection.message.clone()),
                };
                self.audit(write.actor.clone(), entry);
            }
        }
    }

    fn perform(
        &mut self,
        change: &Change,
        job: Option<(&ReadJob, Option<Class>)>,
        by: &Actor,
        dry_run: bool,
    ) -> Written {
        match change {
            Change::Put { object, scope, uid, .. } => {
                let key = key_of(object, scope.as_ref());
                if let Some(job) = job {
                    return self.submit(key, job, *uid, by, dry_run);
                }
                let there = self.world.state.catalog.get(&key);
                let result = match there {
                    None => WriteResult::Created,
                    Some(stored) if stored.object.stored == object.stored => WriteResult::Unchanged,
                    Some(_) => WriteResult::Configured,
                };
                let uid = there.map_or(*uid, |s| s.uid);
                let warnings = match scope {
                    None => meridian_objects::not_honoured(object),
                    Some(_) => meridian_objects::not_honoured_by_cluster(object),
                };
                let unknown =
                    scope.as_ref().filter(|cluster| self.world.state.catalog.cluster(cluster).is_none());
                let unknown = unknown.map(|cluster| {
                    format!(
                        "no cluster `{cluster}` is declared: this counts once one of that name has joined"
                    )
                });
                let warnings = warnings.iter().map(ToString::to_string).chain(unknown).collect();
                if !dry_run && result != WriteResult::Unchanged {
                    self.audit_change(
                        &key,
                        by,
                        if result == WriteResult::Created { "created" } else { "changed" },
                    );
                    self.record(Record::Applied {
                        key: key.clone(),
                        object: object.clone(),
                        uid,
                        at: self.now.wall,
                        by: by.clone(),
                    });
                    if matches!(key.kind, Kind::ResourceFlavor | Kind::Topology) {
                        // What was too much for the machines as they were described may fit now.
                        self.world
                            .live
                            .refused
                            .retain(|_, (_, reason, _)| *reason != RefuseReason::NeverFits);
                    }
                    self.stir();
                }
                Written { key, uid, result, warnings }
            }
            Change::Delete { key, .. } => self.delete(key.clone(), by, dry_run),
            Change::SetActive { key, active, .. } => self.set_active(key.clone(), *active, by, dry_run),
        }
    }

    fn audit_change(&mut self, key: &Key, by: &Actor, how: &str) {
        if Catalog::is_rule(key.kind) {
            let entry = Entry {
                action: "rule".into(),
                subject: key.to_string(),
                cluster: key.scope.as_ref().map(ToString::to_string),
                verdict: Some(how.into()),
                rule: None,
                detail: None,
            };
            self.audit(by.clone(), entry);
        }
    }

    fn submit(
        &mut self,
        key: Key,
        (read, class): (&ReadJob, Option<Class>),
        uid: Uid,
        by: &Actor,
        dry_run: bool,
    ) -> Written {
        let (uid, result, warnings) = match (self.job_at(&key), class) {
            (Some(there), class) => (there, self.resize((read, class), there, by, dry_run), Vec::new()),
            (None, Some(class)) => {
                if !dry_run {
                    self.accept((read, class), &key, uid, None, by);
                    self.world.live.dirty = true;
                }
                (uid, WriteResult::Created, read.warnings.clone())
            }
            (None, None) => unreachable!("a job that isn't there was judged with its class"),
        };
        Written { key, uid, result, warnings }
    }

    /// Submits the job of a run that this journal doesn't know, if it is the very job that runs, under the run's uid and lease.
    pub(crate) fn submit_adopted(&mut self, object: &Object, run: &Run, by: &Actor) -> Result<(), Rejection> {
        let key = key_of(object, None);
        let there = reject(
            RejectionReason::AlreadyExists,
            None,
            format!("{key} already exists: delete it first, or stop the orphan"),
        );
        let Some(read) = ReadJob::of(&mut object.clone(), run.uid) else {
            return reject(RejectionReason::Invalid, Some("kind"), format!("{key} is no job"));
        };
        if self.job_at(&key).is_some() {
            return there;
        }
        if read.hash != run.spec {
            let message = format!(
                "{key} isn't the job that runs there: its manifest must be, to the letter, the one that was submitted"
            );
            return reject(RejectionReason::Invalid, None, message);
        }
        let judged = self.judge_job(&self.world.state.catalog, &read, &key)?;
        let Some(class) = judged else { return there };
        self.accept((&read, class), &key, run.uid, Some((run.term, run.on_loss)), by);
        Ok(())
    }

    fn accept(
        &mut self,
        (read, class): (&ReadJob, Class),
        key: &Key,
        uid: Uid,
        lease: Option<(Millis, OnLoss)>,
        by: &Actor,
    ) {
        let job = &read.job;
        let namespace = class.namespace.clone();
        let (term, on_loss) =
            lease.unwrap_or_else(|| self.lease_of(&self.world.state.catalog, &namespace, &class.queue));
        let priority = self.world.state.catalog.job_priority(job).unwrap_or(0);
        self.new_bodies.insert(read.hash, read.body.clone());
        let submission = Submission {
            uid,
            namespace,
            name: key.name.clone(),
            class,
            priority,
            body: read.hash,
            term,
            on_loss,
            ttl: job.ttl_after_finished,
            at: self.now.wall,
            by: by.clone(),
        };
        self.record(Record::Submitted(Box::new(submission)));
    }

    fn delete(&mut self, key: Key, by: &Actor, dry_run: bool) -> Written {
        if key.kind != Kind::Job {
            let uid = self.world.state.catalog.get(&key).map_or(Uid(0), |s| s.uid);
            if !dry_run {
                self.audit_change(&key, by, "deleted");
                self.record(Record::Removed { key: key.clone(), by: by.clone() });
                self.stir();
            }
            return Written { key, uid, result: WriteResult::Deleted, warnings: Vec::new() };
        }
        let uid = self.job_at(&key).expect("judged before");
        let phase = self.workload(uid).expect("names lead to workloads").phase;
        let result = if phase.granted() { WriteResult::Deleting } else { WriteResult::Deleted };
        if !dry_run {
            if self.workload(uid).is_some_and(|w| w.deletion.is_none()) {
                self.record(Record::DeletionAsked { uid, at: self.now.wall, by: by.clone() });
            }
            self.end(uid, StopReason::Cancelled, by);
        }
        Written { key, uid, result, warnings: Vec::new() }
    }

    /// Ends a workload: at once where no cluster has the right to run it, else by an ordered stop.
    pub(crate) fn end(&mut self, uid: Uid, reason: StopReason, by: &Actor) {
        self.withdraw_open(uid);
        let Some(workload) = self.workload(uid) else { return };
        match World::right(workload).and_then(|(_, leg)| leg.fence) {
            Some(fence) => self.order_stop(uid, fence, reason, by),
            None if workload.deletion.is_some() => {
                self.record(Record::Forgotten { uid });
                self.stir();
            }
            None => {}
        }
    }

    /// Lease term and loss mode for a job of this queue, as the dispatch policy says now.
    fn lease_of(&self, catalog: &Catalog, namespace: &str, queue: &str) -> (Millis, OnLoss) {
        let cluster_queue =
            catalog.local_queue(namespace, queue).map(|q| q.cluster_queue.clone()).unwrap_or_default();
        match catalog.dispatch_policy(&cluster_queue) {
            Some(policy) => {
                let mode = match policy.on_cluster_loss.mode {
                    ClusterLossMode::Fence => OnLoss::Fence,
                    ClusterLossMode::Wait => OnLoss::Wait,
                };
                (policy.on_cluster_loss.term.max(self.world.config.term_min).min(lease::TERM_MAX), mode)
            }
            None => (self.world.config.term.max(self.world.config.term_min), OnLoss::Fence),
        }
    }
}

/// Merges what is applied into what is there; with remarks on it, by index. What comes to no valid object is rejected.
fn merge_applied(catalog: &Catalog, changes: &mut [Change]) -> (Vec<(usize, Vec<String>)>, Vec<Rejection>) {
    let (mut remarks, mut rejections) = (Vec::new(), Vec::new());
    for (index, change) in changes.iter_mut().enumerate() {
        let Change::Put { object, scope, mode: PutMode::Apply, .. } = change else { continue };
        let Some(there) = catalog.get(&key_of(object, scope.as_ref())) else { continue };
        match applied::over(&there.object, object) {
            Ok(merged) => {
                remarks.push((index, merged.remarks()));
                **object = merged.object;
            }
            Err(errors) => rejections.extend(errors.into_iter().map(|error| Rejection {
                index,
                reason: RejectionReason::Invalid,
                field: Some(error.field.to_string()),
                message: format!("with what is there already, {}; {}", error.message, error.remedy),
            })),
        }
    }
    (remarks, rejections)
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

/// The value of a PriorityClass stays as it is, as in Kubernetes: whoever was given it keeps it.
fn judge_value(catalog: &Catalog, key: &Key, object: &Object) -> Result<(), Rejection> {
    use meridian_objects::Spec;
    match (&object.spec, catalog.get(key).map(|stored| &stored.object.spec)) {
        (Spec::PriorityClass(new), Some(Spec::PriorityClass(old))) if new.value != old.value => {
            let message = format!(
                "{key} has the value {}, which can't be changed: create another class, or delete this one first",
                old.value
            );
            reject(RejectionReason::Invalid, Some("value"), message)
        }
        _ => Ok(()),
    }
}

/// What an object refers to must exist, or be in the same request.
fn judge_references(catalog: &Catalog, config: &Config, object: &Object) -> Result<(), Rejection> {
    use meridian_objects::Spec;
    match &object.spec {
        Spec::LocalQueue(spec) if catalog.cluster_queue(&spec.cluster_queue).is_none() => reject(
            RejectionReason::Invalid,
            Some("spec.clusterQueue"),
            format!(
                "there is no cluster queue `{}`: apply it before or together with the local queue",
                spec.cluster_queue
            ),
        ),
        Spec::Cohort(spec) if catalog.cohort_is_its_ancestor(&object.name) => reject(
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
            fits.or_else(|why| reject(RejectionReason::Invalid, Some("spec.onClusterLoss.term"), why))
        }
        _ => Ok(()),
    }
}

fn which_queue(catalog: &Catalog, namespace: &str) -> String {
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

pub(crate) fn reject<T>(
    reason: RejectionReason,
    field: Option<&str>,
    message: String,
) -> Result<T, Rejection> {
    Err(Rejection { index: 0, reason, field: field.map(str::to_owned), message })
}

/// The key of an object as it will be stored.
pub(crate) fn key_of(object: &Object, scope: Option<&ClusterName>) -> Key {
    Key {
        scope: scope.cloned(),
        kind: object.kind,
        namespace: object.namespace_or_default().map(Arc::from),
        name: Arc::from(object.name.as_str()),
    }
}

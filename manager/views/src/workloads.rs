//! Renders workloads: the Job with its status, and Kueue's `Workload` with conditions, admission, and pod
//! sets that `meridian plan` can read back.
//!
//! Condition types and reasons are Kueue's, and so are messages with the same meaning. A condition names a
//! preemptor only by uid, as in Kueue, and no text names a workload that its reader may not read.
//!
//! The facts are collected whenever a workload changes ([`Shown`]), and rendered when a client reads it.

mod conditions;
mod pod_sets;

use crate::asker::{Asker, job_key};
use crate::explain::scale_up::{self, ScaleUp};
use crate::explain::words;
use crate::{fields, pod_placement};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::submission::{Class, ClassId};
use meridian_manager_core::queue::classes::QueuePosition;
use meridian_manager_core::queue::pending_reasons::PendingReason;
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::evictions::Evictions;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::world::World;
use meridian_manager_core::world::lifecycle::queue_of;
use meridian_objects::job::{
    JobFinish, PRIORITY_LABEL, PodProgress, QUEUE_LABEL, SOURCE_ANNOTATION, SOURCE_CLUSTER,
};
use meridian_objects::spec::{CheckRule, StopPolicy};
use meridian_objects::{Kind, ResourceRules, quantity};
use meridian_shared::gang::PodSet;
use meridian_shared::ids::{ClusterName, ContentHash, RecordNumber, Region, Uid};
use meridian_shared::time::Mono;
use meridian_shared::timestamp::{micro_timestamp, timestamp};
use meridian_topology::PODS;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The uid of a job's workload.
fn workload_uid(job: Uid) -> Uid {
    Uid(job.0 ^ 1)
}

/// Kueue's reasons if a local queue, or a cluster queue, is stopped.
#[derive(Debug, PartialEq)]
struct QueueStop {
    reason: &'static str,
    queue: &'static str,
    restarted: &'static str,
}

const STOPS: &[QueueStop] = &[
    QueueStop { reason: "LocalQueueStopped", queue: "LocalQueue", restarted: "LocalQueueRestarted" },
    QueueStop { reason: "ClusterQueueStopped", queue: "ClusterQueue", restarted: "ClusterQueueRestarted" },
];

/// Longest search for a workload's position in its class. Positions beyond it aren't shown.
const POSITIONS_MAX: usize = 1_000;

/// Everything that the Job and the `Workload` are rendered from, as of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    uid: Uid,
    workload: Arc<Workload>,
    class: Arc<Class>,
    resources: Arc<ResourceRules>,
    /// The cluster queue that its quota is charged to.
    charged: Option<Arc<str>>,
    /// Names of the cluster queue's admission checks that apply to its flavors.
    checks: Vec<String>,
    backs_off: bool,
    /// Whether its stored manifest is known to be unreadable.
    damaged: bool,
    /// The job of its last preemptor, as long as that workload exists.
    preemptor: Option<Key>,
    /// Set while it is pending because a queue was drained: whether that queue is still stopped, and its
    /// kind.
    drained: Option<(bool, &'static QueueStop)>,
    /// Why a scale-up of the running gang is pending.
    scale_up: Option<ScaleUp>,
    /// Number of equivalent workloads ahead of it.
    position_in_class: Option<usize>,
    /// The cluster that runs it, or ran it last.
    cluster: Option<ClusterName>,
    region: Option<Region>,
}

/// Collects the facts about a workload. `None` if it doesn't exist.
pub fn shown(world: &World, uid: Uid, now: Mono) -> Option<Shown> {
    let workload = world.state().workloads().shared(&uid)?;
    let charged = world.queues().charged_to(uid).cloned();
    let here = QueuePosition::new(workload.priority(), workload.submitted(), uid);
    let cluster = workload
        .right()
        .map(|(_, l)| l.cluster())
        .or_else(|| workload.finished().and(workload.history().last()).map(|s| &s.cluster));
    Some(Shown {
        uid,
        class: world.queues().class(workload.class()).clone(),
        resources: world.config().resources.clone(),
        checks: charged
            .clone()
            .or_else(|| queue_it_ran_in(world, uid, workload))
            .map_or_else(Vec::new, |queue| checks_of(world, workload, &queue)),
        backs_off: world.live().backoffs().until(uid).is_some(),
        damaged: world.live().damaged().contains(uid),
        preemptor: workload
            .preempted()
            .and_then(|preempted| world.state().workloads().get(&preempted.by))
            .map(job_key),
        drained: drained_by(workload)
            .map(|by| stop_of(world, workload).map_or((false, by), |stop| (true, stop))),
        scale_up: workload.phase().granted().then(|| scale_up::scale_up(world, uid, workload, now)).flatten(),
        position_in_class: world
            .queues()
            .waiting(workload.class())
            .take(POSITIONS_MAX)
            .position(|position| *position == here),
        region: cluster.and_then(|c| world.state().catalog().cluster(c)).map(|c| c.region.clone()),
        cluster: cluster.cloned(),
        charged,
        workload: workload.clone(),
    })
}

/// The cluster queue of a finished workload that a cluster had the right to run. As in Kueue, its admission
/// checks still name that cluster.
fn queue_it_ran_in(world: &World, uid: Uid, workload: &Workload) -> Option<Arc<str>> {
    workload.finished().and(workload.history().last()).and_then(|_| queue_of(world, uid))
}

/// The admission checks of the queue that quota is charged to, without those for other flavors. The flavors
/// of a finished workload are unknown, so all checks count.
fn checks_of(world: &World, workload: &Workload, queue: &str) -> Vec<String> {
    let spec = world.state().catalog().cluster_queue(queue);
    let applies = |rule: &&CheckRule| {
        let flavors = workload.flavors().names();
        rule.on_flavors.is_empty()
            || flavors.iter().any(|flavor| rule.on_flavors.iter().any(|on| **on == ***flavor))
    };
    spec.iter()
        .flat_map(|spec| spec.admission_checks.iter())
        .filter(applies)
        .map(|rule| rule.name.clone())
        .collect()
}

/// Which of the workload's queues is stopped, if one is.
fn stop_of(world: &World, workload: &Workload) -> Option<&'static QueueStop> {
    let class = world.queues().class(workload.class());
    let local = world.state().catalog().local_queue(&class.namespace, &class.queue)?;
    let cluster = world
        .state()
        .catalog()
        .cluster_queue(&local.cluster_queue)
        .map_or(StopPolicy::None, |queue| queue.stop_policy);
    STOPS
        .iter()
        .zip([local.stop_policy, cluster])
        .find(|(_, policy)| *policy != StopPolicy::None)
        .map(|(stop, _)| stop)
}

/// The queue stop that evicted a pending workload.
fn drained_by(workload: &Workload) -> Option<&'static QueueStop> {
    let evicted = workload.evicted().filter(|_| workload.waits())?;
    STOPS.iter().find(|stop| stop.reason == evicted.cause.reason())
}

impl Shown {
    /// Keys of the job and of the `Workload`.
    pub fn keys(&self) -> [Key; 2] {
        let key =
            |kind, name| Key { scope: None, kind, namespace: Some(self.workload.namespace().clone()), name };
        [
            key(self.workload.kind(), self.workload.name().clone()),
            key(Kind::Workload, self.workload.object_name()),
        ]
    }

    pub fn class(&self) -> (ClassId, &Arc<Class>) {
        (self.workload.class(), &self.class)
    }

    /// The newest record about the workload.
    pub fn version(&self) -> RecordNumber {
        self.workload.changed()
    }

    /// Whether a scale-up of the running gang is pending.
    pub fn has_scale_up(&self) -> bool {
        self.scale_up.is_some()
    }

    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// Whether the stored manifest is known to be unreadable.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Hash of the submitted job.
    pub fn body(&self) -> ContentHash {
        self.workload.body()
    }

    /// Renders the job: `value` is the submitted one, `reason` the pending reason of its class.
    pub fn job(&self, value: Value, reason: Option<&PendingReason>, asker: &Asker) -> Value {
        self.render_job(value, reason, asker, self.damaged)
    }

    /// Renders a job whose manifest can't be read, from the other known facts, and states the damage.
    pub fn job_without_manifest(&self, reason: Option<&PendingReason>, asker: &Asker) -> Value {
        let mut labels = self.class.labels.clone();
        labels.insert(QUEUE_LABEL.to_owned(), self.class.queue.to_string());
        let kind = self.workload.job_kind();
        let mut known = json!({
            "apiVersion": kind.api_version(), "kind": kind.name(),
            "metadata": {"name": self.workload.name(), "labels": labels},
            "spec": {},
        });
        if self.workload.is_managed() {
            known["metadata"]["annotations"] = json!({SOURCE_ANNOTATION: SOURCE_CLUSTER});
        }
        self.render_job(known, reason, asker, true)
    }

    fn render_job(
        &self,
        mut value: Value,
        reason: Option<&PendingReason>,
        asker: &Asker,
        damaged: bool,
    ) -> Value {
        let (w, uid) = (&self.workload, self.uid);
        let metadata = fields::metadata(&mut value);
        metadata.insert("uid".into(), json!(uid.to_string()));
        metadata.insert("namespace".into(), json!(w.namespace()));
        metadata.insert("resourceVersion".into(), json!(w.changed().to_string()));
        metadata.insert("generation".into(), json!(1 + w.resizes()));
        metadata.insert("creationTimestamp".into(), json!(timestamp(w.created())));
        if let Some(at) = w.deletion() {
            metadata.insert("deletionTimestamp".into(), json!(timestamp(at)));
        }
        let kind = w.job_kind();
        let asker = &asker.about(Some(w.namespace()));
        let mut status = self.job_status(reason, asker, damaged);
        kind.write_progress(&mut status, &self.pod_progress(), &value);
        if damaged {
            status.insert(
                "conditions".to_owned(),
                json!([{
                    "type": "Damaged", "status": "True", "reason": "ManifestUnreadable",
                    "message": conditions::damaged_message(asker), "lastTransitionTime": timestamp(w.since()),
                }]),
            );
        }
        if let Some(finish) = &w.finished() {
            let (succeeded, at) = (finish.succeeded, timestamp(finish.at));
            let (reason, message) = (&*finish.reason, &*finish.message);
            kind.write_finish(&mut status, &JobFinish { succeeded, reason, message, at: &at });
        }
        let is_suspended = !matches!(w.phase(), Phase::Granted | Phase::Running | Phase::Finished);
        kind.set_suspended(&mut value, is_suspended);
        value["status"] = Value::Object(status);
        value
    }

    /// The part of a job's status that is the same for every kind.
    fn job_status(&self, reason: Option<&PendingReason>, asker: &Asker, damaged: bool) -> Map<String, Value> {
        let w = &self.workload;
        let mut meridian = json!({
            "state": w.state_word(damaged),
            "workload": &*w.object_name(),
            "cluster": self.cluster.as_ref().map(ClusterName::as_str),
            "region": self.region.as_ref().map(Region::as_str),
            "attempts": w.attempts(),
            "pods": self.pods(),
            "queue": &*self.class.queue,
            "fence": w.fence().map(|f| f.to_string()),
            "placement": pod_placement::placement_lines(w),
        });
        if let Some(scale_up) = &self.scale_up {
            meridian["scaleUp"] = json!(scale_up.message(asker));
        }
        if let Some(message) = self.lost_message().or_else(|| self.pending_message(reason, asker)) {
            meridian["pendingReason"] = json!(message);
        }
        Map::from_iter([("meridian".to_owned(), meridian)])
    }

    /// Pods of the admitted gang.
    fn pods(&self) -> u32 {
        self.workload.gang(&self.class).pod_sets.iter().map(|set| set.count).sum()
    }

    fn pod_progress(&self) -> PodProgress {
        let w = &self.workload;
        PodProgress {
            pods: self.pods(),
            running: w.phase() == Phase::Running,
            lost: self.lost_message().is_some(),
            failed: w.pod_failures(),
            started: w.activation_started().map(timestamp),
            succeeded: w.finished().filter(|finish| finish.succeeded).map(|finish| timestamp(finish.at)),
            completed: w.completed().clone(),
            reduced: w.counts().is_some(),
        }
    }

    /// Renders the `Workload`. `reason` is the pending reason of its class.
    pub fn workload(&self, reason: Option<&PendingReason>, asker: &Asker) -> Value {
        let (w, uid) = (&self.workload, self.uid);
        let asker = &asker.about(Some(w.namespace()));
        let right = w.right().map(|(_, leg)| leg);
        let mut value = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": &*w.object_name(), "namespace": w.namespace(),
                "uid": workload_uid(uid).to_string(),
                "resourceVersion": w.changed().to_string(), "creationTimestamp": timestamp(w.created()),
                "labels": {"kueue.x-k8s.io/job-uid": uid.to_string()},
                "ownerReferences": [w.job_kind().owner_reference(w.name(), &uid.to_string())],
            },
            "spec": {
                "queueName": &*self.class.queue, "priority": w.priority(), "active": w.inactive().is_none(),
                "podSets": self.class.gang.pod_sets.iter().map(pod_sets::pod_set).collect::<Vec<_>>(),
            },
            "status": {
                "conditions": self.conditions(reason, asker),
                "clusterName": self.cluster.as_ref().map(ClusterName::as_str),
                "admission": self.charged.as_ref().map(|queue| json!({
                    "clusterQueue": &**queue, "podSetAssignments": self.assignments(),
                })),
                "meridian": {
                    "state": w.state_word(self.damaged),
                    "submitted": w.submitted().to_string(),
                    "placeInClass": self.position_in_class,
                    "legs": w.legs().values().map(|leg| json!({
                        "cluster": leg.cluster().as_str(), "state": leg.state(),
                    })).collect::<Vec<_>>(),
                    "history": w.history().iter().map(|attempt| json!({
                        "cluster": attempt.cluster.as_str(),
                        "fence": attempt.fence.to_string(),
                        "granted": micro_timestamp(attempt.granted),
                        "over": attempt.over.map(micro_timestamp),
                        "end": words::attempt_end(attempt, "another workload"),
                    })).collect::<Vec<_>>(),
                    "placement": pod_placement::placement_status(right),
                    // In microseconds, more exact than the condition: of equal victims, the one that was
                    // charged last is preempted first.
                    "reserved": w.reserved().map(micro_timestamp),
                },
            },
        });
        self.add_optional_fields(&mut value, asker);
        value
    }

    /// Adds the fields that only some workloads have.
    fn add_optional_fields(&self, value: &mut Value, asker: &Asker) {
        let w = &self.workload;
        if w.is_managed() {
            value["metadata"]["annotations"] = json!({SOURCE_ANNOTATION: SOURCE_CLUSTER});
        }
        let right = w.right().map(|(_, leg)| leg);
        if let Some(spare) = &w.spare() {
            let gone = w.no_longer_wanted(&self.class);
            let sets = self
                .class
                .gang
                .pod_sets
                .iter()
                .zip(spare.iter().zip(gone))
                .map(|(set, (spare, gone))| (set, spare - gone));
            let sets: Vec<Value> = sets
                .filter(|(_, pods)| *pods > 0)
                .map(|(set, pods)| json!({"name": set.name, "count": pods}))
                .collect();
            if !sets.is_empty() {
                value["status"]["reclaimablePods"] = Value::Array(sets);
            }
        }
        if !w.evictions().is_empty() {
            let count = |of: &Evictions| {
                let (reason, underlying) = (of.cause.reason(), of.cause.underlying());
                json!({"reason": reason, "underlyingCause": underlying, "count": of.count})
            };
            value["status"]["schedulingStats"] =
                json!({"evictions": w.evictions().iter().map(count).collect::<Vec<_>>()});
        }
        if !self.checks.is_empty() {
            value["status"]["admissionChecks"] =
                self.checks.iter().map(|check| self.admission_check(check)).collect();
        }
        if w.ran().0 > 0 {
            value["status"]["accumulatedPastExecutionTimeSeconds"] = json!(w.ran().0 / 1_000);
        }
        if let Some(scale_up) = &self.scale_up {
            value["status"]["meridian"]["scaleUp"] = json!(scale_up.message(asker));
        }
        if let Some(inactive) = w.inactive().filter(|inactive| inactive.by != Actor::ManagementCluster) {
            value["status"]["meridian"]["deactivated"] = json!(micro_timestamp(inactive.at));
        }
        if let Some(wants) = w.resized().and_then(|resized| resized.wants) {
            value["status"]["meridian"]["scaleUpSubmitted"] = json!(wants.asked.to_string());
        }
        if let Some(unhealthy) = pod_placement::unhealthy_nodes(right) {
            value["status"]["unhealthyNodes"] = unhealthy;
        }
        if let Some(name) = self.class.labels.get(PRIORITY_LABEL) {
            value["spec"]["priorityClassRef"] =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name});
        }
        if let Some(most) = self.class.gang.max_exec {
            value["spec"]["maximumExecutionTimeSeconds"] = json!((most.0 / 1_000).max(1));
        }
    }

    /// The state of an admission check. As with Kueue's MultiKueue, its message names the cluster.
    fn admission_check(&self, name: &str) -> Value {
        let w = &self.workload;
        let (state, message, at) = match &self.cluster {
            Some(cluster) => {
                let message = format!("The workload got reservation on \"{cluster}\"");
                ("Ready", message, w.history().last().map_or(w.since(), |attempt| attempt.granted))
            }
            None => ("Pending", String::new(), w.reserved().unwrap_or(w.since())),
        };
        json!({"name": name, "state": state, "message": message, "lastTransitionTime": timestamp(at)})
    }

    /// The assignments, in the form of Kueue's `podSetAssignments`.
    fn assignments(&self) -> Value {
        let w = &self.workload;
        let right = w.right().map(|(_, leg)| leg);
        let one = |(at, set): (usize, &PodSet)| {
            let counted = self.resources.counted(&set.per_pod);
            let count = i64::from(set.count);
            let mut usage: Map<String, Value> = Map::new();
            let mut flavors: Map<String, Value> = Map::new();
            for (resource, flavor) in w.flavors().of(at) {
                // A quota of `pods` counts each pod as one.
                let each = counted.get(resource).copied().or_else(|| (resource == PODS).then_some(1));
                let Some(each) = each else { continue };
                flavors.insert(resource.clone(), json!(&**flavor));
                usage.insert(resource.clone(), json!(quantity::format(resource, each.saturating_mul(count))));
            }
            let mut value =
                json!({"name": set.name, "flavors": flavors, "resourceUsage": usage, "count": set.count});
            if let Some(assignment) = pod_placement::topology_assignment(right, &set.name, set.count) {
                value["topologyAssignment"] = assignment;
            }
            value
        };
        // As in Kueue, the assignment keeps reclaimable pods; they are listed separately.
        let mut gang = (*w.given_gang(&self.class)).clone();
        for (set, gone) in gang.pod_sets.iter_mut().zip(w.no_longer_wanted(&self.class)) {
            set.count -= gone;
        }
        gang.pod_sets.iter().enumerate().map(one).collect()
    }
}

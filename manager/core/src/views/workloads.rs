//! Kueue's view of a job: the `Workload` object, with pod sets that a plan can read back, conditions and the admission.
//!
//! Kueue's types, reasons and, where the meaning is the same, its words. A workload that another was displaced for is named by
//! uid only: its namespace and name may be another tenant's business.
//!
//! What is shown is taken down as facts when something changes ([`Shown`]), and put into words when somebody looks.

use crate::facts::end::{EvictionCause, Preempted, PreemptionReason};
use crate::facts::key::Key;
use crate::facts::submission::{Class, ClassId};
use crate::queue::classes::QueuePosition;
use crate::queue::pending_reasons::PendingReason;
use crate::state::workload::evictions::{Evicted, Evictions};
use crate::state::workload::phase::Phase;
use crate::state::workload::{Reactivation, Workload};
use crate::views::explain::{growth, words};
use crate::views::{format, pod_placement};
use crate::world::World;
use meridian_objects::job::PRIORITY_LABEL;
use meridian_objects::spec::StopPolicy;
use meridian_objects::{Kind, ResourceRules, quantity};
use meridian_shared::gang::{PodSet, Toleration};
use meridian_shared::ids::{ClusterName, ContentHash, RecordNumber, Region, Uid};
use meridian_shared::time::Wall;
use meridian_topology::PODS;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The uid of a job's workload.
fn workload_uid(job: Uid) -> Uid {
    Uid(job.0 ^ 1)
}

/// Kueue's reason and words for who was taken out of the queue: by somebody, or as its time is up.
const fn deactivated(max_execution_time_reached: bool) -> (&'static str, &'static str) {
    match max_execution_time_reached {
        true => (
            "DeactivatedDueToMaximumExecutionTimeExceeded",
            "The workload is deactivated due to exceeding the maximum execution time",
        ),
        false => ("Deactivated", "The workload is deactivated"),
    }
}

/// Kueue's words for a queue that is stopped, or was.
#[derive(Debug, PartialEq)]
struct QueueStop {
    reason: &'static str,
    queue: &'static str,
    restarted: &'static str,
}

/// Of a local queue, and of a cluster queue.
const STOPS: &[QueueStop] = &[
    QueueStop { reason: "LocalQueueStopped", queue: "LocalQueue", restarted: "LocalQueueRestarted" },
    QueueStop { reason: "ClusterQueueStopped", queue: "ClusterQueue", restarted: "ClusterQueueRestarted" },
];

/// Places within a class are told up to here; finding one takes as many steps.
const PLACES_MAX: usize = 1_000;

/// What is known of a workload at one moment: everything that its Job and its `Workload` are shown with.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    uid: Uid,
    workload: Arc<Workload>,
    class: Arc<Class>,
    resources: Arc<ResourceRules>,
    /// The cluster queue whose quota it is charged to.
    charged: Option<Arc<str>>,
    /// It waits a moment before it is looked at again.
    rests: bool,
    /// It waits since a queue of it was drained: whether one is stopped still, and which.
    drained: Option<(bool, &'static QueueStop)>,
    /// Why a gang that runs is smaller than its job wants it.
    growth: Option<String>,
    /// How many of its class are before it.
    place: Option<usize>,
    /// Where it is, or where it ended.
    cluster: Option<ClusterName>,
    region: Option<Region>,
}

impl World {
    /// What is known of a workload now.
    pub fn shown(&self, uid: Uid) -> Option<Shown> {
        let workload = self.state.workloads().shared(&uid)?;
        let charged = self.queues.charged_to(uid).cloned();
        let here = QueuePosition::new(workload.priority(), workload.submitted(), uid);
        let cluster = workload
            .right()
            .map(|(_, l)| &l.cluster)
            .or_else(|| workload.finished().and(workload.history().last()).map(|s| &s.cluster));
        Some(Shown {
            uid,
            class: self.queues.class(workload.class()).clone(),
            resources: self.config.resources.clone(),
            rests: self.live.backoff_until.contains_key(&uid),
            drained: workload
                .drained_by()
                .map(|by| stop_of(self, workload).map_or((false, by), |stop| (true, stop))),
            growth: workload
                .phase()
                .granted()
                .then(|| growth::scale_up_message(self, uid, workload, None))
                .flatten()
                .map(|(words, _)| words),
            place: self.queues.waiting(workload.class()).take(PLACES_MAX).position(|place| *place == here),
            region: cluster.and_then(|c| self.state.catalog().cluster(c)).map(|c| c.region.clone()),
            cluster: cluster.cloned(),
            charged,
            workload: workload.clone(),
        })
    }
}

/// Which of a workload's queues is stopped.
fn stop_of(world: &World, workload: &Workload) -> Option<&'static QueueStop> {
    let class = world.queues.class(workload.class());
    let local = world.state.catalog().local_queue(&class.namespace, &class.queue)?;
    let cluster = world
        .state
        .catalog()
        .cluster_queue(&local.cluster_queue)
        .map_or(StopPolicy::None, |queue| queue.stop_policy);
    STOPS
        .iter()
        .zip([local.stop_policy, cluster])
        .find(|(_, policy)| *policy != StopPolicy::None)
        .map(|(stop, _)| stop)
}

impl Workload {
    fn drained_by(&self) -> Option<&'static QueueStop> {
        let evicted = self.evicted().filter(|_| self.waits())?;
        STOPS.iter().find(|stop| stop.reason == evicted.cause.reason())
    }

    /// Whether it waits since a queue of it was drained.
    pub(crate) fn was_drained(&self) -> bool {
        self.drained_by().is_some()
    }
}

impl Shown {
    /// Its job's key and its own.
    pub fn keys(&self) -> [Key; 2] {
        let key =
            |kind, name| Key { scope: None, kind, namespace: Some(self.workload.namespace().clone()), name };
        [
            key(Kind::Job, self.workload.name().clone()),
            key(Kind::Workload, format::workload_name(&self.workload.name(), self.workload.submitted())),
        ]
    }

    /// Its class.
    pub fn class(&self) -> (ClassId, &Arc<Class>) {
        (self.workload.class(), &self.class)
    }

    /// The newest record about it.
    pub fn version(&self) -> RecordNumber {
        self.workload.changed()
    }

    /// The whole job, by content.
    pub fn body(&self) -> ContentHash {
        self.workload.body()
    }

    /// The Job, as it was submitted, with what became of it and what keeps its class now.
    pub fn job(&self, mut value: Value, keeps: Option<&PendingReason>) -> Value {
        let (w, uid) = (&self.workload, self.uid);
        let metadata = format::metadata(&mut value);
        metadata.insert("uid".into(), json!(uid.to_string()));
        metadata.insert("namespace".into(), json!(&*w.namespace()));
        metadata.insert("resourceVersion".into(), json!(w.changed().to_string()));
        metadata.insert("generation".into(), json!(1 + w.resizes()));
        metadata.insert("creationTimestamp".into(), json!(format::timestamp(w.created())));
        if let Some(at) = w.deletion() {
            metadata.insert("deletionTimestamp".into(), json!(format::timestamp(at)));
        }
        let pods: u32 = w.gang(&self.class).pod_sets.iter().map(|s| s.count).sum();
        let mut status = json!({
            "meridian": {
                "state": w.state_word(),
                "workload": &*format::workload_name(w.name(), w.submitted()),
                "cluster": self.cluster.as_ref().map(ClusterName::as_str),
                "region": self.region.as_ref().map(Region::as_str),
                "attempts": w.attempts(),
                "pods": pods,
                "queue": &*self.class.queue,
                "fence": w.fence().map(|f| f.to_string()),
                "placement": pod_placement::placement_lines(w),
            },
            "failed": w.pod_failures(),
        });
        if let Some(growth) = &self.growth {
            status["meridian"]["growth"] = json!(growth);
        }
        if let Some(waits) = self.waits_in_words(keeps) {
            status["meridian"]["waits"] = json!(waits);
        }
        if let Some(started) = w.started() {
            status["startTime"] = json!(format::timestamp(started));
        }
        if w.phase() == Phase::Running {
            status["active"] = json!(pods);
            status["ready"] = json!(pods);
        }
        if let Some(finish) = &w.finished() {
            let kind = if finish.succeeded { "Complete" } else { "Failed" };
            status["conditions"] = json!([{
                "type": kind, "status": "True", "reason": finish.reason, "message": finish.message, "lastTransitionTime": format::timestamp(finish.at), "lastProbeTime": format::timestamp(finish.at),
            }]);
            if finish.succeeded {
                status["completionTime"] = json!(format::timestamp(finish.at));
                // Whoever was given fewer pods than it wished may be done with as many completions.
                let completions = value
                    .pointer("/spec/completions")
                    .and_then(Value::as_u64)
                    .filter(|_| w.counts().is_none());
                status["succeeded"] = json!(completions.unwrap_or_else(|| u64::from(pods)));
            }
        }
        value["spec"]["suspend"] =
            json!(!matches!(w.phase(), Phase::Granted | Phase::Running | Phase::Finished));
        value["status"] = status;
        value
    }

    /// The `Workload`, with what keeps its class now.
    pub fn workload(&self, keeps: Option<&PendingReason>) -> Value {
        let (w, uid) = (&self.workload, self.uid);
        let right = w.right().map(|(_, leg)| leg);
        let at = right.map(|l| l.cluster.as_str());
        let mut value = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": &*format::workload_name(w.name(), w.submitted()), "namespace": &*w.namespace(), "uid": workload_uid(uid).to_string(),
                "resourceVersion": w.changed().to_string(), "creationTimestamp": format::timestamp(w.created()),
                "labels": {"kueue.x-k8s.io/job-uid": uid.to_string()},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": &*w.name(), "uid": uid.to_string(), "controller": true}],
            },
            "spec": {
                "queueName": &*self.class.queue, "priority": w.priority(), "active": w.inactive().is_none(),
                "podSets": self.class.gang.pod_sets.iter().map(pod_set).collect::<Vec<_>>(),
            },
            "status": {
                "conditions": self.conditions(keeps),
                "clusterName": at,
                "admission": self.charged.as_ref().map(|queue| json!({"clusterQueue": &**queue, "podSetAssignments": self.assignments()})),
                "meridian": {
                    "state": w.state_word(), "submitted": w.submitted().to_string(), "placeInClass": self.place, "legs": w.legs().values().map(|l| json!({"cluster": l.cluster.as_str(), "state": format!("{:?}", l.state)})).collect::<Vec<_>>(),
                    "history": w.history().iter().map(|s| json!({"cluster": s.cluster.as_str(), "fence": s.fence.to_string(), "granted": format::micro_timestamp(s.granted), "over": s.over.map(format::micro_timestamp), "end": s.end.as_ref().map(words::attempt_end)})).collect::<Vec<_>>(),
                    "placement": pod_placement::placement_status(right),
                    // The condition has whole seconds, and of equals the one that was charged last gives way first.
                    "reserved": w.reserved().map(format::micro_timestamp),
                },
            },
        });
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
            let count = |of: &Evictions| json!({"reason": of.cause.reason(), "underlyingCause": of.cause.underlying(), "count": of.count});
            value["status"]["schedulingStats"] =
                json!({"evictions": w.evictions().iter().map(count).collect::<Vec<_>>()});
        }
        if let Some(growth) = &self.growth {
            value["status"]["meridian"]["growth"] = json!(growth);
        }
        if let Some(wants) = w.resized().and_then(|resized| resized.wants) {
            value["status"]["meridian"]["growthAsked"] = json!(wants.asked.to_string());
        }
        if let Some(unhealthy) = pod_placement::unhealthy_nodes(right) {
            value["status"]["unhealthyNodes"] = unhealthy;
        }
        if let Some(name) = self.class.labels.get(PRIORITY_LABEL) {
            value["spec"]["priorityClassRef"] =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name});
        }
        if let Some(most) = self.class.gang.max_run {
            value["spec"]["maximumExecutionTimeSeconds"] = json!((most.0 / 1_000).max(1));
        }
        value
    }

    /// What each pod set was given.
    fn assignments(&self) -> Value {
        let w = &self.workload;
        let right = w.right().map(|(_, leg)| leg);
        let one = |set: &PodSet| {
            let seen = self.resources.seen(&set.per_pod);
            let count = i64::from(set.count);
            let mut usage: Map<String, Value> = Map::new();
            let mut flavors: Map<String, Value> = Map::new();
            for (resource, flavor) in w.flavors().iter() {
                // Pods count as themselves where a quota speaks of them.
                let each = seen.get(resource).copied().or_else(|| (resource == PODS).then_some(1));
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
        // What was admitted is told whole, as in Kueue; what of it is spare stands beside it.
        let mut gang = (*w.given_gang(&self.class)).clone();
        for (set, gone) in gang.pod_sets.iter_mut().zip(w.no_longer_wanted(&self.class)) {
            set.count -= gone;
        }
        gang.pod_sets.iter().map(one).collect()
    }

    fn conditions(&self, keeps: Option<&PendingReason>) -> Vec<Value> {
        let w = &self.workload;
        let mut all = Vec::new();
        let mut add = |kind: &str, is: bool, reason: &str, message: String, at: Wall| {
            let status = if is { "True" } else { "False" };
            all.push(json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": format::timestamp(at)}));
        };
        match &self.charged {
            Some(queue) => {
                add(
                    "QuotaReserved",
                    true,
                    "QuotaReserved",
                    format!("Quota reserved in ClusterQueue {queue}"),
                    w.reserved().unwrap_or(w.since()),
                );
            }
            None if w.finished().is_some() => {
                let message = "The workload has finished, and its quota was given back".to_owned();
                add(
                    "QuotaReserved",
                    false,
                    "Finished",
                    message,
                    w.finished().map_or(w.since(), |finish| finish.at),
                );
            }
            None => add(
                "QuotaReserved",
                false,
                "Pending",
                self.waits_in_words(keeps).unwrap_or_default(),
                w.since(),
            ),
        }
        let evicted = w.evicted();
        if let Some((_, leg)) = w.right() {
            let admitted = w.history().last().map_or(w.since(), |stay| stay.granted);
            add(
                "Admitted",
                true,
                "Admitted",
                format!("The workload was admitted on \"{}\"", leg.cluster),
                admitted,
            );
        } else if let Some(evicted) =
            evicted.filter(|evicted| w.finished().is_none() && evicted.was != Phase::Pending)
        {
            let at = if w.phase() == Phase::Pending { w.since() } else { evicted.at };
            add("Admitted", false, "NoReservation", "The workload has no reservation".to_owned(), at);
        }
        match w.phase() {
            Phase::Running => add(
                "PodsReady",
                true,
                "Started",
                "All pods reached readiness and the workload is running".to_owned(),
                w.since(),
            ),
            Phase::Granted => add(
                "PodsReady",
                false,
                "WaitForStart",
                "Not all pods are ready or succeeded".to_owned(),
                w.since(),
            ),
            _ => {}
        }
        if let Some(evicted) = evicted {
            // Kueue tells why in the reason too.
            let (reason, underlying) = (evicted.cause.reason(), evicted.cause.underlying());
            let was_preempted = evicted.cause == EvictionCause::Preempted;
            let deactivation = match evicted.cause {
                EvictionCause::Deactivated => Some(deactivated(false)),
                EvictionCause::MaximumExecutionTimeExceeded => Some(deactivated(true)),
                _ => None,
            };
            let message = match (w.preempted(), underlying) {
                (Some(preempted), _) if was_preempted => for_whom(preempted),
                _ if deactivation.is_some() => {
                    deactivation.map(|(_, words)| words.to_owned()).unwrap_or_default()
                }
                (_, "") => format!("The workload was evicted: {reason}"),
                (_, cause) => format!("The workload was evicted: {reason}: {cause}"),
            };
            if w.phase().charged() && !w.phase().granted() {
                add(
                    "Evicted",
                    false,
                    "QuotaReserved",
                    format!("Previously: {message}"),
                    w.reserved().unwrap_or(evicted.at),
                );
            } else if w.finished().is_none() {
                add(
                    "Evicted",
                    true,
                    deactivation.map_or(reason, |(reason, _)| reason),
                    message.clone(),
                    evicted.at,
                );
            }
            if let (Some(preempted), true) = (w.preempted(), was_preempted) {
                add(
                    "Preempted",
                    !w.phase().charged() || w.phase().granted(),
                    preempted.reason.as_str(),
                    message,
                    evicted.at,
                );
            }
            if w.phase() == Phase::Pending {
                let (is, reason, message, at) = self.requeued(evicted);
                add("Requeued", is, reason, message, at);
            }
        }
        if let Some(finish) = &w.finished() {
            add(
                "Finished",
                true,
                if finish.succeeded { "Succeeded" } else { "Failed" },
                finish.message.clone(),
                finish.at,
            );
        }
        all
    }
}

impl Shown {
    /// What keeps who has no quota.
    fn waits_in_words(&self, keeps: Option<&PendingReason>) -> Option<String> {
        let w = &self.workload;
        let waits = self.charged.is_none() && w.finished().is_none();
        let (before, nearest) =
            keeps.map_or((None, None), |keeps| (keeps.before.as_ref(), keeps.nearest.as_ref()));
        waits.then(|| match (&w.inactive(), before, nearest) {
            (Some(inactive), ..) => deactivated(inactive.max_execution_time_reached).1.to_owned(),
            (None, Some(why), _) => why.words(),
            (None, None, Some((cluster, 1, why))) => {
                format!("the only cluster, `{cluster}`, can't start it now: {}", why.words())
            }
            (None, None, Some((cluster, of, why))) => {
                format!("none of {of} clusters can start it now; nearest is `{cluster}`: {}", why.words())
            }
            (None, None, None) => {
                format!(
                    "It waits in its queue: `meridian why {} -n {}` says for what",
                    w.name(),
                    w.namespace()
                )
            }
        })
    }

    /// Whether who waits again is looked at again: why, in words, and since when.
    fn requeued<'a>(&self, evicted: &'a Evicted) -> (bool, &'a str, String, Wall) {
        let w = &self.workload;
        if let Some(inactive) = &w.inactive() {
            let (reason, words) = deactivated(inactive.max_execution_time_reached);
            return (false, reason, words.to_owned(), inactive.at);
        }
        if let Some(Reactivation { at, .. }) =
            w.reactivated().filter(|reactivated| reactivated.at >= evicted.at)
        {
            return (true, "Reactivated", "The workload was reactivated".to_owned(), *at);
        }
        match self.drained {
            Some((true, stop)) => (false, stop.reason, format!("The {} is stopped", stop.queue), evicted.at),
            _ if self.rests => (
                false,
                evicted.cause.reason(),
                "It waits a moment before it is looked at again".to_owned(),
                w.since(),
            ),
            Some((false, stop)) => (
                true,
                stop.restarted,
                format!("The {} was restarted after being stopped", stop.queue),
                w.since(),
            ),
            None => (true, evicted.cause.reason(), "It waits in its queue again".to_owned(), w.since()),
        }
    }
}

fn for_whom(Preempted { by, reason }: &Preempted) -> String {
    let words = match reason {
        PreemptionReason::InClusterQueue => "prioritization in the ClusterQueue",
        PreemptionReason::InCohortReclamation => "reclamation within the cohort",
        PreemptionReason::InCohortFairSharing => "Fair Sharing within the cohort",
        PreemptionReason::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
    };
    format!("Preempted to accommodate a workload (UID: {}, JobUID: {by}) due to {words}", workload_uid(*by))
}

/// One pod set with a template that asks for the same.
fn pod_set(set: &PodSet) -> Value {
    let requests: Map<String, Value> = set
        .per_pod
        .iter()
        .map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount))))
        .collect();
    let mut spec = json!({"restartPolicy": "Never", "containers": [{"name": "all", "resources": {"requests": requests}}]});
    if !set.node_selector.is_empty() {
        spec["nodeSelector"] = json!(set.node_selector);
    }
    if !set.tolerations.is_empty() {
        spec["tolerations"] = set.tolerations.iter().map(toleration).collect();
    }
    if !set.affinity.is_empty() {
        let requirement = |r: &meridian_shared::gang::Requirement| {
            let mut value = json!({"key": r.key, "operator": format!("{:?}", r.operator)});
            if !r.values.is_empty() {
                value["values"] = json!(r.values);
            }
            value
        };
        let terms: Vec<Value> = set
            .affinity
            .iter()
            .map(|term| json!({"matchExpressions": term.iter().map(requirement).collect::<Vec<_>>()}))
            .collect();
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    }
    let mut value = json!({"name": set.name, "count": set.count, "template": {"spec": spec}});
    if let Some(least) = set.min_count {
        value["minCount"] = json!(least);
    }
    value
}

fn toleration(of: &Toleration) -> Value {
    let mut value = json!({"operator": if of.exists { "Exists" } else { "Equal" }});
    if let Some(key) = &of.key {
        value["key"] = json!(key);
    }
    if !of.exists {
        value["value"] = json!(of.value);
    }
    if let Some(effect) = of.effect {
        value["effect"] = json!(format!("{effect:?}"));
    }
    value
}

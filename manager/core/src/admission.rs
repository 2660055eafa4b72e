//! Kueue's view of a job: the `Workload` object, with pod sets that a plan can read back, conditions and the admission.
//!
//! Kueue's types, reasons and, where the meaning is the same, its words. A workload that another was displaced for is named by
//! uid only: its namespace and name may be another tenant's business.

use crate::queues::{ClassId, Place};
use crate::record::{Class, Preempted};
use crate::view::{timestamp, workload_name};
use crate::workload::Phase;
use crate::{Workload, World};
use meridian_objects::job::PRIORITY_LABEL;
use meridian_objects::quantity;
use meridian_shared::gang::{PodSet, Toleration};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Wall;
use serde_json::{Map, Value, json};

/// The uid of a job's workload.
fn workload_uid(job: Uid) -> Uid {
    Uid(job.0 ^ 1)
}

/// Places within a class are told up to here; finding one takes as many steps.
const PLACES_MAX: usize = 1_000;

impl World {
    /// `spec.podSets` of every workload of a class.
    pub fn pod_sets(&self, class: ClassId) -> Value {
        self.queues.class(class).gang.pod_sets.iter().map(pod_set).collect()
    }

    pub(crate) fn render_workload(&self, uid: Uid, w: &Workload) -> Value {
        let mut value = self.workload_without_pods(uid, w);
        value["spec"]["podSets"] = self.pod_sets(w.class);
        value
    }

    /// The workload less its pod sets, which all of its class have in common.
    pub fn workload_without_pods(&self, uid: Uid, w: &Workload) -> Value {
        let class = self.queues.class(w.class);
        let at = Self::right(w).map(|(_, l)| l.cluster.clone());
        let place = self.queues.waiting(w.class).take(PLACES_MAX).position(|p| *p == Place::new(w.priority, w.submitted, uid));
        let mut value = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": &*workload_name(&w.name, w.submitted), "namespace": &*w.namespace, "uid": workload_uid(uid).to_string(),
                "resourceVersion": w.changed.to_string(), "creationTimestamp": timestamp(w.created),
                "labels": {"kueue.x-k8s.io/job-uid": uid.to_string()},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": &*w.name, "uid": uid.to_string(), "controller": true}],
            },
            "spec": {"queueName": &*class.queue, "priority": w.priority, "active": true},
            "status": {
                "conditions": self.conditions(uid, w),
                "clusterName": at.as_ref().map(ClusterName::as_str),
                "admission": self.queues.charged_to(uid).map(|queue| json!({"clusterQueue": &**queue, "podSetAssignments": self.assignments(class, w)})),
                "meridian": {
                    "state": format!("{:?}", w.phase), "placeInClass": place, "legs": w.legs.values().map(|l| json!({"cluster": l.cluster.as_str(), "state": format!("{:?}", l.state)})).collect::<Vec<_>>(),
                    "history": w.history.iter().map(|s| json!({"cluster": s.cluster.as_str(), "fence": s.fence.to_string(), "granted": timestamp(s.granted), "over": s.over.map(timestamp), "end": s.end})).collect::<Vec<_>>(),
                },
            },
        });
        if let Some(name) = class.labels.get(PRIORITY_LABEL) {
            value["spec"]["priorityClassRef"] = json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name});
        }
        if let Some(most) = class.gang.max_run {
            value["spec"]["maximumExecutionTimeSeconds"] = json!((most.0 / 1_000).max(1));
        }
        value
    }

    /// What each pod set was given.
    fn assignments(&self, class: &Class, w: &Workload) -> Value {
        let one = |set: &PodSet| {
            let seen = self.config.resources.seen(&set.per_pod);
            let count = i64::from(set.count);
            let mut usage: Map<String, Value> = Map::new();
            let mut flavors: Map<String, Value> = Map::new();
            for (resource, flavor) in &w.flavors {
                // Pods count as themselves where a quota speaks of them.
                let each = seen.get(resource).copied().or_else(|| (resource == "pods").then_some(1));
                let Some(each) = each else { continue };
                flavors.insert(resource.clone(), json!(&**flavor));
                usage.insert(resource.clone(), json!(quantity::format(resource, each.saturating_mul(count))));
            }
            json!({"name": set.name, "flavors": flavors, "resourceUsage": usage, "count": set.count})
        };
        w.gang(class).pod_sets.iter().map(one).collect()
    }

    fn conditions(&self, uid: Uid, w: &Workload) -> Vec<Value> {
        let mut all = Vec::new();
        let mut add = |kind: &str, is: bool, reason: &str, message: String, at: Wall| {
            let status = if is { "True" } else { "False" };
            all.push(json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": timestamp(at)}));
        };
        match self.queues.charged_to(uid) {
            Some(queue) => {
                add("QuotaReserved", true, "QuotaReserved", format!("Quota reserved in ClusterQueue {queue}"), w.reserved.unwrap_or(w.since));
            }
            None => {
                let waits = self.reasons(w).0.map_or_else(|| "no cluster can start it now".to_owned(), |why| why.words());
                add("QuotaReserved", false, "Pending", waits, w.since);
            }
        }
        let evicted = w.evicted.as_deref();
        if let Some((_, leg)) = Self::right(w) {
            let admitted = w.history.last().map_or(w.since, |stay| stay.granted);
            add("Admitted", true, "Admitted", format!("The workload was admitted on \"{}\"", leg.cluster), admitted);
        } else if let Some(evicted) = evicted.filter(|_| w.finished.is_none()) {
            let at = if w.phase == Phase::Pending { w.since } else { evicted.at };
            add("Admitted", false, "NoReservation", "The workload has no reservation".to_owned(), at);
        }
        match w.phase {
            Phase::Running => add("PodsReady", true, "Started", "All pods reached readiness and the workload is running".to_owned(), w.since),
            Phase::Granted => add("PodsReady", false, "WaitForStart", "Not all pods are ready or succeeded".to_owned(), w.since),
            _ => {}
        }
        if let Some(evicted) = evicted {
            let message = match (&w.preempted, evicted.cause.as_str()) {
                (Some(preempted), _) if evicted.reason == "Preempted" => for_whom(preempted),
                (_, "") => format!("The workload was evicted: {}", evicted.reason),
                (_, cause) => format!("The workload was evicted: {}: {cause}", evicted.reason),
            };
            if w.phase.charged() && !w.phase.granted() {
                add("Evicted", false, "QuotaReserved", format!("Previously: {message}"), w.reserved.unwrap_or(evicted.at));
            } else if w.finished.is_none() {
                add("Evicted", true, &evicted.reason, message.clone(), evicted.at);
            }
            if let (Some(preempted), true) = (&w.preempted, evicted.reason == "Preempted") {
                add("Preempted", !w.phase.charged() || w.phase.granted(), &preempted.right, message, evicted.at);
            }
            if w.phase == Phase::Pending {
                let rests = self.live.not_before.contains_key(&uid);
                let words = if rests { "It waits a moment before it is looked at again" } else { "It waits in its queue again" };
                add("Requeued", !rests, &evicted.reason, words.to_owned(), w.since);
            }
        }
        if let Some(finish) = &w.finished {
            add("Finished", true, if finish.succeeded { "Succeeded" } else { "Failed" }, finish.message.clone(), finish.at);
        }
        all
    }
}

fn for_whom(Preempted { by, right }: &Preempted) -> String {
    let words = match right.as_str() {
        "InClusterQueue" => "prioritization in the ClusterQueue",
        "InCohortReclamation" => "reclamation within the cohort",
        "InCohortFairSharing" => "Fair Sharing within the cohort",
        "InCohortReclaimWhileBorrowing" => "reclamation within the cohort while borrowing",
        other => other,
    };
    format!("Preempted to accommodate a workload (UID: {}, JobUID: {by}) due to {words}", workload_uid(*by))
}

/// One pod set with a template that asks for the same.
fn pod_set(set: &PodSet) -> Value {
    let requests: Map<String, Value> = set.per_pod.iter().map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount)))).collect();
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
        let terms: Vec<Value> = set.affinity.iter().map(|term| json!({"matchExpressions": term.iter().map(requirement).collect::<Vec<_>>()})).collect();
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

//! The status of a Workload: its admission, its checks, its evictions.

use super::count_at_least;
use crate::fields::scheduling::{MAX_RULES, amounts, labels, toleration};
use crate::fields::{Fields, Item};
use crate::spec::meta::time;
use meridian_shared::gang::{Amounts, Toleration};
use meridian_shared::time::Millis;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most conditions of an object.
const MAX_CONDITIONS: usize = 64;
/// Most entries of the lists about pod sets, checks and nodes; schemas allow 8 or 18.
const MAX_ENTRIES: usize = 64;
/// Most reasons of evictions.
const MAX_EVICTIONS: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    True,
    False,
    #[default]
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Condition {
    /// Such as `QuotaReserved`.
    pub kind: String,
    pub status: ConditionStatus,
    pub reason: String,
    pub message: String,
    /// Time of the last change, in milliseconds since 1970.
    pub since: Option<i64>,
    /// The generation of the object that the condition is about.
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadStatus {
    pub conditions: Vec<Condition>,
    pub admission: Option<Admission>,
    /// How the workload is requeued after an eviction.
    pub requeue: Option<RequeueState>,
    pub reclaimable_pods: Vec<ReclaimablePods>,
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Requests at the workload's last evaluation, while it has no quota.
    pub resource_requests: Vec<PodSetRequest>,
    /// Run time before its evictions.
    pub past_execution_time: Option<Millis>,
    pub evictions: Vec<Eviction>,
    /// Worker clusters to which the workload is offered.
    pub nominated_cluster_names: Vec<String>,
    /// The worker cluster that runs it.
    pub cluster_name: Option<String>,
    /// Nodes that failed under it.
    pub unhealthy_nodes: Vec<String>,
    pub preemption_gates: Vec<GateState>,
}

impl WorkloadStatus {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == ConditionStatus::True)
    }
}

/// The quota that a workload has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Admission {
    /// The queue that admitted it.
    pub cluster_queue: String,
    pub pod_sets: Vec<PodSetAssignment>,
}

/// The quota of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSetAssignment {
    pub name: String,
    /// Flavor per resource.
    pub flavors: BTreeMap<String, String>,
    /// Requests of all its pods together.
    pub usage: Amounts,
    /// Number of admitted pods; `None` means all pods of the set.
    pub count: Option<u32>,
    /// Topology assignment of the pods, as written.
    pub topology: Option<Value>,
    /// Whether the topology assignment is decided in a second pass.
    pub delayed_topology: Option<DelayedTopology>,
}

/// State of a topology assignment that is decided in a second pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelayedTopology {
    Pending,
    Ready,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckState {
    #[default]
    Pending,
    Ready,
    /// The check fails now, and is to be tried again.
    Retry,
    Rejected,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmissionCheckState {
    pub name: String,
    pub state: CheckState,
    pub message: String,
    /// Time of the last change, in milliseconds since 1970.
    pub since: Option<i64>,
    /// Shortest wait after a `Retry`.
    pub requeue_after: Option<Millis>,
    /// Number of `Retry` answers.
    pub retry_count: Option<u32>,
    /// Changes that the check makes to pods.
    pub pod_set_updates: Vec<PodSetUpdate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSetUpdate {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequeueState {
    /// Number of requeues so far.
    pub count: Option<u32>,
    /// Time of the requeueing, in milliseconds since 1970.
    pub at: Option<i64>,
}

/// Pods of a set that use no resources any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReclaimablePods {
    pub name: String,
    pub count: u32,
}

/// Requests of a pod set at its last evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSetRequest {
    pub name: String,
    /// Requests of all its pods together.
    pub resources: Amounts,
}

/// Number of evictions for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eviction {
    pub reason: String,
    /// May be empty.
    pub underlying_cause: String,
    pub count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateState {
    pub name: String,
    /// Whether the gate lets the workload preempt.
    pub open: bool,
    /// Time of the last change, in milliseconds since 1970.
    pub since: Option<i64>,
}

pub(super) fn read(status: Fields<'_>) -> WorkloadStatus {
    let read = WorkloadStatus {
        conditions: conditions(&status),
        admission: status.fields("admission").map(read_admission),
        requeue: status.fields("requeueState").map(|requeue| {
            let read =
                RequeueState { count: count_at_least(&requeue, "count", 0), at: time(&requeue, "requeueAt") };
            requeue.finish();
            read
        }),
        reclaimable_pods: entries(&status, "reclaimablePods", |entry| ReclaimablePods {
            name: name(entry),
            count: count_at_least(entry, "count", 0).unwrap_or_default(),
        }),
        admission_checks: entries(&status, "admissionChecks", read_check),
        resource_requests: entries(&status, "resourceRequests", |entry| PodSetRequest {
            name: name(entry),
            resources: amounts(entry, "resources"),
        }),
        past_execution_time: count_at_least(&status, "accumulatedPastExecutionTimeSeconds", 0)
            .map(|seconds| Millis::secs(u64::from(seconds))),
        evictions: status.fields("schedulingStats").map(read_evictions).unwrap_or_default(),
        nominated_cluster_names: status
            .list("nominatedClusterNames", MAX_ENTRIES, |item| item.text().map(str::to_owned)),
        cluster_name: status.text("clusterName").filter(|name| !name.is_empty()).map(str::to_owned),
        unhealthy_nodes: entries(&status, "unhealthyNodes", name),
        preemption_gates: entries(&status, "preemptionGates", |entry| GateState {
            name: name(entry),
            open: entry
                .require("position")
                .and_then(|item| item.word(&[("Open", true), ("Closed", false)]))
                .unwrap_or(false),
            since: time(entry, "lastTransitionTime"),
        }),
    };
    status.finish();
    read
}

pub(crate) fn conditions(status: &Fields<'_>) -> Vec<Condition> {
    let words = [
        ("True", ConditionStatus::True),
        ("False", ConditionStatus::False),
        ("Unknown", ConditionStatus::Unknown),
    ];
    status.list("conditions", MAX_CONDITIONS, |item| {
        let condition = item.fields()?;
        condition.known(&["lastHeartbeatTime", "lastUpdateTime", "lastProbeTime"]);
        let text = |name: &'static str| condition.text(name).unwrap_or_default().to_owned();
        let read = Condition {
            kind: condition.require_text("type").unwrap_or_default().to_owned(),
            status: condition.demand("status").and_then(|item| item.word(&words)).unwrap_or_default(),
            reason: text("reason"),
            message: text("message"),
            since: time(&condition, "lastTransitionTime"),
            observed_generation: condition.int("observedGeneration", 0, i64::MAX),
        };
        condition.finish();
        Some(read)
    })
}

fn entries<T>(fields: &Fields<'_>, list: &'static str, mut read: impl FnMut(&Fields<'_>) -> T) -> Vec<T> {
    fields.list(list, MAX_ENTRIES, |item: Item<'_>| {
        let entry = item.fields()?;
        let value = read(&entry);
        entry.finish();
        Some(value)
    })
}

fn name(entry: &Fields<'_>) -> String {
    entry.require_text("name").unwrap_or_default().to_owned()
}

fn read_admission(admission: Fields<'_>) -> Admission {
    let words = [("Pending", DelayedTopology::Pending), ("Ready", DelayedTopology::Ready)];
    let read = Admission {
        cluster_queue: admission.require_text("clusterQueue").unwrap_or_default().to_owned(),
        pod_sets: entries(&admission, "podSetAssignments", |entry| PodSetAssignment {
            name: entry.text("name").filter(|name| !name.is_empty()).unwrap_or("main").to_owned(),
            flavors: entry.strings("flavors"),
            usage: amounts(entry, "resourceUsage"),
            count: count_at_least(entry, "count", 0),
            topology: entry.get("topologyAssignment").map(|item| item.value().clone()),
            delayed_topology: entry.get("delayedTopologyRequest").and_then(|item| item.word(&words)),
        }),
    };
    admission.finish();
    read
}

fn read_check(check: &Fields<'_>) -> AdmissionCheckState {
    let words = [
        ("Pending", CheckState::Pending),
        ("Ready", CheckState::Ready),
        ("Retry", CheckState::Retry),
        ("Rejected", CheckState::Rejected),
    ];
    AdmissionCheckState {
        name: name(check),
        state: check.require("state").and_then(|item| item.word(&words)).unwrap_or_default(),
        message: check.text("message").unwrap_or_default().to_owned(),
        since: time(check, "lastTransitionTime"),
        requeue_after: count_at_least(check, "requeueAfterSeconds", 0)
            .map(|seconds| Millis::secs(u64::from(seconds))),
        retry_count: count_at_least(check, "retryCount", 0),
        pod_set_updates: entries(check, "podSetUpdates", |entry| PodSetUpdate {
            name: name(entry),
            labels: labels(entry, "labels"),
            annotations: entry.strings("annotations"),
            node_selector: labels(entry, "nodeSelector"),
            tolerations: entry.list("tolerations", MAX_RULES, |item| toleration(&item)),
        }),
    }
}

fn read_evictions(stats: Fields<'_>) -> Vec<Eviction> {
    let evictions = stats.list("evictions", MAX_EVICTIONS, |item| {
        let entry = item.fields()?;
        let text = |name: &'static str| entry.text(name).unwrap_or_default().to_owned();
        let count = count_at_least(&entry, "count", 0).unwrap_or_default();
        let eviction = Eviction { reason: text("reason"), underlying_cause: text("underlyingCause"), count };
        entry.finish();
        Some(eviction)
    });
    stats.finish();
    evictions
}

//! The few fields of nodes, pods and jobs that the agent uses, read from the API server's objects.

use crate::labels::{
    self, CONSUMES, COPIES, GATE, GROUP, GROUP_SIZE, NOTES, OFFER, POD_SET, POSITION, RunKey, STARTED,
    STOPPED,
};
use crate::shape;
use jiff::Timestamp;
use kube::api::DynamicObject;
use meridian_agent_core::runtime::NodeSpec;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::{NodeObject, PodPhase};
use meridian_shared::gang::{Amounts, Taint, TaintEffect};
use meridian_shared::ids::OfferId;
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::Reference;
use meridian_shared::time::Wall;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

mod kueue;
mod provisioning;

pub(crate) use kueue::WorkloadFacts;
pub(crate) use provisioning::{Condition, RequestFacts};

/// The label of a pod with its completion index.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The reason of a pod's disruption when its node doesn't answer: Kubernetes then marks the pod as failed,
/// although its processes may still run.
const WRITTEN_OFF: &str = "DeletionByPodGC";
/// The taint by which an operator declares that a machine is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The taints that only repeat the condition Ready.
const READINESS_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// A node, as the agent's core sees it, and whether it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// The node without the usage of other workloads and without unreadiness: both change with time, so the
    /// view computes them.
    pub(crate) spec: NodeSpec,
    /// Since when the node has not been ready; `None` for a ready one.
    pub(crate) unready_since: Option<Wall>,
    /// Whether an operator said that the machine is off.
    pub(crate) out_of_service: bool,
    pub(crate) created: Option<Wall>,
}

impl NodeFacts {
    /// Reads a node. Fails with what can't be read.
    pub(crate) fn read(node: &DynamicObject, seen: Wall) -> Result<Self, String> {
        let value = typed(node, "Node");
        let PlanObject::Node(read) = PlanObject::lenient(&value)? else {
            return Err("it is not a node".to_owned());
        };
        let status = node.data.pointer("/status/conditions").and_then(Value::as_array);
        let ready = status.into_iter().flatten().find(|c| c.get("type").is_some_and(|t| t == "Ready"));
        let is_ready = ready.and_then(|c| c.get("status")).is_some_and(|s| s == "True");
        let since = ready.and_then(|c| moment(c.get("lastTransitionTime")?)).unwrap_or(seen);
        Ok(Self {
            out_of_service: read.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
            unready_since: (!is_ready).then_some(since),
            created: node.metadata.creation_timestamp.as_ref().map(|time| wall(time.0)),
            spec: spec(*read, added(&node.data)),
        })
    }
}

fn spec(node: NodeObject, added: Vec<(Taint, Wall)>) -> NodeSpec {
    let ours = |taint: &Taint| taint.key != labels::OWNED && !READINESS_TAINTS.contains(&taint.key.as_str());
    NodeSpec {
        name: node.meta.name,
        labels: node.meta.labels,
        taints: node.taints.into_iter().filter(ours).collect(),
        added: added.into_iter().filter(|(taint, _)| ours(taint)).collect(),
        capacity: node.allocatable.into_iter().filter(|(_, amount)| *amount > 0).collect(),
        foreign_use: Amounts::new(),
        unready: false,
        unschedulable: node.unschedulable,
    }
}

/// When the evicting taints appeared.
fn added(node: &Value) -> Vec<(Taint, Wall)> {
    let text = |taint: &Value, name: &str| taint.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let evicting = taints.into_iter().flatten().filter(|taint| text(taint, "effect") == "NoExecute");
    evicting
        .filter_map(|taint| {
            let at = moment(taint.get("timeAdded")?)?;
            let (key, value) = (text(taint, "key"), text(taint, "value"));
            Some((Taint { key, value, effect: TaintEffect::NoExecute }, at))
        })
        .collect()
}

/// Report on a container's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) container: String,
    pub(crate) code: i64,
    pub(crate) reason: String,
}

/// Fields of one pod that the agent uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The pod's attempt; `None` for pods of other workloads.
    pub(crate) run: Option<RunKey>,
    /// For a placeholder pod: the offer whose capacity it holds.
    pub(crate) holds: Option<OfferId>,
    /// The node that it is bound to.
    pub(crate) node: Option<String>,
    pub(crate) requests: Amounts,
    pub(crate) phase: PodPhase,
    /// All of its scheduling gates.
    pub(crate) gates: Vec<String>,
    /// The terms of its required node affinity, while the agent's scheduling gate holds it.
    pub(crate) node_terms: Vec<Value>,
    /// The only node that its affinity allows, by name.
    pub(crate) sent_to: Option<String>,
    pub(crate) deleting: bool,
    /// Kubernetes marked the pod as failed because its node didn't answer.
    pub(crate) written_off: bool,
    /// Completion index, for pods of indexed jobs.
    pub(crate) index: Option<u32>,
    /// The pod's pod set in its gang; `None` for pods of other workloads.
    pub(crate) pod_set: Option<String>,
    /// The pod's position in its pod set, once it has one.
    pub(crate) position: Option<usize>,
    /// The first container that failed.
    pub(crate) failed_container: Option<Exit>,
    /// Why a container can't start, such as `ImagePullBackOff: …`.
    pub(crate) held_up: Option<String>,
    pub(crate) created: Option<Wall>,
}

impl PodFacts {
    /// Reads a pod. Fails with what can't be read.
    pub(crate) fn read(pod: &DynamicObject) -> Result<Self, String> {
        let value = typed(pod, "Pod");
        let PlanObject::Pod(read) = PlanObject::lenient(&value)? else {
            return Err("it is not a pod".to_owned());
        };
        let meta = &pod.metadata;
        let map = |map: &Option<BTreeMap<String, String>>| map.clone().unwrap_or_default();
        let (labels, annotations) = (map(&meta.labels), map(&meta.annotations));
        let disrupted = |kind: &str, reason: &str| kind == "DisruptionTarget" && reason == WRITTEN_OFF;
        let is_gated = read.template.scheduling_gates.iter().any(|gate| gate == GATE);
        Ok(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            run: labels::run_of(&labels),
            holds: labels::hold_of(&labels),
            node: read.template.node_name.clone().filter(|name| !name.is_empty()),
            requests: read.template.requests(),
            phase: read.phase,
            gates: read.template.scheduling_gates.clone(),
            node_terms: pod.data.get("spec").filter(|_| is_gated).map(shape::node_terms).unwrap_or_default(),
            sent_to: pod.data.get("spec").and_then(shape::sent_to),
            deleting: meta.deletion_timestamp.is_some(),
            written_off: read.conditions.iter().any(|c| disrupted(&c.kind, &c.reason)),
            index: labels
                .get(COMPLETION_INDEX)
                .or_else(|| annotations.get(COMPLETION_INDEX))
                .and_then(|text| text.parse().ok()),
            pod_set: labels.get(POD_SET).cloned(),
            position: annotations.get(POSITION).and_then(|text| text.parse().ok()),
            failed_container: failed_container(&pod.data),
            held_up: held_up(&pod.data),
            created: meta.creation_timestamp.as_ref().map(|time| wall(time.0)),
        })
    }

    /// Whether the pod's node has reported that no process of the pod runs.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_terminal() && !self.written_off
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether any of its containers runs or has run.
    pub(crate) fn has_started(&self) -> bool {
        !matches!(self.phase, PodPhase::Pending | PodPhase::Unknown)
    }
}

fn failed_container(pod: &Value) -> Option<Exit> {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array)?;
    statuses.iter().find_map(|status| {
        let ended = status.pointer("/state/terminated")?;
        let code = ended.get("exitCode").and_then(Value::as_i64).filter(|code| *code != 0)?;
        let text = |from: &Value, name: &str| from.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
        Some(Exit { container: text(status, "name"), code, reason: text(ended, "reason") })
    })
}

fn held_up(pod: &Value) -> Option<String> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses = lists.iter().filter_map(|at| pod.pointer(at).and_then(Value::as_array)).flatten();
    let waiting = statuses.filter_map(|status| status.pointer("/state/waiting")).find_map(|waiting| {
        let reason = waiting.get("reason")?.as_str()?;
        let message = waiting.get("message").and_then(Value::as_str).unwrap_or("");
        let ordinary = matches!(reason, "ContainerCreating" | "PodInitializing");
        (!ordinary).then(|| format!("{reason}: {message}").trim_end_matches([':', ' ']).to_owned())
    });
    waiting.or_else(|| {
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array)?;
        let unscheduled = conditions.iter().find(|c| {
            c.get("type").is_some_and(|t| t == "PodScheduled")
                && c.get("reason").is_some_and(|r| r == "Unschedulable")
        })?;
        Some(format!("Unschedulable: {}", unscheduled.get("message")?.as_str()?))
    })
}

/// How a job ended, with the reason and message of its own controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobEnd {
    pub(crate) succeeded: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Option<Wall>,
}

/// The group that a pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupFacts {
    pub(crate) name: String,
    /// Whether this pod ended. Other pods of its group may still run.
    pub(crate) pod_ended: bool,
}

/// Fields of one job that the agent uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobFacts {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The attempt that it belongs to; `None` for a job that no agent made.
    pub(crate) run: Option<RunKey>,
    pub(crate) suspended: bool,
    /// Why the agent ordered the job to stop, if it did.
    pub(crate) stopped: Option<String>,
    pub(crate) deleting: bool,
    pub(crate) failed: u32,
    pub(crate) succeeded: u32,
    /// Completion indexes that succeeded, of an indexed job.
    pub(crate) completed: Indexes,
    pub(crate) parallelism: u32,
    pub(crate) completions: Option<u32>,
    /// Pod sets whose pods are made only after others are ready or have ended.
    pub(crate) late_sets: BTreeSet<String>,
    pub(crate) started: Option<Wall>,
    pub(crate) end: Option<JobEnd>,
    /// The runner's notes as text, not parsed yet.
    pub(crate) notes: Option<String>,
    /// The provisioning request whose nodes its pods use.
    pub(crate) consumes: Option<String>,
    /// Whether the labels of the attempt are in every pod template. A server drops fields that its version of
    /// the kind lacks, and then the pods couldn't be told from those of other attempts.
    pub(crate) marked: bool,
    /// The offer whose hold the job uses.
    pub(crate) offer: Option<OfferId>,
    /// The group, if the object is the first pod of one.
    pub(crate) group: Option<GroupFacts>,
    /// The objects that the job's pods name and that may have been copied for the job.
    pub(crate) copies: Vec<Reference>,
}

impl JobFacts {
    /// Number of pods that the job still needs at the same time.
    pub(crate) fn needed_pods(&self) -> usize {
        let at_once = match self.completions {
            Some(completions) => self.parallelism.min(completions.saturating_sub(self.succeeded)),
            // A work queue starts no more pods after the first success.
            None if self.succeeded > 0 => 0,
            None => self.parallelism,
        };
        at_once as usize
    }

    pub(crate) fn read(kind: &'static JobKind, job: &DynamicObject) -> Self {
        let meta = &job.metadata;
        let count = |at: &str| {
            job.data.pointer(at).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok())
        };
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
        let started = job.data.pointer("/status/startTime").and_then(moment);
        let resumed = annotation(STARTED).and_then(|text| moment(&Value::String(text)));
        let pods = || match annotation(GROUP_SIZE).filter(|_| kind.is_pod_group()) {
            Some(size) => size.parse().unwrap_or(1),
            None => kind.pods(&job.data).unwrap_or(1),
        };
        let phase = job.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        let templates = kind.templates(&job.data);
        Self {
            kind: kind.kind(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            run: meta.labels.as_ref().and_then(labels::run_of),
            // A pod has no flag: its gate is removed after its start was noted.
            suspended: if kind.is_of_pods() { resumed.is_none() } else { kind.is_suspended(&job.data) },
            stopped: annotation(STOPPED),
            deleting: meta.deletion_timestamp.is_some(),
            failed: count("/status/failed").unwrap_or(0),
            succeeded: count("/status/succeeded").unwrap_or(0),
            completed: job
                .data
                .pointer("/status/completedIndexes")
                .and_then(Value::as_str)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            parallelism: if kind.can_be_scaled() { count("/spec/parallelism").unwrap_or(1) } else { pods() },
            completions: count("/spec/completions").filter(|_| kind.can_be_scaled()),
            late_sets: kind.late_pod_sets(&job.data),
            started: started.or(resumed),
            // The kubelet shows a pod that was stopped as `Failed`, or as `Succeeded` if it obeyed SIGTERM.
            end: job_end(kind, &job.data).filter(|_| !kind.is_of_pods() || annotation(STOPPED).is_none()),
            notes: annotation(NOTES),
            consumes: templates
                .iter()
                .find_map(|template| template.pointer("/metadata/annotations")?.get(CONSUMES))
                .and_then(Value::as_str)
                .map(str::to_owned)
                .or_else(|| annotation(CONSUMES)),
            marked: kind.is_of_pods() || !templates.is_empty() && templates.iter().all(|pods| has_uid(pods)),
            offer: meta.labels.as_ref().and_then(|labels| labels.get(OFFER)?.parse().ok()),
            group: meta.labels.as_ref().filter(|_| kind.is_of_pods()).and_then(|labels| {
                let pod_ended = matches!(phase, "Succeeded" | "Failed");
                Some(GroupFacts { name: labels.get(GROUP)?.clone(), pod_ended })
            }),
            copies: annotation(COPIES).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        }
    }

    /// Whether this was read from a later version of the object than `other`.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let number = |facts: &Self| facts.resource_version.parse::<u64>().unwrap_or(0);
        self.uid != other.uid || number(self) > number(other)
    }
}

fn has_uid(template: &Value) -> bool {
    template.pointer("/metadata/labels").is_some_and(|labels| labels.get(labels::UID).is_some())
}

fn job_end(kind: &JobKind, job: &Value) -> Option<JobEnd> {
    let end = kind.end(job)?;
    Some(JobEnd {
        succeeded: end.succeeded,
        reason: end.reason.to_owned(),
        message: end.message.to_owned(),
        at: end.at.parse().ok().map(wall),
    })
}

/// An object as its manifest, with the type that lists leave out.
fn typed(object: &DynamicObject, kind: &str) -> Value {
    let mut value = object.data.clone();
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!("v1"));
        map.insert("kind".to_owned(), json!(kind));
        map.insert("metadata".to_owned(), serde_json::to_value(&object.metadata).unwrap_or_default());
    }
    value
}

pub(crate) fn moment(value: &Value) -> Option<Wall> {
    value.as_str()?.parse().ok().map(wall)
}

pub(crate) fn wall(at: Timestamp) -> Wall {
    Wall(at.as_millisecond())
}

//! Kueue's Workload: read for plans, never written.
//!
//! Both served versions are read; the storage version is kept. Times are milliseconds since 1970.

mod status;

use super::meta::{self, Meta};
use crate::fields::names;
use crate::fields::{FieldPath, Fields, Findings};
use crate::pod::{self, PodTemplate};
use meridian_shared::time::Millis;
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) use self::status::conditions;
pub use self::status::{
    Admission, AdmissionCheckState, CheckState, Condition, ConditionStatus, DelayedTopology, Eviction,
    GateState, PodSetAssignment, PodSetRequest, PodSetUpdate, ReclaimablePods, RequeueState, WorkloadStatus,
};
pub use crate::job::ELASTIC_ANNOTATION;

/// Annotation with a number that is added to a workload's priority.
pub const BOOST_ANNOTATION: &str = "kueue.x-k8s.io/priority-boost";
/// Annotation: the workload that an elastic job's new slice replaces.
pub const REPLACES_ANNOTATION: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// Annotation: the flavors that a workload may have, separated by commas.
pub const ALLOWED_FLAVORS_ANNOTATION: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// Label: the uid of the job behind a workload.
pub const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

/// Most pod sets of a workload.
const MAX_POD_SETS: usize = 18;
/// Most preemption gates of a workload.
const MAX_GATES: usize = 8;
/// Most layers of slices of a pod set.
const MAX_SLICE_LAYERS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkloadObject {
    pub meta: Meta,
    pub spec: WorkloadSpec,
    pub status: WorkloadStatus,
    /// The whole object in the storage version, `status` included.
    pub stored: Value,
}

/// Requests of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadSpec {
    /// In the order of the job.
    pub pod_sets: Vec<WorkloadPodSet>,
    /// The local queue; empty when none is named.
    pub queue_name: String,
    /// `None` counts as zero.
    pub priority: Option<i32>,
    /// The class that the priority comes from.
    pub priority_class: Option<PriorityClassRef>,
    /// Whether it may be admitted; `false` also evicts it.
    pub active: bool,
    /// Longest run time after admission.
    pub maximum_execution_time: Option<Millis>,
    /// Names of the gates that keep the workload from preempting until they open.
    pub preemption_gates: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadPodSet {
    pub name: String,
    pub count: u32,
    /// Fewest pods that the pod set accepts, for partial admission.
    pub min_count: Option<u32>,
    /// [`PodTemplate::requests`] is what one pod requests.
    pub template: PodTemplate,
    pub topology: Option<WorkloadTopologyRequest>,
}

/// The topology request of a pod set. Levels are node labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadTopologyRequest {
    /// All pods must be in one domain of this level.
    pub required: Option<String>,
    /// All pods should be in one domain of this level.
    pub preferred: Option<String>,
    /// The pods may be anywhere in the topology.
    pub unconstrained: Option<bool>,
    /// Pod label with the pod's index.
    pub pod_index_label: Option<String>,
    /// Pod label with the index of the pod's group.
    pub sub_group_index_label: Option<String>,
    pub sub_group_count: Option<u32>,
    /// Pod sets of one group get one flavor and one domain.
    pub group_name: Option<String>,
    /// Each slice of pods must be in one domain of this level.
    pub slice_required: Option<String>,
    /// Pods of a slice.
    pub slice_size: Option<u32>,
    /// Slices within slices, the widest level first. Used instead of `slice_required` and `slice_size`.
    pub slice_layers: Vec<WorkloadSliceLayer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadSliceLayer {
    /// Each slice must be in one domain of this level.
    pub topology: String,
    /// Pods of a slice.
    pub size: u32,
}

/// The class that a workload's priority comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityClassRef {
    /// `kueue.x-k8s.io` or `scheduling.k8s.io`.
    pub group: String,
    /// `WorkloadPriorityClass` or `PriorityClass`.
    pub kind: String,
    pub name: String,
}

impl WorkloadObject {
    /// The priority without its boost.
    pub fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }

    /// Priority that the boost annotation adds; `None` if the annotation is absent or no number.
    pub fn priority_boost(&self) -> Option<i32> {
        self.meta.annotations.get(BOOST_ANNOTATION)?.parse().ok()
    }

    /// The key (`namespace/name`) of the workload that this workload, a new slice of an elastic job,
    /// replaces.
    pub fn replaces(&self) -> Option<&str> {
        self.meta.annotations.get(REPLACES_ANNOTATION).map(String::as_str).filter(|key| !key.is_empty())
    }

    /// Whether it may be scaled while it runs.
    pub fn is_elastic(&self) -> bool {
        self.meta.annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true")
    }

    pub fn pod_set(&self, name: &str) -> Option<&WorkloadPodSet> {
        self.spec.pod_sets.iter().find(|set| set.name == name)
    }
}

/// Reads a workload in the storage version.
pub(crate) fn read(root: &Fields<'_>) -> (Meta, WorkloadSpec, WorkloadStatus) {
    root.known(&["apiVersion", "kind"]);
    let meta = meta::read(root, true);
    let spec = root
        .require("spec")
        .and_then(|item| item.fields())
        .map(read_spec)
        .unwrap_or(WorkloadSpec { active: true, ..Default::default() });
    let status = root.fields("status").map(status::read).unwrap_or_default();
    check(&spec, &status, root.findings());
    (meta, spec, status)
}

fn read_spec(spec: Fields<'_>) -> WorkloadSpec {
    let read = WorkloadSpec {
        pod_sets: spec.list("podSets", MAX_POD_SETS, |item| item.fields().map(read_pod_set)),
        queue_name: spec.text("queueName").unwrap_or_default().to_owned(),
        priority: spec
            .int("priority", i64::from(i32::MIN), i64::from(i32::MAX))
            .and_then(|value| i32::try_from(value).ok()),
        priority_class: spec.fields("priorityClassRef").map(|class| {
            let text = |name: &'static str| class.require_text(name).unwrap_or_default().to_owned();
            let read = PriorityClassRef { group: text("group"), kind: text("kind"), name: text("name") };
            class.finish();
            read
        }),
        active: spec.get("active").and_then(|item| item.flag()).unwrap_or(true),
        maximum_execution_time: count_at_least(&spec, "maximumExecutionTimeSeconds", 1)
            .map(|seconds| Millis::secs(u64::from(seconds))),
        preemption_gates: spec.list("preemptionGates", MAX_GATES, |item| {
            let gate = item.fields()?;
            let name = gate.require_text("name").unwrap_or_default().to_owned();
            gate.finish();
            Some(name)
        }),
    };
    if read.pod_sets.is_empty() && !spec.findings().has_errors() {
        spec.error("podSets", "is missing", "list at least one pod set");
    }
    if read.priority_class.is_some() && read.priority.is_none() {
        spec.error("priority", "is missing", "write the priority that the class has");
    }
    spec.finish();
    read
}

fn read_pod_set(set: Fields<'_>) -> WorkloadPodSet {
    let read = WorkloadPodSet {
        name: set.text("name").filter(|name| !name.is_empty()).unwrap_or("main").to_owned(),
        count: count_at_least(&set, "count", 0).unwrap_or(1),
        min_count: count_at_least(&set, "minCount", 1),
        template: set
            .require("template")
            .and_then(|item| item.fields())
            .map(|template| {
                let read = pod::read_template(&template);
                template.finish();
                read
            })
            .unwrap_or_default(),
        topology: set.fields("topologyRequest").map(read_topology),
    };
    if !names::is_dns_label(&read.name) {
        set.error(
            "name",
            format!("`{}` is not a name", read.name),
            "use at most 63 lower-case letters, digits and `-`",
        );
    }
    if read.min_count.is_some_and(|least| least > read.count) {
        set.error("minCount", "is more than `count`", format!("write at most {}", read.count));
    }
    set.finish();
    read
}

fn read_topology(topology: Fields<'_>) -> WorkloadTopologyRequest {
    let text = |name: &'static str| topology.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let read = WorkloadTopologyRequest {
        required: text("required"),
        preferred: text("preferred"),
        unconstrained: topology.get("unconstrained").and_then(|item| item.flag()),
        pod_index_label: text("podIndexLabel"),
        sub_group_index_label: text("subGroupIndexLabel"),
        sub_group_count: count_at_least(&topology, "subGroupCount", 0),
        group_name: text("podSetGroupName"),
        slice_required: text("podSetSliceRequiredTopology"),
        slice_size: count_at_least(&topology, "podSetSliceSize", 1),
        slice_layers: topology.list("podsetSliceRequiredTopologyConstraints", MAX_SLICE_LAYERS, |item| {
            let layer = item.fields()?;
            let topology = layer.require_text("topology").unwrap_or_default().to_owned();
            let size = layer
                .require("size")
                .and_then(|item| item.int(1, i64::from(i32::MAX)))
                .and_then(|size| u32::try_from(size).ok());
            layer.finish();
            Some(WorkloadSliceLayer { topology, size: size.unwrap_or_default() })
        }),
    };
    let rules = [read.required.is_some(), read.preferred.is_some(), read.unconstrained == Some(true)];
    if rules.into_iter().filter(|rule| *rule).count() > 1 {
        topology.error(
            "required",
            "can't be combined with another topology rule",
            "keep one of `required`, `preferred` and `unconstrained`",
        );
    }
    if !read.slice_layers.is_empty() && (read.slice_required.is_some() || read.slice_size.is_some()) {
        let remedy = "keep it, or `podSetSliceRequiredTopology` and `podSetSliceSize`";
        topology.error(
            "podsetSliceRequiredTopologyConstraints",
            "can't be combined with slices of one layer",
            remedy,
        );
    }
    if read.slice_required.is_some() != read.slice_size.is_some() {
        topology.error("podSetSliceSize", "goes with `podSetSliceRequiredTopology`", "write both or neither");
    }
    topology.finish();
    read
}

/// A count of at least `least`; `None` for any other number.
fn count_at_least(fields: &Fields<'_>, name: &'static str, least: i64) -> Option<u32> {
    fields.int(name, least, i64::from(i32::MAX)).and_then(|count| u32::try_from(count).ok())
}

fn check(spec: &WorkloadSpec, status: &WorkloadStatus, findings: &Findings) {
    let mut seen = BTreeSet::new();
    for (index, set) in spec.pod_sets.iter().enumerate().filter(|(_, set)| !seen.insert(set.name.as_str())) {
        let at = FieldPath::of("spec.podSets").index(index).key("name");
        findings.error(at, format!("`{}` appears twice", set.name), "give every pod set a name of its own");
    }
    if spec.pod_sets.iter().filter(|set| set.min_count.is_some()).count() > 1 {
        findings.error(FieldPath::of("spec.podSets"), "have more than one `minCount`", "keep one of them");
    }
    let Some(admission) = &status.admission else { return };
    for (index, assigned) in
        admission.pod_sets.iter().enumerate().filter(|(_, assigned)| !seen.contains(assigned.name.as_str()))
    {
        let at = FieldPath::of("status.admission.podSetAssignments").index(index).key("name");
        findings.error(
            at,
            format!("`{}` is not a pod set of this workload", assigned.name),
            "name one of `spec.podSets`",
        );
    }
}

//! The objects of a management cluster, and how they refer to each other. Pure.

use super::workloads::{Stage, Workloads, is_workload};
use meridian_manager_kubernetes::preview::{self, GroupFault};
use meridian_objects::Kind;
use meridian_objects::job::QUEUE_LABEL;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The group of Kueue's own kinds.
const KUEUE: &str = "kueue.x-k8s.io";

/// Kinds that queues share.
const SHARED: [Kind; 9] = [
    Kind::Topology,
    Kind::ResourceFlavor,
    Kind::Cohort,
    Kind::WorkloadPriorityClass,
    Kind::PriorityClass,
    Kind::ProvisioningRequestConfig,
    Kind::MultiKueueCluster,
    Kind::MultiKueueConfig,
    Kind::AdmissionCheck,
];

/// One object that a move concerns.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// `None` for a kind that Meridian doesn't know.
    pub(super) kind: Option<Kind>,
    pub(super) object: Value,
    /// Kueue's progress with the object, if it is a job.
    stage: Stage,
}

impl Member {
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty())
    }

    /// The name in tables, such as `clusterqueue/dws` or `job/default/train`.
    pub(super) fn title(&self) -> String {
        let kind =
            self.kind.map_or_else(|| self.text("/kind").to_lowercase(), |kind| kind.singular().to_owned());
        match self.namespace() {
            Some(namespace) => format!("{kind}/{namespace}/{}", self.name()),
            None => format!("{kind}/{}", self.name()),
        }
    }

    /// The local queue of a job, or of the jobs that a CronJob makes.
    pub(super) fn queue(&self) -> &str {
        let job = self.job_template().unwrap_or(&self.object);
        job["metadata"]["labels"][QUEUE_LABEL].as_str().unwrap_or_default()
    }

    /// The template from which a CronJob makes its jobs.
    pub(super) fn job_template(&self) -> Option<&Value> {
        let is_cron = self.text("/kind") == "CronJob" && self.text("/apiVersion").starts_with("batch/");
        self.object.pointer("/spec/jobTemplate").filter(|_| is_cron)
    }

    /// Whether it is a job that Meridian runs, and has not ended.
    pub(super) fn is_open_job(&self) -> bool {
        let job = self.kind.and_then(Kind::job);
        job.is_some_and(|job| !job.has_ended(&self.object))
            && self.stage != Stage::Ended
            && !self.queue().is_empty()
    }

    /// The group that a pod belongs to.
    pub(super) fn group(&self) -> Option<&str> {
        preview::group_of(&self.object).filter(|_| self.kind == Some(Kind::Pod))
    }

    /// Whether pods of the job run somewhere, or may.
    pub(super) fn is_active(&self) -> bool {
        let is_running_pod = self.kind == Some(Kind::Pod) && self.text("/status/phase") == "Running";
        is_running_pod
            || self.stage == Stage::Started
            || self.kind.and_then(Kind::job).is_some_and(|job| job.active(&self.object) > 0)
    }
}

/// All objects that a move concerns, by kind, namespace and name.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    members: Vec<Member>,
    has_workloads: bool,
}

impl Setup {
    /// Leaves out objects without relation to queues, objects that Meridian makes itself, and jobs that have
    /// ended.
    pub(super) fn of(objects: Vec<Value>) -> Self {
        let workloads = Workloads::of(&objects);
        let has_workloads = objects.iter().any(is_workload);
        let mut members: Vec<Member> =
            objects.into_iter().filter_map(|object| member(object, &workloads)).collect();
        members.sort_by_cached_key(|member| {
            let place = member.kind.map_or(usize::MAX, |kind| {
                Kind::ALL.iter().position(|known| *known == kind).unwrap_or(usize::MAX)
            });
            // Settings first, then objects with a queue.
            (!member.queue().is_empty(), place, member.title())
        });
        Self { members, has_workloads }
    }

    /// Whether Workloads are among the objects. Without them a job that runs in a worker cluster may look as
    /// if it waits.
    pub(super) const fn has_workloads(&self) -> bool {
        self.has_workloads
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_of_kueue =
            |member: &Member| member.text("/apiVersion").starts_with(KUEUE) || !member.queue().is_empty();
        !self.members.iter().any(is_of_kueue)
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.kind == Some(kind))
    }

    pub(super) fn find(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Option<&Member> {
        self.of_kind(kind).find(|member| member.name() == name && member.namespace() == namespace)
    }

    pub(super) fn cluster_queues(&self) -> Vec<&str> {
        self.of_kind(Kind::ClusterQueue).map(Member::name).collect()
    }

    /// The pods of each group that have not ended, by namespace and name of the group.
    pub(super) fn groups(&self) -> BTreeMap<(Option<&str>, &str), Vec<&Member>> {
        let mut groups: BTreeMap<_, Vec<&Member>> = BTreeMap::new();
        for pod in self.of_kind(Kind::Pod) {
            if let Some(group) = pod.group() {
                groups.entry((pod.namespace(), group)).or_default().push(pod);
            }
        }
        groups
    }

    /// Worker clusters, as MultiKueue names them.
    pub(super) fn clusters(&self) -> Vec<&str> {
        self.of_kind(Kind::MultiKueueCluster).map(Member::name).collect()
    }

    /// Namespace and name of the local queues of a cluster queue.
    pub(super) fn local_queues(&self, cluster_queue: &str) -> Vec<(&str, &str)> {
        self.of_kind(Kind::LocalQueue)
            .filter(|member| member.text("/spec/clusterQueue") == cluster_queue)
            .map(|member| (member.namespace().unwrap_or_default(), member.name()))
            .collect()
    }

    /// The queue with its local queues, and everything that queues share, as the manager takes them.
    pub(super) fn manifests_of_queue(&self, cluster_queue: &str) -> Vec<Value> {
        let is_part = |member: &&Member| match member.kind {
            Some(Kind::ClusterQueue) => member.name() == cluster_queue,
            Some(Kind::LocalQueue) => member.text("/spec/clusterQueue") == cluster_queue,
            Some(kind) => SHARED.contains(&kind),
            None => false,
        };
        self.members.iter().filter(is_part).filter_map(manifest).collect()
    }

    /// The jobs of a queue that have not ended and that Kueue has not started, as the manager takes them.
    pub(super) fn waiting_jobs(&self, cluster_queue: &str) -> Vec<Value> {
        let queues: BTreeSet<(&str, &str)> = self.local_queues(cluster_queue).into_iter().collect();
        let mut faulty = self.groups();
        faulty.retain(|_, pods| group_fault(pods).is_some() || pods.iter().any(|pod| pod.is_active()));
        let waits = |member: &&Member| {
            member.is_open_job()
                && !member.is_active()
                && member.group().is_none_or(|group| !faulty.contains_key(&(member.namespace(), group)))
                && queues.contains(&(member.namespace().unwrap_or_default(), member.queue()))
                && member.kind.is_some_and(|kind| preview::is_taken(kind, &member.object))
        };
        self.members.iter().filter(waits).filter_map(manifest).collect()
    }
}

/// Why the manager refuses the group of these pods; `None` if it accepts the group. A refused pod counts as
/// missing.
pub(super) fn group_fault(pods: &[&Member]) -> Option<GroupFault> {
    let taken = pods.iter().filter(|pod| preview::is_taken(Kind::Pod, &pod.object));
    preview::group_fault(&taken.map(|pod| Arc::new(pod.object.clone())).collect::<Vec<_>>())
}

fn manifest(member: &Member) -> Option<Value> {
    Some(preview::as_taken(member.kind?, &member.object))
}

fn member(object: Value, workloads: &Workloads) -> Option<Member> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind_name) = (text("apiVersion"), text("kind"));
    let kind = Kind::from_gvk(api_version, kind_name).map(|(kind, _)| kind);
    let is_of_kueue = api_version.split('/').next() == Some(KUEUE);
    let stage = workloads.stage(&object);
    let member = Member { kind, object, stage };
    let concerns = match kind {
        // Meridian makes its own.
        Some(Kind::Workload) => false,
        // If the owner has a queue, it is among the objects.
        Some(Kind::Pod) if preview::is_controlled(&member.object) => false,
        Some(kind) if kind.is_job() => member.is_open_job(),
        // Kubernetes' own priority classes and namespaces are not taken.
        Some(kind) => !kind.grants() && preview::is_taken(kind, &member.object),
        None => is_of_kueue || !member.queue().is_empty(),
    };
    concerns.then_some(member)
}

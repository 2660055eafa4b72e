//! The table of kinds: their names in files, in URLs and on the command line.
//!
//! API and command line get all kinds from this table. The first version of a kind is its storage version,
//! which is also preferred in answers.

use crate::fields::suggest;
use std::fmt;

pub const KUEUE_GROUP: &str = "kueue.x-k8s.io";
pub const MERIDIAN_GROUP: &str = "meridian.dev";
const JOBSET_GROUP: &str = "jobset.x-k8s.io";
const KUBEFLOW_GROUP: &str = "kubeflow.org";
const RAY_GROUP: &str = "ray.io";
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// Kueue's deprecated version, a view of the stored object.
pub const V1BETA1: &str = "v1beta1";
/// Kueue's storage version.
pub const V1BETA2: &str = "v1beta2";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// A kind of node, and the labels that select it.
    ResourceFlavor,
    /// Quotas, and the policies of their use.
    ClusterQueue,
    /// Cluster queues that share quota.
    Cohort,
    /// A namespace's entry to a cluster queue.
    LocalQueue,
    /// A workload priority by name.
    WorkloadPriorityClass,
    /// A condition for admission that a controller evaluates.
    AdmissionCheck,
    MultiKueueConfig,
    /// A worker cluster under its MultiKueue name.
    MultiKueueCluster,
    /// How a worker cluster asks its provider for nodes.
    ProvisioningRequestConfig,
    /// A gang and its state; made by Meridian, never from a file.
    Workload,
    /// A `batch/v1` Job, one of the kinds of jobs; see [`crate::job::JobKind`].
    Job,
    /// A `jobset.x-k8s.io` JobSet.
    JobSet,
    /// A PyTorchJob of Kubeflow's training operator.
    PyTorchJob,
    /// An MPIJob of Kubeflow's MPI operator.
    MPIJob,
    /// A job in a Ray cluster of its own.
    RayJob,
    /// A Ray cluster, which runs until it is deleted.
    RayCluster,
    /// Groups of pods with a leader each, which run until they are deleted.
    LeaderWorkerSet,
    /// Equal nodes that train together, in the pods of a runtime.
    TrainJob,
    /// A pod on its own.
    Pod,
    /// Pods that start together, as Kueue's labels of a pod group describe them.
    PodGroup,
    Namespace,
    /// A pod priority by name.
    PriorityClass,
    /// A worker cluster: its location and the upper limit of its capacity.
    Cluster,
    /// The clusters in which workloads may or must not run.
    ResidencyPolicy,
    /// How workloads are dispatched.
    DispatchPolicy,
    /// Levels of a node topology, by node labels.
    Topology,
    /// Bounds and defaults for the pods of a namespace.
    LimitRange,
    /// How pods run, and the overhead of running them so.
    RuntimeClass,
    /// Permissions in the role's namespace.
    Role,
    /// Permissions in every namespace, or in those in which the role is bound.
    ClusterRole,
    /// Users and groups that have a role in its namespace.
    RoleBinding,
    /// Users and groups that have a ClusterRole everywhere.
    ClusterRoleBinding,
}

/// One line of the table.
struct Row {
    kind: Kind,
    name: &'static str,
    group: &'static str,
    /// Served versions, the storage version first.
    versions: &'static [&'static str],
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
}

impl Row {
    const fn v1(
        group: &'static str,
        kind: Kind,
        name: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Self {
        Self { kind, name, group, versions: &["v1"], plural, singular, short: &[], namespaced: false }
    }

    const fn kueue(kind: Kind, name: &'static str, plural: &'static str, singular: &'static str) -> Self {
        Self { versions: &[V1BETA2, V1BETA1], ..Self::v1(KUEUE_GROUP, kind, name, plural, singular) }
    }

    const fn meridian(kind: Kind, name: &'static str, plural: &'static str, singular: &'static str) -> Self {
        Self { versions: &["v1alpha1"], ..Self::v1(MERIDIAN_GROUP, kind, name, plural, singular) }
    }

    const fn short(self, short: &'static [&'static str]) -> Self {
        Self { short, ..self }
    }

    const fn namespaced(self) -> Self {
        Self { namespaced: true, ..self }
    }
}

/// The table, in the order of [`Kind`].
const ROWS: [Row; 32] = [
    Row::kueue(Kind::ResourceFlavor, "ResourceFlavor", "resourceflavors", "resourceflavor")
        .short(&["rf", "flavor", "flavors"]),
    Row::kueue(Kind::ClusterQueue, "ClusterQueue", "clusterqueues", "clusterqueue").short(&["cq"]),
    Row::kueue(Kind::Cohort, "Cohort", "cohorts", "cohort").short(&["co"]),
    Row::kueue(Kind::LocalQueue, "LocalQueue", "localqueues", "localqueue")
        .short(&["lq", "queue", "queues"])
        .namespaced(),
    Row::kueue(
        Kind::WorkloadPriorityClass,
        "WorkloadPriorityClass",
        "workloadpriorityclasses",
        "workloadpriorityclass",
    )
    .short(&["wpc"]),
    Row::kueue(Kind::AdmissionCheck, "AdmissionCheck", "admissionchecks", "admissioncheck").short(&["ac"]),
    Row::kueue(Kind::MultiKueueConfig, "MultiKueueConfig", "multikueueconfigs", "multikueueconfig")
        .short(&["mkconf"]),
    Row::kueue(Kind::MultiKueueCluster, "MultiKueueCluster", "multikueueclusters", "multikueuecluster")
        .short(&["mkc"]),
    Row::kueue(
        Kind::ProvisioningRequestConfig,
        "ProvisioningRequestConfig",
        "provisioningrequestconfigs",
        "provisioningrequestconfig",
    )
    .short(&["prc"]),
    Row::kueue(Kind::Workload, "Workload", "workloads", "workload")
        .short(&["wl", "kwl", "kueueworkload", "kueueworkloads"])
        .namespaced(),
    Row::v1("batch", Kind::Job, "Job", "jobs", "job").namespaced(),
    Row { versions: &["v1alpha2"], ..Row::v1(JOBSET_GROUP, Kind::JobSet, "JobSet", "jobsets", "jobset") }
        .namespaced(),
    Row::v1(KUBEFLOW_GROUP, Kind::PyTorchJob, "PyTorchJob", "pytorchjobs", "pytorchjob").namespaced(),
    Row { versions: &["v2beta1"], ..Row::v1(KUBEFLOW_GROUP, Kind::MPIJob, "MPIJob", "mpijobs", "mpijob") }
        .namespaced(),
    Row::v1(RAY_GROUP, Kind::RayJob, "RayJob", "rayjobs", "rayjob").namespaced(),
    Row::v1(RAY_GROUP, Kind::RayCluster, "RayCluster", "rayclusters", "raycluster").namespaced(),
    Row::v1(
        "leaderworkerset.x-k8s.io",
        Kind::LeaderWorkerSet,
        "LeaderWorkerSet",
        "leaderworkersets",
        "leaderworkerset",
    )
    .short(&["lws"])
    .namespaced(),
    Row {
        versions: &["v1alpha1"],
        ..Row::v1("trainer.kubeflow.org", Kind::TrainJob, "TrainJob", "trainjobs", "trainjob")
    }
    .namespaced(),
    Row::v1("", Kind::Pod, "Pod", "pods", "pod").short(&["po"]).namespaced(),
    Row::meridian(Kind::PodGroup, "PodGroup", "podgroups", "podgroup").short(&["pg"]).namespaced(),
    Row::v1("", Kind::Namespace, "Namespace", "namespaces", "namespace").short(&["ns"]),
    Row::v1("scheduling.k8s.io", Kind::PriorityClass, "PriorityClass", "priorityclasses", "priorityclass")
        .short(&["pc"]),
    Row::meridian(Kind::Cluster, "Cluster", "clusters", "cluster").short(&["cl"]),
    Row::meridian(Kind::ResidencyPolicy, "ResidencyPolicy", "residencypolicies", "residencypolicy")
        .short(&["rp"]),
    Row::meridian(Kind::DispatchPolicy, "DispatchPolicy", "dispatchpolicies", "dispatchpolicy")
        .short(&["dp"]),
    Row::kueue(Kind::Topology, "Topology", "topologies", "topology").short(&["topo"]),
    Row::v1("", Kind::LimitRange, "LimitRange", "limitranges", "limitrange").short(&["limits"]).namespaced(),
    Row::v1("node.k8s.io", Kind::RuntimeClass, "RuntimeClass", "runtimeclasses", "runtimeclass"),
    Row::v1(RBAC_GROUP, Kind::Role, "Role", "roles", "role").namespaced(),
    Row::v1(RBAC_GROUP, Kind::ClusterRole, "ClusterRole", "clusterroles", "clusterrole"),
    Row::v1(RBAC_GROUP, Kind::RoleBinding, "RoleBinding", "rolebindings", "rolebinding").namespaced(),
    Row::v1(
        RBAC_GROUP,
        Kind::ClusterRoleBinding,
        "ClusterRoleBinding",
        "clusterrolebindings",
        "clusterrolebinding",
    ),
];

// `Kind::row` relies on the order of the table.
const _: () = {
    let mut at = 0;
    while at < ROWS.len() {
        assert!(ROWS[at].kind as usize == at);
        at += 1;
    }
};

impl Kind {
    /// Every kind, in the order in which to apply a set of files: kinds that others refer to come first.
    pub const ALL: [Self; 32] = [
        Self::Namespace,
        Self::ClusterRole,
        Self::Role,
        Self::ClusterRoleBinding,
        Self::RoleBinding,
        Self::PriorityClass,
        Self::RuntimeClass,
        Self::LimitRange,
        Self::WorkloadPriorityClass,
        Self::Topology,
        Self::ResourceFlavor,
        Self::Cluster,
        Self::MultiKueueCluster,
        Self::MultiKueueConfig,
        Self::ProvisioningRequestConfig,
        Self::AdmissionCheck,
        Self::Cohort,
        Self::ClusterQueue,
        Self::LocalQueue,
        Self::ResidencyPolicy,
        Self::DispatchPolicy,
        Self::Job,
        Self::JobSet,
        Self::PyTorchJob,
        Self::MPIJob,
        Self::RayJob,
        Self::RayCluster,
        Self::LeaderWorkerSet,
        Self::TrainJob,
        Self::Pod,
        Self::PodGroup,
        Self::Workload,
    ];

    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The API group; empty for the core group.
    pub const fn group(self) -> &'static str {
        self.row().group
    }

    /// The served versions, storage version first.
    pub const fn versions(self) -> &'static [&'static str] {
        self.row().versions
    }

    pub const fn storage_version(self) -> &'static str {
        self.row().versions[0]
    }

    /// The name in URLs, such as `clusterqueues`.
    pub const fn plural(self) -> &'static str {
        self.row().plural
    }

    pub const fn singular(self) -> &'static str {
        self.row().singular
    }

    /// Short names for the command line.
    pub const fn short_names(self) -> &'static [&'static str] {
        self.row().short
    }

    pub const fn namespaced(self) -> bool {
        self.row().namespaced
    }

    /// Whether files and clients may create objects of the kind. Only workloads are created by the manager
    /// alone, for jobs.
    pub const fn writable(self) -> bool {
        !matches!(self, Self::Workload)
    }

    /// Whether objects of the kind determine users' permissions.
    pub const fn grants(self) -> bool {
        matches!(self, Self::Role | Self::ClusterRole | Self::RoleBinding | Self::ClusterRoleBinding)
    }

    /// The `apiVersion` of `version`, such as `kueue.x-k8s.io/v1beta2` or `v1`.
    pub fn api_version(self, version: &str) -> String {
        if self.group().is_empty() { version.to_owned() } else { format!("{}/{version}", self.group()) }
    }

    /// The kind and version that a file names by `apiVersion` and `kind`.
    pub fn from_gvk(api_version: &str, kind: &str) -> Option<(Self, &'static str)> {
        let (group, version) = split_api_version(api_version);
        let found = Self::ALL.into_iter().find(|row| row.name() == kind && row.group() == group)?;
        found.served(version).map(|version| (found, version))
    }

    /// The kind and version behind a URL's group, version and plural.
    pub fn from_plural(group: &str, version: &str, plural: &str) -> Option<(Self, &'static str)> {
        let found = Self::ALL.into_iter().find(|row| row.plural() == plural && row.group() == group)?;
        found.served(version).map(|version| (found, version))
    }

    /// The kind that a user means by `cq`, `clusterqueues`, `ClusterQueue` or `clusterqueues.kueue.x-k8s.io`.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let (name, group) =
            word.split_once('.').map_or((word.as_str(), None), |(name, group)| (name, Some(group)));
        Self::ALL.into_iter().find(|kind| {
            let row = kind.row();
            let named = name == row.plural || name == row.singular || row.short.contains(&name);
            let in_group = |group: &str| {
                group == row.group
                    || group.split_once('.').is_some_and(|(v, g)| g == row.group && row.versions.contains(&v))
            };
            named && group.is_none_or(in_group)
        })
    }

    /// The known word nearest to `word`, for "did you mean".
    pub fn nearest_word(word: &str) -> Option<&'static str> {
        suggest::nearest(word, Self::ALL.iter().flat_map(|kind| [kind.singular(), kind.plural()]))
    }

    /// `version` from the table, when it is served.
    pub fn served(self, version: &str) -> Option<&'static str> {
        self.versions().iter().copied().find(|served| *served == version)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_is_found_by_each_of_its_names() {
        assert_eq!(Kind::ALL.iter().collect::<BTreeSet<_>>().len(), Kind::ALL.len());
        for kind in Kind::ALL {
            for version in kind.versions() {
                assert_eq!(Kind::from_gvk(&kind.api_version(version), kind.name()), Some((kind, *version)));
                assert_eq!(Kind::from_plural(kind.group(), version, kind.plural()), Some((kind, *version)));
            }
            for word in [kind.name(), kind.plural(), kind.singular()].iter().chain(kind.short_names()) {
                assert_eq!(Kind::from_word(word), Some(kind), "{word}");
            }
            assert_eq!(kind.storage_version(), kind.versions()[0]);
        }
    }

    #[test]
    fn words_may_carry_the_group() {
        assert_eq!(Kind::from_word("cq.kueue.x-k8s.io"), Some(Kind::ClusterQueue));
        assert_eq!(Kind::from_word("clusterqueues.v1beta1.kueue.x-k8s.io"), Some(Kind::ClusterQueue));
        assert_eq!(Kind::from_word("cq.batch"), None);
        assert_eq!(Kind::nearest_word("clusterqueu"), Some("clusterqueue"));
    }
}

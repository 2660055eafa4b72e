//! The closed table of kinds: how each is called in files, in URLs and by people.
//!
//! API and command line are driven by this table and by nothing else. For every kind the first version is the storage
//! version, which is also the one that is preferred in answers.

use crate::suggest;
use std::fmt;

/// Kueue's group.
pub const KUEUE_GROUP: &str = "kueue.x-k8s.io";
/// Our own group.
pub const MERIDIAN_GROUP: &str = "meridian.dev";
/// Kueue's deprecated version, a view of the stored object.
pub const V1BETA1: &str = "v1beta1";
/// Kueue's storage version.
pub const V1BETA2: &str = "v1beta2";

/// Every kind that Meridian reads or shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// What a kind of machine is called and how it is selected.
    ResourceFlavor,
    /// Quotas, and who may use them.
    ClusterQueue,
    /// Cluster queues that share.
    Cohort,
    /// A namespace's door to a cluster queue.
    LocalQueue,
    /// A priority by name.
    WorkloadPriorityClass,
    /// Something that must agree before a workload is admitted.
    AdmissionCheck,
    /// Which worker clusters a queue may use.
    MultiKueueConfig,
    /// A worker cluster as MultiKueue names it.
    MultiKueueCluster,
    /// How a worker cluster asks its provider for machines.
    ProvisioningRequestConfig,
    /// A gang and its state; made by Meridian, never by a file.
    Workload,
    /// The user's object behind a workload.
    Job,
    /// A tenant's room.
    Namespace,
    /// A pod priority by name.
    PriorityClass,
    /// A worker cluster: where it is and what it may be believed to have.
    Cluster,
    /// Where workloads may and must not go.
    ResidencyPolicy,
    /// How workloads are dispatched.
    DispatchPolicy,
    /// Levels of nearness that nodes have by their labels.
    Topology,
    /// Bounds and defaults for the pods of a namespace.
    LimitRange,
    /// How pods are run, and what that costs.
    RuntimeClass,
}

/// One line of the table.
struct Row {
    name: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
}

const KUEUE_VERSIONS: &[&str] = &[V1BETA2, V1BETA1];
const V1: &[&str] = &["v1"];
const V1ALPHA1: &[&str] = &["v1alpha1"];

impl Kind {
    /// Every kind, in the order in which a file set is best applied: what others refer to comes first.
    pub const ALL: [Self; 19] = [
        Self::Namespace,
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
        Self::Workload,
    ];

    const fn row(self) -> Row {
        macro_rules! row {
            ($name:literal, $group:expr, $versions:expr, $plural:literal, $singular:literal, $short:expr, $namespaced:literal) => {
                Row {
                    name: $name,
                    group: $group,
                    versions: $versions,
                    plural: $plural,
                    singular: $singular,
                    short: $short,
                    namespaced: $namespaced,
                }
            };
        }
        match self {
            Self::ResourceFlavor => {
                row!(
                    "ResourceFlavor",
                    KUEUE_GROUP,
                    KUEUE_VERSIONS,
                    "resourceflavors",
                    "resourceflavor",
                    &["rf", "flavor", "flavors"],
                    false
                )
            }
            Self::ClusterQueue => row!(
                "ClusterQueue",
                KUEUE_GROUP,
                KUEUE_VERSIONS,
                "clusterqueues",
                "clusterqueue",
                &["cq"],
                false
            ),
            Self::Cohort => row!("Cohort", KUEUE_GROUP, KUEUE_VERSIONS, "cohorts", "cohort", &["co"], false),
            Self::LocalQueue => row!(
                "LocalQueue",
                KUEUE_GROUP,
                KUEUE_VERSIONS,
                "localqueues",
                "localqueue",
                &["lq", "queue", "queues"],
                true
            ),
            Self::WorkloadPriorityClass => {
                row!(
                    "WorkloadPriorityClass",
                    KUEUE_GROUP,
                    KUEUE_VERSIONS,
                    "workloadpriorityclasses",
                    "workloadpriorityclass",
                    &["wpc"],
                    false
                )
            }
            Self::AdmissionCheck => row!(
                "AdmissionCheck",
                KUEUE_GROUP,
                KUEUE_VERSIONS,
                "admissionchecks",
                "admissioncheck",
                &["ac"],
                false
            ),
            Self::MultiKueueConfig => row!(
                "MultiKueueConfig",
                KUEUE_GROUP,
                KUEUE_VERSIONS,
                "multikueueconfigs",
                "multikueueconfig",
                &["mkconf"],
                false
            ),
            Self::MultiKueueCluster => row!(
                "MultiKueueCluster",
                KUEUE_GROUP,
                KUEUE_VERSIONS,
                "multikueueclusters",
                "multikueuecluster",
                &["mkc"],
                false
            ),
            Self::ProvisioningRequestConfig => {
                row!(
                    "ProvisioningRequestConfig",
                    KUEUE_GROUP,
                    KUEUE_VERSIONS,
                    "provisioningrequestconfigs",
                    "provisioningrequestconfig",
                    &["prc"],
                    false
                )
            }
            Self::Workload => row!(
                "Workload",
                KUEUE_GROUP,
                KUEUE_VERSIONS,
                "workloads",
                "workload",
                &["wl", "kwl", "kueueworkload", "kueueworkloads"],
                true
            ),
            Self::Job => row!("Job", "batch", V1, "jobs", "job", &[], true),
            Self::Namespace => row!("Namespace", "", V1, "namespaces", "namespace", &["ns"], false),
            Self::PriorityClass => row!(
                "PriorityClass",
                "scheduling.k8s.io",
                V1,
                "priorityclasses",
                "priorityclass",
                &["pc"],
                false
            ),
            Self::Cluster => row!("Cluster", MERIDIAN_GROUP, V1ALPHA1, "clusters", "cluster", &["cl"], false),
            Self::ResidencyPolicy => row!(
                "ResidencyPolicy",
                MERIDIAN_GROUP,
                V1ALPHA1,
                "residencypolicies",
                "residencypolicy",
                &["rp"],
                false
            ),
            Self::Topology => {
                row!("Topology", KUEUE_GROUP, KUEUE_VERSIONS, "topologies", "topology", &["topo"], false)
            }
            Self::LimitRange => row!("LimitRange", "", V1, "limitranges", "limitrange", &["limits"], true),
            Self::RuntimeClass => {
                row!("RuntimeClass", "node.k8s.io", V1, "runtimeclasses", "runtimeclass", &[], false)
            }
            Self::DispatchPolicy => row!(
                "DispatchPolicy",
                MERIDIAN_GROUP,
                V1ALPHA1,
                "dispatchpolicies",
                "dispatchpolicy",
                &["dp"],
                false
            ),
        }
    }

    /// The kind's name, such as `ClusterQueue`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Its API group; empty for the core group.
    pub const fn group(self) -> &'static str {
        self.row().group
    }

    /// The served versions, storage version first.
    pub const fn versions(self) -> &'static [&'static str] {
        self.row().versions
    }

    /// The version in which objects are stored.
    pub const fn storage_version(self) -> &'static str {
        self.row().versions[0]
    }

    /// The name in URLs, such as `clusterqueues`.
    pub const fn plural(self) -> &'static str {
        self.row().plural
    }

    /// The lower-case name of one, such as `clusterqueue`.
    pub const fn singular(self) -> &'static str {
        self.row().singular
    }

    /// What people type.
    pub const fn short_names(self) -> &'static [&'static str] {
        self.row().short
    }

    /// Whether objects of the kind live in a namespace.
    pub const fn namespaced(self) -> bool {
        self.row().namespaced
    }

    /// Whether files and clients may make objects of the kind. Only workloads may not be made: they follow their jobs.
    pub const fn writable(self) -> bool {
        !matches!(self, Self::Workload)
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

    /// The kind that a person means by `cq`, `clusterqueues`, `ClusterQueue` or `clusterqueues.kueue.x-k8s.io`.
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

    /// `version` as the table spells it, when it is served.
    pub fn served(self, version: &str) -> Option<&'static str> {
        self.versions().iter().copied().find(|served| *served == version)
    }

    /// What is wrong with an `apiVersion` and `kind` that [`Kind::from_gvk`] does not know: the message and the remedy.
    pub(crate) fn unknown(api_version: &str, kind: &str) -> (bool, String, String) {
        let (group, version) = split_api_version(api_version);
        if let ("v1", "Node" | "Pod") = (api_version, kind) {
            return (
                false,
                format!("a `{kind}` is not applied"),
                "leave it out; `meridian plan -f FILE` reads it".to_owned(),
            );
        }
        let by_name = Self::ALL.into_iter().find(|known| known.name() == kind);
        if let Some(known) = by_name {
            let versions = known
                .versions()
                .iter()
                .map(|version| format!("`{}`", known.api_version(version)))
                .collect::<Vec<_>>()
                .join(" or ");
            let message = if known.group() == group {
                format!("`{kind}` has no version `{version}`")
            } else {
                format!("`{api_version}` has no kind `{kind}`")
            };
            return (true, message, format!("write apiVersion {versions}"));
        }
        let remedy = match suggest::nearest(kind, Self::ALL.iter().map(|known| known.name())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "the kinds are {}",
                Self::ALL
                    .iter()
                    .filter(|known| known.writable())
                    .map(|known| known.name())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        (false, format!("unknown kind `{kind}` of `{api_version}`"), remedy)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn split_api_version(api_version: &str) -> (&str, &str) {
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

    #[test]
    fn unknown_kinds_get_a_guess() {
        let check = |api_version: &str, kind: &str, expect: &str| {
            assert_eq!(Kind::from_gvk(api_version, kind), None);
            let (_, message, remedy) = Kind::unknown(api_version, kind);
            assert!(format!("{message}; {remedy}").contains(expect), "{message}; {remedy}");
        };
        check(
            "kueue.x-k8s.io/v1",
            "ClusterQueue",
            "`ClusterQueue` has no version `v1`; write apiVersion `kueue.x-k8s.io/v1beta2` or `kueue.x-k8s.io/v1beta1`",
        );
        check("v1", "Job", "`v1` has no kind `Job`; write apiVersion `batch/v1`");
        check("batch/v1", "Jobb", "did you mean `Job`?");
        check("v1", "Node", "a `Node` is not applied; leave it out; `meridian plan -f FILE` reads it");
        check("apps/v1", "Deployment", "the kinds are Namespace,");
    }
}

//! Kueue's multi-cluster kinds in their storage version: admission checks, lists of clusters, and
//! provisioning in worker clusters.

use crate::fields::Fields;
use crate::fields::names;
use crate::fields::scheduling::{reference, resource_name};
use meridian_shared::ids::ClusterName;
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// Controller of the check that sends workloads to worker clusters. Meridian acts as this controller.
pub const MULTIKUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// Controller of the check that asks a provider for nodes.
pub const PROVISIONING_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// Most clusters of a configuration.
const MAX_CLUSTERS: usize = 20;
/// Most parameters, and most managed resources, of a provisioning configuration.
const MAX_PROVISIONING: usize = 100;
/// Longest value of a provisioning parameter, in characters.
const MAX_PARAMETER_CHARS: usize = 255;
/// Most selectors that a provisioning configuration adds to pods.
const MAX_POD_SET_UPDATES: usize = 8;
/// Longest location of a kubeconfig, in characters.
const MAX_LOCATION_CHARS: usize = 256;

/// The object that configures an admission check.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameters {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

/// A condition for admission that a controller evaluates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmissionCheckSpec {
    pub controller_name: String,
    pub parameters: Option<Parameters>,
}

/// The worker clusters of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MultiKueueConfigSpec {
    /// In the order in which they are written.
    pub clusters: Vec<ClusterName>,
    /// Whether the manager's quota should be the sum of the workers' quotas.
    pub automated_quota: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LocationType {
    #[default]
    Secret,
    Path,
}

/// How MultiKueue would reach a worker cluster. Not needed if an agent has joined under the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterSource {
    KubeConfig {
        location: String,
        location_type: LocationType,
    },
    /// Name of a cluster profile.
    ClusterProfile(String),
}

/// A worker cluster under its MultiKueue name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MultiKueueClusterSpec {
    /// `None` only for an object with errors.
    pub source: Option<ClusterSource>,
}

/// Retries of a provisioning request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryStrategy {
    /// Attempts after the first.
    pub limit: u32,
    /// Wait before the first retry.
    pub base: Millis,
    /// Longest wait before a retry.
    pub max: Millis,
}

impl Default for RetryStrategy {
    fn default() -> Self {
        Self { limit: 3, base: Millis::secs(60), max: Millis::secs(1_800) }
    }
}

/// How a worker cluster asks its provider for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProvisioningRequestConfigSpec {
    pub class_name: String,
    /// Parameters of every request.
    pub parameters: BTreeMap<String, String>,
    /// Resources that need a request. Empty means all.
    pub managed_resources: Vec<String>,
    pub retry: RetryStrategy,
    /// Node selector entries for the pods: label key, and the name of the provider's detail that has the
    /// value.
    pub node_selector_from_detail: BTreeMap<String, String>,
    /// `None`: every pod set has its own entry in a request.
    pub merge_policy: Option<MergePolicy>,
}

/// Which pod sets of a gang share one entry of a provisioning request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MergePolicy {
    IdenticalPodTemplates,
    /// Equal requests, node selectors, required node affinities and tolerations; the commands may differ.
    IdenticalWorkloadSchedulingRequirements,
}

impl MergePolicy {
    /// The name in Kueue.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IdenticalPodTemplates => "IdenticalPodTemplates",
            Self::IdenticalWorkloadSchedulingRequirements => "IdenticalWorkloadSchedulingRequirements",
        }
    }
}

pub(crate) fn read_check(root: &Fields<'_>) -> AdmissionCheckSpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return AdmissionCheckSpec::default();
    };
    let controller_name = spec.require_text("controllerName").unwrap_or_default().to_owned();
    let parameters = spec.fields("parameters").map(|parameters| {
        let text = |name: &'static str| parameters.require_text(name).unwrap_or_default().to_owned();
        let read = Parameters { api_group: text("apiGroup"), kind: text("kind"), name: text("name") };
        parameters.finish();
        read
    });
    if controller_name == MULTIKUEUE_CONTROLLER {
        match &parameters {
            None => spec.error("parameters", "is missing", "name the MultiKueueConfig of this check"),
            Some(parameters) if parameters.kind != "MultiKueueConfig" && !parameters.kind.is_empty() => {
                let message = format!("`{}` cannot configure this controller", parameters.kind);
                spec.findings().error(
                    spec.path().key("parameters").key("kind"),
                    message,
                    "write `MultiKueueConfig`",
                );
            }
            Some(_) => {}
        }
    }
    spec.finish();
    AdmissionCheckSpec { controller_name, parameters }
}

pub(crate) fn read_config(root: &Fields<'_>) -> MultiKueueConfigSpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return MultiKueueConfigSpec::default();
    };
    let clusters = spec.names("clusters", MAX_CLUSTERS);
    if clusters.is_empty() && !spec.findings().has_errors() {
        spec.error("clusters", "is empty", "name at least one cluster");
    }
    for (index, name) in clusters.iter().enumerate().filter(|(_, name)| !names::is_dns_subdomain(name)) {
        let at = spec.path().key("clusters").index(index);
        spec.findings().error(
            at,
            format!("`{name}` is not a name"),
            "use lower-case letters, digits, `-` and `.`",
        );
    }
    let automated =
        spec.get("quotaManagement").and_then(|item| item.word(&[("Manual", false), ("Automated", true)]));
    spec.finish();
    MultiKueueConfigSpec {
        clusters: clusters.iter().map(ClusterName::new).collect(),
        automated_quota: automated.unwrap_or(false),
    }
}

pub(crate) fn read_cluster(root: &Fields<'_>) -> MultiKueueClusterSpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return MultiKueueClusterSpec::default();
    };
    let source = spec.require("clusterSource").and_then(|item| item.fields()).and_then(|source| {
        let kube_config = source.fields("kubeConfig").map(|config| {
            let location = config.require_text("location").unwrap_or_default().to_owned();
            if location.chars().count() > MAX_LOCATION_CHARS {
                config.error(
                    "location",
                    "is too long",
                    format!("the maximum is {MAX_LOCATION_CHARS} characters"),
                );
            }
            let kinds = [("Secret", LocationType::Secret), ("Path", LocationType::Path)];
            let location_type =
                config.get("locationType").and_then(|item| item.word(&kinds)).unwrap_or_default();
            config.finish();
            ClusterSource::KubeConfig { location, location_type }
        });
        let profile = source.fields("clusterProfileRef").map(|profile| {
            let name = profile.require_text("name").unwrap_or_default().to_owned();
            profile.finish();
            ClusterSource::ClusterProfile(name)
        });
        let read = match (kube_config, profile) {
            (Some(_), Some(_)) => {
                source.error(
                    "clusterProfileRef",
                    "cannot be used together with `kubeConfig`",
                    "keep one of them",
                );
                None
            }
            (None, None) => {
                source.error(
                    "kubeConfig",
                    "is missing",
                    "name the Secret of the cluster's kubeconfig (an agent that joins needs no Secret)",
                );
                None
            }
            (one, other) => one.or(other),
        };
        source.finish();
        read
    });
    spec.finish();
    MultiKueueClusterSpec { source }
}

pub(crate) fn read_provisioning(root: &Fields<'_>) -> ProvisioningRequestConfigSpec {
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else {
        return ProvisioningRequestConfigSpec::default();
    };
    let parameters = spec.strings("parameters");
    if parameters.len() > MAX_PROVISIONING {
        spec.error(
            "parameters",
            format!("has {} entries", parameters.len()),
            format!("the maximum is {MAX_PROVISIONING}"),
        );
    }
    for (name, _) in parameters.iter().filter(|(_, value)| value.chars().count() > MAX_PARAMETER_CHARS) {
        spec.findings().error(
            spec.path().key("parameters").key(name),
            "is too long",
            format!("the maximum is {MAX_PARAMETER_CHARS} characters"),
        );
    }
    let merge_policies =
        [MergePolicy::IdenticalPodTemplates, MergePolicy::IdenticalWorkloadSchedulingRequirements];
    let merge_words = merge_policies.map(|policy| (policy.name(), policy));
    let read = ProvisioningRequestConfigSpec {
        class_name: spec
            .require("provisioningClassName")
            .and_then(|item| reference(&item))
            .unwrap_or_default(),
        parameters,
        managed_resources: spec.list("managedResources", MAX_PROVISIONING, |item| resource_name(&item)),
        retry: spec.fields("retryStrategy").map(read_retry).unwrap_or_default(),
        node_selector_from_detail: spec.fields("podSetUpdates").map(read_updates).unwrap_or_default(),
        merge_policy: spec.get("podSetMergePolicy").and_then(|item| item.word(&merge_words)),
    };
    spec.finish();
    read
}

fn read_retry(retry: Fields<'_>) -> RetryStrategy {
    let usual = RetryStrategy::default();
    let seconds = |name: &'static str, usual: Millis| {
        let written = retry.int(name, 0, i64::from(i32::MAX)).and_then(|value| u64::try_from(value).ok());
        written.map_or(usual, Millis::secs)
    };
    let limit =
        retry.int("backoffLimitCount", 0, i64::from(i32::MAX)).and_then(|value| u32::try_from(value).ok());
    let read = RetryStrategy {
        limit: limit.unwrap_or(usual.limit),
        base: seconds("backoffBaseSeconds", usual.base),
        max: seconds("backoffMaxSeconds", usual.max),
    };
    retry.finish();
    read
}

fn read_updates(updates: Fields<'_>) -> BTreeMap<String, String> {
    let pairs = updates.list("nodeSelector", MAX_POD_SET_UPDATES, |item| {
        let entry = item.fields()?;
        let key = entry.require_text("key").map(str::to_owned);
        let detail = entry.require_text("valueFromProvisioningClassDetail").map(str::to_owned);
        entry.finish();
        Some((key?, detail?))
    });
    updates.finish();
    pairs.into_iter().collect()
}

//! The settings of the Kubernetes runner, and of the provider that goes with it.

use super::{Error, HoldChosen, ProviderChoice, RunnerChoice, Settings};
use meridian_shared::protocol::ReferenceKind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The settings of the Kubernetes runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KubernetesSettings {
    /// `None`: the cluster that this process is a pod of.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubeconfig itself, for an agent in the manager's process.
    #[cfg(feature = "kubernetes")]
    pub(crate) kubeconfig_text: Option<meridian_kubernetes::KubeconfigText>,
    pub(crate) context: Option<String>,
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Name of the Lease; `None` for the usual one.
    pub(crate) lease_name: Option<String>,
    /// Image with the guard of pods; `None` for pods without guards.
    pub(crate) pod_guard_image: Option<String>,
    /// File of the ProvisioningRequestConfig.
    pub(crate) provisioning_config: Option<PathBuf>,
    /// Most open provisioning requests; `None` for GKE's own limit.
    pub(crate) provisioning_requests_max: Option<usize>,
    /// How held capacity is kept from other workloads.
    pub(crate) hold: HoldChosen,
    /// Kinds of objects that are copied from the management cluster.
    pub(crate) copied: BTreeSet<ReferenceKind>,
}

/// Most open requests where the settings give none: GKE's quota `active_resize_requests`.
const REQUESTS_MAX: usize = 100;

impl KubernetesSettings {
    /// Most provisioning requests that are open at the same time.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn requests_max(&self) -> usize {
        self.provisioning_requests_max.unwrap_or(REQUESTS_MAX)
    }
}

impl Settings {
    /// Fails if provisioning lacks a setting that it needs, or if its settings are given without it.
    pub(super) fn check_provisioning(&self) -> Result<(), Error> {
        let asks = self.provider == Some(ProviderChoice::ProvisioningRequest);
        let KubernetesSettings { provisioning_config, provisioning_requests_max, .. } = &self.kubernetes;
        if asks && self.runner != RunnerChoice::Kubernetes {
            let what = "`provisioning-request` asks the autoscaler of a Kubernetes cluster, so it needs \
                        `--runner kubernetes`: use `static`, or `simulated` with the simulated runner";
            return Err(Error::invalid("provider", what));
        }
        if asks && provisioning_config.is_none() {
            let why = "the ProvisioningRequestConfig in it names the provisioning class";
            return Err(Error::Missing { flag: "provisioning-config", why });
        }
        if asks && self.fleet.is_none() {
            let why = "an autoscaler doesn't say which pools it can grow, so a fleet file names them";
            return Err(Error::Missing { flag: "fleet", why });
        }
        if *provisioning_requests_max == Some(0) {
            let what = "`0` would request no nodes: leave the provider out instead";
            return Err(Error::invalid("provisioning-requests-max", what));
        }
        if provisioning_config.is_some() && !asks {
            let what = "it needs `--provider provisioning-request`";
            return Err(Error::invalid("provisioning-config", what));
        }
        // Without this setting the Cluster object may name a provider.
        let may_ask = asks || (self.provider.is_none() && self.runner == RunnerChoice::Kubernetes);
        if provisioning_requests_max.is_some() && !may_ask {
            let what = "it needs `--runner kubernetes` and a provider that requests nodes";
            return Err(Error::invalid("provisioning-requests-max", what));
        }
        Ok(())
    }

    /// A setting that the chosen runner would ignore.
    pub(super) fn flag_of_another_runner(&self) -> Option<&'static str> {
        let KubernetesSettings {
            kubeconfig,
            #[cfg(feature = "kubernetes")]
                kubeconfig_text: _,
            context,
            node_selector,
            lease_name,
            pod_guard_image,
            provisioning_config: _,
            provisioning_requests_max: _,
            hold,
            copied,
        } = &self.kubernetes;
        if self.runner == RunnerChoice::Kubernetes {
            let has_pools = self.provider == Some(ProviderChoice::ProvisioningRequest);
            return (self.fleet.is_some() && !has_pools).then_some("fleet");
        }
        let given = [
            ("kubeconfig", kubeconfig.is_some()),
            ("context", context.is_some()),
            ("node-selector", !node_selector.is_empty()),
            ("lease-name", lease_name.is_some()),
            ("pod-guard-image", pod_guard_image.is_some()),
            ("hold", *hold != HoldChosen::Ledger),
            ("copy-references", !copied.is_empty()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }
}

/// Labels that a node must have: `name=value`, separated by commas.
pub(super) fn node_selector_labels(text: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let parts =
        text.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| match part.split_once('=') {
            Some((name, value)) if !name.is_empty() && !name.ends_with('!') && !value.starts_with('=') => {
                Ok((name.to_owned(), value.to_owned()))
            }
            _ => Err(Error::invalid(
                "node-selector",
                format!("`{part}` is not a label: write `name=value`, and commas between several"),
            )),
        })
        .collect()
}

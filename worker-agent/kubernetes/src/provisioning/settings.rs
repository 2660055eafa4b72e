//! The settings and dependencies of the provider.

use crate::hub::Hub;
use meridian_agent_core::runtime::{NodePool, ProviderEvent};
use meridian_kubernetes::Connection;
use meridian_objects::spec::ProvisioningRequestConfigSpec;
use meridian_shared::managed::ManagedResources;
use meridian_shared::time::Now;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A class that books capacity of nodes that exist, and makes none.
const CHECK_CAPACITY: &str = "check-capacity.autoscaling.x-k8s.io";

/// How nodes are requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvisioningSettings {
    /// Class, parameters, retries, and how nodes are found.
    pub config: ProvisioningRequestConfigSpec,
    /// The pools that can grow, from zero up to their maximum.
    pub pools: Vec<NodePool>,
    /// Most requests that are open at the same time.
    pub requests_max: usize,
}

/// Dependencies of a provider.
pub struct ProvisioningParts {
    pub connection: Connection,
    pub hub: Arc<Hub>,
    /// The cluster's name at the manager.
    pub cluster: String,
    pub events: mpsc::UnboundedSender<ProviderEvent>,
    pub clock: Arc<dyn Fn() -> Now + Send + Sync>,
}

impl std::fmt::Debug for ProvisioningParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProvisioningParts").finish_non_exhaustive()
    }
}

impl ProvisioningSettings {
    /// The resources for which nodes are requested.
    pub fn managed(&self) -> ManagedResources {
        self.config.managed_resources.iter().cloned().collect()
    }

    /// Checks what can be checked without the cluster. Fails with the remedy.
    pub fn check(&self) -> Result<(), String> {
        if self.config.class_name == CHECK_CAPACITY {
            return Err(format!(
                "the class `{CHECK_CAPACITY}` makes no nodes, and the agent knows the free capacity of the \
                 cluster's nodes already: leave the provider out"
            ));
        }
        if self.pools.is_empty() {
            return Err("no pool is `provisionable`: write the pools that the autoscaler can grow".to_owned());
        }
        match self.pools.iter().find(|pool| pool.labels.is_empty()) {
            Some(pool) => Err(format!(
                "pool `{}` has no labels, so its nodes can't be told from others: write labels that all of \
                 its nodes have, such as `cloud.google.com/gke-nodepool: {}`",
                pool.name, pool.name
            )),
            None => Ok(()),
        }
    }
}

//! Asks an autoscaler for nodes: a ProvisioningRequest for each offer, in the namespace of its pods.
//!
//! [`settings`] and [`objects`] say which nodes are requested. [`order`] decides for one offer, [`ownership`]
//! for all; both are pure. [`manifest`] writes the objects, `supervisor` keeps all orders in a task of its
//! own, `perform` talks to the API server. The API and its conditions are those of `autoscaling.x-k8s.io`;
//! [GKE](https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest) and Kueue's provisioning
//! check use it in the same way.
//!
//! The nodes of a pool belong to the request that they were made for. They are found by the labels that the
//! configuration derives from the request's details (`podSetUpdates`), or else by their age: nodes that
//! joined after the request was made, and that nothing uses. A request of the class
//! `best-effort-atomic-scale-up` may also be met by older nodes that nothing uses: its autoscaler makes only
//! what is missing.

use crate::error::Error;
use crate::hub::{self, Hub};
use kube::api::ApiResource;
use meridian_agent_core::runtime::{NodeRequest, Provider};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Connection, Permission};
use meridian_shared::ids::OfferId;
use meridian_shared::packing::Block;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

mod losses;
mod manifest;
mod objects;
mod order;
mod ownership;
mod perform;
mod settings;
mod supervisor;
#[cfg(test)]
mod tests;

pub use settings::{ProvisioningParts, ProvisioningSettings};

use supervisor::{Command, Supervisor};

/// The API group of ProvisioningRequests.
const GROUP: &str = "autoscaling.x-k8s.io";
/// Served versions that the agent can use, the best first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The provider of one cluster: its autoscaler.
#[derive(Debug)]
pub struct ProvisioningProvider {
    settings: Arc<ProvisioningSettings>,
    hub: Arc<Hub>,
    commands: mpsc::UnboundedSender<Command>,
}

impl ProvisioningProvider {
    /// Opens the provider; its task ends with `tasks`. Fails if the cluster serves no version of the API that
    /// the agent can use, or a permission is missing.
    pub async fn open(
        settings: ProvisioningSettings,
        parts: ProvisioningParts,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, Error> {
        let resource = requests(&parts.connection).await?;
        parts.connection.check_permissions(&PERMISSIONS).await?;
        parts.hub.watch_requests(&parts.connection, resource.clone(), tasks);
        let settings = Arc::new(settings);
        let (commands, received) = mpsc::unbounded_channel();
        let hub = Arc::clone(&parts.hub);
        tasks.spawn(Supervisor::new(Arc::clone(&settings), parts, resource, received).serve());
        Ok(Self { settings, hub, commands })
    }
}

/// The rights that requests need in addition to those of the runner.
const PERMISSIONS: [Permission; 2] = [
    (GROUP, "provisioningrequests", &["get", "list", "watch", "create", "delete"]),
    ("", "podtemplates", &["list", "create", "delete"]),
];

/// The resource, in the best version that the cluster serves.
async fn requests(connection: &Connection) -> Result<ApiResource, Error> {
    let doing = || "ask which APIs the cluster serves".to_owned();
    let groups = within(doing(), connection.client.list_api_groups()).await?;
    let served = groups.groups.iter().find(|group| group.name == GROUP);
    let serves = |version: &&&str| {
        served.is_some_and(|group| group.versions.iter().any(|served| served.version == ***version))
    };
    match VERSIONS.iter().find(|version| serves(version)) {
        Some(version) => Ok(hub::resource(GROUP, version, "ProvisioningRequest", "provisioningrequests")),
        None => Err(Error::NotServed { api: GROUP, versions: VERSIONS.join("` or `") }),
    }
}

impl Provider for ProvisioningProvider {
    fn name(&self) -> &'static str {
        "provisioning-request"
    }

    fn pools(&self) -> Vec<Block> {
        let existing = self.hub.view().pool_sizes();
        let pools = self.settings.pools.iter().zip(existing);
        pools
            .map(|(pool, existing)| Block {
                nodes: pool.max_nodes.saturating_sub(existing),
                free: pool.per_node.clone(),
                capacity: pool.per_node.clone(),
                labels: pool.labels.clone(),
                taints: pool.taints.clone(),
            })
            .filter(|block| block.nodes > 0)
            .collect()
    }

    fn request(&mut self, request: NodeRequest) {
        // Fails only when the agent ends; its successor deletes what belongs to no run.
        let _ = self.commands.send(Command::Request(request));
    }

    fn cancel(&mut self, offer: OfferId) {
        let _ = self.commands.send(Command::Cancel(offer));
    }
}

//! What a hold needs in the cluster in addition to the ledger: the objects that the gang's pods name, and
//! objects that hold capacity on nodes that other workloads use too.
//!
//! [`lookups`] decides what is read and what the findings mean. [`order`] follows the objects that hold one
//! offer's capacity; [`placeholders`] and [`workload`] build them. All four are pure. `supervisor` serves the
//! agent in a task of its own, `perform` talks to the API server.

use crate::copies::Copies;
use crate::error::Error;
use crate::hub::{self, Hub};
use kube::api::ApiResource;
use meridian_agent_core::runtime::{HoldEvent, HoldOrder, Holds, ReferenceCheck};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Connection, Permission};
use meridian_shared::ids::OfferId;
use meridian_shared::time::Now;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

mod lookups;
mod order;
mod perform;
pub(crate) mod placeholders;
mod supervisor;
mod workload;

use supervisor::{Command, Supervisor};

/// The API group of Kueue.
const GROUP: &str = "kueue.x-k8s.io";
/// Served versions that the agent can use, the best first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The rights that each method needs in addition to those of the runner.
const PLACEHOLDER_PERMISSIONS: [Permission; 1] = [("", "pods", &["create"])];
const KUEUE_PERMISSIONS: [Permission; 1] =
    [(GROUP, "workloads", &["get", "list", "watch", "create", "delete"])];

/// How held capacity is kept from other workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldMode {
    /// The nodes run only what the agent places.
    #[default]
    Ledger,
    Placeholders(PlaceholderSettings),
    /// The cluster's own Kueue admits the gang in this LocalQueue of its namespace.
    Kueue {
        queue: String,
    },
}

/// The pods that hold capacity on nodes that other workloads use too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceholderSettings {
    /// An image that only sleeps.
    pub image: String,
    /// Their PriorityClass; empty for the cluster's default.
    pub priority_class: String,
}

/// A mode, with the API resources that it needs.
enum Method {
    Ledger,
    Placeholders(PlaceholderSettings),
    Kueue { queue: String, resource: ApiResource },
}

/// Dependencies of the interface.
pub struct HoldParts {
    pub connection: Connection,
    pub hub: Arc<Hub>,
    /// The cluster's name at the manager.
    pub cluster: String,
    /// `None`: nothing is copied.
    pub copies: Option<Copies>,
    pub events: mpsc::UnboundedSender<HoldEvent>,
    pub clock: Arc<dyn Fn() -> Now + Send + Sync>,
}

impl std::fmt::Debug for HoldParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HoldParts").finish_non_exhaustive()
    }
}

/// The interface to one cluster.
#[derive(Debug)]
pub struct ClusterHolds {
    commands: mpsc::UnboundedSender<Command>,
}

impl ClusterHolds {
    /// Opens the interface; its task ends with `tasks`. Fails if a permission is missing, or the cluster
    /// serves no version of Kueue that the agent can use.
    pub async fn open(mode: HoldMode, parts: HoldParts, tasks: &mut JoinSet<()>) -> Result<Self, Error> {
        let method = match mode {
            HoldMode::Ledger => Method::Ledger,
            HoldMode::Placeholders(settings) => {
                parts.connection.check_permissions(&PLACEHOLDER_PERMISSIONS).await?;
                Method::Placeholders(settings)
            }
            HoldMode::Kueue { queue } => {
                let resource = workloads(&parts.connection).await?;
                parts.connection.check_permissions(&KUEUE_PERMISSIONS).await?;
                parts.hub.watch_workloads(&parts.connection, resource.clone(), tasks);
                Method::Kueue { queue, resource }
            }
        };
        let (commands, received) = mpsc::unbounded_channel();
        tasks.spawn(Supervisor::new(method, parts, received).serve());
        Ok(Self { commands })
    }

    fn send(&self, command: Command) {
        // Fails only when the agent ends; its successor deletes what belongs to no offer.
        let _ = self.commands.send(command);
    }
}

/// Kueue's Workloads, in the best version that the cluster serves.
async fn workloads(connection: &Connection) -> Result<ApiResource, Error> {
    let doing = "ask which APIs the cluster serves".to_owned();
    let groups = within(doing, connection.client.list_api_groups()).await?;
    let served = groups.groups.iter().find(|group| group.name == GROUP);
    let serves = |version: &&&str| {
        served.is_some_and(|group| group.versions.iter().any(|served| served.version == ***version))
    };
    match VERSIONS.iter().find(|version| serves(version)) {
        Some(version) => Ok(hub::resource(GROUP, version, "Workload", "workloads")),
        None => Err(Error::NoKueue { api: GROUP, versions: VERSIONS.join("` or `") }),
    }
}

impl Holds for ClusterHolds {
    fn check(&mut self, check: ReferenceCheck) {
        self.send(Command::Check(check));
    }

    fn secure(&mut self, order: HoldOrder) {
        self.send(Command::Secure(order));
    }

    fn release(&mut self, offer: OfferId) {
        self.send(Command::Release(offer));
    }
}

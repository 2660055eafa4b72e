//! The parts of an agent whose cluster is a Kubernetes cluster.

use crate::guard::clock;
use crate::identity::Identity;
use crate::settings::KubernetesSettings;
use meridian_agent_core::runtime::{InventorySource, Runner, RunnerEvent};
use meridian_agent_kubernetes::election::{self, ElectionSettings};
use meridian_agent_kubernetes::runner::RunnerParts;
use meridian_agent_kubernetes::{
    ClusterInventory, Connection, ConnectionSettings, Hub, JobRunner, NodeSettings,
};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Name of the Lease where the settings give none.
const LEASE_NAME: &str = "meridian-agent";

/// Connects, waits until this replica holds the agent's Lease, and starts the watches and the runner.
pub(super) async fn open(
    settings: &KubernetesSettings,
    data_dir: &Path,
    identity: &Identity,
    events: mpsc::Sender<RunnerEvent>,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<(Box<dyn InventorySource>, Box<dyn Runner>)>> {
    let connection = Connection::open(&ConnectionSettings {
        kubeconfig: settings.kubeconfig.clone(),
        context: settings.context.clone(),
    })
    .await?;
    tracing::info!(
        server = connection.server(),
        version = connection.version(),
        "connected to the Kubernetes API server"
    );
    let lease = ElectionSettings {
        namespace: connection.namespace().to_owned(),
        name: settings.lease_name.clone().unwrap_or_else(|| LEASE_NAME.to_owned()),
        replica: replica(data_dir)?,
        life: uuid::Uuid::new_v4().simple().to_string(),
    };
    let Some(leader) = election::acquire(&connection, lease, stop).await? else { return Ok(None) };
    let (keeper, stop) = (leader.clone(), stop.clone());
    tasks.spawn(async move {
        let why = keeper.keep().await;
        tracing::error!(
            why,
            "this replica lost its Lease and stops: gangs run on, and the other replica takes them over"
        );
        stop.cancel();
    });
    let nodes = NodeSettings { selector: settings.node_selector.clone(), ..NodeSettings::default() };
    let (hub, touched) = Hub::start(&connection, nodes, tasks);
    let parts = RunnerParts {
        connection,
        hub: Arc::clone(&hub),
        touched,
        leader: Some(leader),
        cluster: identity.cluster.to_string(),
        events,
        clock: Arc::new(clock::now),
    };
    let runner = JobRunner::open(parts, tasks);
    Ok(Some((Box::new(ClusterInventory::new(hub)), Box::new(runner))))
}

/// File of the store's name in the Lease.
const REPLICA_FILE: &str = "replica";

/// The name of this store in the Lease, made at the first start. Fails if it can't be read or written.
fn replica(data_dir: &Path) -> anyhow::Result<String> {
    let path = data_dir.join(REPLICA_FILE);
    if let Some(name) = meridian_private_files::read(&path)? {
        return Ok(name);
    }
    let name = uuid::Uuid::new_v4().simple().to_string();
    meridian_private_files::replace(&path, &name)?;
    Ok(name)
}

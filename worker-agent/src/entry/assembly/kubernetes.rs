//! The parts of an agent whose cluster is a Kubernetes cluster.

use super::{ClusterParts, Life, Senders};
use crate::guard::clock;
use crate::identity::Identity;
use crate::inventory::FleetFile;
use crate::metrics::listener::Probed;
use crate::settings::{HoldChosen, KubernetesSettings, ProviderChoice, Settings};
use crate::store::Store;
use crate::uplink::Link;
use crate::uplink::copies::CopyLink;
use anyhow::Context as _;
use meridian_agent_core::runtime::{Holds, Inventory, InventorySource as _, Provider};
use meridian_agent_kubernetes::holds::HoldParts;
use meridian_agent_kubernetes::provisioning::ProvisioningParts;
use meridian_agent_kubernetes::runner::RunnerParts;
use meridian_agent_kubernetes::{
    ClusterHolds, ClusterInventory, Copies, GuardSettings, HoldMode, Hub, JobRunner, NodeSettings,
    PlaceholderSettings, ProvisioningProvider, ProvisioningSettings, connect,
};
use meridian_kubernetes::election::{self, ElectionSettings, Leader};
use meridian_kubernetes::{Connection, ConnectionSettings, KubeconfigSource};
use meridian_objects::spec::Spec;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod applied;

/// Name of the Lease where the settings give none.
const LEASE_NAME: &str = "meridian-agent";

/// Connects, waits until this replica holds the agent's Lease, and starts the watches and the runner.
pub(super) async fn open(
    all: &Settings,
    identity: &Identity,
    link: &Link,
    senders: Senders,
    probed: &Probed,
    life: &Life,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<ClusterParts>> {
    let Settings { kubernetes: settings, provider, .. } = all;
    let from_files = match provider {
        Some(ProviderChoice::ProvisioningRequest) => Some(provisioning(all, identity).await?),
        _ => None,
    };
    let connection = connect_to_cluster(settings).await?;
    let Some(leader) = lead(&connection, all, probed, &life.stop, tasks).await? else { return Ok(None) };
    probed.set_starting();
    let provisioning = match provider {
        // Asked only after the wait for the Lease, which can take days: an earlier answer would be old.
        None => applied::provisioning(all, link, life, tasks).await,
        Some(_) => from_files,
    };
    let pools = provisioning.iter().flat_map(|settings| &settings.pools);
    let nodes = NodeSettings {
        selector: settings.node_selector.clone(),
        pools: pools.map(|pool| pool.labels.clone()).collect(),
        ..NodeSettings::default()
    };
    let cluster = identity.cluster.to_string();
    let (hub, touched) = Hub::start(&connection, &cluster, nodes, tasks);
    let node_requests_limit = provisioning.as_ref().map_or(0, |settings| settings.requests_max);
    let managed = provisioning.as_ref().map(ProvisioningSettings::managed).unwrap_or_default();
    let parts = ProvisioningParts {
        connection: connection.clone(),
        hub: Arc::clone(&hub),
        cluster: cluster.clone(),
        events: senders.provider,
        clock: Arc::new(clock::now),
    };
    let provider = match provisioning {
        Some(settings) => open_provider(settings, parts, provider.is_none(), tasks).await?,
        None => None,
    };
    let copies = copies(settings, link, &connection).await?;
    let parts = HoldParts {
        connection: connection.clone(),
        hub: Arc::clone(&hub),
        cluster: cluster.clone(),
        copies: copies.clone(),
        events: senders.holds,
        clock: Arc::new(clock::now),
    };
    let holds: Option<Box<dyn Holds>> =
        Some(Box::new(ClusterHolds::open(hold_mode(&settings.hold), parts, tasks).await?));
    let parts = RunnerParts {
        connection,
        hub: Arc::clone(&hub),
        touched,
        leader: Some(leader),
        cluster,
        guard: guards(all)?,
        copies,
        events: senders.runner,
        clock: Arc::new(clock::now),
    };
    let runner = Box::new(JobRunner::open(parts, tasks));
    let unavailable_kinds = hub.unavailable_kinds();
    let source = Box::new(ClusterInventory::new(hub));
    Ok(Some(ClusterParts {
        source,
        runner,
        provider,
        node_requests_limit,
        managed,
        holds,
        unavailable_kinds,
    }))
}

/// Opens the provider. If its settings came from the manager's objects (`applied`), and the cluster can't
/// serve it, the agent runs without a provider, because its other work doesn't need one.
async fn open_provider(
    settings: ProvisioningSettings,
    parts: ProvisioningParts,
    applied: bool,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<Box<dyn Provider>>> {
    match ProvisioningProvider::open(settings, parts, tasks).await {
        Ok(provider) => Ok(Some(Box::new(provider))),
        Err(error) if applied && error.needs_an_operator() => {
            tracing::error!(
                "no nodes are requested, although the Cluster object has a provider: {error}; then start the \
                 agent again"
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Binds the store to the cluster before anything acts there: in another cluster, the runs of the store would
/// look ended. Fails if the store has runs of another cluster, or the API server doesn't answer.
pub(super) async fn bind(store: &Store, settings: &KubernetesSettings) -> anyhow::Result<()> {
    match connect(&connection_settings(settings)).await?.cluster_uid().await {
        Ok(Some(uid)) => store.set_cluster(&uid)?,
        Ok(None) => {}
        Err(error) if error.is_refused() => tracing::warn!(
            %error,
            "a change of this kubeconfig to another cluster can't be noticed: allow `list` for `namespaces`"
        ),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn connect_to_cluster(settings: &KubernetesSettings) -> anyhow::Result<Connection> {
    let connection = connect(&connection_settings(settings)).await?;
    tracing::info!(
        server = connection.server(),
        version = connection.version(),
        "connected to the Kubernetes API server"
    );
    Ok(connection)
}

fn connection_settings(settings: &KubernetesSettings) -> ConnectionSettings {
    ConnectionSettings { kubeconfig: kubeconfig(settings), context: settings.context.clone() }
}

fn kubeconfig(settings: &KubernetesSettings) -> Option<KubeconfigSource> {
    let text = settings.kubeconfig_text.clone().map(KubeconfigSource::Text);
    text.or_else(|| settings.kubeconfig.clone().map(KubeconfigSource::File))
}

/// What is copied from the management cluster. Fails if a permission is missing.
async fn copies(
    settings: &KubernetesSettings,
    link: &Link,
    connection: &Connection,
) -> anyhow::Result<Option<Copies>> {
    if settings.copied.is_empty() {
        return Ok(None);
    }
    let manager = Arc::new(CopyLink::new(link.clone()));
    Ok(Some(Copies::open(settings.copied.clone(), manager, connection).await?))
}

fn guards(all: &Settings) -> anyhow::Result<GuardSettings> {
    let clock = clock::boot_id().context("cannot read the boot id")?;
    Ok(GuardSettings { image: all.kubernetes.pod_guard_image.clone(), clock })
}

/// Waits until this replica holds the agent's Lease, and ends the agent when it loses it. `None` if a stop
/// was requested before.
async fn lead(
    connection: &Connection,
    all: &Settings,
    probed: &Probed,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<Leader>> {
    let lease = ElectionSettings {
        namespace: connection.namespace().to_owned(),
        name: all.kubernetes.lease_name.clone().unwrap_or_else(|| LEASE_NAME.to_owned()),
        replica: replica(&all.data_dir)?,
        life: uuid::Uuid::new_v4().simple().to_string(),
    };
    let Some(leader) = election::acquire(connection, lease, stop, || probed.set_standby()).await? else {
        return Ok(None);
    };
    let (keeper, stop) = (leader.clone(), stop.clone());
    tasks.spawn(async move {
        let why = keeper.keep().await;
        tracing::error!(
            why,
            "this replica lost its Lease and stops: gangs continue, and the other replica takes them over"
        );
        stop.cancel();
    });
    Ok(Some(leader))
}

fn hold_mode(chosen: &HoldChosen) -> HoldMode {
    match chosen.clone() {
        HoldChosen::Ledger => HoldMode::Ledger,
        HoldChosen::Placeholders { image, priority_class } => {
            HoldMode::Placeholders(PlaceholderSettings { image, priority_class })
        }
        HoldChosen::Kueue { queue } => HoldMode::Kueue { queue },
    }
}

/// Reads the ProvisioningRequestConfig and the pools. Fails with the file and what to write.
async fn provisioning(settings: &Settings, identity: &Identity) -> anyhow::Result<ProvisioningSettings> {
    let path = settings.kubernetes.provisioning_config.as_deref().context("it was checked")?;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let name = path.display().to_string();
    let read = meridian_objects::parse(&name, &text);
    if let Some(slip) = read.errors.first() {
        anyhow::bail!("{slip}");
    }
    let mut configs = read.objects.into_iter().filter_map(|located| match located.value.spec {
        Spec::ProvisioningRequestConfig(config) => Some(*config),
        _ => None,
    });
    let (Some(config), None) = (configs.next(), configs.next()) else {
        anyhow::bail!("`{name}` must have one object of kind ProvisioningRequestConfig");
    };
    let fleet = settings.fleet.clone().context("it was checked")?;
    let cluster = settings.cluster.clone().unwrap_or_else(|| identity.cluster.clone());
    let Inventory { nodes, pools, .. } = FleetFile::new(fleet.clone(), cluster).read().await?;
    if !nodes.is_empty() {
        anyhow::bail!(
            "`{}` has nodes, and those of a Kubernetes cluster are its own: write only `provisionable` pools",
            fleet.display()
        );
    }
    let requests_max = settings.kubernetes.requests_max();
    let settings = ProvisioningSettings { config, pools, requests_max };
    settings.check().map_err(|why| anyhow::anyhow!("`{}`: {why}", fleet.display()))?;
    Ok(settings)
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

//! Puts an agent together from its settings: identity, store, inventory, runner, provider and the link to the
//! manager.

use crate::guard::clock;
use crate::identity::{Identity, Keeper};
use crate::inventory::accelerators::Accelerators;
use crate::inventory::{self, FleetFile, ThisMachine};
use crate::logs;
use crate::metrics::Metrics;
use crate::metrics::listener::Probed;
use crate::provider::{SimulatedProvider, StaticProvider};
use crate::runner::process::{self, ProcessRunner};
use crate::runner::simulated::{self, SimulatedRunner};
use crate::server::{Exit, Parts, Server};
use crate::settings::{ProviderChoice, RunnerChoice, Settings};
use crate::store::Store;
use crate::uplink::{Link, Uplink, renewal};
use anyhow::Context as _;
use meridian_agent_core::runtime::{
    Enforcement, HoldEvent, Holds, Inventory, InventorySource, NodePool, Provider, ProviderEvent, Runner,
    RunnerEvent,
};
use meridian_agent_core::{Config, HoldSettings};
use meridian_shared::ids::{ClusterName, LedgerId, Region};
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "kubernetes")]
mod joining;
mod kubernetes;
#[cfg(not(feature = "kubernetes"))]
#[path = "assembly/without_kubernetes.rs"]
mod kubernetes;

/// Runner events that wait for the loop; a runner keeps what does not fit and sends it later.
const EVENTS_WAITING: usize = 1_024;
/// Log readers that wait for the loop.
const QUERIES_WAITING: usize = 32;
/// How often the GPUs are read; as often as Prometheus usually scrapes.
const SAMPLE_EVERY: Duration = Duration::from_secs(15);

/// Runs the agent once, from its stored state until it ends: one *life*.
#[derive(Clone, Debug)]
struct Life {
    /// Ends this life.
    stop: CancellationToken,
    /// Whether another life is to follow.
    changed: CancellationToken,
}

#[cfg(feature = "kubernetes")]
impl Life {
    /// Ends the agent, so that it starts again with other settings.
    fn begin_another(&self) {
        self.changed.cancel();
        self.stop.cancel();
    }
}

/// Runs one life of the agent after another until `stop` is cancelled. Each life uses the settings that were
/// applied at the manager before it. Fails if a part can't be opened, or a commit failed.
pub(super) async fn serve(
    settings: &Settings,
    probed: &Probed,
    stop: &CancellationToken,
) -> anyhow::Result<Exit> {
    loop {
        let life = Life { stop: stop.child_token(), changed: CancellationToken::new() };
        let mut tasks = JoinSet::new();
        let exit = live(settings, probed, &life, &mut tasks).await;
        // The remaining tasks only read and serve.
        tasks.shutdown().await;
        probed.set_starting();
        match exit {
            Ok(Exit::Requested) if life.changed.is_cancelled() && !stop.is_cancelled() => {}
            exit => return exit,
        }
    }
}

/// Runs one life of the agent, from its stored state to its end. Fails if a part can't be opened, or a commit
/// failed.
async fn live(
    settings: &Settings,
    probed: &Probed,
    life: &Life,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Exit> {
    if let Some(join) = settings.issuer_join()
        && !joining::join(join, &settings.data_dir, &life.stop).await?
    {
        return Ok(Exit::Requested);
    }
    let keeper = Arc::new(Keeper::open(&settings.data_dir)?);
    if let Some(manager) = &settings.manager {
        keeper.move_to(manager)?;
    }
    let identity = keeper.current();
    // Before any run is adopted: of two agents over one directory only one may command the guards.
    let store = Store::open(&settings.data_dir)?;
    store.set_runner(settings.runner.name())?;
    if settings.runner == RunnerChoice::Kubernetes {
        kubernetes::bind(&store, &settings.kubernetes).await?;
    }
    let (runner_sender, runner_events) = mpsc::channel(EVENTS_WAITING);
    let (provider_sender, provider_events) = mpsc::unbounded_channel();
    let (hold_sender, hold_events) = mpsc::unbounded_channel();
    let senders = Senders { runner: runner_sender, provider: provider_sender.clone(), holds: hold_sender };
    let link = open_link(&keeper)?;
    let Some(cluster) = open_cluster(settings, &identity, &link, senders, probed, life, tasks).await? else {
        return Ok(Exit::Requested);
    };
    let node_requests_limit = cluster.node_requests_limit;
    let ClusterParts { mut source, runner, provider, managed, holds, unavailable_kinds, .. } = cluster;
    let Inventory { nodes, pools, region } = source.read().await?;
    let nodes = inventory::follow(source, nodes, tasks);
    let provider = match provider {
        Some(provider) => provider,
        None => open_provider(settings, pools, provider_sender)?,
    };
    let metrics = Metrics::new(runner.name(), identity.cluster.as_str());
    metrics.set_node_requests_limit(node_requests_limit);
    probed.set_active(Arc::clone(&metrics));
    // Other runners use no GPU of this machine.
    if settings.metrics_listen.is_some() && settings.runner == RunnerChoice::Process {
        sample_accelerators(&metrics)?;
    }
    let (query_sender, log_queries) = mpsc::channel(QUERIES_WAITING);
    tasks.spawn(logs::serve(link.clone(), query_sender, random()?));
    keep_certificate_fresh(tasks, keeper, link.clone(), Arc::clone(&metrics), random()?);
    let config = Config { managed, ..config(settings, &identity, region, runner.as_ref(), holds.is_some())? };
    let parts = Parts {
        config,
        store,
        runner,
        runner_events,
        provider,
        provider_events,
        holds,
        hold_events,
        nodes,
        unavailable_kinds,
        uplink: Uplink::new(link, random()?),
        log_queries,
        metrics,
        clock: Arc::new(clock::now),
        random: random()?,
        stop: life.stop.clone(),
    };
    let ledger = LedgerId(u128::from(random()?) << 64 | u128::from(random()?));
    Ok(Server::open(parts, ledger).await?.run().await?)
}

fn config(
    settings: &Settings,
    identity: &Identity,
    region: Option<Region>,
    runner: &dyn Runner,
    checks_references: bool,
) -> anyhow::Result<Config> {
    let boot = clock::boot_id().context("cannot read the boot id")?;
    Ok(Config {
        cluster: identity.cluster.clone(),
        runner: runner.kind(),
        guarded: runner.enforcement() == Enforcement::Guarded,
        located: settings.region.clone().or(region).map(|region| region.as_str().into()),
        boot: u128::from_str_radix(&boot.replace('-', ""), 16)
            .with_context(|| format!("`{boot}` is not a boot id"))?,
        replacement_wait: settings.replacement_wait,
        holds: HoldSettings { checks_references, method: settings.kubernetes.hold.method() },
        managed: ManagedResources::default(),
        planted: Planted::NONE,
    })
}

fn random() -> anyhow::Result<u64> {
    let broken = |error| anyhow::anyhow!("cannot read random numbers from the operating system: {error}");
    getrandom::u64().map_err(broken)
}

/// Reads this machine's GPUs until the metrics are gone. In its own thread, because a driver may hang.
fn sample_accelerators(metrics: &Arc<Metrics>) -> anyhow::Result<()> {
    let metrics = Arc::downgrade(metrics);
    let sample = move || {
        let Some(accelerators) = Accelerators::open() else { return };
        while let Some(metrics) = metrics.upgrade() {
            metrics.set_accelerators(&accelerators.read());
            drop(metrics);
            std::thread::sleep(SAMPLE_EVERY);
        }
    };
    let thread = std::thread::Builder::new().name("accelerators".into());
    thread.spawn(sample).context("cannot start the thread that reads the GPUs")?;
    Ok(())
}

fn open_link(keeper: &Arc<Keeper>) -> anyhow::Result<Link> {
    let manager = keeper.current().manager.clone();
    let keeper = Arc::clone(keeper);
    Ok(Link::open(&manager, move || Ok(keeper.current().http_client()?))?)
}

fn keep_certificate_fresh(
    tasks: &mut JoinSet<()>,
    keeper: Arc<Keeper>,
    link: Link,
    metrics: Arc<Metrics>,
    jitter: u64,
) {
    let mut changes = keeper.subscribe();
    tasks.spawn(async move { renewal::keep_fresh(&keeper, &link, || clock::now().wall, jitter).await });
    tasks.spawn(async move {
        loop {
            let not_after = changes.borrow_and_update().not_after;
            metrics.set_certificate_expiry(not_after.0);
            if changes.changed().await.is_err() {
                return;
            }
        }
    });
}

/// The fleet file, or this machine.
fn inventory_source(settings: &Settings, joined_as: &ClusterName) -> Box<dyn InventorySource> {
    match &settings.fleet {
        Some(path) => {
            let cluster = settings.cluster.clone().unwrap_or_else(|| joined_as.clone());
            Box::new(FleetFile::new(path.clone(), cluster))
        }
        None => Box::new(ThisMachine),
    }
}

/// The channels for reports of runner, provider and holds.
struct Senders {
    runner: mpsc::Sender<RunnerEvent>,
    provider: mpsc::UnboundedSender<ProviderEvent>,
    holds: mpsc::UnboundedSender<HoldEvent>,
}

/// Inventory, runner and provider of one cluster.
struct ClusterParts {
    source: Box<dyn InventorySource>,
    runner: Box<dyn Runner>,
    /// `None`: the inventory's pools decide on the provider.
    provider: Option<Box<dyn Provider>>,
    /// How many requests for nodes may be open; 0 without a limit.
    node_requests_limit: usize,
    /// The resources that the provider makes nodes for.
    managed: ManagedResources,
    /// `None`: holds depend on the ledger alone.
    holds: Option<Box<dyn Holds>>,
    /// The kinds of jobs that the cluster can't run, each with the reason.
    unavailable_kinds: watch::Receiver<BTreeMap<String, String>>,
}

/// Inventory and runner of the cluster. `None` if a stop was requested before this replica could act. Fails
/// if a part can't be opened.
async fn open_cluster(
    settings: &Settings,
    identity: &Identity,
    link: &Link,
    senders: Senders,
    probed: &Probed,
    life: &Life,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<ClusterParts>> {
    if settings.runner == RunnerChoice::Kubernetes {
        return kubernetes::open(settings, identity, link, senders, probed, life, tasks).await;
    }
    let source = inventory_source(settings, &identity.cluster);
    let runner = open_runner(settings, identity, senders.runner)?;
    let (_, unavailable_kinds) = watch::channel(BTreeMap::new());
    Ok(Some(ClusterParts {
        source,
        runner,
        provider: None,
        node_requests_limit: 0,
        managed: ManagedResources::default(),
        holds: None,
        unavailable_kinds,
    }))
}

fn open_runner(
    settings: &Settings,
    identity: &Identity,
    events: mpsc::Sender<RunnerEvent>,
) -> anyhow::Result<Box<dyn Runner>> {
    let data = settings.data_dir.clone();
    Ok(match settings.runner {
        RunnerChoice::Kubernetes => anyhow::bail!("the Kubernetes runner needs a cluster"),
        RunnerChoice::Simulated => {
            let speed = settings.speed.to_string().parse().map_err(|why: String| anyhow::anyhow!(why))?;
            Box::new(SimulatedRunner::open(simulated::Settings { data, speed }, events)?)
        }
        RunnerChoice::Process => {
            // Guards enter the run's directory, so its path must not depend on where the agent was started.
            let data = std::path::absolute(data).context("cannot find the data directory")?;
            let settings =
                process::Settings::new(true, data, identity.cluster.clone(), identity.region.clone());
            Box::new(ProcessRunner::open(settings, events)?)
        }
    })
}

/// Opens the provider that the settings name. Without one, the pools of a fleet file are simulated, because
/// no real provider makes their nodes.
fn open_provider(
    settings: &Settings,
    pools: Vec<NodePool>,
    events: mpsc::UnboundedSender<ProviderEvent>,
) -> anyhow::Result<Box<dyn Provider>> {
    let by_pools = if pools.is_empty() { ProviderChoice::Static } else { ProviderChoice::Simulated };
    match settings.provider.unwrap_or(by_pools) {
        ProviderChoice::Static if pools.is_empty() => Ok(Box::new(StaticProvider::new(events))),
        ProviderChoice::Static => anyhow::bail!(
            "the fleet file has `provisionable` pools, and the `static` provider makes no nodes: remove the \
             pools, or use `--provider simulated`"
        ),
        ProviderChoice::ProvisioningRequest => anyhow::bail!("provisioning requests need a cluster"),
        ProviderChoice::Simulated if settings.runner != RunnerChoice::Simulated => anyhow::bail!(
            "the fleet file has `provisionable` pools, and nothing here can make real nodes: remove the \
             pools, or use `--runner simulated`"
        ),
        ProviderChoice::Simulated => Ok(Box::new(SimulatedProvider::new(
            pools,
            settings.speed,
            random()?,
            tokio::runtime::Handle::current(),
            events,
        ))),
    }
}

//! Puts an agent together from its settings and runs it: `agent run`, `agent join`, and the hidden `guard`.

use crate::capacity::{self, fleet, nvml};
use crate::guard;
use crate::identity::{self, Identity, Keeper};
use crate::logs;
use crate::metrics::{self, Metrics};
use crate::provider::{Pool, Provider, SimulatedProvider, StaticProvider};
use crate::runner::process::{self, ProcessRunner};
use crate::runner::simulated::{self, SimulatedRunner};
use crate::runner::{Enforcement, Runner, RunnerEvent};
use crate::server::{self, Exit, Parts, Server};
use crate::settings::{AgentArgs, JoinArgs, RunnerChoice, Settings};
use crate::store::{self, Store};
use crate::uplink::{Link, Uplink, renewal};
use anyhow::Context as _;
use meridian_agent_core::durable::Durable;
use meridian_agent_core::{Config, ProviderEvent, ledger};
use meridian_shared::ids::{ClusterName, LedgerId, Region};
use meridian_shared::planted::Planted;
use meridian_shared::protocol::RunnerKind;
use meridian_telemetry::with_causes;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runner events that wait for the loop; a runner keeps what has no room and offers it again.
const EVENTS_WAITING: usize = 1_024;
/// Log readers that wait for the loop.
const QUERIES_WAITING: usize = 32;
/// Between two tries on a full disk: well within a lease, so that gangs outlive a disk that was cleared in time.
const FULL_PAUSE: Duration = Duration::from_secs(2);
/// Between two looks at whether the fleet file was written.
const FLEET_PAUSE: Duration = Duration::from_secs(2);
/// The hidden first argument by which a guard is started.
const GUARD: &str = "guard";

/// What `agent` does, for the command line that holds it.
#[derive(Debug, clap::Subcommand)]
pub enum AgentCommand {
    /// Runs this cluster's agent until it is stopped. Gangs of the process runner go on without it, under their guards.
    Run(AgentArgs),
    /// Joins a manager with a one-time token, and keeps the identity that it gives.
    Join(JoinArgs),
}

/// Becomes a guard if the arguments say so. Every binary that runs agents calls this first of all, before any thread starts.
pub fn guard_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == GUARD).then(|| guard::main(args.collect::<Vec<OsString>>()))
}

/// `agent join`.
pub async fn join(args: JoinArgs) -> anyhow::Result<()> {
    let JoinArgs { manager, token, ca_pin, data_dir } = args;
    crate::install_crypto();
    // An agent that had lost its identity only must not look like one that lost its ledger.
    let ledger = if data_dir.join(crate::store::FILE).exists() { stored_ledger(&data_dir)? } else { None };
    let identity = identity::join(&manager, &token, ca_pin, ledger, &data_dir).await?;
    let Identity { cluster, region, jurisdiction, .. } = &identity;
    writeln!(
        std::io::stdout(),
        "joined as `{cluster}` in region `{region}` ({jurisdiction}); start the agent with `{}`, which runs jobs as processes of this machine",
        run_command(&data_dir)
    )?;
    Ok(())
}

/// The command that runs what has joined, as a shell takes it: no agent runs without being told what runs gangs.
fn run_command(data_dir: &Path) -> String {
    format!(
        "meridian agent run --runner process --data-dir '{}'",
        data_dir.display().to_string().replace('\'', r"'\''")
    )
}

fn stored_ledger(data_dir: &Path) -> anyhow::Result<Option<LedgerId>> {
    let pairs = Store::open(data_dir)?.load()?;
    Ok(Durable::load(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))?.map(|durable| durable.ledger))
}

/// `agent run`: until it is stopped by SIGTERM or SIGINT, superseded, or can't store. While the disk is full it keeps trying.
pub async fn run(args: AgentArgs) -> anyhow::Result<ExitCode> {
    let settings = args.resolve()?;
    crate::install_crypto();
    let _telemetry = meridian_telemetry::init(settings.log_format, "meridian-agent", None)?;
    let stop = CancellationToken::new();
    let mut signals = JoinSet::new();
    stop_on_signals(&mut signals, stop.clone())?;
    let exit = again_while_full(&stop, async || {
        let mut tasks = JoinSet::new();
        let exit = serve(&settings, stop.clone(), &mut tasks).await;
        // What is left of tasks only asks or shows. Its addresses must be free for another life.
        tasks.shutdown().await;
        exit
    });
    match exit.await? {
        Exit::Asked => {
            tracing::info!(
                "stopped as asked; what runs under guards goes on until its lease ends or the agent is back"
            );
            Ok(ExitCode::SUCCESS)
        }
        Exit::Superseded => anyhow::bail!(
            "the manager doesn't follow this store any more: it follows a newer session or a copy of it, of which only one may be used, or an operator declared the cluster lost. Stop the other one; or move this one's `{}` away and join again with `--replace`",
            crate::store::FILE
        ),
    }
}

/// Lives until the end, and once more each time that the end was a full disk. Each life begins with what is durable, as a new
/// process would; in between nothing is done or said, and gangs go on under their guards.
async fn again_while_full(
    stop: &CancellationToken,
    mut life: impl AsyncFnMut() -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    loop {
        let error = match life().await {
            Err(error) if disk_is_full(&error) => error,
            exit => return exit,
        };
        tracing::error!(
            error = %with_causes(error.as_ref()),
            "the disk is full, so this agent takes no work and renews nothing: free some space; what runs goes on under its guards until its leases end, and the agent tries again in {} s",
            FULL_PAUSE.as_secs()
        );
        tokio::select! {
            () = stop.cancelled() => return Ok(Exit::Asked),
            () = tokio::time::sleep(FULL_PAUSE) => {}
        }
    }
}

fn disk_is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>().is_some_and(store::is_full);
        let opened = cause.downcast_ref::<store::Error>().is_some_and(store::Error::disk_is_full);
        io || opened || matches!(cause.downcast_ref::<server::Error>(), Some(server::Error::Store(error)) if error.disk_is_full())
    })
}

async fn serve(
    settings: &Settings,
    stop: CancellationToken,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Exit> {
    let keeper = Arc::new(Keeper::open(&settings.data_dir)?);
    if let Some(manager) = &settings.manager {
        keeper.move_to(manager)?;
    }
    let identity = keeper.current();
    let cluster = settings.cluster.clone().unwrap_or_else(|| identity.cluster.clone());
    // Before anything is adopted: of two agents over one directory only one may command the guards.
    let store = Store::open(&settings.data_dir)?;
    let Machines { nodes, pools, region } = machines(settings, cluster.as_str())?;
    let located = settings.region.clone().or(region);
    let nodes = watch_nodes(settings, cluster, nodes, tasks);
    let (runner_tells, runner_events) = mpsc::channel(EVENTS_WAITING);
    store.hand_to(settings.runner.word())?;
    let (runner, kind) = runner(settings, &identity, runner_tells)?;
    let (provider_tells, provider_events) = mpsc::unbounded_channel();
    let provider = provider(settings, pools, provider_tells)?;
    let metrics = Metrics::new(runner.name());
    if let Some(address) = settings.metrics_listen {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on `{address}` for metrics"))?;
        let app = metrics::router(Arc::clone(&metrics));
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(%error, "metrics are no longer shown");
            }
        });
    }
    let link = link(&keeper)?;
    let (asks, log_queries) = mpsc::channel(QUERIES_WAITING);
    tasks.spawn(logs::serve(link.clone(), asks, random()?));
    keep_fresh(tasks, keeper, link.clone(), Arc::clone(&metrics), random()?);
    let boot = guard::clock::boot_id().context("cannot read the boot id")?;
    let config = Config {
        cluster: identity.cluster.clone(),
        runner: kind,
        guarded: runner.enforcement() == Enforcement::Guarded,
        located: located.map(|region| region.as_str().into()),
        boot: u128::from_str_radix(&boot.replace('-', ""), 16)
            .with_context(|| format!("`{boot}` is no boot id"))?,
        replacement_wait: settings.replacement_wait,
        planted: Planted::NONE,
    };
    let parts = Parts {
        config,
        store,
        runner,
        runner_events,
        provider,
        provider_events,
        nodes,
        uplink: Uplink::new(link, random()?),
        log_queries,
        metrics,
        clock: Arc::new(guard::clock::now),
        random: random()?,
        stop,
    };
    let ledger = LedgerId(u128::from(random()?) << 64 | u128::from(random()?));
    Ok(Server::open(parts, ledger)?.run().await?)
}

fn random() -> anyhow::Result<u64> {
    getrandom::u64().map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))
}

fn stop_on_signals(tasks: &mut JoinSet<()>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tasks.spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}

fn link(keeper: &Arc<Keeper>) -> anyhow::Result<Link> {
    let manager = keeper.current().manager.clone();
    let keeper = Arc::clone(keeper);
    Ok(Link::open(&manager, move || Ok(keeper.current().http_client()?))?)
}

fn keep_fresh(tasks: &mut JoinSet<()>, keeper: Arc<Keeper>, link: Link, metrics: Arc<Metrics>, jitter: u64) {
    let mut changes = keeper.subscribe();
    tasks
        .spawn(async move { renewal::keep_fresh(&keeper, &link, || guard::clock::now().wall, jitter).await });
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

/// What a cluster is made of.
struct Machines {
    nodes: Vec<ledger::NodeSpec>,
    pools: Vec<Pool>,
    /// Where they are, if that is said.
    region: Option<Region>,
}

/// The machines of the fleet file, or this one.
fn machines(settings: &Settings, cluster: &str) -> anyhow::Result<Machines> {
    let Some(path) = &settings.fleet else {
        let gpus = match nvml::gpus() {
            nvml::Gpus::Found(names) => names,
            nvml::Gpus::Absent => Vec::new(),
            nvml::Gpus::Broken(why) => {
                anyhow::bail!("{why}; repair it, or name the nodes in a fleet file with `--fleet`")
            }
        };
        let node = nvml::this_node(&gpus).context("cannot find out what this machine has")?;
        return Ok(Machines { nodes: vec![node_spec(node)], pools: Vec::new(), region: None });
    };
    let clusters = fleet::load(path)?;
    let names = clusters.iter().map(|c| format!("`{}`", c.cluster)).collect::<Vec<_>>().join(", ");
    let found = clusters.into_iter().find(|c| c.cluster.as_str() == cluster).with_context(|| {
        format!(
            "fleet file `{}` has no cluster `{cluster}`, only {names}: choose one with `--cluster`",
            path.display()
        )
    })?;
    let pools = found.provisionable.into_iter().map(pool).collect();
    Ok(Machines {
        nodes: found.nodes.into_iter().map(node_spec).collect(),
        pools,
        region: Some(found.region),
    })
}

/// The nodes, and what becomes of them: where there is a fleet file it is read again whenever it was written. One that can't be
/// used changes nothing.
fn watch_nodes(
    settings: &Settings,
    cluster: ClusterName,
    nodes: Vec<ledger::NodeSpec>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Vec<ledger::NodeSpec>> {
    let (tells, told) = watch::channel(nodes);
    let Some(path) = settings.fleet.clone() else { return told };
    let settings = settings.clone();
    // Of two writings in one tick of the file system's clock the second may only be known by its length.
    let stamp = move || std::fs::metadata(&path).and_then(|m| Ok((m.modified()?, m.len()))).ok();
    let mut seen = stamp();
    tasks.spawn(async move {
        while !tells.is_closed() {
            tokio::time::sleep(FLEET_PAUSE).await;
            let now = stamp();
            if now == seen {
                continue;
            }
            seen = now;
            match machines(&settings, cluster.as_str()) {
                Ok(Machines { nodes, .. }) => {
                    let unready = nodes.iter().filter(|node| node.unready).count();
                    tracing::info!(nodes = nodes.len(), unready, "the fleet file was read again");
                    tells.send_if_modified(|known| std::mem::replace(known, nodes) != *known);
                }
                Err(error) => {
                    tracing::error!(error = %with_causes(error.as_ref()), "the fleet file was changed and can't be used: the nodes stay as they were")
                }
            }
        }
    });
    told
}

fn node_spec(node: capacity::NodeSpec) -> ledger::NodeSpec {
    let capacity::NodeSpec { name, labels, taints, added, capacity, ready, unschedulable } = node;
    ledger::NodeSpec { name, labels, taints, added, capacity, unready: !ready, unschedulable }
}

fn pool(pool: capacity::ProvisionableSpec) -> Pool {
    let capacity::ProvisionableSpec { name, capacity_class: _, labels, taints, per_node, max_nodes } = pool;
    let shape = ledger::NodeSpec {
        name: name.clone(),
        labels,
        taints,
        capacity: per_node,
        ..ledger::NodeSpec::default()
    };
    Pool { shape, name, nodes_max: max_nodes }
}

fn runner(
    settings: &Settings,
    identity: &Identity,
    tells: mpsc::Sender<RunnerEvent>,
) -> anyhow::Result<(Box<dyn Runner>, RunnerKind)> {
    let data = settings.data_dir.clone();
    Ok(match settings.runner {
        RunnerChoice::Simulated => {
            let speed = settings.speed.to_string().parse().map_err(|why: String| anyhow::anyhow!(why))?;
            (
                Box::new(SimulatedRunner::open(simulated::Settings { data, speed }, tells)?),
                RunnerKind::Simulated,
            )
        }
        RunnerChoice::Process => {
            // Guards enter the run's directory, so its path must not depend on where the agent was started.
            let data = std::path::absolute(data).context("cannot find the data directory")?;
            let settings =
                process::Settings::new(true, data, identity.cluster.clone(), identity.region.clone());
            (Box::new(ProcessRunner::open(settings, tells)?), RunnerKind::Process)
        }
    })
}

fn provider(
    settings: &Settings,
    pools: Vec<Pool>,
    tells: mpsc::UnboundedSender<ProviderEvent>,
) -> anyhow::Result<Box<dyn Provider>> {
    match settings.runner {
        _ if pools.is_empty() => Ok(Box::new(StaticProvider::new(tells))),
        RunnerChoice::Simulated => Ok(Box::new(SimulatedProvider::new(
            pools,
            settings.speed,
            random()?,
            tokio::runtime::Handle::current(),
            tells,
        ))),
        RunnerChoice::Process => {
            anyhow::bail!(
                "the fleet file has `provisionable` pools, and nothing here can make real nodes: remove them, or use `--runner simulated`"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk;
    use meridian_agent_core::durable::StoreOp;
    use std::sync::atomic::Ordering;

    fn full_disk() -> server::Error {
        let (store, faults) = disk::store().unwrap();
        faults.full.store(true, Ordering::Relaxed);
        server::Error::Store(
            store.commit(&[StoreOp { key: "k".into(), value: Some("v".into()) }]).unwrap_err(),
        )
    }

    #[test]
    fn the_command_that_a_join_prints_can_be_run_as_it_stands() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: AgentArgs,
        }
        let line = run_command(Path::new("agents/eu"));
        let words =
            line.strip_prefix("meridian agent ").unwrap().split(' ').map(|word| word.trim_matches('\''));
        let settings = Line::try_parse_from(words).unwrap().args.resolve().unwrap();
        assert_eq!(
            (settings.data_dir.as_path(), settings.runner),
            (Path::new("agents/eu"), RunnerChoice::Process)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_whose_disk_is_full_tries_again_until_it_is_not_or_it_is_told_to_stop() {
        let stop = CancellationToken::new();
        let mut lives = 0;
        let exit = again_while_full(&stop, async || {
            lives += 1;
            if lives < 4 { Err(full_disk().into()) } else { Ok(Exit::Superseded) }
        });
        assert_eq!(exit.await.unwrap(), Exit::Superseded);
        assert_eq!(lives, 4);

        stop.cancel();
        assert_eq!(again_while_full(&stop, async || Err(full_disk().into())).await.unwrap(), Exit::Asked);
        let other = again_while_full(&stop, async || Err(anyhow::anyhow!("another reason"))).await;
        assert_eq!(other.unwrap_err().to_string(), "another reason");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_file_is_read_again_when_it_was_written_and_a_bad_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.yaml");
        let write = |nodes: &str| {
            std::fs::write(
                &path,
                format!("cluster: eu\nregion: europe-west4\njurisdiction: EU\nnodes:\n{nodes}"),
            )
            .unwrap()
        };
        write("- {name: a, cpu: 4, memory: 1Gi}\n- {name: b, cpu: 4, memory: 1Gi}\n");
        let args = AgentArgs {
            data_dir: Some(dir.path().into()),
            fleet: Some(path.clone()),
            runner: Some(RunnerChoice::Simulated),
            ..AgentArgs::default()
        };
        let settings = args.resolve().unwrap();
        let mut tasks = JoinSet::new();
        let Machines { nodes: first, region, .. } = machines(&settings, "eu").unwrap();
        assert_eq!(region, Some(Region::new("europe-west4")));
        let mut told = watch_nodes(&settings, ClusterName::new("eu"), first, &mut tasks);
        write(
            "- {name: a, cpu: 4, memory: 1Gi, ready: false}\n- {name: c, cpu: 4, memory: 1Gi, unschedulable: true}\n",
        );
        told.changed().await.unwrap();
        let shown: Vec<_> =
            told.borrow_and_update().iter().map(|n| (n.name.clone(), n.unready, n.unschedulable)).collect();
        assert_eq!(shown, [("a".into(), true, false), ("c".into(), false, true)]);
        write("- {name: a, cpu: lots, memory: 1Gi}\n");
        tokio::time::sleep(3 * FLEET_PAUSE).await;
        assert!(!told.has_changed().unwrap());
        write("- {name: a, cpu: 4, memory: 1Gi}\n");
        told.changed().await.unwrap();
        assert_eq!(told.borrow().len(), 1);
    }

    #[test]
    fn a_fleet_file_that_is_not_there_is_said_once() {
        let args = AgentArgs {
            data_dir: Some("d".into()),
            fleet: Some("no/such/file".into()),
            runner: Some(RunnerChoice::Simulated),
            ..AgentArgs::default()
        };
        let error = machines(&args.resolve().unwrap(), "eu").err().unwrap();
        assert_eq!(
            with_causes(error.as_ref()),
            "cannot read fleet file `no/such/file`: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_full_disk_is_known_wherever_it_was_met() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let in_a_run = crate::runner::Error::File { doing: "create", path: "runs".into(), source: full() };
        let in_the_store = store::Error::Directory { dir: "data".into(), source: full() };
        for error in [
            anyhow::Error::from(full()),
            in_a_run.into(),
            in_the_store.into(),
            anyhow::Error::from(full_disk()).context("later"),
        ] {
            assert!(disk_is_full(&error), "{error:?}");
        }
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(!disk_is_full(&denied.into()));
    }
}

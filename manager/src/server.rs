//! A whole manager: settings, authorities, users, journal, engine and the one port.
//!
//! It prints nothing. Logs go to stderr, and the file `ready` in the data directory has the URL while the
//! manager leads.
//!
//! | in the data directory | content |
//! |---|---|
//! | `journal.redb` | the journal; only `--init` creates it |
//! | `identity/` | the authorities and the receipt key |
//! | `users.json` | tokens of users: names, users, groups, hashes and expiry |
//! | `admin.kubeconfig`, `submitter.kubeconfig`, `viewer.kubeconfig` | the tokens; secret |
//! | `viewer.token` | the viewer's token again, for Prometheus (`credentials_file`) |
//! | `hosted/` | identities and stores of the agents that run in this process |
//! | `ca.pem` | the authority of the server's certificate; not secret |
//! | `ready` | `https://HOST:PORT`, while the manager leads |

mod announce;
mod audit_tasks;
mod data_dir;
mod health;
mod hosted;
mod management;
mod object_files;
mod port;
mod settings;

pub use settings::{Error, ManagerArgs, Residency};

use crate::agents::{self, CopySource, LogRelay};
use crate::api::{self, ListLimits};
use crate::audit::AuditFiles;
use crate::audit::directory::AuditDirectory;
use crate::audit::key::SigningKey;
use crate::auth::{Kubeconfig, TokenInfo, TokenStore, Tokens};
use crate::engine::clock::{BootClock, Clock, boot_id};
use crate::engine::{self, Handle, Options, Running, StartMode};
use crate::journal::{Journal, RedbJournal, mark};
use crate::metrics::Metrics;
use crate::random;
use crate::tls::limits::{CONNECTIONS_MAX, FILES_RESERVED, Limits, raise_file_limit};
use crate::tls::listener::Settings as TlsSettings;
use crate::tls::{Authorities, TlsListener, serve};
use announce::announce;
use audit_tasks::AuditTasks;
use axum::Router;
use management::{Duties, Found, ManagementTask};
use meridian_manager_core::Config;
use meridian_manager_kubernetes::Extras;
use meridian_objects::rbac::MASTERS;
use meridian_private_files as files;
use meridian_shared::ids::JournalId;
use meridian_shared::lease;
use meridian_shared::time::{Millis, Wall};
use object_files::ObjectFiles;
use settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How often the age of the server's certificate is checked. The certificate is valid for months.
const CERTIFICATE_CHECK_EVERY: Duration = Duration::from_secs(3_600);
/// Longest wait, at the end, for the management cluster's controllers to release their Lease.
const LEASE_RELEASE: Duration = Duration::from_secs(5);
/// With a limit of fewer open files, the port serves fewer connections than `CONNECTIONS_MAX`.
const FILES_FEW: usize = CONNECTIONS_MAX + FILES_RESERVED;
/// Default namespace in the kubeconfigs.
const NAMESPACE: &str = "default";
/// The first users.
const ADMIN: &str = "admin";
const SUBMITTER: &str = "submitter";
const VIEWER: &str = "viewer";

/// Directory of the audit log's segments, in the data directory.
pub const AUDIT_DIR: &str = "audit";
/// Directory of the authorities and other keys, in the data directory.
pub const IDENTITY_DIR: &str = "identity";
/// Directory of the agents in this process, in the data directory.
const HOSTED_DIR: &str = "hosted";
/// The journal, in the data directory.
pub const JOURNAL_FILE: &str = "journal.redb";

/// Runs a manager until SIGTERM or SIGINT.
///
/// # Errors
/// If the settings are invalid, the manager can't start, or the engine fails.
pub async fn run(args: ManagerArgs) -> anyhow::Result<()> {
    let settings = Settings::resolve(args)?;
    let _telemetry =
        meridian_telemetry::init(settings.log_format, "meridian-manager", settings.otlp_endpoint.as_deref())?;
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::info!("received a signal to stop");
        on_signal.cancel();
    });
    Manager::start(settings, &stop).await?.serve(stop).await
}

/// A manager that is ready to serve.
struct Manager {
    settings: Settings,
    paths: Paths,
    authorities: Arc<Authorities>,
    listener: TlsListener,
    tls: TlsSettings,
    renew_at: Wall,
    engine: Handle,
    running: Running,
    users: TokenStore,
    /// Whether the journal is new, so that its first objects must be created.
    is_new: bool,
    audit_tasks: AuditTasks,
    url: String,
    router: Router,
    management: Option<ManagementTask>,
    object_files: Option<ObjectFiles>,
}

struct Paths {
    journal: PathBuf,
    identity: PathBuf,
    users: PathBuf,
    ready: PathBuf,
    viewer_token: PathBuf,
    ca: PathBuf,
    audit: PathBuf,
    dir: PathBuf,
}

impl Paths {
    fn of(dir: &Path) -> Self {
        Self {
            journal: dir.join(JOURNAL_FILE),
            identity: dir.join(IDENTITY_DIR),
            users: dir.join("users.json"),
            ready: dir.join("ready"),
            viewer_token: dir.join("viewer.token"),
            ca: dir.join("ca.pem"),
            audit: dir.join(AUDIT_DIR),
            dir: dir.to_owned(),
        }
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.join(format!("{user}.kubeconfig"))
    }
}

/// Data about this manager for clients.
fn front(authorities: &Authorities, url: &str) -> api::Front {
    api::Front {
        url: url.to_owned(),
        ca_pin: authorities.ca_pin(),
        ca_pem: authorities.server_ca_pem().to_owned(),
    }
}

impl Manager {
    async fn start(settings: Settings, stop: &CancellationToken) -> anyhow::Result<Self> {
        let paths = Paths::of(&settings.data_dir);
        files::make_dir(&paths.dir)?;
        data_dir::check(
            [&paths.dir, &paths.identity, &paths.users, &paths.journal, &paths.audit].map(PathBuf::as_path),
        )?;
        data_dir::check_files(&paths.identity)?;
        // first of all, so that a wrong kubeconfig changes nothing
        let management = management::connect(&settings, &paths.identity).await?;
        // before other files, because the journal's lock keeps a second manager away from them
        let (journal, mode) = open_journal(&settings, &paths)?;
        files::remove(&paths.ready)?;
        let now = BootClock.now().wall;
        let authorities = Arc::new(Authorities::load_or_create(&paths.identity, now)?);
        let made = authorities.server_tls(&settings.names, now)?;
        let tcp = port::bind(settings.listen)?;
        let tls = TlsSettings::new(made.config);
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let listener =
            TlsListener::start(tcp, tls.clone(), connection_limits(), metrics.connections.clone())?;
        let url = settings.url(listener.addr().port());
        files::replace(&paths.ca, authorities.server_ca_pem())?;
        let users = load_or_create_users(&paths, &authorities, &url)?;

        let id = journal.meta().journal;
        let audit_key = Arc::new(SigningKey::load_or_create(&paths.identity)?);
        let audit = AuditFiles { directory: AuditDirectory::new(&paths.audit), key: audit_key.public() };
        let options = options(&settings, &authorities, mode, metrics, management.as_ref());
        let (engine, running) =
            tokio::task::spawn_blocking(move || engine::start(journal, options)).await??;
        let audit_tasks = AuditTasks::new(&settings, &audit, audit_key, &engine, id)?;
        let relay = LogRelay::default();
        let api = api::ApiParts {
            engine: engine.clone(),
            users: users.clone(),
            logs: Arc::new(relay.clone()),
            front: front(&authorities, &url),
            stop: stop.clone(),
            lists: ListLimits::default(),
            audit,
        };
        let (copies, absence) = management.as_ref().map(|found| (found.copies(), found.absence())).unzip();
        let agents = agents(&settings, &engine, &authorities, relay, copies.flatten(), stop);
        let api = api::router(api);
        let (webhook, admission) = management::webhook(&settings, &authorities, &url, &api)?.unzip();
        let host = management::host(&settings, &engine, &authorities, &url, paths.dir.join(HOSTED_DIR));
        let (hosting, host) = host.unzip();
        let duties = Duties { extras: Extras { webhook, hosting }, host };
        let task = |found| ManagementTask::new(found, id, &authorities, api.clone(), engine.clone(), duties);
        let management = management.map(task);
        let object_files =
            settings.objects.clone().map(|directory| ObjectFiles::new(directory, engine.clone()));
        let problem = object_files.as_ref().map(ObjectFiles::problem);
        let probes = health::router(engine.clone(), absence.into_iter().chain(problem).collect());
        let router = agents.merge(probes).merge(admission.unwrap_or_default()).merge(api);
        Ok(Self {
            paths,
            authorities,
            listener,
            tls,
            renew_at: made.renew_at,
            engine,
            running,
            users,
            is_new: settings.init,
            audit_tasks,
            settings,
            url,
            router,
            management,
            object_files,
        })
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            settings,
            paths,
            authorities,
            listener,
            tls,
            renew_at,
            engine,
            running,
            users,
            is_new,
            audit_tasks,
            url,
            router,
            management,
            object_files,
        } = self;
        tracing::info!(%url, ca_pin = %authorities.ca_pin(), "listening");
        let ended = running.ended();
        let on_end = stop.clone();
        tokio::spawn(async move {
            ended.cancelled().await;
            on_end.cancel();
        });
        tokio::spawn(agents::cut_void_connections(engine.clone(), listener.connections(), stop.clone()));
        audit_tasks.start(&stop);
        if let Some(name) = settings.ca_config_map {
            let pem = authorities.server_ca_pem().to_owned();
            tokio::spawn(management::publish_authority(name, pem));
        }
        let management = management.map(|management| tokio::spawn(management.run(stop.clone())));
        if let Some(files) = object_files {
            tokio::spawn(files.run(stop.clone()));
        }
        tokio::spawn(announce(engine, users, is_new, paths.ready.clone(), url, stop.clone()));
        tokio::spawn(keep_certificate(authorities, settings.names, tls, renew_at, stop.clone()));
        serve(listener, router, stop).await;
        files::remove(&paths.ready)?;
        if let Some(management) = management {
            // wait until it has released its Lease; otherwise the next manager waits until the Lease expires
            let _ = tokio::time::timeout(LEASE_RELEASE, management).await;
        }
        tokio::task::spawn_blocking(move || running.stop()).await??;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The endpoints of agents.
fn agents(
    settings: &Settings,
    engine: &Handle,
    authorities: &Arc<Authorities>,
    relay: LogRelay,
    copies: Option<Arc<dyn CopySource>>,
    stop: &CancellationToken,
) -> Router {
    agents::router(agents::Parts {
        engine: engine.clone(),
        authorities: Arc::clone(authorities),
        relay,
        poll: lease::poll(settings.term_min),
        certificate_lifetime: settings.agent_certificate_lifetime,
        trusted: settings.trusted.clone(),
        copies,
        stop: stop.clone(),
    })
}

fn connection_limits() -> Limits {
    let files = raise_file_limit();
    if files < FILES_FEW {
        tracing::warn!(
            files,
            "this process may open only {files} files, which limits its connections: raise the hard limit \
             (`ulimit -Hn`, or `LimitNOFILE` of the systemd unit) to {FILES_FEW} or more"
        );
    }
    Limits::for_files(files)
}

fn options(
    settings: &Settings,
    authorities: &Authorities,
    start: StartMode,
    metrics: Metrics,
    management: Option<&Found>,
) -> Options {
    let rules_unseen = management.is_some();
    Options {
        config: Config { rules_unseen, ..config(settings, authorities) },
        start,
        clock: Arc::new(BootClock),
        marks: boot_id().map(|boot| (PathBuf::from(mark::SHARED_MEMORY), boot)).ok(),
        metrics,
        traces: settings.otlp_endpoint.is_some(),
    }
}

fn config(settings: &Settings, authorities: &Authorities) -> Config {
    Config {
        term_min: settings.term_min,
        term: settings.term,
        hold: settings.hold,
        start_timeout: settings.start_timeout,
        residency_required: settings.residency_required,
        fair_sharing: settings.fair_sharing.clone(),
        resources: Arc::new(settings.resources.clone()),
        starvation_guard: settings.starvation_guard,
        admission_fair_sharing: settings.admission_fair_sharing.clone(),
        jurisdiction: settings.jurisdiction.clone(),
        hosts_agents: settings.management_cluster.as_ref().is_some_and(|c| c.host_clusters.is_some()),
        ..Config::new(authorities.receipt_key().clone())
    }
}

fn open_journal(settings: &Settings, paths: &Paths) -> anyhow::Result<(Box<dyn Journal>, StartMode)> {
    if !settings.init {
        return Ok((Box::new(RedbJournal::open(&paths.journal)?), StartMode::Open));
    }
    let id = JournalId(u128::from_be_bytes(random::bytes()?));
    let journal = RedbJournal::init(&paths.journal, id, BootClock.now().wall)?;
    tracing::info!(
        path = %paths.journal.display(), journal = %journal.meta().journal, "created a new journal"
    );
    Ok((Box::new(journal), if settings.recover { StartMode::InitRecover } else { StartMode::Init }))
}

/// Loads the tokens. Creates the tokens of the first three users if there are none, and the viewer's if it is
/// missing, because files of early versions have no viewer.
fn load_or_create_users(paths: &Paths, authorities: &Authorities, url: &str) -> anyhow::Result<TokenStore> {
    let mut tokens = Tokens::load(&paths.users)?;
    let all = [(ADMIN, &[MASTERS][..]), (SUBMITTER, &[]), (VIEWER, &[])];
    let is_empty = tokens.is_empty();
    let is_missing = |user: &str| is_empty || (user == VIEWER && !tokens.has_bound() && !tokens.has(user));
    let missing: Vec<_> = all.into_iter().filter(|(user, _)| is_missing(user)).collect();
    for (user, groups) in &missing {
        let new = TokenInfo::of_user(user, groups, BootClock.now().wall);
        let token = tokens.issue(new, random::bytes()?)?;
        let config = Kubeconfig {
            server: url,
            ca_pem: authorities.server_ca_pem(),
            user,
            token: &token,
            namespace: NAMESPACE,
        };
        config.write(&paths.kubeconfig(user))?;
        if *user == VIEWER {
            files::replace(&paths.viewer_token, token.expose())?;
        }
    }
    // save last: if anything fails before, the next start creates the users again
    if !missing.is_empty() {
        tokens.save(&paths.users)?;
    }
    Ok(TokenStore::new(tokens, Some(paths.users.clone())))
}

/// Replaces the server's certificate before it expires.
async fn keep_certificate(
    authorities: Arc<Authorities>,
    names: Vec<String>,
    tls: TlsSettings,
    mut renew_at: Wall,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CERTIFICATE_CHECK_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let now = BootClock.now().wall;
        if now.since(renew_at) == Millis(0) {
            continue;
        }
        match authorities.server_tls(&names, now) {
            Ok(made) => {
                tls.swap(made.config);
                renew_at = made.renew_at;
                tracing::info!("renewed the server's certificate");
            }
            Err(error) => tracing::error!(%error, "the server's certificate can't be renewed"),
        }
    }
}

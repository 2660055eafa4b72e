//! A whole manager: settings, authorities, users, journal, engine and the one port.
//!
//! It prints nothing. Logs go to stderr, and the file `ready` in the data directory has the URL while the
//! manager leads.
//!
//! | in the data directory | content |
//! |---|---|
//! | `journal.redb` | the journal; only `--init` creates it |
//! | `identity/` | the authorities and the receipt key |
//! | `users.json` | users, with the hashes of their tokens |
//! | `admin.kubeconfig`, `submitter.kubeconfig`, `viewer.kubeconfig` | the tokens; secret |
//! | `viewer.token` | the viewer's token again, for Prometheus (`credentials_file`) |
//! | `ca.pem` | the authority of the server's certificate; not secret |
//! | `ready` | `https://HOST:PORT`, while the manager leads |

mod data_dir;
mod settings;

pub use settings::{Error, ManagerArgs, Residency};

use crate::agents::{self, LogRelay};
use crate::api::{self, ListLimits};
use crate::auth::{Kubeconfig, Role, Users};
use crate::engine::clock::{BootClock, Clock, boot_id};
use crate::engine::{self, Handle, Options, Running, StartMode};
use crate::journal::{Journal, RedbJournal, mark};
use crate::metrics::Metrics;
use crate::random;
use crate::tls::limits::{CONNECTIONS_MAX, FILES_RESERVED, Limits, raise_file_limit};
use crate::tls::listener::Settings as TlsSettings;
use crate::tls::{Authorities, TlsListener, serve};
use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use meridian_manager_core::Config;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::outcome::Reply;
use meridian_objects::Object;
use meridian_private_files as files;
use meridian_shared::ids::{JournalId, Uid};
use meridian_shared::lease;
use meridian_shared::time::{Millis, Wall};
use settings::Settings;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How often the age of the server's certificate is checked. The certificate is valid for months.
const CERTIFICATE_CHECK_EVERY: Duration = Duration::from_secs(3_600);
/// Connections that the kernel keeps until they are accepted. The system may permit fewer (`somaxconn`).
const ACCEPT_QUEUE_MAX: u32 = 4_096;
/// With fewer files, the port serves fewer connections than it could.
const FILES_FEW: usize = CONNECTIONS_MAX + FILES_RESERVED;
/// Default namespace in the kubeconfigs.
const NAMESPACE: &str = "default";

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
    url: String,
    router: Router,
}

struct Paths {
    journal: PathBuf,
    identity: PathBuf,
    users: PathBuf,
    ready: PathBuf,
    viewer_token: PathBuf,
    ca: PathBuf,
    dir: PathBuf,
}

impl Paths {
    fn of(dir: &Path) -> Self {
        Self {
            journal: dir.join("journal.redb"),
            identity: dir.join("identity"),
            users: dir.join("users.json"),
            ready: dir.join("ready"),
            viewer_token: dir.join("viewer.token"),
            ca: dir.join("ca.pem"),
            dir: dir.to_owned(),
        }
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.join(format!("{user}.kubeconfig"))
    }
}

impl Manager {
    async fn start(settings: Settings, stop: &CancellationToken) -> anyhow::Result<Self> {
        let paths = Paths::of(&settings.data_dir);
        files::make_dir(&paths.dir)?;
        data_dir::check([&paths.dir, &paths.identity, &paths.users, &paths.journal].map(PathBuf::as_path))?;
        // the journal first: its lock keeps a second manager away from all other files
        let (journal, mode) = open_journal(&settings, &paths)?;
        files::remove(&paths.ready)?;
        let now = BootClock.now().wall;
        let authorities = Arc::new(Authorities::load_or_create(&paths.identity, now)?);
        let made = authorities.server_tls(&settings.names, now)?;
        let tcp = bind(settings.listen).with_context(|| format!("cannot listen at `{}`", settings.listen))?;
        let tls = TlsSettings::new(made.config);
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let listener =
            TlsListener::start(tcp, tls.clone(), connection_limits(), metrics.connections.clone())?;
        let url = settings.url(listener.addr().port());
        files::replace(&paths.ca, authorities.server_ca_pem())?;
        let users = Arc::new(load_or_create_users(&paths, &authorities, &url)?);

        let options = Options {
            config: config(&settings, &authorities),
            start: mode,
            clock: Arc::new(BootClock),
            marks: boot_id().map(|boot| (PathBuf::from(mark::SHARED_MEMORY), boot)).ok(),
            metrics,
            traces: settings.otlp_endpoint.is_some(),
        };
        let (engine, running) =
            tokio::task::spawn_blocking(move || engine::start(journal, options)).await??;
        let relay = LogRelay::default();
        let api = api::ApiParts {
            engine: engine.clone(),
            users,
            logs: Arc::new(relay.clone()),
            front: api::Front { url: url.clone(), ca_pin: authorities.ca_pin() },
            stop: stop.clone(),
            lists: ListLimits::default(),
        };
        let agents = agents::Parts {
            engine: engine.clone(),
            authorities: authorities.clone(),
            relay,
            poll: lease::poll(settings.term_min),
            certificate_lifetime: settings.agent_certificate_lifetime,
            stop: stop.clone(),
        };
        let router = agents::router(agents).merge(health(engine.clone())).merge(api::router(api));
        Ok(Self {
            settings,
            paths,
            authorities,
            listener,
            tls,
            renew_at: made.renew_at,
            engine,
            running,
            url,
            router,
        })
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { settings, paths, authorities, listener, tls, renew_at, engine, running, url, router } =
            self;
        tracing::info!(%url, ca_pin = %authorities.ca_pin(), "listening");
        let ended = running.ended();
        let on_end = stop.clone();
        tokio::spawn(async move {
            ended.cancelled().await;
            on_end.cancel();
        });
        tokio::spawn(agents::cut_void_connections(engine.clone(), listener.connections(), stop.clone()));
        tokio::spawn(announce(engine, paths.ready.clone(), url, stop.clone()));
        tokio::spawn(keep_certificate(authorities, settings.names, tls, renew_at, stop.clone()));
        serve(listener, router, stop).await;
        files::remove(&paths.ready)?;
        tokio::task::spawn_blocking(move || running.stop()).await??;
        tracing::info!("stopped");
        Ok(())
    }
}

/// A socket that listens at `address`, as [`TcpListener::bind`] makes it, with a longer queue.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE_MAX)
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

/// Loads the users. Creates the first three if there are none, and a viewer if there is none: files of
/// earlier versions have no viewer.
fn load_or_create_users(paths: &Paths, authorities: &Authorities, url: &str) -> anyhow::Result<Users> {
    let mut users = Users::load(&paths.users)?;
    let all = [("admin", Role::Admin), ("submitter", Role::Submitter), ("viewer", Role::Viewer)];
    let is_empty = users == Users::default();
    let is_missing = |role: Role| is_empty || (role == Role::Viewer && !users.has(role));
    let missing: Vec<(&str, Role)> = all.into_iter().filter(|(_, role)| is_missing(*role)).collect();
    if missing.is_empty() {
        return Ok(users);
    }
    for (user, role) in missing {
        let token = users.issue(user, role, random::bytes()?)?;
        let config = Kubeconfig {
            server: url,
            ca_pem: authorities.server_ca_pem(),
            user,
            token: &token,
            namespace: NAMESPACE,
        };
        config.write(&paths.kubeconfig(user))?;
        if role == Role::Viewer {
            files::replace(&paths.viewer_token, token.expose())?;
        }
    }
    // saved last: if it fails before, the next start creates the users again
    users.save(&paths.users)?;
    Ok(users)
}

/// Writes the file `ready` once the manager leads.
async fn announce(engine: Handle, ready: PathBuf, url: String, stop: CancellationToken) {
    tokio::select! {
        () = engine.led() => {}
        () = stop.cancelled() => return,
    }
    ensure_default_namespace(&engine).await;
    match files::replace(&ready, &format!("{url}\n")) {
        Ok(()) => tracing::info!(%url, "ready"),
        Err(error) => tracing::warn!(%error, %url, "ready, but the file `ready` can't be written"),
    }
}

/// Creates the namespace `default`, which every Kubernetes server has, where it isn't there yet.
async fn ensure_default_namespace(engine: &Handle) {
    let manifest = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    let (Ok((object, _)), Ok(bytes)) = (Object::from_value(manifest), random::bytes()) else { return };
    let change = Change::Put {
        object: Box::new(object),
        scope: None,
        uid: Uid(u128::from_be_bytes(bytes)),
        mode: PutMode::Create,
    };
    let write = Write::new(Actor::System, vec![change], false);
    match engine.ask(Input::Write(Box::new(write))).await {
        // It exists already.
        Ok(Reply::Written(_) | Reply::Rejected(_)) => {}
        other => tracing::warn!(?other, "the namespace `default` can't be created now"),
    }
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

/// The endpoints for probes.
fn health(engine: Handle) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(readyz)).with_state(engine)
}

async fn readyz(State(engine): State<Handle>) -> impl IntoResponse {
    if !engine.leading() {
        let why = "this manager doesn't lead yet, or not at the moment";
        return (StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
    }
    // A leader with a problem stays in service: without it no lease is renewed, and every gang stops.
    match engine.problems() {
        problems if problems.is_empty() => (StatusCode::OK, "ok".to_owned()),
        problems => (StatusCode::OK, format!("degraded: {}", problems.join("; "))),
    }
}

//! The commands of an agent: `agent run`, `agent join`, and the hidden `guard`.

use crate::guard;
use crate::identity::{self, Identity};
use crate::metrics::listener::{self, Probed};
use crate::server::{self, Exit};
use crate::settings::{AgentArgs, JoinArgs};
use crate::store::{self, Store};
use anyhow::Context as _;
use meridian_agent_core::durable::Durable;
use meridian_shared::identity::JoinToken;
use meridian_shared::ids::LedgerId;
use meridian_telemetry::with_causes;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod assembly;
#[cfg(feature = "kubernetes")]
mod hosted;

#[cfg(feature = "kubernetes")]
pub use hosted::{HostedAgent, run_hosted};

/// Pause between two attempts on a full disk: well within a lease, so that gangs survive if space is freed in
/// time.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(2);
/// The hidden first argument that starts a guard.
const GUARD: &str = "guard";

/// Bytes of a token file that are read: a token and blanks around it.
const TOKEN_FILE_BYTES_MAX: u64 = 4_096;

/// The subcommands of `agent`.
#[derive(Debug, clap::Subcommand)]
pub enum AgentCommand {
    /// Runs this cluster's agent until it is stopped. Gangs of the process runner continue under their
    /// guards.
    Run(Box<AgentArgs>),
    /// Joins a manager with a one-time token, and keeps the identity that the manager issues.
    Join(JoinArgs),
}

/// Becomes a guard if the arguments say so. Every binary that runs agents calls this first, before it starts
/// a thread.
pub fn guard_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == GUARD).then(|| guard::main(args.collect::<Vec<OsString>>()))
}

/// Runs `agent join`. Fails if there is no token, the manager can't be reached or refuses, or an identity
/// exists already.
pub async fn join(args: JoinArgs) -> anyhow::Result<()> {
    let JoinArgs { manager, token_file, ca_pin, data_dir } = args;
    crate::install_crypto();
    let token = read_token(&token_file)?;
    // If only the identity was lost, the join must name the stored ledger, because the manager would take it
    // for lost otherwise.
    let ledger = if data_dir.join(store::FILE).exists() { stored_ledger(&data_dir)? } else { None };
    let identity = identity::join(&manager, &token, ca_pin, ledger, &data_dir).await?;
    let Identity { cluster, region, jurisdiction, .. } = &identity;
    writeln!(
        std::io::stdout(),
        "joined as `{cluster}` in region `{region}` ({jurisdiction}); start the agent with `{}`, which runs \
         jobs as processes of this machine",
        run_command(&data_dir)
    )?;
    Ok(())
}

/// The token in a file, or in standard input if the file is `-`. Fails if it can't be read, or holds anything
/// else.
fn read_token(file: &Path) -> anyhow::Result<JoinToken> {
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { format!("`{}`", file.display()) };
    let source: Box<dyn Read> = if is_stdin {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).with_context(|| format!("cannot open the token file {name}"))?)
    };
    let mut text = String::new();
    let cannot_read = || format!("cannot read the join token from {name}");
    source.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text).with_context(cannot_read)?;
    text.trim().parse().map_err(|error: String| anyhow::anyhow!("{name} holds no join token: {error}"))
}

/// The command that runs the joined agent, quoted for a shell.
fn run_command(data_dir: &Path) -> String {
    format!(
        "meridian agent run --runner process --data-dir '{}'",
        data_dir.display().to_string().replace('\'', r"'\''")
    )
}

fn stored_ledger(data_dir: &Path) -> anyhow::Result<Option<LedgerId>> {
    let pairs = Store::open(data_dir)?.load()?;
    let durable = Durable::load(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    Ok(durable.map(|durable| durable.ledger()))
}

/// Runs `agent run` until SIGTERM or SIGINT. Fails if the agent is superseded or can't store; while the disk
/// is full it tries again.
pub async fn run(args: AgentArgs) -> anyhow::Result<ExitCode> {
    let settings = args.resolve()?;
    crate::install_crypto();
    let _telemetry = meridian_telemetry::init(settings.log_format, "meridian-agent", None)?;
    let stop = CancellationToken::new();
    let mut signals = JoinSet::new();
    stop_on_signals(&mut signals, stop.clone())?;
    // The listeners outlive the attempts: if a probe failed while the disk is full, the kubelet would restart
    // the pod and end its gangs.
    let (probed, mut listeners) = (Probed::default(), JoinSet::new());
    if let Some(address) = settings.metrics_listen {
        listener::start(address, probed.clone(), &mut listeners).await?;
    }
    let exit = retry_while_full(&stop, async || assembly::serve(&settings, &probed, &stop).await);
    match exit.await? {
        Exit::Requested => {
            tracing::info!(
                "stopped as requested; guarded gangs continue until their leases end or the agent returns"
            );
            Ok(ExitCode::SUCCESS)
        }
        Exit::Superseded => anyhow::bail!(
            "the manager doesn't follow this store any more: it follows a newer session or a copy of the \
             store, of which only one may be used, or an operator declared the cluster lost. Stop the other \
             agent; or move this one's `{}` away and join again with `--replace`",
            store::FILE
        ),
    }
}

/// Runs `life` until it ends for a reason other than a full disk. Each life begins with the stored state, as
/// a new process would. Between two lives nothing is sent, and gangs continue under their guards.
async fn retry_while_full(
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
            "the disk is full, so this agent takes no work and renews nothing: free some space; gangs \
             continue under their guards until their leases end, and the agent tries again in {} s",
            FULL_DISK_PAUSE.as_secs()
        );
        tokio::select! {
            () = stop.cancelled() => return Ok(Exit::Requested),
            () = tokio::time::sleep(FULL_DISK_PAUSE) => {}
        }
    }
}

fn disk_is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let is_io = cause.downcast_ref::<std::io::Error>().is_some_and(store::is_full);
        let is_store = cause.downcast_ref::<store::Error>().is_some_and(store::Error::disk_is_full);
        let is_server = matches!(
            cause.downcast_ref::<server::Error>(),
            Some(server::Error::Store(error)) if error.disk_is_full()
        );
        is_io || is_store || is_server
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RunnerChoice;
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
    fn a_token_is_read_from_a_file_and_not_repeated_in_errors() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let text = format!("mj_{}", "A".repeat(43));
        std::fs::write(&file, format!("{text}\n")).unwrap();
        assert_eq!(read_token(&file).unwrap().expose(), text);
        std::fs::write(&file, format!("{text}A\n")).unwrap();
        let error = format!("{:#}", read_token(&file).unwrap_err());
        assert!(error.contains("holds no join token") && !error.contains("AAA"), "{error}");
        let error = format!("{:#}", read_token(&dir.path().join("absent")).unwrap_err());
        assert!(error.contains("cannot open the token file"), "{error}");
    }

    #[test]
    fn the_printed_run_command_parses() {
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
    async fn a_full_disk_is_retried_until_it_has_space_or_a_stop() {
        let stop = CancellationToken::new();
        let mut lives = 0;
        let exit = retry_while_full(&stop, async || {
            lives += 1;
            if lives < 4 { Err(full_disk().into()) } else { Ok(Exit::Superseded) }
        });
        assert_eq!(exit.await.unwrap(), Exit::Superseded);
        assert_eq!(lives, 4);

        stop.cancel();
        assert_eq!(retry_while_full(&stop, async || Err(full_disk().into())).await.unwrap(), Exit::Requested);
        let other = retry_while_full(&stop, async || Err(anyhow::anyhow!("another reason"))).await;
        assert_eq!(other.unwrap_err().to_string(), "another reason");
    }

    #[test]
    fn a_full_disk_is_recognized_in_every_error() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let in_a_run = crate::job_run::Error::File { doing: "create", path: "runs".into(), source: full() };
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

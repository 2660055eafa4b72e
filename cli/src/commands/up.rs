//! `up`: a fleet on this machine that runs until it is stopped.

use crate::args::{Format, LocalRunner, UpArgs};
use crate::client::kubeconfig;
use crate::client::{Client, Selection};
use crate::commands::example;
use crate::error::Error;
use crate::examples::{TUTORIAL, TUTORIAL_WORKER};
use crate::fleet::Fleet;
use crate::fleet::interrupts::Interrupts;
use crate::fleet::observe::{self, Observer};
use crate::fleet::setup::{DEFAULT_FLEET, FleetSetup, RUNNER_FILE, kept_fleet, parse_fleet};
use crate::objects::fields::name_of;
use crate::objects::job;
use crate::session::Session;
use jiff::{SignedDuration, Timestamp};
use meridian_objects::Kind;
use meridian_objects::job::SUBMITTED_KIND;
use meridian_shared::counted::counted_with;
use meridian_shared::lease::TERM_DEFAULT;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often ended processes are restarted.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long the manager has to answer which jobs run, before it is stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn run(session: &mut Session, args: UpArgs) -> Result<(), Error> {
    let UpArgs { fleet, data_dir, runner, speed, examples, listen, observe } = args;
    let (name, fleet_text) = fleet_of(fleet, &data_dir)?;
    let clusters = parse_fleet(&name, &fleet_text)?;
    let mut interrupts = Interrupts::listen()?;
    // Another runner than before could neither see nor end the running gangs.
    let runner = runner.or_else(|| previous_runner(&data_dir)).unwrap_or(LocalRunner::Simulated).name();
    let names = clusters.iter().map(|cluster| cluster.cluster.as_str()).filter(|_| observe);
    let metrics = observe::agent_addresses(names)?;
    let root = data_dir.clone();
    let setup = FleetSetup { root, clusters, fleet_text, runner, speed, term: None, listen, metrics };
    session.out.note("starting a manager and its agents");
    let mut running = Fleet::start(setup).await?;
    let ready = tokio::select! {
        ready = running.wait_until_settled(|message| session.out.note(message)) => ready,
        () = interrupts.recv() => Err(Error::Interrupted),
    };
    let ready = match ready {
        Ok(()) if examples => apply_examples(session, &running).await,
        ready => ready,
    };
    if let Err(error) = ready {
        running.stop().await;
        return Err(error);
    }
    let (mut observer, mut result) = (None, Ok(()));
    if observe {
        let started = tokio::select! {
            started = Observer::start(running.setup(), running.server()) => started,
            () = interrupts.recv() => Err(Error::Interrupted),
        };
        match started {
            Ok(Some(started)) => observer = Some(started),
            Ok(None) => session.out.note(observe::NOT_INSTALLED),
            Err(error) => result = Err(error),
        }
    }
    let result = result.and_then(|()| announce(session, &running, observer.as_ref(), &data_dir, examples));
    if result.is_ok() {
        watch_over(session, &mut running, &mut observer, &mut interrupts).await?;
    }
    session.out.note("stopping the agents and the manager");
    let left = continuing_jobs(running.client(), session.now()).await;
    if let Some(observer) = &mut observer {
        observer.stop().await;
    }
    running.stop().await;
    if let Some(left) = left {
        session.out.note(left);
    }
    result
}

/// The fleet file's name and text: the given one, else that of the last `up` in this directory, whose jobs
/// may still run. Fails if it can't be read.
fn fleet_of(given: Option<PathBuf>, data_dir: &Path) -> Result<(String, String), Error> {
    let kept = kept_fleet(data_dir);
    match given.or_else(|| kept.exists().then_some(kept)) {
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|e| Error::Refused(format!("can't read fleet file `{}`: {e}", path.display())))?;
            Ok((path.display().to_string(), text))
        }
        None => Ok(("fleet.yaml".to_owned(), DEFAULT_FLEET.to_owned())),
    }
}

/// The runner of the last `up` in this directory.
fn previous_runner(data_dir: &Path) -> Option<LocalRunner> {
    let kept = std::fs::read_to_string(data_dir.join(RUNNER_FILE)).ok()?;
    [LocalRunner::Simulated, LocalRunner::Process].into_iter().find(|runner| runner.name() == kept.trim())
}

/// Applies the tutorial's queues, here and for each cluster.
async fn apply_examples(session: &mut Session, running: &Fleet) -> Result<(), Error> {
    example::apply(running.client(), &TUTORIAL, None).await?;
    for cluster in running.client().list(&Selection::all(Kind::Cluster)).await?.items {
        example::apply(running.client(), &TUTORIAL_WORKER, Some(name_of(&cluster))).await?;
    }
    session.out.note("applied the example `tutorial`: the queue is `dws-local-queue`");
    Ok(())
}

/// Which jobs continue after the fleet has ended, and for how long. `None` if the manager doesn't answer in
/// time.
async fn continuing_jobs(client: &Client, now: Timestamp) -> Option<String> {
    let all = Selection::all(SUBMITTED_KIND);
    let jobs = tokio::time::timeout(ANSWER_WITHIN, client.list(&all)).await.ok()?.ok()?.items;
    let running = jobs.iter().filter(|job| job::end(job).is_none() && !job::cluster(job).is_empty()).count();
    let term = TERM_DEFAULT;
    let until = now.checked_add(SignedDuration::from_millis(i64::try_from(term.0).ok()?)).ok()?;
    let until = until.strftime("%H:%M:%S UTC");
    Some(match running {
        0 => "nothing runs; `meridian up` continues with the same queues and jobs".to_owned(),
        _ => format!(
            "{} without the fleet: with `onClusterLoss: Wait` to the end, and with `Fence` until the lease \
             ends (at about {until} with the usual term of {term}); the next `meridian up` takes them over",
            counted_with(running, "job", "continues", "continue")
        ),
    })
}

/// Prints URL, kubeconfigs and the first commands to try.
fn announce(
    session: &mut Session,
    running: &Fleet,
    observer: Option<&Observer>,
    data_dir: &Path,
    has_examples: bool,
) -> Result<(), Error> {
    let admin = running.admin_kubeconfig();
    let submitter = running.submitter_kubeconfig();
    // Every command looks for a kubeconfig there by default.
    let default = data_dir.join("kubeconfig");
    std::fs::copy(&admin, &default)
        .map_err(|e| Error::Refused(format!("can't write `{}`: {e}", default.display())))?;
    let document = || {
        json!({
            "server": running.server(), "adminKubeconfig": admin, "submitterKubeconfig": submitter,
            "kubeconfig": default, "prometheus": observer.map(Observer::url),
        })
    };
    match session.format() {
        Some(Format::Json) => session.out.json(&document())?,
        Some(Format::Yaml) => session.out.yaml(&document())?,
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            session.out.line(format!("manager                {}", running.server()))?;
            session.out.line(format!("admin kubeconfig       {}", admin.display()))?;
            session.out.line(format!("submitter kubeconfig   {}", submitter.display()))?;
            if let Some(observer) = observer {
                session.out.line(format!("prometheus             {} (alerts: /alerts)", observer.url()))?;
            }
            session.out.line("")?;
            session.out.line("Try in another terminal, in this directory:")?;
            if default != Path::new(kubeconfig::DEFAULT_PATH) {
                let quoted = std::path::absolute(&default)?.display().to_string().replace('\'', r"'\''");
                session.out.line(format!("  export KUBECONFIG='{quoted}'"))?;
            }
            session.out.line("  meridian get clusters")?;
            if !has_examples {
                session.out.line("  meridian example tutorial | meridian apply -f -")?;
            }
            session.out.line("  meridian example tutorial-job | meridian create -f -")?;
            session.out.line("  meridian submit --queue dws-local-queue -- sh -c 'echo hello'")?;
            session.out.line("  meridian top")?;
            session.out.line("")?;
            session.out.line("Ctrl-C stops the fleet; `meridian up` continues it with the same data.")?;
        }
    }
    session.out.flush()
}

/// Restarts processes that end, until Ctrl-C or SIGTERM. Fails if the manager keeps ending.
async fn watch_over(
    session: &mut Session,
    running: &mut Fleet,
    observer: &mut Option<Observer>,
    interrupts: &mut Interrupts,
) -> Result<(), Error> {
    let mut check = tokio::time::interval(CHECK_EVERY);
    loop {
        tokio::select! {
            () = interrupts.recv() => return Ok(()),
            _ = check.tick() => {
                if let Some(ended) = observer.as_mut().and_then(Observer::ended) {
                    session.out.note(ended);
                }
                match running.restart_ended() {
                    Ok(messages) => messages.into_iter().for_each(|message| session.out.note(message)),
                    Err(error) => {
                        running.stop().await;
                        return Err(error);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_fleet_for_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        let text = |given: Option<&Path>| fleet_of(given.map(Path::to_owned), root.path()).unwrap().1;
        assert_eq!(text(None), DEFAULT_FLEET);
        std::fs::write(kept_fleet(root.path()), "kept").unwrap();
        assert_eq!(text(None), "kept", "its jobs may still run");
        let other = root.path().join("other.yaml");
        std::fs::write(&other, "other").unwrap();
        assert_eq!(text(Some(&other)), "other");
    }
}

//! `meridian up`: the fleet on this machine, staying up.

use crate::args::{Format, UpArgs, UpRunner};
use crate::error::Error;
use crate::fleet::{DEFAULT_FLEET, Fleet, Plan, RUNNER_FILE};
use crate::interrupts::Interrupts;
use crate::session::Session;
use meridian_agent::capacity::fleet;
use serde_json::json;

pub(crate) async fn run(session: &mut Session, args: UpArgs) -> Result<(), Error> {
    let UpArgs { fleet, data_dir, runner, speed, listen } = args;
    let (name, text) = match &fleet {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Error::Refused(format!("can't read fleet file `{}`: {e}", path.display())))?;
            (path.display().to_string(), text)
        }
        None => ("fleet.yaml".to_owned(), DEFAULT_FLEET.to_owned()),
    };
    let clusters = fleet::parse(&name, &text).map_err(|e| Error::Refused(e.to_string()))?;
    let mut interrupts = Interrupts::listen()?;
    // What one runner started no other can see or end.
    let runner = runner.or_else(|| fleet_runner(&data_dir)).unwrap_or(UpRunner::Simulated).word();
    let plan = Plan { root: data_dir.clone(), clusters, fleet_text: text, runner, speed, term: None, listen };
    session.out.note("starting a manager and its agents …");
    let mut running = Fleet::start(plan).await?;
    let ready = tokio::select! {
        ready = running.settled(|told| session.out.note(told)) => ready,
        () = interrupts.recv() => Err(Error::Refused("interrupted".into())),
    };
    if let Err(error) = ready {
        running.stop().await;
        return Err(error);
    }
    let result = announce(session, &running, &data_dir);
    if result.is_ok() {
        wait(session, &mut running, &mut interrupts).await?;
    }
    session.out.note("ending …");
    running.stop().await;
    result
}

/// What ran jobs the last time.
fn fleet_runner(data_dir: &std::path::Path) -> Option<UpRunner> {
    let word = std::fs::read_to_string(data_dir.join(RUNNER_FILE)).ok()?;
    [UpRunner::Simulated, UpRunner::Process].into_iter().find(|runner| runner.word() == word.trim())
}

fn announce(session: &mut Session, running: &Fleet, data_dir: &std::path::Path) -> Result<(), Error> {
    let admin = running.kubeconfig();
    let submitter = running.submitter_kubeconfig();
    // The default place where every command looks.
    let default = data_dir.join("kubeconfig");
    std::fs::copy(&admin, &default)
        .map_err(|e| Error::Refused(format!("can't write `{}`: {e}", default.display())))?;
    match session.format() {
        Some(format @ (Format::Json | Format::Yaml)) => {
            let answer = json!({"server": running.server, "adminKubeconfig": admin, "submitterKubeconfig": submitter, "kubeconfig": default});
            match format {
                Format::Yaml => session.out.yaml(&answer)?,
                _ => session.out.json(&answer)?,
            }
        }
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            session.out.line(format!("manager      {}", running.server))?;
            session.out.line(format!("administrator {}", admin.display()))?;
            session.out.line(format!("submitter    {}", submitter.display()))?;
            session.out.line("")?;
            session.out.line("in another terminal, in this directory:")?;
            if default != std::path::Path::new(crate::kubeconfig::DEFAULT_PATH) {
                let quoted = std::path::absolute(&default)?.display().to_string().replace('\'', r"'\''");
                session.out.line(format!("  export KUBECONFIG='{quoted}'"))?;
            }
            session.out.line("  meridian apply -f manifests/examples/tutorial/manager.yaml")?;
            session.out.line(
                "  meridian submit --queue dws-local-queue -- sh -c 'echo hello from $MERIDIAN_REGION'",
            )?;
            session.out.line("  meridian get clusters")?;
        }
    }
    session.out.flush()
}

async fn wait(session: &mut Session, running: &mut Fleet, interrupts: &mut Interrupts) -> Result<(), Error> {
    let mut look = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        tokio::select! {
            () = interrupts.recv() => return Ok(()),
            _ = look.tick() => {
                match running.keep_up() {
                    Ok(told) => told.into_iter().for_each(|told| session.out.note(told)),
                    Err(error) => {
                        running.stop().await;
                        return Err(error);
                    }
                }
            }
        }
    }
}

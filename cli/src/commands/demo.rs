//! `demo`: what Meridian promises, shown in about a minute by real processes with simulated accelerators.
//!
//! Each act submits jobs, watches them, and checks what it observed through the API. The exit code is 0 only
//! if every promise was kept.

mod acts;
mod history;
mod lost_agent;
mod narrator;
mod races;
mod report;
mod residency;
mod timeline;
mod tracker;

use self::acts::Demo;
use self::narrator::Narrator;
use self::tracker::JobTracker;
use crate::args::DemoArgs;
use crate::error::Error;
use crate::examples::FLEX_START_FLEET;
use crate::fleet::Fleet;
use crate::fleet::interrupts::Interrupts;
use crate::fleet::setup::FleetSetup;
use crate::session::Session;
use std::path::Path;
use std::time::Duration;

/// Lease term of the demo: short enough to watch it lapse.
const TERM: Duration = Duration::from_secs(8);
const TERM_FLAG: &str = "8s";
/// Time limit of every wait at the default speed.
const STEP_WITHIN: Duration = Duration::from_secs(45);
const DEFAULT_SPEED: f64 = 20.0;

pub(super) async fn run(session: &mut Session, args: DemoArgs) -> Result<(), Error> {
    let DemoArgs { speed, keep, report } = args;
    if let Some(path) = &report {
        // An unusable path must be found now, not after a minute.
        write_report(path, "")?;
    }
    let format = session.document_format();
    let root = std::env::temp_dir().join(format!("meridian-demo-{}", uuid::Uuid::new_v4().simple()));
    let setup = FleetSetup::simulated(root.clone(), FLEX_START_FLEET)?;
    let setup = FleetSetup { speed, term: Some(TERM_FLAG), ..setup };
    let mut narrator = Narrator::begin(&mut session.out, format);
    narrator.tell("start", "starting a manager and three agents; nodes, GPUs and jobs are simulated")?;
    let mut interrupts = Interrupts::listen()?;
    let fleet = Fleet::start(setup).await?;
    let step_within = STEP_WITHIN.mul_f64((DEFAULT_SPEED / speed).max(1.0));
    let tracker = JobTracker::new(fleet.client().clone(), step_within, narrator.began());
    let mut demo = Demo { narrator, fleet, tracker };
    let played = tokio::select! {
        played = demo.play() => played,
        () = interrupts.recv() => Err(Error::Interrupted),
    };
    let Demo { mut narrator, mut fleet, mut tracker } = demo;
    tracker.finish();
    if matches!(played, Err(Error::Interrupted)) {
        // The demo broke no promise, so there is no verdict and no reason to keep the files.
        narrator.note("interrupted: stopping the simulated clusters");
        fleet.discard().await;
        return Err(Error::Interrupted);
    }
    let all_kept = narrator.conclude(&tracker, played.is_ok());
    if let Some(path) = &report {
        match write_report(path, &narrator.report(&tracker, played.is_ok())) {
            Ok(()) => narrator.note(&format!("the report is in `{}`", path.display())),
            Err(error) => narrator.note(&error.to_string()),
        }
    }
    if keep && played.is_ok() {
        let kubeconfig = fleet.admin_kubeconfig();
        narrator.note(&format!(
            "the fleet runs until Ctrl-C; try `meridian --kubeconfig {} get jobs -A`",
            kubeconfig.display()
        ));
        interrupts.recv().await;
    }
    if !keep && played.is_ok() {
        fleet.discard().await;
    } else {
        fleet.stop().await;
        narrator.note(&format!("logs and data are in `{}`", root.display()));
    }
    played?;
    if all_kept? { Ok(()) } else { Err(Error::Reported) }
}

fn write_report(path: &Path, page: &str) -> Result<(), Error> {
    std::fs::write(path, page)
        .map_err(|e| Error::Refused(format!("can't write the report to `{}`: {e}", path.display())))
}

//! `meridian bench`: the figures of docs/performance.md, measured on this machine with real processes.
//!
//! Every measure starts a manager, and agents where it needs them, as an operator would: loopback TLS, fsync on, the simulated
//! runner. Jobs are distinct and of about 2 KB (see [`shapes`]). Nothing is written but the answer; the journals are removed.
//!
//! | file | owns |
//! |---|---|
//! | `shapes` | what is submitted |
//! | `kueue` | Kueue's scheduler benchmark: its facts, and how it is played in real time |
//! | `ideal` | how long those loads take where only their runs take time |
//! | `load` | clients that send it, on a schedule or as fast as answers come |
//! | `measures` | one function per measure |
//! | `machine` | what this machine is, and how fast its disk flushes |
//! | `figures` | numbers and their spread |

mod figures;
mod ideal;
mod kueue;
mod load;
mod machine;
mod measures;
mod shapes;

use crate::args::{BenchArgs, BenchWhat, Format};
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::session::Session;
use figures::Figure;
use machine::Machine;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Where one bench keeps its journals; removed at its end, whatever that end is.
struct Scratch(PathBuf);

impl Scratch {
    fn make(below: Option<PathBuf>) -> Result<Self, Error> {
        let path = below
            .unwrap_or_else(std::env::temp_dir)
            .join(format!("meridian-bench-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path)
            .map_err(|e| Error::Refused(format!("can't make `{}`: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed only takes space.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
struct Effort {
    /// Below which directories are made.
    scratch: PathBuf,
    /// Length of one run, in seconds.
    seconds: u64,
    /// Runs of each rate.
    runs: u32,
    /// Gangs in the queue of `memory` and `restart`.
    gangs: usize,
    /// For the shapes of the jobs.
    seed: u64,
}

pub(super) async fn run(session: &mut Session, args: BenchArgs) -> Result<(), Error> {
    let BenchArgs { what, data_dir, seconds, runs, gangs, seed } = args;
    let scratch = Scratch::make(data_dir)?;
    let machine = Machine::look(&scratch.0)?;
    let effort = Effort { scratch: scratch.0.clone(), seconds, runs, gangs, seed };
    let mut figures = Vec::new();
    let mut interrupts = Interrupts::listen()?;
    let measured = tokio::select! {
        measured = measure(session, &what, &effort, &mut figures) => measured,
        () = interrupts.recv() => Err(Error::Refused("interrupted".into())),
    };
    show(session, &machine, &effort, &figures)?;
    measured
}

/// What was measured before something failed is shown all the same.
async fn measure(
    session: &mut Session,
    what: &[BenchWhat],
    effort: &Effort,
    figures: &mut Vec<Figure>,
) -> Result<(), Error> {
    let wanted = |one: BenchWhat| what.contains(&one) || what.contains(&BenchWhat::All);
    if wanted(BenchWhat::Submissions) {
        session.out.note("submissions …");
        figures.extend(measures::submissions(effort).await?);
    }
    if wanted(BenchWhat::Dispatches) {
        session.out.note("dispatches …");
        figures.extend(measures::dispatches(effort).await?);
    }
    if wanted(BenchWhat::Latency) {
        session.out.note("latency …");
        figures.extend(measures::latency(effort).await?);
    }
    if wanted(BenchWhat::Memory) || wanted(BenchWhat::Restart) {
        session.out.note("memory and restart …");
        let both = measures::full_queue(effort, wanted(BenchWhat::Restart)).await?;
        figures.extend(
            both.into_iter().filter(|f| {
                wanted(if f.measure == "restart" { BenchWhat::Restart } else { BenchWhat::Memory })
            }),
        );
    }
    for (what, scenario) in
        [(BenchWhat::KueueBaseline, &kueue::BASELINE), (BenchWhat::KueueLargeScale, &kueue::LARGE_SCALE)]
    {
        if wanted(what) {
            session.out.note(format!("{} …", scenario.name));
            figures.extend(kueue::play(scenario, effort).await?);
        }
    }
    Ok(())
}

fn show(session: &mut Session, machine: &Machine, effort: &Effort, figures: &[Figure]) -> Result<(), Error> {
    let jobs = shapes::mean_bytes(effort.seed);
    match session.format() {
        Some(format @ (Format::Json | Format::Yaml)) => {
            let figures: Vec<Value> = figures.iter().map(Figure::json).collect();
            let all = json!({
                "version": env!("CARGO_PKG_VERSION"), "optimised": !cfg!(debug_assertions), "machine": machine.json(),
                "jobBytes": jobs, "seconds": effort.seconds, "runs": effort.runs, "gangs": effort.gangs, "seed": effort.seed, "figures": figures,
            });
            if format == Format::Json { session.out.json(&all)? } else { session.out.yaml(&all)? }
        }
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            machine.lines().iter().try_for_each(|line| session.out.line(line))?;
            let build = if cfg!(debug_assertions) {
                "not optimised: measure with a release build"
            } else {
                "optimised"
            };
            session.out.line(format!("program   meridian {}, {build}", env!("CARGO_PKG_VERSION")))?;
            session.out.line(format!("jobs      distinct, {jobs} bytes on average, seed {}", effort.seed))?;
            session.out.line("")?;
            figures.iter().try_for_each(|figure| session.out.line(figure.line()))?;
        }
    }
    session.out.flush()
}

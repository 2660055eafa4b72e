//! `bench`: the figures of docs/performance.md, measured on this machine with real processes; and `bench
//! kubernetes`, which measures a deployment of the user.
//!
//! Every measure of this machine starts a manager, and agents where it needs them, as an operator would: TLS
//! over loopback, fsync on, the simulated runner. Jobs are distinct and about 2 KB each. The journals are
//! removed at the end.
//!
//! | file | owns |
//! |---|---|
//! | `shapes` | the submitted jobs |
//! | `kueue` | Kueue's scheduler benchmark in real time, and its decisions in virtual time |
//! | `load` | clients that submit, on a schedule or as fast as answers come |
//! | `measures` | the other measures |
//! | `kubernetes` | rates, times and requests of a deployment |
//! | `samples` | the manager's metrics |
//! | `machine` | this machine and the speed of its disk |
//! | `figures` | results and their spread |

mod figures;
mod kubernetes;
mod kueue;
mod load;
mod machine;
mod measures;
mod samples;
mod shapes;

use crate::args::{BenchArgs, BenchCommand, Format, Measure};
use crate::error::Error;
use crate::fleet::interrupts::Interrupts;
use crate::session::Session;
use figures::Figure;
use machine::Machine;
use measures::Effort;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The directory of the journals; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn create(parent: Option<PathBuf>) -> Result<Self, Error> {
        let name = format!("meridian-bench-{}", uuid::Uuid::new_v4().simple());
        let path = parent.unwrap_or_else(std::env::temp_dir).join(name);
        std::fs::create_dir_all(&path)
            .map_err(|e| Error::Refused(format!("can't create `{}`: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failed removal only leaves files behind.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) async fn run(session: &mut Session, args: BenchArgs) -> Result<(), Error> {
    let BenchArgs { command, measures, data_dir, seconds, runs, gangs, seed } = args;
    if let Some(BenchCommand::Kubernetes(args)) = command {
        return kubernetes::run(session, args).await;
    }
    let scratch = Scratch::create(data_dir)?;
    let machine = Machine::inspect(&scratch.0)?;
    let effort = Effort { scratch: scratch.0.clone(), seconds, runs, gangs, seed };
    let mut figures = Vec::new();
    let mut interrupts = Interrupts::listen()?;
    let measured = tokio::select! {
        measured = measure(session, &measures, &effort, &mut figures) => measured,
        () = interrupts.recv() => Err(Error::Interrupted),
    };
    // Also shows what was measured before a failure.
    show(session, &machine, &effort, &figures)?;
    measured
}

async fn measure(
    session: &mut Session,
    measures: &[Measure],
    effort: &Effort,
    figures: &mut Vec<Figure>,
) -> Result<(), Error> {
    let wanted = |measure: Measure| measures.contains(&measure) || measures.contains(&Measure::All);
    if wanted(Measure::Submissions) {
        session.out.note("measuring submissions");
        figures.extend(measures::submissions(effort).await?);
    }
    if wanted(Measure::Dispatches) {
        session.out.note("measuring dispatches");
        figures.extend(measures::dispatches(effort).await?);
    }
    if wanted(Measure::Latency) {
        session.out.note("measuring latency");
        figures.extend(measures::latency(effort).await?);
    }
    if wanted(Measure::Memory) || wanted(Measure::Restart) {
        session.out.note("measuring memory and restart");
        let both = measures::full_queue(effort, wanted(Measure::Restart)).await?;
        let measure_of = |figure: &Figure| {
            if figure.measure == "restart" { Measure::Restart } else { Measure::Memory }
        };
        figures.extend(both.into_iter().filter(|figure| wanted(measure_of(figure))));
    }
    for (measure, scenario) in
        [(Measure::KueueBaseline, &kueue::BASELINE), (Measure::KueueLargeScale, &kueue::LARGE_SCALE)]
    {
        if wanted(measure) {
            session.out.note(format!("measuring {}", scenario.name));
            figures.extend(kueue::measure(scenario, effort).await?);
        }
    }
    Ok(())
}

fn show(session: &mut Session, machine: &Machine, effort: &Effort, figures: &[Figure]) -> Result<(), Error> {
    let job_bytes = shapes::mean_bytes(effort.seed);
    let version = env!("CARGO_PKG_VERSION");
    let document = || {
        json!({
            "version": version, "optimised": !cfg!(debug_assertions), "machine": machine.json(),
            "jobBytes": job_bytes, "seconds": effort.seconds, "runs": effort.runs, "gangs": effort.gangs,
            "seed": effort.seed, "figures": figures.iter().map(Figure::json).collect::<Vec<Value>>(),
        })
    };
    match session.format() {
        Some(Format::Json) => session.out.json(&document())?,
        Some(Format::Yaml) => session.out.yaml(&document())?,
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            let build =
                if cfg!(debug_assertions) { "debug build: use a release build" } else { "release build" };
            machine.lines().iter().try_for_each(|line| session.out.line(line))?;
            session.out.line(format!("program   meridian {version}, {build}"))?;
            let seed = effort.seed;
            session.out.line(format!("jobs      distinct, {job_bytes} bytes on average, seed {seed}"))?;
            session.out.line("")?;
            figures.iter().try_for_each(|figure| session.out.line(figure.lines()))?;
        }
    }
    session.out.flush()
}

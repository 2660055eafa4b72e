//! `meridian-model`: searches configurations of the protocol for a broken promise.

use clap::Parser;
use meridian_model::configs::{self, Depth};
use meridian_model::hunts::{HUNTED, hunt};
use meridian_model::search::{Findings, Search, search};
use meridian_shared::planted::Bug;
use std::io::Write;
use std::time::Duration;

/// A hunt is small: one that takes longer has missed its bug.
const HUNT_MAX: Duration = Duration::from_secs(20);

/// Searches the protocol's own code for a broken promise.
#[derive(Debug, Parser)]
struct Args {
    /// Name of a configuration, or `all`.
    #[arg(long, default_value = "all")]
    config: String,
    /// Stop after this number of minutes, shared by all configurations. The default is no limit.
    #[arg(long)]
    minutes: Option<f64>,
    /// Search only to the bounds of the fast test.
    #[arg(long)]
    short: bool,
    /// Plant a bug, named as in the enum `Bug`.
    #[arg(long)]
    bug: Option<String>,
    /// Hunt every planted bug, and show that its search finds nothing without it.
    #[arg(long)]
    hunt: bool,
    /// Shortest counterexample first; needs much more memory.
    #[arg(long)]
    breadth_first: bool,
    /// Set a bound, such as `steps=5`; the names are the fields of `Budget`.
    #[arg(long = "bound", value_name = "NAME=NUMBER")]
    bounds: Vec<String>,
    /// Number of threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    let Args { config, minutes, short, bug, hunt: hunting, breadth_first, bounds, threads } = Args::parse();
    let bug = match bug {
        Some(name) => {
            let found = Bug::ALL.iter().copied().find(|b| format!("{b:?}") == name);
            Some(
                found
                    .ok_or_else(|| anyhow::anyhow!("there is no bug `{name}`: name one of {:?}", Bug::ALL))?,
            )
        }
        None => None,
    };
    if hunting {
        return hunts(threads, bug);
    }
    let names: Vec<&str> = if config == "all" { configs::NAMES.to_vec() } else { vec![config.as_str()] };
    let timeout = minutes.map(|m| Duration::from_secs_f64(m * 60.0 / names.len() as f64));
    let depth = if short { Depth::Short } else { Depth::Long };
    let mut out = std::io::stdout().lock();
    let mut sound = true;
    for name in names {
        let mut model = configs::named(name, depth, bug).ok_or_else(|| {
            anyhow::anyhow!("there is no configuration `{name}`: name one of {:?}", configs::NAMES)
        })?;
        for bound in &bounds {
            let set =
                bound.split_once('=').and_then(|(bound, to)| Some(model.budget.set(bound, to.parse().ok()?)));
            anyhow::ensure!(set == Some(true), "`{bound}` is not a bound: write it as NAME=NUMBER");
        }
        let findings = search(model, Search { threads, timeout, breadth_first });
        writeln!(out, "{}", findings.line())?;
        sound &= findings.sound();
        for line in findings.broken.iter().flat_map(|(_, trace)| trace) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(if sound { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE })
}

fn hunts(threads: usize, only: Option<Bug>) -> anyhow::Result<std::process::ExitCode> {
    let mut out = std::io::stdout().lock();
    let how = Search { threads, timeout: Some(HUNT_MAX), breadth_first: true };
    let mut missed = false;
    for bug in HUNTED.iter().copied().filter(|b| only.is_none_or(|o| o == *b)) {
        let (with, without) =
            (hunt(bug, true).map(|m| search(m, how)), hunt(bug, false).map(|m| search(m, how)));
        let found = with.as_ref().is_some_and(|f| f.broken.is_some());
        missed |= !found || !without.as_ref().is_some_and(Findings::sound);
        for (word, findings) in [("planted", with), ("without", without)] {
            let Some(findings) = findings else { continue };
            writeln!(out, "{bug:?} {word}: {}", findings.line())?;
            for line in findings.broken.iter().flat_map(|(_, trace)| trace).filter(|_| only.is_some()) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(if missed { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS })
}

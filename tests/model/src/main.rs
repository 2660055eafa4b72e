//! `meridian-model`: searches configurations of the protocol for a broken promise.

use clap::Parser;
use meridian_model::configs::{self, Depth};
use meridian_model::search::{Search, search};
use meridian_shared::planted::Bug;
use std::io::Write;
use std::time::Duration;

/// Searches the protocol's own code for a broken promise.
#[derive(Debug, Parser)]
struct Args {
    /// A configuration, or `all`.
    #[arg(long, default_value = "all")]
    config: String,
    /// Stop after so many minutes, shared by all configurations; without it every search goes to its bound.
    #[arg(long)]
    minutes: Option<f64>,
    /// Search to the bounds of the fast test only.
    #[arg(long)]
    short: bool,
    /// Plant a bug, by its name in `Bug`.
    #[arg(long)]
    bug: Option<String>,
    /// Shortest counterexample first; needs much more memory.
    #[arg(long)]
    breadth_first: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    let Args { config, minutes, short, bug, breadth_first, threads } = Args::parse();
    let bug = match bug {
        Some(name) => {
            let found = Bug::ALL.iter().copied().find(|b| format!("{b:?}") == name);
            Some(found.ok_or_else(|| anyhow::anyhow!("there is no bug `{name}`: name one of {:?}", Bug::ALL))?)
        }
        None => None,
    };
    let names: Vec<&str> = if config == "all" { configs::NAMES.to_vec() } else { vec![config.as_str()] };
    let timeout = minutes.map(|m| Duration::from_secs_f64(m * 60.0 / names.len() as f64));
    let depth = if short { Depth::Short } else { Depth::Long };
    let mut out = std::io::stdout().lock();
    let mut broken = false;
    for name in names {
        let model = configs::named(name, depth, bug).ok_or_else(|| anyhow::anyhow!("there is no configuration `{name}`: name one of {:?}", configs::NAMES))?;
        let findings = search(model, Search { threads, timeout, breadth_first });
        writeln!(out, "{}", findings.line())?;
        if let Some((_, trace)) = &findings.broken {
            broken = true;
            for line in trace {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(if broken { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS })
}

//! Runs the simulator by hand: a range of seeds, one seed with its trace, fresh random seeds, or hunts for
//! planted bugs.
//!
//! `cargo run -p meridian-tests --release --bin sim -- --seeds 0..10000`

use anyhow::{Context, bail};
use meridian_shared::planted::Bug;
use meridian_tests::sim::planted::{SEEDS_MAX, found_by_seeds, hunt};
use meridian_tests::sim::scenario::Scenario;
use meridian_tests::sim::{Counters, Keep, Report, run};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lines of a failing seed's trace that are printed.
const TAIL_LINES: usize = 150;
const USAGE: &str = "usage: sim (--seeds A..B | --seed N [--trace] [--bug NAME | --towards NAME] | \
                     --random N | --minutes M | --planted all|NAME) [--calm] [--keep-going]";

#[derive(Default)]
struct Args {
    seeds: Option<(u64, u64)>,
    seed: Option<u64>,
    trace: bool,
    random: Option<u64>,
    minutes: Option<u64>,
    planted: Option<String>,
    bug: Option<Bug>,
    towards: Option<Bug>,
    calm: bool,
    keep_going: bool,
}

fn bug(name: &str) -> anyhow::Result<Bug> {
    Bug::ALL
        .iter()
        .copied()
        .find(|b| format!("{b:?}") == name)
        .with_context(|| format!("there is no planted bug `{name}`"))
}

fn parse() -> anyhow::Result<Args> {
    let mut args = Args::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("`{word}` needs a value; {USAGE}"));
        match word.as_str() {
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").context("write seeds as A..B")?;
                args.seeds = Some((from.parse()?, to.parse()?));
            }
            "--seed" => args.seed = Some(value()?.parse()?),
            "--trace" => args.trace = true,
            "--random" => args.random = Some(value()?.parse()?),
            "--minutes" => args.minutes = Some(value()?.parse()?),
            "--planted" => args.planted = Some(value()?),
            "--towards" => args.towards = Some(bug(&value()?)?),
            "--bug" => args.bug = Some(bug(&value()?)?),
            "--calm" => args.calm = true,
            "--keep-going" => args.keep_going = true,
            _ => bail!("unknown option `{word}`; {USAGE}"),
        }
    }
    Ok(args)
}

fn scenario(args: &Args, seed: u64) -> Scenario {
    match (args.bug, args.towards) {
        (Some(bug), _) => Scenario::hunting(seed, bug),
        (None, Some(bug)) => Scenario::towards(seed, bug),
        (None, None) if args.calm => Scenario::calm(seed),
        (None, None) => Scenario::of(seed),
    }
}

/// A first seed that no earlier run had: microseconds of calendar time.
fn fresh_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_micros() as u64)
}

fn main() -> ExitCode {
    // A wrong option isn't a fault of the program: no backtrace.
    run_command().unwrap_or_else(|error| {
        eprintln!("sim: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_command() -> anyhow::Result<ExitCode> {
    let args = parse()?;
    let mut out = std::io::stdout().lock();
    match (&args.planted, args.seed) {
        (Some(which), _) => hunt_bugs(which, &mut out),
        (None, Some(seed)) => run_one(&args, seed, &mut out),
        (None, None) => run_many(&args, &mut out),
    }
}

/// Hunts one planted bug, or all that seeds find.
fn hunt_bugs(which: &str, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut missed = false;
    let bugs: Vec<Bug> = if which == "all" { found_by_seeds().collect() } else { vec![bug(which)?] };
    for bug in bugs {
        let begun = Instant::now();
        let found = hunt(bug, 1, SEEDS_MAX);
        let seconds = begun.elapsed().as_secs_f32();
        match found {
            Some((seeds, report)) => {
                writeln!(out, "{bug:?}: found after {seeds} seeds, {seconds:.1} s: {report}")?;
            }
            None => {
                missed = true;
                writeln!(out, "{bug:?}: NOT FOUND in {SEEDS_MAX} seeds, {seconds:.1} s")?;
            }
        }
        out.flush()?;
    }
    Ok(exit_code(!missed))
}

/// Runs one seed, and prints its trace if it is asked for or if the seed fails.
fn run_one(args: &Args, seed: u64, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let keep = if args.trace { Keep::All } else { Keep::Tail(TAIL_LINES) };
    let report = run(scenario(args, seed), keep);
    if args.trace || report.failure.is_some() {
        write!(out, "{}", report.trace)?;
    }
    write!(out, "{}", report.counters)?;
    writeln!(out, "{report}; {} ms of virtual time", report.virtual_ms)?;
    Ok(exit_code(report.failure.is_none()))
}

/// The sum of many runs.
#[derive(Default)]
struct Sum {
    counters: Counters,
    ran: u64,
    virtual_ms: u64,
    failed: Vec<Report>,
}

impl Sum {
    /// Adds one run; returns whether it failed.
    fn add(&mut self, report: Report) -> bool {
        self.ran += 1;
        self.virtual_ms += report.virtual_ms;
        self.counters.merge(&report.counters);
        let failed = report.failure.is_some();
        self.failed.extend(Some(report).filter(|_| failed));
        failed
    }
}

fn run_many(args: &Args, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let end = args.minutes.map(|m| begun + Duration::from_secs(60 * m));
    let (from, to) = match (args.seeds, args.random) {
        (Some(range), _) => range,
        (None, Some(n)) => {
            let from = fresh_seed();
            (from, from + n)
        }
        (None, None) if end.is_some() => (fresh_seed(), u64::MAX),
        (None, None) => bail!("{USAGE}"),
    };
    let (next, sum) = (AtomicU64::new(from), Mutex::new(Sum::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to || end.is_some_and(|end| Instant::now() > end) {
                        break;
                    }
                    let report = run(scenario(args, seed), Keep::Nothing);
                    if sum.lock().expect("no thread panics while it adds").add(report) && !args.keep_going {
                        next.store(to, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let Sum { counters, ran, virtual_ms, failed } = sum.into_inner().expect("no thread panics while it adds");
    if !args.keep_going {
        for report in &failed {
            write!(out, "{}", run(scenario(args, report.seed), Keep::Tail(TAIL_LINES)).trace)?;
        }
    }
    write!(out, "{counters}")?;
    writeln!(
        out,
        "{ran} seeds from {from}, {} failed, {} s of virtual time in {:.1} s",
        failed.len(),
        virtual_ms / 1_000,
        begun.elapsed().as_secs_f32()
    )?;
    // Failures come last, so that they are in a log of which only the end is kept.
    for report in &failed {
        writeln!(out, "FAILED {report}")?;
    }
    Ok(exit_code(failed.is_empty()))
}

fn exit_code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

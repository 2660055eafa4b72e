//! Runs the simulation by hand: any seeds, one seed with its trace, fresh random ones, or the planted bugs.
//!
//! `cargo run -p meridian-tests --release --bin sim -- --seeds 0..10000`

use anyhow::{Context, bail};
use meridian_shared::planted::Bug;
use meridian_tests::sim::counters::Counters;
use meridian_tests::sim::plan::Plan;
use meridian_tests::sim::planted::{SEEDS_MAX, hunt};
use meridian_tests::sim::trace::Keep;
use meridian_tests::sim::{Report, run};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TAIL_LINES: usize = 150;
const USAGE: &str = "sim (--seeds A..B | --seed N [--trace] [--bug NAME | --towards NAME] | --random N | --minutes M | --planted all|NAME) [--calm] [--keep-going]";

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
        let mut value = || words.next().with_context(|| format!("`{word}` wants a value; {USAGE}"));
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
            _ => bail!("`{word}` is not known; {USAGE}"),
        }
    }
    Ok(args)
}

fn plan(args: &Args, seed: u64) -> Plan {
    match (args.bug, args.towards) {
        (Some(bug), _) => Plan::hunting(seed, bug),
        (None, Some(bug)) => Plan::towards(seed, bug),
        (None, None) if args.calm => Plan::calm(seed),
        (None, None) => Plan::of(seed),
    }
}

fn fresh() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_micros() as u64)
}

fn main() -> ExitCode {
    // A wrong option is no fault of the program: no backtrace.
    work().unwrap_or_else(|error| {
        eprintln!("sim: {error:#}");
        ExitCode::FAILURE
    })
}

fn work() -> anyhow::Result<ExitCode> {
    let args = parse()?;
    let mut out = std::io::stdout().lock();
    if let Some(which) = &args.planted {
        let mut missed = false;
        let bugs: Vec<Bug> = if which == "all" { Bug::ALL.to_vec() } else { vec![bug(which)?] };
        for bug in bugs {
            let begun = Instant::now();
            match hunt(bug, 1, SEEDS_MAX) {
                Some((seeds, report)) => {
                    let (_, broken) = report.broken.expect("a hunt ends with something broken");
                    writeln!(
                        out,
                        "{bug:?}: {} after {seeds} seeds, {:.1} s: {}",
                        broken.invariant,
                        begun.elapsed().as_secs_f32(),
                        broken.words
                    )?;
                }
                None => {
                    missed = true;
                    writeln!(
                        out,
                        "{bug:?}: NOT FOUND in {SEEDS_MAX} seeds, {:.1} s",
                        begun.elapsed().as_secs_f32()
                    )?;
                }
            }
            out.flush()?;
        }
        return Ok(ends_well(!missed));
    }
    if let Some(seed) = args.seed {
        let report = run(plan(&args, seed), if args.trace { Keep::All } else { Keep::Tail(TAIL_LINES) });
        if args.trace || report.broken.is_some() {
            write!(out, "{}", report.trace)?;
        }
        write!(out, "{}", report.counters)?;
        writeln!(out, "{} virtual ms; {:?}", report.virtual_ms, report.broken)?;
        return Ok(ends_well(report.broken.is_none()));
    }
    many(&args, &mut out)
}

/// What many runs came to.
#[derive(Default)]
struct Sum {
    counters: Counters,
    ran: u64,
    virtual_ms: u64,
    failed: Vec<Report>,
}

impl Sum {
    /// Whether the run broke something.
    fn add(&mut self, report: Report) -> bool {
        self.ran += 1;
        self.virtual_ms += report.virtual_ms;
        self.counters.merge(&report.counters);
        let broken = report.broken.is_some();
        self.failed.extend(Some(report).filter(|_| broken));
        broken
    }
}

fn many(args: &Args, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let end = args.minutes.map(|m| begun + Duration::from_secs(60 * m));
    let (from, to) = match (args.seeds, args.random) {
        (Some(range), _) => range,
        (None, Some(n)) => {
            let from = fresh();
            (from, from + n)
        }
        (None, None) if end.is_some() => (fresh(), u64::MAX),
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
                    let report = run(plan(args, seed), Keep::Nothing);
                    if sum.lock().expect("no thread panics while it adds").add(report) && !args.keep_going {
                        next.store(to, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let Sum { counters, ran, virtual_ms, failed } = sum.into_inner().expect("no thread panics while it adds");
    for report in &failed {
        tell(args, out, report)?;
    }
    write!(out, "{counters}")?;
    let count = failed.len();
    writeln!(
        out,
        "{ran} seeds from {from}, {count} failed, {} s of virtual time in {:.1} s",
        virtual_ms / 1_000,
        begun.elapsed().as_secs_f32()
    )?;
    // What failed is said once more as the last thing, so that a log of which only the end is kept says it too.
    for report in &failed {
        let (at, broken) = report.broken.as_ref().expect("only failures are told");
        writeln!(out, "FAILED seed {}: {} at {at} ms: {}", report.seed, broken.invariant, broken.words)?;
    }
    Ok(ends_well(failed.is_empty()))
}

fn ends_well(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(args: &Args, out: &mut impl Write, report: &Report) -> anyhow::Result<()> {
    let (at, broken) = report.broken.as_ref().expect("only failures are told");
    writeln!(out, "seed {}: {} at {} ms: {}", report.seed, broken.invariant, at, broken.words)?;
    if !args.keep_going {
        write!(out, "{}", run(plan(args, report.seed), Keep::Tail(TAIL_LINES)).trace)?;
    }
    Ok(())
}

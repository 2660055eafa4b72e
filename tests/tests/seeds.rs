//! The simulator in CI: fixed seeds, planted bugs, and that a seed replays byte for byte.
//!
//! `MERIDIAN_SIM_SEEDS` sets the number of fixed seeds.

#![allow(clippy::print_stdout, reason = "the log of a run shows what it exercised")]

use meridian_shared::planted::Bug;
use meridian_tests::sim::planted::{SEEDS_MAX, found_by_seeds, hunt};
use meridian_tests::sim::scenario::Scenario;
use meridian_tests::sim::{Counters, Keep, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of fixed seeds in CI.
const SEEDS: u64 = 1_000;
const THREADS: usize = 2;
/// Lines of a failing seed's trace that are printed.
const TAIL_LINES: usize = 200;

fn fixed_seeds() -> u64 {
    std::env::var("MERIDIAN_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// Runs every seed on two threads. Panics with the trace of the first seed that fails.
fn run_all(seeds: std::ops::Range<u64>) -> Counters {
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(Counters::default());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut mine = Counters::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let report = run(Scenario::of(seed), Keep::Nothing);
                    mine.merge(&report.counters);
                    if report.failure.is_some() {
                        failed.lock().unwrap().push(seed);
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
                total.lock().unwrap().merge(&mine);
            });
        }
    });
    if let Some(seed) = failed.into_inner().unwrap().into_iter().min() {
        let report = run(Scenario::of(seed), Keep::Tail(TAIL_LINES));
        panic!(
            "{report}\n{}run it again with: \
             cargo run --profile test -p meridian-tests --bin sim -- --seed {seed} --trace",
            report.trace
        );
    }
    total.into_inner().unwrap()
}

/// Least counts of events in a thousand seeds: rules whose events never happen aren't tested.
const MINIMA: &[(&str, u64)] = &[
    ("grants", 10_000),
    ("lapses", 100),
    ("late holds", 30),
    // A grant that crosses the end of its hold.
    ("grants refused", 10),
    ("ends learned", 30),
    ("runs to the end", 800),
    ("takeovers", 100),
    ("recoveries", 500),
    ("short cuts", 100),
    ("orphans", 20),
    ("adoptions", 20),
    ("restores", 100),
    ("rollbacks shown by the mark", 20),
    ("confirmations with a cluster awaited", 10),
    ("journals deleted", 20),
    ("digests differing", 20),
    ("power losses", 100),
    ("stores lost", 100),
    ("commits failed", 50),
    ("residency stops", 50),
    ("machines frozen", 100),
    ("clones", 50),
    ("rivals", 20),
    ("hostile messages", 1_000),
    ("starved heads", 1_000),
    ("turns cut short", 10_000),
    ("admissions with fewer pods", 300),
    ("quota reclaimed", 800),
    ("sizes taken", 5_000),
    ("other sizes of gangs that run and are not elastic", 200),
    ("gangs scaled down", 600),
    ("gangs scaled up", 150),
    ("scale-ups confirmed", 150),
    ("scale-ups refused", 20),
    ("deactivated", 1_500),
    ("runs deactivated", 600),
    ("reactivated", 900),
    ("left deactivated", 120),
    ("usage samples", 3_000),
    ("snapshots", 500),
    ("nodes lost", 2_000),
    ("nodes tainted", 800),
    ("gangs started with a topology", 2_000),
    ("gangs moved", 100),
    ("gangs moved within a domain", 15),
    ("new places reported", 100),
    ("ends without another place", 100),
    ("waits for a place reported", 50),
    ("toleration times that ended", 60),
    ("toleration times over a restart", 15),
    ("waiting times over a restart", 8),
    ("partitions", 500),
    ("manager kills", 400),
    ("manager stalls", 400),
    ("full disks", 150),
    ("failed syncs", 250),
    ("machines rebooted", 150),
    ("wall jumps", 200),
    ("agent kills", 500),
    ("agents superseded", 300),
    ("declared lost", 80),
    ("guards killed", 250),
    ("gangs without a guard", 120),
    ("agents' disks found full", 350),
    ("agents' commits failed", 300),
    ("agents ended before a commit", 15),
    ("agents ended after a commit", 12),
    ("agents ended between effects", 50),
    ("stalls", 80),
    ("explanations checked", 25_000),
    ("messages lost", 6_000),
    ("messages doubled", 6_000),
    ("messages late", 3_000),
    ("slow links", 500),
    ("agents paused", 400),
    ("policies tightened", 500),
    ("policies that only flag", 200),
    ("pod failures reported", 500),
    ("priorities changed", 1_000),
    // Situations in which a single rule decides, each with its own scenario test as well.
    ("grants ahead of their turn", 1),
    ("leaderships that ended waiting commands", 1),
    ("sessions that ended waiting commands", 1),
    ("grants repeated", 3),
    ("holds expired at their agent", 1),
    ("restarts with acknowledged tombstones", 1),
    ("acknowledged ends reported again", 1),
    ("turns of a copy with a lease at its end", 1),
    ("turns without a claim with a lease at its end", 1),
];

#[test]
fn every_promise_holds_in_every_seed() {
    let seeds = fixed_seeds();
    let counters = run_all(0..seeds);
    println!("{counters}");
    for (name, per_thousand) in MINIMA {
        let least = per_thousand * seeds / 1_000;
        assert!(
            counters.get(name) >= least,
            "{seeds} seeds counted only {} {name}, at least {least} are needed",
            counters.get(name)
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 17, 4_711] {
        let (one, two) = (run(Scenario::of(seed), Keep::All), run(Scenario::of(seed), Keep::All));
        assert!(one.trace.len() > 10_000, "a trace has a line per event");
        assert!(one.trace == two.trace, "seed {seed} doesn't replay");
    }
    let (one, two) = (run(Scenario::calm(1), Keep::All), run(Scenario::calm(2), Keep::All));
    assert_ne!(one.trace, two.trace);
}

#[test]
fn everything_ends_without_faults() {
    for seed in 0..5 {
        let report = run(Scenario::calm(seed), Keep::Tail(TAIL_LINES));
        assert!(report.failure.is_none(), "{report}\n{}", report.trace);
        assert!(report.counters.get("finished") > 5, "{}", report.counters);
    }
}

#[test]
fn every_planted_bug_is_found() {
    let missed: Vec<Bug> = found_by_seeds()
        .filter(|bug| {
            let found = hunt(*bug, 1, SEEDS_MAX);
            match &found {
                Some((seeds, report)) => {
                    println!("{bug:?}: found after {seeds} seeds: {report}")
                }
                None => println!("{bug:?}: not found in {SEEDS_MAX} seeds"),
            }
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "planted bugs that no seed finds: {missed:?}");
}

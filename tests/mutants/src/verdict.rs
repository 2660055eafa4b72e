//! Runs, for each mutant, the tests that reach it until one fails.

use crate::compile::Binary;
use crate::list::Mutant;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A test may take this much longer with a mutant than without.
const SLOWER_MAX: u32 = 8;
/// Time that a process gets whatever its tests took.
const PATIENCE: Duration = Duration::from_secs(8);
/// Memory of a process in bytes. A mutant may let a loop allocate without end.
const MEMORY_MAX: u64 = 6 << 30;
/// Exit code of a test binary with a failed test.
const TEST_FAILED: i32 = 101;
/// The test of the simulator, and the most time for all its seeds without a mutant.
const SEEDS_TEST: &str = "every_promise_holds_in_every_seed";
const SEEDS_LIMIT: Duration = Duration::from_secs(3_600);
/// Tests that take longer come last.
const SLOW: Duration = Duration::from_secs(1);
/// Time of the tests in one process, so that a failure is noticed soon.
const BATCH_MAX: Duration = Duration::from_millis(500);

/// One test, as it ran without a mutant.
#[derive(Debug)]
pub(crate) struct Test<'a> {
    binary: &'a Binary,
    name: String,
    took: Duration,
    /// Mutants that it reached.
    reaches: BTreeSet<usize>,
}

/// What the tests say about a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A test failed.
    Caught,
    /// A test ran too long, which finds the mutant too.
    TooSlow,
    /// All tests passed.
    Missed,
    /// No test gets there.
    Unreached,
}

impl Verdict {
    /// Whether the tests notice the mutant.
    pub(crate) fn is_found(self) -> bool {
        matches!(self, Self::Caught | Self::TooSlow)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::TooSlow => "too slow",
            Self::Missed => "missed",
            Self::Unreached => "unreached",
        }
    }
}

/// Runs every test of `binaries` alone and remembers what it reaches.
pub(crate) fn trace<'a>(
    binaries: &'a [Binary],
    skip: &[String],
    trace: &Path,
) -> anyhow::Result<Vec<Test<'a>>> {
    let mut listed = Vec::new();
    for binary in binaries {
        let out = command(binary)
            .args(["--list", "--format", "terse"])
            .stdout(Stdio::piped())
            .output()
            .context("a test binary can't be run")?;
        ensure!(out.status.success(), "{} can't list its tests", binary.name);
        let text = String::from_utf8(out.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = names.filter(|name| !skip.iter().any(|skip| name.contains(skip.as_str())));
        listed.extend(names.map(|name| (binary, name.to_owned())));
    }
    let tests = in_parallel(listed.len(), |at| {
        let (binary, name) = &listed[at];
        trace_one(binary, name, &trace.with_extension(at.to_string()))
    });
    let tests: Vec<Option<Test<'a>>> = tests.into_iter().collect::<Result<_, _>>()?;
    Ok(tests.into_iter().flatten().collect())
}

/// None if the test fails without a mutant.
fn trace_one<'a>(binary: &'a Binary, name: &str, trace: &Path) -> anyhow::Result<Option<Test<'a>>> {
    if trace.exists() {
        fs::remove_file(trace)?;
    }
    let begin = Instant::now();
    let mut child = command(binary)
        .args(["--exact", name, "--test-threads=1"])
        .env("MERIDIAN_MUTANT_TRACE", trace)
        .spawn()?;
    let verdict = wait(&mut child, Duration::from_secs(600))?;
    let took = begin.elapsed();
    if verdict.is_found() {
        eprintln!("  {} {name} fails without a mutant, and is left out", binary.name);
        return Ok(None);
    }
    let lines = if trace.exists() { fs::read_to_string(trace)? } else { String::new() };
    let reaches = lines.lines().map(str::parse).collect::<Result<_, _>>()?;
    Ok(Some(Test { binary, name: name.to_owned(), took, reaches }))
}

/// The verdict over each of `numbers`, in their order. All but the caught ones are reported at once.
/// `limit` bounds the time of the tests for one mutant, as measured without it.
pub(crate) fn verdicts(
    tests: &[Test<'_>],
    mutants: &[Mutant],
    numbers: &[usize],
    limit: Duration,
    report: impl Fn(usize, Verdict) + Sync,
) -> anyhow::Result<Vec<Verdict>> {
    let done = AtomicUsize::new(0);
    let verdicts = in_parallel(numbers.len(), |at| {
        let verdict = verdict_of(tests, &mutants[numbers[at]], numbers[at], limit);
        if let Ok(verdict @ (Verdict::Missed | Verdict::Unreached | Verdict::TooSlow)) = &verdict {
            report(numbers[at], *verdict);
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(100) {
            eprintln!("  {done} of {}", numbers.len());
        }
        verdict
    });
    verdicts.into_iter().collect()
}

fn verdict_of(
    tests: &[Test<'_>],
    mutant: &Mutant,
    number: usize,
    limit: Duration,
) -> anyhow::Result<Verdict> {
    let mut reaching: Vec<&Test<'_>> = tests.iter().filter(|test| test.reaches.contains(&number)).collect();
    if reaching.is_empty() {
        return Ok(Verdict::Unreached);
    }
    // Tests of the same package know the rule best. Their order differs by mutant, so that no test is always
    // among the first.
    reaching.sort_by_key(|test| {
        (test.took > SLOW, test.binary.package != mutant.package, drawn(number, &test.name))
    });
    let mut took = Duration::ZERO;
    let mut rest = &reaching[..];
    while let Some(first) = rest.first()
        && took < limit
    {
        let mut of_batch = Duration::ZERO;
        let fits = |test: &&&Test<'_>| {
            of_batch += test.took;
            test.binary.executable == first.binary.executable && of_batch <= BATCH_MAX
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count);
        let verdict = run(now, number)?;
        if verdict.is_found() {
            return Ok(verdict);
        }
        took += now.iter().map(|test| test.took).sum::<Duration>();
        rest = later;
    }
    Ok(Verdict::Missed)
}

/// The place of a test among those of a mutant.
fn drawn(mutant: usize, test: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (mutant, test).hash(&mut hasher);
    hasher.finish()
}

/// What `tests`, of one binary, say about a mutant.
fn run(tests: &[&Test<'_>], mutant: usize) -> anyhow::Result<Verdict> {
    let mut command = command(tests[0].binary);
    command.args(["--exact", "--test-threads=1"]).args(tests.iter().map(|test| &test.name));
    let mut child = command.env("MERIDIAN_MUTANT", mutant.to_string()).spawn()?;
    let took: Duration = tests.iter().map(|test| test.took).sum();
    wait(&mut child, PATIENCE + took * SLOWER_MAX)
}

/// Lets the simulator look for what the tests miss, with this many seeds.
pub(crate) fn ask_seeds(
    binary: &Binary,
    seeds: u64,
    numbers: &[usize],
    verdicts: &mut [Verdict],
    report: impl Fn(usize, Verdict),
) -> anyhow::Result<()> {
    let run = |mutant: Option<usize>, limit: Duration| {
        let mut command = command(binary);
        command.args(["--exact", SEEDS_TEST]).env("MERIDIAN_SIM_SEEDS", seeds.to_string());
        if let Some(mutant) = mutant {
            command.env("MERIDIAN_MUTANT", mutant.to_string());
        }
        wait(&mut command.spawn()?, limit)
    };
    let begin = Instant::now();
    let without = run(None, SEEDS_LIMIT)?;
    ensure!(
        !without.is_found(),
        "{seeds} seeds fail without a mutant; few seeds miss situations that the test asks for: try 60"
    );
    let limit = PATIENCE + begin.elapsed() * SLOWER_MAX;
    for (number, verdict) in numbers.iter().zip(verdicts).filter(|(_, verdict)| !verdict.is_found()) {
        let found = run(Some(*number), limit)?;
        if found.is_found() {
            *verdict = found;
            report(*number, found);
        }
    }
    Ok(())
}

/// A test binary in the folder where cargo would run it: silent, with a bound of its memory, and with the
/// same random numbers every time. It ends with the thread that starts it, even if this tool is killed: a
/// mutant may loop for ever.
fn command(binary: &Binary) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "prlimit", &format!("--as={MEMORY_MAX}")]);
    command.arg(&binary.executable).current_dir(&binary.folder);
    command.env("INSTA_UPDATE", "no").env("INSTA_FORCE_PASS", "0").env("RUST_BACKTRACE", "0");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true").env("PROPTEST_RNG_SEED", "1");
    command.env_remove("MERIDIAN_MUTANT").env_remove("MERIDIAN_MUTANT_TRACE");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits for the end of a test process, or ends it when its time is over. Fails if the process couldn't run
/// its tests.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Verdict> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    while begin.elapsed() < limit {
        match child.try_wait()?.map(|status| (status.success(), status.code())) {
            Some((true, _)) => return Ok(Verdict::Missed),
            // A failed test, or a signal: a panic while panicking, no memory, no stack.
            Some((_, Some(TEST_FAILED) | None)) => return Ok(Verdict::Caught),
            Some((_, Some(code))) => bail!("a test binary ended with {code}, which no failed test does"),
            None => thread::sleep(pause),
        }
        pause = Duration::from_millis(20).min(pause * 2);
    }
    child.kill()?;
    child.wait()?;
    Ok(Verdict::TooSlow)
}

/// Does `work` for each number below `count` on every processor, and gives the results in order.
pub(crate) fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let result = work(at);
                    results.lock().expect("no worker panics with the lock").push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no worker panics with the lock");
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_process_ends_with_the_thread_that_started_it() {
        let sleep = Binary {
            package: String::new(),
            name: "sleep".to_owned(),
            executable: "sleep".into(),
            folder: ".".into(),
        };
        let started = thread::spawn(move || {
            let mut child = command(&sleep).arg("60").spawn().expect("util-linux is installed");
            // By then the process has said that it ends with its parent.
            let comm = format!("/proc/{}/comm", child.id());
            while !fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n") {
                assert_eq!(child.try_wait().expect("the process is a child"), None);
                thread::sleep(Duration::from_millis(1));
            }
            child
        });
        let mut child = started.join().expect("the process starts");
        assert_eq!(wait(&mut child, Duration::from_secs(20)).unwrap(), Verdict::Caught);
    }
}

//! Finds rules that no test checks. cargo-mutants lists changes of the code; this builds all of them at
//! once, each behind a switch, and runs for each the tests that reach it. `tests/mutants/run` starts it.

mod compile;
mod list;
mod rewrite;
mod verdict;

use crate::compile::Binary;
use crate::verdict::Verdict;
use anyhow::{Context, ensure};
use clap::Parser;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The tests of the simulator, which run last.
const SEEDS_BINARY: &str = "seeds";

/// Finds changes of the code that no test notices.
#[derive(Debug, Parser)]
struct Options {
    /// Files, from the root of the repository.
    #[arg(required = true)]
    files: Vec<String>,
    /// Only mutants with a name that matches this pattern. Can be given more than once.
    #[arg(long = "re")]
    patterns: Vec<String>,
    /// Only the survivors of an earlier run, of which this file is the output.
    #[arg(long, value_name = "FILE")]
    among: Option<PathBuf>,
    /// Lists the mutants and ends.
    #[arg(long)]
    list: bool,
    /// Further packages with tests to run. Those of the files are run anyway.
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Leaves out tests with this in their name. Can be given more than once.
    #[arg(long)]
    skip: Vec<String>,
    /// Seeds of the simulator for each mutant that the other tests miss. With 0 the simulator isn't built.
    #[arg(long, env = "MERIDIAN_SIM_SEEDS", default_value_t = 500)]
    seeds: u64,
    /// Seconds of tests for each mutant. Without it all tests that reach the mutant run.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Folder for the copy of the tree and what the tests reach.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    for file in &options.files {
        ensure!(Path::new(file).is_file(), "{file} is no file; name it from the root of the repository");
    }
    let mut mutants = list::mutants(&options.files, &options.patterns)?;
    if let Some(path) = &options.among {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let survivors = ["missed ", "unreached "];
        let named: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| survivors.iter().find_map(|word| line.strip_prefix(word)))
            .collect();
        mutants.retain(|mutant| named.contains(mutant.name.as_str()));
        ensure!(mutants.len() == named.len(), "{}: the files have changed since", path.display());
    }
    ensure!(!mutants.is_empty(), "these files have no mutant that was asked for");
    if options.list {
        for mutant in &mutants {
            say(&mutant.name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut packages: BTreeSet<String> = mutants.iter().map(|mutant| mutant.package.clone()).collect();
    packages.extend(options.packages.iter().cloned());
    if options.seeds > 0 {
        packages.insert("meridian-tests".into());
    }
    let packages: Vec<String> = packages.into_iter().collect();

    eprintln!("{} mutants: building", mutants.len());
    let root = std::env::current_dir()?;
    let built = compile::build(&root, &options.out.join("tree"), &mutants, &packages)?;
    let (seeds, binaries): (Vec<Binary>, Vec<Binary>) =
        built.binaries.into_iter().partition(|binary| binary.name == SEEDS_BINARY);

    eprintln!("tracing which mutants each test reaches");
    let tests = verdict::trace(&binaries, &options.skip, &options.out.join("reached"))?;
    let left_out = |number: &usize| built.refused.contains(number) || built.unplaced.contains(number);
    let numbers: Vec<usize> = (0..mutants.len()).filter(|number| !left_out(number)).collect();
    eprintln!("{} tests, {} mutants", tests.len(), numbers.len());
    let limit = options.limit.map_or(Duration::MAX, Duration::from_secs);
    let say_of = |word: &str, number: usize| say(&format!("{word} {}", mutants[number].name));
    let report = |number: usize, verdict: Verdict| say_of(verdict.word(), number);
    let mut verdicts = verdict::verdicts(&tests, &mutants, &numbers, limit, report)?;
    if options.seeds > 0 {
        let seeds = seeds.first().context("the simulator's test isn't there")?;
        let report = |number: usize, _| say_of("found by seeds", number);
        verdict::ask_seeds(seeds, options.seeds, &numbers, &mut verdicts, report)?;
    }

    built.refused.iter().for_each(|number| say_of("refused", *number));
    built.unplaced.iter().for_each(|number| say_of("untried", *number));
    let found = verdicts.iter().filter(|verdict| verdict.is_found()).count();
    let unreached = verdicts.iter().filter(|verdict| **verdict == Verdict::Unreached).count();
    say(&format!(
        "{} mutants: {found} found, {} missed, {unreached} not reached by a test, {} refused by the \
         compiler, {} untried",
        mutants.len(),
        verdicts.len() - found - unreached,
        built.refused.len(),
        built.unplaced.len()
    ));
    Ok(if found == verdicts.len() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

#[allow(clippy::print_stdout)] // the result of a command
fn say(line: &str) {
    println!("{line}");
}

//! Replays Kueue's own decision cases through the functions that `meridian plan` and the manager decide by,
//! and prints the agreement per table.
//!
//! `cargo run --release -p meridian-parity -- DIRECTORY` reads every `*.json` file of the directory: one
//! array of cases per table. A case agrees if the decision is the same, and the reasons of all recorded
//! conditions and events too. Cases with the same decision and other records are listed. The wording of
//! messages never counts.

mod assignments;
mod case;
mod evictions;
mod flavors;
mod functions;
mod json;
mod orders;
mod preempt;
mod quota;
mod schedule;
mod state;
mod topology;
mod verdict;

use anyhow::{Context, bail};
use case::Case;
use clap::Parser;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use verdict::{TableSummary, Verdict};

/// Replays decision cases.
#[derive(Parser, Debug)]
struct Args {
    /// Directory with the tables.
    directory: PathBuf,
    /// Only tables with this text in their name.
    #[arg(long)]
    table: Option<String>,
    /// Only cases with this text in their id.
    #[arg(long)]
    case: Option<String>,
    /// Print the differences of each case.
    #[arg(long)]
    verbose: bool,
}

#[expect(clippy::print_stdout, reason = "it is a command")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut total = TableSummary::default();
    for path in tables(&args)? {
        let name = table_name(&path);
        let (mut summary, mut not_compared) = (TableSummary::default(), BTreeSet::new());
        for case in read(&path)? {
            let id = case["id"].as_str().unwrap_or_default();
            if args.case.as_ref().is_some_and(|part| !id.contains(part.as_str())) {
                continue;
            }
            let verdict = replay(&case);
            summary.count(&verdict);
            let (title, details, always) = match verdict {
                Verdict::Same => continue,
                Verdict::OtherWording(details) => ("other wording", details, false),
                Verdict::OtherRecord(details) => ("other record", details, true),
                Verdict::Differs(details) => ("differs", details, true),
                Verdict::NotCompared(why) => {
                    not_compared.insert(why.clone());
                    ("not compared", why, false)
                }
            };
            if args.verbose {
                println!("{title}: {id}\n    {}", details.replace('\n', "\n    "));
            } else if always {
                println!("{title}: {id}");
            }
        }
        println!("{}", summary.line(&name));
        for why in not_compared {
            println!("    not compared: {why}");
        }
        total.add(summary);
    }
    println!("{}", total.line("all tables"));
    Ok(())
}

/// The tables to read, by name. Fails if the directory has no table.
fn tables(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let mut tables: Vec<PathBuf> = std::fs::read_dir(&args.directory)
        .with_context(|| format!("{}", args.directory.display()))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    tables.retain(|path| path.extension().is_some_and(|e| e == "json"));
    if tables.is_empty() {
        bail!("{}: no table (*.json) found", args.directory.display());
    }
    tables.retain(|path| args.table.as_ref().is_none_or(|part| table_name(path).contains(part.as_str())));
    tables.sort();
    Ok(tables)
}

fn table_name(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", path.display()))
}

/// Why acts on worker clusters aren't compared: Meridian replaces them by other acts.
fn not_compared(kind: &str) -> Option<&'static str> {
    match kind {
        "dispatcher-reconcile" | "dispatcher-nominate" => Some(
            "workloads aren't copied to nominated clusters: clusters hold capacity, and one gets the grant",
        ),
        "multikueue-reconcile" => {
            Some("no objects are mirrored between API servers: lease and fence say where a workload runs")
        }
        "multikueue-nominate" => {
            Some("no copies are made in several clusters, so none are nominated and none are withdrawn")
        }
        _ => None,
    }
}

fn replay(case: &Value) -> Verdict {
    let kind = case["act"]["kind"].as_str().unwrap_or_default();
    if let Some(why) = not_compared(kind) {
        return Verdict::NotCompared(why.to_owned());
    }
    let compare: fn(&Case<'_>) -> anyhow::Result<Verdict> = match kind {
        "topology" => return topology::replay(case).unwrap_or_else(unreadable),
        "schedule-cycle" => schedule::replay,
        "preempt" => preempt::replay,
        "assign-flavors" => flavors::assign,
        "flavor-preference" => flavors::preference,
        "order-entries" => orders::entries,
        "order-candidates" => orders::candidates,
        "order-target-queues" => orders::target_queues,
        "podset-search" => functions::search,
        "preemption-policy" => functions::policy,
        "effective-priority" => functions::priority,
        "weighted-share" => functions::weighted_share,
        "afs-entry-penalty" => functions::penalty,
        "reserve" => quota::reserve,
        "available" => quota::available,
        "drs" => quota::shares,
        "borrowing-on" => quota::borrowing,
        "snapshot" => quota::snapshot::load,
        "snapshot-update" => quota::snapshot::update,
        "hierarchy-ops" => quota::hierarchy::replay,
        other => return Verdict::NotCompared(format!("unknown act `{other}`")),
    };
    Case::read(case).and_then(|case| compare(&case)).unwrap_or_else(unreadable)
}

/// A case that can't be read doesn't agree.
fn unreadable(error: anyhow::Error) -> Verdict {
    Verdict::Differs(format!("{error:#}"))
}

//! Replays public decision cases through the functions that `plan` and the engine decide by, and prints agreement per table.
//!
//! `cargo run -p meridian-parity -- DIRECTORY` reads every `*.json` file of the directory: an array of cases, one a line.
//! A case agrees when the decision is the expected one and everything that is recorded about it (conditions, events) gives
//! the expected reason; where only records differ, the table's line counts decisions besides. Wording never counts.

mod case;
mod flavors;
mod functions;
mod orders;
mod quota;
mod schedule;
mod topology;
mod verdict;
mod victims;

use anyhow::{Context, bail};
use case::Case;
use clap::Parser;
use serde_json::Value;
use std::path::{Path, PathBuf};
use verdict::{Tally, Verdict};

/// Replays decision cases.
#[derive(Parser, Debug)]
struct Args {
    /// Directory with the tables.
    directory: PathBuf,
    /// Only tables whose name contains this.
    #[arg(long)]
    table: Option<String>,
    /// Only cases whose id contains this.
    #[arg(long)]
    case: Option<String>,
    /// Say how each differing case differs.
    #[arg(long)]
    verbose: bool,
}

#[expect(clippy::print_stdout, reason = "it is a command")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut tables: Vec<PathBuf> = std::fs::read_dir(&args.directory)
        .with_context(|| format!("{}", args.directory.display()))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    tables.retain(|path| path.extension().is_some_and(|e| e == "json"));
    tables.sort();
    if tables.is_empty() {
        bail!("{}: no table (*.json) here", args.directory.display());
    }
    for path in &tables {
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if args.table.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        let mut tally = Tally::default();
        let mut reasons = std::collections::BTreeSet::new();
        for case in read(path)? {
            let id = case["id"].as_str().unwrap_or_default();
            if args.case.as_ref().is_some_and(|wanted| !id.contains(wanted.as_str())) {
                continue;
            }
            let verdict = replay(&case);
            tally.count(&verdict);
            let (title, how, always) = match verdict {
                Verdict::Same => continue,
                Verdict::SaysOtherwise(how) => ("in other words", how, false),
                Verdict::RecordsOtherwise(how) => ("records otherwise", how, true),
                Verdict::Differs(how) => ("differs", how, true),
                Verdict::Skipped(why) => {
                    reasons.insert(why.clone());
                    ("not judged", why, false)
                }
            };
            if args.verbose {
                println!("{title}: {id}\n    {}", how.replace('\n', "\n    "));
            } else if always {
                println!("{title}: {id}");
            }
        }
        println!("{}", tally.line(&name));
        for why in reasons {
            println!("    not judged: {why}");
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", path.display()))
}

/// Why tables about worker clusters aren't judged: what stands in the place of what they are about.
fn replaced(kind: &str) -> Option<&'static str> {
    match kind {
        "dispatcher-reconcile" | "dispatcher-nominate" => Some(
            "no workload is copied to nominated clusters round by round: clusters offer room, and one offer is taken",
        ),
        "multikueue-reconcile" => Some(
            "no objects are mirrored between API servers: a lease and a fence per workload say which cluster runs it",
        ),
        "multikueue-nominate" => {
            Some("no copies are made on several clusters at once, so none are nominated and none withdrawn")
        }
        _ => None,
    }
}

fn replay(value: &Value) -> Verdict {
    let kind = value["act"]["kind"].as_str().unwrap_or_default();
    if kind == "topology" {
        return topology::replay(value);
    }
    if let Some(why) = replaced(kind) {
        return Verdict::Skipped(why.to_owned());
    }
    let judge: fn(&Case<'_>) -> anyhow::Result<Verdict> = match kind {
        "schedule-cycle" => schedule::replay,
        "preempt" => victims::preempt,
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
        "snapshot" => quota::snapshot,
        "snapshot-update" => quota::snapshot_update,
        "hierarchy-ops" => quota::hierarchy,
        other => return Verdict::Skipped(format!("acts of kind `{other}` aren't known")),
    };
    // What can't be read is no agreement.
    Case::read(value)
        .and_then(|case| judge(&case))
        .unwrap_or_else(|error| Verdict::Differs(format!("{error:#}")))
}

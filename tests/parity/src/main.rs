//! Replays public decision cases through the functions that `plan` and the engine decide by, and prints agreement per table.
//!
//! `cargo run -p meridian-parity -- DIRECTORY` reads every `*.json` file of the directory: an array of cases, one a line.

mod topology;

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a case came to.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// As expected.
    Same,
    /// Decided as expected, but given another reason.
    SaysOtherwise(String),
    /// Otherwise, and how.
    Differs(String),
    /// Not judged, and why.
    Skipped(String),
}

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
        let (mut same, mut judged, mut skipped, mut otherwise) = (0_usize, 0_usize, 0_usize, 0_usize);
        for case in read(path)? {
            let id = case["id"].as_str().unwrap_or_default();
            if args.case.as_ref().is_some_and(|wanted| !id.contains(wanted.as_str())) {
                continue;
            }
            match replay(&case) {
                Verdict::Same => (same, judged) = (same + 1, judged + 1),
                Verdict::SaysOtherwise(how) => {
                    (same, judged, otherwise) = (same + 1, judged + 1, otherwise + 1);
                    if args.verbose {
                        println!("says otherwise: {id}\n    {}", how.replace('\n', "\n    "));
                    }
                }
                Verdict::Differs(how) => {
                    judged += 1;
                    println!(
                        "differs: {id}{}{}",
                        if args.verbose { "\n    " } else { "" },
                        if args.verbose { how.replace('\n', "\n    ") } else { String::new() }
                    );
                }
                Verdict::Skipped(why) => {
                    skipped += 1;
                    if args.verbose {
                        println!("skipped: {id}: {why}");
                    }
                }
            }
        }
        let besides = [(otherwise, "with another reason"), (skipped, "not judged")];
        let besides: String = besides.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}")).collect();
        println!("{name:<50} {same:>4} of {judged:>4}{besides}");
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", path.display()))
}

fn replay(case: &Value) -> Verdict {
    match case["act"]["kind"].as_str().unwrap_or_default() {
        "topology" => topology::replay(case),
        other => Verdict::Skipped(format!("acts of kind `{other}` aren't replayed")),
    }
}

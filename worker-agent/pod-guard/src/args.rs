//! The command line.

use crate::{GUARD_DIR, LEASE_DIR, LEASE_FILE};
use std::ffi::OsString;
use std::path::PathBuf;

const USAGE: &str = "usage: meridian-pod-guard install [DIR]\n       \
     meridian-pod-guard run [--lease FILE] [--skew-seconds N] -- COMMAND [ARGUMENT]...";
/// How far the wall clocks of an agent's machine and of a node may differ, if the command line doesn't say.
const USUAL_SKEW_SECONDS: u32 = 5;

/// What the program is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Args {
    /// Copies the program into a folder.
    Install { dir: PathBuf },
    /// Runs a command under a lease.
    Run(Run),
}

/// A command, and the file with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub(crate) lease: PathBuf,
    /// Bound on the difference between the wall clocks of the agent and of this node.
    pub(crate) skew_seconds: u32,
    pub(crate) command: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Reads the command line without the program's name. Fails with what is wrong and the usage.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Args, String> {
    let mut words = words;
    let wrong = |what: String| format!("{what}\n{USAGE}");
    match words.next().as_ref().and_then(|word| word.to_str()) {
        Some("install") => match (words.next(), words.next()) {
            (dir, None) => Ok(Args::Install { dir: dir.map_or_else(|| GUARD_DIR.into(), PathBuf::from) }),
            (_, Some(more)) => Err(wrong(format!("unexpected argument `{}`", more.display()))),
        },
        Some("run") => parse_run(words).map(Args::Run).map_err(wrong),
        Some(other) => Err(wrong(format!("there is no command `{other}`"))),
        None => Err(wrong("a command is missing".to_owned())),
    }
}

fn parse_run(mut words: impl Iterator<Item = OsString>) -> Result<Run, String> {
    let mut lease = PathBuf::from(LEASE_DIR).join(LEASE_FILE);
    let mut skew_seconds = USUAL_SKEW_SECONDS;
    loop {
        let word = words.next().ok_or("`--` and the command are missing")?;
        match word.to_str() {
            Some("--") => break,
            Some("--lease") => lease = words.next().ok_or("`--lease` needs a file")?.into(),
            Some("--skew-seconds") => {
                let number = words.next();
                let number = number.as_ref().and_then(|number| number.to_str());
                skew_seconds = number
                    .and_then(|number| number.parse().ok())
                    .ok_or("`--skew-seconds` needs a whole number of seconds")?;
            }
            _ => return Err(format!("`{}` is not an option", word.display())),
        }
    }
    let command = words.next().ok_or("the command after `--` is missing")?;
    Ok(Run { lease, skew_seconds, command, arguments: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Args, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_command_line_is_read_up_to_the_command() {
        assert_eq!(of("install"), Ok(Args::Install { dir: "/meridian-guard".into() }));
        assert_eq!(of("install /x"), Ok(Args::Install { dir: "/x".into() }));
        let run = |lease: &str, skew_seconds, arguments: &[&str]| {
            let arguments = arguments.iter().map(OsString::from).collect();
            Ok(Args::Run(Run { lease: lease.into(), skew_seconds, command: "train".into(), arguments }))
        };
        assert_eq!(of("run -- train"), run("/meridian-lease/lease", 5, &[]));
        assert_eq!(of("run --lease f --skew-seconds 0 -- train --lease x"), run("f", 0, &["--lease", "x"]));
        for (line, why) in [
            ("", "a command is missing"),
            ("stop", "there is no command `stop`"),
            ("install a b", "unexpected argument `b`"),
            ("run train", "`train` is not an option"),
            ("run --lease", "`--lease` needs a file"),
            ("run --skew-seconds 1m -- x", "needs a whole number of seconds"),
            ("run --lease f", "`--` and the command are missing"),
            ("run --", "the command after `--` is missing"),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(why) && error.contains("usage: "), "{line}: {error}");
        }
    }
}

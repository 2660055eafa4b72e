//! The proof that an audit log is intact, line by line, without trusting the manager that wrote it.
//!
//! The rule of the hash chain is in the manager's core, next to the writer of the lines. This file adds what
//! only a reader meets: unreadable lines, logs that begin in the middle, a head from earlier, and fields that
//! no hash covers.

use meridian_manager_core::facts::audit::{Broken, Head, Line, Verifier};
use serde_json::Value;
use std::str::FromStr;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// `at` counts lines of the input from 1.
    #[error("line {at} of the input is not a line of an audit log: {why}")]
    Unreadable { at: u64, why: String },
    #[error("line {number} was changed: it has `{field}`, which its hash doesn't cover")]
    Uncovered { number: u64, field: String },
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("the audit log is empty, but had {expected} lines: its tail was cut off")]
    Empty { expected: u64 },
    #[error(
        "the input begins at line {number}: export from line 1, or verify this part with `--from {number}`"
    )]
    Part { number: u64 },
    #[error(
        "the input begins at line {number}, not at line {from}: lines are missing, or it is another part"
    )]
    OtherPart { number: u64, from: u64 },
    #[error("`{0}` is not the head of an audit log: write it as `audit verify` prints it, NUMBER:HASH")]
    NotAHead(String),
}

/// A head printed earlier: `1234:9f86d0…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedHead(Head);

impl FromStr for ExpectedHead {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::NotAHead(text.to_owned());
        let (lines, hash) = text.split_once(':').ok_or_else(wrong)?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lines = lines.parse().ok().filter(|lines| *lines > 0 && is_hash).ok_or_else(wrong)?;
        Ok(Self(Head { lines, hash: hash.to_ascii_lowercase() }))
    }
}

#[derive(Debug, Default)]
pub(super) struct ChainProof {
    verifier: Verifier,
    expected: Option<Head>,
    /// The first line of a part; the hash before it is trusted.
    from: Option<u64>,
    /// Lines of the input so far, empty ones included.
    input_lines: u64,
    lines: u64,
    /// Whether the line of the expected head was met, with its hash.
    met_expected: bool,
}

impl ChainProof {
    /// A proof from line 1 on. The log must contain the expected head.
    pub(super) fn new(expected: Option<ExpectedHead>) -> Self {
        Self { expected: expected.map(|expected| expected.0), ..Self::default() }
    }

    /// A proof of a part that begins at line `from`; nothing before it is proved.
    pub(super) fn of_part(self, from: Option<u64>) -> Self {
        Self { from, ..self }
    }

    /// Adds the next line of the input; an empty line is skipped. Fails if the chain breaks here.
    pub(super) fn add_line(&mut self, text: &[u8]) -> Result<(), Error> {
        self.input_lines += 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let at = self.input_lines;
        let unreadable = |why: serde_json::Error| Error::Unreadable { at, why: why.to_string() };
        let value: Value = serde_json::from_slice(text).map_err(unreadable)?;
        let line: Line = serde_json::from_slice(text).map_err(unreadable)?;
        let covered = serde_json::to_value(&line).map_err(unreadable)?;
        if let Some(field) = uncovered(&value, &covered) {
            return Err(Error::Uncovered { number: line.number, field });
        }
        match self.from {
            _ if self.lines > 0 => {}
            Some(from) if from != line.number => return Err(Error::OtherPart { number: line.number, from }),
            Some(from) => {
                self.verifier = Verifier::after(Head { lines: from - 1, hash: line.previous.clone() })
            }
            None if line.number > 1 => return Err(Error::Part { number: line.number }),
            None => {}
        }
        self.verifier.take(&line)?;
        self.lines += 1;
        if let Some(expected) = self.expected.as_ref().filter(|expected| expected.lines == line.number) {
            if expected.hash != line.hash {
                return Err(Broken::Rewritten(line.number).into());
            }
            self.met_expected = true;
        }
        Ok(())
    }

    /// The head of the whole log; `None` if the log is empty. Fails if the expected head wasn't met.
    pub(super) fn finish(self) -> Result<Option<Head>, Error> {
        match self.expected {
            Some(expected) if self.lines == 0 => Err(Error::Empty { expected: expected.lines }),
            _ if self.lines == 0 => Ok(None),
            Some(expected) if !self.met_expected => Ok(Some(self.verifier.finish(Some(&expected))?)),
            _ => Ok(Some(self.verifier.finish(None)?)),
        }
    }
}

/// The first field of `written` that is not in `covered`.
fn uncovered(written: &Value, covered: &Value) -> Option<String> {
    match (written, covered) {
        (Value::Object(written), Value::Object(covered)) => {
            written.iter().find_map(|(key, value)| match covered.get(key) {
                None => Some(key.clone()),
                Some(covered) => uncovered(value, covered).map(|inner| format!("{key}.{inner}")),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager_core::facts::actor::Actor;
    use meridian_manager_core::facts::audit::{Action, Entry};
    use meridian_shared::time::Wall;

    fn log(length: i64) -> Vec<String> {
        let mut head = Head::default();
        let line = |at: i64| {
            let entry = Entry::new(Action::Verdict, format!("class {at}"));
            let line = Line::after(&head, Wall(at), Actor::System, entry);
            head = Head { lines: line.number, hash: line.hash.clone() };
            serde_json::to_string(&line).unwrap()
        };
        (0..length).map(line).collect()
    }

    fn prove(lines: &[String], expected: Option<&str>) -> Result<Option<Head>, Error> {
        let mut proof = ChainProof::new(expected.map(|head| head.parse().unwrap()));
        lines.iter().try_for_each(|line| proof.add_line(line.as_bytes()))?;
        proof.finish()
    }

    #[test]
    fn an_intact_log_is_proved() {
        let mut lines = log(4);
        let head = prove(&lines, None).unwrap().unwrap();
        assert_eq!(head.lines, 4);
        assert_eq!(prove(&[], None).unwrap(), None);
        let noted = format!("{}:{}", head.lines, head.hash);
        lines = log(6);
        lines.push(String::new());
        assert_eq!(prove(&lines, Some(&noted)).unwrap().unwrap().lines, 6);
    }

    #[test]
    fn changes_truncation_and_rewriting_are_found() {
        let lines = log(5);
        let head = prove(&lines, None).unwrap().unwrap();
        let noted = format!("{}:{}", head.lines, head.hash);
        let mut flipped = lines.clone();
        flipped[2] = flipped[2].replace("class 2", "class 9");
        assert_eq!(prove(&flipped, None), Err(Broken::Changed(3).into()));
        assert_eq!(prove(&lines[..3], Some(&noted)), Err(Broken::Cut { has: 3, witnessed: 5 }.into()));
        assert_eq!(prove(&[], Some(&noted)), Err(Error::Empty { expected: 5 }));
        assert_eq!(prove(&lines[1..], None), Err(Error::Part { number: 2 }));
        let forged = format!("5:{}", "ab".repeat(32));
        assert_eq!(prove(&lines, Some(&forged)), Err(Broken::Rewritten(5).into()));
        let mut added = lines.clone();
        added[1] = added[1].replacen('{', "{\"approved\":true,", 1);
        assert_eq!(prove(&added, None), Err(Error::Uncovered { number: 2, field: "approved".into() }));
        let mut garbage = lines;
        garbage[1] = "{}".into();
        assert!(matches!(prove(&garbage, None), Err(Error::Unreadable { at: 2, .. })));
    }

    #[test]
    fn a_part_is_proved_only_on_request() {
        let lines = log(6);
        let part = |lines: &[String], from: u64| {
            let mut proof = ChainProof::new(None).of_part(Some(from));
            lines.iter().try_for_each(|line| proof.add_line(line.as_bytes()))?;
            proof.finish()
        };
        assert_eq!(part(&lines[3..], 4).unwrap().unwrap(), prove(&lines, None).unwrap().unwrap());
        assert_eq!(part(&lines[2..], 4), Err(Error::OtherPart { number: 3, from: 4 }));
        let mut changed = lines.clone();
        changed[4] = changed[4].replace("class 4", "class 9");
        assert_eq!(part(&changed[3..], 4), Err(Broken::Changed(5).into()));
        changed.remove(4);
        assert_eq!(part(&changed[3..], 4), Err(Broken::Gap { after: 4, found: 6 }.into()));
    }

    #[test]
    fn malformed_heads_are_refused() {
        for bad in ["", "5", "5:abc", "0:{64}", "x:"] {
            assert!(
                matches!(
                    bad.replace("{64}", &"a".repeat(64)).parse::<ExpectedHead>(),
                    Err(Error::NotAHead(_))
                ),
                "{bad}"
            );
        }
    }
}

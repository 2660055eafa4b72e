//! The proof of an audit log that somebody exported, line by line, without asking the manager who wrote it.
//!
//! The chain's rule lives beside the lines' writer in the manager's core. Here are the outside of it: lines as they come,
//! logs that begin in the middle, a head that somebody noted down earlier, and bytes that a line may not have.

use meridian_manager_core::facts::audit::{Broken, Head, Line, Verifier};
use serde_json::Value;
use std::str::FromStr;

/// Why a log proves nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Not a line of an audit log at all.
    #[error("line {at} of the input is not a line of an audit log: {why}")]
    Unreadable {
        /// Counted from 1 in the input.
        at: u64,
        /// Why.
        why: String,
    },
    /// Content that the line's hash does not cover.
    #[error("line {number} holds `{field}`, which its hash doesn't cover: the line was changed")]
    Uncovered {
        /// The line.
        number: u64,
        /// The field.
        field: String,
    },
    /// The chain does not hold.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// Nothing to prove.
    #[error("the audit log is empty, but a witness has seen line {witnessed}: its tail was cut")]
    Empty {
        /// Lines that a witness has seen.
        witnessed: u64,
    },
    /// A log that begins in the middle.
    #[error(
        "the input begins at line {number}, so that what stood before it can't be proved: export from line 1, or verify this part alone with `--from {number}`, which takes the hash before its first line as given"
    )]
    Part {
        /// Its first line.
        number: u64,
    },
    /// A part that begins elsewhere.
    #[error(
        "the input begins at line {number}, not at line {from}: lines were removed, or it is another part"
    )]
    OtherPart {
        /// Its first line.
        number: u64,
        /// Where it should begin.
        from: u64,
    },
    /// Text that is no head.
    #[error(
        "`{0}` is not the head of an audit log: write its number, a colon and its hash, as `audit verify` prints them"
    )]
    NotAHead(String),
}

/// A head that somebody noted down: `1234:9f86d0…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Witness(pub(crate) Head);

impl FromStr for Witness {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::NotAHead(text.to_owned());
        let (lines, hash) = text.split_once(':').ok_or_else(wrong)?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lines = lines.parse().ok().filter(|lines| *lines > 0 && is_hash).ok_or_else(wrong)?;
        Ok(Self(Head { lines, hash: hash.to_ascii_lowercase() }))
    }
}

/// Takes the lines of a log one by one.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    verifier: Verifier,
    witness: Option<Head>,
    /// The first line of a part whose predecessor's hash is taken as given.
    from: Option<u64>,
    /// Lines of the input so far, empty ones included.
    read: u64,
    lines: u64,
    /// Whether the witness's own line went by with the witness's hash.
    witnessed: bool,
}

impl Proof {
    /// A proof from the log's first line on; a witness's head must be found in it.
    pub(crate) fn new(witness: Option<Witness>) -> Self {
        Self { witness: witness.map(|witness| witness.0), ..Self::default() }
    }

    /// The same of a part that begins at line `from`, where one is named: nothing is proved of what came before.
    pub(crate) fn of_part(self, from: Option<u64>) -> Self {
        Self { from, ..self }
    }

    /// Takes the next line of the input; an empty one says nothing.
    pub(crate) fn take(&mut self, text: &[u8]) -> Result<(), Error> {
        self.read += 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let unreadable = |why: serde_json::Error| Error::Unreadable { at: self.read, why: why.to_string() };
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
        if let Some(witness) = self.witness.as_ref().filter(|witness| witness.lines == line.number) {
            if witness.hash != line.hash {
                return Err(Broken::Rewritten(line.number).into());
            }
            self.witnessed = true;
        }
        Ok(())
    }

    /// The head of the whole log, or `None` for a log without lines.
    pub(crate) fn finish(self) -> Result<Option<Head>, Error> {
        match self.witness {
            Some(witness) if self.lines == 0 => Err(Error::Empty { witnessed: witness.lines }),
            _ if self.lines == 0 => Ok(None),
            Some(witness) if !self.witnessed => Ok(Some(self.verifier.finish(Some(&witness))?)),
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
    use meridian_manager_core::facts::audit::Entry;
    use meridian_shared::time::Wall;

    fn log(length: i64) -> Vec<String> {
        let mut head = Head::default();
        let line = |at: i64| {
            let entry = Entry {
                action: "verdict".into(),
                subject: format!("class {at}"),
                cluster: None,
                verdict: None,
                rule: None,
                detail: None,
            };
            let line = Line::after(&head, Wall(at), Actor::system(), entry);
            head = Head { lines: line.number, hash: line.hash.clone() };
            serde_json::to_string(&line).unwrap()
        };
        (0..length).map(line).collect()
    }

    fn prove(lines: &[String], witness: Option<&str>) -> Result<Option<Head>, Error> {
        let mut proof = Proof::new(witness.map(|witness| witness.parse().unwrap()));
        lines.iter().try_for_each(|line| proof.take(line.as_bytes()))?;
        proof.finish()
    }

    #[test]
    fn whole_logs_hold() {
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
    fn a_flipped_byte_a_cut_tail_and_a_rewritten_log_show() {
        let lines = log(5);
        let head = prove(&lines, None).unwrap().unwrap();
        let noted = format!("{}:{}", head.lines, head.hash);
        let mut flipped = lines.clone();
        flipped[2] = flipped[2].replace("class 2", "class 9");
        assert_eq!(prove(&flipped, None), Err(Broken::Changed(3).into()));
        assert_eq!(prove(&lines[..3], Some(&noted)), Err(Broken::Cut { has: 3, witnessed: 5 }.into()));
        assert_eq!(prove(&[], Some(&noted)), Err(Error::Empty { witnessed: 5 }));
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
    fn a_part_holds_by_itself_where_it_is_asked_for_as_one() {
        let lines = log(6);
        let part = |lines: &[String], from: u64| {
            let mut proof = Proof::new(None).of_part(Some(from));
            lines.iter().try_for_each(|line| proof.take(line.as_bytes()))?;
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
    fn heads_are_checked_when_read() {
        for bad in ["", "5", "5:abc", "0:{64}", "x:"] {
            assert!(
                matches!(bad.replace("{64}", &"a".repeat(64)).parse::<Witness>(), Err(Error::NotAHead(_))),
                "{bad}"
            );
        }
    }
}

//! The proof that an audit log is intact, document by document, without trusting the manager that wrote it.
//!
//! The manager's core has the rule of the hash chain, next to the code that writes the lines. This file adds
//! the cases that only a reader meets: segments with their signed seals, unreadable lines, logs that begin in
//! the middle, an expected head, and fields that no hash covers.

use super::document::{Document, Opening, Removed, RemovedLine, Seal, SealLine, Statement, hex};
use super::key::PublicKey;
use meridian_manager_core::facts::audit::{Broken, Head, Line, Verifier};
use meridian_shared::ids::JournalId;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::str::FromStr;

/// How a log is broken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `at` counts lines of the input from 1.
    #[error("line {at} of the input is not a line of an audit log: {why}")]
    Unreadable { at: u64, why: String },
    #[error("line {number} was changed: it has `{field}`, which its hash doesn't cover")]
    Uncovered { number: u64, field: String },
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("in segment {segment}: {error}")]
    InSegment { segment: u64, error: Box<Error> },
    #[error("segment {number} is missing: segment {found} follows segment {after}")]
    SegmentMissing { number: u64, found: u64, after: u64 },
    #[error("segment {found} follows segment {after}: segments were reordered or repeated")]
    SegmentOrder { found: u64, after: u64 },
    #[error("segment {number} is missing: line {found} follows segment {after}, which ends at line {last}")]
    TailMissing { number: u64, after: u64, last: u64, found: u64 },
    #[error("segment {0} was truncated: it has no seal")]
    Unsealed(u64),
    #[error("segment {number} was changed: its seal doesn't match its {what}")]
    Seal { number: u64, what: &'static str },
    #[error("the seal of segment {number} isn't signed by {by}")]
    Signature { number: u64, by: &'static str },
    #[error("the statement on removed segments isn't signed by {by}")]
    RemovedSignature { by: &'static str },
    #[error("the statement on removed segments isn't at the beginning of the log")]
    RemovedPlace,
    #[error(
        "the log begins at segment {segment}, line {number}: the segments before are missing; verify this \
         part with `--from {number}`"
    )]
    SegmentPart { segment: u64, number: u64 },
    #[error("the expected head {expected} is before line {first}, where this part of the log begins")]
    Unproved { expected: u64, first: u64 },
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

/// A head that an earlier verification printed: `1234:9f86d0…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedHead(Head);

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

/// Result of a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proved {
    /// The head of the whole log; `None` if the log is empty.
    pub head: Option<Head>,
    /// The first line that was proved, if it isn't line 1.
    pub from: Option<u64>,
    /// Segments with a valid seal.
    pub segments: u64,
    /// The last segment that was exported and removed, or 0.
    pub removed: u64,
}

/// A proof in progress.
#[derive(Debug, Default)]
pub struct ChainProof {
    verifier: Verifier,
    expected: Option<Head>,
    /// The first line of a part; the hash before it is trusted.
    from: Option<u64>,
    /// Lines of the input so far, empty ones included.
    input_lines: u64,
    lines: u64,
    /// Whether the line of the expected head was found, with the expected hash.
    met_expected: bool,
    segments: Segments,
}

/// The chain of segments so far.
#[derive(Debug, Default)]
struct Segments {
    /// The keys that may sign. If empty, each seal is checked by the key that it names.
    keys: Vec<PublicKey>,
    journal: Option<JournalId>,
    /// The segment that is being read, and the digest of its bytes so far.
    open: Option<(Opening, Sha256)>,
    /// Hash of the line before the open segment.
    before: String,
    /// The last segment, its last line, and the hash of its seal.
    last: Option<(u64, u64, String)>,
    sealed: u64,
    removed: u64,
}

impl Segments {
    fn by(&self) -> &'static str {
        if self.keys.is_empty() { "the key that it names" } else { "a key that is trusted" }
    }

    fn is_signed(&self, statement: &impl Statement, signature: &str) -> bool {
        let key = *statement.key();
        (self.keys.is_empty() || self.keys.contains(&key)) && key.verifies(&statement.bytes(), signature)
    }

    fn open(&mut self, opening: Opening, from: Option<u64>) -> Result<(), Error> {
        if let Some((open, _)) = &self.open {
            return Err(Error::Unsealed(open.number));
        }
        let Opening { number, first } = opening;
        match self.last {
            None if number != 1 && from != Some(first) => {
                return Err(Error::SegmentPart { segment: number, number: first });
            }
            Some((after, ..)) if number <= after => return Err(Error::SegmentOrder { found: number, after }),
            Some((after, ..)) if number > after + 1 => {
                return Err(Error::SegmentMissing { number: after + 1, found: number, after });
            }
            _ => {}
        }
        self.open = Some((opening, Sha256::new()));
        Ok(())
    }

    /// Verifies a seal; `head` is the last line before it.
    fn close(&mut self, line: &SealLine, head: &Head) -> Result<(), Error> {
        let SealLine { seal, signature } = line;
        let number = seal.number;
        let Some((open, digest)) = self.open.take() else {
            return Err(Error::Seal { number, what: "beginning, which is missing" });
        };
        let previous = self.last.as_ref().map(|(.., hash)| hash.as_str());
        let zeros = hex(&[0; 32]);
        let matches = [
            (open.number == number, "number"),
            (open.first == seal.first, "first line"),
            (seal.last == head.lines && seal.first <= seal.last, "last line"),
            (seal.before == self.before, "line before"),
            (seal.head == head.hash, "last line"),
            (seal.digest == hex(&digest.finalize()), "bytes"),
            (previous.is_none_or(|hash| seal.previous == hash), "predecessor"),
            (number != 1 || seal.previous == zeros, "predecessor"),
            (self.journal.is_none_or(|journal| journal == seal.journal), "journal"),
        ];
        if let Some((_, what)) = matches.into_iter().find(|(matches, _)| !matches) {
            return Err(Error::Seal { number: open.number, what });
        }
        if !self.is_signed(seal, signature) {
            return Err(Error::Signature { number, by: self.by() });
        }
        self.journal = Some(seal.journal);
        self.last = Some((number, seal.last, hex(&Seal::hash(seal))));
        self.sealed += 1;
        Ok(())
    }
}

impl ChainProof {
    /// A proof from line 1 on. The log must contain the expected head.
    pub fn new(expected: Option<ExpectedHead>) -> Self {
        Self { expected: expected.map(|expected| expected.0), ..Self::default() }
    }

    /// A proof of a part that begins at line `from`. Earlier lines aren't proved.
    pub fn of_part(self, from: Option<u64>) -> Self {
        Self { from, ..self }
    }

    /// A proof that accepts only seals of these keys. With no keys, each seal is checked by the key that it
    /// names.
    pub fn trusting(mut self, keys: Vec<PublicKey>) -> Self {
        self.segments.keys = keys;
        self
    }

    /// Adds the next line of the input; an empty line is skipped. Fails if the log is broken here.
    pub fn add_line(&mut self, text: &[u8]) -> Result<(), Error> {
        let segment = self.segments.open.as_ref().map(|(open, _)| open.number);
        self.add_document(text).map_err(|error| match (segment, error) {
            (
                Some(segment),
                error @ (Error::Broken(_) | Error::Uncovered { .. } | Error::Unreadable { .. }),
            ) => Error::InSegment { segment, error: Box::new(error) },
            (_, error) => error,
        })
    }

    fn add_document(&mut self, text: &[u8]) -> Result<(), Error> {
        self.input_lines += 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let at = self.input_lines;
        let unreadable = |why: serde_json::Error| Error::Unreadable { at, why: why.to_string() };
        let document = Document::parse(text).map_err(unreadable)?;
        match document {
            Document::Seal(seal) => {
                let head = self.verifier.head().clone();
                return self.segments.close(&seal, &head);
            }
            Document::Removed(removed) => return self.add_removed(&removed),
            Document::Opening(opening) => {
                self.segments.before = self.verifier.head().hash.clone();
                self.segments.open(opening, self.from)?;
            }
            Document::Line(line) => {
                let value: Value = serde_json::from_slice(text).map_err(unreadable)?;
                let covered = serde_json::to_value(&line).map_err(unreadable)?;
                if let Some(field) = uncovered(&value, &covered) {
                    return Err(Error::Uncovered { number: line.number, field });
                }
                self.add(&line)?;
            }
        }
        if let Some((_, digest)) = &mut self.segments.open {
            digest.update(text);
            digest.update(b"\n");
        }
        Ok(())
    }

    fn add_removed(&mut self, line: &RemovedLine) -> Result<(), Error> {
        let RemovedLine { removed, signature } = line;
        if self.lines > 0 || self.segments.last.is_some() || self.segments.open.is_some() {
            return Err(Error::RemovedPlace);
        }
        if !self.segments.is_signed(removed, signature) {
            return Err(Error::RemovedSignature { by: self.segments.by() });
        }
        let Removed { journal, through, last, head, seal, .. } = removed.clone();
        self.verifier = Verifier::after(Head { lines: last, hash: head });
        self.from = Some(last + 1);
        self.segments.journal = Some(journal);
        self.segments.last = Some((through, last, seal));
        self.segments.removed = through;
        Ok(())
    }

    fn add(&mut self, line: &Line) -> Result<(), Error> {
        match self.from {
            _ if self.lines > 0 || self.segments.removed > 0 => {}
            Some(from) if from != line.number => return Err(Error::OtherPart { number: line.number, from }),
            Some(from) => {
                self.verifier = Verifier::after(Head { lines: from - 1, hash: line.previous.clone() });
                self.segments.before.clone_from(&line.previous);
            }
            None if line.number > 1 => return Err(Error::Part { number: line.number }),
            None => {}
        }
        if let (None, Some((after, last, _))) = (&self.segments.open, &self.segments.last)
            && self.verifier.head().lines == *last
            && line.number > last + 1
        {
            let (number, after) = (after + 1, *after);
            return Err(Error::TailMissing { number, after, last: *last, found: line.number });
        }
        self.verifier.take(line)?;
        self.lines += 1;
        if let Some(expected) = self.expected.as_ref().filter(|expected| expected.lines == line.number) {
            if expected.hash != line.hash {
                return Err(Broken::Rewritten(line.number).into());
            }
            self.met_expected = true;
        }
        Ok(())
    }

    /// Ends the input of segment `number`. Fails if the segment has no seal.
    pub fn end_of_segment(&self, number: u64) -> Result<(), Error> {
        let is_last = self.segments.last.as_ref().is_some_and(|(last, ..)| *last == number);
        if is_last && self.segments.open.is_none() { Ok(()) } else { Err(Error::Unsealed(number)) }
    }

    /// Result of the proof. Fails if the expected head wasn't met, or the last segment is truncated.
    pub fn finish(self) -> Result<Proved, Error> {
        if let Some((open, _)) = &self.segments.open {
            return Err(Error::Unsealed(open.number));
        }
        let Segments { sealed: segments, removed, .. } = self.segments;
        let empty = self.lines == 0 && removed == 0;
        let from = self.from.filter(|from| *from > 1);
        let head = match self.expected {
            Some(expected) if empty => return Err(Error::Empty { expected: expected.lines }),
            _ if empty => None,
            Some(expected) if !self.met_expected => {
                if let Some(first) = from.filter(|first| expected.lines + 1 < *first) {
                    return Err(Error::Unproved { expected: expected.lines, first });
                }
                Some(self.verifier.finish(Some(&expected))?)
            }
            _ => Some(self.verifier.finish(None)?),
        };
        Ok(Proved { head, from, segments, removed })
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
        Ok(proof.finish()?.head)
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
            Ok::<_, Error>(proof.finish()?.head)
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

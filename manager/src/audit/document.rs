//! The documents of a log, one JSON document a line.
//!
//! A segment is a file of `{"segment":…}`, its lines, and `{"seal":…,"signature":…}`. A log whose oldest
//! segments were exported and removed begins with `{"removed":…,"signature":…}`.

use super::key::{PublicKey, SigningKey};
use meridian_manager_core::facts::audit::Line;
use meridian_shared::ids::JournalId;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The beginning of a segment. The seal repeats it, signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// Counts segments from 1.
    pub number: u64,
    /// Number of the first line.
    pub first: u64,
}

/// The signed end of a segment. It has the hash of the previous seal, so segments form a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    pub journal: JournalId,
    pub number: u64,
    pub first: u64,
    pub last: u64,
    /// Hash of the last line of the previous segment; empty in the first segment.
    pub before: String,
    /// Hash of the last line.
    pub head: String,
    /// Hash of the previous seal; zeros in the first segment.
    pub previous: String,
    /// SHA-256 of all bytes of the file before the seal.
    pub digest: String,
    pub at: Wall,
    /// The key that signed the seal.
    pub key: PublicKey,
}

/// The signed statement that the oldest segments were exported and removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removed {
    pub journal: JournalId,
    /// The last segment that was removed.
    pub through: u64,
    /// Number of that segment's last line; `head` is the line's hash.
    pub last: u64,
    pub head: String,
    /// Hash of that segment's seal.
    pub seal: String,
    pub at: Wall,
    pub key: PublicKey,
}

/// A document that is signed.
pub trait Statement: Serialize {
    /// Purpose of the signature, so that it can't be used for another kind of statement.
    const PURPOSE: &'static str;

    fn key(&self) -> &PublicKey;

    /// The bytes that are signed.
    fn bytes(&self) -> Vec<u8> {
        let body = serde_json::to_vec(self).expect("our own types serialise");
        [Self::PURPOSE.as_bytes(), b"\n", &body].concat()
    }
}

impl Statement for Seal {
    const PURPOSE: &'static str = "meridian audit seal 1";

    fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl Statement for Removed {
    const PURPOSE: &'static str = "meridian audit removed 1";

    fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl Seal {
    /// Hash of this seal, which the next seal contains.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.bytes()).into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpeningLine {
    pub segment: Opening,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealLine {
    pub seal: Seal,
    pub signature: String,
}

impl SealLine {
    pub(super) fn new(seal: Seal, key: &SigningKey) -> Self {
        Self { signature: key.sign(&seal.bytes()), seal }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedLine {
    pub removed: Removed,
    pub signature: String,
}

impl RemovedLine {
    pub(super) fn new(removed: Removed, key: &SigningKey) -> Self {
        Self { signature: key.sign(&removed.bytes()), removed }
    }
}

/// One document of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Removed(Box<RemovedLine>),
    Opening(Opening),
    Line(Box<Line>),
    Seal(Box<SealLine>),
}

impl Document {
    /// Parses a document from a line of text. Fails if the text is no known kind of document.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let value: Value = serde_json::from_slice(text)?;
        if value.get("segment").is_some() {
            return Ok(Self::Opening(serde_json::from_value::<OpeningLine>(value)?.segment));
        }
        if value.get("seal").is_some() {
            return Ok(Self::Seal(Box::new(serde_json::from_value(value)?)));
        }
        if value.get("removed").is_some() {
            return Ok(Self::Removed(Box::new(serde_json::from_value(value)?)));
        }
        // parse the text again, because a `Value` would hide a duplicate key
        Ok(Self::Line(Box::new(serde_json::from_slice(text)?)))
    }
}

/// `bytes` in lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `document` as a line of a file.
pub(super) fn text(document: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(document).expect("our own types serialise");
    text.push(b'\n');
    text
}

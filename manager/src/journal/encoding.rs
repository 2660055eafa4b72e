//! The bytes of format 3: the header, the envelope around every value, and the journal's own rows.
//!
//! This module owns the encoding and must not know the store under it. Every value is an envelope:
//!
//! ```text
//!  byte 0      version (1)
//!  bytes 1..5  check: low half of hash(table, key, payload), little-endian
//!  bytes 5..   payload
//! ```
//!
//! The store has its own checksums but verifies them only when it repairs. The check here is verified on
//! every read. It covers table and key, so a value in the wrong place is detected too. A record also holds
//! the number of the previous record, so that a missing record is detected. A body is stored under its
//! content hash, which its readers check. Numbers are little-endian.

use super::medium::FileIdentity;
use super::{AuditCut, AuditNumber, Batch, Meta};
use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;

/// Header of a journal that this program reads and writes.
pub const FORMAT: &str = "meridian journal 3";

/// Prefix of the header of every version.
pub(super) const FORMAT_FAMILY: &str = "meridian journal ";

/// Bytes of one chunk of a snapshot. With envelope and page header it stays below 1 MiB; the store rounds a
/// value up to a power of two of pages.
pub(super) const CHUNK_BYTES: usize = (1 << 20) - (4 << 10);

const ENVELOPE_VERSION: u8 = 1;
const ENVELOPE_BYTES: usize = 5;

/// The table that a value is in. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Table {
    Log = 1,
    Snapshot = 2,
    Body = 3,
    Audit = 4,
    Meta = 5,
}

impl Table {
    /// The name in messages.
    const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Snapshot => "snapshot",
            Self::Body => "body",
            Self::Audit => "audit",
            Self::Meta => "meta",
        }
    }
}

/// Keys of the rows in the meta table, as hashed into their checks.
const META_ROW: u128 = 1;
const STATE_ROW: u128 = 2;
const SNAPSHOT_ROW: u128 = 3;
const AUDIT_ROW: u128 = 4;

/// 2^64 divided by the golden ratio, made odd (Knuth's multiplicative hashing).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Ends a hash: the finalizer of splitmix64 (Steele, Lea, Flood 2014).
const fn finish(mut h: u64) -> u64 {
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// A hash against accidents, not against attackers. Each step is a bijection of the state and of the word, so
/// a change within one word always changes the 64 bits.
pub(super) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut h = seed ^ (bytes.len() as u64).wrapping_mul(SPREAD);
    let mut step = |word: [u8; 8]| {
        h = (h ^ u64::from_le_bytes(word)).wrapping_mul(SPREAD);
        h ^= h >> 32;
    };
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        step(*word);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        step(last);
    }
    finish(h)
}

fn value_hash(table: Table, key: u128, payload: &[u8]) -> u64 {
    let seed = finish(finish(table as u64 ^ key as u64) ^ (key >> 64) as u64);
    hash(seed, payload)
}

/// Puts `payload` into an envelope. Also returns its hash, for the chain.
pub(super) fn seal(table: Table, key: u128, payload: &[u8]) -> (Vec<u8>, u64) {
    let hash = value_hash(table, key, payload);
    let mut value = Vec::with_capacity(ENVELOPE_BYTES + payload.len());
    value.push(ENVELOPE_VERSION);
    value.extend_from_slice(&(hash as u32).to_le_bytes());
    value.extend_from_slice(payload);
    (value, hash)
}

/// Takes the payload out of an envelope. The error says why the value can't be trusted.
pub(super) fn unseal(table: Table, key: u128, value: &[u8]) -> Result<&[u8], String> {
    let Some((head, payload)) = value.split_first_chunk::<ENVELOPE_BYTES>() else {
        return Err(format!("entry `{key}` of `{}` has `{}` bytes, too few", table.name(), value.len()));
    };
    let [version, check @ ..] = *head;
    if version != ENVELOPE_VERSION {
        return Err(format!("entry `{key}` of `{}` has the unknown version `{version}`", table.name()));
    }
    if u32::from_le_bytes(check) != value_hash(table, key, payload) as u32 {
        return Err(format!("entry `{key}` of `{}` fails its check", table.name()));
    }
    Ok(payload)
}

/// The value of record `number`, which follows record `after`.
pub(super) fn seal_record(number: u64, after: u64, record: &[u8]) -> Vec<u8> {
    seal(Table::Log, number.into(), &[&after.to_le_bytes(), record].concat()).0
}

/// Takes a record out of the payload of its envelope, with the number of the previous record.
pub(super) fn split_record(number: u64, payload: &[u8]) -> Result<(u64, &[u8]), String> {
    let (after, record) =
        payload.split_first_chunk().ok_or_else(|| format!("record `{number}` is too short"))?;
    Ok((u64::from_le_bytes(*after), record))
}

/// Splits fixed-width fields off the front of a row.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) =
            self.0.split_first_chunk::<N>().ok_or("one of the journal's own rows is too short")?;
        self.0 = rest;
        Ok(*head)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    fn end(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err("one of the journal's own rows is too long".into()) }
    }
}

/// The row that is written when the journal is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MetaRow {
    pub(super) meta: Meta,
    /// The file that the journal was created in, or that an operator accepted last.
    pub(super) identity: FileIdentity,
}

impl MetaRow {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(48);
        row.extend_from_slice(&self.meta.journal.0.to_be_bytes());
        row.extend_from_slice(&self.identity.device.to_le_bytes());
        row.extend_from_slice(&self.identity.inode.to_le_bytes());
        // no file was created in 1970, so 0 can stand for "not kept"
        row.extend_from_slice(&self.identity.born_ns.unwrap_or(0).to_le_bytes());
        row.extend_from_slice(&self.meta.created.0.to_le_bytes());
        seal(Table::Meta, META_ROW, &row).0
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, String> {
        let mut fields = Fields(unseal(Table::Meta, META_ROW, value)?);
        let journal = JournalId(u128::from_be_bytes(fields.take()?));
        let identity = FileIdentity {
            device: fields.u64()?,
            inode: fields.u64()?,
            born_ns: Some(fields.u64()?).filter(|&ns| ns != 0),
        };
        let created = Wall(i64::from_le_bytes(fields.take()?));
        fields.end().map(|()| Self { meta: Meta { journal, created }, identity })
    }
}

/// The row that every commit replaces: the end of the journal, and the condition of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) leadership: Leadership,
    pub(super) last: RecordNumber,
    pub(super) chain: u64,
    /// Counts transactions, so that even an empty transaction of another writer is detected.
    pub(super) commits: u64,
    /// Number of the next audit line to write.
    pub(super) audit_next: u64,
    /// The last record that is only in the snapshot.
    pub(super) truncated: RecordNumber,
}

impl State {
    /// The state of a new journal.
    pub(super) fn genesis(journal: JournalId) -> Self {
        Self {
            leadership: Leadership { epoch: 0, id: 0 },
            last: RecordNumber(0),
            chain: hash(0, &journal.0.to_be_bytes()),
            commits: 0,
            audit_next: 1,
            truncated: RecordNumber(0),
        }
    }

    /// The state after `batch`.
    pub(super) fn after(&self, batch: &Batch) -> Self {
        let mut next =
            Self { leadership: batch.leadership, last: batch.last(), commits: self.commits + 1, ..*self };
        if batch.is_empty() {
            return next;
        }
        let mut mix = |word: u64| next.chain = finish((next.chain ^ word).wrapping_mul(SPREAD));
        mix(batch.leadership.epoch);
        mix(batch.leadership.id);
        for (number, record) in (batch.first.0..).zip(&batch.records) {
            mix(value_hash(Table::Log, number.into(), record));
        }
        for (number, line) in (self.audit_next..).zip(&batch.audit) {
            mix(value_hash(Table::Audit, number.into(), line));
        }
        if let Some(cut) = &batch.audit_cut {
            mix(cut.first.0);
        }
        next.audit_next = self.audit_next.saturating_add(batch.audit.len() as u64);
        if let Some(snapshot) = &batch.snapshot {
            next.truncated = self.truncated.max(snapshot.through);
        }
        next
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let words = [
            self.leadership.epoch,
            self.leadership.id,
            self.last.0,
            self.chain,
            self.commits,
            self.audit_next,
            self.truncated.0,
        ];
        let row: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        seal(Table::Meta, STATE_ROW, &row).0
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, String> {
        let mut fields = Fields(unseal(Table::Meta, STATE_ROW, value)?);
        let state = Self {
            leadership: Leadership { epoch: fields.u64()?, id: fields.u64()? },
            last: RecordNumber(fields.u64()?),
            chain: fields.u64()?,
            commits: fields.u64()?,
            audit_next: fields.u64()?,
            truncated: RecordNumber(fields.u64()?),
        };
        fields.end().map(|()| state)
    }
}

/// The bytes of a cut. A journal has this row once it has a segment.
pub(super) fn encode_cut(cut: &AuditCut) -> Vec<u8> {
    let mut row = Vec::with_capacity(56);
    row.extend_from_slice(&cut.segments.to_le_bytes());
    row.extend_from_slice(&cut.through.0.to_le_bytes());
    row.extend_from_slice(&cut.seal);
    row.extend_from_slice(&cut.first.0.to_le_bytes());
    seal(Table::Meta, AUDIT_ROW, &row).0
}

/// The inverse of [`encode_cut`].
pub(super) fn decode_cut(value: &[u8]) -> Result<AuditCut, String> {
    let mut fields = Fields(unseal(Table::Meta, AUDIT_ROW, value)?);
    let cut = AuditCut {
        segments: fields.u64()?,
        through: AuditNumber(fields.u64()?),
        seal: fields.take()?,
        first: AuditNumber(fields.u64()?),
    };
    fields.end().map(|()| cut)
}

/// Expected totals of the snapshot's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotRow {
    pub(super) through: RecordNumber,
    pub(super) bytes: u64,
    pub(super) chunks: u64,
    pub(super) hash: u64,
}

impl SnapshotRow {
    pub(super) fn of(through: RecordNumber, bytes: &[u8]) -> Self {
        Self {
            through,
            bytes: bytes.len() as u64,
            chunks: bytes.len().div_ceil(CHUNK_BYTES) as u64,
            hash: hash(through.0, bytes),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let row: Vec<u8> = [self.through.0, self.bytes, self.chunks, self.hash]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        seal(Table::Meta, SNAPSHOT_ROW, &row).0
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, String> {
        let mut fields = Fields(unseal(Table::Meta, SNAPSHOT_ROW, value)?);
        let row = Self {
            through: RecordNumber(fields.u64()?),
            bytes: fields.u64()?,
            chunks: fields.u64()?,
            hash: fields.u64()?,
        };
        fields.end().map(|()| row)
    }
}

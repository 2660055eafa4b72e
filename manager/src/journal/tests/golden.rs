//! The bytes of format 3, fixed. A change here needs a new version of the format, with a reader for the old
//! one.

use super::*;
use crate::journal::Meta;
use crate::journal::encoding::{
    FORMAT, MetaRow, SnapshotRow, State, Table, decode_cut, encode_cut, seal, seal_record, split_record,
    unseal,
};
use crate::journal::mark::{BootId, Mark};
use crate::journal::medium::FileIdentity;
use meridian_shared::time::Mono;
use std::fmt::Write;
use std::path::PathBuf;

const CHECKED_IN: &str = include_str!("golden/format-3.txt");

/// Environment variable that makes the test write the file again, for a new version of the format.
const WRITE: &str = "MERIDIAN_WRITE_GOLDEN";

fn meta() -> MetaRow {
    MetaRow {
        meta: Meta { journal: ID, created: MADE },
        identity: FileIdentity { device: 7, inode: 1234, born_ns: Some(1_700_000_000_123_456_789) },
    }
}

fn first_batch() -> Batch {
    Batch {
        records: vec![b"{\"kind\":\"submitted\"}".to_vec(), vec![]],
        audit: vec![b"who did what".to_vec()],
        snapshot: Some(Snapshot { through: RecordNumber(1), bytes: b"world".to_vec() }),
        ..Batch::new(FIRST, RecordNumber(0))
    }
}

fn state() -> State {
    State::genesis(ID).after(&first_batch())
}

fn mark() -> Mark {
    Mark {
        journal: ID,
        leadership: FIRST,
        last: RecordNumber(2),
        chain: state().chain,
        boot: BootId(0xb007),
        at: Mono(123_456),
    }
}

fn values() -> Vec<(&'static str, Vec<u8>)> {
    let long: Vec<u8> = (0..=255).collect();
    vec![
        ("meta/format", FORMAT.as_bytes().to_vec()),
        ("meta/meta", meta().encode()),
        ("meta/state", state().encode()),
        ("meta/snapshot", SnapshotRow::of(RecordNumber(1), b"world").encode()),
        ("log/1", seal_record(1, 0, b"{\"kind\":\"submitted\"}")),
        ("log/2", seal_record(2, 1, b"")),
        ("log/18446744073709551615", seal_record(u64::MAX, 7, &long)),
        ("snapshot/0", seal(Table::Snapshot, 0, b"world").0),
        ("body/content", seal(Table::Body, ContentHash::of(b"spec").0, b"spec").0),
        ("audit/1", seal(Table::Audit, 1, b"who did what").0),
        ("mark", mark().encode().to_vec()),
    ]
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_bytes_are_the_checked_in_ones() {
    let mut text = String::from("# values of format 3: table/key, then the value in hexadecimal\n");
    for (name, value) in values() {
        write!(text, "{name} ").unwrap();
        for byte in value {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    if std::env::var_os(WRITE).is_some() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/journal/tests/golden/format-3.txt");
        std::fs::write(path, &text).unwrap();
        return;
    }
    assert_eq!(text, CHECKED_IN);
}

#[test]
fn the_checked_in_bytes_are_read() {
    let value = |name: &str| {
        let line = CHECKED_IN.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        unhex(line.unwrap_or_else(|| panic!("no `{name}`")))
    };
    assert_eq!(value("meta/format"), b"meridian journal 3");
    assert_eq!(MetaRow::decode(&value("meta/meta")).unwrap(), meta());
    assert_eq!(State::decode(&value("meta/state")).unwrap(), state());
    let row = SnapshotRow::decode(&value("meta/snapshot")).unwrap();
    assert_eq!((row.through, row.bytes, row.chunks), (RecordNumber(1), 5, 1));
    let (one, two) = (value("log/1"), value("log/2"));
    let record = |number: u64, value| split_record(number, unseal(Table::Log, number.into(), value).unwrap());
    assert_eq!(record(1, &one).unwrap(), (0, &b"{\"kind\":\"submitted\"}"[..]));
    assert_eq!(record(2, &two).unwrap(), (1, &b""[..]));
    assert_eq!(unseal(Table::Snapshot, 0, &value("snapshot/0")).unwrap(), b"world");
    assert_eq!(unseal(Table::Body, ContentHash::of(b"spec").0, &value("body/content")).unwrap(), b"spec");
    assert_eq!(unseal(Table::Audit, 1, &value("audit/1")).unwrap(), b"who did what");
    assert_eq!(Mark::decode(&value("mark")).unwrap(), mark());
}

#[test]
fn a_value_is_valid_only_under_its_key_and_version() {
    let (value, _) = seal(Table::Log, 5, b"payload");
    let refused = |table, key| unseal(table, key, &value).unwrap_err();
    assert_eq!(refused(Table::Log, 6), "entry `6` of `log` fails its check");
    assert_eq!(refused(Table::Audit, 5), "entry `5` of `audit` fails its check");
    assert!(unseal(Table::Log, 5, &value[..value.len() - 1]).is_err());
    assert!(unseal(Table::Log, 5, &value[..3]).is_err());
    let mut later = value.clone();
    later[0] = 2;
    assert!(unseal(Table::Log, 5, &later).unwrap_err().contains("unknown version `2`"));
    for at in 1..value.len() {
        let mut rotten = value.clone();
        rotten[at] ^= 0x10;
        assert!(unseal(Table::Log, 5, &rotten).is_err(), "byte {at}");
    }
}

#[test]
fn a_row_of_another_length_is_refused() {
    let cut = AuditCut { segments: 3, through: AuditNumber(40), seal: [7; 32], first: AuditNumber(9) };
    let snapshot = SnapshotRow::of(RecordNumber(1), b"world");
    let check = |key: u128, row: Vec<u8>, refusal: &dyn Fn(&[u8]) -> Option<String>| {
        assert_eq!(refusal(&row), None, "row {key}");
        let payload = unseal(Table::Meta, key, &row).unwrap();
        let resealed = |payload: &[u8]| seal(Table::Meta, key, payload).0;
        let (shorter, longer) = (resealed(&payload[1..]), resealed(&[payload, b"x"].concat()));
        assert_eq!(refusal(&shorter).unwrap(), "one of the journal's own rows is too short");
        assert_eq!(refusal(&longer).unwrap(), "one of the journal's own rows is too long");
    };
    check(1, meta().encode(), &|row| MetaRow::decode(row).err());
    check(2, state().encode(), &|row| State::decode(row).err());
    check(3, snapshot.encode(), &|row| SnapshotRow::decode(row).err());
    check(4, encode_cut(&cut), &|row| decode_cut(row).err());
    assert_eq!(decode_cut(&encode_cut(&cut)).unwrap(), cut);
}

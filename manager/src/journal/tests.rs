//! Tests of the journal: what a caller sees, crashes, full disks, damage, and the bytes on disk.

mod behaviour;
mod crash;
mod damage;
mod full_disk;
mod golden;
mod marks;
mod media;
mod read_only;

use super::faulty::{Faults, FaultyDisk};
use super::{AuditCut, AuditNumber, Batch, Journal, RedbJournal, Snapshot};
use meridian_shared::ids::{ContentHash, JournalId, Leadership, RecordNumber};
use meridian_shared::time::Wall;
use std::collections::BTreeMap;

const ID: JournalId = JournalId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
const MADE: Wall = Wall(1_700_000_000_000);
const FIRST: Leadership = Leadership { epoch: 1, id: 77 };

/// A disk without faults, until a test sets some.
fn disk() -> FaultyDisk {
    FaultyDisk::new(1, 42, Faults::default())
}

fn fresh() -> (FaultyDisk, RedbJournal) {
    let disk = disk();
    let journal = RedbJournal::init_on(disk.clone(), ID, MADE).unwrap();
    (disk, journal)
}

/// A batch of `records` at the end of `journal`, by the last writer or the first leadership.
fn batch(journal: &dyn Journal, records: &[&str]) -> Batch {
    let leadership = if journal.leadership().epoch == 0 { FIRST } else { journal.leadership() };
    Batch {
        records: records.iter().map(|record| record.as_bytes().to_vec()).collect(),
        ..Batch::new(leadership, journal.last())
    }
}

/// Everything that a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    last: u64,
    records: BTreeMap<u64, Vec<u8>>,
    snapshot: Option<Snapshot>,
    audit: BTreeMap<u64, Vec<u8>>,
    audit_cut: AuditCut,
    bodies: BTreeMap<u128, Vec<u8>>,
}

impl Contents {
    /// Reads everything; of the bodies only those in `known`.
    fn of(journal: &dyn Journal, known: impl IntoIterator<Item = u128>) -> Self {
        let snapshot = journal.snapshot().unwrap();
        let from = snapshot.as_ref().map_or(RecordNumber(0), |snapshot| snapshot.through);
        let mut records = BTreeMap::new();
        let last = journal
            .replay(from, &mut |number, record| {
                records.insert(number.0, record.to_vec());
                Ok(())
            })
            .unwrap();
        let reader = journal.reader();
        let mut audit = BTreeMap::new();
        reader
            .audit(AuditNumber(0), AuditNumber(u64::MAX), &mut |number, line| {
                audit.insert(number.0, line.to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(
            reader.audit_head().unwrap().map(|(number, line)| (number.0, line)),
            audit.last_key_value().map(|(number, line)| (*number, line.clone()))
        );
        let audit_cut = reader.audit_cut().unwrap();
        let bodies = known
            .into_iter()
            .filter_map(|hash| Some((hash, reader.body(ContentHash(hash)).unwrap()?)))
            .collect();
        Self { last: last.0, records, snapshot, audit, audit_cut, bodies }
    }

    /// The contents after `batch`.
    fn after(&self, batch: &Batch) -> Self {
        let mut next = self.clone();
        next.last = batch.last().0;
        next.records.extend((batch.first.0..).zip(batch.records.iter().cloned()));
        let first = self.audit.last_key_value().map_or(1, |(number, _)| number + 1);
        next.audit.extend((first..).zip(batch.audit.iter().cloned()));
        if let Some(cut) = batch.audit_cut {
            next.audit_cut = cut;
            next.audit.retain(|&number, _| number >= cut.first.0);
        }
        for hash in &batch.drop_bodies {
            next.bodies.remove(&hash.0);
        }
        for (hash, body) in &batch.bodies {
            next.bodies.insert(hash.0, body.clone());
        }
        if let Some(snapshot) = &batch.snapshot {
            next.records.retain(|&number, _| number > snapshot.through.0);
            next.snapshot = Some(snapshot.clone());
        }
        next
    }
}

impl Contents {
    /// Sometimes another segment, or the next lines to drop.
    fn next_cut(&self, random: &mut Random) -> Option<AuditCut> {
        let (cut, draw) = (self.audit_cut, random.below(4));
        let head = self.audit.last_key_value().map_or(0, |(number, _)| *number);
        let first = |through: u64| AuditNumber((cut.first.0 + draw + 1).min(through + 1));
        if cut.first <= cut.through {
            return Some(AuditCut { first: first(cut.through.0), ..cut });
        }
        let through = cut.through.0 + 3;
        (draw > 0 && through < head).then(|| AuditCut {
            segments: cut.segments + 1,
            through: AuditNumber(through),
            seal: [cut.segments as u8; 32],
            first: first(through),
        })
    }
}

/// A deterministic stream of numbers.
struct Random(u64);

impl Random {
    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

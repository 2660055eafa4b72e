//! Writes of one batch, and the replies that wait for it.

use crate::host::replies::Unavailable;
use crate::journal::{self, Batch};
use meridian_manager_core::facts::input::Write;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::lifecycle::LifecycleEvent;
use meridian_manager_core::facts::outcome::{Outcome, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_shared::ids::{ClusterName, ContentHash, Leadership, RecordNumber, Uid};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Assumed size of a record before it is encoded. Most records are smaller.
const RECORD_BYTES: usize = 512;

/// One batch while it is being decided.
#[derive(Debug)]
pub struct PendingBatch<C> {
    pub records: Vec<(RecordNumber, Record)>,
    /// Estimated size of the batch.
    pub bytes: usize,
    pub bodies: HashMap<ContentHash, Arc<str>>,
    pub dropped: BTreeSet<ContentHash>,
    pub urgent: bool,
    /// Clusters with a parked poll that can be answered after the commit.
    pub wake: BTreeSet<ClusterName>,
    pub changed: BTreeSet<Key>,
    pub workloads: BTreeSet<Uid>,
    pub replies: Vec<(C, Reply)>,
    pub lifecycle_events: Vec<LifecycleEvent>,
    /// Dropped with the batch on the committer's thread, because dropping a large write takes time.
    pub spent: Vec<Write>,
}

impl<C> Default for PendingBatch<C> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            bytes: 0,
            bodies: HashMap::new(),
            dropped: BTreeSet::new(),
            urgent: false,
            wake: BTreeSet::new(),
            changed: BTreeSet::new(),
            workloads: BTreeSet::new(),
            replies: Vec::new(),
            lifecycle_events: Vec::new(),
            spent: Vec::new(),
        }
    }
}

impl<C> PendingBatch<C> {
    /// Adds the outcome of one input; returns its reply.
    pub fn take(&mut self, outcome: Outcome) -> Reply {
        let Outcome {
            records,
            bodies,
            dropped_bodies,
            reply,
            wake,
            changed,
            workloads,
            urgent,
            lifecycle_events,
            spent,
        } = outcome;
        self.bytes += RECORD_BYTES * records.len();
        self.records.extend(records);
        for (hash, body) in bodies {
            self.bytes += body.len();
            self.dropped.remove(&hash);
            self.bodies.insert(hash, body);
        }
        for hash in dropped_bodies {
            // a body that is added and dropped in one batch is never written
            if self.bodies.remove(&hash).is_none() {
                self.dropped.insert(hash);
            }
        }
        self.wake.extend(wake);
        self.changed.extend(changed);
        self.workloads.extend(workloads);
        self.urgent |= urgent;
        self.lifecycle_events.extend(lifecycle_events);
        self.spent.extend(spent);
        reply
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Answer to the callers of a batch that isn't durable.
    pub fn failure(cause: &journal::Error) -> Unavailable {
        match cause {
            journal::Error::Full { .. } => Unavailable::Full,
            _ => Unavailable::NotCommitted,
        }
    }

    /// The transactions that make the batch durable after the record `after`, and their size in bytes. More
    /// than one only if a leadership skipped record numbers within the batch. The first adds the bodies, the
    /// last drops bodies.
    pub fn batches(&self, leadership: Leadership, after: RecordNumber, urgent: bool) -> (Vec<Batch>, usize) {
        let mut batches: Vec<Batch> = Vec::new();
        let mut bytes = self.bodies.values().map(|body| body.len()).sum();
        for (number, record) in &self.records {
            let last = batches.last().map_or(after, Batch::last);
            if batches.is_empty() || *number != last.next() {
                batches.push(Batch {
                    first: *number,
                    urgent: urgent || self.urgent,
                    ..Batch::new(leadership, last)
                });
            }
            let batch = batches.last_mut().expect("pushed above");
            let encoded = match record {
                Record::Audited(line) => {
                    let line = encode(line);
                    let record = audited(&line);
                    batch.audit.push(line);
                    record
                }
                record => encode(record),
            };
            bytes += encoded.len();
            batch.records.push(encoded);
        }
        if let Some(first) = batches.first_mut() {
            first.bodies = self.bodies.iter().map(|(hash, body)| (*hash, body.as_bytes().to_vec())).collect();
            first.bodies.sort_unstable_by_key(|(hash, _)| *hash);
        }
        if let Some(last) = batches.last_mut() {
            last.drop_bodies = self.dropped.iter().copied().collect();
        }
        (batches, bytes)
    }
}

fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("our own types serialise")
}

/// The record of an audit line that is already encoded.
fn audited(line: &[u8]) -> Vec<u8> {
    [b"{\"Audited\":", line, b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::faulty::{Faults, FaultyDisk};
    use crate::journal::{Journal, RedbJournal};
    use meridian_manager_core::facts::actor::Actor;
    use meridian_manager_core::facts::audit::{Action, Entry, Head, Line};
    use meridian_manager_core::facts::record::WorkloadFact;
    use meridian_shared::ids::JournalId;
    use meridian_shared::time::Wall;

    fn outcome(numbers: &[u64]) -> Outcome {
        let records = numbers
            .iter()
            .map(|n| {
                (
                    RecordNumber(*n),
                    Record::Workload { uid: Uid(u128::from(*n)), fact: WorkloadFact::Forgotten },
                )
            })
            .collect();
        Outcome { records, ..Outcome::default() }
    }

    #[test]
    fn skipped_numbers_split_a_batch_and_keep_every_number() {
        let mut journal =
            RedbJournal::init_on(FaultyDisk::new(1, 1, Faults::default()), JournalId(1), Wall(0)).unwrap();
        let mut pending = PendingBatch::<()>::default();
        pending.take(outcome(&[1, 2]));
        pending.take(outcome(&[9, 10]));
        let (batches, _) = pending.batches(Leadership { epoch: 1, id: 1 }, journal.last(), false);
        assert_eq!(
            batches.iter().map(|b| (b.after.0, b.first.0, b.last().0)).collect::<Vec<_>>(),
            [(0, 1, 2), (2, 9, 10)]
        );
        batches.iter().for_each(|b| journal.commit(b).unwrap());
        let mut numbers = Vec::new();
        let mut note = |number: RecordNumber, _: &[u8]| {
            numbers.push(number.0);
            Ok(())
        };
        journal.replay(RecordNumber(0), &mut note).unwrap();
        assert_eq!(numbers, [1, 2, 9, 10]);
    }

    #[test]
    fn an_audit_line_is_encoded_once() {
        let entry = Entry { cluster: Some("eu".into()), ..Entry::new(Action::Grant, "\"ü\"".into()) };
        let line = Line::after(&Head::default(), Wall(7), Actor::System, entry);
        assert_eq!(audited(&encode(&line)), encode(&Record::Audited(Box::new(line))));
    }

    #[test]
    fn a_body_that_is_added_and_dropped_is_not_written() {
        let mut pending = PendingBatch::<()>::default();
        let (one, two) = (ContentHash(1), ContentHash(2));
        pending.take(Outcome { bodies: vec![(one, "1".into())], dropped_bodies: vec![two], ..outcome(&[1]) });
        pending.take(Outcome { bodies: vec![(two, "2".into())], dropped_bodies: vec![one], ..outcome(&[2]) });
        assert_eq!(pending.bodies.keys().copied().collect::<Vec<_>>(), [two]);
        assert!(pending.dropped.is_empty());
    }
}

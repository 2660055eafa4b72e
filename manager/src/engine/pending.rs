//! What one batch will write, and whom it will answer afterwards.

use meridian_manager_core::facts::record::{WorkloadFact};
use super::Unavailable;
use crate::journal::{self, Batch};
use meridian_manager_core::facts::input::Write;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::lifecycle::Milestone;
use meridian_manager_core::facts::outcome::{Outcome, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_shared::ids::{ClusterName, ContentHash, Leadership, RecordNumber, Uid};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a record is reckoned to take before it is encoded: most take less.
const RECORD_BYTES: usize = 512;

/// Who waits for a reply.
pub(super) type Caller = oneshot::Sender<Result<Reply, Unavailable>>;

/// One batch under way.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) records: Vec<(RecordNumber, Record)>,
    /// What it will take, about.
    pub(super) bytes: usize,
    pub(super) bodies: HashMap<ContentHash, Arc<str>>,
    pub(super) dropped: BTreeSet<ContentHash>,
    pub(super) urgent: bool,
    /// To whom there is something to say.
    pub(super) wake: BTreeSet<ClusterName>,
    pub(super) changed: BTreeSet<Key>,
    pub(super) workloads: BTreeSet<Uid>,
    pub(super) replies: Vec<(Caller, Reply)>,
    pub(super) milestones: Vec<Milestone>,
    /// Let go of with the batch, on the scribe's thread.
    pub(super) spent: Vec<Write>,
}

impl Pending {
    /// Takes what one input came to; returns its reply.
    pub(super) fn take(&mut self, outcome: Outcome) -> Reply {
        let Outcome {
            records,
            bodies,
            dropped_bodies,
            reply,
            wake,
            changed,
            workloads,
            urgent,
            milestones,
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
            // A body that came and went within one batch is never written.
            if self.bodies.remove(&hash).is_none() {
                self.dropped.insert(hash);
            }
        }
        self.wake.extend(wake);
        self.changed.extend(changed);
        self.workloads.extend(workloads);
        self.urgent |= urgent;
        self.milestones.extend(milestones);
        self.spent.extend(spent);
        reply
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Tells everybody who waits that it is not durable, and why where they can do something about it.
    pub(super) fn fail(self, cause: &journal::Error) {
        let why = if matches!(cause, journal::Error::Full { .. }) {
            Unavailable::Full
        } else {
            Unavailable::NotCommitted
        };
        for (caller, _) in self.replies {
            // Who has gone away needs no answer.
            let _ = caller.send(Err(why));
        }
    }

    /// The transactions that make it durable behind the record `after`, and what they take: one, unless a leadership skipped
    /// record numbers within the batch. Everything but the records and their audit lines is in the first, except for what is
    /// dropped, which is in the last.
    pub(super) fn batches(
        &self,
        leadership: Leadership,
        after: RecordNumber,
        urgent: bool,
    ) -> (Vec<Batch>, usize) {
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

/// The record of an audit line that is encoded already.
fn audited(line: &[u8]) -> Vec<u8> {
    [b"{\"Audited\":", line, b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::faulty::{Faults, FaultyDisk};
    use crate::journal::{Journal, RedbJournal};
    use meridian_manager_core::facts::actor::Actor;
    use meridian_manager_core::facts::audit::{Entry, Head, Line};
    use meridian_shared::ids::JournalId;
    use meridian_shared::time::Wall;

    fn outcome(numbers: &[u64]) -> Outcome {
        let records = numbers
            .iter()
            .map(|n| (RecordNumber(*n), Record::Workload { uid: Uid(u128::from(*n)), fact: WorkloadFact::Forgotten }))
            .collect();
        Outcome { records, ..Outcome::default() }
    }

    #[test]
    fn skipped_numbers_split_a_batch_and_keep_every_number() {
        let mut journal =
            RedbJournal::init_on(FaultyDisk::new(1, 1, Faults::default()), JournalId(1), Wall(0)).unwrap();
        let mut pending = Pending::default();
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
        let entry = Entry {
            action: "grant".into(),
            subject: "\"ü\"".into(),
            cluster: Some("eu".into()),
            verdict: None,
            rule: None,
            detail: None,
        };
        let line = Line::after(&Head::default(), Wall(7), Actor::system(), entry);
        assert_eq!(audited(&encode(&line)), encode(&Record::Audited(Box::new(line))));
    }

    #[test]
    fn a_body_that_comes_and_goes_is_not_written() {
        let mut pending = Pending::default();
        let (one, two) = (ContentHash(1), ContentHash(2));
        pending.take(Outcome { bodies: vec![(one, "1".into())], dropped_bodies: vec![two], ..outcome(&[1]) });
        pending.take(Outcome { bodies: vec![(two, "2".into())], dropped_bodies: vec![one], ..outcome(&[2]) });
        assert_eq!(pending.bodies.keys().copied().collect::<Vec<_>>(), [two]);
        assert!(pending.dropped.is_empty());
    }
}

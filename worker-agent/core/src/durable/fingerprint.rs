//! The part of the durable state that later behaviour depends on, for the model checker.

use super::{Durable, StoredRun, Tombstone};
use meridian_shared::protocol::Receipt;
use std::hash::{Hash, Hasher};

impl Durable {
    /// Feeds what a restart would read into `into`, without calendar moments and texts.
    pub fn hash_fingerprint(&self, into: &mut impl Hasher) {
        let Self { ledger, sessions, follows, fences, runs, tombstones, receipts } = self;
        (ledger, sessions, follows, fences).hash(into);
        for (uid, StoredRun { record, phase, lease, boot, stamp: _, allocation, provided, toleration }) in
            runs
        {
            (uid, phase, lease.map(|l| l.lapses), boot).hash(into);
            record.hash_fingerprint(into);
            record.waiting_since.hash(into);
            (allocation.leaving(), allocation.reclaimed(), provided, toleration).hash(into);
        }
        for Tombstone { end, refused, acknowledged } in tombstones.values() {
            (end, refused, acknowledged.map(|(by, record, _)| (by, record))).hash(into);
        }
        for (Receipt { journal, leadership, record, rules, audit_head: _, mac: _ }, members) in
            receipts.by_journal().values().flat_map(|by| by.values())
        {
            (journal, leadership, record, rules, members).hash(into);
        }
    }
}

//! A hash of the state that an agent's later behaviour depends on: a model checker treats two agents with the
//! same fingerprint as equal.
//!
//! Left out are calendar moments, texts, everything derived, and the sending times of transmissions that
//! can't be answered any more. Every struct is destructured, so that a new field has to be considered.

use super::Agent;
use meridian_shared::time::Mono;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

impl Agent {
    /// Feeds the fingerprint of this agent at `now` into `into`. `in_flight` are the transmissions that may
    /// still be answered. Only the order of numbers matters, so `number` may map them to smaller ones.
    pub fn hash_fingerprint(
        &self,
        now: Mono,
        in_flight: &BTreeSet<u64>,
        number: &dyn Fn(u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self {
            config: _,
            session,
            durable,
            ledger,
            offers,
            runs,
            replacement_queue: _,
            unavailable_kinds: _,
            strays,
            transmissions,
            commands,
            events,
            capacity,
            usage,
            inventory_due,
            ranges,
            poll: _,
            lost,
            due: _,
            purged: _,
            elapsed,
        } = self;
        durable.hash_fingerprint(into);
        (session, events, strays, lost, inventory_due, ranges, elapsed.skipped()).hash(into);
        (self.waits_left(), ledger.toleration_left()).hash(into);
        transmissions.hash_fingerprint(now, in_flight, number, into);
        commands.hash_fingerprint(now, into);
        usage.hash_fingerprint(number, into);
        capacity.hash_fingerprint(ledger, number, into);
        offers.hash_fingerprint(now, into);
        runs.hash_fingerprint(now, into);
        for (_, run) in runs.iter() {
            ledger.reclaimed_indexes(run.record.offer).hash(into);
        }
    }
}

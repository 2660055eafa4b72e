//! What the later behaviour of an agent depends on, and nothing else: how a model checker knows two agents as one.
//!
//! Left out are the moments of transmissions whose answers can't arrive any more, calendar moments, words for people, and
//! whatever else is derived. Every struct is taken apart field by field, so that a new field has to be judged here.

use crate::durable::{Durable, StoredRun, Tombstone};
use crate::link::CapacityReports;
use crate::{Agent, LiveRun, OfferState, OpenOffer};
use meridian_shared::ids::LedgerId;
use meridian_shared::protocol::Receipt;
use meridian_shared::time::Mono;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Keeps versions of capacity apart from transmissions where both are hashed by their order.
pub const VERSIONS: u64 = 1 << 20;

impl Agent {
    /// Feeds the essence of this agent at `now` to `into`. `flying` are the transmissions whose answers may still arrive; only
    /// their order matters, so `number` may tell their numbers from others.
    pub fn hash_essence(
        &self,
        now: Mono,
        flying: &BTreeSet<u64>,
        number: &dyn Fn(u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self {
            config: _,
            durable,
            session,
            ledger,
            offers,
            withdrawn,
            runs,
            waiting: _,
            transmissions,
            sent,
            answered,
            commands_through,
            ahead,
            events,
            events_from,
            inventory_due,
            ranges,
            capacity,
            spare_news,
            poll: _,
            strangers,
            lost,
            due: _,
            purged: _,
            elapsed,
        } = self;
        durable.hash_essence(into);
        (
            session,
            withdrawn,
            number(*answered),
            *transmissions > answered + 1,
            commands_through,
            events,
            events_from,
        )
            .hash(into);
        (strangers, lost, self.waits_left(), ledger.stays_left()).hash(into);
        for (uid, carried) in spare_news {
            (uid, *carried == 0, number(*carried)).hash(into);
        }
        (inventory_due, ranges, elapsed.skipped(), capacity.revision == Some(ledger.revision())).hash(into);
        let CapacityReports { revision: _, version, acknowledged, bases: _, pools: _, untold: _ } = capacity;
        (number(VERSIONS + version), number(VERSIONS + acknowledged)).hash(into);
        for (number, (sent, command)) in ahead {
            (number, now.since(*sent), command).hash(into);
        }
        for (sent, at) in sent.iter().filter(|(sent, _)| flying.contains(sent)) {
            (number(*sent), now.since(*at)).hash(into);
        }
        for (offer, OpenOffer { uid, gang: _, state, hold: _ }) in offers.iter() {
            let left = match state {
                OfferState::Waiting => None,
                OfferState::Held { until } => Some(until.since(now)),
            };
            (offer, uid, left).hash(into);
        }
        for (uid, run) in runs {
            let LiveRun {
                fence,
                offer,
                attempt,
                phase,
                lease,
                term: _,
                on_loss,
                spec: _,
                mac: _,
                stopped_by,
                pod_failures,
                placed,
                gang: _,
                moves,
                stranded,
                size,
                waits: _,
                growth,
                priority,
            } = run;
            (uid, fence, offer, attempt, phase).hash(into);
            growth.hash(into);
            (lease.map(|l| l.lapses.since(now)), on_loss, stopped_by, pod_failures, placed).hash(into);
            (moves, stranded, size, ledger.spare(*offer), priority).hash(into);
        }
    }
}

impl Durable {
    /// Feeds what a restart would read to `into`.
    pub fn hash_essence(&self, into: &mut impl Hasher) {
        let Self { ledger, sessions, follows, fences, runs, tombstones, receipts } = self;
        let _: &LedgerId = ledger;
        (ledger, sessions, follows, fences).hash(into);
        for (uid, run) in runs {
            let StoredRun {
                fence,
                offer,
                attempt,
                phase,
                term: _,
                on_loss,
                spec: _,
                mac: _,
                lease,
                lead: _,
                calendar: _,
                boot,
                stopped_by,
                placement: _,
                per_pod: _,
                pod_failures,
                placed,
                gang: _,
                moves,
                leaving,
                provided,
                stranded,
                spare,
                size,
                waits,
                stays,
                growth,
                priority,
            } = run;
            (uid, fence, offer, attempt, phase).hash(into);
            growth.hash(into);
            (lease.map(|l| l.lapses), on_loss, boot, stopped_by, pod_failures, placed).hash(into);
            (moves, leaving, provided, stranded, spare, size).hash(into);
            (waits, stays, priority).hash(into);
        }
        for Tombstone { end, refused, acknowledged } in tombstones.values() {
            (end, refused, acknowledged.map(|(by, record, _)| (by, record))).hash(into);
        }
        for (Receipt { journal, leadership, record, rules, audit_head: _, mac: _ }, members) in
            receipts.values().flat_map(|by| by.values())
        {
            (journal, leadership, record, rules, members).hash(into);
        }
    }
}

//! Fingerprint of a world: a hash of everything that its later behaviour depends on. A model checker treats
//! worlds with the same fingerprint as one.
//!
//! Left out are text for display, counters for metrics, the audit chain, calendar times, objects (they change
//! only together with the number of the newest rule), and ages beyond the largest age that any rule compares.
//! Every struct is taken apart field by field, so that a new field must be considered here.

use crate::sessions::LiveCluster;
use crate::sessions::outbox::Outbox;
use crate::sessions::unacknowledged::UnacknowledgedAnswer;
use crate::world::{Lease, Live, World};
use meridian_placement::reservations::{Protection, Reservations};
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::lease::{ManagerLease, disconnect_after};
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Hashes a time that matters only while it is in the future.
fn hash_deadline(now: Mono, at: Mono, into: &mut impl Hasher) {
    at.since(now).hash(into);
}

/// Hashes the age of a time. Ages beyond `limit` are equivalent.
fn hash_age(now: Mono, at: Mono, limit: Millis, into: &mut impl Hasher) {
    now.since(at).min(limit).hash(into);
}

impl World {
    /// Hashes the fingerprint of this world at `now`. Of a cluster's transmission numbers only the order
    /// matters, so `number` may map them to smaller ones.
    pub fn hash_fingerprint(
        &self,
        now: Mono,
        number: &dyn Fn(&ClusterName, u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self {
            state,
            live,
            config: _,
            queues: _,
            names: _,
            shortened_names: _,
            loads: _,
            counts_by_queue: _,
            mirror,
        } = self;
        state.hash_fingerprint(into);
        hash_live(live, now, longest_age(self), number, into);
        mirror.hash_fingerprint(into);
    }
}

/// The largest age that any rule compares: the longest lease term with clock drift.
fn longest_age(world: &World) -> Millis {
    let longest = world
        .state
        .workloads()
        .values()
        .map(|w| w.term())
        .max()
        .unwrap_or(world.config.term)
        .max(world.config.term);
    longest + meridian_shared::lease::drift(longest)
}

fn hash_live(
    live: &Live,
    now: Mono,
    age_limit: Millis,
    number: &dyn Fn(&ClusterName, u64) -> u64,
    into: &mut impl Hasher,
) {
    let Live {
        led_at,
        sole_since,
        claim_until,
        clusters,
        leases,
        released_leases: _,
        deadlines: _,
        due: _,
        awaited,
        rules_awaited,
        pending_reasons: _,
        refused,
        provider_failures,
        failed_starts,
        audited: _,
        backoff_until,
        damaged,
        scale_up_reasons: _,
        reservations,
        next_starvation_check,
        starvation_check_due,
        priority_withheld,
        capacity_changed,
        dirty,
        cuts,
        finished: _,
        lapsing,
        retained: _,
        released_at,
        sample_at,
        entered,
        counts: _,
    } = live;
    hash_age(now, *led_at, age_limit, into);
    hash_age(now, *sole_since, age_limit, into);
    hash_deadline(now, *claim_until, into);
    hash_deadline(now, *released_at, into);
    hash_deadline(now, *sample_at, into);
    entered.hash(into);
    hash_deadline(now, *next_starvation_check, into);
    (awaited, damaged, rules_awaited, starvation_check_due, priority_withheld, capacity_changed, dirty, cuts)
        .hash(into);
    for (key, ManagerLease { term: _, deadline }) in lapsing {
        key.hash(into);
        hash_deadline(now, *deadline, into);
    }
    hash_refusals(refused, now, into);
    for (key, gang, until) in provider_failures.iter() {
        (key, gang).hash(into);
        hash_deadline(now, until, into);
    }
    for (key, (times, until)) in failed_starts {
        (key, times).hash(into);
        hash_deadline(now, *until, into);
    }
    hash_backoffs(backoff_until, now, into);
    hash_reservations(reservations, now, into);
    hash_leases(leases, now, into);
    clusters.len().hash(into);
    for (cluster, live) in clusters {
        cluster.hash(into);
        hash_cluster(live, now, age_limit, &|n| number(cluster, n), into);
    }
}

fn hash_refusals(
    refused: &BTreeMap<(Uid, ClusterName), (Mono, RefuseReason, String)>,
    now: Mono,
    into: &mut impl Hasher,
) {
    for (key, (until, reason, _)) in refused {
        (key, reason).hash(into);
        hash_deadline(now, *until, into);
    }
}

fn hash_backoffs(backoff_until: &BTreeMap<Uid, Mono>, now: Mono, into: &mut impl Hasher) {
    for (uid, until) in backoff_until {
        uid.hash(into);
        hash_deadline(now, *until, into);
    }
}

fn hash_reservations(reservations: &Reservations, now: Mono, into: &mut impl Hasher) {
    reservations.kept().for_each(|reservation| reservation.hash(into));
    let (safe, rests) = reservations.pairs();
    rests.hash(into);
    for (uid, others) in safe {
        for (other, Protection { until, times }) in others {
            (uid, other, times).hash(into);
            hash_deadline(now, *until, into);
        }
    }
}

fn hash_leases(leases: &BTreeMap<Fence, Lease>, now: Mono, into: &mut impl Hasher) {
    for (fence, Lease { uid, lease: ManagerLease { term, deadline }, composed, first, start_by }) in leases {
        (fence, uid, term, first.is_some(), composed.is_some()).hash(into);
        hash_deadline(now, *deadline, into);
        hash_age(now, composed.unwrap_or(now), Millis(term.0 / 32), into);
        hash_age(now, first.unwrap_or(now), *term, into);
        hash_deadline(now, *start_by, into);
    }
}

fn hash_cluster(
    live: &LiveCluster,
    now: Mono,
    age_limit: Millis,
    number: &dyn Fn(u64) -> u64,
    into: &mut impl Hasher,
) {
    let LiveCluster {
        session,
        version: _,
        heard,
        acknowledged,
        answered,
        unacknowledged,
        acknowledged_record,
        events_through,
        inventoried,
        want_inventory,
        renew_at,
        digest_at,
        outbox,
        acknowledge,
        budget,
        capacity,
        failed_starts,
        failed_last,
        backed_off,
        located,
        supports_scale_down,
        supports_scale_up,
        supports_priority,
    } = live;
    (session, number(*answered), events_through, inventoried, want_inventory).hash(into);
    hash_age(now, *heard, disconnect_after(age_limit), into);
    hash_age(now, *acknowledged, disconnect_after(age_limit), into);
    for deadline in [renew_at, digest_at, backed_off] {
        hash_deadline(now, *deadline, into);
    }
    acknowledged_record.hash(into);
    for (transmission, UnacknowledgedAnswer { record, ends }) in unacknowledged {
        (number(*transmission), record, ends).hash(into);
    }
    hash_outbox(outbox, now, into);
    acknowledge.hash(into);
    budget.spent(now).hash(into);
    (failed_starts, failed_last, located, supports_scale_down, supports_scale_up, supports_priority)
        .hash(into);
    capacity.hash_fingerprint(number, into);
}

fn hash_outbox(outbox: &Outbox, now: Mono, into: &mut impl Hasher) {
    let (queue, first, sent, sent_at) = outbox.parts();
    (queue, first, sent).hash(into);
    hash_age(now, sent_at, crate::sessions::outbox::RESEND, into);
}

//! What the later behaviour of a world depends on, and nothing else: how a model checker knows two worlds as one.
//!
//! Left out are words for people, counters for metrics, the audit chain, calendar moments, the objects (they change only
//! together with the number of the newest rule) and how long ago something happened once no rule asks any more. Every
//! struct is taken apart field by field, so that a new field has to be judged here.

use crate::placement::reservations::Protection;
use crate::sessions::LiveCluster;
use crate::sessions::outbox::Outbox;
use crate::sessions::unacknowledged::UnacknowledgedAnswer;
use crate::world::{Lease, Live, World};
use meridian_shared::ids::ClusterName;
use meridian_shared::lease::{ManagerLease, silence};
use meridian_shared::time::{Millis, Mono};
use std::hash::{Hash, Hasher};

/// A moment that matters only while it is ahead.
fn ahead(now: Mono, at: Mono, into: &mut impl Hasher) {
    at.since(now).hash(into);
}

/// A moment whose age matters up to `most`.
fn age(now: Mono, at: Mono, most: Millis, into: &mut impl Hasher) {
    now.since(at).min(most).hash(into);
}

impl World {
    /// Feeds the essence of this world at `now` to `into`. Only the order of a cluster's transmissions matters, so `number`
    /// may tell their numbers from others.
    pub fn hash_fingerprint(
        &self,
        now: Mono,
        number: &dyn Fn(&ClusterName, u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self { state, live, config: _, queues: _, names: _, loads: _, counts_by_queue: _, mirror } = self;
        state.hash_fingerprint(into);
        hash_live(live, now, longest_memory(self), number, into);
        mirror.hash_fingerprint(into);
    }
}

/// No rule asks whether something is older than this.
fn longest_memory(world: &World) -> Millis {
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
    memory: Millis,
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
        pending_reasons: _,
        refused,
        failed_starts,
        audited: _,
        backoff_until,
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
    age(now, *led_at, memory, into);
    age(now, *sole_since, memory, into);
    ahead(now, *claim_until, into);
    ahead(now, *released_at, into);
    ahead(now, *sample_at, into);
    entered.hash(into);
    ahead(now, *next_starvation_check, into);
    (awaited, starvation_check_due, priority_withheld, capacity_changed, dirty, cuts).hash(into);
    for (key, ManagerLease { term: _, deadline }) in lapsing {
        key.hash(into);
        ahead(now, *deadline, into);
    }
    for (key, (until, reason, _)) in refused {
        (key, reason).hash(into);
        ahead(now, *until, into);
    }
    for (key, (times, until)) in failed_starts {
        (key, times).hash(into);
        ahead(now, *until, into);
    }
    for (uid, until) in backoff_until {
        uid.hash(into);
        ahead(now, *until, into);
    }
    reservations.kept().for_each(|kept| kept.hash(into));
    let (safe, rests) = reservations.pairs();
    rests.hash(into);
    for (uid, others) in safe {
        for (other, Protection { until, times }) in others {
            (uid, other, times).hash(into);
            ahead(now, *until, into);
        }
    }
    for (fence, Lease { uid, lease: ManagerLease { term, deadline }, composed, first, start_by }) in leases {
        (fence, uid, term, first.is_some(), composed.is_some()).hash(into);
        ahead(now, *deadline, into);
        age(now, composed.unwrap_or(now), Millis(term.0 / 32), into);
        age(now, first.unwrap_or(now), *term, into);
        ahead(now, *start_by, into);
    }
    clusters.len().hash(into);
    for (cluster, live) in clusters {
        cluster.hash(into);
        hash_cluster(live, now, memory, &|n| number(cluster, n), into);
    }
}

fn hash_cluster(
    live: &LiveCluster,
    now: Mono,
    memory: Millis,
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
        shrinks,
        grows,
        ranks,
    } = live;
    (session, number(*answered), events_through, inventoried, want_inventory).hash(into);
    age(now, *heard, silence(memory), into);
    age(now, *acknowledged, silence(memory), into);
    for moment in [renew_at, digest_at, backed_off] {
        ahead(now, *moment, into);
    }
    acknowledged_record.hash(into);
    for (transmission, UnacknowledgedAnswer { record, ends }) in unacknowledged {
        (number(*transmission), record, ends).hash(into);
    }
    hash_outbox(outbox, now, into);
    acknowledge.hash(into);
    budget.spent(now).hash(into);
    (failed_starts, failed_last, located, shrinks, grows, ranks).hash(into);
    capacity.hash_fingerprint(number, into);
}

fn hash_outbox(outbox: &Outbox, now: Mono, into: &mut impl Hasher) {
    let (queue, first, sent, sent_at) = outbox.parts();
    (queue, first, sent).hash(into);
    age(now, sent_at, crate::sessions::outbox::RESEND, into);
}

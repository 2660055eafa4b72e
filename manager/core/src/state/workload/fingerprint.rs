//! Hash of the parts of a workload that its later behaviour depends on.

use crate::state::legs::Leg;
use crate::state::workload::Workload;
use std::hash::{Hash, Hasher};

impl Workload {
    /// Hashes what later decisions depend on. Leaves out text for display, counters and calendar time. The
    /// workload is taken apart field by field, so that a new field must be considered here.
    pub(crate) fn hash_fingerprint(&self, into: &mut impl Hasher) {
        let Workload {
            namespace: _,
            name: _,
            kind: _,
            class: _,
            priority: _,
            body: _,
            term: _,
            on_loss: _,
            ttl: _,
            created: _,
            submitted,
            managed,
            existed,
            phase,
            since: _,
            changed: _,
            flavors: _,
            counts,
            spare,
            resized,
            ran_with,
            reserved: _,
            charged_to: _,
            legs,
            fence,
            attempts,
            pod_failures,
            completed,
            done_before,
            ran,
            started: _,
            stopping,
            preempted: _,
            evicted: _,
            evictions: _,
            resizes: _,
            inactive,
            reactivated,
            deletion,
            learned,
            finished,
            refusals: _,
            history: _,
        } = self;
        (managed, existed).hash(into);
        (submitted, phase, fence, attempts, pod_failures, completed, ran, stopping).hash(into);
        (
            spare,
            resized,
            ran_with,
            done_before,
            inactive.is_some(),
            reactivated.as_ref().map(|reactivation| reactivation.attempts),
        )
            .hash(into);
        (counts, deletion.is_some(), learned, finished.as_ref().map(|f| f.succeeded)).hash(into);
        for (offer, leg) in legs.iter() {
            offer.hash(into);
            hash_leg(leg, into);
        }
    }
}

fn hash_leg(leg: &Leg, into: &mut impl Hasher) {
    let Leg {
        cluster,
        ledger,
        state,
        fence,
        accepted,
        note: _,
        estimate: _,
        choice: _,
        // Only displayed.
        replaced_ledger: _,
        placement,
    } = leg;
    (cluster, ledger, state, fence, accepted, placement).hash(into);
}

//! Hash of the parts of durable state that later behaviour depends on.

use crate::state::State;
use crate::state::members::Orphan;
use std::hash::{Hash, Hasher};

impl State {
    pub(crate) fn hash_fingerprint(&self, into: &mut impl Hasher) {
        let State {
            journal,
            last,
            leadership,
            led_since,
            ranges,
            recovery,
            recovery_since,
            behind,
            copies_ruled_out,
            rules,
            rules_doubted,
            rules_doubted_until_heard,
            catalog: _,
            members,
            tokens: _,
            certificates: _,
            workloads,
            orphans,
            audit: _,
            offers,
            grants,
            usage_history,
            preemption_history,
        } = self;
        (journal, last, leadership, led_since, ranges, recovery).hash(into);
        (recovery_since, behind, copies_ruled_out).hash(into);
        (rules, rules_doubted, rules_doubted_until_heard, members, offers, grants).hash(into);
        // The time of a sample counts: usage decays from then on.
        usage_history.hash(into);
        preemption_history
            .iter()
            .flat_map(|(victim, others)| others.iter().map(move |other| (victim, other.by, other.times)))
            .for_each(|pair| pair.hash(into));
        workloads.len().hash(into);
        for (uid, workload) in workloads.iter() {
            uid.hash(into);
            workload.hash_fingerprint(into);
        }
        for (key, Orphan { cluster, ledger, run, stopping }) in orphans {
            (key, cluster, ledger, run, stopping).hash(into);
        }
    }
}

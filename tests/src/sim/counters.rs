//! What a run exercised. A run that grants nothing proves nothing.

use meridian_manager_core::facts::record::Record;
use meridian_manager_core::world::Counts;
use meridian_shared::protocol::{EndResult, StopReason};
use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<&'static str, u64>);

impl Counters {
    /// One more of `name`.
    pub fn one(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    /// `n` more of `name`.
    pub fn add(&mut self, name: &'static str, n: u64) {
        *self.0.entry(name).or_insert(0) += n;
    }

    /// One more of what a record says.
    pub fn record(&mut self, record: &Record) {
        let name = match record {
            Record::Led { .. } => "leaderships",
            Record::RecoveryClosed { .. } => "recoveries closed",
            Record::RulesDoubted { .. } => "rules doubted",
            Record::SessionOpened { .. } => "sessions",
            Record::Sampled { .. } => "samples of past use",
            Record::Reserved { counts: Some(_), .. } => "shrunk",
            Record::Offered { .. } => "offers",
            Record::Waited { .. } => "waits at a provider",
            Record::Held { .. } => "holds",
            Record::Refused { .. } => "refusals",
            Record::Expired { .. } => "holds expired",
            Record::Withdrawn { .. } => "withdraws",
            Record::Granted { .. } => "grants",
            Record::Running { .. } => "runs",
            Record::StopOrdered { preempted: Some(_), .. } => "displaced",
            Record::StopOrdered { reason: StopReason::Evicted, by, .. } if by.0.starts_with("user:") => {
                "runs deactivated"
            }
            Record::StopOrdered { .. } => "stops ordered",
            Record::Placed { placement, .. } if !placement.unhealthy.is_empty() => "waits for a place told",
            Record::Placed { .. } => "new places told",
            Record::Ended { result: EndResult::NodeLost { message }, .. }
                if message.contains("no other place") =>
            {
                "ends for want of a place"
            }
            Record::Ended { .. } => "ends",
            Record::GrantRefused { .. } => "grants refused",
            Record::Lapsed { .. } => "lapses",
            Record::DeclaredLost { .. } => "declared lost",
            Record::Adopted { .. } => "adoptions",
            Record::EndLearned { .. } => "ends learned",
            Record::OrphanSeen { .. } => "orphans",
            Record::OrphanStopOrdered { .. } => "orphans' stops ordered",
            Record::OrphanGone { .. } => "orphans gone",
            Record::Reclaimed { .. } => "reclaimed",
            Record::PodsFailed { .. } => "failures told",
            Record::Deactivated { .. } => "deactivated",
            Record::Activated { .. } => "reactivated",
            Record::Finished { .. } => "finished",
            Record::Forgotten { .. } => "forgotten",
            Record::Grows { .. } => "growths charged",
            Record::Grown { .. } => "growths confirmed",
            Record::NotGrown { .. } => "growths refused",
            Record::Audited(_) => "audit lines",
            _ => return,
        };
        self.one(name);
    }

    /// What a manager counted between two moments.
    pub fn differences(&mut self, before: &Counts, after: &Counts) {
        let pairs = [
            ("heads that starved", before.starved, after.starved),
            ("turns cut short", before.cut_short, after.cut_short),
            ("late holds", before.late_holds, after.late_holds),
            ("residency stops", before.residency_stops, after.residency_stops),
            ("digests differing", before.digest_mismatches, after.digest_mismatches),
            ("renewals", before.renewals, after.renewals),
            ("denials", before.denials, after.denials),
            ("illegal messages", before.illegal, after.illegal),
            ("events put off", before.put_off, after.put_off),
        ];
        for (name, before, after) in pairs {
            if after > before {
                self.add(name, after - before);
            }
        }
    }

    /// How many.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        for (name, n) in &other.0 {
            self.add(name, *n);
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, n) in &self.0 {
            writeln!(f, "{n:>9} {name}")?;
        }
        Ok(())
    }
}

//! Counters of the events of a run: a run without grants, for example, proves nothing.

use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{LeadershipFact, MemberFact, OrphanFact, WorkloadFact};
use meridian_manager_core::live::counts::{Count, Counts};
use meridian_shared::protocol::{EndResult, StopReason};
use std::collections::BTreeMap;
use std::fmt;

/// Numbers of things that happened, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<&'static str, u64>);

impl Counters {
    /// Counts one of `name`.
    pub fn one(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    /// Counts `n` of `name`.
    pub fn add(&mut self, name: &'static str, n: u64) {
        *self.0.entry(name).or_insert(0) += n;
    }

    /// Counts a record by its kind.
    pub fn record(&mut self, record: &Record) {
        let name = match record {
            Record::Leadership(LeadershipFact::Started { .. }) => "leaderships",
            Record::Leadership(LeadershipFact::RecoveryClosed { .. }) => "recoveries closed",
            Record::Leadership(LeadershipFact::RulesDoubted { .. }) => "rules doubted",
            Record::Leadership(LeadershipFact::CopiesRuledOut { .. }) => "copies ruled out",
            Record::Member { fact: MemberFact::SessionOpened { .. }, .. } => "sessions",
            Record::UsageSampled { .. } => "usage samples",
            Record::Workload { fact: WorkloadFact::QuotaReserved { counts: Some(_), .. }, .. } => {
                "admissions with fewer pods"
            }
            Record::Workload { fact: WorkloadFact::Offered { .. }, .. } => "offers",
            Record::Workload { fact: WorkloadFact::Waiting { .. }, .. } => "waits at a provider",
            Record::Workload { fact: WorkloadFact::Held { .. }, .. } => "holds",
            Record::Workload { fact: WorkloadFact::Refused { .. }, .. } => "refusals",
            Record::Workload { fact: WorkloadFact::HoldExpired { .. }, .. } => "holds expired",
            Record::Workload { fact: WorkloadFact::Withdrawn { .. }, .. } => "withdraws",
            Record::Workload { fact: WorkloadFact::Granted { .. }, .. } => "grants",
            Record::Workload { fact: WorkloadFact::Running { .. }, .. } => "runs",
            Record::Workload { fact: WorkloadFact::StopOrdered { preempted: Some(_), .. }, .. } => {
                "preemptions"
            }
            Record::Workload {
                fact: WorkloadFact::StopOrdered { reason: StopReason::Evicted, by: Actor::User(_), .. },
                ..
            } => "runs deactivated",
            Record::Workload { fact: WorkloadFact::StopOrdered { .. }, .. } => "stops ordered",
            Record::Workload { fact: WorkloadFact::PodsPlaced { placement, .. }, .. }
                if !placement.unhealthy.is_empty() =>
            {
                "waits for a place reported"
            }
            Record::Workload { fact: WorkloadFact::PodsPlaced { .. }, .. } => "new places reported",
            Record::Workload {
                fact: WorkloadFact::Ended { result: EndResult::NodeLost { message }, .. },
                ..
            } if message.contains("fit nowhere else") => "ends without another place",
            Record::Workload { fact: WorkloadFact::Ended { .. }, .. } => "ends",
            Record::Workload { fact: WorkloadFact::GrantRefused { .. }, .. } => "grants refused",
            Record::Workload { fact: WorkloadFact::LeaseLapsed { .. }, .. } => "lapses",
            Record::Member { fact: MemberFact::DeclaredLost { .. }, .. } => "declared lost",
            Record::Workload { fact: WorkloadFact::Adopted { .. }, .. } => "adoptions",
            Record::Workload { fact: WorkloadFact::EndLearned { .. }, .. } => "ends learned",
            Record::Orphan { fact: OrphanFact::Seen { .. }, .. } => "orphans",
            Record::Orphan { fact: OrphanFact::StopOrdered { .. }, .. } => "orphans' stops ordered",
            Record::Orphan { fact: OrphanFact::Gone { .. }, .. } => "orphans gone",
            Record::Workload { fact: WorkloadFact::PodsReclaimed { .. }, .. } => "quota reclaimed",
            Record::Workload { fact: WorkloadFact::PodsFailed { .. }, .. } => "pod failures reported",
            Record::Workload { fact: WorkloadFact::IndexesCompleted { .. }, .. } => "completed indexes",
            Record::Workload { fact: WorkloadFact::Deactivated { .. }, .. } => "deactivated",
            Record::Workload { fact: WorkloadFact::Activated { .. }, .. } => "reactivated",
            Record::Workload { fact: WorkloadFact::Finished { .. }, .. } => "finished",
            Record::Workload { fact: WorkloadFact::Forgotten, .. } => "forgotten",
            Record::Workload { fact: WorkloadFact::ScaleUpStarted { .. }, .. } => "scale-ups charged",
            Record::Workload { fact: WorkloadFact::ScaledUp { .. }, .. } => "scale-ups confirmed",
            Record::Workload { fact: WorkloadFact::ScaleUpRefused { .. }, .. } => "scale-ups refused",
            Record::Audited(_) => "audit lines",
            _ => return,
        };
        self.one(name);
    }

    /// Counts what a manager counted between two moments.
    pub fn differences(&mut self, before: &Counts, after: &Counts) {
        let pairs = [
            ("starved heads", before.of(Count::Starved), after.of(Count::Starved)),
            ("turns cut short", before.of(Count::CutShort), after.of(Count::CutShort)),
            ("late holds", before.of(Count::LateHolds), after.of(Count::LateHolds)),
            ("residency stops", before.of(Count::ResidencyStops), after.of(Count::ResidencyStops)),
            ("digests differing", before.of(Count::DigestMismatches), after.of(Count::DigestMismatches)),
            ("renewals", before.of(Count::Renewals), after.of(Count::Renewals)),
            ("denials", before.of(Count::Denials), after.of(Count::Denials)),
            ("illegal messages", before.of(Count::Illegal), after.of(Count::Illegal)),
            ("events deferred", before.of(Count::PutOff), after.of(Count::PutOff)),
        ];
        for (name, before, after) in pairs {
            if after > before {
                self.add(name, after - before);
            }
        }
    }

    /// The number of `name`.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds all numbers of another run.
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

//! Volatile state of one leadership: lost by a restart, reset by the next leadership.
//!
//! Each part owns its fields; [`Live`] only keeps them together. A function takes the part that it changes,
//! such as `live.backoffs_mut()`.

pub mod audited_verdicts;
pub mod backoffs;
pub mod counts;
pub mod damaged_manifests;
pub mod lapsing_orphans;
pub mod leases;
pub mod pass_state;
pub mod recovery_wait;
pub mod retention;
pub mod scale_up_reasons;
pub mod starvation_checks;
pub mod usage_sampling;
pub mod withheld_priorities;

use crate::fingerprint::hash_deadline;
use crate::queue::pending_reasons::PendingReasons;
use crate::sessions::LiveCluster;
use crate::sessions::failed_starts::FailedStarts;
use crate::sessions::provider_failures::ProviderFailures;
use crate::sessions::refusals::Refusals;
use audited_verdicts::AuditedVerdicts;
use backoffs::Backoffs;
use counts::Counts;
use damaged_manifests::DamagedManifests;
use lapsing_orphans::LapsingOrphans;
use leases::Leases;
use meridian_placement::reservations::{Protection, Reservations};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono};
use pass_state::PassState;
use recovery_wait::RecoveryWait;
use retention::Retention;
use scale_up_reasons::ScaleUpReasons;
use starvation_checks::StarvationChecks;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use usage_sampling::UsageSampling;
use withheld_priorities::WithheldPriorities;

/// Volatile state: lost by a restart, reset by a new leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Live {
    /// Syncs are answered and leases ended only before this time.
    claim_until: Mono,
    recovery: RecoveryWait,
    /// Agents that had a session since the leadership started.
    clusters: BTreeMap<ClusterName, LiveCluster>,
    leases: Leases,
    pending_reasons: PendingReasons,
    refusals: Refusals,
    provider_failures: ProviderFailures,
    failed_starts: FailedStarts,
    audited: AuditedVerdicts,
    backoffs: Backoffs,
    damaged: DamagedManifests,
    scale_up_reasons: ScaleUpReasons,
    reservations: Reservations,
    starvation_checks: StarvationChecks,
    withheld_priorities: WithheldPriorities,
    pass: PassState,
    retention: Retention,
    lapsing_orphans: LapsingOrphans,
    usage_sampling: UsageSampling,
    counts: Counts,
}

/// Beginnings of leaderships.
impl Live {
    /// Resets everything that a new leadership must learn anew. The claim, the counters, and what follows
    /// from durable state or from the disk are kept. Each of `members` may know newer rules.
    pub(crate) fn begin_leadership(
        &mut self,
        now: Mono,
        members: BTreeSet<ClusterName>,
        reservations: Reservations,
    ) {
        let mut pass = PassState::default();
        pass.request();
        *self = Self {
            claim_until: self.claim_until,
            recovery: RecoveryWait::of_leadership(now, members),
            retention: self.retention.of_next_leadership(),
            counts: std::mem::take(&mut self.counts),
            damaged: std::mem::take(&mut self.damaged),
            pass,
            reservations,
            ..Self::default()
        };
    }

    /// Continues a leadership of this process in a world that was replayed from the journal: `exists` says
    /// which workloads that world has.
    pub(crate) fn go_on_from(&mut self, before: &Self, exists: impl Fn(&Uid) -> bool) {
        self.claim_until = before.claim_until;
        self.damaged = before.damaged.of_existing(exists);
        self.leases.learn_from(&before.leases);
    }

    /// Syncs are answered and leases ended only before this time.
    pub fn claim_until(&self) -> Mono {
        self.claim_until
    }

    pub(crate) fn set_claim(&mut self, until: Mono) {
        self.claim_until = until;
    }

    pub(crate) fn extend_claim(&mut self, until: Mono) {
        self.claim_until = self.claim_until.max(until);
    }
}

/// Sessions of agents.
impl Live {
    /// Agents that had a session since the leadership started.
    pub fn clusters(&self) -> &BTreeMap<ClusterName, LiveCluster> {
        &self.clusters
    }

    pub fn cluster(&self, name: &ClusterName) -> Option<&LiveCluster> {
        self.clusters.get(name)
    }

    pub fn cluster_mut(&mut self, name: &ClusterName) -> Option<&mut LiveCluster> {
        self.clusters.get_mut(name)
    }

    /// All sessions, in the order of the clusters' names.
    pub(crate) fn clusters_mut(&mut self) -> impl Iterator<Item = &mut LiveCluster> {
        self.clusters.values_mut()
    }

    /// Adds a session that begins, in place of the cluster's earlier one.
    pub(crate) fn open_session(&mut self, cluster: ClusterName, session: LiveCluster) {
        self.clusters.insert(cluster, session);
    }

    /// Removes the session of a cluster that was declared lost.
    pub(crate) fn close_session(&mut self, cluster: &ClusterName) {
        self.clusters.remove(cluster);
    }
}

/// Read access to the parts.
impl Live {
    pub fn recovery(&self) -> &RecoveryWait {
        &self.recovery
    }

    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    pub fn pending_reasons(&self) -> &PendingReasons {
        &self.pending_reasons
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn provider_failures(&self) -> &ProviderFailures {
        &self.provider_failures
    }

    pub(crate) fn failed_starts(&self) -> &FailedStarts {
        &self.failed_starts
    }

    pub fn backoffs(&self) -> &Backoffs {
        &self.backoffs
    }

    pub fn damaged(&self) -> &DamagedManifests {
        &self.damaged
    }

    pub fn scale_up_reasons(&self) -> &ScaleUpReasons {
        &self.scale_up_reasons
    }

    /// Capacity reserved for preemptors and starved heads, and recent preemptions.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    pub(crate) fn starvation_checks(&self) -> &StarvationChecks {
        &self.starvation_checks
    }

    pub(crate) fn pass(&self) -> &PassState {
        &self.pass
    }

    pub(crate) fn retention(&self) -> &Retention {
        &self.retention
    }

    pub(crate) fn usage_sampling(&self) -> &UsageSampling {
        &self.usage_sampling
    }

    /// Counters for metrics.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// Write access to the parts.
impl Live {
    pub(crate) fn recovery_mut(&mut self) -> &mut RecoveryWait {
        &mut self.recovery
    }

    pub(crate) fn leases_mut(&mut self) -> &mut Leases {
        &mut self.leases
    }

    pub(crate) fn pending_reasons_mut(&mut self) -> &mut PendingReasons {
        &mut self.pending_reasons
    }

    pub(crate) fn refusals_mut(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    pub(crate) fn provider_failures_mut(&mut self) -> &mut ProviderFailures {
        &mut self.provider_failures
    }

    pub(crate) fn failed_starts_mut(&mut self) -> &mut FailedStarts {
        &mut self.failed_starts
    }

    pub(crate) fn audited_mut(&mut self) -> &mut AuditedVerdicts {
        &mut self.audited
    }

    pub(crate) fn backoffs_mut(&mut self) -> &mut Backoffs {
        &mut self.backoffs
    }

    pub(crate) fn damaged_mut(&mut self) -> &mut DamagedManifests {
        &mut self.damaged
    }

    pub(crate) fn scale_up_reasons_mut(&mut self) -> &mut ScaleUpReasons {
        &mut self.scale_up_reasons
    }

    pub(crate) fn reservations_mut(&mut self) -> &mut Reservations {
        &mut self.reservations
    }

    pub(crate) fn starvation_checks_mut(&mut self) -> &mut StarvationChecks {
        &mut self.starvation_checks
    }

    pub(crate) fn withheld_priorities_mut(&mut self) -> &mut WithheldPriorities {
        &mut self.withheld_priorities
    }

    pub(crate) fn pass_mut(&mut self) -> &mut PassState {
        &mut self.pass
    }

    pub(crate) fn retention_mut(&mut self) -> &mut Retention {
        &mut self.retention
    }

    pub(crate) fn lapsing_orphans_mut(&mut self) -> &mut LapsingOrphans {
        &mut self.lapsing_orphans
    }

    pub(crate) fn usage_sampling_mut(&mut self) -> &mut UsageSampling {
        &mut self.usage_sampling
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

/// The fingerprint, for a model checker.
impl Live {
    /// Hashes what later behaviour depends on. Only the order of a cluster's transmission numbers matters, so
    /// `number` may map them to smaller ones.
    pub(crate) fn hash_fingerprint(
        &self,
        now: Mono,
        age_limit: Millis,
        number: &dyn Fn(&ClusterName, u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self {
            claim_until,
            recovery,
            clusters,
            leases,
            pending_reasons: _,
            refusals,
            provider_failures,
            failed_starts,
            audited: _,
            backoffs,
            damaged,
            scale_up_reasons: _,
            reservations,
            starvation_checks,
            withheld_priorities,
            pass,
            retention: _,
            lapsing_orphans,
            usage_sampling,
            counts: _,
        } = self;
        hash_deadline(now, *claim_until, into);
        recovery.hash_fingerprint(now, age_limit, into);
        usage_sampling.hash_fingerprint(now, into);
        starvation_checks.hash_fingerprint(now, into);
        damaged.hash(into);
        withheld_priorities.hash(into);
        pass.hash(into);
        lapsing_orphans.hash_fingerprint(now, into);
        refusals.hash_fingerprint(now, into);
        for (key, gang, until) in provider_failures.iter() {
            (key, gang).hash(into);
            hash_deadline(now, until, into);
        }
        failed_starts.hash_fingerprint(now, into);
        backoffs.hash_fingerprint(now, into);
        hash_reservations(reservations, now, into);
        leases.hash_fingerprint(now, into);
        clusters.len().hash(into);
        for (cluster, live) in clusters {
            cluster.hash(into);
            live.hash_fingerprint(now, age_limit, &|n| number(cluster, n), into);
        }
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

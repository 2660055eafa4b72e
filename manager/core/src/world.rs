pub mod absorb;
pub mod actors;
pub mod gangs;
pub mod lifecycle;
pub mod snapshot;
pub mod turn;

use crate::config::Config;
use crate::facts::reason::Why;
use crate::facts::submission::{ClassId, Consumed};
use crate::placement::reservations::Reservations;
use crate::queue::classes::Queues;
use crate::queue::counts::QueueCounts;
use crate::queue::mirror::QueueMirror;
use crate::queue::pending_reasons::PendingReasons;
use crate::sessions::LiveCluster;
use crate::sessions::failed_starts::FailedStarts;
use crate::state::State;
use crate::state::workload::Workload;
use meridian_shared::ids::{ClusterName, Fence, RecordNumber, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::protocol::{OnLoss, RefuseReason};
use meridian_shared::time::{Mono, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Orphans of replaced ledgers, and when the last lease that anybody could have given them is over.
pub(crate) type LapsingOrphans = BTreeMap<(Uid, Fence), ManagerLease>;

/// The world of one manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Durable.
    pub state: State,
    /// Volatile.
    pub live: Live,
    /// Fixed.
    pub config: Config,
    /// Caches over `state`.
    pub queues: Queues,
    /// Jobs by namespace and name.
    pub(crate) names: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Uid>>,
    /// Amounts that open and granted legs may use, per cluster.
    pub(crate) loads: BTreeMap<ClusterName, BTreeMap<Uid, ClassId>>,
    /// Who stands where, per queue.
    pub counts_by_queue: QueueCounts,
    /// The brain: who waits and who holds quota, as decisions see them.
    pub(crate) mirror: QueueMirror,
}

/// What a restart forgets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Live {
    /// The leadership's own start, for every timer.
    pub led_at: Mono,
    /// Since when no other copy of this journal can have granted or renewed anything: the leadership's start, or an operator's
    /// confirmation of a restored journal. Workloads of earlier leaderships are held until their lease has lapsed from here.
    pub(crate) sole_since: Mono,
    /// Syncs are answered before this moment.
    pub claim_until: Mono,
    /// Sessions that talk.
    pub clusters: BTreeMap<ClusterName, LiveCluster>,
    /// Leases of every right to run that may be held.
    pub leases: BTreeMap<Fence, Lease>,
    /// Deadlines of leases that were let go, until the record that says so is durable.
    pub(crate) released_leases: BTreeMap<Fence, (Mono, RecordNumber)>,
    /// What an earlier leadership of this very process counted, for the next one.
    pub(crate) deadlines: BTreeMap<Fence, Mono>,
    /// No lease, start deadline or retention is due before this moment.
    pub(crate) due: Mono,
    /// Members whose complete inventory recovery waits for.
    pub awaited: BTreeSet<ClusterName>,
    /// What keeps each class.
    pub(crate) pending_reasons: PendingReasons,
    /// Clusters that said no to a workload, until when it isn't asked again.
    pub(crate) refused: BTreeMap<(Uid, ClusterName), (Mono, RefuseReason, String)>,
    /// Who didn't reach running where.
    pub(crate) failed_starts: FailedStarts,
    /// Verdicts that are in the audit log, with the rules they were judged by.
    pub(crate) audited: BTreeMap<ClassId, BTreeMap<ClusterName, RecordNumber>>,
    /// Not dispatched again before then.
    pub(crate) backoff_until: BTreeMap<Uid, Mono>,
    /// Why gangs that are to grow haven't yet.
    pub(crate) scale_up_reasons: BTreeMap<Uid, Why>,
    /// Who gave way for whom.
    pub(crate) reservations: Reservations,
    /// It isn't looked for who waits too long before this moment.
    pub(crate) next_starvation_check: Mono,
    /// It is time to look for them.
    pub(crate) starvation_check_due: bool,
    /// Runs whose agents may not be told another priority now, as a policy forbids their place and only flags that.
    pub(crate) priority_withheld: BTreeSet<Uid>,
    /// Something changed that could let start who waits for room in a cluster.
    pub(crate) capacity_changed: bool,
    /// A scheduling pass is due.
    pub(crate) dirty: bool,
    /// Turns in a row that left something to be decided.
    pub(crate) cuts: u32,
    pub(crate) finished: BTreeSet<(Wall, Uid)>,
    pub(crate) lapsing: LapsingOrphans,
    pub(crate) retained: Mono,
    pub(crate) released_at: Mono,
    /// Past use is taken down again at this moment.
    pub(crate) sample_at: Mono,
    /// What admissions cost that came about since the last end of a batch, by local queue.
    pub(crate) entered: BTreeMap<Arc<str>, Consumed>,
    /// Counters for metrics.
    pub counts: Counts,
}

/// What happened so far in this leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Grants made.
    pub grants: u64,
    /// Leases that lapsed.
    pub lapses: u64,
    /// Holds that arrived for a leg that was over.
    pub late_holds: u64,
    /// Grants that a residency rule stopped at a later send.
    pub residency_stops: u64,
    /// Heads of queues for which room was kept, as they had waited too long.
    pub starved: u64,
    /// How often pods gave back what they had while the rest of their gang ran on.
    pub reclaimed: u64,
    /// Adoptions.
    pub adoptions: u64,
    /// Orphans seen.
    pub orphans: u64,
    /// Digests that differed.
    pub digest_mismatches: u64,
    /// Renewals composed.
    pub renewals: u64,
    /// Verdicts that denied.
    pub denials: u64,
    /// Messages that no honest agent sends.
    pub illegal: u64,
    /// How often an event had to wait, as its cluster had had too much written of what was known.
    pub put_off: u64,
    /// Rounds of decisions in which a workload was admitted.
    pub attempts_fruitful: u64,
    /// Rounds in which none was.
    pub attempts_fruitless: u64,
    /// Turns that left something to be decided.
    pub cut_short: u64,
}

/// One lease at the manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The workload.
    pub uid: Uid,
    /// Deadline and term.
    pub lease: ManagerLease,
    /// When this leadership last composed an answer with it.
    pub composed: Option<Mono>,
    /// When it was first composed: a grant isn't sent again after its term.
    pub first: Option<Mono>,
    /// When the gang must be running.
    pub start_by: Mono,
}

impl World {
    /// A successful durable write that was begun at `begun`: the claim is good for a while from then.
    pub fn committed(&mut self, begun: Mono) {
        self.live.claim_until =
            self.live.claim_until.max(begun + meridian_shared::lease::claim(self.config.term_min));
    }

    /// Whether a workload may be dispatched now although recovery is open.
    pub(crate) fn held_back(&self, workload: &Workload, now: Mono) -> bool {
        let Some(recovery) = &self.state.recovery() else { return false };
        if workload.submitted() >= self.state.led_since()
            || self.config.planted.has(meridian_shared::planted::Bug::RecoveryDispatches)
        {
            return false;
        }
        let released = !recovery.restored
            && workload.on_loss() == OnLoss::Fence
            && ManagerLease::from_composed(self.live.sole_since, workload.term()).lapsed(now);
        !released
    }

    /// Whether this journal is a copy, and its original may still speak for this workload: it is then neither renewed nor
    /// called lapsed. Nobody else knows what this leadership minted.
    pub(crate) fn disputed(&self, workload: &Workload) -> bool {
        self.state.recovery().as_ref().is_some_and(|r| r.restored)
            && workload.submitted() < self.state.led_since()
    }

    /// The workload behind a job's name.
    pub fn uid_of(&self, namespace: &str, name: &str) -> Option<Uid> {
        self.names.get(namespace)?.get(name).copied()
    }

    /// Names of every cluster that ever had a session.
    pub fn members(&self) -> Vec<ClusterName> {
        self.state.members().keys().cloned().collect()
    }

    /// The most recent reason why the class of this workload waits at each cluster, and before any cluster is looked at.
    pub fn reasons(&self, workload: &Workload) -> (Option<&Why>, Option<&BTreeMap<ClusterName, Why>>) {
        (
            self.live.pending_reasons.before(workload.class()),
            self.live.pending_reasons.at_clusters(workload.class()),
        )
    }

    pub(crate) fn has_open_legs(&self, cluster: &ClusterName) -> bool {
        let uids = self.loads.get(cluster).into_iter().flatten();
        uids.filter_map(|(uid, _)| self.state.workloads().get(uid))
            .any(|w| w.legs().values().any(|l| l.cluster == *cluster && l.state.open()))
    }
}

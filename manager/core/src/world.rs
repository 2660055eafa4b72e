//! The world of one manager, the absorbing of records into it, and the turn of one input.

pub mod absorb;
pub mod actors;
pub mod gangs;
pub mod keys;
pub mod lifecycle;
pub mod pending_reasons;
pub mod readers;
pub mod recovery_hold;
pub mod snapshot;
pub mod turn;

use crate::config::Config;
use crate::facts::reason::Why;
use crate::facts::submission::{ClassId, Consumed};
use crate::queue::classes::Queues;
use crate::queue::counts::QueueCounts;
use crate::queue::mirror::QueueMirror;
use crate::queue::pending_reasons::PendingReasons;
use crate::sessions::LiveCluster;
use crate::sessions::failed_starts::FailedStarts;
use crate::sessions::provider_failures::ProviderFailures;
use crate::state::State;
use crate::state::workload::Workload;
use meridian_objects::Kind;
use meridian_placement::reservations::Reservations;
use meridian_shared::ids::{ClusterName, Fence, RecordNumber, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::{Mono, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Workloads of jobs of one kind, by namespace and name.
pub(crate) type UidsByName = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Uid>>;

/// Orphans of replaced ledgers, with the longest lease that each may hold.
pub(crate) type LapsingOrphans = BTreeMap<(Uid, Fence), ManagerLease>;

/// All state of one manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Durable: rebuilt from the journal.
    pub state: State,
    /// Volatile: lost by a restart.
    pub live: Live,
    pub config: Config,
    /// Cache over `state`, as are all fields below.
    pub queues: Queues,
    /// Workload of each job, by kind, namespace and name.
    pub(crate) names: BTreeMap<Kind, UidsByName>,
    /// Workloads whose names have only a part of the job's name, by namespace and name.
    pub(crate) shortened_names: BTreeMap<(Arc<str>, Arc<str>), Uid>,
    /// Workloads with open or granted legs, by cluster.
    pub(crate) loads: BTreeMap<ClusterName, BTreeMap<Uid, ClassId>>,
    pub counts_by_queue: QueueCounts,
    pub(crate) mirror: QueueMirror,
}

/// Volatile state: lost by a restart, reset by a new leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Live {
    /// When the leadership started.
    pub led_at: Mono,
    /// Since when no other copy of this journal can have granted or renewed anything: the leadership's start,
    /// or an operator's confirmation of a restored journal. Workloads of earlier leaderships are held back
    /// until a lease that was renewed at this time has lapsed.
    pub(crate) sole_since: Mono,
    /// Syncs are answered and leases ended only before this time.
    pub claim_until: Mono,
    /// Agents that had a session since the leadership started.
    pub clusters: BTreeMap<ClusterName, LiveCluster>,
    /// Leases of every right to run that an agent may hold.
    pub leases: BTreeMap<Fence, Lease>,
    /// Deadlines of released leases, each until the record that releases it is durable.
    pub(crate) released_leases: BTreeMap<Fence, (Mono, RecordNumber)>,
    /// Lease deadlines that the previous leadership of this process knew, input for the next leadership.
    pub(crate) deadlines: BTreeMap<Fence, Mono>,
    /// No lease and no start deadline is due before this time.
    pub(crate) due: Mono,
    /// Members that recovery waits for: they haven't sent a complete inventory yet.
    pub awaited: BTreeSet<ClusterName>,
    /// Members that may know newer rules than this journal: they haven't sent a complete inventory to this
    /// leadership. Unlike `awaited`, time doesn't end this.
    pub rules_awaited: BTreeSet<ClusterName>,
    pub(crate) pending_reasons: PendingReasons,
    /// Clusters that refused a workload, with the time until which it isn't offered to them again.
    pub(crate) refused: BTreeMap<(Uid, ClusterName), (Mono, RefuseReason, String)>,
    pub(crate) provider_failures: ProviderFailures,
    pub(crate) failed_starts: FailedStarts,
    /// Residency verdicts that are in the audit log, with the version of the rules that they follow.
    pub(crate) audited: BTreeMap<ClassId, BTreeMap<ClusterName, RecordNumber>>,
    /// Workloads that back off, with the time until which they aren't considered.
    pub(crate) backoff_until: BTreeMap<Uid, Mono>,
    /// Workloads whose stored manifest is known to be unreadable.
    pub(crate) damaged: BTreeSet<Uid>,
    /// Why running gangs that are to be scaled up aren't yet.
    pub(crate) scale_up_reasons: BTreeMap<Uid, Why>,
    /// Capacity reserved for preemptors and starved heads, and recent preemptions.
    pub(crate) reservations: Reservations,
    /// Starved heads aren't searched for before this time.
    pub(crate) next_starvation_check: Mono,
    /// Whether the next pass searches for starved heads.
    pub(crate) starvation_check_due: bool,
    /// Runs with a new priority that isn't sent now: a residency policy forbids their cluster, but only flags
    /// violations.
    pub(crate) priority_withheld: BTreeSet<Uid>,
    /// Whether something changed that may let a workload start that waits for capacity.
    pub(crate) capacity_changed: bool,
    /// Whether a scheduling pass is due.
    pub(crate) dirty: bool,
    /// Number of consecutive turns that reached their limit before every decision was made.
    pub(crate) cuts: u32,
    /// Finished workloads by the time of their end.
    pub(crate) finished: BTreeSet<(Wall, Uid)>,
    pub(crate) lapsing: LapsingOrphans,
    /// When finished workloads are next checked for their retention time.
    pub(crate) retained: Mono,
    /// When recovery next looks for workloads that it needn't hold back any more.
    pub(crate) released_at: Mono,
    /// When the usage history is next sampled.
    pub(crate) sample_at: Mono,
    /// Penalties of admissions since the last sample, by local queue.
    pub(crate) entered: BTreeMap<Arc<str>, Consumed>,
    /// Counters for metrics.
    pub counts: Counts,
}

/// Events counted since the process started, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    pub grants: u64,
    /// Leases that lapsed.
    pub lapses: u64,
    /// Holds that arrived for a leg that was over.
    pub late_holds: u64,
    /// Grants that were stopped instead of sent again, because a residency rule changed.
    pub residency_stops: u64,
    /// Starved heads of queues for which capacity was reserved.
    pub starved: u64,
    /// How often finished pods released quota while the rest of their gang ran on.
    pub reclaimed: u64,
    pub adoptions: u64,
    /// Orphans found in inventories.
    pub orphans: u64,
    pub digest_mismatches: u64,
    /// Lease renewals composed.
    pub renewals: u64,
    /// Residency verdicts that denied.
    pub denials: u64,
    /// Messages that break the protocol.
    pub illegal: u64,
    /// Events and sessions put off because the cluster had used up its budget of journal writes.
    pub put_off: u64,
    /// Scheduling cycles that admitted a workload.
    pub attempts_fruitful: u64,
    /// Scheduling cycles that admitted none.
    pub attempts_fruitless: u64,
    /// Turns that reached their limit before every decision was made.
    pub cut_short: u64,
}

/// The manager's view of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub uid: Uid,
    /// Deadline and term.
    pub lease: ManagerLease,
    /// When this leadership last composed an answer that grants or renews the lease.
    pub composed: Option<Mono>,
    /// When the lease was first composed. A grant isn't sent again once its term has passed since then.
    pub first: Option<Mono>,
    /// When the gang must be running.
    pub start_by: Mono,
}

impl World {
    /// Extends the claim to lead after a durable write that was begun at `begun`.
    pub fn committed(&mut self, begun: Mono) {
        let renewed = begun + meridian_shared::lease::claim(self.config.term_min);
        self.live.claim_until = self.live.claim_until.max(renewed);
    }

    /// Sets until when this manager may act as the leader. The host keeps the
    /// [`Claim`](meridian_shared::lease::Claim).
    pub fn set_claim(&mut self, valid_until: Mono) {
        self.live.claim_until = valid_until;
    }

    /// Whether open recovery keeps a workload from being dispatched now.
    pub fn held_back(&self, workload: &Workload, now: Mono) -> bool {
        if self.config.planted.has(meridian_shared::planted::Bug::RecoveryDispatches) {
            return false;
        }
        self.recovery_hold(workload, now).is_some()
    }

    /// Whether the journal is a copy, and a manager with the original may still renew this workload's lease.
    /// Such a lease is neither renewed nor ended here. Workloads that this leadership accepted are known to
    /// no other manager.
    pub(crate) fn disputed(&self, workload: &Workload) -> bool {
        self.state.recovery().as_ref().is_some_and(|r| r.restored)
            && workload.is_older_than(self.state.led_since())
    }

    /// The workload of a job, by the job's kind and name.
    pub fn uid_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Uid> {
        self.names.get(&kind)?.get(namespace)?.get(name).copied()
    }

    /// Names of every cluster that ever had a session.
    pub fn members(&self) -> Vec<ClusterName> {
        self.state.members().keys().cloned().collect()
    }

    /// The latest reasons why the workload's class is pending: before any cluster is evaluated, and at each
    /// cluster.
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

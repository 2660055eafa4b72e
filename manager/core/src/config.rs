//! Settings of a manager, and of the start of a leadership.

use crate::facts::submission::RecoveryStart;
use meridian_shared::ids::Jurisdiction;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::planted::Planted;
use meridian_shared::time::{Millis, Now};
use std::sync::Arc;

/// Default of [`Config::starvation_guard`].
pub const STARVATION_GUARD_DEFAULT: Millis = Millis::mins(60);

/// Default of [`Config::heads_max`]. Keeps a turn within some tens of milliseconds.
pub const HEADS_MAX_DEFAULT: usize = 256;

/// Settings that a manager is started with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Shortest lease term that a workload may have.
    pub term_min: Millis,
    /// Lease term of workloads if their dispatch policy sets none.
    pub term: Millis,
    /// How long an agent is asked to hold capacity for an offer.
    pub hold: Millis,
    /// How long a granted workload may take to reach running.
    pub start_timeout: Millis,
    /// Whether a workload needs a matching residency policy (`--residency=required`).
    pub residency_required: bool,
    /// The manager's own jurisdiction. Workloads that may not be stored there are refused before they are
    /// stored.
    pub jurisdiction: Option<Jurisdiction>,
    /// Key that signs grants and record numbers, so that the manager can verify them when agents report them
    /// back.
    pub receipt_key: ReceiptKey,
    /// Limit of finished workloads that are kept.
    pub finished_kept_max: usize,
    /// How long finished workloads without `ttlSecondsAfterFinished` are kept.
    pub finished_kept: Millis,
    /// Fair sharing between cluster queues and cohorts; `None` turns it off.
    pub fair_sharing: Option<meridian_queueing::settings::FairSharing>,
    /// How requests of pods are translated to resources of quotas: excluded and transformed resources.
    pub resources: Arc<meridian_objects::ResourceRules>,
    /// How long the head of a queue waits before quota and capacity are reserved for it, so that smaller
    /// workloads can't overtake it forever. `None` turns that off.
    pub starvation_guard: Option<Millis>,
    /// Fair sharing of admissions between the local queues of one cluster queue; `None` turns it off.
    pub admission_fair_sharing: Option<meridian_queueing::settings::AdmissionFairSharing>,
    /// Approximate limit of heads admitted in one turn. Also limits heads that are evaluated without being
    /// admitted, but that limit doubles with each cut-short turn in a row.
    pub heads_max: usize,
    /// Whether this manager runs agents in its own process, for clusters that it reaches by a kubeconfig.
    /// Such an agent can't end gangs while this process is down, so jobs use `Wait` unless guards in their
    /// pods end them.
    pub hosts_agents: bool,
    /// Whether this manager takes its rules from a management cluster. The rules may have become stricter
    /// while the manager was down, so nothing is dispatched until it has read them.
    pub rules_unseen: bool,
    /// Bugs that a test plants to prove that the test finds them.
    pub planted: Planted,
}

impl Config {
    /// The documented defaults.
    pub fn new(receipt_key: ReceiptKey) -> Self {
        Self {
            term_min: meridian_shared::lease::TERM_MIN_DEFAULT,
            term: meridian_shared::lease::TERM_DEFAULT,
            hold: Millis::secs(60),
            start_timeout: Millis::mins(10),
            residency_required: false,
            jurisdiction: None,
            receipt_key,
            finished_kept_max: 100_000,
            finished_kept: Millis::mins(24 * 60),
            fair_sharing: None,
            resources: Arc::default(),
            starvation_guard: Some(STARVATION_GUARD_DEFAULT),
            admission_fair_sharing: None,
            heads_max: HEADS_MAX_DEFAULT,
            hosts_agents: false,
            rules_unseen: false,
            planted: Planted::NONE,
        }
    }
}

/// Inputs to the start of a leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Random id of the leadership.
    pub id: u64,
    /// `None` skips recovery: the shell has proved that the journal has every record of the last leadership.
    pub recovery: Option<RecoveryStart>,
    /// Whether `init` has just created the journal. By running `init`, the operator asserts that nothing ran
    /// before.
    pub fresh: bool,
    /// Start of the leadership. The shell has first waited until the claim of any previous leader expired,
    /// clock drift included.
    pub now: Now,
}

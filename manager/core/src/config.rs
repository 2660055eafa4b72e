use crate::facts::submission::RecoveryStart;
use meridian_shared::ids::Jurisdiction;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::planted::Planted;
use meridian_shared::time::{Millis, Now};
use std::sync::Arc;

/// Heads of queues wait this long before room is kept for them, unless the manager is set otherwise.
pub const STARVATION_GUARD_DEFAULT: Millis = Millis::mins(60);

/// Heads that are admitted in one turn, about: some tens of milliseconds.
pub const HEADS_MAX_DEFAULT: usize = 256;

/// What a manager is started with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The shortest lease term that any workload may have.
    pub term_min: Millis,
    /// The term of workloads whose policy names none.
    pub term: Millis,
    /// How long an offer asks to be held.
    pub hold: Millis,
    /// How long a grant may take to reach running.
    pub start_timeout: Millis,
    /// Without any matching policy a workload is refused (`--residency=required`).
    pub residency_required: bool,
    /// The manager's own jurisdiction: what may not be stored there is refused unstored.
    pub jurisdiction: Option<Jurisdiction>,
    /// Codes what is said to agents.
    pub receipt_key: ReceiptKey,
    /// Finished workloads kept at most.
    pub finished_kept_max: usize,
    /// Finished workloads without a `ttlSecondsAfterFinished` are kept this long.
    pub finished_kept: Millis,
    /// Fair sharing between cluster queues and cohorts, where it is on.
    pub fair_sharing: Option<meridian_queueing::settings::FairSharing>,
    /// What quota sees of what pods ask for.
    pub resources: Arc<meridian_objects::ResourceRules>,
    /// After this long the head of a queue is passed by nobody any more, and room is kept for it; `None` never does.
    pub starvation_guard: Option<Millis>,
    /// Fair sharing of admissions between the local queues of one cluster queue, where it is on.
    pub admission_fair_sharing: Option<meridian_queueing::settings::AdmissionFairSharing>,
    /// Heads that are admitted in one turn, about, and that are looked at in vain in one that follows no other.
    pub heads_max: usize,
    /// A bug planted by a test.
    pub planted: Planted,
}

impl Config {
    /// The defaults of the documentation, with this key.
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
            planted: Planted::NONE,
        }
    }
}

/// How a leadership starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Random.
    pub id: u64,
    /// `None` takes the short cut: the shell has shown that this journal is the one that was left.
    pub recovery: Option<RecoveryStart>,
    /// The new journal was made by `init`, which asserts that nothing ran before.
    pub fresh: bool,
    /// The shell has waited out claim plus drift before this moment.
    pub now: Now,
}

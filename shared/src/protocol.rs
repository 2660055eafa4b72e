//! What travels on a sync between agent and manager. Data only; each side's half of the rules is in its core.
//!
//! ```text
//! agent                                             manager
//!   │ SyncRequest  session, transmission, events ──────▶│  one engine turn: take events, journal,
//!   │              digest, inventory, capacity          │  compose: commands, renewals, acknowledgements
//!   │◀────────── SyncResponse  echo, leadership, …      │
//! ```
//!
//! Everything is delivered at least once and is idempotent. Commands are numbered per (leadership, session), events per
//! session; each side repeats what the other has not acknowledged. A [`Digest`] over what is live, compared when nothing
//! is under way, finds what numbering can't.

mod digest;
mod inventory;
mod size;

pub use digest::Digest;
pub use inventory::{Inventory, Run};
pub use size::{Growth, Size};

use crate::gang::Gang;
use crate::ids::{ClusterName, Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Session, Uid};
use crate::mac::Mac;
use crate::packing::Block;
use crate::placement::Placement;
pub use crate::pods::Spare;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The version that an agent of this tree speaks.
pub const VERSION: u32 = 1;
/// Those that a manager of this tree speaks, so that it is the first to be upgraded and its agents follow one by one: this one and, where there
/// is one, the one before. It answers each agent in the agent's own.
pub const VERSIONS: RangeInclusive<u32> = 1..=VERSION;
/// Most events in one request; a backlog goes in parts.
pub const EVENTS_MAX: usize = 1_024;
/// Most bytes of events in one request, though always one event; a backlog goes in parts.
pub const EVENTS_BYTES_MAX: usize = 5 * 256 * 1024;
/// Most bytes of placements in one inventory; of the runs beyond, nothing is said of where their pods are.
pub const PLACEMENTS_BYTES_MAX: usize = 256 * 1024;
/// Most commands in one answer; a backlog goes in parts.
pub const COMMANDS_MAX: usize = 512;
/// Most gangs that one cluster holds and runs: an inventory names each run. More are refused as overload, and declared as another
/// cluster.
pub const RUNS_MAX: usize = 8_192;
/// Most ends in one inventory; the rest comes with the next one.
pub const ENDS_MAX: usize = 1_024;
/// Longest text that an agent sends of one end or refusal, in bytes.
pub const TEXT_BYTES_MAX: usize = 512;
/// Most leases renewed in one answer, those first that were renewed longest ago: 16 answers in the shortest term reach all
/// gangs of a cluster that runs a quarter of a million.
pub const RENEWALS_MAX: usize = 16_384;
/// Most bytes of commands in one answer, though always one command; a backlog goes in parts.
pub const COMMANDS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most gangs in one request of which pods have succeeded; the rest comes with the next one.
pub const SPARE_MAX: usize = 512;
/// Most bytes of nodes and pools in one request: where more are unlike, less is told of them.
pub const CAPACITY_BYTES_MAX: usize = 3 * 256 * 1024;
/// Most bytes of receipts in one inventory, though always one receipt; the oldest leaderships are left out.
pub const RECEIPTS_BYTES_MAX: usize = 256 * 1024;
/// Most bytes in one body, either way. A grant carries a spec of at most 3 MiB, which is at most twice as long as a string
/// within JSON.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Text from an agent or a job as it is sent and kept: bounded, and free of control characters.
pub fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if cleaned.len() + c.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        cleaned.push(c);
    }
    cleaned
}

/// Which of the (at most two) requests in flight this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// May be parked until there is something to say.
    Poll,
    /// Carries news and is answered at once.
    News,
}

/// What an agent asks and reports in one transmission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SyncRequest {
    /// Protocol version.
    pub version: u32,
    /// The agent's durable store.
    pub ledger: LedgerId,
    /// This life of the agent process.
    pub session: Session,
    /// Number of this HTTP request; never used twice within a session.
    pub transmission: u64,
    /// Which lane.
    pub lane: Lane,
    /// The leadership that the agent has persisted and follows; `None` before the first answer.
    pub follows: Option<Leadership>,
    /// The highest transmission whose answer this session has taken.
    pub answered: u64,
    /// Every command up to this number was taken.
    pub commands_through: u64,
    /// News, oldest first, from `events_from` on without gaps.
    pub events: Vec<Event>,
    /// Number of the first of `events`.
    pub events_from: u64,
    /// Number of the last event that this session has made so far.
    pub events_last: u64,
    /// Digest of what is live here, after `commands_through` and `events_last`.
    pub digest: Digest,
    /// The complete inventory, when this leadership has none yet or asked for it.
    pub inventory: Option<Inventory>,
    /// Room and pools, when they changed since the version that the manager acknowledged.
    pub capacity: Option<Capacity>,
    /// Gangs of which pods have succeeded and left their places for good, until an answer shows that this arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare: Vec<Spare>,
    /// This agent understands [`Command::Shrink`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shrinks: bool,
    /// This agent understands [`Command::Grow`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grows: bool,
    /// This agent understands [`Command::Rank`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ranks: bool,
}

impl SyncRequest {
    /// Whether it says nothing new, so that its answer can wait until there is something to say.
    pub fn may_wait(&self) -> bool {
        self.lane == Lane::Poll
            && self.events.is_empty()
            && self.inventory.is_none()
            && self.capacity.is_none()
            && self.spare.is_empty()
    }
}

/// What the manager answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncAnswer {
    /// Taken.
    Ok(Box<SyncResponse>),
    /// Not taken; nothing of the request was used.
    Refused(SyncRefusal),
}

/// Why a sync was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncRefusal {
    /// The protocol version isn't spoken.
    Version {
        /// Oldest spoken.
        oldest: u32,
        /// Newest spoken.
        newest: u32,
    },
    /// A newer session of this ledger is known, or a clone: make a new ledger or stop.
    Superseded {
        /// The session that counts.
        by: Session,
    },
    /// The agent follows a newer leadership than this one: the manager must take a higher epoch first.
    NewerLeadership {
        /// What the agent follows.
        follows: Leadership,
    },
    /// This ledger was replaced or declared lost: stop everything that it runs, then make a new one or exit.
    LedgerLost,
    /// No cluster of this name, or its certificate was revoked.
    UnknownCluster,
    /// The manager doesn't lead, or its claim has run out: try again.
    NotLeading,
    /// The request breaks a bound or a rule; in words.
    Malformed(String),
}

/// An answer that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SyncResponse {
    /// Protocol version.
    pub version: u32,
    /// Who leads. The agent persists it before it does anything that the answer says.
    pub leadership: Leadership,
    /// Echo; an answer to another session is ignored.
    pub session: Session,
    /// Echo; leases that this answer grants or renews count from when this transmission was sent.
    pub transmission: u64,
    /// What the manager says about itself, to be shown to later leaderships.
    pub receipt: Receipt,
    /// Names of all clusters that ever had a session. Part of the receipt's code.
    pub members: Vec<ClusterName>,
    /// Events up to this number are journaled: don't send them again.
    pub events_through: u64,
    /// Ends whose record is committed; the agent keeps them as acknowledged tombstones.
    pub ends_acknowledged: Vec<(Uid, Fence, RecordNumber)>,
    /// What to do, numbered from `commands_from` on without gaps.
    pub commands: Vec<Command>,
    /// Number of the first of `commands`.
    pub commands_from: u64,
    /// Leases that this answer renews. Omission means nothing.
    pub renewals: Vec<(Uid, Fence)>,
    /// Send the complete inventory next.
    pub want_inventory: bool,
    /// The capacity version that was taken.
    pub capacity_acknowledged: u64,
    /// Record ranges that this journal holds (leadership, first, last): ends acknowledged elsewhere are reported again.
    pub ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    /// The next poll may be parked this long.
    pub poll: Millis,
}

/// What a manager says about itself; agents keep the newest and show it in every inventory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Receipt {
    /// The journal.
    pub journal: JournalId,
    /// Who led.
    pub leadership: Leadership,
    /// The newest committed record.
    pub record: RecordNumber,
    /// The newest change of a policy or a quota.
    pub rules: RecordNumber,
    /// Head of the audit log (a witness, once identities sign it).
    pub audit_head: Option<String>,
    /// Code over all of the above and the member list, by the manager's key. An uncoded claim counts for nothing.
    pub mac: Option<Mac>,
}

impl Receipt {
    /// The bytes that the code covers.
    pub fn message(&self, members: &[ClusterName]) -> Vec<u8> {
        let mut text = format!(
            "receipt 1\n{}\n{}\n{}\n{}\n{}\n",
            self.journal,
            self.leadership,
            self.record,
            self.rules,
            self.audit_head.as_deref().unwrap_or("-")
        );
        for member in members {
            text.push_str(member.as_str());
            text.push('\n');
        }
        text.into_bytes()
    }
}

/// What the manager tells an agent to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// Is there room for this gang? Shape only: nothing else of the spec.
    Offer(Box<Offer>),
    /// The question is over: give the room back.
    Withdraw {
        /// The offer.
        offer: OfferId,
        /// Its workload.
        uid: Uid,
    },
    /// The right to run.
    Grant(Box<Grant>),
    /// Stop this attempt and confirm, whether it is known or not. Ids only.
    Stop {
        /// The workload.
        uid: Uid,
        /// Its attempt.
        fence: Fence,
        /// For the job's record.
        reason: StopReason,
    },
    /// Let this attempt go on with fewer pods. Only for agents that say that they understand it.
    Shrink {
        /// The workload.
        uid: Uid,
        /// Its attempt.
        fence: Fence,
        /// How large it is from now on.
        size: Size,
    },
    /// Let this attempt go on with more pods, all of them or none. Only for agents that say that they understand it.
    Grow {
        /// The workload.
        uid: Uid,
        /// Its attempt.
        fence: Fence,
        /// What it is given.
        growth: Box<Growth>,
    },
    /// This attempt has another priority. Only for agents that say that they understand it.
    Rank {
        /// The workload.
        uid: Uid,
        /// Its attempt.
        fence: Fence,
        /// Its priority now.
        priority: i64,
    },
}

impl Command {
    /// About how many bytes it takes in an answer, never much less.
    pub fn weight(&self) -> usize {
        // Ids, numbers, field names.
        const FRAME: usize = 512;
        match self {
            Self::Offer(offer) => FRAME + offer.gang.weight(),
            // A string within JSON: quotes and backslashes double.
            Self::Grant(grant) => FRAME + 2 * grant.spec.len(),
            Self::Grow { growth, .. } => FRAME + 12 * growth.places.len(),
            Self::Withdraw { .. } | Self::Stop { .. } | Self::Shrink { .. } | Self::Rank { .. } => FRAME,
        }
    }
}

/// One question to one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Offer {
    /// Names the question; hold, waiting, refused, withdraw and grant all repeat it.
    pub offer: OfferId,
    /// The workload.
    pub uid: Uid,
    /// Its namespace: a cluster may have to check that it exists.
    pub namespace: Arc<str>,
    /// Kind of the job behind it, such as `Job`.
    pub kind: Arc<str>,
    /// What must start together.
    pub gang: Arc<Gang>,
    /// How long a hold should last; the agent decides and alone judges it.
    pub hold: Millis,
    /// Whether the runner must end a gang by itself at the lapse.
    pub requires_guarded: bool,
}

/// One right to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The offer that was held.
    pub offer: OfferId,
    /// The workload.
    pub uid: Uid,
    /// Grows with every grant of the workload.
    pub fence: Fence,
    /// Counts grants of this workload, from 1.
    pub attempt: u32,
    /// The job's namespace.
    pub namespace: Arc<str>,
    /// The job's name.
    pub name: Arc<str>,
    /// The whole job as JSON.
    pub spec: Arc<str>,
    /// How long the right holds without renewal.
    pub term: Millis,
    /// What silence means.
    pub on_loss: OnLoss,
    /// Must be running this long after it was granted: the manager alone keeps that deadline.
    pub start_within: Millis,
    /// How much run time is left, where the job limits it.
    pub run_left: Option<Millis>,
    /// Pods of this job that failed in earlier attempts: they count against its back-off limit.
    pub pod_failures: u32,
    /// How important it is: of gangs that lose their nodes together the more important one is given another place first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// The manager's code over what identifies this grant: without it a run that is shown later isn't adopted.
    pub mac: Option<Mac>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The bytes that a grant's code covers: what a later leadership must believe to adopt its run.
#[expect(
    clippy::too_many_arguments,
    reason = "each part identifies the grant, and each is a type of its own"
)]
pub fn grant_message(
    cluster: &ClusterName,
    ledger: LedgerId,
    uid: Uid,
    fence: Fence,
    offer: OfferId,
    attempt: u32,
    term: Millis,
    on_loss: OnLoss,
) -> Vec<u8> {
    format!("grant 1\n{cluster}\n{ledger}\n{uid}\n{fence}\n{offer}\n{attempt}\n{}\n{on_loss:?}\n", term.0)
        .into_bytes()
}

/// What the loss of a cluster means for a gang there; fixed at submission for the uid's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub enum OnLoss {
    /// After the lapse the manager may grant elsewhere.
    #[default]
    Fence,
    /// Silence neither stops a gang nor moves it.
    Wait,
}

/// Why a run is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StopReason {
    /// The job was deleted or cancelled.
    Cancelled,
    /// A policy no longer allows it here.
    Residency,
    /// The cluster is being drained.
    Drained,
    /// An operator or a queue took its quota.
    Evicted,
    /// Another attempt counts, or nobody knows this one any more.
    Superseded,
    /// It did not reach running in time.
    StartTimeout,
}

/// News from an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The whole gang has room until a deadline that only the agent judges.
    Held {
        /// The offer.
        offer: OfferId,
        /// Its workload.
        uid: Uid,
    },
    /// A provider is working on it.
    Waiting {
        /// The offer.
        offer: OfferId,
        /// Its workload.
        uid: Uid,
        /// The provider's own words.
        reason: String,
        /// When room may be there, if the provider says.
        estimate: Option<Millis>,
    },
    /// No room, and why.
    Refused {
        /// The offer.
        offer: OfferId,
        /// Its workload.
        uid: Uid,
        /// From the closed list.
        reason: RefuseReason,
        /// In words.
        text: String,
    },
    /// The offer is no more: withdrawn as asked, or its hold ran out.
    Gone {
        /// The offer.
        offer: OfferId,
        /// Its workload.
        uid: Uid,
        /// True when the hold ran out by itself.
        expired: bool,
    },
    /// The grant is durable here.
    Accepted {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Where its pods go.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// A durable refusal of exactly this grant.
    GrantRefused {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Why.
        why: GrantRefusal,
    },
    /// All pods of the gang have started. Said again where its pods are elsewhere since.
    Running {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Where its pods are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// The attempt has room for all pods that it grows by, durably: they start now. What ran runs on.
    Grown {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Which growth.
        number: RecordNumber,
    },
    /// The attempt goes on as it is. The answer to this growth stays the same, however often it is asked for.
    NotGrown {
        /// The workload.
        uid: Uid,
        /// The attempt.
        fence: Fence,
        /// Which growth.
        number: RecordNumber,
        /// From the closed list.
        reason: RefuseReason,
        /// In words.
        text: String,
    },
    /// The attempt is over: everything of it was seen ended.
    Ended(End),
}

impl Event {
    /// About how many bytes it takes in a request, never much less.
    pub fn weight(&self) -> usize {
        // Ids, numbers, field names.
        const FRAME: usize = 512;
        // A string within JSON: quotes and backslashes double.
        let text = |text: &String| 2 * text.len();
        match self {
            Self::Accepted { placement, .. } | Self::Running { placement, .. } => {
                FRAME + placement.as_ref().map_or(0, |p| p.weight())
            }
            Self::Waiting { reason, .. } => FRAME + text(reason),
            Self::Refused { text: words, .. } | Self::NotGrown { text: words, .. } => FRAME + text(words),
            Self::Ended(end) => match &end.result {
                EndResult::Failed { reason, message } => FRAME + text(reason) + text(message),
                EndResult::NodeLost { message } => FRAME + text(message),
                EndResult::Succeeded | EndResult::Stopped | EndResult::LeaseLapsed => FRAME,
            },
            Self::Held { .. } | Self::Gone { .. } | Self::GrantRefused { .. } | Self::Grown { .. } => FRAME,
        }
    }
}

/// Why an offer is refused: a closed list, so that the manager knows what reopens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RefuseReason {
    /// Not enough free together now; reopens when capacity changes.
    NoRoom,
    /// Would not fit even if empty; reopens when the cluster changes.
    NeverFits,
    /// The runner can't run this kind of job.
    Unsupported,
    /// The agent is full of tombstones, holds or offers; reopens after back-off.
    Overloaded,
    /// The provider failed; reopens after back-off.
    ProviderFailed,
    /// This uid still runs here under an older fence.
    StillRuns,
}

/// Why a grant is refused, durably.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GrantRefusal {
    /// A larger fence of this uid is known.
    StaleFence {
        /// The largest known.
        known: Fence,
    },
    /// The offer is unknown, withdrawn or past its deadline.
    NoHold,
    /// The uid still runs here under an older fence.
    StillRuns {
        /// Which.
        fence: Fence,
    },
    /// By the agent's count the lease has already lapsed, or its stop would begin at once.
    Lapsed,
}

/// The end of one attempt. It stays with the agent as a tombstone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct End {
    /// The workload.
    pub uid: Uid,
    /// The attempt's fence.
    pub fence: Fence,
    /// How it ended.
    pub result: EndResult,
    /// Pods of this job that have failed so far, over all attempts.
    pub pod_failures: u32,
    /// Run time that this attempt used.
    pub ran: Millis,
    /// Shows that it was granted, to a journal that is a copy from before; absent where nothing was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Box<Proof>>,
}

/// What a grant was, with the code that it carried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Proof {
    /// The offer that it came from.
    pub offer: OfferId,
    /// Which attempt.
    pub attempt: u32,
    /// Its term.
    pub term: Millis,
    /// What silence meant for it.
    pub on_loss: OnLoss,
    /// The manager's code over it.
    pub mac: Mac,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndResult {
    /// The job succeeded: final.
    Succeeded,
    /// The job failed by its own doing: final.
    Failed {
        /// Kubernetes' condition reason, such as `BackoffLimitExceeded`.
        reason: String,
        /// In words.
        message: String,
    },
    /// Stopped as the manager asked, or a tombstone for a fence that never ran here.
    Stopped,
    /// The lease ran out and the agent stopped it.
    LeaseLapsed,
    /// The node, the guard or the machine went away under it.
    NodeLost {
        /// In words.
        message: String,
    },
}

impl EndResult {
    /// The same with its texts as [`clean`] leaves them.
    #[must_use]
    pub fn cleaned(self) -> Self {
        match self {
            Self::Failed { reason, message } => {
                Self::Failed { reason: clean(&reason), message: clean(&message) }
            }
            Self::NodeLost { message } => Self::NodeLost { message: clean(&message) },
            Self::Succeeded | Self::Stopped | Self::LeaseLapsed => self,
        }
    }
}

/// Room at a cluster, and what could grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Capacity {
    /// Grows with every change within a session.
    pub version: u64,
    /// The report counts everything that the agent decided up to this command.
    pub after_command: u64,
    /// `None`: `blocks` is everything. Otherwise a delta against this acknowledged version.
    pub base: Option<u64>,
    /// Alike nodes: with a base, the new count of each changed block (zero removes it).
    pub blocks: Vec<Block>,
    /// Pools that can grow from zero: `nodes` is how many more, `free` equals `capacity`.
    pub provisionable: Vec<Block>,
    /// What the runner is.
    pub runner: RunnerKind,
    /// Whether a gang ends by itself at the lapse.
    pub guarded: bool,
    /// Where the agent believes it is; disagreement with `Cluster` quarantines it.
    pub located: Option<Arc<str>>,
}

/// Which runner a cluster has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RunnerKind {
    /// Virtual duration; nothing really runs.
    #[default]
    Simulated,
    /// Real processes on one machine.
    Process,
    /// Objects of a Kubernetes cluster.
    Kubernetes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ContentHash;
    use std::collections::BTreeMap;

    fn bytes(value: &impl Serialize, count: usize) -> usize {
        (serde_json::to_vec(value).unwrap().len() + 1) * count
    }

    /// The longest that one agent may have to say at once still fits one body.
    #[test]
    fn the_largest_report_fits_one_body() {
        let most = u64::MAX;
        let fence = Fence { epoch: most, leadership: most, counter: most };
        let offer = OfferId { epoch: most, leadership: most, counter: most };
        let (uid, mac) = (Uid(u128::MAX), Mac("f".repeat(32)));
        // What has grown is of one pod set.
        let size = Size { parallelism: u32::MAX, completions: Some(u32::MAX) };
        let growth =
            Growth { number: RecordNumber(most), places: vec![u32::MAX], size, mac: Some(mac.clone()) };
        let run = Run {
            uid,
            fence,
            offer,
            attempt: u32::MAX,
            running: false,
            stopping: false,
            term: Millis(most),
            on_loss: OnLoss::Fence,
            spec: ContentHash::of(b""),
            mac: Some(mac.clone()),
            placement: None,
            spare: BTreeMap::from([("main".into(), u32::MAX)]),
            grown: Some(Box::new(growth)),
            priority: Some(i64::MIN),
        };
        // A quote is the longest that a cleaned character gets.
        let message = clean(&"\"".repeat(9_999));
        let proof = Proof { offer, attempt: u32::MAX, term: Millis(most), on_loss: OnLoss::Fence, mac };
        let result = EndResult::Failed { reason: "BackoffLimitExceeded".into(), message };
        let end = End {
            uid,
            fence,
            result,
            pod_failures: u32::MAX,
            ran: Millis(most),
            proof: Some(Box::new(proof)),
        };
        let ended = Event::Ended(end.clone());
        assert!(bytes(&ended, 1) <= ended.weight());
        let total = bytes(&run, RUNS_MAX)
            + bytes(&end, ENDS_MAX)
            + EVENTS_BYTES_MAX
            + PLACEMENTS_BYTES_MAX
            + bytes(&(offer, uid), RUNS_MAX);
        let total =
            total + bytes(&Spare { uid, fence, pods: run.spare.clone(), failures: u32::MAX }, SPARE_MAX);
        assert!(total + CAPACITY_BYTES_MAX + RECEIPTS_BYTES_MAX + 4 * 1024 < BODY_BYTES_MAX, "{total} bytes");
    }

    #[test]
    fn text_is_cut_between_characters_and_holds_no_control() {
        assert_eq!(clean("a\u{1b}[2J\nb"), "a [2J b");
        assert_eq!(clean(&"é".repeat(600)).len(), TEXT_BYTES_MAX);
        assert_eq!(clean(&format!("x{}", "é".repeat(600))).len(), TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn the_wire_form_of_version_1_is_fixed() {
        let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
        let offer = OfferId { epoch: 2, leadership: 7, counter: 1 };
        let answer = SyncAnswer::Ok(Box::new(SyncResponse {
            version: VERSION,
            leadership: Leadership { epoch: 2, id: 7 },
            session: Session { counter: 1, id: 5 },
            transmission: 4,
            receipt: Receipt {
                journal: JournalId(1),
                leadership: Leadership { epoch: 2, id: 7 },
                record: RecordNumber(9),
                rules: RecordNumber(3),
                audit_head: None,
                mac: None,
            },
            members: vec!["eu".into()],
            events_through: 2,
            ends_acknowledged: vec![(Uid(1), fence, RecordNumber(8))],
            commands: vec![
                Command::Withdraw { offer, uid: Uid(1) },
                Command::Stop { uid: Uid(1), fence, reason: StopReason::Cancelled },
            ],
            commands_from: 1,
            renewals: vec![(Uid(2), fence)],
            want_inventory: false,
            capacity_acknowledged: 1,
            ranges: vec![(Leadership { epoch: 2, id: 7 }, RecordNumber(1), RecordNumber(9))],
            poll: Millis(1_000),
        }));
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"Ok":{"version":1,"leadership":"2-7","session":"1-5","transmission":4,"receipt":{"journal":"00000000-0000-0000-0000-000000000001","#,
                r#""leadership":"2-7","record":9,"rules":3,"audit_head":null,"mac":null},"members":["eu"],"events_through":2,"#,
                r#""ends_acknowledged":[["00000000-0000-0000-0000-000000000001","2-7-3",8]],"#,
                r#""commands":[{"Withdraw":{"offer":"2-7-1","uid":"00000000-0000-0000-0000-000000000001"}},"#,
                r#"{"Stop":{"uid":"00000000-0000-0000-0000-000000000001","fence":"2-7-3","reason":"Cancelled"}}],"commands_from":1,"#,
                r#""renewals":[["00000000-0000-0000-0000-000000000002","2-7-3"]],"want_inventory":false,"capacity_acknowledged":1,"ranges":[["2-7",1,9]],"poll":1000}}"#
            )
        );
        assert_eq!(serde_json::from_str::<SyncAnswer>(&text).unwrap(), answer);
    }

    #[test]
    fn a_digest_does_not_depend_on_order_and_tells_offers_from_grants() {
        let fence = Fence { epoch: 1, leadership: 2, counter: 3 };
        let offer = OfferId { epoch: 1, leadership: 2, counter: 3 };
        let a = Digest::default().with_offer(offer).with_grant(Uid(9), fence);
        let b = Digest::default().with_grant(Uid(9), fence).with_offer(offer);
        assert_eq!(a, b);
        assert_ne!(Digest::default().with_offer(offer), Digest::default().with_grant(Uid(0), fence));
        assert_ne!(Digest::default().with_grant(Uid(1), fence), Digest::default().with_grant(Uid(2), fence));
    }
}

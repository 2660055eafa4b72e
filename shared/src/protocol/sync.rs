//! One sync: what the agent asks and reports, and what the manager answers.

use super::{Capacity, Command, Digest, Event, Inventory, PodReport};
use crate::ids::{ClusterName, Fence, JournalId, Leadership, LedgerId, RecordNumber, Session, Uid};
use crate::mac::Mac;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Which of the two requests in flight this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// May be parked until there is something to answer.
    Poll,
    /// Carries events and is answered at once.
    News,
}

/// Requests and reports of an agent in one transmission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SyncRequest {
    pub version: u32,
    /// The agent's durable store.
    pub ledger: LedgerId,
    /// Session of the agent, new with every start of its process.
    pub session: Session,
    /// Number of this HTTP request; never used twice within a session.
    pub transmission: u64,
    pub lane: Lane,
    /// The leadership that the agent has persisted and follows; `None` before the first answer.
    pub follows: Option<Leadership>,
    /// The highest transmission that this session has taken an answer to.
    pub answered: u64,
    /// Commands up to this number were taken.
    pub commands_through: u64,
    /// Oldest first, from `events_from` on without gaps.
    pub events: Vec<Event>,
    /// Number of the first of `events`.
    pub events_from: u64,
    /// Number of the last event of this session so far.
    pub events_last: u64,
    /// Digest after `commands_through` and `events_last`.
    pub digest: Digest,
    /// The complete inventory, when this leadership has none yet or asked for it.
    pub inventory: Option<Inventory>,
    /// Capacity, when it changed since the version that the manager acknowledged.
    pub capacity: Option<Capacity>,
    /// Pod reports that no answer has acknowledged yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare: Vec<PodReport>,
    /// Whether this agent supports [`Command::ScaleDown`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub supports_scale_down: bool,
    /// Whether this agent supports [`Command::ScaleUp`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub supports_scale_up: bool,
    /// Whether this agent supports [`Command::SetPriority`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub supports_priority: bool,
}

impl SyncRequest {
    /// Whether the request has nothing new, so that its answer can be parked.
    pub fn may_wait(&self) -> bool {
        self.lane == Lane::Poll
            && self.events.is_empty()
            && self.inventory.is_none()
            && self.capacity.is_none()
            && self.spare.is_empty()
    }
}

/// The manager's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncAnswer {
    Ok(Box<SyncResponse>),
    /// Nothing of the request was used.
    Refused(SyncRefusal),
}

/// Why a sync was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncRefusal {
    /// The protocol version isn't supported.
    Version {
        /// Oldest supported version.
        oldest: u32,
        /// Newest supported version.
        newest: u32,
    },
    /// A newer session of this ledger is known, or this is a clone: make a new ledger or stop.
    Superseded {
        /// The session that counts.
        by: Session,
    },
    /// The agent follows a newer leadership: the manager must take a higher epoch first.
    NewerLeadership {
        /// The leadership that the agent follows.
        follows: Leadership,
    },
    /// The agent's ledger was replaced or declared lost: the agent must stop everything that it runs, then
    /// make a new ledger or exit.
    LedgerLost,
    /// There is no cluster of this name, or its certificate was revoked.
    UnknownCluster,
    /// The manager doesn't lead, or its claim has expired: try again.
    NotLeading,
    /// The request breaks a bound or a rule; with a message.
    Malformed(String),
}

/// The answer to a sync that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SyncResponse {
    pub version: u32,
    /// The agent persists it before it does anything that the answer says.
    pub leadership: Leadership,
    /// Echo; an answer to another session is ignored.
    pub session: Session,
    /// Echo. Leases that this answer grants or renews count from when this transmission was sent.
    pub transmission: u64,
    pub receipt: Receipt,
    /// Names of all clusters that ever had a session. Covered by the receipt's code.
    pub members: Vec<ClusterName>,
    /// Events up to this number are journaled: don't send them again.
    pub events_through: u64,
    /// Ends with a committed record; the agent keeps them as acknowledged tombstones.
    pub ends_acknowledged: Vec<(Uid, Fence, RecordNumber)>,
    /// Numbered from `commands_from` on without gaps.
    pub commands: Vec<Command>,
    /// Number of the first of `commands`.
    pub commands_from: u64,
    /// Leases that this answer renews. An omitted lease isn't ended.
    pub renewals: Vec<(Uid, Fence)>,
    /// Send the complete inventory next.
    pub want_inventory: bool,
    /// The capacity version that was taken.
    pub capacity_acknowledged: u64,
    /// Record ranges of this journal (leadership, first, last): ends acknowledged elsewhere are reported
    /// again.
    pub ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    /// The next poll may be parked this long.
    pub poll: Millis,
}

/// Statement of a manager about itself. Agents keep the newest and report it in every inventory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Receipt {
    pub journal: JournalId,
    pub leadership: Leadership,
    /// The newest committed record.
    pub record: RecordNumber,
    /// The record of the newest change of a policy or a quota.
    pub rules: RecordNumber,
    /// Head of the audit log, kept by agents as a witness.
    pub audit_head: Option<String>,
    /// The manager's code over everything above and the member list. A receipt without it is ignored.
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

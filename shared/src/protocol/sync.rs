//! One sync: the agent's requests and reports, and the manager's answer.

use super::{Capacity, Command, Digest, Event, Inventory, PodReport};
use crate::ids::{ClusterName, Fence, JournalId, Leadership, LedgerId, RecordNumber, Session, Uid};
use crate::mac::Mac;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Kind of a request: an agent has one of each in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// The request may be parked until there is something to answer.
    Poll,
    /// The request carries events and is answered at once.
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
    /// The highest transmission whose answer this session has taken.
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
    /// The complete inventory, if this leadership has none yet or has asked for it.
    pub inventory: Option<Inventory>,
    /// Capacity, if it has changed since the version that the manager acknowledged.
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
    /// Whether the request reports nothing, so that it may be parked.
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
    /// A newer session of this ledger is known, or the agent is a clone. It must create a new ledger or stop.
    Superseded {
        /// The valid session.
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
    /// The request breaks a bound or a rule, which the message names.
    Malformed(String),
}

/// The answer to a sync that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SyncResponse {
    pub version: u32,
    /// Leadership of the manager. The agent persists it before it acts on the answer.
    pub leadership: Leadership,
    /// Session of the request. An agent ignores answers to another session.
    pub session: Session,
    /// Transmission of the request. Leases that this answer grants or renews count from the time when the
    /// transmission was sent.
    pub transmission: u64,
    pub receipt: Receipt,
    /// Names of all clusters that ever had a session. The receipt's authentication code covers them.
    pub members: Vec<ClusterName>,
    /// Events up to this number are journaled: don't send them again.
    pub events_through: u64,
    /// Ends whose records are committed. The agent keeps them as acknowledged tombstones.
    pub ends_acknowledged: Vec<(Uid, Fence, RecordNumber)>,
    /// Numbered from `commands_from` on without gaps.
    pub commands: Vec<Command>,
    /// Number of the first of `commands`.
    pub commands_from: u64,
    /// Leases that this answer renews. A lease that isn't listed is neither renewed nor ended.
    pub renewals: Vec<(Uid, Fence)>,
    /// Whether the agent must send its complete inventory next.
    pub want_inventory: bool,
    /// The capacity version that was taken.
    pub capacity_acknowledged: u64,
    /// Record ranges of this journal (leadership, first, last). The agent reports ends again whose
    /// acknowledging record isn't in them.
    pub ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    /// How long the next poll may be parked.
    pub poll: Millis,
}

/// Statement of a manager about its journal. Agents keep the newest receipt and report it in every inventory.
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
    /// The manager's authentication code over the fields above and the member list. A receipt without it is
    /// ignored.
    pub mac: Option<Mac>,
}

impl Receipt {
    /// The bytes that the authentication code covers.
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

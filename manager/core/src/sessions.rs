//! Volatile state per connected agent. A new leadership learns it from the agents.

pub mod budget;
pub mod failed_starts;
pub mod outbox;
pub(crate) mod provider_failures;
pub mod unacknowledged;

use crate::sessions::unacknowledged::UnacknowledgedAnswer;
use budget::Budget;
use meridian_placement::cluster_capacity::ClusterCapacity;
use meridian_shared::ids::{Fence, RecordNumber, Session, Uid};
use meridian_shared::time::Mono;
use outbox::Outbox;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One agent session with this leadership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveCluster {
    pub session: Session,
    /// Protocol version of the agent.
    pub version: u32,
    /// Time of the last contact.
    pub heard: Mono,
    /// When the agent last acknowledged a new answer.
    pub acknowledged: Mono,
    /// The highest transmission of which the agent acknowledged the answer.
    pub answered: u64,
    /// Content of unacknowledged answers, by transmission.
    pub unacknowledged: BTreeMap<u64, UnacknowledgedAnswer>,
    /// Newest record among acknowledged answers. The agent knows all members up to this record.
    pub acknowledged_record: RecordNumber,
    /// Number of the newest event taken from the agent.
    pub events_through: u64,
    /// Whether the agent has sent a complete inventory to this leadership.
    pub inventoried: bool,
    /// Whether the next answer asks for an inventory.
    pub want_inventory: bool,
    /// When leases are next checked for renewal.
    pub renew_at: Mono,
    /// When digests are next compared.
    pub digest_at: Mono,
    pub outbox: Outbox,
    /// Ends to acknowledge to the agent, each with its record.
    pub acknowledge: BTreeMap<(Uid, Fence), RecordNumber>,
    /// Budget for journal writes that the agent could otherwise cause without end.
    pub budget: Budget,
    pub capacity: ClusterCapacity,
    /// Consecutive workloads that got capacity but didn't reach running in time.
    pub failed_starts: u32,
    /// The last of these workloads.
    pub failed_last: Option<Uid>,
    /// End of the backoff after failed starts. Until then the cluster gets no offers.
    pub backed_off: Mono,
    /// The region that the agent detected, if it can detect one.
    pub located: Option<Arc<str>>,
    /// Whether the agent can scale down a running gang.
    pub supports_scale_down: bool,
    /// Whether the agent can scale up a running gang.
    pub supports_scale_up: bool,
    /// Whether the agent can change the priority of a running gang.
    pub supports_priority: bool,
}

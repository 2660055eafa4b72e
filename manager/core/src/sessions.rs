pub mod budget;
pub mod failed_starts;
pub mod outbox;
pub mod unacknowledged;

use crate::placement::capacity::ClusterCapacity;
use crate::sessions::unacknowledged::UnacknowledgedAnswer;
use budget::Budget;
use meridian_shared::ids::{Fence, RecordNumber, Session, Uid};
use meridian_shared::time::Mono;
use outbox::Outbox;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One agent session that talks to this leadership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveCluster {
    /// The session.
    pub session: Session,
    /// The version of the protocol that its agent speaks.
    pub version: u32,
    /// When anything was last heard.
    pub heard: Mono,
    /// When it last acknowledged an answer that it hadn't before.
    pub acknowledged: Mono,
    /// The highest transmission whose answer it took.
    pub answered: u64,
    /// What each unacknowledged answer said.
    pub unacknowledged: BTreeMap<u64, UnacknowledgedAnswer>,
    /// The newest record of an answer that it took: it knows every member named until then.
    pub acknowledged_record: RecordNumber,
    /// Events taken.
    pub events_through: u64,
    /// A complete inventory for this leadership was taken.
    pub inventoried: bool,
    /// Ask for an inventory.
    pub want_inventory: bool,
    /// Leases are looked at for renewal again at this moment.
    pub renew_at: Mono,
    /// Digests are compared again at this moment.
    pub digest_at: Mono,
    /// Numbered commands.
    pub outbox: Outbox,
    /// Ends to acknowledge, with their record.
    pub acknowledge: BTreeMap<(Uid, Fence), RecordNumber>,
    /// What it has had written of what was known.
    pub budget: Budget,
    /// Room as reported and as estimated.
    pub capacity: ClusterCapacity,
    /// Workloads that did not reach running there, in a row.
    pub failed_starts: u32,
    /// The last of them.
    pub failed_last: Option<Uid>,
    /// Left out until then.
    pub backed_off: Mono,
    /// The region in which the agent finds itself, if it can tell.
    pub located: Option<Arc<str>>,
    /// Its agent can let a gang go on with fewer pods.
    pub shrinks: bool,
    /// And with more.
    pub grows: bool,
    /// And can be told another priority.
    pub ranks: bool,
}

//! Reports of an agent: progress of offers and attempts, and how attempts end.

use super::{OnLoss, clean};
use crate::ids::{Fence, OfferId, RecordNumber, Uid};
use crate::indexes::Indexes;
use crate::mac::Mac;
use crate::placement::Placement;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A report from an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The whole gang's capacity is held, until a deadline that only the agent enforces.
    Held { offer: OfferId, uid: Uid },
    /// A provider is working on the offer.
    Waiting {
        offer: OfferId,
        uid: Uid,
        /// The provider's own message.
        reason: String,
        /// The provider's estimate of the wait, if it has one.
        estimate: Option<Millis>,
    },
    /// The gang does not fit.
    Refused {
        offer: OfferId,
        uid: Uid,
        reason: RefuseReason,
        /// Message for users.
        text: String,
    },
    /// The offer is over: withdrawn as requested, or its hold expired.
    Gone {
        offer: OfferId,
        uid: Uid,
        /// Whether the hold expired by itself.
        expired: bool,
    },
    /// The grant is durable at the agent.
    Accepted {
        uid: Uid,
        fence: Fence,
        /// Nodes or domains of the pods.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// The agent has durably refused this grant.
    GrantRefused { uid: Uid, fence: Fence, why: GrantRefusal },
    /// All pods of the gang have started. Repeated when pods have moved.
    Running {
        uid: Uid,
        fence: Fence,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placement: Option<Arc<Placement>>,
    },
    /// The attempt has durably reserved capacity for all added pods, which start now. Running pods aren't
    /// affected.
    ScaledUp {
        uid: Uid,
        fence: Fence,
        /// Number of the scale-up.
        number: RecordNumber,
    },
    /// The scale-up is refused, and the attempt keeps its size. Every repetition of this scale-up gets the
    /// same answer.
    ScaleUpRefused {
        uid: Uid,
        fence: Fence,
        /// Number of the scale-up.
        number: RecordNumber,
        reason: RefuseReason,
        /// Message for users.
        text: String,
    },
    /// The attempt is over: the agent has seen the end of all its pods.
    Ended(End),
}

impl Event {
    /// Approximate size in a request, in bytes; never much less than the real size.
    pub fn weight(&self) -> usize {
        // Bytes of ids, numbers and field names.
        const FRAME: usize = 512;
        // In JSON, quotes and backslashes take two bytes.
        let text = |text: &String| 2 * text.len();
        match self {
            Self::Accepted { placement, .. } | Self::Running { placement, .. } => {
                FRAME + placement.as_ref().map_or(0, |p| p.weight())
            }
            Self::Waiting { reason, .. } => FRAME + text(reason),
            Self::Refused { text: words, .. } | Self::ScaleUpRefused { text: words, .. } => {
                FRAME + text(words)
            }
            Self::Ended(end) => {
                let message = match &end.result {
                    EndResult::Failed { reason, message } => text(reason) + text(message),
                    EndResult::NodeLost { message } => text(message),
                    EndResult::Succeeded | EndResult::Stopped | EndResult::LeaseLapsed => 0,
                };
                FRAME + end.completed.weight() + message
            }
            Self::Held { .. } | Self::Gone { .. } | Self::GrantRefused { .. } | Self::ScaledUp { .. } => {
                FRAME
            }
        }
    }
}

/// Why an offer is refused: a closed list, so that the manager knows which changes make another offer useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RefuseReason {
    /// The gang doesn't fit into the free capacity now. Another offer is useful after a change of capacity.
    NoCapacity,
    /// The gang wouldn't fit even on empty nodes. Another offer is useful after a change of the cluster's
    /// nodes.
    NeverFits,
    /// The runner can't run this kind of job.
    Unsupported,
    /// The agent has too many tombstones, holds or offers. Another offer is useful after a backoff.
    Overloaded,
    /// The provider failed. Another offer is useful after a backoff.
    ProviderFailed,
    /// The uid still runs here under an older fence.
    StillRuns,
    /// Something else that the gang needs is missing in the cluster, or can't be checked now. Another offer
    /// is useful after a backoff.
    Precondition,
}

impl RefuseReason {
    /// The reason's word on the wire, in metrics and in logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoCapacity => "NoCapacity",
            Self::NeverFits => "NeverFits",
            Self::Unsupported => "Unsupported",
            Self::Overloaded => "Overloaded",
            Self::ProviderFailed => "ProviderFailed",
            Self::StillRuns => "StillRuns",
            Self::Precondition => "Precondition",
        }
    }
}

/// Why a grant is refused, durably.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GrantRefusal {
    /// A larger fence of this uid is known.
    StaleFence {
        /// The largest known fence.
        known: Fence,
    },
    /// The offer is unknown, withdrawn or past its deadline.
    NoHold,
    /// The uid still runs here under an older fence.
    StillRuns {
        /// The fence that still runs.
        fence: Fence,
    },
    /// By the agent's clock the lease has lapsed, or the stop would have to begin at once.
    Lapsed,
}

/// The end of one attempt. The agent keeps it as a tombstone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct End {
    pub uid: Uid,
    pub fence: Fence,
    pub result: EndResult,
    /// Pods of this job that failed so far, over all attempts.
    pub pod_failures: u32,
    /// Run time of this attempt.
    pub ran: Millis,
    /// Completion indexes that succeeded so far, over all attempts.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub completed: Indexes,
    /// Proves the grant to a journal that was restored from a backup made before it. `None` if the agent
    /// accepted no grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Box<Proof>>,
}

/// The identity of a grant, with the manager's authentication code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Proof {
    pub offer: OfferId,
    pub attempt: u32,
    pub term: Millis,
    pub on_loss: OnLoss,
    pub mac: Mac,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndResult {
    Succeeded,
    /// The job failed by itself: final.
    Failed {
        /// Kubernetes' condition reason, such as `BackoffLimitExceeded`.
        reason: String,
        /// Message for users.
        message: String,
    },
    /// Stopped on the manager's command, or a tombstone for a fence that never ran here.
    Stopped,
    /// The lease lapsed and the agent stopped the gang.
    LeaseLapsed,
    /// The node, the guard or the machine was lost.
    NodeLost {
        /// Message for users.
        message: String,
    },
}

/// As logs of both sides write it.
impl fmt::Display for EndResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Failed { reason, message } => write!(f, "failed: {reason}: {message}"),
            Self::Stopped => f.write_str("stopped"),
            Self::LeaseLapsed => f.write_str("its lease lapsed at the agent"),
            Self::NodeLost { message } => write!(f, "a node was lost: {message}"),
        }
    }
}

impl EndResult {
    /// The result with its texts cleaned by [`clean`].
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

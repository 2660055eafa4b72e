//! Commands of the manager: offers, grants, stops, and changes of size or priority.

use super::{Reference, ScaleUp, Size};
use crate::gang::Gang;
use crate::ids::{ClusterName, Fence, LedgerId, OfferId, Uid};
use crate::indexes::Indexes;
use crate::mac::Mac;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A command to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// Asks whether the gang fits, and to hold capacity for it. Contains the gang's shape and the names of
    /// what its pods need, and nothing else of the spec.
    Offer(Box<Offer>),
    /// The offer is over, and its capacity must be released.
    Withdraw {
        offer: OfferId,
        uid: Uid,
    },
    Grant(Box<Grant>),
    /// Stop this attempt and confirm, even if the attempt is unknown. Has only ids.
    Stop {
        uid: Uid,
        fence: Fence,
        /// Reason for the stop, stored with the attempt.
        reason: StopReason,
    },
    /// Continue this attempt with fewer pods. Only for agents that declare
    /// [`SyncRequest::supports_scale_down`](super::SyncRequest).
    ScaleDown {
        uid: Uid,
        fence: Fence,
        /// The size from now on.
        size: Size,
    },
    /// Continue this attempt with more pods: all of them or none. Only for agents that declare
    /// [`SyncRequest::supports_scale_up`](super::SyncRequest).
    ScaleUp {
        uid: Uid,
        fence: Fence,
        scale_up: Box<ScaleUp>,
    },
    /// Change the priority of this attempt. Only for agents that declare
    /// [`SyncRequest::supports_priority`](super::SyncRequest).
    SetPriority {
        uid: Uid,
        fence: Fence,
        priority: i64,
    },
}

impl Command {
    /// Approximate size in an answer, in bytes; never much less than the real size.
    pub fn weight(&self) -> usize {
        // Ids, numbers, field names.
        const FRAME: usize = 512;
        // Bytes of the kind and of field names.
        const REFERENCE: usize = 48;
        match self {
            Self::Offer(offer) => {
                let reference = |reference: &Reference| REFERENCE + 2 * reference.name.len();
                FRAME + offer.gang.weight() + offer.references.iter().map(reference).sum::<usize>()
            }
            // Quotes and backslashes double within JSON.
            Self::Grant(grant) => FRAME + 2 * grant.spec.len(),
            Self::ScaleUp { scale_up, .. } => FRAME + 12 * scale_up.places.len(),
            Self::Withdraw { .. } | Self::Stop { .. } | Self::ScaleDown { .. } | Self::SetPriority { .. } => {
                FRAME
            }
        }
    }
}

/// One offer to one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Offer {
    /// Id of the offer. Later messages about the offer repeat it.
    pub offer: OfferId,
    pub uid: Uid,
    /// Namespace of the job. Sent because a cluster may have to check that it exists.
    pub namespace: Arc<str>,
    /// Kind of the job behind the workload, such as `Job`.
    pub kind: Arc<str>,
    pub gang: Arc<Gang>,
    /// How long a hold should last. Only the agent sets and enforces the deadline.
    pub hold: Millis,
    /// Whether the runner must end the gang by itself when its lease lapses.
    pub requires_guarded: bool,
    /// Features that the job's pods need and only a container runtime offers, by field name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_needs: Option<Arc<str>>,
    /// Name of a container without an image. Only runners that need no images can start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_image: Option<Arc<str>>,
    /// Objects that the job's pods refer to and need to start, without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

/// The right to run one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The offer that was held.
    pub offer: OfferId,
    pub uid: Uid,
    /// Grows with every grant of the workload.
    pub fence: Fence,
    /// Counts grants of this workload, from 1.
    pub attempt: u32,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The whole job as JSON.
    pub spec: Arc<str>,
    /// How long the grant is valid without renewal.
    pub term: Millis,
    pub on_loss: OnLoss,
    /// Time from the grant within which the gang must run. Only the manager enforces this deadline.
    pub start_within: Millis,
    /// Remaining run time, if the job limits it.
    pub run_left: Option<Millis>,
    /// Pods of this job that failed in earlier attempts: they count against its `backoffLimit`.
    pub pod_failures: u32,
    /// Completion indexes that succeeded in earlier attempts: they don't run again.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub completed: Indexes,
    /// Priority of the workload. When several gangs lose nodes, those of higher priority get replacements
    /// first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// The manager's authentication code over the identity of this grant. A reported run without it isn't
    /// adopted.
    pub mac: Option<Mac>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The bytes that a grant's authentication code covers: the facts that a later leadership needs to adopt the
/// run.
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

/// What happens to a gang if its cluster is lost. Fixed at submission for the life of the uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub enum OnLoss {
    /// After the lapse the manager may grant elsewhere.
    #[default]
    Fence,
    /// If the cluster is lost, the gang is neither stopped nor started elsewhere.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StopReason {
    Cancelled,
    Residency,
    Drained,
    Evicted,
    /// Another attempt is valid, or the manager doesn't know this attempt.
    Superseded,
    /// The gang did not run in time.
    StartTimeout,
}

impl StopReason {
    /// The reason's word on the wire and in the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancelled => "Cancelled",
            Self::Residency => "Residency",
            Self::Drained => "Drained",
            Self::Evicted => "Evicted",
            Self::Superseded => "Superseded",
            Self::StartTimeout => "StartTimeout",
        }
    }
}

//! The complete state of an agent, which recovery needs.

use super::{End, OnLoss, Receipt, ScaleUp};
use crate::ids::{ClusterName, ContentHash, Fence, Leadership, OfferId, Uid};
use crate::mac::Mac;
use crate::placement::Placement;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The complete inventory of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inventory {
    /// The leadership for which the inventory was made. A manager ignores an inventory for another
    /// leadership.
    pub for_leadership: Option<Leadership>,
    /// Live runs, with the facts that a journal needs to adopt them.
    pub runs: Vec<Run>,
    /// Open offers, waiting or held.
    pub offers: Vec<(OfferId, Uid)>,
    /// Ends that aren't acknowledged, or are acknowledged only by a record outside the leader's ranges.
    pub ends: Vec<End>,
    /// Whether there are more ends than fit in one body. Then the inventory isn't complete until the sent
    /// ends are acknowledged.
    #[serde(default)]
    pub more: bool,
    /// The newest receipt of every known journal and leadership, each with its member list.
    pub receipts: Vec<(Receipt, Vec<ClusterName>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    pub uid: Uid,
    pub fence: Fence,
    pub offer: OfferId,
    pub attempt: u32,
    /// `namespace/name` of the job, for messages about a run that the manager doesn't know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Arc<str>>,
    /// Whether all pods have started.
    pub running: bool,
    /// Whether a stop is under way.
    pub stopping: bool,
    pub term: Millis,
    pub on_loss: OnLoss,
    /// Content hash of the spec that it runs.
    pub spec: ContentHash,
    /// The manager's authentication code from the run's grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Arc<Placement>>,
    /// Succeeded pods of each pod set, whose capacity is permanently free.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spare: BTreeMap<String, u32>,
    /// The latest scale-up whose capacity is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<Box<ScaleUp>>,
    /// The last priority that the agent received; `None` from an agent that does not support it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

//! Complete state of an agent, which recovery asks for.

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
    /// The leadership that it answers. An inventory for another leadership is ignored.
    pub for_leadership: Option<Leadership>,
    /// Live runs, with what a journal needs to adopt them.
    pub runs: Vec<Run>,
    /// Open offers, waiting or held.
    pub offers: Vec<(OfferId, Uid)>,
    /// Ends that are not acknowledged, or only by a record in no range that the leader named.
    pub ends: Vec<End>,
    /// There are more ends than fit in one body: the inventory isn't complete before these are acknowledged.
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
    /// `namespace/name` of the job, which names the run to users if the manager doesn't know it.
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
    /// The manager's code from its grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Arc<Placement>>,
    /// Succeeded pods of each pod set; their capacity is free for good.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spare: BTreeMap<String, u32>,
    /// The latest scale-up that has its capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<Box<ScaleUp>>,
    /// The last priority that the agent received; `None` from an agent that does not support it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

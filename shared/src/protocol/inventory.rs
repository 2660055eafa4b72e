//! What an agent has, run by run: the answer to recovery's question.

use super::{End, Growth, OnLoss, Receipt};
use crate::ids::{ClusterName, ContentHash, Fence, Leadership, OfferId, Uid};
use crate::mac::Mac;
use crate::placement::Placement;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one agent has, in full: the answer to recovery's question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inventory {
    /// The leadership that it is for; one for another leadership counts for nothing.
    pub for_leadership: Option<Leadership>,
    /// Runs that exist, with what a journal needs to adopt them.
    pub runs: Vec<Run>,
    /// Offers that are open here (waiting or held).
    pub offers: Vec<(OfferId, Uid)>,
    /// Ends that are not acknowledged, or whose acknowledging record is in no range that the leader named.
    pub ends: Vec<End>,
    /// There are more ends than one body takes: this inventory isn't complete before they are acknowledged.
    #[serde(default)]
    pub more: bool,
    /// The newest receipts of every journal and leadership heard of, each with its member list.
    pub receipts: Vec<(Receipt, Vec<ClusterName>)>,
}

/// One run that an agent has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The workload.
    pub uid: Uid,
    /// The grant.
    pub fence: Fence,
    /// The offer that it came from.
    pub offer: OfferId,
    /// Which attempt.
    pub attempt: u32,
    /// Whether all pods have started.
    pub running: bool,
    /// Whether it is being stopped.
    pub stopping: bool,
    /// Its term.
    pub term: Millis,
    /// What silence means for it.
    pub on_loss: OnLoss,
    /// Content hash of the spec it runs.
    pub spec: ContentHash,
    /// The code that its grant carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Where its pods are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Arc<Placement>>,
    /// Pods of each pod set that have succeeded and left their places for good.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spare: BTreeMap<String, u32>,
    /// The latest growth that has its room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown: Option<Box<Growth>>,
    /// How important it is, as the agent was told last; `None` from one that doesn't ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

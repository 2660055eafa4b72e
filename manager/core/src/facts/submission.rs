use crate::facts::actor::Actor;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ContentHash, Region};
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A workload as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Submission {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// What decisions depend on.
    pub class: Class,
    /// Higher goes first.
    pub priority: i64,
    /// The whole job, by content.
    pub body: ContentHash,
    /// Lease term, for the uid's life.
    pub term: Millis,
    /// What the loss of its cluster means, for the uid's life.
    pub on_loss: OnLoss,
    /// Keep it this long after its end.
    pub ttl: Option<Millis>,
    /// When.
    pub at: Wall,
    /// Who.
    pub by: Actor,
}

/// What decisions about a workload depend on. Workloads that are alike in it are alike to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Class {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its local queue.
    pub queue: Arc<str>,
    /// Kind of the job.
    pub kind: Arc<str>,
    /// Its labels, less those that only name it.
    pub labels: BTreeMap<String, String>,
    /// Regions it asks to stay in; empty asks for nothing.
    pub regions: Vec<Region>,
    /// What must start together.
    pub gang: Arc<Gang>,
    /// Whether its number of pods may change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
}

/// Why a cluster was asked: how many could have been, and whether others were asked with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Clusters that could start the gang by what they reported.
    pub able: u32,
    /// Clusters that were asked at once.
    pub asked: u32,
}

/// Use by resource, in billionths of one core, byte or device: with memory that is more than 64 bits hold.
pub type Consumed = BTreeMap<Arc<str>, i128>;

/// How recovery begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecoveryStart {
    /// The journal is a copy, or its file isn't the one it was: only a person releases by time.
    pub restored: bool,
    /// The journal is new in place of a lost one: members are unknown.
    pub members_unknown: bool,
}

/// An interned class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassId(pub u32);

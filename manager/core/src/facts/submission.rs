use crate::facts::actor::Actor;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ContentHash, Region};
use meridian_shared::protocol::{OnLoss, Reference};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A workload as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Submission {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub class: Class,
    /// Higher goes first.
    pub priority: i64,
    /// Content hash of the job's manifest.
    pub body: ContentHash,
    /// Lease term. Fixed for the life of the uid.
    pub term: Millis,
    /// What happens to the workload if its cluster is lost. Fixed for the life of the uid.
    pub on_loss: OnLoss,
    /// How long the workload is kept after its end; `None` means the manager's default.
    pub ttl: Option<Millis>,
    pub at: Wall,
    pub by: Actor,
    /// Whether the job existed before the leadership that accepted it, which then may not know where the job
    /// runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existed: bool,
}

/// Scheduling class: everything that decisions about a workload depend on, except priority and age. Workloads
/// of one class are equivalent to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Class {
    pub namespace: Arc<str>,
    /// The local queue.
    pub queue: Arc<str>,
    /// Kind of the job.
    pub kind: Kind,
    /// Labels of the job, without those that only name it.
    pub labels: BTreeMap<String, String>,
    /// Regions that the submitter restricts the workload to; empty for no restriction.
    pub regions: Vec<Region>,
    pub gang: Arc<Gang>,
    /// Whether the number of pods may change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// Number of completions, if it is fixed and more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<u32>,
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

impl Class {
    /// Whether only clusters that run containers can run it.
    pub fn needs_containers(&self) -> bool {
        self.kind != JobKind::usual().kind() || self.container_needs.is_some()
    }
}

/// How a cluster was chosen for an offer, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Number of clusters that could have started the gang, by their reports.
    pub able: u32,
    /// Number of clusters that got an offer at the same time.
    pub asked: u32,
}

/// Consumed amounts by resource, in billionths of a core, byte or device. Memory in that unit exceeds 64
/// bits.
pub type Consumed = BTreeMap<Arc<str>, i128>;

/// Risks that a leadership must respect when it starts in recovery.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecoveryStart {
    /// The journal is a copy, or its file was replaced. Another copy may lead, so time alone releases nothing
    /// before an operator confirms that there is none.
    pub restored: bool,
    /// The journal replaces a lost one, so the members aren't known.
    pub members_unknown: bool,
}

/// An interned [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassId(pub u32);

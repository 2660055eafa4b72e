//! One workload. It changes only by absorbing facts, in [`absorb`].

pub mod absorb;
pub mod activity;
pub mod evictions;
mod fingerprint;
pub mod limits;
pub mod phase;
mod readers;
pub mod size;

use crate::facts::actor::Actor;
use crate::facts::end::{AttemptEnd, EvictionCause, Preempted};
use crate::facts::flavors::Flavors;
use crate::facts::key::Key;
use crate::facts::submission::{Class, ClassId, Submission};
use crate::state::legs::{Leg, Legs};
use crate::state::workload::evictions::{Evicted, Evictions};
use crate::state::workload::phase::Phase;
use crate::state::workload::size::Resized;
use meridian_objects::Kind;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, ContentHash, Fence, OfferId, RecordNumber};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{EndResult, OnLoss, RefuseReason, StopReason};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The accessors in `readers` describe the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Workload {
    namespace: Arc<str>,
    name: Arc<str>,
    kind: Kind,
    class: ClassId,
    priority: i64,
    body: ContentHash,
    term: Millis,
    on_loss: OnLoss,
    ttl: Option<Millis>,
    created: Wall,
    submitted: RecordNumber,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    managed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    existed: bool,
    phase: Phase,
    since: Wall,
    changed: RecordNumber,
    flavors: Flavors,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counts: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spare: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resized: Option<Box<Resized>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ran_with: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserved: Option<Wall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    charged_to: Option<Arc<str>>,
    legs: Legs,
    fence: Option<Fence>,
    attempts: u32,
    pod_failures: u32,
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    completed: Indexes,
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    done_before: Indexes,
    #[serde(default, skip_serializing_if = "is_zero")]
    resizes: u32,
    ran: Millis,
    started: Option<Wall>,
    stopping: Option<StopReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preempted: Option<Preempted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evicted: Option<Box<Evicted>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    evictions: Vec<Evictions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inactive: Option<Box<Deactivation>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reactivated: Option<Box<Reactivation>>,
    deletion: Option<Wall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learned: Option<EndResult>,
    finished: Option<Finish>,
    refusals: BTreeMap<ClusterName, (RefuseReason, String)>,
    history: Vec<AttemptRecord>,
}

/// A deactivation that is in force: the workload is in no queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deactivation {
    pub by: Actor,
    pub at: Wall,
    /// The workload had run for its maximum execution time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub max_execution_time_reached: bool,
}

/// The last activation of a workload that had been deactivated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reactivation {
    pub at: Wall,
    /// Grants before the reactivation. They don't count for the backoff any more.
    pub attempts: u32,
}

/// The final result of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finish {
    pub succeeded: bool,
    /// Reason of the Kubernetes condition.
    pub reason: String,
    /// Message of the Kubernetes condition.
    pub message: String,
    pub at: Wall,
}

/// One attempt in a workload's history.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub cluster: ClusterName,
    pub fence: Fence,
    pub granted: Wall,
    /// When the attempt ended; `None` while it isn't confirmed to be over.
    pub over: Option<Wall>,
    /// How the attempt ended, if known.
    pub end: Option<AttemptEnd>,
    /// When all its pods had started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Wall>,
    /// Why it was ordered to stop, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Box<OrderedStop>>,
}

/// Why an attempt was ordered to stop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OrderedStop {
    /// `None` if the job was deleted.
    pub cause: Option<EvictionCause>,
    pub by: Actor,
    pub preempted: Option<Preempted>,
}

impl AttemptRecord {
    pub(crate) fn begin(cluster: ClusterName, fence: Fence, granted: Wall) -> Self {
        Self { cluster, fence, granted, over: None, end: None, started: None, stop: None }
    }

    /// Whether anything of the job ran in it.
    pub fn ran(&self) -> bool {
        let ended = match &self.end {
            Some(AttemptEnd::Reported(result)) => match result {
                EndResult::Succeeded | EndResult::Failed { .. } => true,
                EndResult::NodeLost { .. } | EndResult::Stopped | EndResult::LeaseLapsed => false,
            },
            Some(
                AttemptEnd::NoTrace
                | AttemptEnd::GrantRefused(_)
                | AttemptEnd::LeaseLapsed
                | AttemptEnd::DeclaredLost,
            )
            | None => false,
        };
        ended || self.started.is_some()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Workload {
    /// The leg that has, or may have, the right to run.
    pub fn right(&self) -> Option<(OfferId, &Leg)> {
        self.legs.iter().find(|(_, leg)| leg.state.granted()).map(|(offer, leg)| (*offer, leg))
    }

    /// Key of the job behind this workload.
    pub(crate) fn key(&self) -> Key {
        Key::namespaced(self.kind, &self.namespace, &self.name)
    }

    /// The gang as admitted: with fewer pods than the class has after a partial admission, and with the pods
    /// granted so far after a resize. Without quota, the gang that the next attempt needs.
    pub fn given_gang(&self, class: &Class) -> Arc<Gang> {
        let counts = self.counts.clone().or_else(|| self.counts_left(class));
        counts.map_or_else(|| class.gang.clone(), |counts| Arc::new(class.gang.with_counts(&counts)))
    }

    /// A pending workload, as submitted by the record `number`.
    pub fn new(s: &Submission, class: ClassId, number: RecordNumber) -> Self {
        Self {
            namespace: s.namespace.clone(),
            name: s.name.clone(),
            kind: s.class.kind,
            class,
            priority: s.priority,
            body: s.body,
            term: s.term,
            on_loss: s.on_loss,
            ttl: s.ttl,
            created: s.at,
            submitted: number,
            managed: s.by == Actor::ManagementCluster,
            existed: s.existed,
            phase: Phase::Pending,
            since: s.at,
            changed: number,
            flavors: Flavors::default(),
            counts: None,
            spare: None,
            resized: None,
            ran_with: None,
            reserved: None,
            charged_to: None,
            legs: Legs::default(),
            fence: None,
            attempts: 0,
            pod_failures: 0,
            completed: Indexes::default(),
            done_before: Indexes::default(),
            ran: Millis(0),
            started: None,
            stopping: None,
            preempted: None,
            evicted: None,
            evictions: Vec::new(),
            resizes: 0,
            inactive: None,
            reactivated: None,
            deletion: None,
            learned: None,
            finished: None,
            refusals: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    /// The leg that was granted with this fence, if it isn't over.
    pub fn leg_of(&self, fence: Fence) -> Option<(OfferId, &Leg)> {
        self.legs.iter().find(|(_, leg)| leg.fence == Some(fence)).map(|(offer, leg)| (*offer, leg))
    }
}

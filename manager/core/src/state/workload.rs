//! One workload. Facts change it in [`absorb`]; everything else only reads it.

pub mod absorb;
pub mod activity;
pub mod evictions;
mod fingerprint;
pub mod limits;
pub mod phase;
mod readers;
pub mod size;

use crate::facts::actor::Actor;
use crate::facts::end::{AttemptEnd, Preempted};
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
use meridian_shared::protocol::{EndResult, OnLoss, RefuseReason, StopReason};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Workload {
    /// As submitted; the class is interned.
    namespace: Arc<str>,
    /// Its name.
    name: Arc<str>,
    /// What decisions depend on.
    class: ClassId,
    /// Higher goes first.
    priority: i64,
    /// The whole job, by content.
    body: ContentHash,
    /// Its lease term.
    term: Millis,
    /// What the loss of its cluster means.
    on_loss: OnLoss,
    /// Kept this long after its end.
    ttl: Option<Millis>,
    /// When it was submitted.
    created: Wall,
    /// Its record: age in the queue, and which leadership minted it.
    submitted: RecordNumber,
    /// Where it stands.
    phase: Phase,
    /// Since when, for people.
    since: Wall,
    /// The newest record about it.
    changed: RecordNumber,
    /// Flavor per resource, while quota is charged.
    flavors: Flavors,
    /// Pods of each pod set that it was given, while quota is charged, where they are fewer than it would like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counts: Option<Vec<u32>>,
    /// Pods of each pod set that have succeeded and give back what they had, while quota is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spare: Option<Vec<u32>>,
    /// That its job was made larger or smaller since quota was charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resized: Option<Box<Resized>>,
    /// When quota was charged, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserved: Option<Wall>,
    /// The cluster queue in which quota is charged, while it is: not always the one that its local queue leads to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    charged_to: Option<Arc<str>>,
    /// Legs that are not over.
    legs: Legs,
    /// Its largest fence.
    fence: Option<Fence>,
    /// Grants so far.
    attempts: u32,
    /// Pods of the job that failed so far.
    pod_failures: u32,
    /// How often its number of pods was changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    resizes: u32,
    /// Run time used so far.
    ran: Millis,
    /// When its pods first ran.
    started: Option<Wall>,
    /// Why it is being stopped.
    stopping: Option<StopReason>,
    /// For whose sake it was last displaced, until it is granted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preempted: Option<Preempted>,
    /// Why it last lost its right to run or its quota, until it is granted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evicted: Option<Box<Evicted>>,
    /// How often it did so far, by why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    evictions: Vec<Evictions>,
    /// Who took it out of the queue, until somebody puts it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inactive: Option<Box<Deactivation>>,
    /// When it was last put back into the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reactivated: Option<Box<Reactivation>>,
    /// Deletion was asked for.
    deletion: Option<Wall>,
    /// How the job ended by its own doing in an attempt that had no leg here; it finishes so once nothing of an older attempt
    /// is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learned: Option<EndResult>,
    /// How it ended.
    finished: Option<Finish>,
    /// The last thing that each cluster said no with.
    refusals: BTreeMap<ClusterName, (RefuseReason, String)>,
    /// Where it ran or runs, newest last.
    history: Vec<AttemptRecord>,
}

/// Who took a workload out of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deactivation {
    /// Who.
    pub by: Actor,
    /// When.
    pub at: Wall,
    /// It had run for as long as it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub max_execution_time_reached: bool,
}

/// How a workload came back to the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reactivation {
    /// When.
    pub at: Wall,
    /// Grants until then: back-off begins anew after them.
    pub attempts: u32,
}

/// How a workload ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finish {
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Kubernetes' condition reason.
    pub reason: String,
    /// In words.
    pub message: String,
    /// When.
    pub at: Wall,
}

/// One attempt, as the history of a workload keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub cluster: ClusterName,
    pub fence: Fence,
    pub granted: Wall,
    pub over: Option<Wall>,
    pub end: Option<AttemptEnd>,
}

impl AttemptRecord {
    pub(crate) fn begin(cluster: ClusterName, fence: Fence, granted: Wall) -> Self {
        Self { cluster, fence, granted, over: None, end: None }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Workload {
    /// The leg that has, or may have, the right to run.
    pub(crate) fn right(&self) -> Option<(OfferId, &Leg)> {
        self.legs.iter().find(|(_, leg)| leg.state.granted()).map(|(offer, leg)| (*offer, leg))
    }

    /// Key of the job behind this workload.
    pub(crate) fn key(&self) -> Key {
        Key::namespaced(Kind::Job, &self.namespace, &self.name)
    }

    /// Its gang as it was submitted, or as much of it as it was given.
    pub(crate) fn given_gang(&self, class: &Class) -> Arc<Gang> {
        self.counts
            .as_ref()
            .map_or_else(|| class.gang.clone(), |counts| Arc::new(class.gang.of_counts(counts)))
    }

    pub fn new(s: &Submission, class: ClassId, number: RecordNumber) -> Self {
        Self {
            namespace: s.namespace.clone(),
            name: s.name.clone(),
            class,
            priority: s.priority,
            body: s.body,
            term: s.term,
            on_loss: s.on_loss,
            ttl: s.ttl,
            created: s.at,
            submitted: number,
            phase: Phase::Pending,
            since: s.at,
            changed: number,
            flavors: Flavors::default(),
            counts: None,
            spare: None,
            resized: None,
            reserved: None,
            charged_to: None,
            legs: Legs::default(),
            fence: None,
            attempts: 0,
            pod_failures: 0,
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

    /// The leg of a fence.
    pub fn leg_of(&self, fence: Fence) -> Option<(OfferId, &Leg)> {
        self.legs.iter().find(|(_, l)| l.fence == Some(fence)).map(|(o, l)| (*o, l))
    }
}

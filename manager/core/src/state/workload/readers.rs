//! Read access to a workload. Only `state::workload` changes one.

use crate::facts::end::Preempted;
use crate::facts::flavors::Flavors;
use crate::facts::submission::ClassId;
use crate::state::legs::Legs;
use crate::state::workload::evictions::{Evicted, Evictions};
use crate::state::workload::phase::Phase;
use crate::state::workload::size::Resized;
use crate::state::workload::{AttemptRecord, Deactivation, Finish, Reactivation, Workload};
use meridian_shared::ids::{ClusterName, ContentHash, Fence, RecordNumber};
use meridian_shared::protocol::{EndResult, OnLoss, RefuseReason, StopReason};
use meridian_shared::time::{Millis, Wall};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Workload {
    pub fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Scheduling class: everything that decisions depend on.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Higher goes first.
    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// The whole job, by content.
    pub fn body(&self) -> ContentHash {
        self.body
    }

    /// Lease term.
    pub fn term(&self) -> Millis {
        self.term
    }

    /// What the loss of its cluster means.
    pub fn on_loss(&self) -> OnLoss {
        self.on_loss
    }

    /// How long the workload is kept after its end.
    pub fn ttl(&self) -> Option<Millis> {
        self.ttl
    }

    pub fn created(&self) -> Wall {
        self.created
    }

    /// Record of the submission: age in the queue, and the leadership that minted the uid.
    pub fn submitted(&self) -> RecordNumber {
        self.submitted
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Start of the current phase, for display.
    pub fn since(&self) -> Wall {
        self.since
    }

    /// The newest record about this workload.
    pub fn changed(&self) -> RecordNumber {
        self.changed
    }

    /// Flavor by resource, while quota is charged.
    pub fn flavors(&self) -> &Flavors {
        &self.flavors
    }

    /// Pods admitted per pod set, while quota is charged and where they differ from what the job asks for.
    pub fn counts(&self) -> Option<&Vec<u32>> {
        self.counts.as_ref()
    }

    /// Reclaimable pods per pod set: pods that succeeded and gave back their resources.
    pub fn spare(&self) -> Option<&Vec<u32>> {
        self.spare.as_ref()
    }

    /// Present if the job was resized since quota was charged.
    pub fn resized(&self) -> Option<&Resized> {
        self.resized.as_deref()
    }

    /// When quota was charged, while it is.
    pub fn reserved(&self) -> Option<Wall> {
        self.reserved
    }

    /// Cluster queue that quota is charged to, while it is. Not always the one that its local queue points to now.
    pub fn charged_to(&self) -> Option<&Arc<str>> {
        self.charged_to.as_ref()
    }

    /// Legs that are not over.
    pub fn legs(&self) -> &Legs {
        &self.legs
    }

    /// The largest fence so far.
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// Grants so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Failed pods of the job over all attempts.
    pub fn pod_failures(&self) -> u32 {
        self.pod_failures
    }

    /// Number of resizes; part of the job's generation.
    pub fn resizes(&self) -> u32 {
        self.resizes
    }

    /// Run time used over all attempts.
    pub fn ran(&self) -> Millis {
        self.ran
    }

    /// When all pods ran for the first time.
    pub fn started(&self) -> Option<Wall> {
        self.started
    }

    pub fn stopping(&self) -> Option<StopReason> {
        self.stopping
    }

    /// The last preemption, until the next grant.
    pub fn preempted(&self) -> Option<&Preempted> {
        self.preempted.as_ref()
    }

    /// The last eviction, until the next grant.
    pub fn evicted(&self) -> Option<&Evicted> {
        self.evicted.as_deref()
    }

    pub fn evictions(&self) -> &[Evictions] {
        &self.evictions
    }

    /// Present while the workload is deactivated.
    pub fn inactive(&self) -> Option<&Deactivation> {
        self.inactive.as_deref()
    }

    pub fn reactivated(&self) -> Option<&Reactivation> {
        self.reactivated.as_deref()
    }

    /// When deletion was requested.
    pub fn deletion(&self) -> Option<Wall> {
        self.deletion
    }

    /// How the job ended by itself in an attempt without a leg here; it finishes once nothing of an older attempt is left.
    pub fn learned(&self) -> Option<&EndResult> {
        self.learned.as_ref()
    }

    pub fn finished(&self) -> Option<&Finish> {
        self.finished.as_ref()
    }

    /// The last refusal of each cluster.
    pub fn refusals(&self) -> &BTreeMap<ClusterName, (RefuseReason, String)> {
        &self.refusals
    }

    /// Attempts, newest last.
    pub fn history(&self) -> &[AttemptRecord] {
        &self.history
    }
}

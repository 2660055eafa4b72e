//! Read access to a workload. Only `state::workload` changes one.

use crate::facts::end::{EvictionCause, Preempted};
use crate::facts::flavors::Flavors;
use crate::facts::names::workload_name;
use crate::facts::submission::ClassId;
use crate::state::legs::Legs;
use crate::state::workload::evictions::{Evicted, Evictions};
use crate::state::workload::phase::Phase;
use crate::state::workload::size::Resized;
use crate::state::workload::{AttemptRecord, Deactivation, Finish, Reactivation, Workload};
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_shared::ids::{ClusterName, ContentHash, Fence, RecordNumber};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{EndResult, OnLoss, RefuseReason, StopReason};
use meridian_shared::time::{Millis, Wall};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Workload {
    pub fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// Name of the job.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Kind of the job.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The job's row in the table of job kinds.
    pub fn job_kind(&self) -> &'static JobKind {
        self.kind.job().unwrap_or_else(JobKind::usual)
    }

    /// Name of the workload's own object.
    pub fn object_name(&self) -> Arc<str> {
        workload_name(self.kind, &self.name, self.submitted)
    }

    /// Scheduling class: everything that decisions about the workload depend on, except priority and age.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Higher goes first.
    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// Content hash of the job's manifest.
    pub fn body(&self) -> ContentHash {
        self.body
    }

    /// Lease term, fixed at submission.
    pub fn term(&self) -> Millis {
        self.term
    }

    /// What happens to the workload if its cluster is lost. Fixed for the life of the uid.
    pub fn on_loss(&self) -> OnLoss {
        self.on_loss
    }

    /// How long the workload is kept after its end; `None` means the manager's default.
    pub fn ttl(&self) -> Option<Millis> {
        self.ttl
    }

    pub fn created(&self) -> Wall {
        self.created
    }

    /// Record of the submission. Determines the age in the queue, and shows which leadership made the uid.
    pub fn submitted(&self) -> RecordNumber {
        self.submitted
    }

    /// Whether the job is an object of the management cluster, and is changed there only.
    pub fn is_managed(&self) -> bool {
        self.managed
    }

    /// Whether the job may have run before the leadership that began with the record `since`.
    pub fn is_older_than(&self, since: RecordNumber) -> bool {
        self.existed || self.submitted < since
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

    /// Flavors while quota is charged, otherwise empty.
    pub fn flavors(&self) -> &Flavors {
        &self.flavors
    }

    /// Pods admitted per pod set, while quota is charged. `None` if they are those of the class.
    pub fn counts(&self) -> Option<&Vec<u32>> {
        self.counts.as_ref()
    }

    /// Reclaimable pods per pod set: pods that succeeded, so that their quota and capacity are free.
    pub fn spare(&self) -> Option<&Vec<u32>> {
        self.spare.as_ref()
    }

    /// The resize of the running gang, if the job was resized since quota was charged.
    pub fn resized(&self) -> Option<&Resized> {
        self.resized.as_deref()
    }

    /// When quota was charged. `None` while it isn't.
    pub fn reserved(&self) -> Option<Wall> {
        self.reserved
    }

    /// Cluster queue that quota is charged to. May differ from the one that the local queue points to now.
    /// `None` while no quota is charged.
    pub fn charged_to(&self) -> Option<&Arc<str>> {
        self.charged_to.as_ref()
    }

    /// Legs that are not over.
    pub fn legs(&self) -> &Legs {
        &self.legs
    }

    /// The largest fence that was granted or reported so far.
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

    /// Completion indexes that succeeded, over all attempts.
    pub fn completed(&self) -> &Indexes {
        &self.completed
    }

    /// Indexes of an elastic job that had completed when quota was last charged: the attempt has no pods for
    /// them.
    pub fn done_before(&self) -> &Indexes {
        &self.done_before
    }

    /// Number of resizes of the job so far; part of its Kubernetes generation.
    pub fn resizes(&self) -> u32 {
        self.resizes
    }

    /// Run time used over all attempts, since the maximum execution time last began.
    pub fn ran(&self) -> Millis {
        self.ran
    }

    /// When all pods of the current attempt ran, or of the last one if the job has ended. `None` while it
    /// waits or starts.
    pub fn activation_started(&self) -> Option<Wall> {
        let attempt = match self.phase {
            Phase::Finished => self.history.iter().rev().find(|attempt| attempt.started.is_some()),
            Phase::Running | Phase::Stopping => self.history.last(),
            Phase::Pending | Phase::Reserved | Phase::Dispatching | Phase::Granted => return None,
        };
        // Attempts of older journals have no start of their own.
        let of_attempt = attempt.and_then(|attempt| attempt.started);
        of_attempt.or_else(|| self.started.filter(|_| self.phase != Phase::Stopping))
    }

    /// Why the current attempt was ordered to stop.
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

    /// Number of evictions by cause.
    pub fn evictions(&self) -> &[Evictions] {
        &self.evictions
    }

    /// Present while the workload is deactivated.
    pub fn inactive(&self) -> Option<&Deactivation> {
        self.inactive.as_deref()
    }

    /// The last time that the workload was activated after a deactivation.
    pub fn reactivated(&self) -> Option<&Reactivation> {
        self.reactivated.as_deref()
    }

    /// When deletion was requested.
    pub fn deletion(&self) -> Option<Wall> {
        self.deletion
    }

    /// How the job ended by itself in an attempt that has no leg here. The workload finishes with this result
    /// as soon as no older attempt is left.
    pub fn learned(&self) -> Option<&EndResult> {
        self.learned.as_ref()
    }

    pub fn finished(&self) -> Option<&Finish> {
        self.finished.as_ref()
    }

    /// The last refusal of each cluster since the last grant.
    pub fn refusals(&self) -> &BTreeMap<ClusterName, (RefuseReason, String)> {
        &self.refusals
    }

    /// Attempts, the newest last. The oldest are dropped when there are too many.
    pub fn history(&self) -> &[AttemptRecord] {
        &self.history
    }

    /// Whether the workload is pending because its local queue or cluster queue was stopped and drained.
    pub fn was_drained(&self) -> bool {
        let stops = [EvictionCause::LocalQueueStopped, EvictionCause::ClusterQueueStopped];
        self.waits() && self.evicted().is_some_and(|evicted| stops.contains(&evicted.cause))
    }
}

//! Changes that facts make to one workload. Afterwards, `world::absorb` updates the caches over workloads.

use crate::facts::end::{AttemptEnd, EvictionCause, Preempted};
use crate::facts::record::WorkloadFact;
use crate::facts::submission::Class;
use crate::state::legs::leg::LegState;
use crate::state::legs::{Leg, ReplacedLedger};
use crate::state::workload::phase::{Phase, Transition};
use crate::state::workload::{
    AttemptRecord, Deactivation, Finish, OrderedStop, Reactivation, Workload, size,
};
use meridian_shared::ids::{Fence, OfferId, RecordNumber};
use meridian_shared::protocol::{EndResult, Run};
use meridian_shared::time::{Millis, Wall};
use std::sync::Arc;

/// Inputs, besides the workload itself, that determine the effect of a fact.
pub(crate) struct Context<'a> {
    /// Number of the fact's record.
    pub(crate) number: RecordNumber,
    /// The workload's class before the fact.
    pub(crate) class: &'a Class,
    /// Cause of an ordered eviction that is neither a preemption nor a deactivation: whether the local queue
    /// or the cluster queue was stopped.
    pub(crate) stopped_queue: EvictionCause,
}

impl Workload {
    /// Absorbs a fact. Facts that create, delete or reclassify a workload change nothing here;
    /// `world::absorb` handles them.
    pub(crate) fn absorb(&mut self, fact: &WorkloadFact, context: &Context<'_>) {
        self.changed = context.number;
        match fact {
            WorkloadFact::QuotaReserved { .. }
            | WorkloadFact::QuotaReleased { .. }
            | WorkloadFact::ScaleUpStarted { .. }
            | WorkloadFact::ScaledUp { .. }
            | WorkloadFact::ScaleUpRefused { .. }
            | WorkloadFact::PriorityChanged { .. } => self.absorb_quota_fact(fact, context),
            WorkloadFact::Offered { .. }
            | WorkloadFact::Waiting { .. }
            | WorkloadFact::Held { .. }
            | WorkloadFact::Refused { .. }
            | WorkloadFact::HoldExpired { .. }
            | WorkloadFact::Withdrawn { .. } => self.absorb_offer_fact(fact),
            WorkloadFact::Granted { .. }
            | WorkloadFact::GrantAccepted { .. }
            | WorkloadFact::LedgerReplaced { .. }
            | WorkloadFact::PodsPlaced { .. }
            | WorkloadFact::Running { .. }
            | WorkloadFact::PodsReclaimed { .. }
            | WorkloadFact::PodsFailed { .. }
            | WorkloadFact::IndexesCompleted { .. }
            | WorkloadFact::Adopted { .. } => self.absorb_attempt_fact(fact, context),
            WorkloadFact::StopOrdered { .. }
            | WorkloadFact::Ended { .. }
            | WorkloadFact::GrantRefused { .. }
            | WorkloadFact::LeaseLapsed { .. }
            | WorkloadFact::EndLearned { .. }
            | WorkloadFact::Finished { .. } => self.absorb_end_fact(fact, context),
            WorkloadFact::DeletionRequested { .. }
            | WorkloadFact::Deactivated { .. }
            | WorkloadFact::Activated { .. } => self.absorb_activity_fact(fact),
            WorkloadFact::Submitted(_) | WorkloadFact::Resized { .. } | WorkloadFact::Forgotten => {}
        }
    }

    /// Absorbs facts about reserved, released or enlarged quota, and about the priority.
    fn absorb_quota_fact(&mut self, fact: &WorkloadFact, context: &Context<'_>) {
        let Context { number, class, .. } = *context;
        match fact {
            WorkloadFact::QuotaReserved { flavors, at, counts } => {
                self.flavors = flavors.clone();
                self.counts.clone_from(counts);
                self.spare = None;
                self.size_admitted(class, counts.as_ref(), number);
                self.reserved = Some(*at);
                self.apply(Transition::Reserve);
            }
            WorkloadFact::QuotaReleased { preempted, at } => {
                if preempted.is_some() {
                    self.preempted.clone_from(preempted);
                    self.evict(EvictionCause::Preempted, *at);
                } else if self.inactive.is_some() {
                    self.evict(EvictionCause::Deactivated, *at);
                }
                self.apply(Transition::Release);
            }
            WorkloadFact::ScaleUpStarted { places, runs, size, .. } => {
                let before = size::counts_of(&self.given_gang(class));
                self.begin_scale_up(
                    places.clone(),
                    size::StartedScaleUp { number, before, runs: runs.clone(), size: *size },
                );
            }
            WorkloadFact::ScaledUp { scale_up, .. } => {
                self.finish_scale_up(&self.requested_counts(class), scale_up, number);
            }
            WorkloadFact::ScaleUpRefused { .. } => self.cancel_scale_up(&self.requested_counts(class)),
            WorkloadFact::PriorityChanged { priority, .. } => self.priority = *priority,
            _ => {}
        }
    }

    /// Absorbs answers of clusters to the workload's offers.
    fn absorb_offer_fact(&mut self, fact: &WorkloadFact) {
        match fact {
            WorkloadFact::Offered { offer, cluster, ledger, choice } => {
                self.apply(Transition::Offer);
                let leg = Leg::new(cluster.clone(), *ledger, LegState::Offered);
                self.legs.insert(*offer, Leg { choice: *choice, ..leg });
            }
            WorkloadFact::Waiting { offer, reason, estimate } => {
                if let Some(leg) = self.legs.get_mut(offer) {
                    leg.state = LegState::Waiting;
                    leg.note = Some(reason.clone());
                    leg.estimate = *estimate;
                }
            }
            WorkloadFact::Held { offer } => {
                if let Some(leg) = self.legs.get_mut(offer) {
                    leg.state = LegState::Held;
                }
            }
            WorkloadFact::Refused { offer, reason, text } => {
                if let Some(leg) = self.legs.remove(offer) {
                    self.refusals.insert(leg.cluster, (*reason, text.clone()));
                }
            }
            WorkloadFact::HoldExpired { offer } | WorkloadFact::Withdrawn { offer } => {
                self.legs.remove(offer);
            }
            _ => {}
        }
    }

    /// Absorbs a grant, and the agent's reports while the gang runs.
    fn absorb_attempt_fact(&mut self, fact: &WorkloadFact, context: &Context<'_>) {
        let Context { number, class, .. } = *context;
        match fact {
            WorkloadFact::Granted { offer, fence, at } => self.absorb_grant(*offer, *fence, *at),
            WorkloadFact::GrantAccepted { fence, placement } => {
                if let Some(leg) = self.leg_of_mut(*fence) {
                    leg.accepted = true;
                    leg.placement.clone_from(placement);
                }
            }
            WorkloadFact::LedgerReplaced { fence, until } => {
                if let Some(leg) = self.leg_of_mut(*fence) {
                    leg.replaced_ledger = Some(ReplacedLedger { until: *until });
                }
            }
            WorkloadFact::PodsPlaced { fence, placement } => {
                if let Some(leg) = self.leg_of_mut(*fence) {
                    leg.placement = Some(placement.clone());
                }
            }
            WorkloadFact::Running { fence, at } => {
                if let Some(leg) = self.leg_of_mut(*fence) {
                    leg.accepted = true;
                    leg.state = LegState::Running;
                    self.started.get_or_insert(*at);
                    if let Some(attempt) = self.attempt_mut(*fence) {
                        attempt.started.get_or_insert(*at);
                    }
                    self.apply(Transition::Start);
                    self.size_runs();
                    self.since = *at;
                }
            }
            WorkloadFact::PodsReclaimed { fence, pods } if self.leg_of(*fence).is_some() => {
                self.spare = Some(pods.clone());
            }
            WorkloadFact::PodsFailed { failures, .. } => self.pod_failures = self.pod_failures.max(*failures),
            WorkloadFact::IndexesCompleted { completed, .. } => {
                self.completed = self.completed.union(completed);
            }
            WorkloadFact::Adopted { cluster, ledger, run, flavors, at } => {
                self.absorb_adoption(run, class, number);
                // Keep the flavors that are already charged.
                if self.flavors.is_empty() {
                    self.flavors = flavors.clone();
                }
                self.since = *at;
                self.reserved.get_or_insert(*at);
                let leg = Leg::new(cluster.clone(), *ledger, LegState::Granted);
                let (fence, placement) = (Some(run.fence), run.placement.clone());
                self.legs.insert(run.offer, Leg { fence, accepted: true, placement, ..leg });
                self.record_attempt(AttemptRecord::begin(cluster.clone(), run.fence, *at));
            }
            _ => {}
        }
    }

    /// Absorbs stops and ends of attempts, and the end of the workload.
    fn absorb_end_fact(&mut self, fact: &WorkloadFact, context: &Context<'_>) {
        let Context { stopped_queue, class, .. } = *context;
        match fact {
            WorkloadFact::StopOrdered { fence, reason, preempted, by, at } => {
                let cause = match (preempted, &self.inactive) {
                    (Some(_), _) => EvictionCause::Preempted,
                    (None, Some(_)) => EvictionCause::Deactivated,
                    (None, None) if self.has_other_pods(class) => EvictionCause::JobChanged,
                    (None, None) => stopped_queue,
                };
                let cause = EvictionCause::of_stop(*reason, cause);
                self.absorb_stop(cause, preempted.as_ref(), *at);
                let stop = OrderedStop { cause, by: by.clone(), preempted: preempted.clone() };
                if let Some(attempt) = self.attempt_mut(*fence) {
                    attempt.stop.get_or_insert(Box::new(stop));
                }
                self.stopping = Some(*reason);
            }
            WorkloadFact::Ended { fence, result, pod_failures, ran, at, unknown } => {
                let end = match result {
                    EndResult::Stopped if *unknown => AttemptEnd::NoTrace,
                    result => AttemptEnd::Reported(result.clone()),
                };
                self.free(*fence, *at, end, self.eviction_by(result));
                self.pod_failures = self.pod_failures.max(*pod_failures);
                self.ran = self.ran + *ran;
            }
            WorkloadFact::GrantRefused { fence, why } => {
                let end = AttemptEnd::GrantRefused(why.clone());
                self.free(*fence, self.since, end, Some(EvictionCause::GrantRefused));
            }
            WorkloadFact::LeaseLapsed { fence, at, declared, .. } => {
                let end = if *declared { AttemptEnd::DeclaredLost } else { AttemptEnd::LeaseLapsed };
                self.free(*fence, *at, end, Some(EvictionCause::ClusterLost));
            }
            WorkloadFact::EndLearned { fence, cluster, result, pod_failures, ran, at } => {
                let end = Some(AttemptEnd::Reported(result.clone()));
                match self.attempt_mut(*fence) {
                    Some(attempt) => attempt.end = end,
                    None => self.record_attempt(AttemptRecord {
                        over: Some(*at),
                        end,
                        ..AttemptRecord::begin(cluster.clone(), *fence, *at)
                    }),
                }
                self.fence = self.fence.max(Some(*fence));
                self.pod_failures = self.pod_failures.max(*pod_failures);
                self.ran = self.ran + *ran;
                self.learned = Some(result.clone());
            }
            WorkloadFact::Finished { succeeded, reason, message, at } => {
                self.apply(Transition::Finish);
                self.since = *at;
                let (reason, message) = (reason.clone(), message.clone());
                self.finished = Some(Finish { succeeded: *succeeded, reason, message, at: *at });
            }
            _ => {}
        }
    }

    /// Absorbs deletion, deactivation and activation.
    fn absorb_activity_fact(&mut self, fact: &WorkloadFact) {
        match fact {
            WorkloadFact::DeletionRequested { at, .. } => self.deletion = Some(*at),
            WorkloadFact::Deactivated { by, at, max_execution_time_reached } => {
                self.inactive = Some(Box::new(Deactivation {
                    by: by.clone(),
                    at: *at,
                    max_execution_time_reached: *max_execution_time_reached,
                }));
                // In other phases, the release of quota or the stop of the run is recorded as the eviction.
                if self.phase == Phase::Pending {
                    self.evict(EvictionCause::Deactivated, *at);
                    self.since = *at;
                }
            }
            WorkloadFact::Activated { at, .. } => {
                if self.inactive.take().is_some_and(|inactive| inactive.max_execution_time_reached) {
                    // The maximum execution time starts again.
                    self.ran = Millis(0);
                }
                self.reactivated = Some(Box::new(Reactivation { at: *at, attempts: self.attempts }));
                if self.phase == Phase::Pending {
                    self.since = *at;
                }
            }
            _ => {}
        }
    }

    /// Applies a transition. An illegal one changes nothing; decisions check for legality before they make a
    /// record.
    fn apply(&mut self, transition: Transition) {
        if let Some(to) = super::phase::next(self.phase, transition) {
            self.phase = to;
        }
    }

    fn absorb_grant(&mut self, offer: OfferId, fence: Fence, at: Wall) {
        self.apply(Transition::Grant);
        self.fence = self.fence.max(Some(fence));
        self.attempts += 1;
        (self.preempted, self.evicted) = (None, None);
        self.since = at;
        self.refusals.clear();
        if let Some(leg) = self.legs.get_mut(&offer) {
            leg.state = LegState::Granted;
            leg.fence = Some(fence);
            let cluster = leg.cluster.clone();
            self.record_attempt(AttemptRecord::begin(cluster, fence, at));
        }
    }

    fn absorb_stop(&mut self, cause: Option<EvictionCause>, preempted: Option<&Preempted>, at: Wall) {
        if let Some(cause) = cause {
            self.evict(cause, at);
        }
        if preempted.is_some() {
            self.preempted = preempted.cloned();
        }
        self.apply(Transition::Stop);
    }

    fn absorb_adoption(&mut self, run: &Run, class: &Class, number: RecordNumber) {
        let gang = self.adopted_gang(class, run);
        let spare = (!run.spare.is_empty()).then(|| size::reclaimable_of(&gang, &run.spare));
        let places = size::counts_of(&gang);
        // If quota is already charged, `done_before` was noted at that charge and stays.
        if self.flavors.is_empty() {
            self.note_done_before(class, &places);
        }
        let requested = self.requested_counts(class);
        self.apply(Transition::Adopt);
        self.spare = spare;
        // Quota that was charged for another size follows the pods that really run.
        let charged_otherwise =
            !self.flavors.is_empty() && places != *self.counts.as_deref().unwrap_or(&requested);
        if class.elastic || self.resized.is_some() || charged_otherwise {
            self.resize_adopted(&requested, places, run.scale_up.as_deref(), number);
        } else {
            self.counts = (places != requested).then_some(places);
        }
        self.legs.clear();
        self.fence = self.fence.max(Some(run.fence));
        self.attempts = self.attempts.max(run.attempt);
        (self.stopping, self.evicted) = (None, None);
    }

    /// The cause of eviction if an attempt's end evicts the workload; `None` if the job itself ended.
    fn eviction_by(&self, result: &EndResult) -> Option<EvictionCause> {
        match result {
            EndResult::NodeLost { .. } => Some(EvictionCause::NodeFailures),
            EndResult::LeaseLapsed => Some(EvictionCause::ClusterLost),
            EndResult::Stopped => Some(EvictionCause::StoppedByAgent),
            EndResult::Failed { .. } => self
                .inactive
                .as_ref()
                .is_some_and(|inactive| inactive.max_execution_time_reached)
                .then_some(EvictionCause::MaximumExecutionTimeExceeded),
            EndResult::Succeeded => None,
        }
    }

    /// Ends the right to run with this fence. Does nothing if no leg has it.
    fn free(&mut self, fence: Fence, at: Wall, end: AttemptEnd, evicted: Option<EvictionCause>) {
        let Some((offer, _)) = self.leg_of(fence) else { return };
        // The eviction of an ordered stop was recorded with the order.
        if let Some(cause) = evicted.filter(|_| self.phase != Phase::Stopping) {
            self.evict(cause, at);
        }
        if self.attempt_mut(fence).is_some_and(|attempt| attempt.started.is_some()) {
            self.size_ended();
        }
        self.legs.remove(&offer);
        self.stopping = None;
        self.apply(Transition::Free);
        self.since = at;
        if let Some(attempt) = self.attempt_mut(fence) {
            (attempt.over, attempt.end) = (Some(at), Some(end));
        }
    }

    pub(crate) fn set_charged_to(&mut self, cluster_queue: Arc<str>) {
        self.charged_to = Some(cluster_queue);
    }

    /// Clears everything that is kept only while quota is charged.
    pub(crate) fn clear_charge(&mut self) {
        self.flavors = Default::default();
        (self.reserved, self.counts, self.spare, self.charged_to) = (None, None, None, None);
        if let Some(resized) = &mut self.resized {
            resized.scale_up = None;
        }
    }

    fn attempt_mut(&mut self, fence: Fence) -> Option<&mut AttemptRecord> {
        self.history.iter_mut().rev().find(|attempt| attempt.fence == fence)
    }

    fn leg_of_mut(&mut self, fence: Fence) -> Option<&mut Leg> {
        self.legs.values_mut().find(|leg| leg.fence == Some(fence))
    }
}

//! Conditions of a `Workload`. Types and reasons are Kueue's, and so are messages with the same meaning.

use super::{Shown, workload_uid};
use crate::asker::{Asker, OTHER_TENANT};
use crate::explain::words::{self, Wording};
use meridian_manager_core::facts::end::{EvictionCause, Preempted, PreemptionReason};
use meridian_manager_core::facts::reason::Why;
use meridian_manager_core::queue::pending_reasons::PendingReason;
use meridian_manager_core::state::workload::Reactivation;
use meridian_manager_core::state::workload::evictions::Evicted;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::time::Wall;
use meridian_shared::timestamp::timestamp;
use serde_json::{Value, json};

/// Kueue's reason and message for a deactivated workload.
const fn deactivated(max_execution_time_reached: bool) -> (&'static str, &'static str) {
    match max_execution_time_reached {
        true => (
            "DeactivatedDueToMaximumExecutionTimeExceeded",
            "The workload is deactivated due to exceeding the maximum execution time",
        ),
        false => ("Deactivated", "The workload is deactivated"),
    }
}

fn condition(kind: &str, is: bool, reason: &str, message: impl Into<String>, at: Wall) -> Value {
    json!({
        "type": kind, "status": if is { "True" } else { "False" }, "reason": reason,
        "message": message.into(), "lastTransitionTime": timestamp(at),
    })
}

impl Shown {
    /// The conditions, in the order in which a workload goes through them.
    pub(super) fn conditions(&self, pending_reason: Option<&PendingReason>, asker: &Asker) -> Vec<Value> {
        let mut all = vec![self.quota_reserved(pending_reason, asker)];
        all.extend(self.admitted());
        all.extend(self.pods_ready());
        if let Some(evicted) = self.workload.evicted() {
            all.extend(self.eviction(evicted, asker));
        }
        if self.damaged {
            let since = self.workload.since();
            all.push(condition("Damaged", true, "ManifestUnreadable", damaged_message(asker), since));
        }
        if let Some(finish) = &self.workload.finished() {
            let reason = if finish.succeeded { "Succeeded" } else { "Failed" };
            all.push(condition("Finished", true, reason, finish.message.clone(), finish.at));
        }
        all
    }

    fn quota_reserved(&self, pending_reason: Option<&PendingReason>, asker: &Asker) -> Value {
        let (w, kind) = (&self.workload, "QuotaReserved");
        match (&self.charged, w.finished()) {
            (Some(queue), _) => {
                let message = format!("Quota reserved in ClusterQueue {queue}");
                condition(kind, true, "QuotaReserved", message, w.reserved().unwrap_or(w.since()))
            }
            (None, Some(finish)) => {
                let message = "The workload has finished and released its quota";
                condition(kind, false, "Finished", message, finish.at)
            }
            (None, None) => {
                let message = self.pending_message(pending_reason, asker).unwrap_or_default();
                condition(kind, false, "Pending", message, w.since())
            }
        }
    }

    fn admitted(&self) -> Option<Value> {
        let w = &self.workload;
        if let Some((_, leg)) = w.right() {
            let at = w.history().last().map_or(w.since(), |attempt| attempt.granted);
            let message = format!("The workload was admitted on \"{}\"", leg.cluster());
            return Some(condition("Admitted", true, "Admitted", message, at));
        }
        let evicted =
            w.evicted().filter(|evicted| w.finished().is_none() && evicted.was != Phase::Pending)?;
        let at = if w.phase() == Phase::Pending { w.since() } else { evicted.at };
        Some(condition("Admitted", false, "NoReservation", "The workload has no reservation", at))
    }

    fn pods_ready(&self) -> Option<Value> {
        let w = &self.workload;
        if let Some(message) = self.lost_message() {
            return Some(condition("PodsReady", false, "ClusterLost", message, w.since()));
        }
        let (is, reason, message) = match w.phase() {
            Phase::Running => (true, "Started", "All pods reached readiness and the workload is running"),
            Phase::Granted => (false, "WaitForStart", "Not all pods are ready or succeeded"),
            _ => return None,
        };
        Some(condition("PodsReady", is, reason, message, w.since()))
    }

    /// `Evicted`, `Preempted` and `Requeued`.
    fn eviction(&self, evicted: &Evicted, asker: &Asker) -> Vec<Value> {
        let w = &self.workload;
        let mut all = Vec::new();
        let was_preempted = evicted.cause == EvictionCause::Preempted;
        // For a deactivation, Kueue repeats the cause in the reason.
        let deactivation = match evicted.cause {
            EvictionCause::Deactivated => Some(deactivated(false)),
            EvictionCause::MaximumExecutionTimeExceeded => Some(deactivated(true)),
            _ => None,
        };
        let reason = evicted.cause.reason();
        let message = match (w.preempted(), deactivation, evicted.cause.underlying()) {
            (Some(preempted), ..) if was_preempted => self.preempted_message(preempted, asker),
            (_, Some((_, message)), _) => message.to_owned(),
            (_, None, "") => format!("The workload was evicted: {reason}"),
            (_, None, cause) => format!("The workload was evicted: {reason}: {cause}"),
        };
        if w.phase().charged() && !w.phase().granted() {
            let (message, at) = (format!("Previously: {message}"), w.reserved().unwrap_or(evicted.at));
            all.push(condition("Evicted", false, "QuotaReserved", message, at));
        } else if w.finished().is_none() {
            let reason = deactivation.map_or(reason, |(reason, _)| reason);
            all.push(condition("Evicted", true, reason, message.clone(), evicted.at));
        }
        if let (Some(preempted), true) = (w.preempted(), was_preempted) {
            let is = !w.phase().charged() || w.phase().granted();
            all.push(condition("Preempted", is, preempted.reason.as_str(), message, evicted.at));
        }
        if w.phase() == Phase::Pending {
            let (is, reason, message, at) = self.requeued(evicted);
            all.push(condition("Requeued", is, reason, message, at));
        }
        all
    }

    /// Why the workload has no quota. `None` if it has.
    pub(super) fn pending_message(&self, reason: Option<&PendingReason>, asker: &Asker) -> Option<String> {
        let w = &self.workload;
        let pending = self.charged.is_none() && w.finished().is_none();
        let (before, nearest) =
            reason.map_or((None, None), |reason| (reason.before.as_ref(), reason.nearest.as_ref()));
        pending.then(|| match (&w.inactive(), before, nearest) {
            (Some(inactive), ..) => deactivated(inactive.max_execution_time_reached).1.to_owned(),
            _ if self.damaged => damaged_message(asker),
            (None, Some(why), _) => why.message(asker),
            (None, None, Some((cluster, clusters, why))) => {
                words::no_cluster_message(*clusters, cluster, why, &why.message(asker))
            }
            (None, None, None) => {
                format!("waiting in its queue; see `meridian why {} -n {}`", w.name(), w.namespace())
            }
        })
    }

    /// States that the pods of the run are unknown, and how the run will end.
    pub(super) fn lost_message(&self) -> Option<String> {
        self.workload.lost_run().map(words::lost_run)
    }

    /// Kueue's message. It has the preemptor's UIDs only if the asker may read that workload.
    fn preempted_message(&self, Preempted { by, reason }: &Preempted, asker: &Asker) -> String {
        let right = match reason {
            PreemptionReason::InClusterQueue => "prioritization in the ClusterQueue",
            PreemptionReason::InCohortReclamation => "reclamation within the cohort",
            PreemptionReason::InCohortFairSharing => "Fair Sharing within the cohort",
            PreemptionReason::InCohortReclaimWhileBorrowing => {
                "reclamation within the cohort while borrowing"
            }
        };
        let preemptor = match asker.may_name_or_all(self.preemptor.as_ref()) {
            true => format!("a workload (UID: {}, JobUID: {by})", workload_uid(*by)),
            false => OTHER_TENANT.to_owned(),
        };
        format!("Preempted to accommodate {preemptor} due to {right}")
    }

    /// The `Requeued` condition of an evicted workload: status, reason, message and time.
    fn requeued<'a>(&self, evicted: &'a Evicted) -> (bool, &'a str, String, Wall) {
        let w = &self.workload;
        if let Some(inactive) = &w.inactive() {
            let (reason, message) = deactivated(inactive.max_execution_time_reached);
            return (false, reason, message.to_owned(), inactive.at);
        }
        if let Some(Reactivation { at, .. }) =
            w.reactivated().filter(|reactivated| reactivated.at >= evicted.at)
        {
            return (true, "Reactivated", "The workload was reactivated".to_owned(), *at);
        }
        match self.drained {
            Some((true, stop)) => (false, stop.reason, format!("The {} is stopped", stop.queue), evicted.at),
            _ if self.backs_off => (
                false,
                evicted.cause.reason(),
                "The workload is backing off before its next attempt".to_owned(),
                w.since(),
            ),
            Some((false, stop)) => (
                true,
                stop.restarted,
                format!("The {} was restarted after being stopped", stop.queue),
                w.since(),
            ),
            None => (true, evicted.cause.reason(), "The workload was requeued".to_owned(), w.since()),
        }
    }
}

pub(super) fn damaged_message(asker: &Asker) -> String {
    format!("{}; {}", Why::Damaged.message(asker), Why::Damaged.remedy(asker))
}

//! The end of a run: when it is certain, and its report.

use super::{Cause, Job, LIST_AGAIN, Run};
use crate::facts::PodFacts;
use crate::runner::request::Request;
use meridian_agent_core::runtime::RunnerEvent;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Mono, Wall};

/// How long the job controller may take to end the pods of a suspended job before the runner does it.
const CONTROLLER_PATIENCE: Millis = Millis::secs(5);
/// Longest time that the object of a finished job is kept for its logs; `ttlSecondsAfterFinished` shortens
/// it.
const FINISHED_KEPT: Millis = Millis::mins(60);

impl Run {
    /// Suspends the job, so that its controller ends the pods. While the suspension fails, the runner ends
    /// them itself; pods that the controller creates as replacements are kept back by their scheduling gate.
    pub(super) fn suspend(&mut self, now: Mono) -> Request {
        let placed = self.positions.placed_pods();
        let is_due = self.suspensions.failed && now >= self.ended_pods_at + CONTROLLER_PATIENCE;
        if is_due && !placed.is_empty() {
            self.ended_pods_at = now;
            self.suspensions.ended_pods = true;
            return Request::EndPods(placed);
        }
        Request::Suspend { why: self.stop.as_ref().map(Cause::text).unwrap_or_default() }
    }

    /// The manager has recorded the end.
    pub(in crate::runner) fn settle(&mut self, wall: Wall) {
        self.settled.get_or_insert(wall);
    }

    /// How long the object stays after that. A job that ended by itself has logs that users read; a stopped
    /// workload continues elsewhere or is gone.
    pub(super) fn kept(&self) -> Millis {
        match &self.job {
            Job::Ours(job) if job.end.is_some() && !self.suspensions.ended_pods => {
                self.notes.ttl.map_or(FINISHED_KEPT, |ttl| ttl.min(FINISHED_KEPT))
            }
            _ => Millis(0),
        }
    }

    /// Nothing new starts: waits for the pods' ends, and confirms them.
    pub(super) fn close(&mut self, now: Mono) -> Option<Request> {
        let since = *self.closing_since.get_or_insert(now);
        // Controllers of kinds other than Job may leave pods running when their job is over.
        let ends_its_pods =
            matches!(&self.job, Job::Ours(job) if job.end.is_some()) && self.kind.can_be_scaled();
        if self.positions.some_unended() && !ends_its_pods {
            // Pods without a controller are ended by the runner alone.
            let patience = if self.kind.is_of_pods() { Millis(0) } else { CONTROLLER_PATIENCE };
            let patience_ends = (since + patience).max(self.ended_pods_at + CONTROLLER_PATIENCE);
            if now >= patience_ends && self.positions.some_undeleted() {
                self.ended_pods_at = now;
                return Some(Request::EndAllPods);
            }
        }
        let quiet = !self.positions.some_unended();
        (quiet && now >= self.list_due || now >= self.list_due + LIST_AGAIN).then_some(Request::ListPods)
    }

    /// The pods were listed: ends the run if all were seen ended.
    pub(super) fn confirm(
        &mut self,
        now: Mono,
        wall: Wall,
        pods: &[PodFacts],
        answers: &dyn Fn(&str) -> bool,
    ) -> Vec<RunnerEvent> {
        self.list_due = now + LIST_AGAIN;
        self.positions.observe(pods, answers);
        self.observe_group(pods);
        self.end_with_group();
        if pods.iter().any(|pod| !(pod.has_ended() || pod.node.is_none() && pod.is_terminal())) {
            return self.report();
        }
        if self.started
            && let Some(node) = self.positions.unconfirmed(&self.notes.touched, answers)
        {
            self.trouble = Some(format!(
                "node `{node}` doesn't answer, so its pods may still run: this attempt ends when the node is \
                 ready again, is deleted from the cluster, or has the taint \
                 `node.kubernetes.io/out-of-service`"
            ));
            return self.report();
        }
        let mut events = self.report();
        let (uid, fence) = self.key;
        let result = self.result(pods);
        let end = RunnerEvent::Ended {
            uid,
            fence,
            result,
            pod_failures: self.reports.failures,
            ran: self.ran(wall),
        };
        self.end = Some(end.clone());
        events.push(end);
        events
    }

    fn result(&self, pods: &[PodFacts]) -> EndResult {
        if let Job::Ours(job) = &self.job
            && let Some(end) = &job.end
            && !self.suspensions.ended_pods
        {
            if end.succeeded {
                return EndResult::Succeeded;
            }
            // A pod that is deleted was ended because another one failed.
            let failed = pods.iter().filter_map(|pod| Some((pod, pod.failed_container.as_ref()?)));
            let failed = failed.min_by_key(|(pod, _)| pod.deleting);
            let detail = failed.map_or_else(String::new, |(pod, exit)| {
                let reason =
                    if exit.reason.is_empty() { String::new() } else { format!(", {}", exit.reason) };
                format!(
                    "; container `{}` of pod `{}` ended with exit code {}{reason}",
                    exit.container, pod.name, exit.code
                )
            });
            return EndResult::Failed {
                reason: end.reason.clone(),
                message: format!("{}{detail}", end.message),
            };
        }
        match &self.stop {
            Some(Cause::Lapsed) => EndResult::LeaseLapsed,
            Some(Cause::TimeOver) => EndResult::Failed {
                reason: "DeadlineExceeded".to_owned(),
                message: format!("the {} was active longer than its run time allows", self.kind.name()),
            },
            Some(Cause::Lost(message)) => EndResult::NodeLost { message: message.clone() },
            Some(Cause::Ordered) | None => EndResult::Stopped,
        }
    }

    fn ran(&self, wall: Wall) -> Millis {
        let Job::Ours(job) = &self.job else { return Millis(0) };
        let Some(started) = job.started else { return Millis(0) };
        job.end.as_ref().and_then(|end| end.at).unwrap_or(wall).since(started)
    }
}

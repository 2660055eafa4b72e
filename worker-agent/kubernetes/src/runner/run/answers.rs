//! Effects of the API server's answers.

use super::{Cause, Job, Run};
use crate::facts::JobFacts;
use crate::runner::request::{Answer, Request};
use meridian_agent_core::runtime::RunnerEvent;
use meridian_shared::indexes::Indexes;
use meridian_shared::time::{Millis, Mono, Wall};

/// Pause after a first failed request; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Millis = Millis(250);
const RETRY_MAX: Millis = Millis::secs(15);
/// Conflicts in a row after which the job is read again without a pause. Most starts have one, because the
/// job's own controller writes the status right after the creation.
const CONFLICTS_AT_ONCE: u32 = 3;

impl Run {
    /// Applies the answer to `request`, and returns the events to report.
    pub(in crate::runner) fn answered(
        &mut self,
        now: Mono,
        wall: Wall,
        request: &Request,
        answer: Answer,
        answers: &dyn Fn(&str) -> bool,
    ) -> Vec<RunnerEvent> {
        self.in_flight = false;
        let failures = match (&answer, request) {
            (Answer::Conflict, _) => {
                self.conflicts = self.conflicts.saturating_add(1);
                self.conflicts.saturating_sub(CONFLICTS_AT_ONCE)
            }
            (Answer::Unknown(_) | Answer::Refused(_), _) => self.failed_requests.saturating_add(1),
            // The read was made because of a conflict.
            (_, Request::Read) => 0,
            _ => {
                self.conflicts = 0;
                0
            }
        };
        self.failed_requests = failures;
        self.retry_at = if failures > 0 { now + pause(failures) } else { Mono(0) };
        self.trouble = match &answer {
            Answer::Unknown(why) | Answer::Refused(why) => Some(why.clone()),
            _ => None,
        };
        match (request, answer) {
            (Request::Create(_), Answer::Exists | Answer::Unknown(_)) => self.job = Job::Exists,
            (Request::Create(_), Answer::Absent) => {
                self.job = Job::Absent;
                let why = format!("the cluster has no namespace `{}`: create it there", self.namespace);
                self.stop(Cause::Lost(why));
            }
            (Request::Create(_), Answer::Refused(why)) => {
                self.job = Job::Absent;
                self.stop(Cause::Lost(format!("the cluster's API server refused the job: {why}")));
            }
            (Request::Copy { .. }, Answer::Done) => self.copies.made = true,
            (Request::Copy { .. }, Answer::Refused(why)) => self.stop(Cause::Lost(why)),
            // Copies that the agent may not delete are deleted by the garbage collector.
            (Request::GiveCopiesBack { .. }, Answer::Done | Answer::Refused(_)) => {
                self.copies.given_back = true;
            }
            (Request::Read, Answer::Absent) => self.read_absent(),
            (Request::Delete { .. }, Answer::Absent | Answer::Done) => {
                // If the deleted job was an earlier attempt's, this attempt's job can be created now.
                let is_ours = matches!(self.job, Job::Ours(_));
                self.job = if is_ours { Job::Absent } else { Job::Unknown };
                self.retry_at = now + RETRY_MIN;
            }
            (_, Answer::Job(job)) => self.take(request, *job),
            (_, Answer::Absent | Answer::Conflict) => self.job = Job::Exists,
            // Without the seed all indexes run again, which only costs time.
            (Request::Seed { .. }, Answer::Refused(_)) => self.seed = Indexes::default(),
            (Request::Start { .. }, Answer::NotLeading) => {
                self.stop(Cause::Lost("another replica of the agent leads, so nothing was started".into()));
            }
            (Request::Start { .. } | Request::Resize { .. } | Request::Note { .. }, Answer::Refused(why)) => {
                self.stop(Cause::Lost(format!(
                    "the cluster's API server refused a change of the job: {why}"
                )));
            }
            (Request::Start { .. }, Answer::Unknown(_)) => self.job = Job::Exists,
            // Pods that the runner ended, because the suspension failed, don't count as failures of the
            // workload.
            (Request::EndPods(pods), Answer::Done) if self.stop.is_some() => {
                self.notes.ended_by_moves += u32::try_from(pods.len()).unwrap_or(u32::MAX);
            }
            (Request::Suspend { .. }, Answer::Refused(_)) => self.suspensions.failed = true,
            (Request::Suspend { .. }, Answer::Unknown(_)) => {
                self.suspensions.failed = true;
                self.job = Job::Exists;
            }
            (Request::Place(_), Answer::Placed(uids)) => self.positions.placed(&uids),
            (Request::RenewLeases(pods), Answer::Placed(uids)) => self.leases.answered(pods, &uids),
            (Request::RenewLeases(pods), _) => self.leases.answered(pods, &[]),
            (Request::ListPods, Answer::Pods(pods)) => return self.confirm(now, wall, &pods, answers),
            _ => {}
        }
        self.react()
    }

    fn read_absent(&mut self) {
        self.job = if self.manifest.is_some() && !self.started && self.stop.is_none() {
            Job::Unknown
        } else {
            Job::Absent
        };
        if self.started {
            self.stop(self.lost_to_others("deleted"));
        }
    }

    fn marks_lost(&self) -> String {
        format!(
            "the cluster's {0} doesn't keep the labels of its pods, so it was not started: the fields of the \
             job are not those of the cluster's version of {0}",
            self.kind.name()
        )
    }

    fn take(&mut self, request: &Request, job: JobFacts) {
        match (request, &job.run) {
            (Request::Start { .. }, _) => self.started = true,
            (Request::Resize { size: done, .. }, _) => {
                self.size = self.size.filter(|size| size != done);
                self.notes_dirty = false;
            }
            (Request::Note { notes }, _) => self.notes_dirty = *notes != self.notes.to_text(),
            _ => {}
        }
        if job.run == Some(self.key) {
            // If the answer to a start was lost, the job is seen running.
            self.started |= !job.suspended;
            (self.namespace, self.name) = (job.namespace.clone(), job.name.clone());
            self.kind = job.kind.job().unwrap_or(self.kind);
            if !job.marked && job.suspended && job.end.is_none() {
                self.stop(Cause::Lost(self.marks_lost()));
            }
            self.job = Job::Ours(Box::new(job));
            return;
        }
        // The core grants again only after it saw the end of the earlier attempt. The manager gives a name to
        // another workload only after the first one is gone, so an object that the first one left runs
        // nothing.
        let pod_ended = job.group.as_ref().is_some_and(|group| group.pod_ended);
        let is_over = job.suspended || job.end.is_some() || pod_ended;
        let is_earlier = |(uid, fence)| if uid == self.key.0 { fence < self.key.1 } else { is_over };
        let of_group = job.group.as_ref().map(|group| group.name.as_str());
        if job.run.is_some_and(is_earlier) && of_group == self.group_name() {
            self.job = Job::Earlier(job.uid);
            return;
        }
        self.job = Job::Foreign;
        self.stop(Cause::Lost(format!(
            "the cluster has a {} `{}/{}` that Meridian didn't make for this workload, and it is left \
             alone: delete or rename one of the two",
            self.kind.cluster_kind().name(),
            self.namespace,
            self.name
        )));
    }
}

fn pause(failed: u32) -> Millis {
    let doubled = RETRY_MIN.0.saturating_mul(1 << failed.saturating_sub(1).min(10));
    Millis(doubled.min(RETRY_MAX.0))
}

//! Which pods a job wants running: completions, retries and the verdict (pure; `batch/v1` semantics).
//!
//! Knows neither processes nor clocks: the process runner's guard and the simulated runner both drive it. A *slot* is one
//! place of the placement; a *pod* is one completion, tried again in its slot until it succeeds or the job is over.
//!
//! Invariants: a slot runs at most one pod; a completion that succeeded is never started again; after a verdict nothing is due.

use super::job::JobSpec;
use super::{PodOutcome, RunResult};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;

/// Pods whose outcome is kept; the newest indices beyond it are counted only, so that a report stays bounded.
pub const OUTCOMES_MAX: usize = 4_096;
/// The wait before a retry never grows beyond this (Kubernetes' six minutes).
pub const RETRY_DELAY_MAX: Millis = Millis::mins(6);
/// The wait before the first retry of a pod (Kubernetes' ten seconds).
pub const RETRY_DELAY_FIRST_DEFAULT: Millis = Millis::secs(10);

/// One try of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Try {
    /// Which place it takes.
    pub slot: usize,
    /// Which completion it is for.
    pub index: u32,
    /// Which try of that completion, from 0.
    pub attempt: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Free to take the next completion.
    Free,
    /// A pod is to start when the moment comes.
    Waiting { until: Mono, next: Try },
    /// A pod runs.
    Busy(Try),
    /// Nothing more to do here; `spare` where that is so because a pod succeeded.
    Closed { spare: bool },
}

/// The pods of one run.
#[derive(Clone, Debug)]
pub struct Pods {
    slots: Vec<Slot>,
    completions: Option<u32>,
    next_index: u32,
    succeeded: u32,
    failures: u32,
    backoff_limit: u32,
    retry_delay_first: Millis,
    outcomes: BTreeMap<u32, PodOutcome>,
    verdict: Option<RunResult>,
}

impl Pods {
    /// The pods of `job` in `places` slots, `failures` of which failed in earlier attempts.
    pub fn new(job: &JobSpec, places: usize, failures: u32, retry_delay_first: Millis) -> Self {
        let width = places.min(usize::try_from(job.width()).unwrap_or(usize::MAX));
        Self {
            slots: vec![Slot::Free; width],
            completions: if job.completions_follow && width < usize::try_from(job.width()).unwrap_or(usize::MAX) {
                u32::try_from(width).ok()
            } else {
                job.completions
            },
            next_index: 0,
            succeeded: 0,
            failures,
            backoff_limit: job.backoff_limit,
            retry_delay_first,
            outcomes: BTreeMap::new(),
            verdict: (width == 0).then(|| RunResult::Failed { reason: "NoPods".into(), message: "the job was granted no place for any pod".into() }),
        }
    }

    /// Failures so far, those of earlier attempts included.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How the job ended, once it has.
    pub fn verdict(&self) -> Option<&RunResult> {
        self.verdict.as_ref()
    }

    /// Slots whose pods have succeeded and in which nothing more will start, in order.
    pub fn spare(&self) -> Vec<usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| **slot == Slot::Closed { spare: true }).map(|(at, _)| at).collect()
    }

    /// The last outcome of each pod, by index.
    pub fn outcomes(&self) -> Vec<PodOutcome> {
        self.outcomes.values().cloned().collect()
    }

    /// Takes the pods that are to start now. The caller starts each, or reports it ended.
    pub fn due(&mut self, now: Mono) -> Vec<Try> {
        let mut due = Vec::new();
        if self.verdict.is_some() {
            return due;
        }
        for at in 0..self.slots.len() {
            let next = match self.slots[at] {
                Slot::Free if self.completions.is_none_or(|wanted| self.next_index < wanted) => {
                    self.next_index += 1;
                    Try { slot: at, index: self.next_index - 1, attempt: 0 }
                }
                // There are at least as many pods as slots, so one has succeeded here.
                Slot::Free => {
                    self.slots[at] = Slot::Closed { spare: true };
                    continue;
                }
                Slot::Waiting { until, next } if now >= until => next,
                Slot::Waiting { .. } | Slot::Busy(_) | Slot::Closed { .. } => continue,
            };
            self.slots[at] = Slot::Busy(next);
            due.push(next);
        }
        due
    }

    /// When [`Pods::due`] will next have something.
    pub fn next_due(&self) -> Option<Mono> {
        if self.verdict.is_some() {
            return None;
        }
        self.slots
            .iter()
            .filter_map(|slot| match slot {
                Slot::Waiting { until, .. } => Some(*until),
                Slot::Free => Some(Mono(0)),
                Slot::Busy(_) | Slot::Closed { .. } => None,
            })
            .min()
    }

    /// Notes how a pod ended, without deciding what follows: for pods that were stopped.
    pub fn note(&mut self, outcome: PodOutcome) {
        if self.outcomes.len() < OUTCOMES_MAX || self.outcomes.contains_key(&outcome.index) {
            self.outcomes.insert(outcome.index, outcome);
        }
    }

    /// Takes in that the pod of `slot` ended by itself. Says whether it counts as a failure.
    pub fn ended(&mut self, ended: Try, exit_code: i32, message: Option<String>, now: Mono) -> bool {
        debug_assert_eq!(self.slots.get(ended.slot), Some(&Slot::Busy(ended)), "a pod ends only where it runs");
        self.note(PodOutcome { index: ended.index, attempt: ended.attempt, exit_code, message });
        if exit_code == 0 {
            self.succeeded += 1;
            self.slots[ended.slot] = if self.completions.is_none() { Slot::Closed { spare: true } } else { Slot::Free };
            self.judge();
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures > self.backoff_limit {
            self.verdict.get_or_insert_with(|| RunResult::Failed {
                reason: "BackoffLimitExceeded".into(),
                message: format!("pod {} ended with exit code {exit_code}, and the job's backoff limit of {} is used up", ended.index, self.backoff_limit),
            });
        } else if self.completions.is_none() && self.succeeded > 0 {
            // A work queue that has seen a success takes no new pods.
            self.slots[ended.slot] = Slot::Closed { spare: false };
            self.judge();
        } else {
            let next = Try { attempt: ended.attempt.saturating_add(1), ..ended };
            self.slots[ended.slot] = Slot::Waiting { until: now + self.retry_delay(ended.attempt), next };
        }
        true
    }

    /// Takes in that a pod was ended to be started elsewhere: at once, as a further try, and as no failure.
    pub fn again(&mut self, ended: Try, now: Mono) {
        debug_assert_eq!(self.slots.get(ended.slot), Some(&Slot::Busy(ended)), "a pod ends only where it runs");
        self.slots[ended.slot] = Slot::Waiting { until: now, next: Try { attempt: ended.attempt.saturating_add(1), ..ended } };
    }

    fn retry_delay(&self, attempt: u32) -> Millis {
        let doubled = self.retry_delay_first.0.saturating_mul(1 << attempt.min(32));
        Millis(doubled.min(RETRY_DELAY_MAX.0))
    }

    fn judge(&mut self) {
        let complete = match self.completions {
            Some(wanted) => self.succeeded >= wanted,
            None => {
                for slot in &mut self.slots {
                    if matches!(slot, Slot::Free | Slot::Waiting { .. }) {
                        *slot = Slot::Closed { spare: false };
                    }
                }
                self.slots.iter().all(|slot| matches!(slot, Slot::Closed { .. }))
            }
        };
        if complete {
            self.verdict.get_or_insert(RunResult::Succeeded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: &str) -> JobSpec {
        let text = format!(r#"{{"spec":{{{spec} "template":{{"spec":{{"containers":[{{"command":["x"]}}]}}}}}}}}"#);
        JobSpec::parse(&text).unwrap()
    }

    fn pods(spec: &str, places: usize) -> Pods {
        Pods::new(&job(spec), places, 0, Millis(100))
    }

    #[test]
    fn fewer_places_are_fewer_completions_only_where_the_job_says_so() {
        for (follow, ends) in [("", 4), (r#""kueue.x-k8s.io/job-completions-equal-parallelism":"true""#, 2)] {
            let text = format!(
                r#"{{"metadata":{{"annotations":{{{follow}}}}},"spec":{{"parallelism":4,"completions":4,"template":{{"spec":{{"containers":[{{"command":["x"]}}]}}}}}}}}"#
            );
            let mut pods = Pods::new(&JobSpec::parse(&text).unwrap(), 2, 0, Millis(100));
            let (mut running, mut ended) = (pods.due(Mono(0)), 0);
            while pods.verdict().is_none() {
                let done = running.remove(0);
                assert!(!pods.ended(done, 0, None, Mono(0)));
                ended += 1;
                running.extend(pods.due(Mono(0)));
            }
            assert_eq!(ended, ends);
        }
    }

    #[test]
    fn every_completion_runs_once_and_no_more_at_a_time_than_there_are_places() {
        let mut pods = pods(r#""parallelism":2,"completions":5,"#, 2);
        let mut seen = Vec::new();
        let mut running = pods.due(Mono(0));
        while pods.verdict().is_none() {
            assert!(running.len() <= 2);
            let done = running.remove(0);
            seen.push(done.index);
            assert!(!pods.ended(done, 0, None, Mono(0)));
            running.extend(pods.due(Mono(0)));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert_eq!(pods.verdict(), Some(&RunResult::Succeeded));
        assert_eq!(pods.outcomes().len(), 5);
    }

    #[test]
    fn failures_are_retried_with_growing_waits_until_the_limit() {
        let mut pods = pods(r#""backoffLimit":2,"#, 1);
        let mut now = Mono(0);
        for (attempt, wait) in [(0, 100), (1, 200)] {
            let due = pods.due(now);
            assert_eq!(due, [Try { slot: 0, index: 0, attempt }]);
            assert!(pods.ended(due[0], 7, None, now));
            assert_eq!(pods.verdict(), None);
            assert_eq!(pods.due(now), [], "not before its time");
            assert_eq!(pods.next_due(), Some(now + Millis(wait)));
            now = now + Millis(wait);
        }
        let last = pods.due(now);
        pods.ended(last[0], 7, None, now);
        assert!(matches!(pods.verdict(), Some(RunResult::Failed { reason, .. }) if reason == "BackoffLimitExceeded"), "{:?}", pods.verdict());
        assert_eq!((pods.failures(), pods.due(Mono(u64::MAX)).len()), (3, 0));
    }

    #[test]
    fn a_pod_that_moves_is_tried_again_and_has_not_failed() {
        let mut pods = pods(r#""backoffLimit":0,"#, 1);
        let due = pods.due(Mono(0));
        pods.again(due[0], Mono(7));
        assert_eq!((pods.verdict(), pods.failures(), pods.next_due()), (None, 0, Some(Mono(7))));
        let due = pods.due(Mono(7));
        assert_eq!(due, [Try { slot: 0, index: 0, attempt: 1 }]);
        pods.ended(due[0], 0, None, Mono(8));
        assert_eq!(pods.verdict(), Some(&RunResult::Succeeded));
    }

    #[test]
    fn failures_of_earlier_attempts_count() {
        let mut pods = Pods::new(&job(r#""backoffLimit":2,"#), 1, 2, Millis(1));
        let due = pods.due(Mono(0));
        pods.ended(due[0], 1, None, Mono(0));
        assert!(matches!(pods.verdict(), Some(RunResult::Failed { .. })));
        assert_eq!(pods.failures(), 3);
    }

    #[test]
    fn one_success_ends_a_work_queue_when_the_others_are_done() {
        let mut pods = pods(r#""parallelism":3,"#, 3);
        let due = pods.due(Mono(0));
        pods.ended(due[0], 1, None, Mono(0));
        pods.ended(due[1], 0, None, Mono(0));
        assert_eq!(pods.verdict(), None, "one still runs");
        assert_eq!(pods.due(Mono(u64::MAX)), [], "the failed one is not replaced");
        pods.ended(due[2], 1, None, Mono(0));
        assert_eq!(pods.verdict(), Some(&RunResult::Succeeded));
    }

    #[test]
    fn no_place_is_an_answer_and_not_a_wait() {
        assert!(matches!(pods("", 0).verdict(), Some(RunResult::Failed { reason, .. }) if reason == "NoPods"));
    }
}

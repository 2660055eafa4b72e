//! Which pods a job wants running: completions, retries and the verdict (pure; `batch/v1` semantics).
//!
//! Knows neither processes nor clocks: the process runner's guard and the simulated runner both drive it. A *slot* is one
//! place of the placement; a *pod* is one completion, tried again in its slot until it succeeds or the job is over. When the
//! job shrinks, a pod whose slot goes is *owed*: it is tried again in the next slot that is free. When it grows, slots are added;
//! those that were closed stay so.
//!
//! Invariants: a slot runs at most one pod; a completion that succeeded is never started again; a completion is in one slot at
//! most, and owed only while it is in none; while one is owed some slot is open; after a verdict nothing is due.

use super::job::JobSpec;
use super::{PodOutcome, RunResult};
use meridian_shared::protocol::Size;
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
    /// A pod is being ended because it is too many.
    Closing(Try),
    /// Nothing more to do here; `spare` where that is so because a pod succeeded, or because the job has shrunk.
    Closed { spare: bool },
}

impl Slot {
    /// Whether pods run here from now on.
    fn is_open(&self) -> bool {
        matches!(self, Self::Free | Self::Waiting { .. } | Self::Busy(_))
    }

    /// Which completion is here.
    fn index(&self) -> Option<u32> {
        match self {
            Self::Waiting { next: this, .. } | Self::Busy(this) | Self::Closing(this) => Some(this.index),
            Self::Free | Self::Closed { .. } => None,
        }
    }
}

/// A pod that lost its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owed {
    until: Mono,
    attempt: u32,
}

/// The pods of one run.
#[derive(Clone, Debug)]
pub struct Pods {
    slots: Vec<Slot>,
    /// Places that were given; those beyond the slots were never of use.
    places: usize,
    /// So many places may be in use.
    parallelism: u32,
    completions: Option<u32>,
    /// Pods to be tried again in any slot, by index.
    owed: BTreeMap<u32, Owed>,
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
            places,
            parallelism: u32::try_from(places).unwrap_or(u32::MAX),
            owed: BTreeMap::new(),
            completions: if job.completions_follow
                && width < usize::try_from(job.width()).unwrap_or(usize::MAX)
            {
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
            verdict: (width == 0).then(|| RunResult::Failed {
                reason: "NoPods".into(),
                message: "the job was granted no place for any pod".into(),
            }),
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

    /// Places in which nothing is and nothing more will start, in order: their pods have succeeded, or the job has shrunk.
    pub fn spare(&self) -> Vec<usize> {
        let closed = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| **slot == Slot::Closed { spare: true })
            .map(|(at, _)| at);
        let in_use = usize::try_from(self.parallelism).unwrap_or(usize::MAX);
        closed.chain(self.slots.len().max(in_use)..self.places).collect()
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
        // Free slots that wait for a pod that can't start yet.
        let mut kept = 0;
        for at in 0..self.slots.len() {
            let next = match self.slots[at] {
                Slot::Free => match self.next_for(at, now) {
                    Some(next) => next,
                    None if kept < self.wanting() => {
                        kept += 1;
                        continue;
                    }
                    // There were at least as many pods as slots, so one has succeeded here, or is not wanted any more.
                    None => {
                        self.slots[at] = Slot::Closed { spare: true };
                        continue;
                    }
                },
                Slot::Waiting { until, next } if now >= until => next,
                Slot::Waiting { .. } | Slot::Busy(_) | Slot::Closing(_) | Slot::Closed { .. } => continue,
            };
            self.slots[at] = Slot::Busy(next);
            due.push(next);
        }
        due
    }

    /// What a free slot is to run: first what is owed, then what was never tried.
    fn next_for(&mut self, slot: usize, now: Mono) -> Option<Try> {
        if let Some((index, Owed { attempt, .. })) =
            self.owed.iter().find(|(_, owed)| now >= owed.until).map(|(index, owed)| (*index, *owed))
        {
            self.owed.remove(&index);
            return Some(Try { slot, index, attempt });
        }
        if !self.has_new() {
            return None;
        }
        self.next_index += 1;
        Some(Try { slot, index: self.next_index - 1, attempt: 0 })
    }

    fn has_new(&self) -> bool {
        self.completions.is_none_or(|wanted| self.next_index < wanted)
    }

    /// Whether a pod that loses its slot is to be tried again. A work queue goes on with those that are left.
    fn wants(&self, index: u32) -> bool {
        self.completions.is_some_and(|wanted| index < wanted)
    }

    /// Pods that need another slot, now or once they were seen ended.
    fn wanting(&self) -> usize {
        self.owed.len()
            + self
                .slots
                .iter()
                .filter(|slot| matches!(slot, Slot::Closing(this) if self.wants(this.index)))
                .count()
    }

    /// When [`Pods::due`] will next have something.
    pub fn next_due(&self) -> Option<Mono> {
        if self.verdict.is_some() {
            return None;
        }
        let waiting = self.slots.iter().filter_map(|slot| match slot {
            Slot::Waiting { until, .. } => Some(*until),
            Slot::Free | Slot::Busy(_) | Slot::Closing(_) | Slot::Closed { .. } => None,
        });
        let free = match self.slots.iter().filter(|slot| **slot == Slot::Free).count() {
            0 => None,
            // One of them starts something, or closes.
            free if self.has_new() || free > self.wanting() => Some(Mono(0)),
            _ => self.owed.values().map(|owed| owed.until).min(),
        };
        waiting.chain(free).min()
    }

    /// Goes on with at most `size`. Gives the tries that must be ended: the caller says of each that it was [`Pods::removed`], and
    /// until then its slot isn't spare. `None`, and nothing changes, where that isn't smaller, or the job is over.
    pub fn shrink(&mut self, size: Size) -> Option<Vec<Try>> {
        // A job of no pods is not one that goes on.
        let parallelism = size.parallelism.max(1).min(self.parallelism);
        let completions =
            self.completions.map(|known| size.completions.map_or(known, |wanted| wanted.max(1).min(known)));
        if self.verdict.is_some() || (parallelism, completions) == (self.parallelism, self.completions) {
            return None;
        }
        self.parallelism = parallelism;
        let mut leaving = Vec::new();
        if completions != self.completions
            && let Some(wanted) = completions
        {
            self.want(wanted, &mut leaving);
        }
        let open = self.slots.iter().filter(|slot| slot.is_open()).count();
        let surplus = open.saturating_sub(usize::try_from(parallelism).unwrap_or(usize::MAX));
        let highest: Vec<usize> =
            (0..self.slots.len()).rev().filter(|at| self.slots[*at].is_open()).take(surplus).collect();
        for at in highest {
            match self.slots[at] {
                Slot::Busy(this) => {
                    self.slots[at] = Slot::Closing(this);
                    leaving.push(this);
                    continue;
                }
                Slot::Waiting { until, next } if self.wants(next.index) => {
                    self.owed.insert(next.index, Owed { until, attempt: next.attempt });
                }
                Slot::Waiting { .. } | Slot::Free | Slot::Closing(_) | Slot::Closed { .. } => {}
            }
            self.slots[at] = Slot::Closed { spare: true };
        }
        if completions.is_some() {
            self.judge();
        }
        Some(leaving)
    }

    /// Goes on with `size` in so many places, those that are new behind all others: what is new starts with the next
    /// [`Pods::due`]. Nothing changes where there are no more places, or the job is over.
    pub fn grow(&mut self, size: Size, places: usize) {
        let added = places.saturating_sub(self.places);
        if self.verdict.is_some() || added == 0 {
            return;
        }
        // Places beyond the slots were never of use.
        self.slots.resize(self.places, Slot::Closed { spare: true });
        // A work queue that has seen a success takes no new pods.
        let done = self.completions.is_none() && self.succeeded > 0;
        self.slots.resize(places, if done { Slot::Closed { spare: true } } else { Slot::Free });
        self.places = places;
        self.parallelism = size.parallelism.max(self.parallelism);
        self.completions =
            self.completions.map(|known| size.completions.map_or(known, |wanted| wanted.max(known)));
    }

    /// Only the first `wanted` completions count from now on; what was tried of the others is as if it hadn't been.
    fn want(&mut self, wanted: u32, leaving: &mut Vec<Try>) {
        for slot in &mut self.slots {
            match *slot {
                Slot::Busy(this) if this.index >= wanted => {
                    *slot = Slot::Closing(this);
                    leaving.push(this);
                }
                Slot::Waiting { next, .. } if next.index >= wanted => *slot = Slot::Free,
                Slot::Waiting { .. }
                | Slot::Busy(_)
                | Slot::Free
                | Slot::Closing(_)
                | Slot::Closed { .. } => {}
            }
        }
        self.owed.retain(|index, _| *index < wanted);
        self.outcomes.retain(|index, outcome| *index < wanted || outcome.exit_code == 0);
        self.completions = Some(wanted);
        self.next_index = self.next_index.min(wanted);
        // Every index that was given out and is neither in a slot nor owed has succeeded.
        let unfinished = self.slots.iter().filter_map(Slot::index).filter(|index| *index < wanted).count()
            + self.owed.len();
        self.succeeded = self.next_index.saturating_sub(u32::try_from(unfinished).unwrap_or(u32::MAX));
    }

    /// Takes in that nothing is left of a pod that was too many. Its index, where it still counts, is tried again in another slot
    /// at once: that is no failure.
    pub fn removed(&mut self, gone: Try, now: Mono) {
        debug_assert_eq!(
            self.slots.get(gone.slot),
            Some(&Slot::Closing(gone)),
            "only what was to end is removed"
        );
        if self.wants(gone.index) {
            self.owed.insert(gone.index, Owed { until: now, attempt: gone.attempt.saturating_add(1) });
        }
        // Some slot stays for what is owed, whatever was closed before.
        let needed = !self.owed.is_empty() && !self.slots.iter().any(Slot::is_open);
        self.slots[gone.slot] = if needed { Slot::Free } else { Slot::Closed { spare: true } };
    }

    /// Notes how a pod ended, without deciding what follows: for pods that were stopped.
    pub fn note(&mut self, outcome: PodOutcome) {
        if self.outcomes.len() < OUTCOMES_MAX || self.outcomes.contains_key(&outcome.index) {
            self.outcomes.insert(outcome.index, outcome);
        }
    }

    /// Takes in that the pod of `slot` ended by itself. Says whether it counts as a failure.
    pub fn ended(&mut self, ended: Try, exit_code: i32, message: Option<String>, now: Mono) -> bool {
        debug_assert_eq!(
            self.slots.get(ended.slot),
            Some(&Slot::Busy(ended)),
            "a pod ends only where it runs"
        );
        let because = message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default();
        self.note(PodOutcome { index: ended.index, attempt: ended.attempt, exit_code, message });
        if exit_code == 0 {
            self.succeeded += 1;
            self.slots[ended.slot] =
                if self.completions.is_none() { Slot::Closed { spare: true } } else { Slot::Free };
            self.judge();
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures > self.backoff_limit {
            self.verdict.get_or_insert_with(|| RunResult::Failed {
                reason: "BackoffLimitExceeded".into(),
                message: format!(
                    "pod {} ended with exit code {exit_code}{because}, and the job's backoff limit of {} is used up",
                    ended.index, self.backoff_limit
                ),
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
        debug_assert_eq!(
            self.slots.get(ended.slot),
            Some(&Slot::Busy(ended)),
            "a pod ends only where it runs"
        );
        self.slots[ended.slot] =
            Slot::Waiting { until: now, next: Try { attempt: ended.attempt.saturating_add(1), ..ended } };
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
                !self.slots.iter().any(Slot::is_open)
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
        let text =
            format!(r#"{{"spec":{{{spec} "template":{{"spec":{{"containers":[{{"command":["x"]}}]}}}}}}}}"#);
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
        assert!(
            matches!(pods.verdict(), Some(RunResult::Failed { reason, .. }) if reason == "BackoffLimitExceeded"),
            "{:?}",
            pods.verdict()
        );
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

    const FOUR: &str = r#""parallelism":4,"completions":4,"completionMode":"Indexed","#;

    fn size(parallelism: u32, completions: Option<u32>) -> Size {
        Size { parallelism, completions }
    }

    /// Lets everything that is due succeed, over and over; gives the tries.
    fn succeed(pods: &mut Pods, mut running: Vec<Try>, now: Mono) -> Vec<Try> {
        let mut seen = Vec::new();
        while pods.verdict().is_none() {
            running.extend(pods.due(now));
            let done = running.remove(0);
            seen.push(done);
            pods.ended(done, 0, None, now);
        }
        seen
    }

    #[test]
    fn where_completions_follow_the_highest_indexes_go_and_are_spare_once_they_are_gone() {
        let mut pods = pods(FOUR, 4);
        let running = pods.due(Mono(0));
        assert_eq!(pods.shrink(size(2, Some(2))), Some(running[2..].to_vec()));
        assert_eq!(
            (pods.spare(), pods.due(Mono(1)), pods.next_due()),
            (vec![], vec![], None),
            "they still run"
        );
        assert_eq!(pods.shrink(size(2, Some(2))), None, "a repetition");
        assert_eq!(pods.shrink(size(3, Some(3))), None, "larger");
        pods.removed(running[3], Mono(2));
        assert_eq!((pods.spare(), pods.due(Mono(2))), (vec![3], vec![]));
        pods.removed(running[2], Mono(2));
        assert_eq!((pods.spare(), pods.due(Mono(2)), pods.failures()), (vec![2, 3], vec![], 0));
        assert_eq!(succeed(&mut pods, running[..2].to_vec(), Mono(3)), running[..2]);
        assert_eq!(
            pods.outcomes().iter().map(|o| (o.index, o.exit_code)).collect::<Vec<_>>(),
            [(0, 0), (1, 0)]
        );
    }

    #[test]
    fn only_successes_that_still_count_are_counted_and_all_of_them_end_the_job_at_once() {
        // The two that are too many have succeeded; the others go on.
        let mut one = pods(FOUR, 4);
        let running = one.due(Mono(0));
        one.ended(running[2], 0, None, Mono(1));
        one.ended(running[3], 0, None, Mono(1));
        assert_eq!((one.shrink(size(2, Some(2))), one.verdict()), (Some(vec![]), None));
        assert_eq!(one.due(Mono(1)), []);
        assert_eq!(one.spare(), [2, 3]);
        one.ended(running[0], 0, None, Mono(2));
        assert_eq!(one.verdict(), None);
        one.ended(running[1], 0, None, Mono(2));
        assert_eq!(one.verdict(), Some(&RunResult::Succeeded));
        // Those that are left have succeeded: one that failed before and one that runs are in nobody's way.
        let mut two = pods(FOUR, 4);
        let running = two.due(Mono(0));
        two.ended(running[0], 0, None, Mono(1));
        two.ended(running[1], 0, None, Mono(1));
        two.ended(running[2], 1, None, Mono(1));
        assert_eq!(two.shrink(size(2, Some(2))), Some(vec![running[3]]));
        assert_eq!(
            (two.verdict(), two.failures(), two.outcomes().len()),
            (Some(&RunResult::Succeeded), 1, 2)
        );
        assert_eq!(two.shrink(size(1, Some(1))), None, "it is over");
    }

    #[test]
    fn a_pod_that_waits_for_its_retry_and_is_too_many_leaves_its_place() {
        let mut pods = pods(FOUR, 4);
        let running = pods.due(Mono(0));
        pods.ended(running[3], 1, None, Mono(0));
        assert_eq!(pods.shrink(size(3, Some(3))), Some(vec![]));
        assert_eq!(pods.due(Mono(100_000)), []);
        assert_eq!((pods.spare(), pods.failures(), pods.outcomes()), (vec![3], 1, vec![]));
    }

    #[test]
    fn where_completions_stay_what_lost_its_place_is_tried_again_in_one_that_is_left() {
        let mut pods = pods(r#""parallelism":3,"completions":6,"backoffLimit":0,"#, 3);
        let running = pods.due(Mono(0));
        assert_eq!(pods.shrink(size(1, None)), Some(vec![running[2], running[1]]));
        pods.removed(running[1], Mono(1));
        assert_eq!(
            (pods.due(Mono(1)), pods.spare(), pods.next_due()),
            (vec![], vec![1], None),
            "the first one is busy"
        );
        pods.ended(running[0], 0, None, Mono(2));
        let second = pods.due(Mono(2));
        assert_eq!(
            second,
            [Try { slot: 0, index: 1, attempt: 1 }],
            "before the fourth, which was never tried"
        );
        pods.removed(running[2], Mono(3));
        let seen = succeed(&mut pods, second, Mono(3));
        assert_eq!(
            seen.iter().map(|t| (t.slot, t.index, t.attempt)).collect::<Vec<_>>(),
            [(0, 1, 1), (0, 2, 1), (0, 3, 0), (0, 4, 0), (0, 5, 0)]
        );
        assert_eq!(
            (pods.failures(), pods.verdict(), pods.outcomes().len()),
            (0, Some(&RunResult::Succeeded), 6)
        );
    }

    #[test]
    fn a_place_is_kept_for_each_pod_that_is_not_yet_gone_or_waits_and_no_others() {
        let mut pods = pods(r#""parallelism":4,"completions":4,"#, 4);
        let running = pods.due(Mono(0));
        // The last waits until 100 and takes its wait along; the one before it takes its time to end.
        pods.ended(running[3], 1, None, Mono(0));
        assert_eq!(pods.shrink(size(2, None)), Some(vec![running[2]]));
        assert_eq!(pods.spare(), [3]);
        pods.ended(running[0], 0, None, Mono(1));
        pods.ended(running[1], 0, None, Mono(1));
        assert_eq!((pods.due(Mono(1)), pods.next_due(), pods.spare()), (vec![], Some(Mono(100)), vec![3]));
        let last = pods.due(Mono(100));
        assert_eq!(last, [Try { slot: 0, index: 3, attempt: 1 }]);
        assert_eq!(
            (pods.next_due(), pods.spare()),
            (None, vec![3]),
            "the other place is for the one that takes its time"
        );
        pods.ended(last[0], 0, None, Mono(101));
        assert_eq!(pods.next_due(), Some(Mono(0)));
        assert_eq!(
            (pods.due(Mono(101)), pods.spare(), pods.next_due()),
            (vec![], vec![1, 3], None),
            "one pod, one place"
        );
        pods.removed(running[2], Mono(102));
        assert_eq!(pods.due(Mono(102)), [Try { slot: 0, index: 2, attempt: 1 }]);
        assert_eq!(pods.spare(), [1, 2, 3]);
    }

    #[test]
    fn it_can_shrink_again_before_the_first_is_done_and_before_anything_has_started() {
        let mut again = pods(r#""parallelism":3,"completions":3,"#, 3);
        let running = again.due(Mono(0));
        assert_eq!(again.shrink(size(2, None)), Some(vec![running[2]]));
        assert_eq!(again.shrink(size(0, None)), Some(vec![running[1]]), "one always stays");
        assert_eq!(again.shrink(size(1, Some(1))), Some(vec![]), "what is ending isn't ended twice");
        again.removed(running[1], Mono(1));
        again.removed(running[2], Mono(1));
        assert_eq!(again.due(Mono(1)), []);
        again.ended(running[0], 0, None, Mono(2));
        assert_eq!(again.verdict(), Some(&RunResult::Succeeded));

        let mut early = pods(FOUR, 4);
        assert_eq!(early.shrink(size(2, Some(2))), Some(vec![]));
        assert_eq!(early.spare(), [2, 3]);
        let running = early.due(Mono(0));
        assert_eq!(succeed(&mut early, running, Mono(0)).len(), 2);
    }

    #[test]
    fn completions_that_go_after_places_went_leave_a_place_for_what_is_owed() {
        let mut pods = pods(r#""parallelism":3,"completions":4,"#, 3);
        let running = pods.due(Mono(0));
        pods.shrink(size(1, None));
        pods.ended(running[0], 0, None, Mono(0));
        pods.removed(running[1], Mono(0));
        let second = pods.due(Mono(0));
        pods.ended(second[0], 0, None, Mono(0));
        // The fourth takes the only place while the third isn't gone yet.
        let fourth = pods.due(Mono(0));
        assert_eq!(fourth, [Try { slot: 0, index: 3, attempt: 0 }]);
        assert_eq!(pods.shrink(size(1, Some(3))), Some(fourth.clone()));
        pods.removed(fourth[0], Mono(1));
        pods.removed(running[2], Mono(2));
        let third = pods.due(Mono(2));
        assert_eq!(third.iter().map(|t| (t.index, t.attempt)).collect::<Vec<_>>(), [(2, 1)]);
        pods.ended(third[0], 0, None, Mono(3));
        assert_eq!(pods.verdict(), Some(&RunResult::Succeeded));
    }

    #[test]
    fn a_work_queue_goes_on_with_fewer_and_one_success_still_ends_it() {
        let mut pods = pods(r#""parallelism":3,"#, 3);
        let running = pods.due(Mono(0));
        assert_eq!(
            pods.shrink(size(2, Some(2))),
            Some(vec![running[2]]),
            "it has no completions that could follow"
        );
        pods.removed(running[2], Mono(1));
        assert_eq!((pods.due(Mono(1)), pods.spare(), pods.verdict()), (vec![], vec![2], None));
        pods.ended(running[0], 0, None, Mono(2));
        assert_eq!((pods.spare(), pods.verdict()), (vec![0, 2], None), "one still runs");
        pods.ended(running[1], 1, None, Mono(3));
        assert_eq!((pods.verdict(), pods.failures()), (Some(&RunResult::Succeeded), 1));
    }

    #[test]
    fn places_that_the_job_never_needed_are_spare_from_its_new_size_on() {
        let mut pods = pods(r#""parallelism":5,"completions":2,"#, 5);
        let running = pods.due(Mono(0));
        assert!(pods.spare().is_empty());
        assert_eq!((pods.shrink(size(4, None)), pods.spare()), (Some(vec![]), vec![4]));
        assert_eq!((pods.shrink(size(1, None)), pods.spare()), (Some(vec![running[1]]), vec![2, 3, 4]));
        pods.removed(running[1], Mono(0));
        assert_eq!(pods.spare(), [1, 2, 3, 4]);
    }

    #[test]
    fn no_place_is_an_answer_and_not_a_wait() {
        assert!(
            matches!(pods("", 0).verdict(), Some(RunResult::Failed { reason, .. }) if reason == "NoPods")
        );
    }

    #[test]
    fn what_is_added_starts_and_what_runs_is_left_alone() {
        let mut pods = pods(r#""parallelism":2,"completions":2,"completionMode":"Indexed","#, 2);
        let running = pods.due(Mono(0));
        pods.grow(size(4, Some(4)), 4);
        let added = pods.due(Mono(0));
        assert_eq!(
            added.iter().map(|this| (this.slot, this.index, this.attempt)).collect::<Vec<_>>(),
            [(2, 2, 0), (3, 3, 0)]
        );
        pods.grow(size(4, Some(4)), 4);
        assert_eq!((pods.due(Mono(0)).len(), pods.verdict()), (0, None), "a repetition");
        for this in running.into_iter().chain(added) {
            pods.ended(this, 0, None, Mono(1));
        }
        assert_eq!(pods.verdict(), Some(&RunResult::Succeeded));
        pods.grow(size(5, Some(5)), 5);
        assert!(pods.due(Mono(1)).is_empty(), "it is over");
    }

    #[test]
    fn places_that_were_given_up_stay_so_and_their_indexes_run_in_new_ones() {
        let mut pods = pods(FOUR, 4);
        let running = pods.due(Mono(0));
        assert_eq!(pods.shrink(size(2, Some(2))), Some(running[2..].to_vec()));
        running[2..].iter().for_each(|this| pods.removed(*this, Mono(0)));
        assert_eq!(pods.spare(), [2, 3]);
        pods.grow(size(3, Some(3)), 5);
        assert_eq!(pods.due(Mono(0)), [Try { slot: 4, index: 2, attempt: 0 }]);
        assert_eq!(pods.spare(), [2, 3]);
        // And smaller again, beyond what it was before.
        assert_eq!(pods.shrink(size(1, Some(1))).map(|leaving| leaving.len()), Some(2));
    }

    #[test]
    fn a_work_queue_grows_until_something_of_it_has_succeeded() {
        let mut queue = pods(r#""parallelism":2,"#, 2);
        let running = queue.due(Mono(0));
        queue.grow(size(3, None), 3);
        assert_eq!(queue.due(Mono(0)).len(), 1);
        queue.ended(running[0], 0, None, Mono(0));
        queue.grow(size(5, None), 5);
        assert_eq!((queue.due(Mono(0)).len(), queue.spare()), (0, vec![0, 3, 4]));
        // With completions that stay, what is left for them to do goes to all places that are of use.
        let mut fixed = pods(r#""parallelism":1,"completions":3,"#, 1);
        assert_eq!(fixed.due(Mono(0)).len(), 1);
        fixed.grow(size(4, None), 4);
        assert_eq!((fixed.due(Mono(0)).len(), fixed.spare()), (2, vec![3]));
    }
}

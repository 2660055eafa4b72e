//! The pods that a job needs: completions, retries and the verdict (pure; `batch/v1` semantics).
//!
//! Knows neither processes nor clocks: the process runner's guard and the simulated runner both drive it. A
//! *slot* is one entry of the placement; a *pod* is one completion, tried again in its slot until it succeeds
//! or the job is over. After a scale-down, a pod that lost its slot is *surplus*: it is tried again in the
//! next free slot. A scale-up adds slots; closed ones stay closed.
//!
//! Invariants:
//!
//! - A slot runs at most one pod, and a completion is in at most one slot.
//! - A completion that succeeded is never started again.
//! - A surplus completion is in no slot, and while there is a surplus completion, at least one slot is open.
//! - After the verdict, no pod is started.

use super::PodOutcome;
use super::job::JobSpec;
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;

/// Most outcomes that are kept, so that a report stays bounded; further pods are only counted.
pub const OUTCOMES_MAX: usize = 4_096;
/// Longest delay before a retry (Kubernetes' six minutes).
pub const RETRY_DELAY_MAX: Millis = Millis::mins(6);
/// Delay before the first retry of a pod (Kubernetes' ten seconds).
pub const RETRY_DELAY_FIRST_DEFAULT: Millis = Millis::secs(10);

/// One try of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Try {
    /// Index into the placement.
    pub slot: usize,
    /// The completion index.
    pub index: u32,
    /// Number of the try of this completion, from 0.
    pub attempt: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Takes the next completion.
    Free,
    /// A pod starts at `until`.
    Waiting {
        until: Mono,
        next: Try,
    },
    Busy(Try),
    /// A surplus pod is being ended.
    Closing(Try),
    /// The slot stays empty. It is `reclaimable` if its pod succeeded or the job was scaled down.
    Closed {
        reclaimable: bool,
    },
}

impl Slot {
    /// Whether a pod runs here or will.
    fn is_open(&self) -> bool {
        matches!(self, Self::Free | Self::Waiting { .. } | Self::Busy(_))
    }

    /// The completion in this slot.
    fn index(&self) -> Option<u32> {
        match self {
            Self::Waiting { next: this, .. } | Self::Busy(this) | Self::Closing(this) => Some(this.index),
            Self::Free | Self::Closed { .. } => None,
        }
    }
}

/// A pod that lost its slot and is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Surplus {
    until: Mono,
    attempt: u32,
}

/// The pods of one run.
#[derive(Clone, Debug)]
pub struct Pods {
    slots: Vec<Slot>,
    /// Length of the placement. Entries beyond the slots were never used.
    places: usize,
    /// Most pods at once.
    parallelism: u32,
    completions: Option<u32>,
    /// Indexes that succeeded, in earlier attempts too. Empty without completions.
    completed: Indexes,
    /// Surplus pods by completion index.
    surplus: BTreeMap<u32, Surplus>,
    next_index: u32,
    succeeded: u32,
    failures: u32,
    backoff_limit: u32,
    retry_delay_first: Millis,
    outcomes: BTreeMap<u32, PodOutcome>,
    verdict: Option<EndResult>,
}

impl Pods {
    /// The pods of `job` in a placement of `places` entries; `failures` is the number of failed pods in
    /// earlier attempts, and `completed` are the indexes that succeeded there.
    pub fn new(
        job: &JobSpec,
        places: usize,
        failures: u32,
        completed: &Indexes,
        retry_delay_first: Millis,
    ) -> Self {
        let completed = job.completions.map_or_else(Indexes::default, |wanted| completed.below(wanted));
        let left = job.completions.map_or(u32::MAX, |wanted| wanted.saturating_sub(completed.len()));
        let most = usize::try_from(job.width().min(left.max(1))).unwrap_or(usize::MAX);
        let width = places.min(most);
        let is_partial = completed.is_empty() && width < most;
        let mut pods = Self {
            slots: vec![Slot::Free; width],
            places,
            parallelism: u32::try_from(places).unwrap_or(u32::MAX),
            surplus: BTreeMap::new(),
            completions: if job.completions_follow && is_partial {
                u32::try_from(width).ok()
            } else {
                job.completions
            },
            next_index: 0,
            succeeded: completed.len(),
            completed,
            failures,
            backoff_limit: job.backoff_limit,
            retry_delay_first,
            outcomes: BTreeMap::new(),
            verdict: (width == 0).then(|| EndResult::Failed {
                reason: "NoPods".into(),
                message: "the job was granted no node for any pod".into(),
            }),
        };
        if left == 0 {
            pods.check_completion();
        }
        pods
    }

    /// Indexes that succeeded so far, over all attempts.
    pub fn completed(&self) -> &Indexes {
        &self.completed
    }

    /// Number of failed pods so far, over all attempts.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The result of the job, once it is over.
    pub fn verdict(&self) -> Option<&EndResult> {
        self.verdict.as_ref()
    }

    /// Indexes into the placement where nothing runs and nothing will, sorted: the pods have succeeded, or
    /// the job was scaled down.
    pub fn reclaimable(&self) -> Vec<usize> {
        let closed = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| **slot == Slot::Closed { reclaimable: true })
            .map(|(at, _)| at);
        let in_use = usize::try_from(self.parallelism).unwrap_or(usize::MAX);
        closed.chain(self.slots.len().max(in_use)..self.places).collect()
    }

    /// The last outcome of each pod, by index.
    pub fn outcomes(&self) -> Vec<PodOutcome> {
        self.outcomes.values().cloned().collect()
    }

    /// The pods that are to start now. The caller starts each, or reports it [`Pods::ended`].
    pub fn due(&mut self, now: Mono) -> Vec<Try> {
        let mut due = Vec::new();
        if self.verdict.is_some() {
            return due;
        }
        // Free slots that are kept for a pod that can't start yet.
        let mut kept = 0;
        for at in 0..self.slots.len() {
            let next = match self.slots[at] {
                Slot::Free => match self.next_for(at, now) {
                    Some(next) => next,
                    None if kept < self.waiting_for_slot() => {
                        kept += 1;
                        continue;
                    }
                    // There were at least as many pods as slots, so the pod of this slot has succeeded or
                    // isn't needed any more.
                    None => {
                        self.slots[at] = Slot::Closed { reclaimable: true };
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

    /// The pod for a free slot: a surplus one first, then one that was never tried.
    fn next_for(&mut self, slot: usize, now: Mono) -> Option<Try> {
        if let Some((index, Surplus { attempt, .. })) = self
            .surplus
            .iter()
            .find(|(_, surplus)| now >= surplus.until)
            .map(|(index, surplus)| (*index, *surplus))
        {
            self.surplus.remove(&index);
            return Some(Try { slot, index, attempt });
        }
        let index = self.next_new()?;
        self.next_index = index + 1;
        Some(Try { slot, index, attempt: 0 })
    }

    /// The next index that was never tried in this attempt and hasn't succeeded in an earlier one.
    fn next_new(&self) -> Option<u32> {
        let index = self.completed.first_missing(self.next_index);
        self.completions.is_none_or(|wanted| index < wanted).then_some(index)
    }

    fn has_new(&self) -> bool {
        self.next_new().is_some()
    }

    /// Whether a pod that loses its slot is to be tried again. A work queue continues with the remaining
    /// pods.
    fn is_needed(&self, index: u32) -> bool {
        self.completions.is_some_and(|wanted| index < wanted)
    }

    /// Number of pods that need another slot, now or once they were seen ended.
    fn waiting_for_slot(&self) -> usize {
        self.surplus.len()
            + self
                .slots
                .iter()
                .filter(|slot| matches!(slot, Slot::Closing(this) if self.is_needed(this.index)))
                .count()
    }

    /// When [`Pods::due`] next returns a pod.
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
            // A free slot starts a pod at once, or closes.
            free if self.has_new() || free > self.waiting_for_slot() => Some(Mono(0)),
            _ => self.surplus.values().map(|surplus| surplus.until).min(),
        };
        waiting.chain(free).min()
    }

    /// Continues with at most `size`. Returns the tries that must be ended; the caller reports each
    /// [`Pods::removed`], and its slot is not reclaimable before. Returns `None` and changes nothing if the
    /// size isn't smaller, or the job is over.
    pub fn scale_down(&mut self, size: Size) -> Option<Vec<Try>> {
        // At least one pod stays, or the job could not continue.
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
            self.reduce_completions(wanted, &mut leaving);
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
                Slot::Waiting { until, next } if self.is_needed(next.index) => {
                    self.surplus.insert(next.index, Surplus { until, attempt: next.attempt });
                }
                Slot::Waiting { .. } | Slot::Free | Slot::Closing(_) | Slot::Closed { .. } => {}
            }
            self.slots[at] = Slot::Closed { reclaimable: true };
        }
        if completions.is_some() {
            self.check_completion();
        }
        Some(leaving)
    }

    /// Continues with `size` and a placement of `places` entries, added ones last. Their pods start with the
    /// next [`Pods::due`]. Changes nothing if no entry was added, or the job is over.
    pub fn scale_up(&mut self, size: Size, places: usize) {
        let added = places.saturating_sub(self.places);
        if self.verdict.is_some() || added == 0 {
            return;
        }
        // Entries beyond the slots were never used.
        self.slots.resize(self.places, Slot::Closed { reclaimable: true });
        // A work queue starts no pods after the first success.
        let done = self.completions.is_none() && self.succeeded > 0;
        self.slots.resize(places, if done { Slot::Closed { reclaimable: true } } else { Slot::Free });
        self.places = places;
        self.parallelism = size.parallelism.max(self.parallelism);
        self.completions =
            self.completions.map(|known| size.completions.map_or(known, |wanted| wanted.max(known)));
    }

    /// Reduces the completions to the first `wanted`; tries of the others don't count.
    fn reduce_completions(&mut self, wanted: u32, leaving: &mut Vec<Try>) {
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
        self.surplus.retain(|index, _| *index < wanted);
        self.outcomes.retain(|index, outcome| *index < wanted || outcome.exit_code == 0);
        self.completions = Some(wanted);
        self.next_index = self.next_index.min(wanted);
        // Every index up to the last started one that is neither in a slot nor surplus has succeeded.
        let unfinished = self.slots.iter().filter_map(Slot::index).filter(|index| *index < wanted).count()
            + self.surplus.len();
        self.completed = self.completed.below(wanted);
        self.succeeded = self.next_index.saturating_sub(u32::try_from(unfinished).unwrap_or(u32::MAX))
            + self.completed.count_between(self.next_index, wanted);
    }

    /// A surplus pod has ended. If its index still counts, it is tried again in another slot at once; that is
    /// no failure.
    pub fn removed(&mut self, gone: Try, now: Mono) {
        debug_assert_eq!(
            self.slots.get(gone.slot),
            Some(&Slot::Closing(gone)),
            "only a surplus pod is removed"
        );
        if self.is_needed(gone.index) {
            self.surplus.insert(gone.index, Surplus { until: now, attempt: gone.attempt.saturating_add(1) });
        }
        // A slot stays open for surplus pods, whatever was closed before.
        let needed = !self.surplus.is_empty() && !self.slots.iter().any(Slot::is_open);
        self.slots[gone.slot] = if needed { Slot::Free } else { Slot::Closed { reclaimable: true } };
    }

    /// Notes the end of a stopped pod, which has no consequences for the job.
    pub fn note(&mut self, outcome: PodOutcome) {
        if self.outcomes.len() < OUTCOMES_MAX || self.outcomes.contains_key(&outcome.index) {
            self.outcomes.insert(outcome.index, outcome);
        }
    }

    /// A pod ended by itself. Returns whether that counts as a failure.
    pub fn ended(&mut self, ended: Try, exit_code: i32, message: Option<String>, now: Mono) -> bool {
        debug_assert_eq!(
            self.slots.get(ended.slot),
            Some(&Slot::Busy(ended)),
            "a pod ends in the slot where it runs"
        );
        let because = message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default();
        self.note(PodOutcome { index: ended.index, attempt: ended.attempt, exit_code, message });
        if exit_code == 0 {
            self.succeeded += 1;
            if self.completions.is_some() {
                self.completed.insert(ended.index);
            }
            self.slots[ended.slot] =
                if self.completions.is_none() { Slot::Closed { reclaimable: true } } else { Slot::Free };
            self.check_completion();
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures > self.backoff_limit {
            self.verdict.get_or_insert_with(|| EndResult::Failed {
                reason: "BackoffLimitExceeded".into(),
                message: format!(
                    "pod {} ended with exit code {exit_code}{because}, and the job's backoff limit of {} is \
                     used up",
                    ended.index, self.backoff_limit
                ),
            });
        } else if self.completions.is_none() && self.succeeded > 0 {
            // A work queue starts no pods after the first success.
            self.slots[ended.slot] = Slot::Closed { reclaimable: false };
            self.check_completion();
        } else {
            let next = Try { attempt: ended.attempt.saturating_add(1), ..ended };
            self.slots[ended.slot] = Slot::Waiting { until: now + self.retry_delay(ended.attempt), next };
        }
        true
    }

    /// A pod was ended because it moves: it starts again at once, as a further try that doesn't count as a
    /// failure.
    pub fn restart(&mut self, ended: Try, now: Mono) {
        debug_assert_eq!(
            self.slots.get(ended.slot),
            Some(&Slot::Busy(ended)),
            "a pod ends in the slot where it runs"
        );
        self.slots[ended.slot] =
            Slot::Waiting { until: now, next: Try { attempt: ended.attempt.saturating_add(1), ..ended } };
    }

    fn retry_delay(&self, attempt: u32) -> Millis {
        let doubled = self.retry_delay_first.0.saturating_mul(1 << attempt.min(32));
        Millis(doubled.min(RETRY_DELAY_MAX.0))
    }

    fn check_completion(&mut self) {
        let complete = match self.completions {
            Some(wanted) => self.succeeded >= wanted,
            None => {
                for slot in &mut self.slots {
                    if matches!(slot, Slot::Free | Slot::Waiting { .. }) {
                        *slot = Slot::Closed { reclaimable: false };
                    }
                }
                !self.slots.iter().any(Slot::is_open)
            }
        };
        if complete {
            self.verdict.get_or_insert(EndResult::Succeeded);
        }
    }
}

#[cfg(test)]
mod tests;

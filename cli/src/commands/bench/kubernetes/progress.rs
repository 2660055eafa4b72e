//! When each job was first seen in each state. Watches write it, and the measurement waits for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A state of a job, in the order in which a job gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobState {
    /// The manager or management cluster shows the admission to a worker cluster.
    Admitted,
    /// The worker cluster's job is no longer suspended.
    Resumed,
    /// The manager or management cluster shows running pods.
    Running,
}

impl JobState {
    /// The state in documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Resumed => "resumed",
            Self::Running => "running",
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    /// When each job was first seen in each state.
    jobs: BTreeMap<String, BTreeMap<JobState, Instant>>,
    /// Number of jobs that were seen in each state.
    numbers: BTreeMap<JobState, usize>,
    /// Watches that have read the existing jobs.
    watches: usize,
}

/// The jobs of one run, whose names have a common beginning.
#[derive(Debug)]
pub(super) struct Progress {
    prefix: String,
    seen: Mutex<Seen>,
    changed: Notify,
}

impl Progress {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix, seen: Mutex::default(), changed: Notify::new() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the states of a job, at this moment. Jobs of others are ignored.
    pub(super) fn note(&self, name: &str, states: &[JobState]) {
        if states.is_empty() || !name.starts_with(&self.prefix) {
            return;
        }
        let now = Instant::now();
        let mut guard = self.seen();
        let Seen { jobs, numbers, .. } = &mut *guard;
        let times = jobs.entry(name.to_owned()).or_default();
        let mut is_news = false;
        for state in states {
            if !times.contains_key(state) {
                times.insert(*state, now);
                *numbers.entry(*state).or_default() += 1;
                is_news = true;
            }
        }
        drop(guard);
        if is_news {
            self.changed.notify_waiters();
        }
    }

    /// Notes that a watch has read the existing jobs, and misses nothing from now on.
    pub(super) fn note_watch(&self) {
        self.seen().watches += 1;
        self.changed.notify_waiters();
    }

    /// Whether this number of watches follow the jobs within this time.
    pub(super) async fn is_watched(&self, watches: usize, within: Duration) -> bool {
        self.wait(within, |seen| seen.watches >= watches).await
    }

    /// Whether one job reaches all states within this time.
    pub(super) async fn has_reached(&self, name: &str, states: &[JobState], within: Duration) -> bool {
        let times_of = |seen: &Seen| {
            seen.jobs.get(name).is_some_and(|times| states.iter().all(|state| times.contains_key(state)))
        };
        self.wait(within, times_of).await
    }

    /// Whether this number of jobs reach all states within this time.
    pub(super) async fn have_reached(&self, jobs: usize, states: &[JobState], within: Duration) -> bool {
        let number = |seen: &Seen, state: &JobState| seen.numbers.get(state).copied().unwrap_or(0);
        self.wait(within, |seen| states.iter().all(|state| number(seen, state) >= jobs)).await
    }

    /// When a job was first seen in a state.
    pub(super) fn time(&self, name: &str, state: JobState) -> Option<Instant> {
        self.seen().jobs.get(name)?.get(&state).copied()
    }

    async fn wait(&self, within: Duration, is_done: impl Fn(&Seen) -> bool) -> bool {
        let done = async {
            loop {
                // Registered before the check, so that a change in between wakes the wait.
                let changed = self.changed.notified();
                if is_done(&self.seen()) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(within, done).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobState::{Admitted, Running};

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn the_first_sight_of_a_state_counts() {
        let progress = Progress::new("bench-".to_owned());
        progress.note("bench-0", &[Admitted]);
        let first = progress.time("bench-0", Admitted).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        progress.note("bench-0", &[Admitted, Running]);
        assert_eq!(progress.time("bench-0", Admitted), Some(first));
        assert!(progress.time("bench-0", Running).unwrap() > first);
        progress.note("others-0", &[Admitted]);
        assert_eq!(progress.time("others-0", Admitted), None);
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_last_state_or_with_its_time() {
        let progress = Progress::new("bench-".to_owned());
        let both = [Admitted, Running];
        progress.note("bench-0", &both);
        progress.note("bench-1", &[Admitted]);
        assert!(progress.has_reached("bench-0", &both, SOON).await);
        assert!(!progress.has_reached("bench-1", &both, SOON).await);
        assert!(!progress.have_reached(2, &both, SOON).await);
        let wait = progress.have_reached(2, &both, Duration::from_secs(5));
        let note = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            progress.note("bench-1", &[Running]);
        };
        assert!(tokio::join!(wait, note).0);
    }

    #[tokio::test]
    async fn watches_are_awaited() {
        let progress = Progress::new("bench-".to_owned());
        progress.note_watch();
        assert!(progress.is_watched(1, SOON).await);
        assert!(!progress.is_watched(2, SOON).await);
    }
}

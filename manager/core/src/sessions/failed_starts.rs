//! Backoff after failed starts: workloads that got capacity on a cluster and didn't reach running in time.
//!
//! After one failed start, the workload tries that cluster last. After repeated ones, the workload skips the
//! cluster for a while. If different workloads fail there and none reaches running in between, the cluster
//! itself is at fault, and all workloads skip it. A single workload that can't start anywhere therefore takes
//! no cluster away from others.

use crate::fingerprint::hash_deadline;
use meridian_shared::backoff;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Consecutive failed starts before a cluster is skipped.
const IN_A_ROW: u32 = 2;

/// Time until the second attempt. It grows with each further failed start.
const WAIT: Millis = Millis::secs(30);

/// Longest time between two attempts.
const WAIT_MAX: Millis = Millis::mins(10);

/// Failed starts in a row, and the end of the backoff after them: zero while there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Failures {
    times: u32,
    until: Mono,
}

impl Failures {
    fn add(&mut self, now: Mono) {
        self.times = self.times.saturating_add(1);
        if self.times >= IN_A_ROW {
            let doublings = self.times.saturating_sub(IN_A_ROW);
            self.until = now + backoff::wait(WAIT, WAIT_MAX, doublings, now.0);
        }
    }

    fn backs_off(self, now: Mono) -> bool {
        self.until > now
    }

    fn end(self) -> Option<Mono> {
        Some(self.until).filter(|until| *until > Mono(0))
    }

    /// Ends the backoff if it is over. Returns whether it was.
    fn end_if_over(&mut self, now: Mono) -> bool {
        let over = self.end().is_some_and(|until| until <= now);
        if over {
            self.until = Mono(0);
        }
        over
    }
}

/// Failed starts of each workload on each cluster since it last ran there. Only workloads that aren't
/// finished have any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FailedStarts(BTreeMap<(Uid, ClusterName), Failures>);

impl FailedStarts {
    /// Counts a failed start, and begins a backoff if it is repeated.
    pub(crate) fn add(&mut self, uid: Uid, cluster: &ClusterName, now: Mono) {
        self.0.entry((uid, cluster.clone())).or_default().add(now);
    }

    /// Forgets the failed starts, because the workload runs in the cluster.
    pub(crate) fn reset(&mut self, uid: Uid, cluster: &ClusterName) {
        self.0.remove(&(uid, cluster.clone()));
    }

    pub(crate) fn times(&self, uid: Uid, cluster: &ClusterName) -> u32 {
        self.0.get(&(uid, cluster.clone())).map_or(0, |failures| failures.times)
    }

    /// Whether the cluster backs off for this workload now.
    pub(crate) fn backs_off(&self, uid: Uid, cluster: &ClusterName, now: Mono) -> bool {
        self.0.get(&(uid, cluster.clone())).is_some_and(|failures| failures.backs_off(now))
    }

    /// Whether some cluster backs off for this workload now.
    pub(crate) fn has_any(&self, uid: Uid, now: Mono) -> bool {
        let first = (uid, ClusterName::from(""));
        let mut own = self.0.range(&first..).take_while(|((of, _), _)| *of == uid);
        own.any(|(_, failures)| failures.backs_off(now))
    }

    pub(crate) fn next_end(&self) -> Option<Mono> {
        self.0.values().filter_map(|failures| failures.end()).min()
    }

    /// Ends the backoffs that are over. Returns whether there were any. The failed starts still count.
    pub(crate) fn end_over(&mut self, now: Mono) -> bool {
        self.0.values_mut().filter_map(|failures| failures.end_if_over(now).then_some(())).count() > 0
    }

    /// Forgets workloads that are gone or finished.
    pub(crate) fn retain(&mut self, is_unfinished: impl Fn(&Uid) -> bool) {
        self.0.retain(|(uid, _), _| is_unfinished(uid));
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        for (key, Failures { times, until }) in &self.0 {
            (key, times).hash(into);
            hash_deadline(now, *until, into);
        }
    }
}

/// Failed starts of different workloads on one cluster, since any workload last ran there.
///
/// Repeated failures of one workload count once, because the workload may fail in every cluster. The counts
/// outlive the agent's session, because a new session doesn't repair the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterStarts {
    failures: Failures,
    /// The last workload that failed.
    last: Option<Uid>,
}

impl ClusterStarts {
    /// Counts a failed start, and begins a backoff if it is repeated.
    pub(crate) fn failed(&mut self, uid: Uid, now: Mono) {
        if self.last.replace(uid) != Some(uid) {
            self.failures.add(now);
        }
    }

    /// Resets the count, because a workload runs. A backoff that has begun continues.
    pub(crate) fn succeeded(&mut self) {
        (self.failures.times, self.last) = (0, None);
    }

    /// Consecutive workloads that got capacity but didn't reach running in time.
    pub fn in_a_row(&self) -> u32 {
        self.failures.times
    }

    /// Consecutive failed starts, or zero while they are too few to blame the cluster.
    pub(crate) fn blamed(&self) -> u32 {
        if self.failures.times >= IN_A_ROW { self.failures.times } else { 0 }
    }

    /// Whether the cluster gets no offers now.
    pub fn backs_off(&self, now: Mono) -> bool {
        self.failures.backs_off(now)
    }

    /// The end of the backoff; it may have passed.
    pub fn backoff_end(&self) -> Option<Mono> {
        self.failures.end()
    }

    /// Ends the backoff if it is over. Returns whether it was.
    pub(crate) fn end_backoff_if_over(&mut self, now: Mono) -> bool {
        self.failures.end_if_over(now)
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { failures: Failures { times, until }, last } = self;
        (times, last).hash(into);
        hash_deadline(now, *until, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_different_workloads_in_a_row_blame_the_cluster() {
        let mut starts = ClusterStarts::default();
        for _ in 0..5 {
            starts.failed(Uid(1), Mono(1_000));
        }
        assert_eq!((starts.in_a_row(), starts.blamed(), starts.backoff_end()), (1, 0, None));
        starts.failed(Uid(2), Mono(1_000));
        assert!(starts.blamed() == 2 && starts.backs_off(Mono(1_000)));
        let end = starts.backoff_end().unwrap();
        assert!(!starts.end_backoff_if_over(Mono(end.0 - 1)) && starts.end_backoff_if_over(end));
        assert_eq!((starts.in_a_row(), starts.backoff_end()), (2, None));
        starts.succeeded();
        assert_eq!(starts, ClusterStarts::default());
    }

    #[test]
    fn a_workload_skips_a_cluster_after_repeated_failed_starts_there() {
        let (eu, us) = (ClusterName::new("eu"), ClusterName::new("us"));
        let mut starts = FailedStarts::default();
        starts.add(Uid(1), &eu, Mono(1_000));
        assert_eq!((starts.times(Uid(1), &eu), starts.times(Uid(1), &us)), (1, 0));
        assert!(!starts.backs_off(Uid(1), &eu, Mono(1_000)) && starts.next_end().is_none());
        starts.add(Uid(1), &eu, Mono(1_000));
        let end = starts.next_end().unwrap();
        let before = Mono(end.0 - 1);
        assert!(starts.backs_off(Uid(1), &eu, before) && !starts.backs_off(Uid(1), &eu, end));
        assert!(!starts.backs_off(Uid(1), &us, before) && !starts.backs_off(Uid(2), &eu, before));
        assert!(starts.has_any(Uid(1), before) && !starts.has_any(Uid(0), before));
        assert!(!starts.end_over(before) && starts.end_over(end) && !starts.end_over(end));
        assert_eq!(
            (starts.times(Uid(1), &eu), starts.next_end()),
            (2, None),
            "the failed starts still count"
        );
        starts.reset(Uid(1), &eu);
        assert_eq!(starts, FailedStarts::default());
    }

    #[test]
    fn finished_workloads_are_forgotten() {
        let eu = ClusterName::new("eu");
        let mut starts = FailedStarts::default();
        [1, 2].into_iter().for_each(|uid| starts.add(Uid(uid), &eu, Mono(1)));
        starts.retain(|uid| *uid == Uid(2));
        assert_eq!([1, 2].map(|uid| starts.times(Uid(uid), &eu)), [0, 1]);
    }

    #[test]
    fn a_backoff_is_longer_after_each_failed_start() {
        let mut starts = ClusterStarts::default();
        let mut spans = (1..=12).map(|uid| {
            starts.failed(Uid(uid), Mono(0));
            starts.backoff_end().map_or(0, |end| end.0)
        });
        assert_eq!(spans.next(), Some(0));
        let spans: Vec<u64> = spans.collect();
        assert!((WAIT.0 / 2..=2 * WAIT.0).contains(&spans[0]), "{spans:?}");
        assert!(spans[3] >= 4 * spans[0] && spans.iter().all(|span| *span <= WAIT_MAX.0), "{spans:?}");
    }
}

//! The objects that must be processed, and when.

use crate::sides::ObjectKey;
use meridian_objects::Kind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Shortest pause after a failure; each further failure doubles it.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// Longest pause for a rule that says where jobs may run. Short, because all new jobs wait for the rule.
const RETRY_RULES: Duration = Duration::from_secs(5);

/// Number of failures of an object after which other objects no longer wait for it.
pub(crate) const STUBBORN: u32 = 3;

/// Kinds that determine where jobs may run: residency policies, and namespaces, whose labels the policies
/// select. New jobs wait for these, however often they fail.
pub(crate) const RULES: [Kind; 2] = [Kind::ResidencyPolicy, Kind::Namespace];

/// Objects that wait for a worker. Two workers never process the same object at once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<ObjectKey>,
    queued: BTreeSet<ObjectKey>,
    /// A worker has the object. The flag says whether the object changed meanwhile.
    taken: BTreeMap<ObjectKey, bool>,
    later: BTreeSet<(Instant, ObjectKey)>,
    failures: BTreeMap<ObjectKey, u32>,
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues objects that changed.
    pub(crate) fn push(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        let mut inner = self.inner();
        for key in keys {
            inner.push(key);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Waits for an object. Call [`Self::done`] with it.
    pub(crate) async fn take(&self) -> ObjectKey {
        loop {
            let next = {
                let mut inner = self.inner();
                inner.wake(Instant::now());
                if let Some(key) = inner.ready.pop_front() {
                    inner.queued.remove(&key);
                    inner.taken.insert(key.clone(), false);
                    if !inner.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                inner.later.first().map(|(at, _)| *at)
            };
            match next {
                Some(at) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Whether an object of these kinds is queued, with a worker, or to be repeated after fewer than
    /// [`STUBBORN`] failures. The cost doesn't depend on objects of other kinds.
    pub(crate) fn has_fresh(&self, kinds: &[Kind]) -> bool {
        let inner = self.inner();
        let is_fresh = |key: &ObjectKey| inner.failures.get(key).is_none_or(|failures| *failures < STUBBORN);
        kinds.iter().any(|kind| {
            let first = first_of(*kind);
            let is_of_kind = |key: &&ObjectKey| key.kind == *kind;
            let queued = inner.queued.range(&first..).take_while(is_of_kind);
            let taken = inner.taken.range(&first..).map(|(key, _)| key).take_while(is_of_kind);
            let failed = inner.failures.range(&first..).map(|(key, _)| key).take_while(is_of_kind);
            queued.chain(taken).chain(failed).any(is_fresh)
        })
    }

    /// Returns an object that needs nothing now, or nothing before `again` has passed.
    pub(crate) fn done(&self, key: ObjectKey, again: Option<Duration>) {
        let mut inner = self.inner();
        inner.failures.remove(&key);
        inner.give_back(key, again);
        drop(inner);
        self.changed.notify_one();
    }

    /// The objects of these kinds that failed at least `times` times in a row.
    pub(crate) fn failing(&self, kinds: &[Kind], times: u32) -> Vec<ObjectKey> {
        let inner = self.inner();
        let of_kind = |kind: &Kind| {
            let failed = inner.failures.range(first_of(*kind)..).take_while(|(key, _)| key.kind == *kind);
            failed.filter(|(_, failures)| **failures >= times).map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        kinds.iter().flat_map(of_kind).collect()
    }

    /// Returns an object to the queue after a failure. The result is the number of failures in a row.
    pub(crate) fn failed(&self, key: ObjectKey) -> u32 {
        let mut inner = self.inner();
        let failures = inner.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        let most = if RULES.contains(&key.kind) { RETRY_RULES } else { RETRY_MOST };
        let pause = RETRY_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(most);
        inner.give_back(key, Some(pause));
        drop(inner);
        self.changed.notify_one();
        failures
    }
}

/// The smallest key of the kind.
const fn first_of(kind: Kind) -> ObjectKey {
    ObjectKey { kind, namespace: String::new(), name: String::new() }
}

impl Inner {
    fn push(&mut self, key: ObjectKey) {
        if let Some(changed) = self.taken.get_mut(&key) {
            *changed = true;
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn give_back(&mut self, key: ObjectKey, again: Option<Duration>) {
        let changed = self.taken.remove(&key).unwrap_or(false);
        if changed && again.is_none_or(|pause| pause > RETRY_FIRST) && !self.failures.contains_key(&key) {
            self.push(key);
        } else if let Some(pause) = again {
            self.later.insert((Instant::now() + pause, key));
        } else if changed {
            self.push(key);
        }
    }

    fn wake(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { kind: Kind::LocalQueue, namespace: "team".to_owned(), name: name.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_with_one_worker_and_comes_again_when_it_changed() {
        let queue = Queue::default();
        queue.push([key("a"), key("a"), key("b")]);
        assert_eq!(queue.take().await, key("a"));
        queue.push([key("a")]);
        assert_eq!(queue.take().await, key("b"), "`a` is with a worker");
        queue.done(key("b"), None);
        queue.done(key("a"), None);
        assert_eq!(queue.take().await, key("a"), "it changed meanwhile");
        queue.done(key("a"), None);
        assert!(tokio::time::timeout(Duration::from_secs(600), queue.take()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_pause_longer_and_longer() {
        let queue = Queue::default();
        queue.push([key("a")]);
        let began = Instant::now();
        for failures in 1..=4 {
            let taken = queue.take().await;
            assert_eq!(queue.failed(taken), failures);
        }
        assert!(began.elapsed() >= Duration::from_millis(500 + 1_000 + 2_000), "{:?}", began.elapsed());
        let taken = queue.take().await;
        assert!(
            queue.failing(&[Kind::LocalQueue], 1).len() == 1 && queue.failing(&[Kind::Job], 1).is_empty()
        );
        queue.done(taken.clone(), Some(Duration::from_secs(5)));
        assert!(queue.failing(&[Kind::LocalQueue], 1).is_empty());
        let waited = Instant::now();
        queue.take().await;
        assert!(waited.elapsed() >= Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_fresh_until_they_failed_again_and_again() {
        let queue = Queue::default();
        let job = ObjectKey { kind: Kind::Job, ..key("job") };
        queue.push([job.clone()]);
        let fresh = || queue.has_fresh(&[Kind::ClusterQueue, Kind::LocalQueue]);
        assert!(!fresh() && queue.has_fresh(&[Kind::Job]));
        assert_eq!(queue.take().await, job);
        queue.push([key("a")]);
        assert!(fresh(), "it is queued");
        for failures in 1..STUBBORN {
            let taken = queue.take().await;
            assert!(fresh(), "it is with a worker");
            queue.failed(taken);
            assert!(fresh(), "it failed {failures} times, and is to be repeated");
        }
        let taken = queue.take().await;
        queue.failed(taken);
        assert!(!fresh(), "jobs don't wait for it any more");
        assert_eq!(queue.failing(&[Kind::LocalQueue, Kind::Job], STUBBORN), [key("a")]);
        let taken = queue.take().await;
        queue.done(taken, Some(Duration::from_secs(5)));
        assert!(!fresh(), "it needs nothing now");
    }
}

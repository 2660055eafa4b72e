//! Which objects are to be looked at, and when.

use crate::sides::ObjectKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Shortest and longest pause after a failure; each failure doubles it.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Failures after which nothing waits for an object any more.
const STUBBORN: u32 = 3;

/// Objects that wait for a worker. No object is with two workers at once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<ObjectKey>,
    queued: BTreeSet<ObjectKey>,
    /// With a worker, and whether the object changed meanwhile.
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

    /// Whether such an object is queued or with a worker, and didn't fail again and again.
    pub(crate) fn has_fresh(&self, is_such: impl Fn(&ObjectKey) -> bool) -> bool {
        let inner = self.inner();
        let later = inner.later.iter().map(|(_, key)| key).filter(|key| inner.failures.contains_key(*key));
        let mut waiting = inner.queued.iter().chain(inner.taken.keys()).chain(later);
        waiting.any(|key| is_such(key) && inner.failures.get(key).is_none_or(|failures| *failures < STUBBORN))
    }

    /// Whether such an object failed when it was last with a worker.
    pub(crate) fn has_failed(&self, is_such: impl Fn(&ObjectKey) -> bool) -> bool {
        self.inner().failures.keys().any(is_such)
    }

    /// Gives an object back that needs nothing now, or not before `again` has passed.
    pub(crate) fn done(&self, key: ObjectKey, again: Option<Duration>) {
        let mut inner = self.inner();
        inner.failures.remove(&key);
        inner.give_back(key, again);
        drop(inner);
        self.changed.notify_one();
    }

    /// Gives an object back after a failure. Returns the number of failures in a row.
    pub(crate) fn failed(&self, key: ObjectKey) -> u32 {
        let mut inner = self.inner();
        let failures = inner.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        let pause = RETRY_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_MOST);
        inner.give_back(key, Some(pause));
        drop(inner);
        self.changed.notify_one();
        failures
    }
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
    use meridian_objects::Kind;

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
        assert!(queue.has_failed(|failed| *failed == taken));
        queue.done(taken.clone(), Some(Duration::from_secs(5)));
        assert!(!queue.has_failed(|failed| *failed == taken));
        let waited = Instant::now();
        queue.take().await;
        assert!(waited.elapsed() >= Duration::from_secs(5));
    }
}

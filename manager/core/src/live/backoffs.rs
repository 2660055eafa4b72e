//! Backoffs of workloads: after a lost node, a refused grant, a preemption, or an unproven report.

use crate::fingerprint::hash_deadline;
use meridian_shared::ids::Uid;
use meridian_shared::time::Mono;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Workloads that aren't considered for dispatch before a time.
///
/// A workload has at most one backoff: a new one replaces it. A backoff that is over stays until a timer
/// removes it with [`Self::remove_over`], so that the workload is requeued exactly once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backoffs(BTreeMap<Uid, Mono>);

impl Backoffs {
    /// The end of a workload's backoff. It may have passed.
    pub fn until(&self, uid: Uid) -> Option<Mono> {
        self.0.get(&uid).copied()
    }

    /// The end of a workload's backoff, unless it is over.
    pub fn remaining_until(&self, uid: Uid, now: Mono) -> Option<Mono> {
        self.until(uid).filter(|until| *until > now)
    }

    /// Whether the workload backs off now.
    pub fn is_backing_off(&self, uid: Uid, now: Mono) -> bool {
        self.remaining_until(uid, now).is_some()
    }

    pub(crate) fn next_end(&self) -> Option<Mono> {
        self.0.values().min().copied()
    }

    pub(crate) fn start(&mut self, uid: Uid, until: Mono) {
        self.0.insert(uid, until);
    }

    /// Ends a workload's backoff early, and returns when it would have ended.
    pub(crate) fn end(&mut self, uid: Uid) -> Option<Mono> {
        self.0.remove(&uid)
    }

    /// Removes the backoffs that are over, and returns their workloads in order.
    pub(crate) fn remove_over(&mut self, now: Mono) -> Vec<Uid> {
        self.0.extract_if(.., |_, until| *until <= now).map(|(uid, _)| uid).collect()
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        for (uid, until) in &self.0 {
            uid.hash(into);
            hash_deadline(now, *until, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_that_is_over_stays_until_it_is_removed() {
        let (uid, other) = (Uid(1), Uid(2));
        let mut backoffs = Backoffs::default();
        backoffs.start(uid, Mono(10));
        backoffs.start(uid, Mono(20));
        backoffs.start(other, Mono(30));
        assert!(backoffs.is_backing_off(uid, Mono(19)) && !backoffs.is_backing_off(uid, Mono(20)));
        assert_eq!((backoffs.until(uid), backoffs.next_end()), (Some(Mono(20)), Some(Mono(20))));
        assert_eq!(backoffs.remove_over(Mono(20)), [uid]);
        assert_eq!((backoffs.until(uid), backoffs.next_end()), (None, Some(Mono(30))));
        assert_eq!((backoffs.end(other), backoffs.end(other)), (Some(Mono(30)), None));
    }
}

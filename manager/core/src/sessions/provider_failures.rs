//! Failures of node providers, by gang and flavors.
//!
//! A provider that has no nodes of one flavor may have those of another. So after a failure, the cluster is
//! skipped for the workload on these flavors only, and the next flavor of its queue is tried at once.

use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most failures that are kept for one workload in one cluster.
const FAILURES_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProviderFailure {
    /// The gang isn't offered to the cluster before this time.
    pub(crate) until: Mono,
    /// The provider's words.
    pub(crate) text: String,
}

/// Gangs for which providers failed to create nodes. Gangs that differ only in their number of pods count as
/// one, so that partial admission doesn't ask the provider again for each smaller number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ProviderFailures(BTreeMap<(Uid, ClusterName), BTreeMap<Arc<Gang>, ProviderFailure>>);

impl ProviderFailures {
    /// `gang` has the constraints of the flavors that it was offered with.
    pub(crate) fn add(&mut self, uid: Uid, cluster: ClusterName, gang: &Gang, failure: ProviderFailure) {
        let of_cluster = self.0.entry((uid, cluster)).or_default();
        of_cluster.insert(without_counts(gang), failure);
        if of_cluster.len() > FAILURES_MAX {
            let soonest = of_cluster.iter().min_by_key(|(_, failure)| failure.until);
            if let Some(gang) = soonest.map(|(gang, _)| gang.clone()) {
                of_cluster.remove(&gang);
            }
        }
    }

    /// The failure that keeps a gang with the constraints of its flavors away from a cluster.
    pub(crate) fn find(
        &self,
        uid: Uid,
        cluster: &ClusterName,
        gang: &Gang,
        now: Mono,
    ) -> Option<&ProviderFailure> {
        let failures = self.0.get(&(uid, cluster.clone()))?;
        failures.get(&without_counts(gang)).filter(|failure| failure.until > now)
    }

    /// Whether a provider failed for this workload a short time ago.
    pub(crate) fn has_any(&self, uid: Uid, now: Mono) -> bool {
        let first = (uid, ClusterName::from(""));
        let mut own = self.0.range(&first..).take_while(|((of, _), _)| *of == uid);
        own.any(|(_, failures)| failures.values().any(|failure| failure.until > now))
    }

    pub(crate) fn next_deadline(&self) -> Option<Mono> {
        self.0.values().flat_map(BTreeMap::values).map(|failure| failure.until).min()
    }

    /// Forgets failures that are over. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Mono) -> bool {
        let mut expired = false;
        self.0.retain(|_, failures| {
            let before = failures.len();
            failures.retain(|_, failure| failure.until > now);
            expired |= failures.len() < before;
            !failures.is_empty()
        });
        expired
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&(Uid, ClusterName), &Arc<Gang>, Mono)> {
        self.0.iter().flat_map(|(key, failures)| {
            failures.iter().map(move |(gang, failure)| (key, gang, failure.until))
        })
    }
}

fn without_counts(gang: &Gang) -> Arc<Gang> {
    Arc::new(gang.with_counts(&vec![1; gang.pod_sets.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::gang::PodSet;

    const UID: Uid = Uid(2);

    fn gang(count: u32, pool: u64) -> Gang {
        let node_selector = [("pool".to_owned(), format!("p{pool}"))].into();
        Gang { pod_sets: vec![PodSet { count, node_selector, ..PodSet::default() }], ..Gang::default() }
    }

    fn failed(failures: &mut ProviderFailures, uid: Uid, cluster: &str, pool: u64, until: u64) {
        let failure = ProviderFailure { until: Mono(until), text: format!("until {until}") };
        failures.add(uid, cluster.into(), &gang(3, pool), failure);
    }

    #[test]
    fn a_failure_counts_for_the_gang_of_any_size_until_its_time() {
        let mut failures = ProviderFailures::default();
        failed(&mut failures, UID, "eu", 1, 100);
        let found = |uid, cluster: &str, gang: &Gang, now| {
            failures.find(uid, &cluster.into(), gang, Mono(now)).map(|failure| failure.text.clone())
        };
        assert_eq!(found(UID, "eu", &gang(1, 1), 99).as_deref(), Some("until 100"));
        assert_eq!(found(UID, "eu", &gang(1, 1), 100), None);
        assert_eq!(found(UID, "eu", &gang(3, 2), 99), None, "it has the constraints of another flavor");
        assert_eq!(found(UID, "us", &gang(3, 1), 99), None);
        assert_eq!(found(Uid(3), "eu", &gang(3, 1), 99), None);
    }

    #[test]
    fn any_failure_of_the_workload_counts_in_any_cluster() {
        let mut failures = ProviderFailures::default();
        failed(&mut failures, Uid(1), "eu", 1, 900);
        failed(&mut failures, UID, "eu", 1, 100);
        failed(&mut failures, UID, "us", 1, 200);
        failed(&mut failures, Uid(3), "eu", 1, 900);
        assert!(failures.has_any(UID, Mono(199)) && !failures.has_any(UID, Mono(200)));
        assert!(!failures.has_any(Uid(4), Mono(0)));
    }

    #[test]
    fn failures_that_are_over_are_forgotten() {
        let mut failures = ProviderFailures::default();
        assert_eq!(failures.next_deadline(), None);
        failed(&mut failures, UID, "eu", 1, 100);
        failed(&mut failures, UID, "eu", 2, 200);
        assert_eq!(failures.next_deadline(), Some(Mono(100)));
        assert!(!failures.expire(Mono(99)));
        assert!(failures.expire(Mono(100)));
        assert_eq!((failures.next_deadline(), failures.iter().count()), (Some(Mono(200)), 1));
        assert!(failures.expire(Mono(200)));
        assert_eq!(failures, ProviderFailures::default());
    }

    #[test]
    fn of_too_many_failures_the_one_that_ends_first_is_dropped() {
        let mut failures = ProviderFailures::default();
        let most = FAILURES_MAX as u64;
        (0..most).for_each(|pool| failed(&mut failures, UID, "eu", pool, 1_000 - pool));
        assert_eq!(failures.iter().count(), FAILURES_MAX);
        failed(&mut failures, UID, "eu", most, 5_000);
        assert_eq!(failures.iter().count(), FAILURES_MAX);
        assert_eq!(failures.next_deadline(), Some(Mono(1_000 - (most - 2))));
    }
}

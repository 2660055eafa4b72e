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

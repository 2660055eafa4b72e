//! Refusals: clusters that refused a workload, with the time until which it isn't offered to them again.

use crate::fingerprint::hash_deadline;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::Mono;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refusal {
    /// The workload isn't offered to the cluster before this time.
    until: Mono,
    reason: RefuseReason,
    /// The agent's words.
    text: String,
}

impl Refusal {
    pub(crate) fn new(until: Mono, reason: RefuseReason, text: String) -> Self {
        Self { until, reason, text }
    }

    pub(crate) fn reason(&self) -> RefuseReason {
        self.reason
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// The last refusal of each workload by each cluster. Provider failures concern only some flavors and are in
/// [`ProviderFailures`](super::provider_failures::ProviderFailures).
///
/// A refusal that is over stays until a timer removes it, so that the workload is evaluated again once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Refusals(BTreeMap<(Uid, ClusterName), Refusal>);

impl Refusals {
    pub(crate) fn add(&mut self, uid: Uid, cluster: &ClusterName, refusal: Refusal) {
        self.0.insert((uid, cluster.clone()), refusal);
    }

    /// The refusal that keeps a workload away from a cluster now.
    pub(crate) fn find(&self, uid: Uid, cluster: &ClusterName, now: Mono) -> Option<&Refusal> {
        self.0.get(&(uid, cluster.clone())).filter(|refusal| refusal.until > now)
    }

    /// Whether some cluster's refusal keeps the workload away now.
    pub(crate) fn has_any(&self, uid: Uid, now: Mono) -> bool {
        let first = (uid, ClusterName::from(""));
        let mut own = self.0.range(&first..).take_while(|((of, _), _)| *of == uid);
        own.any(|(_, refusal)| refusal.until > now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Mono> {
        self.0.values().map(|refusal| refusal.until).min()
    }

    /// Removes refusals that keep nothing away any more. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Mono) -> bool {
        self.0.extract_if(.., |_, refusal| refusal.until <= now).count() > 0
    }

    /// Whether a workload never fitted on the cluster's nodes.
    pub(crate) fn has_never_fits(&self, cluster: &ClusterName) -> bool {
        self.0.iter().any(|((_, by), refusal)| by == cluster && refusal.reason == RefuseReason::NeverFits)
    }

    /// Drops the cluster's refusals `NeverFits`, because its nodes have changed.
    pub(crate) fn nodes_changed(&mut self, cluster: &ClusterName) {
        self.0.retain(|(_, by), refusal| by != cluster || refusal.reason != RefuseReason::NeverFits);
    }

    /// Drops the refusals `NeverFits` of all clusters, because flavors describe nodes in another way now.
    pub(crate) fn flavors_changed(&mut self) {
        self.0.retain(|_, refusal| refusal.reason != RefuseReason::NeverFits);
    }

    /// The workload asks for something else: all clusters may be asked again.
    pub(crate) fn requirements_changed(&mut self, uid: Uid) {
        self.0.retain(|(of, _), _| *of != uid);
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        for (key, Refusal { until, reason, text: _ }) in &self.0 {
            (key, reason).hash(into);
            hash_deadline(now, *until, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_by_unfit_nodes_end_with_a_change_of_nodes() {
        let (eu, us) = (ClusterName::new("eu"), ClusterName::new("us"));
        let refusal = |until, reason| Refusal::new(Mono(until), reason, String::new());
        let mut refusals = Refusals::default();
        refusals.add(Uid(1), &eu, refusal(50, RefuseReason::NeverFits));
        refusals.add(Uid(1), &us, refusal(60, RefuseReason::NeverFits));
        refusals.add(Uid(2), &eu, refusal(40, RefuseReason::Precondition));
        refusals.nodes_changed(&eu);
        assert!(refusals.find(Uid(1), &eu, Mono(0)).is_none() && refusals.has_any(Uid(1), Mono(59)));
        assert!(refusals.has_any(Uid(2), Mono(39)) && !refusals.has_any(Uid(2), Mono(40)));
        assert_eq!(refusals.next_deadline(), Some(Mono(40)));
        assert!(refusals.expire(Mono(40)) && !refusals.expire(Mono(40)));
        refusals.flavors_changed();
        assert_eq!(refusals, Refusals::default());
    }

    #[test]
    fn a_refusal_counts_for_one_workload_in_one_cluster_until_its_time() {
        let (eu, us) = (ClusterName::new("eu"), ClusterName::new("us"));
        let mut refusals = Refusals::default();
        assert!(!refusals.has_any(Uid(2), Mono(0)) && !refusals.has_never_fits(&eu));
        for (uid, reason) in [(1, RefuseReason::NoCapacity), (2, RefuseReason::NeverFits)] {
            refusals.add(Uid(uid), &eu, Refusal::new(Mono(50 * uid as u64), reason, format!("by {uid}")));
        }
        let text = |uid, cluster, now| {
            refusals.find(uid, cluster, Mono(now)).map(|refusal| refusal.text().to_owned())
        };
        assert_eq!(text(Uid(2), &eu, 99).as_deref(), Some("by 2"));
        assert_eq!((text(Uid(2), &eu, 100), text(Uid(2), &us, 0), text(Uid(3), &eu, 0)), (None, None, None));
        assert!(!refusals.has_any(Uid(1), Mono(50)), "another workload's refusal lasts longer");
        assert!(refusals.has_never_fits(&eu) && !refusals.has_never_fits(&us));
        refusals.requirements_changed(Uid(2));
        assert_eq!((refusals.has_any(Uid(2), Mono(0)), refusals.has_any(Uid(1), Mono(0))), (false, true));
    }
}

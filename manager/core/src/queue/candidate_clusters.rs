//! Candidate clusters of a class, by stored objects alone. Cached until an object changes.
//!
//! The residency verdicts here only save useless offers. Before every grant the residency rules are evaluated
//! again.

use crate::facts::reason::{Denied, Why};
use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use crate::state::residency;
use meridian_objects::spec::{DispatchPolicySpec, Preference};
use meridian_shared::ids::ClusterName;
use std::sync::Arc;

/// The clusters that a class may be offered to from one cluster queue.
#[derive(Clone, Debug)]
pub struct CandidateClusters {
    /// Name of the cluster queue.
    pub(crate) queue: Arc<str>,
    pub(crate) policy: DispatchPolicySpec,
    /// An admission check of the queue and the MultiKueueConfig that it names, if that config doesn't exist.
    missing_config: Option<(String, String)>,
    /// Every cluster that any object mentions, ordered by name.
    pub candidates: Vec<Candidate>,
}

/// One cluster and this class, according to stored objects.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub cluster: ClusterName,
    /// Index in the queue's MultiKueueConfig; `None` if the config doesn't list the cluster.
    pub listed: Option<usize>,
    pub verdict: Result<(), Denied>,
    /// Whether the cluster is cordoned; `None` if it isn't declared.
    pub cordoned: Option<bool>,
    /// Whether an object limits the cluster's capacity or the queue's usage there, whatever the agent
    /// reports.
    pub capped: bool,
}

impl CandidateClusters {
    pub fn new(catalog: &Catalog, class: &Class, queue: &Arc<str>, policy_required: bool) -> Self {
        let listed = catalog.clusters_of(queue);
        let candidate = |cluster: ClusterName| {
            let spec = catalog.cluster(&cluster);
            Candidate {
                listed: listed
                    .as_ref()
                    .map_or(Some(0), |names| names.iter().position(|name| *name == cluster)),
                verdict: residency::check(catalog, class, &cluster, policy_required),
                cordoned: spec.map(|spec| spec.cordoned),
                capped: spec.is_some_and(|spec| !spec.limits.is_empty())
                    || catalog.cap(&cluster, queue).is_some(),
                cluster,
            }
        };
        let policy = catalog.dispatch_policy(queue).cloned().unwrap_or_default();
        let missing_config =
            catalog.missing_config(queue).map(|(check, config)| (check.to_owned(), config.to_owned()));
        Self {
            queue: queue.clone(),
            policy,
            missing_config,
            candidates: catalog.promised_clusters().into_iter().map(candidate).collect(),
        }
    }

    /// The pending reason at clusters where `listed` is `None`.
    pub fn not_listed(&self) -> Why {
        let missing = self.missing_config.clone();
        missing.map_or(Why::NotInQueue, |(check, config)| Why::NoWorkersConfig { check, config })
    }

    /// Whether the emptiest of otherwise equal clusters is preferred.
    pub(crate) fn prefers_emptiest(&self) -> bool {
        self.policy.prefer.is_empty() || self.policy.prefer.contains(&Preference::Emptiest)
    }
}

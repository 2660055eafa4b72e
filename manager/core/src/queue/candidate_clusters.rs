//! Which clusters the catalog leaves open to a class: what follows from objects alone, worked out once until one of them changes.
//!
//! The residency verdicts here say where asking makes sense. Before a grant the rules themselves are asked again.

use crate::facts::reason::{Denied, Why};
use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use crate::state::residency;
use meridian_objects::spec::{DispatchPolicySpec, Preference};
use meridian_shared::ids::ClusterName;
use std::sync::Arc;

/// How a class gets from a cluster queue to clusters.
#[derive(Clone, Debug)]
pub(crate) struct CandidateClusters {
    /// The cluster queue.
    pub(crate) queue: Arc<str>,
    pub(crate) policy: DispatchPolicySpec,
    /// The check of worker clusters whose list isn't there, and that list.
    missing: Option<(String, String)>,
    /// Every cluster that any object speaks of, by name.
    pub(crate) candidates: Vec<Candidate>,
}

/// One cluster, as objects speak of it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) cluster: ClusterName,
    /// Place in the queue's MultiKueueConfig; none where that leaves it out.
    pub(crate) listed: Option<usize>,
    pub(crate) verdict: Result<(), Denied>,
    /// Whether it is declared, and if so, whether it is cordoned.
    pub(crate) cordoned: Option<bool>,
    /// Something limits what it may be believed to have, or what the queue may use there.
    pub(crate) capped: bool,
}

impl CandidateClusters {
    pub(crate) fn new(catalog: &Catalog, class: &Class, queue: &Arc<str>, policy_required: bool) -> Self {
        let listed = catalog.clusters_of(queue);
        let site = |cluster: ClusterName| {
            let spec = catalog.cluster(&cluster);
            Candidate {
                listed: listed
                    .as_ref()
                    .map_or(Some(0), |names| names.iter().position(|name| *name == cluster)),
                verdict: residency::judge(catalog, class, &cluster, policy_required),
                cordoned: spec.map(|spec| spec.cordoned),
                capped: spec.is_some_and(|spec| !spec.limits.is_empty())
                    || catalog.cap(&cluster, queue).is_some(),
                cluster,
            }
        };
        let policy = catalog.dispatch_policy(queue).cloned().unwrap_or_default();
        let missing =
            catalog.missing_config(queue).map(|(check, config)| (check.to_owned(), config.to_owned()));
        Self {
            queue: queue.clone(),
            policy,
            missing,
            candidates: catalog.promised_clusters().into_iter().map(site).collect(),
        }
    }

    /// Why a cluster isn't one of the queue's.
    pub(crate) fn not_listed(&self) -> Why {
        let missing = self.missing.clone();
        missing.map_or(Why::NotInQueue, |(check, config)| Why::NoWorkersConfig { check, config })
    }

    /// Whether of clusters that are as good otherwise the emptiest is taken.
    pub(crate) fn prefers_emptiest(&self) -> bool {
        self.policy.prefer.is_empty() || self.policy.prefer.contains(&Preference::Emptiest)
    }
}

//! Where a workload may be known at all.
//!
//! A cluster is allowed when no matching policy denies it and every matching policy that allows anything allows it. Deny
//! beats allow. Policies match by namespace, by the namespace's labels, by queue, and by the workload's own labels; because
//! the first two *bind* whatever the workload says, its own labels and queue can only bring further policies in, never
//! take one out. The submitter's wish narrows. An unknown region or jurisdiction matches no allow list: fail closed.

use crate::catalog::Catalog;
use crate::record::Class;
use meridian_objects::spec::{OnChange, Refusal, ResidencyPolicySpec};
use meridian_shared::ids::{ClusterName, RecordNumber};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a cluster is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Denied {
    /// A policy's deny list names it.
    Listed {
        /// Policy.
        policy: String,
        /// Its version.
        version: RecordNumber,
    },
    /// A policy allows other places only.
    NotAllowed {
        /// Policy.
        policy: String,
        /// Its version.
        version: RecordNumber,
    },
    /// The submitter asked for other regions.
    NotWished,
    /// Nobody declared the cluster: its place is unknown.
    UnknownPlace,
    /// No policy matches, and the manager requires one.
    NoPolicy,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed { policy, version } => write!(f, "residency policy `{policy}` (version {version}) denies this cluster"),
            Self::NotAllowed { policy, version } => write!(f, "residency policy `{policy}` (version {version}) allows other places only"),
            Self::NotWished => f.write_str("the job asks for other regions"),
            Self::UnknownPlace => f.write_str("the cluster's region and jurisdiction are unknown"),
            Self::NoPolicy => f.write_str("no residency policy matches, and the manager requires one"),
        }
    }
}

impl Denied {
    /// The rule and its version, for the audit log.
    pub fn rule(&self) -> String {
        match self {
            Self::Listed { policy, version } | Self::NotAllowed { policy, version } => format!("{policy}@{version}"),
            Self::NotWished => "wish".into(),
            Self::UnknownPlace => "unknown-place".into(),
            Self::NoPolicy => "required".into(),
        }
    }
}

/// Whether a policy binds this class.
pub fn matches(catalog: &Catalog, policy: &ResidencyPolicySpec, class: &Class) -> bool {
    let cluster_queue = catalog.local_queue(&class.namespace, &class.queue).map(|q| q.cluster_queue.as_str());
    let queues: Vec<&str> = std::iter::once(&*class.queue).chain(cluster_queue).collect();
    policy.applies.matches(&class.namespace, &catalog.namespace_labels(&class.namespace), &queues, &class.labels)
}

/// Whether what already runs there must go: some policy that doesn't permit it says `Evict`, or its place is no longer known.
pub fn evicts(catalog: &Catalog, class: &Class, cluster: &ClusterName) -> bool {
    let Some(spec) = catalog.cluster(cluster) else { return true };
    let against = |p: &ResidencyPolicySpec| matches(catalog, p, class) && p.permits(cluster, &spec.region, &spec.jurisdiction).is_err();
    catalog.residency_policies().any(|(_, _, p)| against(p) && p.on_change == OnChange::Evict)
}

/// Judges one cluster for one class.
pub fn judge(catalog: &Catalog, class: &Class, cluster: &ClusterName, required: bool) -> Result<(), Denied> {
    let Some(spec) = catalog.cluster(cluster) else { return Err(Denied::UnknownPlace) };
    if spec.region.as_str().is_empty() || spec.jurisdiction.as_str().is_empty() {
        return Err(Denied::UnknownPlace);
    }
    let mut any = false;
    let mut outside = None;
    for (name, version, policy) in catalog.residency_policies().filter(|(_, _, p)| matches(catalog, p, class)) {
        any = true;
        match policy.permits(cluster, &spec.region, &spec.jurisdiction) {
            Ok(()) => {}
            Err(Refusal::Denied) => return Err(Denied::Listed { policy: name.into(), version }),
            Err(Refusal::NotAllowed) => {
                outside.get_or_insert(Denied::NotAllowed { policy: name.into(), version });
            }
        }
    }
    match outside {
        Some(denied) => Err(denied),
        None if !any && required => Err(Denied::NoPolicy),
        // What a policy forbids no other wish would help.
        None if !class.regions.is_empty() && !class.regions.contains(&spec.region) => Err(Denied::NotWished),
        None => Ok(()),
    }
}

//! Residency: which clusters a workload, or even its name, may be sent to.
//!
//! A cluster is allowed if no matching policy denies it, and if every matching policy with an allow list
//! lists it. Deny takes precedence over allow. Policies match by namespace, by the namespace's labels, by
//! queue, and by the workload's own labels. Submitters can't choose the namespace's name and labels. A policy
//! that matches by queue or own labels applies only in addition, so a submitter gains nothing by omitting
//! them. Regions that the submitter names narrow the choice further. A cluster with an unknown region or
//! jurisdiction is never allowed.

use crate::facts::reason::Denied;
use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use meridian_objects::spec::{OnChange, Refusal, ResidencyPolicySpec};
use meridian_shared::ids::ClusterName;

/// Whether a policy applies to this class.
pub fn matches(catalog: &Catalog, policy: &ResidencyPolicySpec, class: &Class) -> bool {
    let cluster_queue = catalog.local_queue(&class.namespace, &class.queue).map(|q| q.cluster_queue.as_str());
    let queues: Vec<&str> = std::iter::once(&*class.queue).chain(cluster_queue).collect();
    policy.applies.matches(
        &class.namespace,
        &catalog.namespace_labels(&class.namespace),
        &queues,
        &class.labels,
    )
}

/// Whether workloads of the class that already run on the cluster must stop: a policy with `onChange: Evict`
/// doesn't permit the cluster, or the cluster has no object any more.
pub fn evicts(catalog: &Catalog, class: &Class, cluster: &ClusterName) -> bool {
    let Some(spec) = catalog.cluster(cluster) else { return true };
    let forbids = |p: &ResidencyPolicySpec| {
        matches(catalog, p, class) && p.permits(cluster, &spec.region, &spec.jurisdiction).is_err()
    };
    catalog.residency_policies().any(|(_, _, p)| forbids(p) && p.on_change == OnChange::Evict)
}

/// Fails with the reason if residency forbids the cluster to this class. With `required`, at least one policy
/// must match.
pub fn check(catalog: &Catalog, class: &Class, cluster: &ClusterName, required: bool) -> Result<(), Denied> {
    let Some(spec) = catalog.cluster(cluster) else { return Err(Denied::UnknownPlace) };
    if spec.region.as_str().is_empty() || spec.jurisdiction.as_str().is_empty() {
        return Err(Denied::UnknownPlace);
    }
    let mut any_matches = false;
    let mut not_allowed = None;
    for (name, version, policy) in catalog.residency_policies().filter(|(_, _, p)| matches(catalog, p, class))
    {
        any_matches = true;
        match policy.permits(cluster, &spec.region, &spec.jurisdiction) {
            Ok(()) => {}
            Err(Refusal::Denied) => return Err(Denied::Listed { policy: name.into(), version }),
            Err(Refusal::NotAllowed) => {
                not_allowed.get_or_insert(Denied::NotAllowed { policy: name.into(), version });
            }
        }
    }
    match not_allowed {
        Some(denied) => Err(denied),
        None if !any_matches && required => Err(Denied::NoPolicy),
        // Checked last: if a policy forbids the cluster, other regions in the job wouldn't help.
        None if !class.regions.is_empty() && !class.regions.contains(&spec.region) => {
            Err(Denied::NotRequested)
        }
        None => Ok(()),
    }
}

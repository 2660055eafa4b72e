use crate::facts::reason::Denied;
use crate::facts::submission::Class;
use crate::state::catalog::Catalog;
use meridian_objects::spec::{OnChange, Refusal, ResidencyPolicySpec};
use meridian_shared::ids::ClusterName;

/// Whether a policy binds this class.
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

/// Whether what already runs there must go: some policy that doesn't permit it says `Evict`, or its place is no longer known.
pub fn evicts(catalog: &Catalog, class: &Class, cluster: &ClusterName) -> bool {
    let Some(spec) = catalog.cluster(cluster) else { return true };
    let against = |p: &ResidencyPolicySpec| {
        matches(catalog, p, class) && p.permits(cluster, &spec.region, &spec.jurisdiction).is_err()
    };
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
    for (name, version, policy) in catalog.residency_policies().filter(|(_, _, p)| matches(catalog, p, class))
    {
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

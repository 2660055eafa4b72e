//! Which stored objects refer to another one by name.

use crate::facts::key::Key;
use crate::state::catalog::Catalog;
use meridian_objects::spec::ResourceGroup;
use meridian_objects::{Kind, Spec};

/// The objects that name the object at `key`, in the order of keys.
pub(crate) fn referents<'c>(catalog: &'c Catalog, key: &Key) -> Vec<&'c Key> {
    let refers = |spec: &Spec| refers(spec, key.kind, &key.name);
    // a role is bound in its namespace
    let is_near = |of: &Key| key.namespace.is_none() || of.namespace == key.namespace;
    let all = catalog.iter().filter(|(of, _)| of.scope == key.scope && *of != key && is_near(of));
    all.filter(|(_, stored)| refers(&stored.object.spec)).map(|(of, _)| of).collect()
}

fn refers(spec: &Spec, kind: Kind, name: &str) -> bool {
    let is = |text: &str| text == name;
    let has_flavor = |groups: &[ResourceGroup]| {
        kind == Kind::ResourceFlavor
            && groups.iter().flat_map(|group| &group.flavors).any(|flavor| is(&flavor.name))
    };
    match spec {
        Spec::ClusterQueue(queue) => match kind {
            Kind::AdmissionCheck => queue.admission_checks.iter().any(|check| is(&check.name)),
            Kind::Cohort => queue.cohort.as_deref().is_some_and(is),
            _ => has_flavor(&queue.resource_groups),
        },
        Spec::Cohort(cohort) => match kind {
            Kind::Cohort => cohort.parent.as_deref().is_some_and(is),
            _ => has_flavor(&cohort.resource_groups),
        },
        Spec::ResourceFlavor(flavor) => {
            kind == Kind::Topology && flavor.topology_name.as_deref().is_some_and(is)
        }
        Spec::AdmissionCheck(check) => {
            let parameters = check.parameters.as_ref();
            matches!(kind, Kind::MultiKueueConfig | Kind::ProvisioningRequestConfig)
                && parameters.is_some_and(|of| of.kind == kind.name() && is(&of.name))
        }
        Spec::MultiKueueConfig(config) => {
            matches!(kind, Kind::MultiKueueCluster | Kind::Cluster)
                && config.clusters.iter().any(|cluster| is(cluster.as_str()))
        }
        Spec::RoleBinding(binding) | Spec::ClusterRoleBinding(binding) => {
            let bound = if binding.role.is_cluster_role { Kind::ClusterRole } else { Kind::Role };
            kind == bound && is(&binding.role.name)
        }
        _ => false,
    }
}

//! The settings of the provider from the objects that were applied for the cluster.

use super::ProvisioningSettings;
use meridian_agent_core::runtime::{NodePool, SimulatedPool};
use meridian_objects::spec::{ClusterSpec, ProviderKind, Provisionable, ProvisioningRequestConfigSpec, Spec};
use meridian_shared::cluster_objects::ClusterObjects;

impl ProvisioningSettings {
    /// Reads the `Cluster` object and the ProvisioningRequestConfigs of a cluster, with at most
    /// `requests_max` open requests. `None` if the cluster requests no nodes. Fails with the object and the
    /// remedy.
    pub fn of_objects(applied: &ClusterObjects, requests_max: usize) -> Result<Option<Self>, String> {
        let read = meridian_objects::parse("the cluster's objects", &applied.objects.join("\n---\n"));
        if let Some(slip) = read.errors.first() {
            return Err(format!("{slip} (is the manager newer than this agent?)"));
        }
        let (mut cluster, mut configs) = (None, Vec::new());
        for located in read.objects {
            match located.value.spec {
                Spec::Cluster(spec) => cluster = Some(*spec),
                Spec::ProvisioningRequestConfig(spec) => configs.push((located.value.name, *spec)),
                _ => {}
            }
        }
        let Some(ClusterSpec { provider, provisionable, .. }) = cluster else { return Ok(None) };
        if provider.kind != ProviderKind::ProvisioningRequest {
            return Ok(None);
        }
        // The reader refuses this kind of provider without a class.
        let class_name = provider.class_name.unwrap_or_default();
        let config = config_of(class_name, configs)?;
        let pools = provisionable.into_iter().map(pool).collect();
        let settings = Self { config, pools, requests_max };
        settings.check().map_err(|why| format!("the Cluster object: {why}"))?;
        Ok(Some(settings))
    }
}

/// The only ProvisioningRequestConfig of the class, or the class alone.
fn config_of(
    class_name: String,
    configs: Vec<(String, ProvisioningRequestConfigSpec)>,
) -> Result<ProvisioningRequestConfigSpec, String> {
    let mut of_class = configs.into_iter().filter(|(_, config)| config.class_name == class_name);
    match (of_class.next(), of_class.next()) {
        (None, _) => Ok(ProvisioningRequestConfigSpec { class_name, ..Default::default() }),
        (Some((_, config)), None) => Ok(config),
        (Some((first, _)), Some((second, _))) => Err(format!(
            "the ProvisioningRequestConfigs `{first}` and `{second}` are both of the class `{class_name}`: \
             keep one of them for this cluster"
        )),
    }
}

fn pool(written: Provisionable) -> NodePool {
    let Provisionable { name, capacity_class, labels, taints, per_node, max_nodes } = written;
    let capacity_class = Some(capacity_class.to_string());
    NodePool {
        name,
        capacity_class,
        labels,
        taints,
        per_node,
        max_nodes,
        simulated: SimulatedPool::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(provider: &str, pools: &str) -> String {
        format!(
            r#"{{"apiVersion":"meridian.dev/v1alpha1","kind":"Cluster","metadata":{{"name":"eu"}},"spec":
            {{"region":"europe-west4","jurisdiction":"eu","provider":{provider},"provisionable":{pools}}}}}"#
        )
    }

    fn config(name: &str, class: &str) -> String {
        format!(
            r#"{{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ProvisioningRequestConfig",
            "metadata":{{"name":"{name}"}},"spec":{{"provisioningClassName":"{class}",
            "managedResources":["nvidia.com/gpu"]}}}}"#
        )
    }

    const QUEUED: &str = r#"{"kind":"ProvisioningRequest","className":"queued-provisioning.gke.io"}"#;
    const POOL: &str = r#"[{"name":"h100","capacityClass":"flex-start","maxNodes":4,
        "labels":{"cloud.google.com/gke-nodepool":"h100"},"perNode":{"nvidia.com/gpu":8}}]"#;

    fn settings(objects: &[String]) -> Result<Option<ProvisioningSettings>, String> {
        ProvisioningSettings::of_objects(&ClusterObjects { objects: objects.to_vec() }, 100)
    }

    #[test]
    fn a_cluster_of_existing_machines_asks_for_nothing() {
        assert_eq!(settings(&[]), Ok(None));
        let fixed = cluster(r#"{"kind":"Static"}"#, "[]");
        assert_eq!(settings(&[fixed, config("dws", "queued-provisioning.gke.io")]), Ok(None));
    }

    #[test]
    fn the_cluster_object_alone_is_enough_and_a_config_of_its_class_adds_to_it() {
        let alone = settings(&[cluster(QUEUED, POOL)]).unwrap().unwrap();
        assert_eq!(alone.config.class_name, "queued-provisioning.gke.io");
        let [pool] = alone.pools.as_slice() else { panic!("{:?}", alone.pools) };
        assert_eq!((pool.name.as_str(), pool.max_nodes, pool.per_node["nvidia.com/gpu"]), ("h100", 4, 8));
        assert_eq!(pool.capacity_class.as_deref(), Some("flex-start"));
        assert!(alone.config.managed_resources.is_empty());

        let other = config("other", "best-effort-atomic-scale-up.autoscaling.x-k8s.io");
        let with = settings(&[cluster(QUEUED, POOL), other, config("dws", "queued-provisioning.gke.io")]);
        assert_eq!(with.unwrap().unwrap().config.managed_resources, ["nvidia.com/gpu"]);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_object() {
        let two = [config("a", "queued-provisioning.gke.io"), config("b", "queued-provisioning.gke.io")];
        let [a, b] = two;
        let error = settings(&[cluster(QUEUED, POOL), a, b]).unwrap_err();
        assert!(error.contains("`a` and `b`") && error.contains("keep one"), "{error}");
        let error = settings(&[cluster(QUEUED, "[]")]).unwrap_err();
        assert!(error.starts_with("the Cluster object: no pool is `provisionable`"), "{error}");
        let error = settings(&["{".to_owned()]).unwrap_err();
        assert!(error.contains("the cluster's objects"), "{error}");
    }
}

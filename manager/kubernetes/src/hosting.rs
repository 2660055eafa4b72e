//! Clusters without an agent of their own, which the manager reaches by a kubeconfig. Pure.
//!
//! `MultiKueueCluster` names a Secret, in one namespace for all, or a file. The `Cluster` object of the same
//! name has region and jurisdiction, which a kubeconfig lacks.

use meridian_kubernetes::KubeconfigText;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::watch;

/// Key of the kubeconfig in its Secret, as for Kueue.
pub(crate) const SECRET_KEY: &str = "kubeconfig";

/// A cluster whose agent the manager runs itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedCluster {
    pub region: String,
    pub jurisdiction: String,
    pub kubeconfig: KubeconfigText,
}

/// Hosted clusters by name.
pub type HostedClusters = BTreeMap<String, HostedCluster>;

/// Channels between the controllers and the host of the agents.
#[derive(Clone, Debug)]
pub struct Hosting {
    /// Namespace of the kubeconfigs' Secrets.
    pub namespace: String,
    /// The clusters for which an agent can run.
    pub clusters: watch::Sender<HostedClusters>,
    /// Why an agent can't run, by the name of its cluster.
    pub failures: watch::Receiver<BTreeMap<String, String>>,
}

/// Location of a MultiKueueCluster's kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Name of a Secret.
    Secret(String),
    File(PathBuf),
}

/// The location of the kubeconfig. The error says why there is none.
pub(crate) fn location(object: &Value) -> Result<Location, &'static str> {
    let new = &object["spec"]["clusterSource"]["kubeConfig"];
    let config = if new.is_object() { new } else { &object["spec"]["kubeConfig"] };
    let Some(location) = config["location"].as_str().filter(|location| !location.is_empty()) else {
        return Err("it has no kubeconfig, so an agent in the cluster must join the manager");
    };
    match config["locationType"].as_str() {
        None | Some("Secret") => Ok(Location::Secret(location.to_owned())),
        Some("Path") => Ok(Location::File(PathBuf::from(location))),
        Some(_) => Err("its kubeconfig is neither in a Secret nor in a file"),
    }
}

/// Region and jurisdiction of a `Cluster` object. Fails if there is none.
pub(crate) fn place(name: &str, cluster: Option<&Value>) -> Result<(String, String), String> {
    let field = |field: &str| cluster.and_then(|cluster| cluster["spec"][field].as_str()).map(str::to_owned);
    field("region").zip(field("jurisdiction")).ok_or_else(|| {
        format!(
            "its region and jurisdiction are unknown: create the object Cluster `{name}` with spec.region \
             and spec.jurisdiction"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_versions_of_kueue_name_the_kubeconfig() {
        let old = json!({"spec": {"kubeConfig": {"location": "eu", "locationType": "Secret"}}});
        let new = json!({"spec": {"clusterSource": {"kubeConfig": {"location": "eu"}}}});
        for object in [old, new] {
            assert_eq!(location(&object), Ok(Location::Secret("eu".into())), "{object}");
        }
        let file = json!({"spec": {"kubeConfig": {"location": "/etc/eu", "locationType": "Path"}}});
        assert_eq!(location(&file), Ok(Location::File("/etc/eu".into())));
        let profile = json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "eu"}}}});
        assert!(location(&profile).is_err());
    }

    #[test]
    fn a_cluster_without_a_place_is_not_hosted() {
        let cluster = json!({"spec": {"region": "europe-west4", "jurisdiction": "EU"}});
        assert_eq!(place("eu", Some(&cluster)), Ok(("europe-west4".into(), "EU".into())));
        for absent in [None, Some(&json!({"spec": {"region": "europe-west4"}}))] {
            assert!(place("eu", absent).unwrap_err().contains("create the object Cluster `eu`"));
        }
    }
}

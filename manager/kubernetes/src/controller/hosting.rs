//! Follows the kubeconfigs of MultiKueueClusters, and reports in events why an agent can't run.

use super::{Shared, lock};
use crate::events;
use crate::hosting::{self, HostedCluster, HostedClusters, Hosting, Location, SECRET_KEY};
use crate::perform::Absence;
use crate::sides::{ObjectKey, Side};
use meridian_kubernetes::KubeconfigText;
use meridian_objects::Kind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often kubeconfigs are read, and so how soon a rotated credential is used.
const READ_EVERY: Duration = Duration::from_secs(10);

impl Shared {
    /// Passes the clusters with a usable kubeconfig and a known place to the host. A kubeconfig that can't be
    /// read now counts as unchanged, because stopping its agent would disturb gangs.
    pub(super) async fn follow_kubeconfigs(self: Arc<Self>, hosting: Hosting) {
        let mut said: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let is_known = {
                let sides = lock(&self.sides);
                sides.is_complete(Kind::MultiKueueCluster) && sides.is_complete(Kind::Cluster)
            };
            if is_known && self.leader.is_fresh() {
                let before = hosting.clusters.borrow().clone();
                let (clusters, mut problems) = self.read_kubeconfigs(&hosting.namespace, &before).await;
                for (name, failure) in hosting.failures.borrow().iter() {
                    problems.entry(name.clone()).or_insert_with(|| failure.clone());
                }
                self.say(&problems, &mut said).await;
                hosting.clusters.send_if_modified(|known| {
                    let is_news = *known != clusters;
                    *known = clusters;
                    is_news
                });
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    /// The clusters with a usable kubeconfig and a known place, and the problems of the others.
    async fn read_kubeconfigs(
        &self,
        namespace: &str,
        before: &HostedClusters,
    ) -> (HostedClusters, BTreeMap<String, String>) {
        let (mut clusters, mut problems) = (HostedClusters::new(), BTreeMap::new());
        let names: Vec<String> = {
            let sides = lock(&self.sides);
            sides.keys(Side::Cluster, Kind::MultiKueueCluster).map(|key| key.name.clone()).collect()
        };
        for name in names {
            match self.read_kubeconfig(namespace, &name, before.get(&name)).await {
                Ok(Some(cluster)) => {
                    clusters.insert(name, cluster);
                }
                Ok(None) => {}
                Err(problem) => {
                    problems.insert(name, problem);
                }
            }
        }
        (clusters, problems)
    }

    /// `None` for a cluster whose agent joins by itself.
    async fn read_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        before: Option<&HostedCluster>,
    ) -> Result<Option<HostedCluster>, String> {
        let (object, place) = {
            let sides = lock(&self.sides);
            let key = |kind| ObjectKey { kind, namespace: String::new(), name: name.to_owned() };
            let place = sides.get(Side::Manager, &key(Kind::Cluster));
            (sides.get(Side::Cluster, &key(Kind::MultiKueueCluster)), place)
        };
        let Some(Ok(location)) = object.as_deref().map(hosting::location) else { return Ok(None) };
        let (region, jurisdiction) = hosting::place(name, place.as_deref())?;
        let text = match location {
            Location::Secret(secret) => {
                match self.performer.secret_text(namespace, &secret, SECRET_KEY).await {
                    Ok(text) => text,
                    Err(Absence::Gone(why)) => return Err(why),
                    Err(Absence::Unknown(why)) => return before.cloned().map(Some).ok_or(why),
                }
            }
            Location::File(path) => tokio::fs::read_to_string(&path)
                .await
                .map_err(|error| format!("its kubeconfig `{}` can't be read: {error}", path.display()))?,
        };
        let kubeconfig = KubeconfigText::new(text).map_err(|error| error.to_string())?;
        Ok(Some(HostedCluster { region, jurisdiction, kubeconfig }))
    }

    /// Reports every new problem once, in the log and in an event.
    async fn say(&self, problems: &BTreeMap<String, String>, said: &mut BTreeMap<String, String>) {
        for (name, problem) in problems {
            if said.get(name) == Some(problem) {
                continue;
            }
            tracing::warn!(cluster = name, problem, "the agent of this cluster can't run here");
            let key =
                ObjectKey { kind: Kind::MultiKueueCluster, namespace: String::new(), name: name.clone() };
            let object = lock(&self.sides).get(Side::Cluster, &key);
            if let Some(object) = object {
                self.performer.event(&object, events::of_hosting(problem)).await;
            }
        }
        *said = problems.clone();
    }
}

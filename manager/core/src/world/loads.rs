//! Workloads with open or granted legs, by cluster.

use crate::facts::submission::ClassId;
use meridian_shared::ids::{ClusterName, Uid};
use std::collections::BTreeMap;

/// Workloads with legs in each cluster, with their classes.
///
/// A cache over durable state: `World::check` recounts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loads(BTreeMap<ClusterName, BTreeMap<Uid, ClassId>>);

impl Loads {
    /// The workloads with a leg in the cluster; `None` if it never had any.
    pub fn get(&self, cluster: &ClusterName) -> Option<&BTreeMap<Uid, ClassId>> {
        self.0.get(cluster)
    }

    /// All clusters with their workloads, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&ClusterName, &BTreeMap<Uid, ClassId>)> {
        self.0.iter()
    }

    /// The workload has a leg in the cluster, and is of this class now.
    pub(super) fn add(&mut self, cluster: ClusterName, uid: Uid, class: ClassId) {
        self.0.entry(cluster).or_default().insert(uid, class);
    }

    /// The workload has no leg in the cluster any more.
    pub(super) fn remove(&mut self, cluster: &ClusterName, uid: Uid) {
        if let Some(load) = self.0.get_mut(cluster) {
            load.remove(&uid);
        }
    }
}

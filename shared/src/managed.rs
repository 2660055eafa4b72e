//! Which pod sets of a gang get their nodes from a cluster's provider (Kueue's `managedResources`).
//!
//! A provider may create nodes for some resources only, such as GPUs. Pod sets that request none of these run
//! on existing nodes, and for a gang with only such pod sets no nodes are requested. Manager and agent divide
//! a gang with the same function, so that the manager offers a gang only where the agent could request its
//! nodes.

use crate::gang::{Gang, PodSet};
use crate::packing::{self, Block, Misfit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The resources for which a provider creates nodes. If empty, it creates nodes for every pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ManagedResources(BTreeSet<String>);

/// A gang, divided by the source of its pod sets' nodes. Either part may have no pod sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Pod sets for which a provider creates nodes.
    pub provisioned: Gang,
    /// Pod sets that need existing nodes.
    pub existing: Gang,
}

impl ManagedResources {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Divides a gang. A group of pod sets is placed together, so one managed member makes all of them
    /// managed.
    pub fn divide(&self, gang: &Gang) -> Division {
        let groups: BTreeSet<&str> = gang
            .pod_sets
            .iter()
            .filter(|set| self.covers(set))
            .filter_map(|set| set.group.as_deref())
            .collect();
        let is_managed = |set: &PodSet| {
            self.covers(set) || set.group.as_deref().is_some_and(|group| groups.contains(group))
        };
        let of = |managed: bool| Gang {
            pod_sets: gang.pod_sets.iter().filter(|set| is_managed(set) == managed).cloned().collect(),
            max_run: gang.max_run,
            active_deadline: gang.active_deadline,
            max_exec: gang.max_exec,
        };
        Division { provisioned: of(true), existing: of(false) }
    }

    /// Whether pods of a set request a managed resource.
    fn covers(&self, set: &PodSet) -> bool {
        self.0.is_empty() || self.0.iter().any(|name| set.per_pod.get(name).is_some_and(|amount| *amount > 0))
    }
}

impl FromIterator<String> for ManagedResources {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

impl Division {
    /// Whether any pod needs existing nodes.
    pub fn uses_existing(&self) -> bool {
        has_pods(&self.existing)
    }

    /// Whether the nodes that pools can still create fit the pod sets that need new nodes.
    pub fn can_be_provisioned(&self, pools: &[Block]) -> bool {
        !pools.is_empty() && has_pods(&self.provisioned) && packing::fits(pools, &self.provisioned).is_ok()
    }

    /// Checks whether the pod sets that need no new nodes fit on `nodes`. Fails with the first obstacle.
    pub fn check_existing(&self, nodes: &[Block]) -> Result<(), Misfit> {
        if self.uses_existing() { packing::fits(nodes, &self.existing) } else { Ok(()) }
    }
}

fn has_pods(gang: &Gang) -> bool {
    gang.pod_sets.iter().any(|set| set.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gang::Amounts;
    use crate::time::Millis;

    const GPU: &str = "nvidia.com/gpu";

    fn set(name: &str, resources: &[(&str, i64)], group: Option<&str>) -> PodSet {
        PodSet {
            name: name.into(),
            count: 1,
            per_pod: resources.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect(),
            group: group.map(str::to_owned),
            ..PodSet::default()
        }
    }

    #[test]
    fn pod_sets_without_a_managed_resource_need_no_new_nodes() {
        let driver = set("driver", &[("cpu", 500)], None);
        let workers = set("workers", &[("cpu", 500), (GPU, 4)], None);
        let none = set("none", &[(GPU, 0)], None);
        let (leader, followers) =
            (set("leader", &[("cpu", 500)], Some("g")), set("followers", &[(GPU, 1)], Some("g")));
        let other = set("other", &[("cpu", 500)], Some("h"));
        for (managed, sets, provisioned) in [
            (&[][..], vec![&driver, &workers], &["driver", "workers"][..]),
            (&[GPU], vec![&driver, &workers], &["workers"]),
            (&[GPU], vec![&driver], &[]),
            (&[GPU], vec![&none], &[]),
            (&["google.com/tpu", "cpu"], vec![&driver, &workers], &["driver", "workers"]),
            (&["google.com/tpu"], vec![&driver, &workers], &[]),
            (&[GPU], vec![&leader, &followers, &other], &["leader", "followers"]),
        ] {
            let managed: ManagedResources = managed.iter().map(|name| (*name).to_owned()).collect();
            let gang = Gang {
                pod_sets: sets.into_iter().cloned().collect(),
                max_run: Some(Millis::mins(5)),
                ..Gang::default()
            };
            let divided = managed.divide(&gang);
            let names: Vec<&str> = divided.provisioned.pod_sets.iter().map(|set| set.name.as_str()).collect();
            assert_eq!(names, provisioned, "{managed:?} {gang:?}");
            let both = divided.provisioned.pod_sets.len() + divided.existing.pod_sets.len();
            assert_eq!(both, gang.pod_sets.len(), "each pod set is in one part");
            assert_eq!((divided.provisioned.max_run, divided.existing.max_run), (gang.max_run, gang.max_run));
        }
    }

    #[test]
    fn a_gang_can_be_provisioned_in_part() {
        let block = |resource: &str, amount: i64| {
            let free = Amounts::from([(resource.to_owned(), amount)]);
            Block { nodes: 1, capacity: free.clone(), free, ..Block::default() }
        };
        let managed: ManagedResources = [GPU.to_owned()].into_iter().collect();
        let (driver, workers) = (set("driver", &[("cpu", 500)], None), set("workers", &[(GPU, 4)], None));
        let of = |sets: Vec<&PodSet>| {
            managed.divide(&Gang { pod_sets: sets.into_iter().cloned().collect(), ..Gang::default() })
        };
        let (pools, nodes) = (&[block(GPU, 4)][..], &[block("cpu", 500)][..]);
        let both = of(vec![&driver, &workers]);
        assert!(both.can_be_provisioned(pools) && both.check_existing(nodes).is_ok());
        assert!(!both.can_be_provisioned(&[]) && !both.can_be_provisioned(&[block(GPU, 3)]));
        assert!(both.check_existing(pools).is_err(), "a pool's nodes are not there for the driver");
        let gpus = of(vec![&workers]);
        assert!(gpus.can_be_provisioned(pools) && gpus.check_existing(&[]).is_ok());
        assert!(!of(vec![&driver]).can_be_provisioned(nodes), "no pod needs new nodes");
        let no_workers = PodSet { count: 0, ..workers };
        assert!(!of(vec![&driver, &no_workers]).can_be_provisioned(pools), "no pod needs new nodes");
    }

    #[test]
    fn managed_resources_are_a_list_on_the_wire() {
        let managed: ManagedResources = [GPU.to_owned()].into_iter().collect();
        assert_eq!(serde_json::to_string(&managed).unwrap(), r#"["nvidia.com/gpu"]"#);
    }
}

//! Declaration of cohorts and cluster queues.

use crate::model::QueueSetup;
use crate::names::Id;
use crate::pending::Pending;
use crate::queue_state::QueueState;
use crate::quota::{CohortSetup, Forest, Leaf, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl QueueState {
    /// Declares all cohorts and cluster queues. Workloads of a remaining queue keep their position or quota.
    /// Removed queues must be empty.
    pub fn configure(&mut self, cohorts: &BTreeMap<Arc<str>, CohortSetup>, setups: Vec<QueueSetup>) {
        let leaf = |setup: &QueueSetup| Leaf {
            name: setup.name.clone(),
            cohort: setup.cohort.clone(),
            quotas: setup.quotas.clone(),
            weight: setup.weight,
        };
        let leaves: Vec<Leaf> = setups.iter().map(leaf).collect();
        let (forest, nodes) = Forest::build(cohorts, &leaves);
        self.forest = forest;
        self.queues.clear_nodes(self.forest.nodes().count());
        self.agenda.clear_active();
        for (setup, node) in setups.into_iter().zip(nodes) {
            let topology_only = self.has_only_topology_flavors(&setup);
            let id = self.queues.declare(setup, topology_only);
            if self.pending.len() <= id.index() {
                self.pending.push(Pending::default());
            }
            self.queues.set_node(id, node, node.map(|node| self.forest.node(node).tree));
            self.pending[id.index()].requeue_parked();
            self.update_active(id);
        }
        self.topologies.forget_usage();
        for id in self.holders() {
            self.charge_holder(id);
        }
        // Trees are renumbered, so all of them count as changed.
        let trees = self.forest.trees();
        self.agenda.reset((0..trees).map(|tree| TreeId::new(u32::try_from(tree).unwrap_or(u32::MAX))));
    }

    fn has_only_topology_flavors(&self, setup: &QueueSetup) -> bool {
        let mut flavors = setup.groups.iter().flat_map(|group| &group.flavors);
        flavors.all(|flavor| self.flavor(*flavor).is_some_and(|spec| spec.topology.is_some()))
    }
}

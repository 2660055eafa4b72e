//! Cluster queues by number, by name and by quota node.

use crate::model::{Queue, QueueId, QueueSetup};
use crate::names::Id;
use crate::quota::{NodeId, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(super) struct ClusterQueues {
    list: Vec<Queue>,
    ids: BTreeMap<Arc<str>, QueueId>,
    by_node: Vec<Option<QueueId>>,
}

impl ClusterQueues {
    pub(super) fn get(&self, id: QueueId) -> &Queue {
        &self.list[id.index()]
    }

    pub(super) fn get_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.list[id.index()]
    }

    pub(super) fn id(&self, name: &str) -> Option<QueueId> {
        self.ids.get(name).copied()
    }

    /// All declared queues, by name.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&Arc<str>, QueueId)> {
        self.ids.iter().map(|(name, id)| (name, *id))
    }

    /// All queues, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.list.iter()
    }

    /// The cluster queue at a quota node.
    pub(super) fn at_node(&self, node: NodeId) -> Option<QueueId> {
        self.by_node.get(node.index()).copied().flatten()
    }

    /// Forgets the nodes of all queues, until [`Self::set_node`] sets them again.
    pub(super) fn clear_nodes(&mut self, nodes: usize) {
        for queue in &mut self.list {
            (queue.node, queue.tree) = (None, None);
        }
        self.by_node = vec![None; nodes];
    }

    /// Sets the quota node of a queue.
    pub(super) fn set_node(&mut self, id: QueueId, node: Option<NodeId>, tree: Option<TreeId>) {
        let queue = &mut self.list[id.index()];
        (queue.node, queue.tree) = (node, tree);
        if let Some(node) = node {
            self.by_node[node.index()] = Some(id);
        }
    }

    /// Declares a queue. A new name gets the next number.
    pub(super) fn declare(&mut self, setup: QueueSetup, topology_only: bool) -> QueueId {
        let id = match self.ids.get(&setup.name) {
            Some(id) => *id,
            None => {
                let id = QueueId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
                self.list.push(Queue::new(topology_only));
                self.ids.insert(setup.name.clone(), id);
                id
            }
        };
        let queue = &mut self.list[id.index()];
        queue.topology_only = topology_only;
        queue.generation += 1;
        queue.setup = Arc::new(setup);
        id
    }

    /// A copy of the declarations without any holders.
    pub(super) fn without_holders(&self) -> Self {
        Self {
            list: self.list.iter().map(Queue::without_holders).collect(),
            ids: BTreeMap::new(),
            by_node: self.by_node.clone(),
        }
    }
}

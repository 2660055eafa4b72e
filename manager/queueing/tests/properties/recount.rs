//! Quota computed from declarations and holders, and the rules of preemption, as simply as possible.

use super::plan::{Cohort, Queue};
use std::collections::BTreeMap;

/// Flavor and resource, by name.
pub(crate) type Key = (String, String);

/// A cohort (true) or a queue, and its index in the plan.
pub(crate) type Node = (bool, usize);

/// Declarations, and usage of the queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recount {
    pub(crate) queues: Vec<Queue>,
    pub(crate) cohorts: Vec<Cohort>,
    pub(crate) used: BTreeMap<(usize, Key), i64>,
}

impl Recount {
    pub(crate) fn parent(&self, node: Node) -> Option<Node> {
        let parent = if node.0 { self.cohorts[node.1].parent } else { self.queues[node.1].cohort };
        parent.map(|at| (true, at))
    }

    fn children(&self, node: Node) -> Vec<Node> {
        let cohorts = (0..self.cohorts.len()).map(|at| (true, at));
        let queues = (0..self.queues.len()).map(|at| (false, at));
        cohorts.chain(queues).filter(|child| node.0 && self.parent(*child) == Some(node)).collect()
    }

    pub(crate) fn root(&self, node: Node) -> Node {
        self.parent(node).map_or(node, |parent| self.root(parent))
    }

    /// Nominal quota, borrowing limit, lending limit.
    pub(crate) fn quota(&self, node: Node, key: &Key) -> (i64, Option<i64>, Option<i64>) {
        let quotas = if node.0 { &self.cohorts[node.1].quotas } else { &self.queues[node.1].quotas };
        quotas.get(key).copied().unwrap_or((0, None, None))
    }

    pub(crate) fn subtree(&self, node: Node, key: &Key) -> i64 {
        self.quota(node, key).0
            + self.children(node).into_iter().map(|c| self.subtree(c, key) - self.local(c, key)).sum::<i64>()
    }

    pub(crate) fn local(&self, node: Node, key: &Key) -> i64 {
        self.quota(node, key).2.map_or(0, |limit| (self.subtree(node, key) - limit).max(0))
    }

    pub(crate) fn usage(&self, node: Node, key: &Key) -> i64 {
        if !node.0 {
            return self.used.get(&(node.1, key.clone())).copied().unwrap_or(0);
        }
        self.children(node).into_iter().map(|c| (self.usage(c, key) - self.local(c, key)).max(0)).sum()
    }

    pub(crate) fn balance(&self, node: Node, key: &Key) -> i64 {
        let (subtree, local, usage) = (self.subtree(node, key), self.local(node, key), self.usage(node, key));
        let Some(parent) = self.parent(node) else { return subtree - usage };
        let most = self
            .quota(node, key)
            .1
            .map_or(i64::MAX, |limit| (subtree - local) - (usage - local).max(0) + limit);
        (local - usage).max(0) + self.balance(parent, key).min(most)
    }

    pub(crate) fn available(&self, queue: usize, key: &Key) -> i64 {
        self.balance((false, queue), key).max(0)
    }

    pub(crate) fn potential(&self, queue: usize, key: &Key) -> i64 {
        Self { used: BTreeMap::new(), ..self.clone() }.available(queue, key)
    }

    pub(crate) fn add(&mut self, queue: usize, uses: &[(Key, i64)], sign: i64) {
        for (key, amount) in uses {
            *self.used.entry((queue, key.clone())).or_insert(0) += sign * amount;
        }
    }

    pub(crate) fn fits(&self, queue: usize, uses: &[(Key, i64)]) -> bool {
        uses.iter().all(|(key, amount)| *amount <= self.available(queue, key))
    }

    pub(crate) fn within_nominal(&self, queue: usize, uses: &[(Key, i64)]) -> bool {
        uses.iter().all(|(key, amount)| {
            self.usage((false, queue), key) + amount <= self.quota((false, queue), key).0
        })
    }

    pub(crate) fn borrows(&self, queue: usize) -> bool {
        self.queues[queue]
            .quotas
            .keys()
            .any(|key| self.usage((false, queue), key) > self.subtree((false, queue), key))
    }
}

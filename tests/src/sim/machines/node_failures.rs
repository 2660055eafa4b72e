//! Nodes that fail under gangs, and return.

use crate::sim::context::event::SimEvent;
use crate::sim::hosts::nodes::NodeFailure;
use crate::sim::world::Simulation;

/// Longest time for which a node is away.
const AWAY_MS_MAX: u64 = 20_000;

impl Simulation {
    /// One node fails, and another one later.
    pub(crate) fn fail_node(&mut self) {
        let Some(mean) = self.cx.scenario.node_losses.filter(|_| !self.cx.healed) else { return };
        let random = &mut self.cx.random.nodes;
        let (next, away) = (random.between(mean / 2, mean * 3 / 2), random.between(500, AWAY_MS_MAX));
        let (machine, gone) = (random.index(self.machines.len()), random.permille(350));
        let failure = if gone {
            NodeFailure::Gone
        } else {
            *random
                .pick(&[NodeFailure::Unready, NodeFailure::Tainted, NodeFailure::Tainted])
                .expect("not empty")
        };
        let node = u32::try_from(random.below(u64::from(self.machines[machine].nodes))).expect("few");
        self.cx.schedule(self.cx.now + next, SimEvent::NodeFails);
        self.cx.schedule(self.cx.now + away, SimEvent::NodeReturns { machine, node });
        self.cx.log(|| format!("machine {machine}: node n{node} fails: {failure:?}"));
        self.cx.counters.one("nodes lost");
        self.cx.counters.add("nodes tainted", u64::from(failure == NodeFailure::Tainted));
        if self.machines[machine].failures.insert(node, failure).is_some() {
            self.reset_toleration_timers(machine);
        }
        self.send_nodes(machine);
    }

    /// A node works again.
    pub(crate) fn return_node(&mut self, machine: usize, node: u32) {
        if self.machines[machine].failures.remove(&node).is_some() {
            self.reset_toleration_timers(machine);
            self.send_nodes(machine);
        }
    }

    /// Every node works again.
    pub(crate) fn heal_nodes(&mut self) {
        for machine in 0..self.machines.len() {
            self.machines[machine].failures.clear();
            self.reset_toleration_timers(machine);
            self.send_nodes(machine);
        }
    }

    fn send_nodes(&mut self, machine: usize) {
        let nodes = self.machines[machine].nodes_input();
        self.send_to_agents(machine, || nodes.clone());
    }
}

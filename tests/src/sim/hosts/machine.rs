//! One machine, or one Kubernetes cluster: its clocks, nodes and gangs.

use crate::sim::clock::HostClock;
use crate::sim::fleet::topology::NodeLabels;
use crate::sim::hosts::nodes::{NodeFailure, node, provisionable};
use crate::sim::hosts::runner::Runner;
use meridian_agent_core::Input;
use meridian_agent_core::runtime::NodeSpec;
use std::collections::BTreeMap;

/// One machine, or one Kubernetes cluster.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) clock: HostClock,
    pub(crate) boot: u128,
    pub(crate) runner: Runner,
    /// Gangs end at the lapse without their agent.
    pub(crate) guarded: bool,
    /// A gang ends together with its guard.
    pub(crate) namespaces: bool,
    /// Whether gangs here count for the promises; false for the machine of a hostile agent.
    pub(crate) honest: bool,
    pub(crate) nodes: u32,
    /// Nodes that its provider can make.
    pub(crate) pools: u32,
    pub(crate) paused_until: u64,
    pub(crate) labels: NodeLabels,
    pub(crate) failures: BTreeMap<u32, NodeFailure>,
    /// The wall clock was set back, and no guard has read it since.
    pub(crate) unseen_back: bool,
    /// The machine's agents may not know all gangs that run here.
    pub(crate) has_unknown_gangs: bool,
    tick_number: u64,
    tick_at: u64,
}

impl Machine {
    pub(crate) fn new(clock: HostClock, boot: u128, guarded: bool) -> Self {
        Self {
            clock,
            boot,
            runner: Runner::new(guarded),
            guarded,
            namespaces: true,
            honest: true,
            nodes: 0,
            pools: 0,
            paused_until: 0,
            labels: NodeLabels::None,
            failures: BTreeMap::new(),
            unseen_back: false,
            has_unknown_gangs: false,
            tick_number: 0,
            tick_at: u64::MAX,
        }
    }

    /// Gives every gang a guard; only for a machine without gangs.
    pub(crate) fn guard(&mut self) {
        self.guarded = true;
        self.runner = Runner::new(true);
    }

    /// Moves the next tick forward to `at`; returns its number unless an earlier one is planned.
    pub(crate) fn plan_tick(&mut self, at: u64) -> Option<u64> {
        if at >= self.tick_at {
            return None;
        }
        self.tick_at = at;
        self.tick_number += 1;
        Some(self.tick_number)
    }

    /// Begins the tick with this number; false if another one was planned since.
    pub(crate) fn begin_tick(&mut self, number: u64) -> bool {
        let is_planned = number == self.tick_number;
        if is_planned {
            self.tick_at = u64::MAX;
        }
        is_planned
    }

    /// The nodes of this machine, as its agents see them.
    pub(crate) fn nodes_input(&self) -> Input {
        let is_there = |i: &u32| self.failures.get(i) != Some(&NodeFailure::Gone);
        let spec = |i| NodeFailure::apply(self.failures.get(&i), self.node(format!("n{i}")));
        Input::Nodes {
            nodes: (0..self.nodes).filter(is_there).map(spec).collect(),
            pools: provisionable(self.labels, self.pools),
        }
    }

    /// A working node with the labels of this machine.
    pub(crate) fn node(&self, name: String) -> NodeSpec {
        node(self.labels, name)
    }

    /// Whether a node has the maintenance taint.
    pub(crate) fn is_tainted(&self, node: &str) -> bool {
        let number = node.strip_prefix('n').and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| self.failures.get(&number) == Some(&NodeFailure::Tainted))
    }
}

//! Nodes of a machine as agents see them, and how a node fails.

use crate::sim::clusters::{GPU, NODE_GPUS};
use crate::sim::fleet::tolerations::TAINT;
use crate::sim::fleet::topology::NodeLabels;
use meridian_agent_core::runtime::NodeSpec;
use meridian_shared::gang::{Amounts, Taint, TaintEffect};
use meridian_shared::packing::{Block, HOSTNAME_LABEL};

/// How a node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFailure {
    /// The node is no longer in the list of nodes.
    Gone,
    /// The node isn't ready.
    Unready,
    /// The node has the maintenance taint, which some pods tolerate, most of them only for a while.
    Tainted,
}

impl NodeFailure {
    /// A node with this failure, as agents see it.
    pub(crate) fn apply(failure: Option<&Self>, node: NodeSpec) -> NodeSpec {
        let taint = || Taint { key: TAINT.into(), value: String::new(), effect: TaintEffect::NoExecute };
        match failure {
            None | Some(Self::Gone) => node,
            Some(Self::Unready) => NodeSpec { unready: true, ..node },
            Some(Self::Tainted) => NodeSpec { taints: vec![taint()], ..node },
        }
    }
}

/// A node that works.
pub(crate) fn node(labels: NodeLabels, name: String) -> NodeSpec {
    NodeSpec {
        labels: labels.labels(&name),
        name,
        capacity: Amounts::from([(GPU.into(), NODE_GPUS)]),
        ..NodeSpec::default()
    }
}

/// Nodes that a provider can make.
pub(crate) fn provisionable(labels: NodeLabels, nodes: u32) -> Vec<Block> {
    let capacity = Amounts::from([(GPU.into(), NODE_GPUS)]);
    let mut labels = labels.labels("made");
    labels.remove(HOSTNAME_LABEL);
    let pool = Block { nodes, free: capacity.clone(), capacity, labels, ..Block::default() };
    if nodes > 0 { vec![pool] } else { Vec::new() }
}

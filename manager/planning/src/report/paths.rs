//! Paths of queues and cohorts, such as `/org/team/queue`: names from the root, each after a slash.

use meridian_queueing::QueueState;
use meridian_queueing::model::QueueId;
use meridian_queueing::quota::NodeId;

pub(super) fn queue_path(state: &QueueState, queue: QueueId) -> String {
    let queue = state.queue(queue);
    match queue.node {
        Some(node) => node_path(state, node),
        None => format!("/{}", queue.setup.name),
    }
}

pub(super) fn node_path(state: &QueueState, node: NodeId) -> String {
    let mut names: Vec<&str> = std::iter::once(node)
        .chain(state.forest().ancestors(node))
        .map(|ancestor| &*state.forest().node(ancestor).name)
        .collect();
    names.reverse();
    names.iter().fold(String::new(), |path, name| path + "/" + name)
}

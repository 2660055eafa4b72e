//! Provisioned nodes that pods can't run on any more.

use super::View;
use meridian_shared::time::Wall;
use std::collections::BTreeSet;

impl View {
    /// The nodes that pods of gangs run on or were sent to. Only the loss of these nodes matters: an
    /// autoscaler may remove all others.
    pub(crate) fn needed_nodes(&self) -> BTreeSet<&str> {
        let pods = self.pods.items.values().filter(|pod| pod.run.is_some() && !pod.is_terminal());
        pods.filter_map(|pod| pod.node.as_deref().or(pod.sent_to.as_deref())).collect()
    }

    /// Whether the node exists and no provider made it.
    pub(crate) fn is_outside_pools(&self, node: &str) -> bool {
        self.nodes.items.get(node).is_some_and(|node| !self.is_in_pool(node))
    }

    /// What happened to a provisioned node whose pods can't run there any more. `None` for other nodes.
    pub(crate) fn loss_of(&self, node: &str, now: Wall) -> Option<String> {
        let Some(node) = self.nodes.items.get(node) else { return Some("is gone".to_owned()) };
        if !self.is_in_pool(node) {
            return None;
        }
        if node.out_of_service {
            return Some("was declared out of service".to_owned());
        }
        let unready = node.unready_since.map(|since| now.since(since))?;
        (unready >= self.settings.unready_after).then(|| format!("has not been ready for {unready}"))
    }
}

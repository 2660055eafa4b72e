//! Provisioned nodes that pods can't run on any more.

use super::View;
use meridian_shared::time::Wall;

impl View {
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

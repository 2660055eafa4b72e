//! Recounts what the ledger caches.

use super::Ledger;
use meridian_shared::gang::{Amounts, add_scaled};
use std::collections::{BTreeMap, BTreeSet};

impl Ledger {
    /// Recounts what every node has free. Fails with a description of the first difference.
    pub fn check(&self) -> Result<(), String> {
        self.check_toleration()?;
        let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
        let mut pods: BTreeMap<&str, i64> = BTreeMap::new();
        let mut seen: BTreeMap<(&str, &str), BTreeSet<u32>> = BTreeMap::new();
        for (offer, allocation) in &self.allocations {
            for pod in allocation.charged() {
                *pods.entry(&pod.node).or_default() += 1;
                add_scaled(used.entry(&pod.node).or_default(), &allocation.per_pod[&pod.pod_set], 1);
                for (resource, indexes) in &pod.accelerators {
                    for index in indexes {
                        if !seen.entry((&pod.node, resource)).or_default().insert(*index) {
                            return Err(format!(
                                "offer {offer}: accelerator {index} of `{resource}` is given twice on node \
                                 `{}`",
                                pod.node
                            ));
                        }
                    }
                }
            }
        }
        for (name, node) in self.nodes.iter() {
            let there = pods.get(name.as_str()).copied().unwrap_or(0);
            if there != node.pods {
                return Err(format!("node `{name}`: {} pods counted, but it has {there}", node.pods));
            }
            for (resource, capacity) in &node.spec.capacity {
                let taken = used.get(name.as_str()).and_then(|u| u.get(resource)).copied().unwrap_or(0)
                    + node.spec.foreign_use.get(resource).copied().unwrap_or(0);
                let free = node.free.get(resource).copied().unwrap_or(0);
                if capacity - taken != free {
                    return Err(format!(
                        "node `{name}`: {free} `{resource}` counted as free, but {capacity} - {taken} differs"
                    ));
                }
            }
        }
        Ok(())
    }
}

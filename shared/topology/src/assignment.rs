//! Topology assignments: domains and the number of pods in each.

use crate::placement_error::PlacementError;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DomainCount {
    /// Label values of the domain, one per level of the assignment.
    pub values: Vec<String>,
    pub count: u32,
}

/// The domains of the pods of one pod set.
///
/// If the lowest level is the host, `levels` is that level alone, because a host name is unique.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Node labels, from the widest to the narrowest.
    pub levels: Vec<String>,
    /// Domains with at least one pod, in tree order.
    pub domains: Vec<DomainCount>,
}

impl Assignment {
    pub fn pods(&self) -> u32 {
        self.domains.iter().fold(0, |sum, domain| sum.saturating_add(domain.count))
    }

    /// The first `pods` pods of the assignment. Pods are removed from the last domains first.
    pub fn truncated(&self, pods: u32) -> Self {
        let mut left = pods;
        let mut domains = Vec::new();
        for domain in &self.domains {
            if left == 0 {
                break;
            }
            let count = domain.count.min(left);
            left -= count;
            domains.push(DomainCount { values: domain.values.clone(), count });
        }
        Self { levels: self.levels.clone(), domains }
    }

    /// Whether a domain with the lowest value `node` holds a pod.
    pub fn has_node(&self, node: &str) -> bool {
        self.domains
            .iter()
            .any(|domain| domain.count > 0 && domain.values.last().is_some_and(|value| value == node))
    }
}

/// Result for one pod set. `None` if an earlier pod set doesn't fit, if the pod set lost no node, or for a
/// third member of a group (a group is a leader and workers).
pub type PodSetResult = Option<Result<Assignment, PlacementError>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(counts: &[(&str, u32)]) -> Assignment {
        let domains = counts
            .iter()
            .map(|(host, count)| DomainCount { values: vec![(*host).to_owned()], count: *count })
            .collect();
        Assignment { levels: vec!["kubernetes.io/hostname".into()], domains }
    }

    #[test]
    fn truncating_takes_from_the_end() {
        let whole = hosts(&[("a", 2), ("b", 3), ("c", 1)]);
        assert_eq!(whole.truncated(4), hosts(&[("a", 2), ("b", 2)]));
        assert_eq!(whole.truncated(5), hosts(&[("a", 2), ("b", 3)]));
        assert_eq!(whole.truncated(0), hosts(&[]));
        assert_eq!(whole.truncated(9), whole);
    }

    #[test]
    fn a_node_is_had_where_it_holds_pods() {
        let some = hosts(&[("a", 2), ("b", 0)]);
        assert!(some.has_node("a") && !some.has_node("b") && !some.has_node("c"));
    }
}

//! Where the pods of a pod set go: domains and how many pods each holds.

use serde::{Deserialize, Serialize};

/// Pods in one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DomainCount {
    /// The domain's values, one per level of the assignment.
    pub values: Vec<String>,
    /// Pods that go there.
    pub count: u32,
}

/// Where the pods of one pod set go.
///
/// Where the lowest level is the host, `levels` is that level alone: the host's name says it all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Node labels, from the widest to the narrowest.
    pub levels: Vec<String>,
    /// Domains that hold at least one pod, in the order of their place in the tree.
    pub domains: Vec<DomainCount>,
}

impl Assignment {
    /// Pods in all domains.
    pub fn pods(&self) -> u32 {
        self.domains.iter().fold(0, |sum, domain| sum.saturating_add(domain.count))
    }

    /// The same with no more than the first `pods` pods; the last domains lose theirs first.
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

    /// Whether some pod is in a domain whose lowest value is `node`.
    pub fn has_node(&self, node: &str) -> bool {
        self.domains
            .iter()
            .any(|domain| domain.count > 0 && domain.values.last().is_some_and(|value| value == node))
    }
}

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

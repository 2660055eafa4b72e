//! Quota arithmetic of cohorts and cluster queues, read from manifests.
//!
//! The forest is written from Kueue's documentation of nominal quota, borrowing and lending limits,
//! independent of the manager's own forest.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A deeper hierarchy counts as a cycle.
const DEPTH_MAX: usize = 16;

/// The name of a cohort or a cluster queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeName {
    Queue(String),
    Cohort(String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    parent: Option<String>,
    limits: BTreeMap<String, Limits>,
    weight: f64,
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue `{name}`"),
            Self::Cohort(name) => write!(f, "cohort `{name}`"),
        }
    }
}

/// Cohorts and cluster queues as they are declared, and the usage of queues per flavor.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaForest {
    nodes: BTreeMap<NodeName, Node>,
    used: BTreeMap<(String, String), i64>,
}

impl QuotaForest {
    /// The forest that these manifests declare; nothing is used.
    pub(crate) fn of(manifests: &[Value]) -> Self {
        let mut forest = Self::default();
        for manifest in manifests {
            let cohort = match manifest["kind"].as_str() {
                Some("ClusterQueue") => false,
                Some("Cohort") => true,
                _ => continue,
            };
            let spec = &manifest["spec"];
            let parent = spec[if cohort { "parentName" } else { "cohortName" }].as_str().map(str::to_owned);
            let mut limits = BTreeMap::new();
            for flavor in spec["resourceGroups"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|g| g["flavors"].as_array().into_iter().flatten())
            {
                let of = &flavor["resources"][0];
                let quota = Limits {
                    nominal: of["nominalQuota"].as_i64().unwrap_or(0),
                    borrowing: of["borrowingLimit"].as_i64(),
                    lending: of["lendingLimit"].as_i64(),
                };
                limits.insert(flavor["name"].as_str().unwrap_or_default().to_owned(), quota);
            }
            let weight = match spec["fairSharing"]["weight"].as_str().unwrap_or("1") {
                milli if milli.ends_with('m') => milli.trim_end_matches('m').parse().unwrap_or(0.0) / 1000.0,
                whole => whole.parse().unwrap_or(1.0),
            };
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let name = if cohort { NodeName::Cohort(name) } else { NodeName::Queue(name) };
            forest.nodes.insert(name, Node { parent, limits, weight });
        }
        // A cohort that is only named as a parent exists, too.
        let named: Vec<String> = forest.nodes.values().filter_map(|n| n.parent.clone()).collect();
        for name in named {
            forest.nodes.entry(NodeName::Cohort(name)).or_insert(Node { weight: 1.0, ..Node::default() });
        }
        forest
    }

    fn children(&self, name: &NodeName) -> Vec<NodeName> {
        let NodeName::Cohort(name) = name else { return Vec::new() };
        self.nodes
            .iter()
            .filter(|(_, n)| n.parent.as_ref() == Some(name))
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(crate) fn parent(&self, name: &NodeName) -> Option<NodeName> {
        self.nodes.get(name)?.parent.clone().map(NodeName::Cohort)
    }

    pub(crate) fn root(&self, name: &NodeName) -> Option<NodeName> {
        let mut at = name.clone();
        for _ in 0..DEPTH_MAX {
            match self.parent(&at) {
                Some(parent) => at = parent,
                None => return Some(at),
            }
        }
        None
    }

    fn limits(&self, name: &NodeName, flavor: &str) -> Limits {
        self.nodes.get(name).and_then(|n| n.limits.get(flavor)).copied().unwrap_or_default()
    }

    pub(crate) fn subtree(&self, name: &NodeName, flavor: &str) -> i64 {
        let lent: i64 =
            self.children(name).iter().map(|c| self.subtree(c, flavor) - self.local(c, flavor)).sum();
        self.limits(name, flavor).nominal + lent
    }

    fn local(&self, name: &NodeName, flavor: &str) -> i64 {
        self.limits(name, flavor).lending.map_or(0, |limit| (self.subtree(name, flavor) - limit).max(0))
    }

    pub(crate) fn usage(&self, name: &NodeName, flavor: &str) -> i64 {
        if let NodeName::Queue(queue) = name {
            return self.used.get(&(queue.clone(), flavor.to_owned())).copied().unwrap_or(0);
        }
        self.children(name).iter().map(|c| (self.usage(c, flavor) - self.local(c, flavor)).max(0)).sum()
    }

    fn available_at(&self, name: &NodeName, flavor: &str) -> i64 {
        let (subtree, local, usage) =
            (self.subtree(name, flavor), self.local(name, flavor), self.usage(name, flavor));
        let Some(parent) = self.parent(name) else { return subtree - usage };
        let above = self.available_at(&parent, flavor);
        let most = self
            .limits(name, flavor)
            .borrowing
            .map_or(i64::MAX, |limit| (subtree - local) - (usage - local).max(0) + limit);
        (local - usage).max(0) + above.min(most)
    }

    /// How much more a queue could use now; `None` if the queue is unknown or its cohorts form a cycle.
    pub(crate) fn available(&self, queue: &str, flavor: &str) -> Option<i64> {
        let name = NodeName::Queue(queue.to_owned());
        self.root(&name)?;
        self.nodes.get(&name)?.limits.get(flavor)?;
        Some(self.available_at(&name, flavor).max(0))
    }

    /// How much a queue could use if no other queue used anything.
    pub(crate) fn potential(&self, queue: &str, flavor: &str) -> Option<i64> {
        Self { nodes: self.nodes.clone(), used: BTreeMap::new() }.available(queue, flavor)
    }

    /// Every queue and cohort with its quotas and usage, for messages.
    pub(crate) fn describe(&self) -> String {
        let node = |(name, node): (&NodeName, &Node)| {
            let quota = |(flavor, l): (&String, &Limits)| {
                let limit =
                    |limit: Option<i64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
                format!(
                    "{flavor} {} of {} nominal used, may borrow {}, may lend {}",
                    self.usage(name, flavor),
                    l.nominal,
                    limit(l.borrowing),
                    limit(l.lending),
                )
            };
            format!(
                "{name} in {}: {}",
                node.parent.as_deref().unwrap_or("no cohort"),
                node.limits.iter().map(quota).collect::<Vec<_>>().join(", ")
            )
        };
        self.nodes.iter().map(node).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn add(&mut self, queue: &str, flavor: &str, amount: i64) {
        *self.used.entry((queue.to_owned(), flavor.to_owned())).or_insert(0) += amount;
    }

    /// Usage of a queue beyond its nominal quota, over all flavors, divided by its weight.
    pub(crate) fn share(&self, queue: &str) -> f64 {
        let name = NodeName::Queue(queue.to_owned());
        let Some(node) = self.nodes.get(&name) else { return 0.0 };
        let borrowed: i64 = node
            .limits
            .keys()
            .map(|flavor| (self.usage(&name, flavor) - self.subtree(&name, flavor)).max(0))
            .sum();
        match borrowed {
            0 => 0.0,
            _ if node.weight == 0.0 => f64::INFINITY,
            some => some as f64 / node.weight,
        }
    }
}

//! Placement of an attempt's pods, as its agent reports it: counted by domain or node, and bounded in size.
//!
//! It is shown to users and their tools. It affects only one decision: which nodes of this cluster a
//! preemption would free. It is never sent to a cluster.

use crate::gang::Gang;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most domains of one gang that are named. Further domains are only counted.
pub const DOMAINS_MAX: usize = 1_024;
/// Approximate bound of one placement as JSON, in bytes. Domains beyond it are only counted.
pub const PLACEMENT_BYTES_MAX: usize = 32 * 1024;
/// Longest plausible node name, label value, or label key with its prefix, in bytes.
const NAME_BYTES_MAX: usize = 317;
/// Bytes of field names and punctuation of one entry.
const FRAME: usize = 48;
/// Most node kinds in a placement; with more, none is reported.
pub const KINDS_MAX: usize = 256;
/// Longest kind with its comma, in bytes.
const KIND_BYTES: usize = 21;
/// Domains named in a message, per pod set.
const DOMAINS_LISTED_MAX: usize = 8;
/// Most unhealthy nodes that are reported; Kueue's bound.
pub const UNHEALTHY_MAX: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// Number of changes in this attempt. A report with a smaller number than the known one arrived late and
    /// is ignored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u32,
    /// In the order of the gang.
    pub pod_sets: Vec<PlacedPodSet>,
    /// Lost nodes with pods that wait for a replacement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlacedPodSet {
    pub name: String,
    /// Node labels of the topology levels of the domains' values, from the widest to the narrowest; only the
    /// hostname if that is the narrowest level. Empty if the pods weren't placed by a topology: each value is
    /// then a node name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<String>,
    /// Domains with at least one of the pods, in topology order.
    pub domains: Vec<PlacedDomain>,
    /// Kinds of the named nodes ([`crate::packing::node_kind`]). Kind and used amounts together identify a
    /// node in capacity reports, which don't name nodes. Empty if domains aren't nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<u64>,
    /// Number of domains that aren't named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_domains: u32,
    /// Number of pods in domains that aren't named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_pods: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlacedDomain {
    /// One value per level.
    pub values: Vec<String>,
    pub pods: u32,
    /// Index into `kinds`, if the domain is a node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kind: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Placement {
    /// Approximate size as JSON, in bytes; never much less than the real size.
    pub fn weight(&self) -> usize {
        let sets: usize = self
            .pod_sets
            .iter()
            .map(|set| set.head_weight() + set.domains.iter().map(PlacedDomain::weight).sum::<usize>())
            .sum();
        sets + self.unhealthy_weight()
    }

    /// The placement within the bounds: further domains are only counted. The result is deterministic.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.unhealthy.truncate(UNHEALTHY_MAX);
        if self.pod_sets.iter().map(|set| set.kinds.len()).sum::<usize>() > KINDS_MAX {
            for set in &mut self.pod_sets {
                set.kinds.clear();
                set.domains.iter_mut().for_each(|domain| domain.kind = 0);
            }
        }
        let heads =
            self.pod_sets.iter().map(PlacedPodSet::head_weight).sum::<usize>() + self.unhealthy_weight();
        let (mut left, mut bytes) = (DOMAINS_MAX, PLACEMENT_BYTES_MAX.saturating_sub(heads));
        for set in &mut self.pod_sets {
            let fits = |domain: &&PlacedDomain| {
                let weight = domain.weight();
                let room = left > 0 && weight <= bytes;
                (left, bytes) = if room { (left - 1, bytes - weight) } else { (0, bytes) };
                room
            };
            let named = set.domains.iter().take_while(fits).count();
            for domain in set.domains.drain(named..) {
                set.more_domains = set.more_domains.saturating_add(1);
                set.more_pods = set.more_pods.saturating_add(domain.pods);
            }
        }
        self
    }

    /// Whether the placement is plausible for this gang: exactly its pod sets and pods, within every bound,
    /// without control characters.
    pub fn is_of(&self, gang: &Gang) -> bool {
        self.pod_sets.len() == gang.pod_sets.len()
            && self
                .pod_sets
                .iter()
                .zip(&gang.pod_sets)
                .all(|(placed, set)| placed.name == set.name && placed.pods() == u64::from(set.count))
            && self.is_bounded()
    }

    /// Whether the placement is within every bound, for any gang.
    pub fn is_bounded(&self) -> bool {
        (self.unhealthy.len() <= UNHEALTHY_MAX
            && self.unhealthy.iter().all(|text| is_name(text))
            && self.pod_sets.iter().all(PlacedPodSet::is_sound))
            && self.pod_sets.iter().map(|set| set.domains.len()).sum::<usize>() <= DOMAINS_MAX
            && self.weight() <= PLACEMENT_BYTES_MAX
    }

    fn unhealthy_weight(&self) -> usize {
        if self.unhealthy.is_empty() {
            0
        } else {
            FRAME + self.unhealthy.iter().map(|name| 2 * name.len() + 4).sum::<usize>()
        }
    }
}

/// Whether the text may be a node name or a part of a label.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

impl PlacedPodSet {
    /// Number of pods, in named domains or not.
    pub fn pods(&self) -> u64 {
        self.domains.iter().map(|domain| u64::from(domain.pods)).sum::<u64>() + u64::from(self.more_pods)
    }

    /// The kind of the node that a domain is, if it was reported.
    pub fn kind(&self, domain: &PlacedDomain) -> Option<u64> {
        self.kinds.get(usize::try_from(domain.kind).ok()?).copied()
    }

    pub fn is_whole(&self) -> bool {
        self.more_domains == 0
    }

    fn is_sound(&self) -> bool {
        let width = self.levels.len().max(1);
        let kinds = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        let known = |domain: &PlacedDomain| domain.kind < kinds.max(1);
        self.kinds.len() <= KINDS_MAX
            && (self.levels.iter().all(|text| is_name(text)) && self.domains.iter().all(known))
            && self
                .domains
                .iter()
                .all(|d| d.values.len() == width && d.pods > 0 && d.values.iter().all(|text| is_name(text)))
    }

    fn head_weight(&self) -> usize {
        let kinds = KIND_BYTES * self.kinds.len();
        2 * FRAME
            + 2 * self.name.len()
            + self.levels.iter().map(|level| level.len() + 4).sum::<usize>()
            + kinds
    }
}

impl PlacedDomain {
    fn weight(&self) -> usize {
        // In JSON, quotes and backslashes take two bytes.
        FRAME + self.values.iter().map(|value| 2 * value.len() + 4).sum::<usize>()
    }
}

/// For messages: `main: b0/r1 4, b0/r2 4 and 3 more`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, set) in self.pod_sets.iter().enumerate() {
            write!(f, "{}{set}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for PlacedPodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        for (at, domain) in self.domains.iter().take(DOMAINS_LISTED_MAX).enumerate() {
            write!(f, "{} {} {}", if at == 0 { "" } else { "," }, domain.values.join("/"), domain.pods)?;
        }
        match self.domains.len().saturating_sub(DOMAINS_LISTED_MAX)
            + usize::try_from(self.more_domains).unwrap_or(usize::MAX)
        {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gang::PodSet;

    fn on_nodes(nodes: u32, name: impl Fn(u32) -> String) -> Placement {
        let domains = (0..nodes).map(|i| PlacedDomain { values: vec![name(i)], pods: 2, kind: 0 }).collect();
        Placement {
            pod_sets: vec![PlacedPodSet { name: "main".into(), domains, ..PlacedPodSet::default() }],
            ..Placement::default()
        }
    }

    fn gang(pods: u32) -> Gang {
        Gang {
            pod_sets: vec![PodSet { name: "main".into(), count: pods, ..PodSet::default() }],
            ..Gang::default()
        }
    }

    #[test]
    fn domains_beyond_the_bounds_are_counted() {
        let small = on_nodes(3, |i| format!("n{i}"));
        assert_eq!(small.clone().bounded(), small);
        assert_eq!(small.to_string(), "main: n0 2, n1 2, n2 2");
        for large in
            [on_nodes(5_000, |i| format!("n{i}")), on_nodes(5_000, |i| format!("{i}{}", "\"".repeat(300)))]
        {
            let with_kinds = |mut placement: Placement| {
                let set = &mut placement.pod_sets[0];
                set.kinds = vec![u64::MAX; KINDS_MAX];
                set.domains.iter_mut().zip(0..).for_each(|(domain, at)| domain.kind = at % 256);
                placement
            };
            let bounded = with_kinds(large).bounded();
            let set = &bounded.pod_sets[0];
            assert!(set.domains.len() <= DOMAINS_MAX && !set.domains.is_empty() && !set.is_whole());
            assert_eq!((set.pods(), set.domains.len() + set.more_domains as usize), (10_000, 5_000));
            assert!(serde_json::to_vec(&bounded).unwrap().len() <= PLACEMENT_BYTES_MAX);
            assert!(bounded.is_of(&gang(10_000)));
            assert!(bounded.to_string().ends_with("and 4992 more"), "{bounded}");
        }
    }

    #[test]
    fn only_placements_of_exactly_this_gang_are_plausible() {
        let placed = on_nodes(2, |i| format!("n{i}"));
        assert!(placed.is_of(&gang(4)));
        assert!(!placed.is_of(&gang(5)));
        let change = |change: fn(&mut PlacedPodSet)| {
            let mut other = placed.clone();
            change(&mut other.pod_sets[0]);
            other.is_of(&gang(4))
        };
        assert!(!change(|set| set.name = "other".into()));
        assert!(!change(|set| set.domains[0].values[0] = "a\u{1b}[2J".into()));
        assert!(!change(|set| set.domains[0].values.push("x".into())));
        assert!(!change(|set| set.domains[0].kind = 1) && !change(|set| set.kinds = vec![1; KINDS_MAX + 1]));
        assert!(change(|set| (set.kinds, set.domains[0].kind) = (vec![7, 8], 1)));
        assert!(!change(|set| set.levels = vec!["rack".into(), "host".into()]));
        assert!(!change(|set| set.domains[0].values[0] = "x".repeat(400)));
        assert!(
            !Placement { pod_sets: vec![placed.pod_sets[0].clone(); 2], ..placed.clone() }.is_of(&gang(4))
        );
        let unhealthy = |names: Vec<String>| Placement { unhealthy: names, ..placed.clone() };
        assert!(unhealthy(vec!["n0".into(); UNHEALTHY_MAX]).is_of(&gang(4)));
        assert!(
            !unhealthy(vec!["n0".into(); UNHEALTHY_MAX + 1]).is_of(&gang(4))
                && !unhealthy(vec!["a\nb".into()]).is_of(&gang(4))
        );
        assert!(unhealthy(vec!["n0".into(); 100]).bounded().is_of(&gang(4)));
    }
}

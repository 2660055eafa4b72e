//! The compressed form of topology assignments in Kueue's API: slices of domains with common values factored
//! out.
//!
//! ```text
//!   slices:
//!   - domainCount: 3
//!     valuesPerLevel: [{ individual: { prefix: "node-", roots: ["1", "2", "7"] } }]
//!     podCounts: { universal: 4 }
//! ```
//!
//! Any partition of the domains into slices is valid. This module writes one slice per [`DOMAINS_MAX`]
//! domains.

use crate::assignment::{Assignment, DomainCount};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of domains in a slice (limit of the API).
pub const DOMAINS_MAX: usize = 100_000;

/// Pods per domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Counts {
    /// The same number in every domain.
    Universal(u32),
    /// One number per domain.
    Individual(Vec<u32>),
}

/// Label values of one level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Values {
    /// The same value in every domain.
    Universal(String),
    /// One value per domain.
    Individual(Affixed),
}

/// Values without their common prefix and suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Affixed {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suffix: String,
    /// The remaining part of each value, per domain.
    #[serde(default)]
    pub roots: Vec<String>,
}

/// A run of domains of an assignment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    pub domain_count: u32,
    pub values_per_level: Vec<Values>,
    pub pod_counts: Counts,
}

/// An assignment in the form of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compressed {
    /// Node labels of the levels.
    pub levels: Vec<String>,
    #[serde(default)]
    pub slices: Vec<Slice>,
}

/// A slice has fewer values, levels or counts than it declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// Index of the slice.
    pub slice: usize,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slice `{}` of the topology assignment has fewer values or counts than domains", self.slice)
    }
}

impl std::error::Error for Incomplete {}

impl From<&Assignment> for Compressed {
    fn from(assignment: &Assignment) -> Self {
        let slices = assignment
            .domains
            .chunks(DOMAINS_MAX)
            .map(|domains| slice(assignment.levels.len(), domains))
            .collect();
        Self { levels: assignment.levels.clone(), slices }
    }
}

impl TryFrom<&Compressed> for Assignment {
    type Error = Incomplete;

    fn try_from(compressed: &Compressed) -> Result<Self, Incomplete> {
        let mut domains = Vec::new();
        for (index, slice) in compressed.slices.iter().enumerate() {
            let broken = || Incomplete { slice: index };
            if slice.values_per_level.len() != compressed.levels.len() {
                return Err(broken());
            }
            // Check the declared count before allocating for it.
            let lengths = slice.values_per_level.iter().filter_map(Values::len).chain(slice.pod_counts.len());
            let count = usize::try_from(slice.domain_count).unwrap_or(usize::MAX);
            if count > DOMAINS_MAX || lengths.into_iter().any(|length| length < count) {
                return Err(broken());
            }
            for at in 0..count {
                let values: Option<Vec<String>> =
                    slice.values_per_level.iter().map(|values| values.at(at)).collect();
                let (Some(values), Some(count)) = (values, slice.pod_counts.at(at)) else {
                    return Err(broken());
                };
                domains.push(DomainCount { values, count });
            }
        }
        Ok(Self { levels: compressed.levels.clone(), domains })
    }
}

impl Counts {
    fn len(&self) -> Option<usize> {
        match self {
            Self::Universal(_) => None,
            Self::Individual(counts) => Some(counts.len()),
        }
    }

    fn at(&self, at: usize) -> Option<u32> {
        match self {
            Self::Universal(count) => Some(*count),
            Self::Individual(counts) => counts.get(at).copied(),
        }
    }
}

impl Values {
    fn len(&self) -> Option<usize> {
        match self {
            Self::Universal(_) => None,
            Self::Individual(values) => Some(values.roots.len()),
        }
    }

    fn at(&self, at: usize) -> Option<String> {
        match self {
            Self::Universal(value) => Some(value.clone()),
            Self::Individual(values) => {
                values.roots.get(at).map(|root| format!("{}{root}{}", values.prefix, values.suffix))
            }
        }
    }
}

fn slice(levels: usize, domains: &[DomainCount]) -> Slice {
    let first = domains.first().map_or(0, |domain| domain.count);
    let counts = || domains.iter().map(|domain| domain.count);
    let value = |domain: &'_ DomainCount, level: usize| domain.values.get(level).cloned().unwrap_or_default();
    Slice {
        domain_count: u32::try_from(domains.len()).unwrap_or(u32::MAX),
        values_per_level: (0..levels)
            .map(|level| values(domains.iter().map(|domain| value(domain, level)).collect()))
            .collect(),
        pod_counts: if counts().all(|count| count == first) {
            Counts::Universal(first)
        } else {
            Counts::Individual(counts().collect())
        },
    }
}

fn values(all: Vec<String>) -> Values {
    let Some((first, rest)) = all.split_first() else { return Values::Individual(Affixed::default()) };
    if rest.iter().all(|value| value == first) {
        return Values::Universal(first.clone());
    }
    let prefix = rest
        .iter()
        .fold(first.as_str(), |common, value| &common[..shared(common.chars(), value.chars())])
        .to_owned();
    // Prefix and suffix must not overlap in the shortest value, so search the suffix after the prefix.
    let behind = |value: &str| value[prefix.len()..].to_owned();
    let ending = behind(first);
    let suffix = rest.iter().fold(ending.as_str(), |common, value| {
        let own = behind(value);
        &common[common.len() - shared(common.chars().rev(), own.chars().rev())..]
    });
    let root = |value: &String| value[prefix.len()..value.len() - suffix.len()].to_owned();
    Values::Individual(Affixed {
        roots: all.iter().map(root).collect(),
        suffix: suffix.to_owned(),
        prefix: prefix.clone(),
    })
}

/// Length in bytes of the common prefix of two character sequences.
fn shared(a: impl Iterator<Item = char>, b: impl Iterator<Item = char>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(hosts: &[(&str, u32)]) -> Assignment {
        let domains = hosts
            .iter()
            .map(|(host, count)| DomainCount { values: vec!["b".into(), (*host).into()], count: *count })
            .collect();
        Assignment { levels: vec!["block".into(), "host".into()], domains }
    }

    #[test]
    fn compressing_takes_off_what_is_common() {
        let compressed = Compressed::from(&assignment(&[("n-1.x", 2), ("n-2.x", 2), ("n-17.x", 2)]));
        let affixed = Affixed {
            prefix: "n-".into(),
            suffix: ".x".into(),
            roots: vec!["1".into(), "2".into(), "17".into()],
        };
        let values_per_level = vec![Values::Universal("b".into()), Values::Individual(affixed)];
        let expect = Slice { domain_count: 3, values_per_level, pod_counts: Counts::Universal(2) };
        assert_eq!(compressed.slices, [expect]);
    }

    #[test]
    fn what_is_compressed_expands_again() {
        for hosts in [
            vec![],
            vec![("a", 1)],
            vec![("ababa", 1), ("aba", 2)],
            vec![("ä1", 1), ("ö1", 1)],
            vec![("x", 3), ("x1", 3), ("1x", 4)],
        ] {
            let whole = assignment(&hosts);
            assert_eq!(Assignment::try_from(&Compressed::from(&whole)), Ok(whole));
        }
    }

    #[test]
    fn what_is_short_of_values_is_refused() {
        let whole = Compressed::from(&assignment(&[("a", 1), ("b", 2)]));
        let check = |change: fn(&mut Slice)| {
            let mut broken = whole.clone();
            change(&mut broken.slices[0]);
            assert_eq!(Assignment::try_from(&broken), Err(Incomplete { slice: 0 }));
        };
        check(|slice| slice.domain_count = 3);
        check(|slice| slice.domain_count = u32::MAX);
        check(|slice| slice.values_per_level.clear());
        check(|slice| slice.pod_counts = Counts::Individual(vec![1]));
    }
}

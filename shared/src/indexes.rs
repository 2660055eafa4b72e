//! Completion indexes of a job, as ranges.
//!
//! The text form is that of `status.completedIndexes` of a Kubernetes Job, such as `0-3,5`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most ranges of one set. Indexes start in order, so a set has about as many gaps as pods run at once. An
/// index that would need a further range is omitted, and runs again in the next attempt.
pub const RANGES_MAX: usize = 24;

/// A set of completion indexes. Ranges are sorted, and neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of indexes.
    pub fn len(&self) -> u32 {
        self.0.iter().fold(0, |sum: u32, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    pub fn contains(&self, index: u32) -> bool {
        self.first_missing(index) != index
    }

    /// The first index from `from` on that isn't in the set.
    pub fn first_missing(&self, from: u32) -> u32 {
        let at = self.0.partition_point(|(_, last)| *last < from);
        self.0.get(at).filter(|(first, _)| *first <= from).map_or(from, |(_, last)| last.saturating_add(1))
    }

    /// Adds an index, unless the set then has more than [`RANGES_MAX`] ranges.
    pub fn insert(&mut self, index: u32) {
        let at = self.0.partition_point(|(_, last)| last.saturating_add(1) < index);
        let has_room = self.0.len() < RANGES_MAX;
        match self.0.get_mut(at) {
            Some((first, last)) if *first <= index.saturating_add(1) => {
                (*first, *last) = ((*first).min(index), (*last).max(index));
                self.join(at);
            }
            _ if has_room => self.0.insert(at, (index, index)),
            _ => {}
        }
    }

    /// Joins the range at `at` with the next one if they touch.
    fn join(&mut self, at: usize) {
        let last = self.0[at].1;
        if let Some((_, end)) =
            self.0.get(at + 1).copied().filter(|(first, _)| *first <= last.saturating_add(1))
        {
            self.0[at].1 = end;
            self.0.remove(at + 1);
        }
    }

    /// Union of both sets, with at most [`RANGES_MAX`] ranges.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all: Vec<(u32, u32)> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        Self::of_sorted(all)
    }

    /// The indexes below `limit`.
    #[must_use]
    pub fn below(&self, limit: u32) -> Self {
        let below = self.0.iter().filter(|(first, _)| *first < limit);
        Self(below.map(|(first, last)| (*first, (*last).min(limit.saturating_sub(1)))).collect())
    }

    /// Number of indexes from `from` to `limit`, without `limit`.
    pub fn count_between(&self, from: u32, limit: u32) -> u32 {
        self.below(limit).len().saturating_sub(self.below(from).len())
    }

    fn of_sorted(all: Vec<(u32, u32)>) -> Self {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for (first, last) in all {
            match ranges.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
                _ => ranges.push((first, last)),
            }
        }
        ranges.truncate(RANGES_MAX);
        Self(ranges)
    }

    /// Most bytes of the text.
    pub fn weight(&self) -> usize {
        // Two numbers of ten digits, a hyphen and a comma.
        22 * self.0.len()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl From<Indexes> for String {
    fn from(indexes: Indexes) -> Self {
        indexes.to_string()
    }
}

impl FromStr for Indexes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |part: &str| part.parse::<u32>().map_err(|_| format!("`{text}` is not a list of indexes"));
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => Ok((number(first)?, number(last)?)),
            None => number(part).map(|index| (index, index)),
        };
        let mut all =
            text.split(',').filter(|part| !part.is_empty()).map(range).collect::<Result<Vec<_>, _>>()?;
        all.retain(|(first, last)| first <= last);
        all.sort_unstable();
        Ok(Self::of_sorted(all))
    }
}

impl TryFrom<String> for Indexes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_behaves_like_a_set_and_writes_kubernetes_ranges() {
        let mut seed = 1;
        for _ in 0..200 {
            let (mut known, mut indexes) = (BTreeSet::new(), Indexes::default());
            for _ in 0..20 {
                seed = crate::backoff::splitmix(seed);
                let index = u32::try_from(seed % 30).unwrap();
                known.insert(index);
                indexes.insert(index);
                assert_eq!(indexes.len() as usize, known.len(), "{indexes}");
            }
            for index in 0..31 {
                assert_eq!(indexes.contains(index), known.contains(&index), "{index} in {indexes}");
                let below = known.iter().filter(|known| **known < index).count();
                assert_eq!(indexes.below(index).len() as usize, below);
                let missing = (index..).find(|index| !known.contains(index)).unwrap();
                assert_eq!(indexes.first_missing(index), missing);
            }
            assert_eq!(indexes.to_string().parse::<Indexes>().unwrap(), indexes);
            assert_eq!(indexes.below(11).union(&indexes), indexes);
        }
        let indexes: Indexes = "0-3,5,7,8".parse().unwrap();
        assert_eq!((indexes.to_string(), indexes.len()), ("0-3,5,7,8".to_owned(), 7));
        assert_eq!(indexes.count_between(3, 8), 3);
        assert!("1-x".parse::<Indexes>().is_err());
    }

    #[test]
    fn ranges_are_bounded() {
        let mut indexes = Indexes::default();
        (0..1_000).for_each(|n| indexes.insert(2 * n));
        assert_eq!(indexes.len() as usize, RANGES_MAX);
        assert!(indexes.to_string().len() <= indexes.weight());
        indexes.insert(1);
        assert!(indexes.contains(1), "it joins two ranges");
    }
}

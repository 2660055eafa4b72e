//! Dominant resource shares: what a node has borrowed, relative to what it could borrow and to its weight.

use crate::amount::Amount;
use crate::names::ResourceId;
use crate::quota::WEIGHT_ONE;
use std::cmp::Ordering;

/// The share of a node. Borrowing with weight zero exceeds any other share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Thousandths of the lendable amount, before applying the weight.
    pub ratio: f64,
    /// Weight in billionths.
    pub weight: i64,
    /// The resource that determines the share.
    pub dominant: Option<ResourceId>,
    /// Whether anything is borrowed.
    pub borrowing: bool,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shares are ratios; a ratio of amounts beyond 2^53 loses nothing that a person could see"
)]
fn float(value: i64) -> f64 {
    value as f64
}

impl Share {
    /// The share of a node that borrows nothing.
    pub fn none(weight: i64) -> Self {
        Self { ratio: 0.0, weight, dominant: None, borrowing: false }
    }

    pub fn of_ratio(ratio: f64, weight: i64) -> Self {
        Self { ratio, weight, dominant: None, borrowing: ratio > 0.0 }
    }

    /// Includes one resource. On a tie the one with the lower id is dominant.
    pub(crate) fn consider(&mut self, resource: ResourceId, borrowed: Amount, lendable: Amount) {
        if borrowed <= Amount::ZERO {
            return;
        }
        self.borrowing = true;
        if lendable > Amount::ZERO {
            let ratio = float(borrowed.0) * 1000.0 / float(lendable.0);
            if ratio > self.ratio
                || (ratio == self.ratio && self.dominant.is_some_and(|other| resource < other))
            {
                (self.ratio, self.dominant) = (ratio, Some(resource));
            }
        }
    }

    /// Whether the node borrows with weight zero.
    pub fn is_infinite(&self) -> bool {
        self.weight == 0 && self.ratio != 0.0
    }

    /// The share divided by the weight.
    pub fn weighted(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0 {
            f64::INFINITY
        } else {
            self.ratio / (float(self.weight) / float(WEIGHT_ONE))
        }
    }

    /// The weighted share, rounded up.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float beyond the range becomes the largest number, as intended"
    )]
    pub fn rounded(&self) -> i64 {
        if self.is_infinite() { i64::MAX } else { self.weighted().ceil() as i64 }
    }

    pub fn order(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            // Neither is NaN, and zero is never negative.
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of a node by what it borrowed of each resource, and what it could borrow.
    fn share(parts: &[(u32, i64, i64)]) -> Share {
        let mut share = Share::none(WEIGHT_ONE);
        for (resource, borrowed, lendable) in parts {
            share.consider(ResourceId(*resource), Amount(*borrowed), Amount(*lendable));
        }
        share
    }

    #[test]
    fn the_largest_ratio_is_dominant_and_on_a_tie_the_lower_id() {
        let dominant = |parts| {
            let Share { ratio, dominant, .. } = share(parts);
            (ratio, dominant.map(|resource| resource.0))
        };
        assert_eq!(dominant(&[(1, 3, 10), (0, 2, 10)]), (300.0, Some(1)));
        assert_eq!(dominant(&[(0, 2, 10), (1, 3, 10)]), (300.0, Some(1)));
        assert_eq!(dominant(&[(1, 3, 10), (0, 6, 20)]), (300.0, Some(0)));
        assert_eq!(dominant(&[(0, 6, 20), (1, 3, 10)]), (300.0, Some(0)));
    }

    #[test]
    fn what_nobody_lends_has_no_ratio() {
        assert_eq!(share(&[(0, 3, 0)]), Share { borrowing: true, ..Share::none(WEIGHT_ONE) });
        assert_eq!(share(&[(0, 0, 9), (1, -1, 9)]), Share::none(WEIGHT_ONE));
    }

    #[test]
    fn borrowing_with_weight_zero_exceeds_every_other_share() {
        let (unlimited, more, finite) =
            (Share::of_ratio(1.0, 0), Share::of_ratio(2.0, 0), Share::of_ratio(1e12, 1));
        assert!(unlimited.is_infinite() && !finite.is_infinite());
        assert_eq!(unlimited.order(&finite), Ordering::Greater);
        assert_eq!(finite.order(&unlimited), Ordering::Less);
        assert_eq!(unlimited.order(&more), Ordering::Less);
    }
}

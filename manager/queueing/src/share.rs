//! Dominant resource shares: how much of what could be lent a node has borrowed, by its weight.

use crate::amount::Amount;
use crate::names::ResourceId;
use crate::tree::WEIGHT_ONE;
use std::cmp::Ordering;

/// A node's share. Borrowing with the weight zero is worse than any other share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Thousandths of what could be lent, before the weight.
    pub ratio: f64,
    /// Weight in billionths.
    pub weight: i64,
    /// The resource that decides.
    pub dominant: Option<ResourceId>,
    /// Whether anything is borrowed at all.
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
    /// Nothing borrowed.
    pub fn none(weight: i64) -> Self {
        Self { ratio: 0.0, weight, dominant: None, borrowing: false }
    }

    /// A share of a given ratio.
    pub fn of_ratio(ratio: f64, weight: i64) -> Self {
        Self { ratio, weight, dominant: None, borrowing: ratio > 0.0 }
    }

    /// Below every share that a node can have.
    pub fn below_all() -> Self {
        Self { ratio: -1.0, ..Self::none(WEIGHT_ONE) }
    }

    /// Takes one resource into account. Of equals the one that was named first decides.
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

    /// Whether it borrows although it has no weight.
    pub fn is_infinite(&self) -> bool {
        self.weight == 0 && self.ratio != 0.0
    }

    /// The share by weight, exact.
    pub fn weighted(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0 {
            f64::INFINITY
        } else {
            self.ratio / (float(self.weight) / float(WEIGHT_ONE))
        }
    }

    /// The share by weight as a whole number, rounded up.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float beyond the range becomes the largest number, which is meant"
    )]
    pub fn rounded(&self) -> i64 {
        if self.is_infinite() { i64::MAX } else { self.weighted().ceil() as i64 }
    }

    /// Which is larger.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            // Neither is ever not a number; zero is never negative.
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }
}

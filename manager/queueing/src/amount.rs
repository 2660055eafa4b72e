//! Amounts, limited or unlimited.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};

/// An amount in base units. The largest value means "unlimited"; sums and differences keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Amount(pub i64);

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const UNLIMITED: Self = Self(i64::MAX);

    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// The amount, but at least zero.
    pub fn floor(self) -> Self {
        self.max(Self::ZERO)
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // Saturation alone would not keep "unlimited" when a negative amount is added.
        if self.is_unlimited() || other.is_unlimited() {
            Self::UNLIMITED
        } else {
            Self(self.0.saturating_add(other.0))
        }
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self(i64::MIN),
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("unlimited") } else { write!(f, "{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_without_limit_stays_so() {
        let (five, all) = (Amount(5), Amount::UNLIMITED);
        assert_eq!(all + Amount(-5), all);
        assert_eq!(five + all, all);
        assert_eq!(all - five, all);
        assert_eq!(all - all, Amount::ZERO);
        assert_eq!(five - all, Amount(i64::MIN));
        assert_eq!(Amount(i64::MAX - 1) + five, all);
        assert_eq!((five - Amount(7)).floor(), Amount::ZERO);
    }
}

//! Exact decimals, for products and sums that must not be rounded on the way.

use super::{Error, MILLI, NANO, Parts, scale, text_of};
use meridian_shared::quantity::is_milli;
use serde_json::Value;

/// An exact decimal number. A result that is too large becomes the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal {
    mantissa: i128,
    /// Digits behind the point; the last of them is never zero.
    decimals: u32,
}

impl Decimal {
    /// A quantity for any resource; finer than a billionth is rounded away from zero. Fails like
    /// [`super::parse`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let nano = Parts::of(text)?.scaled(NANO).ok_or_else(|| Error::TooLarge(text.to_owned()))?;
        Ok(Self::new(nano, NANO.unsigned_abs()))
    }

    /// A JSON string or number. Fails like [`super::parse`].
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        Self::parse(&text_of(value)?)
    }

    /// The amount, given in base units of `resource`.
    pub fn from_base(resource: &str, amount: i64) -> Self {
        Self::new(i128::from(amount), if is_milli(resource) { MILLI.unsigned_abs() } else { 0 })
    }

    /// The amount in base units of `resource`, rounded away from zero; limited to the range of `i64`.
    pub fn to_base(self, resource: &str) -> i64 {
        let power = if is_milli(resource) { MILLI } else { 0 }
            - i32::try_from(self.decimals).expect("a few products of nine places each");
        let amount = scale(self.mantissa.saturating_abs(), power).unwrap_or(i128::MAX);
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        if self.mantissa < 0 { -amount } else { amount }
    }

    #[must_use]
    pub fn times(self, other: Self) -> Self {
        match self.mantissa.checked_mul(other.mantissa) {
            Some(mantissa) => Self::new(mantissa, self.decimals + other.decimals),
            None => Self::largest(self.is_negative() != other.is_negative()),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let decimals = self.decimals.max(other.decimals);
        let (Some(a), Some(b)) = (self.widened(decimals), other.widened(decimals)) else {
            // The last digits of the smaller number don't matter for a number this large.
            return if self.mantissa.unsigned_abs() > other.mantissa.unsigned_abs() { self } else { other };
        };
        a.checked_add(b).map_or_else(|| Self::largest(a < 0), |sum| Self::new(sum, decimals))
    }

    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    fn new(mut mantissa: i128, mut decimals: u32) -> Self {
        while decimals > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            decimals -= 1;
        }
        Self { mantissa, decimals }
    }

    const fn largest(negative: bool) -> Self {
        Self { mantissa: if negative { -i128::MAX } else { i128::MAX }, decimals: 0 }
    }

    fn widened(self, decimals: u32) -> Option<i128> {
        self.mantissa.checked_mul(10_i128.checked_pow(decimals - self.decimals)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_sums_are_exact() {
        let number = |text: &str| Decimal::parse(text).unwrap();
        assert_eq!(number("0.1").plus(number("200m")), number("300m"));
        assert_eq!(number("500m").times(number("2")).to_base("cpu"), 1_000);
        assert_eq!(number("500m").times(number("1n")).to_base("cpu"), 1, "rounded away from zero");
        assert_eq!(number("-500m").times(number("1n")).to_base("memory"), -1);
        assert_eq!(number("1Ti").times(number("8")).times(number("0.5")).to_base("memory"), 4 << 40);
        assert_eq!(Decimal::from_base("cpu", 1_500).to_base("memory"), 2);
        assert_eq!(number("1.5").plus(number("-1.5")), Decimal::default());
    }

    #[test]
    fn results_beyond_the_range_are_the_largest_number() {
        let big = Decimal::parse("9E").unwrap();
        let huge = big.times(big).times(big);
        assert_eq!(huge.to_base("cpu"), i64::MAX);
        assert_eq!(huge.times(Decimal::parse("-1").unwrap()).times(big).to_base("cpu"), -i64::MAX);
        assert_eq!(
            huge.plus(Decimal::parse("1n").unwrap()).plus(huge).plus(huge).to_base("memory"),
            i64::MAX
        );
        assert!(Decimal::parse("1e40").is_err() && Decimal::parse("x").is_err());
        assert!(Decimal::from_json(&serde_json::json!([])).is_err());
    }
}

//! Kubernetes quantities in a fleet file: `8`, `500m`, `64Gi`, `1.5`, `1e3`; a number or a string.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;

/// Most digits of an amount; keeps the arithmetic within 128 bits.
const DIGITS_MAX: usize = 24;
/// Largest exponent; a larger amount exceeds `i64` anyway.
const EXPONENT_MAX: u32 = 30;

/// An amount in thousandths, exact or rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity(i128);

impl Quantity {
    /// In thousandths, as `cpu` is counted.
    pub(super) fn thousandths(self) -> Option<i64> {
        i64::try_from(self.0).ok()
    }

    /// In ones or bytes, rounded up.
    pub(super) fn ones(self) -> Option<i64> {
        i64::try_from((self.0 + 999).div_euclid(1_000)).ok()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bad =
            || format!("`{text}` is not a quantity: write a number such as `8`, `500m`, `64Gi` or `1.5`");
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || number.len() > DIGITS_MAX || fraction.contains('.') {
            return Err(bad());
        }
        let digits: i128 = format!("{whole}{fraction}").parse().map_err(|_| bad())?;
        let (numerator, denominator) = scale(suffix).ok_or_else(bad)?;
        let divisor = 10_i128
            .pow(u32::try_from(fraction.len()).map_err(|_| bad())?)
            .checked_mul(denominator)
            .ok_or_else(bad)?;
        let thousandths = digits.checked_mul(numerator).and_then(|n| n.checked_mul(1_000)).ok_or_else(bad)?;
        Ok(Self((thousandths + divisor - 1).div_euclid(divisor)))
    }
}

/// The factor of a suffix, as numerator and denominator.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "" => (1, 1),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            match exponent.strip_prefix('-') {
                Some(down) => (1, 10_i128.checked_pow(down.parse().ok().filter(|e| *e <= EXPONENT_MAX)?)?),
                None => (
                    10_i128.checked_pow(
                        exponent.trim_start_matches('+').parse().ok().filter(|e| *e <= EXPONENT_MAX)?,
                    )?,
                    1,
                ),
            }
        }
    })
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;
        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 8, 500m or 64Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(i128::from(number) * 1_000))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                u64::try_from(number)
                    .map_err(|_| E::custom(format!("`{number}` is negative")))
                    .and_then(|n| self.visit_u64(n))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        d.deserialize_any(QuantityVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_as_in_kubernetes() {
        for (text, thousandths) in [
            ("8", 8_000),
            ("500m", 500),
            ("1.5", 1_500),
            (".5", 500),
            ("64Gi", 64 * (1_i64 << 30) * 1_000),
            ("1e3", 1_000_000),
            ("1e-3", 1),
            ("1E+2", 100_000),
            ("1n", 1),
            ("2k", 2_000_000),
            ("0", 0),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().thousandths(), Some(thousandths), "{text}");
        }
        assert_eq!(Quantity::parse("1500m").unwrap().ones(), Some(2));
        for bad in ["", ".", "-1", "1.2.3", "5 Gi", "5GiB", "1e99", "9999999999999999999999999", "Gi"] {
            assert!(Quantity::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Quantity::parse("999999999999999999Pi").map(Quantity::ones), Ok(None));
    }
}

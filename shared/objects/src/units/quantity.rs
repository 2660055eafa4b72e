//! Kubernetes quantities (`100m`, `10000Gi`, `1e3`, `0.5`) as whole base units, and back.
//!
//! A quantity is an exact decimal times a power of ten or of 1024. The base unit is a thousandth of a core
//! for `cpu`, and one (a byte, a device, a pod) for everything else. Fractions of a base unit are rounded
//! away from zero, as in Kubernetes, so a request is never rounded down. No floats are used.

mod decimal;

use super::json::type_name;
use serde_json::Value;

pub use self::decimal::Decimal;
pub use meridian_shared::quantity::format;

use meridian_shared::quantity::is_milli;

/// Decimal places of a thousandth.
const MILLI: i32 = 3;

/// Decimal places of a billionth, the finest unit of Kubernetes.
const NANO: i32 = 9;

/// Most digits of a quantity without leading and trailing zeros: more than any real amount, and within an
/// `i128`.
const MAX_DIGITS: usize = 30;

/// Longest quantity text, in bytes.
const MAX_TEXT_BYTES: usize = 128;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not a quantity")]
    Malformed(String),
    #[error("`{0}` has the unknown suffix `{1}`")]
    Suffix(String, String),
    #[error("`{0}` is too large")]
    TooLarge(String),
    #[error("`{0}` has too many digits")]
    TooManyDigits(String),
    #[error("must be a quantity, not {0}")]
    WrongType(&'static str),
}

impl Error {
    /// Value to write instead.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::WrongType(_) => {
                "write a number with an optional suffix, such as `4`, `100m`, `0.5` or `16Gi`"
            }
            Self::Suffix(..) => "the suffixes are n, u, m, k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei",
            Self::TooLarge(_) => "write less than 2^63 base units (thousandths for cpu)",
            Self::TooManyDigits(_) => "write at most 30 digits",
        }
    }
}

#[derive(Clone, Copy)]
enum Factor {
    Ten(i32),
    Two(u32),
}

/// A parsed quantity: `mantissa` times ten to `power`.
struct Parts {
    negative: bool,
    mantissa: i128,
    power: i32,
}

impl Parts {
    fn of(text: &str) -> Result<Self, Error> {
        let malformed = || Error::Malformed(text.chars().take(MAX_TEXT_BYTES).collect());
        if text.len() > MAX_TEXT_BYTES || !text.is_ascii() {
            return Err(malformed());
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let factor = factor(suffix).ok_or_else(|| Error::Suffix(text.to_owned(), suffix.to_owned()))?;

        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.len() > MAX_DIGITS {
            return Err(Error::TooManyDigits(text.to_owned()));
        }
        let mantissa = digits.bytes().fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
        let decimals = i32::try_from(fraction.len()).map_err(|_| malformed())?;
        match factor {
            Factor::Ten(power) => Ok(Self { negative, mantissa, power: power - decimals }),
            Factor::Two(power) => {
                let mantissa =
                    mantissa.checked_mul(1_i128 << power).ok_or_else(|| Error::TooLarge(text.to_owned()))?;
                Ok(Self { negative, mantissa, power: -decimals })
            }
        }
    }

    /// The value in units of ten to minus `decimals`, rounded away from zero; `None` if it doesn't fit.
    fn scaled(&self, decimals: i32) -> Option<i128> {
        scale(self.mantissa, self.power + decimals).map(|amount| if self.negative { -amount } else { amount })
    }
}

/// The amount in base units of `resource`. Fails for a text that is no quantity or is out of range.
pub fn parse(resource: &str, text: &str) -> Result<i64, Error> {
    let parts = Parts::of(text)?;
    let amount = parts.scaled(if is_milli(resource) { MILLI } else { 0 });
    // The smallest number has no positive counterpart, and no amount needs it.
    amount
        .and_then(|amount| i64::try_from(amount).ok())
        .filter(|amount| *amount != i64::MIN)
        .ok_or_else(|| Error::TooLarge(text.to_owned()))
}

/// A JSON string or number in billionths. Fails like [`parse`].
pub fn nano_from_json(value: &Value) -> Result<i128, Error> {
    let text = text_of(value)?;
    Parts::of(&text)?.scaled(NANO).ok_or(Error::TooLarge(text))
}

fn text_of(value: &Value) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(Error::WrongType(type_name(other))),
    }
}

/// A JSON string or number in base units of `resource`. Fails like [`parse`].
pub fn from_json(resource: &str, value: &Value) -> Result<i64, Error> {
    parse(resource, &text_of(value)?)
}

/// The usual text of a number of billionths. Parsing the text gives the same number.
pub fn format_nano(nano: i128) -> String {
    let scales = [(1_000_000_000, ""), (1_000_000, "m"), (1_000, "u")];
    let (unit, suffix) = scales.into_iter().find(|(unit, _)| nano % unit == 0).unwrap_or((1, "n"));
    format!("{}{suffix}", nano / unit)
}

fn factor(suffix: &str) -> Option<Factor> {
    Some(match suffix {
        "" => Factor::Ten(0),
        "n" => Factor::Ten(-9),
        "u" => Factor::Ten(-6),
        "m" => Factor::Ten(-3),
        "k" => Factor::Ten(3),
        "M" => Factor::Ten(6),
        "G" => Factor::Ten(9),
        "T" => Factor::Ten(12),
        "P" => Factor::Ten(15),
        "E" => Factor::Ten(18),
        "Ki" => Factor::Two(10),
        "Mi" => Factor::Two(20),
        "Gi" => Factor::Two(30),
        "Ti" => Factor::Two(40),
        "Pi" => Factor::Two(50),
        "Ei" => Factor::Two(60),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // An exponent too long to parse has the same effect as the largest one.
            let power = unsigned.parse::<i32>().unwrap_or(i32::MAX / 4).min(i32::MAX / 4);
            Factor::Ten(if digits.starts_with('-') { -power } else { power })
        }
    })
}

/// `mantissa` times ten to `power`, rounded up; `None` when it does not fit.
fn scale(mantissa: i128, power: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    let ten = 10_i128.checked_pow(power.unsigned_abs());
    if power >= 0 {
        return mantissa.checked_mul(ten?);
    }
    // A power that overflows is larger than any mantissa, so the quotient is below one and is rounded up.
    Some(ten.map_or(1, |ten| (mantissa + ten - 1) / ten))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn billionths_are_written_as_they_are_read() {
        for (nano, text) in [
            (0, "0"),
            (2_000_000_000, "2"),
            (1_500_000_000, "1500m"),
            (7_000, "7u"),
            (1_000_000_001, "1000000001n"),
        ] {
            assert_eq!(format_nano(nano), text);
            assert_eq!(nano_from_json(&json!(text)), Ok(nano));
        }
    }

    #[test]
    fn reads_what_kubernetes_reads() {
        let check = |resource: &str, text: &str, expect: i64| {
            assert_eq!(parse(resource, text), Ok(expect), "{resource} {text}")
        };
        check("cpu", "100m", 100);
        check("cpu", "0.5", 500);
        check("cpu", "1", 1_000);
        check("cpu", "1e3", 1_000_000);
        check("cpu", "0.0001", 1);
        check("cpu", "1.0005", 1_001);
        check("cpu", "1n", 1);
        check("cpu", "10000", 10_000_000);
        check("memory", "10000Gi", 10_000 << 30);
        check("memory", "1.5Ki", 1_536);
        check("memory", "0.1Ki", 103);
        check("memory", "100M", 100_000_000);
        check("memory", "1E", 1_000_000_000_000_000_000);
        check("memory", "1E3", 1_000);
        check("memory", "100m", 1);
        check("memory", "0Mi", 0);
        check("memory", "9223372036854775807", i64::MAX);
        check("nvidia.com/gpu", "8", 8);
        check("nvidia.com/gpu", ".5", 1);
        check("nvidia.com/gpu", "5.", 5);
        check("nvidia.com/gpu", "+3", 3);
        check("nvidia.com/gpu", "-3", -3);
        check("cpu", "-1.0005", -1_001);
        check("x", "1e-99999999999999999999", 1);
        check("x", "0e99999999999999999999", 0);
        check("x", "000000000000000000000000000000000000000000001.000000000000000000000000000000", 1);
    }

    #[test]
    fn refuses_other_texts() {
        let check = |text: &str, expect: fn(&Error) -> bool| {
            let error = parse("memory", text).unwrap_err();
            assert!(expect(&error), "{text}: {error:?}");
        };
        for text in ["", "-", "+", ".", "1.2.3", "--1", "Gi", "m", "ein", "１", &"1".repeat(200)] {
            check(text, |e| matches!(e, Error::Malformed(_)));
        }
        for text in ["1KB", "1 Gi", "1gi", "1e", "1e+", "1e3Gi", "1mm", "1x"] {
            check(text, |e| matches!(e, Error::Suffix(..)));
        }
        for text in ["8Ei", "1e19", "9223372036854775808", "1e99999999999999999999"] {
            check(text, |e| matches!(e, Error::TooLarge(_)));
        }
        check("1234567890123456789012345678901", |e| matches!(e, Error::TooManyDigits(_)));
        assert!(parse("cpu", "9223372036854775807").is_err());
        assert!(from_json("cpu", &json!(true)).is_err() && from_json("cpu", &json!(null)).is_err());
    }

    #[test]
    fn numbers_are_quantities() {
        assert_eq!(from_json("cpu", &json!(2)), Ok(2_000));
        assert_eq!(from_json("cpu", &json!(0.1)), Ok(100));
        assert_eq!(from_json("memory", &json!(1e3)), Ok(1_000));
        assert!(from_json("memory", &json!(1e22)).is_err());
    }

    #[test]
    fn writes_what_it_reads() {
        let check = |resource: &str, amount: i64, expect: &str| {
            assert_eq!(format(resource, amount), expect);
            assert_eq!(parse(resource, expect), Ok(amount));
        };
        check("cpu", 100, "100m");
        check("cpu", 2_000, "2");
        check("cpu", -1_500, "-1500m");
        check("memory", 10_000 << 30, "10000Gi");
        check("memory", 1_000, "1000");
        check("memory", 0, "0");
        check("memory", 1 << 60, "1Ei");
        check("memory", -2048, "-2Ki");
        check("nvidia.com/gpu", 10_000, "10000");
        check("hugepages-2Mi", 4 << 20, "4Mi");
        for amount in (0..200).map(|i| i * 77_777_777) {
            for resource in ["cpu", "memory", "nvidia.com/gpu"] {
                assert_eq!(parse(resource, &format(resource, amount)), Ok(amount));
            }
        }
    }
}

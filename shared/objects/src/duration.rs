//! Lengths of time as people write them: `15m`, `2h`, `90s`, `1h30m`.

use crate::field::Fields;
use jiff::SignedDuration;
use meridian_shared::time::Millis;

/// Longest duration a field takes: a year. More is a slip, and sums of two must not overflow anything.
const MAX_DURATION: Millis = Millis::mins(366 * 24 * 60);

impl Fields<'_> {
    /// A positive duration.
    pub(crate) fn duration(&self, name: &'static str) -> Option<Millis> {
        let item = self.get(name)?;
        let text = item.text()?;
        match parse(text) {
            Some(millis) if millis > Millis(0) && millis <= MAX_DURATION => Some(millis),
            Some(millis) if millis > MAX_DURATION => {
                item.error(format!("`{text}` is too long"), "the most is `8784h`, a year");
                None
            }
            _ => {
                item.error(
                    format!("`{text}` is not a duration"),
                    "write a positive number with a unit, such as `90s`, `15m` or `2h`",
                );
                None
            }
        }
    }
}

/// A length of time that isn't negative.
pub fn parse(text: &str) -> Option<Millis> {
    let duration: SignedDuration = text.parse().ok()?;
    u64::try_from(duration.as_millis()).ok().map(Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        let check = |text: &str, expect: Option<Millis>| assert_eq!(parse(text), expect, "{text}");
        check("15m", Some(Millis::mins(15)));
        check("2h", Some(Millis::mins(120)));
        check("90s", Some(Millis::secs(90)));
        check("1h30m", Some(Millis::mins(90)));
        check("250ms", Some(Millis(250)));
        check("0s", Some(Millis(0)));
        for bad in ["", "15", "-5m", "m", "15 parsecs", "1e3s"] {
            check(bad, None);
        }
    }
}

//! Durations in users' notation: `15m`, `2h`, `90s`, `1h30m`.

use jiff::SignedDuration;
use meridian_shared::time::Millis;

/// Parses a duration that isn't negative; `None` for any other text.
pub fn parse(text: &str) -> Option<Millis> {
    let duration: SignedDuration = text.parse().ok()?;
    u64::try_from(duration.as_millis()).ok().map(Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_users_write_them() {
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

//! Durations as `kubectl` writes ages: one or two units, coarser the longer they are.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time from `then` (RFC 3339) to `now`; empty if `then` is not a timestamp.
pub(crate) fn since(then: &str, now: Timestamp) -> String {
    then.parse::<Timestamp>().map(|then| short(now.duration_since(then))).unwrap_or_default()
}

/// A duration with the thresholds of `k8s.io/apimachinery/pkg/util/duration`. A negative one reads `0s`.
pub(crate) fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let two = |big: i64, unit: char, small: i64, small_unit: char| {
        let (whole, rest) = (seconds / big, seconds % big / small);
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{small_unit}") }
    };
    match seconds {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        _ => two(YEAR, 'y', DAY, 'd'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_durations_have_coarser_units() {
        let check =
            |seconds: i64, expect: &str| assert_eq!(short(SignedDuration::from_secs(seconds)), expect);
        check(-5, "0s");
        check(119, "119s");
        check(120, "2m");
        check(185, "3m5s");
        check(11 * MINUTE, "11m");
        check(3 * HOUR + 5 * MINUTE, "3h5m");
        check(25 * HOUR, "25h");
        check(3 * DAY + HOUR, "3d1h");
        check(100 * DAY, "100d");
        check(3 * YEAR + DAY, "3y1d");
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        assert_eq!(since("2026-11-21T09:59:30Z", now), "30s");
        assert_eq!(since("yesterday", now), "");
    }
}

//! Short texts of ages, for a column of a table.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A number of seconds in Kubernetes' form of ages (`duration.HumanDuration`): two units if the larger number
/// is small, else one. A negative number is `0s`.
pub fn format(seconds: i64) -> String {
    let two = |s: i64, large: i64, large_unit: char, small: i64, small_unit: char| match s % large / small {
        0 => format!("{}{large_unit}", s / large),
        rest => format!("{}{large_unit}{rest}{small_unit}", s / large),
    };
    match seconds.max(0) {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s, MINUTE, 'm', 1, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s, HOUR, 'h', MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s, DAY, 'd', HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s, YEAR, 'y', DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

/// The time from `then`, in the form of objects (RFC 3339), to `now`; `None` if `then` isn't a time.
pub fn since(then: &str, now: Timestamp) -> Option<String> {
    then.parse::<Timestamp>().ok().map(|then| format(now.duration_since(then).as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubernetes_writes_them() {
        for (seconds, expect) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (660, "11m"),
            (3_600, "60m"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (200_000, "2d7h"),
            (864_000, "10d"),
            (63_072_000, "2y"),
            (94_694_400, "3y1d"),
            (400_000_000, "12y"),
        ] {
            assert_eq!(format(seconds), expect, "{seconds}");
        }
    }

    #[test]
    fn ages_count_from_a_moment() {
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        assert_eq!(since("2026-11-21T09:59:30Z", now).as_deref(), Some("30s"));
        assert_eq!(since("yesterday", now), None);
    }
}

//! Times in Kubernetes' form: RFC 3339 in UTC.

use crate::time::Wall;

/// A `Time` of Kubernetes: whole seconds.
pub fn timestamp(at: Wall) -> String {
    // Civil date from days (Howard Hinnant, chrono-compatible low-level date algorithms).
    let (secs, days) = (at.0.div_euclid(1_000), at.0.div_euclid(86_400_000));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let time = secs.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3_600, time / 60 % 60, time % 60)
}

/// A `MicroTime` of Kubernetes: six digits below the second.
pub fn micro_timestamp(at: Wall) -> String {
    format!("{}.{:03}000Z", timestamp(at).trim_end_matches('Z'), at.0.rem_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339() {
        assert_eq!(timestamp(Wall(0)), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(Wall(951_782_400_000)), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(Wall(1_795_219_199_999)), "2026-11-20T23:59:59Z");
        assert_eq!(timestamp(Wall(-1)), "1969-12-31T23:59:59Z");
        assert_eq!(micro_timestamp(Wall(1_795_219_199_009)), "2026-11-20T23:59:59.009000Z");
        assert_eq!(micro_timestamp(Wall(-1)), "1969-12-31T23:59:59.999000Z");
    }
}

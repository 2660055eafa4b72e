use meridian_shared::ids::RecordNumber;
use meridian_shared::time::Wall;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Kueue's name of a job's workload: `job-NAME-` and five characters that tell submissions of one name apart.
pub fn workload_name(job: &str, submitted: RecordNumber) -> Arc<str> {
    let mixed = meridian_shared::backoff::splitmix(submitted.0);
    Arc::from(format!("job-{job}-{:05x}", mixed & 0xf_ffff))
}

/// RFC 3339, in seconds, as Kubernetes writes times.
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

/// RFC 3339 with what is known below the second, as Kubernetes writes a `MicroTime`.
pub fn micro_timestamp(at: Wall) -> String {
    format!("{}.{:03}000Z", timestamp(at).trim_end_matches('Z'), at.0.rem_euclid(1_000))
}

pub(crate) fn metadata(value: &mut Value) -> &mut Map<String, Value> {
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    value["metadata"].as_object_mut().expect("made an object above")
}

pub(crate) fn condition(kind: &str, is: bool, reason: &str, message: &str, at: Wall) -> Value {
    json!({"conditions": [{"type": kind, "status": if is { "True" } else { "False" }, "reason": reason, "message": message, "lastTransitionTime": timestamp(at)}]})
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

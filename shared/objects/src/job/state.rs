//! What a Job object says about its state, in one word: the same wherever jobs are shown.
//!
//! The manager writes where a job is into `status.meridian`, beside Kubernetes' own conditions and counts. Where that is
//! missing (a job of another program) the state follows from those.

use serde_json::Value;

/// The state: `Finished` or `Failed` once it has ended.
pub fn state(job: &Value) -> &str {
    if is_true(job, "Complete") {
        return "Finished";
    }
    if is_true(job, "Failed") {
        return "Failed";
    }
    let told = job.pointer("/status/meridian/state").and_then(Value::as_str).unwrap_or_default();
    if !told.is_empty() {
        return told;
    }
    if job.pointer("/status/active").and_then(Value::as_u64).is_some_and(|active| active > 0) {
        "Running"
    } else {
        "Pending"
    }
}

fn is_true(job: &Value, condition: &str) -> bool {
    let mut conditions = job.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn how_it_ended_comes_before_where_it_is() {
        let of = |status: Value| state(&json!({"status": status})).to_owned();
        let ended = |kind: &str| json!([{"type": kind, "status": "True"}]);
        assert_eq!(
            of(json!({"conditions": ended("Complete"), "meridian": {"state": "Finished"}})),
            "Finished"
        );
        assert_eq!(of(json!({"conditions": ended("Failed"), "meridian": {"state": "Finished"}})), "Failed");
        assert_eq!(
            of(json!({"conditions": ended("Suspended"), "meridian": {"state": "Running"}})),
            "Running"
        );
        assert_eq!(
            (of(json!({"active": 2})), of(json!({})), of(json!(null))),
            ("Running".into(), "Pending".into(), "Pending".into())
        );
    }
}

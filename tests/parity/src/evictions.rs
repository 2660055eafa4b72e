//! Numbers of evictions (`status.schedulingStats`).

use crate::json::{items, text};
use meridian_objects::spec::WorkloadObject;
use serde_json::Value;
use std::collections::BTreeMap;

/// Evictions by reason and underlying cause.
pub(crate) type Evictions = BTreeMap<(String, String), u64>;

/// The evictions of a workload before the act.
pub(crate) fn past_evictions(workload: &WorkloadObject) -> Evictions {
    let evictions = workload.status.evictions.iter();
    evictions.map(|e| ((e.reason.clone(), e.underlying_cause.clone()), u64::from(e.count))).collect()
}

pub(crate) fn count_eviction(evictions: &mut Evictions, reason: &str) {
    *evictions.entry((reason.to_owned(), String::new())).or_default() += 1;
}

pub(crate) fn expected_evictions(stats: &Value) -> Evictions {
    let key = |e: &Value| (text(&e["reason"]).to_owned(), text(&e["underlyingCause"]).to_owned());
    items(&stats["evictions"]).iter().map(|e| (key(e), e["count"].as_u64().unwrap_or(0))).collect()
}

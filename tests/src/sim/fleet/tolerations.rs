//! The taint of nodes in maintenance, and how long pods tolerate it.

use crate::sim::random::Random;
use crate::sim::scenario::Scenario;
use serde_json::{Value, json};

/// The taint of a node that is about to be taken away.
pub(crate) const TAINT: &str = "example.com/maintenance";

/// Seconds for which the pods of a job tolerate the taint, one entry per toleration; `None` is forever.
///
/// The draw uses a separate random stream, so that other draws don't change.
pub(crate) fn toleration_seconds(scenario: &Scenario, job: &str) -> Vec<Option<i64>> {
    let mut random = Random::new(scenario.seed, &format!("tolerates {job}"));
    if scenario.node_losses.is_none() || !random.permille(500) {
        return Vec::new();
    }
    random
        .pick(&[
            vec![Some(1)],
            vec![Some(2)],
            vec![Some(4)],
            vec![None, Some(3)],
            vec![None],
            vec![Some(0), None],
        ])
        .cloned()
        .unwrap_or_default()
}

/// The tolerations of a pod template.
pub(crate) fn toleration_manifests(seconds: &[Option<i64>]) -> Value {
    let toleration = |seconds: &Option<i64>| match seconds {
        None => json!({"key": TAINT, "operator": "Exists"}),
        Some(seconds) => json!({
            "key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
        }),
    };
    seconds.iter().map(toleration).collect()
}

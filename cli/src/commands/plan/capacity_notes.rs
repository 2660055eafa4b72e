//! Notes about workloads that have quota in a plan, and no nodes at the manager. Plans decide by quota only;
//! the manager knows the clusters' capacity and the state of requests to providers.

use crate::objects::fields::text;
use meridian_planning::report::{Holder, HolderState, PlanReport};
use serde_json::Value;
use std::collections::BTreeMap;

/// Most workloads that are named.
const NAMED_MAX: usize = 5;

/// Why workloads of a manager don't run yet, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct NotRunning(BTreeMap<String, String>);

impl NotRunning {
    /// Takes a workload as the manager's API shows it.
    pub(super) fn add(&mut self, workload: &Value) {
        let name = ["/metadata/namespace", "/metadata/name"].map(|path| text(workload, path)).join("/");
        let why = match text(workload, "/status/meridian/state") {
            "Pending" => pending(workload),
            "Dispatching" => waits_for_nodes(workload),
            _ => None,
        };
        self.0.extend(why.map(|why| (name, why)));
    }

    /// Notes about the workloads of a plan that have quota, for those that don't run at the manager.
    pub(super) fn notes(&self, plan: &PlanReport) -> Vec<String> {
        let has_quota = |holder: &&Holder| holder.state != HolderState::Stopping;
        let held = plan.admitted.iter().filter(has_quota);
        let held: Vec<(&String, &String)> =
            held.filter_map(|holder| self.0.get_key_value(&holder.workload)).collect();
        let mut notes: Vec<String> = held
            .iter()
            .take(NAMED_MAX)
            .map(|(name, why)| format!("`{name}` has quota here, and doesn't run: the manager says: {why}"))
            .collect();
        if let Some(more) = held.len().checked_sub(NAMED_MAX + 1) {
            notes.push(format!("the same holds for {} more: see `meridian get workloads -A`", more + 1));
        }
        notes
    }
}

/// Why a workload has no quota.
fn pending(workload: &Value) -> Option<String> {
    let conditions = workload.pointer("/status/conditions")?.as_array()?;
    let reserved = conditions.iter().find(|condition| condition["type"] == "QuotaReserved")?;
    let message = text(reserved, "/message");
    (reserved["status"] == "False" && !message.is_empty()).then(|| message.to_owned())
}

/// Where a workload waits for nodes. `None` if it waits for answers of clusters only.
fn waits_for_nodes(workload: &Value) -> Option<String> {
    let legs = workload.pointer("/status/meridian/legs")?.as_array()?;
    let waiting = legs.iter().filter(|leg| leg["state"] == "Waiting");
    let clusters: Vec<String> = waiting.map(|leg| format!("`{}`", text(leg, "/cluster"))).collect();
    (!clusters.is_empty()).then(|| format!("waiting for nodes of the provider in {}", clusters.join(", ")))
}

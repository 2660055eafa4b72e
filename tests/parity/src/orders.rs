//! Groups 1 and 2, orders: of entries in a cycle, of candidates for preemption, and of queues that victims
//! come from.

use crate::case::Case;
use crate::json::{bare_queue, items, number, text};
use crate::state::{node, queue};
use crate::verdict::{Differences, Verdict};
use meridian_queueing::cycle::{EntryKey, classical_order};
use meridian_queueing::preemption::{FairOrder, sort_candidates};
use meridian_queueing::queue_state::LocalQueueUsage;
use meridian_queueing::{NANOS_PER_UNIT, NanoUsage};
use serde_json::Value;
use std::collections::BTreeMap;

fn names(value: &Value) -> Vec<&str> {
    items(value).iter().map(text).collect()
}

pub(crate) fn entries(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let loaded = case.load();
    let mut entries = Vec::new();
    for entry in items(&case.act()["entries"]) {
        let workload = case.workload(&entry["workload"])?;
        let rank = EntryKey {
            holds: workload.status.is("QuotaReserved"),
            preemptor: entry["preemptor"] == true,
            borrowing: number(&entry["borrowing"])?,
            priority: loaded.priority(workload),
            since: loaded.queue_time(workload),
        };
        entries.push((rank, text(&entry["workload"])));
    }
    entries.sort_by(|a, b| classical_order(&a.0, &b.0, &case.settings().gates));
    let mut differences = Differences::default();
    differences.decision(
        "order",
        &entries.into_iter().map(|(_, key)| key).collect(),
        &names(&case.expect()["order"]),
    );
    Ok(differences.verdict())
}

/// Whether local queues are ordered by their usage history.
fn orders_by_usage(case: &Case<'_>) -> bool {
    let settings = case.settings();
    settings.admission_fair_sharing.is_some() && settings.gates.admission_fair_sharing
}

pub(crate) fn candidates(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let by_usage = orders_by_usage(case);
    let own = text(&act["preemptorClusterQueue"]);
    // A queue is ordered by usage if its candidates say the usage of their local queues.
    let mut queues: BTreeMap<&str, bool> = BTreeMap::from([(own, false)]);
    for candidate in items(&act["candidates"]) {
        *queues.entry(text(&candidate["clusterQueue"])).or_default() |=
            by_usage && !candidate["localQueueUsage"].is_null();
    }
    let queues = queues
        .into_iter()
        .map(|(name, by_usage)| bare_queue(name, by_usage))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut loaded = case.load_with(&queues);
    let mut order = Vec::new();
    for candidate in items(&act["candidates"]) {
        // Candidates hold quota, whatever their status says.
        let id = match loaded.state.find(text(&candidate["workload"])) {
            Some(id) => id,
            None => {
                let queue = queue(&loaded.state, text(&candidate["clusterQueue"]))?;
                loaded.add_holder(case.workload(&candidate["workload"])?, queue)
            }
        };
        let state = &mut loaded.state;
        if let (Some(usage), Some(workload)) = (candidate["localQueueUsage"].as_f64(), state.workload(id)) {
            let (local_queue, cpu) = (workload.local_queue.clone(), state.resource("cpu"));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "cases are small"
            )]
            let consumed = NanoUsage::from([(cpu, (usage * NANOS_PER_UNIT as f64).round() as i128)]);
            state.set_local_usage(
                local_queue,
                LocalQueueUsage { consumed, weight: 1.0, ..LocalQueueUsage::default() },
            );
        }
        order.push(id);
    }
    let state = loaded.state;
    let own = queue(&state, own)?;
    let order: Vec<String> = sort_candidates(&state, by_usage, own, order)
        .into_iter()
        .filter_map(|id| state.workload(id))
        .map(|w| w.key.to_string())
        .collect();
    let mut differences = Differences::default();
    differences.decision(
        "order",
        &order.iter().map(String::as_str).collect(),
        &names(&case.expect()["order"]),
    );
    Ok(differences.verdict())
}

pub(crate) fn target_queues(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (state, act) = (case.load().state, case.act());
    let own = text(&act["preemptorClusterQueue"]);
    let mut candidates = Vec::new();
    for name in names(&act["candidateClusterQueues"]) {
        candidates.extend(&state.queue(queue(&state, name)?).holders);
    }
    // Of equal shares, the first candidate decides.
    let candidates = sort_candidates(&state, orders_by_usage(case), queue(&state, own)?, candidates);
    let mut order = FairOrder::new(&state, queue(&state, own)?, node(&state, own)?, &candidates);
    let mut visited = Vec::new();
    while let Some(visit) = order.next(&state) {
        let drops = text(&act["actions"][visited.len()]) == "drop";
        visited.push(state.queue(visit.queue).setup.name.to_string());
        if drops {
            order.drop_queue(visit);
        } else {
            order.pop(visit);
        }
    }
    let mut differences = Differences::default();
    differences.decision(
        "order",
        &visited.iter().map(String::as_str).collect(),
        &names(&case.expect()["order"]),
    );
    Ok(differences.verdict())
}

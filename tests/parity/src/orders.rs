//! Orders: in which entries are processed, candidates considered, and queues visited for victims.

use crate::case::{Case, items, node, queue, text};
use crate::quota::bare_queue;
use crate::verdict::{Differences, Verdict};
use meridian_queueing::brain::LocalUsage;
use meridian_queueing::cycle::{Rank, classical_order};
use meridian_queueing::preempt::{FairOrder, in_order};
use meridian_queueing::{PARTS, Parts};
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
        let rank = Rank {
            holds: workload.status.is("QuotaReserved"),
            preemptor: entry["preemptor"] == true,
            borrowing: u32::try_from(entry["borrowing"].as_u64().unwrap_or(0))?,
            priority: loaded.priority(workload),
            since: loaded.since(workload),
        };
        entries.push((rank, text(&entry["workload"])));
    }
    entries.sort_by(|a, b| classical_order(&a.0, &b.0, &case.options.settings.gates));
    let mut differences = Differences::default();
    differences.decision(
        "order",
        &entries.into_iter().map(|(_, key)| key).collect(),
        &names(&case.expect()["order"]),
    );
    Ok(differences.verdict())
}

fn by_usage(case: &Case<'_>) -> bool {
    let settings = &case.options.settings;
    settings.admission_fair_sharing.is_some() && settings.gates.admission_fair_sharing
}

pub(crate) fn candidates(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let by_usage = by_usage(case);
    let own = text(&act["preemptorClusterQueue"]);
    // A queue is ordered by use where its candidates say what their local queues used.
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
        // All candidates hold quota, whatever is written down about it.
        let id = match loaded.brain.find(text(&candidate["workload"])) {
            Some(id) => id,
            None => {
                let queue = queue(&loaded.brain, text(&candidate["clusterQueue"]))?;
                loaded.hold_in(case.workload(&candidate["workload"])?, queue)
            }
        };
        let brain = &mut loaded.brain;
        if let (Some(usage), Some(workload)) = (candidate["localQueueUsage"].as_f64(), brain.workload(id)) {
            let (local_queue, cpu) = (workload.local_queue.clone(), brain.resource("cpu"));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "cases are small"
            )]
            let consumed = Parts::from([(cpu, (usage * PARTS as f64).round() as i128)]);
            brain.set_local_usage(local_queue, LocalUsage { consumed, weight: 1.0, ..LocalUsage::default() });
        }
        order.push(id);
    }
    let brain = loaded.brain;
    let own = queue(&brain, own)?;
    let order: Vec<String> = in_order(&brain, by_usage, own, order)
        .into_iter()
        .filter_map(|id| brain.workload(id))
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
    let (brain, act) = (case.load().brain, case.act());
    let own = text(&act["preemptorClusterQueue"]);
    let mut candidates = Vec::new();
    for name in names(&act["candidateClusterQueues"]) {
        candidates.extend(&brain.queue(queue(&brain, name)?).holders);
    }
    // Candidates come in their own order: of equal shares the one that comes first decides.
    let candidates = in_order(&brain, by_usage(case), queue(&brain, own)?, candidates);
    let mut order = FairOrder::new(&brain, queue(&brain, own)?, node(&brain, own)?, &candidates);
    let mut visited = Vec::new();
    while let Some(visit) = order.next(&brain) {
        let drops = text(&act["actions"][visited.len()]) == "drop";
        visited.push(brain.queue(visit.queue).setup.name.to_string());
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

//! P6: every workload that isn't running has a reason, one per cluster, and a remedy.
//!
//! After a whole turn nothing is left to decide. A workload that is reported as next repeatedly and keeps
//! waiting has an obstacle without a name: a forgotten reason, or a cluster that delays all others (P8).

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::ids::Uid;
use meridian_shared::time::Now;
use std::collections::BTreeMap;

/// Messages for a workload without a known obstacle.
const NEXT: [&str; 2] = ["offered in the next scheduling cycle", "waiting for the next scheduling cycle"];
/// Longest time in which a workload may be reported as next. Decisions on the change that woke it take much
/// less time.
const NEXT_MS_MAX: u64 = 1_200;
/// Most turns in which a workload may be reported as next, beyond that time.
const NEXT_TURNS_MAX: u32 = 10;

/// Workloads that a manager last reported as next: since when, and in how many turns.
#[derive(Debug, Default)]
pub(crate) struct Explanations(BTreeMap<(usize, Uid), (u64, u32)>);

/// Why a workload isn't running.
pub(crate) enum Explanation {
    /// The workload waits for a named obstacle.
    Reason,
    /// The workload is next, and the explanation says only that.
    Next(String),
}

impl Explanations {
    /// Workloads that this manager last reported as next.
    pub(crate) fn next_of(&self, manager: usize) -> Vec<Uid> {
        self.0.keys().filter(|(of, _)| *of == manager).map(|(_, uid)| *uid).collect()
    }

    /// Takes one explanation.
    pub(crate) fn check(&mut self, manager: usize, uid: Uid, at: u64, explanation: Explanation) -> Verdict {
        let Explanation::Next(text) = explanation else {
            self.0.remove(&(manager, uid));
            return Ok(());
        };
        let (since, turns) = self.0.entry((manager, uid)).or_insert((at, 0));
        *turns += 1;
        if *turns > NEXT_TURNS_MAX && at - *since > NEXT_MS_MAX {
            let waits = at - *since;
            let details = format!("{uid} is reported as next for {waits} ms, in {turns} turns: {text}");
            return violation("P6, P8", details);
        }
        Ok(())
    }
}

/// The explanation of a workload; a violation where a part of it is missing.
pub(crate) fn explain(
    world: &World,
    uid: Uid,
    now: Now,
) -> Result<Explanation, crate::sim::invariants::violation::Violation> {
    let pending = world.state().workloads().get(&uid).is_some_and(|w| w.phase() == Phase::Pending);
    let Some(explained) =
        meridian_views::explain::explain(world, uid, now, &meridian_views::asker::Asker::unlimited())
    else {
        return Ok(Explanation::Reason);
    };
    let missing = |what: &str| {
        violation("P6", format!("{uid} waits, and {what} is missing: {explained}"))
            .map(|()| Explanation::Reason)
    };
    let summary = explained["summary"].as_str().unwrap_or_default();
    if summary.trim_start_matches("pending:").trim().is_empty() {
        return missing("the reason");
    }
    let mut next = summary.contains(NEXT[1]);
    for cluster in explained["clusters"].as_array().into_iter().flatten() {
        let [verdict, reason] = ["verdict", "reason"].map(|key| cluster[key].as_str().unwrap_or_default());
        if verdict.is_empty() || reason.is_empty() {
            return missing("the reason of a cluster");
        }
        next |= reason.contains(NEXT[0]);
    }
    if pending && !next && explained["wouldHelp"].as_str().is_none_or(str::is_empty) {
        return missing("a remedy");
    }
    Ok(if next { Explanation::Next(explained.to_string()) } else { Explanation::Reason })
}

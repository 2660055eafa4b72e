//! P6: whoever isn't running is told why, by each cluster too, and what would help; and what is told holds.
//!
//! After a whole turn everything is decided that could be. Who is told time and again that it is next, and waits on, waits for
//! something that nobody knows: a reason that is forgotten, or a cluster that keeps all others waiting (P8). Asking costs more
//! than deciding, so a few of those who wait are looked at now and then.

use super::Sim;
use super::oracle::{Verdict, broken};
use meridian_manager_core::World;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::ids::Uid;
use meridian_shared::time::Now;
use std::collections::BTreeMap;

/// Turns between two looks.
const TURNS: u64 = 16;
/// How many of those who wait are looked at each time.
const LOOKED_AT: usize = 4;
/// What is said where nothing is known to be in the way.
const NEXT: [&str; 2] = ["it is asked in the next round", "waits for the next scheduling pass"];
/// For so long one may be told that: whatever it was woken by is decided long before.
const NEXT_MS_MAX: u64 = 1_200;
/// And so often.
const NEXT_TURNS_MAX: u32 = 10;

/// Who was told last by which manager that it is next: since when, and in how many turns.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<(usize, Uid), (u64, u32)>);

/// What one workload is told.
enum Saying {
    /// What it waits for.
    Reason,
    /// Nothing is in its way, in these words.
    Next(String),
}

impl Sim {
    /// After a turn of a manager that left nothing to be decided.
    pub(super) fn judge_explained(&mut self, m: usize, turn: u64, now: Now) {
        let Some(world) = self.managers[m].world.as_ref().filter(|world| !world.undecided()) else { return };
        let mut some: Vec<Uid> = self.told.0.keys().filter(|(by, _)| *by == m).map(|(_, uid)| *uid).collect();
        if turn.is_multiple_of(TURNS) {
            let waits = |phase: Phase| matches!(phase, Phase::Pending | Phase::Reserved | Phase::Dispatching);
            let waiting: Vec<Uid> =
                world.state.workloads.iter().filter(|(_, w)| waits(w.phase)).map(|(uid, _)| *uid).collect();
            let first = usize::try_from(turn / TURNS).unwrap_or(0) * LOOKED_AT % waiting.len().max(1);
            some.extend(waiting.iter().cycle().skip(first).take(LOOKED_AT.min(waiting.len())));
            some.sort_unstable();
            some.dedup();
        }
        self.counters.add("reasons told", some.len() as u64);
        let verdict = some
            .into_iter()
            .try_for_each(|uid| self.told.take_in((m, uid), self.now, said_to(world, uid, now)?));
        self.judge(verdict);
    }
}

impl Told {
    fn take_in(&mut self, key: (usize, Uid), at: u64, saying: Saying) -> Verdict {
        let Saying::Next(words) = saying else {
            self.0.remove(&key);
            return Ok(());
        };
        let (since, turns) = self.0.entry(key).or_insert((at, 0));
        *turns += 1;
        if *turns > NEXT_TURNS_MAX && at - *since > NEXT_MS_MAX {
            return broken(
                "P6, P8",
                format!(
                    "{} has been next since {since}, in {turns} turns, and nothing says what it waits for: {words}",
                    key.1
                ),
            );
        }
        Ok(())
    }
}

fn said_to(world: &World, uid: Uid, now: Now) -> Result<Saying, super::oracle::Broken> {
    let pending = world.state.workloads.get(&uid).is_some_and(|w| w.phase == Phase::Pending);
    let Some(told) = world.explain(uid, now) else { return Ok(Saying::Reason) };
    let missing = |what: &str| {
        broken("P6", format!("{uid} waits, and nothing says {what}: {told}")).map(|()| Saying::Reason)
    };
    let summary = told["summary"].as_str().unwrap_or_default();
    if summary.trim_start_matches("waits:").trim().is_empty() {
        return missing("why");
    }
    let mut next = summary.contains(NEXT[1]);
    for cluster in told["clusters"].as_array().into_iter().flatten() {
        let [verdict, reason] = ["verdict", "reason"].map(|key| cluster[key].as_str().unwrap_or_default());
        if verdict.is_empty() || reason.is_empty() {
            return missing("what a cluster has against it");
        }
        next |= reason.contains(NEXT[0]);
    }
    if pending && !next && told["wouldHelp"].as_str().is_none_or(str::is_empty) {
        return missing("what would help");
    }
    Ok(if next { Saying::Next(told.to_string()) } else { Saying::Reason })
}

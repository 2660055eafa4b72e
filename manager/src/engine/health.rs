//! Problems of a manager that leads: for probes, metrics and the log.

#[cfg(test)]
mod tests;

use crate::journal::Part;
use crate::locks;
use crate::metrics::Metrics;
use meridian_manager_core::World;
use std::collections::BTreeSet;
use std::sync::Mutex;

const PARTS: [Part; 3] = [Part::Records, Part::Snapshot, Part::Audit];

/// Shared by the engine, which knows the disk and the jobs, and by the scrub, which knows the rest.
#[derive(Debug)]
pub(super) struct Health {
    state: Mutex<State>,
    metrics: Metrics,
}

/// Reasons why workloads aren't offered, besides their pending reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    /// Number of clusters whose inventory an open recovery waits for.
    recovery: Option<usize>,
    rules_in_doubt: bool,
}

impl Holds {
    pub(super) fn of(world: &World) -> Self {
        Self {
            recovery: world.state.recovery().map(|_| world.live.awaited.len()),
            rules_in_doubt: world.state.rules_doubted().is_some(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    full: bool,
    holds: Holds,
    /// Why the manager doesn't lead; empty before the first attempt.
    pause: String,
    /// Number of jobs whose stored manifest can't be read.
    damaged_jobs: usize,
    damaged_parts: BTreeSet<Part>,
}

impl Health {
    pub(super) fn new(metrics: Metrics) -> Self {
        let health = Self { state: Mutex::default(), metrics };
        health.show(&State::default());
        health
    }

    /// Whether the journal's disk is full, and the number of jobs with a damaged manifest.
    pub(super) fn observe(&self, full: bool, damaged_jobs: usize) {
        self.change(|state| (state.full, state.damaged_jobs) = (full, damaged_jobs));
    }

    /// Stores the current holds.
    pub(super) fn observe_holds(&self, holds: Holds) {
        self.change(|state| state.holds = holds);
    }

    /// Why the manager doesn't lead from now on.
    pub(super) fn set_pause(&self, why: String) {
        self.change(|state| state.pause = why);
    }

    /// Why this manager doesn't lead, and what continues without a leader.
    pub(super) fn pause(&self) -> String {
        let why = match locks::lock(&self.state).pause.as_str() {
            "" => "this manager is starting, or stopping".to_owned(),
            why => why.to_owned(),
        };
        format!(
            "{why}; until it leads, nothing is stored, started or renewed, and running gangs continue until \
             their leases end"
        )
    }

    /// One line for each kind of work that is held back although nothing is wrong.
    pub(super) fn holds(&self) -> Vec<String> {
        let holds = locks::lock(&self.state).holds;
        let recovery = holds.recovery.map(|clusters| {
            let awaited = match clusters {
                0 => "an operator's confirmation is missing".to_owned(),
                1 => "1 cluster hasn't reported yet what it runs".to_owned(),
                many => format!("{many} clusters haven't reported yet what they run"),
            };
            format!(
                "recovery is open: {awaited}; jobs from before this start are kept back, new ones start (see \
                 `meridian journal recovery`)"
            )
        });
        let rules = holds.rules_in_doubt.then(|| {
            "policies and quotas may be outdated: nothing is offered until all clusters have reported or an \
             operator runs `meridian journal confirm`"
                .to_owned()
        });
        recovery.into_iter().chain(rules).collect()
    }

    pub(super) fn has_damaged_jobs(&self) -> bool {
        locks::lock(&self.state).damaged_jobs > 0
    }

    pub(super) fn set_part(&self, part: Part, damaged: bool) {
        self.change(|state| match damaged {
            true => drop(state.damaged_parts.insert(part)),
            false => drop(state.damaged_parts.remove(&part)),
        });
    }

    /// One line for each problem. It names no job, because probes have no user.
    pub(super) fn problems(&self) -> Vec<String> {
        locks::lock(&self.state).problems()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = locks::lock(&self.state);
        let before = state.clone();
        change(&mut state);
        if *state == before {
            return;
        }
        self.show(&state);
        let known = before.problems();
        for problem in state.problems().iter().filter(|problem| !known.contains(problem)) {
            tracing::error!("{problem}");
        }
    }

    fn show(&self, state: &State) {
        let journal = &self.metrics.journal;
        journal.full.set(i64::from(state.full));
        journal.damaged.set(["manifests"], i64::try_from(state.damaged_jobs).unwrap_or(i64::MAX));
        for part in PARTS {
            journal.damaged.set([name(part)], i64::from(state.damaged_parts.contains(&part)));
        }
    }
}

impl State {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.full {
            problems.push(
                "the disk of the manager's journal is full: until space is freed, only ends and deletions \
                 are taken, new jobs and changes are refused, and pending jobs are kept back; running \
                 gangs continue"
                    .to_owned(),
            );
        }
        match self.damaged_jobs {
            0 => {}
            jobs => problems.push(format!(
                "{jobs} job{} a damaged manifest and can't start again: see the condition `Damaged` of jobs; \
                 restore the journal from a backup, or submit them again",
                if jobs == 1 { " has" } else { "s have" }
            )),
        }
        problems.extend(self.damaged_parts.iter().map(|part| {
            format!(
                "the journal's {} can't be read: this manager continues from its memory, but can't \
                 start again; restore the journal from a backup",
                match part {
                    Part::Records => "records",
                    Part::Snapshot => "snapshot",
                    Part::Audit => "audit log",
                }
            )
        }));
        problems
    }
}

/// The label of a part in metrics.
fn name(part: Part) -> &'static str {
    match part {
        Part::Records => "records",
        Part::Snapshot => "snapshot",
        Part::Audit => "audit",
    }
}

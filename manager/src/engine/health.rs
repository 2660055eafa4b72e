//! Problems of a manager that leads: for probes, metrics and the log.

#[cfg(test)]
mod tests;

use crate::journal::Part;
use crate::journal::medium::RESERVE_BYTES;
use crate::locks;
use crate::metrics::Metrics;
use meridian_manager_core::World;
use std::collections::BTreeSet;
use std::sync::Mutex;

const PARTS: [Part; 3] = [Part::Records, Part::Snapshot, Part::Audit];

/// Problems found by the engine, which knows the disk and the jobs, and by the scrub, which knows the other
/// data.
#[derive(Debug)]
pub(super) struct Health {
    state: Mutex<State>,
    metrics: Metrics,
}

/// Reasons why workloads aren't offered, other than their own pending reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    /// Number of clusters whose inventory is missing while recovery is open.
    recovery: Option<usize>,
    /// Whether recovery also waits for an operator, because the journal is a copy.
    unconfirmed: bool,
    rules_in_doubt: bool,
}

impl Holds {
    pub(super) fn of(world: &World) -> Self {
        Self {
            recovery: world.state().recovery().map(|_| world.live().recovery().awaited().len()),
            unconfirmed: world
                .state()
                .recovery()
                .is_some_and(|recovery| recovery.restored || recovery.members_unknown),
            rules_in_doubt: world.state().rules_doubted().is_some(),
        }
    }
}

/// The disk counts as full below this much free space: a few commits of usual size.
const FREE_BYTES_MIN: u64 = 1 << 20;
/// A disk that was found full counts as full until it has this much free space, or new work was stored. More
/// than the reserve's size, because the reserve counts as free space once it was released.
const FREE_BYTES_ENOUGH: u64 = 2 * RESERVE_BYTES;

/// What commits have found out about the journal's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskState {
    /// New work is refused now.
    pub(super) refuses: bool,
    /// New work was refused, and no new work was stored since.
    pub(super) found_full: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    disk: DiskState,
    /// Free space of the disk without the reserve; `None` if that isn't known.
    free_bytes: Option<u64>,
    holds: Holds,
    /// Why the manager doesn't lead; empty before the first attempt.
    pause: String,
    /// Number of jobs whose stored manifest can't be read.
    damaged_jobs: usize,
    damaged_parts: BTreeSet<Part>,
    /// Numbers of the audit log's segments that can't be verified.
    damaged_segments: BTreeSet<u64>,
    /// Whether the statement on removed segments of the audit log can't be verified.
    damaged_statement: bool,
}

impl Health {
    pub(super) fn new(metrics: Metrics) -> Self {
        let health = Self { state: Mutex::default(), metrics };
        health.show(&State::default());
        health
    }

    /// The state of the journal's disk, and the number of jobs with a damaged manifest.
    pub(super) fn observe(&self, disk: DiskState, damaged_jobs: usize) {
        self.change(|state| (state.disk, state.damaged_jobs) = (disk, damaged_jobs));
    }

    /// Notes that a commit found the disk full.
    pub(super) fn disk_is_full(&self) {
        self.change(|state| state.disk.found_full = true);
    }

    /// Stores the free space of the journal's disk.
    pub(super) fn observe_free(&self, bytes: u64) {
        self.change(|state| state.free_bytes = Some(bytes));
    }

    /// Stores the current holds.
    pub(super) fn observe_holds(&self, holds: Holds) {
        self.change(|state| state.holds = holds);
    }

    /// Sets why the manager doesn't lead from now on.
    pub(super) fn set_pause(&self, why: String) {
        self.change(|state| state.pause = why);
    }

    /// Explains why this manager doesn't lead, and what continues without a leader.
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
            let unconfirmed =
                if holds.unconfirmed { ", and an operator's confirmation is missing" } else { "" };
            let awaited = match clusters {
                0 => "an operator's confirmation is missing".to_owned(),
                1 => format!("1 cluster hasn't reported yet what it runs{unconfirmed}"),
                many => format!("{many} clusters haven't reported yet what they run{unconfirmed}"),
            };
            let new = if holds.rules_in_doubt { "" } else { ", and new ones start" };
            format!(
                "recovery is open: {awaited}; jobs that were submitted before the manager started may be \
                 held{new} (see `meridian journal recovery`)"
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

    /// Sets the audit log's damaged segments, by number, and whether the statement on removed segments is
    /// damaged.
    pub(super) fn set_segments(&self, damaged: BTreeSet<u64>, statement_damaged: bool) {
        self.change(|state| (state.damaged_segments, state.damaged_statement) = (damaged, statement_damaged));
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
        journal.full.set(i64::from(state.refuses()));
        journal.damaged.set(["manifests"], i64::try_from(state.damaged_jobs).unwrap_or(i64::MAX));
        for part in PARTS {
            journal.damaged.set([name(part)], i64::from(state.is_damaged(part)));
        }
    }
}

impl State {
    /// Whether new work is refused, or was refused and no sign of free space was seen since.
    fn refuses(&self) -> bool {
        let has_space = self.free_bytes.is_some_and(|free| free >= FREE_BYTES_ENOUGH);
        self.disk.refuses || (self.disk.found_full && !has_space)
    }

    fn is_damaged(&self, part: Part) -> bool {
        let audit_files = self.damaged_statement || !self.damaged_segments.is_empty();
        self.damaged_parts.contains(&part) || (part == Part::Audit && audit_files)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.refuses() {
            problems.push(
                "the disk of the manager's journal is full: until space is freed, only ends and deletions \
                 are taken, new jobs and changes are refused, and pending jobs are kept back; running \
                 gangs continue"
                    .to_owned(),
            );
        } else if self.free_bytes.is_some_and(|free| free < FREE_BYTES_MIN) {
            problems.push(
                "the disk of the manager's journal is full: only the space reserved for ends and deletions \
                 is left; free some before new jobs and changes are refused"
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
        problems.extend(segments_problem(&self.damaged_segments));
        problems.extend(self.damaged_statement.then(|| {
            "`removed.json` of the audit log is damaged, so removed segments can't be told from missing \
             ones: replace it by a copy from a backup (see `meridian audit verify`)"
                .to_owned()
        }));
        problems
    }
}

fn segments_problem(damaged: &BTreeSet<u64>) -> Option<String> {
    let first = damaged.first()?;
    let which = match damaged.len() {
        1 => format!("segment {first} of the audit log is"),
        many => format!("segment {first} of the audit log and {} more are", many - 1),
    };
    Some(format!(
        "{which} damaged or missing: replace the file by the copy that was exported, or by one from a backup \
         (see `meridian audit verify`)"
    ))
}

/// The label of a part in metrics.
fn name(part: Part) -> &'static str {
    match part {
        Part::Records => "records",
        Part::Snapshot => "snapshot",
        Part::Audit => "audit",
    }
}

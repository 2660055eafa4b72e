//! Results of the evaluated flavors, and the obstacle that they show for the workload.

use crate::model::{
    Assignment, FlavorAttempt, Mode, Obstacle, PreemptionPossibility, QueueSetup, Reason, ResourceGroup,
};
use crate::names::FlavorId;
use crate::queue_state::QueueState;

/// Attempts of one group of pod sets.
#[derive(Default)]
pub(super) struct Attempts {
    all: Vec<FlavorAttempt>,
}

impl Attempts {
    /// Index of the first attempt of the next resource group.
    pub(super) fn begin(&self) -> usize {
        self.all.len()
    }

    /// Drops all later attempts.
    pub(super) fn rewind(&mut self, to: usize) {
        self.all.truncate(to);
    }

    pub(super) fn no_fit(&mut self, flavor: FlavorId, why: Reason) {
        let obstacle = Some(Obstacle::NoMatchingFlavor);
        self.all.push(FlavorAttempt {
            flavor,
            mode: Mode::NoFit,
            borrowing: 0,
            possibility: None,
            reasons: vec![why],
            obstacle,
        });
    }

    pub(super) fn tried(
        &mut self,
        flavor: FlavorId,
        possibility: PreemptionPossibility,
        borrowing: u32,
        why: &[Reason],
        obstacle: Option<Obstacle>,
    ) {
        let is_simulated = !matches!(possibility, PreemptionPossibility::Fit | PreemptionPossibility::NoFit);
        let simulated = is_simulated.then_some(possibility);
        self.all.push(FlavorAttempt {
            flavor,
            mode: possibility.mode(),
            borrowing,
            possibility: simulated,
            reasons: why.to_vec(),
            obstacle,
        });
    }

    /// Merges the attempts since `before` with those of the same flavors in earlier resource groups.
    pub(super) fn merge(&mut self, before: usize, group: &ResourceGroup) {
        if before == 0 {
            return;
        }
        let fresh = self.all.split_off(before);
        if !fresh.is_empty() {
            for old in &mut self.all {
                if group.flavors.contains(&old.flavor) && !fresh.iter().any(|f| f.flavor == old.flavor) {
                    old.mode = Mode::NoFit;
                    old.obstacle = Some(Obstacle::NoMatchingFlavor);
                }
            }
        }
        for attempt in fresh {
            let Some(old) = self.all.iter_mut().find(|old| old.flavor == attempt.flavor) else {
                self.all.push(attempt);
                continue;
            };
            old.mode = old.mode.min(attempt.mode);
            old.borrowing = old.borrowing.max(attempt.borrowing);
            old.possibility = match (old.possibility, attempt.possibility) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            old.reasons.extend(attempt.reasons);
            old.reasons.sort();
            old.reasons.dedup();
            old.obstacle = old.obstacle.max(attempt.obstacle);
        }
    }

    /// The attempts, sorted by flavor name.
    pub(super) fn finish(mut self, state: &QueueState) -> Vec<FlavorAttempt> {
        if self.all.len() > 1 {
            self.all.sort_by(|a, b| state.flavor_name(a.flavor).cmp(state.flavor_name(b.flavor)));
        }
        self.all
    }
}

fn has_uncovered(assignment: &Assignment) -> bool {
    assignment.reasons().any(|(_, reason)| matches!(reason, Reason::ResourceNotCovered { .. }))
}

/// The obstacle that must change before the workload can start. An uncovered resource must be fixed, whatever
/// was tried before.
pub(super) fn barrier(assignment: &Assignment) -> Option<Obstacle> {
    let uncovered = assignment.mode() == Mode::NoFit && has_uncovered(assignment);
    if uncovered { Some(Obstacle::NoMatchingFlavor) } else { assignment.obstacle }
}

/// The reported obstacle of a workload that doesn't fit: the mildest among alternative flavors, the worst
/// among requirements that must all be met. As in Kueue, only flavors that were tried count, if any were.
pub(super) fn obstacle(assignment: &Assignment, setup: &QueueSetup) -> Option<Obstacle> {
    if assignment.mode() != Mode::NoFit {
        return None;
    }
    let mut worst = None;
    for set in assignment.pod_sets.iter().filter(|set| set.mode() == Mode::NoFit) {
        if set.attempts.is_empty() {
            worst = worst.max(Some(Obstacle::NoMatchingFlavor));
            continue;
        }
        let mut strays = Vec::new();
        let mut by_group: Vec<Option<Option<Obstacle>>> = vec![None; setup.groups.len()];
        for attempt in set.attempts.iter().filter(|a| a.mode == Mode::NoFit) {
            let mut known = false;
            for (group, mildest) in setup.groups.iter().zip(&mut by_group) {
                if group.flavors.contains(&attempt.flavor) {
                    known = true;
                    *mildest =
                        Some(mildest.map_or(attempt.obstacle, |m: Option<Obstacle>| m.min(attempt.obstacle)));
                }
            }
            if !known {
                strays.push(attempt.obstacle);
            }
        }
        worst = by_group.into_iter().flatten().chain(strays).fold(worst, Option::max);
    }
    // If all flavors that were tried fit, Kueue reports no obstacle.
    worst.or_else(|| has_uncovered(assignment).then_some(Obstacle::NoMatchingFlavor))
}

//! What became of every flavor that was looked at, and what that says about the workload as a whole.

use super::{Assignment, Mode, Possibility};
use crate::brain::Brain;
use crate::model::{Group, QueueSetup};
use crate::names::FlavorId;
use crate::reason::{Obstacle, Reason};
use serde::{Deserialize, Serialize};

/// A flavor that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The flavor.
    pub flavor: FlavorId,
    /// The worst mode over the resources.
    pub mode: Mode,
    /// From how far away quota would come.
    pub borrowing: u32,
    /// What displacing others would bring, where it was asked.
    pub possibility: Option<Possibility>,
    /// Why not, or not at once.
    pub reasons: Vec<Reason>,
    /// What stands in the way, where it doesn't fit.
    pub obstacle: Option<Obstacle>,
}

/// Attempts of one group of pod sets.
#[derive(Default)]
pub(super) struct Attempts {
    all: Vec<Attempt>,
}

impl Attempts {
    /// Where the attempts of the next resource group begin.
    pub(super) fn begin(&self) -> usize {
        self.all.len()
    }

    /// Forgets what came after.
    pub(super) fn rewind(&mut self, to: usize) {
        self.all.truncate(to);
    }

    pub(super) fn no_fit(&mut self, flavor: FlavorId, why: Reason) {
        let obstacle = Some(Obstacle::NoMatchingFlavor);
        self.all.push(Attempt {
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
        possibility: Possibility,
        borrowing: u32,
        why: &[Reason],
        obstacle: Option<Obstacle>,
    ) {
        let asked = !matches!(possibility, Possibility::Fit | Possibility::NoFit);
        let possibility_asked = asked.then_some(possibility);
        self.all.push(Attempt {
            flavor,
            mode: possibility.mode(),
            borrowing,
            possibility: possibility_asked,
            reasons: why.to_vec(),
            obstacle,
        });
    }

    /// Joins what was found since `before` with what earlier resource groups found of the same flavors.
    pub(super) fn merge(&mut self, before: usize, group: &Group) {
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

    /// By the flavors' names.
    pub(super) fn finish(mut self, brain: &Brain) -> Vec<Attempt> {
        if self.all.len() > 1 {
            self.all.sort_by(|a, b| brain.flavor_name(a.flavor).cmp(brain.flavor_name(b.flavor)));
        }
        self.all
    }
}

fn has_uncovered(assignment: &Assignment) -> bool {
    assignment.reasons().any(|(_, reason)| matches!(reason, Reason::ResourceNotCovered { .. }))
}

/// What has to change before a workload that fits nowhere starts. A resource that no group gives isn't waited for, whatever was
/// tried before it.
pub(super) fn barrier(assignment: &Assignment) -> Option<Obstacle> {
    let uncovered = assignment.mode() == Mode::NoFit && has_uncovered(assignment);
    if uncovered { Some(Obstacle::NoMatchingFlavor) } else { assignment.obstacle }
}

/// What is told as standing in the way of a workload that fits nowhere: of alternatives the mildest, of what is needed together
/// the worst. Kueue's word is about the flavors that were tried, where any were.
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
    // Where all that were tried fit, Kueue has no word.
    worst.or_else(|| has_uncovered(assignment).then_some(Obstacle::NoMatchingFlavor))
}

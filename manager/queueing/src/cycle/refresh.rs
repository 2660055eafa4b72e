//! Evaluates an entry again after changes by previous entries.

use crate::cycle::nominate::nomination;
use crate::cycle::{Cycle, CycleEntry, Recomputed};
use crate::model::{Mode, Target};
use crate::quota::CellId;

impl Cycle<'_> {
    /// Evaluates the entry again if previous entries changed its basis. Returns whether it fits now.
    pub(super) fn refresh(&mut self, entry: &mut CycleEntry) -> bool {
        let gates = &self.state.settings().gates;
        let (mode, topology_matters) = (entry.assignment.mode(), gates.topology && gates.topology_recompute);
        if entry.targets.is_empty() && !topology_matters && matches!(mode, Mode::NoFit | Mode::Preempt) {
            // The result doesn't matter in this case.
            return false;
        }
        let fit = self.fits(entry);
        let gates = &self.state.settings().gates;
        let lost_domains = fit.quota && !fit.placed && gates.topology_recompute;
        let overlaps = gates.recompute_on_target_overlap && self.has_taken_targets(entry);
        let outdated = gates.prioritize_preemptors
            && mode == Mode::Preempt
            && fit.is_full()
            && self.may_have_lost_entitlement(entry);
        if !lost_domains && !overlaps && !outdated {
            return fit.is_full();
        }
        if overlaps {
            self.count_victims(false);
            self.state.excluded_mut().swap_victims(&mut self.victims);
        }
        self.clear_scan(entry.workload);
        let nominated = nomination(&entry.assignment);
        // If an earlier entry has the same victims, the quota reserved for it counts as used, so that it
        // isn't promised twice. Otherwise reserved quota isn't in use and doesn't count.
        self.count_reserved_unless(overlaps, false);
        self.assign(entry, Some(&nominated));
        self.count_reserved_unless(overlaps, true);
        self.drop_victims_of_lenders(entry);
        if overlaps {
            self.state.excluded_mut().swap_victims(&mut self.victims);
            self.count_victims(true);
        }
        if overlaps && entry.assignment.mode() == Mode::Fit {
            entry.assignment.set_mode(Mode::DeferredFit);
        }
        let fit = self.fits(entry);
        if overlaps {
            let result = if entry.assignment.mode() == Mode::DeferredFit {
                Recomputed::DeferredFit
            } else if !entry.targets.is_empty() && fit.is_full() && !self.has_taken_targets(entry) {
                Recomputed::NewTargets
            } else {
                Recomputed::Skipped
            };
            *self.report.recomputed.entry((entry.queue, result)).or_default() += 1;
        }
        fit.is_full()
    }

    /// Whether a target of the entry is already a victim of another one.
    pub(super) fn has_taken_targets(&self, entry: &CycleEntry) -> bool {
        entry.targets.iter().any(|target| self.victims.contains(&target.workload))
    }

    /// Whether previous entries may have used up the quota that entitles the entry to preempt: in a
    /// hierarchy, quota of its subtree. (In a flat cohort it is the quota of its own queue, which no other
    /// entry uses.) Then its victims would stop in vain, because the next cycle wouldn't choose the entry
    /// again. Pinned by `semantics::preemption::cohort_quota_is_reclaimed_once_per_cycle`.
    fn may_have_lost_entitlement(&self, entry: &CycleEntry) -> bool {
        let Some(node) = self.state.node_of(entry.workload) else { return false };
        self.state.excluded().has_admitted() && self.state.forest().ancestors(node).nth(1).is_some()
    }

    /// Drops victims in queues that don't borrow yet. These queues would borrow only after other workloads
    /// have stopped for them.
    pub(super) fn drop_victims_of_lenders(&mut self, entry: &mut CycleEntry) {
        let Some(tree) = self.state.queue(entry.queue).tree else { return };
        let contested: Vec<CellId> = entry
            .assignment
            .contested()
            .into_iter()
            .filter_map(|key| self.state.forest().find_cell(tree, key))
            .collect();
        self.count_temporary(false);
        let lends = |target: &Target| {
            let of = self.state.get(&target.workload);
            let node = self
                .state
                .queue(of.queue)
                .node
                .filter(|_| of.queue != entry.queue && target.reason.is_some());
            node.is_some_and(|node| !contested.iter().any(|cell| self.state.forest().borrows(node, *cell)))
        };
        let is_unjust = entry.targets.iter().any(lends);
        self.count_temporary(true);
        if is_unjust {
            entry.targets.clear();
        }
    }
}
